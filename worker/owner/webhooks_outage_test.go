package owner

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

// nominal are the gaps of the decisions ("Webhooks") before attempts 2 to 13.
var nominal = []time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 40 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
}

// outage is a vendor whose receiver is unavailable, on a clock that jumps from one time to the next.
type outage struct {
	*hooks
	down atomic.Bool
}

func newOutage(t *testing.T) *outage {
	s := &outage{}
	s.down.Store(true)
	s.hooks = newStandingHooks(t, func(w http.ResponseWriter, _ request) {
		if s.down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	return s
}

// happen makes an event and waits for its first attempt, or for what stands before it.
func (s *outage) happen() (eventID string) {
	s.T.Helper()
	eventID = s.cancelled(s.now())
	s.awaitIdle()
	return eventID
}

// nextLook is when something is to be done next: to try an event or to probe.
func (s *outage) nextLook() time.Time {
	s.setClock(s.now().Add(time.Second)) // what a failed test event tells is written by then
	s.awaitIdle()
	e := s.endpoint()
	if e.BreakerOpen && e.HeldUntil.After(s.now()) {
		return e.HeldUntil // also when nothing waits
	}
	return e.NextAttempt
}

// nextAttempt is when the only event is tried again.
func (s *outage) nextAttempt() time.Time {
	s.T.Helper()
	var queries []partitions.ScheduleQuery
	for p := range testenv.Partitions {
		queries = append(queries, partitions.ScheduleQuery{Partition: p, Account: s.vendor.Account, Until: math.MaxInt64, Limit: 1,
			Known: func(string) bool { return true }})
	}

	found, err := s.Ledger.Ownership.Scheduled(s.T.Context(), queries)
	testenv.Must(s.T, err)
	for _, schedule := range found {
		if len(schedule) > 0 {
			return time.UnixMilli(schedule[0].Due)
		}
	}

	return time.Time{}
}

// pass lets time pass until then, from one time to the next that comes.
func (s *outage) pass(until time.Time, next func() time.Time) {
	s.T.Helper()
	for at := next(); at.After(s.now()) && !at.After(until); at = next() {
		s.setClock(at)
		s.awaitIdle()
	}
	s.setClock(until)
	s.awaitIdle()
}

// A day's outage: a lone event keeps to its schedule, is given up at its deadline, and the endpoint is
// flagged. What happens then is sent once the endpoint is back, within the pause between two probes.
//
//rule:delivery-rules/2 limits/other-constants/webhook-retry-window webhooks/14-attempts-the-first-at webhooks/then-the-event-is-kept
//rule:webhooks/an-endpoint-whose-breaker-is webhooks/nothing-is-disabled-in-silence
func TestOutage_OfADayAndLonger(t *testing.T) {
	s := newOutage(t)
	s.outlive(s.nextAttempt)
}

// outlive lets time pass from one time to the next.
func (s *outage) outlive(next func() time.Time) {
	t, began := s.T, s.now()
	s.start("w1")
	first := s.happen()
	s.pass(began.Add(25*time.Hour), next)

	s.checkSchedule(first, began)
	s.awaitTally(tally{retried: 13, undelivered: 1})
	if e := s.endpoint(); e.State != partitions.EndpointUnreachable || !e.BreakerOpen {
		t.Errorf("after a day: %+v", e)
	}

	for _, q := range s.of(first) {
		if late := q.at.Sub(began.Add(24 * time.Hour)); late > 0 {
			t.Errorf("sent %s after the deadline", late)
		}
	}

	second := s.happen()
	s.pass(began.Add(26*time.Hour), next)
	s.down.Store(false)
	healed := s.now()
	s.pass(healed.Add(time.Minute), s.nextLook)
	s.Await("the recovery", func() bool {
		e := s.endpoint()
		return e.State == partitions.EndpointHealthy && !e.BreakerOpen && e.Backlog == 0
	})

	if sent := s.of(second); sent[len(sent)-1].at.Sub(healed) > 30*time.Second {
		t.Errorf("sent %s after the recovery", sent[len(sent)-1].at.Sub(healed))
	}

	third := s.happen()
	if n := len(s.of(third)); n != 1 {
		t.Errorf("after the outage an event was sent %d times", n)
	}
}

// checkSchedule holds the attempts of the log, probes aside, to the schedule.
func (s *outage) checkSchedule(eventID string, occurred time.Time) {
	s.T.Helper()
	var made []partitions.AttemptRecord
	s.Await("the last attempt", func() bool {
		made = slices.DeleteFunc(s.attempts(), func(a partitions.AttemptRecord) bool { return a.Probe })
		return len(made) > 0 && made[0].State == partitions.StateUndelivered
	})

	slices.Reverse(made)
	if len(made) != 14 {
		s.T.Fatalf("%d attempts in a day: %+v", len(made), made)
	}

	for i, a := range made {
		if a.Attempt != i+1 || a.EventID != eventID {
			s.T.Errorf("attempt %d is recorded as %d of %s", i+1, a.Attempt, a.EventID)
		}
		if i == 0 || i == 13 {
			continue
		}

		took := time.Duration(made[i-1].Millis) * time.Millisecond // in whole ones
		gap := a.At.Sub(made[i-1].At) - took
		if least, most := nominal[i-1]*8/10-time.Millisecond, nominal[i-1]*12/10; gap < least || gap > most+time.Second {
			s.T.Errorf("attempt %d after %s, want %s to %s", i+1, gap, least, most)
		}
	}

	if before := occurred.Add(24 * time.Hour).Sub(made[13].At); before < time.Minute || before > 5*time.Minute {
		s.T.Errorf("the last attempt was made %s before the deadline", before)
	}
}

// oneAtATime lets the receiver have one request at once.
func (h *hooks) oneAtATime() {
	h.T.Helper()
	testenv.Must(h.T, h.Ledger.Webhooks.SetLimits(h.T.Context(), h.vendor.Account, partitions.EndpointLimits{InFlight: 1}))
}

//rule:webhooks/an-endpoint-whose-breaker-is
func TestBreaker_ProbesUntilTheReceiverIsBack(t *testing.T) {
	s := newOutage(t)
	s.oneAtATime()
	s.start("w1")
	for range 20 {
		s.cancelled(s.now())
	}

	s.awaitIdle()

	if e := s.endpoint(); !e.BreakerOpen || e.State != partitions.EndpointFailing || !e.HeldUntil.Equal(s.now().Add(time.Second)) {
		t.Errorf("%+v", e)
	}

	for i, want := range []int{5, 6, 6, 7, 7, 7, 7} { // after so many seconds; the one after that waits for a retry
		if n := len(s.received()); n != want {
			t.Errorf("%d requests after %d s, want %d", n, i, want)
		}
		s.setClock(s.now().Add(time.Second))
		s.awaitIdle()
	}

	// Who asks for a test says that the receiver is repaired.
	s.down.Store(false)
	_, err := s.Ledger.Webhooks.QueueTest(t.Context(), s.vendor.Account, s.now())
	testenv.Must(t, err)
	s.Await("the probe", func() bool { s.awaitIdle(); return !s.endpoint().BreakerOpen })
	if pace := s.endpoint().Pace; pace < 10 {
		t.Errorf("a pace of %v", pace)
	}

	for range 10 {
		s.setClock(s.now().Add(time.Second))
		s.awaitIdle()
	}

	s.Await("everything is delivered", func() bool { e := s.endpoint(); return e.Delivered == 21 && e.Backlog == 0 })
}

// A busy receiver is left alone as long as it asks for.
func TestBusy_RetryAfterHoldsTheEndpoint(t *testing.T) {
	var asked atomic.Bool
	h := newStandingHooks(t, func(w http.ResponseWriter, _ request) {
		if !asked.Swap(true) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})

	h.oneAtATime()
	h.start("w1")
	for range 5 {
		h.cancelled(h.now())
	}

	first := h.awaitAttempts(1)[0]
	for _, pause := range []time.Duration{0, 59 * time.Second} {
		h.setClock(h.now().Add(pause))
		h.awaitIdle()
		if n := len(h.received()); n != 1 {
			t.Errorf("%d requests after %s", n, pause)
		}
	}

	h.setClock(first.NextAt)
	h.awaitIdle()
	for range 5 {
		h.setClock(h.now().Add(time.Second))
		h.awaitIdle()
	}

	h.awaitTally(tally{delivered: 5, retried: 1})
}

func TestURL_ANewOneTakesWhatWaits(t *testing.T) {
	s := newOutage(t)
	s.start("w1")
	failed := s.happen()
	moved := s.newReceiver(nil)
	s.change(func() error {
		_, _, err := s.Ledger.Webhooks.SetURL(t.Context(), s.vendor.Account, moved.url)
		return err
	})

	s.Await("the event at its new address", func() bool { return len(moved.of(failed)) == 1 })
	q := moved.of(failed)[0]
	moved.check(q, s.secret, s.secret)
	if q.attempt() != "2" || len(s.received()) != 1 {
		t.Errorf("attempt %s, %d at the old address", q.attempt(), len(s.received()))
	}
}

// What the log says of the next attempt is true also if the URL changes, or goes, during the one that fails.
func TestURL_ChangedDuringAnAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*hooks) error
		then   string // the state of the next record
	}{
		"another one": {func(h *hooks) error {
			moved := h.newReceiver(nil)
			_, _, err := h.Ledger.Webhooks.SetURL(t.Context(), h.vendor.Account, moved.url)
			return err
		}, partitions.StateDelivered},
		"deleted": {func(h *hooks) error {
			return h.Ledger.Webhooks.Delete(t.Context(), h.vendor.Account)
		}, partitions.StateNotSent},
	} {
		t.Run(name, func(t *testing.T) {
			arrived, answer := make(chan struct{}), make(chan struct{})
			h := newStandingHooks(t, func(w http.ResponseWriter, _ request) {
				close(arrived)
				<-answer
				w.WriteHeader(http.StatusInternalServerError)
			})

			h.start("w1")
			h.cancelled(h.now())
			<-arrived
			h.change(func() error { return c.change(h) })
			close(answer)

			records := h.awaitAttempts(2)
			failed, next := records[1], records[0]
			if failed.State != partitions.StateRetrying || next.State != c.then {
				t.Fatalf("%+v, then %+v", failed, next)
			}
			if failed.NextAt.After(next.At) {
				t.Errorf("the next attempt is said to be made at %s; what follows was at %s", failed.NextAt, next.At)
			}
		})
	}
}

