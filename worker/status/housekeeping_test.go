package status

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// listEndedLua lists orders that are gone as having ended in an hour, in every partition.
const listEndedLua = testenv.PrefixesLua + `
for _, prefix in ipairs(prefixes()) do
  for i = 1, ARGV[2] do redis.call('RPUSH', prefix .. 'R' .. ARGV[1], string.format('%014d', i)) end
  redis.call('ZADD', prefix .. 'H', ARGV[1], ARGV[1])
end
return 1`

func allPartitions() (all []int) {
	for p := range testenv.Partitions {
		all = append(all, p)
	}
	return all
}

// A visit to a partition ends before all is done, but not the housekeeping.
func TestHousekeeping_LeavesNothingThatIsPastItsTime(t *testing.T) {
	e := newEnv(t)
	const orders = retiredAtOnce*pagesPerVisit + 1
	longAgo := time.Now().Add(-10*24*time.Hour).Unix() / 3600
	e.Do("EVAL", listEndedLua, 0, longAgo, orders)
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook, ledger.RoleExport} {
		e.Consume(role)
	}

	e.role.settings.HousekeepingInterval = time.Hour
	h := &housekeeping{Role: e.role, owned: allPartitions, now: time.Now}

	testenv.Must(t, h.look(t.Context()))

	if retired := testenv.Value(t, e.role.metrics.retired); retired != testenv.Partitions*orders {
		t.Errorf("%v of %d orders are retired", retired, testenv.Partitions*orders)
	}
	if h.isDue() {
		t.Error("another round is due at once")
	}
}

// One partition has more to shrink than a visit does, and its visit ends before those of the others, which
// have more to do and leave nothing.
func TestHousekeeping_GoesOnWhicheverPartitionHasMore(t *testing.T) {
	e := newEnv(t)
	const listLua = testenv.PrefixesLua + `
for i, prefix in ipairs(prefixes()) do
  local hour, orders = ARGV[1], 2000
  if i == 1 then hour, orders = ARGV[2], tonumber(ARGV[3]) end
  for id = 1, orders do redis.call('RPUSH', prefix .. 'R' .. hour, string.format('%014d', id)) end
  redis.call('ZADD', prefix .. 'H', hour, hour)
end
return 1`

	const shrunkInAVisit = 32 * pagesPerVisit
	toRetire, toShrink := time.Now().AddDate(0, 0, -10), time.Now().AddDate(0, 0, -2)
	e.Do("EVAL", listLua, 0, toRetire.Unix()/3600, toShrink.Unix()/3600, shrunkInAVisit+1)
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook, ledger.RoleExport} {
		e.Consume(role)
	}

	h := &housekeeping{Role: e.role, owned: allPartitions, now: time.Now}

	testenv.Must(t, h.look(t.Context()))

	for _, partition := range allPartitions() {
		left, err := e.Ledger.Orders.Shrink(t.Context(), partition, time.Now().AddDate(0, 0, -1))
		testenv.Must(t, err)
		if left != 0 {
			t.Errorf("partition %d: %d orders are left that may be shrunk", partition, left)
		}
	}
}

func TestHousekeeping_OfAFullRedisGoesOnAndSaysWhatIsLeft(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Extra: []string{"--appendfsync", "no"}})
	e := &env{Env: testenv.NewOn(t, server)}
	e.vendor = e.Vendor()
	var log strings.Builder
	settings := Settings{Batch: 64, HousekeepingInterval: time.Hour, Retention: 7 * 24 * time.Hour, StreamRetention: 25 * time.Hour}
	e.role = New(e.OpenAs(stack.WorkerUser), settings, nil, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	if e.role.accountsInterval != accountsInterval {
		t.Errorf("accounts' streams are trimmed every %s, want %s", e.role.accountsInterval, accountsInterval)
	}

	e.role.accountsInterval = time.Hour

	live, ended := e.order(), e.order()
	e.Accept(live, time.Now())
	_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, ended.ID, "", "", time.Now())
	testenv.Must(t, err)
	e.Decide()
	e.Do("CONFIG", "SET", "maxmemory", "1")

	h := &housekeeping{Role: e.role, owned: allPartitions, now: time.Now}
	const rounds = 4
	var accountsTrimmed []time.Time
	for range rounds {
		testenv.Must(t, h.look(t.Context()))
		accountsTrimmed = append(accountsTrimmed, h.accountsTrimmed)
		h.memoryRead, h.roundBegan = h.memoryRead.Add(-memoryInterval), h.roundBegan.Add(-memoryInterval)
	}

	if first := accountsTrimmed[0]; first.IsZero() || !accountsTrimmed[rounds-1].Equal(first) {
		t.Errorf("accounts' streams are trimmed at %v, want once", accountsTrimmed)
	}

	text := log.String()
	stored, err := e.Ledger.Orders.Kept(t.Context(), []int{ended.ID.Partition()})
	testenv.Must(t, err)
	if lines := strings.Count(text, "Redis is nearly full"); lines != 1 {
		t.Errorf("%d lines after %d rounds, want 1:\n%s", lines, rounds, text)
	}

	next := stored[0].FirstEnded.Add(settings.Retention)
	for _, part := range []string{"level=WARN", server.Addr, "orders not ended\"=1", "orders ended\"=1", next.UTC().Format(time.RFC3339), "export: "} {
		if !strings.Contains(text, part) {
			t.Errorf("the line lacks %s:\n%s", part, text)
		}
	}

	m := e.role.metrics
	kept := []float64{testenv.Value(t, m.kept.WithLabelValues(keptLive)), testenv.Value(t, m.kept.WithLabelValues(keptEnded)), testenv.Value(t, m.nextPast)}
	if kept[0] != 1 || kept[1] != 1 || kept[2] != float64(next.Unix()) {
		t.Errorf("live, ended and the time of the next are %v, want 1, 1, %d", kept, next.Unix())
	}
}

// Partitions have orders that ended in one hour after the other; what ended in an hour counts from its end.
func TestCountKept_NamesTheFirstOfAllPartitions(t *testing.T) {
	e := newEnv(t)
	const listOneLua = testenv.PrefixesLua + `
for i, prefix in ipairs(prefixes()) do
  local hour = ARGV[1] + i
  redis.call('RPUSH', prefix .. 'R' .. hour, string.format('%014d', i))
  redis.call('ZADD', prefix .. 'H', hour, hour)
end
return 1`

	const hour = 400_000
	e.Do("EVAL", listOneLua, 0, hour)
	h := &housekeeping{Role: e.role, owned: allPartitions, now: time.Now}

	sum, next, err := h.countKept(t.Context(), allPartitions())

	testenv.Must(t, err)
	if first := time.Unix((hour+2)*3600, 0); !sum.FirstEnded.Equal(first) || !next.Equal(first.Add(e.role.settings.Retention)) {
		t.Errorf("the first ended %s and is past its retention %s, want %s", sum.FirstEnded, next, first)
	}
}

// Or the log would say every second that it works again.
func TestHousekeeping_HasFailedUntilItSucceeds(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Extra: []string{"--appendfsync", "no"}})
	e := &env{Env: testenv.NewOn(t, server)}
	e.role = newRole(e.OpenAs(stack.WorkerUser))
	h := &housekeeping{Role: e.role, owned: allPartitions, now: time.Now}

	server.Stop()
	for look := range 2 {
		if h.look(t.Context()) == nil {
			t.Errorf("look %d has not failed without Redis", look+1)
		}
	}

	testenv.Must(t, server.Start(t.Context()))
	h.memoryRead, h.roundBegan = time.Time{}, time.Time{}
	testenv.Must(t, h.look(t.Context()))
}
