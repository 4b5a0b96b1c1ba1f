package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
)

// recordFormat is the first byte of every record, shrunkFormat that of a shrunk order. Raise one
// only once every process reads the new one: releases run side by side.
const (
	recordFormat = 1
	shrunkFormat = 2
)

var errShortRecord = errors.New("the record ends early")

// Records are sequences of fields in a fixed order: numbers as varints, text
// with its length in front, times in milliseconds with 0 for none.

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
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

// estimateOf is the stored form of an estimate of the drop-off: in ms since a day before the
// creation of the order, so that four bytes hold it exactly (for 49 days); 0 is the zero time.
func estimateOf(created, estimate time.Time) uint32 {
	if estimate.IsZero() {
		return 0
	}
	const day = 24 * time.Hour
	ms := millis(estimate) - millis(created) + day.Milliseconds()
	return uint32(min(max(ms, 1), math.MaxUint32))
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// fields reads a record; after its end, zero values, and err stays set.
type fields struct {
	rest string
	err  error
}

func (f *fields) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b := f.byte()
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
		f.err, f.rest = errShortRecord, ""
		return ""
	}
	taken := f.rest[:n]
	f.rest = f.rest[n:]
	return taken
}

func (f *fields) text() string { return f.take(int(min(f.uvarint(), math.MaxInt32))) }

