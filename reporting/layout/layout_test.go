package layout

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/auth/authenv"
)

func TestMain(m *testing.M) { testserver.Main(m) }

var must = testenv.Must

// pages are what a package of pages has: one page and one part of it.
var pages = fstest.MapFS{"page/things.html": {Data: []byte(
	`{{define "done"}}{{if eq . "made"}}It is made.{{end}}{{end}}{{define "things"}}<h1>{{.Title}}</h1>{{template "live" .}}<form method="post">{{template "csrf" .}}<input name="n" value="{{.Data.Typed}}">{{fault .Alert "n"}}</form>{{end}}
{{define "live"}}<p id="live">{{.Data.Name}}</p>{{end}}`)}}

type things struct{ Name, Typed string }

// signedIn is the browser of a user at a panel with that page.
func signedIn(t *testing.T, user string) *testenv.Client {
	t.Helper()
	t.Parallel()

	l := testenv.New(t).OpenAs(stack.ReportingUser)
	gate := authenv.Gate(t, l)
	f := New(gate, l, "sandbox", authenv.Log)
	c := testenv.Serve(t, routes(t, f, gate), testenv.AcceptHTML)
	authenv.SignIn(c, user)

	return c
}

func routes(t *testing.T, f *Layout, gate *auth.Gate) http.Handler {
	t.Helper()
	p := f.Parse("test", pages)
	mux := http.NewServeMux()
	f.Handle(mux, "GET /accounts", func(w http.ResponseWriter, r *http.Request) error {
		return p.Show(w, r, "things", View{Title: "Accounts <b>", Data: things{Name: `<script>alert(1)</script>`}})
	}, auth.Operator)
	f.Handle(mux, "GET /accounts/live", func(w http.ResponseWriter, r *http.Request) error {
		return p.Part(w, r, "live", things{Name: "part"})
	}, auth.Operator)
	f.Handle(mux, "POST /accounts", func(w http.ResponseWriter, r *http.Request) error {
		if typed := r.PostForm.Get("n"); typed != "good" {
			return p.Show(w, r, "things", View{Title: "Accounts", Data: things{Typed: typed}, Refused: &delivery.Error{
				Code: delivery.CodeValidationFailed, Message: "no", Fields: []delivery.FieldError{{Field: "n", Message: "must be good"}}}})
		}
		return Redirect(w, r, "/accounts/a%2Fb%3F?page=2", "made")
	}, auth.Operator)

	f.Handle(mux, "GET /fails", func(http.ResponseWriter, *http.Request) error { return errors.New("a secret detail") }, auth.Operator)
	f.Handle(mux, "GET /missing", func(http.ResponseWriter, *http.Request) error {
		return delivery.Refuse(delivery.CodeOrderNotFound, "no order has this id")
	}, auth.Operator)
	f.Routes(mux)
	mux.Handle("/login", gate.Handler())

	return mux
}

func TestShow_PutsTheLayoutAroundAPage(t *testing.T) {
	c := signedIn(t, "deniz")
	c.Get("/accounts").Want(200, `<html lang="en">`, `aria-current="page"`, "Accounts &lt;b&gt; ·", "sandbox", "Sign out", "/assets/").
		Harmless().Lacks("/payments", "chart.umd"). // what this user may not see, and this page does not need
		Carries(map[string]string{"Content-Security-Policy": auth.PolicyScripts, "Cache-Control": "no-store"})
	if part := c.Page("/accounts/live"); part.Text != `<p id="live">part</p>` {
		t.Errorf("the part: %s", part.Text)
	}
}

func TestActions_TellWhatWasDoneAndWhatWasRefused(t *testing.T) {
	c := signedIn(t, "deniz")
	csrf := c.Get("/accounts?done=made").Want(200, "It is made.").Value("csrf")
	c.Get("/accounts?done=%3Cb%3Eanything").Lacks("anything")
	c.Post("/accounts", url.Values{"csrf": {csrf}, "n": {"good"}}).Leads("/accounts/a%2Fb%3F?page=2&done=made")
	c.Post("/accounts", url.Values{"csrf": {csrf}, "n": {`"><i>`}}).Want(http.StatusUnprocessableEntity, "must be good", `value="&#34;&gt;&lt;i&gt;"`)
	c.Post("/accounts", url.Values{"n": {"good"}}).Want(http.StatusForbidden)
	// A token in a script is nobody whom the gateway's log could name.
	program := testenv.NewClient(t, c.URL, authenv.As("operator"))
	program.Get("/accounts").Want(200)
	program.Post("/accounts", url.Values{"n": {"good"}}).Want(http.StatusForbidden)
}

func TestRefuse_ShowsAPageWithoutDetail(t *testing.T) {
	c := signedIn(t, "deniz")
	failure := c.Get("/fails").Want(http.StatusInternalServerError, "Something went wrong", "<nav").Lacks("secret detail")
	if id := failure.Header.Get("X-Request-Id"); id == "" || !strings.Contains(failure.Text, id) {
		t.Errorf("request id %q", id)
	}
	c.Get("/missing").Want(http.StatusNotFound, "no order has this id", "<nav").Carries(map[string]string{"X-Request-Id": ""})
}

func TestRoles_DecideWhereHomeIs(t *testing.T) {
	c := signedIn(t, "ayse")
	c.Get("/").Leads("/payments")
	c.Get("/accounts").Want(http.StatusForbidden)
	c.Post("/accounts", nil).Want(http.StatusForbidden)
	authenv.SignIn(c, "deniz")
	c.Get("/").Leads("/overview")
}

func TestParse_RefusesBrokenTemplates(t *testing.T) {
	t.Parallel()

	f := New(nil, &ledger.Ledger{}, "sandbox", slog.New(slog.DiscardHandler))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a broken template was parsed")
			}
		}()
		f.Parse("test", fstest.MapFS{"page/x.html": {Data: []byte("{{define")}})
	}()

	p := f.Parse("test", pages)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/x", nil)
	if err := p.Show(w, r, "nothing", View{}); err == nil || w.Body.Len() > 0 {
		t.Error("a page that is not there was shown")
	}
	if err := p.Show(w, r, "things", View{Data: 7}); err == nil || w.Body.Len() > 0 {
		t.Error("half a page was shown")
	}
}
