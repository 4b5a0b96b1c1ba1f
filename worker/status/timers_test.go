package status

import (
	"context"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

// fireAll visits every partition's timers once.
func (e *env) fireAll(r *Role, now time.Time) {
	e.T.Helper()
	for p := range testenv.Partitions {
		if err := r.fireTimers(e.T.Context(), p, now); err != nil {
			e.T.Error(err)
		}
	}
}

// settleFeed runs the role's feed, without its timers, until all is settled.
func (e *env) settleFeed() {
	e.T.Helper()
	stop := e.Start(e.role.feed)
	e.AwaitSettled(ledger.RoleStatus)
	stop()
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
	e.settleFeed()

	e.fireAll(e.role, now)
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
	e.fireAll(e.role, now.Add(15*time.Minute))
	for o, want := range map[*delivery.Order]delivery.FailureReason{fresh: delivery.NoCourierFound, reported: delivery.TimedOut} {
		last := e.Read(o.ID)
		if last.Status != delivery.Failed || last.Changes[len(last.Changes)-1].Failure != want {
			t.Errorf("%s %+v", last.Status, last.Changes)
		}
	}
	for p := range testenv.Partitions {
		if due, err := e.Ledger.Lifecycle.DueOrders(t.Context(), p, now.Add(24*time.Hour), 10); err != nil || len(due) != 0 {
			t.Errorf("partition %d still has timers: %v, %v", p, due, err)
		}
	}
}

// All status workers are stopped for 20 minutes while fleets go on reporting, and
// one of them has died with what it had read: what was acknowledged wins against
// every time-out that has come since.
//
//rule:states/no-time-out-is-decided-for
func TestTimers_WaitForWhatWasReportedBefore(t *testing.T) {
	for name, readByTheDead := range map[string]bool{"unread": false, "read by a worker that died": true} {
		t.Run(name, func(t *testing.T) {
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
				{"delivered by a weak fleet", 21, nil, func(o *delivery.Order) { e.Reach(o, delivery.Delivered, ago(18)) }, deliveredPath, ""},
				{"given up by the fleet", 21, nil, func(o *delivery.Order) { e.Fail(o, delivery.OtherFailure, ago(18)) },
					"Searching Failed", delivery.OtherFailure},
				{"accepted and cancelled", 21, nil, func(o *delivery.Order) { e.Accept(o, ago(19)); cancel(o, "") }, "Searching Cancelled", ""},
				{"picked up before it was to be cancelled", 21, nil, func(o *delivery.Order) {
					e.Reach(o, delivery.PickedUp, ago(17))
					cancel(o, delivery.CodeOrderNotCancellable)
				}, "Searching Assigned PickingUp PickedUp", ""},
				{"delivered", 70, func(o *delivery.Order) { e.Reach(o, delivery.Delivering, ago(25)) },
					func(o *delivery.Order) { e.Reach(o, delivery.Delivered, ago(17)) }, deliveredPath, ""},
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
			e.settleFeed()
			was := make([]delivery.Status, len(cases))
			for i, c := range cases {
				if c.during != nil {
					c.during(orders[i])
				}
				was[i] = e.Read(orders[i].ID).Status
			}
			if readByTheDead {
				e.readAndDie()
			}
			other := e.newRole("w2")
			e.fireAll(e.role, now)
			e.fireAll(other, now)
			for i, c := range cases {
				if got := e.Read(orders[i].ID).Status; c.during != nil && got != was[i] {
					t.Errorf("%s: it is %s before its report has been decided", c.name, got)
				}
			}
			for _, r := range []*Role{e.role, other} {
				r.settings.ClaimAfter = 200 * time.Millisecond
				e.Start(r.Run)
			}
			e.AwaitSettled(ledger.RoleStatus)
			for i, c := range cases {
				if c.during == nil {
					e.AwaitStatus(orders[i], delivery.Failed)
				}
				e.checkPath(orders[i], c.path)
				last := e.Read(orders[i].ID)
				if got := last.Changes[len(last.Changes)-1].Failure; got != c.failure {
					t.Errorf("%s: failed with %q", c.name, got)
				}
			}
		})
	}
}

// An order of which a courier is reported between the look at its timer and the
// time-out's commit goes on, in every state.
func TestTimers_AReportInTheLastMomentWins(t *testing.T) {
	e := newEnv(t)
	long := time.Now().Add(-time.Hour)
	for status := delivery.Searching; status <= delivery.Delivering; status++ {
		o := e.vendor.Order("", long)
		if status > delivery.Searching {
			e.Move(o, status, long)
		}
		order := e.Read(o.ID)
		change, due, _ := delivery.DecideTimeout(order, time.Now())
		if !due {
			t.Fatalf("%s is not due", status)
		}
		e.Fail(o, delivery.OtherFailure, time.Now()) // notes no status, only when it was reported
		commit := ledger.Commit{Order: order, Changes: []delivery.Change{change}, Silent: true}
		if ended, err := e.role.commitTimeouts(t.Context(), []ledger.Commit{commit}); ended != 0 || err != nil {
			t.Errorf("%s: ended %d, %v", status, ended, err)
		}
		if got := e.Read(o.ID).Status; got != status {
			t.Errorf("%s has become %s", status, got)
		}
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
	e.settleFeed()
	for _, c := range []struct {
		minutes int
		want    delivery.Status
	}{{14, delivery.Searching}, {16, delivery.Searching}, {34, delivery.Searching}, {35, delivery.Failed}} {
		e.fireAll(e.role, created.Add(time.Duration(c.minutes)*time.Minute))
		if got := e.Read(o.ID).Status; got != c.want {
			t.Fatalf("after %d minutes it is %s", c.minutes, got)
		}
	}
}

func TestTimers_OneVisitEndsMoreThanAPage(t *testing.T) {
	e := newEnv(t)
	long := time.Now().Add(-time.Hour)
	for range timerPage + 20 {
		e.vendor.Order("", long)
	}
	e.settleFeed()
	e.fireAll(e.role, time.Now())
	if n := testenv.Value(t, e.role.metrics.timers.WithLabelValues(string(delivery.NoCourierFound))); n != timerPage+20 {
		t.Errorf("%v orders ended", n)
	}
}

func TestTimers_AReplicaFindsNothingLeftToDo(t *testing.T) {
	e := newEnv(t)
	o := e.vendor.Order("", time.Now().Add(-time.Hour))
	e.settleFeed()
	now, second := time.Now(), e.newRole("w2")
	done := make(chan struct{})
	go func() { defer close(done); e.fireAll(second, now) }()
	e.fireAll(e.role, now)
	<-done
	e.checkPath(o, "Searching Failed")
}

// A migrating store closes when its last local day is over, and its vendor is
// notified the reason once.
//
//rule:event-types/store.deactivated states/stores-awaitingfleet-awaitingfleetapproval
func TestTimers_CloseAMigratingStoreOnce(t *testing.T) {
	e := newEnv(t)
	if _, _, err := e.Ledger.Webhooks.SetURL(t.Context(), e.vendor.Account, "https://vendor.example/"); err != nil {
		t.Fatal(err)
	}
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
	e.fireAll(e.role, midnight.Add(-time.Second))
	if got := stored().State; got != delivery.Active {
		t.Fatalf("closed before its day was over: %s", got)
	}
	events := e.Stats().Events
	e.fireAll(e.role, midnight)
	e.fireAll(e.role, midnight)
	if s := stored(); s.State != delivery.Deactivated || !s.ClosingDate.IsZero() {
		t.Errorf("%+v", s)
	}
	if published := e.Stats().Events - events; published != 1 {
		t.Errorf("%d notices", published)
	}

	notified := make(chan *ledger.Delivery, 10)
	e.Start(func(ctx context.Context) error {
		_ = e.Ledger.Streams.Run(ctx, ledger.Feed{Role: ledger.RoleWebhook, Consumer: "w1", Handle: func(ctx context.Context, batch []ledger.Entry) error {
			p := batch[0].Partition
			leased, err := e.Ledger.Queue.Add(ctx, p, batch, ledger.Grant{Limit: 10, Share: 10, InFlight: 10, Lease: time.Minute})
			for _, d := range leased.Deliveries {
				notified <- d
			}
			return err
		}})
		return nil // ends with the test
	})
	d := <-notified
	if want := `{"externalStoreId":"branch-1","reason":"MigratedToHizliyo"}`; d.Type != delivery.StoreDeactivated || string(d.Data) != want {
		t.Errorf("%s %s", d.Type, d.Data)
	}
}

// A store that a release before left with the closing date of an earlier fleet
// stays open when its new fleet confirms it.
//
//rule:states/stores-awaitingfleet-awaitingfleetapproval
func TestTimers_AnOldClosingDateClosesNoConfirmedStore(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	old := *e.vendor.Store
	old.State, old.ClosingDate = delivery.AwaitingFleetApproval, now.AddDate(0, 0, -3)
	if err := e.Ledger.Stores.Write(t.Context(), &old); err != nil {
		t.Fatal(err)
	}
	read := func() *delivery.Store {
		s, err := e.Ledger.Stores.Get(t.Context(), old.Account, old.ExternalID)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := read()
	if err := delivery.ConfirmStore(s, now); err != nil {
		t.Fatal(err)
	}
	if err := e.Ledger.Stores.Write(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	e.fireAll(e.role, now.AddDate(0, 0, 1))
	if s := read(); s.State != delivery.Active || !s.ClosingDate.IsZero() {
		t.Errorf("%s, closing %s", s.State, s.ClosingDate)
	}
}

// Orders are ended when their time has come by both clocks, the worker's and
// Redis's.
func TestTimers_WaitForBothClocks(t *testing.T) {
	e := newEnv(t)
	fresh, unfound := e.vendor.Order("", time.Now().Add(-time.Minute)), e.vendor.Order("", time.Now().Add(-16*time.Minute))
	e.settleFeed()
	for _, c := range []struct {
		shift time.Duration // of Redis
		want  delivery.Status
	}{
		{-time.Hour, delivery.Searching},
		{0, delivery.Failed},
		{time.Hour, delivery.Failed},
	} {
		server := e.role.ledger.Lifecycle.ServerTime
		e.role.serverTime = func(ctx context.Context) (time.Time, error) {
			now, err := server(ctx)
			return now.Add(c.shift), err
		}
		if err := e.role.oncePerPartition(t.Context(), e.role.fireTimers); err != nil {
			t.Fatal(err)
		}
		if got := e.Read(unfound.ID).Status; got != c.want {
			t.Errorf("Redis shifted by %v: an order that waits for 16 minutes is %s, want %s", c.shift, got, c.want)
		}
		if got := e.Read(fresh.ID).Status; got != delivery.Searching {
			t.Errorf("Redis shifted by %v: an order that waits for a minute is %s", c.shift, got)
		}
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
	e.settleFeed()
	tidyAll := func() {
		for p := range testenv.Partitions {
			if err := e.role.tidy(t.Context(), p, time.Now()); err != nil {
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
