package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// env is a whole system with two vendors and two fleets in the same city. Its
// couriers move only when the fleet API says so.
type env struct {
	*stackEnv
	a, b  *vendor        // both with a store "branch-1" at the demo's fleet
	rival *client.Client // the fleet API of another fleet
	other stack.DemoFleet
	dir   string
}

const istanbulOnly = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`

// newEnv starts one; its DataDir is needed.
func newEnv(t *testing.T, o stack.Options) *env {
	t.Helper()
	o.Courier, o.Reporting = "manual", true
	e := &env{stackEnv: startStack(t, o), dir: o.DataDir}
	e.a, e.b = newVendor(t, e.stackEnv), newVendor(t, e.stackEnv)
	e.a.pending, e.b.pending = e.a.Create(t, nil), e.b.Create(t, nil)
	must(t, e.Admin.Call(t.Context(), http.MethodPost, "/fleets", map[string]any{
		"name": "Rakip Kurye", "subRegion": "İstanbul", "avgDeliveryMinutes": 20, "coverage": json.RawMessage(istanbulOnly),
	}, &e.other))
	e.rival = e.LoginFleet(t, e.other)

	return e
}

// vendor is one that keeps its webhooks, and whose receiver can be switched off.
type vendor struct {
	account
	secret   string // of its webhooks
	url      string
	pending  string // an order that is Searching
	tracking string // path of its last order's link, where a test keeps it
	received *receiver.Receiver
	down     atomic.Bool // its receiver answers 503

	mu   sync.Mutex
	seen []receiver.Event
}

// markup is what an attacker would write wherever text is taken: it ends the
// element and the attribute that it may stand in, and marks what it injects.
const markup = `'"><b data-marker onclick=alert(1)>`

// outage is what a receiver answers while it is down.
const outage = "bakım: " + markup

func newVendor(t *testing.T, e *stackEnv) *vendor {
	t.Helper()
	v := &vendor{account: e.Vendor(t, stack.Unlimited)}
	url, handle := listen(t)
	v.url = url
	v.secret = v.SetWebhook(t, v.url)
	var err error
	v.received, err = receiver.New(receiver.Options{Secrets: []string{v.secret}, Seen: v.keep})
	must(t, err)
	handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, outage)
			return
		}
		v.received.ServeHTTP(w, r)
	}))

	return v
}

func (v *vendor) keep(e receiver.Event, _ bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, e)
}

// events are those that have come so far.
func (v *vendor) events() []receiver.Event {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.seen)
}

// has reports whether an event has come.
func (v *vendor) has(eventID string) bool {
	return slices.ContainsFunc(v.events(), func(e receiver.Event) bool { return e.EventID == eventID })
}

// filled puts ids of a into a path: its account, store, pending order, and the
// demo's fleet.
func (e *env) filled(path string) string {
	return strings.NewReplacer("{account}", e.a.AccountID, "{store}", e.a.Store, "{order}", e.a.pending,
		"{fleet}", e.Demo.Fleet.FleetID).Replace(path)
}

// reply is an answer of any of the programs, JSON or not.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func replyOf(a *client.Answer) *reply { return &reply{a.Status, a.Header, a.Raw} }

func (r *reply) code() string {
	var envelope struct{ Data struct{ ErrorCode string } }
	if json.Unmarshal(r.body, &envelope) != nil {
		return "" // no envelope, so no code
	}
	return envelope.Data.ErrorCode
}

// ask sends a request as it is written, with headers in pairs, and follows
// nothing.
func (e *env) ask(t *testing.T, method, url, body string, headers ...string) *reply {
	t.Helper()
	r, err := e.try(t, method, url, body, headers...)
	must(t, err)
	return r
}

func (e *env) try(t *testing.T, method, url, body string, headers ...string) (*reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}

	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}

	resp, err := e.Admin.HTTP.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	content, err := io.ReadAll(resp.Body)

	return &reply{resp.StatusCode, resp.Header, content}, err
}

// alike fails unless two answers differ in nothing but time and the count of the
// asker's own requests.
func alike(t *testing.T, what string, x, y *reply) {
	t.Helper()
	if x.status != y.status || !bytes.Equal(x.body, y.body) {
		t.Errorf("%s: %d %s, the other %d %s", what, x.status, x.body, y.status, y.body)
	}

	for name := range x.header {
		moves := name == "Date" || name == "X-Ratelimit-Remaining" || name == "X-Ratelimit-Reset" || name == "Ratelimit"
		if !moves && !slices.Equal(x.header[name], y.header[name]) {
			t.Errorf("%s: %s is %q, the other's %q", what, name, x.header[name], y.header[name])
		}
	}

	if len(x.header) != len(y.header) {
		t.Errorf("%s: headers %v, the other's %v", what, x.header, y.header)
	}
}

// as sends what a vendor or a fleet sends, and expects an envelope.
func as(t *testing.T, c *client.Client, method, path string, body any, headers ...string) *client.Answer {
	t.Helper()
	a, err := c.Do(t.Context(), method, path, body, headers...)
	must(t, err)
	return a
}

// succeeds sends what must work and decodes data.
func succeeds(t *testing.T, c *client.Client, method, path string, body, data any, headers ...string) *client.Answer {
	t.Helper()
	a := as(t, c, method, path, body, headers...)
	if !a.OK() {
		t.Fatalf("%s %s: %d %s", method, path, a.Status, a.Raw)
	}

	if data != nil {
		must(t, a.Into(data))
	}
	return a
}

// unknownOrder has the form of an order id, and no order has it.
const unknownOrder = "00000000-0000-8000-8000-000000000000"

func number(text string) json.Number { return json.Number(text) }
