package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// A replay ends before its lease does, so who is refused because of it, and waits as long as
// the lease lasts, is not refused because of the same replay again.
const (
	ReplayLimit = 50 * time.Second
	ReplayLease = time.Minute // also how long a dead replay blocks others of its account
)

// MostWaiting bounds the replayed events that wait for one endpoint: about 30 MB of Redis. Others
// that wait, such as those of a receiver that was away for long, do not count: they are there
// whether somebody replays or not.
const MostWaiting = 100_000

const (
	// ReplayPage is how many entries of a stream a replay reads at once, and for how many events,
	// or entries, a vendor's replay pays with one request.
	ReplayPage = 1000
	// replayBatch is how many events one script queues, so that others wait for it only briefly.
	replayBatch = 100
)

// ErrReplayTooLong is the cause that ends a replay's context after replayLimit.
var ErrReplayTooLong = errors.New("a replay ends after 50 seconds")

// Replaying runs one replay of an account at a time, for at most replayLimit. RATE_LIMITED
// while another runs, and when the time is over; then what replay returns as queued is queued.
// Nothing else ends it: the HTTP server says of no client that it is gone, so a replay whose client
// is gone goes on until its limit, or until nothing pays for a page.
func (l *Webhooks) Replaying(ctx context.Context, account delivery.AccountID, replay func(context.Context) (int, error)) (int, error) {
	limited, cancel := context.WithTimeoutCause(ctx, ReplayLimit, ErrReplayTooLong)
	defer cancel()

	lease := l.core.PartitionOf(account).KeyOf(core.KindReplaying, account[:])
	free, err := l.core.Redis.SetNX(ctx, lease, 1, ReplayLease).Result()
	if err != nil {
		return 0, core.Failed("beginning a replay", err)
	}

	if !free {
		return 0, &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: ReplayLease,
			Message: "another replay of this account is in progress"}
	}

	defer l.core.Redis.Del(context.WithoutCancel(ctx), lease)

	queued, err := replay(limited)
	timeIsOver := errors.Is(context.Cause(limited), ErrReplayTooLong)
	if timeIsOver && errors.Is(err, delivery.ErrUnavailable) {
		err = &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: time.Second,
			Message: fmt.Sprintf("%v; %d events of this one are queued", ErrReplayTooLong, queued)}
	}

	return queued, err
}

// ReplayEvents queues events again, each once, under their own ids, and returns how many;
// none after EVENT_NOT_FOUND, which names the first that is unknown, no longer stored or
// another's. WEBHOOK_NOT_CONFIGURED; RATE_LIMITED while another runs; TOO_MANY_REPLAYS when as many
// wait as may.
func (l *Webhooks) ReplayEvents(ctx context.Context, account delivery.AccountID, eventIDs []string) (int, error) {
	return l.Replaying(ctx, account, func(ctx context.Context) (int, error) {
		events := make([]partitions.Event, 0, len(eventIDs))
		for i, eventID := range eventIDs {
			if slices.Contains(eventIDs[:i], eventID) {
				continue
			}

			event, err := l.replayable(ctx, account, eventID)
			if err != nil {
				return 0, err
			}

			if event == (partitions.Event{}) {
				return 0, delivery.Refuse(delivery.CodeEventNotFound, "the account has no event %.100q, or it is no longer stored", eventID)
			}

			events = append(events, event)
		}

		return l.QueueReplays(ctx, account, events, 0)
	})
}

// replayable is an event of the account; zero: it has no such event.
func (l *Webhooks) replayable(ctx context.Context, account delivery.AccountID, eventID string) (partitions.Event, error) {
	if id, version, err := delivery.ParseEventID(eventID); err == nil {
		found, err := l.orders.GetAll(ctx, []delivery.OrderID{id})
		if err != nil || found[0] == nil || found[0].Account != account {
			return partitions.Event{}, err
		}

		change, ok := found[0].At(version)
		event := partitions.Event{Order: id, Version: version, Kind: change.Kind}
		if !ok || change.Version != version || !event.IsSent() {
			return partitions.Event{}, nil
		}

		return event, nil
	}

	record, err := l.core.Redis.Get(ctx, l.core.PartitionOf(account).KeyOf(core.KindNotice, []byte(eventID))).Result()
	if errors.Is(err, redis.Nil) {
		return partitions.Event{}, nil
	}

	if err != nil {
		return partitions.Event{}, core.Failed("reading a notice", err)
	}

	if n, err := accounts.DecodeNotice(record); err != nil || n.Account != account {
		return partitions.Event{}, err
	}

	return partitions.Event{Notice: eventID}, nil
}

