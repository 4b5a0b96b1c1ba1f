package ledger

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// oldQueue is what the release before leaves of one endpoint. Its worker has been gone for long.
type oldQueue struct {
	queued, leased []string
	waiting        map[string]time.Duration // until it is due
	attempts       map[string]int
}

func (s *env) leaves(t *testing.T, q *oldQueue) {
	t.Helper()
	r := s.partitions[0]
	pipe := s.rdb.Pipeline()
	for _, item := range q.queued {
		pipe.RPush(t.Context(), s.key(kindOldQueue), item)
	}
	for i, item := range q.leased {
		pipe.ZAdd(t.Context(), s.key(kindOldLeases), redis.Z{Score: float64(i + 1), Member: item})
	}
	for item, after := range q.waiting {
		pipe.ZAdd(t.Context(), s.key(kindRetries), redis.Z{Score: float64(s.now().Add(after).UnixMilli()), Member: item})
	}
	for item, n := range q.attempts {
		pipe.HSet(t.Context(), s.key(kindAttempts), item, n)
	}
	pipe.HSet(t.Context(), s.key(kindOldWaiting), "event", "item")
	pipe.ZAdd(t.Context(), r.key(kindOldLooks), redis.Z{Score: 1, Member: string(s.account[:])})
	pipe.Set(t.Context(), r.key(kindOldClock), 1, 0)
	get(pipe.Exec(t.Context()))(t)
}

// attempted notes in an order's head which version was queued last, and of which the first attempt
// has ended.
func (s *env) attempted(t *testing.T, o *delivery.Order, queued, attempted uint32) {
	t.Helper()
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, queued), attempted)
	must(t, s.rdb.SetRange(t.Context(), s.partitions[0].order(o.ID.Digest()), 20, string(b)).Err())
}

func replayItem(key string, at int64) string {
	stamp := string(binary.BigEndian.AppendUint64(nil, uint64(at)))
	if key[0] == eventOrder {
		return "\x81" + key[1:] + stamp
	}
	return "\x82" + stamp + key[1:]
}

func TestImport_TakesTheQueuesOfTheReleaseBefore(t *testing.T) {
	const hour = 3_600_000
	three := []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp}
	const replayedAt = 1_794_999_000_000
	for _, c := range []struct {
		name              string
		queued, attempted uint32
		make              func(versions, notices []string) *oldQueue
		due               func(versions, notices []string) map[string]int64
		counts            func(versions, notices []string) map[string]string
	}{
		{"queued, with the versions behind it", 2, 1,
			func(v, n []string) *oldQueue { return &oldQueue{queued: []string{v[0], n[0]}} },
			func(v, n []string) map[string]int64 { return map[string]int64{v[0]: 0, v[1]: 0, v[2]: 0, n[0]: 0} }, nil},
		{"leased for the first time", 3, 2,
			func(v, n []string) *oldQueue { return &oldQueue{leased: []string{v[1], n[0]}} },
			func(v, n []string) map[string]int64 { return map[string]int64{v[1]: 0, v[2]: 0, n[0]: 0} }, nil},
		{"leased for the third time, later ones have ended", 4, 4,
			func(v, n []string) *oldQueue {
				return &oldQueue{leased: []string{v[0]}, attempts: map[string]int{v[0]: 2}}
			},
			func(v, n []string) map[string]int64 { return map[string]int64{v[0]: 0} },
			func(v, n []string) map[string]string { return map[string]string{v[0]: "2"} }},
		{"failed", 3, 2,
			func(v, n []string) *oldQueue {
				return &oldQueue{queued: v[1:2], waiting: map[string]time.Duration{v[0]: time.Hour, n[0]: -time.Hour}, attempts: map[string]int{v[0]: 5, n[0]: 1}}
			},
			func(v, n []string) map[string]int64 {
				return map[string]int64{v[0]: hour, v[1]: 0, v[2]: 0, n[0]: -hour}
			},
			func(v, n []string) map[string]string { return map[string]string{v[0]: "5", n[0]: "1"} }},
		{"given back by a worker that died", 2, 1,
			func(v, n []string) *oldQueue { return &oldQueue{waiting: map[string]time.Duration{v[0]: 0}} },
			func(v, n []string) map[string]int64 { return map[string]int64{v[0]: 0, v[1]: 0, v[2]: 0} }, nil},
		{"put off, which lets the next one go", 3, 2,
			func(v, n []string) *oldQueue {
				return &oldQueue{waiting: map[string]time.Duration{v[0]: time.Minute}, leased: v[1:2]}
			},
			func(v, n []string) map[string]int64 { return map[string]int64{v[0]: 60_000, v[1]: 0, v[2]: 0} }, nil},
		{"replays", 4, 4,
			func(v, n []string) *oldQueue {
				failed := replayItem(n[1], replayedAt)
				return &oldQueue{queued: []string{replayItem(v[0], replayedAt)}, leased: []string{replayItem(n[0], replayedAt+1)},
					waiting: map[string]time.Duration{failed: time.Hour}, attempts: map[string]int{failed: 3}}
			},
			func(v, n []string) map[string]int64 { return map[string]int64{v[0]: 0, n[0]: 0, n[1]: hour} },
			func(v, n []string) map[string]string {
				return map[string]string{v[0]: fmt.Sprint("0@", replayedAt), n[0]: fmt.Sprint("0@", replayedAt+1), n[1]: fmt.Sprint("3@", replayedAt)}
			}},
		{"pings", 4, 4,
			func(v, n []string) *oldQueue {
				return &oldQueue{leased: []string{"\x0412345678"}, waiting: map[string]time.Duration{"\x0487654321": 0}}
			},
			func(v, n []string) map[string]int64 { return map[string]int64{} }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWebhookEnv(t)
			o, versions := s.moved(t, "X-1", three...)
			notices := s.publish(t, 2)
			s.attempted(t, o, c.queued, c.attempted)
			s.leaves(t, c.make(versions, notices))
			check(t, get(s.worker.Ownership.OldQueues(t.Context(), []int{0}))(t)[0], "the queue is not seen")
			get(s.worker.Ownership.Take(t.Context(), 0, get(s.worker.Ownership.Tokens(t.Context()))(t)[0], "w"))(t)
			_, due := s.scheduled(t)
			counts := map[string]string{}
			if c.counts != nil {
				counts = c.counts(versions, notices)
			}
			check(t, maps.Equal(due, c.due(versions, notices)) && maps.Equal(s.counts(t), counts), "due %v, counts %v; want %v and %v",
				due, s.counts(t), c.due(versions, notices), counts)
			for _, key := range []string{s.key(kindOldQueue), s.key(kindOldLeases), s.key(kindOldWaiting), s.partitions[0].key(kindOldLooks), s.partitions[0].key(kindOldClock)} {
				equal(t, s.rdb.Exists(t.Context(), key).Val(), 0, "key "+key)
			}
		})
	}
}

// A long backlog keeps its order, and the next owner finds nothing to import.
func TestImport_KeepsTheOrderOfALongQueue(t *testing.T) {
	s := newWebhookEnv(t)
	keys := numbered("evt_", 5000)
	slices.Sort(keys)
	s.leaves(t, &oldQueue{queued: keys})
	for range 2 {
		get(s.worker.Ownership.Take(t.Context(), 0, get(s.worker.Ownership.Tokens(t.Context()))(t)[0], "w"))(t)
		got, due := s.scheduled(t)
		check(t, slices.Equal(got, keys), "%d are scheduled, or in another order", len(got))
		check(t, due[keys[4999]] == 49, "the last one is due in %d ms", due[keys[4999]])
	}
}
