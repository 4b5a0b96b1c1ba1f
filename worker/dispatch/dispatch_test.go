package dispatch

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

//rule:order-status-delivery-state/the-same-object-without-events order-status-delivery-state/location.latitude-location.longitude
//rule:webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to authentication/5 events/the-service-posts-each-event
//rule:request-headers/X-Service-Signature request-headers/X-Service-Event request-headers/X-Service-Attempt request-headers/Content-Type
//rule:body-envelope/eventId body-envelope/event body-envelope/occurredAt body-envelope/data event-types/delivery.status_changed delivery-rules/6
//rule:webhooks/exactly-the-spec-s-headers-and webhooks/courier-surnames-are-abbreviated-in
func TestRole_SendsTheContract(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	o := v.Order("", time.Now())
	b.Move(o, delivery.Assigned, time.Now())
	q := rc.await(b, 1)[0]
	rc.check(q, rc.secret, rc.secret)
	for name, want := range map[string]string{
		"X-Service-Event": "delivery.status_changed", "X-Service-Attempt": "1",
		"Content-Type": "application/json", "User-Agent": "DeliveryVendorAPI-Webhooks/1",
	} {
		if got := q.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	e := q.event
	stored := b.Read(o.ID)
	if e.EventID != delivery.EventID(o.ID, stored.Version) || !e.OccurredAt.Equal(stored.Changes[0].At) {
		t.Errorf("%+v", e)
	}
	if e.Data.OrderID != o.ID.String() || e.Data.Status != "Assigned" || e.Data.Events != nil || e.Data.Location == nil ||
		e.Data.Courier == nil || e.Data.Courier.Name != "Mehmet Y." {
		t.Errorf("%s", q.body)
	}
	if r := awaitAttempts(b, v, 1)[0]; r.State != "delivered" || r.HTTPStatus != 200 || r.Attempt != 1 || r.EventID != e.EventID {
		t.Errorf("%+v", r)
	}
	b.AwaitSettled(ledger.RoleWebhook)
}

//rule:what-the-service-does/5 order-states/every-status-change-produces-a events/the-service-posts-each-event event-types/delivery.status_changed
//rule:states/creation-itself-sends-no-webhook
func TestRole_SendsEveryChangeOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, func(http.ResponseWriter, request) { time.Sleep(time.Millisecond) })
	orders := map[string][]string{}
	for range 20 {
		o := v.Order("", time.Now())
		orders[o.ID.String()] = nil
		b.Move(o, delivery.Delivered, time.Now())
	}
	b.Start(newRole(b.Ledger, "w1").Run)
	b.Start(newRole(b.Open(), "w2").Run)
	rc.await(b, 100)
	b.AwaitSettled(ledger.RoleWebhook)
	for _, q := range rc.received() {
		orders[q.event.Data.OrderID] = append(orders[q.event.Data.OrderID], q.event.Data.Status)
	}
	for id, got := range orders {
		if !slices.Equal(got, []string{"Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}) {
			t.Errorf("order %s: %v", id, got)
		}
	}
}

func TestRole_SendsWithinMilliseconds(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	var delays []time.Duration
	for i := range 30 {
		o := v.Order("", time.Now())
		committed := time.Now()
		b.Move(o, delivery.Assigned, committed)
		delays = append(delays, rc.await(b, i+1)[i].at.Sub(committed))
	}
	slices.Sort(delays)
	t.Logf("from the commit to the receiver: median %s, slowest %s", delays[15], delays[29])
	if delays[15] > 400*time.Millisecond { // looking once in maxPause would take 500
		t.Errorf("median %s", delays[15])
	}
}

func TestRole_FollowsUpOneOrdersEventsWithoutAPause(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	b.Move(v.Order("", time.Now()), delivery.Delivered, time.Now())
	requests := rc.await(b, 5)
	if took := requests[4].at.Sub(requests[0].at); took > maxPause/2 {
		t.Errorf("five events of one order took %s", took)
	}
}

//rule:request-headers/X-Service-Attempt body-envelope/eventId delivery-rules/2 delivery-rules/3 webhooks/every-attempt-is-recorded-time
func TestRole_RetriesAcrossARestartWithTheSameBytes(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, func(w http.ResponseWriter, q request) {
		if q.header.Get("X-Service-Attempt") == "1" {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("try later"))
		}
	})
	stop := b.Start(newRole(b.Ledger, "w1").Run)
	o := v.Order("", time.Now())
	b.Move(o, delivery.Assigned, time.Now())
	first := awaitAttempts(b, v, 1)[0]
	stop()
	if first.State != "retrying" || first.HTTPStatus != 500 || first.Answer != "try later" || first.Error != "status: 500" {
		t.Errorf("%+v", first)
	}
	if gap := first.NextAt.Sub(first.At); gap < 8*time.Second || gap > 13*time.Second {
		t.Errorf("the next attempt comes after %s", gap)
	}
	// What happens to the order meanwhile does not change the event.
	b.Move(o, delivery.PickingUp, time.Now())
	b.Start(newRole(b.Open(), "w1").Run)
	b.Await("the second attempt", func() bool { return len(rc.of(first.EventID)) == 2 })
	same := rc.of(first.EventID)
	if !bytes.Equal(same[0].body, same[1].body) || same[1].header.Get("X-Service-Attempt") != "2" {
		t.Errorf("first %s, then %s as attempt %s", same[0].body, same[1].body, same[1].header.Get("X-Service-Attempt"))
	}
	rc.check(same[1], rc.secret, rc.secret)
	if gap := same[1].at.Sub(first.NextAt); gap < 0 || gap > 2*time.Second {
		t.Errorf("sent %s after it was due", gap)
	}
}

