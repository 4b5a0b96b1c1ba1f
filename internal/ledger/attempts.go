package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// AttemptRecord is one line of an endpoint's attempt log.
type AttemptRecord struct {
	EventID    string    `json:"eventId"`
	Event      string    `json:"event"`
	OrderID    string    `json:"orderId,omitempty"`
	Attempt    int       `json:"attempt"`
	At         time.Time `json:"at"`
	State      string    `json:"status"` // delivered, retrying, undelivered, notSent
	HTTPStatus int       `json:"httpStatus,omitempty"`
	Error      string    `json:"error,omitempty"`
	Millis     int64     `json:"milliseconds"`
	Answer     string    `json:"answer,omitempty"` // of a failed attempt only
	Replay     bool      `json:"replay,omitempty"`
	NextAt     time.Time `json:"nextAttemptAt,omitzero"`
}

// notSentMark begins a log line that the queueing script wrote itself: when, and
// the event.
const notSentMark = 3

// Attempts is an account's log, newest first; state "" means all. The last 200
// attempts are kept, at most 256 kB.
func (l *Ledger) Attempts(ctx context.Context, account delivery.AccountID, state string) ([]AttemptRecord, error) {
	r := l.roomOf(account)
	lines, err := l.rdb.LRange(ctx, r.keyOf(kindAttemptLog, account[:]), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the attempt log: %w", failure(err))
	}
	records := make([]AttemptRecord, 0, len(lines))
	for _, line := range lines {
		record, err := decodeAttempt(r, line)
		if err != nil {
			return nil, err
		}
		if state == "" || record.State == state {
			records = append(records, record)
		}
	}
	return records, nil
}

func decodeAttempt(r room, line string) (record AttemptRecord, err error) {
	if line == "" || line[0] != notSentMark {
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return record, fmt.Errorf("attempt log: %w", err)
		}
		return record, nil
	}
	f := fields{rest: line[1:]}
	record.At, record.State = timeOf(int64(f.uint64())), "notSent"
	record.Error = "no webhook URL was registered"
	event, err := parseEvent(r, f.rest)
	if err != nil {
		return record, fmt.Errorf("attempt log: %w", err)
	}
	if event.Notice != "" {
		record.EventID = event.Notice
		return record, nil
	}
	record.EventID, record.OrderID = delivery.EventID(event.Order, event.Version), event.Order.String()
	record.Event = string(delivery.StatusChanged)
	return record, nil
}

// ReplayEvents queues events of the account again, under their own ids.
// EVENT_NOT_FOUND names the first that is unknown, no longer stored, or another
// account's; then none is queued. WEBHOOK_NOT_CONFIGURED.
func (l *Ledger) ReplayEvents(ctx context.Context, account delivery.AccountID, eventIDs []string) (int, error) {
	items := make([]any, 0, len(eventIDs))
	now := time.Now()
	for _, eventID := range eventIDs {
		item, err := l.replayable(ctx, account, eventID, now)
		if err != nil {
			return 0, err
		}
		if item == nil {
			return 0, delivery.Refuse(delivery.CodeEventNotFound, "the account has no event %q, or it is no longer stored", eventID)
		}
		items = append(items, item)
	}
	return len(items), l.queueReplays(ctx, account, items)
}

// replayable is the queue item for an event of the account, nil when there is
// no such event.
func (l *Ledger) replayable(ctx context.Context, account delivery.AccountID, eventID string, now time.Time) ([]byte, error) {
	if id, version, err := delivery.ParseEventID(eventID); err == nil {
		found, err := l.Orders(ctx, []delivery.OrderID{id})
		if err != nil || found[0] == nil || found[0].Account != account {
			return nil, err
		}
		if change, ok := found[0].At(version); !ok || change.Version != version {
			return nil, nil
		}
		return replayItem(id, delivery.Sequence(version), now), nil
	}
	n, err := l.notice(ctx, l.roomOf(account), eventID)
	if err != nil || n == nil || n.Account != account {
		return nil, err
	}
	return append([]byte{eventNotice}, eventID...), nil
}

// ReplaySince queues every event of the account since a time again, in the order
// in which they happened; at most 24 hours back, as far as the streams reach. It
// reads its partition's stream, so it costs what all accounts there have done.
// WEBHOOK_NOT_CONFIGURED.
func (l *Ledger) ReplaySince(ctx context.Context, account delivery.AccountID, since time.Time) (int, error) {
	r := l.roomOf(account)
	now := time.Now()
	from := max(since.UnixMilli(), now.Add(-webhookWindow).UnixMilli())
	start, queued := fmt.Sprintf("%d-0", from), 0
	for {
		page, err := l.rdb.XRangeN(ctx, r.key(kindEvents), start, "+", 1000).Result()
		if err != nil {
			return queued, fmt.Errorf("reading events: %w", failure(err))
		}
		if len(page) == 0 {
			return queued, nil
		}
		items, err := l.replayPage(ctx, r, account, page, now)
		if err != nil {
			return queued, err
		}
		if err := l.queueReplays(ctx, account, items); err != nil {
			return queued, err
		}
		queued += len(items)
		start = "(" + page[len(page)-1].ID
	}
}

func (l *Ledger) replayPage(ctx context.Context, r room, account delivery.AccountID, page []redis.XMessage, now time.Time) ([]any, error) {
	events := make([]Event, 0, len(page))
	pipe := l.rdb.Pipeline()
	owners := make([]*redis.StringCmd, 0, len(page))
	for _, message := range page {
		text, _ := message.Values["e"].(string)
		event, err := parseEvent(r, text)
		if err != nil || (event.Notice == "" && delivery.Sequence(event.Version) < 2) {
			continue
		}
		events = append(events, event)
		if event.Notice != "" {
			owners = append(owners, pipe.GetRange(ctx, r.keyOf(kindNotice, []byte(event.Notice)), 1, 16))
		} else {
			owners = append(owners, pipe.GetRange(ctx, r.order(event.Order.Digest()), orderAccountAt, orderAccountAt+15))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("reading the owners of events: %w", failure(err))
	}
	var items []any
	for i, event := range events {
		if owners[i].Val() != string(account[:]) {
			continue
		}
		if event.Notice != "" {
			items = append(items, append([]byte{eventNotice}, event.Notice...))
		} else {
			items = append(items, replayItem(event.Order, delivery.Sequence(event.Version), now))
		}
	}
	return items, nil
}
