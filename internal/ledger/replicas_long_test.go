//go:build long

package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// replicated is a master with one replica, and a vendor whose calls the replica confirms.
type replicated struct {
	*env
	master, replica *stack.Redis
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	s := &replicated{master: newServer(t), replica: newServer(t)}
	must(t, s.replica.Follow(t.Context(), s.master))
	s.env = newVendor(t, openReplicated(t, s.master.URL))
	return s
}

func newServer(t *testing.T) *stack.Redis {
	t.Helper()
	onValkey(t)
	return testserver.DedicatedRedis(t, stack.RedisOptions{Extra: []string{"--repl-diskless-sync-delay", "0"}})
}

// onValkey starts Valkey, whatever the other tests run on: Redis 7.0 has no WAITAOF.
func onValkey(t *testing.T) { t.Setenv("SERVER", "valkey") }

// openReplicated tries again while replicas do not confirm yet, as programs do.
func openReplicated(t *testing.T, url string) (l *Ledger) {
	t.Helper()
	testserver.Await(t, "the replicas confirm", func() (opened bool) {
		var err error
		l, err = Open(t.Context(), core.Config{URL: url, Environment: "sandbox", Pipelines: 1, Replicas: 1, Secrets: testSecrets,
			Log: slog.New(slog.DiscardHandler)})
		require(t, err == nil || errors.Is(err, core.ErrUnconfirmed), "%v", err)
		return err == nil
	})

	t.Cleanup(func() { _ = l.Close() })

	return l
}

// TestReplicas_HoldEveryAnsweredOrderWhenTheMasterAndItsDiskAreGone kills the master in the middle of
// creations, and reads what was answered from the replica.
func TestReplicas_HoldEveryAnsweredOrderWhenTheMasterAndItsDiskAreGone(t *testing.T) {
	s := newReplicated(t)
	var answered [8][]delivery.OrderID
	var clients sync.WaitGroup
	for i := range answered {
		clients.Go(func() {
			for n := 0; ; n++ {
				created, _, err := s.Orders.Create(t.Context(), s.creation(fmt.Sprintf("%d-%d", i, n), ""))
				if err != nil {
					check(t, errors.Is(err, delivery.ErrUnavailable), "a creation beside the death: %v", err)
					return
				}

				answered[i] = append(answered[i], created.Order.ID)
				if i == 0 && n == 200 {
					s.master.Kill()
				}
			}
		})
	}

	clients.Wait()
	must(t, errors.Join(os.RemoveAll(s.master.Dir), s.replica.Follow(t.Context(), nil)))
	after := get(Open(t.Context(), core.Config{URL: s.replica.URL, Environment: "sandbox", Secrets: testSecrets}))(t)
	t.Cleanup(func() { _ = after.Close() })
	total := 0
	for _, ids := range answered {
		total += len(ids)
		for _, id := range ids {
			get(after.Orders.Get(t.Context(), id))(t)
		}
	}

	check(t, total > 200, "%d orders answered", total)
}

// TestReplicas_WithoutOneTheOutcomeIsUnknownAndTheRequestMayBeRepeated stops the replica for a while.
func TestReplicas_WithoutOneTheOutcomeIsUnknownAndTheRequestMayBeRepeated(t *testing.T) {
	s := newReplicated(t)
	before := s.create(t, "before")
	must(t, syscall.Kill(s.replica.PID(), syscall.SIGSTOP))
	resumed := false
	resume := func() {
		if !resumed {
			must(t, syscall.Kill(s.replica.PID(), syscall.SIGCONT))
		}
		resumed = true
	}
	defer resume()
	s.refusesAll(t, before)
	_, _, err := s.Orders.Create(t.Context(), s.creation("during", "key"))
	check(t, errors.Is(err, core.ErrUnconfirmed), "a creation without a replica: %v", err)
	_, _, err = s.Orders.Create(t.Context(), s.creation("during", "key"))
	check(t, errors.Is(err, core.ErrUnconfirmed), "its repetition, which must not show what may be lost: %v", err)
	_, _, err = s.Orders.Create(t.Context(), s.creation("during", "another key"))
	check(t, errors.Is(err, core.ErrUnconfirmed), "a duplicate, likewise: %v", err)
	resume()
	must(t, s.replica.AwaitSynced(t.Context()))
	again, _ := get2(s.Orders.Create(t.Context(), s.creation("during", "key")))(t)
	check(t, again.Replayed, "the repetition made another order")
}

