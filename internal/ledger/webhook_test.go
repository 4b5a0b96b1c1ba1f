package ledger

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// newWebhookEnv is an env with a receiver and clocks that stand still, in a ledger
// of one partition.
func newWebhookEnv(t *testing.T, breaker int) *env {
	t.Helper()
	s := newUnregistered(t, breaker)
	s.register(t)
	return s
}

func newUnregistered(t *testing.T, breaker int) *env {
	t.Helper()
	ms := new(atomic.Int64)
	ms.Store(time.Now().UnixMilli())
	l := openTest(t, func(c *Config) {
		c.Partitions = 1
		c.Now = func() time.Time { return time.UnixMilli(ms.Load()).UTC() }
	})
	s := newVendor(t, l)
	s.ms, s.breaker = ms, breaker
	s.pass(t, 0)
	return s
}

func (s *env) now() time.Time { return time.UnixMilli(s.ms.Load()).UTC() }

// pass moves both clocks.
func (s *env) pass(t testing.TB, d time.Duration) {
	t.Helper()
	s.setClock(t, s.ms.Add(d.Milliseconds())*1000)
}

// publish queues n new events of the account.
func (s *env) publish(t *testing.T, n int) {
	t.Helper()
	notices := make([]Notice, n)
	for i := range notices {
		notices[i] = Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: s.now(), Data: []byte(`{}`)}
	}
	must(t, s.Webhooks.Publish(t.Context(), notices...))
	s.pump(t, n)
}

func (s *env) one(t *testing.T) *Delivery {
	t.Helper()
	return s.lease(t, 1)[0]
}

// answer is what a receiver does with a delivery.
type answer func(s *env, d *Delivery) Outcome

func accepts(*env, *Delivery) Outcome { return Outcome{OK: true, Status: 200} }

func expires(*env, *Delivery) Outcome {
	return Outcome{Expired: true, Error: "deadline: too late"}
}

// defers puts the event off by a second without an attempt.
func defers(s *env, _ *Delivery) Outcome {
	return Outcome{Deferred: true, Retry: s.now().Add(time.Second)}
}

// failsFor is a failure whose event is to be tried again after that long, or,
// with 0, is given up.
func failsFor(again time.Duration) answer {
	return func(s *env, _ *Delivery) Outcome {
		o := Outcome{Status: 500, Error: "status: 500"}
		if again > 0 {
			o.Retry = s.now().Add(again)
		}
		return o
	}
}

// isBusy is a 503 with or without (0) a Retry-After; its event goes an hour later.
func isBusy(wait time.Duration) answer {
	return func(s *env, _ *Delivery) Outcome {
		return Outcome{Status: 503, Error: "status: 503", Busy: true, Wait: wait, Retry: s.now().Add(max(wait, time.Hour))}
	}
}

// ends records an answer for each of these deliveries, one call for each.
func (s *env) ends(t *testing.T, a answer, ds ...*Delivery) {
	t.Helper()
	for _, d := range ds {
		o := a(s, d)
		o.At = s.now()
		recorded := get(s.Queue.Record(t.Context(), []Result{{d, o}}, noGrant, s.breaker))(t)
		require(t, recorded.OK[0], "the lease of %s was lost", d.EventID)
	}
}

func (s *env) endpoint(t testing.TB) *WebhookEndpoint {
	t.Helper()
	return get(s.Webhooks.Endpoint(t.Context(), s.account))(t)
}

// opened is an env whose breaker has just been opened by as many events as it
// takes, which are to be tried again after that long.
func opened(t *testing.T, breaker int, again time.Duration) *env {
	t.Helper()
	s := newWebhookEnv(t, breaker)
	s.open(t, again)
	return s
}

func (s *env) open(t *testing.T, again time.Duration) {
	t.Helper()
	s.publish(t, s.breaker)
	s.ends(t, failsFor(again), s.lease(t, s.breaker)...)
	require(t, s.endpoint(t).BreakerOpen, "closed after %d failures in a row", s.breaker)
}

// silentFor demands that nothing is handed out until that much time has passed,
// looking also one ms before, and then returns what is.
func (s *env) silentFor(t *testing.T, d time.Duration) *Delivery {
	t.Helper()
	passed := time.Duration(0)
	for _, at := range []time.Duration{0, d / 2, d - time.Millisecond} {
		s.pass(t, at.Truncate(time.Millisecond)-passed)
		passed = at.Truncate(time.Millisecond)
		s.lease(t, 0)
	}
	s.pass(t, d-passed)
	return s.one(t)
}

func (s *env) key(kind byte) string { return s.partitions[0].keyOf(kind, s.account[:]) }

