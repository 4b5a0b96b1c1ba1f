package delivery

import (
	"strings"
	"unicode/utf8"
)

// StoreRequest is the body of PUT /stores/{externalStoreId} before any rule is
// applied. A decoder fills it in.
type StoreRequest struct {
	TaxNumber, Name, Phone            Text
	AddressText                       Text
	AddressLatitude, AddressLongitude Number
	FleetID                           Text

	// WrongType is as in OrderRequest; "address" when it is no object.
	WrongType []FieldError
}

// StoreFields is what a store consists of once a request has been merged with
// what was stored before.
type StoreFields struct {
	TaxNumber string // 10 or 11 digits
	Name      string
	Phone     string // 10 digits
	Address   string
	Point     Point
	Fleet     FleetID // zero when none is chosen
}

// Check applies every rule that needs no ledger and merges with the existing
// store (spec, "Store"; design section 9). Without one, all fields but fleetId
// are required; with one, absent fields keep what is stored, and latitude and
// longitude come together or not at all. A Deactivated store keeps its fields
// but not its fleet, because it registers anew. Faults count in the order name,
// phone, address.text, coordinates, taxNumber, fleetId; see OrderRequest.Check.
// The error is always a *Error.
func (r *StoreRequest) Check(existing *Store) (StoreFields, error) {
	first := existing == nil
	f := faults{wrongType: r.WrongType}
	given := StoreFields{
		Name:    f.text("name", r.Name, first, 1, maxStoreName),
		Phone:   f.phone("phone", r.Phone, first),
		Address: f.text("address.text", r.AddressText, first, 1, maxStoreAddress),
	}
	placed := first || r.AddressLatitude.Set || r.AddressLongitude.Set
	given.Point, placed = f.point("address.latitude", r.AddressLatitude, "address.longitude", r.AddressLongitude, placed)
	given.TaxNumber = f.taxNumber("taxNumber", r.TaxNumber, first)
	given.Fleet = f.fleetID("fleetId", r.FleetID)
	if err := f.result(); err != nil {
		return StoreFields{}, err
	}
	if first {
		return given, nil
	}
	return given.over(existing, placed), nil
}

// over fills what was not given from the stored store.
func (s StoreFields) over(stored *Store, placed bool) StoreFields {
	keep := func(given *string, stored string) {
		if *given == "" {
			*given = stored
		}
	}
	keep(&s.TaxNumber, stored.TaxNumber)
	keep(&s.Name, stored.Name)
	keep(&s.Phone, stored.Phone)
	keep(&s.Address, stored.Address)
	if !placed {
		s.Point = stored.Point
	}
	if s.Fleet.IsZero() && stored.State != Deactivated {
		s.Fleet = stored.Fleet
	}
	return s
}

func (f *faults) taxNumber(field string, t Text, required bool) string {
	if !f.present(field, t.Set, required) {
		return ""
	}
	value := strings.TrimSpace(t.Value)
	if _, rest := cutDigits(value); rest != "" || len(value) != 10 && len(value) != 11 {
		f.invalid(field, "must have 10 or 11 digits")
	}
	return value
}

func (f *faults) fleetID(field string, t Text) FleetID {
	if !f.present(field, t.Set, false) {
		return FleetID{}
	}
	fleet, err := ParseFleetID(t.Value)
	if err != nil || fleet.IsZero() {
		f.invalid(field, "must be the UUID of a fleet in availableFleets")
	}
	return fleet
}

// CheckExternalStoreID judges the path parameter of PUT
// /stores/{externalStoreId}: 1 to 64 code points, no control characters, and no
// white space around it, because an order's externalStoreId is trimmed and
// could never name such a store. The error is a *Error VALIDATION_FAILED.
func CheckExternalStoreID(s string) error {
	const field = "externalStoreId"
	f := faults{}
	switch length := utf8.RuneCountInString(s); {
	case length < 1 || length > maxExternalID:
		f.invalid(field, lengthMessage(1, maxExternalID))
	case idFault(s) != "":
		f.invalid(field, idFault(s))
	case strings.TrimSpace(s) != s:
		f.invalid(field, "must not begin or end with white space")
	}
	return f.result()
}
