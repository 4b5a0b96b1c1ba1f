//go:build long

package ledger

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

func openOnCluster(t *testing.T) (*stack.Cluster, *Ledger) {
	t.Helper()
	cluster := get(stack.StartCluster(t.Context(), t.TempDir(), 3, 0))(t)
	t.Cleanup(cluster.Stop)
	l := get(Open(t.Context(), core.Config{URL: cluster.URL, Environment: "production", Pipelines: 1, Secrets: testSecrets, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = l.Close() })

	return cluster, l
}

// TestCluster_WholeWayOfAnOrder runs every script against three masters: a key
// outside its script's slot would be refused there.
func TestCluster_WholeWayOfAnOrder(t *testing.T) {
	_, l := openOnCluster(t)
	require(t, l.core.IsCluster, "the cluster was not recognised")
	must(t, l.Ping(t.Context()))
	masters := make(map[string]int)
	for _, r := range l.core.Partitions {
		one := get(l.core.Redis.(*redis.ClusterClient).MasterForKey(t.Context(), r.Prefix))(t)
		masters[one.Options().Addr]++
	}

	for master, n := range masters {
		check(t, n >= 5 && n <= 6, "master %s has %d of 16 partitions", master, n)
	}

	// Enough accounts to meet every master.
	for range 12 {
		s := newVendor(t, l)
		clusterWay(t, s)
	}

	for p := range l.Partitions() {
		get(l.Streams.Trim(t.Context(), p, time.Hour))(t)
		get(l.Orders.Retire(t.Context(), p, time.Now(), 10))(t)
		get(l.Ownership.Due(t.Context(), []int{p}, time.Now(), 10))(t)
	}

	equal(t, len(allAccounts(t, l)), 12, "accounts")
	get(l.Monitor.Stats(t.Context()))(t)
	must(t, l.Limits.CountFailedLogin(t.Context(), "ven", "127.0.0.1"))
	must(t, l.Limits.Flush(t.Context(), time.Now()))
	session, _ := signIn(t, l)
	get(l.Sessions.Get(t.Context(), session))(t)
	clusterLists(t, l)
	must(t, errors.Join(l.Sessions.CountSignIn(t.Context(), "ayse", "192.0.2.1/32"),
		l.Sessions.ForgiveSignIns(t.Context(), "ayse", "192.0.2.1/32"), l.Sessions.End(t.Context(), session)))
}

func clusterWay(t *testing.T, s *env) {
	t.Helper()
	s.register(t)
	first, _ := get2(s.Orders.Create(t.Context(), s.creation("X-1", "key")))(t)
	again, _ := get2(s.Orders.Create(t.Context(), s.creation("X-1", "key")))(t)
	check(t, again.Replayed, "not replayed")
	o := first.Order
	get2(s.Orders.Poll(t.Context(), s.account, o.ID))(t)
	s.report(t, o.ID, delivery.Assigned)
	ignored := get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{{Order: o.ID, Location: delivery.Location{Point: taksim, At: time.Now()}}}, time.Now()))(t)
	check(t, ignored == 0, "the location was ignored")
	partition := o.ID.Partition()
	s.list(t, o.ID)
	s.change(t, o, delivery.Change{Status: delivery.Assigned, At: time.Now()})
	assigned := get(s.Orders.Get(t.Context(), o.ID))(t).Version
	s.clusterWebhooks(t, partition, partitions.VersionKey(o.ID, assigned, delivery.StatusReached))
	equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, time.Now().Add(-time.Hour), nil))(t), 1, "replayed")
	get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "", time.Now()))(t)
	jobs, _ := get2(s.Orders.Jobs(t.Context(), s.fleet.ID, delivery.Cancelled, "", 10))(t)
	check(t, len(jobs) == 1, "%d cancelled jobs", len(jobs))
}

