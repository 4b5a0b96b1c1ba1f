package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"vendorapi/internal/delivery"
)

// recordFormat is the first byte of every record. A release reads its own format
// and the neighbouring ones; raise the number only once every process reads the new
// one.
const recordFormat = 1

var errShortRecord = errors.New("the record ends early")

// Records are sequences of fields in a fixed order: numbers as varints, text
// with its length in front, times in milliseconds with 0 for none.

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(b, uint64(millis(t)))
}

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(b, math.Float64bits(f))
}

// millis is the stored form of a time; 0 is the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// timeOf is the inverse of millis.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// fields reads what the append functions wrote. After a short record reads return
// zero values and err stays set.
type fields struct {
	rest string
	err  error
}

func (f *fields) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		if len(f.rest) == 0 {
			f.err = errShortRecord
			return 0
		}
		b := f.rest[0]
		f.rest = f.rest[1:]
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	f.err = errShortRecord
	return 0
}

func (f *fields) take(n int) string {
	if n < 0 || n > len(f.rest) {
		f.err = errShortRecord
		f.rest = ""
		return ""
	}
	taken := f.rest[:n]
	f.rest = f.rest[n:]
	return taken
}

func (f *fields) text() string {
	n := f.uvarint()
	if n > uint64(len(f.rest)) {
		f.err = errShortRecord
		return ""
	}
	return f.take(int(n))
}

func (f *fields) time() time.Time { return timeOf(int64(f.uvarint())) }

