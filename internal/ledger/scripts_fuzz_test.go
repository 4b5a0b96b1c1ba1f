package ledger

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
)

// Scripts and Go compute some things twice. These targets compare the two: the scripts run in a real Redis. `make test`
// plays the seeds below, `make fuzz` whatever a fuzzer makes up. Other tests compare the limits (TestLimits_AgreeWithBruteForce), the ids of
// retired orders as a whole (TestRetire_EveryIDIsFoundWithItsDayAndNothingElse), owners' tokens
// (TestOwnership_HasOneOwnerInEveryState) and lists of stores (TestWriteStore_ListsAreWhatTheRecordsSay).

// answerShared makes list_due answer what functions that scripts share make of the arguments.
func answerShared(file, text string) string {
	if file != "list_due" {
		return text
	}

	return `
if ARGV[1] == 'version' then return next_version(ARGV[2], tonumber(ARGV[3]), ARGV[4]) end
if ARGV[1] == 'retired' then
  local _, buckets, span, secret1, secret2, secret3 = parse(RETIRED_INDEX, ARGV[2])
  local hash = retired_hash(ARGV[3], secret1, secret2, secret3)
  local number, place = retired_place(hash, buckets, span)
  return number .. pack('>I2', place)
end
local head = sub(ARGV[2], 1, ORDER_HEAD)
return format('%d %d %d ', order_status(head), order_reported(head), order_created(head)) ..
  order_account(head) .. order_day(head) .. order_fleet(head) .. order_courier(ARGV[2], ARGV[3])
`
}

// askShared returns what list_due answers, edited by answerShared.
func (l *Ledger) askShared(t *testing.T, args ...any) string {
	t.Helper()
	key := l.core.Partitions[0].Key(core.KindSentinel)
	return get(l.core.RunText(t.Context(), "list_due", []string{key}, args...))(t)
}

// FuzzScripts_Versions compares the version that a cancellation makes with that of package delivery.
func FuzzScripts_Versions(f *testing.F) {
	l := openTest(f, func(c *core.Config) { c.Edit = answerShared })
	f.Add(uint64(0), int64(0), uint16(0))
	f.Add(uint64(217_418_523_000)<<22|1, int64(1_795_255_323_000_999), uint16(0xffff))
	f.Add(uint64(217_418_523_000)<<22|0x3fff<<8|254, int64(1_795_255_323_001_000), uint16(0x4001))
	f.Add(uint64(1<<42-3)<<22|7, int64(1), uint16(1))
	f.Fuzz(func(t *testing.T, previous uint64, now int64, random uint16) {
		// A version is at least 2 ms after the one before it, and 1<<42-1 ms is the last that fits.
		const latest, year2150 = 1<<42 - 3, 5_680_281_600_000_000
		now = min(max(now, 0), year2150)
		hasManyChanges := previous&0xff == 0xff // more than any order has
		if previous>>22 > latest || hasManyChanges {
			return
		}

		args := []any{binary.BigEndian.AppendUint64(nil, previous), now, binary.BigEndian.AppendUint16(nil, random)}
		got := l.askShared(t, append([]any{"version"}, args...)...)

		want := delivery.NextVersion(previous, time.UnixMicro(now), random)
		equal(t, fmt.Sprintf("%x", got), fmt.Sprintf("%016x", want), "the version")
	})
}

// FuzzScripts_RetiredPlaces compares where the id of a retired order is looked for.
func FuzzScripts_RetiredPlaces(f *testing.F) {
	l := openTest(f, func(c *core.Config) { c.Edit = answerShared })
	f.Add([]byte("\x00\x00\x01\x00\x00\x02\x00\x00\x03"), uint32(1), uint32(1), uint32(2), uint32(3))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff"), uint32(67_108_859), uint32(67_108_858), uint32(67_108_857), uint32(67_108_856))
	f.Add([]byte("123456789"), uint32(341), uint32(19_088_743), uint32(40_014_001), uint32(1))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x55"), uint32(341), uint32(0), uint32(0), uint32(1)) // the first bucket that has not come yet
	f.Fuzz(func(t *testing.T, id []byte, buckets, secret1, secret2, secret3 uint32) {
		index := orders.RetiredIndex{ // at least 1 and at most retiredPrime buckets; secrets are below retiredPrime
			Buckets: max(1, buckets%(orders.RetiredPrime+1)),
			Secrets: [3]uint32{secret1 % orders.RetiredPrime, secret2 % orders.RetiredPrime, secret3 % orders.RetiredPrime},
		}

		index.Span = 1 << bits.Len32(index.Buckets)
		var digest delivery.Digest
		copy(digest[:], id)

		got := l.askShared(t, "retired", index.Encode(), digest[:orders.RetiredDigestSize])

		key, field := orders.RetiredPlace(l.core.Partitions[0], index.Bucket(digest))
		equal(t, l.core.Partitions[0].Key(core.KindRetired)+got, key+field, "hash and field")
	})
}

