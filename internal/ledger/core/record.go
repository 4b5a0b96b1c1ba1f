package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
)

// RecordFormat is the first byte of every record, shrunkFormat that of a shrunk order. Raise one
// only once every process reads the new one: releases run side by side.
const (
	RecordFormat = 1
	ShrunkFormat = 2
)

// ErrShortRecord reports that a record ends before its last field, or that a number in it is no varint.
var ErrShortRecord = errors.New("the record ends early")

// Records are sequences of fields in a fixed order: numbers as varints, text
// with its length in front, times in milliseconds with 0 for none.

// AppendText appends a text to b: its length as a varint, then its bytes. Fields.Text reads it.
func AppendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// AppendFloat appends the 8 bytes of an IEEE 754 number to b, the most significant first.
func AppendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(b, math.Float64bits(f))
}

// Millis returns the stored form of a time: milliseconds since 1970, or 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// EstimateOf returns the stored form of an estimate of the drop-off: milliseconds since a day before
// the creation of the order, so that four bytes hold 49 days exactly. It returns 0 for the zero time;
// an estimate outside these days becomes the first or the last moment of them.
func EstimateOf(created, estimate time.Time) uint32 {
	if estimate.IsZero() {
		return 0
	}
	const day = 24 * time.Hour
	ms := Millis(estimate) - Millis(created) + day.Milliseconds()
	return uint32(min(max(ms, 1), math.MaxUint32))
}

// TimeOf returns the time, in UTC, whose stored form is ms: it reverses Millis.
func TimeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Fields reads a record field by field. A read beyond the end returns a zero value and sets Err, which
// stays set, so that a caller may read all fields and look at Err once.
type Fields struct {
	Rest string // what has not been read yet
	Err  error
}

// uvarint reads a number of up to ten bytes, seven bits each, the least significant first.
func (f *Fields) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b := f.Byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}

	f.Err = ErrShortRecord

	return 0
}

// Take reads n bytes. If fewer are left, it returns none, sets Err and skips the rest of the record.
func (f *Fields) Take(n int) string {
	if n < 0 || n > len(f.Rest) {
		f.Err, f.Rest = ErrShortRecord, ""
		return ""
	}
	taken := f.Rest[:n]
	f.Rest = f.Rest[n:]
	return taken
}

// Text reads what AppendText has written.
func (f *Fields) Text() string { return f.Take(int(min(f.uvarint(), math.MaxInt32))) }

// uint reads a number of n bytes, 8 at most.
func (f *Fields) uint(n int) (v uint64) {
	for _, b := range []byte(f.Take(n)) {
		v = v<<8 | uint64(b)
	}
	return v
}

// Byte reads one byte.
func (f *Fields) Byte() byte { return byte(f.uint(1)) }

// Uint16 reads a number of two bytes, the most significant first.
func (f *Fields) Uint16() uint16 { return uint16(f.uint(2)) }

// Uint32 reads a number of four bytes, the most significant first.
func (f *Fields) Uint32() uint32 { return uint32(f.uint(4)) }

// Uint64 reads a number of eight bytes, the most significant first.
func (f *Fields) Uint64() uint64 { return f.uint(8) }

// float reads what AppendFloat has written.
func (f *Fields) float() float64 { return math.Float64frombits(f.Uint64()) }

// Codec writes a record or reads it, so that each format is one list of fields.
type Codec struct {
	Fields
	Out     []byte
	Writing bool
}

// Encode is a record behind the byte of its format.
func Encode(format func(*Codec)) []byte {
	c := Codec{Out: []byte{RecordFormat}, Writing: true}
	format(&c)
	return c.Out
}

// Decode reads a record that encode made; what names it in the error.
func Decode(what, record string, format func(*Codec)) error {
	c := Codec{Fields: Fields{Rest: record}}
	if c.Byte() != RecordFormat {
		c.Err = ErrShortRecord
	} else {
		format(&c)
	}

	if c.Err != nil {
		return fmt.Errorf("%s: %w", what, c.Err)
	}

	return nil
}

// All writes or reads fields: bytes as they are, a bool as a digit, uint16, uint32 and
// uint64 in so many bits, int as a varint, a location as 24 bytes, all zero when unknown.
func (c *Codec) All(parts ...any) {
	for _, part := range parts {
		if c.Writing {
			c.write(part)
		} else {
			c.read(part)
		}
	}
}

