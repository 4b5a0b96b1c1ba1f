package status

import (
	"cmp"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

// fire looks once at the timers of every partition.
func (e *env) fire(now time.Time) { e.T.Helper(); e.fireAfter(now, func() {}) }

// fireAfter is fire with something that happens between the reading of orders and the step.
func (e *env) fireAfter(now time.Time, between func()) {
	e.T.Helper()
	ctx := e.T.Context()
	for p := range testenv.Partitions {
		var t *Timers
		e.Step(p, func(step *partitions.Step) {
			due, err := e.role.ledger.Ownership.Due(ctx, []int{p}, now, TimersAtOnce)
			testenv.Must(e.T, err)
			t = NewTimers(p, due[0], cmp.Or(step.Token.Updates, "0-0"))
			testenv.Must(e.T, e.role.ledger.Ownership.ReadOrders(ctx, []*partitions.Wanted{&t.Wanted}))
			if len(t.Reported) > 0 {
				between()
			}

			e.role.Fire(t, step, now)
		})

		e.role.Fired(t, now)
	}
}

func (e *env) closeStores(now time.Time) {
	e.T.Helper()
	for p := range testenv.Partitions {
		testenv.Must(e.T, e.role.closeStores(e.T.Context(), p, now))
	}
}

//rule:order-states/an-order-lives-for-under states/searching states/every-order-reaches-a-terminal
func TestTimers_EndOrdersThatWaitTooLong(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }

	fresh := e.vendor.Order("", ago(14))
	unfound := e.vendor.Order("", ago(16))
	silent := e.vendor.Order("", ago(60))
	reported := e.vendor.Order("", ago(60))
	ended := e.vendor.Order("", ago(60))
	e.Accept(silent, ago(20))
	e.Accept(reported, ago(50))
	e.Reach(reported, delivery.PickedUp, ago(5))
	e.Accept(ended, ago(50))
	e.Reach(ended, delivery.Delivered, ago(40))
	e.Decide()

	e.fire(now)
	for _, c := range []struct {
		name    string
		order   *delivery.Order
		status  delivery.Status
		failure delivery.FailureReason
	}{
		{"a fresh one", fresh, delivery.Searching, ""},
		{"one that found nobody", unfound, delivery.Failed, delivery.NoCourierFound},
		{"one whose courier is silent", silent, delivery.Failed, delivery.TimedOut},
		{"one whose courier reports", reported, delivery.PickedUp, ""},
		{"one that has ended", ended, delivery.Delivered, ""},
	} {
		o := e.Read(c.order.ID)
		failure := delivery.FailureReason("")
		if n := len(o.Changes); n > 0 {
			failure = o.Changes[n-1].Failure
		}
		if o.Status != c.status || failure != c.failure {
			t.Errorf("%s is %s %s", c.name, o.Status, failure)
		}
	}

	if n := testenv.Value(t, e.role.metrics.timers.WithLabelValues(string(delivery.NoCourierFound))); n != 1 {
		t.Errorf("%v NoCourierFound", n)
	}

	// A quarter of an hour later nobody has been reported of.
	e.fire(now.Add(15 * time.Minute))
	for o, want := range map[*delivery.Order]delivery.FailureReason{fresh: delivery.NoCourierFound, reported: delivery.TimedOut} {
		last := e.Read(o.ID)
		if last.Status != delivery.Failed || last.Changes[len(last.Changes)-1].Failure != want {
			t.Errorf("%s %+v", last.Status, last.Changes)
		}
	}

	for p := range testenv.Partitions {
		if due, err := e.Ledger.Ownership.Due(t.Context(), []int{p}, now.Add(24*time.Hour), 10); err != nil || len(due[0]) != 0 {
			t.Errorf("partition %d still has timers: %v, %v", p, due, err)
		}
	}
}

