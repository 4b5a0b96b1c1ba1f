package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv/testserver"
)

func runFeed(t *testing.T, l *Ledger, f partitions.Feed) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Streams.Run(ctx, f) }()
	stop = sync.OnceFunc(func() {
		cancel()
		err := <-done
		check(t, errors.Is(err, context.Canceled), "the feed ended with %v", err)
	})

	t.Cleanup(stop)

	return stop
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(testserver.Timeout):
		t.Fatal("nothing came")
	}
	return value
}

func TestFeed_HandsOutEventsAndUpdates(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.report(t, o.ID, delivery.Assigned)
	entries := collect(t, s.Ledger, core.RoleStatus, "c", 2)
	if e := entries[0]; e.Events[0].Order != o.ID || e.Events[0].Version != o.Version || e.Update != nil {
		t.Errorf("event %+v", e)
	}
	if e := entries[1]; e.Update == nil || e.Update.Order != o.ID || e.Update.Status != delivery.Assigned {
		t.Errorf("update %+v", e)
	}

	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, entries...))
	for _, kind := range []byte{core.KindEvents, core.KindUpdates} {
		for _, g := range redisInfo(t, s.Ledger, s.core.Partitions[o.ID.Partition()].Key(kind)) {
			check(t, g.Name != string(core.RoleStatus) || g.Pending == 0, "stream %c: %d pending", kind, g.Pending)
		}
	}
}

func TestFeed_FinishesWhatItBeganBeforeARestart(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	first := collect(t, s.Ledger, core.RoleWebhook, "c", 1) // read, not acknowledged: a crash
	again := collect(t, s.Ledger, core.RoleWebhook, "c", 1)
	check(t, again[0].ID == first[0].ID && again[0].Events[0].Order == o.ID, "after the restart %+v, before %+v", again[0], first[0])
}

func TestFeed_TakesOverFromTheDead(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.create(t, "X-1")
	collect(t, s.Ledger, core.RoleWebhook, "dead", 1)
	got := make(chan partitions.Entry, 10)
	runFeed(t, s.Ledger, partitions.Feed{Role: core.RoleWebhook, Consumer: "alive", Every: time.Millisecond, ClaimAfter: 200 * time.Millisecond,
		Handle: func(ctx context.Context, batch []partitions.Entry) error {
			for _, e := range batch {
				got <- e
			}
			return s.Streams.Ack(ctx, core.RoleWebhook, batch...)
		}})

	e := receive(t, got)
	check(t, e.Events[0].Order == o.ID, "took over %+v", e)
}

func TestFeed_MakesMissingGroupsAgain(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	seen := make(chan delivery.OrderID, 10)
	runFeed(t, s.Ledger, partitions.Feed{Role: core.RoleWebhook, Consumer: "c", Every: time.Millisecond, Handle: func(ctx context.Context, batch []partitions.Entry) error {
		for _, e := range batch {
			seen <- e.Events[0].Order
		}
		return s.Streams.Ack(ctx, core.RoleWebhook, batch...)
	}})

	first := s.create(t, "X-1")
	check(t, receive(t, seen) == first.ID, "not the first event")
	must(t, s.core.Redis.XGroupDestroy(t.Context(), s.core.Partitions[first.ID.Partition()].Key(core.KindEvents), string(core.RoleWebhook)).Err())
	second := s.create(t, "X-2")
	for id := receive(t, seen); id != second.ID; id = receive(t, seen) { // the new group begins with the first event
		check(t, id == first.ID, "handed out %s", id)
	}
}

func TestFeed_FailingEntryHoldsUpNobody(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	bad := s.create(t, "bad")
	var handled atomic.Int32
	runFeed(t, s.Ledger, partitions.Feed{Role: core.RoleWebhook, Consumer: "c", Every: time.Millisecond, Handle: func(ctx context.Context, batch []partitions.Entry) (failed error) {
		for _, e := range batch {
			if e.Events[0].Order == bad.ID {
				failed = errors.New("a defect")
				continue
			}
			handled.Add(1)
			failed = errors.Join(failed, s.Streams.Ack(ctx, core.RoleWebhook, e))
		}
		return failed
	}})

	for i := range int32(3) {
		s.create(t, fmt.Sprint("good-", i))
		testserver.Await(t, "an event behind a failing one", func() bool { return handled.Load() == i+1 })
	}

	testserver.Await(t, "only the failing entry is pending", func() bool { return s.stats(t).Pending[core.RoleWebhook] == 1 })
}

