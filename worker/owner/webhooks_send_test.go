package owner

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/webhook"
	"vendorapi/worker/dispatch"
)

//rule:order-status-delivery-state/the-same-object-without-events order-status-delivery-state/location.latitude-location.longitude
//rule:webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to authentication/5 events/the-service-posts-each-event
//rule:request-headers/X-Service-Signature request-headers/X-Service-Event request-headers/X-Service-Attempt request-headers/Content-Type
//rule:body-envelope/eventId body-envelope/event body-envelope/occurredAt body-envelope/data event-types/delivery.status_changed delivery-rules/6
//rule:webhooks/exactly-the-spec-s-headers-and webhooks/courier-surnames-are-abbreviated-in
func TestWebhooks_KeepToTheContract(t *testing.T) {
	h := newHooks(t, nil)
	h.start("w1")
	o := h.order()
	at := time.Now()
	h.Report(delivery.Update{Order: o.ID, Kind: delivery.KindAccept, Status: delivery.Assigned, At: at, Courier: testenv.Courier,
		Location: delivery.Location{Point: delivery.Point{Latitude: 40.985, Longitude: 29.025}, At: at}})
	q := h.await(1)[0]
	h.check(q, h.secret, h.secret)
	for name, want := range map[string]string{
		"X-Service-Event": "delivery.status_changed", "X-Service-Attempt": "1",
		"Content-Type": "application/json", "User-Agent": "DeliveryVendorAPI-Webhooks/1",
	} {
		if got := q.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}

	o = h.Read(o.ID)
	if q.event.EventID != delivery.EventID(o.ID, o.Version) || !q.event.OccurredAt.Equal(o.Changes[0].At) {
		t.Errorf("%+v", q.event)
	}
	if d := q.event.Data; d.OrderID != o.ID.String() || d.Status != "Assigned" || d.Events != nil || d.Location == nil ||
		d.Courier == nil || d.Courier.Name != "Mehmet Y." {
		t.Errorf("%s", q.body)
	}

	if r := h.awaitAttempts(1)[0]; r.State != "delivered" || r.HTTPStatus != 200 || r.Attempt != 1 || r.EventID != q.event.EventID {
		t.Errorf("%+v", r)
	}

	h.AwaitSettled(ledger.RoleWebhook)
}

// A worker whose clock is behind signs by Redis's: receivers refuse a timestamp that is old, and a secret
// that has ended must not sign.
func TestWebhooks_AreSignedByRedissClock(t *testing.T) {
	const behind = 2 * time.Hour
	h := newHooks(t, nil)
	config := h.ConfigFor(stack.WorkerUser)
	config.Now = func() time.Time { return time.Now().Add(-behind) }
	l, err := ledger.Open(t.Context(), config)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	role := h.roleOf(l, "w1")
	role.Now = config.Now
	h.Start(role.Run)

	h.cancelled(time.Now())

	q := h.await(1)[0]
	stamp, err := strconv.ParseInt(q.header.Get(webhook.HeaderTimestamp), 10, 64)
	testenv.Must(t, err)
	if off := time.Since(time.Unix(stamp, 0)); off.Abs() > behind/2 {
		t.Errorf("signed as of %s before now", off)
	}
}

// The gateway writes a cancellation, the owner a time-out: their webhooks are no poorer than others.
//
//rule:order-status-delivery-state/the-same-object-without-events
func TestWebhooks_OfEveryEndShowWhatGETShows(t *testing.T) {
	h := newHooks(t, nil)
	h.start("w1")
	place := delivery.Point{Latitude: 40.985, Longitude: 29.025}
	ends := map[string]func(*delivery.Order){
		"Cancelled": func(o *delivery.Order) {
			_, _, err := h.Ledger.Orders.Cancel(t.Context(), o.Account, o.ID, delivery.CustomerRequest, "", time.Now())
			if err != nil {
				t.Fatal(err)
			}
		},
		"Failed": func(o *delivery.Order) {
			h.Report(delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Failed, Failure: delivery.OtherFailure, At: time.Now()})
		},
		"Delivered": func(o *delivery.Order) { h.Reach(o, delivery.Delivered, time.Now()) },
	}

	received := 0
	for status, end := range ends {
		o := h.order()
		h.Accept(o, time.Now())
		received++
		h.await(received)
		position := orders.Position{Order: o.ID, Location: delivery.Location{Point: place, At: time.Now()}}
		if ignored, err := h.Ledger.Orders.ReportLocations(t.Context(), h.Fleet.ID, []orders.Position{position}, time.Now()); err != nil || ignored != 0 {
			t.Fatal(ignored, err)
		}

		end(o)
		received++
		if status == "Delivered" { // with the steps that were skipped
			received += 3
		}

		last := h.await(received)[received-1]
		want := string(h.Read(o.ID).AppendStatus(nil, 0, false, true))
		data := last.event.Data
		isWhole := data.Status == status && data.Courier != nil && data.Location != nil && *data.Location == place
		if !isWhole || !strings.Contains(string(last.body), `"data":`+want) {
			t.Errorf("%s: %s, want the data %s", status, last.body, want)
		}
	}
}

