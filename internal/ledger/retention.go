package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Trim drops a partition's stream entries that are older than keep and that
// every group has read and settled, and of what no replay looks at, couriers'
// updates and attempts that go on, all that are settled; it drops nothing while a
// required group is missing. Returns how many entries went.
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
			return total, fmt.Errorf("trimming: %w", failure(err))
		}
		total += n
	}
	return total, nil
}

// floor is the oldest id of a stream that some group still needs, or the last
// one that all have read; empty when a required group is missing, for then
// nothing may go. unsettled tells that some group has entries to settle.
func (l *core) floor(ctx context.Context, key string) (floor string, unsettled bool, err error) {
	groups, err := l.rdb.XInfoGroups(ctx, key).Result()
	if redis.HasErrorPrefix(err, "no such key") {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("reading groups: %w", failure(err))
	}
	missing := make(map[string]bool)
	for _, role := range requiredRoles(key) {
		missing[string(role)] = true
	}
	for _, g := range groups {
		if holdExpired(g.Name, time.Now()) {
			continue
		}
		delete(missing, g.Name)
		needs := g.LastDeliveredID
		if g.Pending > 0 {
			pending, err := l.rdb.XPending(ctx, key, g.Name).Result()
			if err != nil {
				return "", false, fmt.Errorf("reading pending entries: %w", failure(err))
			}
			if pending.Count > 0 {
				needs, unsettled = pending.Lower, true
			}
		}
		if floor == "" || streamIDLess(needs, floor) {
			floor = needs
		}
	}
	if len(missing) > 0 {
		return "", false, nil
	}
	return floor, unsettled, nil
}

// settledUntil is the time up to which every group has settled every entry: now
// when they are done with all there are; the zero time when nothing is certain.
func (l *core) settledUntil(ctx context.Context, key string) (time.Time, error) {
	now := time.Now() // before the look: what comes later is not settled
	floor, unsettled, err := l.floor(ctx, key)
	if err != nil || floor == "" {
		return time.Time{}, err
	}
	info, err := l.rdb.XInfoStream(ctx, key).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("reading a stream: %w", failure(err))
	}
	ms, _ := splitStreamID(floor)
	until := time.UnixMilli(int64(ms))
	if floor == info.LastGeneratedID && !unsettled && now.After(until) {
		until = now
	}
	return until, nil
}

// streamIDLess compares two ids "milliseconds-sequence".
func streamIDLess(a, b string) bool {
	am, as := splitStreamID(a)
	bm, bs := splitStreamID(b)
	return am < bm || am == bm && as < bs
}

func splitStreamID(id string) (ms, sequence uint64) {
	front, back, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(front, 10, 64)
	sequence, _ = strconv.ParseUint(back, 10, 64)
	return ms, sequence
}

// Retire removes orders of a partition that ended before a time and whose events
// every group has settled; their external ids stay remembered for ever. A report
// that waits to be decided moves that time back by its age: a Delivered that was
// acknowledged finds its order, however long the status workers were away. Returns
// how many entries of the lists of ended orders were settled, at most limit.
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
		return 0, fmt.Errorf("reading ended orders: %w", failure(err))
	}
	retired := 0
	for _, hour := range hours {
		for retired < limit {
			reply, err := l.run(ctx, l.scripts.retireOrders, []string{r.keyOf(kindEnded, []byte(hour)), r.key(kindEndedHours)},
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
