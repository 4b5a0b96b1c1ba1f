package access

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alexedwards/argon2id"
	dto "github.com/prometheus/client_model/go"

	"vendorapi/internal/delivery"
)

func TestSignIn_LetsInAndOut(t *testing.T) {
	b := newScene(t).browser()
	b.get("/reports/x", htmlPlease).want(t, 303, "").wantHeader(t, "Location", "/login?next=%2Freports%2Fx")
	b.get("/login?next=%2Freports%2Fx").want(t, 200, `name="next" value="/reports/x"`)
	b.get("/login?next=%2Freports%2F%ff%fex").want(t, 200, `name="next" value="/reports/x"`)
	a := b.post("/login", map[string]string{"user": " Ayse ", "password": password, "next": "/reports/x?from=2026-11-01&plain=1"})
	a.want(t, 303, "").wantHeader(t, "Location", "/reports/x?from=2026-11-01&plain=1")
	b.get("/reports/x", htmlPlease).want(t, 200, "ayse is finance")

	csrf, cookie := b.csrf(), b.session()
	b.post("/logout", nil).want(t, 403, "")
	b.post("/logout", map[string]string{"csrf": "wrong"}).want(t, 403, "")
	b.get("/logout").want(t, 405, "")
	b.get("/reports/x").want(t, 200, "ayse")
	b.post("/logout", map[string]string{"csrf": csrf}).want(t, 303, "").wantHeader(t, "Location", "/login")
	if b.session() != nil {
		t.Error("the browser still has the cookie")
	}
	b.get("/reports/x").want(t, 401, "TOKEN_INVALID")
	// Somebody may have copied it.
	b.get("/reports/x", "Cookie: "+cookie.String()).want(t, 401, "TOKEN_INVALID")
}

func TestSignIn_RefusesAlikeWhateverIsWrong(t *testing.T) {
	s := newScene(t)
	var bodies []string
	for _, c := range []struct{ user, password string }{
		{"ayse", "wrong"}, {"ayse", ""}, {"ayse", password + "x"}, {"ayse", strings.ToUpper(password)},
		{"nobody", password}, {"", ""}, {"nobody", ""}, {"ayse\x00", password}, {"ayse:finance", password},
	} {
		b := s.browser()
		a := b.signIn(c.user, c.password).want(t, 401, `role="alert"`)
		a.want(t, 401, "User name or password is wrong.")
		if strings.Contains(a.text, password) {
			t.Error("the page shows the password")
		}
		if b.session() != nil {
			t.Errorf("%q has a session", c)
		}
		bodies = append(bodies, strings.ReplaceAll(a.text, `value="`+strings.ReplaceAll(c.user, "\x00", "\uFFFD")+`"`, `value=""`))
	}
	if wrong, unknown := bodies[0], bodies[4]; wrong != unknown {
		t.Errorf("a wrong password and an unknown user look different:\n%s\n%s", wrong, unknown)
	}
}

// Who measures cannot tell a known name from an unknown one: both cost one hash,
// with the same parameters.
func TestSignIn_TakesAsLongForAnUnknownUser(t *testing.T) {
	s := newScene(t)
	nobody, _, _, err := argon2id.DecodeHash(s.gate.checks.nobody)
	must(t, err)
	known, _, _, err := argon2id.DecodeHash(s.gate.users["ayse"].hash)
	must(t, err)
	if *nobody != *known {
		t.Errorf("%+v for nobody, %+v for somebody", *nobody, *known)
	}
	took := map[string]time.Duration{"ayse": time.Hour, "nobody": time.Hour}
	for range 4 { // the fastest of each, in turn: other work of the machine slows single ones down
		for name := range took {
			from := time.Now()
			fits, err := s.gate.checks.fits(t.Context(), s.gate.users[name], "wrong")
			took[name] = min(took[name], time.Since(from))
			if fits || err != nil {
				t.Fatal(fits, err)
			}
		}
	}
	if ratio := float64(took["nobody"]) / float64(took["ayse"]); ratio < 0.3 || ratio > 3 {
		t.Errorf("%v", took)
	}
}

func TestSignIn_MakesANewSession(t *testing.T) {
	s := newScene(t)
	planted := s.signedIn("deniz").session() // by somebody who knows its id, into the victim's browser
	b := s.browser()
	a := b.post("/login", map[string]string{"user": "ayse", "password": password}, "Cookie: "+planted.String()).want(t, 303, "")
	if fresh := a.Cookies()[0].Value; fresh == planted.Value {
		t.Fatal("the session's id is the planted one")
	}
	s.browser().get("/home", "Cookie: "+planted.String()).want(t, 401, "TOKEN_INVALID")

	invented := "Cookie: panel=" + strings.Repeat("A", 43)
	a = s.browser().post("/login", map[string]string{"user": "ayse", "password": password}, invented).want(t, 303, "")
	if a.Cookies()[0].Value == strings.Repeat("A", 43) {
		t.Error("an invented id was taken over")
	}
	s.browser().get("/home", invented).want(t, 401, "TOKEN_INVALID")
}

