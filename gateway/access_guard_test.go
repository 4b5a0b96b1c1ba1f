package main

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
)

func wrongCredential(a answer) bool { return a.status == 401 && a.code == "INVALID_CREDENTIALS" }

// slowed is the guard's answer to strangers; it carries no quota of anybody.
func slowed(a answer) bool {
	return a.status == 429 && a.code == "RATE_LIMITED" && headerInt(a, "Retry-After") >= 1 && !a.quota()
}

// Who tries a new client id each time is slowed down too, whatever the ids look
// like, and is told nothing about any of them.
func TestAccess_ManyClientIDsFromOneAddress(t *testing.T) {
	for _, api := range []string{"vendor", "fleet"} {
		t.Run(api, func(t *testing.T) {
			s := newTwoAPIs(t)
			known := map[string]string{"vendor": s.account.clientID, "fleet": s.courier.clientID}[api]
			fresh := map[string]func() string{
				"vendor": func() string { return delivery.NewAccountID().ClientID() },
				"fleet":  func() string { return delivery.NewFleetID().ClientID() },
			}[api]
			first := s.login(api, known, "wrong").body
			for name, id := range map[string]func(int) string{
				"unknown ones": func(int) string { return fresh() },
				"no client's":  func(i int) string { return fmt.Sprint("nobody-", i) },
			} {
				refused := false
				for i := 0; i < 300 && !refused; i++ {
					a := s.login(api, id(i), "wrong")
					refused = slowed(a)
					if !refused && (!wrongCredential(a) || a.body != first) {
						t.Fatalf("%s, try %d: %d %s", name, i+1, a.status, a.body)
					}
				}
				if !refused {
					t.Errorf("%s: 300 client ids in a row are never slowed down", name)
				}
			}
			if a := s.login(api, known, map[string]string{"vendor": s.account.secret, "fleet": s.courier.secret}[api]); a.status != 200 {
				t.Errorf("the right credential from the same address: %d %s", a.status, a.body)
			}
		})
	}
}

// While strangers guess at a vendor's client id as fast as they can, the vendor
// gets every token of its hour, and not one more.
func TestAccess_GuessingTakesNoTokenFromTheOwner(t *testing.T) {
	s := newTwoAPIs(t)
	const allowed = 60 // of which newTwoAPIs has used one
	done := make(chan struct{})
	var guessers sync.WaitGroup
	for range 4 {
		guessers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if a := s.login("vendor", s.account.clientID, "vas_guess"); !wrongCredential(a) && !slowed(a) {
					t.Errorf("a guess: %d %s", a.status, a.body)
					return
				}
			}
		})
	}
	for i := 1; i < allowed; i++ {
		a := s.login("vendor", s.account.clientID, s.account.secret)
		if a.status != 200 || headerInt(a, "X-RateLimit-Remaining") != allowed-1-i {
			t.Errorf("token %d: %d %s %v", i+1, a.status, a.body, a.header)
			break
		}
	}
	if a := s.login("vendor", s.account.clientID, s.account.secret); a.status != 429 || !a.quota() {
		t.Errorf("token %d: %d %s", allowed+1, a.status, a.body)
	}
	close(done)
	guessers.Wait()
	if a := s.ask("vendor", s.account.token); a.status == 401 || a.status == 429 {
		t.Errorf("the vendor's token: %d %s", a.status, a.body)
	}
}

// from is a connection that comes from wherever it says.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}

// loginFrom asks for a token over a connection from that address.
func (w *world) loginFrom(server *fasthttp.Server, address, clientID string) answer {
	w.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- server.ServeConn(from{theirs, address}) }()
	body := fmt.Sprintf(`{"clientId":%q,"clientSecret":"wrong"}`, clientID)
	if err := ours.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		w.Fatal(err)
	}
	_, err := fmt.Fprintf(ours, "POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		w.Fatal(err)
	}
	status, header, text := w.response(bufio.NewReader(ours))
	_ = ours.Close()
	if err := <-served; err != nil {
		w.Fatal(err)
	}
	return readAnswer(parseHeader(status, header), []byte(text))
}

