package partitions

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// Trim drops entries that every group has settled: couriers' updates and attempts
// that go on at once, others, which replays read, once they are older than keep. It
// drops nothing while a required group is missing. It returns how many it dropped.
func (l *Streams) Trim(ctx context.Context, partition int, keep time.Duration) (int64, error) {
	r := l.core.Partitions[partition]
	total := int64(0)
	for _, kind := range []byte{core.KindEvents, core.KindUpdates, core.KindOutcomes, core.KindTries, core.KindAudit} {
		key := r.Key(kind)
		floor, _, err := l.core.Floor(ctx, key)
		if err != nil {
			return total, err
		}

		if floor == "" {
			continue
		}

		if horizon := fmt.Sprintf("%d-0", l.core.Now().Add(-keep).UnixMilli()); kind != core.KindTries && kind != core.KindUpdates && core.StreamIDLess(horizon, floor) {
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

// TrimmedAtOnce bounds what one command drops of a stream, however much there is, so that it blocks
// Redis for about a millisecond.
const TrimmedAtOnce = 5000

// trimStream drops a stream's entries before an id, and returns how many. After an error some may be
// gone.
func (l *Streams) trimStream(ctx context.Context, key, floor string) (int64, error) {
	total, dropped := int64(0), int64(TrimmedAtOnce)
	for mayHaveMore(dropped) { // whole nodes
		var err error
		dropped, err = l.core.Redis.XTrimMinIDApprox(ctx, key, floor, TrimmedAtOnce).Result()
		if err != nil {
			return total, core.Failed("trimming", err)
		}
		total += dropped
	}

	rest, err := l.core.Redis.XTrimMinID(ctx, key, floor).Result() // of the last node

	return total + rest, core.Failed("trimming", err)
}

// trimStreams is trimStream for many streams, most of which have little or nothing to drop.
func (l *Streams) trimStreams(ctx context.Context, keys []string, floor string) (int64, error) {
	const what = "trimming accounts' events"
	total := int64(0)
	wholeNodes, err := core.Pipelined(ctx, l.core.Redis, what, keys, func(pipe redis.Pipeliner, key string) func() int64 {
		return pipe.XTrimMinIDApprox(ctx, key, floor, TrimmedAtOnce).Val
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

	rests, err := core.Pipelined(ctx, l.core.Redis, what, keys, func(pipe redis.Pipeliner, key string) func() int64 {
		return pipe.XTrimMinID(ctx, key, floor).Val
	})
	for _, n := range rests {
		total += n
	}

	return total, err
}

// mayHaveMore reports whether a trim that has dropped so many entries may have stopped at
// trimmedAtOnce. It stops before a node that would exceed that; nodes have 100 entries.
func mayHaveMore(dropped int64) bool { return dropped > TrimmedAtOnce/2 }

// AccountEventsKept is how long the events of an account's own stream are kept, as in core/names.lua.
const AccountEventsKept = 25 * time.Hour

// TrimAccounts drops from the streams of a partition's accounts what no replay reaches any more, and
// returns how many entries. Each event that an account gets does the same, and its stream expires
// 25 to 26 hours after the last one; but an account that has become quiet keeps until then what it had. It
// sends two commands for each account, so it is for a Redis that needs room.
func (l *Streams) TrimAccounts(ctx context.Context, partition int) (int64, error) {
	r := l.core.Partitions[partition]
	floor := fmt.Sprintf("%d-0", l.core.Now().Add(-AccountEventsKept).UnixMilli())
	total := int64(0)
	trim := func(accounts []delivery.AccountID) error {
		streams := make([]string, len(accounts))
		for i, id := range accounts {
			streams[i] = r.KeyOf(core.KindAccountEvents, id[:])
		}
		dropped, err := l.trimStreams(ctx, streams, floor)
		total += dropped
		return err
	}

	err := l.core.EachAccountOf(ctx, l.core.Partitions[partition:partition+1], trim)
	if err == nil && l.core.PartitionOf(delivery.FinanceAccount) == r { // it is not in the set
		err = trim([]delivery.AccountID{delivery.FinanceAccount})
	}

	return total, err
}
