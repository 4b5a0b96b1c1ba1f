package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv/testserver"
)

// turns collects what a feed's turns bring, and fails them on demand.
type turns struct {
	mu      sync.Mutex
	calls   int
	fail    error
	sizes   []int
	entries []partitions.Entry
}

func (c *turns) handle(_ context.Context, batch []partitions.Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
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

func (c *turns) tried() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func exportFeed(l *Ledger, c *turns) partitions.Feed {
	return partitions.Feed{Role: core.RoleExport, Consumer: "x", Batch: 100, Every: 50 * time.Millisecond,
		Handle: func(ctx context.Context, batch []partitions.Entry) error {
			if err := c.handle(ctx, batch); err != nil {
				return err
			}
			return l.Streams.Ack(ctx, core.RoleExport, batch...)
		}}
}

func TestFeed_TurnGathersAllPartitions(t *testing.T) {
	s := newEnv(t)
	for i := range 15 {
		newVendor(t, s.Ledger).create(t, fmt.Sprint("X-", i))
	}

	c := new(turns)
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	testserver.Await(t, "all events", func() bool { return c.seen() == 15 })
	check(t, len(c.sizes) == 1, "%d turns of %v entries", len(c.sizes), c.sizes)
	testserver.Await(t, "no lag", func() bool { return s.lag(t) == partitions.Lag{} }) // a turn acknowledges after it was seen
}

// While what a turn needs is unavailable, what comes stays unread in the streams: the
// entries of one read are all that is ever pending.
func TestFeed_TurnReadsNothingNewWhileStalled(t *testing.T) {
	s := newEnv(t)
	s.create(t, "X-0")
	c := &turns{fail: fmt.Errorf("clickhouse: %w", delivery.ErrUnavailable)}
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	testserver.Await(t, "the first entry is pending", func() bool { return s.stats(t).Pending[core.RoleExport] == 1 })
	s.createMany(t, "Y", 20)
	tried := c.tried()
	testserver.Await(t, "a turn that began later", func() bool { return c.tried() >= tried+2 })
	stats := s.stats(t)
	check(t, stats.Pending[core.RoleExport] == 1 && stats.Unread[core.RoleExport] == 20 && stats.DeadLetters == 0, "stalled: %+v", stats)
	lag := s.lag(t)
	first := get(s.core.Redis.XRangeN(t.Context(), s.core.PartitionOf(s.account).Key(core.KindEvents), "-", "+", 1).Result())(t)[0].ID
	check(t, lag.Entries == 21 && lag.Oldest.Equal(core.TimeOfEntry(first)), "lag %+v, the first entry is %s", lag, first)
	c.failWith(nil)
	testserver.Await(t, "all entries", func() bool { return c.seen() == 21 })
}

func TestFeed_HandsOutOutcomesAndLateDeliveries(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	update := &delivery.Update{Order: o.ID, Fleet: s.fleet.ID, Kind: delivery.KindStatus, Status: delivery.Delivered, At: at}
	s.report(t, o.ID, delivery.Delivered)
	s.step(t, o.ID.Partition(), func(step *partitions.Step) { step.Refuse(update, delivery.Failed, "late_delivery", true) })
	s.advance(t, o.ID, delivery.Assigned)
	assigned := get(s.Orders.Get(t.Context(), o.ID))(t).Version
	s.ends(t, partitions.StateNotSent, partitions.VersionKey(o.ID, assigned, delivery.StatusReached))
	entries := collect(t, s.Ledger, core.RoleExport, "x", 4)
	var late, outcomes, versions int
	for _, e := range entries {
		switch {
		case e.Outcomes != nil:
			outcomes++
			r := e.Outcomes
			check(t, e.Outcomes[0].Account == s.account && len(r) == 1 && r[0].State == partitions.StateNotSent && r[0].OrderID == o.ID.String(), "outcomes %+v", e.Outcomes)
		case !e.Events[0].LateAt.IsZero():
			late++
			check(t, e.Events[0].Order == o.ID && e.Events[0].LateAt.Equal(at) && e.Events[0].Version == 0, "late delivery %+v", e.Events)
		default:
			versions++
		}
	}

	check(t, late == 1 && outcomes == 1 && versions == 2, "%d late deliveries, %d outcomes, %d versions", late, outcomes, versions)
	must(t, s.Streams.Ack(t.Context(), core.RoleExport, entries...))
	again := 0
	must(t, s.Streams.EachEntry(t.Context(), core.RoleExport, time.Now().Add(-time.Hour), func(batch []partitions.Entry) error {
		again += len(batch)
		return nil
	}))

	must(t, s.Streams.EachEntry(t.Context(), core.RoleExport, time.Now().Add(time.Hour), func([]partitions.Entry) error {
		return errors.New("an entry from the future")
	}))
	check(t, again == 4, "the streams hold %d entries", again)
	check(t, s.lag(t).Entries == 0, "lag %+v", s.lag(t))
}

func TestEachOrder_FindsEveryOrder(t *testing.T) {
	l := openTest(t)
	want := make(map[delivery.OrderID]delivery.Status)
	var names []accounts.StoreName
	for range 4 {
		s := newVendor(t, l)
		for i := range 300 {
			want[s.create(t, fmt.Sprint("X-", i)).ID] = delivery.Searching
		}
		moved := s.create(t, "moved")
		s.advance(t, moved.ID, delivery.Delivered)
		want[moved.ID] = delivery.Delivered
		names = append(names, accounts.StoreName{Account: s.account, ExternalID: moved.ExternalStoreID}, accounts.StoreName{Account: s.account, ExternalID: "nowhere"})
	}

	found := make(map[delivery.OrderID]delivery.Status)
	must(t, l.Orders.Each(t.Context(), func(orders []*delivery.Order) error {
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
	err := l.Orders.Each(t.Context(), func([]*delivery.Order) error { return stop })
	check(t, errors.Is(err, stop), "went on after an error: %v", err)
	stores, unreadable := get2(l.Stores.GetAll(t.Context(), names))(t)
	check(t, len(stores) == 4 && len(unreadable) == 0, "%d stores, unreadable are %v", len(stores), unreadable)
	for name, s := range stores {
		check(t, s.ExternalID == name.ExternalID && s.Account == name.Account, "%v is %v of %v", name, s.ExternalID, s.Account)
	}
}

func TestEachOrder_TellsOfWhatCannotBeRead(t *testing.T) {
	s := newEnv(t)
	good, bad := s.create(t, "good"), s.create(t, "bad")
	must(t, s.core.Redis.Set(t.Context(), s.core.Partitions[bad.ID.Partition()].Order(bad.ID.Digest()), "\x01short", 0).Err())
	found := 0
	err := s.Orders.Each(t.Context(), func(orders []*delivery.Order) error {
		for _, o := range orders {
			if o.ID == good.ID {
				found++
			}
		}
		return nil
	})

	check(t, found == 1 && errors.Is(err, core.ErrShortRecord), "found %d, %v", found, err)
}

func TestFeed_TwoOfOneName(t *testing.T) {
	s := newEnv(t)
	c := new(turns)
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	s.createMany(t, "X", 50)
	testserver.Await(t, "all settled", func() bool { return s.lag(t).Entries == 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[delivery.OrderID]bool)
	for _, e := range c.entries {
		seen[e.Events[0].Order] = true
	}

	check(t, len(seen) == 50, "%d of 50 orders", len(seen))
}

// Reads are spaced by Every unless they are full; a busy stream does not wait.
func TestFeed_EveryAndFullReads(t *testing.T) {
	s := newEnv(t)
	s.createMany(t, "X", 5)
	c := new(turns)
	f := exportFeed(s.Ledger, c)
	f.Batch, f.Every = 2, time.Hour
	reader := partitions.NewFeedReader(s.core, &f, s.core.Partitions)
	must(t, makeGroups(t.Context(), reader))
	for i, full := range []bool{true, true, false} {
		must(t, gather(t.Context(), reader))
		require(t, reader.NextRead.IsZero() == full, "after read %d the next one is at %s", i, reader.NextRead)
	}

	check(t, slices.Equal(c.sizes, []int{2, 2, 1}) && time.Until(reader.NextRead) > 50*time.Minute, "reads of %v, the next at %s", c.sizes, reader.NextRead)
	reader.NextRead = time.Now().Add(50 * time.Millisecond)
	next := reader.NextRead
	must(t, gather(t.Context(), reader))
	check(t, !time.Now().Before(next), "read before its time")
}

// A group that is gone lags behind by everything, and trimming keeps it all.
func TestLag_OfALostGroup(t *testing.T) {
	s := newEnv(t)
	s.createMany(t, "X", 20)
	c := new(turns)
	stop := runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	testserver.Await(t, "all events", func() bool { return c.seen() == 20 })
	stop()
	for _, r := range s.core.Partitions {
		must(t, s.core.Redis.XGroupDestroy(t.Context(), r.Key(core.KindEvents), string(core.RoleExport)).Err())
	}

	lag := s.lag(t)
	check(t, lag.Entries == 20 && !lag.Oldest.IsZero(), "lag %+v", lag)
	for p := range s.Partitions() {
		n := get(s.Streams.Trim(t.Context(), p, 0))(t)
		retired := get(s.Orders.Retire(t.Context(), p, time.Now().Add(time.Hour), 100))(t)
		check(t, n == 0 && retired == 0, "partition %d: %d entries and %d orders went while the group was missing", p, n, retired)
	}

	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	testserver.Await(t, "all events again", func() bool { return c.seen() == 40 })
}
