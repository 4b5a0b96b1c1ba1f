package main

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/gateway/token"
	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

func wrongCredential(a answer) bool { return a.status == 401 && a.code == "INVALID_CREDENTIALS" }

// slowed is the answer to who guesses too often; it carries no quota of anybody.
func slowed(a answer) bool {
	return a.status == 429 && a.code == "RATE_LIMITED" && headerInt(a, "Retry-After") >= 1 && !a.quota()
}

// guessUntilSlowed guesses until it is refused, which must not be before the
// tenth time. Places become free with time, ten a minute, so the number of guesses
// depends on how fast they are.
func guessUntilSlowed(t *testing.T, what string, guess func(i int) answer) {
	t.Helper()
	for i := range 2000 {
		a := guess(i)
		if slowed(a) && i >= 10 {
			return
		}
		if !wrongCredential(a) {
			t.Fatalf("%s, guess %d: %d %s", what, i+1, a.status, a.body)
		}
	}

	t.Errorf("%s: 2000 guesses are not slowed down", what)
}

// Who tries a new client id each time is slowed down too, whatever the ids look
// like, and learns nothing about any of them.
func TestAccess_ManyClientIDsFromOneAddress(t *testing.T) {
	for api, fresh := range map[string]func() string{
		"vendor": func() string { return delivery.NewAccountID().ClientID() },
		"fleet":  func() string { return delivery.NewFleetID().ClientID() },
	} {
		t.Run(api, func(t *testing.T) {
			e := newStoreEnv(t, "")
			known := map[string]party{"vendor": e.account, "fleet": e.courier}[api]
			first := e.login(api, known.clientID, "wrong").body
			for name, id := range map[string]func(int) string{
				"unknown ones": func(int) string { return fresh() },
				"no client's":  func(i int) string { return fmt.Sprint("nobody-", i) },
			} {
				refused := false
				for i := 0; i < 3000 && !refused; i++ {
					a := e.login(api, id(i), "wrong")
					refused = slowed(a)
					if !refused && (!wrongCredential(a) || a.body != first) {
						t.Fatalf("%s, try %d: %d %s", name, i+1, a.status, a.body)
					}
				}

				if !refused {
					t.Errorf("%s: 3000 client ids in a row are never slowed down", name)
				}
			}

			want(t, e.login(api, known.clientID, known.secret), 200, "")
		})
	}
}