//rule:delivery-rules/2 webhooks/then-the-event-is-kept
func TestRole_NeverSendsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	yesterday := time.Now().Add(-24*time.Hour - time.Minute)
	o := v.Order("", yesterday)
	b.Move(o, delivery.Assigned, yesterday)
	b.Move(o, delivery.PickingUp, time.Now())
	b.Start(newRole(b.Ledger, "w1").Run)
	q := rc.await(b, 1)[0]
	if q.event.Data.Status != "PickingUp" {
		t.Errorf("sent %s", q.event.Data.Status)
	}
	records := awaitAttempts(b, v, 2)
	if r := records[1]; r.State != "undelivered" || r.HTTPStatus != 0 {
		t.Errorf("%+v", r)
	}
	if e, err := b.Ledger.WebhookEndpoint(t.Context(), v.Account); err != nil || e.Undelivered != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

//rule:webhooks/slow-or-dead-endpoints-never
func TestRole_SlowEndpointsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	release := make(chan struct{})
	var slow []*receiver
	for range 6 {
		v := b.Vendor()
		slow = append(slow, register(b, v, func(_ http.ResponseWriter, q request) {
			select {
			case <-release:
			case <-time.After(5 * time.Second):
			}
		}))
		for range 40 {
			b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
		}
	}
	defer close(release)
	r := newRole(b.Ledger, "w1")
	r.slots = make(chan struct{}, 128) // fewer than the slow ones' caps together
	b.Start(r.Run)
	b.Await("all slow endpoints are being waited for", func() bool {
		for _, rc := range slow {
			if len(rc.received()) == 0 {
				return false
			}
		}
		return true
	})
	v := b.Vendor()
	rc := register(b, v, nil)
	var worst time.Duration
	for i := range 20 {
		o := v.Order("", time.Now())
		committed := time.Now()
		b.Move(o, delivery.Assigned, committed)
		worst = max(worst, rc.await(b, i+1)[i].at.Sub(committed))
	}
	t.Logf("slowest healthy webhook besides 6 slow endpoints: %s", worst)
	if worst > 500*time.Millisecond {
		t.Errorf("a healthy endpoint waited %s", worst)
	}
	for i, rc := range slow {
		rc.mu.Lock()
		if rc.most > 32 {
			t.Errorf("slow endpoint %d had %d requests at once", i, rc.most)
		}
		rc.mu.Unlock()
	}
}

func TestRole_SendsWhatADeadWorkerHadLeased(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	var leased atomic.Int64
	stop := b.Start(func(ctx context.Context) error {
		_ = b.Ledger.RunFeed(ctx, ledger.Feed{Role: ledger.RoleWebhook, Consumer: "w1", Handle: func(ctx context.Context, p int, batch []ledger.Entry) error {
			got, err := b.Ledger.QueueEvents(ctx, p, batch, ledger.Grant{Limit: 10, Share: 10, InFlight: 10, Lease: 300 * time.Millisecond})
			leased.Add(int64(len(got.Deliveries)))
			return err
		}})
		return nil
	})
	b.Await("the event is leased", func() bool { return leased.Load() == 1 })
	stop()
	r := newRole(b.Open(), "w2")
	b.Start(r.Run)
	q := rc.await(b, 1)[0]
	rc.check(q, rc.secret, rc.secret)
	if got := q.header.Get("X-Service-Attempt"); got != "1" {
		t.Errorf("attempt %s, but none was made before", got)
	}
}

func TestRole_ShutdownLetsSendsFinish(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	arrived := make(chan struct{})
	rc := register(b, v, func(http.ResponseWriter, request) {
		close(arrived)
		time.Sleep(500 * time.Millisecond)
	})
	stop := b.Start(newRole(b.Ledger, "w1").Run)
	b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	<-arrived
	stop()
	if records := attempts(b, v); len(records) != 1 || records[0].State != "delivered" {
		t.Errorf("%+v", records)
	}
	if n := len(rc.received()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestRole_RecordsAnAttemptAfterRedisWasAway(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	killed := make(chan struct{})
	rc := register(b, v, func(http.ResponseWriter, request) {
		b.Redis.Kill()
		close(killed)
	})
	b.Start(newRole(b.Ledger, "w1").Run)
	b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	<-killed
	time.Sleep(3 * time.Second) // an outage longer than the client's own retries
	if err := b.Redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the ledger answers", func() bool { return b.Ledger.Ping(t.Context()) == nil })
	if r := awaitAttempts(b, v, 1)[0]; r.State != "delivered" || r.Attempt != 1 {
		t.Errorf("%+v", r)
	}
	// The role goes on.
	rc.mu.Lock()
	rc.answer = nil
	rc.mu.Unlock()
	b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	if n := len(rc.await(b, 2)); n != 2 {
		t.Errorf("%d requests", n)
	}
}
