package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv/testserver"
)

// away stands for the servers of some partitions that do not answer: what names a key of theirs is not
// sent, and fails.
type away struct {
	prefixes atomic.Pointer[[]string]
	trips    atomic.Int64 // counts pipelines
}

var errAway = errors.New("connection refused")

// withAway opens a ledger some of whose partitions can go away.
func withAway(t *testing.T) (*Ledger, *away) {
	t.Helper()
	l := openTest(t)
	hook := new(away)
	l.core.Redis.AddHook(hook)
	l.core.Readers.AddHook(hook)

	return l, hook
}

// of makes these partitions unavailable, and all others available.
func (a *away) of(partitions ...core.Partition) {
	var prefixes []string
	for _, p := range partitions {
		prefixes = append(prefixes, p.Prefix)
	}
	a.prefixes.Store(&prefixes)
}

func (a *away) concerns(cmd redis.Cmder) bool {
	prefixes := a.prefixes.Load()
	if prefixes == nil {
		return false
	}
	return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		key := fmt.Sprint(arg)
		return slices.ContainsFunc(*prefixes, func(prefix string) bool { return strings.Contains(key, prefix) })
	})
}

func (a *away) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.concerns(cmd) {
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

func (a *away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		a.trips.Add(1)
		var sent []redis.Cmder
		var err error
		for _, cmd := range commands {
			if a.concerns(cmd) {
				cmd.SetErr(errAway)
				err = errAway
				continue
			}
			sent = append(sent, cmd)
		}

		if len(sent) > 0 {
			err = errors.Join(err, next(ctx, sent))
		}

		return err
	}
}

// inEachPartition makes a vendor with an active store of one fleet in every partition.
func inEachPartition(t *testing.T, l *Ledger) []*env {
	t.Helper()
	fleet := newFleet(t, l)
	vendors := make([]*env, len(l.core.Partitions))
	for slices.Contains(vendors, nil) {
		a := &delivery.Account{ID: delivery.NewAccountID(), Name: "Vendor", Limits: plenty(), CreatedAt: time.Now()}
		p := l.core.PartitionOf(a.ID).Number
		if vendors[p] == nil {
			must(t, l.Accounts.Create(t.Context(), a, testHash))
			newStore(t, l, a.ID, fleet)
			vendors[p] = &env{Ledger: l, account: a.ID, fleet: fleet}
		}
	}

	return vendors
}

func wantIncomplete(t *testing.T, what string, err error) {
	t.Helper()
	check(t, errors.Is(err, core.ErrIncomplete), "%s: %v instead of ErrIncomplete", what, err)
	check(t, errors.Is(err, delivery.ErrUnavailable), "%s: who does not look for ErrIncomplete must fail: %v", what, err)
}

func wantWhollyUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	check(t, errors.Is(err, delivery.ErrUnavailable) && !errors.Is(err, core.ErrIncomplete), "%s: %v instead of ErrUnavailable", what, err)
}

func TestPipelinedEach_ReturnsAnErrorForEachItem(t *testing.T) {
	l, hook := withAway(t)
	for i, p := range l.core.Partitions {
		must(t, l.core.Redis.Set(t.Context(), p.Key(core.KindSummary), fmt.Sprint("value ", i), 0).Err())
	}

	must(t, l.core.Redis.HSet(t.Context(), l.core.Partitions[3].Key(core.KindMinutes), "a", "b").Err())
	hook.of(l.core.Partitions[1])

	read := func(keys ...string) ([]string, []error) {
		return core.PipelinedEach(t.Context(), l.core.Redis, "reading", keys, func(pipe redis.Pipeliner, key string) func() string {
			if key == "" {
				return nil
			}
			first, second := pipe.Get(t.Context(), key), pipe.Get(t.Context(), key)
			return func() string { return first.Val() + second.Val() }
		})
	}

	values, errs := read(l.core.Partitions[0].Key(core.KindSummary), l.core.Partitions[1].Key(core.KindSummary), "", l.core.Partitions[2].Key(core.KindNotes),
		l.core.Partitions[3].Key(core.KindMinutes), l.core.Partitions[3].Key(core.KindSummary))
	equal(t, values, []string{"value 0value 0", "", "", "", "", "value 3value 3"}, "values")
	check(t, errors.Is(errs[1], delivery.ErrUnavailable), "of a partition that is away: %v", errs[1])
	check(t, errs[4] != nil && !errors.Is(errs[4], delivery.ErrUnavailable), "of a wrong type: %v", errs[4])
	check(t, errs[0] == nil && errs[2] == nil && errs[3] == nil && errs[5] == nil, "errors %v", errs)

	hook.of(l.core.Partitions...)
	before := hook.trips.Load()
	_, errs = read(slices.Repeat([]string{l.core.Partitions[0].Key(core.KindSummary)}, 4*core.ItemsAtOnce)...)
	check(t, !slices.Contains(errs, nil), "an item has no error although nothing answers")
	equal(t, hook.trips.Load()-before, 1, "round trips to a single server that is dead")
}

