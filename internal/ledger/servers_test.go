package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

func TestServers_SayWhatOperatorsWatch(t *testing.T) {
	t.Parallel()

	l := openTest(t)
	all := get(l.Monitor.Servers(t.Context()))(t)
	require(t, len(all) != 0, "no server")
	for _, s := range all {
		check(t, s.Addr != "" && s.MemoryUsed > 0 && s.Clients > 0 && s.Commands > 0 && !s.AOFBroken, "%+v", s)
		check(t, s.Name == cmp.Or(os.Getenv("SERVER"), "redis") && s.Version != "", "%+v", s)
	}
}

func TestParseServer_TellsABrokenAOF(t *testing.T) {
	t.Parallel()

	healthy := "# Memory\r\nused_memory:100\r\nmaxmemory:200\r\n# Persistence\r\naof_enabled:1\r\naof_last_write_status:ok\r\naof_last_bgrewrite_status:ok\r\naof_delayed_fsync:3\r\n"
	if s := core.ParseServer("a:1", healthy); s.MemoryUsed != 100 || s.MemoryMax != 200 || !s.AOF || s.AOFBroken || s.AOFDelayed != 3 || s.Addr != "a:1" {
		t.Errorf("%+v", s)
	}

	for _, broken := range []string{"aof_last_write_status:err", "aof_last_bgrewrite_status:err"} {
		if s := core.ParseServer("a:1", healthy+broken+"\r\n"); !s.AOFBroken {
			t.Errorf("%s: %+v", broken, s)
		}
	}

	replicas := "# Replication\r\nrole:master\r\nconnected_slaves:3\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=900,lag=1\r\n" +
		"slave1:ip=::1,port=6379,state=online,offset=400,lag=0\r\nslave2:ip=10.0.0.4,port=6379,state=wait_bgsave,offset=0,lag=0\r\nmaster_repl_offset:1000\r\n"
	if s := core.ParseServer("a:1", replicas); s.Replicas != 2 || s.ReplicaLag != 600 {
		t.Errorf("two of three replicas are in sync, one lacks 600 bytes: %+v", s)
	}
	if s := core.ParseServer("a:1", ""); s.AOF || s.AOFBroken {
		t.Errorf("of nothing: %+v", s)
	}
}

func TestOpen_RefusesAServerThatEvicts(t *testing.T) {
	t.Parallel()

	own, _ := ownServer(t)
	policies := []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"}
	for _, policy := range policies {
		get(own.Command(t.Context(), "CONFIG", "SET", "maxmemory-policy", policy))(t)

		l, err := Open(t.Context(), core.Config{URL: own.URL, Environment: "sandbox"})
		if err == nil {
			must(t, l.Close())
		}

		refused := errors.Is(err, core.ErrEvicts) && !errors.Is(err, delivery.ErrUnavailable) // which would be tried again for ever
		check(t, refused, "%s: %v, want ErrEvicts", policy, err)
		for _, part := range []string{own.Addr, policy, "config set maxmemory-policy noeviction", "redis.allow_eviction"} {
			check(t, err != nil && strings.Contains(err.Error(), part), "%s: %v does not name %s", policy, err, part)
		}

		equal(t, get(own.Command(t.Context(), "DBSIZE"))(t), "0", "keys that a refused start has written")
	}

	get(own.Command(t.Context(), "CONFIG", "SET", "maxmemory-policy", "noeviction"))(t)
	l, err := Open(t.Context(), core.Config{URL: own.URL, Environment: "sandbox"})
	must(t, err)
	must(t, l.Close())
}

