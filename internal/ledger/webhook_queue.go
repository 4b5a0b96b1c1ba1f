package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// webhookWindow is how long an event may be delivered (spec, "Delivery rules",
// 2): an absolute deadline, counted from when it happened.
const webhookWindow = 24 * time.Hour

// QueueEvents moves events of one partition from the stream to the queues of
// their accounts' endpoints and acknowledges them, in one script. Creations send
// nothing; an account without an endpoint has its events logged as not sent.
func (l *Ledger) QueueEvents(ctx context.Context, partition int, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	r := l.rooms[partition]
	notices, err := l.notices(ctx, r, entries)
	if err != nil {
		return err
	}
	args := []any{r.prefix, string(RoleWebhook), time.Now().UnixMilli()}
	for _, e := range entries {
		switch {
		case e.Event.Notice != "" && notices[e.Event.Notice] != nil:
			args = append(args, e.ID, "\x02"+e.Event.Notice, notices[e.Event.Notice].Account[:])
		case e.Event.Notice == "" && delivery.Sequence(e.Event.Version) > 1:
			args = append(args, e.ID, appendOrderEvent(nil, e.Event.Order, e.Event.Version), "")
		default:
			args = append(args, e.ID, "", "")
		}
	}
	_, err = l.run(ctx, l.scripts.queueEvents, []string{r.key(kindEvents)}, args...)
	return err
}

// notices reads the bodies of the notices among entries; one that is past its
// lifetime is absent.
func (l *Ledger) notices(ctx context.Context, r room, entries []Entry) (map[string]*Notice, error) {
	found := make(map[string]*Notice)
	for _, e := range entries {
		if e.Event.Notice == "" {
			continue
		}
		n, err := l.notice(ctx, r, e.Event.Notice)
		if err != nil {
			return nil, err
		}
		found[e.Event.Notice] = n
	}
	return found, nil
}

// notice reads one notice; nil when it is unknown or past its lifetime.
func (l *Ledger) notice(ctx context.Context, r room, eventID string) (*Notice, error) {
	record, err := l.rdb.Get(ctx, r.keyOf(kindNotice, []byte(eventID))).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a notice: %w", failure(err))
	}
	return decodeNotice(record)
}

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
	Endpoint   *WebhookEndpoint
	Replay     bool

	room  room
	item  string // as it stands in the queue
	token string // the lease
}

// endpointsPerLease bounds how many endpoints one call looks at; the others are
// due and come next.
const endpointsPerLease = 64

// Lease hands out due events of a partition: at most limit in all, shared
// between the endpoints that have any, at most perEndpoint in flight for each.
// They are this process's until lease has passed; what is not recorded by then
// is handed out again, to whoever asks. next is when to come back at the latest;
// zero when nothing waits in this partition.
func (l *Ledger) Lease(ctx context.Context, partition, limit, perEndpoint int, lease time.Duration) (ds []*Delivery, next time.Time, err error) {
	r := l.rooms[partition]
	due, err := l.dueMembers(ctx, r.key(kindSchedule), time.Now(), min(limit, endpointsPerLease))
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(due) > 0 {
		if ds, err = l.leaseFrom(ctx, r, due, limit, perEndpoint, lease); err != nil {
			return nil, time.Time{}, err
		}
	}
	first, err := l.rdb.ZRangeWithScores(ctx, r.key(kindSchedule), 0, 0).Result()
	if err != nil {
		// The leases stand; the caller sends them and comes back soon.
		return ds, time.Now(), nil
	}
	if len(first) > 0 {
		next = time.UnixMilli(int64(first[0].Score))
	}
	return ds, next, nil
}

func (l *Ledger) leaseFrom(ctx context.Context, r room, accounts []string, limit, perEndpoint int, lease time.Duration) ([]*Delivery, error) {
	calls := make([]call, len(accounts))
	share := max(1, limit/len(accounts))
	for i, account := range accounts {
		calls[i] = call{
			keys: []string{r.keyOf(kindEndpoint, []byte(account))},
			args: []any{r.prefix, account, share, perEndpoint, lease.Milliseconds()},
		}
	}
	replies, err := l.runAll(ctx, l.scripts.leaseEvents, calls)
	if err != nil {
		return nil, err
	}
	var leased []*Delivery
	for i, reply := range replies {
		values, err := reply.StringSlice()
		if err != nil || len(values) == 0 {
			return nil, fmt.Errorf("script lease_events: unreadable reply: %w", err)
		}
		for j := 1; j+1 < len(values); j += 2 {
			made, _ := strconv.Atoi(values[j+1])
			leased = append(leased, &Delivery{room: r, item: values[j], token: values[0], Attempt: made + 1,
				Account: delivery.AccountID([]byte(accounts[i]))})
		}
	}
	return l.complete(ctx, r, leased)
}