// A fleet gets the jobs of the partitions that answer, and hears on which page some are missing.
func TestJobs_OfThePartitionsThatAnswer(t *testing.T) {
	l, hook := withAway(t)
	vendors := inEachPartition(t, l)
	var want []delivery.OrderID
	for i, s := range vendors {
		o := s.create(t, "X-1")
		s.list(t, o.ID)
		if i != 1 {
			want = append(want, o.ID)
		}
	}

	fleet := vendors[0].fleet.ID
	hook.of(l.core.Partitions[1])

	for _, limit := range []int{1, 2, 100} {
		var got []delivery.OrderID
		incomplete := 0
		for cursor := ""; ; {
			jobs, next, err := l.Orders.Jobs(t.Context(), fleet, delivery.Searching, cursor, limit)
			if err != nil {
				wantIncomplete(t, fmt.Sprint("pages of ", limit), err)
				incomplete++
			}

			for _, o := range jobs {
				got = append(got, o.ID)
			}

			if next == "" {
				break
			}

			cursor = next
		}

		equal(t, got, want, fmt.Sprint("jobs in pages of ", limit))
		check(t, incomplete > 0, "no page of %d says that jobs are missing", limit)
	}

	hook.of(l.core.Partitions...)
	wantWhollyUnavailable(t, "nothing answers", errOf(l.Orders.Jobs(t.Context(), fleet, delivery.Searching, "", 100)))

	// The last page of a cluster whose other servers gave the pages before.
	hook.of()
	_, cursor := get2(l.Orders.JobIDs(t.Context(), fleet, delivery.Searching, "", 3))(t)
	hook.of(l.core.Partitions[2:]...)
	wantWhollyUnavailable(t, "the only server", errOf(l.Orders.JobIDs(t.Context(), fleet, delivery.Searching, cursor, 3)))
	l.core.IsCluster = true
	ids, next, err := l.Orders.JobIDs(t.Context(), fleet, delivery.Searching, cursor, 3)
	wantIncomplete(t, "the rest of a list", err)
	check(t, len(ids) == 0 && next == "", "the rest is %v and %q", ids, next)
}

func TestJobs_ThatGoAwayBeforeTheyAreRead(t *testing.T) {
	l, hook := withAway(t)
	vendors := inEachPartition(t, l)
	for _, s := range vendors {
		s.list(t, s.create(t, "X-1").ID)
	}

	ids, _ := get2(l.Orders.JobIDs(t.Context(), vendors[0].fleet.ID, delivery.Searching, "", 100))(t)
	hook.of(l.core.Partitions[3])
	orders, err := l.Orders.ReadJobs(t.Context(), ids, delivery.Searching)
	wantIncomplete(t, "reading jobs", err)
	equal(t, len(orders), 3, "jobs")
	// Whoever decides by an order's absence gets an error.
	_, err = l.Orders.GetAll(t.Context(), ids)
	wantError(t, err, delivery.ErrUnavailable)
}

