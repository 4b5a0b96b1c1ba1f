package ledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A backup reads ClickHouse before Redis, so what is exported in between is in
// neither copy unless Redis keeps it. A Hold is a consumer group of its own in
// every stream that is exported. It stands where the exporter stood before
// ClickHouse was read, so that neither Trim nor Retire removes what lies behind
// it. The copy of Redis contains it, and so says from where a restored exporter
// has to go on.

// holdPrefix begins the names of these groups; the Unix time of the beginning
// follows.
const holdPrefix = "backup@"

// HoldLifetime is how long a hold is honoured: a backup that died must not keep
// the streams for ever. A backup that takes longer is no good.
const HoldLifetime = 24 * time.Hour

// holdExpired tells a hold that nobody releases any more.
func holdExpired(group string, now time.Time) bool {
	text, ok := strings.CutPrefix(group, holdPrefix)
	if !ok {
		return false
	}
	began, err := strconv.ParseInt(text, 10, 64)
	return err != nil || now.Sub(time.Unix(began, 0)) > HoldLifetime
}

// Hold begins to keep whatever has not been exported by now, and marks Redis with
// the backup's id, until Release. Holds that have expired are removed. It returns
// the name under which Release and Resume know it.
func (l Backup) Hold(ctx context.Context, backup string, now time.Time) (string, error) {
	hold := holdPrefix + strconv.FormatInt(now.Unix(), 10)
	err := l.eachExported(ctx, func(key string, groups []redis.XInfoGroup) error {
		from, err := l.exportedUntil(ctx, key, groups)
		if err != nil {
			return err
		}
		for _, g := range groups {
			if holdExpired(g.Name, now) {
				if err := l.rdb.XGroupDestroy(ctx, key, g.Name).Err(); err != nil {
					return err
				}
			}
		}
		return l.rdb.XGroupCreate(ctx, key, hold, from).Err()
	})
	if err == nil {
		err = failureOrNil(l.rdb.HSet(ctx, l.global.prefix+"meta", "backup", backup).Err())
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("holding the streams: %w", err), l.Release(context.WithoutCancel(ctx), hold))
	}
	return hold, nil
}

// Release ends a hold. It may be repeated.
func (l Backup) Release(ctx context.Context, hold string) error {
	err := l.rdb.HDel(ctx, l.global.prefix+"meta", "backup").Err()
	err = errors.Join(failureOrNil(err), l.eachExported(ctx, func(key string, _ []redis.XInfoGroup) error {
		return l.rdb.XGroupDestroy(ctx, key, hold).Err()
	}))
	if err != nil {
		return fmt.Errorf("releasing the streams: %w", err)
	}
	return nil
}

// eachExported hands do every stream that is exported and there, with its groups.
func (l *core) eachExported(ctx context.Context, do func(key string, groups []redis.XInfoGroup) error) error {
	for _, r := range l.partitions {
		for _, kind := range streamKinds(RoleExport) {
			groups, err := l.rdb.XInfoGroups(ctx, r.key(kind)).Result()
			if redis.HasErrorPrefix(err, "no such key") {
				continue
			}
			if err == nil {
				err = do(r.key(kind), groups)
			}
			if err != nil {
				return fmt.Errorf("stream of partition %d: %w", r.number, failure(err))
			}
		}
	}
	return nil
}

// exportedUntil is the id up to which everything has been exported.
func (l *core) exportedUntil(ctx context.Context, key string, groups []redis.XInfoGroup) (string, error) {
	for _, g := range groups {
		if g.Name != string(RoleExport) {
			continue
		}
		if g.Pending == 0 {
			return g.LastDeliveredID, nil
		}
		pending, err := l.rdb.XPending(ctx, key, g.Name).Result()
		if err != nil || pending.Count == 0 {
			return g.LastDeliveredID, err
		}
		return idBefore(pending.Lower), nil
	}
	return "0-0", nil
}

// idBefore is the greatest id that is less; of 0-0 itself.
func idBefore(id string) string {
	ms, sequence := splitStreamID(id)
	switch {
	case sequence > 0:
		sequence--
	case ms > 0:
		ms, sequence = ms-1, math.MaxUint64
	}
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(sequence, 10)
}

// ErrOtherCopy says that Redis does not hold the backup that is to be finished.
var ErrOtherCopy = errors.New("this Redis does not hold that backup")

// Resumed is what Resume has changed.
type Resumed struct {
	// Before says that nothing was left to do: it was resumed earlier.
	Before   bool
	Epoch    uint32 // in which new versions are written
	Streams  int    // whose exporter goes on where it stood before ClickHouse was copied
	Sessions int    // of the panel that were ended
}