func (c *Codec) write(part any) {
	b := c.Out
	switch v := part.(type) {
	case []byte:
		b = append(b, v...)
	case *byte:
		b = append(b, *v)
	case *bool:
		b = append(b, FlagText(*v)...)
	case *uint16:
		b = binary.BigEndian.AppendUint16(b, *v)
	case *uint32:
		b = binary.BigEndian.AppendUint32(b, *v)
	case *uint64:
		b = binary.BigEndian.AppendUint64(b, *v)
	case *int:
		b = binary.AppendUvarint(b, uint64(*v))
	case *float64:
		b = AppendFloat(b, *v)
	case *string:
		b = AppendText(b, *v)
	case *time.Time:
		b = binary.AppendUvarint(b, uint64(Millis(*v)))
	case *delivery.Money: // 0 is "not given", so amounts are one higher
		amount := uint64(0)
		if v.Set {
			amount = uint64(v.Minor) + 1
		}
		b = binary.AppendUvarint(b, amount)
	case *delivery.Courier: // the phone first, where order.lua compares it
		b = AppendText(AppendText(AppendText(b, v.Phone), v.Name), v.VehicleType)
	case *delivery.Location:
		b = AppendLocation(b, *v)
	}

	c.Out = b
}

func (c *Codec) read(part any) {
	switch v := part.(type) {
	case []byte:
		copy(v, c.Take(len(v)))
	case *byte:
		*v = c.Byte()
	case *bool:
		*v = c.Byte() == '1'
	case *uint16:
		*v = c.Uint16()
	case *uint32:
		*v = c.Uint32()
	case *uint64:
		*v = c.Uint64()
	case *int:
		*v = int(c.uvarint())
	case *float64:
		*v = c.float()
	case *string:
		*v = c.Text()
	case *time.Time:
		*v = TimeOf(int64(c.uvarint()))
	case *delivery.Money:
		if amount := c.uvarint(); amount > 0 {
			*v = delivery.Money{Minor: int64(amount - 1), Set: true}
		}
	case *delivery.Courier:
		*v = delivery.Courier{Phone: c.Text(), Name: c.Text(), VehicleType: c.Text()}
	case *delivery.Location:
		*v = c.location()
		if v.IsZero() {
			*v = delivery.Location{} // since when nothing is known, only the head tells
		}
	}
}

// AppendLocation appends the 24 bytes of a location to b: latitude, longitude and time.
func AppendLocation(b []byte, l delivery.Location) []byte {
	b = AppendFloat(AppendFloat(b, l.Latitude), l.Longitude)
	return binary.BigEndian.AppendUint64(b, uint64(Millis(l.At)))
}

func (f *Fields) location() delivery.Location {
	return delivery.Location{
		Point: delivery.Point{Latitude: f.float(), Longitude: f.float()},
		At:    TimeOf(int64(f.Uint64())),
	}
}

// Offsets of an order record's head (order.lua), of fixed size so that scripts change
// figures in place.
const (
	OrderHead         = 138
	OrderCreatedAt    = 28
	OrderAccountAt    = 76
	OrderLocationAt   = 94
	OrderLengthAt     = 118
	OrderFleetAt      = 122
	FlagKeyIsExternal = 1
)

// Entries behind the document: kind, length of what follows (2 bytes), and that.
const (
	entryChange   = 'S'
	entryAccepted = 'A' // whose accept was confirmed, by orders/report_update.lua
	EntryErased   = 'E' // no courier, as order.lua takes entries to begin with one, and the time of the erasure
)

// AppendOrderRecord appends to b the record of a new order that the fleet of the given terms takes.
// flags is FlagKeyIsExternal or 0; create_order.lua knows its own earlier run by the nonce, and a
// repetition of the request by the fingerprint.
func AppendOrderRecord(
	b []byte, o *delivery.Order, terms *delivery.FleetTerms, flags byte, nonce uint64, fingerprint [16]byte,
) []byte {
	begin := len(b)
	created := uint64(Millis(o.CreatedAt))

	b = append(b, RecordFormat, byte(delivery.Searching), 0, flags)
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
	b = append(b, 0, 0, 0, 0)          // length of the document, set below

	c := Codec{Out: b, Writing: true}
	c.Terms(terms)

	document := len(c.Out)
	c.Document(&o.OrderDraft)
	binary.BigEndian.PutUint32(c.Out[begin+OrderLengthAt:], uint32(len(c.Out)-document))

	return c.Out
}

// Terms is the entry of the fleet's terms, behind the head: id, minutes to pickup and of delivery, name.
func (c *Codec) Terms(t *delivery.FleetTerms) {
	pickup, dropoff := uint16(t.PickupMinutes), uint16(t.DeliveryMinutes)
	c.All(t.ID[:], &pickup, &dropoff, &t.Name)
	if !c.Writing {
		t.PickupMinutes, t.DeliveryMinutes = int(pickup), int(dropoff)
	}
}

