package courier

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/owner"
	"vendorapi/worker/status"
)

func TestMain(m *testing.M) {
	testserver.Parallel(8)
	testserver.Main(m)
}

// startWorker runs the sandbox courier, and an owner, which decides about what it reports.
func startWorker(e *testenv.Env, name string) {
	e.T.Helper()
	l, reg, log := e.OpenAs(stack.WorkerUser), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	settings := status.Settings{Batch: 64, TimerInterval: time.Second, HousekeepingInterval: time.Minute,
		ShrinkAfter: 24 * time.Hour, Retention: 168 * time.Hour, StreamRetention: 25 * time.Hour}
	webhooks := dispatch.Settings{Concurrency: 1, PerEndpoint: 1, BreakerFailures: 1, Timeout: time.Second, LocalReceivers: "never", Memory: 1}
	sender := dispatch.New(l, webhooks, dispatch.Options{Sandbox: true}, log, reg)
	partitions := owner.New(l, status.New(l, settings, nil, log, reg), sender, settings, name, log, reg)
	e.Start(partitions.Run)
	e.Start(New(l, partitions.Owned, Settings{Mode: Auto, Step: 100 * time.Millisecond}, log, reg).Run)
}

// The sandbox courier acts for every fleet, not only for the first or the demo's.
//
//rule:make-run/COURIER make-run/COURIER_STEP make-run/the-demo-fleet-covers-at what-the-service-does/a-courier-fleet-not-the
func TestRole_ConfirmsStoresAndDeliversOrdersOfEveryFleet(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	v, first := e.Vendor(), e.Fleet
	second := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "İkinci Kurye", SubRegion: first.SubRegion,
		DeliveryMinutes: 20, PickupMinutes: 5, Couriers: -1, Coverage: first.Coverage}
	if err := e.Ledger.Fleets.Create(t.Context(), second, [32]byte{2}); err != nil {
		t.Fatal(err)
	}

	startWorker(e, "w1")
	for _, fleet := range []*delivery.Fleet{first, second} {
		e.Fleet = fleet // stores and orders are of this one from here on
		v.Store = v.NewStore("branch of "+fleet.Name, delivery.AwaitingFleetApproval)
		e.Await("confirmation by "+fleet.Name, func() bool {
			s, err := e.Ledger.Stores.Get(t.Context(), v.Account, v.Store.ExternalID)
			return err == nil && s.State == delivery.Active && s.Fleet == fleet.ID
		})

		o := e.AwaitStatus(v.Order("", time.Now()), delivery.Delivered)
		if len(o.Changes) != 5 || o.Courier != person(o.ID) || o.Fleet.ID != fleet.ID {
			t.Fatalf("%+v", o)
		}

		for i, c := range o.Changes {
			if c.Location.IsZero() || c.Location.Point != between(v.Store.Point, o.Dropoff.Point, progress[c.Status]) {
				t.Errorf("%s at %+v", c.Status, c.Location)
			}
			if i > 0 && c.At.Sub(o.Changes[i-1].At) < 100*time.Millisecond {
				t.Errorf("%s after %s only", c.Status, c.At.Sub(o.Changes[i-1].At))
			}
		}
	}
}

func TestRole_SeveralReplicasDoNoHarm(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	v := e.Vendor()
	for _, name := range []string{"w1", "w2", "w3"} {
		startWorker(e, name)
	}

	var orders []*delivery.Order
	for range 10 {
		orders = append(orders, v.Order("", time.Now()))
	}

	failing := v.Order("SIM:FAIL=CustomerRefused", time.Now())
	for _, o := range orders {
		if last := e.AwaitStatus(o, delivery.Delivered); len(last.Changes) != 5 {
			t.Errorf("%+v", last.Changes)
		}
	}

	last := e.AwaitStatus(failing, delivery.Failed)
	if n := len(last.Changes); n != 5 || last.Changes[n-1].Failure != delivery.CustomerRefused {
		t.Errorf("%+v", last.Changes)
	}

	e.AwaitSettled(ledger.RoleStatus)
	if n := e.Stats().RefusedUpdates; n != 0 {
		t.Errorf("%d reports were refused", n)
	}
}

