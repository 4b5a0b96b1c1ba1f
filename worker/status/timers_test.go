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
func fireAll(t *testing.T, r *Role, now time.Time) {
	t.Helper()
	for p := range testenv.Partitions {
		if err := r.fireTimers(t.Context(), p, now); err != nil {
			t.Fatal(err)
		}
	}
}

// settleFeed runs the role's feed, without its timers, until all is settled.
func settleFeed(b *testenv.Env, r *Role) {
	b.T.Helper()
	stop := b.Start(r.feed)
	b.AwaitSettled(ledger.RoleStatus)
	stop()
}

//rule:order-states/an-order-lives-for-under states/searching states/every-order-reaches-a-terminal
func TestTimers_EndOrdersThatWaitTooLong(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	r := newRole(b.Ledger, "w1")
	now := time.Now()
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }

	fresh := v.Order("", ago(14))
	unfound := v.Order("", ago(16))
	silent := v.Order("", ago(60))
	heard := v.Order("", ago(60))
	ended := v.Order("", ago(60))
	b.Accept(silent, ago(20))
	b.Accept(heard, ago(50))
	b.Reach(heard, delivery.PickedUp, ago(5))
	b.Accept(ended, ago(50))
	b.Reach(ended, delivery.Delivered, ago(40))
	settleFeed(b, r)

	fireAll(t, r, now)
	for _, c := range []struct {
		name    string
		order   *delivery.Order
		status  delivery.Status
		failure delivery.FailureReason
	}{
		{"a fresh one", fresh, delivery.Searching, ""},
		{"one that found nobody", unfound, delivery.Failed, delivery.NoCourierFound},
		{"one whose courier is silent", silent, delivery.Failed, delivery.TimedOut},
		{"one whose courier reports", heard, delivery.PickedUp, ""},
		{"one that has ended", ended, delivery.Delivered, ""},
	} {
		o := b.Read(c.order.ID)
		checkHistory(t, o)
		failure := delivery.FailureReason("")
		if n := len(o.Changes); n > 0 {
			failure = o.Changes[n-1].Failure
		}
		if o.Status != c.status || failure != c.failure {
			t.Errorf("%s is %s %s", c.name, o.Status, failure)
		}
	}
	if n := testenv.Value(t, r.metrics.timers.WithLabelValues(string(delivery.NoCourierFound))); n != 1 {
		t.Errorf("%v NoCourierFound", n)
	}

	// A quarter of an hour later nobody has been heard of.
	fireAll(t, r, now.Add(15*time.Minute))
	for o, want := range map[*delivery.Order]delivery.FailureReason{fresh: delivery.NoCourierFound, heard: delivery.TimedOut} {
		last := b.Read(o.ID)
		if last.Status != delivery.Failed || last.Changes[len(last.Changes)-1].Failure != want {
			t.Errorf("%s", path(last))
		}
	}
	for p := range testenv.Partitions {
		if due, err := b.Ledger.DueOrders(t.Context(), p, now.Add(24*time.Hour), 10); err != nil || len(due) != 0 {
			t.Errorf("partition %d still has timers: %v, %v", p, due, err)
		}
	}
}

//rule:states/searching
func TestTimers_PreOrdersWaitForTheirPackage(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	r := newRole(b.Ledger, "w1")
	created := time.Now().Add(-90 * time.Minute)
	// A courier should set off 10 minutes before it is ready, and is looked for
	// 15 minutes from then on.
	o := b.Vendor().PreOrder("", created, created.Add(30*time.Minute))
	settleFeed(b, r)
	for _, c := range []struct {
		minutes int
		want    delivery.Status
	}{{14, delivery.Searching}, {16, delivery.Searching}, {34, delivery.Searching}, {35, delivery.Failed}} {
		fireAll(t, r, created.Add(time.Duration(c.minutes)*time.Minute))
		if got := b.Read(o.ID).Status; got != c.want {
			t.Fatalf("after %d minutes it is %s", c.minutes, got)
		}
	}
}

func TestTimers_OneVisitEndsMoreThanAPage(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	r := newRole(b.Ledger, "w1")
	long := time.Now().Add(-time.Hour)
	for range timerPage + 20 {
		v.Order("", long)
	}
	settleFeed(b, r)
	fireAll(t, r, time.Now())
	if n := testenv.Value(t, r.metrics.timers.WithLabelValues(string(delivery.NoCourierFound))); n != timerPage+20 {
		t.Errorf("%v orders ended", n)
	}
}

