package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// turns collects what a feed's turns bring, and fails them while told to.
type turns struct {
	mu      sync.Mutex
	fail    error
	sizes   []int
	entries []Entry
}

func (c *turns) handle(_ context.Context, batch []Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return c.fail
	}
	c.sizes = append(c.sizes, len(batch))
	c.entries = append(c.entries, batch...)
	return nil
}

func (c *turns) failWith(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
}

func (c *turns) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

func exportFeed(l *Ledger, c *turns) Feed {
	return Feed{Role: RoleExport, Consumer: "x", Batch: 100, Every: 50 * time.Millisecond,
		Turn: func(ctx context.Context, batch []Entry) error {
			if err := c.handle(ctx, batch); err != nil {
				return err
			}
			return l.Ack(ctx, RoleExport, batch...)
		}}
}

func TestFeed_TurnGathersAllPartitions(t *testing.T) {
	l := openTest(t)
	shops := []*env{newVendor(t, l), newVendor(t, l), newVendor(t, l)}
	for _, s := range shops {
		for i := range 5 {
			s.create(t, fmt.Sprint("X-", i))
		}
	}
	c := new(turns)
	runFeed(t, l, exportFeed(l, c))
	testserver.Await(t, "all events", func() bool { return c.seen() == 15 })
	check(t, len(c.sizes) == 1, "%d turns of %v entries", len(c.sizes), c.sizes)
	testserver.Await(t, "no lag", func() bool { // a turn acknowledges after it was seen
		lag := get(l.Lag(t.Context(), RoleExport))(t)
		return lag.Entries == 0 && lag.Oldest.IsZero()
	})
}

// While what a turn needs is away, what comes stays unread in the streams: the
// entries of one read are all that is ever pending.
func TestFeed_TurnReadsNothingNewWhileStalled(t *testing.T) {
	s := newEnv(t)
	first := s.create(t, "X-0")
	c := &turns{fail: fmt.Errorf("clickhouse: %w", delivery.ErrUnavailable)}
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	testserver.Await(t, "the first entry is pending", func() bool {
		stats := get(s.Stats(t.Context()))(t)
		return stats.Pending[RoleExport] == 1
	})
	for i := range 20 {
		s.create(t, fmt.Sprint("Y-", i))
	}
	time.Sleep(time.Second)
	stats := get(s.Stats(t.Context()))(t)
	check(t, stats.Pending[RoleExport] == 1 && stats.Unread[RoleExport] == 20 && stats.DeadLetters == 0, "stalled: %+v", stats)
	lag := get(s.Lag(t.Context(), RoleExport))(t)
	if age := time.Since(lag.Oldest); lag.Entries != 21 || age < time.Since(first.CreatedAt)-time.Second || age > time.Minute {
		t.Errorf("lag %+v, %s old", lag, age)
	}
	c.failWith(nil)
	testserver.Await(t, "all entries", func() bool { return c.seen() == 21 })
}

// An entry that cannot be handled for a reason of its own holds up nobody.
func TestFeed_TurnGoesOnBesideWhatFails(t *testing.T) {
	s := newEnv(t)
	bad := s.create(t, "bad")
	c := new(turns)
	f := exportFeed(s.Ledger, c)
	healthy := f.Turn
	f.Turn = func(ctx context.Context, batch []Entry) error {
		for _, e := range batch {
			if e.Event.Order == bad.ID {
				return errors.New("nobody can read this order")
			}
		}
		return healthy(ctx, batch)
	}
	f.Log = func(string, ...any) {}
	runFeed(t, s.Ledger, f)
	testserver.Await(t, "the bad entry is pending", func() bool {
		stats := get(s.Stats(t.Context()))(t)
		return stats.Pending[RoleExport] == 1
	})
	s.create(t, "good")
	testserver.Await(t, "the good entry", func() bool { return c.seen() == 1 })
}