// What waited for a URL that is deleted is recorded as not sent; once there is one again nothing of
// it comes back.
func TestURL_DeletedEndsWhatWaits(t *testing.T) {
	s := newOutage(t)
	s.start("w1")
	gone := []string{s.happen(), s.happen(), s.happen()}
	s.change(func() error { return s.Ledger.Webhooks.Delete(t.Context(), s.vendor.Account) })
	gone = append(gone, s.happen()) // without a URL
	s.down.Store(false)
	_, secret, err := s.Ledger.Webhooks.SetURL(t.Context(), s.vendor.Account, s.url)
	testenv.Must(t, err)
	before := len(s.received())
	fresh := s.cancelled(s.now())
	s.Await("the new event", func() bool { return len(s.of(fresh)) == 1 })
	s.check(s.of(fresh)[0], secret, secret)
	s.setClock(s.now().Add(23 * time.Hour))
	s.awaitIdle()
	if n := len(s.received()); n != before+1 {
		t.Errorf("%d webhooks came back", n-before-1)
	}

	s.setClock(s.now().Add(time.Second)) // figures are written once a second
	s.awaitTally(tally{delivered: 1, retried: 3, notSent: 4})
	records := s.awaitAttempts(8)
	for _, id := range gone {
		if !slices.ContainsFunc(records, func(r partitions.AttemptRecord) bool { return r.EventID == id && r.State == partitions.StateNotSent }) {
			t.Errorf("%s is not recorded as not sent", id)
		}
	}
}