func TestFeed_BuriesWhatFailsTooOften(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	r := s.core.Partitions[o.ID.Partition()]
	reader := partitions.NewFeedReader(s.core, &partitions.Feed{Role: core.RoleWebhook, Consumer: "c", Batch: 10, ClaimAfter: time.Minute, Log: func(string, ...any) {},
		Handle: func(context.Context, []partitions.Entry) error { return errors.New("a defect") }}, s.core.Partitions)
	must(t, makeGroups(t.Context(), reader))
	if err := gather(t.Context(), reader); err == nil {
		t.Fatal("the handler's error is lost")
	}

	for range partitions.MaxDeliveries {
		if err := readOwn(t.Context(), reader); err == nil {
			break
		}
	}

	letters := get(s.core.Redis.XRange(t.Context(), r.Key(core.KindDeadLetters), "-", "+").Result())(t)
	check(t, len(letters) == 1 && letters[0].Values["reason"] == "a defect", "dead letters %+v", letters)
	must(t, readOwn(t.Context(), reader)) // nothing is left
}

func TestFeed_DeadLettersNothingWhileRedisIsUnavailable(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	reader := partitions.NewFeedReader(s.core, &partitions.Feed{Role: core.RoleWebhook, Consumer: "c", Batch: 10, ClaimAfter: time.Minute, Log: func(string, ...any) {},
		Handle: func(context.Context, []partitions.Entry) error {
			return fmt.Errorf("writing: %w", delivery.ErrUnavailable)
		}}, s.core.Partitions)
	must(t, makeGroups(t.Context(), reader))
	_ = gather(t.Context(), reader)
	for range partitions.MaxDeliveries + 5 {
		err := readOwn(t.Context(), reader)
		require(t, errors.Is(err, delivery.ErrUnavailable), "got %v", err)
	}

	equal(t, s.core.Redis.XLen(t.Context(), s.core.Partitions[o.ID.Partition()].Key(core.KindDeadLetters)).Val(), 0, "entries were dead-lettered for a failure of Redis")
}

func TestFeed_DeadLettersWhatNobodyCanRead(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	r := l.core.Partitions[0]
	must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindEvents), Values: []any{"e", "\x09nonsense"}}).Err())
	must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindEvents), Values: []any{"other", "field"}}).Err())
	runFeed(t, l, partitions.Feed{Role: core.RoleWebhook, Consumer: "c", Every: time.Millisecond, Handle: func(context.Context, []partitions.Entry) error { return nil }})
	testserver.Await(t, "both are among the dead letters", func() bool { return l.core.Redis.XLen(t.Context(), r.Key(core.KindDeadLetters)).Val() == 2 })
}

func TestTrim_NeverDropsWhatSomebodyNeeds(t *testing.T) {
	s := newEnv(t)
	partition := core.PartitionNumber(s.account, len(s.core.Partitions))
	key := s.core.Partitions[partition].Key(core.KindEvents)
	s.createMany(t, "X", 10)
	trim := func() int64 {
		n, err := s.Streams.Trim(t.Context(), partition, -time.Hour) // everything is old enough
		must(t, err)
		return n
	}

	equal(t, trim(), 0, "entries dropped before the groups existed")
	entries := collect(t, s.Ledger, core.RoleStatus, "c", 10)
	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, entries...))
	equal(t, trim(), 0, "entries dropped that the webhook role has not read")
	must(t, s.Streams.Ack(t.Context(), core.RoleExport, collect(t, s.Ledger, core.RoleExport, "c", 10)...))
	unsettled := collect(t, s.Ledger, core.RoleWebhook, "c", 10)
	must(t, s.Streams.Ack(t.Context(), core.RoleWebhook, append(unsettled[:3:3], unsettled[4:]...)...))
	equal(t, trim(), 3, "entries dropped")
	must(t, s.core.Redis.XGroupDestroy(t.Context(), key, string(core.RoleStatus)).Err())
	must(t, s.Streams.Ack(t.Context(), core.RoleWebhook, unsettled...))
	equal(t, trim(), 0, "entries dropped while a group is missing")
	must(t, s.core.Redis.XGroupCreate(t.Context(), key, string(core.RoleStatus), "$").Err())
	equal(t, get(s.Streams.Trim(t.Context(), partition, time.Hour))(t), 0, "young entries dropped")
	if n := trim(); n == 0 {
		t.Fatal("nothing dropped at the end")
	}
}

