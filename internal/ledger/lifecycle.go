package ledger

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

	"vendorapi/internal/delivery"
)

// refusedKept bounds the refused updates, and the dead letters, of a partition.
const refusedKept = 10_000

// firstTimerAfter is the earliest that any timer of a new order can be due.
const firstTimerAfter = 15 * time.Minute

// Trim drops entries that every group has settled: couriers' updates and attempts
// that go on at once, others, which replays read, once they are older than keep. It
// drops nothing while a required group is missing. It returns how many it dropped.
func (l *Lifecycle) Trim(ctx context.Context, partition int, keep time.Duration) (int64, error) {
	r := l.partitions[partition]
	total := int64(0)
	for _, kind := range []byte{kindEvents, kindUpdates, kindOutcomes, kindTries, kindAudit} {
		key := r.key(kind)
		floor, _, err := l.floor(ctx, key)
		if err != nil {
			return total, err
		}

		if floor == "" {
			continue
		}

		if horizon := fmt.Sprintf("%d-0", l.Now().Add(-keep).UnixMilli()); kind != kindTries && kind != kindUpdates && streamIDLess(horizon, floor) {
			floor = horizon
		}

		n, err := l.trimStream(ctx, key, floor)
		total += n
		if err != nil {
			return total, err
		}
	}

	return total, nil
}

// trimmedAtOnce bounds what one command drops of a stream, however much there is, so that it blocks
// Redis for about a millisecond.
const trimmedAtOnce = 5000

// trimStream drops a stream's entries before an id, and returns how many. After an error some may be
// gone.
func (l *Lifecycle) trimStream(ctx context.Context, key, floor string) (int64, error) {
	total, dropped := int64(0), int64(trimmedAtOnce)
	for mayHaveMore(dropped) { // whole nodes
		var err error
		dropped, err = l.rdb.XTrimMinIDApprox(ctx, key, floor, trimmedAtOnce).Result()
		if err != nil {
			return total, failed("trimming", err)
		}
		total += dropped
	}

	rest, err := l.rdb.XTrimMinID(ctx, key, floor).Result() // of the last node

	return total + rest, failed("trimming", err)
}

// trimStreams is trimStream for many streams, most of which have little or nothing to drop.
func (l *Lifecycle) trimStreams(ctx context.Context, keys []string, floor string) (int64, error) {
	const what = "trimming accounts' events"
	total := int64(0)
	wholeNodes, err := pipelined(ctx, l.rdb, what, keys, func(pipe redis.Pipeliner, key string) func() int64 {
		return pipe.XTrimMinIDApprox(ctx, key, floor, trimmedAtOnce).Val
	})
	for i, n := range wholeNodes {
		total += n
		if mayHaveMore(n) {
			more, err := l.trimStream(ctx, keys[i], floor)
			total += more
			if err != nil {
				return total, err
			}
		}
	}

	if err != nil {
		return total, err
	}

	rests, err := pipelined(ctx, l.rdb, what, keys, func(pipe redis.Pipeliner, key string) func() int64 {
		return pipe.XTrimMinID(ctx, key, floor).Val
	})
	for _, n := range rests {
		total += n
	}

	return total, err
}

// mayHaveMore reports whether a trim that has dropped so many entries may have stopped at
// trimmedAtOnce. It stops before a node that would exceed that; nodes have 100 entries.
func mayHaveMore(dropped int64) bool { return dropped > trimmedAtOnce/2 }

// accountEventsKept is how long the events of an account's own stream are kept, as in lua/names.lua.
const accountEventsKept = 25 * time.Hour

// TrimAccounts drops from the streams of a partition's accounts what no replay reaches any more, and
// returns how many entries. Each event that an account gets does the same, and its stream expires
// 25 to 26 hours after the last one; but an account that has become quiet keeps until then what it had. It
// sends two commands for each account, so it is for a Redis that needs room.
func (l *Lifecycle) TrimAccounts(ctx context.Context, partition int) (int64, error) {
	r := l.partitions[partition]
	floor := fmt.Sprintf("%d-0", l.Now().Add(-accountEventsKept).UnixMilli())
	total := int64(0)
	trim := func(accounts []delivery.AccountID) error {
		streams := make([]string, len(accounts))
		for i, id := range accounts {
			streams[i] = r.keyOf(kindAccountEvents, id[:])
		}
		dropped, err := l.trimStreams(ctx, streams, floor)
		total += dropped
		return err
	}

	err := l.eachAccountOf(ctx, l.partitions[partition:partition+1], trim)
	if err == nil && l.partitionOf(delivery.FinanceAccount) == r { // it is not in the set
		err = trim([]delivery.AccountID{delivery.FinanceAccount})
	}

	return total, err
}

