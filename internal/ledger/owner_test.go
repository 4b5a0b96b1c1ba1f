package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv/testserver"
)

func TestFeed_ReadsABatchOfEvents(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	ids := []delivery.OrderID{s.create(t, "X-1").ID, s.create(t, "X-2").ID}
	var batch []byte
	for _, id := range ids {
		batch = core.AppendOrderEvent(batch, id, 1<<32|2, delivery.StatusReached)
	}

	for _, damaged := range []string{string(batch), string(batch[:len(batch)-1])} {
		must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindEvents), Values: []any{"m", damaged}}).Err())
	}

	entries := collect(t, s.Ledger, core.RoleExport, "x", 3)
	require(t, len(entries) == 3 && len(entries[2].Events) == 2, "%+v", entries)
	for i, event := range entries[2].Events {
		check(t, event.Order == ids[i] && event.Version == 1<<32|2, "event %d: %+v", i, event)
	}

	testserver.Await(t, "the damaged one is a dead letter", func() bool { return len(get(s.Monitor.DeadLetters(t.Context(), 10))(t)) == 1 })
}

func TestFeed_ReadsOutcomesOfManyAccounts(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	other := delivery.NewAccountID()
	var values []byte
	for i, account := range []delivery.AccountID{s.account, other, s.account} {
		a := partitions.AttemptRecord{Subject: "\x02evt_" + string(rune('0'+i)), State: partitions.StateDelivered, Attempt: 1, At: time.UnixMilli(1_795_284_000_000)}
		values = core.AppendText(append(values, account[:]...), string(a.AppendLine(nil, partitions.LineAttempt)))
	}

	e := partitions.Entry{}
	must(t, e.Read(r, map[string]any{"o": string(values)}))
	var accounts []delivery.AccountID
	for _, a := range e.Outcomes {
		accounts = append(accounts, a.Account)
	}

	check(t, slices.Equal(accounts, []delivery.AccountID{s.account, other, s.account}) && e.Outcomes[1].EventID == "evt_1", "%+v", e.Outcomes)
	for cut := range len(values) {
		if e := (partitions.Entry{}); e.Read(r, map[string]any{"o": string(values[:cut])}) == nil && len(e.Outcomes) == 0 {
			t.Errorf("%d of %d bytes are read as nothing", cut, len(values))
		}
	}
}

func TestAttempts_ReadsChunksOfTheLog(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	line := func(attempt int) string {
		a := partitions.AttemptRecord{Subject: "\x02evt_1", State: partitions.StateRetrying, Attempt: attempt, At: time.UnixMilli(1_795_284_000_000)}
		return string(a.AppendLine(nil, partitions.LineAttempt))
	}

	chunk := core.AppendText(core.AppendText([]byte{partitions.LineChunk}, line(2)), line(3))
	must(t, s.core.Redis.LPush(t.Context(), r.KeyOf(core.KindAttemptLog, s.account[:]), line(1), chunk, line(4)).Err())
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
	must(t, s.core.Redis.ConfigResetStat(t.Context()).Err())

	tokens := get(s.Ownership.Tokens(t.Context()))(t)

	equal(t, len(tokens), len(s.core.Partitions), "tokens")
	stats := get(s.core.Redis.Info(t.Context(), "commandstats").Result())(t)
	check(t, strings.Contains(stats, "cmdstat_mget:calls=1,") && !strings.Contains(stats, "cmdstat_get:"), "%s", stats)
}

// In a cluster one partition whose server does not answer stops no other's timers, and is not waited for.
func TestDue_APartitionThatCannotBeReadHurtsOnlyItself(t *testing.T) {
	l := openTest(t)
	edited := &core.Config{Edit: func(file, text string) string {
		if file == "list_due" {
			text = "if call('TYPE', KEYS[1]).ok == 'string' then return redis.error_reply('CLUSTERDOWN a test') end\n" + text
		}
		return text
	}}

	// Each partition is a call of its own, as in a cluster.
	l.core.IsCluster = true
	library, err := core.NewLibrary(edited, packages, l.core.IsCluster)
	must(t, err)
	l.core.Library = library
	all := make([]int, len(l.core.Partitions))
	for p, partition := range l.core.Partitions {
		all[p] = p
		id := delivery.MakeOrderID(p, 1, delivery.Digest{byte(p)})
		must(t, l.core.Redis.ZAdd(t.Context(), partition.Key(core.KindTimers), redis.Z{Score: 1, Member: core.OrderMember(id)}).Err())
	}

	get(l.Ownership.Due(t.Context(), all, time.Now(), 10))(t)

	away := 1
	must(t, l.core.Redis.Set(t.Context(), l.core.Partitions[away].Key(core.KindTimers), "away", 0).Err())
	counted := &countCommands{counts: map[string]int{}}
	l.core.Redis.AddHook(counted)
	due, err := l.Ownership.Due(t.Context(), all, time.Now(), 10)
	wantError(t, err, delivery.ErrUnavailable)
	for p := range all {
		want := 1
		if p == away {
			want = 0
		}
		require(t, len(due) == len(all) && len(due[p]) == want, "due are %v, and %d of partition %d are wanted", due, want, p)
	}

	equal(t, counted.of("fcall_ro "+l.core.Library.Scripts["list_due"].Name), len(all), "calls")
}