// All workers are stopped for 20 minutes while fleets go on reporting: what was acknowledged
// wins against every time-out that has come since.
//
//rule:states/no-time-out-is-decided-for
func TestTimers_WaitForWhatWasReportedBefore(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	cancel := func(o *delivery.Order, code delivery.Code) {
		_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, o.ID, delivery.CustomerRequest, "", ago(10))
		if err != nil && delivery.CodeOf(err) != code || err == nil && code != "" {
			t.Errorf("cancelled: %v, want %q", err, code)
		}
	}

	cases := []struct {
		name           string
		created        int // minutes ago
		before, during func(*delivery.Order)
		path           string
		failure        delivery.FailureReason
	}{
		{"accepted", 21, nil, func(o *delivery.Order) { e.Accept(o, ago(19)) }, "Searching Assigned", ""},
		{"delivered by a weak fleet", 21, nil, func(o *delivery.Order) { e.Reach(o, delivery.Delivered, ago(18)) }, testenv.DeliveredPath, ""},
		{"given up by the fleet", 21, nil, func(o *delivery.Order) { e.Fail(o, delivery.OtherFailure, ago(18)) },
			"Searching Failed", delivery.OtherFailure},
		{"accepted and cancelled", 21, nil, func(o *delivery.Order) { e.Accept(o, ago(19)); cancel(o, "") }, "Searching Cancelled", ""},
		{"picked up before it was to be cancelled", 21, nil, func(o *delivery.Order) {
			e.Reach(o, delivery.PickedUp, ago(17))
			cancel(o, delivery.CodeOrderNotCancellable)
		}, "Searching Assigned PickingUp PickedUp", ""},
		{"delivered", 70, func(o *delivery.Order) { e.Reach(o, delivery.Delivering, ago(25)) },
			func(o *delivery.Order) { e.Reach(o, delivery.Delivered, ago(17)) }, testenv.DeliveredPath, ""},
		{"damaged", 70, func(o *delivery.Order) { e.Reach(o, delivery.PickedUp, ago(25)) },
			func(o *delivery.Order) { e.Fail(o, delivery.PackageDamaged, ago(16)) },
			"Searching Assigned PickingUp PickedUp Failed", delivery.PackageDamaged},
		{"nothing was reported, searching", 21, nil, nil, "Searching Failed", delivery.NoCourierFound},
		{"nothing was reported, assigned", 70, func(o *delivery.Order) { e.Accept(o, ago(30)) }, nil,
			"Searching Assigned Failed", delivery.TimedOut},
	}

	orders := make([]*delivery.Order, len(cases))
	for i, c := range cases {
		orders[i] = e.vendor.Order("", ago(c.created))
		if c.before != nil {
			c.before(orders[i])
		}
	}

	e.Decide()
	was := make([]delivery.Status, len(cases))
	for i, c := range cases {
		if c.during != nil {
			c.during(orders[i])
		}
		was[i] = e.Read(orders[i].ID).Status
	}

	e.fire(now)
	for i, c := range cases {
		if got := e.Read(orders[i].ID).Status; c.during != nil && got != was[i] {
			t.Errorf("%s: it is %s before its report has been decided", c.name, got)
		}
	}

	e.Decide()
	e.fire(now)
	for i, c := range cases {
		e.CheckPath(orders[i], c.path)
		last := e.Read(orders[i].ID)
		if got := last.Changes[len(last.Changes)-1].Failure; got != c.failure {
			t.Errorf("%s: failed with %q", c.name, got)
		}
	}
}

// An order of which a courier is reported between the look at its timer and the
// time-out's step goes on, in every state.
func TestTimers_AReportInTheLastMomentWins(t *testing.T) {
	for status := delivery.Searching; status <= delivery.Delivering; status++ {
		t.Run(status.String(), func(t *testing.T) {
			e := newEnv(t)
			long := time.Now().Add(-time.Hour)
			o := e.vendor.Order("", long)
			e.Decide()
			if status > delivery.Searching {
				e.Move(o, status, long)
			}

			looked := false
			e.fireAfter(time.Now(), func() {
				if !looked {
					e.Fail(o, delivery.OtherFailure, time.Now()) // notes no status, only when it was reported
				}
				looked = true
			})

			if got := e.Read(o.ID).Status; got != status || !looked {
				t.Errorf("it has become %s, its timer was looked at: %v", got, looked)
			}

			e.Decide()
			if last := e.Read(o.ID); last.Status != delivery.Failed || last.Changes[len(last.Changes)-1].Failure != delivery.OtherFailure {
				t.Errorf("%+v", last.Changes)
			}
		})
	}
}

