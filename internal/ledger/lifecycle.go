package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// refusedKept bounds the refused updates, and the dead letters, of a partition.
const refusedKept = 10_000

// firstTimerAfter is the earliest that any timer of a new order can be due.
const firstTimerAfter = 15 * time.Minute

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
	hours, err := l.endedHours(ctx, r, 0, bound)
	if err != nil {
		return 0, err
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

// endedHours lists the hours from one on that were over before a time, ms, and in which orders ended.
func (l *core) endedHours(ctx context.Context, r partition, from, bound int64) ([]string, error) {
	hours, err := l.rdb.ZRangeByScore(ctx, r.key(kindEndedHours), &redis.ZRangeBy{
		Min: strconv.FormatInt(from, 10), Max: strconv.FormatInt(bound/time.Hour.Milliseconds()-1, 10)}).Result()
	return hours, failed("reading ended orders", err)
}

// retireBatch keeps one script below a millisecond.
const retireBatch = 100

// Shrink drops from some orders that ended before a time what nobody reads any more (codec.shrunk),
// and returns how many it has looked at; 0: no more are left. It keeps how far it has got. An order
// that is listed twice is shrunk once. After its end only the head of an order is written, and the
// script takes that as it is. Orders that cannot be read stay as they are.
func (l Lifecycle) Shrink(ctx context.Context, partition int, endedBefore time.Time) (int, error) {
	r := l.partitions[partition]
	position, err := l.rdb.Get(ctx, r.key(kindShrunk)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, failed("reading how far orders are shrunk", err)
	}
	last, place, _ := strings.Cut(position, " ")
	hours, err := l.endedHours(ctx, r, number(last), endedBefore.UnixMilli())
	if err != nil {
		return 0, err
	}
	for _, hour := range hours {
		from := int64(0)
		if hour == last {
			from = number(place)
		}
		members, err := l.rdb.LRange(ctx, r.keyOf(kindEnded, []byte(hour)), from, from+retireBatch-1).Result()
		if err != nil {
			return 0, failed("reading ended orders", err)
		}
		if len(members) == 0 {
			continue
		}
		ids := make([]delivery.OrderID, len(members))
		for i, member := range members {
			ids[i] = r.orderOfMember(member)
		}
		orders, _, err := Orders(l).GetReadable(ctx, ids)
		if err != nil {
			return 0, err
		}
		args := []any{fmt.Sprint(hour, " ", from+int64(len(members)))}
		for _, o := range orders {
			if o != nil && o.Status.Terminal() {
				args = append(args, r.order(o.ID.Digest()), binary.BigEndian.AppendUint64(nil, o.Version), encodeShrunk(o))
			}
		}
		_, err = l.run(ctx, "shrink_orders", []string{r.key(kindShrunk)}, args...)
		return len(members), err
	}
	return 0, nil
}
