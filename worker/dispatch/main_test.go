package dispatch

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/internal/webhook"
)

func TestMain(m *testing.M) {
	testserver.Parallel(8)
	testserver.Main(m)
}

// testSettings have a timeout that no busy machine reaches.
func testSettings() Settings {
	return Settings{
		Batch: 256, ClaimAfter: time.Minute, Concurrency: 256, PerEndpoint: 32, BreakerFailures: 5,
		Timeout: time.Minute, Lease: 3 * time.Minute, LocalReceivers: "auto",
	}
}

// env is a ledger with a vendor whose receiver runs.
type env struct {
	*testenv.Env
	clock  *testenv.Clock // nil: the system's
	vendor *testenv.Vendor
	*receiver
}

// newEnv lets the receiver answer; nil: with 200.
func newEnv(t *testing.T, answer func(http.ResponseWriter, request)) *env {
	t.Helper()
	t.Parallel()
	return envOf(testenv.New(t), nil, answer)
}

// newEnvWithClock is newEnv with a clock that stands.
func newEnvWithClock(t *testing.T, at time.Time, answer func(http.ResponseWriter, request)) *env {
	t.Helper()
	t.Parallel()
	e, clock := testenv.NewWithClock(t, at)
	return envOf(e, clock, answer)
}

func envOf(e *testenv.Env, clock *testenv.Clock, answer func(http.ResponseWriter, request)) *env {
	e.T.Helper()
	made := &env{Env: e, clock: clock, vendor: e.Vendor()}
	made.receiver = register(e, made.vendor, made.now, answer)
	return made
}

func (e *env) now() time.Time {
	if e.clock != nil {
		return e.clock.Now()
	}
	return time.Now()
}

// newRole is the role of a process of its own, with the worker's rights.
func (e *env) newRole(consumer string) *Role {
	e.T.Helper()
	return New(e.OpenAs(stack.WorkerUser), testSettings(), Options{Consumer: consumer, Sandbox: true, CourierStep: 200 * time.Millisecond, Now: e.now},
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// startRole runs a role until it is stopped.
func (e *env) startRole(consumer string) (stop func()) {
	e.T.Helper()
	return e.Start(e.newRole(consumer).Run)
}

// moved is a new order that has gone to a status.
func (e *env) moved(note string, to delivery.Status) *delivery.Order {
	e.T.Helper()
	o := e.vendor.Order(note, e.now())
	e.Move(o, to, e.now())
	return e.Read(o.ID)
}

func (e *env) endpoint() *ledger.WebhookEndpoint {
	e.T.Helper()
	endpoint, err := e.Ledger.Webhooks.Endpoint(e.T.Context(), e.vendor.Account)
	if err != nil {
		e.T.Fatal(err)
	}
	return endpoint
}

// attempts are the records of attempts, newest first.
func (e *env) attempts() []ledger.AttemptRecord {
	e.T.Helper()
	records, err := e.Ledger.Webhooks.Attempts(e.T.Context(), e.vendor.Account, "")
	if err != nil {
		e.T.Fatal(err)
	}
	return records
}

func (e *env) awaitAttempts(n int) []ledger.AttemptRecord {
	e.T.Helper()
	e.Await("enough records of attempts", func() bool { return len(e.attempts()) >= n })
	return e.attempts()
}

// await waits for n requests.
func (e *env) await(n int) []request {
	e.T.Helper()
	e.Await("enough webhooks", func() bool { return len(e.received()) >= n })
	return e.received()
}

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
	now    func() time.Time
	secret string
	answer func(w http.ResponseWriter, q request) // nil: 200

	mu       sync.Mutex
	requests []request
	inFlight int
	most     int // requests at once
}

// register starts a receiver and registers it for the vendor. now is its clock, by
// which it checks the age of a signature.
func register(e *testenv.Env, v *testenv.Vendor, now func() time.Time, answer func(http.ResponseWriter, request)) *receiver {
	e.T.Helper()
	rc := &receiver{t: e.T, now: now, answer: answer}
	server := httptest.NewServer(rc)
	e.T.Cleanup(server.Close)
	_, secret, err := e.Ledger.Webhooks.SetURL(e.T.Context(), v.Account, server.URL+"/hook")
	if err != nil {
		e.T.Fatal(err)
	}
	rc.secret = secret
	return rc
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := request{at: rc.now(), header: r.Header}
	q.body, _ = io.ReadAll(r.Body)
	if err := json.Unmarshal(q.body, &q.event); err != nil {
		rc.t.Errorf("the body %q is no JSON: %v", q.body, err)
	}
	if err := checkEvent(q.header, q.body); err != nil {
		rc.t.Errorf("not as documented: %v", err)
	}
	rc.mu.Lock()
	rc.requests = append(rc.requests, q)
	rc.inFlight++
	rc.most = max(rc.most, rc.inFlight)
	rc.mu.Unlock()
	if rc.answer != nil {
		rc.answer(w, q)
	}
	rc.mu.Lock()
	rc.inFlight--
	rc.mu.Unlock()
}

// atOnce is how many requests are in flight, and how many have been at most.
func (rc *receiver) atOnce() (now, most int) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.inFlight, rc.most
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

// check verifies both signatures with the secrets and that headers and body
// agree.
func (rc *receiver) check(q request, spec string, standard ...string) {
	rc.t.Helper()
	if q.header.Get("X-Service-Signature") != webhook.Sign(spec, q.body) {
		rc.t.Errorf("X-Service-Signature %q does not verify", q.header.Get("X-Service-Signature"))
	}
	seconds, err := strconv.ParseInt(q.header.Get("webhook-timestamp"), 10, 64)
	at := time.Unix(seconds, 0)
	if err != nil || q.at.Sub(at).Abs() > testserver.Timeout {
		rc.t.Errorf("webhook-timestamp %q of a webhook that came at %v", q.header.Get("webhook-timestamp"), q.at)
	}
	for _, secret := range standard {
		want, err := webhook.SignStandard(q.header.Get("webhook-id"), at, q.body, secret)
		if err != nil || !slices.Contains(strings.Fields(q.header.Get("webhook-signature")), want) {
			rc.t.Errorf("webhook-signature %q lacks %s, %v", q.header.Get("webhook-signature"), want, err)
		}
	}
	if q.header.Get("webhook-id") != q.event.EventID || q.header.Get("X-Service-Event") != q.event.Event {
		rc.t.Errorf("headers %v, body %s", q.header, q.body)
	}
}