//rule:states/searching
func TestTimers_PreOrdersWaitForTheirPackage(t *testing.T) {
	e := newEnv(t)
	created := time.Now().Add(-90 * time.Minute)
	// A courier should set off 10 minutes before it is ready, and is looked for
	// 15 minutes from then on.
	e.vendor.Edit = func(d *delivery.OrderDraft) { d.ReadyAt = created.Add(30 * time.Minute) }
	o := e.vendor.Order("", created)
	e.Decide()
	for _, c := range []struct {
		minutes int
		want    delivery.Status
	}{{14, delivery.Searching}, {16, delivery.Searching}, {34, delivery.Searching}, {35, delivery.Failed}} {
		e.fire(created.Add(time.Duration(c.minutes) * time.Minute))
		if got := e.Read(o.ID).Status; got != c.want {
			t.Fatalf("after %d minutes it is %s", c.minutes, got)
		}
	}
}

// A damaged order with a timer is looked at again later, and stops no other.
func TestTimers_PassOverADamagedOrder(t *testing.T) {
	e := newEnv(t)
	long := time.Now().Add(-time.Hour)
	bad, good := e.vendor.Order("", long), e.vendor.Order("", long)
	e.Decide()
	e.Record("o", bad.ID.Digest(), "redis.call('SETRANGE', k, 0, '\\9')")
	now := time.Now()
	e.fire(now)
	e.CheckPath(good, "Searching Failed")
	for after, want := range map[time.Duration]int{0: 0, unreadablePause: 1} {
		due, err := e.Ledger.Ownership.Due(t.Context(), []int{bad.ID.Partition()}, now.Add(after), 10)
		if err != nil || len(due[0]) != want {
			t.Errorf("%v later %v are due, want %d: %v", after, due, want, err)
		}
	}
}

// A migrating store closes when its last local day is over, and its vendor is
// notified the reason once.
//
//rule:event-types/store.deactivated states/stores-awaitingfleet-awaitingfleetapproval
func TestTimers_CloseAMigratingStoreOnce(t *testing.T) {
	e := newEnv(t)
	now := time.Now().In(delivery.Istanbul)
	midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, delivery.Istanbul)
	if err := delivery.MigrateStore(e.vendor.Store, now, now); err != nil {
		t.Fatal(err)
	}
	if err := e.Ledger.Stores.Write(t.Context(), e.vendor.Store); err != nil {
		t.Fatal(err)
	}

	stored := func() *delivery.Store {
		s, err := e.Ledger.Stores.Get(t.Context(), e.vendor.Account, e.vendor.Store.ExternalID)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	// Its closing was put off after it had been listed as due.
	testenv.Must(t, e.role.closeStore(t.Context(), stored(), midnight.Add(-time.Second)))
	e.closeStores(midnight.Add(-time.Second))
	if got := stored().State; got != delivery.Active {
		t.Fatalf("closed before its day was over: %s", got)
	}

	events, before := e.Stats().Events, stored()
	e.closeStores(midnight)
	e.closeStores(midnight)
	// Another worker has read it before, and writes it later.
	testenv.Must(t, e.role.closeStore(t.Context(), before, midnight))
	if s := stored(); s.State != delivery.Deactivated || !s.ClosingDate.IsZero() {
		t.Errorf("%+v", s)
	}
	if published := e.Stats().Events - events; published != 1 {
		t.Errorf("%d notices", published)
	}

	var notices []*partitions.Delivery
	testenv.Must(t, e.Ledger.Streams.EachEntry(t.Context(), ledger.RoleWebhook, time.Time{}, func(batch []partitions.Entry) error {
		w := &partitions.Wanted{Partition: batch[0].Partition}
		for _, entry := range batch {
			w.Events = append(w.Events, entry.Events...)
		}

		err := e.Ledger.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{w})
		for _, d := range w.Deliveries {
			if d != nil && d.Account == e.vendor.Account {
				notices = append(notices, d)
			}
		}

		return err
	}))

	if len(notices) != 1 || notices[0].Type != delivery.StoreDeactivated || string(notices[0].Data) != `{"externalStoreId":"branch-1","reason":"MigratedToHizliyo"}` {
		t.Errorf("%+v", notices)
	}
}

