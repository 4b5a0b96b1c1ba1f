//go:build long

package systemtest

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/browser"
	"vendorapi/internal/testenv/testserver"
)

// person may sign in to the panel of a test.
type person struct{ name, password, roles string }

var (
	everybody = person{"demo", "kiraz-limon-incir-nane", "operator,finance"}
	operator  = person{"operasyon", "zeytin-ceviz-badem-dut", "operator"}
	finance   = person{"finans", "erik-kavun-armut-ayva", "finance"}
)

// peopleDir is a data directory whose panel knows all three.
func peopleDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	must(t, os.MkdirAll(keys, 0o700))
	var lines strings.Builder
	for _, p := range []person{everybody, operator, finance} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "reporting"), "user", p.name, "--roles", p.roles)
		cmd.Stdin = strings.NewReader(p.password + "\n")
		line, err := cmd.Output()
		must(t, err)
		lines.Write(line)
	}

	must(t, os.WriteFile(filepath.Join(keys, "panel-users"), []byte(lines.String()), 0o600))
	must(t, os.WriteFile(filepath.Join(keys, "panel-password"), []byte(everybody.password+"\n"), 0o600))

	return dir
}

// panelEnv is a whole system with a browser in front of it. Its couriers move only
// when the fleet API says so.
type panelEnv struct {
	*stackEnv
	*browser.Browser
	ledger *ledger.Ledger
}

func newPanelEnv(t *testing.T) *panelEnv {
	t.Helper()
	e := &panelEnv{stackEnv: startStack(t, stack.Options{DataDir: peopleDir(t), Courier: "manual", Reporting: true}), Browser: startBrowser(t)}
	var err error
	e.ledger, err = ledger.Open(t.Context(), ledger.Config{URL: e.Redis.URL, Environment: "sandbox"})
	must(t, err)
	t.Cleanup(func() { e.ledger.Close() })

	return e
}

// visitor is a browser of somebody who has not signed in.
func (e *panelEnv) visitor(t *testing.T) *Page {
	t.Helper()
	return openPage(t, e.Browser, e.Demo.PanelURL)
}

// signIn is a browser of somebody who has.
func (e *panelEnv) signIn(t *testing.T, who person) *Page {
	t.Helper()
	p := e.visitor(t)
	p.Visit("/login", http.StatusOK)
	submitSignIn(p, who.name, who.password)
	return p
}

func submitSignIn(p *Page, name, password string) {
	p.Fill("User name", name)
	p.Fill("Password", password)
	p.Press("Sign in")
}

// vendorNamed makes a vendor under a name.
func (e *panelEnv) vendorNamed(t *testing.T, name string) *vendor {
	t.Helper()
	v := newVendor(t, e.stackEnv)
	must(t, e.Admin.Call(t.Context(), http.MethodPatch, "/accounts/"+v.AccountID, map[string]any{"name": name}, nil))
	return v
}

// giveUp publishes an event that is so old that its first attempt is its last.
func (e *panelEnv) giveUp(t *testing.T, v *vendor) {
	t.Helper()
	account, err := delivery.ParseAccountID(v.AccountID)
	must(t, err)
	must(t, e.ledger.Webhooks.Publish(t.Context(), accounts.Notice{
		Account: account, Type: delivery.StoreActivated, OccurredAt: time.Now().Add(-24*time.Hour + 8*time.Second),
		Data: []byte(`{"externalStoreId":"branch-1"}`),
	}))
}

func (e *panelEnv) awaitEndpoint(t *testing.T, v *vendor, state string) {
	t.Helper()
	await(t, "the endpoint is "+state, func() bool {
		var endpoint struct{ Status string }
		must(t, e.Admin.Call(t.Context(), http.MethodGet, "/accounts/"+v.AccountID+"/webhook", nil, &endpoint))
		return endpoint.Status == state
	})
}

// carry takes an order of the demo fleet from Searching to a status.
func (e *panelEnv) carry(t *testing.T, order, status string) {
	t.Helper()
	e.Accept(t, order)
	if status == "Assigned" {
		e.AwaitStatus(t, order, status)
		return
	}
	e.Report(t, order, status, "")
}

// session is a person's session without a browser, for requests that no page of
// the panel would send.
type session struct {
	http   *http.Client
	origin string
	csrf   string
}

// anonymous is a client without a session.
func anonymous(origin string) *session {
	return &session{origin: origin, http: &http.Client{
		Jar: &cookies{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// newSession signs in and learns the session's proof from a page.
func newSession(t *testing.T, origin string, who person, page string) *session {
	t.Helper()
	c := anonymous(origin)
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

func (c *session) cookie() string { return c.http.Jar.Cookies(nil)[0].Value }

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
