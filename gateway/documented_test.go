package main

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/testenv/testserver"
)

// What any gateway of these tests answers, on either
// listener, is held against the OpenAPI documents before it is sent, whichever
// client asked. A test that meets what is not documented fails, and so does the
// whole package when something is documented that no test has met.
func TestMain(m *testing.M) {
	code := testserver.Run(m)
	if code == 0 && wholePackage() {
		for _, api := range []string{"vendor", "fleet", "admin"} {
			for _, missing := range document(api).Unmet() {
				fmt.Printf("%s.yaml documents what no test has met: %s (a fleet's route: add a call to fleetCalls in fleet_test.go)\n", api, missing)
				code = 1
			}
			for _, example := range document(api).Unsent() {
				fmt.Printf("%s.yaml has an example that no test has met: %s\n", api, example)
				code = 1
			}
		}
	}

	os.Exit(code)
}

// wholePackage reports whether every test was meant to run.
func wholePackage() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz", "bench"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

// document is the contract of an API, which a test holds to be readable.
func document(api string) *apiContract {
	d, err := contractOfAPI(api)
	if err != nil {
		panic(err)
	}
	return d
}

// bodyRead is where a checked handler leaves the body that it was given.
type bodyRead struct{}

// checkAnswers puts the check around the routes of a gateway and both its
// listeners, unless the test measures: it must not pay for that.
func checkAnswers(t testing.TB, g *gateway, fronts []*front) {
	if _, benchmark := t.(*testing.B); benchmark || strings.HasPrefix(t.Name(), "TestAllocations") {
		return
	}

	for _, rs := range []routes{g.vendorRoutes, g.privateRoutes} {
		for i := range rs {
			handle := rs[i].handle
			rs[i].handle = func(g *gateway, x *requestContext) error {
				x.ctx.SetUserValue(bodyRead{}, append([]byte{}, x.body...))
				return handle(g, x)
			}
		}
	}

	for _, f := range fronts {
		handle, refuse := f.server.Handler, f.server.ErrorHandler
		f.server.Handler = func(ctx *fasthttp.RequestCtx) {
			ctx.SetUserValue(bodyRead{}, nil)
			handle(ctx)
			target := string(ctx.Request.Header.RequestURI())
			_, query, _ := strings.Cut(target, "?")
			checkAnswer(t, f.name, string(ctx.Method()), string(pathOf([]byte(target)))+"?"+query, ctx)
		}

		f.server.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) {
			refuse(ctx, err)
			if len(ctx.Response.Body()) > 0 { // none was sent to a connection that was silent
				checkAnswer(t, f.name, "", "", ctx)
			}
		}
	}
}

// checkAnswer holds what was answered against the document of the API that the target
// belongs to.
func checkAnswer(t testing.TB, listener, method, target string, ctx *fasthttp.RequestCtx) {
	d := contractOf(listener, target)
	if d == nil {
		return
	}

	e := exchange{Method: method, Target: target, Header: http.Header{}, Status: ctx.Response.StatusCode(),
		Answer: http.Header{}, Said: bytes.Clone(ctx.Response.Body())}
	e.Body, _ = ctx.UserValue(bodyRead{}).([]byte)
	for name, value := range ctx.Request.Header.All() {
		e.Header.Add(string(name), string(value))
	}

	for name, value := range ctx.Response.Header.All() {
		e.Answer.Add(string(name), string(value))
	}

	if err := d.Check(e); err != nil {
		t.Errorf("not as documented: %s %s: %v", method, target, err)
	}
}

// contractOf is the document that a request falls under; nil for what operators,
// balancers and readers of the documentation ask, which is no API.
func contractOf(listener, target string) *apiContract {
	path := string(pathOf([]byte(target)))
	switch {
	case listener == vendorListener && strings.HasPrefix(path, "/docs"), strings.Contains(path, "/v1/openapi"):
		return nil
	case listener == vendorListener:
		return document("vendor")
	case listener == fleetListener && !strings.HasPrefix(path, "/api/fleet/"):
		return nil // what is not there
	case strings.HasPrefix(path, "/api/fleet/"):
		return document("fleet")
	case strings.HasPrefix(path, "/api/"), target == "":
		return document("admin")
	}

	return nil
}

// checkRejected checks what a connection too many is answered; no server sees it.
func checkRejected(t *testing.T, a answer) {
	t.Helper()
	if err := document("vendor").Check(exchange{Status: a.status, Answer: a.header, Said: []byte(a.body)}); err != nil {
		t.Errorf("not as documented: %v", err)
	}
}