func TestJobs_AWrongReplyIsNoGap(t *testing.T) {
	l := openTest(t)
	s := newVendor(t, l)
	must(t, l.core.Redis.Set(t.Context(), l.core.Partitions[2].Jobs(delivery.Searching, s.fleet.ID), "no list", 0).Err())
	err := errOf(l.Orders.Jobs(t.Context(), s.fleet.ID, delivery.Searching, "", 100))
	check(t, err != nil && !errors.Is(err, delivery.ErrUnavailable), "a defect is %v", err)
}

func TestFleetStores_OfThePartitionsThatAnswer(t *testing.T) {
	l, hook := withAway(t)
	vendors := inEachPartition(t, l)
	fleet := vendors[0].fleet.ID
	hook.of(l.core.Partitions[2])

	page, err := l.Stores.PageOfFleet(t.Context(), fleet, delivery.Active, "", 100)
	wantIncomplete(t, "finding stores", err)
	equal(t, len(get(l.Stores.ReadPage(t.Context(), page))(t)), 3, "stores")
	first, err := l.Stores.PageOfFleet(t.Context(), fleet, delivery.Active, "", 2)
	wantIncomplete(t, "the first page, which passes the partition", err)
	rest, err := l.Stores.PageOfFleet(t.Context(), fleet, delivery.Active, first.Next, 2)
	wantIncomplete(t, "the page behind it, whose cursor is before the partition", err)
	equal(t, first.Len()+rest.Len(), 3, "stores in pages")
	counts, err := l.Stores.CountOfFleets(t.Context(), []delivery.FleetID{fleet}, delivery.Active)
	wantIncomplete(t, "counting stores", err)
	equal(t, counts, []int{3}, "counts")

	hook.of(l.core.Partitions[0])
	stores, err := l.Stores.ReadPage(t.Context(), page)
	wantIncomplete(t, "reading stores", err)
	equal(t, len(stores), 2, "stores that could be read")

	// An announcement goes out once a day, so it must not go by a part of the stores.
	_, _, err = l.Stores.OfFleet(t.Context(), fleet, delivery.Active)
	wantError(t, err, delivery.ErrUnavailable)
	hook.of(l.core.Partitions...)
	wantWhollyUnavailable(t, "nothing answers", errOf1(l.Stores.PageOfFleet(t.Context(), fleet, 0, "", 10)))
}

func errOf1[T any](_ T, err error) error { return err }

// What operators look at shows the accounts of the partitions that answer.
func TestOperatorsLists_OfThePartitionsThatAnswer(t *testing.T) {
	l, hook := withAway(t)
	vendors := inEachPartition(t, l)
	for _, s := range vendors {
		s.register(t)
		get(l.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error { a.Suspended = true; return nil }))(t)
	}

	lost := vendors[1]
	hook.of(l.core.Partitions[1])

	for what, read := range map[string]func() (found int, err error){
		"accounts by name": func() (int, error) {
			found, _, err := l.Accounts.Page(t.Context(), accounts.AccountFilter{}, "", 100)
			return len(found), err
		},
		"suspended accounts": func() (int, error) {
			found, _, err := l.Accounts.Page(t.Context(), accounts.AccountFilter{State: accounts.AccountSuspended}, "", 100)
			return len(found), err
		},
		"counts of accounts": func() (int, error) {
			counts, err := l.Accounts.Counts(t.Context())
			return int(counts.Suspended), err
		},
		"receivers": func() (int, error) {
			found, _, err := l.Webhooks.Page(t.Context(), "", "", 100)
			return len(found), err
		},
		"receivers of accounts": func() (int, error) {
			var ids []delivery.AccountID
			for _, s := range vendors {
				ids = append(ids, s.account)
			}
			found, err := l.Webhooks.EndpointsOf(t.Context(), ids)
			return len(found), err
		},
		"counts of receivers": func() (int, error) {
			counts, err := l.Webhooks.Counts(t.Context())
			return int(counts[partitions.EndpointHealthy]), err
		},
		"stores": func() (int, error) {
			found, _, err := l.Stores.Find(t.Context(), accounts.StoreFilter{}, 100)
			return len(found), err
		},
		"a fleet's stores": func() (int, error) {
			found, _, err := l.Stores.Find(t.Context(), accounts.StoreFilter{Fleet: lost.fleet.ID}, 100)
			return len(found), err
		},
	} {
		found, err := read()
		wantIncomplete(t, what, err)
		equal(t, found, 3, what)
	}

	accountList, _, err := l.Accounts.Page(t.Context(), accounts.AccountFilter{}, "", 100)
	wantIncomplete(t, "accounts", err)
	check(t, !slices.ContainsFunc(accountList, func(a *delivery.Account) bool { return a.ID == lost.account }), "an account that cannot be read is listed")
	hook.of()
	equal(t, len(allAccounts(t, l)), 4, "accounts, none of which has lost its name")
}

