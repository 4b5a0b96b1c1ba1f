package ledger

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
			if _, err := l.settleUnsent(ctx, d, reason); err != nil {
				return nil, err
			}
		default:
			ready = append(ready, d)
		}
	}
	return ready, nil
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

// Outcome is what became of an attempt.
type Outcome struct {
	At       time.Time
	OK       bool
	Status   int    // HTTP status; 0: there was no answer
	Error    string // class and text, such as "timeout: …"; empty with a 2xx
	Duration time.Duration
	Answer   []byte    // what is to be kept of the answer's body, at most 2 kB
	Retry    time.Time // when to try again; zero with OK false: given up
	// Deferred: nothing was sent, the event only goes later, at Retry. For the
	// order of events that ends its first attempt.
	Deferred bool
	Gone     bool // the receiver answered 410
}

// state names the outcome in the log, and what it says of the endpoint.
func (o *Outcome) state() (outcome string, endpoint EndpointState) {
	switch {
	case o.OK:
		return "delivered", EndpointHealthy
	case o.Deferred:
		return "deferred", ""
	case o.Retry.IsZero() && o.Gone:
		return "undelivered", EndpointGone
	case o.Retry.IsZero():
		return "undelivered", EndpointUnreachable
	case o.Gone:
		return "retrying", EndpointGone
	}
	return "retrying", EndpointFailing
}

// RecordAttempt settles a leased event. false: the lease had run out and the
// event is somebody else's; nothing was recorded.
func (l *Ledger) RecordAttempt(ctx context.Context, d *Delivery, o Outcome) (bool, error) {
	outcome, endpoint := o.state()
	attempts := d.Attempt
	if o.Deferred {
		attempts--
	}
	record := AttemptRecord{
		EventID: d.EventID, Event: string(d.Type), Attempt: d.Attempt, At: o.At, State: outcome,
		HTTPStatus: o.Status, Error: o.Error, Millis: o.Duration.Milliseconds(), Replay: d.Replay, NextAt: o.Retry,
	}
	if !o.OK {
		record.Answer = strings.ToValidUTF8(string(o.Answer), "\uFFFD")
	}
	proven := o.OK && d.Type == delivery.WebhookTest
	return l.recordAttempt(ctx, d, &record, endpoint, millis(o.Retry), attempts, proven)
}

// settleUnsent ends an event for which nothing can be sent any more.
func (l *Ledger) settleUnsent(ctx context.Context, d *Delivery, reason string) (bool, error) {
	record := AttemptRecord{EventID: d.EventID, Event: string(d.Type), At: time.Now(), State: "notSent", Error: reason}
	return l.recordAttempt(ctx, d, &record, "", 0, d.Attempt-1, false)
}

func (l *Ledger) recordAttempt(ctx context.Context, d *Delivery, record *AttemptRecord, endpoint EndpointState, next int64, attempts int, proven bool) (bool, error) {
	if d.Order != nil {
		record.OrderID = d.Order.ID.String()
	}
	var line []byte
	if record.State != "deferred" {
		var err error
		if line, err = json.Marshal(record); err != nil {
			return false, fmt.Errorf("attempt record: %w", err)
		}
	}
	version := int64(0)
	if d.Endpoint != nil {
		version = d.Endpoint.Version
	}
	reply, err := l.runText(ctx, l.scripts.recordAttempt, []string{d.room.keyOf(kindEndpoint, d.Account[:])},
		d.room.prefix, d.Account[:], d.item, d.token, record.State, next, attempts, line,
		time.Now().UnixMilli(), version, string(endpoint), flag(proven))
	return reply == "recorded", err
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
