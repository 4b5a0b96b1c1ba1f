package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

const lease = time.Minute

// pump moves everything from the account's stream to its queue.
func (s *shop) pump(t *testing.T, n int) {
	t.Helper()
	entries := collect(t, s.Ledger, RoleWebhook, "pump", n)
	for range 2 { // a repeated call queues nothing twice
		must(t, s.QueueEvents(t.Context(), partitionOf(s.account, len(s.rooms)), entries))
	}
}

func (s *shop) lease(t *testing.T, want int) []*Delivery {
	t.Helper()
	ds, _, err := s.Lease(t.Context(), partitionOf(s.account, len(s.rooms)), 100, 32, lease)
	must(t, err)
	if len(ds) != want {
		t.Fatalf("%d events leased, want %d", len(ds), want)
	}
	return ds
}

func (s *shop) record(t *testing.T, d *Delivery, o Outcome) {
	t.Helper()
	if o.At.IsZero() {
		o.At = time.Now()
	}
	ok, err := s.RecordAttempts(t.Context(), []Result{{d, o}})
	must(t, err)
	if !ok[0] {
		t.Fatal("the lease was lost")
	}
}

func (s *shop) register(t *testing.T) *WebhookEndpoint {
	t.Helper()
	e, secret, err := s.SetWebhookURL(t.Context(), s.account, "https://vendor.example/hook")
	must(t, err)
	if secret == "" || secret != e.Secret {
		t.Fatalf("issued %q, stored %q", secret, e.Secret)
	}
	return e
}

func TestWebhook_OneVersionOfAnOrderAtATime(t *testing.T) {
	s := newShop(t, openTest(t))
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned, delivery.PickingUp, delivery.PickedUp)
	s.pump(t, 4)
	for i, status := range []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp} {
		d := s.lease(t, 1)[0]
		change, ok := d.Order.At(d.Version)
		if !ok || change.Status != status || d.EventID != delivery.EventID(o.ID, d.Version) || d.Attempt != 1 || d.Type != delivery.StatusChanged {
			t.Fatalf("event %d: %+v", i, d)
		}
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
	e, err := s.WebhookEndpoint(t.Context(), s.account)
	must(t, err)
	if e.Backlog != 1 || e.State != EndpointHealthy || e.Delivered != 2 || e.Retried != 1 || time.Until(e.NextAttempt) < 59*time.Minute {
		t.Errorf("endpoint %+v", e)
	}
}

func TestWebhook_ManyOrdersAtOnce(t *testing.T) {
	s := newShop(t, openTest(t))
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
	l := openTest(t)
	s := newShop(t, l)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	var eventID string
	for attempt := 1; attempt <= 3; attempt++ {
		d := s.lease(t, 1)[0]
		if d.Attempt != attempt || (eventID != "" && d.EventID != eventID) {
			t.Fatalf("attempt %d: %+v", attempt, d)
		}
		eventID = d.EventID
		s.record(t, d, Outcome{Status: 503, Error: "status: 503", Answer: []byte("bu\xffsy"), Retry: time.Now()})
	}
	d := s.lease(t, 1)[0]
	s.record(t, d, Outcome{Error: "timeout: gave up"})
	e, err := s.WebhookEndpoint(t.Context(), s.account)
	must(t, err)
	if e.State != EndpointUnreachable || e.Backlog != 0 || !e.NextAttempt.IsZero() {
		t.Errorf("endpoint %+v", e)
	}
	attempts, err := l.Attempts(t.Context(), s.account, "")
	must(t, err)
	if len(attempts) != 4 || attempts[0].State != "undelivered" || attempts[0].Attempt != 4 || attempts[3].HTTPStatus != 503 || attempts[3].Answer != "bu\uFFFDsy" || attempts[3].OrderID != o.ID.String() {
		t.Errorf("attempts %+v", attempts)
	}
	if left, err := l.Attempts(t.Context(), s.account, "undelivered"); err != nil || len(left) != 1 {
		t.Errorf("undelivered: %+v %v", left, err)
	}
}

func TestWebhook_LeaseThatRanOutIsSomebodyElses(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	partition := partitionOf(s.account, len(s.rooms))
	paused, _, err := l.Lease(t.Context(), partition, 10, 32, time.Millisecond)
	must(t, err)
	var again []*Delivery
	eventually(t, "the event is handed out again", func() bool {
		again, _, err = l.Lease(t.Context(), partition, 10, 32, lease)
		must(t, err)
		return len(again) == 1
	})
	if again[0].Attempt != 1 || again[0].EventID != paused[0].EventID {
		t.Errorf("handed out again as %+v", again[0])
	}
	ok, err := l.RecordAttempts(t.Context(), []Result{{paused[0], Outcome{At: time.Now(), Error: "timeout: late", Retry: time.Now()}}})
	must(t, err)
	if ok[0] {
		t.Error("a worker that was paused recorded its stale result")
	}
	s.record(t, again[0], Outcome{OK: true, Status: 200})
	if attempts, _ := l.Attempts(t.Context(), s.account, ""); len(attempts) != 1 || attempts[0].State != "delivered" {
		t.Errorf("attempts %+v", attempts)
	}
}

