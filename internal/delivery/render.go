package delivery

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// Orders' objects are written by hand: a status object with its timeline costs 2.7 us and
// 56 bytes, with sonic 3.7 us (ConfigFastest) to 4.8 us (ConfigDefault) and 1.2 kB.

// AppendCreated appends the data of a creation's answer, from what never changes: a
// replay answers the same bytes.
func (o *Order) AppendCreated(dst []byte, trackingURL string) []byte {
	dst = o.appendIDs(dst)
	dst = appendText(dst, "status", Searching.String())
	dst = appendFleet(append(dst, ','), o.Fleet.ID, o.Fleet.Name)
	dst = appendText(dst, "trackingUrl", trackingURL)
	dst = appendTimeField(dst, "estimatedPickupAt", o.EstimatedPickup())
	dst = o.appendWarnings(dst)

	return append(dst, '}')
}

// AppendStatus appends the order status object (spec, "Order status (delivery state)") as of a
// version; 0 and later ones mean the present. The position is for webhooks only.
func (o *Order) AppendStatus(dst []byte, version uint64, events bool, location bool) []byte {
	reached, steps := o.asOf(version)
	dst = o.appendIDs(dst)
	dst = appendText(dst, "status", reached.Status.String())
	dst = appendCourier(dst, reached.Courier)
	// The sequence of the version, which is all EstimatedDropoff looks at.
	if eta := o.EstimatedDropoff(uint64(steps) + 1); !eta.IsZero() {
		dst = appendTimeField(dst, "etaDropoffAt", eta)
	}

	dst = appendTimeField(dst, "updatedAt", reached.At)
	if events {
		dst = o.appendTimeline(dst, steps)
	}

	if location && !reached.Location.IsZero() {
		dst = appendLocation(dst, reached.Location.Point)
	}

	if reached.Status == Failed {
		dst = appendText(dst, "failureReason", string(reached.Failure))
	}

	return append(dst, '}')
}

// asOf is the state at a version and how many changes led to it.
func (o *Order) asOf(version uint64) (reached Change, steps int) {
	sequence, latest := int64(Sequence(version)), int64(len(o.Changes))+1
	present := sequence == 0 || sequence > latest
	if present {
		sequence = latest
	}

	steps = int(sequence - 1)
	reached = Change{Status: Searching, At: o.CreatedAt}
	if steps > 0 {
		reached = o.Changes[steps-1]
	}

	if present {
		reached.Courier, reached.Location, reached.At = o.Courier, o.Location, o.UpdatedAt()
	}

	return reached, steps
}

func (o *Order) appendIDs(dst []byte) []byte {
	dst = append(dst, `{"orderId":"`...)
	dst = o.ID.AppendText(dst)
	dst = append(dst, '"')
	return appendText(dst, "externalOrderId", o.ExternalOrderID)
}

// appendWarnings appends the field warnings, if any applies. They follow from payment type and amounts,
// which never change and which a shrunk order keeps, so a replay warns of the same.
func (o *OrderDraft) appendWarnings(dst []byte) []byte {
	isFirst := true
	for w := range o.PaymentWarnings {
		if isFirst {
			dst = append(appendKey(dst, "warnings"), '[')
			isFirst = false
		} else {
			dst = append(dst, ',')
		}

		dst = append(dst, `{"kind":`...)
		dst = AppendString(dst, w.Kind)
		dst = appendText(dst, "field", w.Field)
		dst = appendText(dst, "message", w.Message)
		dst = append(dst, '}')
	}

	if isFirst { // none applies
		return dst
	}

	return append(dst, ']')
}

func (o *Order) appendTimeline(dst []byte, steps int) []byte {
	dst = append(dst, `,"events":[`...)
	dst = appendEntry(dst, Searching, o.CreatedAt)
	for i := range o.Changes[:steps] {
		if change := &o.Changes[i]; change.Kind == StatusReached {
			dst = appendEntry(append(dst, ','), change.Status, change.At)
		}
	}
	return append(dst, ']')
}

func appendEntry(dst []byte, s Status, at time.Time) []byte {
	dst = append(dst, `{"status":`...)
	dst = AppendString(dst, s.String())
	dst = appendTimeField(dst, "at", at)
	return append(dst, '}')
}

// appendCourier appends the courier, if any, with the surname abbreviated.
func appendCourier(dst []byte, c Courier) []byte {
	if c.IsZero() {
		return dst
	}

	dst = append(dst, `,"courier":{"name":`...)
	dst = AppendString(dst, AbbreviateName(c.Name))
	if c.Phone != "" {
		dst = appendText(dst, "phone", c.Phone)
	}

	if c.VehicleType != "" {
		dst = appendText(dst, "vehicleType", c.VehicleType)
	}

	return append(dst, '}')
}

func appendLocation(dst []byte, p Point) []byte {
	dst = append(dst, `,"location":{"latitude":`...)
	dst = strconv.AppendFloat(dst, p.Latitude, 'f', -1, 64)
	dst = append(dst, `,"longitude":`...)
	dst = strconv.AppendFloat(dst, p.Longitude, 'f', -1, 64)
	return append(dst, '}')
}

