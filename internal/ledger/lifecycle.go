package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// refusedKept bounds the refused updates, and the dead letters, of a partition.
const refusedKept = 10_000

// Commit appends changes to an order, or swaps its courier, and settles updates.
type Commit struct {
	Order   *delivery.Order   // as read; its Version is compared
	Changes []delivery.Change // each becomes one version and one event
	Swap    *delivery.Courier // replaces the courier, after the changes, without a version
	Settles []Entry           // acknowledged with it, for RoleStatus
	Silent  bool              // a courier's report since the order was read is a conflict, too
}

// Commit runs one script per commit, in one round trip. result[i] is nil, ErrConflict or
// ORDER_NOT_FOUND; what failed stays pending, and may be repeated.
func (l Lifecycle) Commit(ctx context.Context, commits []Commit) (result []error, err error) {
	calls := make([]call, len(commits))
	for i := range commits {
		calls[i] = l.commitCall(&commits[i])
	}
	replies, err := l.runAll(ctx, "commit_order", calls)
	if err != nil {
		return nil, err
	}
	result = make([]error, len(commits))
	for i, reply := range replies {
		switch reply.Val() {
		case "committed":
			if changes := commits[i].Changes; len(changes) > 0 {
				l.activity.reached(changes[len(changes)-1].Status)
			}
		case "conflict":
			result[i] = fmt.Errorf("order %s: %w", commits[i].Order.ID, ErrConflict)
		case "missing":
			result[i] = orderNotFound()
		default:
			result[i] = fmt.Errorf("script commit_order answered %v", reply.Val())
		}
	}
	return result, nil
}

func (l *core) commitCall(c *Commit) call {
	o := c.Order
	r := l.partitions[o.ID.Partition()]
	// After a restored backup the ledger's epoch is above the record's.
	epoch := max(l.epoch.Load(), uint32(o.Version>>32))
	var statuses, entries []byte
	var at time.Time
	for i := range c.Changes {
		statuses = append(statuses, byte(c.Changes[i].Status))
		entries = appendChange(entries, &c.Changes[i], epoch)
		at = c.Changes[i].At
	}
	if c.Swap != nil {
		entries = appendCourierEntry(entries, entrySwap, *c.Swap)
	}
	var reported []byte
	if c.Silent {
		reported = binary.BigEndian.AppendUint64([]byte{byte(o.Reported)}, uint64(millis(o.LastCourierUpdate)))
	}
	args := []any{
		binary.BigEndian.AppendUint64(nil, o.Version), orderMember(o.ID), statuses, entries,
		epoch, millis(at), millis(nextTimer(o, c.Changes)), r.prefix, string(RoleStatus), reported,
	}
	for _, e := range c.Settles {
		args = append(args, e.ID)
	}
	return call{keys: []string{r.order(o.ID.Digest()), r.key(kindUpdates)}, args: args}
}

// nextTimer is when the changed order must be looked at, never too late.
func nextTimer(o *delivery.Order, changes []delivery.Change) time.Time {
	if len(changes) == 0 {
		return time.Time{}
	}
	after := *o
	last := changes[len(changes)-1]
	after.Status, after.Changes = last.Status, slices.Concat(o.Changes, changes)
	_, due, next := delivery.DecideTimeout(&after, last.At)
	if due {
		return last.At
	}
	return next
}

// firstTimerAfter is the earliest that any timer of a new order can be due.
const firstTimerAfter = 15 * time.Minute

// IndexJobs adds the new orders among these events to their fleets' job lists, sets
// their first timer and acknowledges all events, in one script.
func (l Lifecycle) IndexJobs(ctx context.Context, partition int, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	r := l.partitions[partition]
	args := []any{r.prefix, string(RoleStatus), firstTimerAfter.Milliseconds()}
	for _, e := range entries {
		member := "" // what is batched is no creation
		if event := e.Events[0]; !event.Order.IsZero() && delivery.Sequence(event.Version) == 1 {
			member = orderMember(event.Order)
		}
		args = append(args, e.ID, member)
	}
	_, err := l.run(ctx, "index_jobs", []string{r.key(kindEvents)}, args...)
	return err
}

// RefuseUpdate keeps a forbidden update for the panel and acknowledges it, in one script.
// late: a delivery.LateDelivery, of which one event informs finance.
func (l Lifecycle) RefuseUpdate(ctx context.Context, e Entry, status delivery.Status, reason string, late bool) error {
	r := l.partitions[e.Partition]
	var event []byte
	if late {
		event = append([]byte{eventLate}, orderMember(e.Update.Order)...)
		event = binary.BigEndian.AppendUint64(event, uint64(millis(e.Update.At)))
	}
	args := []any{string(RoleStatus), e.ID, refusedKept, event,
		"u", encodeUpdate(e.Update), "status", byte(status), "reason", reason}
	if late {
		args = append(args, "late", "1")
	}
	_, err := l.run(ctx, "settle_entry",
		[]string{r.key(kindUpdates), r.key(kindRefused), r.key(kindEvents)}, args...)
	return err
}

const maxUnsettled = 1000