// FuzzScripts_OrderRecords compares what scripts and Go read in an order's record: figures of its head,
// and whether a courier is the one who has the job.
func FuzzScripts_OrderRecords(f *testing.F) {
	l := openTest(f, func(c *core.Config) { c.Edit = answerShared })
	f.Add("Hızlı Kurye", "X-1", "5321112233", "5550000000", int64(1_795_000_000_123), uint16(20_778), []byte{0x21, 0x01, 0x31, 0x13, 0x02, 0x10})
	f.Add(string(make([]byte, 200)), string(make([]byte, 20_000)), "1", "1", int64(1), uint16(0xffff), []byte{0x43, 0x11, 0x21, 0x41, 0x01})
	f.Add("", "\x00\x00\x00", "12", "1", int64(1)<<46, uint16(1), []byte{0x11, 0x30, 0x03, 0x23, 0x32})
	f.Add("Hızlı Kurye", "X-1", "5321112233", "5550000000", int64(1_795_000_000_123), uint16(20_778), []byte{0x02, 0x12, 0x23}) // nobody has accepted
	f.Fuzz(func(t *testing.T, fleetName, externalID, phone, otherPhone string, created int64, day uint16, history []byte) {
		hasPhones := phone != "" && otherPhone != "" && max(len(phone), len(otherPhone)) <= 40
		isStorable := len(fleetName)+len(externalID) <= 60_000 && created >= 1 && created <= 1<<48
		if !hasPhones || !isStorable {
			return
		}

		couriers := []delivery.Courier{
			{},
			{Phone: phone, Name: "Ali"},
			{Phone: phone, Name: "Ali Veli", VehicleType: "Car"},
			{Phone: otherPhone, Name: "Ali"},
			{Phone: otherPhone, Name: "Ayşe"},
		}

		o := &delivery.Order{OrderDraft: *testDraft(externalID), Account: delivery.NewAccountID(), CreatedAt: time.UnixMilli(created).UTC()}
		o.ID = delivery.MakeOrderID(0, day, delivery.OrderDigest(o.Account, externalID))
		terms := &delivery.FleetTerms{ID: delivery.NewFleetID(), Name: fleetName, PickupMinutes: len(history), DeliveryMinutes: 300}
		record := core.AppendOrderRecord(nil, o, terms, core.FlagKeyIsExternal, 1<<63, [16]byte{15: 1})
		record[1], record[2] = byte(day%9), byte(day>>8%9) // status, reported

		for _, b := range history[:min(len(history), 20)] {
			courier := couriers[int(b>>4)%len(couriers)]
			change := &delivery.Change{Status: delivery.Assigned, At: o.CreatedAt, Courier: courier, Note: externalID[:min(len(externalID), 100)]}
			switch {
			case b%4 == 0:
				record = core.AppendEntry(record, core.EntryErased, func(entry *core.Codec) { entry.All(new(delivery.Courier), &o.CreatedAt) })
			case b%4 == 1 && !courier.IsZero():
				record = core.AppendAccepted(record, courier)
			default:
				record = core.AppendChange(record, change)
			}
		}

		stored := get(core.DecodeOrder(string(record), 0))(t)
		has := stored.Accepted
		if has.IsZero() {
			has = stored.Courier
		}

		for _, courier := range couriers[1:] {
			got := l.askShared(t, "record", record, core.AppendAccepted(nil, courier))

			want := "other"
			switch {
			case has.IsZero():
				want = "none"
			case has == courier:
				want = "same"
			case has.Phone == courier.Phone:
				want = "corrected"
			}

			want = fmt.Sprintf("%d %d %d %s%s%s%s", stored.Status, stored.Reported, stored.CreatedAt.UnixMilli(), stored.Account[:], core.DayOf(stored.ID), stored.Fleet.ID[:], want)
			equal(t, got, want, "what the scripts read")
		}
	})
}

