package admin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/layout"
)

// One system serves the tests: Redis, the gateway and the worker as they are
// shipped. Each test has accounts and fleets of its own. It starts with the
// first that needs it, because a fuzz target's processes need none.
var system struct {
	once sync.Once
	*stack.Stack
	dir string
	err error
}

func startSystem(t *testing.T) {
	t.Helper()
	system.once.Do(func() {
		system.dir, system.err = os.MkdirTemp("", "operate-test-*")
		if system.err == nil {
			system.Stack, system.err = stack.Start(context.Background(), stack.Options{DataDir: system.dir, BinDir: testserver.Programs(t), Courier: "manual"})
		}
	})
	must(t, system.err)
}

func TestMain(m *testing.M) {
	code := testserver.Run(m)
	if s := system.Stack; s != nil {
		if err := testserver.Denied(context.Background(), s.Redis); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		s.Stop()
	}

	_ = os.RemoveAll(system.dir)
	os.Exit(code)
}

var must = testenv.Must

// logs are lines that several processes write at once.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// env is a panel with these pages only, on the system's Redis and gateway, and the
// browser of an operator who is signed in.
type env struct {
	*testenv.Client
	ledger *ledger.Ledger // as the panel opens it
	pages  *Pages
	log    *logs
	api    *client.Client // the admin API, for what a test needs beforehand
	// vendors are those who have put a store: tokens are few.
	vendors map[vendor]*client.Client
}

func newEnv(t *testing.T) *env { t.Helper(); return newEnvAt(t, "") }

// newEnvAt is one whose admin API lies elsewhere; empty: the system's.
func newEnvAt(t *testing.T, gateway string) *env {
	t.Helper()
	t.Parallel()

	startSystem(t)
	if gateway == "" {
		gateway = system.Demo.OpsURL
	}

	e := &env{Client: testenv.NewClient(t, ""), log: new(logs), vendors: map[vendor]*client.Client{}}
	log := slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	e.ledger, err = ledger.Open(t.Context(), ledger.Config{URL: system.RedisURL(stack.ReportingUser), Environment: "sandbox", Log: log})
	must(t, err)
	t.Cleanup(func() { _ = e.ledger.Close() })
	gate, err := auth.New(e.ledger, authenv.People(), auth.Settings{PasswordChecks: 2}, log, prometheus.NewRegistry())
	must(t, err)
	f := layout.New(gate, e.ledger, "sandbox", log)
	admin, err := NewClient(Settings{URL: gateway}, system.Demo.AdminKey)
	must(t, err)
	e.pages = New(f, admin)
	f.Lists.Few.MaxAge = 0 // tests change things themselves

	// On a busy machine the gateway and Redis answer later than operators are kept waiting.
	admin.Timeout = testserver.Timeout
	e.pages.forms.Timeout = testserver.Timeout
	f.Lists.Few.Timeout = testserver.Timeout

	mux := http.NewServeMux()
	e.pages.Routes(mux)
	mux.Handle("/login", gate.Handler())
	e.Client = testenv.Serve(t, mux, testenv.AcceptHTML)
	e.Client = e.browser("deniz")
	e.api = client.New(system.Demo.OpsURL+"/api/admin/v1", 2)
	e.api.Bearer = system.Demo.AdminKey

	return e
}

// sessions are those that tests share: attempts to sign in are counted.
var (
	sessions   = map[string][]*http.Cookie{}
	sessionsMu sync.Mutex
)

// browser is one whose user is signed in.
func (e *env) browser(user string) *testenv.Client {
	e.T.Helper()
	sessionsMu.Lock()
	defer sessionsMu.Unlock()
	b := e.stranger()
	at, err := url.Parse(e.URL)
	must(e.T, err)
	if sessions[user] == nil {
		authenv.SignIn(b, user)
		sessions[user] = b.HTTP.Jar.Cookies(at)
	}

	b.HTTP.Jar.SetCookies(at, sessions[user])

	return b
}

// stranger is one whose user is not.
func (e *env) stranger() *testenv.Client { return testenv.NewClient(e.T, e.URL, testenv.AcceptHTML) }

// done checks that an action leads to a page that says what was done.
func (e *env) done(a *testenv.Answer, key string) *testenv.Answer {
	e.T.Helper()
	to := a.Want(http.StatusSeeOther).Header.Get("Location")
	if !strings.Contains(to, "done="+key) {
		e.T.Fatalf("%s leads to %s, want done=%s", a, to, key)
	}
	return e.Get(to).Want(200, `class="done"`)
}

// call is one request of the admin API by somebody else.
func (e *env) call(method, path string, body any) map[string]any {
	e.T.Helper()
	var data map[string]any
	must(e.T, e.api.Call(e.T.Context(), method, path, body, &data))
	return data
}

// unique makes a name that no other test has, and no other run of this one.
func unique(name string) string { return name + " " + strings.ToLower(rand.Text()[:8]) }

// vendor is an account with its credentials.
type vendor struct {
	id, clientID, secret string
}

func (v vendor) account() delivery.AccountID {
	id, err := delivery.ParseAccountID(v.id)
	if err != nil {
		panic(err)
	}
	return id
}