// UnsettledUpdates are the orders of a partition with an unread or pending update that
// was taken before the call. known is false when there are too many, or no group.
func (l Lifecycle) UnsettledUpdates(ctx context.Context, partition int) (orders map[delivery.OrderID]bool, known bool, err error) {
	key := l.partitions[partition].key(kindUpdates)
	groups, there, err := l.groupsOf(ctx, key)
	if err != nil || !there {
		return nil, err == nil, err
	}
	group, found := groupOf(groups, RoleStatus)
	if !found {
		return nil, false, nil
	}
	// What had been read by then and is not settled is pending; the rest is behind it.
	pipe := l.rdb.Pipeline()
	pending := pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: string(RoleStatus), Start: "-", End: "+", Count: maxUnsettled})
	unread := pipe.XRangeN(ctx, key, "("+group.LastDeliveredID, "+", maxUnsettled)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, false, failed("reading unsettled updates", err)
	}
	if len(pending.Val()) == maxUnsettled || len(unread.Val()) == maxUnsettled {
		return nil, false, nil
	}
	entries := unread.Val()
	reads, err := pipelined(ctx, l.rdb, "reading pending updates", pending.Val(), func(pipe redis.Pipeliner, p redis.XPendingExt) *redis.XMessageSliceCmd {
		return pipe.XRange(ctx, key, p.ID, p.ID)
	})
	if err != nil {
		return nil, false, err
	}
	for _, read := range reads {
		entries = append(entries, read.Val()...)
	}
	orders = make(map[delivery.OrderID]bool, len(entries))
	for _, m := range entries {
		u, err := decodeUpdate(text(m.Values["u"]))
		if err != nil {
			return nil, false, nil // until it is among the dead letters
		}
		orders[u.Order] = true
	}
	return orders, true, nil
}

// DueOrders lists orders of a partition whose timer has run out.
func (l Lifecycle) DueOrders(ctx context.Context, partition int, now time.Time, limit int) ([]delivery.OrderID, error) {
	r := l.partitions[partition]
	members, err := l.dueMembers(ctx, r.key(kindTimers), now, limit)
	if err != nil {
		return nil, err
	}
	ids := make([]delivery.OrderID, len(members))
	for i, member := range members {
		ids[i] = r.orderOfMember(member)
	}
	return ids, nil
}

// Postpone sets an order's timer, unless it was committed meanwhile; zero removes it.
func (l Lifecycle) Postpone(ctx context.Context, id delivery.OrderID, until time.Time) error {
	r, ok := l.partitionOfOrder(id)
	if !ok {
		return orderNotFound()
	}
	var err error
	if until.IsZero() {
		err = l.rdb.ZRem(ctx, r.key(kindTimers), orderMember(id)).Err()
	} else {
		err = l.rdb.ZAddXX(ctx, r.key(kindTimers), redis.Z{Score: float64(until.UnixMilli()), Member: orderMember(id)}).Err()
	}
	return failed("postponing a timer", err)
}

// Trim drops entries that every group has settled: couriers' updates and attempts
// that go on at once, others, which replays read, once they are older than keep. It
// drops nothing while a required group is missing. It returns how many it dropped.
func (l Lifecycle) Trim(ctx context.Context, partition int, keep time.Duration) (int64, error) {
	r := l.partitions[partition]
	total := int64(0)
	for _, kind := range []byte{kindEvents, kindUpdates, kindOutcomes, kindTries} {
		key := r.key(kind)
		floor, _, err := l.floor(ctx, key)
		if err != nil {
			return total, err
		}
		if floor == "" {
			continue
		}
		if horizon := fmt.Sprintf("%d-0", time.Now().Add(-keep).UnixMilli()); kind != kindTries && kind != kindUpdates && streamIDLess(horizon, floor) {
			floor = horizon
		}
		n, err := l.rdb.XTrimMinID(ctx, key, floor).Result()
		if err != nil {
			return total, failed("trimming", err)
		}
		total += n
	}
	return total, nil
}

// settledUntil is the time up to which every group has settled every entry: now
// when none is left, zero when that is not known.
func (l *core) settledUntil(ctx context.Context, key string) (time.Time, error) {
	now := time.Now() // before the look: what comes later is not settled
	floor, unsettled, err := l.floor(ctx, key)
	if err != nil || floor == "" {
		return time.Time{}, err
	}
	info, err := l.rdb.XInfoStream(ctx, key).Result()
	if err != nil {
		return time.Time{}, failed("reading a stream", err)
	}
	until := timeOfEntry(floor)
	if floor == info.LastGeneratedID && !unsettled && now.After(until) {
		until = now
	}
	return until, nil
}

// Retire removes at most limit orders that ended before a time, whose events all groups have
// settled; their external ids stay. The age of an undecided report moves that time back, so that an
// acknowledged Delivered finds its order. It returns how many it settled.
func (l Lifecycle) Retire(ctx context.Context, partition int, endedBefore time.Time, limit int) (int, error) {
	r := l.partitions[partition]
	settled, err := l.settledUntil(ctx, r.key(kindEvents))
	if err != nil || settled.IsZero() {
		return 0, err
	}
	decided, err := l.settledUntil(ctx, r.key(kindUpdates))
	if err != nil || decided.IsZero() {
		return 0, err
	}
	bound := min(endedBefore.Add(-time.Since(decided)).UnixMilli(), settled.UnixMilli())
	// The hour that holds the bound is not over yet.
	hours, err := l.rdb.ZRangeByScore(ctx, r.key(kindEndedHours), &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(bound/time.Hour.Milliseconds()-1, 10)}).Result()
	if err != nil {
		return 0, failed("reading ended orders", err)
	}
	retired := 0
	for _, hour := range hours {
		for retired < limit {
			reply, err := l.run(ctx, "retire_orders", []string{r.keyOf(kindEnded, []byte(hour)), r.key(kindEndedHours)},
				r.prefix, hour, min(limit-retired, retireBatch), retiredBits)
			if err != nil {
				return retired, err
			}
			n, ok := reply.(int64)
			if !ok {
				return retired, errors.New("script retire_orders: unreadable reply")
			}
			if n == 0 {
				break
			}
			retired += int(n)
		}
	}
	return retired, nil
}

// retireBatch keeps one script well below a millisecond or two.
const retireBatch = 200
