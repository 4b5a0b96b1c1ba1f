package owner

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// commandCounts returns how often a server has run each command, those inside of scripts included.
func commandCounts(t *testing.T, client *redis.Client) map[string]int64 {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	testenv.Must(t, err)

	counts := make(map[string]int64)
	for name, values := range stats["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(values, "calls="), ",")
		count, err := strconv.ParseInt(calls, 10, 64)
		testenv.Must(t, err)
		counts[strings.TrimPrefix(name, "cmdstat_")] = count
	}

	return counts
}

// Two workers that have nothing to do cost Redis what two workers cost, however many partitions there
// are. Time is counted in beats of the workers.
func TestIdle_CommandsDoNotGrowWithPartitions(t *testing.T) {
	t.Parallel()

	const (
		partitions = 256
		beats      = 28 // so that each worker renews ten times
		// atEachBeat is more than a worker of any number of partitions asks in that time.
		atEachBeat = 60
		// nowAndThen is for what is written once a minute or less often: what waits, and how far
		// the owner has got.
		nowAndThen = partitions
	)

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	options, err := redis.ParseURL(server.URL)
	testenv.Must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	e := &env{Env: &testenv.Env{T: t}}
	var roles []*Role
	for _, name := range []string{"w1", "w2"} {
		l, err := ledger.Open(t.Context(), ledger.Config{URL: server.URLFor(stack.WorkerUser), Environment: "sandbox", Partitions: partitions,
			Secrets: ledger.SecretKeys{Current: "k", Keys: map[string][]byte{"k": make([]byte, 32)}}})
		testenv.Must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		role := e.roleOf(l, name)
		roles = append(roles, role)
		e.Start(role.Run)
	}

	e.Await("each owns its share", func() bool {
		return len(roles[0].Owned()) == partitions/2 && len(roles[1].Owned()) == partitions/2
	})
	settled := commandCounts(t, client)["hset"] + beats/2
	e.Await("what was taken is published", func() bool { return commandCounts(t, client)["hset"] >= settled })

	before := commandCounts(t, client)
	var after map[string]int64
	e.Await("the beats", func() bool {
		after = commandCounts(t, client)
		return after["hset"] >= before["hset"]+beats
	})

	sum := int64(0)
	for name, count := range after {
		isWithinScript := name == "zrangebyscore" || name == "set" // of timers and closing days; of tokens
		if name != "info" && !isWithinScript {
			sum += count - before[name]
		}
	}

	passed := after["hset"] - before["hset"]
	limit := passed*atEachBeat + nowAndThen
	if sum > limit {
		t.Errorf("%d commands during %d beats, more than %d", sum, passed, limit)
		for name, count := range after {
			t.Logf("%s %d", name, count-before[name])
		}
	}

	for _, role := range roles {
		n := len(role.Owned())
		if n != partitions/2 {
			t.Errorf("a worker owns %d partitions in the end", n)
		}
	}
}