// No replay looks at what couriers reported: nothing of a flood stays for a day.
//
//rule:fleets-and-operators/what-is-decided-is-trimmed
func TestTrim_DropsUpdatesOnceTheyAreDecided(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	partition := o.ID.Partition()
	s.report(t, o.ID, delivery.Assigned)
	s.report(t, o.ID, delivery.PickingUp)
	s.report(t, o.ID, delivery.PickedUp)
	entries := collect(t, s.Ledger, core.RoleStatus, "c", 4)
	reports := slices.DeleteFunc(entries, func(e partitions.Entry) bool { return e.Update == nil })
	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, reports[0]))
	equal(t, get(s.Streams.Trim(t.Context(), partition, 25*time.Hour))(t), 1, "updates dropped while two wait")
	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, reports[1:]...))
	equal(t, get(s.Streams.Trim(t.Context(), partition, 25*time.Hour))(t), 1, "updates dropped; the last one marks the place")
	equal(t, s.core.Redis.XLen(t.Context(), s.core.Partitions[partition].Key(core.KindEvents)).Val(), 1, "events")
}

// A change may be dated back by the fleet; what counts is when it was committed,
// for that is what the groups may not have consumed yet.
func TestRetire_WaitsForBackdatedEndings(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	for _, role := range []core.Role{core.RoleStatus, core.RoleWebhook, core.RoleExport} {
		must(t, s.Streams.Ack(t.Context(), role, collect(t, s.Ledger, role, "c", 1)...))
	}

	longAgo := time.Now().Add(-20 * time.Hour).Truncate(time.Millisecond)
	s.change(t, o, delivery.Change{Status: delivery.Failed, At: longAgo})
	n := get(s.Orders.Retire(t.Context(), o.ID.Partition(), time.Now().Add(time.Hour), 100))(t)
	check(t, n == 0, "retired before its last event was consumed")
}

// The status workers were unavailable for longer than orders are kept.
func TestRetire_WaitsForReportsThatNobodyHasDecided(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Delivered)
	partition := o.ID.Partition()
	twoDaysAgo := time.Now().Add(-48 * time.Hour)
	must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: s.core.Partitions[partition].Key(core.KindUpdates), ID: fmt.Sprintf("%d-0", twoDaysAgo.UnixMilli()),
		Values: []any{"u", core.EncodeUpdate(&delivery.Update{Order: o.ID, Fleet: s.fleet.ID, Kind: delivery.KindStatus, Status: delivery.Delivered, At: twoDaysAgo})}}).Err())
	must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: s.core.Partitions[partition].Key(core.KindEvents),
		ID: fmt.Sprintf("%d-0", time.Now().Add(24*time.Hour).UnixMilli()), Values: []any{"e", "\x02evt_x"}}).Err())
	for _, role := range []core.Role{core.RoleWebhook, core.RoleExport} {
		must(t, s.Streams.Ack(t.Context(), role, collect(t, s.Ledger, role, "c", 3)...))
	}

	reports, events := []partitions.Entry{}, []partitions.Entry{}
	for _, e := range collect(t, s.Ledger, core.RoleStatus, "c", 4) {
		if e.Update != nil {
			reports = append(reports, e)
		} else {
			events = append(events, e)
		}
	}

	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, events...))
	retire := func() int {
		return get(s.Orders.Retire(t.Context(), partition, time.Now().Add(3*time.Hour), 100))(t)
	}
	equal(t, retire(), 0, "retired while a report of two days ago is not decided")
	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, reports...))
	equal(t, retire(), 1, "retired")
}

