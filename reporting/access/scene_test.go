package access

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
)

// One redis-server serves the tests, each in a database of its own.
var (
	redis    *stack.Redis
	database atomic.Int32
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "access-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	redis, err = stack.StartRedis(context.Background(), stack.RedisOptions{Dir: dir, Extra: []string{"--databases", "256", "--appendfsync", "no"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer redis.Stop()
	return m.Run()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// password is everybody's.
const password = "doğru at pil zımba"

// cast are the people of the tests: hashing takes a while, so it is done once.
var cast = sync.OnceValue(func() (c struct {
	People
	financeToken, operatorToken string
}) {
	for _, u := range []struct {
		name  string
		roles Roles
	}{{"ayse", Roles{Finance}}, {"deniz", Roles{Operator}}, {"ece", Roles{Operator, Finance}}} {
		user, err := NewUser(u.name, u.roles, password)
		if err != nil {
			panic(err)
		}
		c.Users = append(c.Users, user)
	}
	for i, into := range []*string{&c.financeToken, &c.operatorToken} {
		text, token, err := NewToken(fmt.Sprint("program", i), Roles{[]Role{Finance, Operator}[i]})
		if err != nil {
			panic(err)
		}
		*into = text
		c.Tokens = append(c.Tokens, token)
	}
	return c
})

// scene is a panel with two things to protect: /reports/x for finance and
// /operate for operators, which tell who asked.
type scene struct {
	*testing.T
	gate   *Gate
	ledger *ledger.Ledger
	server *httptest.Server
	now    atomic.Int64 // microseconds since 1970
	config ledger.Config
}

func newScene(t *testing.T, change ...func(*Settings)) *scene {
	t.Helper()
	return newSceneOf(t, cast().People, change...)
}

func newSceneOf(t *testing.T, people People, change ...func(*Settings)) *scene {
	t.Helper()
	s := &scene{T: t}
	s.now.Store(time.Now().UnixMicro())
	s.config = ledger.Config{URL: fmt.Sprintf("redis://%s/%d", redis.Addr, database.Add(1)%256), Environment: "sandbox", Partitions: 1,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.UnixMicro(s.now.Load()) }, ClockKey: "test:clock"}
	s.open(people, change...)
	return s
}

// open starts a panel on the scene's Redis, as another replica would.
func (s *scene) open(people People, change ...func(*Settings)) {
	s.Helper()
	l, err := ledger.Open(s.Context(), s.config)
	must(s, err)
	s.Cleanup(func() { _ = l.Close() })
	settings := Settings{PasswordChecks: 2}
	for _, c := range change {
		c(&settings)
	}
	s.ledger = l
	s.gate, err = New(l, people, settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(s, err)
	mux := http.NewServeMux()
	for path, h := range map[string]http.Handler{
		"/": s.gate.Handler(), "/reports/x": s.gate.Require(tell(), Finance), "/operate": s.gate.Require(tell(), Operator), "/home": s.gate.Require(tell()),
	} {
		mux.Handle(path, Protect(PolicyPage, h))
	}
	s.server = httptest.NewServer(mux)
	s.Cleanup(s.server.Close)
}

// pass moves the clock of the sessions.
func (s *scene) pass(d time.Duration) { s.now.Add(d.Microseconds()) }

// tell answers who asked and what a form said.
func tell() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity := IdentityOf(r.Context())
		fmt.Fprintf(w, "%s is %s, csrf %q, field %q", identity.Name, identity.Roles, identity.CSRF, r.PostFormValue("field"))
	})
}

// browser keeps cookies and does not follow redirects.
type browser struct {
	*scene
	client *http.Client
}

func (s *scene) browser() *browser {
	jar, err := cookiejar.New(nil)
	must(s, err)
	return &browser{s, &http.Client{Jar: jar, Timeout: 30 * time.Second,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // a test's own certificate
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	text string
}

// do sends a request with headers "Name: value".
func (b *browser) do(method, path string, body io.Reader, headers ...string) answer {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.server.URL+path, body)
	must(b, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := b.client.Do(r)
	must(b, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(b, err)
	return answer{resp, string(text)}
}

const htmlPlease = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"

func (b *browser) get(path string, headers ...string) answer {
	b.Helper()
	return b.do("GET", path, nil, headers...)
}

// post sends a form of names and values.
func (b *browser) post(path string, form map[string]string, headers ...string) answer {
	b.Helper()
	values := url.Values{}
	for name, value := range form {
		values.Set(name, value)
	}
	return b.do("POST", path, strings.NewReader(values.Encode()), append(headers, "Content-Type: application/x-www-form-urlencoded", htmlPlease)...)
}

func (b *browser) signIn(user, password string) answer {
	b.Helper()
	return b.post("/login", map[string]string{"user": user, "password": password})
}

// signedIn is a browser whose user has signed in.
func (s *scene) signedIn(user string) *browser {
	s.Helper()
	b := s.browser()
	b.signIn(user, password).want(s, http.StatusSeeOther, "")
	return b
}

var shownCSRF = regexp.MustCompile(`csrf "([^"]+)"`)

// csrf is the token that pages of the session carry.
func (b *browser) csrf() string {
	b.Helper()
	found := shownCSRF.FindStringSubmatch(b.get("/home").want(b, http.StatusOK, "").text)
	if found == nil {
		b.Fatal("no CSRF token")
	}
	return found[1]
}

// session is the session cookie; nil without one.
func (b *browser) session() *http.Cookie {
	at, err := url.Parse(b.server.URL)
	must(b, err)
	for _, c := range b.client.Jar.Cookies(at) {
		if c.Name == plainCookie || c.Name == secureCookie {
			return c
		}
	}
	return nil
}

// want checks the status and a part of the text.
func (a answer) want(t testing.TB, status int, part string) answer {
	t.Helper()
	if a.StatusCode != status || !strings.Contains(a.text, part) {
		t.Fatalf("%s %s: %d %v %s; want %d %q", a.Request.Method, a.Request.URL, a.StatusCode, a.Header, a.text, status, part)
	}
	return a
}

// wantHeader checks a header's value.
func (a answer) wantHeader(t testing.TB, name, value string) answer {
	t.Helper()
	if got := a.Header.Get(name); got != value {
		t.Errorf("%s %s: %s is %q, want %q", a.Request.Method, a.Request.URL, name, got, value)
	}
	return a
}