func TestMonitor_CountsThePartitionsThatAnswer(t *testing.T) {
	l, hook := withAway(t)
	vendors := inEachPartition(t, l)
	for i, s := range vendors {
		o := s.create(t, "X-1")
		s.list(t, o.ID)
		must(t, l.core.Redis.Set(t.Context(), l.core.Partitions[i].Key(core.KindSummary),
			core.Encode(func(c *core.Codec) {
				partitions.CodeSummary(c, map[partitions.EndpointState]partitions.QueueStats{partitions.EndpointHealthy: {Events: 2}})
			}), 0).Err())
		must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: l.core.Partitions[i].Key(core.KindDeadLetters), Values: []any{"reason", "broken"}}).Err())
		must(t, l.core.MakeGroups(t.Context(), l.core.Partitions[i].Key(core.KindEvents)))
		s.tick(t)
	}

	first := get(l.core.Redis.XRangeN(t.Context(), l.core.Partitions[0].Key(core.KindEvents), "-", "+", 1).Result())(t)[0].ID
	whole := get(l.Streams.Lag(t.Context(), core.RoleExport))(t)
	check(t, whole.Entries >= 4 && whole.Oldest.Equal(core.TimeOfEntry(first)), "lag %+v", whole)
	hook.of(l.core.Partitions[3])

	stats, err := l.Monitor.Stats(t.Context())
	wantIncomplete(t, "statistics", err)
	check(t, stats.InFlight == 3 && stats.DeadLetters == 3, "statistics %+v", stats)
	queues, err := l.Monitor.QueueStats(t.Context())
	wantIncomplete(t, "queues", err)
	equal(t, queues[partitions.EndpointHealthy].Events, 6, "events that wait")
	lag, err := l.Streams.Lag(t.Context(), core.RoleExport)
	wantIncomplete(t, "lag", err)
	check(t, lag.Entries > 0 && lag.Entries < whole.Entries && !lag.Oldest.IsZero(), "lag %+v of %+v", lag, whole)
	letters, err := l.Monitor.DeadLetters(t.Context(), 10)
	wantIncomplete(t, "dead letters", err)
	equal(t, len(letters), 3, "dead letters")
	refused, err := l.Monitor.RefusedUpdates(t.Context(), 10)
	wantIncomplete(t, "refused updates", err)
	equal(t, len(refused), 0, "refused updates")

	hook.of(l.core.Partitions...)
	wantWhollyUnavailable(t, "statistics of nothing", errOf1(l.Monitor.Stats(t.Context())))
	wantWhollyUnavailable(t, "lag of nothing", errOf1(l.Streams.Lag(t.Context(), core.RoleExport)))
}

