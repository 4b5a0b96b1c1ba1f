package ledger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
)

// replays calls the script as the gateway does.
func (s *env) replays(t *testing.T, keys ...string) string {
	t.Helper()
	r := s.core.Partitions[0]
	args := []any{r.Prefix, s.account[:], s.Webhooks.MaxWaiting, 0}
	for _, key := range keys {
		args = append(args, key)
	}
	return get(s.core.RunText(t.Context(), "queue_replays", []string{s.key(core.KindEndpoint), r.Key(core.KindNotes)}, args...))(t)
}

//rule:webhooks/an-event-waits-at-most
func TestQueueReplays_AnEventWaitsOnceAndIsDueNow(t *testing.T) {
	waiting := numbered("evt_w", 3) // of two attempts and due in an hour; a replay that failed; overdue
	s := newWebhookEnv(t)
	at := s.ms.Load()
	hour := time.Hour.Milliseconds()
	s.owns(t, func(step *partitions.Step) {
		step.Schedule(s.account, false, []partitions.Scheduled{{Key: waiting[0], Due: at + hour, Attempts: 2}, {Key: waiting[1], Due: at + hour, Attempts: 1, ReplayedAt: 7},
			{Key: waiting[2], Due: at - hour}})
	})

	fresh := numbered("evt_f", 12)
	slices.Reverse(fresh) // not the order of the names
	notes := s.noted(t)
	all := slices.Concat(fresh[:6], waiting, fresh[6:])
	for i := range int64(3) { // a repeated call
		now := at + 5000*i
		equal(t, s.replays(t, all...), "queued", "answer")
		keys, due := s.scheduled(t)
		want := slices.Concat(waiting[2:], fresh[:6], waiting[:2], fresh[6:])
		check(t, slices.Equal(keys, want), "scheduled %q, want %q", keys, want)
		for _, key := range want[1:] {
			check(t, due[key] == 0, "%q is due in %d ms", key, due[key])
		}

		check(t, due[waiting[2]] == -hour, "what was overdue is due in %d ms", due[waiting[2]])
		counts := map[string]string{waiting[0]: fmt.Sprint("2+", now), waiting[1]: fmt.Sprint("1@7+", now), waiting[2]: fmt.Sprint("0+", now)}
		for _, key := range fresh {
			counts[key] = fmt.Sprint("0@", at)
			if i > 0 {
				counts[key] += fmt.Sprint("+", now)
			}
		}

		check(t, maps.Equal(s.counts(t), counts), "counts %v", s.counts(t))
		s.setClock(t, (now+5000)*1000)
	}

	equal(t, s.noted(t)-notes, 3, "notes for the owner")
}

// An owner that has sent an event removes it, unless a replay has asked for it since.
func TestUnschedule_LeavesWhatWasAskedForMeanwhile(t *testing.T) {
	s := newWebhookEnv(t)
	keys := numbered("evt_", 4) // that waits by itself, one that has failed, two that a replay has added
	s.owns(t, func(step *partitions.Step) {
		step.Schedule(s.account, false, []partitions.Scheduled{{Key: keys[0], Due: s.ms.Load()}, {Key: keys[1], Due: s.ms.Load(), Attempts: 2}})
	})
	equal(t, s.replays(t, keys[2:]...), "queued", "two")
	known := s.unscheduled(t, keys...)
	s.pass(t, time.Second)
	equal(t, s.replays(t, keys[:3]...), "queued", "three of them")

	s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, known) })
	left, _ := s.scheduled(t)
	slices.Sort(left)
	check(t, slices.Equal(left, keys[:3]), "left are %q", left)
	equal(t, s.core.Redis.SMembers(t.Context(), s.core.Partitions[0].Replayed(s.account)).Val(), keys[2:3], "what a replay has added")

	read := s.reads(t, 0, s.ms.Load(), 10)
	for _, e := range read {
		check(t, e.AskedAt == s.ms.Load(), "%q was asked for at %d", e.Key, e.AskedAt)
	}

	s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, s.unscheduled(t, keys...)) })
	left, _ = s.scheduled(t)
	check(t, len(left)+len(s.counts(t)) == 0, "left are %q, %q", left, s.counts(t))
}

