package dispatch

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/webhook"
)

// unattachedRole is a role without a ledger, for what is decided before or
// after it is asked.
func unattachedRole() *Role {
	r := &Role{settings: testSettings(), sandbox: true, reorder: time.Minute, now: time.Now, log: slog.New(slog.DiscardHandler),
		slots: make(chan struct{}, 1024), wake: []chan struct{}{make(chan struct{}, 1)}}
	r.metrics = newMetrics(prometheus.NewRegistry(), 1, nil, nil)
	r.sender = newSender(guard{local: true}, r.settings, nil)
	return r
}

func someDelivery(attempt int, occurred time.Time) *ledger.Delivery {
	return &ledger.Delivery{EventID: "evt_1", Type: delivery.StatusChanged, Attempt: attempt, OccurredAt: occurred,
		Deadline: occurred.Add(24 * time.Hour), Data: []byte("{}"),
		Receiver: &ledger.Receiver{URL: "http://127.0.0.1:1/", Secret: webhook.NewSecret()}}
}

//rule:webhooks/timeout-10-s-only-2xx
func TestOutcome_NamesTheNextAttempt(t *testing.T) {
	r := unattachedRole()
	now := time.Now()
	for _, c := range []struct {
		name        string
		attempt     int
		age         time.Duration
		answer      answer
		least, most time.Duration // from now; zero: given up
	}{
		{"the first failure", 1, 0, answer{class: classTimeout, took: 10 * time.Second}, 18 * time.Second, 22 * time.Second},
		{"the fourth failure", 4, time.Minute, answer{class: classStatus, status: 500}, 96 * time.Second, 144 * time.Second},
		{"Retry-After in seconds", 1, 0, answer{class: classStatus, status: 429, retryAfter: "120"}, 2 * time.Minute, 2 * time.Minute},
		{"Retry-After below the gap", 6, 0, answer{class: classStatus, status: 503, retryAfter: "1"}, 8 * time.Minute, 12 * time.Minute},
		{"Retry-After beyond the deadline", 2, 20 * time.Hour, answer{class: classStatus, status: 503, retryAfter: "86400"},
			4*time.Hour - 5*time.Minute, 4*time.Hour - time.Minute},
		{"410 is tried again", 1, 0, answer{class: classStatus, status: 410}, 8 * time.Second, 12 * time.Second},
		{"the last attempt", 14, 24*time.Hour - 2*time.Minute, answer{class: classDNS}, 0, 0},
	} {
		o := r.outcome(someDelivery(c.attempt, now.Add(-c.age)), now, c.answer)
		if o.OK || o.Gone != (c.answer.status == 410) || o.Status != c.answer.status || o.Error == "" || o.Deferred {
			t.Errorf("%s: %+v", c.name, o)
		}
		wait := o.Retry.Sub(now)
		if c.most == 0 && !o.Retry.IsZero() || c.most != 0 && (wait < c.least-time.Second || wait > c.most+time.Second) {
			t.Errorf("%s: again after %s", c.name, wait)
		}
	}
}

func TestOutcome_AReplayHasAWindowOfItsOwn(t *testing.T) {
	r := unattachedRole()
	now := time.Now()
	d := someDelivery(1, now.Add(-72*time.Hour))
	d.Replay, d.Deadline = true, now.Add(24*time.Hour)
	o := r.outcome(d, now, answer{class: classConnect})
	if wait := o.Retry.Sub(now); wait < 8*time.Second || wait > 12*time.Second {
		t.Errorf("%+v", o)
	}
}

func TestOutcome_ASuccessIsOver(t *testing.T) {
	o := unattachedRole().outcome(someDelivery(3, time.Now()), time.Now(), answer{status: 204, took: time.Millisecond})
	if !o.OK || o.Error != "" || !o.Retry.IsZero() || o.Duration != time.Millisecond {
		t.Errorf("%+v", o)
	}
}

func TestAttempt_LeavesALeaseThatMayBeOver(t *testing.T) {
	r := unattachedRole()
	_, done := r.attempt(t.Context(), someDelivery(1, time.Now()), time.Now().Add(r.settings.Timeout-time.Millisecond))
	if done {
		t.Error("sent although another worker may have taken it over")
	}
	if n := testenv.Value(t, r.metrics.leasesLost); n != 1 {
		t.Errorf("%v leases lost", n)
	}
}