// An IPv6 host has 2^64 addresses and counts as one; an IPv4 address counts alone,
// written in whichever way.
func TestAccess_GuessesCountByNetwork(t *testing.T) {
	s := newTwoAPIs(t)
	server := s.g.newServer(vendorListener, &s.g.settings.VendorAPI, func(ctx *fasthttp.RequestCtx) {
		s.g.serve(ctx, s.g.vendorRoutes, s.g.settings.VendorAPI.MaxBodyBytes, true)
	})
	guess := func(address string) answer { return s.loginFrom(server, address, s.account.clientID) }
	for i := range 12 {
		a := guess(fmt.Sprintf("[2001:db8:1:2:%x::%x]:%d", 3*i+1, i, 40000+i))
		if i < 10 && !wrongCredential(a) || i == 11 && !slowed(a) {
			t.Errorf("guess %d from one /64: %d %s", i+1, a.status, a.body)
		}
	}
	if a := guess("[2001:db8:1:3::1]:4000"); !wrongCredential(a) {
		t.Errorf("from the next /64: %d %s", a.status, a.body)
	}
	for i := range 12 {
		address := fmt.Sprintf("203.0.113.7:%d", 40000+i)
		if i%2 == 1 {
			address = fmt.Sprintf("[::ffff:203.0.113.7]:%d", 40000+i)
		}
		if a := guess(address); i < 10 && !wrongCredential(a) || i == 11 && !slowed(a) {
			t.Errorf("guess %d from one IPv4 address: %d %s", i+1, a.status, a.body)
		}
	}
	if a := guess("203.0.113.8:4000"); !wrongCredential(a) {
		t.Errorf("from the next IPv4 address: %d %s", a.status, a.body)
	}
}

// An unknown client id and a wrong secret of a known one differ in nothing that
// can be seen from outside: the same bytes, and the same work, which is counted
// instead of timed. Comparisons of 32 bytes are the digests'.
func TestAccess_UnknownClientCostsWhatAWrongSecretCosts(t *testing.T) {
	s := newTwoAPIs(t)
	options, err := redis.ParseURL(s.redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	for api, ids := range map[string]struct{ known, unknown string }{
		"vendor": {s.account.clientID, delivery.NewAccountID().ClientID()},
		"fleet":  {s.courier.clientID, delivery.NewFleetID().ClientID()},
	} {
		known, first := s.loginWork(t, rdb, api, ids.known)
		unknown, second := s.loginWork(t, rdb, api, ids.unknown)
		if !maps.Equal(known, unknown) {
			t.Errorf("%s: a wrong secret costs Redis %v, an unknown client %v", api, known, unknown)
		}
		first.header.Del("Date")
		second.header.Del("Date")
		if first.body != second.body || fmt.Sprint(first.header) != fmt.Sprint(second.header) {
			t.Errorf("%s: a wrong secret is answered %s %v, an unknown client %s %v", api, first.body, first.header, second.body, second.header)
		}
	}
}

// loginWork is how often each command ran in Redis for one wrong credential. What
// the gateway does besides can only add to that, so the least of some is it.
func (w *world) loginWork(t *testing.T, rdb *redis.Client, api, clientID string) (least map[string]int, a answer) {
	t.Helper()
	for range 5 {
		before := commandCounts(t, rdb)
		a = w.login(api, clientID, "vas_wrong")
		if !wrongCredential(a) {
			t.Fatalf("%d %s", a.status, a.body)
		}
		cost := commandCounts(t, rdb)
		for name := range cost {
			cost[name] -= before[name]
		}
		if least == nil {
			least = cost
		}
		for name := range least {
			least[name] = min(least[name], cost[name])
		}
	}
	return least, a
}

func commandCounts(t *testing.T, rdb *redis.Client) map[string]int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(info) {
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if calls, _, _ := strings.Cut(rest, ","); found {
			counts[name] = atoi(calls)
		}
	}
	return counts
}

// Nothing but a token endpoint takes a credential, and neither takes one from
// where servers and proxies write their logs.
//
//rule:authentication/1
func TestAccess_CredentialsInOtherPlacesAreNone(t *testing.T) {
	s := newTwoAPIs(t)
	body := fmt.Sprintf(`{"clientId":%q,"clientSecret":%q}`, s.account.clientID, s.account.secret)
	query := "?clientId=" + s.account.clientID + "&clientSecret=" + s.account.secret
	for name, r := range map[string]request{
		"in the query":        {method: http.MethodPost, url: s.vendor + "/api/vendor/v1/token" + query, body: "{}"},
		"in the query of GET": {method: http.MethodGet, url: s.vendor + "/api/vendor/v1/token" + query},
		"as a form": {method: http.MethodPost, url: s.vendor + "/api/vendor/v1/token", body: query[1:],
			header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		"as Basic": {method: http.MethodPost, url: s.vendor + "/api/vendor/v1/token", body: "{}",
			header: map[string]string{"Authorization": "Basic " + s.account.secret}},
		"at the fleet API":   {method: http.MethodPost, url: s.private + "/api/fleet/v1/token", body: body},
		"at the private one": {method: http.MethodPost, url: s.private + "/api/vendor/v1/token", body: body},
		"at the admin API":   {method: http.MethodPost, url: s.private + "/api/admin/v1/token", body: body},
	} {
		if a := s.send(r); a.status < 400 || strings.Contains(a.body, s.account.secret) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if logs := s.logs.String(); strings.Contains(logs, s.account.secret) {
		t.Error("the client secret is in the log")
	}
}
