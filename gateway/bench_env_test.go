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
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

const (
	// benchAccounts is how many accounts the load is spread over, one a
	// connection: every partition is written to.
	benchAccounts = connections
	// benchPool is the number of connections to Redis, for the ledger and for
	// every reference alike: as many as there are requests at a time.
	benchPool = connections
	// benchWarmUp is how many orders are sent before a measurement, so that
	// connections are open and buffers have grown.
	benchWarmUp = 16 * connections
	// wideLimits refuse nothing that a measurement sends.
	wideLimits = `{"orders":{"sustained":{"count":1000000,"seconds":60},"burst":{"count":1000000,"seconds":10}}}`
)

// benchEnv is a gateway under load, with a Redis of its own that syncs every write
// before it answers.
type benchEnv struct {
	*env
	settings settings
	rdb      *redis.Client
	accounts []party
	load     *load
}

// newBenchEnv starts Redis and a gateway with accounts that have an Active store
// each; change may alter its settings. The load is not connected yet.
func newBenchEnv(t testing.TB, change ...func(*settings)) *benchEnv {
	t.Helper()
	s := &benchEnv{settings: testSettings(t)}
	for _, c := range change {
		c(&s.settings)
	}

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Unix: true})
	s.settings.Redis.URL, s.settings.Redis.PoolSize = server.URL, benchPool
	s.env = startGateway(t, s.settings, testSecrets(), withRealLimits)
	s.awaitReady()
	s.rdb = s.client(t)
	fleet := s.newFleet("Kurye", istanbul)
	for range benchAccounts {
		account := s.newAccount(wideLimits)
		s.activeStore(account, fleet, "kadikoy-1")
		s.accounts = append(s.accounts, account)
	}

	return s
}

// withRealLimits undoes what other tests wait longer for.
func withRealLimits(e *env) {
	e.g.accounts.wait, e.g.lastFlush, e.g.lingerTime = placeWait, lastFlush, lingerTime
}

// client is a pool of connections to the environment's Redis, as large as the ledger's.
func (s *benchEnv) client(t testing.TB) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(s.settings.Redis.URL)
	if err != nil {
		t.Fatal(err)
	}

	options.PoolSize, options.DisableIdentity = benchPool, true
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// connect opens the load's connections to the gateway that the environment has now,
// and warms up.
func (s *benchEnv) connect(t testing.TB) {
	t.Helper()
	tokens := make([]string, len(s.accounts))
	for i, account := range s.accounts {
		tokens[i] = account.token
	}

	s.load = newLoad(t, strings.TrimPrefix(s.vendor, "http://"), 201, tokens)
	if err := s.load.orders(benchWarmUp, func() {}); err != nil {
		t.Fatal(err)
	}
}

// newOrderEnv is the gateway with a connection to Redis for each request.
func newOrderEnv(t testing.TB) *benchEnv {
	t.Helper()
	s := newBenchEnv(t, func(s *settings) { s.Redis.Pipelines = 0 })
	s.connect(t)
	return s
}

// newPipelinesEnv is the gateway as it is shipped, whose requests share a
// connection to Redis.
func newPipelinesEnv(t testing.TB) *benchEnv {
	t.Helper()
	s := newBenchEnv(t)
	if s.settings.Redis.Pipelines == 0 {
		t.Fatal("the shipped settings have no redis.pipelines")
	}
	s.connect(t)
	return s
}

// newReferenceEnv is the gateway with something else in place of the ledger.
func newReferenceEnv(t testing.TB, open func(testing.TB, *benchEnv) *reference) *benchEnv {
	t.Helper()
	s := newBenchEnv(t)
	r := open(t, s)
	s.stop()
	s.env = startGateway(t, s.settings, testSecrets(), withRealLimits, func(e *env) {
		for i := range e.g.vendorRoutes {
			if e.g.vendorRoutes[i].name == "orders_create" {
				e.g.vendorRoutes[i].handle = r.createOrder
			}
		}
	})

	s.awaitReady()
	s.connect(t)

	return s
}

// newEmptyEnv is the gateway's own listener and server with a handler that
// does nothing, not even read the body. It has no Redis.
func newEmptyEnv(t testing.TB) *benchEnv {
	t.Helper()
	s := &benchEnv{settings: testSettings(t)}
	g, err := newGateway(t.Context(), s.settings, testSecrets(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.newFront("vendor_api", &s.settings.VendorAPI.ListenerSettings, func(*fasthttp.RequestCtx) {})
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
	if err := s.load.orders(benchWarmUp, func() {}); err != nil {
		t.Fatal(err)
	}

	return s
}

// redisMicros is the CPU time that the server's main thread has used, in
// microseconds; 0 where there is no Redis.
func (s *benchEnv) redisMicros(t testing.TB) float64 {
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
		t.Fatalf("INFO cpu has nothing of the main thread: %s", info)
	}

	return total
}
