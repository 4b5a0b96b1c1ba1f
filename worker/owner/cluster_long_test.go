//go:build long

package owner

import (
	"errors"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
)

const clusterPartitions = 12

// clusterEnv is a ledger on a cluster of three masters.
type clusterEnv struct {
	*env
	cluster *stack.Cluster
	client  *redis.ClusterClient
}

func newClusterEnv(t *testing.T, replicas int) *clusterEnv {
	t.Helper()
	t.Parallel()

	cluster, err := stack.StartCluster(t.Context(), t.TempDir(), 3, replicas)
	testenv.Must(t, err)
	t.Cleanup(cluster.Stop)
	options, err := redis.ParseClusterURL(cluster.URL)
	testenv.Must(t, err)
	e := &clusterEnv{cluster: cluster, client: redis.NewClusterClient(options)}
	t.Cleanup(func() { _ = e.client.Close() })
	e.env = &env{Env: &testenv.Env{T: t}}
	e.Ledger = e.open()

	return e
}

// open opens the ledger as another process would.
func (e *clusterEnv) open() *ledger.Ledger {
	e.T.Helper()
	return e.openAs(nil)
}

func (e *clusterEnv) openAs(user *url.Userinfo) *ledger.Ledger {
	e.T.Helper()
	to, err := url.Parse(e.cluster.URL)
	testenv.Must(e.T, err)
	to.User = user
	l, err := ledger.Open(e.T.Context(), ledger.Config{URL: to.String(), Environment: "sandbox", Partitions: clusterPartitions,
		Secrets: ledger.SecretKeys{Current: "k", Keys: map[string][]byte{"k": make([]byte, 32)}}})
	testenv.Must(e.T, err)
	e.T.Cleanup(func() { _ = l.Close() })

	return l
}

// masterOf is the node that serves a key.
func (e *clusterEnv) masterOf(key string) *stack.Redis {
	e.T.Helper()
	master, err := e.client.MasterForKey(e.T.Context(), key)
	testenv.Must(e.T, err)
	return e.cluster.Nodes[slices.IndexFunc(e.cluster.Nodes, func(node *stack.Redis) bool { return node.Addr == master.Options().Addr })]
}

// anotherMaster does not serve the keys of no account.
func (e *clusterEnv) anotherMaster() *stack.Redis {
	global := e.masterOf("{sg}meta")
	return e.cluster.Nodes[(slices.Index(e.cluster.Nodes, global)+1)%3]
}

// awaitLiving waits until each of the workers owns so many of the partitions whose tokens can be read.
func (e *clusterEnv) awaitLiving(what string, each map[string]int) {
	e.T.Helper()
	began := time.Now()
	e.Await(what, func() bool {
		tokens, _ := e.Ledger.Ownership.Tokens(e.T.Context())
		owned := make(map[string]int)
		for _, stored := range tokens {
			token, err := stored.Token()
			testenv.Must(e.T, err)
			owned[nameOf(token)]++
		}

		for name, count := range each {
			if owned[name] != count {
				return false
			}
		}

		return true
	})

	e.T.Logf("%s after %.1f s", what, time.Since(began).Seconds())
}

// While one master is gone, or stands still, the partitions of the others are handed over.
func TestCluster_AWorkerHandsOverWhileAMasterIsAway(t *testing.T) {
	for _, c := range []struct {
		name string
		dead func(*clusterEnv) *stack.Redis
		kill func(*stack.Redis)
		// dies lets the worker vanish; else it ends in order.
		dies  bool
		limit time.Duration
	}{
		{"ends, a master is dead", (*clusterEnv).anotherMaster, (*stack.Redis).Kill, false, 5 * time.Second},
		{"ends, the master of the global keys is dead", func(e *clusterEnv) *stack.Redis { return e.masterOf("{sg}meta") }, (*stack.Redis).Kill, false, 5 * time.Second},
		{"ends, a master stands still", (*clusterEnv).anotherMaster, freeze, false, 5 * time.Second},
		{"dies, a master is dead", (*clusterEnv).anotherMaster, (*stack.Redis).Kill, true, takeoverAfter + 2*time.Second},
		{"dies, a master stands still", (*clusterEnv).anotherMaster, freeze, true, takeoverAfter + 3*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newClusterEnv(t, 0)
			ending := e.open()
			stop := e.Start(e.roleOf(ending, "ending").Run)
			stays := e.roleOf(e.open(), "stays")
			e.Start(stays.Run)
			e.awaitLiving("evenly", map[string]int{"ending": 6, "stays": 6})

			c.kill(c.dead(e))
			e.Await("the other masters' tokens are renewed", e.renewed(8))
			began := time.Now()
			if c.dies {
				testenv.Must(t, ending.Close())
			} else {
				go stop()
			}

			e.awaitLiving("the one that stays owns all that is there", map[string]int{"stays": 8, "ending": 0})
			if took := time.Since(began); took > c.limit {
				t.Errorf("after %s, want %s", took, c.limit)
			}
		})
	}
}