func TestFeed_HandsOutOutcomesAndLateDeliveries(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	update := &delivery.Update{Order: o.ID, Fleet: s.fleet.ID, Kind: delivery.KindStatus, Status: delivery.Delivered, At: at}
	s.report(t, o.ID, delivery.Delivered)
	refused := collect(t, s.Ledger, RoleStatus, "c", 2)[1]
	refused.Update = update
	for range 2 { // a repeated call tells once
		must(t, s.RefuseUpdate(t.Context(), refused, delivery.Failed, "late_delivery", true))
	}
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 3) // no endpoint: the change is logged as not sent
	entries := collect(t, s.Ledger, RoleExport, "x", 4)
	var late, outcomes, versions int
	for _, e := range entries {
		switch {
		case e.Outcomes != nil:
			outcomes++
			if r := e.Outcomes.Records; e.Outcomes.Account != s.account || len(r) != 1 || r[0].State != outcomeNotSent || r[0].OrderID != o.ID.String() {
				t.Errorf("outcomes %+v", e.Outcomes)
			}
		case !e.Event.LateAt.IsZero():
			late++
			check(t, e.Event.Order == o.ID && e.Event.LateAt.Equal(at) && e.Event.Version == 0, "late delivery %+v", e.Event)
		default:
			versions++
		}
	}
	check(t, late == 1 && outcomes == 1 && versions == 2, "%d late deliveries, %d outcomes, %d versions", late, outcomes, versions)
	must(t, s.Ack(t.Context(), RoleExport, entries...))
	again := 0
	must(t, s.EachEntry(t.Context(), RoleExport, time.Now().Add(-time.Hour), func(batch []Entry) error {
		again += len(batch)
		return nil
	}))
	must(t, s.EachEntry(t.Context(), RoleExport, time.Now().Add(time.Hour), func([]Entry) error {
		return errors.New("an entry from the future")
	}))
	check(t, again == 4, "the streams hold %d entries", again)
	if lag, err := s.Lag(t.Context(), RoleExport); err != nil || lag.Entries != 0 {
		t.Errorf("lag %+v, %v", lag, err)
	}
}

func TestEachOrder_FindsEveryOrder(t *testing.T) {
	l := openTest(t)
	want := make(map[delivery.OrderID]delivery.Status)
	var names []StoreName
	for range 4 {
		s := newVendor(t, l)
		for i := range 300 {
			want[s.create(t, fmt.Sprint("X-", i)).ID] = delivery.Searching
		}
		moved := s.create(t, "moved")
		s.advance(t, moved.ID, delivery.Delivered)
		want[moved.ID] = delivery.Delivered
		names = append(names, StoreName{s.account, moved.ExternalStoreID}, StoreName{s.account, "nowhere"})
	}
	found := make(map[delivery.OrderID]delivery.Status)
	must(t, l.EachOrder(t.Context(), func(orders []*delivery.Order) error {
		for _, o := range orders {
			found[o.ID] = o.Status
		}
		return nil
	}))
	check(t, len(found) == len(want), "%d orders of %d", len(found), len(want))
	for id, status := range want {
		check(t, found[id] == status, "order %s: %s, want %s", id, found[id], status)
	}
	stop := errors.New("enough")
	if err := l.EachOrder(t.Context(), func([]*delivery.Order) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("went on after an error: %v", err)
	}
	stores, unreadable := get2(l.Stores(t.Context(), names))(t)
	check(t, len(stores) == 4 && len(unreadable) == 0, "%d stores, unreadable are %v", len(stores), unreadable)
	for name, s := range stores {
		check(t, s.ExternalID == name.ExternalID && s.Account == name.Account, "%v is %v of %v", name, s.ExternalID, s.Account)
	}
}

func TestEachOrder_TellsOfWhatCannotBeRead(t *testing.T) {
	s := newEnv(t)
	good, bad := s.create(t, "good"), s.create(t, "bad")
	must(t, s.rdb.Set(t.Context(), s.rooms[bad.ID.Partition()].order(bad.ID.Digest()), "\x01short", 0).Err())
	found := 0
	err := s.EachOrder(t.Context(), func(orders []*delivery.Order) error {
		for _, o := range orders {
			if o.ID == good.ID {
				found++
			}
		}
		return nil
	})
	check(t, found == 1 && errors.Is(err, errShortRecord), "found %d, %v", found, err)
}
