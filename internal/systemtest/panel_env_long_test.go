//go:build long

package systemtest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/systemtest/browser"
	"vendorapi/loadtest/receiver"
)

// person may sign in to the panel of a test.
type person struct{ name, password, roles string }

var (
	everybody = person{"demo", "kiraz-limon-incir-nane", "operator,finance"}
	operator  = person{"operasyon", "zeytin-ceviz-badem-dut", "operator"}
	finance   = person{"finans", "erik-kavun-armut-ayva", "finance"}
)

// writePeople prepares a data directory whose panel knows all three.
func writePeople(t *testing.T, dir string) {
	t.Helper()
	keys := filepath.Join(dir, "keys")
	must(t, os.MkdirAll(keys, 0o700))
	var lines strings.Builder
	for _, p := range []person{everybody, operator, finance} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "reporting"), "user", p.name, "--roles", p.roles)
		cmd.Stdin = strings.NewReader(p.password + "\n")
		line, err := cmd.Output()
		must(t, err)
		lines.Write(line)
	}
	must(t, os.WriteFile(filepath.Join(keys, "panel-users"), []byte(lines.String()), 0o600))
	must(t, os.WriteFile(filepath.Join(keys, "panel-password"), []byte(everybody.password+"\n"), 0o600))
}

// scene is a whole system with a browser in front of it. Its couriers move only
// when the fleet API says so.
type scene struct {
	*house
	*browser.Browser
	ledger *ledger.Ledger
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir := t.TempDir()
	writePeople(t, dir)
	s := &scene{house: newHouse(t, start(t, stack.Options{DataDir: dir, Courier: "manual", Reporting: true}))}
	s.Browser = browser.Start(t)
	var err error
	s.ledger, err = ledger.Open(t.Context(), ledger.Config{URL: s.Redis.URL, Environment: "sandbox"})
	must(t, err)
	t.Cleanup(func() { s.ledger.Close() })
	return s
}

// visitor is a browser of somebody who has not signed in.
func (s *scene) visitor(t *testing.T) *browser.Page {
	t.Helper()
	return s.Open(t, s.Demo.PanelURL)
}

// signIn is a browser of somebody who has.
func (s *scene) signIn(t *testing.T, who person) *browser.Page {
	t.Helper()
	p := s.visitor(t)
	p.Visit("/login", http.StatusOK)
	submitSignIn(p, who.name, who.password)
	return p
}

func submitSignIn(p *browser.Page, name, password string) {
	p.Fill("User name", name)
	p.Fill("Password", password)
	p.Press("Sign in")
}

// shop is a vendor with a receiver of webhooks that a test can switch off.
type shop struct {
	*vendor
	received *receiver.Receiver
	down     atomic.Bool
	tracking string // path of its last order's link, where a test keeps it
}

// outage is what a shop's receiver answers while it is down.
const outage = "bakım: " + markup

// shop makes a vendor under a name.
func (s *scene) shop(t *testing.T, name string) *shop {
	t.Helper()
	v := s.vendor(t, raised)
	must(t, s.admin.Call(t.Context(), http.MethodPatch, "/accounts/"+v.accountID, map[string]any{"name": name}, nil))
	b := &shop{vendor: v}
	l := listen(t)
	var set stack.Webhook
	must(t, v.Call(t.Context(), http.MethodPut, "/webhook", map[string]string{"url": l.url}, &set))
	var err error
	b.received, err = receiver.New(receiver.Options{Secrets: []string{set.Secret}})
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, outage)
			return
		}
		b.received.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }() // ends with the listener
	t.Cleanup(func() { server.Close() })
	return b
}

// giveUp publishes an event that is so old that its first attempt is its last.
func (s *scene) giveUp(t *testing.T, v *vendor) {
	t.Helper()
	account, err := delivery.ParseAccountID(v.accountID)
	must(t, err)
	must(t, s.ledger.Publish(t.Context(), ledger.Notice{
		Account: account, Type: delivery.StoreActivated, OccurredAt: time.Now().Add(-24*time.Hour + 8*time.Second),
		Data: []byte(`{"externalStoreId":"branch-1"}`),
	}))
}

func (s *scene) awaitEndpoint(t *testing.T, b *shop, state string) {
	t.Helper()
	eventually(t, time.Minute, "the endpoint is "+state, func() bool {
		var endpoint struct{ Status string }
		must(t, s.admin.Call(t.Context(), http.MethodGet, "/accounts/"+b.accountID+"/webhook", nil, &endpoint))
		return endpoint.Status == state
	})
}

// carry takes an order of the demo fleet from Searching to a status.
func (s *scene) carry(t *testing.T, order, status string) {
	t.Helper()
	must(t, s.fleet.Call(t.Context(), http.MethodPost, "/jobs/"+order+"/accept", map[string]any{
		"courier": map[string]any{"name": "Mehmet Yılmaz", "phone": "05551112233", "vehicleType": "motorcycle"},
	}, nil))
	if status == "Assigned" {
		s.awaitJob(t, order, status)
		return
	}
	s.report(t, order, status, "")
}

func (s *scene) report(t *testing.T, order, status, reason string) {
	t.Helper()
	body := map[string]any{"status": status}
	if reason != "" {
		body["failureReason"] = reason
	}
	must(t, s.fleet.Call(t.Context(), http.MethodPost, "/jobs/"+order+"/status", body, nil))
	s.awaitJob(t, order, status)
}

func (s *scene) awaitJob(t *testing.T, order, status string) {
	t.Helper()
	eventually(t, time.Minute, "the order is "+status, func() bool {
		var job struct{ Status string }
		must(t, s.fleet.Call(t.Context(), http.MethodGet, "/jobs/"+order, nil, &job))
		return job.Status == status
	})
}

// couriers is the fleet API of a fleet.
func (s *scene) couriers(t *testing.T, fleet stack.DemoFleet) *client.Client {
	t.Helper()
	c, err := s.admin.As(s.Demo.OpsURL+"/api/fleet/v1", "").Login(t.Context(), "/token", fleet.ClientID, fleet.ClientSecret)
	must(t, err)
	return c
}

// session is a person's session without a browser, for requests that no page of
// the panel would send.
type session struct {
	http   *http.Client
	origin string
	csrf   string
}

// session signs in and learns the session's proof from a page.
func (s *scene) session(t *testing.T, who person, page string) *session {
	t.Helper()
	jar := &cookies{}
	c := &session{origin: s.Demo.PanelURL, http: &http.Client{
		Timeout: time.Minute, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	status, _ := c.send(t, http.MethodPost, "/login", url.Values{"user": {who.name}, "password": {who.password}})
	if status != http.StatusSeeOther {
		t.Fatalf("%s: signing in answers %d", who.name, status)
	}
	_, body := c.send(t, http.MethodGet, page, nil)
	_, rest, found := strings.Cut(body, `<meta name="csrf" content="`)
	c.csrf, _, _ = strings.Cut(rest, `"`)
	if !found || c.csrf == "" {
		t.Fatalf("%s shows no proof to %s: %.300s", page, who.name, body)
	}
	return c
}

// send sends a request, a form when there is one, with headers in pairs, and
// returns the status and the body.
func (c *session) send(t *testing.T, method, path string, form url.Values, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.origin+path, strings.NewReader(form.Encode()))
	must(t, err)
	req.Header.Set("Accept", "text/html")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(body)
}

// cookies is a jar for one site.
type cookies struct{ held []*http.Cookie }

func (c *cookies) SetCookies(_ *url.URL, fresh []*http.Cookie) { c.held = append(c.held, fresh...) }
func (c *cookies) Cookies(*url.URL) []*http.Cookie             { return c.held }
