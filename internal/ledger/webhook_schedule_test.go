package ledger

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// reads reads a part of the account's schedule, as its owner does.
func (s *env) reads(t *testing.T, from, until int64, limit int, known ...string) []*partitions.Scheduled {
	t.Helper()
	q := partitions.ScheduleQuery{Account: s.account, From: from, Until: until, Limit: limit, Known: func(key string) bool { return slices.Contains(known, key) }}
	return get(s.worker.Ownership.Scheduled(t.Context(), []partitions.ScheduleQuery{q}))(t)[0]
}

func TestScheduled_PartsAndTheOneAfter(t *testing.T) {
	s := newWebhookEnv(t)
	keys := s.publish(t, 5)
	for i, key := range keys { // due at 10, 20 and so on; the last two within a millisecond
		must(t, s.core.Redis.ZAdd(t.Context(), s.key(core.KindRetries), redis.Z{Score: []float64{10, 20, 30, 40.001, 40.002}[i], Member: key}).Err())
	}

	for _, c := range []struct {
		name        string
		from, until int64
		limit       int
		want        []int
	}{
		{"all", 0, math.MaxInt64, 10, []int{0, 1, 2, 3, 4}},
		{"as many as are wanted, and none after the end of time", 0, math.MaxInt64, 2, []int{0, 1}},
		{"nothing is due", 0, 9, 10, []int{0}},
		{"some are due", 0, 20, 10, []int{0, 1, 2}},
		{"more are due than are wanted", 0, 20, 1, []int{0, 2}},
		{"from a time", 11, 30, 10, []int{1, 2, 3}},
		{"within a millisecond", 0, 40, 10, []int{0, 1, 2, 3, 4}},
		{"from that millisecond", 40, 50, 10, []int{3, 4}},
		{"before that millisecond", 30, 39, 10, []int{2, 3}},
		{"behind all", 41, math.MaxInt64, 10, nil},
	} {
		var got []int
		for _, e := range s.reads(t, c.from, c.until, c.limit) {
			i := slices.Index(keys, e.Key)
			got = append(got, i)
			check(t, e.Due == []int64{10, 20, 30, 40, 40}[i] && e.Delivery.Key == e.Key && e.Gone == "", "%s: %+v", c.name, e)
		}
		check(t, slices.Equal(got, c.want), "%s: %v, want %v", c.name, got, c.want)
	}
}

func TestScheduled_OfSeveralEndpoints(t *testing.T) {
	s := newWebhookEnv(t)
	vendors := []*env{s, s.beside(t), s.beside(t)}
	queries := make([]partitions.ScheduleQuery, len(vendors))
	for i, one := range vendors {
		queries[i] = partitions.ScheduleQuery{Account: one.account, Until: math.MaxInt64, Limit: 10, Known: func(string) bool { return false }}
		if i != 1 {
			one.schedules(t, 0, one.publish(t, i+1)...)
		}
	}

	found := get(s.worker.Ownership.Scheduled(t.Context(), queries))(t)
	check(t, len(found[0]) == 1 && len(found[1]) == 0 && len(found[2]) == 3, "found %d, %d and %d", len(found[0]), len(found[1]), len(found[2]))
	for i := range found {
		for _, e := range found[i] {
			check(t, e.Delivery.Account == vendors[i].account, "%+v", e.Delivery)
		}
	}
}