func TestSignIn_ThrottlesByUserAndAddress(t *testing.T) {
	s := newScene(t)
	b := s.browser()
	for range 5 {
		b.signIn("ayse", "wrong").want(t, 401, "")
	}
	a := b.signIn("ayse", password).want(t, 429, "Too many attempts.")
	if wait := a.Header.Get("Retry-After"); wait == "" || wait == "0" || len(wait) > 2 {
		t.Errorf("Retry-After: %q", wait)
	}
	b.signIn("AYSE", password).want(t, 429, "")
	for range 5 { // a name that is nobody's is counted too
		b.signIn("nobody", "wrong").want(t, 401, "")
	}
	b.signIn("nobody", "wrong").want(t, 429, "Too many attempts.")
	b.signIn("deniz", password).want(t, 303, "")
	for result, want := range map[string]float64{resultThrottled: 3, resultWrong: 10, resultSignedIn: 1} {
		var m dto.Metric
		must(t, s.gate.metrics.signIns.WithLabelValues(result).Write(&m))
		if got := m.GetCounter().GetValue(); got != want {
			t.Errorf("%s: %v, want %v", result, got, want)
		}
	}
}

func TestSignIn_ForgetsWhatWentWrongBefore(t *testing.T) {
	s := newScene(t)
	for range 3 {
		for range 4 {
			s.browser().signIn("ayse", "wrong").want(t, 401, "")
		}
		s.browser().signIn("ayse", password).want(t, 303, "")
	}
}

// Hashing takes 64 MB at a time, however many come at once; who does not get a
// turn is told so.
func TestSignIn_ChecksFewPasswordsAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(s *Settings) { s.PasswordChecks = 1 })
	must(t, s.gate.checks.turns.Acquire(t.Context(), 1))
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Go(func() {
			if _, err := s.gate.checks.fits(t.Context(), nil, "wrong"); delivery.CodeOf(err) != delivery.CodeServiceUnavailable {
				t.Errorf("got %v", err)
			}
		})
	}
	s.browser().signIn("ayse", password).want(t, 503, "Signing in does not work right now.").wantHeader(t, "Retry-After", "2")
	waiting.Wait()
	s.gate.checks.turns.Release(1)
	s.browser().signIn("ayse", password).want(t, 303, "")
}

func TestSignIn_WaitsForAFormNotForEver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /login HTTP/1.1\r\nHost: panel\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nuser=ay")
	must(t, err)
	must(t, conn.SetDeadline(time.Now().Add(formPatience+10*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	if resp.StatusCode != http.StatusBadRequest || !resp.Close {
		t.Errorf("%d, the connection is closed: %v", resp.StatusCode, resp.Close)
	}
}

func TestSignIn_RefusesWhatNoFormOfOursSends(t *testing.T) {
	s := newScene(t)
	form := "user=ayse&password=" + password
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
			b := s.browser()
			b.do("POST", "/login?"+strings.ReplaceAll(form, " ", "+"), strings.NewReader(c.body), c.headers...).want(t, c.status, "")
			if b.session() != nil {
				t.Error("there is a session")
			}
		})
	}
}

func TestCookie_IsOutOfReach(t *testing.T) {
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
			s := newScene(t, func(s *Settings) { s.SecureCookies = c.setting })
			if c.tls {
				s.server = httptest.NewTLSServer(s.server.Config.Handler)
				t.Cleanup(s.server.Close)
			}
			b := s.browser()
			set := b.signIn("ayse", password).want(t, 303, "").Header.Get("Set-Cookie")
			for part, want := range map[string]bool{c.cookie: true, "; HttpOnly": true, "; SameSite=Lax": true, "; Path=/": true,
				"; Secure": c.tls || c.setting, "Domain": false, "Max-Age": false, "Expires": false} {
				if strings.Contains(set, part) != want {
					t.Errorf("%q: %q is there: %v", set, part, !want)
				}
			}
			value := strings.SplitN(strings.TrimPrefix(set, c.cookie), ";", 2)[0]
			b.get("/home", "Cookie: "+c.cookie+value).want(t, 200, "ayse")
			if c.cookie != "panel=" {
				// The name without the prefix is one that others can set.
				s.browser().get("/home", "Cookie: panel="+value).want(t, 401, "")
			}
		})
	}
}