// clusterWebhooks has one event wait, fail and end.
func (s *env) clusterWebhooks(t *testing.T, partition int, key string) {
	t.Helper()
	s.schedules(t, 0, key)
	found := get(s.Ownership.Scheduled(t.Context(), []partitions.ScheduleQuery{{Partition: partition, Account: s.account, Until: math.MaxInt64, Limit: 10,
		Known: func(string) bool { return false }}}))(t)[0]
	require(t, len(found) == 1 && found[0].Delivery.Key == key && found[0].Gone == "", "scheduled %+v", found)
	pending := s.pending(t, partition)
	check(t, slices.Contains(pending, s.account), "pending %v", pending)
	get(s.Ownership.Backlogs(t.Context(), endpointsAt(partition, pending...)))(t)
	get(s.Ownership.EndpointFacts(t.Context(), endpointsAt(partition, pending...)))(t)
	s.owns(t, func(step *partitions.Step) {
		step.Unschedule(s.account, []partitions.Unscheduled{{Key: key}})
		step.Endpoint(s.account, &partitions.EndpointChange{Breaker: &partitions.Breaker{Failures: 1}, Tally: &partitions.Tally{Delivered: 1}, State: partitions.EndpointFailing})
		step.Log(s.account, [][]byte{s.line(1, 0)}, 10, false)
		step.Summary(nil)
	})

	s.ends(t, partitions.StateDelivered, key)
	check(t, len(get(s.Webhooks.Attempts(t.Context(), s.account, ""))(t)) == 1, "not logged")
}

// clusterLists reads what operators see of the twelve accounts, over all masters.
func clusterLists(t *testing.T, l *Ledger) {
	t.Helper()
	var ids []delivery.AccountID
	for _, a := range allAccounts(t, l) {
		ids = append(ids, a.ID)
	}

	uses := get(l.Limits.Usage(t.Context(), append(ids, delivery.NewAccountID())))(t)
	for i := range ids {
		equal(t, uses[i][limits.EndpointOrders].Sustained.Used, 2, "orders used")
	}

	check(t, uses[12] == nil, "an unknown account's use: %+v", uses[12])
	l.Limits.CountRefusal(delivery.CodeRateLimited)
	must(t, l.Limits.Flush(t.Context(), time.Now()))
	minutes := get(l.Limits.Activity(t.Context(), 5))(t)
	var created, cancelled, refused int64
	for _, m := range minutes {
		created, cancelled, refused = created+m.Created, cancelled+m.Cancelled, refused+m.Refused[delivery.CodeRateLimited]
	}

	check(t, created == 12 && cancelled == 12 && refused == 1, "%d created, %d cancelled, %d refused", created, cancelled, refused)
	for _, r := range l.core.Partitions {
		must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindRefused), Values: []any{"reason", "r"}}).Err())
		must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindDeadLetters),
			Values: []any{"stream", r.Key(core.KindEvents), "entry", "1-1"}}).Err())
	}

	traces := get(l.Monitor.RefusedUpdates(t.Context(), 100))(t)
	letters := get(l.Monitor.DeadLetters(t.Context(), 100))(t)
	orders := 0
	for _, id := range ids {
		o := get(l.Orders.Find(t.Context(), id, "X-1"))(t)
		if o != nil {
			orders++
		}
	}

	stores, more := get2(l.Stores.Find(t.Context(), accounts.StoreFilter{Text: "şub"}, 11))(t)
	fleets := l.Fleets.Snapshot().All()
	one, _ := get2(l.Stores.Find(t.Context(), accounts.StoreFilter{Fleet: fleets[0].ID}, 11))(t)
	endpoints := allReceivers(t, l)
	check(t, len(traces) == 16 && len(letters) == 16 && orders == 12 && len(stores) == 11 && more && len(one) == 1 && len(endpoints) == 12,
		"%d traces, %d letters, %d orders, %d and %d stores, %d endpoints", len(traces), len(letters), orders, len(stores), len(one), len(endpoints))
}

