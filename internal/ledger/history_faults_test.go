package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// clusterOf three masters, with a ledger in it.
func clusterOf(t *testing.T) (*stack.Cluster, *Ledger) {
	t.Helper()
	cluster := get(stack.StartCluster(t.Context(), t.TempDir(), 3))(t)
	t.Cleanup(cluster.Stop)
	l := get(Open(t.Context(), Config{URL: cluster.URL, Environment: "production", Secrets: testSecrets, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = l.Close() })
	return cluster, l
}

// An exporter of a cluster gets the entries of all partitions in one turn, and
// what it reads besides comes from all masters.
func TestCluster_HistoryComesFromAllMasters(t *testing.T) {
	_, l := clusterOf(t)
	fleet := newFleet(t, l)
	var ids []delivery.OrderID
	var names []StoreName
	partitions := make(map[int]bool)
	for range 40 {
		s := &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: fleet}
		newStore(t, l, s.account, fleet)
		o := s.create(t, "X")
		ids, names = append(ids, o.ID), append(names, StoreName{s.account, "S-1"})
		partitions[o.ID.Partition()] = true
	}
	lag := get(l.Lag(t.Context(), RoleExport))(t)
	check(t, lag.Entries == 40 && time.Since(lag.Oldest) <= time.Minute, "before anybody reads: %+v", lag)
	mark := get(l.Mark(t.Context(), RoleExport))(t)
	if passed, err := l.Passed(t.Context(), RoleExport, mark); err != nil || passed {
		t.Errorf("before anybody reads: passed %v, %v", passed, err)
	}
	c := new(turns)
	f := exportFeed(l, c)
	f.Every = 500 * time.Millisecond
	runFeed(t, l, f)
	testserver.Await(t, "the mark is passed", func() bool {
		passed := get(l.Passed(t.Context(), RoleExport, mark))(t)
		return passed
	})
	check(t, c.seen() == 40, "%d events", c.seen())
	testserver.Await(t, "they are settled", func() bool {
		lag := get(l.Lag(t.Context(), RoleExport))(t)
		return lag.Entries == 0
	})
	check(t, len(c.sizes) <= 2 && len(partitions) >= 10, "turns of %v entries, %d partitions", c.sizes, len(partitions))
	held := 0
	must(t, l.EachOrder(t.Context(), func(orders []*delivery.Order) error { held += len(orders); return nil }))
	entries := 0
	must(t, l.EachEntry(t.Context(), RoleExport, time.Now().Add(-time.Hour), func(batch []Entry) error { entries += len(batch); return nil }))
	stores, _ := get2(l.Stores(t.Context(), names))(t)
	retired := get(l.Retired(t.Context(), ids))(t)
	for i, r := range retired {
		check(t, !r, "order %d is told as retired", i)
	}
	check(t, held == 40 && entries == 40 && len(stores) == 40, "%d orders, %d entries, %d stores", held, entries, len(stores))
}

// While a master is away, what is told about the orders of the others is that
// Redis is away, never that a record is broken; and no order is called missing.
func TestCluster_AMasterAwayIsUnavailable(t *testing.T) {
	cluster, l := clusterOf(t)
	fleet := newFleet(t, l)
	masters := make(map[string]delivery.OrderID) // an order on each
	for range 60 {
		s := &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: fleet}
		newStore(t, l, s.account, fleet)
		o := s.create(t, "X")
		one := get(l.rdb.(*redis.ClusterClient).MasterForKey(t.Context(), l.rooms[o.ID.Partition()].prefix))(t)
		masters[one.Options().Addr] = o.ID
	}
	require(t, len(masters) == 3, "not all masters have an order")
	away := cluster.Nodes[2]
	lost, kept := masters[away.Addr], masters[cluster.Nodes[0].Addr]
	never := delivery.MakeOrderID(kept.Partition(), kept.Day(), delivery.OrderDigest(delivery.NewAccountID(), "nobody's"))
	away.Kill()
	ids := []delivery.OrderID{never, kept, lost}
	if orders, err := l.Orders(t.Context(), ids); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("orders %v: %v", orders, err)
	}
	if retired, err := l.Retired(t.Context(), ids); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("retired %v: %v", retired, err)
	}
	if _, err := l.Lag(t.Context(), RoleExport); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("lag: %v", err)
	}
	if err := l.EachOrder(t.Context(), func([]*delivery.Order) error { return nil }); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("each order: %v", err)
	}
}