// Kept is what a partition keeps of orders.
type Kept struct {
	Live, Ended int64     // orders that have not ended, and that have
	FirstEnded  time.Time // the end of the hour in which the first of those ended that are kept; zero: there is none
}

// Kept counts the orders of several partitions, in their order. After an error those that could not be
// read are zero. It asks for each hour's list by itself, so that nothing holds Redis up for longer
// when orders are kept for long. Replicas do not confirm the answer, which decides nothing.
func (l *Lifecycle) Kept(ctx context.Context, partitions []int) ([]Kept, error) {
	ctx = unconfirmed(ctx)
	type found struct {
		live  int64
		hours []string // in which orders ended
	}

	read, errs := pipelinedEach(ctx, l.rdb, "counting orders", partitions, func(pipe redis.Pipeliner, partition int) func() found {
		r := l.partitions[partition]
		live, hours := pipe.ZCard(ctx, r.key(kindTimers)), pipe.ZRange(ctx, r.key(kindEndedHours), 0, -1)
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
			kept[place].FirstEnded = time.Unix((number(f.hours[0])+1)*3600, 0)
		}
		for _, hour := range f.hours {
			key := l.partitions[partitions[place]].keyOf(kindEnded, []byte(hour))
			lists = append(lists, endedList{place: place, key: key})
		}
	}

	sizes, problems := pipelinedEach(ctx, l.rdb, "counting ended orders", lists, func(pipe redis.Pipeliner, list endedList) func() int64 {
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

	return kept, partly(errs)
}

// settledUntil is the time up to which every group has settled every entry of a stream: now when none
// is left, zero when that is not known. now is Redis's time from before the call, because what comes
// later is not settled.
func (l *Lifecycle) settledUntil(ctx context.Context, key string, now time.Time) (time.Time, error) {
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
func (l *Lifecycle) Retire(ctx context.Context, partition int, endedBefore time.Time, limit int) (int, error) {
	r := l.partitions[partition]
	now, err := l.timeOf(ctx, r)
	if err != nil {
		return 0, err
	}
	settled, err := l.settledUntil(ctx, r.key(kindEvents), now)
	if err != nil || settled.IsZero() {
		return 0, err
	}
	decided, err := l.settledUntil(ctx, r.key(kindUpdates), now)
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
			reply, err := l.run(ctx, "retire_orders", r.retirementKeys(hour),
				r.prefix, hour, min(limit-retired, retireBatch), newRetiredIndex())
			if err != nil {
				return retired, err
			}

			n, ok := reply.(int64)
			if !ok {
				return retired, unreadable("retire_orders")
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
func (l *Lifecycle) endedHours(ctx context.Context, r partition, from, bound int64) ([]string, error) {
	hours, err := l.rdb.ZRangeByScore(ctx, r.key(kindEndedHours), &redis.ZRangeBy{
		Min: strconv.FormatInt(from, 10), Max: strconv.FormatInt(bound/time.Hour.Milliseconds()-1, 10)}).Result()
	return hours, failed("reading ended orders", err)
}

// retireBatch keeps one script below a millisecond: it takes a third to a half of one.
const retireBatch = 32

// Shrink drops from some orders that ended before a time what nobody reads any more (codec.shrunk),
// and returns how many it has looked at; 0: no more are left. It keeps how far it has got. An order
// that is listed twice is shrunk once. After its end only the head of an order is written, and the
// script takes that as it is. Orders that cannot be read stay as they are.
func (l *Lifecycle) Shrink(ctx context.Context, partition int, endedBefore time.Time) (int, error) {
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

		orders, _, err := l.orders.GetReadable(ctx, r.ordersOf(members))
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

// Lag is how far a role is behind.
type Lag struct {
	Entries int64     // unread or unsettled
	Oldest  time.Time // when the oldest of them was written; zero: there is none
}

// Lag sums up all partitions. A missing group lags behind by everything. With ErrIncomplete the sums
// lack those of partitions that do not answer.
func (l *Streams) Lag(ctx context.Context, role Role) (Lag, error) {
	var streams []*laggingStream
	for _, p := range l.partitions {
		for _, kind := range roleStreams[role] {
			streams = append(streams, &laggingStream{key: p.key(kind)})
		}
	}

	_, errs := pipelinedEach(ctx, l.rdb, "reading groups", streams, func(pipe redis.Pipeliner, s *laggingStream) func() error {
		groups := pipe.XInfoGroups(ctx, s.key)
		return func() error {
			s.exists = groups.Err() == nil
			s.group, _ = groupOf(groups.Val(), role)
			return nil
		}
	})

	_, more := pipelinedEach(ctx, l.rdb, "reading pending entries", streams, func(pipe redis.Pipeliner, s *laggingStream) func() error {
		return s.findFirst(ctx, pipe)
	})

	var lag Lag
	for i, s := range streams {
		errs[i] = cmp.Or(errs[i], more[i])
		if errs[i] != nil || s.first == "" {
			continue
		}

		unread, err := l.unread(ctx, s.key, &s.group)
		if err != nil {
			errs[i] = err
			continue
		}

		lag.Entries += s.group.Pending + unread
		at := timeOfEntry(s.first)
		if lag.Oldest.IsZero() || at.Before(lag.Oldest) {
			lag.Oldest = at
		}
	}

	err := partly(errs)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return Lag{}, err
	}

	return lag, err
}

// laggingStream is a stream, and what a role has yet to settle of it.
type laggingStream struct {
	key    string
	exists bool
	group  redis.XInfoGroup
	first  string // the oldest entry that is not settled; empty: there is none
}

// findFirst asks for the oldest entry that is pending, and for the first that was not read yet.
func (s *laggingStream) findFirst(ctx context.Context, pipe redis.Pipeliner) func() error {
	if !s.exists {
		return nil
	}

	var pending *redis.XPendingCmd
	if s.group.Pending > 0 {
		pending = pipe.XPending(ctx, s.key, s.group.Name)
	}

	next := pipe.XRangeN(ctx, s.key, "("+s.group.LastDeliveredID, "+", 1)

	return func() error {
		if len(next.Val()) > 0 {
			s.first = next.Val()[0].ID
		}
		if pending != nil && pending.Val().Lower != "" {
			s.first = pending.Val().Lower
		}
		return nil
	}
}

// Mark is how far the streams of a role have been written, by stream.
type Mark map[string]string

// Mark is the present end of a role's streams.
func (l *Streams) Mark(ctx context.Context, role Role) (Mark, error) {
	mark := make(Mark)
	err := l.eachStream(role, func(_ partition, key string) error {
		info, err := l.rdb.XInfoStream(ctx, key).Result()
		if redis.HasErrorPrefix(err, "no such key") {
			return nil
		}

		if err == nil && info.LastGeneratedID != "0-0" {
			mark[key] = info.LastGeneratedID
		}
		return failure(err)
	})

	return mark, err
}

// Passed reports whether a role has settled all up to a mark, whatever the clocks say.
func (l *Streams) Passed(ctx context.Context, role Role, mark Mark) (bool, error) {
	for key, last := range mark {
		groups, _, err := l.groupsOf(ctx, key)
		group, found := groupOf(groups, role)
		if err != nil || !found {
			return false, err
		}
		first, err := l.firstUnsettled(ctx, key, group)
		if err != nil || first != "" && !streamIDLess(last, first) {
			return false, err
		}
	}

	return true, nil
}

// EachEntry calls do with a role's readable entries since a time, page by page.
func (l *Streams) EachEntry(ctx context.Context, role Role, since time.Time, do func([]Entry) error) error {
	start := strconv.FormatInt(max(since.UnixMilli(), 0), 10)
	return l.eachStream(role, func(p partition, key string) error {
		return l.eachPage(ctx, key, start, "+", func(page []redis.XMessage) error {
			entries := make([]Entry, 0, len(page))
			for _, message := range page {
				e := Entry{Partition: p.number, ID: message.ID}
				if e.read(p, message.Values) == nil {
					entries = append(entries, e)
				}
			}

			if len(entries) == 0 {
				return nil
			}

			return do(entries)
		})
	})
}
