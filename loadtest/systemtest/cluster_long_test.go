//go:build long

package systemtest

import (
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// clusterEnv is a cluster with replicas under the whole system, and tills at
// two gateways.
type clusterEnv struct {
	*stack.Cluster
	tills    *tills
	receiver *receiver.Receiver
}

func newClusterEnv(t *testing.T) *clusterEnv {
	t.Helper()
	c, err := stack.StartCluster(t.Context(), t.TempDir(), 3, 1)
	must(t, err)
	t.Cleanup(c.Stop)
	s := startStack(t, stack.Options{RedisURL: c.URL, CourierStep: 100 * time.Millisecond})
	_, second, err := s.AddGateway(t.Context())
	must(t, err)
	_, err = s.AddWorker(t.Context(), "second")
	must(t, err)
	v := s.Vendor(t, stack.Unlimited)
	e := &clusterEnv{Cluster: c, receiver: v.Receive(t, receiver.Options{})}
	e.tills = openTills(t, v, []string{s.Demo.BaseURL, second}, 8, unavailable(t))

	return e
}

// The tills' account belongs to one partition, whose master gives way to its
// replica, gives the slot away, and dies at last. What is promised: the first
// two lose nothing; the last may lose what was acknowledged in its last moments,
// because replication is asynchronous, and nothing else; and each is over
// within seconds, without a restart of any program.
func TestCluster_FailoverAndMovingSlotUnderLoad(t *testing.T) {
	t.Parallel()

	s := newClusterEnv(t)
	slot := s.slotOf(t)
	s.tills.passes(t, 60)

	_, follower := s.sides(t, slot)
	s.step(t, "orderly failover", func() { s.failover(t, follower) })
	s.tills.passes(t, 60)

	// The new master knows none of our functions.
	to := s.other(t, slot)
	_, err := to.Command(t.Context(), "FUNCTION", "FLUSH", "SYNC")
	must(t, err)
	s.step(t, "slot moved", func() { s.moveSlot(t, slot, to) })
	s.tills.passes(t, 60)

	master, replica := s.sides(t, slot)
	died := time.Now()
	s.step(t, "master killed", func() {
		master.Kill()
		s.awaitPromotion(t, replica)
	})

	promoted := time.Now()
	s.tills.passes(t, 60)
	must(t, master.Start(t.Context()))
	must(t, s.AwaitWhole(t.Context()))

	lost := s.tills.check(t, s.receiver)
	for _, o := range lost {
		if o.acked.Before(died.Add(-time.Second)) || o.acked.After(promoted) {
			t.Errorf("order %s was acknowledged %.1f s after the kill and is lost", o.orderID, o.acked.Sub(died).Seconds())
		}
	}

	t.Logf("%d orders lost by the crash", len(lost))
	servers := []commander{}
	for _, node := range s.masters(t) {
		servers = append(servers, node)
	}

	(&streams{servers}).settled(t)
}

// step does one change of the cluster, after which orders pass again.
func (s *clusterEnv) step(t *testing.T, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	took := time.Since(began)
	s.tills.passes(t, 16)
	t.Logf("%s: %.1f s, orders again after %.1f s", what, took.Seconds(), time.Since(began).Seconds())
}

// slotOf is the slot of the tills' account.
func (s *clusterEnv) slotOf(t *testing.T) int {
	t.Helper()
	s.tills.passes(t, 1)
	for _, node := range s.masters(t) {
		keys, err := node.Command(t.Context(), "KEYS", "{s[0-9a-f][0-9a-f]*}o*")
		must(t, err)
		if tag, _, found := strings.Cut(keys, "}"); found {
			text, err := node.Command(t.Context(), "CLUSTER", "KEYSLOT", tag+"}")
			must(t, err)
			slot, err := strconv.Atoi(text)
			must(t, err)
			return slot
		}
	}

	t.Fatal("no order is anywhere")

	return 0
}

// sides are the slot's master and its replica, which has all data.
func (s *clusterEnv) sides(t *testing.T, slot int) (master, replica *stack.Redis) {
	t.Helper()
	master = s.serving(t, slot, slot)[0]
	await(t, master.Addr+" has a replica", func() bool {
		role, err := master.Command(t.Context(), "ROLE") // each connected replica's host and port
		must(t, err)
		at := slices.IndexFunc(s.Nodes, func(node *stack.Redis) bool {
			return strings.Contains(role, "\n"+strings.Replace(node.Addr, ":", "\n", 1)+"\n")
		})
		if at >= 0 {
			replica = s.Nodes[at]
		}
		return at >= 0
	})

	must(t, replica.AwaitSynced(t.Context()))

	return master, replica
}

// failover has a replica take over from its master in an orderly way: the
// master stops taking writes until the replica has all of them, so nothing is
// lost.
func (s *clusterEnv) failover(t *testing.T, replica *stack.Redis) {
	t.Helper()
	_, err := replica.Command(t.Context(), "CLUSTER", "FAILOVER")
	must(t, err)
	s.awaitPromotion(t, replica)
}

// awaitPromotion returns when a replica has become a master and every running
// node knows it and finds the cluster whole.
func (s *clusterEnv) awaitPromotion(t *testing.T, replica *stack.Redis) {
	t.Helper()
	await(t, replica.Addr+" is a master", func() bool {
		role, err := replica.Command(t.Context(), "ROLE")
		must(t, err)
		return strings.HasPrefix(role, "master\n")
	})
	must(t, s.AwaitWhole(t.Context()))
}

// moveSlot moves a slot and all its keys to another master while clients go on: it
// opens the slot, and `redis-cli --cluster fix` ends the move. `reshard` takes no slot.
func (s *clusterEnv) moveSlot(t *testing.T, slot int, to *stack.Redis) {
	t.Helper()
	from := s.serving(t, slot, slot)[0]
	setSlot := func(node *stack.Redis, state string, other *stack.Redis) {
		id, err := other.Command(t.Context(), "CLUSTER", "MYID")
		must(t, err)
		_, err = node.Command(t.Context(), "CLUSTER", "SETSLOT", strconv.Itoa(slot), state, id)
		must(t, err)
	}

	setSlot(to, "IMPORTING", from)
	setSlot(from, "MIGRATING", to)
	keys, err := from.Command(t.Context(), "CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(slot))
	must(t, err)
	cli, err := stack.RedisProgram("cli")
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), cli, "--cluster", "fix", to.Addr).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	must(t, s.AwaitWhole(t.Context()))
	if now := s.serving(t, slot, slot); now[0] != to {
		t.Fatalf("slot %d is served by %s, want %s", slot, now[0].Addr, to.Addr)
	}

	t.Logf("%s keys", keys)
}

