package dispatch

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/webhook"
)

// request is one webhook as the vendor received it.
type request struct {
	at     time.Time
	header http.Header
	body   []byte
	event  envelope
}

type envelope struct {
	EventID    string    `json:"eventId"`
	Event      string    `json:"event"`
	OccurredAt time.Time `json:"occurredAt"`
	Data       struct {
		OrderID  string          `json:"orderId"`
		Status   string          `json:"status"`
		Events   json.RawMessage `json:"events"`
		Location *delivery.Point `json:"location"`
		Courier  *struct{ Name string }
	} `json:"data"`
}

// receiver is a vendor's endpoint on a real HTTP server.
type receiver struct {
	t      *testing.T
	server *httptest.Server
	secret string
	// answer decides on the answer; nil: 200.
	answer func(w http.ResponseWriter, q request)

	mu       sync.Mutex
	requests []request
	inFlight int
	most     int // requests at once
}

// register starts a receiver and registers it for the vendor.
func register(b *testenv.Env, v *testenv.Vendor, answer func(http.ResponseWriter, request)) *receiver {
	b.T.Helper()
	rc := &receiver{t: b.T, answer: answer}
	rc.server = httptest.NewServer(rc)
	b.T.Cleanup(rc.server.Close)
	_, secret, err := b.Ledger.SetWebhookURL(b.T.Context(), v.Account, rc.server.URL+"/hook")
	if err != nil {
		b.T.Fatal(err)
	}
	rc.secret = secret
	return rc
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := request{at: time.Now(), header: r.Header}
	q.body, _ = io.ReadAll(r.Body)
	if err := json.Unmarshal(q.body, &q.event); err != nil {
		rc.t.Errorf("the body %q is no JSON: %v", q.body, err)
	}
	if err := documented().JudgeEvent(q.header, q.body); err != nil {
		rc.t.Errorf("not as documented: %v", err)
	}
	rc.mu.Lock()
	rc.requests = append(rc.requests, q)
	rc.inFlight++
	rc.most = max(rc.most, rc.inFlight)
	answer := rc.answer
	rc.mu.Unlock()
	if answer != nil {
		answer(w, q)
	}
	rc.mu.Lock()
	rc.inFlight--
	rc.mu.Unlock()
}

func (rc *receiver) received() []request {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return append([]request(nil), rc.requests...)
}

// of are the requests that carried an event.
func (rc *receiver) of(eventID string) (requests []request) {
	for _, q := range rc.received() {
		if q.event.EventID == eventID {
			requests = append(requests, q)
		}
	}
	return requests
}

// await waits for n requests and answers them.
func (rc *receiver) await(b *testenv.Env, n int) []request {
	b.T.Helper()
	b.Await("enough webhooks", func() bool { return len(rc.received()) >= n })
	return rc.received()
}

// check verifies both signatures with the secrets and that headers and body
// agree.
func (rc *receiver) check(q request, spec string, standard ...string) {
	rc.t.Helper()
	if !webhook.Verify(spec, q.header.Get("X-Service-Signature"), q.body) {
		rc.t.Errorf("X-Service-Signature %q does not verify", q.header.Get("X-Service-Signature"))
	}
	for _, secret := range standard {
		if err := webhook.VerifyStandard(q.header.Get("webhook-id"), q.header.Get("webhook-timestamp"),
			q.header.Get("webhook-signature"), q.body, q.at, time.Minute, secret); err != nil {
			rc.t.Errorf("webhook-signature: %v", err)
		}
	}
	if q.header.Get("webhook-id") != q.event.EventID || q.header.Get("X-Service-Event") != q.event.Event {
		rc.t.Errorf("headers %v, body %s", q.header, q.body)
	}
}

func newRole(l *ledger.Ledger, consumer string) *Role {
	return New(l, testSettings(), Options{Consumer: consumer, Sandbox: true, CourierStep: 200 * time.Millisecond},
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func attempts(b *testenv.Env, v *testenv.Vendor) []ledger.AttemptRecord {
	b.T.Helper()
	records, err := b.Ledger.Attempts(b.T.Context(), v.Account, "")
	if err != nil {
		b.T.Fatal(err)
	}
	return records
}

// awaitAttempts waits for n records of attempts, newest first.
func awaitAttempts(b *testenv.Env, v *testenv.Vendor, n int) []ledger.AttemptRecord {
	b.T.Helper()
	b.Await("enough records of attempts", func() bool { return len(attempts(b, v)) >= n })
	return attempts(b, v)
}

// zero is a gauge of a role that is not attached.
func zero() float64 { return 0 }
