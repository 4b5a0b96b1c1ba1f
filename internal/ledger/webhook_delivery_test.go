package ledger

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

func TestDelivery_NoVersionIsForgottenWhenTheURLGoes(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	o := s.moved(t, delivery.Assigned, delivery.PickingUp)
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	s.advance(t, o.ID, delivery.PickedUp, delivery.Delivered)
	s.pump(t, 2)
	wantCode(t, s.Webhooks.Delete(t.Context(), s.account), delivery.CodeWebhookNotConfigured)
	wantCode(t, errOf(s.Webhooks.Endpoint(t.Context(), s.account)), delivery.CodeWebhookNotConfigured)
	for range 5 {
		s.lease(t, 0)
	}
	seen := make(map[string]int)
	for _, a := range s.outcomes(t) {
		check(t, a.State == "notSent", "outcome %+v", a)
		seen[a.EventID]++
	}
	for sequence := uint64(2); sequence <= 5; sequence++ {
		check(t, seen[delivery.EventID(o.ID, 1<<32|sequence)] == 1, "version %d has %d outcomes, want 1", sequence, seen[delivery.EventID(o.ID, 1<<32|sequence)])
	}
}

// Neither what was being sent when the URL went nor the versions behind it come
// back with another one; those after that are sent.
func TestDelivery_NoVersionIsForgottenWhenTheURLComesBack(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	o := s.moved(t, delivery.Assigned, delivery.PickingUp)
	s.one(t)
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	s.advance(t, o.ID, delivery.PickedUp)
	s.pump(t, 1)
	s.register(t)
	s.lease(t, 0)
	s.advance(t, o.ID, delivery.Delivering)
	s.pump(t, 1)
	s.ends(t, accepts, s.one(t))
	got := s.outcomes(t)
	check(t, len(got) == 4 && got[2].State == outcomeNotSent && got[3].State == outcomeDelivered, "%d outcomes, want 4: %+v", len(got), got)
}

func TestDelivery_EndedEventsLeaveNothingBehind(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *env, []*Delivery){
		"delivered": func(t *testing.T, s *env, ds []*Delivery) { s.ends(t, accepts, ds...) },
		"given up":  func(t *testing.T, s *env, ds []*Delivery) { s.ends(t, failsFor(0), ds...) },
		"expired": func(t *testing.T, s *env, ds []*Delivery) {
			s.ends(t, expires, ds...)
		},
		"not sent": func(t *testing.T, s *env, ds []*Delivery) {
			must(t, s.Webhooks.Delete(t.Context(), s.account))
			s.ends(t, failsFor(time.Second), ds...)
			s.pass(t, time.Second)
			s.lease(t, 0)
		},
	} {
		for attempts := range 3 {
			s := newWebhookEnv(t, breakerAt)
			s.publish(t, 2)
			ds := s.lease(t, 2)
			for range attempts {
				s.ends(t, failsFor(time.Second), ds...)
				s.pass(t, time.Second)
				ds = s.lease(t, 2)
			}
			end(t, s, ds)
			for _, kind := range []byte{kindQueue, kindRetries, kindLeases, kindAttempts} {
				n := s.rdb.Exists(t.Context(), s.key(kind)).Val()
				check(t, n == 0, "%s after %d failures: key %c is still there", name, attempts, kind)
			}
			got := s.outcomes(t)
			check(t, len(got) == 2, "%s after %d failures: %d outcomes, want 2", name, attempts, len(got))
		}
	}
}

func TestDelivery_UnreadableIsNotGone(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.moved(t, delivery.Assigned)
	s.publish(t, 1)
	for _, d := range s.lease(t, 2) {
		for _, test := range []struct {
			err  error
			gone bool
		}{{redis.Nil, true}, {io.ErrUnexpectedEOF, false}} {
			reason, err := d.fill(s.partitions[0], redis.NewStringResult("", test.err))
			check(t, (reason != "") == test.gone && (err == nil) == test.gone, "%s, %v: reason %q, error %v", d.EventID, test.err, reason, err)
		}
	}
}

