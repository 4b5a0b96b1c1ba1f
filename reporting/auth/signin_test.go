package auth

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/testenv"
)

func TestSignIn_LetsInAndOut(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	b := e.browser()
	b.Get("/reports/x", testenv.AcceptHTML).Leads("/login?next=%2Freports%2Fx")
	b.Get("/login?next=%2Freports%2Fx").Want(200, `name="next" value="/reports/x"`, "You were signed out, or have not signed in yet.")
	b.Get("/login?next=%2Freports%2F%ff%fex").Want(200, `name="next" value="/reports/x"`)

	// Five attempts are within the limit; after the right password none has been made.
	count := func() error { return e.gate.ledger.Sessions.CountSignIn(t.Context(), "ayse", "127.0.0.1/32") }
	for range 4 {
		must(t, count())
	}

	b.Post("/login", url.Values{"user": {" Ayse "}, "password": {password}, "next": {"/reports/x?from=2026-11-01&plain=1"}}).
		Leads("/reports/x?from=2026-11-01&plain=1")
	must(t, count())
	b.Get("/reports/x", testenv.AcceptHTML).Want(200, "ayse is finance")

	b.Get("/login").Want(200).Lacks("expired", "signed out")
	csrf, cookie := csrfOf(b), sessionOf(b)
	b.Post("/logout", nil).Want(403)
	b.Post("/logout", url.Values{"csrf": {"wrong"}}).Want(403)
	b.Get("/logout").Want(405)
	b.Get("/reports/x").Want(200, "ayse")
	b.Post("/logout", url.Values{"csrf": {csrf}}).Leads("/login")
	if sessionOf(b) != nil {
		t.Error("the browser still has the cookie")
	}

	b.Get("/reports/x").Want(401, "TOKEN_INVALID")
	b.Get("/login").Want(200).Lacks("expired", "signed out")
	// Somebody may have copied it.
	b.Get("/reports/x", "Cookie: "+cookie.String()).Want(401, "TOKEN_INVALID")
}

// Whoever reads and writes the panel's sessions in Redis, but does not know the users' lines, makes no session:
// not with what a session that there is proves, and not for anybody else.
func TestSession_CannotBeMadeUpInRedis(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	id := sessionOf(e.signedIn("ayse")).Value
	stored, err := e.Ledger.Sessions.Get(t.Context(), id)
	must(t, err)
	another := *stored
	another.User = "ece"
	unsigned := *stored
	unsigned.Credential = [32]byte{}

	e.browser().Get("/reports/x", "Cookie: "+sessionCookie+"="+id).Want(200, "ayse")
	for _, s := range []operations.Session{*stored, another, unsigned} {
		madeUp := operations.NewSessionID()
		_, err := e.Ledger.Sessions.Create(t.Context(), madeUp, s)
		must(t, err)
		e.browser().Get("/reports/x", "Cookie: "+sessionCookie+"="+madeUp).Want(401, "TOKEN_INVALID")
	}
}

func TestSignIn_RefusesAlikeWhateverIsWrong(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	var bodies []string
	for _, c := range []struct{ user, password string }{
		{"ayse", "wrong"}, {"ayse", ""}, {"ayse", password + "x"}, {"ayse", strings.ToUpper(password)},
		{"nobody", password}, {"", ""}, {"nobody", ""}, {"ayse\x00", password}, {"ayse:finance", password},
	} {
		b := e.browser()
		a := signIn(b, c.user, c.password).Want(401, `role="alert"`, "User name or password is wrong.").Lacks(password)
		if sessionOf(b) != nil {
			t.Errorf("%q has a session", c)
		}
		bodies = append(bodies, strings.ReplaceAll(a.Text, `value="`+strings.ReplaceAll(c.user, "\x00", "\uFFFD")+`"`, `value=""`))
	}

	if wrong, unknown := bodies[0], bodies[4]; wrong != unknown {
		t.Errorf("a wrong password and an unknown user look different:\n%s\n%s", wrong, unknown)
	}
}

