package main

import (
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
	return &accountPlaces{most: most, shed: prometheus.NewCounter(prometheus.CounterOpts{})}
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
	for range 1 + mostInLine {
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
			const requests = 500
			server := testserver.DedicatedRedis(t, stack.RedisOptions{})
			e := newEnvOn(t, server, nil).withStore("")
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
			if scripts > requests/10 {
				t.Errorf("%d scripts for %d refusals: %v", scripts, requests, cost)
			}
		})
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

func TestBodies_OneCallerLeavesRoomForOthers(t *testing.T) {
	b := newMetrics(prometheus.NewRegistry()).bodyBudget("test", 1000)
	greedy, other := [16]byte{1}, [16]byte{2}
	if !b.reserve(greedy, 250) || b.reserve(greedy, 1) {
		t.Error("a caller does not get a quarter, or more")
	}
	for i := range byte(3) {
		if !b.reserve([16]byte{3 + i}, 250) {
			t.Error("another caller found no room")
		}
	}
	if b.reserve(other, 1) {
		t.Error("more than the whole")
	}

	b.giveBack(greedy, 250)

	if !b.reserve(other, 250) {
		t.Error("what was given back is not there")
	}
	if len(b.callers) != 4 {
		t.Errorf("%d callers are remembered, want those of 4 bodies", len(b.callers))
	}
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