func TestQueueReplays_WritesAllOrNothing(t *testing.T) {
	s := newWebhookEnv(t)
	s.Webhooks.MaxWaiting = 5
	keys := numbered("evt_", 8)
	equal(t, s.replays(t, keys[:3]...), "queued", "three")
	notes := s.noted(t)
	before := s.content(t, s.core.Partitions[0])
	equal(t, s.replays(t, keys[2:6]...), "full", "three more of which one waits")
	check(t, maps.Equal(s.content(t, s.core.Partitions[0]), before), "something was written")
	equal(t, s.replays(t, keys[:5]...), "queued", "two more")
	equal(t, s.replays(t, keys[:5]...), "queued", "those that wait")
	equal(t, s.noted(t)-notes, 2, "notes")
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	before = s.content(t, s.core.Partitions[0])
	equal(t, s.replays(t, keys[:1]...), "no_endpoint", "without a URL")
	check(t, maps.Equal(s.content(t, s.core.Partitions[0]), before), "something was written")
}

// mixture is an env with events of an order and of none, each of which ended in its way.
func mixture(t *testing.T) (s *env, delivered, undelivered, notSent []string) {
	t.Helper()
	s = newWebhookEnv(t)
	_, versions := s.moved(t, "X-1", delivery.Assigned, delivery.PickingUp, delivery.PickedUp)
	notices := s.publish(t, 3)
	delivered, undelivered, notSent = []string{versions[0], notices[0]}, []string{versions[1], notices[1]}, []string{versions[2], notices[2]}
	s.ends(t, partitions.StateDelivered, delivered...)
	s.ends(t, partitions.StateUndelivered, undelivered[0], notSent[0])
	s.ends(t, partitions.StateUndelivered, undelivered[1])
	s.ends(t, partitions.StateNotSent, notSent...) // the last one counts
	s.pass(t, 10*time.Minute)                      // past what Redis has stamped by its own clock meanwhile

	return s, delivered, undelivered, notSent
}

// replayed empties the schedule of the replays that it must hold, in their order.
func (s *env) replayed(t *testing.T, want ...string) {
	t.Helper()
	keys, due := s.scheduled(t)
	check(t, slices.Equal(keys, want), "replayed %q, want %q", keys, want)
	for _, key := range keys {
		check(t, due[key] == 0 && s.counts(t)[key] == fmt.Sprint("0@", s.ms.Load()), "%q is due in %d ms, %q", key, due[key], s.counts(t)[key])
	}
	s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, s.unscheduled(t, keys...)) })
}

func TestReplay_ByEvent(t *testing.T) {
	s, delivered, undelivered, _ := mixture(t)
	ids := []string{s.eventID(undelivered[0]), s.eventID(delivered[0]), s.eventID(undelivered[0]), s.eventID(delivered[1])}
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, ids))(t), 3, "queued") // each once
	s.replayed(t, undelivered[0], delivered[0], delivered[1])
	o := get(s.Orders.Find(t.Context(), s.account, "X-1"))(t)
	for name, id := range map[string]string{
		"nonsense":                     "evt_nonsense",
		"a version that is not there":  delivery.EventID(o.ID, delivery.NextVersion(o.Version, time.Now(), 7)),
		"a creation":                   delivery.EventID(o.ID, delivery.FirstVersion(o.CreatedAt)),
		"a version of another history": delivery.EventID(o.ID, o.Changes[0].Version^1<<8), // differs in a random bit
	} {
		err := errOf(s.Webhooks.ReplayEvents(t.Context(), s.account, []string{ids[0], id}))
		check(t, delivery.CodeOf(err) == delivery.CodeEventNotFound, "%s: %v", name, err)
	}

	stranger := s.beside(t)
	wantCode(t, errOf(s.Webhooks.ReplayEvents(t.Context(), stranger.account, ids[:1])), delivery.CodeEventNotFound)
	wantCode(t, errOf(s.Webhooks.ReplayEvents(t.Context(), stranger.account, ids[3:])), delivery.CodeEventNotFound)
	s.replayed(t)
}