// Who measures cannot tell a known name from an unknown one: both cost one hash,
// with the same parameters.
func TestSignIn_HashesForAnUnknownUser(t *testing.T) {
	t.Parallel()

	for name, line := range map[string]string{"quick": "ayse:finance:" + quickHash, "slow": "ayse:finance:" + goodHash + "\nece:finance:" + quickHash} {
		users := mustUsers(line)
		checks, err := newPasswordChecks(1, users)
		must(t, err)
		nobody, _, _, err := argon2id.DecodeHash(checks.nobody)
		must(t, err)
		known, _, _, err := argon2id.DecodeHash(users[0].hash)
		must(t, err)
		nobody.SaltLength, nobody.KeyLength = known.SaltLength, known.KeyLength
		if *nobody != *known {
			t.Errorf("%s: %+v for nobody, %+v for somebody", name, *nobody, *known)
		}
		if fits, err := checks.fits(t.Context(), &attempt{}, nil, "wrong"); fits || err != nil {
			t.Error(fits, err)
		}

		checks.nobody = "broken"
		if _, err := checks.fits(t.Context(), &attempt{}, nil, "wrong"); err == nil {
			t.Error("nothing is hashed for an unknown user")
		}
	}
}

// It is not parallel, because the memory of all tests is measured.
func TestSignIn_GivesItsMemoryBack(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	checks, err := newPasswordChecks(1, mustUsers("ayse:finance:"+goodHash))
	must(t, err)
	_, err = checks.fits(t.Context(), &attempt{}, nil, "wrong")
	must(t, err)

	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+32<<20 {
		t.Errorf("%d MB before a password is checked, %d MB after it", before.HeapAlloc>>20, after.HeapAlloc>>20)
	}
}

func TestSignIn_MakesANewSession(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	planted := sessionOf(e.signedIn("deniz")) // by somebody who knows its id, into the victim's browser
	for id, cookie := range map[string]string{planted.Value: planted.String(), strings.Repeat("A", 43): "panel=" + strings.Repeat("A", 43)} {
		a := e.browser().Post("/login", url.Values{"user": {"ayse"}, "password": {password}}, "Cookie: "+cookie).Want(303)
		if a.Cookies()[0].Value == id {
			t.Errorf("%s was taken over", id)
		}
		e.browser().Get("/home", "Cookie: "+cookie).Want(401, "TOKEN_INVALID")
	}
}

// Strangers try the operator's name and others, from the operator's address; with
// a proxy in front, theirs is not the operator's. The operator comes in all the
// while, with a browser that nobody knows.
func TestSignIn_NeverRefusesARightPasswordForOthersWrongOnes(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ proxies, stranger, operator []string }{
		"one address":    {},
		"behind a proxy": {[]string{"127.0.0.1"}, []string{"X-Forwarded-For: 203.0.113.9"}, []string{"X-Forwarded-For: 198.51.100.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := newEnv(t, func(s *Settings) { s.TrustedProxies = c.proxies })
			e.gate.checks.compare = func(typed, _ string) (bool, error) { return typed == password, nil }

			var strangers sync.WaitGroup
			for i := range 4 {
				strangers.Go(func() {
					for j := range wrongPasswords / 4 {
						user := []string{"ayse", fmt.Sprint("nobody", i, "-", j)}[j%2]
						if a := signIn(e.browser().With(c.stranger...), user, "wrong"); a.StatusCode != 401 && a.StatusCode != 429 {
							a.Want(401)
						}
					}
				})
			}

			signIn(e.browser().With(c.operator...), "ayse", password).Want(303)
			strangers.Wait()
			signIn(e.browser().With(c.operator...), "ayse", password).Want(303)
			signIn(e.browser().With(c.stranger...), "deniz", password).Want(303)
			if held := testenv.Value(t, e.gate.signIns.WithLabelValues(resultThrottled)); held == 0 {
				t.Errorf("%v of %d attempts were held back", held, wrongPasswords)
			}
		})
	}
}