// The change of a URL and an event after it may come in one read: the event goes to the new URL.
func TestURL_RegisteredJustBeforeAnEvent(t *testing.T) {
	h := &hooks{env: newEnv(t)}
	worker, p := h.proxied("w1")
	h.Start(worker.Run)
	h.awaitOwners(testenv.Partitions, "w1")
	h.cancelled(h.now())
	h.AwaitSettled(ledger.RoleWebhook) // the worker knows that there is no URL
	reads := make(chan struct{})
	hold := sync.OnceFunc(func() { p.freeze(); close(reads) })
	p.on("xread", func([]byte) fate { hold(); return passes })
	<-reads
	h.receiver = h.register(h.vendor, nil)
	event := h.cancelled(h.now())
	p.thaw()
	h.Await("the event", func() bool { return len(h.of(event)) == 1 })
}

// Whoever replays what waits gets it now, once; what has ended is sent again under its own id.
func TestReplay_OfWhatWaitsAndOfWhatHasEnded(t *testing.T) {
	h := newHooks(t, func(w http.ResponseWriter, q request) {
		if q.attempt() == "1" && !q.event.OccurredAt.IsZero() {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusInternalServerError)
		}
	})

	h.start("w1")
	event := h.cancelled(h.now())
	h.awaitTally(tally{retried: 1, backlog: 1})
	replay := func() {
		n, err := h.Ledger.Webhooks.ReplayEvents(t.Context(), h.vendor.Account, []string{event})
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}

	replay()
	if q := h.await(2)[1]; q.event.EventID != event || q.attempt() != "2" {
		t.Errorf("attempt %s of %s", q.attempt(), q.event.EventID)
	}

	h.awaitTally(tally{delivered: 1, retried: 1})
	replay()
	if q := h.await(3)[2]; q.event.EventID != event || q.attempt() != "1" {
		t.Errorf("attempt %s of %s", q.attempt(), q.event.EventID)
	}
	if r := h.awaitAttempts(3)[0]; !r.Replay || r.EventID != event || r.Attempt != 1 || r.State != partitions.StateRetrying {
		t.Errorf("%+v", r)
	}
}