// refusesAll holds that nothing is taken for an answer, be it written or read.
func (s *replicated) refusesAll(t *testing.T, o *delivery.Order) {
	t.Helper()
	owned := &partitions.Owned{Partition: o.ID.Partition(), From: "0-0", CatchUp: "1-1", Notes: "0-0"}
	update := delivery.Update{Order: o.ID, Fleet: s.fleet.ID, Kind: delivery.KindStatus, Status: delivery.Assigned, At: time.Now()}
	for what, call := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, _, err := s.Orders.Create(ctx, s.creation("another", ""))
			return err
		},
		"poll":   func(ctx context.Context) error { _, _, err := s.Orders.Poll(ctx, s.account, o.ID); return err },
		"get":    func(ctx context.Context) error { _, err := s.Orders.Get(ctx, o.ID); return err },
		"report": func(ctx context.Context) error { _, err := s.Orders.Report(ctx, update, time.Now()); return err },
		"read": func(ctx context.Context) error {
			_, err := s.Ownership.Read(ctx, []*partitions.Owned{owned}, 10, -1)
			return err
		},
		"load fleets": s.Fleets.Load,
		"an account":  func(ctx context.Context) error { _, err := s.Accounts.Get(ctx, s.account); return err },
		"all accounts": func(ctx context.Context) error {
			return errOf2(s.Accounts.Page(ctx, accounts.AccountFilter{}, "", 100))
		},
		"advance": func(ctx context.Context) error { return s.advanceBy(ctx, o.ID.Partition(), func(*partitions.Step) {}) },
		"take": func(ctx context.Context) error {
			_, err := s.Ownership.Take(ctx, o.ID.Partition(), "", "somebody")
			return err
		},
	} {
		err := call(t.Context())
		check(t, errors.Is(err, core.ErrUnconfirmed), "%s: %v", what, err)
	}
}

// TestReplicas_AnOldMasterIsFencedByThePromotion promotes the replica while the master lives and
// knows nothing of it, as behind a partition.
func TestReplicas_AnOldMasterIsFencedByThePromotion(t *testing.T) {
	s := newReplicated(t)
	o := s.create(t, "before")
	must(t, s.replica.Follow(t.Context(), nil))
	s.refusesAll(t, o)
}

// TestReplicas_WithoutMemoryOnlyWhatNeedsSomeIsRefused fills the master: the fence is written even so.
func TestReplicas_WithoutMemoryOnlyWhatNeedsSomeIsRefused(t *testing.T) {
	s := newReplicated(t)
	o := s.create(t, "before")
	s.command(t, s.master, "config", "set", "maxmemory", "1")
	_, _, err := s.Orders.Create(t.Context(), s.creation("during", ""))
	check(t, errors.Is(err, delivery.ErrUnavailable) && !errors.Is(err, core.ErrUnconfirmed), "a creation: %v", err)
	get(s.Orders.Get(t.Context(), o.ID))(t)
	get2(s.Orders.Poll(t.Context(), s.account, o.ID))(t)
	get(s.Orders.Retire(t.Context(), o.ID.Partition(), time.Now(), 10))(t)
	get(s.Streams.Trim(t.Context(), o.ID.Partition(), time.Hour))(t)
	must(t, s.replica.Follow(t.Context(), nil))
	_, err = s.Orders.Get(t.Context(), o.ID)
	check(t, errors.Is(err, core.ErrUnconfirmed), "from a master without memory that was replaced: %v", err)
}

func (s *replicated) command(t *testing.T, server *stack.Redis, args ...string) {
	t.Helper()
	get(server.Command(t.Context(), args...))(t)
}

// TestReplicas_NoneMayBeThereThatIsNotAwaited: WAITAOF would take the answer of either for the other's.
func TestReplicas_NoneMayBeThereThatIsNotAwaited(t *testing.T) {
	s := newReplicated(t)
	further := newServer(t)
	must(t, further.Follow(t.Context(), s.master))
	for what, url := range map[string]string{"has 2 replicas": s.master.URL, "asking for confirmations": s.replica.URL} {
		_, err := Open(t.Context(), core.Config{URL: url, Environment: "sandbox", Replicas: 1, Secrets: testSecrets})
		check(t, errors.Is(err, delivery.ErrUnavailable) && strings.Contains(err.Error(), what), "want %q, which may pass: %v", what, err)
	}
}

// TestReplicas_InAClusterTheElectedOneHoldsAllThatWasAnswered kills a master, whose replica is elected.
func TestReplicas_InAClusterTheElectedOneHoldsAllThatWasAnswered(t *testing.T) {
	onValkey(t)
	cluster := get(stack.StartCluster(t.Context(), t.TempDir(), 3, 1))(t)
	t.Cleanup(cluster.Stop)
	s := newVendor(t, openReplicated(t, cluster.URL))
	var ids []delivery.OrderID
	for n := range 50 {
		ids = append(ids, s.create(t, fmt.Sprint("before-", n)).ID)
	}

	address := get(s.core.Redis.(*redis.ClusterClient).MasterForKey(t.Context(), s.core.PartitionOf(s.account).Prefix))(t).Options().Addr
	master := cluster.Nodes[slices.IndexFunc(cluster.Nodes, func(r *stack.Redis) bool { return r.Addr == address })]
	master.Kill()
	testserver.Await(t, "the election", func() bool {
		_, err := s.Orders.Get(t.Context(), ids[0])
		require(t, err != nil, "an order was read without a replica")
		return errors.Is(err, core.ErrUnconfirmed)
	})

	must(t, master.Start(t.Context())) // as the replica of the elected one
	must(t, master.AwaitSynced(t.Context()))
	for _, id := range ids {
		testserver.Await(t, "an order, confirmed", func() bool {
			_, err := s.Orders.Get(t.Context(), id)
			require(t, err == nil || errors.Is(err, core.ErrUnconfirmed), "%v", err)
			return err == nil
		})
	}
}
