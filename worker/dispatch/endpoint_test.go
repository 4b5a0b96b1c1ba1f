package dispatch

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

//rule:webhooks/timeout-10-s-only-2xx
func TestRole_MarksAGoneEndpointAndGoesOn(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	register(b, v, func(w http.ResponseWriter, _ request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusGone)
	})
	b.Start(newRole(b.Ledger, "w1").Run)
	b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	r := awaitAttempts(b, v, 1)[0]
	if wait := r.NextAt.Sub(r.At).Round(time.Second); r.State != "retrying" || r.HTTPStatus != 410 || wait != time.Hour {
		t.Errorf("%+v", r)
	}
	if e, err := b.Ledger.WebhookEndpoint(t.Context(), v.Account); err != nil || e.State != ledger.EndpointGone {
		t.Errorf("%+v, %v", e, err)
	}
}

//rule:admin-api/post-accounts-id-webhook-rotate webhooks/after-a-rotation-the-standard
func TestRole_SignsWithBothSecretsAfterARotation(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	renewed, err := b.Ledger.RotateWebhookSecret(t.Context(), v.Account)
	if err != nil {
		t.Fatal(err)
	}
	b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	rc.check(rc.await(b, 1)[0], rc.secret, rc.secret, renewed)
	if _, err := b.Ledger.QueueTest(t.Context(), v.Account, time.Now()); err != nil {
		t.Fatal(err)
	}
	ping := rc.await(b, 2)[1]
	if ping.event.Event != "webhook.test" {
		t.Errorf("%s", ping.body)
	}
	rc.check(ping, renewed, rc.secret, renewed)
	b.Await("the ping proves the new secret", func() bool {
		e, err := b.Ledger.WebhookEndpoint(t.Context(), v.Account)
		return err == nil && e.Proven
	})
	b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	rc.check(rc.await(b, 3)[2], renewed, rc.secret, renewed)
}

//rule:delivery-rules/3 decisions/sandbox
func TestRole_DuplicateTriggerSendsTwice(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	b.Move(v.Order("SIM:DUPLICATE please", time.Now()), delivery.PickingUp, time.Now())
	requests := rc.await(b, 4)
	b.AwaitSettled(ledger.RoleWebhook)
	seen := map[string]int{}
	for _, q := range requests {
		rc.check(q, rc.secret, rc.secret)
		seen[q.event.EventID]++
	}
	if len(seen) != 2 || seen[requests[0].event.EventID] != 2 {
		t.Errorf("%v", seen)
	}
	if records := awaitAttempts(b, v, 2); len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
}

//rule:delivery-rules/4 decisions/sandbox
func TestRole_ReorderTriggerLetsLaterEventsOvertake(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	b.Move(v.Order("SIM:REORDER", time.Now()), delivery.Delivered, time.Now())
	var got []string
	for _, q := range rc.await(b, 5) {
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

func TestRole_ReplaysUnderTheSameEventID(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	long := time.Now().Add(-48 * time.Hour)
	o := v.Order("", long)
	b.Move(o, delivery.Assigned, long)
	awaitAttempts(b, v, 1) // too old to be sent by itself
	eventID := delivery.EventID(o.ID, b.Read(o.ID).Version)
	if n, err := b.Ledger.ReplayEvents(t.Context(), v.Account, []string{eventID}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	q := rc.await(b, 1)[0]
	rc.check(q, rc.secret, rc.secret)
	if q.event.EventID != eventID {
		t.Errorf("replayed as %s", q.event.EventID)
	}
}

func TestRole_KeepsToThePerEndpointCap(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, func(http.ResponseWriter, request) { time.Sleep(20 * time.Millisecond) })
	for range 60 {
		b.Move(v.Order("", time.Now()), delivery.Assigned, time.Now())
	}
	for i := range 2 {
		r := newRole(b.Open(), "w"+strconv.Itoa(i))
		r.settings.PerEndpoint = 5
		b.Start(r.Run)
	}
	rc.await(b, 60)
	if rc.most > 5 || rc.most < 2 {
		t.Errorf("%d requests at once", rc.most)
	}
}

//rule:store-states/awaitingfleetapproval-to-active events/the-service-posts-each-event event-types/store.activated
func TestRole_SendsStoreEvents(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	rc := register(b, v, nil)
	b.Start(newRole(b.Ledger, "w1").Run)
	s := v.NewStore("branch-2", delivery.AwaitingFleetApproval)
	now := time.Now()
	if err := delivery.ConfirmStore(s, now); err != nil {
		t.Fatal(err)
	}
	data := delivery.AppendStoreActivated(nil, s.ExternalID, s.Fleet, s.FleetName)
	notice := ledger.Notice{Account: v.Account, Type: delivery.StoreActivated, OccurredAt: now, Data: data}
	if err := b.Ledger.WriteStore(t.Context(), s, notice); err != nil {
		t.Fatal(err)
	}
	q := rc.await(b, 1)[0]
	rc.check(q, rc.secret, rc.secret)
	if q.event.Event != "store.activated" || !bytes.Contains(q.body, data) {
		t.Errorf("%s", q.body)
	}
}