//rule:decisions/sandbox
func TestRole_ObeysItsTriggers(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	v := e.Vendor()
	startWorker(e, "w1")
	nobody := v.Order("SIM:NO_COURIER", time.Now())
	held := v.Order("SIM:HOLD=PickingUp", time.Now())
	refused := v.Order("SIM:FAIL=StoreClosed", time.Now())
	normal := v.Order("SIM:FAIL=Nonsense", time.Now())
	e.AwaitStatus(refused, delivery.Failed)
	e.AwaitStatus(held, delivery.PickingUp)
	e.AwaitStatus(normal, delivery.Delivered)
	// The last one needed five steps, so the others would have moved on.
	if n, h := e.Read(nobody.ID).Status, e.Read(held.ID).Status; n != delivery.Searching || h != delivery.PickingUp {
		t.Errorf("SIM:NO_COURIER is %s, SIM:HOLD=PickingUp is %s", n, h)
	}
}

// A round reads the stores that wait, on however many pages, and no other.
func TestRound_ConfirmsEveryStoreThatWaitsAndReadsNoOther(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Extra: []string{"--appendfsync", "no"}})
	e := testenv.NewOn(t, server)
	v := e.Vendor()
	_, err := e.Ledger.Accounts.Update(t.Context(), v.Account, func(a *delivery.Account) error {
		a.Limits.MaxPendingStores = 2 * page
		return nil
	})

	testenv.Must(t, err)
	const waiting, active = page + 50, 300
	for i := range active {
		v.NewStore(fmt.Sprint("active", i), delivery.Active)
	}

	for i := range waiting {
		v.NewStore(fmt.Sprint("waiting", i), delivery.AwaitingFleetApproval)
	}

	testenv.Must(t, e.Ledger.Fleets.Load(t.Context()))
	r := New(e.Ledger, func() []int { return nil }, Settings{Step: time.Millisecond}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	for round, want := range []int{waiting, 0} {
		_, err := server.Command(t.Context(), "CONFIG", "RESETSTAT")
		testenv.Must(t, err)
		testenv.Must(t, r.round(t.Context()))
		info, err := server.Command(t.Context(), "INFO", "commandstats")
		testenv.Must(t, err)
		_, rest, _ := strings.Cut(info, "cmdstat_get:calls=")
		calls, _, _ := strings.Cut(rest, ",")
		if calls == "" {
			calls = "0"
		}

		if calls != strconv.Itoa(want) {
			t.Errorf("round %d reads %s stores, want %d", round, calls, want)
		}
	}

	stores, _, err := e.Ledger.Stores.OfFleet(t.Context(), e.Fleet.ID, delivery.Active)
	testenv.Must(t, err)
	if len(stores) != active+waiting+1 {
		t.Errorf("%d stores are Active, want %d", len(stores), active+waiting+1)
	}
}

