package auth

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

var must = testenv.Must

// password is everybody's; its hash takes as little time as is allowed.
const (
	password  = "doğru at pil zımba"
	quickHash = "$argon2id$v=19$m=19456,t=2,p=1$uW2B4ayV4a5lJJjkCFadDQ$j+cH2JKrG4ufONuoUu8IBWE8PI2n4QN+p6dU2/J4hd4"
)

// cast are the people of the tests.
var cast = sync.OnceValue(func() (c struct {
	People
	financeToken, operatorToken string
}) {
	c.Users = mustUsers("ayse:finance:" + quickHash + "\ndeniz:operator:" + quickHash + "\nece:operator,finance:" + quickHash)
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

func mustUsers(lines string) []User {
	users, err := ParseUsers(lines)
	if err != nil {
		panic(err)
	}
	return users
}

// env is a panel with two things to protect: /reports/x for finance and /operate
// for operators, which tell who asked.
type env struct {
	*testenv.Env
	gate *Gate
	url  string
}

func newEnv(t *testing.T, change ...func(*Settings)) *env {
	t.Helper()
	e := &env{Env: testenv.NewWithClock(t)}
	e.open(cast().People, change...)
	return e
}

// open starts a panel on the environment's Redis, as another replica would.
func (e *env) open(people People, change ...func(*Settings)) {
	e.T.Helper()
	settings := Settings{PasswordChecks: 2}
	for _, c := range change {
		c(&settings)
	}

	var err error
	e.gate, err = New(e.OpenAs(stack.ReportingUser), people, settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(e.T, err)
	e.url = testenv.Serve(e.T, e.handler()).URL
}

func (e *env) handler() http.Handler {
	tell := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity := IdentityOf(r.Context())
		fmt.Fprintf(w, "%s is %s, csrf %q, field %q", identity.Name, identity.Roles, identity.CSRF, r.PostFormValue("field"))
	})

	mux := http.NewServeMux()
	for path, h := range map[string]http.Handler{
		"/": e.gate.Handler(), "/reports/x": e.gate.Require(tell, Finance), "/operate": e.gate.Require(tell, Operator), "/home": e.gate.Require(tell),
	} {
		mux.Handle(path, Protect(PolicyPage, h))
	}

	return mux
}

// pass moves the clock of the sessions.
func (e *env) pass(d time.Duration) { e.SetClock(e.Now().Add(d)) }

func (e *env) browser() *testenv.Client { return testenv.NewClient(e.T, e.url) }

func signIn(b *testenv.Client, user, password string) *testenv.Answer {
	b.T.Helper()
	return b.Post("/login", url.Values{"user": {user}, "password": {password}}, testenv.AcceptHTML)
}

// signedIn is a browser whose user has signed in.
func (e *env) signedIn(user string) *testenv.Client {
	e.T.Helper()
	b := e.browser()
	signIn(b, user, password).Want(http.StatusSeeOther)
	return b
}

var shownCSRF = regexp.MustCompile(`csrf "([^"]+)"`)

// csrfOf is the token that pages of the session carry.
func csrfOf(b *testenv.Client) string {
	b.T.Helper()
	return shownCSRF.FindStringSubmatch(b.Page("/home").Text)[1]
}

// sessionOf is the session's cookie; nil without one.
func sessionOf(b *testenv.Client) *http.Cookie {
	b.T.Helper()
	at, err := url.Parse(b.URL)
	must(b.T, err)
	for _, c := range b.HTTP.Jar.Cookies(at) {
		if c.Name == sessionCookie || c.Name == securePrefix+sessionCookie {
			return c
		}
	}
	return nil
}
