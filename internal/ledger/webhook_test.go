package ledger

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
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

// moved is a new order with these changes, all queued.
func (s *env) moved(t *testing.T, changes ...delivery.Status) *delivery.Order {
	t.Helper()
	o := s.create(t, "X-1")
	s.advance(t, o.ID, changes...)
	s.pump(t, 1+len(changes))
	return o
}

func (s *env) lease(t *testing.T, want int) []*Delivery {
	t.Helper()
	ds, _ := get2(s.Lease(t.Context(), partitionOf(s.account, len(s.rooms)), grant(100)))(t)
	require(t, len(ds) == want, "%d events leased, want %d", len(ds), want)
	return ds
}

func (s *env) register(t *testing.T) *WebhookEndpoint {
	t.Helper()
	e, secret := get2(s.SetWebhookURL(t.Context(), s.account, "https://vendor.example/hook"))(t)
	require(t, secret != "" && secret == e.Secret, "issued %q, stored %q", secret, e.Secret)
	return e
}

//rule:webhooks/for-one-order-the-next
func TestWebhook_OneVersionOfAnOrderAtATime(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	statuses := []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp}
	o := s.moved(t, statuses...)
	for i, status := range statuses {
		d := s.one(t)
		change, ok := d.Order.At(d.Version)
		require(t, ok && change.Status == status && d.EventID == delivery.EventID(o.ID, d.Version) && d.Attempt == 1 && d.Type == delivery.StatusChanged &&
			d.Deadline.Sub(d.OccurredAt) == 24*time.Hour, "event %d: %+v", i, d)
		s.lease(t, 0) // the next one waits for the end of this attempt
		// The first fails; its retry does not hold up the others.
		s.ends(t, []answer{failsFor(time.Hour), accepts, accepts}[i], d)
	}
	s.lease(t, 0)
	e := s.endpoint(t)
	check(t, e.Backlog == 1 && e.State == EndpointHealthy && e.Delivered == 2 && e.Retried == 1 && e.NextAttempt.Equal(s.now().Add(time.Hour)), "endpoint %+v", e)
}

func TestWebhook_RetryKeepsEventAndCountsAttempts(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	o := s.moved(t, delivery.Assigned)
	first := s.one(t)
	for d, attempt := first, 1; attempt <= 4; attempt++ {
		require(t, d.Attempt == attempt && d.EventID == first.EventID, "attempt %d: %+v", attempt, d)
		if attempt == 4 {
			s.ends(t, func(*env, *Delivery) Outcome { return Outcome{Error: "timeout: gave up"} }, d)
			break
		}
		s.ends(t, func(s *env, d *Delivery) Outcome {
			return Outcome{Status: 503, Error: "status: 503", Answer: []byte("bu\xffsy"), Retry: s.now().Add(time.Second)}
		}, d)
		s.pass(t, time.Second)
		d = s.one(t)
	}
	e := s.endpoint(t)
	check(t, e.State == EndpointUnreachable && e.Backlog == 0 && e.NextAttempt.IsZero(), "endpoint %+v", e)
	attempts := s.attempts(t, "")
	check(t, len(attempts) == 4 && attempts[0].State == "undelivered" && attempts[0].Attempt == 4 && attempts[3].HTTPStatus == 503 && attempts[3].Answer == "bu\uFFFDsy" &&
		attempts[3].OrderID == o.ID.String(), "attempts %+v", attempts)
	check(t, len(s.attempts(t, "undelivered")) == 1, "undelivered: %+v", attempts)
}

func TestWebhook_DeferredEndsTheFirstAttemptForTheNext(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.moved(t, delivery.Assigned, delivery.PickingUp)
	first := s.one(t)
	s.ends(t, defers, first)
	d := s.one(t)
	change, _ := d.Order.At(d.Version)
	check(t, change.Status == delivery.PickingUp, "overtaken by %s", change.Status)
	s.pass(t, time.Second)
	d = s.one(t)
	check(t, d.EventID == first.EventID && d.Attempt == 1, "the deferred event comes as %+v", d)
}

//rule:webhooks/without-a-registered-url-events
func TestWebhook_WithoutURLEventsAreRecordedAsNotSent(t *testing.T) {
	s := newUnregistered(t, breakerAt)
	o := s.moved(t, delivery.Assigned)
	s.publish(t, 1)
	s.lease(t, 0)
	attempts := s.attempts(t, "notSent")
	check(t, len(attempts) == 2 && attempts[1].EventID == delivery.EventID(o.ID, 1<<32|2) && attempts[1].OrderID == o.ID.String() && strings.HasPrefix(attempts[0].EventID, "evt_"),
		"attempts %+v", attempts)
	// What comes after a registration is sent.
	s.register(t)
	s.advance(t, o.ID, delivery.PickingUp)
	s.pump(t, 1)
	d := s.one(t)
	check(t, delivery.Sequence(d.Version) == 3, "leased %+v", d)
}
