package dispatch

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

// nominal are the gaps of design section 7 before attempts 2 to 13.
var nominal = []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 40 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
}

// outage is a vendor whose receiver is away, on a clock that jumps from one look
// at the queue to the next.
type outage struct {
	*testenv.Env
	clock  *testenv.Clock
	vendor *testenv.Vendor
	rc     *receiver
	role   *Role
	down   atomic.Bool
	sent   []time.Time // requests, by the bed's clock
}

func newOutage(t *testing.T, at time.Time) *outage {
	b, clock := testenv.NewWithClock(t, at)
	s := &outage{Bed: b, clock: clock, vendor: b.Vendor()}
	s.down.Store(true)
	s.rc = register(b, s.vendor, func(w http.ResponseWriter, _ request) {
		s.rc.mu.Lock()
		s.sent = append(s.sent, clock.Now())
		s.rc.mu.Unlock()
		if s.down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	settings := testSettings()
	settings.Lease = time.Hour // a jump of the clock is no pause of the worker
	s.role = New(b.Ledger, settings, Options{Consumer: "w1", Sandbox: true, CourierStep: time.Second, Now: clock.Now},
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return s
}

func (s *outage) endpoint() *ledger.WebhookEndpoint {
	s.T.Helper()
	e, err := s.Ledger.WebhookEndpoint(s.T.Context(), s.vendor.Account)
	if err != nil {
		s.T.Fatal(err)
	}
	return e
}

// happen makes an event and waits for its first attempt, or for what stands
// before it.
func (s *outage) happen() *delivery.Order {
	s.T.Helper()
	o := s.vendor.Order("", s.clock.Now())
	s.Move(o, delivery.Assigned, s.clock.Now())
	s.AwaitSettled(ledger.RoleWebhook)
	s.awaitIdle()
	return s.Read(o.ID)
}

// awaitIdle waits until nothing is to be sent at the present time.
func (s *outage) awaitIdle() {
	s.T.Helper()
	s.Await("nothing to send now", func() bool {
		next := s.endpoint().NextAttempt
		for p := range s.role.wake {
			s.role.wakeUp(p)
		}
		return len(s.role.slots) == 0 && (next.IsZero() || next.After(s.clock.Now()))
	})
}

// pass lets time pass until then, from one planned attempt to the next.
func (s *outage) pass(until time.Time) {
	s.T.Helper()
	for {
		next := s.endpoint().NextAttempt
		if next.IsZero() || next.After(until) {
			break
		}
		s.SetClock(next)
		s.awaitIdle()
	}
	s.SetClock(until)
}

// A day's outage: a lone event keeps to its schedule while its endpoint is
// probed, is given up at its deadline, and the endpoint is flagged. What happens
// then is sent once the endpoint is back, within the pause between two probes.
//
//rule:delivery-rules/2 limits/other-constants/webhook-retry-window webhooks/14-attempts-the-first-at webhooks/then-the-event-is-kept
//rule:webhooks/an-endpoint-whose-breaker-is webhooks/nothing-is-disabled-in-silence
func TestOutage_OfADayAndLonger(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	s := newOutage(t, began)
	s.Start(s.role.Run)
	first := s.happen()
	s.pass(began.Add(25 * time.Hour))

	s.checkSchedule(began)
	if e := s.endpoint(); e.State != ledger.EndpointUnreachable || !e.BreakerOpen || e.Undelivered != 1 || e.Backlog != 0 {
		t.Errorf("after a day: %+v", e)
	}
	deadline, eventID := began.Add(24*time.Hour), delivery.EventID(first.ID, first.Version)
	pings := 0
	for i, q := range s.rc.received() {
		if q.event.EventID == eventID && s.sent[i].After(deadline) {
			t.Errorf("sent %s after the deadline", s.sent[i].Sub(deadline))
		}
		if q.event.EventID != eventID {
			pings++
		}
		if i > 0 && s.sent[i].Sub(s.sent[i-1]) > time.Minute && i > len(nominal) {
			t.Errorf("not probed for %s", s.sent[i].Sub(s.sent[i-1]))
		}
	}
	t.Logf("%d requests in 25 h, %d of them pings after the deadline", len(s.sent), pings)

	second := s.happen()
	s.pass(began.Add(26 * time.Hour))
	s.down.Store(false)
	healed := s.clock.Now()
	s.pass(healed.Add(time.Minute))
	s.checkHealed(second, healed)
	third := s.happen()
	if n := len(s.rc.of(delivery.EventID(third.ID, third.Version))); n != 1 {
		t.Errorf("after the outage an event was sent %d times", n)
	}
}

// checkSchedule holds the attempts of the log, probes aside, to the schedule.
func (s *outage) checkSchedule(occurred time.Time) {
	s.T.Helper()
	var made []ledger.AttemptRecord
	probes := 0
	for _, a := range attempts(s.Bed, s.vendor) { // newest first
		probes += a.Probes
		if !a.Probe {
			made = append([]ledger.AttemptRecord{a}, made...)
		}
	}
	if len(made) != 14 || made[13].State != "undelivered" || probes < 24*60 {
		s.T.Fatalf("%d attempts and %d probes in a day: %+v", len(made), probes, made)
	}
	for i, a := range made {
		if a.Attempt != i+1 {
			s.T.Errorf("attempt %d is recorded as %d", i+1, a.Attempt)
		}
		if i == 0 || i == 13 {
			continue
		}
		gap := a.At.Sub(made[i-1].At)
		if least, most := nominal[i-1]*8/10, nominal[i-1]*12/10; gap < least || gap > most+time.Second {
			s.T.Errorf("attempt %d after %s, want %s to %s", i+1, gap, least, most)
		}
	}
	if before := occurred.Add(24 * time.Hour).Sub(made[13].At); before < time.Minute || before > 5*time.Minute {
		s.T.Errorf("the last attempt was made %s before the deadline", before)
	}
}

func (s *outage) checkHealed(o *delivery.Order, healed time.Time) {
	s.T.Helper()
	e := s.endpoint()
	if e.State != ledger.EndpointHealthy || e.BreakerOpen || e.Backlog != 0 {
		s.T.Errorf("after the recovery: %+v", e)
	}
	newest := attempts(s.Bed, s.vendor)[0]
	if newest.State != "delivered" || newest.EventID != delivery.EventID(o.ID, o.Version) || newest.At.Sub(healed) > 30*time.Second {
		s.T.Errorf("%s after the recovery: %+v", newest.At.Sub(healed), newest)
	}
}
