package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

func TestReplay_ByEventAndSince(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	o := s.moved(t, delivery.Assigned, delivery.PickingUp)
	s.publish(t, 1)
	var ids []string
	for range 3 {
		d := s.leaseWith(t, grant(1), 1)[0]
		ids = append(ids, d.EventID)
		s.ends(t, accepts, d)
	}
	stranger := newAccount(t, s.Ledger, plenty())
	must(t, s.Webhooks.Publish(t.Context(), Notice{Account: stranger, Type: delivery.StoreActivated, OccurredAt: s.now(), Data: []byte(`{}`)}))
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, ids))(t), 3, "queued")
	for _, d := range s.lease(t, 3) {
		check(t, d.Attempt == 1 && d.Replay && d.Deadline.Equal(s.now().Add(24*time.Hour)), "replayed %+v", d)
		s.ends(t, accepts, d)
	}
	s.pass(t, 10*time.Minute) // past what Redis has stamped by its own clock meanwhile
	for since, want := range map[time.Duration]int{-48 * time.Hour: 3, time.Minute: 0} {
		n := get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(since)))(t)
		check(t, n == want, "since %s: %d queued, want %d", since, n, want)
	}
	for _, id := range []string{"evt_nonsense", delivery.EventID(o.ID, 1<<32|9), delivery.EventID(o.ID, 1<<32|1), delivery.EventID(o.ID, 7<<32|2)} {
		wantCode(t, errOf(s.Webhooks.ReplayEvents(t.Context(), s.account, []string{ids[0], id})), delivery.CodeEventNotFound)
	}
	wantCode(t, errOf(s.Webhooks.ReplayEvents(t.Context(), stranger, ids[:1])), delivery.CodeEventNotFound)
	wantCode(t, errOf(s.Webhooks.ReplaySince(t.Context(), stranger, time.Now().Add(-time.Hour))), delivery.CodeWebhookNotConfigured)
}

// ended counts the outcomes of each event: "state" or "state replay".
func (s *env) ended(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, a := range s.outcomes(t) {
		state := a.State
		if a.Replay {
			state += " replay"
		}
		all[a.EventID] = append(all[a.EventID], state)
	}
	return all
}

// mixture is an env with events of an order and of none, each ended in its way.
func mixture(t *testing.T) (s *env, delivered, undelivered, notSent []string) {
	t.Helper()
	s = newUnregistered(t, breakerAt)
	s.publish(t, 1)
	o := s.moved(t, delivery.Assigned)
	for id := range s.ended(t) {
		notSent = append(notSent, id)
	}
	s.register(t)
	s.advance(t, o.ID, delivery.PickingUp, delivery.PickedUp)
	s.pump(t, 2)
	s.publish(t, 2)
	for len(delivered)+len(undelivered) < 4 {
		for _, d := range s.take(t, 1) {
			if len(delivered) > len(undelivered) {
				s.ends(t, failsFor(0), d)
				undelivered = append(undelivered, d.EventID)
			} else {
				s.ends(t, accepts, d)
				delivered = append(delivered, d.EventID)
			}
		}
	}
	s.pass(t, 10*time.Minute)
	return s, delivered, undelivered, notSent
}