func TestCluster_HistoryComesFromAllMasters(t *testing.T) {
	_, l := openOnCluster(t)
	fleet := newFleet(t, l)
	var ids []delivery.OrderID
	var names []accounts.StoreName
	partitionList := make(map[int]bool)
	for range 40 {
		s := &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: fleet}
		newStore(t, l, s.account, fleet)
		o := s.create(t, "X")
		ids, names = append(ids, o.ID), append(names, accounts.StoreName{Account: s.account, ExternalID: "S-1"})
		partitionList[o.ID.Partition()] = true
	}

	lag := get(l.Streams.Lag(t.Context(), core.RoleExport))(t)
	check(t, lag.Entries == 40 && !lag.Oldest.IsZero(), "before anybody reads: %+v", lag)
	mark := get(l.Streams.Mark(t.Context(), core.RoleExport))(t)
	if passed, err := l.Streams.Passed(t.Context(), core.RoleExport, mark); err != nil || passed {
		t.Errorf("before anybody reads: passed %v, %v", passed, err)
	}

	c := new(turns)
	f := exportFeed(l, c)
	f.Every = 500 * time.Millisecond
	runFeed(t, l, f)
	testserver.Await(t, "the mark is passed", func() bool {
		return get(l.Streams.Passed(t.Context(), core.RoleExport, mark))(t)
	})
	check(t, c.seen() == 40, "%d events", c.seen())
	testserver.Await(t, "they are settled", func() bool {
		return get(l.Streams.Lag(t.Context(), core.RoleExport))(t).Entries == 0
	})
	check(t, len(c.sizes) <= 2 && len(partitionList) >= 10, "turns of %v entries, %d partitions", c.sizes, len(partitionList))
	held := 0
	must(t, l.Orders.Each(t.Context(), func(orders []*delivery.Order) error { held += len(orders); return nil }))
	entries := 0
	must(t, l.Streams.EachEntry(t.Context(), core.RoleExport, time.Now().Add(-time.Hour), func(batch []partitions.Entry) error { entries += len(batch); return nil }))
	stores, _ := get2(l.Stores.GetAll(t.Context(), names))(t)
	retired := get(l.Orders.Retired(t.Context(), ids))(t)
	for i, r := range retired {
		check(t, !r, "order %d is reported as retired", i)
	}

	check(t, held == 40 && entries == 40 && len(stores) == 40, "%d orders, %d entries, %d stores", held, entries, len(stores))
}

// While a master is unavailable, what is reported of the orders of the others is that
// Redis is unavailable, never that a record is broken; and no order is called missing.
func TestCluster_AMasterAwayIsUnavailable(t *testing.T) {
	cluster, l := openOnCluster(t)
	fleet := newFleet(t, l)
	masters := make(map[string]delivery.OrderID) // an order on each
	for range 60 {
		s := &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: fleet}
		newStore(t, l, s.account, fleet)
		o := s.create(t, "X")
		one := get(l.core.Redis.(*redis.ClusterClient).MasterForKey(t.Context(), l.core.Partitions[o.ID.Partition()].Prefix))(t)
		masters[one.Options().Addr] = o.ID
	}

	require(t, len(masters) == 3, "not all masters have an order")
	dead := cluster.Nodes[2]
	lost, kept := masters[dead.Addr], masters[cluster.Nodes[0].Addr]
	never := delivery.MakeOrderID(kept.Partition(), kept.Day(), delivery.OrderDigest(delivery.NewAccountID(), "nobody's"))
	dead.Kill()
	ids := []delivery.OrderID{never, kept, lost}
	if orders, err := l.Orders.GetAll(t.Context(), ids); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("orders %v: %v", orders, err)
	}
	if retired, err := l.Orders.Retired(t.Context(), ids); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("retired %v: %v", retired, err)
	}

	wantError(t, errOf(l.Streams.Lag(t.Context(), core.RoleExport)), delivery.ErrUnavailable)
	if err := l.Orders.Each(t.Context(), func([]*delivery.Order) error { return nil }); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("each order: %v", err)
	}
}

// slotMove is a slot on its way from one master to another.
type slotMove struct {
	partition core.Partition
	slot      int
	from, to  *stack.Redis
}

// openMove begins to move a partition's slot. The new master has no library.
func openMove(t *testing.T, c *stack.Cluster, l *Ledger, r core.Partition) slotMove {
	t.Helper()
	m := slotMove{partition: r, slot: int(core.HashSlot(strings.Trim(r.Prefix, "{}")))}
	master := get(l.core.Redis.(*redis.ClusterClient).MasterForKey(t.Context(), r.Prefix))(t).Options().Addr
	for _, node := range c.Nodes {
		if node.Addr == master {
			m.from = node
		} else {
			m.to = node
		}
	}

	get(m.to.Command(t.Context(), "FUNCTION", "FLUSH", "SYNC"))(t)
	m.setSlot(t, m.to, "IMPORTING", m.from)
	m.setSlot(t, m.from, "MIGRATING", m.to)

	return m
}

func (m *slotMove) setSlot(t *testing.T, node *stack.Redis, state string, other *stack.Redis) {
	t.Helper()
	id := get(other.Command(t.Context(), "CLUSTER", "MYID"))(t)
	get(node.Command(t.Context(), "CLUSTER", "SETSLOT", strconv.Itoa(m.slot), state, id))(t)
}