// freeze lets a server stand still, its connections open.
func freeze(node *stack.Redis) { _ = syscall.Kill(node.PID(), syscall.SIGSTOP) }

// renewed reports whether at least count tokens have been renewed since it was made.
func (e *clusterEnv) renewed(count int) func() bool {
	before, _ := e.Ledger.Ownership.Tokens(e.T.Context())
	return func() bool {
		now, _ := e.Ledger.Ownership.Tokens(e.T.Context())
		changed := 0
		for p, token := range now {
			if token != before[p] {
				changed++
			}
		}
		return changed >= count
	}
}

// While a replica takes a dead master's place, the partitions of the others go on being owned and are handed
// over; in the end all have an owner.
func TestCluster_AFailoverHoldsUpItsOwnPartitionsOnly(t *testing.T) {
	e := newClusterEnv(t, 1)
	stop := e.Start(e.roleOf(e.open(), "ending").Run)
	e.Start(e.roleOf(e.open(), "stays").Run)
	e.awaitLiving("evenly", map[string]int{"ending": 6, "stays": 6})
	dead := e.anotherMaster()
	ofDead := make(map[int]bool)
	before, err := e.Ledger.Ownership.Tokens(t.Context())
	testenv.Must(t, err)
	dead.Kill()
	e.Await("its partitions cannot be read", func() bool {
		tokens, err := e.Ledger.Ownership.Tokens(t.Context())
		for p := range clusterPartitions {
			_, isRead := tokens[p]
			ofDead[p] = !isRead
		}
		return err != nil && len(tokens) == 8
	})

	e.Await("the others' are renewed", e.renewed(8))
	after, _ := e.Ledger.Ownership.Tokens(t.Context())
	for p, stored := range after {
		was, errBefore := before[p].Token()
		is, errAfter := stored.Token()
		testenv.Must(t, errors.Join(errBefore, errAfter))
		if !ofDead[p] && is.Epoch != was.Epoch {
			t.Errorf("partition %d has changed hands: %+v, was %+v", p, is, was)
		}
	}

	began := time.Now()
	go stop()
	e.awaitLiving("the one that stays owns all that is there", map[string]int{"ending": 0, "stays": 8})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("after %s", took)
	}

	e.awaitLiving("it owns all", map[string]int{"stays": clusterPartitions})
}

// A worker that cannot reach one master gets partitions of the others; what it leaves alone, another takes.
func TestCluster_AWorkerThatCannotReachAMaster(t *testing.T) {
	e := newClusterEnv(t, 0)
	e.Start(e.roleOf(e.open(), "whole").Run)
	e.awaitLiving("alone", map[string]int{"whole": clusterPartitions})
	unreachable := e.anotherMaster()
	for _, node := range e.cluster.Nodes {
		_, err := node.Command(t.Context(), "ACL", "SETUSER", "part", "on", ">secret", "~*", "&*", "+@all")
		testenv.Must(t, err)
	}

	part := e.openAs(url.UserPassword("part", "secret"))
	_, err := unreachable.Command(t.Context(), "ACL", "DELUSER", "part") // and its connections
	testenv.Must(t, err)

	e.Start(e.roleOf(part, "part").Run)

	e.awaitLiving("evenly", map[string]int{"whole": 6, "part": 6})
}