func TestReplay_ByOutcome(t *testing.T) {
	s, delivered, undelivered, notSent := mixture(t)
	other := s.beside(t) // its events are nobody else's
	other.publish(t, 1)
	other.ends(t, failsFor(0), s.one(t))
	replay := func(state string, since time.Time, want ...string) {
		t.Helper()
		n := get(s.Webhooks.ReplayOutcomes(t.Context(), s.account, state, since))(t)
		require(t, n == len(want), "%s: %d queued, want %d", state, n, len(want))
		ds := s.take(t, n)
		for _, d := range ds {
			check(t, d.Replay && d.Attempt == 1 && d.Deadline.Sub(s.now()) >= 23*time.Hour && d.Deadline.Sub(s.now()) <= 24*time.Hour, "%s: replayed %+v", state, d)
			s.ends(t, accepts, d)
		}
		slices.Sort(want)
		if got := eventIDs(ds); !slices.Equal(got, want) {
			t.Errorf("%s: replayed %v, want %v", state, got, want)
		}
		s.pass(t, time.Second)
	}
	yesterday := s.now().Add(-23 * time.Hour)
	replay("undelivered", s.now())
	replay("undelivered", yesterday, undelivered...)
	replay("notSent", yesterday, notSent...)
	// They have been delivered since.
	replay("undelivered", yesterday)
	replay("notSent", yesterday)
	ended := s.ended(t)
	for want, ids := range map[string][]string{"delivered": delivered, "undelivered": undelivered, "notSent": notSent} {
		for _, id := range ids {
			got := ended[id]
			check(t, len(got) != 0 && got[0] == want && (want == "delivered") == (len(got) == 1) && (len(got) <= 1 || len(got) <= 2 && got[1] == "delivered replay"),
				"%s ended as %q", id, got)
		}
	}
}

func TestReplay_EveryCycleEndsOnce(t *testing.T) {
	s, delivered, undelivered, notSent := mixture(t)
	all := slices.Concat(delivered, undelivered, notSent)
	for cycle := range 2 {
		n := get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour)))(t)
		require(t, n == len(all), "%d queued, want %d", n, len(all))
		for i, d := range s.take(t, n) {
			if i%2 == cycle {
				s.ends(t, failsFor(time.Second), d)
				s.pass(t, time.Second)
				d = s.one(t)
				require(t, d.Attempt == 2 && d.Replay, "a replay's retry: %+v", d)
			}
			s.ends(t, accepts, d)
		}
		s.pass(t, time.Second)
	}
	ended := s.ended(t)
	for _, id := range all {
		got := ended[id]
		check(t, len(got) == 3 && slices.Equal(got[1:], []string{"delivered replay", "delivered replay"}), "%s ended as %q", id, got)
	}
	for _, a := range s.attempts(t, "")[:2*len(all)] {
		check(t, a.Replay, "line of a replay: %+v", a)
	}
}

func TestReplay_NamedTwice(t *testing.T) {
	s, delivered, _, _ := mixture(t)
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, []string{delivered[0], delivered[1], delivered[0]}))(t), 2, "queued")
	s.ends(t, accepts, s.lease(t, 2)...)
}

// meanwhile does something once, before a command is sent.
type meanwhile struct {
	command string
	do      func()
	once    sync.Once
}

func (m *meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }
func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == m.command {
			m.once.Do(m.do)
		}
		return next(ctx, cmd)
	}
}

func TestReplay_OneAtATime(t *testing.T) {
	s, delivered, _, _ := mixture(t)
	other := s.beside(t)
	gateway := openTest(t, sameDatabase(s.Ledger), func(c *Config) { c.Now = s.now })
	since := s.now().Add(-time.Hour)
	refused := 0
	s.rdb.AddHook(&meanwhile{command: "xrange", do: func() {
		for _, replay := range []func() (int, error){
			func() (int, error) { return gateway.Webhooks.ReplaySince(t.Context(), s.account, since) },
			func() (int, error) { return gateway.Webhooks.ReplayOutcomes(t.Context(), s.account, "notSent", since) },
			func() (int, error) { return gateway.Webhooks.ReplayEvents(t.Context(), s.account, delivered) },
		} {
			_, err := replay()
			refusal := wantCode(t, err, delivery.CodeRateLimited)
			check(t, refusal.RetryAfter >= time.Second && refusal.RetryAfter <= time.Minute, "wait %s", refusal.RetryAfter)
			refused++
		}
		// Other accounts are not kept waiting.
		get(gateway.Webhooks.ReplaySince(t.Context(), other.account, since))(t)
	}})
	n := get(s.Webhooks.ReplaySince(t.Context(), s.account, since))(t)
	check(t, n == 6 && refused == 3 && s.endpoint(t).Backlog == 6, "%d queued, %d refused, %+v", n, refused, s.endpoint(t))
	// It is over when it is over, also one that failed.
	wantCode(t, errOf(gateway.Webhooks.ReplayEvents(t.Context(), s.account, []string{"evt_unknown"})), delivery.CodeEventNotFound)
	get(gateway.Webhooks.ReplayEvents(t.Context(), s.account, delivered))(t)
}

