package owner

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/gateway/openapi/documented"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/internal/webhook"
	"vendorapi/worker/dispatch"
)

// hooks is an environment whose vendor has a receiver.
type hooks struct {
	*env
	*receiver
	clock *atomic.Int64 // the roles', which stands, ms; nil: the system's
}

// newHooks lets the receiver answer; nil: with 200.
func newHooks(t *testing.T, answer func(http.ResponseWriter, request)) *hooks {
	t.Helper()
	return hooksOf(newEnv(t), answer)
}

func hooksOf(e *env, answer func(http.ResponseWriter, request)) *hooks {
	e.T.Helper()
	h := &hooks{env: e}
	h.receiver = h.register(e.vendor, answer)
	return h
}

// newStandingHooks is newHooks with a clock that stands.
func newStandingHooks(t *testing.T, answer func(http.ResponseWriter, request)) *hooks {
	t.Helper()
	h := newHooks(t, answer)
	h.clock = new(atomic.Int64)
	h.clock.Store(time.Now().UnixMilli())
	return h
}

func (h *hooks) now() time.Time {
	if h.clock == nil {
		return time.Now()
	}
	return time.UnixMilli(h.clock.Load())
}

// setClock lets the running role look at the time at once.
func (h *hooks) setClock(at time.Time) {
	h.T.Helper()
	h.clock.Store(at.UnixMilli())
	h.inLoop(func(p *partition) { p.webhooksDue = time.Time{} })
}

// start runs a process of its own until it is stopped.
func (h *hooks) start(name string, edits ...func(*dispatch.Settings)) (stop func()) {
	h.T.Helper()
	h.role = h.newRole(name, edits...)
	if h.clock != nil {
		h.role.Now = h.now
	}
	return h.Start(h.role.Run)
}

// inLoop runs f with each partition that the role holds, between two turns.
func (h *hooks) inLoop(f func(*partition)) {
	h.T.Helper()
	for _, p := range h.role.Owned() {
		l, done := h.role.loopOf(p), make(chan struct{})
		if l == nil {
			continue
		}

		l.do(h.T.Context(), func(context.Context) {
			if own := l.partitions[p]; own != nil {
				f(own)
			}
			close(done)
		})

		<-done
	}
}

// awaitIdle waits until all that was published has been taken, and nothing is to be done now.
func (h *hooks) awaitIdle() {
	h.T.Helper()
	h.AwaitSettled(ledger.RoleStatus)
	h.Await("nothing to send now", func() bool {
		idle := 0
		h.inLoop(func(p *partition) {
			isDue := !time.Now().Before(p.webhooksDue)
			if p.webhooks.IsIdle() && !isDue {
				idle++
			}
		})
		return idle == testenv.Partitions
	})
}

// change waits until the owner knows of a change of an endpoint.
func (h *hooks) change(f func() error) {
	h.T.Helper()
	notes := func() (all string) {
		h.inLoop(func(own *partition) { all += own.Notes + " " })
		return all
	}
	before := notes()
	testenv.Must(h.T, f())
	h.Await("the owner knows", func() bool { return notes() != before })
}

// cancelled is the event of an order that was cancelled at once: its only one.
func (h *hooks) cancelled(at time.Time) (eventID string) {
	h.T.Helper()
	o := h.vendor.Order("", at)
	_, _, err := h.Ledger.Orders.Cancel(h.T.Context(), h.vendor.Account, o.ID, delivery.CustomerRequest, "", at)
	testenv.Must(h.T, err)
	return delivery.EventID(o.ID, h.Read(o.ID).Version)
}

// reported is a new order that a courier has taken to a status.
func (h *hooks) reported(note string, to delivery.Status) *delivery.Order {
	h.T.Helper()
	return h.reportedOf(h.vendor, note, to)
}

func (h *hooks) reportedOf(v *testenv.Vendor, note string, to delivery.Status) *delivery.Order {
	h.T.Helper()
	o := v.Order(note, h.now())
	h.Accept(o, h.now())
	if to != delivery.Assigned {
		h.Reach(o, to, h.now())
	}
	return o
}

func (h *hooks) endpoint() *webhooks.WebhookEndpoint {
	h.T.Helper()
	endpoint, err := h.Ledger.Webhooks.Endpoint(h.T.Context(), h.vendor.Account)
	testenv.Must(h.T, err)
	return endpoint
}

// attempts are the records of attempts, newest first.
func (h *hooks) attempts() []partitions.AttemptRecord {
	h.T.Helper()
	records, err := h.Ledger.Webhooks.Attempts(h.T.Context(), h.vendor.Account, "")
	testenv.Must(h.T, err)
	return records
}

func (h *hooks) awaitAttempts(n int) []partitions.AttemptRecord {
	h.T.Helper()
	h.Await("enough records of attempts", func() bool { return len(h.attempts()) >= n })
	return h.attempts()
}

// tally are the endpoint's figures.
type tally struct{ delivered, retried, undelivered, notSent, backlog int64 }

func (h *hooks) awaitTally(want tally) {
	h.T.Helper()
	h.Await("the figures", func() bool {
		e := h.endpoint()
		return tally{e.Delivered, e.Retried, e.Undelivered, e.NotSent, e.Backlog} == want
	})
}

// await waits for n requests.
func (h *hooks) await(n int) []request {
	h.T.Helper()
	h.Await("enough webhooks", func() bool { return len(h.received()) >= n })
	return h.received()
}

// request is one webhook as the vendor received it.
type request struct {
	at     time.Time
	header http.Header
	body   []byte
	event  envelope
}

func (q *request) attempt() string { return q.header.Get("X-Service-Attempt") }

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
	url    string
	secret string
	answer func(w http.ResponseWriter, q request) // nil: 200

	mu       sync.Mutex
	requests []request
	inFlight int
	most     int // requests at once
}

// register starts a receiver and registers it for the vendor.
func (h *hooks) register(v *testenv.Vendor, answer func(http.ResponseWriter, request)) *receiver {
	h.T.Helper()
	rc := h.newReceiver(answer)
	_, secret, err := h.Ledger.Webhooks.SetURL(h.T.Context(), v.Account, rc.url)
	testenv.Must(h.T, err)
	rc.secret = secret

	return rc
}

func (h *hooks) newReceiver(answer func(http.ResponseWriter, request)) *receiver {
	_, err := documented.Events() // takes longer than an owner that leaves waits for an answer
	testenv.Must(h.T, err)
	rc := &receiver{t: h.T, now: h.now, answer: answer}
	server := httptest.NewServer(rc)
	h.T.Cleanup(server.Close)
	rc.url = server.URL + "/hook"

	return rc
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := request{at: rc.now(), header: r.Header}
	q.body, _ = io.ReadAll(r.Body)
	if err := json.Unmarshal(q.body, &q.event); err != nil {
		rc.t.Errorf("the body %q is no JSON: %v", q.body, err)
	}
	if err := documented.Check(q.header, q.body); err != nil {
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
	return slices.Clone(rc.requests)
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

// check verifies both signatures with the secrets, and that headers and body agree.
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