// Document is the vendor's part of an order, which is as long as the head says.
func (c *Codec) Document(d *delivery.OrderDraft) {
	c.All(&d.ExternalStoreID, &d.ExternalOrderID, &d.OrderedAt, &d.ReadyAt, &d.Recipient.Name, &d.Recipient.Phone,
		&d.Dropoff.Text, &d.Dropoff.Latitude, &d.Dropoff.Longitude, &d.Dropoff.BuildingNo, &d.Dropoff.DoorNo,
		&d.Dropoff.Floor, &d.Dropoff.Note, &d.PackageNote, &d.OrderAmount, (*byte)(&d.Payment.Type), &d.Payment.CollectionAmount)
}

// AppendChange appends the entry of a change to b.
func AppendChange(b []byte, c *delivery.Change) []byte {
	return AppendEntry(b, entryChange, func(entry *Codec) { entry.change(c) })
}

// change is an entry of a change. cancel_order.lua writes version and time into their places.
func (c *Codec) change(to *delivery.Change) {
	c.All((*byte)(&to.Status), &to.Version)
	c.time48(&to.At)
	c.All(&to.Courier, &to.ETA, &to.Location, (*string)(&to.Failure), (*string)(&to.Cancel), &to.Note, (*byte)(&to.Kind))
}

// time48 is a time in 6 bytes, as milliseconds since 1970 with their sign; 0 is the zero time.
func (c *Codec) time48(at *time.Time) {
	ms := Millis(*at)
	high, low := uint16(ms>>32), uint32(ms)
	c.All(&high, &low)
	if !c.Writing {
		*at = TimeOf(int64(int16(high))<<32 | int64(low))
	}
}

// AppendAccepted appends to b the entry of a courier whose accept was confirmed.
func AppendAccepted(b []byte, courier delivery.Courier) []byte {
	return AppendEntry(b, entryAccepted, func(entry *Codec) { entry.All(&courier) })
}

