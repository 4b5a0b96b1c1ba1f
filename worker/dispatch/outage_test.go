package dispatch

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// nominal are the gaps of design section 7 before attempts 2 to 13.
var nominal = []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 40 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
}

// outage is a vendor whose receiver is unavailable, on a clock that jumps from one look
// at the queue to the next.
type outage struct {
	*env
	role *Role
	down atomic.Bool
	sent []time.Time // requests, by the clock
}

func newOutage(t *testing.T, at time.Time) *outage {
	s := &outage{}
	s.down.Store(true)
	s.env = newEnvWithClock(t, at, func(w http.ResponseWriter, _ request) {
		s.mu.Lock()
		s.sent = append(s.sent, s.now())
		s.mu.Unlock()
		if s.down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s.role = s.newRole("w1")
	s.role.settings.Lease = 48 * time.Hour // longer than any jump of the clock, which is no pause of the worker
	return s
}

// happen makes an event and waits for its first attempt, or for what stands
// before it.
func (s *outage) happen() *delivery.Order {
	s.T.Helper()
	o := s.moved("", delivery.Assigned)
	s.AwaitSettled(ledger.RoleWebhook)
	s.awaitIdle()
	return o
}

// awaitIdle waits until nothing is to be sent at the present time.
func (s *outage) awaitIdle() {
	s.T.Helper()
	for p := range s.role.wake {
		s.role.wakeUp(p)
	}
	s.Await("nothing to send now", func() bool {
		next := s.endpoint().NextAttempt
		return len(s.role.slots) == 0 && (next.IsZero() || next.After(s.now()))
	})
}

// nextLook is when the queue is looked at next: to try an event or to probe.
func (s *outage) nextLook() time.Time { return s.endpoint().NextAttempt }

// nextAttempt is when the event that failed last is tried again.
func (s *outage) nextAttempt() time.Time {
	for _, a := range s.attempts() {
		if !a.Probe {
			return a.NextAt
		}
	}
	return time.Time{}
}

// pass lets time pass until then, from one time to the next that comes.
func (s *outage) pass(until time.Time, next func() time.Time) {
	s.T.Helper()
	for at := next(); at.After(s.now()) && !at.After(until); at = next() {
		s.SetClock(at)
		s.awaitIdle()
	}
	s.SetClock(until)
	s.awaitIdle()
}

// A day's outage: a lone event keeps to its schedule, is given up at its deadline,
// and the endpoint is flagged. What happens then is sent once the endpoint is back,
// within the pause between two probes.
//
//rule:delivery-rules/2 limits/other-constants/webhook-retry-window webhooks/14-attempts-the-first-at webhooks/then-the-event-is-kept
//rule:webhooks/an-endpoint-whose-breaker-is webhooks/nothing-is-disabled-in-silence
func TestOutage_OfADayAndLonger(t *testing.T) {
	s := newOutage(t, outageBegan)
	s.outlive(s.nextAttempt)
}

var outageBegan = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// outlive lets time pass from one time to the next.
func (s *outage) outlive(next func() time.Time) {
	t, began := s.T, outageBegan
	s.Start(s.role.Run)
	first := s.happen()
	s.pass(began.Add(25*time.Hour), next)

	s.checkSchedule(began)
	if e := s.endpoint(); e.State != ledger.EndpointUnreachable || !e.BreakerOpen || e.Undelivered != 1 || e.Backlog != 0 {
		t.Errorf("after a day: %+v", e)
	}
	deadline, eventID := began.Add(24*time.Hour), delivery.EventID(first.ID, first.Version)
	for i, q := range s.received() {
		if q.event.EventID == eventID && s.sent[i].After(deadline) {
			t.Errorf("sent %s after the deadline", s.sent[i].Sub(deadline))
		}
	}

	second := s.happen()
	s.pass(began.Add(26*time.Hour), next)
	s.down.Store(false)
	healed := s.now()
	s.pass(healed.Add(time.Minute), s.nextLook)
	s.checkHealed(second, healed)
	third := s.happen()
	if n := len(s.of(delivery.EventID(third.ID, third.Version))); n != 1 {
		t.Errorf("after the outage an event was sent %d times", n)
	}
}

// checkSchedule holds the attempts of the log, probes aside, to the schedule.
func (s *outage) checkSchedule(occurred time.Time) {
	s.T.Helper()
	made := slices.DeleteFunc(s.attempts(), func(a ledger.AttemptRecord) bool { return a.Probe })
	slices.Reverse(made)
	if len(made) != 14 || made[13].State != "undelivered" {
		s.T.Fatalf("%d attempts in a day: %+v", len(made), made)
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
	if e := s.endpoint(); e.State != ledger.EndpointHealthy || e.BreakerOpen || e.Backlog != 0 {
		s.T.Errorf("after the recovery: %+v", e)
	}
	newest := s.attempts()[0]
	if newest.State != "delivered" || newest.EventID != delivery.EventID(o.ID, o.Version) || newest.At.Sub(healed) > 30*time.Second {
		s.T.Errorf("%s after the recovery: %+v", newest.At.Sub(healed), newest)
	}
}
