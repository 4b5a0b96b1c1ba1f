package delivery

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"
)

// MaxReadyAtLead is how far ahead readyAt may be, inclusively.
const MaxReadyAtLead = 4 * time.Hour

// OrderRequest is the unchecked body of POST /orders.
type OrderRequest struct {
	ExternalStoreID         Text   `json:"externalStoreId"`
	ExternalOrderID         Text   `json:"externalOrderId"`
	OrderedAt               Text   `json:"orderedAt"`
	ReadyAt                 Text   `json:"readyAt"`
	RecipientName           Text   `json:"recipient.name"`
	RecipientPhone          Text   `json:"recipient.phone"`
	DropoffText             Text   `json:"dropoff.text"`
	DropoffLatitude         Number `json:"dropoff.latitude"`
	DropoffLongitude        Number `json:"dropoff.longitude"`
	DropoffBuildingNo       Text   `json:"dropoff.buildingNo"`
	DropoffDoorNo           Text   `json:"dropoff.doorNo"`
	DropoffFloor            Text   `json:"dropoff.floor"`
	DropoffNote             Text   `json:"dropoff.note"`
	PackageNote             Text   `json:"packageNote"`
	OrderAmount             Number `json:"orderAmount"`
	PaymentType             Text   `json:"payment.type"`
	PaymentCollectionAmount Number `json:"payment.collectionAmount"`

	Sandbox bool // makes a packageNote that begins like a trigger, and is none, a fault
}

// Check applies every rule that needs no ledger (spec, "Order (creation request)" and
// "Errors"; decisions, "Several faults at once"), in the order of the Faults, which have the fields of a wrong
// type. A readyAt that is absent or past becomes now. The error is always a *Error.
func (r *OrderRequest) Check(f *Faults, now time.Time) (OrderDraft, error) {
	var d OrderDraft
	d.Recipient.Name = f.joined("recipient.name", r.RecipientName, true, minRecipientName, maxRecipientName, CodeInvalidRecipient)
	d.Recipient.Phone = f.phone("recipient.phone", r.RecipientPhone, true)
	d.Dropoff.Text = f.text("dropoff.text", r.DropoffText, true, minDropoffText, maxDropoffText, CodeInvalidAddress)
	d.Dropoff.Point, _ = f.point("dropoff.latitude", r.DropoffLatitude, "dropoff.longitude", r.DropoffLongitude, true)
	d.ReadyAt = f.readyAt(r.ReadyAt, now)

	d.ExternalStoreID = f.ID("externalStoreId", r.ExternalStoreID, true, maxExternalID)
	d.ExternalOrderID = f.ID("externalOrderId", r.ExternalOrderID, true, maxExternalID)
	d.OrderedAt = f.orderedAt(r.OrderedAt)
	d.Dropoff.BuildingNo = f.joined("dropoff.buildingNo", r.DropoffBuildingNo, false, 0, maxDropoffPart)
	d.Dropoff.DoorNo = f.joined("dropoff.doorNo", r.DropoffDoorNo, false, 0, maxDropoffPart)
	d.Dropoff.Floor = f.joined("dropoff.floor", r.DropoffFloor, false, 0, maxDropoffPart)
	d.Dropoff.Note = f.text("dropoff.note", r.DropoffNote, false, 0, maxNote)
	d.PackageNote = f.text("packageNote", r.PackageNote, false, 0, maxNote)
	if r.Sandbox {
		if _, err := ParseTrigger(d.PackageNote); err != nil {
			f.Invalid("packageNote", err.Error())
		}
	}

	d.OrderAmount = f.money("orderAmount", r.OrderAmount)
	d.Payment.Type = Parse(f, "payment.type", r.PaymentType, false, "must be Cash, Card or Prepaid", ParsePaymentType)
	d.Payment.CollectionAmount = f.money("payment.collectionAmount", r.PaymentCollectionAmount)

	if err := f.Err(); err != nil {
		return OrderDraft{}, err
	}

	return d, nil
}

func (f *Faults) orderedAt(t Text) time.Time {
	at := f.Time("orderedAt", t)
	if t.Set && (at.Year() < minYear || at.Year() > maxYear) {
		f.Invalid("orderedAt", fmt.Sprintf("must lie in the years %d to %d", minYear, maxYear))
	}
	return at
}

