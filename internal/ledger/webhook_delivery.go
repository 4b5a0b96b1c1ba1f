package ledger

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// webhookWindow is an event's time to be delivered (spec, "Delivery rules", 2).
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
	Probe      bool // sent ahead of the schedule, which a failed one does not change
	Ping       bool // a webhook.test event in no queue, to probe an idle receiver once

	partition partition
	item      string    // as it stands in the queue
	token     string    // the lease
	version   string    // of the receiver, when it was leased
	due       time.Time // of a probe: its event's place in the schedule
}

// complete reads leased events, and settles those whose subject is gone.
func (l *core) complete(ctx context.Context, r partition, leased []*Delivery) ([]*Delivery, error) {
	if len(leased) == 0 {
		return nil, nil
	}
	stale := make(map[delivery.AccountID]*redis.MapStringStringCmd)
	records, err := pipelined(ctx, l.rdb, "reading leased events", leased, func(pipe redis.Pipeliner, d *Delivery) *redis.StringCmd {
		if d.Receiver = l.receivers.known(d.Account, d.version); d.Receiver == nil && stale[d.Account] == nil {
			stale[d.Account] = pipe.HGetAll(ctx, r.keyOf(kindEndpoint, d.Account[:]))
		}
		return d.read(ctx, pipe)
	})
	if err != nil {
		return nil, err
	}
	read := make(map[delivery.AccountID]*Receiver, len(stale))
	for account, values := range stale {
		if read[account], err = l.receivers.learn(l, account, values.Val()); err != nil {
			// Its events wait for the missing key; the others go on.
			l.log.Error("webhook endpoint cannot be read", "account", account, "error", err)
		}
	}
	ready := leased[:0]
	var gone []settlement
	for i, d := range leased {
		if d.Receiver == nil {
			d.Receiver = read[d.Account]
		}
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

// read asks for the event's order or notice; a ping has none.
func (d *Delivery) read(ctx context.Context, pipe redis.Pipeliner) *redis.StringCmd {
	switch d.item[0] {
	case eventPing:
		return nil
	case eventNotice, eventNoticeReplay:
		return pipe.Get(ctx, d.partition.keyOf(kindNotice, []byte(d.noticeID())))
	}
	return pipe.Get(ctx, d.partition.keyOf(kindOrder, []byte(d.item[1:13])))
}

// fill completes a delivery from its record; reason: why it can never be sent.
func (d *Delivery) fill(r partition, record *redis.StringCmd) (reason string, err error) {
	kind := d.item[0]
	if kind == eventPing {
		d.fillPing()
		return "", nil
	}
	notice := kind == eventNotice || kind == eventNoticeReplay
	if notice {
		d.EventID, reason = d.noticeID(), "the event's body has expired"
	} else {
		d.Type, reason = delivery.StatusChanged, "the order is no longer stored"
	}
	switch err := record.Err(); {
	case errors.Is(err, redis.Nil):
		return reason, nil
	case err != nil:
		return "", err
	case notice:
		n, err := decodeNotice(record.Val())
		if err != nil {
			return "", err
		}
		d.Type, d.OccurredAt, d.Data = n.Type, n.OccurredAt, n.Data
	default:
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
	}
	d.Deadline = d.OccurredAt.Add(webhookWindow)
	if at, replay := d.replayedAt(); replay { // which has a window of its own
		d.Replay, d.Deadline = true, at.Add(webhookWindow)
	}
	return "", nil
}

func (d *Delivery) replayedAt() (at time.Time, replay bool) {
	f := fields{rest: d.item[1:]}
	switch d.item[0] {
	case eventReplay:
		f.take(14 + 4) // order, sequence
	case eventNoticeReplay:
	default:
		return at, false
	}
	return timeOf(int64(f.uint64())), true
}

// fillPing makes a ping's event; its id is made of account and time.
func (d *Delivery) fillPing() {
	f := fields{rest: d.item[1:]}
	at := f.uint64()
	d.Ping, d.Type, d.OccurredAt = true, delivery.WebhookTest, timeOf(int64(at))
	d.Deadline, d.Data = d.OccurredAt.Add(webhookWindow), testData(d.Account)
	d.EventID = "evt_ping_" + hex.EncodeToString(binary.BigEndian.AppendUint64(d.Account[:], at))
}

func (d *Delivery) noticeID() string {
	if d.item[0] == eventNoticeReplay {
		return d.item[9:]
	}
	return d.item[1:]
}

func (l *core) notice(ctx context.Context, r partition, eventID string) (*Notice, error) {
	record, err := l.rdb.Get(ctx, r.keyOf(kindNotice, []byte(eventID))).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("reading a notice", err)
	}
	return decodeNotice(record)
}

// dropPage is how many events leave a queue with one call, without an attempt.
const dropPage = 500

// ExpiredError is the recorded error of an event that was not sent by its deadline.
const ExpiredError = "deadline: the event is older than 24 h"

var noGrant = Grant{Lease: time.Minute}

// DropExpired ends the events behind d whose deadline has passed, at most 20 pages, and
// returns how many. After a long outage it saves a call for each.
func (l Queue) DropExpired(ctx context.Context, d *Delivery, now time.Time) (dropped int, err error) {
	for range 20 {
		page, err := l.expired(ctx, d, now)
		if err != nil || len(page) == 0 {
			return dropped, err
		}
		n, err := l.drop(ctx, page)
		if dropped += n; err != nil || n < dropPage {
			return dropped, err // the rest is in time, or another worker's
		}
	}
	return dropped, nil
}

// expired reads what waits first for d's endpoint, up to what is in time.
func (l *core) expired(ctx context.Context, d *Delivery, now time.Time) ([]settlement, error) {
	items, err := l.rdb.LRange(ctx, d.partition.keyOf(kindQueue, d.Account[:]), 0, dropPage-1).Result()
	if err != nil {
		return nil, failed("reading what waits", err)
	}
	late := make([]*Delivery, len(items))
	for i, item := range items {
		late[i] = &Delivery{partition: d.partition, Account: d.Account, Receiver: d.Receiver, Attempt: 1, item: item}
	}
	records, err := pipelined(ctx, l.rdb, "reading events that wait", late, func(pipe redis.Pipeliner, d *Delivery) *redis.StringCmd { return d.read(ctx, pipe) })
	if err != nil {
		return nil, err
	}
	var page []settlement
	for i, d := range late {
		reason, err := d.fill(d.partition, records[i])
		switch {
		case err != nil:
			return page, err
		case reason != "":
			page = append(page, l.unsent(d, reason))
		case !now.Before(d.Deadline):
			r := Result{d, Outcome{At: now, Expired: true, Error: ExpiredError}}
			page = append(page, r.settlement())
		default:
			return page, nil
		}
	}
	return page, nil
}

// drop settles events of one endpoint and returns how many were still leased.
func (l *core) drop(ctx context.Context, page []settlement) (n int, err error) {
	recorded, err := l.settle(ctx, page, noGrant, 0)
	return len(slices.DeleteFunc(recorded.OK, func(ok bool) bool { return !ok })), err
}

// dropAll records all that waits for an endpoint as not sent, with leased also what is being sent.
// It may be repeated.
func (l *core) dropAll(ctx context.Context, account delivery.AccountID, leased bool) error {
	r := l.partitionOf(account)
	for {
		pipe := l.rdb.Pipeline()
		fresh := pipe.LRange(ctx, r.keyOf(kindQueue, account[:]), 0, dropPage-1)
		retries := pipe.ZRange(ctx, r.keyOf(kindRetries, account[:]), 0, dropPage-1)
		leases := pipe.ZRangeWithScores(ctx, r.keyOf(kindLeases, account[:]), 0, dropPage-1)
		if _, err := pipe.Exec(ctx); err != nil {
			return failed("reading what waits", err)
		}
		var page []settlement
		add := func(item, token string, attempt int) {
			d := &Delivery{partition: r, Account: account, Attempt: attempt, item: item, token: token}
			switch item[0] {
			case eventPing:
				d.fillPing()
			case eventOrder, eventReplay:
				d.Type = delivery.StatusChanged
			}
			d.Replay = item[0] == eventReplay || item[0] == eventNoticeReplay
			page = append(page, l.unsent(d, errNoEndpoint.Error()))
		}
		for _, item := range fresh.Val() {
			add(item, "", 1)
		}
		for _, item := range retries.Val() {
			add(item, "", 2)
		}
		for _, lease := range leases.Val() {
			if leased {
				add(lease.Member.(string), strconv.FormatFloat(lease.Score, 'f', 0, 64), 2)
			}
		}
		if len(page) == 0 {
			return nil
		}
		if _, err := l.drop(ctx, page); err != nil {
			return err
		}
	}
}
