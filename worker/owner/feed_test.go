package owner

import (
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/testenv"
	"vendorapi/worker/status"
)

var ayse = delivery.Courier{Name: "Ayşe Kaya", Phone: "5334445566", VehicleType: "Bicycle"}

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
	minutes, err := e.Ledger.Limits.Activity(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}

	var sum limits.MinuteActivity
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
		e.CheckPath(o, "Searching Assigned PickingUp PickedUp Delivering Failed")
		if last := e.Read(o.ID); last.Changes[1].At != last.Changes[3].At || last.Changes[4].Failure != delivery.PaymentRefused {
			t.Errorf("%+v", last.Changes)
		}
	}

	if n := e.Stats().RefusedUpdates; n != 6 {
		t.Errorf("%d refused updates", n)
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
func TestRole_SwapsTheCourierWithAVersionOfItsOwn(t *testing.T) {
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
	carries := last.Changes[0].Courier == testenv.Courier && last.Changes[1].Courier == ayse && last.Changes[2].Courier == ayse
	if last.Courier != ayse || last.Changes[1].Kind != delivery.CourierReplaced || !carries {
		t.Fatalf("%+v", last)
	}

	swap(testenv.Courier)
	e.Await("the swap", func() bool { return e.Read(o.ID).Courier == testenv.Courier })
	again := e.Read(o.ID)
	if again.Status != last.Status || delivery.Sequence(again.Version) != delivery.Sequence(last.Version)+1 {
		t.Errorf("%s version %x, was %x", again.Status, again.Version, last.Version)
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

	e.Start(e.role.Run)
	for _, o := range ended {
		e.Await("its end", func() bool { return e.Read(o.ID).Status.Terminal() })
		e.Reach(o, delivery.Delivered, now)
	}

	e.AwaitSettled(ledger.RoleStatus)
	refused, err := e.Ledger.Monitor.RefusedUpdates(t.Context(), 10)
	if err != nil || len(refused) != len(ended) {
		t.Fatalf("%d refused updates, %v", len(refused), err)
	}

	for _, f := range refused {
		if f.Reason != "late_delivery" || !f.Late {
			t.Errorf("after %s: %s, finance received: %v", f.Status, f.Reason, f.Late)
		}
	}

	for end, o := range ended {
		if last := e.Read(o.ID); last.Status != delivery.Cancelled && string(last.Changes[len(last.Changes)-1].Failure) != end {
			t.Errorf("%s is now %s %+v", end, last.Status, last.Changes)
		}
	}
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
	e.CheckPath(first, "Searching Assigned")
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
		e.CheckPath(o, testenv.DeliveredPath)
	}

	e.AwaitSettled(ledger.RoleStatus)
}

// Reports that were acknowledged while no worker ran win against time-outs that have come since, in
// a stream longer than a read.
//
//rule:states/no-time-out-is-decided-for
func TestRole_DecidesWhatWasReportedBeforeWhatTimeHasEnded(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	var orders []*delivery.Order
	for range 100 {
		orders = append(orders, e.vendor.Order("", now.Add(-21*time.Minute)))
	}

	silent := e.vendor.Order("", now.Add(-21*time.Minute))
	e.Decide() // all are listed, and their timers are due
	for _, o := range orders {
		e.Accept(o, now.Add(-19*time.Minute))
	}

	e.Start(e.role.Run)
	e.AwaitStatus(silent, delivery.Failed)
	for _, o := range orders {
		e.AwaitStatus(o, delivery.Assigned)
		e.CheckPath(o, "Searching Assigned")
	}
}

func TestRole_EndsMoreThanAPageOfOrders(t *testing.T) {
	e := newEnv(t)
	var orders []*delivery.Order
	for range status.TimersAtOnce + 20 {
		orders = append(orders, e.vendor.Order("", time.Now().Add(-time.Hour)))
	}

	e.Start(e.role.Run)
	for _, o := range orders {
		e.AwaitStatus(o, delivery.Failed)
		e.CheckPath(o, "Searching Failed")
	}

	e.Await("no timer is left", func() bool { return e.Stats().InFlight == 0 })
}

// What cannot be read is a dead letter at once, and what is behind it goes on.
func TestRole_DeadLettersWhatIsDamaged(t *testing.T) {
	e := newEnv(t)
	bad, good := e.order(), e.order()
	e.Decide()
	e.Accept(bad, time.Now())
	e.Record("o", bad.ID.Digest(), "redis.call('SETRANGE', k, 0, '\\9')")
	for _, kind := range []string{"e", "u"} {
		e.EachKey(kind, "redis.call('XADD', k, '*', 'u', 'damaged')")
	}

	e.Accept(good, time.Now())
	e.Start(e.role.Run)
	e.AwaitStatus(good, delivery.Assigned)
	e.AwaitSettled(ledger.RoleStatus)
	letters, err := e.Ledger.Monitor.DeadLetters(t.Context(), 100)
	testenv.Must(t, err)
	reasons := make(map[string]int)
	for _, letter := range letters {
		reasons[fmt.Sprint(letter.Stream, letter.Fields["order"] == bad.ID.String())]++
	}

	if len(reasons) != 3 || reasons["updatestrue"] != 1 || reasons["updatesfalse"] != testenv.Partitions || reasons["eventsfalse"] != testenv.Partitions {
		t.Errorf("%v", reasons)
	}
}
