package delivery

import "time"

// MaxReadyAtLead is how far ahead readyAt may lie; exactly that is allowed
// (spec, "Order (creation request)").
const MaxReadyAtLead = 4 * time.Hour

// OrderRequest is the body of POST /orders before any rule is applied. A
// decoder fills it in.
type OrderRequest struct {
	ExternalStoreID, ExternalOrderID Text
	OrderedAt, ReadyAt               Text

	RecipientName, RecipientPhone Text

	DropoffText                                    Text
	DropoffLatitude, DropoffLongitude              Number
	DropoffBuildingNo, DropoffDoorNo, DropoffFloor Text
	DropoffNote                                    Text

	PackageNote             Text
	OrderAmount             Number
	PaymentType             Text
	PaymentCollectionAmount Number

	// Sandbox makes a packageNote that begins like a trigger, and is none, a
	// fault; elsewhere it is a text like any other.
	Sandbox bool

	// WrongType names the fields whose JSON type was wrong, "recipient",
	// "dropoff" and "payment" included when they are no objects, with a
	// message such as "must be a string".
	WrongType []FieldError
}

// Check applies every rule that needs no ledger (spec, "Order (creation
// request)" and "Errors"; design section 9). Faults count in the order
// recipient.name, recipient.phone, dropoff.text, coordinates, readyAt, then the
// other fields: the first decides the code, and VALIDATION_FAILED lists every
// field that fails with it. A readyAt that is absent or past becomes now. The
// error is always a *Error.
func (r *OrderRequest) Check(now time.Time) (OrderDraft, error) {
	f := faults{wrongType: r.WrongType}
	var d OrderDraft
	d.Recipient.Name = f.textWithCode("recipient.name", r.RecipientName, CodeInvalidRecipient, minRecipientName, maxRecipientName)
	d.Recipient.Phone = f.phone("recipient.phone", r.RecipientPhone, true)
	d.Dropoff.Text = f.textWithCode("dropoff.text", r.DropoffText, CodeInvalidAddress, minDropoffText, maxDropoffText)
	d.Dropoff.Point, _ = f.point("dropoff.latitude", r.DropoffLatitude, "dropoff.longitude", r.DropoffLongitude, true)
	d.ReadyAt = f.readyAt(r.ReadyAt, now)

	d.ExternalStoreID = f.id("externalStoreId", r.ExternalStoreID)
	d.ExternalOrderID = f.id("externalOrderId", r.ExternalOrderID)
	d.OrderedAt, _ = f.time("orderedAt", r.OrderedAt)
	d.Dropoff.BuildingNo = f.text("dropoff.buildingNo", r.DropoffBuildingNo, false, 0, maxDropoffPart)
	d.Dropoff.DoorNo = f.text("dropoff.doorNo", r.DropoffDoorNo, false, 0, maxDropoffPart)
	d.Dropoff.Floor = f.text("dropoff.floor", r.DropoffFloor, false, 0, maxDropoffPart)
	d.Dropoff.Note = f.text("dropoff.note", r.DropoffNote, false, 0, maxNote)
	d.PackageNote = f.text("packageNote", r.PackageNote, false, 0, maxNote)
	if r.Sandbox {
		if _, err := ParseTrigger(d.PackageNote); err != nil {
			f.invalid("packageNote", err.Error())
		}
	}
	d.OrderAmount = f.money("orderAmount", r.OrderAmount)
	d.Payment.Type = f.paymentType("payment.type", r.PaymentType)
	d.Payment.CollectionAmount = f.money("payment.collectionAmount", r.PaymentCollectionAmount)

	if err := f.result(); err != nil {
		return OrderDraft{}, err
	}
	d.Warned = d.needsWarning()
	return d, nil
}

// id is a required identifier of the vendor's.
func (f *faults) id(field string, t Text) string {
	value := f.text(field, t, true, 1, maxExternalID)
	if fault := idFault(value); fault != "" {
		f.invalid(field, fault)
	}
	return value
}

// time is an optional time and whether a valid one was given.
func (f *faults) time(field string, t Text) (time.Time, bool) {
	if !f.present(field, t.Set, false) {
		return time.Time{}, false
	}
	at, err := ParseTime(t.Value)
	if err != nil {
		f.invalid(field, err.Error())
		return time.Time{}, false
	}
	return at, true
}

func (f *faults) readyAt(t Text, now time.Time) time.Time {
	at, ok := f.time("readyAt", t)
	if !ok || at.Before(now) {
		return now
	}
	if at.Sub(now) > MaxReadyAtLead {
		f.refuse(CodeReadyAtTooFar, "readyAt", "must be at most 4 hours ahead of "+FormatTime(now)+ReadAs(t.Value, at))
	}
	return at
}

func (f *faults) paymentType(field string, t Text) PaymentType {
	if !f.present(field, t.Set, false) {
		return PaymentUnknown
	}
	kind, err := ParsePaymentType(t.Value)
	if err != nil {
		f.invalid(field, "must be Cash, Card or Prepaid")
	}
	return kind
}
