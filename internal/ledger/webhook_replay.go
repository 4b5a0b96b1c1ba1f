package ledger

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
)

// A replay ends before its lease does, so who is refused because of it, and waits as long as
// the lease lasts, is not refused because of the same replay again.
const (
	replayLimit = 50 * time.Second
	replayLease = time.Minute // also how long a dead replay blocks others of its account
)

// mostWaiting bounds the replayed events that wait for one endpoint: about 30 MB of Redis. Others
// that wait, such as those of a receiver that was away for long, do not count: they are there
// whether somebody replays or not.
const mostWaiting = 100_000

// replayPage is how many entries of a stream a replay queues at once, and a vendor's pays for with
// one request.
const replayPage = 1000

// replaying runs one replay of an account at a time, for at most replayLimit. RATE_LIMITED
// while another runs. Nothing else ends it: the HTTP server says of no client that it is gone,
// so a replay whose client is gone goes on until its limit, or until nothing pays for a page.
func (l *core) replaying(ctx context.Context, account delivery.AccountID, replay func(context.Context) (int, error)) (int, error) {
	limited, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()

	lease := l.partitionOf(account).keyOf(kindReplaying, account[:])
	free, err := l.rdb.SetNX(ctx, lease, 1, replayLease).Result()
	if err != nil {
		return 0, failed("beginning a replay", err)
	}
	if !free {
		return 0, &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: replayLease,
			Message: "another replay of this account is in progress"}
	}
	defer l.rdb.Del(context.WithoutCancel(ctx), lease)
	return replay(limited)
}

// ReplayEvents queues events again, each once, under their own ids, and returns how many;
// none after EVENT_NOT_FOUND, which names the first that is unknown, no longer stored or
// another's. WEBHOOK_NOT_CONFIGURED; RATE_LIMITED while another runs; TOO_MANY_REPLAYS when as many
// wait as may.
func (l Webhooks) ReplayEvents(ctx context.Context, account delivery.AccountID, eventIDs []string) (int, error) {
	return l.replaying(ctx, account, func(ctx context.Context) (int, error) {
		events := make([]Event, 0, len(eventIDs))
		for i, eventID := range eventIDs {
			if slices.Contains(eventIDs[:i], eventID) {
				continue
			}
			event, err := l.replayable(ctx, account, eventID)
			if err != nil {
				return 0, err
			}
			if event == (Event{}) {
				return 0, delivery.Refuse(delivery.CodeEventNotFound, "the account has no event %.100q, or it is no longer stored", eventID)
			}
			events = append(events, event)
		}
		return l.queueReplays(ctx, account, events, 0)
	})
}

// replayable is an event of the account; zero: it has no such event.
func (l *core) replayable(ctx context.Context, account delivery.AccountID, eventID string) (Event, error) {
	if id, version, err := delivery.ParseEventID(eventID); err == nil {
		found, err := (Orders{l}).GetAll(ctx, []delivery.OrderID{id})
		if err != nil || found[0] == nil || found[0].Account != account {
			return Event{}, err
		}
		if change, ok := found[0].At(version); !ok || change.Version != version {
			return Event{}, nil
		}
		return Event{Order: id, Version: version}, nil
	}
	record, err := l.rdb.Get(ctx, l.partitionOf(account).keyOf(kindNotice, []byte(eventID))).Result()
	if errors.Is(err, redis.Nil) {
		return Event{}, nil
	}
	if err != nil {
		return Event{}, failed("reading a notice", err)
	}
	if n, err := decodeNotice(record); err != nil || n.Account != account {
		return Event{}, err
	}
	return Event{Notice: eventID}, nil
}

// key names an event in a schedule.
func (e *Event) key() string {
	if e.Notice != "" {
		return noticeKey(e.Notice)
	}
	return versionKey(e.Order, e.Version)
}

