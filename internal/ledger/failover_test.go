package ledger

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
)

// openOnCluster is a ledger on three masters.
func openOnCluster(t *testing.T) (*stack.Cluster, *Ledger) {
	t.Helper()
	cluster := get(stack.StartCluster(t.Context(), t.TempDir(), 3))(t)
	t.Cleanup(cluster.Stop)
	l := get(Open(t.Context(), Config{URL: cluster.URL, Environment: "production", Pipelines: 1, Secrets: testSecrets, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = l.Close() })
	return cluster, l
}

// slotMove is a slot on its way from one master to another.
type slotMove struct {
	cluster  *stack.Cluster
	room     room
	slot     int
	from, to *stack.Redis
}

// openMove begins to move a room's slot. The new master has no library.
func openMove(t *testing.T, c *stack.Cluster, r room) slotMove {
	t.Helper()
	m := slotMove{cluster: c, room: r, slot: int(hashSlot(strings.Trim(r.prefix, "{}"))), to: c.Nodes[0]}
	m.from = get(c.Master(t.Context(), m.slot))(t)
	if m.from == m.to {
		m.to = c.Nodes[1]
	}
	get(m.to.Command(t.Context(), "FUNCTION", "FLUSH", "SYNC"))(t)
	must(t, c.OpenSlot(t.Context(), m.slot, m.from, m.to))
	return m
}

// content is the room's data, by key, wherever it is.
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

// moveSome is a part of the room's keys: what an order's cancellation writes but
// does not name to the server.
func (m *slotMove) moveSome(t *testing.T, s *env) {
	t.Helper()
	must(t, m.cluster.MoveNamed(t.Context(), m.from, m.to,
		m.room.key(kindEvents), m.room.jobs(delivery.Searching, s.fleet.ID)))
}

func (m *slotMove) moveRest(t *testing.T) {
	t.Helper()
	for {
		n := get(m.cluster.MoveKeys(t.Context(), m.slot, m.from, m.to, 100))(t)
		if n == 0 {
			return
		}
	}
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
	must(t, l.IndexJobs(t.Context(), p, collectFrom(t, l, l.rooms[p:p+1], RoleStatus, 2)))
	m := openMove(t, cluster, l.roomOf(s.account))
	calls := []func() error{
		func() error {
			_, _, err := s.CancelOrder(t.Context(), s.account, order.ID, "", "", time.Now())
			return err
		},
		func() error {
			_, _, err := s.CreateOrder(t.Context(), s.creation("X-3", "key-3"))
			return err
		},
		func() error {
			results, err := s.CommitAll(t.Context(), []Commit{{Order: other, Changes: []delivery.Change{{Status: delivery.Assigned, At: time.Now()}}}})
			return errors.Join(append(results, err)...)
		},
		func() error {
			_, err := s.Consume(t.Context(), s.account, EndpointOrders)
			return err
		},
	}
	m.moveSome(t, s)
	m.refuses(t, l, calls)
	m.moveRest(t)
	m.refuses(t, l, calls)
	must(t, cluster.CloseSlot(t.Context(), m.slot, m.to))
	for i, call := range calls {
		if err := call(); err != nil {
			t.Errorf("call %d, the slot having moved: %v", i, err)
		}
	}
	moved := get(l.Orders(t.Context(), []delivery.OrderID{order.ID, other.ID}))(t)
	check(t, moved[0].Status == delivery.Cancelled && moved[1].Status == delivery.Assigned, "the orders are %v and %v", moved[0].Status, moved[1].Status)
}

// refuses sees that no call gets through, and that nothing changes.
func (m *slotMove) refuses(t *testing.T, l *Ledger, calls []func() error) {
	t.Helper()
	before := m.content(t, l)
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() {
			if err := call(); !errors.Is(err, delivery.ErrUnavailable) {
				t.Errorf("call %d on a slot that moves: %v", i, err)
			}
		})
	}
	all.Wait()
	if after := m.content(t, l); !maps.Equal(before, after) {
		t.Errorf("a refused call changed what the slot holds: %d keys before, %d after", len(before), len(after))
	}
}

// A call waits out a move that takes no longer than a moment.
func TestCluster_CallOutlastsAShortMove(t *testing.T) {
	t.Parallel()
	cluster, l := openOnCluster(t)
	s := newVendor(t, l)
	s.create(t, "X-1")
	m := openMove(t, cluster, l.roomOf(s.account))
	done := make(chan error, 1)
	go func() {
		_, _, err := s.CreateOrder(t.Context(), s.creation("X-2", "key-2"))
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	m.moveRest(t)
	must(t, cluster.CloseSlot(t.Context(), m.slot, m.to))
	if err := <-done; err != nil && !errors.Is(err, delivery.ErrUnavailable) {
		t.Error(err)
	}
	again, _ := get2(s.CreateOrder(t.Context(), s.creation("X-2", "key-2")))(t)
	check(t, again.Order.ExternalOrderID == "X-2", "%+v", again.Order)
}

// Libraries of earlier releases leave when a new one is loaded, unless somebody
// may still work with them.
func TestLibraries_GoWhenNobodyHasUsedThemForAWeek(t *testing.T) {
	server, _ := ownServer(t)
	day := time.Duration(0)
	open := func(release string) *Ledger {
		l, err := Open(t.Context(), Config{URL: server.URL, Environment: "sandbox", Log: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return time.Now().Add(day) },
			edit: func(file, text string) string {
				if file == "names" {
					text += "local release = '" + release + "'\n"
				}
				return text
			}})
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	use := func(l *Ledger) {
		t.Helper()
		if _, err := l.Consume(t.Context(), delivery.NewAccountID(), EndpointOrders); errors.Is(err, delivery.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	libraries := func(l *Ledger) (names []string) {
		found := get(l.rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "*"}).Result())(t)
		for _, library := range found {
			names = append(names, library.Name)
		}
		slices.Sort(names)
		return names
	}
	must(t, redis.NewClient(&redis.Options{Addr: server.Addr}).FunctionLoad(t.Context(),
		"#!lua name=vendorapi_unnoted\nredis.register_function('unnoted', function() return 1 end)").Err())
	first := open("first")
	use(first)
	day = 6 * 24 * time.Hour
	second := open("second")
	use(second)
	if got := libraries(first); len(got) != 3 {
		t.Errorf("after six days: %v", got)
	}
	day = 8 * 24 * time.Hour
	third := open("third")
	use(third)
	want := []string{second.scripts.library, third.scripts.library}
	slices.Sort(want)
	if got := libraries(third); !slices.Equal(got, want) {
		t.Errorf("after eight days: %v, want %v", got, want)
	}
	use(first) // still running: it loads its own again
	if got := libraries(third); len(got) != 3 {
		t.Errorf("after the first release's next call: %v", got)
	}
}