// ReplaySince queues all events since a time again, in order, at most 24 hours back. It reads the
// account's own stream, so it costs what the account has had. charge is called before each further
// thousand events, or entries of the stream if these are more, and its error ends the replay; nil:
// nobody pays. Errors as ReplayEvents; a refusal says how far the replay has come, and from where to
// go on.
func (l *Webhooks) ReplaySince(ctx context.Context, account delivery.AccountID, since time.Time, charge func() error) (int, error) {
	if charge == nil {
		charge = func() error { return nil }
	}

	stream := l.core.PartitionOf(account).KeyOf(core.KindAccountEvents, account[:])
	replay := replaySince{Webhooks: l, account: account, charge: charge}
	queued, err := l.replayWithURL(ctx, account, func(ctx context.Context) (int, error) {
		start, end, err := l.replayRange(ctx, l.core.PartitionOf(account), since)
		if err != nil {
			return 0, err
		}

		err = l.eachReplayPage(ctx, stream, start, end, replay.payForPage, func(page []redis.XMessage) error {
			return replay.queuePage(ctx, page)
		})
		return replay.queued, err
	})

	return queued, unfinished(err, replay.reached)
}

// replaySince is a replay in progress of all events since a time.
type replaySince struct {
	*Webhooks
	account delivery.AccountID
	charge  func() error

	pages, events int // that were read
	charged       int // how often charge was called
	queued        int
	reached       time.Time // what happened before is queued; zero: nothing is
}

// payFor pays until n events, or n entries, are paid for. The request itself pays for the first
// thousand of both.
func (r *replaySince) payFor(n int) error {
	for n > (1+r.charged)*ReplayPage {
		if err := r.charge(); err != nil {
			return err
		}
		r.charged++
	}
	return nil
}

// payForPage pays for one more page of the stream.
func (r *replaySince) payForPage() error { return r.payFor((r.pages + 1) * ReplayPage) }

// queuePage queues the account's events of a page of its stream. An entry has as many events as a
// worker wrote at once, so a page may have many thousands, which are paid for, too.
func (r *replaySince) queuePage(ctx context.Context, page []redis.XMessage) error {
	inPartition := r.core.PartitionOf(r.account)
	r.pages++
	for batch := range slices.Chunk(replayableOf(inPartition, page), replayBatch) {
		if err := r.payFor(r.events + 1); err != nil {
			return err
		}

		r.events += len(batch)

		events, err := r.ownEvents(ctx, inPartition, r.account, batch)
		if err != nil {
			return err
		}
		r.queued, err = r.QueueReplays(ctx, r.account, events, r.queued)
		if err != nil {
			return err
		}

		r.reached = batch[len(batch)-1].at
	}

	return nil
}

// unfinished returns the error of a replay that has queued the events before reached, which is
// zero if it has queued none. If the rest can be queued by asking again later, the message says
// with which time, so that no event that was queued and sent is queued a second time. Other errors
// are returned as they are: the time would not help without a URL, for example.
func unfinished(err error, reached time.Time) error {
	refusal, ok := errors.AsType[*delivery.Error](err)
	if !ok || reached.IsZero() {
		return err
	}

	laterHelps := refusal.Code == delivery.CodeRateLimited || refusal.Code == delivery.CodeTooManyReplays
	if !laterHelps {
		return err
	}

	explained := *refusal
	explained.Message += "; what happened before " + delivery.FormatTime(reached) + " is queued: ask for the rest with that time as since"

	return &explained
}