// other is a master that does not have the slot.
func (s *clusterEnv) other(t *testing.T, slot int) *stack.Redis {
	t.Helper()
	master, _ := s.sides(t, slot)
	masters := s.masters(t)
	return masters[slices.IndexFunc(masters, func(r *stack.Redis) bool { return r != master })]
}

func (s *clusterEnv) masters(t *testing.T) []*stack.Redis {
	t.Helper()
	return s.serving(t, 0, 1<<14-1)
}

// serving are the masters of any of these slots.
func (s *clusterEnv) serving(t *testing.T, first, last int) []*stack.Redis {
	t.Helper()
	options, err := redis.ParseClusterURL(s.URL)
	must(t, err)
	rdb := redis.NewClusterClient(options)
	defer func() { must(t, rdb.Close()) }()
	ranges, err := rdb.ClusterSlots(t.Context()).Result() //nolint:staticcheck // ClusterShards does not name the master first
	must(t, err)

	return slices.DeleteFunc(slices.Clone(s.Nodes), func(node *stack.Redis) bool {
		return !slices.ContainsFunc(ranges, func(r redis.ClusterSlot) bool {
			return r.Start <= last && first <= r.End && r.Nodes[0].Addr == node.Addr
		})
	})
}

// unavailable is what a client has to expect while Redis is unavailable or a replica takes over,
// with the time to wait.
func unavailable(t *testing.T) func(*client.Answer) bool {
	return func(a *client.Answer) bool {
		if a.Status != http.StatusServiceUnavailable || a.Code != "SERVICE_UNAVAILABLE" {
			return false
		}
		if a.RetryAfter() < time.Second {
			t.Errorf("503 without Retry-After: %s", a.Raw)
		}
		return true
	}
}

// While one master is dead, and has no replica, programs start, and orders of the other masters' accounts are
// taken by them.
func TestCluster_ProgramsStartWhileAMasterIsDead(t *testing.T) {
	t.Parallel()

	c, err := stack.StartCluster(t.Context(), t.TempDir(), 3, 0)
	must(t, err)
	t.Cleanup(c.Stop)
	s := startStack(t, stack.Options{RedisURL: c.URL, CourierStep: 100 * time.Millisecond})
	v := s.Vendor(t, stack.Unlimited)
	e := &clusterEnv{Cluster: c, tills: openTills(t, v, []string{s.Demo.BaseURL}, 1, unavailable(t))}
	slot := e.slotOf(t)
	ofTills := e.serving(t, slot, slot)[0]
	text, err := ofTills.Command(t.Context(), "CLUSTER", "KEYSLOT", "{sg}meta")
	must(t, err)
	global, err := strconv.Atoi(text)
	must(t, err)
	ofGlobal := e.serving(t, global, global)[0]
	dead := e.Nodes[slices.IndexFunc(e.Nodes, func(node *stack.Redis) bool { return node != ofTills && node != ofGlobal })]

	dead.Kill()
	_, second, err := s.AddGateway(t.Context())
	must(t, err)
	_, err = s.AddWorker(t.Context(), "second")
	must(t, err)

	openTills(t, v, []string{second}, 2, unavailable(t)).passes(t, 16)
	must(t, dead.Start(t.Context()))
	must(t, c.AwaitWhole(t.Context()))
}
