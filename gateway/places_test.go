package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

func newPlaces(most int64) *accountPlaces {
	return &accountPlaces{most: most, wait: placeWait, shed: prometheus.NewCounter(prometheus.CounterOpts{})}
}

func TestPlaces_AnAccountWaitsForItsOwnOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newPlaces(2)
		busy, other := delivery.NewAccountID(), delivery.NewAccountID()
		for range 2 {
			if !a.enter(t.Context(), busy) {
				t.Fatal("no place for the first requests")
			}
		}

		if !a.enter(t.Context(), other) {
			t.Error("another account's request found no place")
		}
		if a.enter(t.Context(), busy) {
			t.Error("a third request of the account got a place that nobody left")
		}

		entered := make(chan bool)
		go func() { entered <- a.enter(t.Context(), busy) }()
		synctest.Wait()
		a.leave(busy)
		if !<-entered {
			t.Error("who waited did not get the place that became free")
		}
	})
}

func TestPlaces_AreForgottenWithTheLastRequest(t *testing.T) {
	a := newPlaces(1)
	ended, end := context.WithCancel(t.Context())
	end()
	for range 1000 {
		account := delivery.NewAccountID()
		if !a.enter(t.Context(), account) {
			t.Fatal("no place")
		}
		if a.enter(ended, account) {
			t.Fatal("a place that is taken")
		}
		a.leave(account)
	}

	for i := range a.shards {
		kept := len(a.shards[i].open)
		if kept > 0 {
			t.Errorf("%d accounts without a request are remembered", kept)
		}
	}
}

func TestPlaces_TheLineIsBounded(t *testing.T) {
	a := newPlaces(1)
	account := delivery.NewAccountID()
	for range 1 + maxInLine {
		if a.join(account) == nil {
			t.Fatal("no room in line")
		}
	}

	if a.enter(t.Context(), account) {
		t.Error("one more was let in")
	}
}