// Resume makes a Redis that was restored from a backup fit to go on, before any
// program is started:
//
//   - The exporter goes on where it stood before ClickHouse was copied.
//   - The epoch is raised, so that what happens from now on never carries a
//     version or event id that was given out between the backup and the loss.
//   - Sessions of the panel end: one that was ended after the backup would be
//     open again.
//
// ErrOtherCopy unless Redis was restored from the backup of that id. It may be
// repeated after an error.
func (l Backup) Resume(ctx context.Context, backup, hold string, now time.Time) (Resumed, error) {
	before, epoch, err := l.resumable(ctx, backup)
	if err != nil || before {
		return Resumed{Before: before, Epoch: epoch}, err
	}
	done := Resumed{Epoch: nextEpoch(epoch, now)}
	if done.Streams, err = l.setBack(ctx, hold); err != nil {
		return done, err
	}
	if done.Sessions, err = l.endSessions(ctx); err != nil {
		return done, err
	}
	// Last: until here all of it would be done again.
	meta := l.global.prefix + "meta"
	pipe := l.rdb.TxPipeline()
	pipe.HSet(ctx, meta, "epoch", done.Epoch, "restored", backup)
	pipe.HDel(ctx, meta, "backup")
	if _, err := pipe.Exec(ctx); err != nil {
		return done, fmt.Errorf("raising the epoch: %w", failure(err))
	}
	l.raiseEpoch(done.Epoch)
	return done, nil
}

// Resumable is nil when Redis was restored from the backup of that id, whether or
// not it has been resumed since; else ErrOtherCopy.
func (l Backup) Resumable(ctx context.Context, backup string) error {
	_, _, err := l.resumable(ctx, backup)
	return err
}

func (l *core) resumable(ctx context.Context, backup string) (before bool, epoch uint32, err error) {
	known, err := l.rdb.HMGet(ctx, l.global.prefix+"meta", "backup", "restored", "epoch").Result()
	if err != nil {
		return false, 0, fmt.Errorf("reading the ledger's meta: %w", failure(err))
	}
	n, err := metaNumber(known, 2)
	if err != nil {
		return false, 0, fmt.Errorf("the ledger's epoch: %w", err)
	}
	before = known[1] == any(backup)
	if !before && known[0] != any(backup) {
		return false, 0, ErrOtherCopy
	}
	return before, uint32(n), nil
}

// epochZero is when epochs that are times began.
const epochZero = 1_577_836_800 // 2020-01-01 UTC

// nextEpoch is beyond every epoch that was ever used, also when the same backup is
// restored a second time: it is the time in seconds since 2020, which 32 bits hold
// until 2156.
func nextEpoch(epoch uint32, now time.Time) uint32 {
	return max(epoch+1, uint32(max(now.Unix()-epochZero, 0)))
}

// setBack moves the exporter's group to the hold's place in every stream, and
// removes the hold. What the exporter had begun comes again with the rest.
func (l *core) setBack(ctx context.Context, hold string) (streams int, err error) {
	err = l.eachExported(ctx, func(key string, groups []redis.XInfoGroup) error {
		from := "0-0" // a stream that is younger than the hold
		for _, g := range groups {
			if g.Name == hold {
				from = g.LastDeliveredID
			}
		}
		pipe := l.rdb.TxPipeline()
		pipe.XGroupDestroy(ctx, key, string(RoleExport))
		pipe.XGroupCreate(ctx, key, string(RoleExport), from)
		for _, g := range groups {
			if strings.HasPrefix(g.Name, holdPrefix) {
				pipe.XGroupDestroy(ctx, key, g.Name)
			}
		}
		streams++
		_, err := pipe.Exec(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("setting the exporter back: %w", err)
	}
	return streams, err
}

// endSessions removes every session of the panel.
func (l *core) endSessions(ctx context.Context) (ended int, err error) {
	prefix := l.global.prefix + string(rune(kindSession))
	remove := func(ctx context.Context, one *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := one.Scan(ctx, cursor, prefix+"*", 5000).Result()
			keys = slices.DeleteFunc(keys, func(key string) bool { return len(key) != len(prefix)+sha256.Size })
			if err == nil && len(keys) > 0 {
				ended += len(keys)
				err = one.Del(ctx, keys...).Err()
			}
			if err != nil {
				return fmt.Errorf("ending sessions: %w", failure(err))
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	return ended, l.eachMaster(ctx, remove)
}
