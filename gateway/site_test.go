package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ops"
	"vendorapi/internal/stack"
)

const (
	// siteAccounts is how many accounts the load is spread over, one a
	// connection: every partition is written to, and every account has a ring.
	siteAccounts = connections
	// sitePool is the number of connections to Redis, for the ledger and for
	// every reference alike: as many as there are requests at a time.
	sitePool = connections
	// siteWarmUp is how many orders are sent before a measurement, so that
	// connections are open and buffers have grown.
	siteWarmUp = 16 * connections
	// wideLimits refuse nothing that a measurement sends.
	wideLimits = `{"orders":{"sustained":{"count":1000000,"seconds":60},"burst":{"count":1000000,"seconds":10}}}`
)

// site is a server under load, with a Redis of its own that syncs every write
// before it answers.
type site struct {
	*world
	settings settings
	rdb      *redis.Client
	accounts []party
	load     *load
}

// newSite starts Redis and a gateway with accounts that have an Active store
// each; change may alter its settings. The load is not connected yet.
func newSite(t testing.TB, change ...func(*settings)) *site {
	t.Helper()
	s := &site{settings: testSettings(t)}
	for _, c := range change {
		c(&s.settings)
	}
	server, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir(), Unix: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	s.settings.Redis.URL, s.settings.Redis.PoolSize = server.URL, sitePool
	s.world = startGateway(t, s.settings, testSecrets())
	s.awaitReady()
	s.rdb = s.client(t)
	fleet := s.newFleet("Kurye", istanbul)
	for range siteAccounts {
		account := s.newAccount(wideLimits)
		s.activeStore(account, fleet, "kadikoy-1")
		s.accounts = append(s.accounts, account)
	}
	return s
}

// client is a pool of connections to the site's Redis, as large as the ledger's.
func (s *site) client(t testing.TB) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(s.settings.Redis.URL)
	if err != nil {
		t.Fatal(err)
	}
	options.PoolSize, options.DisableIdentity = sitePool, true
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// connect opens the load's connections to the gateway that the site has now,
// and warms up.
func (s *site) connect(t testing.TB) {
	t.Helper()
	tokens := make([]string, len(s.accounts))
	for i, account := range s.accounts {
		tokens[i] = account.token
	}
	s.load = newLoad(t, strings.TrimPrefix(s.vendor, "http://"), 201, tokens)
	if err := s.load.orders(siteWarmUp, func() {}); err != nil {
		t.Fatal(err)
	}
}

// newOrderSite is the gateway with a connection to Redis for each request.
func newOrderSite(t testing.TB) *site {
	t.Helper()
	s := newSite(t, func(s *settings) { s.Redis.Pipelines = 0 })
	s.connect(t)
	return s
}

// newPipelinesSite is the gateway as it is shipped, whose requests share a
// connection to Redis.
func newPipelinesSite(t testing.TB) *site {
	t.Helper()
	s := newSite(t)
	if s.settings.Redis.Pipelines == 0 {
		t.Fatal("the shipped settings have no redis.pipelines")
	}
	s.connect(t)
	return s
}

// newReferenceSite is the gateway with something else in place of the ledger.
func newReferenceSite(t testing.TB, open func(testing.TB, *site) *reference) *site {
	t.Helper()
	s := newSite(t)
	r := open(t, s)
	s.stop()
	s.world = startGateway(t, s.settings, testSecrets(), func(g *gateway) {
		for i := range g.vendorRoutes {
			if g.vendorRoutes[i].name == "orders_create" {
				g.vendorRoutes[i].handle = r.createOrder
			}
		}
	})
	s.awaitReady()
	s.connect(t)
	return s
}

// newEmptySite is the gateway's own listener and server with a handler that
// does nothing, not even read the body. It has no Redis.
func newEmptySite(t testing.TB) *site {
	t.Helper()
	s := &site{settings: testSettings(t)}
	g, err := newGateway(t.Context(), s.settings, testSecrets(), slog.New(slog.DiscardHandler), ops.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.newFront("vendor_api", &s.settings.VendorAPI, func(*fasthttp.RequestCtx) {})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.serve() }()
	t.Cleanup(func() {
		if err := errors.Join(f.server.Shutdown(), <-ended); err != nil {
			t.Error(err)
		}
	})
	token, err := g.vendorTokens.Issue(delivery.NewAccountID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.load = newLoad(t, f.listener.Addr().String(), 200, []string{token})
	if err := s.load.orders(siteWarmUp, func() {}); err != nil {
		t.Fatal(err)
	}
	return s
}

// redisMicros is the CPU time that the server's main thread has used, in
// microseconds; 0 where there is no Redis.
func (s *site) redisMicros(t testing.TB) float64 {
	t.Helper()
	if s.rdb == nil {
		return 0
	}
	info, err := s.rdb.Info(t.Context(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	total, found := 0.0, 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user_main_thread" && name != "used_cpu_sys_main_thread" {
			continue
		}
		var seconds float64
		if _, err := fmt.Sscan(value, &seconds); err != nil {
			t.Fatal(err)
		}
		total, found = total+seconds*1e6, found+1
	}
	if found != 2 {
		t.Fatalf("INFO cpu tells nothing of the main thread: %s", info)
	}
	return total
}
