package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

var (
	key    = []byte("0123456789abcdef0123456789abcdef")
	secret = "whsec_" + base64.StdEncoding.EncodeToString(key)
	now    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// message is a webhook as the spec and Standard Webhooks describe one, signed
// here and now, so that the test does not lean on the service's own signing.
type message struct {
	id, event, body, attempt string
	at                       time.Time
}

func statusChanged(id, order, status string, at time.Time) message {
	failure := ""
	if status == "Failed" {
		failure = `,"failureReason":"CustomerRefused"`
	}
	body := fmt.Sprintf(`{"eventId":%q,"event":"delivery.status_changed","occurredAt":%q,"data":{"orderId":%q,"externalOrderId":"E-1","status":%q%s,"updatedAt":%q}}`,
		id, at.Format(time.RFC3339Nano), order, status, failure, at.Format(time.RFC3339Nano))
	return message{id: id, event: "delivery.status_changed", body: body, attempt: "1", at: now}
}

func (m message) headers() http.Header {
	own := hmac.New(sha256.New, []byte(secret))
	own.Write([]byte(m.body))
	standard := hmac.New(sha256.New, key)
	fmt.Fprintf(standard, "%s.%d.%s", m.id, m.at.Unix(), m.body)
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("X-Service-Signature", "sha256="+hex.EncodeToString(own.Sum(nil)))
	h.Set("X-Service-Event", m.event)
	h.Set("X-Service-Attempt", m.attempt)
	h.Set("webhook-id", m.id)
	h.Set("webhook-timestamp", fmt.Sprint(m.at.Unix()))
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(standard.Sum(nil)))

	return h
}

func newReceiver(t *testing.T, o Options) *Receiver {
	t.Helper()
	if o.Secrets == nil {
		o.Secrets = []string{secret}
	}

	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}

	r.now = func() time.Time { return now }

	return r
}

func post(r *Receiver, header http.Header, body string) int {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header = header
	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, req)
	return rec.Code
}

func send(t *testing.T, r *Receiver, m message) {
	t.Helper()
	if status := post(r, m.headers(), m.body); status != http.StatusNoContent {
		t.Fatalf("%s answered %d: %v", m.body, status, r.Counts().Invalid)
	}
}

//rule:body-envelope/eventId delivery-rules/3
func TestReceiver_CountsAnEventOnce(t *testing.T) {
	var duplicates int
	r := newReceiver(t, Options{Seen: func(_ Event, duplicate bool) {
		if duplicate {
			duplicates++
		}
	}})

	m := statusChanged("e1", "o1", "Assigned", now)
	send(t, r, m)
	m.attempt = "2"
	send(t, r, m)
	m.body = strings.Replace(m.body, "Assigned", "PickingUp", 1)
	send(t, r, m)

	c := r.Counts()
	if c.Received != 3 || c.Duplicates != 2 || c.Changed != 1 || duplicates != 2 {
		t.Errorf("%+v, %d duplicates seen", c, duplicates)
	}

	line := r.Timeline("o1")
	if len(line) != 1 || line[0].Status != "Assigned" || line[0].Attempt != 1 {
		t.Errorf("timeline %+v", line)
	}
}

//rule:delivery-rules/4
func TestReceiver_OrdersByOccurrenceNotArrival(t *testing.T) {
	r := newReceiver(t, Options{})

	for i, s := range []struct {
		status string
		at     time.Duration
	}{{"Delivered", 3 * time.Second}, {"PickedUp", time.Second}, {"Delivering", time.Second}, {"PickingUp", time.Second}, {"Assigned", 0}} {
		send(t, r, statusChanged(fmt.Sprint("e", i), "o1", s.status, now.Add(s.at)))
	}

	var got []string
	for _, e := range r.Timeline("o1") {
		got = append(got, e.Status)
	}

	if want := "Assigned PickingUp PickedUp Delivering Delivered"; strings.Join(got, " ") != want {
		t.Errorf("timeline %v", got)
	}

	if ids := r.Orders(); len(ids) != 1 || ids[0] != "o1" {
		t.Errorf("orders %v", ids)
	}
}

//rule:delivery-rules/5 versioning/new-webhook-event-types-may
func TestReceiver_UnknownTypesAreNoOps(t *testing.T) {
	r := newReceiver(t, Options{})
	send(t, r, message{id: "e1", event: "store.repainted", attempt: "1", at: now,
		body: `{"eventId":"e1","event":"store.repainted","occurredAt":"2026-11-21T15:00:00+03:00","data":{"colour":"red"}}`})
	if c := r.Counts(); c.Unknown["store.repainted"] != 1 {
		t.Errorf("%+v", c)
	}
}

