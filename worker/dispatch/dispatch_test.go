package dispatch

import (
	"bytes"
	"context"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

//rule:order-status-delivery-state/the-same-object-without-events order-status-delivery-state/location.latitude-location.longitude
//rule:webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to authentication/5 events/the-service-posts-each-event
//rule:request-headers/X-Service-Signature request-headers/X-Service-Event request-headers/X-Service-Attempt request-headers/Content-Type
//rule:body-envelope/eventId body-envelope/event body-envelope/occurredAt body-envelope/data event-types/delivery.status_changed delivery-rules/6
//rule:webhooks/exactly-the-spec-s-headers-and webhooks/courier-surnames-are-abbreviated-in
func TestRole_SendsTheContract(t *testing.T) {
	e := newEnv(t, nil)
	e.startRole("w1")
	o := e.moved("", delivery.Assigned)
	q := e.await(1)[0]
	e.check(q, e.secret, e.secret)
	for name, want := range map[string]string{
		"X-Service-Event": "delivery.status_changed", "X-Service-Attempt": "1",
		"Content-Type": "application/json", "User-Agent": "DeliveryVendorAPI-Webhooks/1",
	} {
		if got := q.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if q.event.EventID != delivery.EventID(o.ID, o.Version) || !q.event.OccurredAt.Equal(o.Changes[0].At) {
		t.Errorf("%+v", q.event)
	}
	if d := q.event.Data; d.OrderID != o.ID.String() || d.Status != "Assigned" || d.Events != nil || d.Location == nil ||
		d.Courier == nil || d.Courier.Name != "Mehmet Y." {
		t.Errorf("%s", q.body)
	}
	if r := e.awaitAttempts(1)[0]; r.State != "delivered" || r.HTTPStatus != 200 || r.Attempt != 1 || r.EventID != q.event.EventID {
		t.Errorf("%+v", r)
	}
	e.AwaitSettled(ledger.RoleWebhook)
}

//rule:what-the-service-does/5 order-states/every-status-change-produces-a events/the-service-posts-each-event event-types/delivery.status_changed
//rule:states/creation-itself-sends-no-webhook
func TestRole_SendsEveryChangeOnceAndInOrder(t *testing.T) {
	e := newEnv(t, nil)
	const orders = 10
	for range orders {
		e.moved("", delivery.Delivered)
	}
	e.startRole("w1")
	e.startRole("w2")
	e.await(5 * orders)
	e.awaitAttempts(5 * orders)
	statuses := map[string][]string{}
	for _, q := range e.received() {
		statuses[q.event.Data.OrderID] = append(statuses[q.event.Data.OrderID], q.event.Data.Status)
	}
	for id, got := range statuses {
		if !slices.Equal(got, []string{"Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}) {
			t.Errorf("order %s: %v", id, got)
		}
	}
}

// Neither a new event nor those that follow it wait for somebody to look at the
// queue: what queues and what records hand out what is next.
func TestRole_SendsWithoutLookingAtTheQueue(t *testing.T) {
	e := newEnv(t, nil)
	r := e.newRole("w1")
	e.Start(func(ctx context.Context) error { // Run without the dispatchers
		var recording sync.WaitGroup
		for _, c := range r.recorders {
			recording.Go(func() { c.run(ctx, context.WithoutCancel(ctx)) })
		}
		err := r.feed(ctx, context.WithoutCancel(ctx))
		r.sends.Wait()
		for _, c := range r.recorders {
			close(c.results)
		}
		recording.Wait()
		return err
	})
	for i := range 3 {
		e.moved("", delivery.Delivered)
		e.await(5 * (i + 1))
	}
}

//rule:request-headers/X-Service-Attempt body-envelope/eventId delivery-rules/2 delivery-rules/3 webhooks/every-attempt-is-recorded-time
func TestRole_RetriesAcrossARestartWithTheSameBytes(t *testing.T) {
	e := newEnvWithClock(t, time.Now(), func(w http.ResponseWriter, q request) {
		if q.header.Get("X-Service-Attempt") == "1" {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("try later"))
		}
	})
	stop := e.startRole("w1")
	o := e.moved("", delivery.Assigned)
	first := e.awaitAttempts(1)[0]
	stop()
	if first.State != "retrying" || first.HTTPStatus != 500 || first.Answer != "try later" || first.Error != "status: 500" {
		t.Errorf("%+v", first)
	}
	if gap := first.NextAt.Sub(first.At); gap < 8*time.Second || gap > 13*time.Second {
		t.Errorf("the next attempt comes after %s", gap)
	}
	// What happens to the order meanwhile does not change the event.
	e.Move(o, delivery.PickingUp, e.now())
	e.startRole("w1")
	e.AwaitSettled(ledger.RoleWebhook)
	e.SetClock(first.NextAt.Add(-time.Millisecond))
	if n := len(e.of(first.EventID)); n != 1 {
		t.Errorf("%d attempts before the second was due", n)
	}
	e.SetClock(first.NextAt)
	e.Await("the second attempt", func() bool { return len(e.of(first.EventID)) == 2 })
	same := e.of(first.EventID)
	if !bytes.Equal(same[0].body, same[1].body) || same[1].header.Get("X-Service-Attempt") != "2" {
		t.Errorf("first %s, then %s as attempt %s", same[0].body, same[1].body, same[1].header.Get("X-Service-Attempt"))
	}
	e.check(same[1], e.secret, e.secret)
	e.Await("its record", func() bool {
		return slices.ContainsFunc(e.attempts(), func(r ledger.AttemptRecord) bool {
			return r.EventID == first.EventID && r.Attempt == 2 && r.State == "delivered" && !r.At.Before(first.NextAt)
		})
	})
}

// What is older than a day is given up, and sent under its own id when its vendor
// asks for it.
//
//rule:delivery-rules/2 webhooks/then-the-event-is-kept
func TestRole_NeverSendsAfterTheDeadlineUnlessReplayed(t *testing.T) {
	e := newEnv(t, nil)
	yesterday := time.Now().Add(-24*time.Hour - time.Minute)
	o := e.vendor.Order("", yesterday)
	e.Move(o, delivery.Assigned, yesterday)
	eventID := delivery.EventID(o.ID, e.Read(o.ID).Version)
	e.Move(o, delivery.PickingUp, time.Now())
	e.startRole("w1")
	if q := e.await(1)[0]; q.event.Data.Status != "PickingUp" {
		t.Errorf("sent %s", q.event.Data.Status)
	}
	if r := e.awaitAttempts(2)[1]; r.State != "undelivered" || r.HTTPStatus != 0 || r.EventID != eventID {
		t.Errorf("%+v", r)
	}
	if n := e.endpoint().Undelivered; n != 1 {
		t.Errorf("%d undelivered", n)
	}
	if n, err := e.Ledger.Webhooks.ReplayEvents(t.Context(), e.vendor.Account, []string{eventID}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	q := e.await(2)[1]
	e.check(q, e.secret, e.secret)
	if q.event.EventID != eventID {
		t.Errorf("replayed as %s", q.event.EventID)
	}
}

//rule:webhooks/slow-or-dead-endpoints-never
func TestRole_SlowEndpointsDoNotDelayOthers(t *testing.T) {
	e := newEnv(t, nil)
	release := make(chan struct{})
	defer close(release)
	var slow []*receiver
	for range 6 {
		v := e.Vendor()
		slow = append(slow, register(e.Env, v, e.now, func(http.ResponseWriter, request) { <-release }))
		for range 40 {
			e.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
		}
	}
	r := e.newRole("w1")
	r.slots = make(chan struct{}, 128) // fewer than the slow ones' caps together
	e.Start(r.Run)
	e.Await("all slow endpoints are being waited for", func() bool {
		return !slices.ContainsFunc(slow, func(rc *receiver) bool { now, _ := rc.atOnce(); return now < 4 })
	})
	for i := range 20 { // all of them while the slow ones answer nothing
		e.moved("", delivery.Assigned)
		e.await(i + 1)
	}
	for i, rc := range slow {
		if _, most := rc.atOnce(); most > 32 {
			t.Errorf("slow endpoint %d had %d requests at once", i, most)
		}
	}
}

func TestRole_SendsWhatADeadWorkerHadLeased(t *testing.T) {
	e := newEnv(t, nil)
	e.moved("", delivery.Assigned)
	var leased atomic.Int64
	stop := e.Start(func(ctx context.Context) error {
		_ = e.Ledger.Streams.Run(ctx, ledger.Feed{Role: ledger.RoleWebhook, Consumer: "w1", Handle: func(ctx context.Context, batch []ledger.Entry) error {
			p := batch[0].Partition
			got, err := e.Ledger.Queue.Add(ctx, p, batch, ledger.Grant{Limit: 10, Share: 10, InFlight: 10, Lease: 300 * time.Millisecond})
			leased.Add(int64(len(got.Deliveries)))
			return err
		}})
		return nil
	})
	e.Await("the event is leased", func() bool { return leased.Load() == 1 })
	stop()
	e.startRole("w2")
	q := e.await(1)[0]
	e.check(q, e.secret, e.secret)
	if got := q.header.Get("X-Service-Attempt"); got != "1" {
		t.Errorf("attempt %s, but none was made before", got)
	}
}

func TestRole_ShutdownLetsSendsFinish(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	e := newEnv(t, func(http.ResponseWriter, request) { close(arrived); <-release })
	ctx, shutDown := context.WithCancel(t.Context())
	r := e.newRole("w1")
	stop := e.Start(func(context.Context) error { return r.Run(ctx) })
	e.moved("", delivery.Assigned)
	<-arrived
	shutDown()
	database := " db=" + path.Base(e.RedisURL) + " "
	e.Await("the end of the feed", func() bool { // after which Run waits for the sends
		for client := range strings.Lines(e.Do("CLIENT", "LIST").(string)) {
			if strings.Contains(client, database) && strings.Contains(client, " cmd=xreadgroup ") && strings.Contains(client, " flags=b ") {
				return false
			}
		}
		return e.Ledger.Ping(t.Context()) == nil
	})
	close(release)
	stop()
	if records := e.attempts(); len(records) != 1 || records[0].State != "delivered" || len(e.received()) != 1 {
		t.Errorf("%d requests, %+v", len(e.received()), records)
	}
}

//rule:webhooks/timeout-10-s-only-2xx
func TestRole_MarksAGoneEndpointAndGoesOn(t *testing.T) {
	e := newEnv(t, func(w http.ResponseWriter, _ request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusGone)
	})
	e.startRole("w1")
	e.moved("", delivery.Assigned)
	r := e.awaitAttempts(1)[0]
	wait := r.NextAt.Sub(r.At) - time.Duration(r.Millis)*time.Millisecond
	if r.State != "retrying" || r.HTTPStatus != 410 || wait.Round(time.Second) != time.Hour {
		t.Errorf("again after %s: %+v", wait, r)
	}
	if state := e.endpoint().State; state != ledger.EndpointGone {
		t.Errorf("the endpoint is %s", state)
	}
}

//rule:admin-api/post-accounts-id-webhook-rotate webhooks/after-a-rotation-the-standard
func TestRole_SignsWithBothSecretsAfterARotation(t *testing.T) {
	e := newEnv(t, nil)
	e.startRole("w1")
	renewed, err := e.Ledger.Webhooks.RotateSecret(t.Context(), e.vendor.Account, false)
	if err != nil {
		t.Fatal(err)
	}
	e.moved("", delivery.Assigned)
	e.check(e.await(1)[0], e.secret, e.secret, renewed)
	if _, err := e.Ledger.Webhooks.QueueTest(t.Context(), e.vendor.Account, time.Now()); err != nil {
		t.Fatal(err)
	}
	ping := e.await(2)[1]
	if ping.event.Event != "webhook.test" {
		t.Errorf("%s", ping.body)
	}
	e.check(ping, renewed, e.secret, renewed)
	e.Await("the ping proves the new secret", func() bool { return e.endpoint().Proven })
	e.moved("", delivery.Assigned)
	e.check(e.await(3)[2], renewed, e.secret, renewed)
}

//rule:delivery-rules/3 decisions/sandbox
func TestRole_DuplicateTriggerSendsTwice(t *testing.T) {
	e := newEnv(t, nil)
	e.startRole("w1")
	e.moved("SIM:DUPLICATE please", delivery.PickingUp)
	records := e.awaitAttempts(2)
	seen := map[string]int{}
	for _, q := range e.received() {
		e.check(q, e.secret, e.secret)
		seen[q.event.EventID]++
	}
	if len(records) != 2 || len(seen) != 2 || seen[records[0].EventID] != 2 || seen[records[1].EventID] != 2 {
		t.Errorf("%v, %d records", seen, len(records))
	}
}

//rule:delivery-rules/4 decisions/sandbox
func TestRole_ReorderTriggerLetsLaterEventsOvertake(t *testing.T) {
	e := newEnvWithClock(t, time.Now(), nil)
	e.startRole("w1")
	e.moved("SIM:REORDER", delivery.Delivered)
	e.await(2)
	e.SetClock(e.now().Add(2 * time.Second))
	var got []string
	for _, q := range e.await(5) {
		if q.header.Get("X-Service-Attempt") != "1" {
			t.Errorf("held back events count as attempts: %v", q.header)
		}
		got = append(got, q.event.Data.Status)
	}
	slices.Sort(got[2:])
	if !slices.Equal(got, []string{"PickingUp", "Delivering", "Assigned", "Delivered", "PickedUp"}) {
		t.Errorf("%v", got)
	}
}

// Two workers together keep to an endpoint's cap, and use it.
func TestRole_KeepsToThePerEndpointCap(t *testing.T) {
	const most, events = 5, 30
	var mu sync.Mutex
	arrived, together := 0, make(chan struct{})
	e := newEnv(t, func(http.ResponseWriter, request) {
		mu.Lock()
		wait := together
		if arrived++; arrived%most == 0 { // nobody is answered before so many wait
			close(together)
			together = make(chan struct{})
		}
		mu.Unlock()
		<-wait
	})
	for range events {
		e.moved("", delivery.Assigned)
	}
	for i := range 2 {
		r := e.newRole("w" + strconv.Itoa(i))
		r.settings.PerEndpoint = most
		e.Start(r.Run)
	}
	e.awaitAttempts(events)
	if _, n := e.atOnce(); n != most {
		t.Errorf("%d requests at once", n)
	}
}

//rule:store-states/awaitingfleetapproval-to-active events/the-service-posts-each-event event-types/store.activated
func TestRole_SendsStoreEvents(t *testing.T) {
	e := newEnv(t, nil)
	e.startRole("w1")
	s := e.vendor.NewStore("branch-2", delivery.AwaitingFleetApproval)
	now := time.Now()
	if err := delivery.ConfirmStore(s, now); err != nil {
		t.Fatal(err)
	}
	data := delivery.AppendStoreActivated(nil, s.ExternalID, s.Fleet, s.FleetName)
	notice := ledger.Notice{Account: e.vendor.Account, Type: delivery.StoreActivated, OccurredAt: now, Data: data}
	if err := e.Ledger.Stores.Write(t.Context(), s, notice); err != nil {
		t.Fatal(err)
	}
	q := e.await(1)[0]
	e.check(q, e.secret, e.secret)
	if q.event.Event != "store.activated" || !bytes.Contains(q.body, data) {
		t.Errorf("%s", q.body)
	}
}