func TestOpen_WarnsOfAServerThatMayEvict(t *testing.T) {
	t.Parallel()

	own, _ := ownServer(t)
	get(own.Command(t.Context(), "CONFIG", "SET", "maxmemory-policy", "volatile-ttl"))(t)

	var log strings.Builder
	l, err := Open(t.Context(), core.Config{URL: own.URL, Environment: "sandbox", AllowEviction: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	defer func() { must(t, l.Close()) }()

	warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "volatile-ttl") && strings.Contains(log.String(), own.Addr)
	check(t, warned, "the log: %s", log.String())
	servers := get(l.Monitor.Servers(t.Context()))(t)
	check(t, len(servers) == 1 && servers[0].Evicts(), "%+v", servers)
}

func TestOpen_WantsALimitOfMemoryInProduction(t *testing.T) {
	t.Parallel()

	server, _ := ownServer(t)
	open := func(environment string) (string, error) {
		var log strings.Builder
		l, err := Open(t.Context(), core.Config{URL: server.URL, Environment: environment, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			must(t, l.Close())
		}
		return log.String(), err
	}

	log, err := open("production")
	check(t, err == nil && !strings.Contains(log, "maxmemory"), "with a limit: %v, %s", err, log)

	get(server.Command(t.Context(), "CONFIG", "SET", "maxmemory", "0"))(t)
	_, err = open("production")
	refused := errors.Is(err, core.ErrNoLimit) && !errors.Is(err, delivery.ErrUnavailable) // which would be tried again for ever
	check(t, refused, "without: %v, want ErrNoLimit", err)
	for _, part := range []string{server.Addr, "config set maxmemory", "three quarters"} {
		check(t, err != nil && strings.Contains(err.Error(), part), "%v does not name %q", err, part)
	}

	log, err = open("sandbox")
	warned := strings.Contains(log, "level=WARN") && strings.Contains(log, "maxmemory") && strings.Contains(log, server.Addr)
	check(t, err == nil && warned, "a sandbox without: %v, %s", err, log)
}

// Valkey names the release of Redis that it is compatible with, too.
func TestIsFixed_ComparesWithinALine(t *testing.T) {
	t.Parallel()

	for info, want := range map[string]string{
		"redis_version:7.0.15": "redis 7.0.15 false", "redis_version:7.2.10": "redis 7.2.10 false", "redis_version:7.2.11": "redis 7.2.11 true",
		"redis_version:7.4.6": "redis 7.4.6 true", "redis_version:8.0.3": "redis 8.0.3 false", "redis_version:8.2.2": "redis 8.2.2 true",
		"redis_version:8.4.0": "redis 8.4.0 true", "redis_version:6.2.20": "redis 6.2.20 true", "redis_version:5.0.14": "redis 5.0.14 false",
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1":  "valkey 8.0.1 false",
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.10": "valkey 8.0.10 true",
		"redis_version:7.2.4\r\nvalkey_version:8.1.3":                        "valkey 8.1.3 false",
		"redis_version:7.2.4\r\nvalkey_version:9.0.0":                        "valkey 9.0.0 true",
		"redis_version:unstable":                                             "redis unstable false", "": "redis  false",
	} {
		s := core.ParseServer("a:1", info+"\r\n")
		if got := fmt.Sprint(s.Name, " ", s.Version, " ", s.IsFixed()); got != want {
			t.Errorf("%q: %s, want %s", info, got, want)
		}
	}
}

func TestObserve_HearsOfEveryCall(t *testing.T) {
	t.Parallel()

	var mu sync.Mutex
	calls := map[string]int{}
	start := time.Now()
	s := newEnv(t, func(c *core.Config) {
		c.Observe = func(operation string) core.CallObserver {
			return func(ctx context.Context, began time.Time, err error) {
				mu.Lock()
				defer mu.Unlock()
				calls[operation]++
				check(t, ctx != nil && err == nil && !began.Before(start), "%s began %s: %v", operation, began, err)
			}
		}
	})

	s.create(t, "one")
	s.create(t, "two")
	mu.Lock()
	defer mu.Unlock()
	check(t, calls["create_order"] == 2 && calls["write_store"] != 0 && calls["cancel_order"] == 0, "%v", calls)
}

func TestMemory_FullRefusesWritesAndAnswersReads(t *testing.T) {
	// A server of its own: memory is scarce for everybody in it.
	_, own := ownServer(t)
	s := newEnv(t, own)
	known := s.create(t, "A-1")
	configure := func(most string) {
		t.Helper()
		must(t, s.core.Redis.ConfigSet(t.Context(), "maxmemory", most).Err())
	}

	configure("1")
	keys := s.core.Redis.DBSize(t.Context()).Val()
	wantError(t, errOf(s.Orders.Create(t.Context(), s.creation("A-2", "A-2"))), delivery.ErrUnavailable)
	now := s.core.Redis.DBSize(t.Context()).Val()
	check(t, now == keys, "%d keys before, %d after a refused order", keys, now)
	if o, _, err := s.Orders.Poll(t.Context(), s.account, known.ID); err != nil || o.ID != known.ID {
		t.Errorf("reading an order: %v", err)
	}

	get(s.Limits.Consume(t.Context(), s.account, limits.EndpointStores))(t)
	configure("0")
	if c, _, err := s.Orders.Create(t.Context(), s.creation("A-2", "A-2")); err != nil || c.Replayed {
		t.Errorf("the refused order, sent again: %+v, %v", c, err)
	}
}

func TestStats_InFlightIsWhatHasNotEnded(t *testing.T) {
	l := openTest(t)
	inFlight := func(want int64) {
		t.Helper()
		s := get(l.Monitor.Stats(t.Context()))(t)
		check(t, s.InFlight == want, "%d orders in flight, want %d", s.InFlight, want)
	}

	inFlight(0)
	vendors := envsEverywhere(t, l)
	orders := make([]*delivery.Order, len(vendors))
	for i, s := range vendors {
		orders[i] = s.create(t, "X-1")
	}

	for _, o := range orders {
		l.list(t, o.ID)
	}

	inFlight(4)
	vendors[0].advance(t, orders[0].ID, delivery.Assigned)
	inFlight(4)
	vendors[0].advance(t, orders[0].ID, delivery.Delivered)
	get2(vendors[1].Orders.Cancel(t.Context(), vendors[1].account, orders[1].ID, "", "", orders[1].CreatedAt))(t)
	inFlight(2)
}

func TestLibraries_GoWhenNobodyHasUsedThemForAWeek(t *testing.T) {
	server, _ := ownServer(t)
	day := time.Duration(0)
	open := func(release string) *Ledger {
		l, err := Open(t.Context(), core.Config{URL: server.URL, Environment: "sandbox", Log: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return time.Now().Add(day) },
			Edit: func(file, text string) string {
				if file == "names" {
					text += "local release = '" + release + "'\n"
				}
				return text
			}})

		must(t, err)
		t.Cleanup(func() { _ = l.Close() })

		return l
	}

	use := func(l *Ledger) {
		t.Helper()
		if _, err := l.Limits.Consume(t.Context(), delivery.NewAccountID(), limits.EndpointOrders); errors.Is(err, delivery.ErrUnavailable) {
			t.Fatal(err)
		}
	}

	libraries := func(l *Ledger) (names []string) {
		found := get(l.core.Redis.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "*"}).Result())(t)
		for _, library := range found {
			names = append(names, library.Name)
		}
		slices.Sort(names)
		return names
	}

	must(t, redis.NewClient(&redis.Options{Addr: server.Addr}).FunctionLoad(t.Context(),
		"#!lua name=vendorapi_unnoted\nredis.register_function('unnoted', function() return 1 end)").Err())
	first := open("first")
	use(first)
	day = 6 * 24 * time.Hour
	second := open("second")
	use(second)
	equal(t, len(libraries(first)), 3, "after six days")
	day = 8 * 24 * time.Hour
	third := open("third")
	use(third)
	want := []string{second.core.Library.Name, third.core.Library.Name}
	slices.Sort(want)
	equal(t, libraries(third), want, "after eight days")
	use(first) // still running: it loads its own again
	equal(t, len(libraries(third)), 3, "after the first release's next call")
}

// A server that has lost the library (a new master, FUNCTION FLUSH) gets it
// again with the next call, whichever way that is sent.
func TestScripts_LibraryIsLoadedWhereItIsMissing(t *testing.T) {
	_, own := ownServer(t)
	s := newEnv(t, own)
	forget := func() { must(t, s.core.Redis.FunctionFlush(t.Context()).Err()) }
	forget()
	o := s.create(t, "X-1")
	forget()
	get(s.Limits.Consume(t.Context(), s.account, limits.EndpointStores))(t)
	forget()
	s.advance(t, o.ID, delivery.Assigned) // in a pipeline
}
