package frame

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/reporting/access"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const password = "doğru at pil zımba"

// pages are what a package of pages has: one page and one part of it.
var pages = fstest.MapFS{"page/things.html": {Data: []byte(
	`{{define "things"}}<h1>{{.Title}}</h1>{{template "live" .}}<form method="post">{{template "csrf" .}}<input name="n" value="{{.Data.Typed}}">{{fault .Alert "n"}}</form>{{end}}
{{define "live"}}<p id="live">{{.Data.Name}}</p>{{end}}`)}}

type things struct{ Name, Typed string }

// scene is a panel with one page, in front of a real Redis.
type scene struct {
	*testing.T
	server *httptest.Server
	client *http.Client
	token  string // of a program with the same roles
}

// newScene signs somebody in who has these roles.
func newScene(t *testing.T, roles ...access.Role) *scene {
	t.Helper()
	redis, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir(), Extra: []string{"--appendfsync", "no"}})
	must(t, err)
	t.Cleanup(redis.Stop)
	l, err := ledger.Open(t.Context(), ledger.Config{URL: redis.URL, Environment: "sandbox", Partitions: 1})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	user, err := access.NewUser("ayse", roles, password)
	must(t, err)
	program, token, err := access.NewToken("cron", roles)
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	gate, err := access.New(l, access.People{Users: []access.User{user}, Tokens: []access.Token{token}}, access.Settings{PasswordChecks: 1}, log, prometheus.NewRegistry())
	must(t, err)
	f, err := New(gate, "sandbox", log)
	must(t, err)
	s := &scene{T: t, token: program, server: httptest.NewServer(routes(t, f, gate))}
	t.Cleanup(s.server.Close)
	s.signIn()
	return s
}

func routes(t *testing.T, f *Frame, gate *access.Gate) http.Handler {
	t.Helper()
	p, err := f.Parse(pages, Done{"made": "It is made."})
	must(t, err)
	mux := http.NewServeMux()
	f.Handle(mux, "GET /accounts", access.Operator, func(w http.ResponseWriter, r *http.Request) error {
		return p.Show(w, r, "things", View{Title: "Accounts <b>", Data: things{Name: `<script>alert(1)</script>`}})
	})
	f.Handle(mux, "GET /accounts/live", access.Operator, func(w http.ResponseWriter, r *http.Request) error {
		return p.Part(w, r, "live", things{Name: "part"})
	})
	f.Handle(mux, "POST /accounts", access.Operator, func(w http.ResponseWriter, r *http.Request) error {
		if typed := r.PostForm.Get("n"); typed != "good" {
			return p.Show(w, r, "things", View{Title: "Accounts", Data: things{Typed: typed}, Refused: &delivery.Error{
				Code: delivery.CodeValidationFailed, Message: "no", Fields: []delivery.FieldError{{Field: "n", Message: "must be good"}}}})
		}
		return Redirect(w, r, "/accounts/a%2Fb%3F?page=2", "made")
	})
	f.Handle(mux, "GET /fails", access.Operator, func(http.ResponseWriter, *http.Request) error { return errors.New("a secret detail") })
	f.Handle(mux, "GET /missing", access.Operator, func(http.ResponseWriter, *http.Request) error {
		return delivery.Refuse(delivery.CodeOrderNotFound, "no order has this id")
	})
	mux.Handle("/assets/", f.Assets())
	mux.Handle("GET /{$}", f.Home())
	mux.Handle("/login", gate.Handler())
	return mux
}

func (s *scene) signIn() {
	s.Helper()
	jar, err := cookiejar.New(nil)
	must(s, err)
	s.client = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if status, _, text := s.send(http.MethodPost, "/login", url.Values{"user": {"ayse"}, "password": {password}}); status != http.StatusSeeOther {
		s.Fatalf("signing in: %d %s", status, text)
	}
}

func (s *scene) send(method, path string, form url.Values) (int, http.Header, string) {
	s.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, body)
	must(s, err)
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := s.client.Do(r)
	must(s, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(s, err)
	return resp.StatusCode, resp.Header, string(text)
}