// FuzzScripts_Secrets compares which secrets of an account work, which the scripts decide, with those
// of a fleet, which Go does.
func FuzzScripts_Secrets(f *testing.F) {
	var now time.Time
	l := openTest(f, func(c *core.Config) { c.Now = func() time.Time { return now } })
	f.Add([]byte{0x00, 0x01, 0x02, 0x03, 0x04, 0x05}) // too many
	f.Add([]byte{0x00, 0x01, 0x40})                   // one that has just ended is issued again
	f.Add([]byte{0x10, 0x21, 0x22, 0x83, 0x12, 0x74, 0x11, 0x35, 0x56, 0x06})
	f.Add([]byte{0x11, 0x11, 0x10, 0x1f, 0x12, 0x1e, 0x13, 0x24, 0x25}) // all earlier ones are ended
	f.Fuzz(func(t *testing.T, rotations []byte) {
		account := newAccount(t, l, plenty())
		key := l.core.PartitionOf(account).Account(account)
		want := accounts.FleetSecrets{Current: string(testHash[:])}
		now = time.UnixMilli(1_795_000_000_500)

		for _, b := range rotations[:min(len(rotations), 30)] {
			now = now.Add(time.Duration(b>>4) * 30 * time.Minute)
			l.setClock(t, now.UnixMicro())
			fresh, overlap, revokes := [32]byte{1, b % 8}, 2*time.Hour, b&0x0f >= 14

			until, err := l.Accounts.RotateSecret(t.Context(), account, fresh, overlap, revokes)

			_, wantErr := want.Rotate(string(fresh[:]), overlap, revokes, now)
			wantUntil := now
			if len(want.Earlier) > 0 {
				wantUntil = want.Earlier[0].Until
			}

			equal(t, delivery.CodeOf(err), delivery.CodeOf(wantErr), "the refusal")
			hasEnded := !until.After(now) && !wantUntil.After(now) // whatever the time
			check(t, err != nil || until.Equal(wantUntil) || hasEnded, "the one before works until %s, of a fleet until %s", until, wantUntil)
			stored := get(l.core.Redis.HGetAll(t.Context(), key).Result())(t)
			earlier := core.ValidSecrets(get(core.ParseEarlier(stored[core.EarlierField]))(t), now)
			same := slices.EqualFunc(earlier, want.Earlier, func(a, b core.EarlierSecret) bool { return a.Secret == b.Secret && a.Until.Equal(b.Until) })
			require(t, stored["secret"] == want.Current && same, "after %x %x and %x work, of a fleet %x and %x", b, stored["secret"], earlier, want.Current, want.Earlier)
		}
	})
}

