package orders

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger/core"
)

// Kept counts the orders of several partitions, in their order. After an error those that could not be
// read are zero. It asks for each hour's list by itself, so that nothing holds Redis up for longer
// when orders are kept for long. Replicas do not confirm the answer, which decides nothing.
func (l *Orders) Kept(ctx context.Context, partitions []int) ([]Kept, error) {
	ctx = core.Unconfirmed(ctx)
	type found struct {
		live  int64
		hours []string // in which orders ended
	}

	read, errs := core.PipelinedEach(ctx, l.core.Redis, "counting orders", partitions, func(pipe redis.Pipeliner, partition int) func() found {
		r := l.core.Partitions[partition]
		live, hours := pipe.ZCard(ctx, r.Key(core.KindTimers)), pipe.ZRange(ctx, r.Key(core.KindEndedHours), 0, -1)
		return func() found { return found{live: live.Val(), hours: hours.Val()} }
	})

	type endedList struct {
		place int // of its partition among partitions
		key   string
	}

	var lists []endedList
	kept := make([]Kept, len(partitions))
	for place, f := range read {
		kept[place].Live = f.live
		if len(f.hours) > 0 {
			kept[place].FirstEnded = time.Unix((core.ParseNumber(f.hours[0])+1)*3600, 0)
		}
		for _, hour := range f.hours {
			key := l.core.Partitions[partitions[place]].KeyOf(core.KindEnded, []byte(hour))
			lists = append(lists, endedList{place: place, key: key})
		}
	}

	sizes, problems := core.PipelinedEach(ctx, l.core.Redis, "counting ended orders", lists, func(pipe redis.Pipeliner, list endedList) func() int64 {
		return pipe.LLen(ctx, list.key).Val
	})

	for i, list := range lists {
		kept[list.place].Ended += sizes[i]
		errs[list.place] = cmp.Or(errs[list.place], problems[i])
	}

	for place, err := range errs {
		if err != nil {
			kept[place] = Kept{}
		}
	}

	return kept, core.Partly(errs)
}

// settledUntil is the time up to which every group has settled every entry of a stream: now when none
// is left, zero when that is not known. now is Redis's time from before the call, because what comes
// later is not settled.
func (l *Orders) settledUntil(ctx context.Context, key string, now time.Time) (time.Time, error) {
	floor, unsettled, err := l.core.Floor(ctx, key)
	if err != nil || floor == "" {
		return time.Time{}, err
	}
	info, err := l.core.Redis.XInfoStream(ctx, key).Result()
	if err != nil {
		return time.Time{}, core.Failed("reading a stream", err)
	}

	until := core.TimeOfEntry(floor)
	if floor == info.LastGeneratedID && !unsettled && now.After(until) {
		until = now
	}

	return until, nil
}

// Retire removes at most limit orders that ended before a time, whose events all groups have
// settled; their external ids stay. The age of an undecided report moves that time back, so that an
// acknowledged Delivered finds its order. It returns how many it settled.
func (l *Orders) Retire(ctx context.Context, partition int, endedBefore time.Time, limit int) (int, error) {
	r := l.core.Partitions[partition]
	now, err := l.core.TimeOf(ctx, r)
	if err != nil {
		return 0, err
	}
	settled, err := l.settledUntil(ctx, r.Key(core.KindEvents), now)
	if err != nil || settled.IsZero() {
		return 0, err
	}
	decided, err := l.settledUntil(ctx, r.Key(core.KindUpdates), now)
	if err != nil || decided.IsZero() {
		return 0, err
	}

	undecidedFor := now.Sub(decided)
	bound := min(endedBefore.Add(-undecidedFor).UnixMilli(), settled.UnixMilli())
	hours, err := l.endedHours(ctx, r, 0, bound)
	if err != nil {
		return 0, err
	}

	retired := 0
	for _, hour := range hours {
		for retired < limit {
			reply, err := l.core.Run(ctx, "retire_orders", RetirementKeys(r, hour),
				r.Prefix, hour, min(limit-retired, RetireBatch), NewRetiredIndex())
			if err != nil {
				return retired, err
			}

			n, ok := reply.(int64)
			if !ok {
				return retired, core.UnreadableReply("retire_orders")
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
func (l *Orders) endedHours(ctx context.Context, r core.Partition, from, bound int64) ([]string, error) {
	hours, err := l.core.Redis.ZRangeByScore(ctx, r.Key(core.KindEndedHours), &redis.ZRangeBy{
		Min: strconv.FormatInt(from, 10), Max: strconv.FormatInt(bound/time.Hour.Milliseconds()-1, 10)}).Result()
	return hours, core.Failed("reading ended orders", err)
}

// RetireBatch keeps one script below a millisecond: it takes a third to a half of one.
const RetireBatch = 32

// Shrink drops from some orders that ended before a time what nobody reads any more (codec.shrunk),
// and returns how many it has looked at; 0: no more are left. It keeps how far it has got. An order
// that is listed twice is shrunk once. After its end only the head of an order is written, and the
// script takes that as it is. Orders that cannot be read stay as they are.
func (l *Orders) Shrink(ctx context.Context, partition int, endedBefore time.Time) (int, error) {
	r := l.core.Partitions[partition]
	position, err := l.core.Redis.Get(ctx, r.Key(core.KindShrunk)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, core.Failed("reading how far orders are shrunk", err)
	}

	last, place, _ := strings.Cut(position, " ")
	hours, err := l.endedHours(ctx, r, core.ParseNumber(last), endedBefore.UnixMilli())
	if err != nil {
		return 0, err
	}

	for _, hour := range hours {
		from := int64(0)
		if hour == last {
			from = core.ParseNumber(place)
		}

		members, err := l.core.Redis.LRange(ctx, r.KeyOf(core.KindEnded, []byte(hour)), from, from+RetireBatch-1).Result()
		if err != nil {
			return 0, core.Failed("reading ended orders", err)
		}

		if len(members) == 0 {
			continue
		}

		orders, _, err := l.GetReadable(ctx, r.OrdersOf(members))
		if err != nil {
			return 0, err
		}

		args := []any{fmt.Sprint(hour, " ", from+int64(len(members)))}
		for _, o := range orders {
			if o != nil && o.Status.Terminal() {
				args = append(args, r.Order(o.ID.Digest()), binary.BigEndian.AppendUint64(nil, o.Version), core.EncodeShrunk(o))
			}
		}

		_, err = l.core.Run(ctx, "shrink_orders", []string{r.Key(core.KindShrunk)}, args...)

		return len(members), err
	}

	return 0, nil
}

// RefusedKept bounds the refused updates, and the dead letters, of a partition.
const RefusedKept = 10_000

// Kept is what a partition keeps of orders.
type Kept struct {
	Live, Ended int64     // orders that have not ended, and that have
	FirstEnded  time.Time // the end of the hour in which the first of those ended that are kept; zero: there is none
}