func TestPages_CarryStrictHeaders(t *testing.T) {
	b := newScene(t).browser()
	for _, a := range []answer{
		b.get("/login"), b.signIn("ayse", "wrong"), b.get("/login.css"), b.get("/reports/x"), b.get("/nothing"),
		b.post("/login", nil, "Sec-Fetch-Site: cross-site"),
	} {
		for name, want := range map[string]string{
			"Content-Security-Policy": PolicyPage, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			a.wantHeader(t, name, want)
		}
		cache := "no-store"
		if strings.HasSuffix(a.Request.URL.Path, ".css") {
			cache = "public, max-age=3600"
		}
		a.wantHeader(t, "Cache-Control", cache)
		if strings.Contains(a.text, "<script") || strings.Contains(a.text, "style=") || strings.Contains(a.text, "<style") || strings.Contains(a.text, "onclick") {
			t.Errorf("inline: %s", a.text)
		}
	}
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} {
		if !strings.Contains(PolicyPage, part) || !strings.Contains(PolicyScripts, part) {
			t.Errorf("a policy lacks %s", part)
		}
	}
}

func TestPages_SpeakTheBrowsersLanguage(t *testing.T) {
	b := newScene(t).browser()
	for _, c := range []struct{ accept, lang string }{
		{"", "en"}, {"tr", "tr"}, {"tr-TR,tr;q=0.9,en-US;q=0.8", "tr"}, {"en-GB,tr;q=0.5", "en"}, {"de,tr;q=0.5", "tr"},
		{"de", "en"}, {"*", "en"}, {"tr;q=0", "en"}, {"not;a;language", "en"}, {"tr," + strings.Repeat("-", 1000), "en"},
	} {
		headers := []string{}
		if c.accept != "" {
			headers = append(headers, "Accept-Language: "+c.accept)
		}
		a := b.get("/login", headers...)
		a.want(t, 200, fmt.Sprintf(`<html lang="%s">`, c.lang)).wantHeader(t, "Vary", "Accept-Language")
	}
	turkish := "Accept-Language: tr"
	b.get("/login", turkish).want(t, 200, "Kullanıcı adı")
	b.post("/login", map[string]string{"user": "ayse"}, turkish).want(t, 401, "Kullanıcı adı veya parola yanlış.")
	b.get("/reports/x", turkish, htmlPlease, "Authorization: Bearer "+cast().operatorToken).want(t, 403, "Bunun için yetkiniz yok.")
}

// What was typed comes back as text, never as markup.
func TestPages_EscapeWhatTheyShow(t *testing.T) {
	b := newScene(t).browser()
	markup := `"><script>alert(1)</script>`
	for _, a := range []answer{
		b.get("/login?next=%2F" + "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
		b.post("/login", map[string]string{"user": markup, "password": "x", "next": "/" + markup}),
	} {
		if strings.Contains(strings.ToLower(a.text), "<script") || !strings.Contains(a.text, "&lt;script&gt;") {
			t.Errorf("%s", a.text)
		}
	}
}

func TestSignIn_LeadsNowhereElse(t *testing.T) {
	for _, c := range []struct{ next, want string }{
		{"/reports/x?from=2026-11-01#totals", "/reports/x?from=2026-11-01#totals"},
		{"/siparişler", "/sipari%C5%9Fler"},
		{"", "/"}, {"/", "/"}, {"x", "/"}, {"//evil.example", "/"}, {"///evil.example", "/"}, {`/\evil.example`, "/"},
		{`\/evil.example`, "/"}, {"https://evil.example", "/"}, {"https:evil.example", "/"}, {"javascript:alert(1)", "/"},
		{"/\t/evil.example", "/"}, {"\n//evil.example", "/"}, {"/x\r\nSet-Cookie: panel=1", "/"}, {" //evil.example", "/"},
		{"/%2fevil.example/ ", "/"}, {"/%2Fevil.example", "/"}, {"/%5cevil.example", "/"}, {"/a%2f%2Fb", "/a%2f%2Fb"},
		{"/login", "/"}, {"/login?next=/login", "/"}, {"/logout", "/"}, {"/%zz", "/"}, {"/" + strings.Repeat("x", maxNext), "/"},
	} {
		if got := localPath(c.next); got != c.want {
			t.Errorf("%q leads to %q, want %q", c.next, got, c.want)
		}
	}
	b := newScene(t).browser()
	b.post("/login", map[string]string{"user": "ayse", "password": password, "next": "//evil.example"}).want(t, 303, "").wantHeader(t, "Location", "/")
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
	s := newScene(t, func(s *Settings) { s.TrustedProxies = []string{"10.0.0.0/8", "192.0.2.1"} })
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
		{"nonsense", []string{"203.0.113.9"}, "nonsense"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		for _, f := range c.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		if got := s.gate.clientAddress(r); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}