// The export goes on with the partitions that answer. What the others have comes when they are back, and
// nothing is handed out twice without a reason.
func TestFeed_GoesOnForTheStreamsThatAnswer(t *testing.T) {
	t.Parallel()

	l, hook := withAway(t)
	vendors := inEachPartition(t, l)
	l.core.IsCluster = true // each partition stands for a server
	c := newHandled(l)
	unavailable := fmt.Errorf("clickhouse: %w", delivery.ErrUnavailable)
	hook.of(l.core.Partitions[1]) // from the start: its groups cannot be made
	runFeed(t, l, partitions.Feed{Role: core.RoleExport, Consumer: "c", Every: time.Millisecond, ClaimAfter: time.Second, Handle: c.handle})

	others := openTest(t, sameDatabase(l)) // a gateway that reaches all
	must(t, others.Fleets.Load(t.Context()))
	create := func(name string) (all []delivery.OrderID) {
		t.Helper()
		for _, s := range vendors {
			all = append(all, (&env{Ledger: others, account: s.account, fleet: s.fleet}).create(t, name).ID)
		}
		return all
	}

	first := create("X-1")
	c.await(t, "of those that answer from the start", first[0], first[2], first[3])

	// What Handle waits for stalls everybody; who is away does not prolong it.
	c.fail(unavailable)
	second := create("X-2")
	testserver.Await(t, "a failure", func() bool { return c.failures.Load() > 1 })
	c.fail(nil)
	c.await(t, "of those that answer after a failure of something else", second[0], second[2], second[3])

	// Another goes away in the middle, the first comes back.
	hook.of(l.core.Partitions[2])
	third := create("X-3")
	c.await(t, "of those that are back", first[1], second[1], third[0], third[1], third[3])
	check(t, !c.has(third[2]), "handed out %s, whose partition is away", third[2])
	hook.of()
	c.await(t, "everything", third[2])
	testserver.Await(t, "everything is acknowledged", func() bool {
		read, err := l.Monitor.Stats(t.Context())
		return err == nil && read.Pending[core.RoleExport] == 0 && read.Unread[core.RoleExport] == 0
	})

	for id, n := range c.counts() {
		check(t, n == 1, "order %s was handled %d times", id, n)
	}
}

// handled counts the orders that a feed has handled and acknowledged.
type handled struct {
	ledger   *Ledger
	failures atomic.Int64

	mu     sync.Mutex
	failed error
	orders map[delivery.OrderID]int
}

func newHandled(l *Ledger) *handled { return &handled{ledger: l, orders: map[delivery.OrderID]int{}} }

func (h *handled) fail(with error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = with
}

func (h *handled) handle(ctx context.Context, batch []partitions.Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		h.failures.Add(1)
		return h.failed
	}

	for _, e := range batch {
		for _, event := range e.Events {
			h.orders[event.Order]++
		}
	}

	return h.ledger.Streams.Ack(ctx, core.RoleExport, batch...)
}

func (h *handled) counts() map[delivery.OrderID]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.orders)
}

func (h *handled) has(id delivery.OrderID) bool { return h.counts()[id] > 0 }

func (h *handled) await(t *testing.T, what string, ids ...delivery.OrderID) {
	t.Helper()
	testserver.Await(t, what, func() bool {
		return !slices.ContainsFunc(ids, func(id delivery.OrderID) bool { return !h.has(id) })
	})
}

// While a server is away it is asked now and then, once for all of its streams.
func TestFeed_AsksAServerThatIsAwayOnce(t *testing.T) {
	l, hook := withAway(t)
	reader := partitions.NewFeedReader(l.core, &partitions.Feed{Role: core.RoleExport, Consumer: "c", Batch: 10, Every: time.Nanosecond, ClaimAfter: time.Minute,
		Log: func(string, ...any) {}, Handle: func(context.Context, []partitions.Entry) error { return nil }}, l.core.Partitions)
	must(t, reader.Turn(t.Context()))
	equal(t, len(reader.Answering()), len(reader.Streams), "streams")
	hook.of(l.core.Partitions...)
	must(t, reader.Turn(t.Context()))
	equal(t, len(reader.Answering()), 0, "streams that are asked at once again")
	before := hook.trips.Load()
	for _, s := range reader.Streams {
		check(t, s.IsUnsettled, "what a lost reply has brought would not be looked for")
		s.AwayUntil = time.Time{}
	}

	must(t, reader.Turn(t.Context()))
	check(t, hook.trips.Load()-before <= 1, "a server that is away was asked %d times in one turn", hook.trips.Load()-before)
}