// What can be sent has its body, a replay its own window; of what is gone the ids are known.
func TestScheduled_NamesWhatCanNeverBeSent(t *testing.T) {
	s := newWebhookEnv(t)
	o, versions := s.moved(t, "X-1", delivery.Assigned, delivery.PickingUp)
	retired, gone := s.moved(t, "X-2", delivery.Assigned)
	damaged, unreadable := s.moved(t, "X-3", delivery.Assigned)
	notices := s.publish(t, 3)
	r := s.core.Partitions[0]
	must(t, s.core.Redis.Del(t.Context(), r.Order(retired.ID.Digest()), r.KeyOf(core.KindNotice, []byte(notices[1][1:]))).Err())
	must(t, s.core.Redis.Set(t.Context(), r.Order(damaged.ID.Digest()), "\x09", 0).Err())
	must(t, s.core.Redis.Set(t.Context(), r.KeyOf(core.KindNotice, []byte(notices[2][1:])), "\x09", 0).Err())
	at, replayed := s.ms.Load(), s.ms.Load()+5000
	id := func(o *delivery.Order, sequence int) string {
		return delivery.EventID(o.ID, o.Changes[sequence-2].Version)
	}
	absent := delivery.NextVersion(o.Version, time.Now(), 7)
	otherContent := o.Changes[0].Version ^ 1<<8 // differs in a random bit
	for _, c := range []struct {
		name   string
		key    string
		stored partitions.Scheduled
		id     string
		gone   string // begins with that; empty: it can be sent
	}{
		{"a version", versions[0], partitions.Scheduled{Attempts: 3}, id(o, 2), ""},
		{"a replay", versions[1], partitions.Scheduled{ReplayedAt: replayed}, id(o, 3), ""},
		{"a replay that has failed", versions[1], partitions.Scheduled{Attempts: 2, ReplayedAt: replayed}, id(o, 3), ""},
		{"a notice", notices[0], partitions.Scheduled{}, notices[0][1:], ""},
		{"a retired order's", gone[0], partitions.Scheduled{Attempts: 1, ReplayedAt: replayed}, id(retired, 2), "the order is no longer stored"},
		{"a version that the order has not", partitions.VersionKey(o.ID, absent, delivery.StatusReached), partitions.Scheduled{}, delivery.EventID(o.ID, absent), "the order has no such version"},
		{"a version of another history", partitions.VersionKey(o.ID, otherContent, delivery.StatusReached), partitions.Scheduled{}, delivery.EventID(o.ID, otherContent), "the order has no such version"},
		{"a damaged order's", unreadable[0], partitions.Scheduled{}, id(damaged, 2), "unreadable: "},
		{"an expired notice", notices[1], partitions.Scheduled{}, notices[1][1:], "the event's body has expired"},
		{"a damaged notice", notices[2], partitions.Scheduled{}, notices[2][1:], "unreadable: "},
	} {
		c.stored.Key, c.stored.Due = c.key, at
		s.owns(t, func(step *partitions.Step) { step.Schedule(s.account, false, []partitions.Scheduled{c.stored}) })
		e := s.reads(t, 0, math.MaxInt64, 10)[0]
		d := e.Delivery
		require(t, d != nil, "%s: %+v", c.name, e)
		check(t, d.EventID == c.id && d.Account == s.account && d.Key == c.key && d.ReplayedAt.Equal(core.TimeOf(c.stored.ReplayedAt)) && e.Attempts == c.stored.Attempts &&
			e.ReplayedAt == c.stored.ReplayedAt && e.Due == at, "%s: %+v of %+v", c.name, d, e)
		check(t, (e.Gone != "") == (c.gone != "") && len(e.Gone) >= len(c.gone) && e.Gone[:len(c.gone)] == c.gone, "%s is gone: %q", c.name, e.Gone)
		if e.Gone == "" {
			check(t, !d.OccurredAt.IsZero() && d.Deadline().Equal(slices.MaxFunc([]time.Time{d.OccurredAt, d.ReplayedAt}, time.Time.Compare).Add(24*time.Hour)) && (d.Order != nil || string(d.Data) == "{}"), "%s: %+v", c.name, d)
		}

		line, _ := (&partitions.AttemptRecord{At: s.now(), State: partitions.StateNotSent}).Lines(d, false)
		record := get(partitions.DecodeLine(r, string(line)))(t)
		check(t, record.EventID == c.id, "%s is recorded as %+v", c.name, record)
		e = s.reads(t, 0, math.MaxInt64, 10, c.key)[0]
		check(t, e.Delivery == nil && e.Gone == "" && e.Attempts == c.stored.Attempts, "%s, known: %+v", c.name, e)
		s.owns(t, func(step *partitions.Step) {
			step.Unschedule(s.account, []partitions.Unscheduled{{Key: c.key, ReplayedAt: c.stored.ReplayedAt}})
		})
	}
}