// A browser in which the user has signed in before waits behind nobody, until it
// tries too much itself.
func TestSignIn_KnownBrowsersWaitForNoStranger(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	known := e.signedIn("ayse")
	cookie := deviceOf(known)
	if !cookie.HttpOnly || cookie.MaxAge != int(deviceLifetime/time.Second) || cookie.SameSite != http.SameSiteLaxMode {
		t.Errorf("%+v", cookie)
	}

	free := e.gate.checks.others.free
	for range free { // the others have all of their turns
		if !e.gate.checks.others.take(t.Context(), &attempt{}) {
			t.Fatal("no turn")
		}
	}

	signIn(known, "ayse", "wrong").Want(401)
	signIn(known, "ayse", password).Want(303)
	for range free {
		e.gate.checks.others.give()
	}

	request := func(value string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		r.AddCookie(&http.Cookie{Name: deviceCookie, Value: value})
		return r
	}

	ayse, deniz := e.gate.users["ayse"], e.gate.users["deniz"]
	another := *ayse
	another.hash = strings.Replace(ayse.hash, "uW2B", "uW2C", 1)
	forged := strings.Repeat("B", len(cookie.Value))
	for name, device := range map[string]string{
		"another user": e.gate.device(request(cookie.Value), deniz), "another password": e.gate.device(request(cookie.Value), &another),
		"nobody": e.gate.device(request(cookie.Value), nil), "forged": e.gate.device(request(forged), ayse), "cut": e.gate.device(request(cookie.Value[:40]), ayse),
	} {
		if device != "" {
			t.Errorf("%s: the browser is known", name)
		}
	}

	if e.gate.device(request(cookie.Value), ayse) == "" {
		t.Error("the browser is not known")
	}

	device := e.gate.device(request(deviceOf(known).Value), ayse)
	for e.gate.ledger.Sessions.CountKnownSignIn(t.Context(), "ayse", device) == nil {
		// until the browser has used up what it may try
	}

	e.gate.checks.known.mu.Lock()
	e.gate.checks.known.free = -20 // nobody gets a turn there
	e.gate.checks.known.mu.Unlock()
	signIn(known, "ayse", "wrong").Want(401)
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		e.gate.setDevice(w, httptest.NewRequest(http.MethodPost, "/login", nil), ayse)
		time.Sleep(deviceLifetime)
		if r := request(w.Result().Cookies()[0].Value); e.gate.device(r, ayse) != "" {
			t.Error("the browser is known for ever")
		}
	})
}

// deviceOf is what an answer to a sign-in makes the browser known by.
func deviceOf(b *testenv.Client) *http.Cookie {
	b.T.Helper()
	for _, c := range signIn(b, "ayse", password).Want(303).Cookies() {
		if c.Name == deviceCookie {
			return c
		}
	}

	b.T.Fatal("the browser is not made known")
	return nil
}

// Hashing takes 64 MB at a time, however many come at once; who does not get a
// turn is refused.
func TestSignIn_ChecksFewPasswordsAtOnce(t *testing.T) {
	t.Parallel()

	gate, err := New(nil, cast().People, Settings{PasswordChecks: 1}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	many := delivery.Refuse(delivery.CodeRateLimited, "too many")
	synctest.Test(t, func(t *testing.T) {
		if !gate.checks.others.take(t.Context(), &attempt{}) {
			t.Fatal("no turn")
		}

		began := time.Now()
		var waiting sync.WaitGroup
		for _, c := range []struct {
			a     attempt
			said  string
			wait  string
			after time.Duration
		}{
			{attempt{}, "503 Signing in does not work right now.", "2", checkTimeout},
			{attempt{many: many}, "429 Too many attempts.", "1", checkTimeout},
			{attempt{known: true}, "401 User name or password is wrong.", "", 0},
		} {
			waiting.Go(func() {
				fits, err := gate.checks.fits(t.Context(), &c.a, nil, "wrong")
				if fits || time.Since(began) != c.after {
					t.Errorf("%s: got %v after %s", c.said, fits, time.Since(began))
				}

				if err == nil {
					err = delivery.Refuse(delivery.CodeInvalidCredentials, "wrong")
				}

				w := httptest.NewRecorder()
				gate.refuseSignIn(w, httptest.NewRequest(http.MethodPost, "/login", nil), err, page{})
				status, said, _ := strings.Cut(c.said, " ")
				if fmt.Sprint(w.Code) != status || w.Header().Get("Retry-After") != c.wait || !strings.Contains(w.Body.String(), said) {
					t.Errorf("%s: %d %v %s", c.said, w.Code, w.Header(), w.Body)
				}
			})
		}

		waiting.Wait()
		gate.checks.others.give()
		if fits, err := gate.checks.fits(t.Context(), &attempt{}, gate.users["ayse"], password); !fits || err != nil {
			t.Error(fits, err)
		}
	})
}

// Strangers have at most half of the time of the turns.
func TestSignIn_AWrongPasswordRestsItsTurn(t *testing.T) {
	t.Parallel()

	gate, err := New(nil, cast().People, Settings{PasswordChecks: 1}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		checks := gate.checks
		checks.compare = func(typed, _ string) (bool, error) {
			time.Sleep(100 * time.Millisecond)
			return typed == password, nil
		}

		free := func() int {
			synctest.Wait()
			checks.others.mu.Lock()
			defer checks.others.mu.Unlock()
			return checks.others.free
		}

		_, err := checks.fits(t.Context(), &attempt{}, gate.users["ayse"], "wrong")
		must(t, err)
		time.Sleep(99 * time.Millisecond)
		resting := free()
		time.Sleep(time.Millisecond)
		rested := free()
		if resting != 0 || rested != 1 {
			t.Errorf("%d turns are free 99 ms after a check of 100 ms, %d after 100", resting, rested)
		}

		_, err = checks.fits(t.Context(), &attempt{}, gate.users["ayse"], password)
		must(t, err)
		if n := free(); n != 1 {
			t.Errorf("%d turns are free after a right password", n)
		}
	})
}

