package ledger

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Grant is how much a process can take.
type Grant struct {
	Limit    int           // most events to hand out in all
	Share    int           // the most in flight to one endpoint, over all processes
	InFlight int           // the same for an endpoint that has no limit of its own
	Lease    time.Duration // how long an unrecorded event belongs to the process
	Holder   string        // names the process for ReleaseLeases; may be empty
}

// lease is in microseconds, whose last three digits name the holder.
func (g *Grant) lease() int64 { return g.Lease.Milliseconds()*1000 + holderDigits(g.Holder) }

func holderDigits(holder string) int64 {
	if holder == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(holder)) // never fails
	return int64(h.Sum32() % 1000)
}

// Leased is what a process was handed.
type Leased struct {
	Deliveries []*Delivery
	More       bool // some event could go already, with a larger grant or by Lease
}

// Add moves events of one partition to their endpoints' queues, hands out what the grant
// allows and acknowledges them, in one script. Creations send nothing; events without an
// endpoint are logged as not sent.
func (l Queue) Add(ctx context.Context, partition int, entries []Entry, g Grant) (Leased, error) {
	if len(entries) == 0 {
		return Leased{}, nil
	}
	r := l.partitions[partition]
	var notices []Event
	for _, e := range entries {
		notices = append(notices, Event{Notice: e.Events[0].Notice}) // which stand alone
	}
	owners, err := l.owners(ctx, r, notices)
	if err != nil {
		return Leased{}, err
	}
	args := make([]any, 0, 6+3*len(entries))
	args = append(args, r.prefix, string(RoleWebhook), g.Limit, g.Share, g.InFlight, g.lease())
	for i, e := range entries {
		for _, event := range e.Events {
			switch {
			case owners[i] != "":
				args = append(args, e.ID, "\x02"+event.Notice, owners[i])
			case event.Notice == "" && delivery.Sequence(event.Version) > 1:
				args = append(args, e.ID, appendOrderEvent(nil, event.Order, event.Version), "")
			default:
				args = append(args, e.ID, "", "")
			}
		}
	}
	reply, err := l.run(ctx, "queue_events", []string{r.key(kindEvents)}, args...)
	if err != nil {
		return Leased{}, err
	}
	values, _ := reply.([]any)
	if len(values) < 2 {
		return Leased{}, unreadable("queue_events")
	}
	leased, _, err := r.parseLeases(text(values[0]), values[2:])
	if err != nil {
		return Leased{}, err
	}
	ds, err := l.complete(ctx, r, leased)
	return Leased{Deliveries: ds, More: integer(values[1]) == 1}, err
}

func unreadable(script string) error { return fmt.Errorf("script %s: unreadable reply", script) }

func text(value any) string {
	s, _ := value.(string)
	return s
}

func integer(value any) int64 {
	n, _ := value.(int64)
	return n
}

// owners reads the accounts of events; that of a zero, expired or retired one is empty.
func (l *core) owners(ctx context.Context, r partition, events []Event) ([]string, error) {
	reads, err := pipelined(ctx, l.rdb, "reading the owners of events", events, func(pipe redis.Pipeliner, event Event) *redis.StringCmd {
		switch {
		case event.Notice != "":
			return pipe.GetRange(ctx, r.keyOf(kindNotice, []byte(event.Notice)), 1, 16)
		case !event.Order.IsZero():
			return pipe.GetRange(ctx, r.order(event.Order.Digest()), orderAccountAt, orderAccountAt+15)
		}
		return nil
	})
	owners := make([]string, len(events))
	for i, read := range reads {
		if read != nil {
			owners[i] = read.Val()
		}
	}
	return owners, err
}

const endpointsPerLease = 64

// Lease hands out what may go of a partition's queues, shared between the
// endpoints. next is when to call again at the latest; zero when nothing waits.
func (l Queue) Lease(ctx context.Context, partition int, g Grant) (ds []*Delivery, next time.Time, err error) {
	r := l.partitions[partition]
	if owned, err := l.ownedElsewhere(ctx, r, RoleWebhook); owned || err != nil {
		return nil, time.Time{}, err
	}
	leased, paced, next, err := l.lease(ctx, r, g)
	if err != nil {
		return nil, time.Time{}, err
	}
	g.Limit -= len(leased)
	for _, p := range paced {
		if g.Limit <= 0 {
			break
		}
		taken, err := l.leasePaced(ctx, r, p, g)
		if err != nil {
			// The leases before it stand; the caller sends those and comes back.
			l.log.Warn("a paced endpoint was not looked at", "account", p.account, "error", err)
			break
		}
		g.Limit -= len(taken)
		leased = append(leased, taken...)
	}
	if len(paced) > 0 {
		next = l.now() // their next look has changed
	}
	ds, err = l.complete(ctx, r, leased)
	return ds, next, err
}

// lease runs the script, for a single endpoint with its values appended.
func (l *core) lease(ctx context.Context, r partition, g Grant, single ...any) (leased []*Delivery, waiting []paced, next time.Time, err error) {
	args := append([]any{r.prefix, g.Limit, g.Share, g.InFlight, g.lease(), endpointsPerLease}, single...)
	reply, err := l.run(ctx, "lease_events", []string{r.key(kindSchedule)}, args...)
	if err != nil {
		return nil, nil, next, err
	}
	values, _ := reply.([]any)
	if len(values) < 2 {
		return nil, nil, next, unreadable("lease_events")
	}
	if ms := number(text(values[1])); ms > 0 {
		next = time.UnixMilli(ms)
	}
	leased, waiting, err = r.parseLeases(text(values[0]), values[2:])
	return leased, waiting, next, err
}