func TestTimers_AReplicaFindsNothingLeftToDo(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	o := b.Vendor().Order("", time.Now().Add(-time.Hour))
	first, second := newRole(b.Ledger, "w1"), newRole(b.Open(), "w2")
	settleFeed(b, first)
	now := time.Now()
	done := make(chan struct{})
	go func() { defer close(done); fireAll(t, second, now) }()
	fireAll(t, first, now)
	<-done
	if got := path(b.Read(o.ID)); got != "Searching Failed" {
		t.Error(got)
	}
}

func TestTimers_CloseAMigratingStoreOnce(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	r := newRole(b.Ledger, "w1")
	now := time.Now()
	if err := delivery.MigrateStore(v.Store, now, now); err != nil {
		t.Fatal(err)
	}
	if err := b.Ledger.WriteStore(t.Context(), v.Store); err != nil {
		t.Fatal(err)
	}
	stored := func() *delivery.Store {
		s, err := b.Ledger.Store(t.Context(), v.Account, v.Store.ExternalID)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	fireAll(t, r, now)
	if got := stored().State; got != delivery.Active {
		t.Fatalf("closed before its day was over: %s", got)
	}
	events := b.Stats().Events
	tomorrow := now.Add(25 * time.Hour)
	fireAll(t, r, tomorrow)
	fireAll(t, r, tomorrow)
	if s := stored(); s.State != delivery.Deactivated || !s.ClosingDate.IsZero() {
		t.Errorf("%+v", s)
	}
	if published := b.Stats().Events - events; published != 1 {
		t.Errorf("%d notices", published)
	}
}

func TestTidy_NeverDropsWhatSomebodyStillNeeds(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	r := newRole(b.Ledger, "w1")
	r.settings.StreamRetention = 0
	long := time.Now().Add(-8 * 24 * time.Hour)
	old, recent := v.Order("", long), v.Order("", time.Now())
	for _, o := range []*delivery.Order{old, recent} {
		b.Accept(o, o.CreatedAt)
		b.Reach(o, delivery.Delivered, o.CreatedAt)
	}
	settleFeed(b, r)
	tidyAll := func() {
		for p := range testenv.Partitions {
			if err := r.tidy(t.Context(), p, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := b.Stats()
	tidyAll()
	// The webhook role has read none of the orders' events yet; only the notice
	// with which the bed began may go.
	if after := b.Stats(); after.Events < before.Events-1 || after.Unread[ledger.RoleWebhook] != before.Unread[ledger.RoleWebhook] {
		t.Fatalf("%+v is left of %+v", after, before)
	}

	stop := b.Start(func(ctx context.Context) error {
		err := b.Ledger.RunFeed(ctx, ledger.Feed{Role: ledger.RoleWebhook, Consumer: "w1", Handle: func(ctx context.Context, partition int, batch []ledger.Entry) error {
			_, err := b.Ledger.QueueEvents(ctx, partition, batch, ledger.Grant{Lease: time.Minute})
			return err
		}})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	b.AwaitSettled(ledger.RoleWebhook)
	stop()
	b.Consume(ledger.RoleExport)
	tidyAll()
	if after := b.Stats(); after.Events >= before.Events || after.Updates >= before.Updates {
		t.Errorf("nothing was trimmed: %+v", after)
	}
	// Retention counts from when the end was committed, which is just now,
	// whatever time a fleet gave it.
	for _, o := range []*delivery.Order{old, recent} {
		if _, err := b.Ledger.Order(t.Context(), o.ID); err != nil {
			t.Errorf("retired too early: %v", err)
		}
	}
}

func TestSettings_Validate(t *testing.T) {
	valid := quietRole().settings
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Settings){
		"retention":        func(s *Settings) { s.Retention = 24 * time.Hour },
		"stream_retention": func(s *Settings) { s.StreamRetention = time.Hour },
		"batch":            func(s *Settings) { s.Batch = 0 },
	} {
		s := valid
		spoil(&s)
		if s.Validate() == nil {
			t.Errorf("a wrong %s passes", name)
		}
	}
}