func TestRound_MovesOrdersOfOwnPartitionsOnly(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	o := e.Vendor().Order("", time.Now().Add(-time.Second))
	e.Decide()
	testenv.Must(t, e.Ledger.Fleets.Load(t.Context()))
	for _, c := range []struct {
		owned []int
		want  delivery.Status
	}{{nil, delivery.Searching}, {[]int{o.ID.Partition()}, delivery.Assigned}} {
		r := New(e.Ledger, func() []int { return c.owned }, Settings{Step: time.Millisecond}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		testenv.Must(t, r.round(t.Context()))
		e.Decide()
		if got := e.Read(o.ID).Status; got != c.want {
			t.Errorf("%s after a round of the owner of %v, want %s", got, c.owned, c.want)
		}
	}
}

// A fleet that is disabled can do nothing, and nothing is done in its name.
//
//rule:fleets-and-operators/suspended
func TestRound_ActsForNoDisabledFleet(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	v := e.Vendor()
	store := v.NewStore("waiting", delivery.AwaitingFleetApproval)
	o := v.Order("", time.Now().Add(-time.Second))
	e.Decide()
	r := New(e.Ledger, func() []int { return []int{o.ID.Partition()} }, Settings{Step: time.Millisecond}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	for _, c := range []struct {
		disabled bool
		store    delivery.StoreState
		order    delivery.Status
	}{{true, delivery.AwaitingFleetApproval, delivery.Searching}, {false, delivery.Active, delivery.Assigned}} {
		_, err := e.Ledger.Fleets.Update(t.Context(), e.Fleet.ID, func(f *delivery.Fleet) error { f.Disabled = c.disabled; return nil })
		testenv.Must(t, err)
		testenv.Must(t, e.Ledger.Fleets.Load(t.Context()))

		testenv.Must(t, r.round(t.Context()))
		e.Decide()

		stored, err := e.Ledger.Stores.Get(t.Context(), v.Account, store.ExternalID)
		testenv.Must(t, err)
		if got := e.Read(o.ID).Status; stored.State != c.store || got != c.order {
			t.Errorf("disabled %v: the store is %s and the order %s", c.disabled, stored.State, got)
		}
	}
}

// A store or an order that fails keeps no other of the fleet waiting, and is reported.
func TestRound_OneFailingStoreKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Extra: []string{"--appendfsync", "no"}})
	e := testenv.NewOn(t, server)
	options, err := redis.ParseURL(server.URL)
	testenv.Must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	var waiting []*delivery.Store
	var orders []*delivery.Order
	for i := range 6 {
		v := e.Vendor()
		orders = append(orders, v.Order("", time.Now().Add(-time.Second)))
		waiting = append(waiting, v.NewStore(fmt.Sprint("waiting", i), delivery.AwaitingFleetApproval))
	}

	e.Decide()
	testenv.Must(t, e.Ledger.Fleets.Load(t.Context()))

	// The writes of one vendor's stores fail.
	failing := waiting[2].Account
	keys, err := client.Keys(t.Context(), "*}b*").Result()
	testenv.Must(t, err)
	spoilt := 0
	for _, key := range keys {
		if strings.HasSuffix(key, "}b"+string(failing[:])) {
			spoilt++
			testenv.Must(t, client.Set(t.Context(), key, "no hash", 0).Err())
		}
	}

	if spoilt != 1 {
		t.Fatalf("%d keys count the vendor's waiting stores, want 1", spoilt)
	}

	// One order's store cannot be read.
	digest := delivery.OrderDigest(orders[4].Account, orders[4].ExternalStoreID)
	keys, err = client.Keys(t.Context(), "*").Result()
	testenv.Must(t, err)
	spoilt = 0
	for _, key := range keys {
		if strings.HasSuffix(key, string(digest[:])) {
			spoilt++
			testenv.Must(t, client.Set(t.Context(), key, "\x7f", 0).Err())
		}
	}

	if spoilt != 1 {
		t.Fatalf("%d keys have the order's store, want 1", spoilt)
	}

	all := func() (all []int) {
		for p := range e.Ledger.Partitions() {
			all = append(all, p)
		}
		return all
	}

	r := New(e.Ledger, all, Settings{Step: time.Millisecond}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	err = r.round(t.Context())
	if err == nil || !strings.Contains(err.Error(), waiting[2].ExternalID) || !strings.Contains(err.Error(), orders[4].ID.String()) {
		t.Errorf("the round reports %v", err)
	}

	e.Decide()
	for i, s := range slices.Concat(waiting[:2], waiting[3:]) {
		now, err := e.Ledger.Stores.Get(t.Context(), s.Account, s.ExternalID)
		testenv.Must(t, err)
		if now.State != delivery.Active {
			t.Errorf("store %d of the others is %s", i, now.State)
		}
	}

	for i, o := range orders {
		if moved := e.Read(o.ID).Status != delivery.Searching; moved != (i != 4) {
			t.Errorf("order %d is %s", i, e.Read(o.ID).Status)
		}
	}
}

// A server that does not answer hides the stores and orders of its vendors, and nobody else's. Redis
// refuses what concerns one partition, which stands for it.
func TestRole_GoesOnForThePartitionsThatAnswer(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		stack.GatewayUser: "a", stack.WorkerUser: "b", stack.ReportingUser: "c", stack.BackupUser: "d", stack.OperatorUser: "e",
	}}})
	e := testenv.NewOn(t, server)
	lost, kept := e.Vendor(), e.Vendor()
	partition := lost.Order("", time.Now()).ID.Partition()
	for kept.Order("", time.Now()).ID.Partition() == partition {
		kept = e.Vendor()
	}

	for _, v := range []*testenv.Vendor{lost, kept} {
		v.NewStore("pending", delivery.AwaitingFleetApproval)
	}

	l := e.OpenAs(stack.WorkerUser)
	role := New(l, func() []int { return nil }, Settings{Mode: Auto, Step: time.Hour}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	testenv.Must(t, l.Fleets.Load(t.Context()))
	_, err := server.Command(t.Context(), "ACL", "SETUSER", stack.WorkerUser, "resetkeys", "~{sg*", fmt.Sprintf("~{s0[^%x]*", partition))
	testenv.Must(t, err)
	if err := role.round(t.Context()); !errors.Is(err, ledger.ErrIncomplete) {
		t.Errorf("the round ended with %v", err)
	}

	for v, want := range map[*testenv.Vendor]delivery.StoreState{lost: delivery.AwaitingFleetApproval, kept: delivery.Active} {
		s, err := e.Ledger.Stores.Get(t.Context(), v.Account, "pending")
		testenv.Must(t, err)
		if s.State != want {
			t.Errorf("the store is %s, want %s", s.State, want)
		}
	}
}