func (e *env) newAccount(name string) vendor {
	e.T.Helper()
	made := e.call(http.MethodPost, "/accounts", map[string]string{"name": name})
	return vendor{made["accountId"].(string), made["clientId"].(string), made["clientSecret"].(string)}
}

const istanbul = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`

func (e *env) newFleet(name string) delivery.FleetID {
	e.T.Helper()
	made := e.call(http.MethodPost, "/fleets", map[string]any{
		"name": name, "subRegion": "Kadıköy", "avgDeliveryMinutes": 25, "coverage": json.RawMessage(istanbul)})
	id, err := delivery.ParseFleetID(made["fleetId"].(string))
	must(e.T, err)
	must(e.T, e.ledger.Fleets.Load(e.T.Context()))

	return id
}

// as is the vendor's own client of the Vendor API.
func (e *env) as(v vendor) *client.Client {
	e.T.Helper()
	c, err := e.login(v)
	must(e.T, err)
	return c
}

func (e *env) login(v vendor) (*client.Client, error) {
	c := client.New(system.Demo.BaseURL+"/api/vendor/v1", 2)
	var token struct{ AccessToken string }
	err := c.Call(e.T.Context(), http.MethodPost, "/token", map[string]string{"clientId": v.clientID, "clientSecret": v.secret}, &token)
	return c.As(c.Base, token.AccessToken), err
}

// putStore registers a store that awaits the fleet's approval.
func (e *env) putStore(v vendor, id, name string, fleet delivery.FleetID) {
	e.T.Helper()
	if e.vendors[v] == nil {
		e.vendors[v] = e.as(v)
	}
	must(e.T, e.vendors[v].Call(e.T.Context(), http.MethodPut, "/stores/"+strings.ReplaceAll(url.PathEscape(id), ".", "%2E"), map[string]any{
		"name": name, "taxNumber": "1234567890", "phone": "5321234567", "fleetId": fleet.String(),
		"address": map[string]any{"text": "Caferağa Mah. Moda Cad. 1, Kadıköy", "latitude": 40.99, "longitude": 29.03}}, nil))
}

func (e *env) activeStore(v vendor, id, name string, fleet delivery.FleetID) {
	e.T.Helper()
	e.putStore(v, id, name, fleet)
	e.call(http.MethodPost, Path("accounts", v.id, "stores", id, "confirm"), nil)
}

func (e *env) store(v vendor, id string) *delivery.Store {
	e.T.Helper()
	store, err := e.ledger.Stores.Get(e.T.Context(), v.account(), id)
	must(e.T, err)
	return store
}

func (e *env) account(v vendor) *delivery.Account {
	e.T.Helper()
	a, err := e.ledger.Accounts.Get(e.T.Context(), v.account())
	must(e.T, err)
	return a
}

func (e *env) fleet(id delivery.FleetID) *delivery.Fleet {
	e.T.Helper()
	must(e.T, e.ledger.Fleets.Load(e.T.Context()))
	return e.ledger.Fleets.Snapshot().Fleet(id)
}

func (e *env) endpoint(v vendor) *webhooks.WebhookEndpoint {
	e.T.Helper()
	w, err := e.ledger.Webhooks.Endpoint(e.T.Context(), v.account())
	must(e.T, err)
	return w
}

func (e *env) await(what string, condition func() bool) {
	e.T.Helper()
	testserver.Await(e.T, what, condition)
}

// secrets are the two that a page shows once: the client's id and its secret.
func secrets(a *testenv.Answer) (codes []string) {
	a.T.Helper()
	for _, section := range testenv.All(a.Tree(), "section", "secret") {
		for _, code := range testenv.All(section, "code") {
			codes = append(codes, testenv.Words(code))
		}
	}

	if len(codes) == 0 {
		a.T.Fatalf("%s shows no secret", a)
	}

	return codes
}

// search is what stands in a field of the page's search.
func searched(a *testenv.Answer, field string) string {
	for _, form := range testenv.All(a.Tree(), "form") {
		if testenv.Attribute(form, "role") == "search" {
			return testenv.Fields(form).Get(field)
		}
	}
	return ""
}

// Submit opens a page, fills in its form for the action, and sends it; see
// testenv.Answer.Form.
func (e *env) Submit(page, action string, changes ...string) *testenv.Answer {
	e.T.Helper()
	form := e.Page(page).Form(action, "", "")
	for i := 0; i < len(changes); i += 2 {
		form.Set(changes[i], changes[i+1])
	}
	return e.Post(action, form)
}

// Press opens a page and presses the button with the name and value.
func (e *env) Press(page, action, name, value string) *testenv.Answer {
	e.T.Helper()
	return e.Post(action, e.Page(page).Form(action, name, value))
}

// faultOf is what stands beside a field that is marked as wrong; otherwise empty.
func faultOf(a *testenv.Answer, field string) string {
	a.T.Helper()
	for _, n := range testenv.All(a.Tree(), "") {
		if testenv.Attribute(n, "name") == field && slices.Contains([]string{"input", "textarea", "select"}, n.Data) {
			beside := a.ByID(testenv.Attribute(n, "aria-describedby"))
			if testenv.Attribute(n, "aria-invalid") != "true" || beside == nil {
				return ""
			}
			return testenv.Words(beside)
		}
	}

	return ""
}