func TestReplay_Since(t *testing.T) {
	s, delivered, undelivered, notSent := mixture(t)
	all := []string{delivered[0], undelivered[0], notSent[0], delivered[1], undelivered[1], notSent[1]}
	s.beside(t).publish(t, 1) // nobody else's
	for since, want := range map[time.Duration][]string{-48 * time.Hour: all, time.Minute: nil} {
		equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(since), nil))(t), len(want), "queued")
		s.replayed(t, want...)
	}

	s.pass(t, 25*time.Hour)
	equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-48*time.Hour), nil))(t), 0, "of more than a day ago")
	none := newAccount(t, s.Ledger, plenty())
	wantCode(t, errOf(s.Webhooks.ReplaySince(t.Context(), none, s.now().Add(-time.Hour), nil)), delivery.CodeWebhookNotConfigured)
}

func TestReplay_ByOutcome(t *testing.T) {
	s, _, undelivered, notSent := mixture(t)
	other := s.beside(t)
	other.ends(t, partitions.StateUndelivered, other.publish(t, 1)...)
	s.exporting(t)
	s.ends(t, partitions.StateRetrying, undelivered[0]) // no end
	replay := func(state string, since time.Time, want ...string) {
		t.Helper()
		equal(t, get(s.Webhooks.ReplayOutcomes(t.Context(), s.account, state, since))(t), len(want), "queued")
		s.replayed(t, want...)
	}

	yesterday := s.now().Add(-23 * time.Hour)
	replay(partitions.StateUndelivered, s.now())
	replay(partitions.StateUndelivered, yesterday, undelivered...)
	replay(partitions.StateNotSent, yesterday, notSent...)
	s.ends(t, partitions.StateDelivered, undelivered[0], notSent[0], notSent[1])
	replay(partitions.StateUndelivered, yesterday, undelivered[1])
	replay(partitions.StateNotSent, yesterday)
	none := newAccount(t, s.Ledger, plenty())
	wantCode(t, errOf(s.Webhooks.ReplayOutcomes(t.Context(), none, partitions.StateNotSent, yesterday)), delivery.CodeWebhookNotConfigured)
}

// One call of the script takes a hundred: the order is that of all.
func TestReplay_KeepsTheOrderOfAll(t *testing.T) {
	s := newWebhookEnv(t)
	keys := s.publish(t, 350)
	s.pass(t, 10*time.Minute)
	equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour), nil))(t), len(keys), "queued")
	got, _ := s.scheduled(t)
	check(t, slices.Equal(got, keys), "%d are scheduled, or in another order", len(got))
}

func TestReplay_NoMoreThanMayWait(t *testing.T) {
	s := newWebhookEnv(t)
	keys := s.publish(t, 8)
	s.pass(t, 10*time.Minute)
	since := s.now().Add(-time.Hour)
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = s.eventID(key)
	}

	s.Webhooks.MaxWaiting = 5
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, ids[:3]))(t), 3, "replayed")
	refusal := wantCode(t, errOf(s.Webhooks.ReplaySince(t.Context(), s.account, since, nil)), delivery.CodeTooManyReplays)
	check(t, refusal.WaitSeconds() == 0 && strings.HasPrefix(refusal.Message, "0 events of this replay were queued"), "%+v", refusal)
	equal(t, get(s.Webhooks.ReplayEvents(t.Context(), s.account, ids[:5]))(t), 5, "replayed") // three of them wait already
	equal(t, s.endpoint(t).Backlog, 5, "events wait")
	other := s.beside(t) // its schedule is its own
	other.publish(t, 1)
	equal(t, get(s.Webhooks.ReplaySince(t.Context(), other.account, since, nil))(t), 1, "replayed of another account")
}