// FuzzScripts_Reports compares what report_update, report_locations and cancel_order make of an order
// with what package delivery does. A report is appended if it changes the order, and otherwise only as
// a failure that operators shall see, or as the first Delivered of an order that has ended otherwise.
func FuzzScripts_Reports(f *testing.F) {
	s := newEnv(f)
	f.Add([]byte{0x00, 0x00, 0x02, 0x09, 0x02, 0x0b, 0x02, 0x0e, 0x03, 0x00, 0x04, 0x00, 0x05, 0x00, 0x05, 0x0b})
	f.Add([]byte{0x02, 0x00, 0x01, 0x10, 0x00, 0x00, 0x00, 0x20, 0x01, 0x20, 0x06, 0x02, 0x01, 0x10, 0x06, 0x01, 0x07, 0x00})
	f.Add([]byte{0x0a, 0x03, 0x07, 0x00, 0x0a, 0x00, 0x05, 0x20, 0x05, 0x20, 0x07, 0x00})
	f.Add([]byte{0x00, 0x09, 0x00, 0x0d, 0x00, 0x1d, 0x03, 0x0a, 0x03, 0x0d, 0x02, 0x09, 0x07, 0x00, 0x0a, 0x00, 0x04, 0x00})
	f.Add([]byte{0x00, 0x00, 0x0a, 0x03, 0x02, 0x0b})                         // a failure that is not possible, then the estimate in force
	f.Add([]byte{0x00, 0x00, 0x06, 0x02, 0x00, 0x20, 0x01, 0x20, 0x01, 0x10}) // corrected, then another one
	f.Add([]byte{0x02, 0x08, 0x00, 0x0f, 0x03, 0x00, 0x03, 0x08})             // an estimate that comes with the first courier is taken back
	f.Add([]byte{0x02, 0x08, 0x00, 0x0a, 0x02, 0x0b, 0x02, 0x0f, 0x00, 0x0c}) // less than a minute from the one before
	f.Fuzz(func(t *testing.T, actions []byte) {
		o := s.create(t, delivery.NewAccountID().String())
		start := o.CreatedAt
		for n := 0; n+1 < min(len(actions), 60); n += 2 {
			at := start.Add(time.Duration(n) * time.Second)
			a := action{what: actions[n], detail: actions[n+1], at: at, eta: start.Add(34 * time.Minute)}

			o = s.play(t, o, a)
		}
	})
}

// action is a step of FuzzScripts_Reports.
type action struct {
	what, detail byte
	at           time.Time
	eta          time.Time // a minute before what the fleet promises
}

// play does the action and returns the order as it is then, which must be what package delivery says.
func (s *env) play(t *testing.T, o *delivery.Order, a action) *delivery.Order {
	t.Helper()
	switch a.what % 8 {
	case 6:
		return s.locate(t, o, a)
	case 7:
		return s.cancelAt(t, o, a.at)
	}
	return s.reportAndDecide(t, o, a.update(o))
}

// update is the report that the action stands for.
func (a action) update(o *delivery.Order) delivery.Update {
	u := delivery.Update{Order: o.ID, Fleet: o.Fleet.ID, Kind: delivery.KindStatus, At: a.at}
	corrected := mehmet
	corrected.Name = "Mehmet YILMAZ"
	courier := []delivery.Courier{mehmet, ali, corrected}[a.detail>>4%3]
	if a.detail&8 != 0 {
		u.ETA = a.eta.Add(time.Duration(a.detail%8) * 20 * time.Second)
	}

	what := a.what % 8
	switch {
	case what == 0:
		u.Kind, u.Status, u.Courier = delivery.KindAccept, delivery.Assigned, courier
	case what == 1:
		u.Kind, u.Courier = delivery.KindSwap, courier
		u.ETA = time.Time{} // no swap has one
	case a.what >= 8:
		reasons := []delivery.FailureReason{delivery.OtherFailure, delivery.NoCourierFound, delivery.StoreClosed, delivery.CustomerRefused}
		u.Status, u.Failure = delivery.Failed, reasons[a.detail%4]
	default:
		u.Status = delivery.Assigned + delivery.Status(a.detail>>5%2) + delivery.Status(what-2)
	}

	return u
}