// An event that can never be sent is recorded as not sent, and leaves the schedule by what was read of it, however often
// it was attempted or asked for: one that stayed would be recorded again and again.
func TestScheduled_WhatIsGoneLeavesByWhatWasRead(t *testing.T) {
	key := partitions.NoticeKey("evt_gone")
	for name, events := range map[string][]partitions.Scheduled{
		"never attempted":        {{}},
		"attempted":              {{Attempts: 3}},
		"of a replay":            {{ReplayedAt: 1_795_000_000_000}},
		"of a replay, attempted": {{Attempts: 2, ReplayedAt: 1_795_000_000_000}},
		"due again":              {{Attempts: 2}, {Attempts: 3}},
	} {
		for _, asked := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%s, asked for %d times", name, asked), func(t *testing.T) {
				s := newWebhookEnv(t)
				for _, e := range events {
					e.Key, e.Due = key, s.ms.Load()
					s.owns(t, func(step *partitions.Step) { step.Schedule(s.account, false, []partitions.Scheduled{e}) })
				}

				for range asked {
					s.pass(t, time.Second)
					get(s.Webhooks.QueueReplays(t.Context(), s.account, []partitions.Event{{Notice: key[1:]}}, 0))(t)
				}

				read := s.reads(t, 0, math.MaxInt64, 10)[0]
				check(t, read.Gone != "" && (read.AskedAt > 0) == (asked > 0), "read %+v", read)
				s.owns(t, func(step *partitions.Step) {
					step.Unschedule(s.account, []partitions.Unscheduled{{Key: read.Key, ReplayedAt: read.ReplayedAt, AskedAt: read.AskedAt}})
				})

				left, _ := s.scheduled(t)
				check(t, len(left) == 0 && len(s.counts(t)) == 0, "still scheduled: %q, %q", left, s.counts(t))
			})
		}
	}
}

// A read that fails is no event that is gone.
func TestScheduled_BrokenReadSaysNothing(t *testing.T) {
	s := newWebhookEnv(t)
	key := s.publish(t, 1)[0]
	s.schedules(t, 0, key)
	body := s.core.Partitions[0].KeyOf(core.KindNotice, []byte(key[1:]))
	must(t, s.core.Redis.Del(t.Context(), body).Err())
	must(t, s.core.Redis.RPush(t.Context(), body, "a list").Err()) // its read is an error
	_, err := s.worker.Ownership.Scheduled(t.Context(), []partitions.ScheduleQuery{{Account: s.account, Until: math.MaxInt64, Limit: 1, Known: func(string) bool { return false }}})
	check(t, err != nil, "no error")
}

// pending are the accounts of all pages.
func (l *Ledger) pending(t *testing.T, partition int) (pending []delivery.AccountID) {
	t.Helper()
	must(t, l.Ownership.Pending(t.Context(), partition, func(page []delivery.AccountID) error {
		pending = append(pending, page...)
		return nil
	}))
	return pending
}

// A partition may have tens of thousands of accounts, most of which have nothing.
func TestPending_ComesInPages(t *testing.T) {
	s := newWebhookEnv(t)
	r := s.core.Partitions[0]
	scheduled := make(map[delivery.AccountID]bool)
	schedules := func(id delivery.AccountID) {
		scheduled[id] = true
		must(t, s.core.Redis.ZAdd(t.Context(), r.KeyOf(core.KindRetries, id[:]), redis.Z{Score: 1, Member: partitions.NoticeKey("evt_1")}).Err())
	}

	schedules(delivery.FinanceAccount)
	members := make([]any, 0, 5*core.ItemsAtOnce)
	for i := range cap(members) {
		id := delivery.NewAccountID()
		members = append(members, id[:])
		if i%3 == 0 {
			schedules(id)
		}
	}

	must(t, s.core.Redis.SAdd(t.Context(), r.Key(core.KindAccounts), members...).Err())

	pages := 0
	found := make(map[delivery.AccountID]bool)
	must(t, s.worker.Ownership.Pending(t.Context(), 0, func(page []delivery.AccountID) error {
		pages++
		check(t, len(page) > 0 && len(page) <= core.ItemsAtOnce, "a page of %d", len(page))
		for _, id := range page {
			found[id] = true
		}
		return nil
	}))

	check(t, maps.Equal(found, scheduled) && pages > 5, "%d accounts in %d pages, want %d accounts", len(found), pages, len(scheduled))
	ended := errors.New("the worker ends")
	pages = 0
	err := s.worker.Ownership.Pending(t.Context(), 0, func([]delivery.AccountID) error {
		pages++
		return ended
	})

	check(t, errors.Is(err, ended) && pages == 1, "%v after %d pages", err, pages)
}

