package access

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

func TestRequire_TellsRolesApartForTokens(t *testing.T) {
	s := newScene(t)
	b := s.browser()
	finance, operator := "Authorization: Bearer "+cast().financeToken, "Authorization: Bearer "+cast().operatorToken
	for _, c := range []struct {
		name, method, path string
		headers            []string
		status             int
		part               string
	}{
		{"finance reads", "GET", "/reports/x", []string{finance}, 200, "program0 is finance"},
		{"the scheme in any case", "GET", "/reports/x", []string{"Authorization: bearer  " + cast().financeToken}, 200, "program0"},
		{"a token needs no CSRF token", "POST", "/operate", []string{operator}, 200, "program1 is operator"},
		{"an operator reads no reports", "GET", "/reports/x", []string{operator}, 403, `"errorCode":"FORBIDDEN"`},
		{"finance does not operate", "POST", "/operate", []string{finance}, 403, `"errorCode":"FORBIDDEN"`},
		{"either is somebody", "GET", "/home", []string{operator}, 200, "program1"},
		{"nobody", "GET", "/reports/x", nil, 401, `"errorCode":"TOKEN_INVALID"`},
		{"nobody with HEAD", "HEAD", "/reports/x", nil, 401, ""},
		{"another token", "GET", "/reports/x", []string{finance + "x"}, 401, `"errorCode":"TOKEN_INVALID"`},
		{"an empty token", "GET", "/reports/x", []string{"Authorization: Bearer "}, 401, `"errorCode":"TOKEN_INVALID"`},
		{"a very long token", "GET", "/reports/x", []string{finance + strings.Repeat("x", 10_000)}, 401, `"errorCode":"TOKEN_INVALID"`},
		{"the token's name", "GET", "/reports/x", []string{"Authorization: Bearer program0"}, 401, `"errorCode":"TOKEN_INVALID"`},
		{"another scheme", "GET", "/reports/x", []string{"Authorization: Basic " + cast().financeToken}, 401, `"errorCode":"TOKEN_INVALID"`},
		{"two tokens", "GET", "/reports/x", []string{finance, finance}, 401, `"errorCode":"TOKEN_INVALID"`},
		{"the token in the query", "GET", "/reports/x?token=" + cast().financeToken, nil, 401, `"errorCode":"TOKEN_INVALID"`},
		{"the token as a cookie", "GET", "/reports/x", []string{"Cookie: panel=" + cast().financeToken}, 401, `"errorCode":"TOKEN_INVALID"`},
		{"a browser is led to sign in", "GET", "/reports/x?from=2026-11-01", []string{htmlPlease}, 303, ""},
		{"a browser that may not is told so", "GET", "/reports/x", []string{htmlPlease, operator}, 403, "You may not do this."},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := b.do(c.method, c.path, nil, c.headers...).want(t, c.status, c.part)
			if c.status == 401 {
				a.wantHeader(t, "WWW-Authenticate", "Bearer")
			}
			if c.status == 303 {
				a.wantHeader(t, "Location", "/login?next=%2Freports%2Fx%3Ffrom%3D2026-11-01")
			}
			a.wantHeader(t, "Cache-Control", "no-store")
		})
	}
}

func TestRequire_TellsRolesApartForSessions(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		user             string
		reports, operate int
	}{{"ayse", 200, 403}, {"deniz", 403, 200}, {"ece", 200, 200}} {
		b := s.signedIn(c.user)
		csrf := "X-CSRF-Token: " + b.csrf()
		b.get("/reports/x").want(t, c.reports, "")
		b.do("POST", "/operate", nil, csrf).want(t, c.operate, "")
	}
}

// Somebody whose token is bad is not let in by a cookie that happens to be there.
func TestAuthenticate_JudgesTheTokenThatWasSent(t *testing.T) {
	b := newScene(t).signedIn("ayse")
	b.get("/reports/x").want(t, 200, "ayse")
	b.get("/reports/x", "Authorization: Bearer "+cast().operatorToken).want(t, 403, "FORBIDDEN")
	b.get("/reports/x", "Authorization: Bearer wrong").want(t, 401, "TOKEN_INVALID")
}