// complete reads what the leased events are about. What cannot be sent, because
// the endpoint, the order or the notice is gone, is settled here.
func (l *Ledger) complete(ctx context.Context, r room, leased []*Delivery) ([]*Delivery, error) {
	if len(leased) == 0 {
		return nil, nil
	}
	pipe := l.rdb.Pipeline()
	endpoints := make(map[delivery.AccountID]*redis.MapStringStringCmd)
	records := make([]*redis.StringCmd, len(leased))
	for i, d := range leased {
		if endpoints[d.Account] == nil {
			endpoints[d.Account] = pipe.HGetAll(ctx, r.keyOf(kindEndpoint, d.Account[:]))
		}
		if d.item[0] == eventNotice {
			records[i] = pipe.Get(ctx, r.keyOf(kindNotice, []byte(d.item[1:])))
		} else {
			records[i] = pipe.Get(ctx, r.keyOf(kindOrder, []byte(d.item[1:13])))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading leased events: %w", failure(err))
	}
	opened := make(map[delivery.AccountID]*WebhookEndpoint, len(endpoints))
	for account, values := range endpoints {
		e, err := l.decodeEndpoint(account, values.Val())
		if err != nil {
			// Its events wait for the missing key; the others go on.
			l.log.Error("webhook endpoint cannot be read", "account", account, "error", err)
			continue
		}
		opened[account] = e
	}
	var ready []*Delivery
	var gone []settlement
	for i, d := range leased {
		if d.Endpoint = opened[d.Account]; d.Endpoint == nil {
			continue
		}
		reason, err := d.fill(r, records[i])
		if err == nil && reason == "" && d.Endpoint.URL == "" {
			reason = "no webhook URL is registered"
		}
		switch {
		case err != nil:
			l.log.Error("leased event cannot be read", "event", d.EventID, "error", err)
		case reason != "":
			gone = append(gone, unsent(d, reason))
		default:
			ready = append(ready, d)
		}
	}
	_, err := l.settle(ctx, gone)
	return ready, err
}

// fill completes a delivery from its record; reason says why it can never be
// sent.
func (d *Delivery) fill(r room, record *redis.StringCmd) (reason string, err error) {
	if d.item[0] == eventNotice {
		d.EventID = d.item[1:]
		if record.Err() != nil {
			return "the event's body has expired", nil
		}
		n, err := decodeNotice(record.Val())
		if err != nil {
			return "", err
		}
		d.Type, d.OccurredAt, d.Data = n.Type, n.OccurredAt, n.Data
		d.Deadline = d.OccurredAt.Add(webhookWindow)
		return "", nil
	}
	d.Type = delivery.StatusChanged
	if record.Err() != nil {
		return "the order is no longer stored", nil
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
		d.Replay = true
		d.Deadline = timeOf(int64(f.uint64())).Add(webhookWindow)
	}
	return "", nil
}

// queueReplays puts items behind an endpoint's queue.
func (l *Ledger) queueReplays(ctx context.Context, account delivery.AccountID, items []any) error {
	r := l.roomOf(account)
	for len(items) > 0 {
		n := min(len(items), 1000)
		reply, err := l.runText(ctx, l.scripts.queueReplays, []string{r.keyOf(kindEndpoint, account[:])},
			append([]any{r.prefix, account[:], time.Now().UnixMilli()}, items[:n]...)...)
		if err != nil {
			return err
		}
		if reply == "no_endpoint" {
			return webhookNotConfigured()
		}
		items = items[n:]
	}
	return nil
}

func replayItem(id delivery.OrderID, sequence uint32, now time.Time) []byte {
	b := append([]byte{eventReplay}, orderMember(id)...)
	b = binary.BigEndian.AppendUint32(b, sequence)
	return binary.BigEndian.AppendUint64(b, uint64(now.UnixMilli()))
}