// ReplaySince queues all events since a time again, in order, at most 24 hours back. It
// reads the account's own stream, so it costs what the account has had. charge pays for each page
// of it but the first, before it is read, and its error ends the replay; nil: nobody pays. Errors
// as ReplayEvents; a refusal says how far the replay has come, and from where to go on.
func (l Webhooks) ReplaySince(ctx context.Context, account delivery.AccountID, since time.Time, charge func() error) (int, error) {
	r := l.partitionOf(account)
	stream := r.keyOf(kindAccountEvents, account[:])
	return l.replayWithURL(ctx, account, func(ctx context.Context) (int, error) {
		queued := 0
		var reached time.Time // what happened before is queued; zero: no page is
		start, end := l.replayRange(since)
		err := l.eachReplayPage(ctx, stream, start, end, charge, func(page []redis.XMessage) error {
			events, err := l.eventsOf(ctx, r, account, page)
			if err != nil {
				return err
			}
			queued, err = l.queueReplays(ctx, account, events, queued)
			if err != nil {
				return err
			}
			reached = timeOfEntry(page[len(page)-1].ID)
			return nil
		})
		return queued, unfinished(err, reached)
	})
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
func (l Webhooks) ReplayOutcomes(ctx context.Context, account delivery.AccountID, state string, since time.Time) (int, error) {
	return l.replayWithURL(ctx, account, func(ctx context.Context) (int, error) {
		outcomes := lastOutcomes{state: state, limit: l.mostWaiting, places: make(map[Event]int)}
		start, end := l.replayRange(since)
		for {
			outcomes.skipped = ""
			if err := l.noteOutcomes(ctx, account, start, end, &outcomes); err != nil {
				return 0, err
			}
			// Some of those that were kept may have made room since, by ending in another way.
			if outcomes.skipped == "" || outcomes.skipped == start || len(outcomes.places) == outcomes.limit {
				break
			}
			start = outcomes.skipped
		}

		queued, err := l.queueReplays(ctx, account, outcomes.events(), 0)
		if err == nil && outcomes.skipped != "" {
			err = tooManyReplays(queued)
		}
		return queued, err
	})
}

// noteOutcomes adds to last the outcomes of the account's events that stand between two ids of the
// partition's stream.
func (l *core) noteOutcomes(ctx context.Context, account delivery.AccountID, start, end string, last *lastOutcomes) error {
	r := l.partitionOf(account)
	return l.eachReplayPage(ctx, r.key(kindOutcomes), start, end, nil, func(page []redis.XMessage) error {
		for _, message := range page {
			outcomes, err := r.decodeOutcomes(message.Values)
			if err != nil {
				return err
			}
			for _, outcome := range outcomes {
				if outcome.Account != account {
					continue
				}
				event, err := parseEvent(r, outcome.event)
				if err != nil {
					return fmt.Errorf("outcome: %w", err)
				}
				last.note(message.ID, event, outcome.State)
			}
		}
		return nil
	})
}

// lastOutcomes collects the events whose last outcome is a given state, from outcomes that are noted
// in the order in which they happened.
type lastOutcomes struct {
	state string
	limit int // the most events that are kept

	places map[Event]int // place of each kept event in the order in which they got the state
	next   int           // place of the next one

	// skipped is the stream's entry with the first event that was not kept because there were limit
	// already; empty if all were kept.
	skipped string
}

// note takes one outcome of an event, which stands in an entry of the stream. An event that has
// ended in another state since then is not kept any more, and makes room.
func (o *lastOutcomes) note(entry string, event Event, state string) {
	_, kept := o.places[event]
	switch {
	case state != o.state:
		delete(o.places, event)
	case kept:
	case len(o.places) < o.limit:
		o.places[event] = o.next
		o.next++
	case o.skipped == "":
		o.skipped = entry
	}
}

// events returns the kept events in the order in which they got the state.
func (o *lastOutcomes) events() []Event {
	return slices.SortedFunc(maps.Keys(o.places), func(a, b Event) int { return cmp.Compare(o.places[a], o.places[b]) })
}

// replayWithURL runs a replay as replaying does, if the account has a URL. Otherwise it returns
// WEBHOOK_NOT_CONFIGURED.
func (l *core) replayWithURL(ctx context.Context, account delivery.AccountID, replay func(context.Context) (int, error)) (int, error) {
	if _, err := (Webhooks{l}).Endpoint(ctx, account); err != nil {
		return 0, err
	}
	return l.replaying(ctx, account, replay)
}

// replayRange are the ids of a stream's entries from a time, but at most 24 hours back, until now.
func (l *core) replayRange(since time.Time) (start, end string) {
	now := l.now()
	first := max(since.UnixMilli(), now.Add(-webhookWindow).UnixMilli())
	return strconv.FormatInt(first, 10), strconv.FormatInt(now.UnixMilli(), 10)
}

// eachReplayPage calls do for each page of a stream's entries between two ids. A page has 1 to
// replayPage entries; if there are no entries, do is not called. Before each page but the first it
// calls charge, unless that is nil. It stops at the first error of do or charge and returns it.
//
// It reads one more entry than a page has, so that charge is called only if another page follows.
func (l *core) eachReplayPage(ctx context.Context, stream, start, end string, charge func() error, do func([]redis.XMessage) error) error {
	for {
		entries, err := l.rdb.XRangeN(ctx, stream, start, end, replayPage+1).Result()
		if err != nil {
			return failed("reading a stream", err)
		}
		if len(entries) == 0 {
			return nil
		}

		page := entries[:min(len(entries), replayPage)]
		if err := do(page); err != nil {
			return err
		}
		if len(entries) == len(page) {
			return nil
		}

		start = entries[replayPage].ID
		if charge == nil {
			continue
		}
		if err := charge(); err != nil {
			return err
		}
	}
}

// queueReplays puts events into an endpoint's schedule, unless they wait already, each with a new
// window of 24 h, and returns queued plus their number.
func (l *core) queueReplays(ctx context.Context, account delivery.AccountID, events []Event, queued int) (int, error) {
	r := l.partitionOf(account)
	for page := range slices.Chunk(events, 100) { // each is looked up: others wait for one script, not for the day
		args := []any{r.prefix, account[:], l.mostWaiting, queued}
		for i := range page {
			args = append(args, page[i].key())
		}
		refused := refusals{"no_endpoint": webhookNotConfigured(), "full": tooManyReplays(queued)}
		_, err := l.runWord(ctx, "queue_replays", refused, []string{r.keyOf(kindEndpoint, account[:]), r.key(kindNotes)}, args...)
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

// eventsOf are the account's events on a page of the stream, without creations.
func (l *core) eventsOf(ctx context.Context, r partition, account delivery.AccountID, page []redis.XMessage) ([]Event, error) {
	events := make([]Event, 0, len(page))
	for _, message := range page {
		var e Entry
		if e.read(r, message.Values) != nil {
			continue
		}
		for _, event := range e.Events {
			if event.Notice != "" || delivery.Sequence(event.Version) >= 2 {
				events = append(events, event)
			}
		}
	}
	// The account of an expired or retired one is empty.
	accounts, err := pipelined(ctx, l.rdb, "reading the owners of events", events, func(pipe redis.Pipeliner, event Event) func() string {
		if event.Notice != "" {
			return pipe.GetRange(ctx, r.keyOf(kindNotice, []byte(event.Notice)), 1, 16).Val
		}
		return pipe.GetRange(ctx, r.order(event.Order.Digest()), orderAccountAt, orderAccountAt+15).Val
	})
	kept := events[:0]
	for i, of := range accounts {
		if of == string(account[:]) {
			kept = append(kept, events[i])
		}
	}
	return kept, err
}