// Who types a password into the field of the name has not told it to the log.
func TestRecord_LogsNoUnknownName(t *testing.T) {
	t.Parallel()

	var log strings.Builder
	gate, err := New(nil, cast().People, Settings{PasswordChecks: 1}, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	must(t, err)

	for _, user := range []string{"ayse", "my secret password"} {
		gate.record(&attempt{user: user, address: "192.0.2.1/32"}, delivery.Refuse(delivery.CodeInvalidCredentials, "user or password is wrong"))
	}

	if lines := log.String(); !strings.Contains(lines, "user=ayse") || !strings.Contains(lines, "user=(unknown)") || strings.Contains(lines, "secret") {
		t.Error(lines)
	}
}

func TestTurns_GoToWhoWaitsAlone(t *testing.T) {
	t.Parallel()

	many := delivery.Refuse(delivery.CodeRateLimited, "too many")
	synctest.Test(t, func(t *testing.T) {
		var queue turns
		var served []string
		var all sync.WaitGroup
		wait := func(name string, a *attempt) {
			all.Go(func() {
				if queue.take(t.Context(), a) {
					served = append(served, name)
				}
			})
			synctest.Wait() // it waits, so the next one is newer
		}

		for i := range mostWaiting {
			wait("flood", &attempt{user: "ayse", address: "A", many: many})
			if i == 2 {
				wait("first of B", &attempt{user: "ayse", address: "B", many: many})
				wait("within the limits", &attempt{user: "ayse", address: "C"})
				wait("another name of A", &attempt{user: "deniz", address: "A", many: many})
			}
		}

		for range mostWaiting {
			queue.give()
			synctest.Wait()
		}

		all.Wait()
		if got := strings.Join(served[:6], ", "); len(served) != mostWaiting || got != "within the limits, first of B, flood, flood, flood, another name of A" {
			t.Errorf("%d were served: %s", len(served), got)
		}

		// Who disconnects leaves no turn behind.
		gone, leave := context.WithCancel(t.Context())
		queue.free = 0
		all.Go(func() {
			if queue.take(gone, &attempt{}) {
				t.Error("a turn that nobody gave")
			}
		})

		synctest.Wait()
		leave()
		all.Wait()
		queue.give()
		if queue.free != 1 || len(queue.waiting) != 0 {
			t.Errorf("%d turns, %d wait", queue.free, len(queue.waiting))
		}
	})
}

func TestRefusals_AreLoggedNowAndThen(t *testing.T) {
	t.Parallel()

	var log refusalLog
	now, lines, leftOut := time.Now(), 0, 0
	for range 10 * refusalsLogged {
		if unlogged, ok := log.take(now); ok {
			lines, leftOut = lines+1, leftOut+unlogged
		}
	}

	unlogged, ok := log.take(now.Add(time.Minute))
	if lines != refusalsLogged || leftOut != 0 || !ok || unlogged != 9*refusalsLogged {
		t.Errorf("%d lines, %d left out; a minute later %v, %d", lines, leftOut, ok, unlogged)
	}
}

func TestSignIn_WaitsForAFormNotForEver(t *testing.T) {
	t.Parallel()

	gate, err := New(nil, cast().People, Settings{PasswordChecks: 1}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		conn := testenv.ServePipe(t, gate.Handler())
		began := time.Now()
		_, err := io.WriteString(conn, "POST /login HTTP/1.1\r\nHost: panel\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nuser=ay")
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		if resp.StatusCode != http.StatusBadRequest || !resp.Close || time.Since(began) != formTimeout {
			t.Errorf("%d after %s, the connection is closed: %v", resp.StatusCode, time.Since(began), resp.Close)
		}
	})
}