func (f *Faults) readyAt(t Text, now time.Time) time.Time {
	at := f.Time("readyAt", t)
	if at.Before(now) {
		return now
	}

	if at.Sub(now) > MaxReadyAtLead {
		f.refuse(CodeReadyAtTooFar, "readyAt", "must be at most 4 hours ahead of "+FormatTime(now)+ReadAsLate(t.Value, at))
	}
	return at
}

// StoreRequest is the unchecked body of PUT /stores/{externalStoreId}.
type StoreRequest struct {
	TaxNumber        Text   `json:"taxNumber"`
	Name             Text   `json:"name"`
	Phone            Text   `json:"phone"`
	AddressText      Text   `json:"address.text"`
	AddressLatitude  Number `json:"address.latitude"`
	AddressLongitude Number `json:"address.longitude"`
	FleetID          Text   `json:"fleetId"`
}

// Check applies every rule that needs no ledger and merges with the existing store (spec,
// "Store"; decisions, "Store fields required"); only the fields of the request are set. Absent
// fields keep what is stored, latitude and longitude together; without a store all but fleetId
// are required. A Deactivated store registers again without its fleet. The error is always a *Error.
func (r *StoreRequest) Check(f *Faults, existing *Store) (Store, error) {
	first := existing == nil
	given := Store{
		Name:    f.joined("name", r.Name, first, 1, maxStoreName),
		Phone:   f.phone("phone", r.Phone, first),
		Address: f.text("address.text", r.AddressText, first, 1, maxStoreAddress),
	}

	placed := first || r.AddressLatitude.Set || r.AddressLongitude.Set
	given.Point, placed = f.point("address.latitude", r.AddressLatitude, "address.longitude", r.AddressLongitude, placed)
	given.TaxNumber = Parse(f, "taxNumber", r.TaxNumber, first, "", parseTaxNumber)
	given.Fleet = Parse(f, "fleetId", r.FleetID, false, "must be the UUID of a fleet in availableFleets", ParseChosenFleet)
	if err := f.Err(); err != nil {
		return Store{}, err
	}
	if first {
		return given, nil
	}

	given.TaxNumber = cmp.Or(given.TaxNumber, existing.TaxNumber)
	given.Name = cmp.Or(given.Name, existing.Name)
	given.Phone = cmp.Or(given.Phone, existing.Phone)
	given.Address = cmp.Or(given.Address, existing.Address)
	if !placed {
		given.Point = existing.Point
	}

	if existing.State != Deactivated {
		given.Fleet = cmp.Or(given.Fleet, existing.Fleet)
	}

	return given, nil
}

func parseTaxNumber(s string) (string, error) {
	number := pasted(s)
	hasLength := len(number) == 10 || len(number) == 11
	if !hasLength || !isDigits(number) {
		return "", errors.New("must have 10 or 11 digits" + unreadableDigit(s))
	}
	return number, nil
}

// CheckExternalStoreID checks the path parameter, as an order's externalStoreId is checked. The
// error is a *Error VALIDATION_FAILED.
func CheckExternalStoreID(s string) error {
	var f Faults
	f.ID("externalStoreId", Text{Value: s, Set: true}, true, maxExternalID)
	return f.Err()
}

// CancelRequest is the unchecked body of a cancellation; zero without one.
type CancelRequest struct {
	Reason Text `json:"reason"`
	Note   Text `json:"note"`
}

// Check accepts a reason or none, and a note. The error is a *Error VALIDATION_FAILED.
func (r *CancelRequest) Check(f *Faults) (CancelReason, string, error) {
	var reason CancelReason
	if f.present("reason", r.Reason.Set, false) {
		reason = CancelReason(r.Reason.Value)
		switch reason {
		case CustomerRequest, CancelStoreRequest, DuplicateOrder, CancelNotReady, OtherCancel:
		default:
			f.Invalid("reason", "must be CustomerRequest, StoreRequest, DuplicateOrder, PackageNotReady or Other")
		}
	}

	note := f.text("note", r.Note, false, 0, maxCancelNote)
	if err := f.Err(); err != nil {
		return "", "", err
	}

	return reason, note, nil
}

// CheckIdempotencyKey checks a header's key. The error is a *Error VALIDATION_FAILED.
func CheckIdempotencyKey(header string, key []byte) error {
	const message = "must have 1 to 255 visible ASCII characters"
	if len(key) < 1 || len(key) > maxIdempotencyKey {
		return Invalid(header, message)
	}

	i := bytes.IndexFunc(key, func(r rune) bool { return r < 0x21 || r > 0x7e })
	if i >= 0 {
		return Invalid(header, message+"; "+at(string(key), i))
	}
	return nil
}