// finish gives the slot, now empty, to its new master, that one first, as Redis's
// manual says.
func (m *slotMove) finish(t *testing.T, c *stack.Cluster) {
	t.Helper()
	for _, node := range append([]*stack.Redis{m.to}, c.Nodes...) {
		m.setSlot(t, node, "NODE", m.to)
	}
	must(t, c.AwaitWhole(t.Context()))
}

func (m *slotMove) content(t *testing.T, l *Ledger) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, node := range []*stack.Redis{m.from, m.to} {
		one := redis.NewClient(&redis.Options{Addr: node.Addr})
		keys := get(one.ClusterGetKeysInSlot(t.Context(), m.slot, 10_000).Result())(t)
		for _, key := range keys {
			pipe := one.Pipeline()
			pipe.Do(t.Context(), "asking")
			value := pipe.Dump(t.Context(), key)
			get(pipe.Exec(t.Context()))(t)
			all[key] = value.Val()
		}

		must(t, one.Close())
	}

	return all
}

// moveSome is a part of the partition's keys: what an order's cancellation writes but
// does not name to the server.
func (m *slotMove) moveSome(t *testing.T, s *env) {
	t.Helper()
	m.move(t, m.partition.Key(core.KindEvents), m.partition.Jobs(delivery.Searching, s.fleet.ID))
}

func (m *slotMove) moveRest(t *testing.T) {
	t.Helper()
	from := redis.NewClient(&redis.Options{Addr: m.from.Addr})
	m.move(t, get(from.ClusterGetKeysInSlot(t.Context(), m.slot, 10_000).Result())(t)...)
	must(t, from.Close())
}

func (m *slotMove) move(t *testing.T, keys ...string) {
	t.Helper()
	host, port, err := net.SplitHostPort(m.to.Addr)
	must(t, err)
	get(m.from.Command(t.Context(), append([]string{"MIGRATE", host, port, "", "0", "60000", "KEYS"}, keys...)...))(t)
}

// A script that finds the keys it names here, and others already gone with the
// slot, would be stopped after half of its writes: an order cancelled without
// an event, or on its fleet's list for ever.
func TestCluster_MovingSlotTakesACallWholeOrNotAtAll(t *testing.T) {
	t.Parallel()

	cluster, l := openOnCluster(t)
	s := newVendor(t, l)
	order, other := s.create(t, "X-1"), s.create(t, "X-2")
	p := order.ID.Partition()
	l.list(t, order.ID, other.ID)
	m := openMove(t, cluster, l, l.core.PartitionOf(s.account))
	calls := []func() error{
		func() error {
			_, _, err := s.Orders.Cancel(t.Context(), s.account, order.ID, "", "", time.Now())
			return err
		},
		func() error {
			_, _, err := s.Orders.Create(t.Context(), s.creation("X-3", "key-3"))
			return err
		},
		func() error {
			return s.advanceBy(t.Context(), p, func(step *partitions.Step) {
				step.Change(other, []delivery.Change{{Status: delivery.Assigned, At: time.Now()}})
			})
		},
		func() error {
			_, err := s.Limits.Consume(t.Context(), s.account, limits.EndpointOrders)
			return err
		},
	}

	m.moveSome(t, s)
	m.refuses(t, l, calls)
	m.moveRest(t)
	m.refuses(t, l, calls)
	m.finish(t, cluster)
	for _, call := range calls {
		equal(t, call(), nil, "a call, the slot having moved")
	}

	moved := get(l.Orders.GetAll(t.Context(), []delivery.OrderID{order.ID, other.ID}))(t)
	check(t, moved[0].Status == delivery.Cancelled && moved[1].Status == delivery.Assigned, "the orders are %v and %v", moved[0].Status, moved[1].Status)
}

func (m *slotMove) refuses(t *testing.T, l *Ledger, calls []func() error) {
	t.Helper()
	before := m.content(t, l)
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() {
			err := call()
			check(t, errors.Is(err, delivery.ErrUnavailable), "call %d on a slot that moves: %v", i, err)
		})
	}

	all.Wait()
	after := m.content(t, l)
	check(t, maps.Equal(before, after), "a refused call changed what the slot holds: %d keys before, %d after", len(before), len(after))
}