// gate reads the gate of the account's endpoint; false when there is none.
func (s *env) gate(t *testing.T) (g gateState, there bool) {
	t.Helper()
	text := s.rdb.HGet(t.Context(), s.key(kindEndpoint), "gate").Val()
	if text == "" {
		return g, false
	}
	return *parseGate(text), true
}

func parseGate(text string) *gateState {
	f := fields{rest: text}
	g := &gateState{hold: int64(f.uint64()), open: f.byte(), failures: f.uint16(), probes: f.uint16(), rate: f.float(), calm: f.float()}
	g.forward, g.since = int64(f.uint64()), int64(f.uint64())
	return g
}

// setGate writes a gate that a test would take long to bring about.
func (s *env) setGate(t *testing.T, g gateState) {
	t.Helper()
	b := binary.BigEndian.AppendUint64(nil, uint64(g.hold))
	b = append(b, g.open)
	b = binary.BigEndian.AppendUint16(b, g.failures)
	b = binary.BigEndian.AppendUint16(b, g.probes)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(g.rate))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(g.calm))
	b = binary.BigEndian.AppendUint64(b, uint64(g.forward))
	b = binary.BigEndian.AppendUint64(b, uint64(g.since))
	must(t, s.rdb.HSet(t.Context(), s.key(kindEndpoint), "gate", b).Err())
}

// gateState are the fields of lua/gate.lua.
type gateState struct {
	hold           int64
	open           byte
	failures       uint16
	probes         uint16
	rate, calm     float64
	forward, since int64
}

func (s *env) attempts(t *testing.T, state string) []AttemptRecord {
	t.Helper()
	return get(s.Webhooks.Attempts(t.Context(), s.account, state))(t)
}

func (s *env) outcomes(t testing.TB) []AttemptRecord {
	t.Helper()
	entries := get(s.rdb.XRange(t.Context(), s.partitions[0].key(kindOutcomes), "-", "+").Result())(t)
	var all []AttemptRecord
	for _, entry := range entries {
		if entry.Values["a"] != string(s.account[:]) {
			continue
		}
		records := get(s.partitions[0].decodeOutcomes(entry.Values))(t)
		all = append(all, records...)
	}
	return all
}

// due is an event's place in the schedule of retries; zero: it is not there.
func (s *env) due(t *testing.T, d *Delivery) time.Time {
	t.Helper()
	score, err := s.rdb.ZScore(t.Context(), s.key(kindRetries), d.item).Result()
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(score)).UTC()
}

// unpaced forgets what the rate limiter has counted, as if a second had passed
// for it: it reads the server's clock, which tests cannot move.
func (s *env) unpaced(t testing.TB) {
	t.Helper()
	must(t, s.rdb.Del(t.Context(), "rate:"+s.partitions[0].prefix+"pace:"+s.account.String()).Err())
}

// take leases n events, however slowly they are handed out.
func (s *env) take(t *testing.T, n int) (ds []*Delivery) {
	t.Helper()
	for empty := 0; len(ds) < n; {
		s.unpaced(t)
		more, _ := get2(s.Queue.Lease(t.Context(), 0, grant(n-len(ds))))(t)
		if ds = append(ds, more...); len(more) > 0 {
			empty = 0
		} else if empty++; empty == 3 {
			t.Fatalf("%d events leased, want %d", len(ds), n)
		}
		s.pass(t, time.Second)
	}
	return ds
}

func eventIDs(ds []*Delivery) []string {
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.EventID
	}
	slices.Sort(ids)
	return ids
}

// What lua/gate.lua begins and ends a recovery with, events a second.
const (
	firstRate = 10
	fullRate  = 2000
)

const lease = time.Minute

func grant(limit int) Grant { return Grant{Limit: limit, Share: 32, InFlight: 32, Lease: lease} }

// breakerAt is how many failures in a row open the breaker, in tests that are
// not about it.
const breakerAt = 60_000

// pump moves everything from the account's stream to its queue.
func (s *env) pump(t *testing.T, n int) {
	t.Helper()
	entries := collect(t, s.Ledger, RoleWebhook, "pump", n)
	for range 2 { // a repeated call queues nothing twice
		get(s.Queue.Add(t.Context(), partitionNumber(s.account, len(s.partitions)), entries, noGrant))(t)
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
	ds, _ := get2(s.Queue.Lease(t.Context(), partitionNumber(s.account, len(s.partitions)), grant(100)))(t)
	require(t, len(ds) == want, "%d events leased, want %d", len(ds), want)
	return ds
}

func (s *env) register(t *testing.T) *WebhookEndpoint {
	t.Helper()
	e, secret := get2(s.Webhooks.SetURL(t.Context(), s.account, "https://vendor.example/hook"))(t)
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
