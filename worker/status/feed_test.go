package status

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

const deliveredPath = "Searching Assigned PickingUp PickedUp Delivering Delivered"

//rule:order-states/the-five-non-terminal-rows-follow
func TestRole_TakesAnOrderThroughItsLife(t *testing.T) {
	e := newEnv(t)
	e.Start(e.role.Run)
	o := e.order()
	e.Await("the job list names the order", func() bool {
		jobs, _, err := e.Ledger.Orders.Jobs(t.Context(), e.Fleet.ID, delivery.Searching, "", 10)
		return err == nil && len(jobs) == 1
	})
	e.Accept(o, time.Now())
	e.AwaitStatus(o, delivery.Assigned)
	for status := delivery.PickingUp; status <= delivery.Delivered; status++ {
		e.Reach(o, status, time.Now())
		e.AwaitStatus(o, status)
	}
	e.AwaitSettled(ledger.RoleStatus)
	e.checkPath(o, deliveredPath)
	if last := e.Read(o.ID); last.Courier != testenv.Courier {
		t.Errorf("courier %+v", last.Courier)
	}
}

func TestRole_ItsEndAddsWhatItDidToTheActivity(t *testing.T) {
	e := newEnv(t)
	stop := e.Start(e.role.Run)
	delivered, failed := e.order(), e.order()
	e.Accept(delivered, time.Now())
	e.Accept(failed, time.Now())
	e.Reach(delivered, delivery.Delivered, time.Now())
	e.Fail(failed, delivery.StoreClosed, time.Now())
	e.AwaitStatus(delivered, delivery.Delivered)
	e.AwaitStatus(failed, delivery.Failed)
	stop()
	minutes, err := e.Ledger.Monitor.Activity(t.Context(), 60)
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
	e := newEnv(t)
	now := time.Now()
	orders := []*delivery.Order{e.order(), e.order(), e.order()}
	for _, o := range orders {
		e.Accept(o, now)
		e.Accept(o, now)                        // repeated: not appended
		e.Reach(o, delivery.Delivering, now)    // skips two steps
		e.Reach(o, delivery.PickingUp, now)     // backward: nor is this
		e.Fail(o, delivery.StoreClosed, now)    // illegal from Delivering
		e.Fail(o, delivery.PaymentRefused, now) // legal
		e.Fail(o, delivery.PaymentRefused, now) // repeated
		e.Reach(o, delivery.Delivered, now)     // illegal: it has failed
	}
	e.Start(e.role.Run)
	e.AwaitSettled(ledger.RoleStatus)
	for _, o := range orders {
		e.checkPath(o, "Searching Assigned PickingUp PickedUp Delivering Failed")
		if last := e.Read(o.ID); last.Changes[1].At != last.Changes[3].At || last.Changes[4].Failure != delivery.PaymentRefused {
			t.Errorf("%+v", last.Changes)
		}
	}
	if n := e.Stats().RefusedUpdates; n != 6 {
		t.Errorf("%d refused updates", n)
	}
	for result, want := range map[string]float64{
		resultMoved: 9, resultDropped: 3, resultRefused: 6, resultConflict: 0, resultFailed: 0,
	} {
		// An entry is settled a moment before it is counted.
		e.Await("the count of entries "+result, func() bool { return e.entries(result) >= want })
		if got := e.entries(result); got != want {
			t.Errorf("%v entries %s, want %v", got, result, want)
		}
	}
}

func TestRole_DecidesAgainAfterACancellation(t *testing.T) {
	e := newEnv(t)
	o := e.order()
	var once atomic.Bool
	e.role.decide = func(order *delivery.Order, u delivery.Update, now time.Time) delivery.Decision {
		// The vendor cancels between the read and the commit.
		if once.CompareAndSwap(false, true) {
			if _, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, o.ID, delivery.CustomerRequest, "", now); err != nil {
				t.Error(err)
			}
		}
		return delivery.Decide(order, u, now)
	}
	e.Accept(o, time.Now())
	e.Start(e.role.Run)
	e.AwaitSettled(ledger.RoleStatus)
	e.checkPath(o, "Searching Cancelled")
	if conflicts, refused := e.entries(resultConflict), e.Stats().RefusedUpdates; conflicts != 1 || refused != 1 {
		t.Errorf("%v conflicts, %d refused updates", conflicts, refused)
	}
}

//rule:states/cancel-against-pickup-a-pickup
func TestRole_AReportedPickupBeatsACancellation(t *testing.T) {
	e := newEnv(t)
	o := e.order()
	e.Accept(o, time.Now())
	e.Reach(o, delivery.PickedUp, time.Now())
	_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, o.ID, delivery.CustomerRequest, "", time.Now())
	if delivery.CodeOf(err) != delivery.CodeOrderNotCancellable {
		t.Fatalf("cancelled although a pickup was reported: %v", err)
	}
	e.Start(e.role.Run)
	e.AwaitStatus(o, delivery.PickedUp)
}

//rule:fleet-api/put-jobs-orderid-courier states/a-courier-swap-never-goes
func TestRole_SwapsTheCourierWithoutAVersion(t *testing.T) {
	e := newEnv(t)
	o := e.order()
	swap := func(c delivery.Courier) {
		e.Report(delivery.Update{Order: o.ID, Kind: delivery.KindSwap, At: time.Now(), Courier: c})
	}
	e.Accept(o, time.Now())
	swap(ayse)
	e.Reach(o, delivery.PickingUp, time.Now())
	e.Start(e.role.Run)
	last := e.AwaitStatus(o, delivery.PickingUp)
	if last.Courier != ayse || last.Changes[0].Courier != testenv.Courier || last.Changes[1].Courier != ayse {
		t.Fatalf("%+v", last)
	}
	swap(mehmet)
	e.Await("the swap", func() bool { return e.Read(o.ID).Courier == mehmet })
	if again := e.Read(o.ID); again.Version != last.Version {
		t.Errorf("version %x, was %x", again.Version, last.Version)
	}
}

