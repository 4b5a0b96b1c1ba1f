package ledger

import (
	"context"
	"errors"
	"fmt"
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

// mostWaiting bounds an endpoint's schedule, if replays are to be added: about 20 MB of Redis.
const mostWaiting = 100_000

// replaying runs one replay of an account at a time, for at most replayLimit. RATE_LIMITED
// while another runs.
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
// another's. WEBHOOK_NOT_CONFIGURED; RATE_LIMITED while another runs, or too many wait.
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
				return 0, delivery.Refuse(delivery.CodeEventNotFound, "the account has no event %q, or it is no longer stored", eventID)
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
// reads the account's own stream, so it costs what the account has had. Errors as ReplayEvents.
func (l Webhooks) ReplaySince(ctx context.Context, account delivery.AccountID, since time.Time) (int, error) {
	queued := 0
	own := l.partitionOf(account).keyOf(kindAccountEvents, account[:])
	return l.replayStream(ctx, account, own, since, func(ctx context.Context, page []redis.XMessage) (int, error) {
		events, err := l.eventsOf(ctx, l.partitionOf(account), account, page)
		if err == nil {
			queued, err = l.queueReplays(ctx, account, events, queued)
		}
		return queued, err
	})
}

// ReplayOutcomes queues the events again whose last outcome since a time was state
// ("undelivered" or "notSent"), at most 24 hours back. Errors as ReplayEvents.
func (l Webhooks) ReplayOutcomes(ctx context.Context, account delivery.AccountID, state string, since time.Time) (int, error) {
	r := l.partitionOf(account)
	var order []Event              // as they first ended in a way
	last := make(map[Event]string) // how they ended
	return l.replayStream(ctx, account, r.key(kindOutcomes), since, func(ctx context.Context, page []redis.XMessage) (int, error) {
		for _, message := range page {
			outcomes, err := r.decodeOutcomes(message.Values)
			if err != nil {
				return 0, err
			}
			for _, a := range outcomes {
				if a.Account != account {
					continue
				}
				event, err := parseEvent(r, a.event)
				if err != nil {
					return 0, fmt.Errorf("outcome: %w", err)
				}
				if _, known := last[event]; !known {
					order = append(order, event)
				}
				last[event] = a.State
			}
		}
		if len(page) > 0 {
			return 0, nil
		}
		events := slices.DeleteFunc(order, func(e Event) bool { return last[e] != state })
		return l.queueReplays(ctx, account, events, 0)
	})
}

// replayStream reads a stream from a time until now. The last page is
// empty; its result is returned.
func (l *core) replayStream(ctx context.Context, account delivery.AccountID, stream string, since time.Time, read func(context.Context, []redis.XMessage) (int, error)) (int, error) {
	if _, err := (Webhooks{l}).Endpoint(ctx, account); err != nil {
		return 0, err
	}
	return l.replaying(ctx, account, func(ctx context.Context) (queued int, err error) {
		now := l.now()
		start, end := max(since.UnixMilli(), now.Add(-webhookWindow).UnixMilli()), strconv.FormatInt(now.UnixMilli(), 10)
		err = l.eachPage(ctx, stream, strconv.FormatInt(start, 10), end, func(page []redis.XMessage) error {
			queued, err = read(ctx, page)
			return err
		})
		if err != nil {
			return queued, err
		}
		return read(ctx, nil)
	})
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
		full := &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: time.Minute, Message: fmt.Sprintf(
			"%d events of this replay were queued; no more replayed events may wait until some are sent, "+
				"or given up after 24 hours: mend the receiver, then ask again", queued)}
		_, err := l.runWord(ctx, "queue_replays", refusals{"no_endpoint": webhookNotConfigured(), "full": full},
			[]string{r.keyOf(kindEndpoint, account[:]), r.key(kindNotes)}, args...)
		if err != nil {
			return queued, err
		}
		queued += len(page)
	}
	return queued, nil
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
