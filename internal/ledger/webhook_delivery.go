package ledger

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// webhookWindow is how long an event may be delivered (spec, "Delivery rules",
// 2): an absolute deadline, counted from when it happened.
const webhookWindow = 24 * time.Hour

// Delivery is one attempt handed to this process.
type Delivery struct {
	Account    delivery.AccountID
	EventID    string
	Type       delivery.EventType
	OccurredAt time.Time
	Deadline   time.Time       // not to be sent after this
	Attempt    int             // 1 for the first
	Order      *delivery.Order // of an order's event: render its Version
	Version    uint64
	Data       []byte // of a notice
	Receiver   *Receiver
	Replay     bool
	// Probe: sent ahead of the event's schedule to see whether the receiver is
	// back. It is no attempt of the event's own: when it fails, the event keeps
	// its place in the schedule and its number of attempts.
	Probe bool
	// Ping: a webhook.test event that stands in no queue, made to probe a
	// receiver for which nothing waits. It is sent once.
	Ping bool

	partition partition
	item      string    // as it stands in the queue
	token     string    // the lease
	version   string    // of the receiver, when it was leased
	due       time.Time // of a probe: its event's place in the schedule
}

// complete reads what the leased events are about. What cannot be sent, because
// the endpoint, the order or the notice is gone, is settled here.
func (l *core) complete(ctx context.Context, r partition, leased []*Delivery) ([]*Delivery, error) {
	if len(leased) == 0 {
		return nil, nil
	}
	pipe := l.rdb.Pipeline()
	stale := make(map[delivery.AccountID]*redis.MapStringStringCmd)
	records := make([]*redis.StringCmd, len(leased))
	for i, d := range leased {
		if d.Receiver = l.receivers.known(d.Account, d.version); d.Receiver == nil && stale[d.Account] == nil {
			stale[d.Account] = pipe.HGetAll(ctx, r.keyOf(kindEndpoint, d.Account[:]))
		}
		records[i] = d.read(ctx, pipe)
	}
	if pipe.Len() > 0 {
		cmds, _ := pipe.Exec(ctx) // each command carries its own error
		for _, cmd := range cmds {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return nil, fmt.Errorf("reading leased events: %w", failure(err))
			}
		}
	}
	read := make(map[delivery.AccountID]*Receiver, len(stale))
	for account, values := range stale {
		receiver, err := l.receivers.learn(l, account, values.Val())
		if err != nil {
			// Its events wait for the missing key; the others go on.
			l.log.Error("webhook endpoint cannot be read", "account", account, "error", err)
		}
		read[account] = receiver
	}
	for _, d := range leased {
		if d.Receiver == nil {
			d.Receiver = read[d.Account]
		}
	}
	return l.sort(ctx, r, leased, records)
}

// read asks for what the event is about; nil for a ping, which is about nothing.
func (d *Delivery) read(ctx context.Context, pipe redis.Pipeliner) *redis.StringCmd {
	switch d.item[0] {
	case eventPing:
		return nil
	case eventNotice, eventNoticeReplay:
		return pipe.Get(ctx, d.partition.keyOf(kindNotice, []byte(d.noticeID())))
	}
	return pipe.Get(ctx, d.partition.keyOf(kindOrder, []byte(d.item[1:13])))
}

// sort tells what can be sent from what never can, which it settles.
func (l *core) sort(ctx context.Context, r partition, leased []*Delivery, records []*redis.StringCmd) ([]*Delivery, error) {
	ready := leased[:0]
	var gone []settlement
	for i, d := range leased {
		if d.Receiver == nil {
			continue
		}
		reason, err := d.fill(r, records[i])
		if err == nil && reason == "" && d.Receiver.URL == "" {
			reason = errNoEndpoint.Error()
		}
		switch {
		case err != nil:
			l.log.Error("leased event cannot be read", "event", d.EventID, "error", err)
		case reason != "":
			gone = append(gone, l.unsent(d, reason))
		default:
			ready = append(ready, d)
		}
	}
	if len(gone) > 0 {
		if _, err := l.settle(ctx, gone, noGrant, 0); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// fill completes a delivery from its record; reason says why it can never be
// sent.
func (d *Delivery) fill(r partition, record *redis.StringCmd) (reason string, err error) {
	switch d.item[0] {
	case eventPing:
		d.fillPing()
		return "", nil
	case eventNotice, eventNoticeReplay:
		return d.fillNotice(record)
	}
	d.Type = delivery.StatusChanged
	if errors.Is(record.Err(), redis.Nil) {
		return "the order is no longer stored", nil
	}
	if record.Err() != nil {
		return "", record.Err()
	}
	if d.Order, err = decodeOrder(record.Val(), r.number); err != nil {
		return "", err
	}
	f := fields{rest: d.item[15:]}
	change, ok := d.Order.At(uint64(f.uint32()))
	if !ok {
		return "the order has no such version", nil
	}
	d.Version, d.OccurredAt = change.Version, change.At
	d.EventID = delivery.EventID(d.Order.ID, change.Version)
	d.Deadline = d.OccurredAt.Add(webhookWindow)
	if d.item[0] == eventReplay {
		d.replayedAt(f.uint64())
	}
	return "", nil
}

func (d *Delivery) fillNotice(record *redis.StringCmd) (reason string, err error) {
	d.EventID = d.noticeID()
	if errors.Is(record.Err(), redis.Nil) {
		return "the event's body has expired", nil
	}
	if record.Err() != nil {
		return "", record.Err()
	}
	n, err := decodeNotice(record.Val())
	if err != nil {
		return "", err
	}
	d.Type, d.OccurredAt, d.Data = n.Type, n.OccurredAt, n.Data
	d.Deadline = d.OccurredAt.Add(webhookWindow)
	if d.item[0] == eventNoticeReplay {
		d.replayedAt(binary.BigEndian.Uint64([]byte(d.item[1:9])))
	}
	return "", nil
}

// fillPing makes the event of a probe for which nothing waits. Its id is made of
// the account and the time, so that it is the same wherever it is read.
func (d *Delivery) fillPing() {
	f := fields{rest: d.item[1:]}
	at := f.uint64()
	d.Ping, d.Type, d.OccurredAt = true, delivery.WebhookTest, timeOf(int64(at))
	d.Deadline, d.Data = d.OccurredAt.Add(webhookWindow), testData(d.Account)
	d.EventID = "evt_ping_" + hex.EncodeToString(binary.BigEndian.AppendUint64(d.Account[:], at))
}

// replayedAt opens a window of its own for a replayed event.
func (d *Delivery) replayedAt(ms uint64) {
	d.Replay = true
	d.Deadline = timeOf(int64(ms)).Add(webhookWindow)
}

// noticeID is the event id within the item of a notice.
func (d *Delivery) noticeID() string {
	if d.item[0] == eventNoticeReplay {
		return d.item[9:]
	}
	return d.item[1:]
}

// notice reads one notice; nil when it is unknown or past its lifetime.
func (l *core) notice(ctx context.Context, r partition, eventID string) (*Notice, error) {
	record, err := l.rdb.Get(ctx, r.keyOf(kindNotice, []byte(eventID))).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a notice: %w", failure(err))
	}
	return decodeNotice(record)
}