// ReplayOutcomes queues the events again whose last outcome since a time was state
// ("undelivered" or "notSent"), at most 24 hours back. Errors as ReplayEvents. It reads the
// outcomes of the whole partition page by page, and keeps of them no more events than may wait.
func (l *Webhooks) ReplayOutcomes(ctx context.Context, account delivery.AccountID, state string, since time.Time) (int, error) {
	return l.replayWithURL(ctx, account, func(ctx context.Context) (int, error) {
		outcomes := LastOutcomes{State: state, Limit: l.MaxWaiting, Places: make(map[partitions.Event]int)}
		start, end, err := l.replayRange(ctx, l.core.PartitionOf(account), since)
		if err != nil {
			return 0, err
		}

		for {
			outcomes.Skipped = ""
			if err := l.noteOutcomes(ctx, account, start, end, &outcomes); err != nil {
				return 0, err
			}

			// Some of those that were kept may have made room since, by ending in another way.
			if outcomes.Skipped == "" || outcomes.Skipped == start || len(outcomes.Places) == outcomes.Limit {
				break
			}

			start = outcomes.Skipped
		}

		queued, err := l.QueueReplays(ctx, account, outcomes.Events(), 0)
		if err == nil && outcomes.Skipped != "" {
			err = tooManyReplays(queued)
		}

		return queued, err
	})
}

// noteOutcomes adds to last the outcomes of the account's events that stand between two ids of the
// partition's stream.
func (l *Webhooks) noteOutcomes(ctx context.Context, account delivery.AccountID, start, end string, last *LastOutcomes) error {
	r := l.core.PartitionOf(account)
	return l.eachReplayPage(ctx, r.Key(core.KindOutcomes), start, end, nil, func(page []redis.XMessage) error {
		for _, message := range page {
			outcomes, err := partitions.DecodeOutcomes(r, message.Values)
			if err != nil {
				return err
			}

			for _, outcome := range outcomes {
				if outcome.Account != account {
					continue
				}
				event, err := partitions.ParseEvent(r, outcome.Subject)
				if err != nil {
					return fmt.Errorf("outcome: %w", err)
				}
				last.Note(message.ID, event, outcome.State)
			}
		}

		return nil
	})
}

// LastOutcomes collects the events whose last outcome is a given state, from outcomes that are noted
// in the order in which they happened.
type LastOutcomes struct {
	State string
	Limit int // the most events that are kept

	Places map[partitions.Event]int // place of each kept event in the order in which they got the state
	next   int                      // place of the next one

	// Skipped is the stream's entry with the first event that was not kept because there were limit
	// already; empty if all were kept.
	Skipped string
}

// Note takes one outcome of an event, which stands in an entry of the stream. An event that has
// ended in another state since then is not kept any more, and makes room.
func (o *LastOutcomes) Note(entry string, event partitions.Event, state string) {
	_, kept := o.Places[event]
	switch {
	case state != o.State:
		delete(o.Places, event)
	case kept:
	case len(o.Places) < o.Limit:
		o.Places[event] = o.next
		o.next++
	case o.Skipped == "":
		o.Skipped = entry
	}
}

// Events returns the kept events in the order in which they got the state.
func (o *LastOutcomes) Events() []partitions.Event {
	return slices.SortedFunc(maps.Keys(o.Places), func(a, b partitions.Event) int { return cmp.Compare(o.Places[a], o.Places[b]) })
}

// replayWithURL runs a replay as replaying does, if the account has a URL. Otherwise it returns
// WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) replayWithURL(ctx context.Context, account delivery.AccountID, replay func(context.Context) (int, error)) (int, error) {
	if _, err := l.Endpoint(ctx, account); err != nil {
		return 0, err
	}
	return l.Replaying(ctx, account, replay)
}

// replayRange are the ids of a partition's entries from a time, but at most 24 hours back, until now. Its
// server's clock, which made the ids, says what now is.
func (l *Webhooks) replayRange(ctx context.Context, r core.Partition, since time.Time) (start, end string, err error) {
	now, err := l.core.TimeOf(ctx, r)
	if err != nil {
		return "", "", err
	}
	first := max(since.UnixMilli(), now.Add(-partitions.WebhookWindow).UnixMilli())
	return strconv.FormatInt(first, 10), strconv.FormatInt(now.UnixMilli(), 10), nil
}