var csrfOf = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func TestShow_PutsTheLayoutAroundAPage(t *testing.T) {
	t.Parallel()
	s := newScene(t, access.Operator)
	status, header, text := s.send(http.MethodGet, "/accounts", nil)
	if status != http.StatusOK || strings.Contains(text, "<script>alert") || strings.Contains(text, "<b>") {
		t.Fatalf("%d %s", status, text)
	}
	for _, want := range []string{`<html lang="en">`, `aria-current="page"`, "Accounts &lt;b&gt; ·", "sandbox", "Sign out", "/assets/"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "/payments") || strings.Contains(text, "chart.umd") {
		t.Error("the page has what this user may not see or this page does not need")
	}
	if header.Get("Content-Security-Policy") != access.PolicyScripts || header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", header)
	}
	status, _, text = s.send(http.MethodGet, "/accounts/live", nil)
	if status != http.StatusOK || text != `<p id="live">part</p>` {
		t.Errorf("the part: %d %s", status, text)
	}
}

func TestActions_TellWhatWasDoneAndWhatWasRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, access.Operator)
	_, _, text := s.send(http.MethodGet, "/accounts?done=made", nil)
	if !strings.Contains(text, "It is made.") {
		t.Error("the page does not say what was done")
	}
	csrf := csrfOf.FindStringSubmatch(text)[1]
	if _, _, text := s.send(http.MethodGet, "/accounts?done=%3Cb%3Eanything", nil); strings.Contains(text, "anything") {
		t.Error("text of an address is shown")
	}
	status, header, _ := s.send(http.MethodPost, "/accounts", url.Values{"csrf": {csrf}, "n": {"good"}})
	if status != http.StatusSeeOther || header.Get("Location") != "/accounts/a%2Fb%3F?done=made&page=2" {
		t.Errorf("done: %d to %s", status, header.Get("Location"))
	}
	status, _, text = s.send(http.MethodPost, "/accounts", url.Values{"csrf": {csrf}, "n": {`"><i>`}})
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "must be good") || !strings.Contains(text, `value="&#34;&gt;&lt;i&gt;"`) {
		t.Errorf("refused: %d %s", status, text)
	}
	if status, _, _ := s.send(http.MethodPost, "/accounts", url.Values{"n": {"good"}}); status != http.StatusForbidden {
		t.Errorf("without the proof: %d", status)
	}
}

func TestRefuse_ShowsAPageWithoutDetail(t *testing.T) {
	t.Parallel()
	s := newScene(t, access.Operator)
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/fails":   {http.StatusInternalServerError, "Something went wrong"},
		"/missing": {http.StatusNotFound, "no order has this id"},
	} {
		status, header, text := s.send(http.MethodGet, path, nil)
		if status != want.status || !strings.Contains(text, want.text) || strings.Contains(text, "secret detail") || !strings.Contains(text, "<nav") {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if id := header.Get("X-Request-Id"); (id != "") != (status == http.StatusInternalServerError) || !strings.Contains(text, id) {
			t.Errorf("%s: request id %q", path, id)
		}
	}
}

func TestRoles_DecideWhereHomeIs(t *testing.T) {
	t.Parallel()
	for role, want := range map[access.Role]string{access.Operator: "/overview", access.Finance: "/payments"} {
		s := newScene(t, role)
		if _, header, _ := s.send(http.MethodGet, "/", nil); header.Get("Location") != want {
			t.Errorf("%s is led to %q", role, header.Get("Location"))
		}
	}
	s := newScene(t, access.Finance)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if status, _, _ := s.send(method, "/accounts", url.Values{}); status != http.StatusForbidden {
			t.Errorf("%s by finance: %d", method, status)
		}
	}
}

func TestParse_RefusesBrokenTemplates(t *testing.T) {
	t.Parallel()
	f, err := New(nil, "sandbox", slog.New(slog.DiscardHandler))
	must(t, err)
	if _, err := f.Parse(fstest.MapFS{"page/x.html": {Data: []byte("{{define")}}, nil); err == nil {
		t.Error("a broken template was parsed")
	}
	p, err := f.Parse(pages, nil)
	must(t, err)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/x", nil)
	if err := p.Show(w, r, "nothing", View{}); err == nil || w.Body.Len() > 0 {
		t.Error("a page that is not there was shown")
	}
	if err := p.Show(w, r, "things", View{Data: 7}); err == nil || w.Body.Len() > 0 {
		t.Error("half a page was shown")
	}
}

// A token in a script is nobody whom the gateway's log could name.
func TestTokens_ReadAndChangeNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, access.Operator)
	for method, want := range map[string]int{http.MethodGet: http.StatusOK, http.MethodPost: http.StatusForbidden} {
		r, err := http.NewRequestWithContext(t.Context(), method, s.server.URL+"/accounts", strings.NewReader("n=good"))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+s.token)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != want {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
}
