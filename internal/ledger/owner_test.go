package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

func TestFeed_ReadsABatchOfEvents(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	ids := []delivery.OrderID{s.create(t, "X-1").ID, s.create(t, "X-2").ID}
	var batch []byte
	for _, id := range ids {
		batch = appendOrderEvent(batch, id, 1<<32|2, delivery.StatusReached)
	}

	for _, damaged := range []string{string(batch), string(batch[:len(batch)-1])} {
		must(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: r.key(kindEvents), Values: []any{"m", damaged}}).Err())
	}

	entries := collect(t, s.Ledger, RoleExport, "x", 3)
	require(t, len(entries) == 3 && len(entries[2].Events) == 2, "%+v", entries)
	for i, event := range entries[2].Events {
		check(t, event.Order == ids[i] && event.Version == 1<<32|2, "event %d: %+v", i, event)
	}

	testserver.Await(t, "the damaged one is a dead letter", func() bool { return len(get(s.Monitor.DeadLetters(t.Context(), 10))(t)) == 1 })
}

func TestFeed_ReadsOutcomesOfManyAccounts(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	other := delivery.NewAccountID()
	var values []byte
	for i, account := range []delivery.AccountID{s.account, other, s.account} {
		a := AttemptRecord{event: "\x02evt_" + string(rune('0'+i)), State: StateDelivered, Attempt: 1, At: time.UnixMilli(1_795_284_000_000)}
		values = appendText(append(values, account[:]...), string(a.appendLine(nil, lineAttempt)))
	}

	e := Entry{}
	must(t, e.read(r, map[string]any{"o": string(values)}))
	var accounts []delivery.AccountID
	for _, a := range e.Outcomes {
		accounts = append(accounts, a.Account)
	}

	check(t, slices.Equal(accounts, []delivery.AccountID{s.account, other, s.account}) && e.Outcomes[1].EventID == "evt_1", "%+v", e.Outcomes)
	for cut := range len(values) {
		if e := (Entry{}); e.read(r, map[string]any{"o": string(values[:cut])}) == nil && len(e.Outcomes) == 0 {
			t.Errorf("%d of %d bytes are read as nothing", cut, len(values))
		}
	}
}

func TestAttempts_ReadsChunksOfTheLog(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	line := func(attempt int) string {
		a := AttemptRecord{event: "\x02evt_1", State: StateRetrying, Attempt: attempt, At: time.UnixMilli(1_795_284_000_000)}
		return string(a.appendLine(nil, lineAttempt))
	}

	chunk := appendText(appendText([]byte{lineChunk}, line(2)), line(3))
	must(t, s.rdb.LPush(t.Context(), r.keyOf(kindAttemptLog, s.account[:]), line(1), chunk, line(4)).Err())
	var attempts []int
	for _, a := range get(s.Webhooks.LastAttempts(t.Context(), s.account, 3))(t) {
		attempts = append(attempts, a.Attempt)
	}

	check(t, slices.Equal(attempts, []int{4, 3, 2}), "attempts %v", attempts)
}

func TestTokens_OfASingleServerAreOneCommand(t *testing.T) {
	t.Parallel()

	_, own := ownServer(t)
	s := newEnv(t, own)
	must(t, s.rdb.ConfigResetStat(t.Context()).Err())

	tokens := get(s.Ownership.Tokens(t.Context()))(t)

	equal(t, len(tokens), len(s.partitions), "tokens")
	stats := get(s.rdb.Info(t.Context(), "commandstats").Result())(t)
	check(t, strings.Contains(stats, "cmdstat_mget:calls=1,") && !strings.Contains(stats, "cmdstat_get:"), "%s", stats)
}

// In a cluster one partition whose server does not answer stops no other's timers, and is not waited for.
func TestDue_APartitionThatCannotBeReadHurtsOnlyItself(t *testing.T) {
	l := openTest(t)
	edited := &Config{edit: func(file, text string) string {
		if file == "list_due" {
			text = "if call('TYPE', KEYS[1]).ok == 'string' then return redis.error_reply('CLUSTERDOWN a test') end\n" + text
		}
		return text
	}}

	// Each partition is a call of its own, as in a cluster.
	l.cluster = true
	library, err := newLibrary(edited, l.cluster)
	must(t, err)
	l.library = library
	all := make([]int, len(l.partitions))
	for p, partition := range l.partitions {
		all[p] = p
		id := delivery.MakeOrderID(p, 1, delivery.Digest{byte(p)})
		must(t, l.rdb.ZAdd(t.Context(), partition.key(kindTimers), redis.Z{Score: 1, Member: orderMember(id)}).Err())
	}

	get(l.Ownership.Due(t.Context(), all, time.Now(), 10))(t)

	away := 1
	must(t, l.rdb.Set(t.Context(), l.partitions[away].key(kindTimers), "away", 0).Err())
	counted := &countCommands{counts: map[string]int{}}
	l.rdb.AddHook(counted)
	due, err := l.Ownership.Due(t.Context(), all, time.Now(), 10)
	wantError(t, err, delivery.ErrUnavailable)
	for p := range all {
		want := 1
		if p == away {
			want = 0
		}
		require(t, len(due) == len(all) && len(due[p]) == want, "due are %v, and %d of partition %d are wanted", due, want, p)
	}

	equal(t, counted.of("fcall_ro "+l.library.scripts["list_due"].name), len(all), "calls")
}