func TestRetire_RemembersExternalIDsForEver(t *testing.T) {
	s := newEnv(t)
	ended, cancelled, open := s.create(t, "ended"), s.create(t, "cancelled"), s.create(t, "open")
	s.advance(t, ended.ID, delivery.Delivered)
	get2(s.Orders.Cancel(t.Context(), s.account, cancelled.ID, "", "", time.Now()))(t)
	partition := ended.ID.Partition()
	later := time.Now().Add(3 * time.Hour)
	retire := func() int {
		return get(s.Orders.Retire(t.Context(), partition, later, 100))(t)
	}
	equal(t, retire(), 0, "retired before anybody consumed their events")
	for _, role := range []core.Role{core.RoleStatus, core.RoleWebhook, core.RoleExport} {
		must(t, s.Streams.Ack(t.Context(), role, collect(t, s.Ledger, role, "c", 5)...))
	}

	// Both groups stand at the last entry, which is of this very hour: nothing of
	// this hour may go yet.
	equal(t, retire(), 0, "retired within the hour of the last event")
	must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: s.core.Partitions[partition].Key(core.KindEvents),
		ID: fmt.Sprintf("%d-0", later.UnixMilli()), Values: []any{"e", "\x02evt_x"}}).Err())
	for _, role := range []core.Role{core.RoleStatus, core.RoleWebhook, core.RoleExport} {
		must(t, s.Streams.Ack(t.Context(), role, collect(t, s.Ledger, role, "c", 1)...))
	}

	equal(t, retire(), 2, "retired")
	orders := get(s.Orders.GetAll(t.Context(), []delivery.OrderID{ended.ID, cancelled.ID, open.ID}))(t)
	check(t, orders[0] == nil && orders[1] == nil && orders[2] != nil, "left are %v", orders)
	_, _, err := s.Orders.Create(t.Context(), s.creation("ended", ""))
	refusal := wantCode(t, err, delivery.CodeDuplicateOrder)
	check(t, refusal.OrderID == ended.ID, "named %s, want %s", refusal.OrderID, ended.ID)
	listed, _, err := s.Orders.JobIDs(t.Context(), s.fleet.ID, delivery.Cancelled, "", 10)
	must(t, err)
	equal(t, len(listed), 0, "retired orders in the fleet's list")
	equal(t, retire(), 0, "retired twice")
	retired := get(s.Orders.Retired(t.Context(), []delivery.OrderID{ended.ID, open.ID, cancelled.ID, {}}))(t)
	check(t, slices.Equal(retired, []bool{true, false, true, false}), "retired: %v", retired)
}

// Names under which nobody reads any more would pile up, release after release;
// one that still holds an entry keeps it until it is taken over.
func TestFeed_ForgetsConsumersThatAreGone(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	stream := s.core.Partitions[o.ID.Partition()].Key(core.KindEvents)
	names := func() (names []string) {
		t.Helper()
		consumers := get(s.core.Redis.XInfoConsumers(t.Context(), stream, string(core.RoleStatus)).Result())(t)
		for _, c := range consumers {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		return names
	}

	entries := collect(t, s.Ledger, core.RoleStatus, "holds", 1)
	for _, name := range []string{"idle", "also-idle"} {
		must(t, s.core.Redis.XGroupCreateConsumer(t.Context(), stream, string(core.RoleStatus), name).Err())
	}

	reader := partitions.NewFeedReader(s.core, &partitions.Feed{Role: core.RoleStatus, Consumer: "c", Log: func(string, ...any) {}}, s.core.Partitions)
	reader.Forget(t.Context(), time.Hour, "")
	equal(t, len(names()), 3, "none was silent for an hour, left")
	reader.Forget(t.Context(), 0, "also-idle")
	equal(t, names(), []string{"holds", "idle"}, "after removing one name")
	reader.Forget(t.Context(), 0, "")
	equal(t, names(), []string{"holds"}, "after removing who holds nothing")
	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, entries...))
	reader.Forget(t.Context(), 0, "")
	equal(t, len(names()), 0, "after the last entry was settled")
}

func TestFeed_TakesItsNameAwayAtTheEnd(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	settled := make(chan bool, 1)
	stop := runFeed(t, s.Ledger, partitions.Feed{Role: core.RoleStatus, Consumer: "leaves", Every: time.Millisecond, Handle: func(ctx context.Context, batch []partitions.Entry) error {
		defer func() { settled <- true }()
		return s.Streams.Ack(ctx, core.RoleStatus, batch...)
	}})

	o := s.create(t, "X-1")
	receive(t, settled)
	stop()
	consumers := s.core.Redis.XInfoConsumers(t.Context(), s.core.Partitions[o.ID.Partition()].Key(core.KindEvents), string(core.RoleStatus))
	check(t, len(get(consumers.Result())(t)) == 0, "left behind: %+v", consumers)
}
