package auth

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

func TestRequire_TellsRolesApartForTokens(t *testing.T) {
	t.Parallel()

	b := newEnv(t).browser()
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
		{"a browser is led to sign in", "GET", "/reports/x?from=2026-11-01", []string{testenv.AcceptHTML}, 303, ""},
		{"a browser that may not gets a page", "GET", "/reports/x", []string{testenv.AcceptHTML, operator}, 403, "You may not do this."},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := map[string]string{"Cache-Control": "no-store"}
			switch c.status {
			case 401:
				want["WWW-Authenticate"] = "Bearer"
			case 303:
				want["Location"] = "/login?next=%2Freports%2Fx%3Ffrom%3D2026-11-01"
			}

			b.For(t).Do(c.method, c.path, "", c.headers...).Want(c.status, c.part).Carries(want)
		})
	}
}

// Whose token is bad is not let in by a cookie that happens to be there.
func TestRequire_TellsRolesApartForSessions(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	for _, c := range []struct {
		user             string
		reports, operate int
	}{{"ayse", 200, 403}, {"deniz", 403, 200}, {"ece", 200, 200}} {
		b := e.signedIn(c.user)
		b.Get("/reports/x").Want(c.reports)
		b.Do("POST", "/operate", "", "X-CSRF-Token: "+csrfOf(b)).Want(c.operate)
		b.Get("/home", "Authorization: Bearer wrong").Want(401, "TOKEN_INVALID")
		b.Get("/reports/x", "Authorization: Bearer "+cast().operatorToken).Want(403, "FORBIDDEN")
	}
}

func TestRequire_WantsTheProofOfASession(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	b, other := e.signedIn("ece"), e.signedIn("ece")
	csrf := csrfOf(b)
	form := "Content-Type: application/x-www-form-urlencoded"
	for _, c := range []struct {
		name, method, query, body string
		headers                   []string
		status                    int
	}{
		{"in the header", "POST", "", "", []string{"X-CSRF-Token: " + csrf}, 200},
		{"in the form", "POST", "", "csrf=" + csrf + "&field=kept", []string{form}, 200},
		{"from a page of our own", "POST", "", "", []string{"X-CSRF-Token: " + csrf, "Sec-Fetch-Site: same-origin", "Origin: " + e.url}, 200},
		{"none", "POST", "", "", nil, 403},
		{"none, with DELETE", "DELETE", "", "", nil, 403},
		{"none, with PATCH", "PATCH", "", "", nil, 403},
		{"none, with a method of one's own", "FROB", "", "", nil, 403},
		{"an empty one", "POST", "", "csrf=", []string{form}, 403},
		{"another session's", "POST", "", "", []string{"X-CSRF-Token: " + csrfOf(other)}, 403},
		{"in the query", "POST", "?csrf=" + csrf, "", []string{form}, 403},
		{"in a body that is no form", "POST", "", "csrf=" + csrf, []string{"Content-Type: text/plain"}, 403},
		{"right, from another site", "POST", "", "", []string{"X-CSRF-Token: " + csrf, "Sec-Fetch-Site: cross-site"}, 403},
		{"right, from another host of the domain", "POST", "", "", []string{"X-CSRF-Token: " + csrf, "Sec-Fetch-Site: same-site"}, 403},
		{"right, from another origin, an old browser", "POST", "", "", []string{"X-CSRF-Token: " + csrf, "Origin: https://evil.example"}, 403},
		{"in a form that is too large", "POST", "", "csrf=" + csrf + "&field=" + strings.Repeat("x", maxForm), []string{form}, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := b.For(t).Do(c.method, "/operate"+c.query, c.body, c.headers...).Want(c.status)
			if c.name == "in the form" {
				a.Want(200, `field "kept"`)
			}
		})
	}
}

func TestSession_EndsByItself(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	idle, busy := e.signedIn("ayse"), e.signedIn("ayse")
	for range 35 {
		e.pass(20 * time.Minute)
		busy.Get("/reports/x").Want(200, "ayse")
	}

	idle.Get("/reports/x").Want(401, "TOKEN_INVALID")
	e.pass(20 * time.Minute)
	busy.Get("/reports/x").Want(401, "TOKEN_INVALID")
	busy.Get("/reports/x", testenv.AcceptHTML).Want(303)
	busy.Post("/operate", nil, testenv.AcceptHTML).Leads("/login")
	busy.Get("/login").Want(200, `role="alert"`, "Your session has expired. Sign in again.")
	busy.Get("/login", "Accept-Language: tr").Want(200, "Oturumunuzun süresi doldu.")
	e.browser().Get("/login").Want(200).Lacks("expired", `role="alert"`)
}

// A session holds on every replica, and on none once its user's line changes.
func TestSession_EndsWithTheUsersLine(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	another := strings.Replace(quickHash, "uW2B", "uW2C", 1)
	for _, c := range []struct {
		name, user, lines string
		status            int
	}{
		{"the same line", "ayse", "ayse:finance:" + quickHash, 200},
		{"another password", "ayse", "ayse:finance:" + another, 401},
		{"more roles", "ayse", "ayse:finance,operator:" + quickHash, 401},
		{"fewer roles", "ece", "ece:operator:" + quickHash, 401},
		{"left out", "ayse", "deniz:operator:" + quickHash, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.open(cast().People)
			cookie := sessionOf(e.signedIn(c.user))
			e.open(People{Users: mustUsers(c.lines)})
			e.browser().For(t).Get("/home", "Cookie: "+cookie.String()).Want(c.status)
		})
	}
}

func TestRequire_SaysThatRedisIsUnavailable(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := &env{Env: testenv.NewOn(t, server)}
	e.open(cast().People)
	b := e.signedIn("ayse")
	server.Kill()
	b.Get("/reports/x").Want(503, "SERVICE_UNAVAILABLE").Carries(map[string]string{"Retry-After": "2"})
	b.Get("/reports/x", testenv.AcceptHTML).Want(503, "cannot answer right now")
	signIn(b, "ayse", password).Want(http.StatusServiceUnavailable)
	// Programs go on: their tokens are known here.
	b.Get("/reports/x", "Authorization: Bearer "+cast().financeToken).Want(200, "program0")
}
