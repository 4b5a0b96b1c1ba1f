package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// What every endpoint answers alike is tried at every endpoint here, from the
// routers' own tables; the judge of watch_test.go holds each answer against the
// documents besides.

// anyBody passes the first checks of every endpoint, so that what refuses it lies
// behind them.
const anyBody = `{"url":"https://vendor.example/hook","status":"notSent","closingDate":"2099-01-01","reason":"VendorRequest"}`

// endpoint is a route with something in its path.
type endpoint struct {
	*route
	url    string
	vendor bool
}

// endpoints are all that a gateway has but the documentation.
func (w *world) endpoints(t *testing.T) []endpoint {
	t.Helper()
	parameter := strings.NewReplacer("/orders/{}", "/orders/7c9e6679-7425-80de-944b-e07fc1f90ae7", "/jobs/{}", "/jobs/7c9e6679-7425-80de-944b-e07fc1f90ae7",
		"/accounts/{}", "/accounts/"+delivery.NewAccountID().String(), "/fleets/{}", "/fleets/"+delivery.NewFleetID().String(), "{}", "s1")
	var all []endpoint
	for base, rs := range map[string]routes{w.vendor: w.g.vendorRoutes, w.private: w.g.privateRoutes} {
		for i := range rs {
			if strings.Contains(rs[i].name, "docs_") {
				continue
			}
			all = append(all, endpoint{&rs[i], base + parameter.Replace(rs[i].pattern), base == w.vendor})
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d endpoints", len(all))
	}
	return all
}

// tokens are good ones by who may call; one that is not needed is empty. Nobody
// asks Redis whose they are before a route does.
func (w *world) tokens(t *testing.T, issued time.Time) map[access]string {
	t.Helper()
	vendor, err := w.g.vendorTokens.Issue(delivery.NewAccountID(), issued)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := w.g.fleetTokens.Issue(delivery.NewFleetID(), issued)
	if err != nil {
		t.Fatal(err)
	}
	return map[access]string{vendorOnly: vendor, fleetOnly: fleet, adminOnly: adminKey}
}

// ask calls an endpoint with a body if it takes one.
func (w *world) ask(e endpoint, token string) answer {
	w.Helper()
	r := request{method: e.method, url: e.url, token: token}
	if e.body != noBody {
		r.body = anyBody
	}
	return w.send(r)
}

func expect(t *testing.T, what string, e endpoint, a answer, status int, code delivery.Code) {
	t.Helper()
	if a.status != status || a.code != string(code) || a.message == "" {
		t.Errorf("%s at %s: %d %s, want %d %s", what, e.name, a.status, a.body, status, code)
	}
}

func TestEveryEndpoint_RefusesWhoShowsNoGoodToken(t *testing.T) {
	w := newWorld(t)
	expired := w.tokens(t, time.Now().Add(-2*time.Hour))
	for _, e := range w.endpoints(t) {
		if e.access == public {
			continue
		}
		expect(t, "no token", e, w.ask(e, ""), 401, delivery.CodeTokenInvalid)
		if e.access != adminOnly { // the key has no end
			expect(t, "an expired token", e, w.ask(e, expired[e.access]), 401, delivery.CodeTokenExpired)
		}
	}
}

func TestEveryEndpoint_RefusesWhatIsNoMessage(t *testing.T) {
	s := newScene(t, "")
	tokens := map[access]string{vendorOnly: s.account.token, fleetOnly: s.courier.token, adminOnly: adminKey}
	for _, e := range s.endpoints(t) {
		limit := s.g.settings.PrivateAPI.MaxBodyBytes
		if e.vendor {
			limit = s.g.settings.VendorAPI.MaxBodyBytes
		}
		send := func(header, body string) answer { return s.written(e, tokens[e.access], header, body) }
		expect(t, "another Expect", e, send("Expect: a miracle\r\nContent-Length: 0", ""), 400, delivery.CodeMalformedRequest)
		expect(t, "a chunked body", e, send("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"), 411, delivery.CodeLengthRequired)
		if e.body == noBody {
			continue
		}
		expect(t, "a compressed body", e, send("Content-Encoding: gzip\r\nContent-Length: 2", "{}"), 415, delivery.CodeUnsupportedMediaType)
		// The server reads 8 kB before anything else; more would be in the way of its answer.
		expect(t, "a large body", e, send(fmt.Sprint("Content-Length: ", limit+1), strings.Repeat(" ", 8<<10)), 413, delivery.CodePayloadTooLarge)
	}
}

// written sends a request in one piece as it is written here: a client would still
// be writing when the answer to a bad beginning comes, and the connection ends.
func (w *world) written(e endpoint, token, header, body string) answer {
	w.Helper()
	host, path, _ := strings.Cut(strings.TrimPrefix(e.url, "http://"), "/")
	c, err := net.Dial("tcp", host)
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	fmt.Fprintf(c, "%s /%s HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\n%s\r\n\r\n%s", e.method, path, token, header, body)
	status, answered, said := w.response(bufio.NewReader(c))
	return readAnswer(parseHeader(status, answered), []byte(said))
}

func TestEveryEndpoint_OfAVendorHoldsSuspensionAndLimit(t *testing.T) {
	s := newScene(t, "")
	for _, e := range s.endpoints(t) {
		if !e.vendor || e.access != vendorOnly {
			continue
		}
		account := s.newAccount("")
		one := `{"sustained":{"count":1,"seconds":3600},"burst":{"count":1,"seconds":3600}}`
		s.admin("PATCH", "/accounts/"+account.id, `{"limits":{"orders":`+one+`,"orderStatus":`+one+`,"cancel":`+one+`,"stores":`+one+`}}`)
		if a := s.ask(e, account.token); a.status == 429 || !a.quota() {
			t.Errorf("the first request at %s: %d %s", e.name, a.status, a.body)
		}
		expect(t, "one request too many", e, s.ask(e, account.token), 429, delivery.CodeRateLimited)
		suspended := s.newAccount("")
		s.admin("PATCH", "/accounts/"+suspended.id, `{"suspended":true}`)
		expect(t, "a suspended account", e, s.ask(e, suspended.token), 403, delivery.CodeAccountSuspended)
	}
}

func TestEveryEndpoint_AnswersADefectWith500(t *testing.T) {
	s := testSettings(t)
	w := startGateway(t, s, testSecrets(), func(g *gateway) {
		for _, rs := range []routes{g.vendorRoutes, g.privateRoutes} {
			for i := range rs {
				rs[i].handle = func(*gateway, *exchange) error { panic("a defect") }
				rs[i].access = public
			}
		}
	})
	for _, e := range w.endpoints(t) {
		a := w.ask(e, "")
		expect(t, "a defect", e, a, 500, delivery.CodeInternal)
		if id := a.header.Get("X-Request-Id"); id == "" || a.data["requestId"] != id || strings.Contains(a.body, "a defect") {
			t.Errorf("%s: %s %v", e.name, a.body, a.header)
		}
	}
}

func TestEveryEndpoint_WithoutRedisAnswers503(t *testing.T) {
	s := testSettings(t)
	s.Redis.URL = "redis://127.0.0.1:1" // nobody listens there
	w := startGateway(t, s, testSecrets())
	tokens := w.tokens(t, time.Now())
	for _, e := range w.endpoints(t) {
		a := w.ask(e, tokens[e.access])
		expect(t, "no Redis", e, a, 503, delivery.CodeServiceUnavailable)
		if a.header.Get("Retry-After") != fmt.Sprint(a.data["retryAfterSeconds"]) {
			t.Errorf("%s: %s %v", e.name, a.body, a.header)
		}
	}
}