func TestSignIn_RefusesWhatNoFormOfOursSends(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	form := "user=ayse&password=" + url.QueryEscape(password)
	urlencoded := "Content-Type: application/x-www-form-urlencoded"
	for _, c := range []struct {
		name, body string
		headers    []string
		status     int
	}{
		{"another site", form, []string{urlencoded, "Sec-Fetch-Site: cross-site"}, 403},
		{"another origin", form, []string{urlencoded, "Origin: https://evil.example"}, 403},
		{"no form", form, []string{"Content-Type: text/plain"}, 400},
		{"JSON", `{"user":"ayse"}`, []string{"Content-Type: application/json"}, 400},
		{"multipart", "--x\r\n\r\n--x--", []string{"Content-Type: multipart/form-data; boundary=x"}, 400},
		{"bad escapes", "user=%zz", []string{urlencoded}, 400},
		{"too large", form + strings.Repeat("x", maxSignIn), []string{urlencoded}, 400},
		{"name and password in the query", "", []string{urlencoded}, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := e.browser().For(t)
			b.Do("POST", "/login?"+form, c.body, c.headers...).Want(c.status)
			if sessionOf(b) != nil {
				t.Error("there is a session")
			}
		})
	}
}

func TestCookie_IsOutOfReach(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		tls     bool
		setting bool
		cookie  string
	}{
		{"plain", false, false, "panel="},
		{"with TLS", true, false, "__Host-panel="},
		{"behind a proxy with TLS", false, true, "__Host-panel="},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			e := newEnv(t, func(s *Settings) { s.SecureCookies = c.setting })
			if c.tls {
				s := httptest.NewTLSServer(e.handler())
				t.Cleanup(s.Close)
				e.url = s.URL
			}

			set := signIn(e.browser(), "ayse", password).Want(303).Header.Get("Set-Cookie")
			for part, want := range map[string]bool{c.cookie: true, "; HttpOnly": true, "; SameSite=Lax": true, "; Path=/": true,
				"; Secure": c.tls || c.setting, "Domain": false, "Max-Age": false, "Expires": false} {
				if strings.Contains(set, part) != want {
					t.Errorf("%q: %q is there: %v", set, part, !want)
				}
			}

			value := strings.SplitN(strings.TrimPrefix(set, c.cookie), ";", 2)[0]
			e.browser().Get("/home", "Cookie: "+c.cookie+value).Want(200, "ayse")
			if c.cookie != "panel=" { // the name without the prefix is one that others can set
				e.browser().Get("/home", "Cookie: panel="+value).Want(401)
			}
		})
	}
}