// What waits anyway, however much, keeps no replay out.
func TestReplay_OthersThatWaitDoNotCount(t *testing.T) {
	s := newWebhookEnv(t)
	s.Webhooks.MaxWaiting = 5
	waiting, fresh := numbered("evt_w", 8), numbered("evt_f", 7)
	s.owns(t, func(step *partitions.Step) {
		events := make([]partitions.Scheduled, len(waiting))
		for i, key := range waiting {
			events[i] = partitions.Scheduled{Key: key, Due: s.ms.Load(), Attempts: i % 2}
		}
		step.Schedule(s.account, false, events)
	})

	equal(t, s.replays(t, waiting...), "queued", "what waits anyway")
	equal(t, s.replays(t, fresh[:5]...), "queued", "as many as may")
	equal(t, s.replays(t, fresh[5:6]...), "full", "one more")
	equal(t, s.replays(t, slices.Concat(waiting, fresh[:5])...), "queued", "all that wait")

	// One that failed still waits; one that has left makes room.
	s.owns(t, func(step *partitions.Step) {
		step.Schedule(s.account, false, []partitions.Scheduled{{Key: fresh[0], Due: s.ms.Load(), Attempts: 1, ReplayedAt: s.ms.Load()}})
	})
	s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, s.unscheduled(t, waiting...)) })
	equal(t, s.replays(t, fresh[5:6]...), "full", "beside one that failed")
	s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, s.unscheduled(t, fresh[0])) })
	equal(t, s.replays(t, fresh[5:6]...), "queued", "in the place of one that has left")
	equal(t, s.replays(t, fresh[6:]...), "full", "one more")

	s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, s.unscheduled(t, fresh...)) })
	keys := []string{s.key(core.KindRetries), s.key(core.KindAttempts), s.core.Partitions[0].Replayed(s.account)}
	equal(t, get(s.core.Redis.Exists(t.Context(), keys...).Result())(t), 0, "keys of what waits")
}

// A vendor's replay pays for each page before it is read; who is refused can go on.
func TestReplay_PaysForEachPageBeforeItIsRead(t *testing.T) {
	s := newWebhookEnv(t)
	const events = 2*webhooks.ReplayPage + 500
	keys := s.publish(t, events)
	s.pass(t, 10*time.Minute)
	reads := &countCommands{counts: map[string]int{}}
	s.core.Redis.AddHook(reads)
	stream := "xrange " + s.core.Partitions[0].KeyOf(core.KindAccountEvents, s.account[:])

	paid, limit := 0, 1
	charge := func() error {
		if paid == limit {
			return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: 7 * time.Second, Message: "used up"}
		}
		paid++
		equal(t, reads.of(stream), paid, "pages that were read")
		return nil
	}

	n, err := s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour), charge)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	check(t, n == 2*webhooks.ReplayPage && reads.of(stream) == 2 && refusal.RetryAfter == 7*time.Second, "%d queued, %d pages read: %+v", n, reads.of(stream), refusal)

	_, from, _ := strings.Cut(refusal.Message, "what happened before ")
	from, _, found := strings.Cut(from, " is queued")
	check(t, found, "the message does not say from where to go on: %s", refusal.Message)
	since := get(time.Parse(time.RFC3339, from))(t)
	get(s.Webhooks.ReplaySince(t.Context(), s.account, since, charge))(t)
	got, _ := s.scheduled(t)
	slices.Sort(got)
	slices.Sort(keys)
	check(t, slices.Equal(got, keys), "%d of %d are queued", len(got), len(keys))

	before := reads.of(stream)
	get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour), nil))(t)
	equal(t, reads.of(stream)-before, 3, "pages that an operator reads and does not pay for")
}

// A vendor pays only for pages that have an event.
func TestReplay_PaysForNoPageThatHasNoEvents(t *testing.T) {
	for _, test := range []struct{ events, paid int }{
		{webhooks.ReplayPage, 0},
		{webhooks.ReplayPage + 1, 1},
		{2 * webhooks.ReplayPage, 1},
	} {
		t.Run(strconv.Itoa(test.events), func(t *testing.T) {
			s := newWebhookEnv(t)
			s.publish(t, test.events)
			s.pass(t, 10*time.Minute)
			paid := 0
			charge := func() error {
				paid++
				return nil
			}

			n, err := s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour), charge)
			must(t, err)

			equal(t, n, test.events, "events queued")
			equal(t, paid, test.paid, "pages paid for")
		})
	}
}