func TestPending_HasAScheduleOrABreaker(t *testing.T) {
	s := newWebhookEnv(t)
	idle, late, dead, deleted := s, s.beside(t), s.beside(t), s.beside(t)
	late.schedules(t, time.Hour.Milliseconds(), partitions.NoticeKey("evt_1"))
	s.owns(t, func(step *partitions.Step) {
		step.Endpoint(dead.account, &partitions.EndpointChange{Breaker: &partitions.Breaker{Failures: 1}})
	})
	deleted.schedules(t, 0, partitions.NoticeKey("evt_2"))
	must(t, s.Webhooks.Delete(t.Context(), deleted.account))
	got := s.worker.pending(t, 0)
	for _, c := range []struct {
		name string
		of   *env
		want bool
	}{{"idle", idle, false}, {"with a schedule", late, true}, {"with a breaker", dead, true}, {"deleted, with a schedule", deleted, true}} {
		check(t, slices.Contains(got, c.of.account) == c.want, "%s: %v", c.name, !c.want)
	}

	facts := get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, idle.account, late.account, deleted.account)))(t)
	check(t, !facts[0].Scheduled && facts[1].Scheduled && facts[2].Scheduled && facts[2].URL == "" && facts[2].Unreadable == nil, "facts %+v, %+v, %+v", facts[0], facts[1], facts[2])
}

func TestBacklogs_CountTheScheduleAndNameTheAgeOfTheNext(t *testing.T) {
	s := newWebhookEnv(t)
	empty, gone := s.beside(t), s.beside(t)
	happened := s.now()
	old := s.publish(t, 1)
	s.pass(t, time.Minute)
	s.schedules(t, 5000, s.publish(t, 3)...)
	s.schedules(t, 4000, old...)
	gone.schedules(t, 0, partitions.NoticeKey("evt_expired"))
	got := get(s.worker.Ownership.Backlogs(t.Context(), endpointsAt(0, s.account, empty.account, gone.account)))(t)
	require(t, len(got) == 3, "%d backlogs", len(got))
	want := []partitions.Backlog{{Events: 4, Oldest: happened}, {}, {Events: 1, Oldest: time.Time{}}}
	for i := range got {
		check(t, got[i].Events == want[i].Events && got[i].Oldest.Equal(want[i].Oldest), "%d: %+v, want %+v", i, got[i], want[i])
	}
}

func TestPing_IsATestEventOfItsTime(t *testing.T) {
	account := delivery.NewAccountID()
	at := time.UnixMilli(1_795_000_000_000)
	one, same, later := partitions.Ping(account, at), partitions.Ping(account, at), partitions.Ping(account, at.Add(time.Millisecond))
	check(t, one.Type == delivery.WebhookTest && one.EventID == same.EventID && one.EventID != later.EventID && one.Key == "" && one.Account == account &&
		string(one.Data) == fmt.Sprintf(`{"accountId":%q}`, account.String()), "%+v, then %+v", one, later)
}

func TestTally_TurnsWithTheHour(t *testing.T) {
	tally := partitions.Tally{Hour: 499999, OK: 3, Failed: 4, PreviousOK: 5, PreviousFailed: 6, Delivered: 7}
	for hour, want := range map[int64]partitions.Tally{
		499999: tally,
		500000: {Hour: 500000, PreviousOK: 3, PreviousFailed: 4, Delivered: 7},
		500001: {Hour: 500001, Delivered: 7},
	} {
		got := tally
		got.Turn(hour * 3_600_000)
		if got != want {
			t.Errorf("hour %d: %+v, want %+v", hour, got, want)
		}
	}
}