//rule:what-the-service-does/5 order-states/every-status-change-produces-a events/the-service-posts-each-event event-types/delivery.status_changed
//rule:states/creation-itself-sends-no-webhook
func TestWebhooks_EveryChangeOnceAndInOrder(t *testing.T) {
	h := newHooks(t, nil)
	const orders = 10
	for range orders / 2 {
		h.reported("", delivery.Delivered)
	}

	h.start("w1")
	h.start("w2")
	for range orders / 2 {
		h.reported("", delivery.Delivered)
	}

	h.awaitTally(tally{delivered: 5 * orders})
	statuses := map[string][]string{}
	for _, q := range h.received() {
		statuses[q.event.Data.OrderID] = append(statuses[q.event.Data.OrderID], q.event.Data.Status)
	}

	for id, got := range statuses {
		if !slices.Equal(got, []string{"Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}) {
			t.Errorf("order %s: %v", id, got)
		}
	}

	h.AwaitSettled(ledger.RoleWebhook)
}

//rule:request-headers/X-Service-Attempt body-envelope/eventId delivery-rules/2 delivery-rules/3 webhooks/every-attempt-is-recorded-time
func TestWebhooks_RetryAcrossARestartWithTheSameBytes(t *testing.T) {
	h := newStandingHooks(t, func(w http.ResponseWriter, q request) {
		if q.attempt() == "1" && q.event.Data.Status == "Assigned" {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("try later"))
		}
	})

	stop := h.start("w1")
	o := h.reported("", delivery.Assigned)
	first := h.awaitAttempts(1)[0]
	stop()
	if first.State != "retrying" || first.HTTPStatus != 500 || first.Answer != "try later" || first.Error != "status: 500" {
		t.Errorf("%+v", first)
	}

	took := time.Duration(first.Millis) * time.Millisecond // in whole ones
	if gap := first.NextAt.Sub(first.At) - took; gap < 8*time.Second-time.Millisecond || gap > 13*time.Second {
		t.Errorf("the next attempt comes after %s", gap)
	}

	// What happens to the order meanwhile does not change the event.
	h.Reach(o, delivery.PickingUp, h.now())
	h.start("w2")
	h.await(2)
	h.setClock(first.NextAt.Add(-time.Millisecond))
	h.awaitIdle()
	if n := len(h.of(first.EventID)); n != 1 {
		t.Errorf("%d attempts before the second was due", n)
	}

	h.setClock(first.NextAt)
	h.Await("the second attempt", func() bool { return len(h.of(first.EventID)) == 2 })
	same := h.of(first.EventID)
	if !bytes.Equal(same[0].body, same[1].body) || same[1].attempt() != "2" {
		t.Errorf("first %s, then %s as attempt %s", same[0].body, same[1].body, same[1].attempt())
	}

	h.check(same[1], h.secret, h.secret)
	if r := h.awaitAttempts(3)[0]; r.EventID != first.EventID || r.Attempt != 2 || r.State != "delivered" || !r.At.Equal(first.NextAt) {
		t.Errorf("%+v", r)
	}

	h.setClock(h.now().Add(time.Minute))
	h.awaitTally(tally{delivered: 2, retried: 1})
}

