package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/reporting/access"
	"vendorapi/reporting/adminapi"
	"vendorapi/reporting/frame"
)

// One system serves the tests: Redis, the gateway and the worker as they are
// shipped. Each test has accounts and fleets of its own. It starts with the
// first that needs it, because a fuzz target's processes need none.
var (
	system      *stack.Stack
	startSystem = sync.OnceValue(func() (err error) {
		dir, err := os.MkdirTemp("", "operate-test-*")
		if err == nil {
			system, err = stack.Start(context.Background(), stack.Options{DataDir: dir, Courier: "manual"})
		}
		removeSystem = func() { _ = os.RemoveAll(dir) }
		return err
	})
	removeSystem = func() {}
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	defer func() {
		if system != nil {
			system.Stop()
		}
		removeSystem()
	}()
	return m.Run()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const password = "doğru at pil zımba"

// people are those who sign in: hashing takes a while, so it is done once.
var people = sync.OnceValue(func() (p access.People) {
	for name, role := range map[string]access.Role{"deniz": access.Operator, "ayse": access.Finance} {
		user, err := access.NewUser(name, access.Roles{role}, password)
		if err != nil {
			panic(err)
		}
		p.Users = append(p.Users, user)
	}
	return p
})

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

// scene is a panel with these pages only, on the system's Redis and gateway.
type scene struct {
	*testing.T
	ledger *ledger.Ledger
	pages  *Pages
	server *httptest.Server
	log    *logs
	api    *client.Client // the admin API, for what a test needs beforehand
	// vendors are those who have put a store: tokens are few.
	vendors map[vendor]*client.Client
}

func newScene(t *testing.T) *scene { return newSceneAt(t, "") }

// newSceneAt is one whose admin API lies elsewhere; empty: the system's.
func newSceneAt(t *testing.T, gateway string) *scene {
	t.Helper()
	must(t, startSystem())
	if gateway == "" {
		gateway = system.Demo.OpsURL
	}
	s := &scene{T: t, log: new(logs), vendors: map[vendor]*client.Client{}}
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	s.ledger, err = ledger.Open(t.Context(), ledger.Config{URL: system.Redis.URL, Environment: "sandbox", Log: log})
	must(t, err)
	t.Cleanup(func() { _ = s.ledger.Close() })
	gate, err := access.New(s.ledger, people(), access.Settings{PasswordChecks: 2}, log, prometheus.NewRegistry())
	must(t, err)
	f, err := frame.New(gate, "sandbox", log)
	must(t, err)
	admin, err := adminapi.New(adminapi.Settings{URL: gateway}, system.Demo.AdminKey)
	must(t, err)
	s.pages, err = New(f, s.ledger, admin, log)
	must(t, err)
	s.pages.accounts.Age, s.pages.receivers.Age = 0, 0 // tests change things themselves
	mux := http.NewServeMux()
	s.pages.Routes(mux)
	mux.Handle("/login", gate.Handler())
	mux.Handle("/assets/", f.Assets())
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	s.api = client.New(system.Demo.OpsURL+"/api/admin/v1", 2)
	s.api.Bearer = system.Demo.AdminKey
	return s
}

// call is one request of the admin API by somebody else.
func (s *scene) call(method, path string, body any) map[string]any {
	s.Helper()
	var data map[string]any
	must(s, s.api.Call(s.Context(), method, path, body, &data))
	return data
}

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

func (s *scene) newAccount(name string) vendor {
	s.Helper()
	made := s.call(http.MethodPost, "/accounts", map[string]string{"name": name})
	return vendor{made["accountId"].(string), made["clientId"].(string), made["clientSecret"].(string)}
}

const istanbul = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`

func (s *scene) newFleet(name string) delivery.FleetID {
	s.Helper()
	made := s.call(http.MethodPost, "/fleets", map[string]any{
		"name": name, "subRegion": "Kadıköy", "avgDeliveryMinutes": 25, "coverage": json.RawMessage(istanbul)})
	id, err := delivery.ParseFleetID(made["fleetId"].(string))
	must(s, err)
	must(s, s.ledger.LoadFleets(s.Context()))
	return id
}

// as is the vendor's own client of the Vendor API.
func (s *scene) as(v vendor) *client.Client {
	s.Helper()
	c := client.New(system.Demo.BaseURL+"/api/vendor/v1", 2)
	var token struct{ AccessToken string }
	must(s, c.Call(s.Context(), http.MethodPost, "/token", map[string]string{"clientId": v.clientID, "clientSecret": v.secret}, &token))
	return c.As(c.Base, token.AccessToken)
}

// putStore registers a store that awaits the fleet's approval.
func (s *scene) putStore(v vendor, id, name string, fleet delivery.FleetID) {
	s.Helper()
	if s.vendors[v] == nil {
		s.vendors[v] = s.as(v)
	}
	must(s, s.vendors[v].Call(s.Context(), http.MethodPut, "/stores/"+strings.ReplaceAll(url.PathEscape(id), ".", "%2E"), map[string]any{
		"name": name, "taxNumber": "1234567890", "phone": "5321234567", "fleetId": fleet.String(),
		"address": map[string]any{"text": "Caferağa Mah. Moda Cad. 1, Kadıköy", "latitude": 40.99, "longitude": 29.03}}, nil))
}

func (s *scene) activeStore(v vendor, id, name string, fleet delivery.FleetID) {
	s.Helper()
	s.putStore(v, id, name, fleet)
	s.call(http.MethodPost, adminapi.Path("accounts", v.id, "stores", id, "confirm"), nil)
}

func (s *scene) store(v vendor, id string) *delivery.Store {
	s.Helper()
	store, err := s.ledger.Store(s.Context(), v.account(), id)
	must(s, err)
	return store
}

func (s *scene) account(v vendor) *delivery.Account {
	s.Helper()
	a, err := s.ledger.Account(s.Context(), v.account())
	must(s, err)
	return a
}

func (s *scene) fleet(id delivery.FleetID) *delivery.Fleet {
	s.Helper()
	must(s, s.ledger.LoadFleets(s.Context()))
	return s.ledger.Fleets().Fleet(id)
}

func (s *scene) endpoint(v vendor) *ledger.WebhookEndpoint {
	s.Helper()
	e, err := s.ledger.WebhookEndpoint(s.Context(), v.account())
	must(s, err)
	return e
}

// await polls until the condition holds.
func (s *scene) await(what string, condition func() bool) {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited in vain: %s", what)
		}
	}
}

// browser keeps cookies and does not follow redirects.
type browser struct {
	*scene
	client *http.Client
}

// sessions are those that tests share: attempts to sign in are counted.
var (
	sessions   = map[string]*http.Cookie{}
	sessionsMu sync.Mutex
)

// browser is one whose user is signed in.
func (s *scene) browser(user string) *browser {
	s.Helper()
	sessionsMu.Lock()
	defer sessionsMu.Unlock()
	b := s.stranger()
	at, err := url.Parse(s.server.URL)
	must(s, err)
	if sessions[user] == nil {
		sessions[user] = b.signIn(user)
	}
	b.client.Jar.SetCookies(at, []*http.Cookie{sessions[user]})
	return b
}

// stranger is one whose user is not.
func (s *scene) stranger() *browser {
	s.Helper()
	jar, err := cookiejar.New(nil)
	must(s, err)
	return &browser{s, &http.Client{Jar: jar, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// signIn begins a session.
func (b *browser) signIn(user string) *http.Cookie {
	b.Helper()
	return b.post("/login", url.Values{"user": {user}, "password": {password}}).want(http.StatusSeeOther).Cookies()[0]
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	t    *testing.T
	text string
}

func (b *browser) do(method, path string, body io.Reader, headers ...string) answer {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.server.URL+path, body)
	must(b, err)
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := b.client.Do(r)
	must(b, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(b, err)
	return answer{resp, b.T, string(text)}
}

func (b *browser) get(path string) answer {
	b.Helper()
	return b.do(http.MethodGet, path, nil)
}

func (b *browser) post(path string, form url.Values, headers ...string) answer {
	b.Helper()
	return b.do(http.MethodPost, path, strings.NewReader(form.Encode()), append(headers, "Content-Type: application/x-www-form-urlencoded")...)
}

// want checks the status and that the text has all of these parts.
func (a answer) want(status int, parts ...string) answer {
	a.t.Helper()
	if a.StatusCode != status {
		a.t.Fatalf("%s %s: %d, want %d: %s", a.Request.Method, a.Request.URL, a.StatusCode, status, a.brief())
	}
	for _, part := range parts {
		if !strings.Contains(a.text, part) {
			a.t.Fatalf("%s %s lacks %q: %s", a.Request.Method, a.Request.URL, part, a.brief())
		}
	}
	return a
}

// brief is the page's content.
func (a answer) brief() string {
	_, main, found := strings.Cut(a.text, "<main")
	if !found {
		main = a.text
	}
	return main[:min(len(main), 3000)]
}

// without checks that none of these stands in the text.
func (a answer) without(parts ...string) answer {
	a.t.Helper()
	for _, part := range parts {
		if strings.Contains(a.text, part) {
			a.t.Fatalf("%s %s has %q", a.Request.Method, a.Request.URL, part)
		}
	}
	return a
}

// wantDone checks that an action leads to a page that says what was done.
func (a answer) wantDone(b *browser, key string) answer {
	a.t.Helper()
	a.want(http.StatusSeeOther)
	to := a.Header.Get("Location")
	if !strings.Contains(to, "done="+key) {
		a.t.Fatalf("%s leads to %s, want done=%s", a.Request.URL, to, key)
	}
	return b.get(to).want(http.StatusOK, `class="done"`)
}