func (f *fields) byte() byte {
	if b := f.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (f *fields) uint16() uint16 {
	b := f.take(2)
	if len(b) < 2 {
		return 0
	}
	return uint16(b[0])<<8 | uint16(b[1])
}

func (f *fields) uint32() uint32 { return uint32(f.uint16())<<16 | uint32(f.uint16()) }

func (f *fields) uint64() uint64 { return uint64(f.uint32())<<32 | uint64(f.uint32()) }

func (f *fields) float() float64 { return math.Float64frombits(f.uint64()) }

// Offsets of an order record's head; lua/order.lua names them all. The head is
// of fixed size so that scripts change one figure in place instead of rewriting
// the order.
const (
	orderHead         = 138
	orderAccountAt    = 76
	orderLengthAt     = 118
	flagKeyIsExternal = 1
)

// Entries behind an order's document: each is its kind, the length of what
// follows (2 bytes), and that.
const (
	entryChange   = 'S'
	entrySwap     = 'C'
	entryAccepted = 'A' // who was told that the job is theirs, by lua/report_update.lua
)

// appendOrderRecord is the record of a new order that the given fleet takes.
func appendOrderRecord(b []byte, o *delivery.Order, terms *delivery.FleetTerms, nonce uint64, fingerprint [16]byte, keyIsExternal bool) []byte {
	begin := len(b)
	flags := byte(0)
	if keyIsExternal {
		flags = flagKeyIsExternal
	}
	created := uint64(millis(o.CreatedAt))
	b = append(b, recordFormat, byte(delivery.Searching), 0, flags)
	b = binary.BigEndian.AppendUint64(b, o.Version)
	b = binary.BigEndian.AppendUint64(b, created) // updated
	b = binary.BigEndian.AppendUint32(b, 1)       // queued: the creation sends no webhook
	b = binary.BigEndian.AppendUint32(b, 1)       // attempted
	b = binary.BigEndian.AppendUint64(b, created)
	b = append(b, make([]byte, 16)...) // polled, courier update
	b = binary.BigEndian.AppendUint64(b, nonce)
	b = append(b, fingerprint[:]...)
	b = append(b, o.Account[:]...)
	b = binary.BigEndian.AppendUint16(b, o.ID.Day())
	b = append(b, make([]byte, 24)...) // location
	b = append(b, 0, 0, 0, 0)
	b = appendTerms(b, terms)
	document := len(b)
	b = appendDocument(b, &o.OrderDraft)
	binary.BigEndian.PutUint32(b[begin+orderLengthAt:], uint32(len(b)-document))
	return b
}

func appendTerms(b []byte, t *delivery.FleetTerms) []byte {
	b = append(b, t.ID[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(t.PickupMinutes))
	b = binary.BigEndian.AppendUint16(b, uint16(t.DeliveryMinutes))
	return appendText(b, t.Name)
}

func appendDocument(b []byte, d *delivery.OrderDraft) []byte {
	b = appendText(b, d.ExternalStoreID)
	b = appendText(b, d.ExternalOrderID)
	b = appendTime(b, d.OrderedAt)
	b = appendTime(b, d.ReadyAt)
	b = appendText(b, d.Recipient.Name)
	b = appendText(b, d.Recipient.Phone)
	b = appendText(b, d.Dropoff.Text)
	b = appendFloat(b, d.Dropoff.Point.Latitude)
	b = appendFloat(b, d.Dropoff.Point.Longitude)
	b = appendText(b, d.Dropoff.BuildingNo)
	b = appendText(b, d.Dropoff.DoorNo)
	b = appendText(b, d.Dropoff.Floor)
	b = appendText(b, d.Dropoff.Note)
	b = appendText(b, d.PackageNote)
	b = appendMoney(b, d.OrderAmount)
	b = append(b, byte(d.Payment.Type))
	b = appendMoney(b, d.Payment.CollectionAmount)
	if d.Warned { // earlier releases write nothing here, and read nothing
		b = append(b, 1)
	}
	return b
}

// appendMoney keeps 0 for "not given", so amounts are one higher.
func appendMoney(b []byte, m delivery.Money) []byte {
	if !m.Set {
		return binary.AppendUvarint(b, 0)
	}
	return binary.AppendUvarint(b, uint64(m.Minor)+1)
}

func (f *fields) money() delivery.Money {
	v := f.uvarint()
	if v == 0 {
		return delivery.Money{}
	}
	return delivery.Money{Minor: int64(v - 1), Set: true}
}

// appendChange encodes one change. Its status, epoch and time stand at fixed
// places (4, 5 and 9 from 1), where cancel_order.lua sets the time.
func appendChange(b []byte, c *delivery.Change, epoch uint32) []byte {
	return appendEntry(b, entryChange, func(b []byte) []byte {
		b = append(b, byte(c.Status))
		b = binary.BigEndian.AppendUint32(b, epoch)
		b = binary.BigEndian.AppendUint64(b, uint64(millis(c.At)))
		b = appendCourier(b, c.Courier)
		b = appendTime(b, c.ETA)
		b = appendLocation(b, c.Location)
		b = appendText(b, string(c.Failure))
		b = appendText(b, string(c.Cancel))
		return appendText(b, c.Note)
	})
}

func appendSwap(b []byte, c delivery.Courier) []byte {
	return appendEntry(b, entrySwap, func(b []byte) []byte { return appendCourier(b, c) })
}

func appendAccepted(b []byte, c delivery.Courier) []byte {
	return appendEntry(b, entryAccepted, func(b []byte) []byte { return appendCourier(b, c) })
}

func appendEntry(b []byte, kind byte, body func([]byte) []byte) []byte {
	b = append(b, kind, 0, 0)
	start := len(b)
	b = body(b)
	binary.BigEndian.PutUint16(b[start-2:], uint16(len(b)-start))
	return b
}

func appendCourier(b []byte, c delivery.Courier) []byte {
	b = appendText(b, c.Name)
	b = appendText(b, c.Phone)
	return appendText(b, c.VehicleType)
}

func (f *fields) courier() delivery.Courier {
	return delivery.Courier{Name: f.text(), Phone: f.text(), VehicleType: f.text()}
}

// appendLocation is 24 bytes: latitude, longitude, time; all zero when unknown.
func appendLocation(b []byte, l delivery.Location) []byte {
	if l.IsZero() {
		return append(b, make([]byte, 24)...)
	}
	b = appendFloat(b, l.Latitude)
	b = appendFloat(b, l.Longitude)
	return binary.BigEndian.AppendUint64(b, uint64(millis(l.At)))
}

func (f *fields) location() delivery.Location {
	l := delivery.Location{Point: delivery.Point{Latitude: f.float(), Longitude: f.float()}}
	if l.At = timeOf(int64(f.uint64())); l.IsZero() {
		return delivery.Location{}
	}
	return l
}

// decodeOrder reads a record. The partition completes the order's id.
func decodeOrder(record string, partition int) (*delivery.Order, error) {
	if len(record) < orderHead || record[0] != recordFormat {
		return nil, fmt.Errorf("order record of %d bytes: %w", len(record), errShortRecord)
	}
	o := &delivery.Order{Status: delivery.Status(record[1]), Reported: delivery.Status(record[2])}
	f := fields{rest: record[4:]}
	o.Version = f.uint64()
	f.take(8 + 4 + 4) // updated, queued, attempted
	o.CreatedAt = timeOf(int64(f.uint64()))
	f.take(8) // polled
	o.LastCourierUpdate = timeOf(int64(f.uint64()))
	f.take(8 + 16) // nonce, fingerprint
	copy(o.Account[:], f.take(16))
	day := f.uint16()
	o.Location = f.location()
	length := int(f.uint32())
	copy(o.Fleet.ID[:], f.take(16))
	o.Fleet.PickupMinutes, o.Fleet.DeliveryMinutes = int(f.uint16()), int(f.uint16())
	o.Fleet.Name = f.text()
	document := fields{rest: f.take(length)}
	document.draft(&o.OrderDraft)
	if document.err != nil {
		return nil, fmt.Errorf("order record, document: %w", document.err)
	}
	o.ID = delivery.MakeOrderID(partition, day, delivery.OrderDigest(o.Account, o.ExternalOrderID))
	return o, f.history(o)
}

func (f *fields) draft(d *delivery.OrderDraft) {
	d.ExternalStoreID = f.text()
	d.ExternalOrderID = f.text()
	d.OrderedAt = f.time()
	d.ReadyAt = f.time()
	d.Recipient.Name = f.text()
	d.Recipient.Phone = f.text()
	d.Dropoff.Text = f.text()
	d.Dropoff.Point.Latitude = f.float()
	d.Dropoff.Point.Longitude = f.float()
	d.Dropoff.BuildingNo = f.text()
	d.Dropoff.DoorNo = f.text()
	d.Dropoff.Floor = f.text()
	d.Dropoff.Note = f.text()
	d.PackageNote = f.text()
	d.OrderAmount = f.money()
	d.Payment.Type = delivery.PaymentType(f.byte())
	d.Payment.CollectionAmount = f.money()
	d.Warned = len(f.rest) > 0
}

// usualChanges is how many changes a delivered order has.
const usualChanges = 5

// history reads the entries behind the document.
func (f *fields) history(o *delivery.Order) error {
	sequence := uint64(1)
	if len(f.rest) > 0 {
		o.Changes = make([]delivery.Change, 0, usualChanges)
	}
	for len(f.rest) > 0 && f.err == nil {
		kind := f.byte()
		entry := fields{rest: f.take(int(f.uint16()))}
		switch kind {
		case entryChange:
			sequence++
			c := delivery.Change{Status: delivery.Status(entry.byte())}
			c.Version = uint64(entry.uint32())<<32 | sequence
			c.At = timeOf(int64(entry.uint64()))
			c.Courier = entry.courier()
			c.ETA = entry.time()
			c.Location = entry.location()
			c.Failure = delivery.FailureReason(entry.text())
			c.Cancel = delivery.CancelReason(entry.text())
			c.Note = entry.text()
			o.Changes = append(o.Changes, c)
			if !c.Courier.IsZero() {
				o.Courier = c.Courier
			}
		case entrySwap:
			o.Courier = entry.courier()
		case entryAccepted:
			o.Accepted = entry.courier()
		}
		if entry.err != nil {
			return fmt.Errorf("order %s, entry %d: %w", o.ID, sequence, entry.err)
		}
	}
	if f.err != nil {
		return fmt.Errorf("order %s, history: %w", o.ID, f.err)
	}
	return nil
}

// eventOf is the stream's reference to a version of an order, 23 bytes.
func appendOrderEvent(b []byte, id delivery.OrderID, version uint64) []byte {
	digest := id.Digest()
	b = append(b, eventOrder)
	b = append(b, digest[:]...)
	b = binary.BigEndian.AppendUint16(b, id.Day())
	return binary.BigEndian.AppendUint64(b, version)
}

// Kinds of an event in the stream and of an item in a webhook queue.
const (
	eventOrder        = 1
	eventNotice       = 2
	eventLate         = 3    // a delivery reported too late: the version's place has its time, ms
	eventReplay       = 0x81 // an order's version, queued again by a replay
	eventNoticeReplay = 0x82
	eventPing         = 4 // a probe for which nothing waits
)
