//go:build long

package ledger

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// One of three masters is gone and has no replica. The accounts of the others are listed and exported;
// what is missing is said; and the accounts of the dead one come once it is back.
func TestCluster_OneMasterGoneHidesNothingOfTheOthers(t *testing.T) {
	cluster, l := openOnCluster(t)
	for _, node := range cluster.Nodes {
		get(node.Command(t.Context(), "CONFIG", "SET", "cluster-require-full-coverage", "no"))(t)
	}

	fleet := newFleet(t, l)
	byMaster := map[string]*env{}
	for len(byMaster) < 3 {
		s := &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: fleet}
		newStore(t, l, s.account, fleet)
		byMaster[l.core.ServerOf(t.Context(), l.core.PartitionOf(s.account))] = s
	}

	global := get(l.core.Redis.(*redis.ClusterClient).MasterForKey(t.Context(), l.core.Global.Prefix))(t).Options().Addr

	exported := newHandled(l)
	runFeed(t, l, partitions.Feed{Role: core.RoleExport, Consumer: "c", Every: 10 * time.Millisecond, ClaimAfter: time.Second, Handle: exported.handle})
	first := map[string]delivery.OrderID{}
	for addr, s := range byMaster {
		o := s.create(t, "X-1")
		s.list(t, o.ID)
		first[addr] = o.ID
		exported.await(t, "of all masters", o.ID)
	}

	var dead, alive *stack.Redis
	for _, node := range cluster.Nodes {
		if node.Addr == global {
			alive = node
		} else {
			dead = node
		}
	}

	dead.Kill()
	jobsOf := func() map[delivery.OrderID]bool {
		t.Helper()
		jobs, _, err := l.Orders.Jobs(t.Context(), fleet.ID, delivery.Searching, "", 100)
		wantIncomplete(t, "jobs", err)
		found := map[delivery.OrderID]bool{}
		for _, o := range jobs {
			found[o.ID] = true
		}
		return found
	}

	for range 2 { // at once, and after the cluster has noticed
		found := jobsOf()
		for addr, id := range first {
			check(t, found[id] == (addr != dead.Addr), "the job at %s is listed: %t", addr, found[id])
		}

		page, err := l.Stores.PageOfFleet(t.Context(), fleet.ID, 0, "", 100)
		wantIncomplete(t, "stores", err)
		check(t, page.Len() > 0, "no store of those that answer is listed")
		servers, err := l.Monitor.Servers(t.Context())
		wantIncomplete(t, "servers", err)
		silent, ok := errors.AsType[*operations.SilentServers](err)
		require(t, ok, "%v names no server", err)
		equal(t, silent.Addrs, []string{dead.Addr}, "silent servers")
		equal(t, len(servers), 2, "servers that answer")
		testserver.Await(t, "the cluster knows it", func() bool {
			nodes, err := alive.Command(t.Context(), "CLUSTER", "NODES")
			return err == nil && strings.Contains(nodes, "fail")
		})
	}

	for addr, s := range byMaster {
		if addr == dead.Addr {
			wantError(t, errOf(s.Orders.Create(t.Context(), s.creation("X-2", ""))), delivery.ErrUnavailable)
			continue
		}
		o := s.create(t, "X-2")
		exported.await(t, "of a master that answers", o.ID)
	}

	must(t, dead.Start(t.Context()))
	must(t, cluster.AwaitWhole(t.Context()))
	s := byMaster[dead.Addr]
	var back delivery.OrderID
	testserver.Await(t, "an order at the master that is back", func() bool {
		created, _, err := s.Orders.Create(t.Context(), s.creation("X-3", ""))
		if err == nil {
			back = created.Order.ID
		}
		return err == nil
	})

	exported.await(t, "of the master that is back", back)
	get2(l.Orders.Jobs(t.Context(), fleet.ID, delivery.Searching, "", 100))(t)
}