func TestReplay_LosesItsEndpoint(t *testing.T) {
	s, delivered, _, _ := mixture(t)
	s.rdb.AddHook(&meanwhile{command: "xrange", do: func() { must(t, s.Webhooks.Delete(t.Context(), s.account)) }})
	wantCode(t, errOf(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour))), delivery.CodeWebhookNotConfigured)
	wantCode(t, errOf(s.Webhooks.ReplayOutcomes(t.Context(), s.account, "undelivered", s.now().Add(-time.Hour))), delivery.CodeWebhookNotConfigured)
	wantCode(t, errOf(s.Webhooks.ReplayEvents(t.Context(), s.account, delivered)), delivery.CodeWebhookNotConfigured)
}

func TestEndpoints_ListsThoseWithAURL(t *testing.T) {
	s := newUnregistered(t, 1)
	equal(t, len(get(s.Webhooks.Endpoints(t.Context()))(t)), 0, "endpoints")
	s.register(t)
	vendors := []*env{s, s.beside(t), s.beside(t)}
	gone := s.beside(t)
	gone.publish(t, 1) // its events wait to be recorded as not sent
	must(t, gone.Webhooks.Delete(t.Context(), gone.account))
	s.publish(t, 3)
	s.ends(t, failsFor(time.Hour), s.lease(t, 3)[0])
	must(t, vendors[1].Webhooks.SetLimits(t.Context(), vendors[1].account, EndpointLimits{InFlight: 5, PerSecond: 9}))
	all := get(s.Webhooks.Endpoints(t.Context()))(t)
	found := make(map[delivery.AccountID]*WebhookEndpoint)
	for _, e := range all {
		found[e.Account] = e
	}
	require(t, len(all) == 3 && len(found) == 3, "%d endpoints", len(all))
	for _, one := range vendors {
		got, want := fmt.Sprintf("%+v", *found[one.account]), fmt.Sprintf("%+v", *one.endpoint(t))
		check(t, got == want, "listed as %s, alone %s", got, want)
	}
	if e := found[s.account]; !e.BreakerOpen || e.Backlog != 3 || found[vendors[1].account].Limits.PerSecond != 9 {
		t.Errorf("endpoint %+v", e)
	}
}

// waiting is what waits for the account's receiver.
func (s *env) waiting(t *testing.T) int {
	t.Helper()
	return int(s.endpoint(t).Backlog)
}

//rule:webhooks/an-event-waits-at-most
func TestReplay_AnEventWaitsOnce(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	o := s.moved(t, delivery.Assigned, delivery.PickingUp)
	s.publish(t, 1)
	s.pass(t, 10*time.Minute) // past what Redis has stamped by its own clock meanwhile
	since := s.now().Add(-time.Hour)
	ids := []string{delivery.EventID(o.ID, 1<<32|2), delivery.EventID(o.ID, 1<<32|3)}
	replay := func(want, waiting int) {
		t.Helper()
		for range 40 {
			equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, since))(t), want, "replayed")
			equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, ids))(t), len(ids), "replayed by their ids")
		}
		equal(t, s.waiting(t), waiting, "events wait")
	}
	replay(3, 2) // the second version waits behind the first
	ds := s.lease(t, 2)
	replay(3, 2) // being sent
	s.ends(t, failsFor(time.Hour), ds...)
	replay(3, 3) // for their next attempts, and the second version for its first
	ds = s.lease(t, 3)
	check(t, ds[0].Attempt == 2 && ds[1].Attempt == 2 && ds[2].Attempt == 1, "a replay makes them due: %+v", ds)
	s.ends(t, accepts, ds...)
	replay(3, 3) // now as replays
	for attempt := 1; attempt <= 2; attempt++ {
		ds = s.lease(t, 3)
		for _, d := range ds {
			check(t, d.Replay && d.Attempt == attempt, "%+v", d)
		}
		replay(3, 3)
		s.ends(t, failsFor(time.Hour), ds...)
		replay(3, 3)
	}
	s.ends(t, failsFor(0), s.lease(t, 3)...) // given up
	replay(3, 3)
	s.ends(t, accepts, s.lease(t, 3)...)
	equal(t, s.waiting(t), 0, "events wait")
	equal(t, s.rdb.Exists(t.Context(), s.key(kindWaiting)).Val(), 0, "keys of what waits")
}

