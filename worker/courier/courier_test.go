package courier

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/worker/status"
)

func start(b *testenv.Env, consumer string) {
	b.T.Helper()
	l := b.Open()
	log := slog.New(slog.DiscardHandler)
	b.Start(New(l, Settings{Mode: Auto, Step: 100 * time.Millisecond}, log, prometheus.NewRegistry()).Run)
	b.Start(status.New(l, status.Settings{Batch: 256, ClaimAfter: time.Minute, TimerInterval: time.Second,
		HousekeepingInterval: time.Minute, Retention: 168 * time.Hour, StreamRetention: 25 * time.Hour},
		consumer, log, prometheus.NewRegistry()).Run)
}

//rule:make-run/COURIER make-run/COURIER_STEP
func TestRole_ConfirmsStoresAndDeliversOrders(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	pending := v.NewStore("branch-2", delivery.AwaitingFleetApproval)
	start(b, "w1")
	b.Await("the store's confirmation", func() bool {
		s, err := b.Ledger.Store(t.Context(), v.Account, pending.ExternalID)
		return err == nil && s.State == delivery.Active
	})
	o := v.Order("", time.Now())
	last := b.AwaitStatus(o, delivery.Delivered)
	if len(last.Changes) != 5 || last.Courier != person(o.ID) {
		t.Fatalf("%+v", last)
	}
	for i, c := range last.Changes {
		if c.Location.IsZero() || c.Location.Point != between(v.Store.Point, o.Dropoff.Point, progress(c.Status)) {
			t.Errorf("%s at %+v", c.Status, c.Location)
		}
		if i > 0 && c.At.Sub(last.Changes[i-1].At) < 100*time.Millisecond {
			t.Errorf("%s after %s only", c.Status, c.At.Sub(last.Changes[i-1].At))
		}
	}
}

func TestRole_SeveralReplicasDoNoHarm(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	for _, name := range []string{"w1", "w2", "w3"} {
		start(b, name)
	}
	var orders []*delivery.Order
	for range 20 {
		orders = append(orders, v.Order("", time.Now()))
	}
	failing := v.Order("SIM:FAIL=CustomerRefused", time.Now())
	for _, o := range orders {
		if last := b.AwaitStatus(o, delivery.Delivered); len(last.Changes) != 5 {
			t.Errorf("%+v", last.Changes)
		}
	}
	last := b.AwaitStatus(failing, delivery.Failed)
	if n := len(last.Changes); n != 5 || last.Changes[n-1].Failure != delivery.CustomerRefused {
		t.Errorf("%+v", last.Changes)
	}
	b.AwaitSettled(ledger.RoleStatus)
	if n := b.Stats().RefusedUpdates; n != 0 {
		t.Errorf("%d reports were refused", n)
	}
}

//rule:decisions/sandbox
func TestRole_ObeysItsTriggers(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	start(b, "w1")
	nobody := v.Order("SIM:NO_COURIER", time.Now())
	held := v.Order("SIM:HOLD=PickingUp", time.Now())
	refused := v.Order("SIM:FAIL=StoreClosed", time.Now())
	normal := v.Order("SIM:FAIL=Nonsense", time.Now())
	b.AwaitStatus(refused, delivery.Failed)
	b.AwaitStatus(held, delivery.PickingUp)
	b.AwaitStatus(normal, delivery.Delivered)
	// The last one needed five steps, so the others would have moved on.
	if got := b.Read(nobody.ID).Status; got != delivery.Searching {
		t.Errorf("SIM:NO_COURIER is %s", got)
	}
	if got := b.Read(held.ID).Status; got != delivery.PickingUp {
		t.Errorf("SIM:HOLD=PickingUp is %s", got)
	}
}

func TestSettings_Validate(t *testing.T) {
	for s, valid := range map[Settings]bool{
		{Mode: Auto, Step: time.Second}:   true,
		{Mode: Manual, Step: time.Second}: true,
		{Mode: "", Step: time.Second}:     false,
		{Mode: Auto, Step: 0}:             false,
		{Mode: Auto, Step: 2 * time.Hour}: false,
	} {
		if err := s.Validate(); (err == nil) != valid {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
