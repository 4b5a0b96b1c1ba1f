package ledger

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// largestBatch is the most entries that a worker may be configured to queue at
// once (dispatch.Settings).
const largestBatch = 10_000

// read adds raw events to the stream and reads them for the webhook role.
func (s *env) read(t *testing.T, event func(i int) string) []redis.XMessage {
	t.Helper()
	key := s.rooms[0].key(kindEvents)
	pipe := s.rdb.Pipeline()
	for i := range largestBatch {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"e", event(i)}})
	}
	pipe.XGroupCreate(t.Context(), key, string(RoleWebhook), "0")
	found := pipe.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: string(RoleWebhook), Consumer: "c", Streams: []string{key, ">"}, Count: largestBatch, Block: -1})
	_, err := pipe.Exec(t.Context())
	if !redis.HasErrorPrefix(err, "BUSYGROUP") {
		must(t, err)
	}
	return found.Val()[0].Messages
}

// settled demands that no entry is left.
func (s *env) settled(t *testing.T) {
	t.Helper()
	pending := get(s.rdb.XPending(t.Context(), s.rooms[0].key(kindEvents), string(RoleWebhook)).Result())(t)
	check(t, pending.Count == 0, "%d entries are not settled", pending.Count)
}

// A batch as large as it may be, all of it for one endpoint.
func TestQueue_LargestBatchOfEvents(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	messages := s.read(t, func(i int) string { return fmt.Sprintf("\x02evt_%d", i) })
	args := []any{s.rooms[0].prefix, string(RoleWebhook), 0, 32, 32, lease.Milliseconds() * 1000}
	for _, m := range messages {
		args = append(args, m.ID, text(m.Values["e"]), s.account[:])
	}
	get(s.run(t.Context(), s.scripts.queueEvents, []string{s.rooms[0].key(kindEvents)}, args...))(t)
	equal(t, s.endpoint(t).Backlog, largestBatch, "events wait")
	s.settled(t)
}

// The same of entries that send nothing.
func TestQueue_LargestBatchOfCreations(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	messages := s.read(t, func(i int) string {
		id := delivery.MakeOrderID(0, 1, delivery.OrderDigest(s.account, fmt.Sprint(i)))
		return string(appendOrderEvent(nil, id, 1<<32|1))
	})
	reader := newFeedReader(s.Ledger, &Feed{Role: RoleWebhook, Consumer: "c", Log: func(string, ...any) {}}, s.rooms)
	entries := reader.parse(t.Context(), s.rooms[0], s.rooms[0].key(kindEvents), messages)
	get(s.QueueEvents(t.Context(), 0, entries, noGrant))(t)
	s.settled(t)
}
