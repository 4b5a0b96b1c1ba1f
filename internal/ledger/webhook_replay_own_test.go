package ledger

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// commandsOf counts how often each command ran in Redis while do ran.
func (s *env) commandsOf(t *testing.T, do func()) map[string]int64 {
	t.Helper()
	must(t, s.core.Redis.ConfigResetStat(t.Context()).Err())
	do()
	info := get(s.core.Redis.Info(t.Context(), "commandstats").Result())(t)

	calls := make(map[string]int64)
	for line := range strings.Lines(info) {
		name, stats, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if found {
			count, _, _ := strings.Cut(stats, ",")
			calls[name] = core.ParseNumber(count)
		}
	}

	return calls
}

func TestReplay_ReadsNothingOfOthers(t *testing.T) {
	_, own := ownServer(t)
	s := newEnv(t, own)
	_, _, err := s.Webhooks.SetURL(t.Context(), s.account, "https://example.com/")
	must(t, err)
	s.publish(t, 1)
	other := s.beside(t)
	for range 30 {
		other.publish(t, 100)
	}

	calls := s.commandsOf(t, func() {
		equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, time.Now().Add(-time.Hour), nil))(t), 1, "queued")
	})

	check(t, calls["getrange"] <= 1, "read the owners of %d events", calls["getrange"])
	check(t, calls["xrange"] <= 2, "read %d pages", calls["xrange"])
}

func TestReplay_FindsEventsOfEveryOrigin(t *testing.T) {
	s := newWebhookEnv(t)
	_, versions := s.moved(t, "X-1", delivery.Assigned, delivery.PickingUp)
	notices := s.publish(t, 2)
	want := append(versions, notices...)

	indexed := get(s.core.Redis.XRange(t.Context(), s.key(core.KindAccountEvents), "-", "+").Result())(t)
	published := get(s.core.Redis.XRange(t.Context(), s.core.Partitions[0].Key(core.KindEvents), "-", "+").Result())(t)
	ids := make(map[string]bool)
	for _, entry := range published {
		ids[entry.ID] = true
	}

	for _, entry := range indexed {
		check(t, ids[entry.ID], "entry %s has another id than the partition's", entry.ID)
	}

	left := get(s.core.Redis.PTTL(t.Context(), s.key(core.KindAccountEvents)).Result())(t)
	check(t, left > partitions.WebhookWindow+time.Hour, "the index ends in %s, before a replay stops reaching its events", left)

	s.pass(t, 10*time.Minute)
	equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour), nil))(t), len(want), "queued")
	s.replayed(t, want...)
}
