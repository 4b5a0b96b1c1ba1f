package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// commandsOf is how many commands the server has run, those of scripts included.
func (e *env) commandsOf(server *stack.Redis) (n int) {
	e.Helper()
	info, err := server.Command(e.Context(), "INFO", "commandstats")
	if err != nil {
		e.Fatal(err)
	}
	for line := range strings.Lines(info) {
		_, rest, _ := strings.Cut(line, ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		some, _ := strconv.Atoi(calls)
		n += some
	}
	return n
}

// Who is throttled costs Redis nothing but its next try after Retry-After and what
// is read again now and then; the one with the right credential comes from the same
// address and logs in every time.
//
//rule:limits-and-idempotency/redis_rate
func TestLogins_ThrottledOnesCostRedisNothing(t *testing.T) {
	t.Parallel()
	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newEnvOn(t, server, nil).withStore(`{"token":{"sustained":{"count":1000,"seconds":3600}}}`)
	const guesses = 2000
	for api, c := range map[string]struct {
		who     party
		unknown func() string
	}{
		"vendor": {e.account, func() string { return delivery.NewAccountID().ClientID() }},
		"fleet":  {e.courier, func() string { return delivery.NewFleetID().ClientID() }},
	} {
		for name, id := range map[string]func(int) string{
			"a known client":  func(int) string { return c.who.clientID },
			"unknown clients": func(int) string { return c.unknown() },
			"no clients":      func(i int) string { return fmt.Sprint("nobody-", i) },
		} {
			for i := 0; !slowed(e.login(api, id(i), "wrong")); i++ {
			}
			before, began := e.commandsOf(server), time.Now()
			for i := range guesses {
				if a := e.login(api, id(i), "vas_"+strconv.Itoa(i)); !slowed(a) && !wrongCredential(a) {
					t.Fatalf("%s, %s: %d %s", api, name, a.status, a.body)
				}
				if i%200 == 0 {
					want(t, e.login(api, c.who.clientID, c.who.secret), 200, "")
				}
			}
			// Each second one more is let through, and what is remembered is read again.
			most := guesses/5 + 100*int(1+time.Since(began).Seconds())
			if n := e.commandsOf(server) - before; n > most {
				t.Errorf("%s, %s: %d guesses cost Redis %d commands, want %d at most", api, name, guesses, n, most)
			}
		}
	}
}

// Logins and requests have places of their own: neither takes any of the other's.
func TestLogins_HaveTheirOwnPlaces(t *testing.T) {
	e := newStoreEnv(t, "")
	parties := map[string]party{"vendor": e.account, "fleet": e.courier}
	e.g.vendorLimiter.inside.Add(int64(e.g.settings.VendorAPI.MaxInFlight))
	e.g.privateLimiter.inside.Add(int64(e.g.settings.PrivateAPI.MaxInFlight))
	for api, p := range parties {
		want(t, e.login(api, p.clientID, p.secret), 200, "")
		want(t, e.login(api, p.clientID, "wrong"), 401, "INVALID_CREDENTIALS")
	}
	e.g.vendorLimiter.inside.Store(0)
	e.g.privateLimiter.inside.Store(0)
	e.g.logins.inside.Add(maxLogins)
	for api, p := range parties {
		want(t, e.login(api, p.clientID, p.secret), 200, "")
		want(t, e.login(api, p.clientID, "wrong"), 503, "SERVICE_UNAVAILABLE")
		want(t, e.login(api, "nobody", "wrong"), 503, "SERVICE_UNAVAILABLE")
	}
	rotated := e.admin("POST", "/accounts/"+e.account.id+"/credentials", `{"revokeOld":true}`).data["clientSecret"].(string)
	e.await("the new secret is known", func() bool { return e.login("vendor", e.account.clientID, rotated).status == 200 })
	e.await("the old secret has ended", func() bool { return e.login("vendor", e.account.clientID, e.account.secret).status == 503 })
}