func TestPages_CarryStrictHeaders(t *testing.T) {
	t.Parallel()

	b := newEnv(t).browser()
	for _, a := range []*testenv.Answer{
		b.Get("/login"), signIn(b, "ayse", "wrong"), b.Get("/login.css"), b.Get("/reports/x"), b.Get("/nothing"),
		b.Post("/login", nil, "Sec-Fetch-Site: cross-site"),
	} {
		cache := "no-store"
		if strings.HasSuffix(a.Request.URL.Path, ".css") {
			cache = "public, max-age=3600"
		}
		a.Carries(map[string]string{
			"Content-Security-Policy": PolicyPage, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": cache,
			"X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		}).Harmless()
	}

	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} {
		if !strings.Contains(PolicyPage, part) || !strings.Contains(PolicyScripts, part) {
			t.Errorf("a policy lacks %s", part)
		}
	}
}

func TestPages_SpeakTheBrowsersLanguage(t *testing.T) {
	t.Parallel()

	b := newEnv(t).browser()
	for accept, lang := range map[string]string{
		"": "en", "tr": "tr", "tr-TR,tr;q=0.9,en-US;q=0.8": "tr", "en-GB,tr;q=0.5": "en", "de,tr;q=0.5": "tr",
		"de": "en", "*": "en", "tr;q=0": "en", "not;a;language": "en", "tr," + strings.Repeat("-", 1000): "en",
	} {
		b.Get("/login", "Accept-Language: "+accept).Want(200, fmt.Sprintf(`<html lang="%s">`, lang)).Carries(map[string]string{"Vary": "Accept-Language"})
	}

	b = b.With("Accept-Language: tr")
	b.Get("/login").Want(200, "Kullanıcı adı")
	b.Post("/login", url.Values{"user": {"ayse"}}).Want(401, "Kullanıcı adı veya parola yanlış.")
	b.Get("/reports/x", testenv.AcceptHTML, "Authorization: Bearer "+cast().operatorToken).Want(403, "Bunun için yetkiniz yok.")
	// What was typed comes back as text, never as markup.
	markup := `"><script>alert(1)</script>`
	for _, a := range []*testenv.Answer{
		b.Get("/login?next=" + url.QueryEscape("/"+markup)),
		b.Post("/login", url.Values{"user": {markup}, "password": {"x"}, "next": {"/" + markup}}),
	} {
		a.Harmless()
		if !strings.Contains(a.Text, "&lt;script&gt;") {
			t.Errorf("%s", a.Text)
		}
	}
}

func TestSignIn_LeadsNowhereElse(t *testing.T) {
	t.Parallel()

	for next, want := range map[string]string{
		"/reports/x?from=2026-11-01#totals": "/reports/x?from=2026-11-01#totals",
		"/siparişler":                       "/sipari%C5%9Fler",
		"/a%2f%2Fb":                         "/a%2f%2Fb",
	} {
		if got := localPath(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}

	for _, next := range []string{
		"", "/", "x", "//evil.example", "///evil.example", `/\evil.example`, `\/evil.example`, "https://evil.example", "https:evil.example",
		"javascript:alert(1)", "/\t/evil.example", "\n//evil.example", "/x\r\nSet-Cookie: panel=1", " //evil.example", "/%2fevil.example/ ",
		"/%2Fevil.example", "/%5cevil.example", "/login", "/login?next=/login", "/logout", "/%zz", "/" + strings.Repeat("x", maxNext),
	} {
		if got := localPath(next); got != "/" {
			t.Errorf("%q leads to %q", next, got)
		}
	}

	newEnv(t).browser().Post("/login", url.Values{"user": {"ayse"}, "password": {password}, "next": {"//evil.example"}}).Leads("/")
}

func FuzzLocalPath(f *testing.F) {
	for _, next := range []string{"/a?b=c", "//x", `/\x`, "/\t/x", "/.//x", "/%2f/x", "/%2f ", "/%5c ", "/;//x", "/@x", "/a//b"} {
		f.Add(next)
	}

	base := "https://panel.example"
	f.Fuzz(func(t *testing.T, next string) {
		path := localPath(next)
		// As a browser reads it: backslashes are slashes, tabs and newlines are not there.
		seen := strings.NewReplacer(`\`, "/", "\t", "", "\n", "", "\r", "").Replace(path)
		r := httptest.NewRequest(http.MethodGet, base+"/login", nil)
		to, err := r.URL.Parse(seen)
		if err != nil || to.Host != "panel.example" || to.Scheme != "https" || !strings.HasPrefix(seen, "/") || strings.HasPrefix(seen, "//") {
			t.Errorf("%q leads to %q, %v", next, path, err)
		}
	})
}

func TestClientAddress_BelievesTrustedProxiesOnly(t *testing.T) {
	t.Parallel()

	e := newEnv(t, func(s *Settings) { s.TrustedProxies = []string{"", "10.0.0.0/8, 192.0.2.1"} })
	for _, c := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"198.51.100.7:1", nil, "198.51.100.7/32"},
		{"198.51.100.7:1", []string{"203.0.113.9"}, "198.51.100.7/32"},
		{"10.1.2.3:1", []string{"203.0.113.9"}, "203.0.113.9/32"},
		{"10.1.2.3:1", []string{"1.1.1.1, 203.0.113.9, 192.0.2.1"}, "203.0.113.9/32"},
		{"10.1.2.3:1", []string{"1.1.1.1", "203.0.113.9"}, "203.0.113.9/32"},
		{"10.1.2.3:1", []string{"203.0.113.9, nonsense"}, "10.1.2.3/32"},
		{"10.1.2.3:1", nil, "10.1.2.3/32"},
		{"10.1.2.3:1", []string{"10.9.9.9"}, "10.9.9.9/32"},
		{"[::ffff:10.1.2.3]:1", []string{"::ffff:203.0.113.9"}, "203.0.113.9/32"},
		{"[2001:db8:1:2:3::4]:1", nil, "2001:db8:1:2::/64"},
		{"nonsense", []string{"203.0.113.9"}, "invalid Prefix"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		for _, f := range c.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		if got := e.gate.clientAddress(r); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}
