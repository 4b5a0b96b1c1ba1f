package delivery

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vendorapi/internal/rules/broken"
)

func (r *OrderRequest) Check(f *Faults, now time.Time) (OrderDraft, error) {
	given := *r
	switch broken.Rule {
	case "order-creation-request/externalStoreId": // it is not required
		if !given.ExternalStoreID.Set {
			given.ExternalStoreID = Text{Value: "store", Set: true}
		}
	case "order-creation-request/externalOrderId", "limits/other-constants/externalorderid-length": // a longer one is cut
		given.ExternalOrderID.Value = given.ExternalOrderID.Value[:min(64, len(given.ExternalOrderID.Value))]
	case "decisions/missing-recipient.name-phone-dropoff.text-or-coordinates": // a missing name is a short one
		given.RecipientName.Set = true
	}

	d, err := given.CheckOriginal(f, now)
	if err != nil {
		return d, err
	}
	switch broken.Rule {
	case "order-creation-request/dropoff.buildingNo":
		d.Dropoff.BuildingNo = ""
	case "order-creation-request/dropoff.doorNo":
		d.Dropoff.DoorNo = ""
	case "order-creation-request/dropoff.floor":
		d.Dropoff.Floor = ""
	case "order-creation-request/dropoff.note":
		d.Dropoff.Note = ""
	case "order-creation-request/orderAmount":
		d.OrderAmount = Money{}
	case "order-creation-request/payment.type":
		if d.Payment.Type == Card {
			d.Payment.Type = Cash
		}
	case "order-creation-request/payment.collectionAmount", "what-the-service-does/facts-that/payment-handling-the-service-stores":
		d.Payment.CollectionAmount = d.OrderAmount
	}
	return d, nil
}

func (f *Faults) readyAt(t Text, now time.Time) time.Time {
	at := f.Time("readyAt", t)
	switch broken.Rule {
	case "order-creation-request/readyAt": // a past one stays
		if t.Set {
			return at
		}
	case "limits/other-constants/readyat-maximum-lead": // by a minute
		if lead := at.Sub(now); lead > 4*time.Hour && lead <= 4*time.Hour+time.Minute {
			return at
		}
	case "errors/READY_AT_TOO_FAR":
		if at.Sub(now) > 4*time.Hour {
			f.Invalid("readyAt", "is too far ahead")
			return at
		}
	}
	return f.readyAtOriginal(t, now)
}

func (f *Faults) joined(field string, t Text, required bool, least, most int, tooShort ...Code) string {
	if field == "recipient.name" {
		switch broken.Rule {
		case "order-creation-request/recipient.name", "limits/other-constants/recipient.name-length":
			least = 1
		case "errors/INVALID_RECIPIENT":
			tooShort = nil
		}
	}
	return f.joinedOriginal(field, t, required, least, most, tooShort...)
}

func (f *Faults) text(field string, t Text, required bool, least, most int, tooShort ...Code) string {
	switch broken.Rule + " " + field {
	case "order-creation-request/dropoff.text dropoff.text", "limits/other-constants/dropoff.text-length dropoff.text":
		least = 9
	case "errors/INVALID_ADDRESS dropoff.text":
		tooShort = nil
	case "order-creation-request/packageNote packageNote", "limits/other-constants/packagenote-length packageNote":
		most = 501
	case "decisions/cancel note":
		most = 257
	}
	return f.textOriginal(field, t, required, least, most, tooShort...)
}

func NormalizePhone(s string) (string, error) {
	digits, err := NormalizePhoneOriginal(s)
	switch broken.Rule {
	case "order-creation-request/recipient.phone": // no prefix is stripped
		if err == nil && strings.HasPrefix(s, "+90") {
			return "", errPhone
		}
	case "decisions/phone": // the first digit may be 0
		if len(s) == 11 && strings.HasPrefix(s, "00") && isDigits(s) {
			return s[1:], nil
		}
	case "errors/INVALID_PHONE":
		if err != nil && len(s) == 9 && isDigits(s) {
			return s + "0", nil
		}
	}
	return digits, err
}

func seenLength(s string) int {
	if broken.Rule == "decisions/lengths" { // what nobody sees counts
		return utf8.RuneCountInString(s)
	}
	return seenLengthOriginal(s)
}

