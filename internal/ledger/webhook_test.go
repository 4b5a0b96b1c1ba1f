package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

const lease = time.Minute

// noGrant hands out nothing.
var noGrant = Grant{Lease: lease}

func grant(limit int) Grant { return Grant{Limit: limit, Share: 32, InFlight: 32, Lease: lease} }

// breakerAt is how many failures in a row open the breaker, in tests that are
// not about it.
const breakerAt = 60_000

// pump moves everything from the account's stream to its queue.
func (s *env) pump(t *testing.T, n int) {
	t.Helper()
	entries := collect(t, s.Ledger, RoleWebhook, "pump", n)
	for range 2 { // a repeated call queues nothing twice
		get(s.QueueEvents(t.Context(), partitionOf(s.account, len(s.rooms)), entries, noGrant))(t)
	}
}

func (s *env) lease(t *testing.T, want int) []*Delivery {
	t.Helper()
	ds, _ := get2(s.Lease(t.Context(), partitionOf(s.account, len(s.rooms)), grant(100)))(t)
	require(t, len(ds) == want, "%d events leased, want %d", len(ds), want)
	return ds
}

func (s *env) record(t *testing.T, d *Delivery, o Outcome) {
	t.Helper()
	if o.At.IsZero() {
		o.At = time.Now()
	}
	recorded := get(s.RecordAttempts(t.Context(), []Result{{d, o}}, noGrant, breakerAt))(t)
	require(t, recorded.OK[0], "the lease was lost")
}

func (s *env) register(t *testing.T) *WebhookEndpoint {
	t.Helper()
	e, secret, err := s.SetWebhookURL(t.Context(), s.account, "https://vendor.example/hook")
	must(t, err)
	require(t, secret != "" && secret == e.Secret, "issued %q, stored %q", secret, e.Secret)
	return e
}

//rule:webhooks/for-one-order-the-next
func TestWebhook_OneVersionOfAnOrderAtATime(t *testing.T) {
	s := newEnv(t)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned, delivery.PickingUp, delivery.PickedUp)
	s.pump(t, 4)
	for i, status := range []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp} {
		d := s.lease(t, 1)[0]
		change, ok := d.Order.At(d.Version)
		require(t, ok && change.Status == status && d.EventID == delivery.EventID(o.ID, d.Version) && d.Attempt == 1 && d.Type == delivery.StatusChanged,
			"event %d: %+v", i, d)
		if got := d.Deadline.Sub(d.OccurredAt); got != 24*time.Hour {
			t.Errorf("deadline after %s", got)
		}
		s.lease(t, 0) // the next one waits for the end of this attempt
		if i == 0 {
			// The first fails; its retry does not hold up the others.
			s.record(t, d, Outcome{Status: 500, Error: "status: 500", Retry: time.Now().Add(time.Hour)})
			continue
		}
		s.record(t, d, Outcome{OK: true, Status: 200})
	}
	s.lease(t, 0)
	e := get(s.WebhookEndpoint(t.Context(), s.account))(t)
	check(t, e.Backlog == 1 && e.State == EndpointHealthy && e.Delivered == 2 && e.Retried == 1 && time.Until(e.NextAttempt) >= 59*time.Minute, "endpoint %+v", e)
}

func TestWebhook_ManyOrdersAtOnce(t *testing.T) {
	s := newEnv(t)
	s.register(t)
	for i := range 40 {
		o := s.create(t, fmt.Sprint("X-", i))
		s.advance(t, o.ID, delivery.Assigned)
	}
	s.pump(t, 80)
	ds := s.lease(t, 32) // at most 32 in flight
	s.lease(t, 0)
	for _, d := range ds {
		s.record(t, d, Outcome{OK: true, Status: 200})
	}
	s.lease(t, 8)
}

func TestWebhook_RetryKeepsEventAndCountsAttempts(t *testing.T) {
	s := newEnv(t)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	var eventID string
	for attempt := 1; attempt <= 3; attempt++ {
		d := s.lease(t, 1)[0]
		require(t, d.Attempt == attempt && (eventID == "" || d.EventID == eventID), "attempt %d: %+v", attempt, d)
		eventID = d.EventID
		s.record(t, d, Outcome{Status: 503, Error: "status: 503", Answer: []byte("bu\xffsy"), Retry: time.Now()})
	}
	d := s.lease(t, 1)[0]
	s.record(t, d, Outcome{Error: "timeout: gave up"})
	e := get(s.WebhookEndpoint(t.Context(), s.account))(t)
	check(t, e.State == EndpointUnreachable && e.Backlog == 0 && e.NextAttempt.IsZero(), "endpoint %+v", e)
	attempts := get(s.Attempts(t.Context(), s.account, ""))(t)
	check(t, len(attempts) == 4 && attempts[0].State == "undelivered" && attempts[0].Attempt == 4 && attempts[3].HTTPStatus == 503 && attempts[3].Answer == "bu\uFFFDsy" && attempts[3].OrderID == o.ID.String(),
		"attempts %+v", attempts)
	if left, err := s.Attempts(t.Context(), s.account, "undelivered"); err != nil || len(left) != 1 {
		t.Errorf("undelivered: %+v %v", left, err)
	}
}