// While strangers guess at a vendor's client id as fast as they can, the vendor
// gets every token of its hour, and not one more.
//
//rule:limits-and-idempotency/redis_rate
func TestAccess_GuessingTakesNoTokenFromTheOwner(t *testing.T) {
	e := newStoreEnv(t, "")
	const allowed = 60 // of which newStoreEnv has used one
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

				if a := e.login("vendor", e.account.clientID, "vas_guess"); !wrongCredential(a) && !slowed(a) {
					t.Errorf("a guess: %d %s", a.status, a.body)
					return
				}
			}
		})
	}

	for i := 1; i < allowed; i++ {
		a := e.login("vendor", e.account.clientID, e.account.secret)
		if a.status != 200 || headerInt(a, "X-RateLimit-Remaining") != allowed-1-i {
			t.Errorf("token %d: %d %s %v", i+1, a.status, a.body, a.header)
			break
		}
	}

	if a := want(t, e.login("vendor", e.account.clientID, e.account.secret), 429, "RATE_LIMITED"); !a.quota() {
		t.Errorf("token %d: %v", allowed+1, a.header)
	}

	close(done)
	guessers.Wait()
	want(t, e.call("GET", "/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
	a := e.login("vendor", e.account.clientID, strings.Repeat("x", 3000))
	if !wrongCredential(a) && !slowed(a) {
		t.Errorf("a long secret: %d %s", a.status, a.body)
	}

	want(t, e.login("vendor", e.account.clientID, strings.Repeat("x", 5000)), 413, "PAYLOAD_TOO_LARGE")
}

// from is a connection that comes from wherever it says.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}

// An IPv6 host has 2^64 addresses and counts as one; an IPv4 address counts alone,
// written in whichever way.
func TestAccess_GuessesCountByNetwork(t *testing.T) {
	e := newStoreEnv(t, "")
	server := e.g.newServer(vendorListener, &e.g.settings.VendorAPI.ListenerSettings, func(ctx *fasthttp.RequestCtx) {
		e.g.serve(ctx, e.g.vendorRoutes, e.g.settings.VendorAPI.MaxBodyBytes, true)
	})
	guess := func(address string) answer {
		own, theirs := net.Pipe()
		defer own.Close()
		served := make(chan error, 1)
		go func() { served <- server.ServeConn(from{theirs, address}) }()
		body := fmt.Sprintf(`{"clientId":%q,"clientSecret":"wrong"}`, e.account.clientID)
		if _, err := fmt.Fprint(own, posted("POST", "/api/vendor/v1/token", "Connection: close\r\n", body)); err != nil {
			t.Fatal(err)
		}

		a, err := readAnswerFrom(bufio.NewReader(own), "POST")
		_ = own.Close()
		if served := <-served; err != nil || served != nil {
			t.Fatal(err, served)
		}

		return a
	}

	guessUntilSlowed(t, "one /64", func(i int) answer {
		return guess(fmt.Sprintf("[2001:db8:1:2:%x::%x]:%d", 3*i+1, i, 40000+i))
	})
	guessUntilSlowed(t, "one IPv4 address", func(i int) answer {
		return guess(fmt.Sprintf([]string{"203.0.113.7:%d", "[::ffff:203.0.113.7]:%d"}[i%2], 40000+i))
	})
	for _, next := range []string{"[2001:db8:1:3::1]:4000", "203.0.113.8:4000"} {
		if a := guess(next); !wrongCredential(a) {
			t.Errorf("from %s: %d %s", next, a.status, a.body)
		}
	}
}

// An unknown client id and a wrong secret of a known one differ in nothing that
// can be seen from outside: the same bytes, and the same work, which is counted
// instead of timed. Comparisons of 32 bytes are the digests'.
func TestAccess_UnknownClientCostsWhatAWrongSecretCosts(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newQuietEnv(t, server).withStore("")
	for api, ids := range map[string]struct{ known, unknown string }{
		"vendor": {e.account.clientID, delivery.NewAccountID().ClientID()},
		"fleet":  {e.courier.clientID, delivery.NewFleetID().ClientID()},
	} {
		known, first := e.loginWork(server, api, ids.known)
		unknown, second := e.loginWork(server, api, ids.unknown)
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

// loginWork is the work for one wrong credential.
func (e *env) loginWork(server *stack.Redis, api, clientID string) (least map[string]int, a answer) {
	e.Helper()
	least = e.work(server, func() { a = want(e, e.login(api, clientID, "vas_wrong"), 401, "INVALID_CREDENTIALS") })
	return least, a
}

// commands counts the commands that Redis has run since its start.
func (e *env) commands(server *stack.Redis) map[string]int {
	e.Helper()
	info, err := server.Command(e.Context(), "INFO", "commandstats")
	if err != nil {
		e.Fatal(err)
	}

	counts := map[string]int{}
	for line := range strings.Lines(info) {
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if found {
			calls, _, _ := strings.Cut(rest, ",")
			counts[name], _ = strconv.Atoi(calls)
		}
	}

	return counts
}

// work is how often each command runs in Redis for a request. What the gateway does
// besides can only add to that, so the least of some is it.
func (e *env) work(server *stack.Redis, do func()) (least map[string]int) {
	e.Helper()
	counts := func() map[string]int { return e.commands(server) }
	for range 5 {
		before := counts()
		do()
		cost := counts()
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

	return least
}

// Nothing but a token endpoint takes a credential, and neither takes one from
// where servers and proxies write their logs.
//
//rule:authentication/1
func TestAccess_CredentialsInOtherPlacesAreNone(t *testing.T) {
	e := newStoreEnv(t, "")
	body := fmt.Sprintf(`{"clientId":%q,"clientSecret":%q}`, e.account.clientID, e.account.secret)
	query := "?clientId=" + e.account.clientID + "&clientSecret=" + e.account.secret
	vendors := e.vendor + "/api/vendor/v1/token"
	for name, r := range map[string]request{
		"in the query":        {method: http.MethodPost, url: vendors + query, body: "{}"},
		"in the query of GET": {method: http.MethodGet, url: vendors + query},
		"as a form":           {method: http.MethodPost, url: vendors, body: query[1:], header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		"as Basic":            {method: http.MethodPost, url: vendors, body: "{}", header: map[string]string{"Authorization": "Basic " + e.account.secret}},
		"at the fleet API":    {method: http.MethodPost, url: e.private + "/api/fleet/v1/token", body: body},
		"at the private one":  {method: http.MethodPost, url: e.private + "/api/vendor/v1/token", body: body},
		"at the admin API":    {method: http.MethodPost, url: e.private + "/api/admin/v1/token", body: body},
	} {
		if a := e.send(r); a.status < 400 || strings.Contains(a.body, e.account.secret) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}

	if strings.Contains(e.logs.String(), e.account.secret) {
		t.Error("the client secret is in the log")
	}
}

// issued is a token as an authority with these keys issues it.
func issued(t *testing.T, keys config.Keyring, api token.API, environment string, subject [16]byte, at time.Time) string {
	t.Helper()
	a, err := token.NewAuthority(keys, api, environment)
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Issue(subject, at)
	if err != nil {
		t.Fatal(err)
	}

	return text
}

// What is no token of this API, environment and hour is answered 401 with the
// spec's codes by both APIs, every one of them with the same bytes. Package token
// has the forgeries.
//
//rule:endpoints/all-endpoints-except-the-token
func TestAccess_Tokens(t *testing.T) {
	e := newStoreEnv(t, "")
	fleetID, err := delivery.ParseFleetID(e.courier.id)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		api        token.API
		url        string
		subject    [16]byte
		own, other party
	}{
		{token.Vendor, e.vendor + "/api/vendor/v1/webhook", e.account.accountID(), e.account, e.courier},
		{token.Fleet, e.private + "/api/fleet/v1/jobs", fleetID, e.courier, e.account},
	} {
		now, keys := time.Now(), testSecrets().TokenKeys
		parts := strings.Split(c.own.token, ".")
		unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"t1","typ":"JWT"}`)) + "." + parts[1] + "."
		mac := hmac.New(sha256.New, key32('t'))
		mac.Write([]byte(strings.TrimSuffix(unsigned, ".")))
		if a := e.get(c.url, c.own.token); a.status == 401 || a.status == 403 {
			t.Fatalf("a good token: %d %s", a.status, a.body)
		}

		const invalid, expired = "TOKEN_INVALID", "TOKEN_EXPIRED"
		bodies := map[string]string{}
		for text, code := range map[string]string{
			issued(t, keys, c.api, delivery.Sandbox, c.subject, now.Add(-time.Hour-time.Second)):    expired,
			issued(t, keys, c.api, delivery.Sandbox, c.subject, now.AddDate(-1, 0, 0)):              expired,
			issued(t, onlyBy("t1", 'x'), c.api, delivery.Sandbox, c.subject, now.Add(-2*time.Hour)): invalid,
			issued(t, onlyBy("t1", 'x'), c.api, delivery.Sandbox, c.subject, now):                   invalid,
			issued(t, onlyBy("t2", 't'), c.api, delivery.Sandbox, c.subject, now):                   invalid,
			issued(t, onlyBy("t1", 'w'), c.api, delivery.Sandbox, c.subject, now):                   invalid, // the webhook secrets' key
			issued(t, keys, c.api, delivery.Production, c.subject, now):                             invalid,
			issued(t, keys, "admin", delivery.Sandbox, c.subject, now):                              invalid,
			c.other.token: invalid,
			unsigned:      invalid,
			unsigned + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)): invalid,
			parts[0] + "." + parts[1] + ".":                               invalid,
			c.own.clientID:                                                invalid,
			c.own.secret:                                                  invalid,
			adminKey:                                                      invalid,
			c.own.token + "." + strings.Repeat("A", 9<<10):                invalid,
			strings.Repeat(".", 9<<10):                                    invalid,
		} {
			a := want(t, e.get(c.url, text), 401, code)
			if a.header.Get("WWW-Authenticate") != "Bearer" || a.header.Get("X-RateLimit-Limit") != "" {
				t.Errorf("%.100s: %v", text, a.header)
			}
			if before, seen := bodies[code]; seen && before != a.body {
				t.Errorf("%.100s is answered %s, others %s", text, a.body, before)
			}
			bodies[code] = a.body
		}

		nobodys := want(t, e.get(c.url, issued(t, keys, c.api, delivery.Sandbox, delivery.NewAccountID(), now)), 401, invalid)
		if nobodys.header.Get("X-RateLimit-Limit") != "" {
			t.Errorf("%v", nobodys.header)
		}
	}
}

// A good token of an account that is suspended opens nothing; a rotated secret
// leaves tokens as they are, for the contract gives them an hour.
func TestAccess_SuspensionAndRotatedSecrets(t *testing.T) {
	e := newStoreEnv(t, "")
	e.admin("POST", "/accounts/"+e.account.id+"/credentials", "")
	want(t, e.call("GET", "/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
	e.admin("PATCH", "/accounts/"+e.account.id, `{"suspended":true}`)
	if a := want(t, e.order("{", ""), 403, "ACCOUNT_SUSPENDED"); !a.quota() { // whatever the body is
		t.Errorf("%v", a.header)
	}

	want(t, e.login("vendor", e.account.clientID, e.account.secret), 403, "ACCOUNT_SUSPENDED")
	want(t, e.login("vendor", e.account.clientID, "wrong"), 401, "INVALID_CREDENTIALS")
	e.admin("PATCH", "/accounts/"+e.account.id, `{"suspended":false}`)
	e.created("POS-1")
}

// What was issued before a revocation opens nothing within a second, on any gateway;
// the new secret gives tokens that are good at once, in the second of the revocation,
// too. Others' tokens are left alone.
func TestAccess_RevokedTokens(t *testing.T) {
	e := newStoreEnv(t, "")
	replicas := []*env{e, e.twin(testSecrets())}
	for api, c := range map[string]struct {
		path, own string
		who       party
	}{
		"vendor": {"/accounts/" + e.account.id, "/api/vendor/v1/webhook", e.account},
		"fleet":  {"/fleets/" + e.courier.id, "/api/fleet/v1/jobs", e.courier},
	} {
		get := func(r *env, token string) answer {
			return r.get(map[string]string{"vendor": r.vendor, "fleet": r.private}[api]+c.own, token)
		}
		former := []string{c.who.token}
		for _, r := range replicas {
			former = append(former, r.login(api, c.who.clientID, c.who.secret).data["accessToken"].(string))
		}

		secret := e.admin("POST", c.path+"/credentials", `{"revokeOld":true}`).data["clientSecret"].(string)
		for i, r := range replicas {
			if i > 0 {
				r.await("the revocation is known", func() bool { return get(r, former[0]).status == 401 })
			}

			for _, token := range former {
				want(t, get(r, token), 401, "TOKEN_EXPIRED")
			}

			want(t, r.login(api, c.who.clientID, c.who.secret), 401, "INVALID_CREDENTIALS")
			token := want(t, r.login(api, c.who.clientID, secret), 200, "").data["accessToken"].(string)
			for _, other := range replicas {
				if a := get(other, token); a.status == 401 {
					t.Errorf("%s: the new token of replica %d: %s", api, i+1, a.body)
				}
			}
		}
	}

	if a := e.get(e.vendor+"/api/vendor/v1/webhook", e.newAccount("").token); a.status != 404 {
		t.Errorf("another account's token: %d %s", a.status, a.body)
	}
}

// Replicas take a new key in front, then drop the old one an hour later; in
// between tokens of both open.
func TestAccess_TokenKeysRotateWithoutARefusal(t *testing.T) {
	e := newEnv(t)
	during, after := testSecrets(), testSecrets()
	during.TokenKeys = config.Keyring{Current: "t2", Keys: map[string][]byte{"t2": key32('u'), "t1": key32('t')}}
	after.TokenKeys = onlyBy("t2", 'u')
	replicas := []*env{e, e.twin(during), e.twin(after)}
	account := e.newAccount("")
	later := replicas[1].login("vendor", account.clientID, account.secret).data["accessToken"].(string)
	for i, statuses := range [][2]int{{404, 401}, {404, 404}, {401, 404}} {
		for k, text := range [2]string{account.token, later} {
			if a := replicas[i].get(replicas[i].vendor+"/api/vendor/v1/webhook", text); a.status != statuses[k] {
				t.Errorf("replica %d, token %d: %d %s", i+1, k+1, a.status, a.body)
			}
		}
	}
}