// A feed with Turn outlives Redis's absence while it is stalled by something
// else, and what it had taken is handed out again.
func TestFeed_TurnStalledWhileRedisGoesAway(t *testing.T) {
	server := testserver.DedicatedRedis(t, stack.RedisOptions{}) // killed, so every write counts
	l := get(Open(t.Context(), Config{URL: server.URL, Environment: "sandbox", Partitions: 4, Secrets: testSecrets, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = l.Close() })
	s := newVendor(t, l)
	for i := range 10 {
		s.create(t, fmt.Sprint("X-", i))
	}
	c := &turns{fail: fmt.Errorf("clickhouse: %w", delivery.ErrUnavailable)}
	f := exportFeed(l, c)
	f.Log = func(string, ...any) {}
	runFeed(t, l, f)
	testserver.Await(t, "entries are pending", func() bool {
		stats, err := l.Stats(t.Context())
		return err == nil && stats.Pending[RoleExport] == 10
	})
	server.Kill()
	time.Sleep(time.Second)
	must(t, server.Start(t.Context()))
	testserver.Await(t, "Redis is back", func() bool { return l.Ping(t.Context()) == nil })
	for i := range 10 {
		s.create(t, fmt.Sprint("Y-", i))
	}
	c.failWith(nil)
	testserver.Await(t, "all entries", func() bool { return c.seen() == 20 })
	stats := get(l.Stats(t.Context()))(t)
	check(t, stats.DeadLetters == 0 && stats.Pending[RoleExport] == 0, "%+v", stats)
}

// Two processes with one name by mistake disturb each other and lose nothing.
func TestFeed_TwoOfOneName(t *testing.T) {
	s := newEnv(t)
	c := new(turns)
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	for i := range 50 {
		s.create(t, fmt.Sprint("X-", i))
	}
	testserver.Await(t, "all settled", func() bool {
		lag := get(s.Lag(t.Context(), RoleExport))(t)
		return lag.Entries == 0
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[delivery.OrderID]bool)
	for _, e := range c.entries {
		seen[e.Event.Order] = true
	}
	check(t, len(seen) == 50, "%d of 50 orders", len(seen))
}

// Reads are spaced by Every unless they are full; a busy stream does not wait.
func TestFeed_EveryAndFullReads(t *testing.T) {
	s := newEnv(t)
	for i := range 250 {
		s.create(t, fmt.Sprint("X-", i))
	}
	var mu sync.Mutex
	var at []time.Time
	c := new(turns)
	f := exportFeed(s.Ledger, c)
	f.Every = 4 * time.Second // so long that a slow machine is not taken for a pause
	handle := f.Turn
	f.Turn = func(ctx context.Context, batch []Entry) error {
		mu.Lock()
		at = append(at, time.Now())
		mu.Unlock()
		return handle(ctx, batch)
	}
	began := time.Now()
	runFeed(t, s.Ledger, f)
	testserver.Await(t, "what was there", func() bool { return c.seen() == 250 })
	if took := time.Since(began); took > 3900*time.Millisecond {
		t.Errorf("full reads took %s", took)
	}
	s.create(t, "Y")
	testserver.Await(t, "what came later", func() bool { return c.seen() == 251 })
	mu.Lock()
	defer mu.Unlock()
	check(t, len(at) == 4 && at[3].Sub(at[2]) >= 3900*time.Millisecond, "turns at %v", at)
}

// A group that is gone lags behind by everything, and trimming keeps it all.
func TestLag_OfALostGroup(t *testing.T) {
	s := newEnv(t)
	for i := range 20 {
		s.create(t, fmt.Sprint("X-", i))
	}
	c := new(turns)
	stop := runFeedUntil(t, s.Ledger, exportFeed(s.Ledger, c))
	testserver.Await(t, "all events", func() bool { return c.seen() == 20 })
	stop()
	for _, r := range s.rooms {
		must(t, s.rdb.XGroupDestroy(t.Context(), r.key(kindEvents), string(RoleExport)).Err())
	}
	lag := get(s.Lag(t.Context(), RoleExport))(t)
	check(t, lag.Entries == 20 && !lag.Oldest.IsZero(), "lag %+v", lag)
	for p := range s.Partitions() {
		n := get(s.Trim(t.Context(), p, 0))(t)
		retired := get(s.Retire(t.Context(), p, time.Now().Add(time.Hour), 100))(t)
		check(t, n == 0 && retired == 0, "partition %d: %d entries and %d orders went while the group was missing", p, n, retired)
	}
	runFeed(t, s.Ledger, exportFeed(s.Ledger, c))
	testserver.Await(t, "all events again", func() bool { return c.seen() == 40 })
}

// runFeedUntil is runFeed that can be ended before the test.
func runFeedUntil(t *testing.T, l *Ledger, f Feed) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.RunFeed(ctx, f)
	}()
	return func() { cancel(); <-done }
}