func TestTimers_AFailingStoreKeepsNoOtherOpen(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	partition := e.vendor.Order("", now).ID.Partition()
	other := e.Vendor()
	for other.Order("", now).ID.Partition() != partition {
		other = e.Vendor()
	}

	for day, v := range []*testenv.Vendor{e.vendor, other} { // the one that fails comes first
		testenv.Must(t, delivery.MigrateStore(v.Store, now.AddDate(0, 0, day), now))
		testenv.Must(t, e.Ledger.Stores.Write(t.Context(), v.Store))
	}

	const spoilLua = `local spoilt = 0
for _, k in ipairs(redis.call('KEYS', '*}S*')) do
  if string.sub(k, -18) == '}S' .. ARGV[1] then redis.call('SET', k, 'no set') spoilt = spoilt + 1 end
end
return spoilt`

	if n := e.Do("EVAL", spoilLua, 0, e.vendor.Account[:]); n != int64(1) {
		t.Fatalf("%v keys are spoilt, want that of the vendor's stores", n)
	}

	err := e.role.closeStores(t.Context(), partition, now.AddDate(0, 0, 3))

	if err == nil {
		t.Error("nobody learns that a store cannot be closed")
	}

	stored, err := e.Ledger.Stores.Get(t.Context(), other.Account, other.Store.ExternalID)
	testenv.Must(t, err)
	if stored.State != delivery.Deactivated {
		t.Errorf("the other store is %s", stored.State)
	}
}

// tidy visits a partition once.
func (e *env) tidy(partition int, now time.Time) error {
	v := visit{Role: e.role, partition: partition, now: now}
	return v.tidy(e.T.Context())
}

// A delivery may still be reported of an order that has shrunk.
func TestTidy_ShrinksADayAfterTheEnd(t *testing.T) {
	e := newEnv(t)
	failed, open := e.order(), e.order()
	e.Fail(failed, delivery.TimedOut, time.Now())
	e.Decide()
	later := func(d time.Duration) (shrunk bool) {
		for p := range testenv.Partitions {
			testenv.Must(t, e.tidy(p, time.Now().Add(d)))
		}
		return e.Read(failed.ID).Shrunk()
	}
	if later(24*time.Hour-time.Minute) || !later(25*time.Hour) || e.Read(open.ID).Shrunk() {
		t.Error("not shrunk, or too early, or an order that goes on")
	}

	before := e.Read(failed.ID)
	e.Reach(failed, delivery.Delivered, time.Now())
	e.Decide()
	refused, err := e.Ledger.Monitor.RefusedUpdates(t.Context(), 10)
	if err != nil || len(refused) != 1 || !refused[0].Late {
		t.Errorf("refused: %+v, %v", refused, err)
	}
	if after := e.Read(failed.ID); after.Status != delivery.Failed || after.Version != before.Version || !after.Shrunk() {
		t.Errorf("%+v", after)
	}
}

func TestTidy_NeverDropsWhatSomebodyStillNeeds(t *testing.T) {
	e := newEnv(t)
	e.role.settings.StreamRetention = 0
	long := time.Now().Add(-8 * 24 * time.Hour)
	old, recent := e.vendor.Order("", long), e.vendor.Order("", time.Now())
	for _, o := range []*delivery.Order{old, recent} {
		e.Accept(o, o.CreatedAt)
		e.Reach(o, delivery.Delivered, o.CreatedAt)
	}

	e.Decide()
	tidyAll := func() {
		for p := range testenv.Partitions {
			if err := e.tidy(p, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}

	before := e.Stats()
	tidyAll()
	// The webhook role has read none of the orders' events yet; only the notice
	// with which the environment began may go.
	if after := e.Stats(); after.Events < before.Events-1 || after.Unread[ledger.RoleWebhook] != before.Unread[ledger.RoleWebhook] {
		t.Fatalf("%+v is left of %+v", after, before)
	}

	e.Consume(ledger.RoleWebhook)
	e.Consume(ledger.RoleExport)
	tidyAll()
	if after := e.Stats(); after.Events >= before.Events || after.Updates >= before.Updates {
		t.Errorf("nothing was trimmed: %+v", after)
	}

	// Retention counts from when the end was committed, which is just now,
	// whatever time a fleet gave it.
	for _, o := range []*delivery.Order{old, recent} {
		if _, err := e.Ledger.Orders.Get(t.Context(), o.ID); err != nil {
			t.Errorf("retired too early: %v", err)
		}
	}
}