// publishInEntries adds entries with several events of an order to the account's stream.
func (s *env) publishInEntries(t *testing.T, entries, perEntry int) {
	t.Helper()
	member := core.OrderMember(s.create(t, "ENTRIES-"+rand.Text()).ID)
	at := s.now()
	for range entries {
		var batch []byte
		for range perEntry {
			batch = append(append(batch, core.EventOrder), member...)
			batch = append(binary.BigEndian.AppendUint64(batch, delivery.ComposeVersion(at, 0, 2)), byte(delivery.StatusReached))
			at = at.Add(time.Millisecond)
		}
		must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key(core.KindAccountEvents), Values: []any{"m", batch}}).Err())
	}
}

// An entry may have the events of a whole turn: a replay pays for them, not for entries.
func TestReplay_PaysForEventsOfLongEntries(t *testing.T) {
	s := newWebhookEnv(t)
	const entries, perEntry = 40, 64
	const events = entries * perEntry
	s.publishInEntries(t, entries, perEntry)
	s.pass(t, 10*time.Minute)
	since := s.now().Add(-time.Hour)

	paid := 0
	charge := func() error {
		if paid == 1 {
			return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: 7 * time.Second, Message: "used up"}
		}
		paid++
		return nil
	}

	n, err := s.Webhooks.ReplaySince(t.Context(), s.account, since, charge)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	equal(t, n, 2*webhooks.ReplayPage, "events queued for one request more")
	check(t, strings.Contains(refusal.Message, "ask for the rest"), "the message does not say from where to go on: %s", refusal.Message)

	equal(t, get(s.Webhooks.ReplaySince(t.Context(), s.account, since, nil))(t), events, "events queued by who does not pay")
}

// Events and entries are not paid for twice: the greater number counts.
func TestReplay_PaysForEventsAndEntriesOnce(t *testing.T) {
	type entries struct{ count, events int } // each entry has as many events
	for _, test := range []struct {
		name   string
		stream []entries
		events int
		paid   int
	}{
		{"two pages with a few more events than entries", []entries{{950, 1}, {50, 2}, {950, 1}, {50, 2}}, 2100, 2},
		{"more than a page of entries with two events", []entries{{1001, 2}}, 2002, 2},
		{"two pages of entries with one event", []entries{{1990, 1}}, 1990, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newWebhookEnv(t)
			for _, e := range test.stream {
				s.publishInEntries(t, e.count, e.events)
			}

			s.pass(t, 10*time.Minute)
			paid := 0
			charge := func() error {
				paid++
				return nil
			}

			n := get(s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour), charge))(t)

			equal(t, n, test.events, "events queued")
			equal(t, paid, test.paid, "further thousands paid for")
		})
	}
}

// However a replay is asked for, the end of its time is no outage, and what is queued is said.
func TestReplay_SaysThatItsTimeIsOver(t *testing.T) {
	s := newWebhookEnv(t)
	outage := fmt.Errorf("%w: the context has ended", delivery.ErrUnavailable)
	full := delivery.Refuse(delivery.CodeTooManyReplays, "full")

	for _, c := range []struct {
		failure error
		code    delivery.Code
	}{
		{outage, delivery.CodeRateLimited},
		{full, delivery.CodeTooManyReplays},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		_, err := s.Webhooks.Replaying(ctx, s.account, func(context.Context) (int, error) {
			end(webhooks.ErrReplayTooLong)
			return 300, c.failure
		})

		refusal := wantCode(t, err, c.code)
		if c.failure == outage {
			check(t, strings.Contains(refusal.Message, "300 events"), "the message does not say what is queued: %s", refusal.Message)
		}
	}
}