// AppendEntry appends to b an entry of the given kind, whose content format writes. The content must
// be shorter than 64 KiB.
func AppendEntry(b []byte, kind byte, format func(*Codec)) []byte {
	c := Codec{Out: append(b, kind, 0, 0), Writing: true}
	start := len(c.Out)
	format(&c)
	binary.BigEndian.PutUint16(c.Out[start-2:], uint16(len(c.Out)-start))
	return c.Out
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
func (c *Codec) shrunk(o *delivery.Order) {
	c.All(&o.Fleet.PickupMinutes, &o.Fleet.DeliveryMinutes, &o.Fleet.Name, &o.ExternalStoreID, &o.ExternalOrderID)
	c.timeFrom(o.CreatedAt, &o.OrderedAt)
	c.timeFrom(o.CreatedAt, &o.ReadyAt)
	c.All(&o.OrderAmount, (*byte)(&o.Payment.Type), &o.Payment.CollectionAmount)

	changes := byte(len(o.Changes)) // fewer than maxSideReports and the statuses
	c.All(&changes)
	if !c.Writing {
		o.Changes = make([]delivery.Change, changes)
	}

	// Each change as its difference from the one before.
	last := delivery.Change{At: o.CreatedAt}
	for i := range o.Changes {
		change := &o.Changes[i]
		statusAndKind := byte(change.Status) | byte(change.Kind)<<shrunkKindShift
		c.All(&statusAndKind)
		change.Status = delivery.Status(statusAndKind & (1<<shrunkKindShift - 1))
		change.Kind = delivery.ChangeKind(statusAndKind >> shrunkKindShift)
		c.timeFrom(last.At, &change.At)

		written := delivery.VersionTime(change.Version)
		random := delivery.VersionRandom(change.Version)
		c.timeFrom(change.At, &written)
		c.All(&random)
		change.Version = delivery.ComposeVersion(written, random, uint32(i+2))

		c.timeFrom(change.At, &change.ETA)
		c.courierAfter(last.Courier, &change.Courier)
		last = *change
	}

	c.courierAfter(last.Courier, &o.Courier)

	if len(o.Changes) > 0 { // only an end has these
		end := &o.Changes[len(o.Changes)-1]
		c.All((*string)(&end.Failure), (*string)(&end.Cancel), &end.Note)
	}

	// Few orders are erased, so the others have nothing here. Padding reads as no time.
	hasErasure := c.Rest != ""
	if c.Writing {
		hasErasure = !o.ErasedAt.IsZero()
	}

	if hasErasure {
		c.All(&o.ErasedAt)
	}
}

// shrunkKindShift is where, above its status, a byte of a shrunk order has the kind of a change.
const shrunkKindShift = 4

// EncodeShrunk returns what shrink_orders.lua writes of an order besides its head: at least as many
// bytes as stand in the head in the place of location and length, with zeros behind shorter content.
func EncodeShrunk(o *delivery.Order) []byte {
	c := Codec{Writing: true}
	c.shrunk(o)
	return append(c.Out, make([]byte, max(OrderFleetAt-OrderLocationAt-len(c.Out), 0))...)
}

// timeFrom is the distance from another time in ms, zigzag and one higher; 0 is the zero time.
func (c *Codec) timeFrom(other time.Time, at *time.Time) {
	distance := 0
	if ms := at.UnixMilli() - other.UnixMilli(); !at.IsZero() {
		distance = int(ms<<1^ms>>63) + 1
	}

	c.All(&distance)
	if !c.Writing && distance > 0 {
		n := int64(distance - 1)
		*at = TimeOf(other.UnixMilli() + (n>>1 ^ -(n & 1)))
	}
}

// courierAfter is a courier, if it is not the one before.
func (c *Codec) courierAfter(before delivery.Courier, courier *delivery.Courier) {
	other := *courier != before
	c.All(&other)
	if other {
		c.All(courier)
	} else {
		*courier = before
	}
}

// DecodeOrder reads a record. The partition completes the order's id.
func DecodeOrder(record string, partition int) (*delivery.Order, error) {
	if len(record) < OrderHead || record[0] != RecordFormat && record[0] != ShrunkFormat {
		return nil, fmt.Errorf("order record of %d bytes: %w", len(record), ErrShortRecord)
	}

	o := &delivery.Order{Status: delivery.Status(record[1]), Reported: delivery.Status(record[2])}
	c := Codec{Fields: Fields{Rest: record[4:]}}
	o.Version = c.Uint64()
	c.Take(8 + 4 + 4) // updated, told, estimated
	o.CreatedAt = TimeOf(int64(c.Uint64()))
	c.Take(8) // polled
	o.LastCourierUpdate = TimeOf(int64(c.Uint64()))
	c.Take(8 + 16) // nonce, fingerprint
	copy(o.Account[:], c.Take(16))
	day := c.Uint16()
	if record[0] == ShrunkFormat {
		copy(o.Fleet.ID[:], record[OrderFleetAt:])
		c.Rest = record[OrderLocationAt:OrderFleetAt] + record[OrderHead:]
		c.shrunk(o)
		o.ID = delivery.MakeOrderID(partition, day, delivery.OrderDigest(o.Account, o.ExternalOrderID))
		if c.Err != nil {
			return nil, fmt.Errorf("order %s, shrunk: %w", o.ID, c.Err)
		}
		return o, nil
	}

	reported := c.location()
	length := int(c.Uint32())
	c.Terms(&o.Fleet)
	document := Codec{Fields: Fields{Rest: c.Take(length)}}
	document.Document(&o.OrderDraft)
	if document.Err != nil {
		return nil, fmt.Errorf("order record, document: %w", document.Err)
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

func (c *Codec) history(o *delivery.Order) error {
	entries := 0
	if c.Rest != "" {
		o.Changes = make([]delivery.Change, 0, usualChanges)
	}

	for c.Rest != "" && c.Err == nil {
		kind := c.Byte()
		entries++
		entry := Codec{Fields: Fields{Rest: c.Take(int(c.Uint16()))}}
		switch kind {
		case entryChange:
			var change delivery.Change
			entry.change(&change)
			o.Changes = append(o.Changes, change)
			o.Reach(&change)
		case entryAccepted:
			entry.All(&o.Accepted)
		case EntryErased:
			entry.All(new(delivery.Courier), &o.ErasedAt)
		}

		if entry.Err != nil {
			return fmt.Errorf("order %s, entry %d: %w", o.ID, entries, entry.Err)
		}
	}

	if c.Err != nil {
		return fmt.Errorf("order %s, history: %w", o.ID, c.Err)
	}

	return nil
}

// AppendOrderEvent is the stream's reference to a version of an order, 24 bytes. Those of one order are
// sorted by their versions, so the kind comes last. cancel_order.lua makes the same.
func AppendOrderEvent(b []byte, id delivery.OrderID, version uint64, kind delivery.ChangeKind) []byte {
	digest := id.Digest()
	b = append(b, EventOrder)
	b = append(b, digest[:]...)
	b = binary.BigEndian.AppendUint16(b, id.Day())
	b = binary.BigEndian.AppendUint64(b, version)

	return append(b, byte(kind))
}

// Kinds of an event in the stream, and in a schedule.
const (
	EventOrder  = 1
	EventNotice = 2
	EventLate   = 3 // a delivery reported too late: the version's place has its time, ms
)

// FlagText returns the stored form of a flag: 1 if it is set, else 0.
func FlagText(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// ParseNumber reads a stored figure; an absent one is 0.
func ParseNumber(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