func (r partition) parseLeases(token string, lists []any) (leased []*Delivery, waiting []paced, err error) {
	for _, list := range lists {
		values, _ := list.([]any)
		if len(values) < 5 || len(text(values[0])) != len(delivery.AccountID{}) {
			return nil, nil, unreadable("of leases")
		}
		account := delivery.AccountID([]byte(text(values[0])))
		if text(values[2]) == "paced" {
			waiting = append(waiting, paced{account, int(integer(values[3])), int(integer(values[4]))})
			continue
		}
		leased = r.appendLeases(leased, account, token, text(values[1]), values[2:])
	}
	return leased, waiting, nil
}

// appendLeases reads triples: item, attempts made, due of a probe ahead of it.
func (r partition) appendLeases(ds []*Delivery, account delivery.AccountID, token, version string, triples []any) []*Delivery {
	for ; len(triples) >= 3; triples = triples[3:] {
		made, _ := strconv.Atoi(text(triples[1]))
		d := &Delivery{partition: r, Account: account, item: text(triples[0]), token: token, version: version, Attempt: made + 1}
		d.due = timeOf(number(text(triples[2])))
		d.Probe = !d.due.IsZero()
		ds = append(ds, d)
	}
	return ds
}

// ReleaseLeases ends the leases of a process of this name, for its successor, and returns
// how many. Two names share their digits once in a thousand: then events are sent twice.
func (l Queue) ReleaseLeases(ctx context.Context, holder string) (int, error) {
	const page = 500
	total := 0
	for _, r := range l.partitions {
		if owned, err := l.ownedElsewhere(ctx, r, RoleWebhook); owned || err != nil {
			if err != nil {
				return total, err
			}
			continue
		}
		for first := 0; ; first += page {
			reply, err := l.run(ctx, "release_leases", []string{r.key(kindSchedule)},
				r.prefix, holderDigits(holder), first, first+page-1)
			if err != nil {
				return total, err
			}
			values, _ := reply.([]any)
			if len(values) != 2 {
				return total, unreadable("release_leases")
			}
			total += int(integer(values[1]))
			if integer(values[0]) < page {
				break
			}
		}
	}
	return total, nil
}

// QueueTest publishes a webhook.test event; a receiver whose breaker is open is
// probed at once. WEBHOOK_NOT_CONFIGURED.
func (l Webhooks) QueueTest(ctx context.Context, account delivery.AccountID, now time.Time) (eventID string, err error) {
	if err := l.changeEndpoint(ctx, account, "probe"); err != nil {
		return "", err
	}
	return l.publish(ctx, &Notice{Account: account, Type: delivery.WebhookTest, OccurredAt: now, Data: testData(account)}, newNoticeID())
}

func testData(account delivery.AccountID) []byte {
	return append(strconv.AppendQuote([]byte(`{"accountId":`), account.String()), '}')
}

// queueReplays appends items to an endpoint's queue, unless their events wait
// already, and returns queued plus their number.
func (l *core) queueReplays(ctx context.Context, account delivery.AccountID, items []any, queued int) (int, error) {
	r := l.partitionOf(account)
	for page := range slices.Chunk(items, 100) { // each is looked up: others wait for one script, not for the day
		reply, err := l.runText(ctx, "queue_replays", []string{r.keyOf(kindEndpoint, account[:])},
			append([]any{r.prefix, account[:], l.mostWaiting}, page...)...)
		switch {
		case err != nil:
			return queued, err
		case reply == "no_endpoint":
			return queued, webhookNotConfigured()
		case reply == "full":
			return queued, replaysFull(queued)
		}
		queued += len(page)
	}
	return queued, nil
}

// errNoEndpoint ends what needs an endpoint that is not there any more.
var errNoEndpoint = errors.New("no webhook URL is registered")

// paced is an endpoint with a rate, its own or while it recovers (lua/gate.lua).
type paced struct {
	account delivery.AccountID
	rate    int // events a second
	could   int // how many could go now
}

// paceBurst is which part of a second's events may go at once.
const paceBurst = 5

// leasePaced takes what the pace allows; what others took is not made up for.
func (l *core) leasePaced(ctx context.Context, r partition, p paced, g Grant) ([]*Delivery, error) {
	// With a burst of one the library's rounding allows nothing at 3, 5, 7 or 9 a second.
	limit := redis_rate.Limit{Rate: p.rate, Burst: max(2, p.rate/paceBurst), Period: time.Second}
	allowed, err := l.allow(ctx, r.prefix+"pace:"+p.account.String(), limit, min(p.could, g.Limit))
	if err != nil {
		return nil, failed("pace of an endpoint", err)
	}
	wait := time.Second / time.Duration(p.rate)
	if allowed.RetryAfter > 0 {
		wait = allowed.RetryAfter
	}
	leased, _, _, err := l.lease(ctx, r, g, p.account[:], allowed.Allowed, wait.Milliseconds()+1)
	return leased, err
}