// A replay that has run for as long as one may says from where to go on.
func TestReplay_SaysFromWhereToGoOnAfterItsTime(t *testing.T) {
	s := newWebhookEnv(t)
	s.publish(t, webhooks.ReplayPage+1)
	s.pass(t, 10*time.Minute)
	since := s.now().Add(-time.Hour)

	ctx, end := context.WithCancelCause(t.Context())
	isOver := func() error {
		end(webhooks.ErrReplayTooLong)
		return nil
	}

	n, err := s.Webhooks.ReplaySince(ctx, s.account, since, isOver)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	equal(t, n, webhooks.ReplayPage, "events queued")
	check(t, strings.Contains(refusal.Message, "ask for the rest"), "the message does not say from where to go on: %s", refusal.Message)

	atOnce, end := context.WithCancelCause(t.Context())
	end(webhooks.ErrReplayTooLong)
	wantError(t, errOf(s.Webhooks.ReplaySince(atOnce, s.account, since, nil)), delivery.ErrUnavailable)
}

// Only who can have the rest by asking again later learns from where to go on.
func TestReplay_SaysFromWhereToGoOnOnlyWhereThatHelps(t *testing.T) {
	const advice = "is queued: ask for the rest"
	s := newWebhookEnv(t)
	s.publish(t, webhooks.ReplayPage+1)
	s.pass(t, 10*time.Minute)
	since := s.now().Add(-time.Hour)

	s.Webhooks.MaxWaiting = webhooks.ReplayPage
	refusal := wantCode(t, errOf(s.Webhooks.ReplaySince(t.Context(), s.account, since, nil)), delivery.CodeTooManyReplays)
	check(t, strings.Contains(refusal.Message, advice), "when as many wait as may: %s", refusal.Message)

	s.Webhooks.MaxWaiting = webhooks.MostWaiting
	removed := func() error { return s.Webhooks.Delete(t.Context(), s.account) }
	refusal = wantCode(t, errOf(s.Webhooks.ReplaySince(t.Context(), s.account, since, removed)), delivery.CodeWebhookNotConfigured)
	check(t, !strings.Contains(refusal.Message, advice), "without a URL: %s", refusal.Message)
}

func TestReplay_ByOutcomeKeepsNoMoreThanMayWait(t *testing.T) {
	s := newWebhookEnv(t)
	keys := s.publish(t, 8)
	for _, key := range keys {
		s.ends(t, partitions.StateUndelivered, key)
	}

	s.ends(t, partitions.StateDelivered, keys[1])
	s.pass(t, 10*time.Minute)
	s.Webhooks.MaxWaiting = 5
	yesterday := s.now().Add(-23 * time.Hour)
	n, err := s.Webhooks.ReplayOutcomes(t.Context(), s.account, partitions.StateUndelivered, yesterday)
	refusal := wantCode(t, err, delivery.CodeTooManyReplays)
	check(t, n == 5 && strings.HasPrefix(refusal.Message, "5 events of this replay were queued"), "%d queued: %+v", n, refusal)
	s.replayed(t, keys[0], keys[2], keys[3], keys[4], keys[5]) // in the place of the one that was delivered
	s.ends(t, partitions.StateDelivered, keys[:6]...)
	equal(t, get(s.Webhooks.ReplayOutcomes(t.Context(), s.account, partitions.StateUndelivered, yesterday))(t), 2, "the rest")
}