//rule:states/a-delivered-reported-after-that
func TestRole_ListsADeliveryThatComesAfterTheEnd(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	ended := map[string]*delivery.Order{}
	for _, end := range []string{"TimedOut", "NoCourierFound", "CustomerRefused", "Cancelled"} {
		ended[end] = e.vendor.Order("", now.Add(-2*time.Hour))
	}
	e.Accept(ended["TimedOut"], now.Add(-2*time.Hour))
	e.Accept(ended["CustomerRefused"], now)
	e.Reach(ended["CustomerRefused"], delivery.Delivering, now)
	e.Fail(ended["CustomerRefused"], delivery.CustomerRefused, now)
	_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, ended["Cancelled"].ID, delivery.CustomerRequest, "", now)
	if err != nil {
		t.Fatal(err)
	}
	e.settleFeed()
	e.fireAll(e.role, now)
	for _, o := range ended {
		e.Reach(o, delivery.Delivered, now)
	}
	e.settleFeed()
	refused, err := e.Ledger.Monitor.RefusedUpdates(t.Context(), 10)
	if err != nil || len(refused) != len(ended) {
		t.Fatalf("%d refused updates, %v", len(refused), err)
	}
	for _, f := range refused {
		if f.Reason != reasonLateDelivery || !f.Late {
			t.Errorf("after %s: %s, finance received: %v", f.Status, f.Reason, f.Late)
		}
	}
	for end, o := range ended {
		if last := e.Read(o.ID); last.Status != delivery.Cancelled && string(last.Changes[len(last.Changes)-1].Failure) != end {
			t.Errorf("%s is now %s %+v", end, last.Status, last.Changes)
		}
	}
}

func TestRole_APanicLosesNothing(t *testing.T) {
	e := newEnv(t)
	bad, good := e.order(), e.order()
	var panics atomic.Int32
	e.role.decide = func(o *delivery.Order, u delivery.Update, now time.Time) delivery.Decision {
		if o.ID == bad.ID {
			panics.Add(1)
			panic("a defect")
		}
		return delivery.Decide(o, u, now)
	}
	e.Accept(bad, time.Now())
	e.Accept(good, time.Now())
	stop := e.Start(e.role.Run)
	e.AwaitStatus(good, delivery.Assigned)
	e.Await("a panic", func() bool { return panics.Load() > 0 })
	stop()
	if s := e.Stats(); e.Read(bad.ID).Status != delivery.Searching || s.Pending[ledger.RoleStatus] == 0 {
		t.Fatalf("the entry is gone: %+v", s)
	}
	// The defect is mended and the worker started again under its name.
	e.Start(e.newRole("w1").Run)
	e.AwaitStatus(bad, delivery.Assigned)
	e.AwaitSettled(ledger.RoleStatus)
}

// readAndDie is a worker that reads all there is and dies before it settles any of it.
func (e *env) readAndDie() {
	e.T.Helper()
	ctx, die := context.WithCancel(e.T.Context())
	defer die()
	_ = e.Ledger.Streams.Run(ctx, ledger.Feed{Role: ledger.RoleStatus, Consumer: "dead",
		Handle: func(_ context.Context, _ []ledger.Entry) error {
			if s := e.Stats(); s.Unread[ledger.RoleStatus] == 0 {
				die()
			}
			return nil
		}})
}

func TestRole_ClaimsTheEntriesOfADeadWorker(t *testing.T) {
	e := newEnv(t)
	o := e.order()
	e.Accept(o, time.Now())
	e.readAndDie()
	if e.Stats().Pending[ledger.RoleStatus] == 0 {
		t.Fatal("the dead worker holds nothing")
	}
	e.role.settings.ClaimAfter = 200 * time.Millisecond
	e.Start(e.role.Run)
	e.AwaitStatus(o, delivery.Assigned)
	e.AwaitSettled(ledger.RoleStatus)
}

func TestRole_HealsAMissingGroup(t *testing.T) {
	e := newEnv(t)
	e.Start(e.role.Run)
	first := e.order()
	e.Accept(first, time.Now())
	e.AwaitStatus(first, delivery.Assigned)
	for _, kind := range []string{"e", "u"} { // the streams of events and of updates
		e.EachKey(kind, "redis.call('XGROUP', 'DESTROY', k, 'status') found = found + 1")
	}
	second := e.order()
	e.Accept(second, time.Now())
	e.AwaitStatus(second, delivery.Assigned)
	// What was settled before is read again and changes nothing.
	e.AwaitSettled(ledger.RoleStatus)
	e.checkPath(first, "Searching Assigned")
}

func TestRole_SharesTheWorkWithoutDoubleMoves(t *testing.T) {
	e := newEnv(t)
	vendors := []*testenv.Vendor{e.vendor, e.Vendor(), e.Vendor()}
	for _, name := range []string{"w1", "w2", "w3"} {
		e.Start(e.newRole(name).Run)
	}
	var orders []*delivery.Order
	for i := range 30 {
		o := vendors[i%len(vendors)].Order("", time.Now())
		orders = append(orders, o)
		e.Accept(o, time.Now())
		e.Reach(o, delivery.PickedUp, time.Now())
		e.Reach(o, delivery.Delivered, time.Now())
	}
	for _, o := range orders {
		e.AwaitStatus(o, delivery.Delivered)
		e.checkPath(o, deliveredPath)
	}
	e.AwaitSettled(ledger.RoleStatus)
}