// What is older than a day is given up, and sent under its own id when its vendor asks for it.
//
//rule:delivery-rules/2 webhooks/then-the-event-is-kept
func TestWebhooks_NeverGoAfterTheDeadlineUnlessReplayed(t *testing.T) {
	h := newHooks(t, nil)
	const late = 100
	expired := map[string]bool{}
	for range late {
		id := h.cancelled(time.Now().Add(-24*time.Hour - time.Minute))
		expired[id] = true
	}

	fresh := h.cancelled(time.Now())
	h.start("w1")
	if q := h.await(1)[0]; q.event.EventID != fresh {
		t.Errorf("sent %s", q.body)
	}

	h.awaitTally(tally{delivered: 1, undelivered: late})
	for _, r := range h.awaitAttempts(late + 1) {
		if r.EventID != fresh && (!expired[r.EventID] || r.State != "undelivered" || r.HTTPStatus != 0) {
			t.Errorf("%+v", r)
		}
	}

	if n, err := h.Ledger.Webhooks.ReplayOutcomes(t.Context(), h.vendor.Account, partitions.StateUndelivered, time.Now().Add(-time.Hour)); n != late || err != nil {
		t.Fatal(n, err)
	}

	for _, q := range h.await(late + 1)[1:] {
		h.check(q, h.secret, h.secret)
		if !expired[q.event.EventID] {
			t.Errorf("replayed as %s", q.event.EventID)
		}
		delete(expired, q.event.EventID)
	}

	h.awaitTally(tally{delivered: late + 1, undelivered: late})
}

//rule:webhooks/slow-or-dead-endpoints-never
func TestWebhooks_SlowEndpointsDoNotDelayOthers(t *testing.T) {
	h := newHooks(t, nil)
	release := make(chan struct{})
	defer close(release)
	var slow []*receiver
	for range 6 {
		v := h.Vendor()
		slow = append(slow, h.register(v, func(http.ResponseWriter, request) { <-release }))
		for range 40 {
			h.reportedOf(v, "", delivery.Assigned)
		}
	}

	h.start("w1", func(s *dispatch.Settings) { s.Concurrency, s.PerEndpoint = 128, 32 }) // fewer than the slow ones' caps together
	h.Await("all slow endpoints are being waited for", func() bool {
		return !slices.ContainsFunc(slow, func(rc *receiver) bool { now, _ := rc.atOnce(); return now < 4 })
	})
	for i := range 20 { // all of them while the slow ones answer nothing
		h.reported("", delivery.Assigned)
		h.await(i + 1)
	}

	for i, rc := range slow {
		if _, most := rc.atOnce(); most > 32 {
			t.Errorf("slow endpoint %d had %d requests at once", i, most)
		}
	}
}

//rule:webhooks/timeout-10-s-only-2xx
func TestWebhooks_MarkAGoneEndpointAndGoOn(t *testing.T) {
	h := newHooks(t, func(w http.ResponseWriter, _ request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusGone)
	})

	h.start("w1")
	h.reported("", delivery.Assigned)
	r := h.awaitAttempts(1)[0]
	wait := r.NextAt.Sub(r.At) - time.Duration(r.Millis)*time.Millisecond
	if r.State != "retrying" || r.HTTPStatus != 410 || wait.Round(time.Second) != time.Hour {
		t.Errorf("again after %s: %+v", wait, r)
	}
	if state := h.endpoint().State; state != partitions.EndpointGone {
		t.Errorf("the endpoint is %s", state)
	}
}

//rule:admin-api/post-accounts-id-webhook-rotate webhooks/after-a-rotation-the-standard
func TestWebhooks_SignWithBothSecretsAfterARotation(t *testing.T) {
	h := newHooks(t, nil)
	h.start("w1")
	h.reported("", delivery.Assigned)
	h.check(h.await(1)[0], h.secret, h.secret)
	renewed, err := h.Ledger.Webhooks.RotateSecret(t.Context(), h.vendor.Account, false)
	testenv.Must(t, err)
	h.reported("", delivery.Assigned)
	h.check(h.await(2)[1], h.secret, h.secret, renewed)
	_, err = h.Ledger.Webhooks.QueueTest(t.Context(), h.vendor.Account, time.Now())
	testenv.Must(t, err)
	ping := h.await(3)[2]
	if ping.event.Event != "webhook.test" {
		t.Errorf("%s", ping.body)
	}

	h.check(ping, renewed, h.secret, renewed)
	h.Await("the ping proves the new secret", func() bool { return h.endpoint().Proven })
	h.reported("", delivery.Assigned)
	h.check(h.await(4)[3], renewed, h.secret, renewed)
}