func TestWebhook_LeaseThatRanOutIsSomebodyElses(t *testing.T) {
	s := newEnv(t)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	partition := partitionOf(s.account, len(s.rooms))
	paused, _ := get2(s.Lease(t.Context(), partition, Grant{Limit: 10, Share: 32, InFlight: 32, Lease: time.Millisecond}))(t)
	var again []*Delivery
	testserver.Await(t, "the event is handed out again", func() bool {
		again, _ = get2(s.Lease(t.Context(), partition, grant(10)))(t)
		return len(again) == 1
	})
	check(t, again[0].Attempt == 1 && again[0].EventID == paused[0].EventID, "handed out again as %+v", again[0])
	recorded := get(s.RecordAttempts(t.Context(), []Result{{paused[0], Outcome{At: time.Now(), Error: "timeout: late", Retry: time.Now()}}}, noGrant, breakerAt))(t)
	check(t, !recorded.OK[0], "a worker that was paused recorded its stale result")
	s.record(t, again[0], Outcome{OK: true, Status: 200})
	if attempts, _ := s.Attempts(t.Context(), s.account, ""); len(attempts) != 1 || attempts[0].State != "delivered" {
		t.Errorf("attempts %+v", attempts)
	}
}

func TestWebhook_DeferredEndsTheFirstAttemptForTheNext(t *testing.T) {
	s := newEnv(t)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned, delivery.PickingUp)
	s.pump(t, 3)
	s.record(t, s.lease(t, 1)[0], Outcome{Deferred: true, Retry: time.Now().Add(100 * time.Millisecond)})
	d := s.lease(t, 1)[0]
	if change, _ := d.Order.At(d.Version); change.Status != delivery.PickingUp {
		t.Errorf("overtaken by %s", change.Status)
	}
	testserver.Await(t, "the deferred event comes as a first attempt", func() bool {
		ds, _ := get2(s.Lease(t.Context(), partitionOf(s.account, len(s.rooms)), grant(10)))(t)
		return len(ds) == 1 && ds[0].Attempt == 1
	})
}

//rule:webhooks/without-a-registered-url-events
func TestWebhook_WithoutURLEventsAreRecordedAsNotSent(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	must(t, s.Publish(t.Context(), Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: time.Now(), Data: []byte(`{}`)}))
	s.pump(t, 3)
	s.lease(t, 0)
	attempts := get(s.Attempts(t.Context(), s.account, "notSent"))(t)
	check(t, len(attempts) == 2 && attempts[1].EventID == delivery.EventID(o.ID, 1<<32|2) && attempts[1].OrderID == o.ID.String() && strings.HasPrefix(attempts[0].EventID, "evt_"),
		"attempts %+v", attempts)
	// What comes after a registration is sent.
	s.register(t)
	s.advance(t, o.ID, delivery.PickingUp)
	s.pump(t, 1)
	if d := s.lease(t, 1)[0]; delivery.Sequence(d.Version) != 3 {
		t.Errorf("leased %+v", d)
	}
}

func TestWebhook_DeletedEndpointSettlesItsBacklog(t *testing.T) {
	s := newEnv(t)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned, delivery.PickingUp)
	s.pump(t, 3)
	must(t, s.DeleteWebhook(t.Context(), s.account))
	s.lease(t, 0)
	s.lease(t, 0)
	attempts := get(s.Attempts(t.Context(), s.account, "notSent"))(t)
	check(t, len(attempts) == 2, "attempts %+v", attempts)
	wantCode(t, s.DeleteWebhook(t.Context(), s.account), delivery.CodeWebhookNotConfigured)
	_, err := s.WebhookEndpoint(t.Context(), s.account)
	wantCode(t, err, delivery.CodeWebhookNotConfigured)
}

func TestWebhook_StaleResultDoesNotJudgeTheNewURL(t *testing.T) {
	s := newEnv(t)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	d := s.lease(t, 1)[0]
	_, _, err := s.SetWebhookURL(t.Context(), s.account, "https://new.example/hook")
	must(t, err)
	s.record(t, d, Outcome{Status: 410, Error: "status: 410", Gone: true, Retry: time.Now()})
	if e, _ := s.WebhookEndpoint(t.Context(), s.account); e.State != EndpointHealthy {
		t.Errorf("state %s", e.State)
	}
	d = s.lease(t, 1)[0] // the backlog goes to the new URL
	check(t, d.Receiver.URL == "https://new.example/hook", "sent to %s", d.Receiver.URL)
	s.record(t, d, Outcome{Status: 410, Error: "status: 410", Gone: true, Retry: time.Now().Add(time.Hour)})
	if e, _ := s.WebhookEndpoint(t.Context(), s.account); e.State != EndpointGone {
		t.Errorf("state %s", e.State)
	}
}