// AppendStoreActivated appends the data of store.activated (decisions, "Store and fleet events").
func AppendStoreActivated(dst []byte, externalStoreID string, fleet FleetID, fleetName string) []byte {
	return AppendStoreRejected(dst, externalStoreID, fleet, fleetName, "")
}

// AppendStoreRejected appends the data of store.rejected; reason may be empty.
func AppendStoreRejected(dst []byte, externalStoreID string, fleet FleetID, fleetName, reason string) []byte {
	dst = AppendString(append(dst, `{"externalStoreId":`...), externalStoreID)
	dst = appendFleet(append(dst, ','), fleet, fleetName)
	if reason != "" {
		dst = appendText(dst, "reason", reason)
	}
	return append(dst, '}')
}

// AppendStoreMigrating appends the data of store.migrating with the local day.
func AppendStoreMigrating(dst []byte, externalStoreID string, closingDate time.Time) []byte {
	return appendStore(dst, externalStoreID, "closingDate", closingDate.In(Istanbul).Format(time.DateOnly))
}

// AppendStoreDeactivated appends the data of store.deactivated.
func AppendStoreDeactivated(dst []byte, externalStoreID string, reason DeactivationReason) []byte {
	return appendStore(dst, externalStoreID, "reason", string(reason))
}

func appendStore(dst []byte, externalStoreID, key, value string) []byte {
	dst = AppendString(append(dst, `{"externalStoreId":`...), externalStoreID)
	return append(appendText(dst, key, value), '}')
}

// OverdueStores is how many stores one event of fleet.payment_overdue has at most. With ids of any kind it
// stays below 100 kB, which receivers take.
const OverdueStores = 250

// AppendPaymentOverdue appends the data of fleet.payment_overdue.
func AppendPaymentOverdue(dst []byte, fleet FleetID, fleetName string, externalStoreIDs []string) []byte {
	dst = appendFleet(append(dst, '{'), fleet, fleetName)
	dst = append(dst, `,"externalStoreIds":[`...)
	for i, id := range externalStoreIDs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, id)
	}
	return append(dst, `]}`...)
}

func appendFleet(dst []byte, id FleetID, name string) []byte {
	dst = append(dst, `"fleet":{"fleetId":"`...)
	dst = appendUUID(dst, id)
	dst = append(dst, '"')
	dst = appendText(dst, "name", name)
	return append(dst, '}')
}

// appendText appends a further string member. The key is not escaped.
func appendText(dst []byte, key, value string) []byte {
	return AppendString(appendKey(dst, key), value)
}

func appendTimeField(dst []byte, key string, at time.Time) []byte {
	dst = append(appendKey(dst, key), '"')
	dst = AppendTime(dst, at)
	return append(dst, '"')
}

func appendKey(dst []byte, key string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, key...)
	return append(dst, `":`...)
}

// AppendString appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		plain := 0
		for plain < len(s) && s[plain] >= ' ' && s[plain] < utf8.RuneSelf && s[plain] != '"' && s[plain] != '\\' {
			plain++
		}

		dst = append(dst, s[:plain]...)
		s = s[plain:]
		if s == "" {
			break
		}

		c := s[0]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s)
			dst = utf8.AppendRune(dst, r)
			s = s[size:]
			continue
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}

		s = s[1:]
	}

	return append(dst, '"')
}

// AppendEnvelope appends the body of a refused request (spec, "Response envelope"; decisions,
// "Malformed or unknown" and "Several faults at once"): message, error code and what else the refusal names. An empty requestID is left out.
func (e *Error) AppendEnvelope(dst []byte, requestID string) []byte {
	dst = append(dst, `{"success":false`...)
	dst = appendText(dst, "message", e.Message)
	dst = append(dst, `,"data":{"errorCode":`...)
	dst = AppendString(dst, string(e.Code))

	if wait := e.WaitSeconds(); wait > 0 {
		dst = append(dst, `,"retryAfterSeconds":`...)
		dst = strconv.AppendInt(dst, wait, 10)
	}

	dst = appendFaults(dst, e.Fields)
	if !e.OrderID.IsZero() {
		dst = append(dst, `,"orderId":"`...)
		dst = e.OrderID.AppendText(dst)
		dst = append(dst, '"')
	}

	if e.Status != 0 {
		dst = appendText(dst, "status", e.Status.String())
	}

	if e.Store != 0 {
		dst = appendText(dst, "status", e.Store.String())
	}

	if e.Courier != "" {
		dst = append(dst, `,"courier":{"name":`...)
		dst = AppendString(dst, e.Courier)
		dst = append(dst, '}')
	}

	if requestID != "" {
		dst = appendText(dst, "requestId", requestID)
	}

	return append(dst, `}}`...)
}

// appendFaults appends the member fields, if there are any.
func appendFaults(dst []byte, faults []FieldError) []byte {
	if len(faults) == 0 {
		return dst
	}

	dst = append(dst, `,"fields":[`...)
	for i, fault := range faults {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"field":`...)
		dst = AppendString(dst, fault.Field)
		dst = appendText(dst, "message", fault.Message)
		dst = append(dst, '}')
	}

	return append(dst, ']')
}