func TestReplay_NoMoreThanMayWait(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 8)
	s.ends(t, accepts, s.lease(t, 8)...)
	s.pass(t, 10*time.Minute)
	since := s.now().Add(-time.Hour)
	var ids []string
	for id := range s.ended(t) {
		ids = append(ids, id)
	}
	s.mostWaiting = 5
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, ids[:3]))(t), 3, "replayed")
	refusal := wantCode(t, errOf(s.Webhooks.ReplaySince(t.Context(), s.account, since)), delivery.CodeRateLimited)
	check(t, refusal.RetryAfter > 0 && strings.HasPrefix(refusal.Message, "0 events of this replay were queued"), "%+v", refusal)
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, ids[:5]))(t), 5, "replayed") // three of them wait already
	equal(t, s.waiting(t), 5, "events wait")
	s.ends(t, accepts, s.lease(t, 5)...)
	s.mostWaiting = 8
	equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, since))(t), 8, "replayed")
	// Another account's queue is its own.
	other := s.beside(t)
	other.publish(t, 1)
	equal(t, get(s.Webhooks.ReplaySince(t.Context(), other.account, since))(t), 1, "replayed of another account") // it waits for the first time
	equal(t, other.waiting(t), 1, "events of another account wait")
}

// What an older release has settled does not stay as waiting.
func TestReplay_AfterAnOlderRelease(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 1)
	d := s.one(t)
	s.ends(t, accepts, d)
	must(t, s.rdb.HSet(t.Context(), s.key(kindWaiting), d.item, d.item).Err())
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, []string{d.EventID}))(t), 1, "replayed")
	check(t, s.one(t).Replay, "not sent")
}

// A receiver that was unavailable for longer than a day costs no call for each event.
//
//rule:webhooks/then-the-event-is-kept
func TestReplay_LateEventsLeaveTogether(t *testing.T) {
	s := newWebhookEnv(t, 1)
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.one(t)) // opens the breaker
	const late = 3*dropPage + 7
	s.publish(t, late)
	s.pass(t, 25*time.Hour)
	s.publish(t, 2)
	d := s.one(t)
	require(t, d.Deadline.Before(s.now()), "%+v", d)
	equal(t, get(s.Queue.DropExpired(t.Context(), d, s.now()))(t), late-1, "dropped")
	equal(t, get(s.Queue.DropExpired(t.Context(), d, s.now()))(t), 0, "dropped again")
	s.ends(t, expires, d)
	e := s.endpoint(t)
	check(t, e.Backlog == 2 && e.Undelivered == late+1 && e.State == EndpointUnreachable, "%+v", e)
	equal(t, len(s.outcomes(t)), late+1, "outcomes")
	for _, a := range s.attempts(t, "")[1:100] {
		check(t, a.State == outcomeUndelivered && a.Error == ExpiredError && a.Attempt == 0, "%+v", a)
	}
	d = s.one(t)
	check(t, d.Deadline.After(s.now()), "%+v", d)
}