// uint reads a number of n bytes, 8 at most.
func (f *fields) uint(n int) (v uint64) {
	for _, b := range []byte(f.take(n)) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (f *fields) byte() byte     { return byte(f.uint(1)) }
func (f *fields) uint16() uint16 { return uint16(f.uint(2)) }
func (f *fields) uint32() uint32 { return uint32(f.uint(4)) }
func (f *fields) uint64() uint64 { return f.uint(8) }
func (f *fields) float() float64 { return math.Float64frombits(f.uint64()) }

// codec writes a record or reads it, so that each format is one list of fields.
type codec struct {
	fields
	out     []byte
	writing bool
}

// encode is a record behind the byte of its format.
func encode(format func(*codec)) []byte {
	c := codec{out: []byte{recordFormat}, writing: true}
	format(&c)
	return c.out
}

// decode reads a record that encode made; what names it in the error.
func decode(what, record string, format func(*codec)) error {
	c := codec{fields: fields{rest: record}}
	if c.byte() != recordFormat {
		c.err = errShortRecord
	} else {
		format(&c)
	}

	if c.err != nil {
		return fmt.Errorf("%s: %w", what, c.err)
	}

	return nil
}

// all writes or reads fields: bytes as they are, a bool as a digit, uint16, uint32 and
// uint64 in so many bits, int as a varint, a location as 24 bytes, all zero when unknown.
func (c *codec) all(parts ...any) {
	for _, part := range parts {
		if c.writing {
			c.write(part)
		} else {
			c.read(part)
		}
	}
}

func (c *codec) write(part any) {
	b := c.out
	switch v := part.(type) {
	case []byte:
		b = append(b, v...)
	case *byte:
		b = append(b, *v)
	case *bool:
		b = append(b, flag(*v)...)
	case *uint16:
		b = binary.BigEndian.AppendUint16(b, *v)
	case *uint32:
		b = binary.BigEndian.AppendUint32(b, *v)
	case *uint64:
		b = binary.BigEndian.AppendUint64(b, *v)
	case *int:
		b = binary.AppendUvarint(b, uint64(*v))
	case *float64:
		b = appendFloat(b, *v)
	case *string:
		b = appendText(b, *v)
	case *time.Time:
		b = binary.AppendUvarint(b, uint64(millis(*v)))
	case *delivery.Money: // 0 is "not given", so amounts are one higher
		amount := uint64(0)
		if v.Set {
			amount = uint64(v.Minor) + 1
		}
		b = binary.AppendUvarint(b, amount)
	case *delivery.Courier: // the phone first, where lua/order.lua compares it
		b = appendText(appendText(appendText(b, v.Phone), v.Name), v.VehicleType)
	case *delivery.Location:
		b = appendLocation(b, *v)
	}

	c.out = b
}

func (c *codec) read(part any) {
	switch v := part.(type) {
	case []byte:
		copy(v, c.take(len(v)))
	case *byte:
		*v = c.byte()
	case *bool:
		*v = c.byte() == '1'
	case *uint16:
		*v = c.uint16()
	case *uint32:
		*v = c.uint32()
	case *uint64:
		*v = c.uint64()
	case *int:
		*v = int(c.uvarint())
	case *float64:
		*v = c.float()
	case *string:
		*v = c.text()
	case *time.Time:
		*v = timeOf(int64(c.uvarint()))
	case *delivery.Money:
		if amount := c.uvarint(); amount > 0 {
			*v = delivery.Money{Minor: int64(amount - 1), Set: true}
		}
	case *delivery.Courier:
		*v = delivery.Courier{Phone: c.text(), Name: c.text(), VehicleType: c.text()}
	case *delivery.Location:
		*v = c.location()
		if v.IsZero() {
			*v = delivery.Location{} // since when nothing is known, only the head tells
		}
	}
}

func appendLocation(b []byte, l delivery.Location) []byte {
	b = appendFloat(appendFloat(b, l.Latitude), l.Longitude)
	return binary.BigEndian.AppendUint64(b, uint64(millis(l.At)))
}

func (f *fields) location() delivery.Location {
	return delivery.Location{
		Point: delivery.Point{Latitude: f.float(), Longitude: f.float()},
		At:    timeOf(int64(f.uint64())),
	}
}

// Offsets of an order record's head (lua/order.lua), of fixed size so that scripts change
// figures in place.
const (
	orderHead         = 138
	orderCreatedAt    = 28
	orderAccountAt    = 76
	orderLocationAt   = 94
	orderLengthAt     = 118
	orderFleetAt      = 122
	flagKeyIsExternal = 1
)

// Entries behind the document: kind, length of what follows (2 bytes), and that.
const (
	entryChange   = 'S'
	entryAccepted = 'A' // whose accept was confirmed, by lua/report_update.lua
	entryErased   = 'E' // no courier, as lua/order.lua takes entries to begin with one, and the time of the erasure
)

// appendOrderRecord is the record of a new order that the given fleet takes.
func appendOrderRecord(b []byte, o *delivery.Order, terms *delivery.FleetTerms, flags byte, nonce uint64, fingerprint [16]byte) []byte {
	begin := len(b)
	created := uint64(millis(o.CreatedAt))
	b = append(b, recordFormat, byte(delivery.Searching), 0, flags)
	b = binary.BigEndian.AppendUint64(b, o.Version)
	b = binary.BigEndian.AppendUint64(b, created) // updated
	b = append(b, make([]byte, 8)...)             // told, estimated
	b = binary.BigEndian.AppendUint64(b, created)
	b = append(b, make([]byte, 16)...) // polled, courier update
	b = binary.BigEndian.AppendUint64(b, nonce)
	b = append(b, fingerprint[:]...)
	b = append(b, o.Account[:]...)
	b = binary.BigEndian.AppendUint16(b, o.ID.Day())
	b = append(b, make([]byte, 24)...) // location
	b = append(b, 0, 0, 0, 0)
	c := codec{out: b, writing: true}
	c.terms(terms)
	document := len(c.out)
	c.document(&o.OrderDraft)
	binary.BigEndian.PutUint32(c.out[begin+orderLengthAt:], uint32(len(c.out)-document))

	return c.out
}

func (c *codec) terms(t *delivery.FleetTerms) {
	pickup, dropoff := uint16(t.PickupMinutes), uint16(t.DeliveryMinutes)
	c.all(t.ID[:], &pickup, &dropoff, &t.Name)
	if !c.writing {
		t.PickupMinutes, t.DeliveryMinutes = int(pickup), int(dropoff)
	}
}

func (c *codec) document(d *delivery.OrderDraft) {
	c.all(&d.ExternalStoreID, &d.ExternalOrderID, &d.OrderedAt, &d.ReadyAt, &d.Recipient.Name, &d.Recipient.Phone,
		&d.Dropoff.Text, &d.Dropoff.Latitude, &d.Dropoff.Longitude, &d.Dropoff.BuildingNo, &d.Dropoff.DoorNo,
		&d.Dropoff.Floor, &d.Dropoff.Note, &d.PackageNote, &d.OrderAmount, (*byte)(&d.Payment.Type), &d.Payment.CollectionAmount)
}

func appendChange(b []byte, c *delivery.Change) []byte {
	return appendEntry(b, entryChange, func(entry *codec) { entry.change(c) })
}

// change is an entry of a change. cancel_order.lua writes version and time into their places.
func (c *codec) change(to *delivery.Change) {
	c.all((*byte)(&to.Status), &to.Version)
	c.time48(&to.At)
	c.all(&to.Courier, &to.ETA, &to.Location, (*string)(&to.Failure), (*string)(&to.Cancel), &to.Note, (*byte)(&to.Kind))
}

// time48 is a time in 6 bytes, as milliseconds since 1970 with their sign; 0 is the zero time.
func (c *codec) time48(at *time.Time) {
	ms := millis(*at)
	high, low := uint16(ms>>32), uint32(ms)
	c.all(&high, &low)
	if !c.writing {
		*at = timeOf(int64(int16(high))<<32 | int64(low))
	}
}

// appendAccepted is the entry of a courier whose accept was confirmed.
func appendAccepted(b []byte, courier delivery.Courier) []byte {
	return appendEntry(b, entryAccepted, func(entry *codec) { entry.all(&courier) })
}

func appendEntry(b []byte, kind byte, format func(*codec)) []byte {
	c := codec{out: append(b, kind, 0, 0), writing: true}
	start := len(c.out)
	format(&c)
	binary.BigEndian.PutUint16(c.out[start-2:], uint16(len(c.out)-start))
	return c.out
}

// shrunk is what a shrunk order keeps besides its head: what GET /orders/{id}, webhooks' replays,
// late deliveries, export and reconciliation need. These readers lose:
//
//   - fleets (GET /jobs): recipient, drop-off, package note
//   - panel: the same, and the map with the courier's last position
//   - replayed webhooks, which operators may ask for by eventId as long as the order is stored, and
//     which are tried for a day, those of the last day (replayStream) for two: the courier's location
//
// Idempotency keys have expired, but a replay would be answered the same bytes. Who had accepted the
// job (order_courier), and when a courier was swapped, matters before the end only.
func (c *codec) shrunk(o *delivery.Order) {
	c.all(&o.Fleet.PickupMinutes, &o.Fleet.DeliveryMinutes, &o.Fleet.Name, &o.ExternalStoreID, &o.ExternalOrderID)
	c.timeFrom(o.CreatedAt, &o.OrderedAt)
	c.timeFrom(o.CreatedAt, &o.ReadyAt)
	c.all(&o.OrderAmount, (*byte)(&o.Payment.Type), &o.Payment.CollectionAmount)

	changes := byte(len(o.Changes)) // fewer than maxSideReports and the statuses
	c.all(&changes)
	if !c.writing {
		o.Changes = make([]delivery.Change, changes)
	}

	// Each change as its difference from the one before.
	last := delivery.Change{At: o.CreatedAt}
	for i := range o.Changes {
		change := &o.Changes[i]
		statusAndKind := byte(change.Status) | byte(change.Kind)<<shrunkKindShift
		c.all(&statusAndKind)
		change.Status = delivery.Status(statusAndKind & (1<<shrunkKindShift - 1))
		change.Kind = delivery.ChangeKind(statusAndKind >> shrunkKindShift)
		c.timeFrom(last.At, &change.At)

		written := delivery.VersionTime(change.Version)
		random := delivery.VersionRandom(change.Version)
		c.timeFrom(change.At, &written)
		c.all(&random)
		change.Version = delivery.ComposeVersion(written, random, uint32(i+2))

		c.timeFrom(change.At, &change.ETA)
		c.courierAfter(last.Courier, &change.Courier)
		last = *change
	}

	c.courierAfter(last.Courier, &o.Courier)

	if len(o.Changes) > 0 { // only an end has these
		end := &o.Changes[len(o.Changes)-1]
		c.all((*string)(&end.Failure), (*string)(&end.Cancel), &end.Note)
	}

	// Few orders are erased, so the others have nothing here. Padding reads as no time.
	hasErasure := c.rest != ""
	if c.writing {
		hasErasure = !o.ErasedAt.IsZero()
	}

	if hasErasure {
		c.all(&o.ErasedAt)
	}
}

// shrunkKindShift is where, above its status, a byte of a shrunk order has the kind of a change.
const shrunkKindShift = 4

func encodeShrunk(o *delivery.Order) []byte {
	c := codec{writing: true}
	c.shrunk(o)
	return append(c.out, make([]byte, max(orderFleetAt-orderLocationAt-len(c.out), 0))...)
}

// timeFrom is the distance from another time in ms, zigzag and one higher; 0 is the zero time.
func (c *codec) timeFrom(other time.Time, at *time.Time) {
	distance := 0
	if ms := at.UnixMilli() - other.UnixMilli(); !at.IsZero() {
		distance = int(ms<<1^ms>>63) + 1
	}

	c.all(&distance)
	if !c.writing && distance > 0 {
		n := int64(distance - 1)
		*at = timeOf(other.UnixMilli() + (n>>1 ^ -(n & 1)))
	}
}

// courierAfter is a courier, if it is not the one before.
func (c *codec) courierAfter(before delivery.Courier, courier *delivery.Courier) {
	other := *courier != before
	if c.all(&other); other {
		c.all(courier)
	} else {
		*courier = before
	}
}

// decodeOrder reads a record. The partition completes the order's id.
func decodeOrder(record string, partition int) (*delivery.Order, error) {
	if len(record) < orderHead || record[0] != recordFormat && record[0] != shrunkFormat {
		return nil, fmt.Errorf("order record of %d bytes: %w", len(record), errShortRecord)
	}

	o := &delivery.Order{Status: delivery.Status(record[1]), Reported: delivery.Status(record[2])}
	c := codec{fields: fields{rest: record[4:]}}
	o.Version = c.uint64()
	c.take(8 + 4 + 4) // updated, told, estimated
	o.CreatedAt = timeOf(int64(c.uint64()))
	c.take(8) // polled
	o.LastCourierUpdate = timeOf(int64(c.uint64()))
	c.take(8 + 16) // nonce, fingerprint
	copy(o.Account[:], c.take(16))
	day := c.uint16()
	if record[0] == shrunkFormat {
		copy(o.Fleet.ID[:], record[orderFleetAt:])
		c.rest = record[orderLocationAt:orderFleetAt] + record[orderHead:]
		c.shrunk(o)
		o.ID = delivery.MakeOrderID(partition, day, delivery.OrderDigest(o.Account, o.ExternalOrderID))
		if c.err != nil {
			return nil, fmt.Errorf("order %s, shrunk: %w", o.ID, c.err)
		}
		return o, nil
	}

	reported := c.location()
	length := int(c.uint32())
	c.terms(&o.Fleet)
	document := codec{fields: fields{rest: c.take(length)}}
	document.document(&o.OrderDraft)
	if document.err != nil {
		return nil, fmt.Errorf("order record, document: %w", document.err)
	}

	o.ID = delivery.MakeOrderID(partition, day, delivery.OrderDigest(o.Account, o.ExternalOrderID))
	if err := c.history(o); err != nil {
		return o, err
	}

	o.Locate(reported)
	o.CompleteCancellation()

	return o, nil
}

const usualChanges = 5

func (c *codec) history(o *delivery.Order) error {
	entries := 0
	if c.rest != "" {
		o.Changes = make([]delivery.Change, 0, usualChanges)
	}

	for c.rest != "" && c.err == nil {
		kind := c.byte()
		entries++
		entry := codec{fields: fields{rest: c.take(int(c.uint16()))}}
		switch kind {
		case entryChange:
			var change delivery.Change
			entry.change(&change)
			o.Changes = append(o.Changes, change)
			o.Reach(&change)
		case entryAccepted:
			entry.all(&o.Accepted)
		case entryErased:
			entry.all(new(delivery.Courier), &o.ErasedAt)
		}

		if entry.err != nil {
			return fmt.Errorf("order %s, entry %d: %w", o.ID, entries, entry.err)
		}
	}

	if c.err != nil {
		return fmt.Errorf("order %s, history: %w", o.ID, c.err)
	}

	return nil
}

// appendOrderEvent is the stream's reference to a version of an order, 24 bytes. Those of one order are
// sorted by their versions, so the kind comes last. cancel_order.lua makes the same.
func appendOrderEvent(b []byte, id delivery.OrderID, version uint64, kind delivery.ChangeKind) []byte {
	digest := id.Digest()
	b = append(b, eventOrder)
	b = append(b, digest[:]...)
	b = binary.BigEndian.AppendUint16(b, id.Day())
	b = binary.BigEndian.AppendUint64(b, version)

	return append(b, byte(kind))
}

// Kinds of an event in the stream, and in a schedule.
const (
	eventOrder  = 1
	eventNotice = 2
	eventLate   = 3 // a delivery reported too late: the version's place has its time, ms
)

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// number reads a stored figure; an absent one is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