// manyVersions is a new order with so many changes, and the keys of its events.
func (s *env) manyVersions(t *testing.T, externalID string, n int) (*delivery.Order, []string) {
	t.Helper()
	s.create(t, externalID)
	o := get(s.Orders.Find(t.Context(), s.account, externalID))(t)
	changes := make([]delivery.Change, n)
	for i := range changes {
		changes[i] = delivery.Change{Kind: delivery.EstimateRevised, Status: delivery.Searching, At: o.CreatedAt, ETA: o.CreatedAt.Add(time.Duration(i+1) * time.Minute)}
	}

	s.change(t, o, changes...)

	o = get(s.Orders.Find(t.Context(), s.account, externalID))(t)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = partitions.VersionKey(o.ID, o.Changes[i].Version, o.Changes[i].Kind)
	}

	return o, keys
}

// A backlog may have every version of an order, whose record has them all: reading and decoding it for each
// would cost the square of their number.
func TestScheduled_ReadsAnOrderOnceForAllItsEvents(t *testing.T) {
	s := newWebhookEnv(t)
	const versions = core.ItemsAtOnce/2 - 10
	first, firstKeys := s.manyVersions(t, "X-1", versions)
	second, secondKeys := s.manyVersions(t, "X-2", versions)
	third, thirdKeys := s.manyVersions(t, "X-3", versions) // in two pipelines
	unreadable, unreadableKeys := s.manyVersions(t, "X-4", 2)
	must(t, s.core.Redis.Set(t.Context(), s.core.Partitions[0].Order(unreadable.ID.Digest()), "\x09", 0).Err())
	s.schedules(t, 0, slices.Concat(firstKeys, secondKeys)...)
	s.schedules(t, 1, slices.Concat(thirdKeys, unreadableKeys)...)
	asked := &countCommands{counts: map[string]int{}}
	s.worker.core.Redis.AddHook(asked)

	found := s.reads(t, 0, math.MaxInt64, 1000)

	shared := make(map[delivery.OrderID]*delivery.Order)
	sendable := 0
	for _, e := range found {
		if e.Gone != "" {
			check(t, slices.Contains(unreadableKeys, e.Key), "%q is gone: %s", e.Key, e.Gone)
			continue
		}

		sendable++
		d := e.Delivery
		if shared[d.Order.ID] == nil {
			shared[d.Order.ID] = d.Order
		}

		check(t, d.Order == shared[d.Order.ID], "an event of %s has an order of its own", d.Order.ID)
		change, _ := d.Order.At(d.Version)
		check(t, d.Key == partitions.VersionKey(d.Order.ID, d.Version, change.Kind) && d.Key == e.Key && d.OccurredAt.Equal(change.At), "%+v", d)
	}

	equal(t, sendable, 3*versions, "events that can be sent")
	for _, o := range []*delivery.Order{first, second, third, unreadable} {
		equal(t, asked.of("get "+s.core.Partitions[0].Order(o.ID.Digest())), 1, "reads of an order")
	}
}

func TestReadOrders_ReadsAnOrderOnceForAllItsEvents(t *testing.T) {
	s := newWebhookEnv(t)
	o, keys := s.manyVersions(t, "X-1", 50)
	w := &partitions.Wanted{Reported: []delivery.OrderID{o.ID}}
	for i := range keys {
		w.Events = append(w.Events, partitions.Event{Order: o.ID, Version: o.Changes[i].Version, Kind: o.Changes[i].Kind})
	}

	asked := &countCommands{counts: map[string]int{}}
	s.worker.core.Redis.AddHook(asked)

	must(t, s.worker.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{w}))

	for i, d := range w.Deliveries {
		check(t, d.Key == keys[i] && d.Order == w.Deliveries[0].Order && d.Version == o.Changes[i].Version, "%+v", d)
	}

	check(t, w.Orders[0] != w.Deliveries[0].Order, "what is decided changes the order of events")
	equal(t, asked.of("get "+s.core.Partitions[0].Order(o.ID.Digest())), 1, "reads of the order for its events")
}