// eachReplayPage calls do for each page of a stream's entries between two ids. A page has 1 to
// replayPage entries; if there are no entries, do is not called. Before each page but the first it
// calls charge, unless that is nil. It stops at the first error of do or charge and returns it.
//
// It reads one more entry than a page has, so that charge is called only if another page follows.
func (l *Webhooks) eachReplayPage(ctx context.Context, stream, start, end string, charge func() error, do func([]redis.XMessage) error) error {
	for {
		entries, err := l.core.Redis.XRangeN(ctx, stream, start, end, ReplayPage+1).Result()
		if err != nil {
			return core.Failed("reading a stream", err)
		}

		if len(entries) == 0 {
			return nil
		}

		page := entries[:min(len(entries), ReplayPage)]
		if err := do(page); err != nil {
			return err
		}
		if len(entries) == len(page) {
			return nil
		}

		start = entries[ReplayPage].ID
		if charge == nil {
			continue
		}
		if err := charge(); err != nil {
			return err
		}
	}
}

// withoutMuted leaves out the events of types that are turned off for the account.
func (l *Webhooks) withoutMuted(ctx context.Context, account delivery.AccountID, events []partitions.Event) ([]partitions.Event, error) {
	text, err := l.core.Redis.HGet(ctx, l.core.PartitionOf(account).Account(account), core.MutedField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, core.Failed("reading which events are muted", err)
	}

	muted := core.DecodeMuted(text)
	return slices.DeleteFunc(events, func(e partitions.Event) bool {
		return e.Notice == "" && slices.Contains(muted, e.Kind.EventType())
	}), nil
}

// QueueReplays puts events into an endpoint's schedule, unless they wait already or are muted, each with
// a new window of 24 h, and returns queued plus their number.
func (l *Webhooks) QueueReplays(ctx context.Context, account delivery.AccountID, events []partitions.Event, queued int) (int, error) {
	r := l.core.PartitionOf(account)
	events, err := l.withoutMuted(ctx, account, events)
	if err != nil {
		return queued, err
	}

	for page := range slices.Chunk(events, replayBatch) {
		args := []any{r.Prefix, account[:], l.MaxWaiting, queued}
		for i := range page {
			args = append(args, page[i].Key())
		}

		refused := core.Refusals{"no_endpoint": webhookNotConfigured(), "full": tooManyReplays(queued)}
		_, err := l.core.RunWord(ctx, "queue_replays", refused, []string{r.KeyOf(core.KindEndpoint, account[:]), r.Key(core.KindNotes)}, args...)
		if err != nil {
			return queued, err
		}

		queued += len(page)
	}

	return queued, nil
}

// tooManyReplays has no time to wait: when there is room depends on the receiver.
func tooManyReplays(queued int) error {
	return delivery.Refuse(delivery.CodeTooManyReplays, "%d events of this replay were queued; no more replayed events may wait until some are sent, "+
		"or given up after 24 hours: fix the receiver, then ask again", queued)
}

// entryEvent is an event of a stream's entry and when the entry was written.
type entryEvent struct {
	partitions.Event
	at time.Time
}

// replayableOf returns the events on a page of an account's stream that webhooks tell of, without
// entries that cannot be read.
func replayableOf(r core.Partition, page []redis.XMessage) []entryEvent {
	events := make([]entryEvent, 0, len(page))
	for _, message := range page {
		var e partitions.Entry
		if e.Read(r, message.Values) != nil {
			continue
		}

		for _, event := range e.Events {
			if event.IsSent() {
				events = append(events, entryEvent{event, core.TimeOfEntry(message.ID)})
			}
		}
	}

	return events
}

// ownEvents returns those of the events whose order or notice is still stored as the account's.
func (l *Webhooks) ownEvents(ctx context.Context, r core.Partition, account delivery.AccountID, events []entryEvent) ([]partitions.Event, error) {
	// The account of an expired or retired order is empty.
	owners, err := core.Pipelined(ctx, l.core.Redis, "reading the owners of events", events, func(pipe redis.Pipeliner, event entryEvent) func() string {
		if event.Notice != "" {
			return pipe.GetRange(ctx, r.KeyOf(core.KindNotice, []byte(event.Notice)), 1, 16).Val
		}
		return pipe.GetRange(ctx, r.Order(event.Order.Digest()), core.OrderAccountAt, core.OrderAccountAt+15).Val
	})
	if err != nil {
		return nil, err
	}

	own := make([]partitions.Event, 0, len(events))
	for i, owner := range owners {
		if owner == string(account[:]) {
			own = append(own, events[i].Event)
		}
	}

	return own, nil
}
