package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// What every endpoint answers alike is tried at every endpoint here, from the
// routers' own tables.

// anyBody passes the first checks of every endpoint, so that what refuses it is
// behind them.
const anyBody = `{"url":"https://vendor.example/hook","status":"notSent","closingDate":"2099-01-01","reason":"VendorRequest"}`

// endpoint is a route with something in its path.
type endpoint struct {
	*route
	url    string
	vendor bool
}

// endpoints are all that a gateway has but the documentation.
func (e *env) endpoints(t *testing.T) (all []endpoint) {
	t.Helper()
	parameter := strings.NewReplacer("/orders/{}", "/orders/7c9e6679-7425-80de-944b-e07fc1f90ae7", "/jobs/{}", "/jobs/7c9e6679-7425-80de-944b-e07fc1f90ae7",
		"/accounts/{}", "/accounts/"+delivery.NewAccountID().String(), "/fleets/{}", "/fleets/"+delivery.NewFleetID().String(), "{}", "s1")
	for base, rs := range map[string]routes{e.vendor: e.g.vendorRoutes, e.private: e.g.privateRoutes} {
		for i := range rs {
			if !strings.Contains(rs[i].name, "docs_") {
				all = append(all, endpoint{&rs[i], base + parameter.Replace(rs[i].pattern), base == e.vendor})
			}
		}
	}

	if len(all) < 40 {
		t.Fatalf("only %d endpoints", len(all))
	}

	return all
}

// tokens are good ones by who may call; one that is not needed is empty. Nobody
// asks Redis whose they are before a route does.
func (e *env) tokens(t *testing.T, at time.Time) map[access]string {
	t.Helper()
	vendor, err := e.g.vendorTokens.Issue(delivery.NewAccountID(), at)
	fleet, fleetErr := e.g.fleetTokens.Issue(delivery.NewFleetID(), at)
	if err := errors.Join(err, fleetErr); err != nil {
		t.Fatal(err)
	}
	return map[access]string{vendorOnly: vendor, fleetOnly: fleet, adminOnly: adminKey}
}

// ask calls an endpoint with a body if it takes one.
func (e *env) ask(p endpoint, token string) answer {
	e.Helper()
	r := request{method: p.method, url: p.url, token: token}
	if p.body != noBody {
		r.body = anyBody
	}
	return e.send(r)
}

func TestEveryEndpoint_RefusesWhoShowsNoGoodToken(t *testing.T) {
	e := newEnv(t)
	expired := e.tokens(t, time.Now().Add(-2*time.Hour))
	for _, p := range e.endpoints(t) {
		if p.access == public {
			continue
		}
		want(t, e.ask(p, ""), 401, "TOKEN_INVALID")
		if p.access != adminOnly { // the key has no end
			want(t, e.ask(p, expired[p.access]), 401, "TOKEN_EXPIRED")
		}
	}
}

func TestEveryEndpoint_RefusesWhatIsNoMessage(t *testing.T) {
	e := newStoreEnv(t, "")
	tokens := map[access]string{vendorOnly: e.account.token, fleetOnly: e.courier.token, adminOnly: adminKey}
	for _, p := range e.endpoints(t) {
		limit := e.g.settings.PrivateAPI.MaxBodyBytes
		if p.vendor {
			limit = e.g.settings.VendorAPI.MaxBodyBytes
		}

		// In one piece: a client would still be writing when the answer to a bad
		// beginning comes, and the connection ends.
		host, path, _ := strings.Cut(strings.TrimPrefix(p.url, "http://"), "/")
		send := func(header, body string) answer {
			c := dialBase(t, host)
			defer c.Close()
			fmt.Fprintf(c, "%s /%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", p.method, path, tokens[p.access], header, body)
			a, err := readAnswerFrom(bufio.NewReader(c), p.method)
			if err != nil {
				t.Fatal(err)
			}

			a.asked = p.name + " " + header
			return a
		}

		want(t, send("Expect: a miracle\r\nContent-Length: 0", ""), 400, "MALFORMED_REQUEST")
		want(t, send("Transfer-Encoding: gzip, chunked", "2\r\n{}\r\n0\r\n\r\n"), 400, "MALFORMED_REQUEST")
		want(t, send("Content-Length: 2\r\nTransfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"), 400, "MALFORMED_REQUEST")
		if strings.Contains(p.pattern, "{}") {
			whole := path
			path = strings.Replace(p.pattern[1:], "{}", "%zz", 1)
			want(t, send("Content-Length: 0", ""), 400, "MALFORMED_REQUEST")
			path = whole
		}

		if p.body == noBody {
			continue
		}

		if p.body == requiredBody {
			want(t, send("X: no length", ""), 411, "LENGTH_REQUIRED")
		}

		want(t, send("Transfer-Encoding: chunked", "2\r\n{}\r\n"+"x"), 400, "MALFORMED_REQUEST")
		want(t, send("Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", limit+1, strings.Repeat(" ", limit+1))), 413, "PAYLOAD_TOO_LARGE")
		want(t, send("Content-Encoding: gzip\r\nContent-Length: 2", "{}"), 415, "UNSUPPORTED_MEDIA_TYPE")
		// The server reads 8 kB before anything else; more would be in the way of its answer.
		want(t, send(fmt.Sprint("Content-Length: ", limit+1), strings.Repeat(" ", 8<<10)), 413, "PAYLOAD_TOO_LARGE")
	}
}