func TestRequire_WantsTheProofOfASession(t *testing.T) {
	s := newScene(t)
	b, other := s.signedIn("ece"), s.signedIn("ece")
	csrf := b.csrf()
	own := strings.TrimPrefix(s.server.URL, "http://")
	form := "Content-Type: application/x-www-form-urlencoded"
	for _, c := range []struct {
		name, method, body string
		headers            []string
		status             int
	}{
		{"in the header", "POST", "", []string{"X-CSRF-Token: " + csrf}, 200},
		{"in the form", "POST", "csrf=" + csrf + "&field=kept", []string{form}, 200},
		{"from a page of our own", "POST", "", []string{"X-CSRF-Token: " + csrf, "Sec-Fetch-Site: same-origin", "Origin: http://" + own}, 200},
		{"none", "POST", "", nil, 403},
		{"none, with DELETE", "DELETE", "", nil, 403},
		{"none, with PATCH", "PATCH", "", nil, 403},
		{"none, with a method of one's own", "FROB", "", nil, 403},
		{"an empty one", "POST", "csrf=", []string{form}, 403},
		{"another session's", "POST", "", []string{"X-CSRF-Token: " + other.csrf()}, 403},
		{"in the query", "POST", "", []string{form}, 403},
		{"in a body that is no form", "POST", "csrf=" + csrf, []string{"Content-Type: text/plain"}, 403},
		{"right, from another site", "POST", "", []string{"X-CSRF-Token: " + csrf, "Sec-Fetch-Site: cross-site"}, 403},
		{"right, from another host of the domain", "POST", "", []string{"X-CSRF-Token: " + csrf, "Sec-Fetch-Site: same-site"}, 403},
		{"right, from another origin, an old browser", "POST", "", []string{"X-CSRF-Token: " + csrf, "Origin: https://evil.example"}, 403},
		{"in a form that is too large", "POST", "csrf=" + csrf + "&field=" + strings.Repeat("x", maxForm), []string{form}, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := "/operate"
			if c.name == "in the query" {
				path += "?csrf=" + csrf
			}
			a := b.do(c.method, path, strings.NewReader(c.body), c.headers...).want(t, c.status, "")
			if c.name == "in the form" {
				a.want(t, 200, `field "kept"`)
			}
		})
	}
}

func TestSession_EndsByItself(t *testing.T) {
	s := newScene(t)
	idle, busy := s.signedIn("ayse"), s.signedIn("ayse")
	for range 35 {
		s.pass(20 * time.Minute)
		busy.get("/reports/x").want(t, 200, "ayse")
	}
	idle.get("/reports/x").want(t, 401, "TOKEN_INVALID")
	s.pass(20 * time.Minute)
	busy.get("/reports/x").want(t, 401, "TOKEN_INVALID")
	busy.get("/reports/x", htmlPlease).want(t, 303, "")
	busy.post("/operate", nil).wantHeader(t, "Location", "/login")
}

// A session holds on every replica, and on none once its user's line changes.
func TestSession_EndsWithTheUsersLine(t *testing.T) {
	s := newScene(t)
	again, err := NewUser("ayse", Roles{Finance}, password)
	must(t, err)
	people := cast().People
	more, fewer := people.Users[0], people.Users[2]
	more.Roles = Roles{Finance, Operator}
	fewer.Roles = Roles{Operator}
	for _, c := range []struct {
		name, user string
		users      []User
		status     int
	}{
		{"the same list", "ayse", people.Users, 200},
		{"another password", "ayse", []User{again}, 401},
		{"more roles", "ayse", []User{more}, 401},
		{"fewer roles", "ece", []User{fewer}, 401},
		{"left out", "ayse", people.Users[1:], 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := s.signedIn(c.user)
			s.open(People{Users: c.users}) // from here on s.server is the new one
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.server.URL+"/reports/x", nil)
			must(t, err)
			r.AddCookie(b.session())
			resp, err := http.DefaultClient.Do(r)
			must(t, err)
			defer resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("%d, want %d", resp.StatusCode, c.status)
			}
			s.open(people)
		})
	}
}

func TestRequire_SaysThatRedisIsAway(t *testing.T) {
	own, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(own.Stop)
	s := newScene(t)
	s.config.URL = own.URL
	s.open(cast().People)
	b := s.signedIn("ayse")
	own.Kill()
	b.get("/reports/x").want(t, 503, "SERVICE_UNAVAILABLE").wantHeader(t, "Retry-After", "2")
	b.get("/reports/x", htmlPlease).want(t, 503, "cannot answer right now")
	b.signIn("ayse", password).want(t, 503, "")
	// Programs go on: their tokens are known here.
	b.get("/reports/x", "Authorization: Bearer "+cast().financeToken).want(t, 200, "program0")
}