// reportAndDecide reports the update, and writes what is decided of it as the owner of the partition does.
func (s *env) reportAndDecide(t *testing.T, o *delivery.Order, u delivery.Update) *delivery.Order {
	t.Helper()
	before := s.updates(t, o.ID)
	_, err := s.Orders.Report(t.Context(), u, u.At)
	taken := s.updates(t, o.ID) > before

	decided := delivery.Decide(o, u, u.At)
	isPossible := len(decided.Changes) > 0
	isFailure := u.Status == delivery.Failed && !o.Status.Terminal()
	isFirstDelivery := delivery.LateDelivery(o, u) && o.Reported != delivery.Delivered
	wantTaken := isPossible || isFailure || isFirstDelivery
	require(t, taken == wantTaken, "%+v of an order that is %s: appended %v, decided %+v, %v", u, o.Status, taken, decided, err)

	isRefused := decided.Action == delivery.Illegal && !taken
	isOtherFailure := u.Status == delivery.Failed && o.Status == delivery.Failed && o.Changes[len(o.Changes)-1].Failure != u.Failure
	require(t, err == nil || isRefused || isOtherFailure, "%+v of an order that is %s: %v, decided %+v", u, o.Status, err, decided)
	mustRefuse := decided.Action == delivery.Illegal && u.Kind != delivery.KindStatus
	require(t, err != nil || !mustRefuse, "%+v of an order that is %s was not refused", u, o.Status)

	read := get(s.Orders.Get(t.Context(), o.ID))(t)
	isHandedOver := isPossible && u.Kind == delivery.KindSwap && !o.Courier.IsZero() && o.Courier.Phone != u.Courier.Phone
	require(t, read.Location.IsZero() == (isHandedOver || o.Location.IsZero()), "at %+v after %+v", read.Location, u)
	if !isPossible { // the report changes nothing that is stored of the order
		return s.wantOrder(t, o, len(o.Changes))
	}

	changes := delivery.Decide(read, u, u.At).Changes
	want := *read
	for i := range changes {
		want.Reach(&changes[i])
		want.Status = changes[i].Status
	}

	s.change(t, read, changes...)

	return s.wantOrder(t, &want, len(read.Changes)+len(changes))
}

// locate reports a position of up to 14 s before.
func (s *env) locate(t *testing.T, o *delivery.Order, a action) *delivery.Order {
	t.Helper()
	place := delivery.Location{Point: delivery.Point{Latitude: 41, Longitude: 29 + float64(a.detail)/1000}, At: a.at.Add(-time.Duration(a.detail%8) * 2 * time.Second)}

	get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{{Order: o.ID, Location: place}}, a.at))(t)

	want := *o
	if !o.Status.Terminal() {
		want.Locate(place)
	}

	return s.wantOrder(t, &want, len(o.Changes))
}

func (s *env) cancelAt(t *testing.T, o *delivery.Order, at time.Time) *delivery.Order {
	t.Helper()

	cancelled, _, err := s.Orders.Cancel(t.Context(), s.account, o.ID, delivery.CustomerRequest, "vazgeçti", at)

	passes := o.Status.Cancellable() && o.Reported < delivery.PickedUp
	require(t, (err == nil) == (passes || o.Status == delivery.Cancelled), "of an order that is %s, reported as %s: %v", o.Status, o.Reported, err)
	if !passes {
		return s.wantOrder(t, o, len(o.Changes))
	}

	want := *o
	want.Status = delivery.Cancelled
	stored := s.wantOrder(t, &want, len(o.Changes)+1)

	version := cancelled.Version
	wantVersion := delivery.NextVersion(o.Version, delivery.VersionTime(version), delivery.VersionRandom(version))
	wantAt := at.Truncate(time.Millisecond)
	if wantAt.Before(o.UpdatedAt()) {
		wantAt = o.UpdatedAt()
	}

	last := stored.Changes[len(o.Changes)]
	check(t, version == wantVersion && last.Version == version && last.At.Equal(wantAt), "%x at %s, want %x at %s", last.Version, last.At, wantVersion, wantAt)
	check(t, last.Cancel == delivery.CustomerRequest && last.Note == "vazgeçti" && last.Status == delivery.Cancelled, "%+v", last)

	event := get(s.core.Redis.XRevRangeN(t.Context(), s.core.PartitionOf(s.account).Key(core.KindEvents), "+", "-", 1).Result())(t)[0]
	equal(t, event.Values["e"], any(string(core.AppendOrderEvent(nil, o.ID, version, delivery.StatusReached))), "the event")

	return stored
}

// wantOrder returns the stored order, which must have the status, courier and position of another.
func (s *env) wantOrder(t *testing.T, want *delivery.Order, changes int) *delivery.Order {
	t.Helper()
	got := get(s.Orders.Get(t.Context(), want.ID))(t)
	require(t, got.Status == want.Status && got.Courier == want.Courier && len(got.Changes) == changes,
		"%s with %s and %d changes, want %s with %s and %d", got.Status, got.Courier.Name, len(got.Changes), want.Status, want.Courier.Name, changes)
	require(t, got.Location == want.Location, "at %+v, want %+v", got.Location, want.Location)
	return got
}