//rule:authentication/5
func TestReceiver_RejectsWhatItCannotVerify(t *testing.T) {
	good := statusChanged("e1", "o1", "Assigned", now)
	failed := statusChanged("e1", "o1", "Failed", now)

	for name, c := range map[string]struct {
		m      message
		change func(http.Header)
		status int
		reason string
	}{
		"no signature":       {good, func(h http.Header) { h.Del("X-Service-Signature") }, 401, "signature does not match"},
		"upper-case digest":  {good, func(h http.Header) { h.Set("X-Service-Signature", strings.ToUpper(h.Get("X-Service-Signature"))) }, 401, "signature does not match"},
		"no timestamp":       {good, func(h http.Header) { h.Del("webhook-timestamp") }, 401, "timestamp is missing, too old or too new"},
		"replayed later":     {message{good.id, good.event, good.body, "1", now.Add(-301 * time.Second)}, nil, 401, "timestamp is missing, too old or too new"},
		"from the future":    {message{good.id, good.event, good.body, "1", now.Add(301 * time.Second)}, nil, 401, "timestamp is missing, too old or too new"},
		"other id":           {good, func(h http.Header) { h.Set("webhook-id", "e2") }, 401, "webhook-signature does not match"},
		"other time":         {good, func(h http.Header) { h.Set("webhook-timestamp", fmt.Sprint(now.Unix()+1)) }, 401, "webhook-signature does not match"},
		"no attempt":         {good, func(h http.Header) { h.Del("X-Service-Attempt") }, 400, "X-Service-Attempt is not a positive integer"},
		"attempt zero":       {good, func(h http.Header) { h.Set("X-Service-Attempt", "0") }, 400, "X-Service-Attempt is not a positive integer"},
		"other event":        {good, func(h http.Header) { h.Set("X-Service-Event", "store.activated") }, 400, "X-Service-Event is not the event"},
		"other content type": {good, func(h http.Header) { h.Set("Content-Type", "text/plain") }, 400, "Content-Type is not application/json"},
		"not JSON":           {message{"e1", good.event, "{", "1", now}, nil, 400, "body is not the envelope"},
		"empty envelope":     {message{"e1", good.event, "{}", "1", now}, nil, 400, "eventId, occurredAt or data is missing"},
		"with events":        {message{"e1", good.event, strings.Replace(good.body, `"updatedAt"`, `"events":[],"updatedAt"`, 1), "1", now}, nil, 400, "data carries events"},
		"no status":          {message{"e1", good.event, strings.Replace(good.body, "Assigned", "", 1), "1", now}, nil, 400, "orderId or status is missing"},
		"failed, no reason":  {message{"e1", good.event, strings.Replace(failed.body, "failureReason", "reason", 1), "1", now}, nil, 400, "failureReason belongs to Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, Options{})
			h := c.m.headers()
			if c.change != nil {
				c.change(h)
			}

			status := post(r, h, c.m.body)

			if status != c.status {
				t.Errorf("answered %d, want %d", status, c.status)
			}

			got := r.Counts()
			if !maps.Equal(got.Invalid, map[string]int{c.reason: 1}) || got.Received != 0 {
				t.Errorf("%+v", got)
			}
		})
	}

	r := newReceiver(t, Options{})

	status := post(r, good.headers(), good.body+" ")
	if status != http.StatusUnauthorized {
		t.Errorf("one more byte: %d", status)
	}

	status = post(r, good.headers(), strings.Repeat("x", MaxBody+1))
	if status != http.StatusRequestEntityTooLarge {
		t.Errorf("huge body: %d", status)
	}

	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	if rec.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", rec.Code)
	}
}

func TestReceiver_TriesEverySecretDuringARotation(t *testing.T) {
	m := statusChanged("e1", "o1", "Assigned", now)
	send(t, newReceiver(t, Options{Secrets: []string{"whsec_AAAA", secret}}), m)
	if status := post(newReceiver(t, Options{Secrets: []string{"whsec_AAAA"}}), m.headers(), m.body); status != 401 {
		t.Errorf("other secret: %d", status)
	}

	two := m.headers()
	two.Set("webhook-signature", "v1,AAAA "+two.Get("webhook-signature"))
	if status := post(newReceiver(t, Options{}), two, m.body); status != http.StatusNoContent {
		t.Errorf("two signatures: %d", status)
	}
}

func TestNew_RefusesNoSecret(t *testing.T) {
	for _, secrets := range [][]string{nil, {""}, {secret, ""}} {
		if _, err := New(Options{Secrets: secrets}); err == nil {
			t.Errorf("%q accepted", secrets)
		}
	}
}

// What one script has created is compared by itself, whoever else uses the account; alone, nothing else may arrive.
func TestCheck_AmongOthersLooksAtItsOwnOrders(t *testing.T) {
	t.Parallel()

	r := newReceiver(t, Options{})
	send(t, r, statusChanged("e1", "mine", "Assigned", now))
	send(t, r, statusChanged("e2", "another's", "Assigned", now))
	send(t, r, statusChanged("e3", "another's", "PickingUp", now.Add(time.Second)))
	mine := History{OrderID: "mine", Status: "Assigned", End: "Assigned"}
	for _, status := range []string{"Searching", "Assigned"} {
		mine.Events = append(mine.Events, struct {
			Status string
			At     time.Time
		}{Status: status})
	}

	among, others := r.CheckAmongOthers([]History{mine}, 0)
	alone := r.Check([]History{mine}, 0)

	if len(among.Problems) > 0 || among.Expected != 1 || among.Received != 1 || others != 2 {
		t.Errorf("%+v, %d others", among, others)
	}
	if len(alone.Problems) == 0 {
		t.Error("webhooks of unknown orders are no problem")
	}

	mine.Events = append(mine.Events, mine.Events[1])
	missing, _ := r.CheckAmongOthers([]History{mine}, 1)
	if len(missing.Problems) != 3 { // the order's history, the number of webhooks, the store's
		t.Errorf("%q", missing.Problems)
	}
}