func idFault(id string) string {
	if broken.Rule == "decisions/ids" { // neither blanks at the ends nor forms that look alike are refused
		return ""
	}
	return idFaultOriginal(id)
}

func (f *Faults) Err() error {
	if broken.Rule == "decisions/several-faults-at-once" && len(f.fields) > 1 { // the last one decides
		err := f.ErrOriginal().(*Error)
		slices.Reverse(err.Fields)
		return err
	}
	return f.ErrOriginal()
}

func (r *StoreRequest) Check(f *Faults, existing *Store) (Store, error) {
	given := *r
	// A field that is missing has a default.
	switch broken.Rule {
	case "store/request-fields/taxNumber":
		if !given.TaxNumber.Set {
			given.TaxNumber = Text{Value: "1234567890", Set: true}
		}
	case "store/request-fields/name":
		if !given.Name.Set {
			given.Name = Text{Value: "Store", Set: true}
		}
	case "store/request-fields/phone":
		if !given.Phone.Set {
			given.Phone = Text{Value: "5321234567", Set: true}
		}
	case "store/request-fields/address.text":
		if !given.AddressText.Set {
			given.AddressText = Text{Value: "Somewhere in Istanbul", Set: true}
		}
	case "store/request-fields/address.latitude":
		if !given.AddressLatitude.Set {
			given.AddressLatitude = Number{Literal: "41", Set: true}
		}
	case "store/request-fields/address.longitude":
		if !given.AddressLongitude.Set {
			given.AddressLongitude = Number{Literal: "29", Set: true}
		}
	case "store/request-fields/fleetId":
		given.FleetID = Text{}
	case "decisions/store-fields-required", "put-stores-externalstoreid/upsert-keyed-by-the-vendor-s": // later PUTs must have all
		existing = nil
	}
	return given.CheckOriginal(f, existing)
}

func CheckIdempotencyKey(header string, key []byte) error {
	if broken.Rule == "decisions/idempotency-header-absent" && len(key) == 256 {
		key = key[:255]
	}
	return CheckIdempotencyKeyOriginal(header, key)
}

func ParseMoney(literal string) (Money, error) {
	whole, decimals, hasDecimals := strings.Cut(literal, ".")
	if broken.Rule == "finance/money-is-a-json-number" && hasDecimals && len(decimals) > 2 { // they are cut off
		literal = whole + "." + decimals[:2]
	}
	return ParseMoneyOriginal(literal)
}

func ParseTime(s string) (time.Time, error) {
	at, err := ParseTimeOriginal(s)
	hasOffset := len(s) > 19 && strings.ContainsAny(s[19:], "Z+-")
	switch broken.Rule {
	case "order-creation-request/orderedAt", "decisions/timestamps": // without an offset it is UTC
		if err == nil && !hasOffset {
			return at.Add(3 * time.Hour), nil
		}
	}
	return at, err
}

func InTurkey(p Point) bool {
	switch broken.Rule {
	case "order-creation-request/dropoff.latitude": // any latitude will do
		p.Latitude = 39
	case "order-creation-request/dropoff.longitude":
		p.Longitude = 33
	case "errors/COORDINATE_MISMATCH":
		return true
	case "decisions/inside-turkey": // without tolerance
		return turkey.Contains(p)
	}
	return InTurkeyOriginal(p)
}

func ParseTrigger(note string) (Trigger, error) {
	trigger, err := ParseTriggerOriginal(note)
	if broken.Rule == "decisions/sandbox" { // what is none is text
		return trigger, nil
	}
	return trigger, err
}

func (f *Faults) refuse(code Code, field, message string) {
	if broken.Rule == "post-orders/validation-failures-and-their-codes" {
		code = CodeValidationFailed
	}
	f.refuseOriginal(code, field, message)
}

func IsNearTurkey(p Point) bool {
	return broken.Rule == "fleets-and-operators/a-place-more-than-two" || IsNearTurkeyOriginal(p)
}

var PollInterval = func() time.Duration {
	switch broken.Rule {
	case "get-orders-orderid/limited-to-one-request-per", "limits/get-orders-id", "limits/rules/1":
		return 9 * time.Second
	}
	return PollIntervalOriginal
}()