// Vendors log in at a gateway that has started while a server is away, and a wrong answer about those that
// are on it is not given.
func TestKnowsAccountSecret_OfThePartitionsThatAnswer(t *testing.T) {
	l, hook := withAway(t)
	l.core.IsCluster = true // each partition stands for a server
	vendors := inEachPartition(t, l)
	hook.of(l.core.Partitions[1])
	for i, s := range vendors {
		known, err := l.Limits.KnowsAccountSecret(t.Context(), s.account, testHash)
		if i == 1 {
			wantWhollyUnavailable(t, "an account that cannot be read", err)
			continue
		}
		must(t, err)
		check(t, known, "the secret of a vendor in partition %d is unknown", i)
	}

	// Those that were known stay so.
	hook.of()
	l.core.LocalNow = func() time.Time { return time.Now().Add(time.Hour) }
	check(t, get(l.Limits.KnowsAccountSecret(t.Context(), vendors[1].account, testHash))(t), "the secret is unknown")
	hook.of(l.core.Partitions[1])
	l.core.LocalNow = func() time.Time { return time.Now().Add(2 * time.Hour) }
	stranger := delivery.NewAccountID()
	for l.core.PartitionOf(stranger).Number == 1 {
		stranger = delivery.NewAccountID()
	}

	check(t, !get(l.Limits.KnowsAccountSecret(t.Context(), stranger, testHash))(t), "a stranger is known")
	exists := get(l.Limits.KnowsAccount(t.Context(), vendors[1].account))(t)
	check(t, exists, "an account that was known is forgotten")

	hook.of(l.core.Partitions...)
	l.core.LocalNow = func() time.Time { return time.Now().Add(3 * time.Hour) }
	wantWhollyUnavailable(t, "nothing answers", errOf1(l.Limits.KnowsAccountSecret(t.Context(), stranger, testHash)))
}

// Fleets go on while the server of their permits is away, held to their limits.
func TestFleetPermits_ComeFromAnotherServerWhileTheirsIsAway(t *testing.T) {
	l, hook := withAway(t)
	l.core.IsCluster = true
	fleet := newFleet(t, l)
	fleet.RequestsPerSecond = 10
	hook.of(l.core.Global)
	now := time.Now()
	admittedBy := func(l *Ledger) (admitted int) {
		for admitted < 1000 {
			err := l.Fleets.Admit(t.Context(), fleet, now)
			if err != nil {
				wantCode(t, err, delivery.CodeRateLimited)
				break
			}
			admitted++
		}
		return admitted
	}

	admitted := admittedBy(l)
	burst := accounts.FleetBurst * fleet.RequestsPerSecond
	check(t, admitted >= burst && admitted < 3*burst, "%d requests were admitted, want the burst of %d", admitted, burst)

	// Another process takes from the same bucket, so it gets what has been refilled since, and no burst.
	other := openTest(t, sameDatabase(l))
	other.core.Redis.AddHook(hook)
	other.core.IsCluster = true
	admitted = admittedBy(other)
	refilled := int(time.Since(now).Seconds() * float64(fleet.RequestsPerSecond))
	check(t, admitted < refilled+burst/2, "another process admitted %d requests, %d were refilled", admitted, refilled)

	l.core.IsCluster = false
	l.Fleets.PermitsAway.Store(0)
	wantWhollyUnavailable(t, "a single server that is away", fleetPermitsError(t, l.Fleets, fleet))
}

func fleetPermitsError(t *testing.T, l *accounts.Fleets, f *delivery.Fleet) error {
	_, err := l.FleetPermits(t.Context(), f.ID)(f.RequestsPerSecond, 1)
	return core.Failure(err)
}

// However far apart reads are, a group that has vanished is made again before the next one.
func TestFeed_MakesMissingGroupsAgainWhereReadsAreSpaced(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	c := newHandled(s.Ledger)
	runFeed(t, s.Ledger, partitions.Feed{Role: core.RoleExport, Consumer: "c", Every: 2 * partitions.MinPause, Handle: c.handle})
	for i := range 2 {
		first := s.create(t, fmt.Sprint("first-", i))
		c.await(t, "an event", first.ID)
		for _, p := range s.core.Partitions {
			must(t, s.core.Redis.XGroupDestroy(t.Context(), p.Key(core.KindEvents), string(core.RoleExport)).Err())
		}
		second := s.create(t, fmt.Sprint("second-", i))
		c.await(t, "the event after", second.ID)
		testserver.Await(t, "nothing waits", func() bool { return s.lag(t).Entries == 0 })
	}
}