func TestLastOutcomes_KeepsWhatEndedSoLastAndNoMoreThanItMay(t *testing.T) {
	outcomes := webhooks.LastOutcomes{State: partitions.StateUndelivered, Limit: 3, Places: make(map[partitions.Event]int)}
	named := func(i int) partitions.Event { return partitions.Event{Notice: fmt.Sprint(i)} }
	for i := range 10_000 {
		outcomes.Note("1-0", named(i), partitions.StateDelivered)
	}

	equal(t, len(outcomes.Places), 0, "events kept that ended otherwise")

	for _, i := range []int{2, 1, 2, 3} {
		outcomes.Note("2-0", named(i), partitions.StateUndelivered)
	}

	equal(t, outcomes.Skipped, "", "the first that was not kept")
	outcomes.Note("3-0", named(4), partitions.StateUndelivered)
	outcomes.Note("4-0", named(5), partitions.StateUndelivered)
	outcomes.Note("5-0", named(1), partitions.StateDelivered)
	equal(t, outcomes.Skipped, "3-0", "the first that was not kept")
	check(t, slices.Equal(outcomes.Events(), []partitions.Event{named(2), named(3)}), "%v", outcomes.Events())
}

// meanwhile does something once, before a command is sent, the first or one after so many.
type meanwhile struct {
	command string
	after   int
	do      func()
	once    sync.Once
}

func (m *meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }
func (m *meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == m.command {
			m.after--
			if m.after < 0 {
				m.once.Do(m.do)
			}
		}
		return next(ctx, cmd)
	}
}

func TestReplay_OneAtATime(t *testing.T) {
	s, delivered, _, _ := mixture(t)
	other := s.beside(t)
	gateway := openTest(t, sameDatabase(s.Ledger), func(c *core.Config) { c.Now = s.now })
	since := s.now().Add(-time.Hour)
	ids := []string{s.eventID(delivered[0])}
	refused := 0
	s.core.Redis.AddHook(&meanwhile{command: "xrange", do: func() {
		for _, replay := range []func() (int, error){
			func() (int, error) { return gateway.Webhooks.ReplaySince(t.Context(), s.account, since, nil) },
			func() (int, error) { return gateway.Webhooks.ReplayOutcomes(t.Context(), s.account, "notSent", since) },
			func() (int, error) { return gateway.Webhooks.ReplayEvents(t.Context(), s.account, ids) },
		} {
			_, err := replay()
			refusal := wantCode(t, err, delivery.CodeRateLimited)
			check(t, refusal.RetryAfter >= time.Second && refusal.RetryAfter <= time.Minute, "wait %s", refusal.RetryAfter)
			left := get(s.core.Redis.PTTL(t.Context(), s.key(core.KindReplaying)).Result())(t)
			check(t, left <= refusal.RetryAfter && webhooks.ReplayLimit < refusal.RetryAfter, "wait %s, but the replay may last %s, its lease %s", refusal.RetryAfter, webhooks.ReplayLimit, left)
			refused++
		}

		// Other accounts are not kept waiting.
		get(gateway.Webhooks.ReplaySince(t.Context(), other.account, since, nil))(t)
	}})

	n := get(s.Webhooks.ReplaySince(t.Context(), s.account, since, nil))(t)
	check(t, n == 6 && refused == 3 && s.endpoint(t).Backlog == 6, "%d queued, %d refused, %+v", n, refused, s.endpoint(t))
	// It is over when it is over, also one that failed.
	wantCode(t, errOf(gateway.Webhooks.ReplayEvents(t.Context(), s.account, []string{"evt_unknown"})), delivery.CodeEventNotFound)
	get(gateway.Webhooks.ReplayEvents(t.Context(), s.account, ids))(t)
}

func TestReplay_LosesItsEndpoint(t *testing.T) {
	s, delivered, _, _ := mixture(t)
	s.core.Redis.AddHook(&meanwhile{command: "xrange", do: func() { must(t, s.Webhooks.Delete(t.Context(), s.account)) }})
	for _, replay := range []func() (int, error){
		func() (int, error) {
			return s.Webhooks.ReplaySince(t.Context(), s.account, s.now().Add(-time.Hour), nil)
		},
		func() (int, error) {
			return s.Webhooks.ReplayOutcomes(t.Context(), s.account, "undelivered", s.now().Add(-time.Hour))
		},
		func() (int, error) {
			return s.Webhooks.ReplayEvents(t.Context(), s.account, []string{s.eventID(delivered[0])})
		},
	} {
		wantCode(t, errOf(replay()), delivery.CodeWebhookNotConfigured)
	}
}