//rule:delivery-rules/3 decisions/sandbox
func TestWebhooks_DuplicateTriggerSendsTwice(t *testing.T) {
	h := newHooks(t, nil)
	h.start("w1")
	h.reported("SIM:DUPLICATE please", delivery.PickingUp)
	records := h.awaitAttempts(2)
	seen := map[string]int{}
	for _, q := range h.received() {
		h.check(q, h.secret, h.secret)
		seen[q.event.EventID]++
	}

	if len(records) != 2 || len(seen) != 2 || seen[records[0].EventID] != 2 || seen[records[1].EventID] != 2 {
		t.Errorf("%v, %d records", seen, len(records))
	}
}

//rule:delivery-rules/4 decisions/sandbox
func TestWebhooks_ReorderTriggerLetsLaterEventsOvertake(t *testing.T) {
	h := newStandingHooks(t, nil)
	h.start("w1")
	h.reported("SIM:REORDER", delivery.Delivered)
	h.await(2)
	h.awaitIdle()
	h.setClock(h.now().Add(3 * time.Second))
	var got []string
	for _, q := range h.await(5) {
		if q.attempt() != "1" {
			t.Errorf("held back events count as attempts: %v", q.header)
		}
		got = append(got, q.event.Data.Status)
	}

	slices.Sort(got[2:])
	if !slices.Equal(got, []string{"PickingUp", "Delivering", "Assigned", "Delivered", "PickedUp"}) {
		t.Errorf("%v", got)
	}
}

// gated answers nobody before so many wait.
func gated(most int) func(http.ResponseWriter, request) {
	var mu sync.Mutex
	arrived, together := 0, make(chan struct{})
	return func(http.ResponseWriter, request) {
		mu.Lock()
		wait := together
		arrived++
		if arrived%most == 0 {
			close(together)
			together = make(chan struct{})
		}

		mu.Unlock()
		<-wait
	}
}

func TestWebhooks_KeepToThePerEndpointCap(t *testing.T) {
	const most, events = 5, 30
	h := newHooks(t, gated(most))
	for range events {
		h.reported("", delivery.Assigned)
	}

	h.start("w1", func(s *dispatch.Settings) { s.PerEndpoint, s.Concurrency = most, 1024 })
	h.awaitAttempts(events)
	if _, n := h.atOnce(); n != most {
		t.Errorf("%d requests at once", n)
	}
}

func TestWebhooks_NewLimitsHoldAtOnce(t *testing.T) {
	h := newStandingHooks(t, nil)
	h.start("w1")
	limit := func(limits partitions.EndpointLimits) {
		h.change(func() error { return h.Ledger.Webhooks.SetLimits(t.Context(), h.vendor.Account, limits) })
	}
	h.cancelled(h.now())
	h.await(1)
	limit(partitions.EndpointLimits{PerSecond: 2})
	for range 10 {
		h.cancelled(h.now())
	}

	h.await(3)
	h.awaitIdle()
	for sent := 3; sent <= 7; sent += 2 {
		if n := len(h.received()); n != sent {
			t.Fatalf("%d sent at 2 a second, %d at once", n, sent)
		}
		h.setClock(h.now().Add(time.Second))
		h.awaitIdle()
	}

	limit(partitions.EndpointLimits{})
	h.await(11)
}

//rule:store-states/awaitingfleetapproval-to-active events/the-service-posts-each-event event-types/store.activated
func TestWebhooks_OfStores(t *testing.T) {
	h := newHooks(t, nil)
	h.start("w1")
	s := h.vendor.NewStore("branch-2", delivery.AwaitingFleetApproval)
	now := time.Now()
	testenv.Must(t, delivery.ConfirmStore(s, now))
	data := delivery.AppendStoreActivated(nil, s.ExternalID, s.Fleet, s.FleetName)
	notice := accounts.Notice{Account: h.vendor.Account, Type: delivery.StoreActivated, OccurredAt: now, Data: data}
	testenv.Must(t, h.Ledger.Stores.Write(t.Context(), s, notice))
	q := h.await(1)[0]
	h.check(q, h.secret, h.secret)
	if q.event.Event != "store.activated" || !bytes.Contains(q.body, data) {
		t.Errorf("%s", q.body)
	}
}
