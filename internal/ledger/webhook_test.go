package ledger

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// newWebhookEnv is an env with a receiver and clocks that stand still, in a ledger
// of one partition.
func newWebhookEnv(t *testing.T) *env {
	t.Helper()
	s := newUnregistered(t)
	s.register(t)
	return s
}

func newUnregistered(t *testing.T) *env {
	t.Helper()
	ms := new(atomic.Int64)
	ms.Store(time.Now().UnixMilli())
	now := func() time.Time { return time.UnixMilli(ms.Load()).UTC() }
	url := testserver.NewRedis(t).URL
	l := openTest(t, func(c *core.Config) { c.URL, c.Partitions, c.Now = url, 1, now })
	s := newVendor(t, l)
	s.ms = ms
	s.worker = openTest(t, func(c *core.Config) {
		c.URL, c.Partitions, c.Now, c.ClockKey = (&testserver.Redis{URL: url}).URLFor(stack.WorkerUser), 0, now, ""
	})
	s.pass(t, 0)

	return s
}

// now is the time, which stands still unless the env has none of its own.
func (s *env) now() time.Time {
	if s.ms == nil {
		return time.Now().UTC().Truncate(time.Millisecond)
	}
	return time.UnixMilli(s.ms.Load()).UTC()
}

// pass moves both clocks.
func (s *env) pass(t testing.TB, d time.Duration) {
	t.Helper()
	s.setClock(t, s.ms.Add(d.Milliseconds())*1000)
}

// beside is another account with a receiver, in the same ledger.
func (s *env) beside(t *testing.T) *env {
	t.Helper()
	other := *s
	other.account = newAccount(t, s.Ledger, plenty())
	other.register(t)
	return &other
}

func (s *env) register(t *testing.T) *webhooks.WebhookEndpoint {
	t.Helper()
	e, secret := get2(s.Webhooks.SetURL(t.Context(), s.account, "https://vendor.example/hook"))(t)
	require(t, secret != "" && secret == e.Secret, "issued %q, stored %q", secret, e.Secret)
	return e
}

func (s *env) endpoint(t testing.TB) *webhooks.WebhookEndpoint {
	t.Helper()
	return get(s.Webhooks.Endpoint(t.Context(), s.account))(t)
}

func (s *env) key(kind byte) string { return s.core.PartitionOf(s.account).KeyOf(kind, s.account[:]) }

// owns writes one step as the owner of the account's partition does.
func (s *env) owns(t *testing.T, f func(*partitions.Step)) {
	t.Helper()
	l := s.worker
	if l == nil {
		l = s.Ledger
	}
	must(t, l.advanceBy(t.Context(), s.core.PartitionOf(s.account).Number, f))
}

// publish publishes so many notices of the account and returns their keys.
func (s *env) publish(t *testing.T, n int) []string {
	t.Helper()
	keys := make([]string, n)
	for i := range keys {
		id := get(s.Webhooks.PublishAs(t.Context(), &accounts.Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: s.now(), Data: []byte(`{}`)},
			accounts.NewNoticeID(), accounts.NoticeLifetime))(t)
		keys[i] = partitions.NoticeKey(id)
	}
	return keys
}

// moved is a new order with these changes, and the keys of its events.
func (s *env) moved(t *testing.T, externalID string, changes ...delivery.Status) (*delivery.Order, []string) {
	t.Helper()
	o := s.create(t, externalID)
	s.advance(t, o.ID, changes...)
	o = get(s.Orders.Get(t.Context(), o.ID))(t)
	keys := make([]string, len(changes))
	for i := range keys {
		keys[i] = partitions.VersionKey(o.ID, o.Changes[i].Version, delivery.StatusReached)
	}
	return o, keys
}

// eventID is the event's that a key names.
func (s *env) eventID(key string) string {
	return partitions.GoneEvent(s.core.PartitionOf(s.account), key).EventID
}

// ends publishes how events ended, in one entry.
func (s *env) ends(t *testing.T, state string, keys ...string) {
	t.Helper()
	s.owns(t, func(step *partitions.Step) {
		for _, key := range keys {
			a := partitions.AttemptRecord{At: s.now(), State: state, Attempt: 1}
			line, unanswered := a.Lines(partitions.GoneEvent(step.Partition, key), false)
			if state == partitions.StateRetrying {
				line = unanswered
			}
			step.Publish(s.account, line, state != partitions.StateRetrying)
		}
	})
}

// schedules puts events into the account's schedule, due after so many ms.
func (s *env) schedules(t *testing.T, after int64, keys ...string) {
	t.Helper()
	events := make([]partitions.Scheduled, len(keys))
	for i, key := range keys {
		events[i] = partitions.Scheduled{Key: key, Due: s.now().UnixMilli() + after}
	}
	s.owns(t, func(step *partitions.Step) { step.Schedule(s.account, false, events) })
}

// scheduled is the schedule: the events' places, in ms from now, in its order.
func (s *env) scheduled(t *testing.T) (keys []string, due map[string]int64) {
	t.Helper()
	due = make(map[string]int64)
	for _, z := range get(s.core.Redis.ZRangeWithScores(t.Context(), s.key(core.KindRetries), 0, -1).Result())(t) {
		key := z.Member.(string)
		keys, due[key] = append(keys, key), int64(z.Score)-s.ms.Load()
	}
	return keys, due
}

func (s *env) counts(t *testing.T) map[string]string {
	t.Helper()
	return get(s.core.Redis.HGetAll(t.Context(), s.key(core.KindAttempts)).Result())(t)
}

// unscheduled are events as an owner removes them that has read the schedule last.
func (s *env) unscheduled(t *testing.T, keys ...string) []partitions.Unscheduled {
	t.Helper()
	counts := s.counts(t)
	events := make([]partitions.Unscheduled, len(keys))
	for i, key := range keys {
		var known partitions.Scheduled
		known.ParseAttempts(counts[key])
		events[i] = partitions.Unscheduled{Key: key, ReplayedAt: known.ReplayedAt, AskedAt: known.AskedAt}
	}
	return events
}

// noted is how many notes there are for the owner, all of which name the account.
func (s *env) noted(t *testing.T) int {
	t.Helper()
	notes := get(s.core.Redis.XRange(t.Context(), s.core.PartitionOf(s.account).Key(core.KindNotes), "-", "+").Result())(t)
	for _, n := range notes {
		check(t, n.Values["w"] == string(s.account[:]), "a note %q", n.Values)
	}
	return len(notes)
}

func numbered(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = partitions.NoticeKey(prefix + strconv.Itoa(i))
	}
	return keys
}