// A limited account, and a suspended one, cost Redis next to nothing however much they send.
func TestRefusals_CostRedisNextToNothing(t *testing.T) {
	for name, change := range map[string]string{
		"over its limit": `{"limits":{"orders":{"sustained":{"count":1,"seconds":3600}}}}`,
		"suspended":      `{"suspended":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			const requests = 150
			server := testserver.DedicatedRedis(t, stack.RedisOptions{})
			e := newQuietEnv(t, server).withStore("")
			e.admin("PATCH", "/accounts/"+e.account.id, change)
			e.order(orderBody("POS-1"), "")
			want := e.order(orderBody("POS-2"), "")

			cost := e.work(server, func() {
				for range requests {
					a := e.order(orderBody("POS-2"), "")
					if a.status != want.status || a.code != want.code || !a.quota() {
						t.Fatalf("%d %s %v, first %d", a.status, a.body, a.header, want.status)
					}
				}
			})

			scripts := cost["fcall"] + cost["evalsha"]
			if scripts > 0 {
				t.Errorf("%d scripts for %d refusals: %v", scripts, requests, cost)
			}
		})
	}
}

// Who is in line when Redis refuses the request ahead is refused with it.
func TestRefusals_ReachWhoIsInLine(t *testing.T) {
	const requests = 50
	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newEnvOn(t, server, nil, func(s *settings) { s.VendorAPI.MaxInFlightPerAccount = 1 }).withStore("")
	e.admin("PATCH", "/accounts/"+e.account.id, `{"limits":{"orders":{"sustained":{"count":1,"seconds":3600}}}}`)
	e.order(orderBody("POS-1"), "")
	account, isAccount := delivery.AccountOfClient(e.account.clientID)
	if !isAccount || !e.g.accounts.enter(t.Context(), account) {
		t.Fatal("no place")
	}

	inLine := func() int {
		shard := e.g.accounts.shard(account)
		shard.mu.Lock()
		defer shard.mu.Unlock()
		return shard.open[account].users - 1
	}

	before := e.commands(server)
	var all sync.WaitGroup
	for range requests {
		all.Go(func() { e.order(orderBody("POS-2"), "") })
	}

	e.await("the line", func() bool { return inLine() == requests })
	e.g.accounts.leave(account)
	all.Wait()

	after := e.commands(server)
	scripts := after["fcall"] + after["evalsha"] - before["fcall"] - before["evalsha"]
	if scripts > requests/2 {
		t.Errorf("%d scripts for %d requests in line", scripts, requests)
	}
}

// A vendor that sends at once what it may send in a minute is served, and keeps nobody out.
func TestPlaces_ABurstWithinTheLimitsIsServed(t *testing.T) {
	e := newStoreEnv(t, everyLimit(), func(s *settings) { s.VendorAPI.MaxInFlightPerAccount, s.VendorAPI.MaxInFlight = 2, 3 })
	var all sync.WaitGroup
	statuses := make(chan int, 100)
	for i := range cap(statuses) {
		all.Go(func() { statuses <- e.order(orderBody(fmt.Sprint("POS-", i)), "").status })
	}

	all.Wait()
	close(statuses)

	for status := range statuses {
		if status != http.StatusCreated {
			t.Errorf("an order of the burst was answered %d", status)
		}
	}
}

// However many callers take all they can, the next one finds room for a quarter of what is left.
func TestBodies_CallersLeaveRoomForTheNextOne(t *testing.T) {
	const size = 10
	b := newMetrics(prometheus.NewRegistry()).bodyBudget("test", 1600)
	before, total := 1600/callerDivisor+size, 0
	for i := range byte(8) {
		greedy, held := [16]byte{1 + i}, 0
		for b.reserve(greedy, size) {
			held += size
		}
		if held == 0 || held >= before {
			t.Errorf("caller %d holds %d bytes, the one before %d", i, held, before)
		}
		before, total = held, total+held
	}

	next := [16]byte{99}
	if !b.reserve(next, 1600-total) {
		t.Error("one body of the next caller does not fit into what is left")
	}
	if b.reserve(next, 1) || b.reserve([16]byte{100}, 1) {
		t.Error("more than the whole")
	}
}

func TestBodies_OneCallerHasAQuarter(t *testing.T) {
	b := newMetrics(prometheus.NewRegistry()).bodyBudget("test", 1000)
	greedy := [16]byte{1}
	if !b.reserve(greedy, 150) || !b.reserve(greedy, 100) || b.reserve(greedy, 1) {
		t.Error("a caller does not get a quarter, or more")
	}

	b.giveBack(greedy, 150)
	b.giveBack(greedy, 100)

	if b.used != 0 || len(b.byCaller) > 0 {
		t.Errorf("%d bytes of %d callers remain", b.used, len(b.byCaller))
	}
}

// Fleets cannot shut operators out, nor operators fleets.
func TestBodies_AQuarterIsKeptForOperators(t *testing.T) {
	e := newEnv(t)
	b, largest := e.g.privateBodies, e.g.settings.PrivateAPI.MaxBodyBytes
	for i := range byte(200) {
		for b.reserve([16]byte{1 + i}, largest) {
		}
	}

	quarter := e.g.settings.PrivateAPI.MaxBodyBytesInFlight / 4
	if b.used > 3*quarter {
		t.Errorf("fleets hold %d bytes, want three quarters, %d, at most", b.used, 3*quarter)
	}

	held := 0
	for b.reserve(operators, largest) {
		held += largest
	}

	if held != quarter {
		t.Errorf("operators together hold %d bytes, want %d", held, quarter)
	}
}

func usedBytes(b *bodyBudget) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A request holds what its body takes until it is answered, also while it waits for a place; what a
// body in chunks might have had is given back once it has been read.
func TestBodies_AreCountedUntilTheAnswer(t *testing.T) {
	e := newStoreEnv(t, everyLimit())
	var held int
	for i := range e.g.vendorRoutes {
		r := &e.g.vendorRoutes[i]
		if r.name != "orders_create" {
			continue
		}

		create := r.handle
		r.handle = func(g *gateway, x *requestContext) error {
			held = usedBytes(g.vendorBodies)
			return create(g, x)
		}
	}

	padded := orderBody("POS-1") + strings.Repeat(" ", 2*unreservedBody)
	for name, c := range map[string]struct {
		body, header string
		held         int
	}{
		"a large one":           {padded, "Content-Length: " + fmt.Sprint(len(padded)), len(padded)},
		"a large one in chunks": {fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(padded), padded), "Transfer-Encoding: chunked", len(padded)},
		"a small one":           {orderBody("POS-2"), "Content-Length: " + fmt.Sprint(len(orderBody("POS-2"))), 0},
	} {
		held = -1
		connection := dialBase(t, e.vendor)
		_, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n%s",
			ordersPath, e.account.token, c.header, c.body)
		if err != nil {
			t.Fatal(err)
		}
		a, err := readAnswerFrom(bufio.NewReader(connection), "POST")
		if err != nil || a.status != http.StatusCreated && a.status != http.StatusConflict {
			t.Errorf("%s: %d %s, %v", name, a.status, a.body, err)
		}

		connection.Close()

		if held != c.held {
			t.Errorf("%s: %d bytes are counted while the request is in work, want %d", name, held, c.held)
		}

		e.await("nothing counted after the answer", func() bool { return usedBytes(e.g.vendorBodies) == 0 })
	}
}

// What finds no room is refused like every request that finds no place: it is not counted.
func TestBodies_WhatFindsNoRoomIsNotCounted(t *testing.T) {
	e := newStoreEnv(t, "")
	b := e.g.vendorBodies
	b.mu.Lock()
	b.maxBytes = 0
	b.mu.Unlock()

	a := e.order(orderBody("POS-1")+strings.Repeat(" ", unreservedBody), "")
	want(t, a, 503, "SERVICE_UNAVAILABLE", "retryAfterSeconds", 1)
	if a.quota() {
		t.Errorf("it was counted: %v", a.header)
	}

	want(t, e.order(orderBody("POS-1"), ""), 201, "")
}

// Nobody can make a gateway read more than 4 kB without a credential.
func TestBodies_TokenRequestsAreSmallOnEveryListener(t *testing.T) {
	e := newEnv(t, func(s *settings) { s.FleetAPI.Addr = "127.0.0.1:0" })
	body := `{"clientId":"x","clientSecret":"y"}` + strings.Repeat(" ", tokenBody)
	for _, url := range []string{e.vendor + "/api/vendor/v1/token", e.private + "/api/fleet/v1/token", e.fleets + "/api/fleet/v1/token"} {
		want(t, e.send(request{method: "POST", url: url, body: body}), 413, "PAYLOAD_TOO_LARGE")
		want(t, e.send(request{method: "POST", url: url, body: body[:tokenBody]}), 401, "INVALID_CREDENTIALS")
	}
}

func TestSlowRequests_LeaveALineThatSaysWhereTheTimeWent(t *testing.T) {
	e := newStoreEnv(t, "", func(s *settings) { s.SlowRequest = time.Nanosecond })
	order := e.created("POS-1")

	var lines []string
	for line := range strings.Lines(e.logs.String()) {
		if strings.Contains(line, "slow request") {
			lines = append(lines, line)
		}
	}

	if len(lines) == 0 {
		t.Fatal("no line")
	}

	for _, member := range []string{"endpoint", "status", "ms", "body_ms", "place_ms", "work_ms", "unlogged"} {
		if !strings.Contains(lines[0], member) {
			t.Errorf("no %s in %s", member, lines[0])
		}
	}

	metrics := e.get(e.private+"/metrics", "").body
	if !strings.Contains(metrics, `gateway_slow_requests_total{endpoint="orders_create"} 1`) {
		t.Errorf("the slow order %s is not counted", order)
	}
}