func TestWebhook_DeferredEndsTheFirstAttemptForTheNext(t *testing.T) {
	s := newShop(t, openTest(t))
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned, delivery.PickingUp)
	s.pump(t, 3)
	s.record(t, s.lease(t, 1)[0], Outcome{Deferred: true, Retry: time.Now().Add(100 * time.Millisecond)})
	d := s.lease(t, 1)[0]
	if change, _ := d.Order.At(d.Version); change.Status != delivery.PickingUp {
		t.Errorf("overtaken by %s", change.Status)
	}
	eventually(t, "the deferred event comes as a first attempt", func() bool {
		ds, _, err := s.Lease(t.Context(), partitionOf(s.account, len(s.rooms)), 10, 32, lease)
		must(t, err)
		return len(ds) == 1 && ds[0].Attempt == 1
	})
}

func TestWebhook_WithoutURLEventsAreRecordedAsNotSent(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	must(t, l.Publish(t.Context(), Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: time.Now(), Data: []byte(`{}`)}))
	s.pump(t, 3)
	s.lease(t, 0)
	attempts, err := l.Attempts(t.Context(), s.account, "notSent")
	must(t, err)
	if len(attempts) != 2 || attempts[1].EventID != delivery.EventID(o.ID, 1<<32|2) || attempts[1].OrderID != o.ID.String() || !strings.HasPrefix(attempts[0].EventID, "evt_") {
		t.Errorf("attempts %+v", attempts)
	}
	// What comes after a registration is sent.
	s.register(t)
	s.advance(t, o.ID, delivery.PickingUp)
	s.pump(t, 1)
	if d := s.lease(t, 1)[0]; delivery.Sequence(d.Version) != 3 {
		t.Errorf("leased %+v", d)
	}
}

func TestWebhook_DeletedEndpointSettlesItsBacklog(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned, delivery.PickingUp)
	s.pump(t, 3)
	must(t, l.DeleteWebhook(t.Context(), s.account))
	s.lease(t, 0)
	s.lease(t, 0)
	attempts, err := l.Attempts(t.Context(), s.account, "notSent")
	must(t, err)
	if len(attempts) != 2 {
		t.Errorf("attempts %+v", attempts)
	}
	wantCode(t, l.DeleteWebhook(t.Context(), s.account), delivery.CodeWebhookNotConfigured)
	_, err = l.WebhookEndpoint(t.Context(), s.account)
	wantCode(t, err, delivery.CodeWebhookNotConfigured)
}

func TestWebhook_SecretsRotateAndAreSealed(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	_, err := l.RotateWebhookSecret(t.Context(), s.account)
	wantCode(t, err, delivery.CodeWebhookNotConfigured)
	first := s.register(t)
	same, issued, err := l.SetWebhookURL(t.Context(), s.account, "https://other.example/hook")
	must(t, err)
	if issued != "" || same.Secret != first.Secret || same.URL != "https://other.example/hook" || same.Version <= first.Version {
		t.Errorf("changed URL: %+v, issued %q", same, issued)
	}
	secret, err := l.RotateWebhookSecret(t.Context(), s.account)
	must(t, err)
	e, err := l.WebhookEndpoint(t.Context(), s.account)
	must(t, err)
	if e.Secret != secret || e.PreviousSecret != first.Secret || e.Proven || time.Until(e.PreviousUntil) < 23*time.Hour {
		t.Errorf("rotated: %+v", e)
	}
	raw, err := l.rdb.HGetAll(t.Context(), l.roomOf(s.account).keyOf(kindEndpoint, s.account[:])).Result()
	must(t, err)
	for field, value := range raw {
		if strings.Contains(value, "whsec_") {
			t.Errorf("field %s holds a secret in clear", field)
		}
	}
	// A test event proves the new secret.
	id, err := l.QueueTest(t.Context(), s.account, time.Now())
	must(t, err)
	s.pump(t, 1)
	d := s.lease(t, 1)[0]
	if d.EventID != id || d.Type != delivery.WebhookTest || !strings.Contains(string(d.Data), s.account.String()) {
		t.Errorf("test event %+v", d)
	}
	s.record(t, d, Outcome{OK: true, Status: 200})
	if e, err = l.WebhookEndpoint(t.Context(), s.account); err != nil || !e.Proven {
		t.Errorf("not proven: %+v %v", e, err)
	}
	// Another key id opens nothing.
	stranger := openTest(t, func(c *Config) {
		c.Secrets = SecretKeys{Current: "k2", Keys: map[string][]byte{"k2": make([]byte, 32)}}
	})
	if _, err := stranger.secrets.open(s.account[:], raw["secret"]); err == nil {
		t.Error("opened without the key")
	}
	other := delivery.NewAccountID()
	if _, err := l.secrets.open(other[:], raw["secret"]); err == nil {
		t.Error("opened for another account")
	}
}

