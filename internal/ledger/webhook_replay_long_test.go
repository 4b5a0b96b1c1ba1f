//go:build long

package ledger

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// A vendor whose receiver is dead replays 5,000 events as often as its limits let it
// at once, and 60 times more: what waits does not grow after the first, and events
// of another account in the same partition all go out meanwhile. The figures are
// logged.
func TestReplay_ADeadReceiverReplaysAllItMay(t *testing.T) {
	const events, replays, others = 5_000, 200 + 60, 1_000
	s := newWebhookEnv(t, 1)
	other := s.beside(t)
	giveUp := func(ds []*Delivery) {
		results := make([]Result, len(ds))
		for i, d := range ds {
			results[i] = Result{d, failsFor(0)(s, d)}
			results[i].Outcome.At = s.now()
		}
		get(s.Queue.Record(t.Context(), results, noGrant, breakerAt))(t)
	}
	for done := 0; done < events; {
		s.publish(t, 1000)
		for ds := s.lease(t, 32); len(ds) > 0; ds, _ = get2(s.Queue.Lease(t.Context(), 0, grant(100)))(t) {
			giveUp(ds)
			done += len(ds)
		}
	}
	s.pass(t, 10*time.Minute) // past what Redis has stamped by its own clock meanwhile
	since := s.now().Add(-time.Hour)
	replay := func() time.Duration {
		began := time.Now()
		equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, since))(t), events, "replayed")
		return time.Since(began)
	}
	first := replay()
	full := s.usedMemory(t)
	s.setGate(t, gateState{hold: 1 << 52, open: 1, failures: 1, since: s.ms.Load()}) // dead, between two probes

	calm := other.cycles(t, others)
	var vendor sync.WaitGroup
	took := make([]time.Duration, replays)
	vendor.Go(func() {
		for i := range took {
			took[i] = replay()
		}
	})
	beside := other.cycles(t, others)
	vendor.Wait()
	equal(t, s.waiting(t), events, "events wait")
	check(t, s.usedMemory(t) < full+full/4, "memory grew from %d to %d bytes", full, s.usedMemory(t))
	e := other.endpoint(t)
	check(t, e.Backlog == 0 && e.Delivered == 2*others, "%+v", e)

	slices.Sort(took)
	at := func(all []time.Duration, part float64) time.Duration {
		slices.Sort(all)
		return all[int(part*float64(len(all)-1))].Round(10 * time.Microsecond)
	}
	t.Logf("%d events wait after %d replays (first %s, p50 %s, p99 %s); %d bytes each; another account's event from published to recorded: alone p50 %s, p99 %s; beside p50 %s, p99 %s",
		s.waiting(t), replays+1, first.Round(time.Millisecond), at(took, .5), at(took, .99), full/events,
		at(calm, .5), at(calm, .99), at(beside, .5), at(beside, .99))
}

// cycles publishes, queues, sends and records so many events, one after the other,
// and prints how long each took.
func (s *env) cycles(t *testing.T, n int) []time.Duration {
	t.Helper()
	stream := s.partitions[0].key(kindEvents)
	reader := newFeedReader(s.core, &Feed{Role: RoleWebhook, Consumer: "c", Batch: 1000, Log: func(string, ...any) {}}, s.partitions)
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		must(t, s.Webhooks.Publish(t.Context(), Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: s.now(), Data: []byte(`{}`)}))
		found := get(s.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: string(RoleWebhook), Consumer: "c", Streams: []string{stream, ">"}, Block: -1}).Result())(t)
		entries := reader.parse(t.Context(), streamRef{s.partitions[0], stream}, found[0].Messages)
		leased := get(s.Queue.Add(t.Context(), 0, entries, grant(1)))(t)
		require(t, len(leased.Deliveries) == 1 && leased.Deliveries[0].Account == s.account, "leased %+v", leased)
		s.ends(t, accepts, leased.Deliveries...)
		took[i] = time.Since(began)
	}
	return took
}

// usedMemory is what the account's waiting replays take in Redis, in bytes.
func (s *env) usedMemory(t *testing.T) int64 {
	t.Helper()
	return get(s.rdb.Do(t.Context(), "MEMORY", "USAGE", s.key(kindWaiting), "SAMPLES", 0).Int64())(t) +
		get(s.rdb.Do(t.Context(), "MEMORY", "USAGE", s.key(kindQueue), "SAMPLES", 0).Int64())(t)
}