func TestEveryEndpoint_OfAVendorHoldsSuspensionAndLimit(t *testing.T) {
	e := newEnv(t)
	for _, p := range e.endpoints(t) {
		if !p.vendor || p.access != vendorOnly {
			continue
		}

		account := e.newAccount("")
		one := `{"sustained":{"count":1,"seconds":3600},"burst":{"count":1,"seconds":3600}}`
		e.admin("PATCH", "/accounts/"+account.id, `{"limits":{"orders":`+one+`,"orderStatus":`+one+`,"cancel":`+one+`,"stores":`+one+`}}`)
		if a := e.ask(p, account.token); a.status == 429 || !a.quota() {
			t.Errorf("the first request at %s: %d %s", p.name, a.status, a.body)
		}

		want(t, e.ask(p, account.token), 429, "RATE_LIMITED")
		suspended := e.newAccount("")
		e.admin("PATCH", "/accounts/"+suspended.id, `{"suspended":true}`)
		want(t, e.ask(p, suspended.token), 403, "ACCOUNT_SUSPENDED")
	}
}

//rule:decisions/malformed-or-unknown
func TestEveryEndpoint_AnswersADefectWith500(t *testing.T) {
	t.Parallel()

	e := startGateway(t, testSettings(t), testSecrets(), func(e *env) {
		for _, rs := range []routes{e.g.vendorRoutes, e.g.privateRoutes} {
			for i := range rs {
				rs[i].access = public
				rs[i].static, rs[i].about = true, nil
				rs[i].handle = func(*gateway, *requestContext) error { panic("a secret detail") }
				if i%2 == 0 {
					rs[i].handle = func(*gateway, *requestContext) error { return errors.New("a secret detail") }
				}
			}
		}
	})

	for _, p := range e.endpoints(t) {
		r := request{method: p.method, url: p.url, header: map[string]string{"X-Request-Id": "forged"}}
		if p.body != noBody {
			r.body = anyBody
		}

		a := want(t, e.send(r), 500, "INTERNAL_ERROR")
		id := a.header.Get("X-Request-Id")
		if id == "" || id == "forged" || a.data["requestId"] != id || strings.Contains(a.body, "a secret detail") || !strings.Contains(e.logs.String(), id) {
			t.Errorf("%s: %s %v", p.name, a.body, a.header)
		}
	}

	if !strings.Contains(e.logs.String(), "a secret detail") {
		t.Error("the log lacks what went wrong")
	}
}

func TestEveryEndpoint_WithoutRedisAnswers503(t *testing.T) {
	e := newEnvWithoutRedis(t)
	tokens := e.tokens(t, time.Now())
	for _, p := range e.endpoints(t) {
		a := want(t, e.ask(p, tokens[p.access]), 503, "SERVICE_UNAVAILABLE", "retryAfterSeconds", 1)
		if a.header.Get("Retry-After") != "1" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %s %v", p.name, a.body, a.header)
		}
	}
}

// A spare connection that a client dialled and left alone must not hold an answer
// that nobody asked for.
func TestListener_ClosesSilentConnectionsWithoutAWord(t *testing.T) {
	e := newEnvWithoutRedis(t, func(s *settings) { s.VendorAPI.ReadTimeout = 200 * time.Millisecond })
	conn := dialBase(t, e.vendor)
	defer conn.Close()
	if said, err := io.ReadAll(conn); len(said) > 0 || err != nil {
		t.Errorf("said %q, %v", said, err)
	}
}

// Clients that stream their JSON do not know its length before it is written. They
// are answered like others, and keep their connection.
//
//rule:decisions/malformed-or-unknown
func TestEveryEndpoint_TakesBodiesInChunks(t *testing.T) {
	e := newStoreEnv(t, everyLimit())
	tokens := map[access]string{vendorOnly: e.account.token, fleetOnly: e.courier.token, adminOnly: adminKey}
	for _, p := range e.endpoints(t) {
		if p.body == noBody {
			continue
		}

		host, path, _ := strings.Cut(strings.TrimPrefix(p.url, "http://"), "/")
		c := dialBase(t, host)
		r := bufio.NewReader(c)
		ask := func(framing, body string) answer {
			fmt.Fprintf(c, "%s /%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", p.method, path, tokens[p.access], framing, body)
			a, err := readAnswerFrom(r, p.method)
			if err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
			return a
		}

		whole := ask(fmt.Sprint("Content-Length: ", len(anyBody)), anyBody)
		chunked := fmt.Sprintf("5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", anyBody[:5], len(anyBody)-5, anyBody[5:])
		for _, framing := range []string{"Transfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nExpect: 100-continue"} {
			if a := ask(framing, chunked); a.status != whole.status || a.code != whole.code {
				t.Errorf("%s %s: %d %s, with a length %d %s", p.name, framing, a.status, a.body, whole.status, whole.body)
			}
		}

		c.Close()
	}
}