func TestWebhook_StaleResultDoesNotJudgeTheNewURL(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	d := s.lease(t, 1)[0]
	_, _, err := l.SetWebhookURL(t.Context(), s.account, "https://new.example/hook")
	must(t, err)
	s.record(t, d, Outcome{Status: 410, Error: "status: 410", Gone: true, Retry: time.Now()})
	if e, _ := l.WebhookEndpoint(t.Context(), s.account); e.State != EndpointHealthy {
		t.Errorf("state %s", e.State)
	}
	d = s.lease(t, 1)[0] // the backlog goes to the new URL
	if d.Endpoint.URL != "https://new.example/hook" {
		t.Errorf("sent to %s", d.Endpoint.URL)
	}
	s.record(t, d, Outcome{Status: 410, Error: "status: 410", Gone: true, Retry: time.Now().Add(time.Hour)})
	if e, _ := l.WebhookEndpoint(t.Context(), s.account); e.State != EndpointGone {
		t.Errorf("state %s", e.State)
	}
}

func TestReplay_ByEventAndSince(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned, delivery.PickingUp)
	must(t, l.Publish(t.Context(), Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: time.Now(), Data: []byte(`{"a":1}`)}))
	s.pump(t, 4)
	var ids []string
	for range 3 {
		ds, _, err := l.Lease(t.Context(), partitionOf(s.account, len(s.rooms)), 1, 32, lease)
		must(t, err)
		ids = append(ids, ds[0].EventID)
		s.record(t, ds[0], Outcome{OK: true, Status: 200})
	}
	// Another account of the same partition, so that its events are beside ours.
	var stranger delivery.AccountID
	for stranger = newAccount(t, l, plenty()); partitionOf(stranger, len(l.rooms)) != partitionOf(s.account, len(l.rooms)); {
		stranger = newAccount(t, l, plenty())
	}
	must(t, l.Publish(t.Context(), Notice{Account: stranger, Type: delivery.StoreActivated, OccurredAt: time.Now(), Data: []byte(`{}`)}))

	n, err := l.ReplayEvents(t.Context(), s.account, ids)
	must(t, err)
	if n != 3 {
		t.Errorf("%d queued", n)
	}
	for _, d := range s.lease(t, 3) {
		if d.Attempt != 1 || (d.Order != nil && (!d.Replay || time.Until(d.Deadline) < 23*time.Hour)) {
			t.Errorf("replayed %+v", d)
		}
		s.record(t, d, Outcome{OK: true, Status: 200})
	}
	if n, err = l.ReplaySince(t.Context(), s.account, time.Now().Add(-48*time.Hour)); err != nil || n != 3 {
		t.Errorf("since: %d queued, %v", n, err)
	}
	if n, err = l.ReplaySince(t.Context(), s.account, time.Now().Add(time.Minute)); err != nil || n != 0 {
		t.Errorf("since the future: %d queued, %v", n, err)
	}
	for _, id := range []string{"evt_nonsense", delivery.EventID(o.ID, 1<<32|9), delivery.EventID(o.ID, 1<<32|1), delivery.EventID(o.ID, 7<<32|2)} {
		_, err = l.ReplayEvents(t.Context(), s.account, []string{ids[0], id})
		wantCode(t, err, delivery.CodeEventNotFound)
	}
	_, err = l.ReplayEvents(t.Context(), stranger, ids[:1])
	wantCode(t, err, delivery.CodeEventNotFound)
	_, err = l.ReplaySince(t.Context(), stranger, time.Now().Add(-time.Hour))
	wantCode(t, err, delivery.CodeWebhookNotConfigured)
}

func TestAttemptLog_IsBounded(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	s.register(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	answer := []byte(strings.Repeat("x", 2000))
	for range 220 {
		s.record(t, s.lease(t, 1)[0], Outcome{Status: 500, Error: "status: 500", Answer: answer, Retry: time.Now()})
	}
	r := l.roomOf(s.account)
	lines, err := l.rdb.LRange(t.Context(), r.keyOf(kindAttemptLog, s.account[:]), 0, -1).Result()
	must(t, err)
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	counted := l.rdb.HGet(t.Context(), r.keyOf(kindEndpoint, s.account[:]), "log").Val()
	if len(lines) > 200 || len(lines) < 100 || bytes > 256<<10 || counted != fmt.Sprint(bytes) {
		t.Errorf("%d lines, %d bytes, counted %s", len(lines), bytes, counted)
	}
}
