package status

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

func newRole(l *ledger.Ledger, consumer string) *Role {
	settings := Settings{Batch: 256, ClaimAfter: time.Minute, TimerInterval: 100 * time.Millisecond,
		HousekeepingInterval: time.Minute, Retention: 7 * 24 * time.Hour, StreamRetention: 25 * time.Hour}
	return New(l, settings, consumer, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// path is the statuses of an order's history.
func path(o *delivery.Order) string {
	text := delivery.Searching.String()
	for _, c := range o.Changes {
		text += " " + c.Status.String()
	}
	return text
}

// checkHistory holds what is true of every order: versions are dense, and time
// never goes back.
func checkHistory(t *testing.T, o *delivery.Order) {
	t.Helper()
	if int(delivery.Sequence(o.Version)) != len(o.Changes)+1 {
		t.Errorf("version %x after %d changes", o.Version, len(o.Changes))
	}
	last := o.CreatedAt
	for _, c := range o.Changes {
		if c.At.Before(last) {
			t.Errorf("%s at %s, before %s", c.Status, c.At, last)
		}
		last = c.At
	}
}

//rule:order-states/the-five-non-terminal-rows-follow
func TestRole_TakesAnOrderThroughItsLife(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	b.Start(newRole(b.Ledger, "w1").Run)
	o := b.Vendor().Order("", time.Now())
	b.Await("the job list names the order", func() bool {
		jobs, _, err := b.Ledger.Jobs(t.Context(), b.Fleet.ID, delivery.Searching, "", 10)
		return err == nil && len(jobs) == 1
	})
	b.Accept(o, time.Now())
	b.AwaitStatus(o, delivery.Assigned)
	for status := delivery.PickingUp; status <= delivery.Delivered; status++ {
		b.Reach(o, status, time.Now())
		b.AwaitStatus(o, status)
	}
	b.AwaitSettled(ledger.RoleStatus)
	last := b.Read(o.ID)
	if got := path(last); got != "Searching Assigned PickingUp PickedUp Delivering Delivered" {
		t.Error(got)
	}
	if last.Courier != testenv.Courier {
		t.Errorf("courier %+v", last.Courier)
	}
	checkHistory(t, last)
}

func TestRole_ItsEndAddsWhatItDidToTheActivity(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	stop := b.Start(newRole(b.Ledger, "w1").Run)
	v := b.Vendor()
	delivered, failed := v.Order("", time.Now()), v.Order("", time.Now())
	for _, o := range []*delivery.Order{delivered, failed} {
		b.Accept(o, time.Now())
	}
	b.Reach(delivered, delivery.Delivered, time.Now())
	b.Fail(failed, delivery.StoreClosed, time.Now())
	b.AwaitStatus(delivered, delivery.Delivered)
	b.AwaitStatus(failed, delivery.Failed)
	stop()
	minutes, err := b.Ledger.Activity(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	var sum ledger.MinuteActivity
	for _, m := range minutes {
		sum.Delivered, sum.Failed, sum.Cancelled = sum.Delivered+m.Delivered, sum.Failed+m.Failed, sum.Cancelled+m.Cancelled
	}
	if sum.Delivered != 1 || sum.Failed != 1 || sum.Cancelled != 0 {
		t.Errorf("%+v", sum)
	}
}

//rule:order-states/once-a-terminal-status-is fleets-and-operators/on-a-status-update-the states/a-skipped-step-is-filled
//rule:states/a-repeated-or-backward-update
func TestRole_SettlesWhatCameBeforeItStarted(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	now := time.Now()
	v := b.Vendor()
	orders := []*delivery.Order{v.Order("", now), v.Order("", now), v.Order("", now)}
	for _, o := range orders {
		b.Accept(o, now)
		b.Accept(o, now)                        // repeated
		b.Reach(o, delivery.Delivering, now)    // skips two steps
		b.Reach(o, delivery.PickingUp, now)     // backward
		b.Fail(o, delivery.StoreClosed, now)    // illegal from Delivering
		b.Fail(o, delivery.PaymentRefused, now) // legal
		b.Fail(o, delivery.PaymentRefused, now) // repeated
		b.Reach(o, delivery.Delivered, now)     // illegal: it has failed
	}
	r := newRole(b.Ledger, "w1")
	b.Start(r.Run)
	b.AwaitSettled(ledger.RoleStatus)
	for _, o := range orders {
		last := b.Read(o.ID)
		if got := path(last); got != "Searching Assigned PickingUp PickedUp Delivering Failed" {
			t.Error(got)
		}
		if last.Changes[1].At != last.Changes[3].At || last.Changes[4].Failure != delivery.PaymentRefused {
			t.Errorf("%+v", last.Changes)
		}
		checkHistory(t, last)
	}
	if n := b.Stats().RefusedUpdates; n != 6 {
		t.Errorf("%d refused updates", n)
	}
	for result, want := range map[string]float64{
		resultMoved: 9, resultDropped: 9, resultRefused: 6, resultConflict: 0, resultFailed: 0,
	} {
		if got := testenv.Value(t, r.metrics.entries.WithLabelValues(result)); got != want {
			t.Errorf("%v entries %s, want %v", got, result, want)
		}
	}
}

func TestRole_DecidesAgainAfterACancellation(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	o := v.Order("", time.Now())
	r := newRole(b.Ledger, "w1")
	var once atomic.Bool
	r.decide = func(order *delivery.Order, u delivery.Update, now time.Time) delivery.Decision {
		// The vendor cancels between the read and the commit.
		if once.CompareAndSwap(false, true) {
			if _, _, err := b.Ledger.CancelOrder(t.Context(), v.Account, o.ID, delivery.CustomerRequest, "", now); err != nil {
				t.Error(err)
			}
		}
		return delivery.Decide(order, u, now)
	}
	b.Accept(o, time.Now())
	b.Start(r.Run)
	b.AwaitSettled(ledger.RoleStatus)
	if got := path(b.Read(o.ID)); got != "Searching Cancelled" {
		t.Error(got)
	}
	if n := testenv.Value(t, r.metrics.entries.WithLabelValues(resultConflict)); n != 1 {
		t.Errorf("%v conflicts", n)
	}
	if n := b.Stats().RefusedUpdates; n != 1 {
		t.Errorf("%d refused updates", n)
	}
}

//rule:states/cancel-against-pickup-a-pickup
func TestRole_AReportedPickupBeatsACancellation(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	o := v.Order("", time.Now())
	b.Accept(o, time.Now())
	b.Reach(o, delivery.PickedUp, time.Now())
	_, _, err := b.Ledger.CancelOrder(t.Context(), v.Account, o.ID, delivery.CustomerRequest, "", time.Now())
	if delivery.CodeOf(err) != delivery.CodeOrderNotCancellable {
		t.Fatalf("cancelled although a pickup was reported: %v", err)
	}
	b.Start(newRole(b.Ledger, "w1").Run)
	b.AwaitStatus(o, delivery.PickedUp)
}

//rule:fleet-api/put-jobs-orderid-courier states/a-courier-swap-never-goes
func TestRole_SwapsTheCourierWithoutAVersion(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	o := b.Vendor().Order("", time.Now())
	b.Accept(o, time.Now())
	b.Report(delivery.Update{Order: o.ID, Kind: delivery.KindSwap, At: time.Now(), Courier: ayse})
	b.Reach(o, delivery.PickingUp, time.Now())
	b.Start(newRole(b.Ledger, "w1").Run)
	last := b.AwaitStatus(o, delivery.PickingUp)
	if last.Courier != ayse || last.Changes[0].Courier != testenv.Courier || last.Changes[1].Courier != ayse {
		t.Fatalf("%+v", last)
	}
	b.Report(delivery.Update{Order: o.ID, Kind: delivery.KindSwap, At: time.Now(), Courier: mehmet})
	b.Await("the swap", func() bool { return b.Read(o.ID).Courier == mehmet })
	if again := b.Read(o.ID); again.Version != last.Version {
		t.Errorf("version %x, was %x", again.Version, last.Version)
	}
}

//rule:states/a-delivered-reported-after-that
func TestRole_ListsADeliveryThatComesAfterTimedOut(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	r := newRole(b.Ledger, "w1")
	long := time.Now().Add(-2 * time.Hour)
	o := b.Vendor().Order("", long)
	b.Accept(o, long)
	b.Start(r.Run)
	b.AwaitStatus(o, delivery.Failed)
	b.Reach(o, delivery.Delivered, time.Now())
	b.Await("the refusal", func() bool {
		return testenv.Value(t, r.metrics.refused.WithLabelValues(reasonLateDelivery)) == 1
	})
	if last := b.Read(o.ID); last.Status != delivery.Failed || last.Changes[len(last.Changes)-1].Failure != delivery.TimedOut {
		t.Errorf("%+v", last)
	}
}

func TestRole_APanicLosesNothing(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	bad, good := v.Order("", time.Now()), v.Order("", time.Now())
	r := newRole(b.Ledger, "w1")
	var panics atomic.Int32
	r.decide = func(o *delivery.Order, u delivery.Update, now time.Time) delivery.Decision {
		if o.ID == bad.ID {
			panics.Add(1)
			panic("a defect")
		}
		return delivery.Decide(o, u, now)
	}
	b.Accept(bad, time.Now())
	b.Accept(good, time.Now())
	stop := b.Start(r.Run)
	b.AwaitStatus(good, delivery.Assigned)
	b.Await("a panic", func() bool { return panics.Load() > 0 })
	stop()
	if s := b.Stats(); b.Read(bad.ID).Status != delivery.Searching || s.Pending[ledger.RoleStatus] == 0 {
		t.Fatalf("the entry is gone: %+v", s)
	}
	// The defect is mended and the worker started again under its name.
	b.Start(newRole(b.Open(), "w1").Run)
	b.AwaitStatus(bad, delivery.Assigned)
	b.AwaitSettled(ledger.RoleStatus)
}

func TestRole_ClaimsTheEntriesOfADeadWorker(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	o := b.Vendor().Order("", time.Now())
	b.Accept(o, time.Now())
	// This worker reads and dies before it settles anything.
	ctx, die := context.WithCancel(t.Context())
	_ = b.Ledger.RunFeed(ctx, ledger.Feed{Role: ledger.RoleStatus, Consumer: "dead",
		Handle: func(_ context.Context, _ int, batch []ledger.Entry) error {
			for _, e := range batch {
				if e.Update != nil {
					die()
				}
			}
			return nil
		}})
	if b.Stats().Pending[ledger.RoleStatus] == 0 {
		t.Fatal("the dead worker holds nothing")
	}
	r := newRole(b.Open(), "alive")
	r.settings.ClaimAfter = 200 * time.Millisecond
	b.Start(r.Run)
	b.AwaitStatus(o, delivery.Assigned)
	b.AwaitSettled(ledger.RoleStatus)
}

func TestRole_HealsAMissingGroup(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	b.Start(newRole(b.Ledger, "w1").Run)
	first := v.Order("", time.Now())
	b.Accept(first, time.Now())
	b.AwaitStatus(first, delivery.Assigned)
	b.Command(`EVAL "local n = 0 for _, k in ipairs(redis.call('KEYS', '*')) do if redis.call('TYPE', k).ok == 'stream' then n = n + redis.call('XGROUP', 'DESTROY', k, 'status') end end return n" 0`)
	second := v.Order("", time.Now())
	b.Accept(second, time.Now())
	b.AwaitStatus(second, delivery.Assigned)
	// What was settled before is read again and changes nothing.
	b.AwaitSettled(ledger.RoleStatus)
	if got := path(b.Read(first.ID)); got != "Searching Assigned" {
		t.Error(got)
	}
}

func TestRole_OutlivesRedis(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	first, second := v.Order("", time.Now()), v.Order("", time.Now())
	b.Start(newRole(b.Ledger, "w1").Run)
	b.Accept(first, time.Now())
	b.AwaitStatus(first, delivery.Assigned)
	b.Redis.Kill()
	if err := b.Redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the ledger answers", func() bool { return b.Ledger.Ping(t.Context()) == nil })
	b.Accept(second, time.Now())
	b.AwaitStatus(second, delivery.Assigned)
	b.Reach(first, delivery.Delivered, time.Now())
	checkHistory(t, b.AwaitStatus(first, delivery.Delivered))
}

func TestRole_SharesTheWorkWithoutDoubleMoves(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	vendors := []*testenv.Vendor{b.Vendor(), b.Vendor(), b.Vendor()}
	for _, name := range []string{"w1", "w2", "w3"} {
		b.Start(newRole(b.Open(), name).Run)
	}
	var orders []*delivery.Order
	for i := range 90 {
		o := vendors[i%len(vendors)].Order("", time.Now())
		orders = append(orders, o)
		b.Accept(o, time.Now())
		b.Reach(o, delivery.PickedUp, time.Now())
		b.Reach(o, delivery.Delivered, time.Now())
	}
	for _, o := range orders {
		last := b.AwaitStatus(o, delivery.Delivered)
		if got := path(last); got != "Searching Assigned PickingUp PickedUp Delivering Delivered" {
			t.Error(got)
		}
		checkHistory(t, last)
	}
	b.AwaitSettled(ledger.RoleStatus)
}