func TestDeliver_APanicFreesItsSlot(t *testing.T) {
	r := unattachedRole()
	d := someDelivery(1, time.Now())
	d.Receiver = nil // as no ledger hands out
	r.slots <- struct{}{}
	r.sends.Add(1)
	r.deliver(t.Context(), 0, d, time.Now().Add(time.Hour))
	if len(r.slots) != 0 || testenv.Value(t, r.metrics.panics) != 1 {
		t.Errorf("%d slots in use, %v panics", len(r.slots), testenv.Value(t, r.metrics.panics))
	}
	r.sends.Wait()
}

func TestGrant_OneEndpointsShareShrinksAsThePoolFills(t *testing.T) {
	r := unattachedRole()
	last := cap(r.slots) / poolShare
	if got := r.grant(0); got.Share != last || got.InFlight != r.settings.PerEndpoint {
		t.Fatalf("%+v with an empty pool", got)
	}
	for range cap(r.slots) {
		r.slots <- struct{}{}
		share := r.grant(0).Share
		if share > last || share < 1 {
			t.Fatalf("share %d after %d with %d slots in use", share, last, len(r.slots))
		}
		last = share
	}
	if last != 1 {
		t.Errorf("%d with a full pool", last)
	}
}

func TestHoldBack_OnlyEverySecondVersionOfATriggeredOrder(t *testing.T) {
	now := time.Now()
	order := func(note string) *delivery.Order {
		o := &delivery.Order{}
		o.PackageNote = note
		return o
	}
	for _, c := range []struct {
		name string
		role func(*Role)
		d    ledger.Delivery
		held bool
	}{
		{"second version", nil, ledger.Delivery{Order: order("SIM:REORDER"), Version: 2, Attempt: 1, OccurredAt: now}, true},
		{"third version", nil, ledger.Delivery{Order: order("SIM:REORDER"), Version: 3, Attempt: 1, OccurredAt: now}, false},
		{"held back long enough", nil, ledger.Delivery{Order: order("SIM:REORDER"), Version: 2, Attempt: 1, OccurredAt: now.Add(-time.Minute)}, false},
		{"a retry", nil, ledger.Delivery{Order: order("SIM:REORDER"), Version: 2, Attempt: 2, OccurredAt: now}, false},
		{"a replay", nil, ledger.Delivery{Order: order("SIM:REORDER"), Version: 2, Attempt: 1, OccurredAt: now, Replay: true}, false},
		{"no trigger", nil, ledger.Delivery{Order: order("ring twice"), Version: 2, Attempt: 1, OccurredAt: now}, false},
		{"trigger not at the start", nil, ledger.Delivery{Order: order("x SIM:REORDER"), Version: 2, Attempt: 1, OccurredAt: now}, false},
		{"a notice", nil, ledger.Delivery{Version: 2, Attempt: 1, OccurredAt: now}, false},
		{"production", func(r *Role) { r.sandbox = false }, ledger.Delivery{Order: order("SIM:REORDER"), Version: 2, Attempt: 1, OccurredAt: now}, false},
	} {
		r := unattachedRole()
		if c.role != nil {
			c.role(r)
		}
		if _, held := r.holdBack(&c.d, now); held != c.held {
			t.Errorf("%s: held %v", c.name, held)
		}
	}
}

func TestNew_ProductionNeverReachesLocalReceivers(t *testing.T) {
	t.Parallel()
	e := testenv.New(t)
	for _, c := range []struct {
		sandbox bool
		setting string
		local   bool
	}{{true, "auto", true}, {true, "never", false}, {false, "auto", false}, {false, "never", false}} {
		s := testSettings()
		s.LocalReceivers = c.setting
		r := New(e.Ledger, s, Options{Consumer: "w1", Sandbox: c.sandbox}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if r.sender.guard.local != c.local {
			t.Errorf("%+v: local %v", c, r.sender.guard.local)
		}
	}
}
