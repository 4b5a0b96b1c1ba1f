package systemtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// TestAccess: who may do what, over every endpoint of all programs, and that
// nothing of what they did it with is written anywhere. The parts build on each
// other: what the last one searches is what the others have left.
//
//rule:what-the-service-does/facts-that/payment-handling-the-service-stores endpoints/all-endpoints-except-the-token
//rule:private-apis/private-listener-json-the-same decisions/must-not-be-added-because
func TestAccess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *site)
	}{
		{"TablesHaveEveryRoute", testTablesAreComplete},
		{"CredentialsOpenTheirOwnAPIOnly", testCredentials},
		{"PrivateRoutesAreNotPublic", testPrivateRoutes},
		{"TenantsDoNotMeet", testTenants},
		{"PanelIsForItsOwnPeople", testPanelCredentials},
		{"SecretsAreNowhere", testSecrets},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, s) })
	}
}

// site is a whole system with two vendors and two fleets in the same city. Its
// couriers move only when the fleet API says so.
type site struct {
	*house
	a, b  *tenant        // both with a store "branch-1" at the demo's fleet
	rival *client.Client // the fleet API of another fleet
	other stack.DemoFleet
	// workerOps and reportingOps are where those two show their metrics.
	workerOps, reportingOps string
	dir                     string
}

// tenant is a vendor that keeps its webhooks.
type tenant struct {
	*vendor
	secret  string // of its webhooks
	url     string
	pending string // an order that is Searching

	mu   sync.Mutex
	seen []receiver.Event
	down bool // its receiver answers 503
}

const istanbulOnly = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	writePeople(t, s.dir)
	var err error
	s.workerOps, err = stack.FreeAddr()
	must(t, err)
	s.reportingOps, err = stack.FreeAddr()
	must(t, err)
	s.house = newHouse(t, start(t, stack.Options{DataDir: s.dir, Courier: "manual", Reporting: true,
		WorkerOpsAddr: s.workerOps, ReportingOpsAddr: s.reportingOps, Env: []string{"LOG_LEVEL=debug"}}))
	s.a, s.b = s.tenant(t), s.tenant(t)
	must(t, s.admin.Call(t.Context(), http.MethodPost, "/fleets", map[string]any{
		"name": "Rakip Kurye", "subRegion": "İstanbul", "avgDeliveryMinutes": 20, "coverage": json.RawMessage(istanbulOnly),
	}, &s.other))
	s.rival, err = s.admin.As(s.Demo.OpsURL+"/api/fleet/v1", "").Login(t.Context(), "/token", s.other.ClientID, s.other.ClientSecret)
	must(t, err)
	return s
}

func (s *site) tenant(t *testing.T) *tenant {
	t.Helper()
	v := &tenant{vendor: s.vendor(t, raised)}
	l := listen(t)
	v.url = l.url
	var set stack.Webhook
	must(t, v.Call(t.Context(), http.MethodPut, "/webhook", map[string]string{"url": v.url}, &set))
	v.secret = set.Secret
	l.serve(t, receiver.Options{Secrets: []string{v.secret}, Refuse: v.refuse, Seen: v.keep})
	v.pending = v.create(t, nil)
	return v
}

func (v *tenant) keep(e receiver.Event, _ bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, e)
}

func (v *tenant) refuse(receiver.Event) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return http.StatusServiceUnavailable
	}
	return 0
}

func (v *tenant) setDown(down bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.down = down
}

// events are those that have come so far.
func (v *tenant) events() []receiver.Event {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.seen)
}

// has tells whether an event has come.
func (v *tenant) has(eventID string) bool {
	return slices.ContainsFunc(v.events(), func(e receiver.Event) bool { return e.EventID == eventID })
}

// filled puts ids of a into a path: its account, store, pending order, and the
// demo's fleet.
func (s *site) filled(path string) string {
	return strings.NewReplacer("{account}", s.a.accountID, "{store}", s.a.store, "{order}", s.a.pending,
		"{fleet}", s.Demo.Fleet.FleetID).Replace(path)
}

// reply is an answer of any of the programs, JSON or not.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r *reply) code() string {
	var envelope struct{ Data struct{ ErrorCode string } }
	if json.Unmarshal(r.body, &envelope) != nil {
		return "" // no envelope, so no code
	}
	return envelope.Data.ErrorCode
}

// ask sends a request as it is written, with headers in pairs, and follows
// nothing.
func (s *site) ask(t *testing.T, method, url, body string, headers ...string) *reply {
	t.Helper()
	r, err := s.try(t, method, url, body, headers...)
	must(t, err)
	return r
}

func (s *site) try(t *testing.T, method, url, body string, headers ...string) (*reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.admin.HTTP.Transport.RoundTrip(req)
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
		moves := name == "Date" || name == "X-Ratelimit-Remaining" || name == "X-Ratelimit-Reset"
		if !moves && !slices.Equal(x.header[name], y.header[name]) {
			t.Errorf("%s: %s is %q, the other's %q", what, name, x.header[name], y.header[name])
		}
	}
	if len(x.header) != len(y.header) {
		t.Errorf("%s: headers %v, the other's %v", what, x.header, y.header)
	}
}