func TestDelivery_WithoutRecordIsNotSent(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	o := s.moved(t, delivery.Assigned)
	s.publish(t, 1)
	must(t, s.rdb.Del(t.Context(), s.partitions[0].order(o.ID.Digest())).Err())
	bodies := get(s.rdb.Keys(t.Context(), s.partitions[0].prefix+"n*").Result())(t)
	must(t, s.rdb.Del(t.Context(), bodies...).Err())
	s.lease(t, 0)
	got := s.outcomes(t)
	require(t, len(got) == 2 && got[0].State == "notSent" && got[1].State == "notSent" && got[0].Error != got[1].Error, "outcomes %+v", got)
	check(t, got[0].EventID == delivery.EventID(o.ID, 1<<32|2) && got[0].OrderID == o.ID.String() && got[1].EventID != "" && got[1].OrderID == "",
		"outcomes %+v", got)
	e := s.endpoint(t)
	check(t, e.NotSent == 2 && e.Backlog == 0 && e.RecentFailed == 0 && e.State == EndpointHealthy, "endpoint %+v", e)
}

// What operators see of a receiver: a failure does not make unreachable and gone
// look better, a success does.
func TestDelivery_StateOfTheEndpoint(t *testing.T) {
	gone := func(s *env, d *Delivery) Outcome {
		o := failsFor(time.Hour)(s, d)
		o.Status, o.Gone = 410, true
		return o
	}
	s := newWebhookEnv(t, breakerAt)
	since := s.endpoint(t).StateSince
	for i, step := range []struct {
		answer answer
		want   EndpointState
	}{
		{accepts, EndpointHealthy}, {failsFor(time.Hour), EndpointFailing}, {failsFor(time.Hour), EndpointFailing},
		{failsFor(0), EndpointUnreachable}, {failsFor(time.Hour), EndpointUnreachable}, {accepts, EndpointHealthy},
		{gone, EndpointGone}, {failsFor(time.Hour), EndpointGone}, {accepts, EndpointHealthy}, {accepts, EndpointHealthy},
	} {
		before := s.endpoint(t).State
		s.pass(t, time.Second)
		s.publish(t, 1)
		s.ends(t, step.answer, s.one(t))
		if before != step.want {
			since = s.now()
		}
		e := s.endpoint(t)
		check(t, e.State == step.want && e.StateSince.Equal(since), "step %d: %s since %s, want %s since %s", i, e.State, e.StateSince, step.want, since)
	}
}

// largestBatch is the most entries that a worker may be configured to queue at
// once (dispatch.Settings).
const largestBatch = 10_000

func (s *env) read(t *testing.T, event func(i int) string) []redis.XMessage {
	t.Helper()
	key := s.partitions[0].key(kindEvents)
	pipe := s.rdb.Pipeline()
	for i := range largestBatch {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"e", event(i)}})
	}
	pipe.XGroupCreate(t.Context(), key, string(RoleWebhook), "0")
	found := pipe.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: string(RoleWebhook), Consumer: "c", Streams: []string{key, ">"}, Count: largestBatch, Block: -1})
	_, err := pipe.Exec(t.Context())
	if !redis.HasErrorPrefix(err, "BUSYGROUP") {
		must(t, err)
	}
	return found.Val()[0].Messages
}

func (s *env) settled(t *testing.T) {
	t.Helper()
	pending := get(s.rdb.XPending(t.Context(), s.partitions[0].key(kindEvents), string(RoleWebhook)).Result())(t)
	check(t, pending.Count == 0, "%d entries are not settled", pending.Count)
}

func TestQueue_LargestBatchOfEvents(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	messages := s.read(t, func(i int) string { return fmt.Sprintf("\x02evt_%d", i) })
	args := []any{s.partitions[0].prefix, string(RoleWebhook), 0, 32, 32, lease.Milliseconds() * 1000}
	for _, m := range messages {
		args = append(args, m.ID, text(m.Values["e"]), s.account[:])
	}
	get(s.run(t.Context(), "queue_events", []string{s.partitions[0].key(kindEvents)}, args...))(t)
	equal(t, s.endpoint(t).Backlog, largestBatch, "events wait")
	s.settled(t)
}

func TestQueue_LargestBatchOfCreations(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	messages := s.read(t, func(i int) string {
		id := delivery.MakeOrderID(0, 1, delivery.OrderDigest(s.account, fmt.Sprint(i)))
		return string(appendOrderEvent(nil, id, 1<<32|1))
	})
	reader := newFeedReader(s.core, &Feed{Role: RoleWebhook, Consumer: "c", Log: func(string, ...any) {}}, s.partitions)
	entries := reader.parse(t.Context(), streamRef{s.partitions[0], s.partitions[0].key(kindEvents)}, messages)
	get(s.Queue.Add(t.Context(), 0, entries, noGrant))(t)
	s.settled(t)
}
