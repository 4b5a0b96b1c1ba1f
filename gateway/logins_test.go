package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
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

// Who is throttled costs Redis nothing until its Retry-After is over; the one with the
// right credential comes from the same address and logs in every time.
//
//rule:limits-and-idempotency/redis_rate
func TestLogins_ThrottledOnesCostRedisNothing(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newQuietEnv(t, server).withStore(`{"token":{"sustained":{"count":1000,"seconds":3600}}}`)
	const guesses, most = 150, 30
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
			before := e.commandsOf(server)
			for i := range guesses {
				if a := e.login(api, id(i), "vas_"+strconv.Itoa(i)); !slowed(a) && !wrongCredential(a) {
					t.Fatalf("%s, %s: %d %s", api, name, a.status, a.body)
				}
				if i%50 == 0 {
					want(t, e.login(api, c.who.clientID, c.who.secret), 200, "")
				}
			}

			// The three right logins cost some commands each, the guesses none.
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

	e.g.logins.inside.Add(maxLogins)
	for api, p := range parties {
		want(t, e.login(api, p.clientID, p.secret), 200, "")
	}

	e.g.logins.inside.Store(0)
	// Right logins that find no place of requests take none of those that others have.
	e.g.rightLogins.inside.Add(maxLogins)
	for api, p := range parties {
		want(t, e.login(api, p.clientID, p.secret), 503, "SERVICE_UNAVAILABLE")
		want(t, e.login(api, p.clientID, "wrong"), 401, "INVALID_CREDENTIALS")
	}

	e.g.rightLogins.inside.Store(0)
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

// A login with the right secret is in work as one of its account's, or its fleet's, requests, and
// takes no place of other logins.
func TestLogins_RightOnesTakePlacesOfTheirOwn(t *testing.T) {
	e := newStoreEnv(t, everyLimit(), func(s *settings) { s.VendorAPI.MaxInFlightPerAccount = 2 })
	vendor, courier := e.newAccount(""), e.newFleet("Rival", istanbul)
	fleetID, err := delivery.ParseFleetID(e.courier.id)
	if err != nil {
		t.Fatal(err)
	}

	places := e.g.fleetLimiter(fleetID)
	for range maxFleetInFlight {
		if !places.enter() {
			t.Fatal("no place for the fleet's requests")
		}
	}

	for range 2 {
		if !e.g.accounts.enter(t.Context(), e.account.accountID()) {
			t.Fatal("no place for the account's requests")
		}
	}

	for api, p := range map[string]party{"vendor": e.account, "fleet": e.courier} {
		want(t, e.login(api, p.clientID, p.secret), 503, "SERVICE_UNAVAILABLE", "retryAfterSeconds", 1)
		want(t, e.login(api, p.clientID, "wrong"), 401, "INVALID_CREDENTIALS")
	}

	want(t, e.login("vendor", vendor.clientID, vendor.secret), 200, "")
	want(t, e.login("fleet", courier.clientID, courier.secret), 200, "")

	places.leave()
	e.g.accounts.leave(e.account.accountID())

	for api, p := range map[string]party{"vendor": e.account, "fleet": e.courier} {
		want(t, e.login(api, p.clientID, p.secret), 200, "")
	}

	e.await("every place given back", func() bool {
		return e.g.logins.inside.Load() == 0 && e.g.vendorLimiter.inside.Load() == 0 && e.g.privateLimiter.inside.Load() == 0 &&
			places.inside.Load() == maxFleetInFlight-1
	})
}

// While Redis answers no script, right logins of one account hold no place of other logins, and of
// the requests' places no more than the account has.
func TestLogins_OfOneAccountHoldNoPlacesOfOthersWhileRedisStalls(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newEnvOn(t, server, nil, func(s *settings) { s.VendorAPI.MaxInFlightPerAccount = 2 }).withStore(everyLimit())
	command := func(args ...string) {
		if _, err := server.Command(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}

	command("CLIENT", "PAUSE", "60000", "WRITE")

	var all sync.WaitGroup
	for range 2 * maxLogins {
		all.Go(func() { e.login("vendor", e.account.clientID, e.account.secret) })
	}

	e.await("logins in work", func() bool {
		return e.g.vendorLimiter.inside.Load() >= 2 || e.g.logins.inside.Load() > 0
	})
	if n := e.g.logins.inside.Load(); n > 0 {
		t.Errorf("%d places of other logins are taken", n)
	}

	command("CLIENT", "UNPAUSE")
	all.Wait()
	e.await("every place given back", func() bool { return e.g.vendorLimiter.inside.Load() == 0 })
}

// Whoever guesses an account's secret adds nothing to its requests, and is shown nothing of its quota.
func TestLogins_WrongOnesLeaveTheAccountsActivityAlone(t *testing.T) {
	redis := testserver.NewRedis(t)
	e := newEnvOn(t, redis, nil).withStore(`{"token":{"sustained":{"count":2,"seconds":3600}}}`)
	for range 3 {
		e.login("vendor", e.account.clientID, e.account.secret)
	}

	want(t, e.login("vendor", e.account.clientID, e.account.secret), 429, "RATE_LIMITED")
	id := e.account.accountID()
	minutes := func() any {
		if err := e.g.Ledger().Limits.Flush(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}

		for _, key := range redis.Client.Keys(t.Context(), "*").Val() {
			if strings.HasSuffix(key, "}h"+string(id[:])) {
				return redis.Do(t, "HGETALL", key)
			}
		}

		t.Fatal("the account's requests are not counted")

		return nil
	}

	before := minutes()

	for range 20 {
		a := e.login("vendor", e.account.clientID, "wrong")
		if !wrongCredential(a) && !slowed(a) {
			t.Errorf("a guess was answered %d %s", a.status, a.body)
		}
		if a.quota() {
			t.Errorf("a guess is shown the quota: %v", a.header)
		}
	}

	after := minutes()
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the account's requests were %v, and are %v after wrong logins", before, after)
	}
}
