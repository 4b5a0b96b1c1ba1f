package ledger

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func (l *core) eachStream(role Role, do func(p partition, key string) error) error {
	for _, p := range l.partitions {
		for _, kind := range roleStreams[role] {
			if err := do(p, p.key(kind)); err != nil {
				return fmt.Errorf("streams of group %s: %w", role, err)
			}
		}
	}
	return nil
}

// groupsOf lists a stream's groups; the stream may not exist.
func (l *core) groupsOf(ctx context.Context, key string) (groups []redis.XInfoGroup, there bool, err error) {
	groups, err = l.rdb.XInfoGroups(ctx, key).Result()
	if redis.HasErrorPrefix(err, "no such key") {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, failed("reading groups", err)
	}
	return groups, true, nil
}

// groupOf is a role's group; a missing one has read nothing.
func groupOf(groups []redis.XInfoGroup, role Role) (group redis.XInfoGroup, found bool) {
	for _, g := range groups {
		if g.Name == string(role) {
			return g, true
		}
	}
	return redis.XInfoGroup{Name: string(role), LastDeliveredID: "0-0", Lag: -1}, false
}

// oldestPending is the first pending entry of a group; empty: none.
func (l *core) oldestPending(ctx context.Context, key string, g redis.XInfoGroup) (string, error) {
	if g.Pending == 0 {
		return "", nil
	}
	pending, err := l.rdb.XPending(ctx, key, g.Name).Result()
	if err != nil {
		return "", failed("reading pending entries", err)
	}
	return pending.Lower, nil
}

// firstBehind is the first entry of a stream after an id; empty: none.
func (l *core) firstBehind(ctx context.Context, key, id, end string) (string, error) {
	next, err := l.rdb.XRangeN(ctx, key, "("+id, end, 1).Result()
	if err != nil || len(next) == 0 {
		return "", failure(err)
	}
	return next[0].ID, nil
}

// Lag is how far a role is behind.
type Lag struct {
	Entries int64     // unread or unsettled
	Oldest  time.Time // when the oldest of them was written; zero: there is none
}

// Lag sums up all partitions. A missing group lags behind by everything.
func (l Streams) Lag(ctx context.Context, role Role) (Lag, error) {
	var lag Lag
	err := l.eachStream(role, func(_ partition, key string) error {
		groups, there, err := l.groupsOf(ctx, key)
		if err != nil || !there {
			return err
		}
		group, _ := groupOf(groups, role)
		first, err := l.oldestPending(ctx, key, group)
		if err == nil && first == "" {
			first, err = l.firstBehind(ctx, key, group.LastDeliveredID, "+")
		}
		if err != nil || first == "" {
			return err
		}
		unread, err := l.unread(ctx, key, &group)
		if err != nil {
			return err
		}
		lag.Entries += group.Pending + unread
		if at := timeOfEntry(first); lag.Oldest.IsZero() || at.Before(lag.Oldest) {
			lag.Oldest = at
		}
		return nil
	})
	return lag, err
}

// unread is how many entries of a stream a group has yet to read.
func (l *core) unread(ctx context.Context, key string, g *redis.XInfoGroup) (int64, error) {
	if g.Lag >= 0 {
		return g.Lag, nil
	}
	return l.countBetween(ctx, key, g.LastDeliveredID, "+") // Redis does not know it
}

// countBetween counts the entries of a stream after one id, up to another.
func (l *core) countBetween(ctx context.Context, key, after, last string) (n int64, err error) {
	err = l.eachPage(ctx, key, "("+after, last, func(page []redis.XMessage) error { n += int64(len(page)); return nil })
	return n, err
}

// Mark is how far the streams of a role have been written, by stream.
type Mark map[string]string

// Mark is the present end of a role's streams.
func (l Streams) Mark(ctx context.Context, role Role) (Mark, error) {
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
func (l Streams) Passed(ctx context.Context, role Role, mark Mark) (bool, error) {
	for key, last := range mark {
		passed, err := l.passed(ctx, role, key, last)
		if err != nil || !passed {
			return false, err
		}
	}
	return true, nil
}

func (l *core) passed(ctx context.Context, role Role, key, last string) (bool, error) {
	groups, _, err := l.groupsOf(ctx, key)
	group, found := groupOf(groups, role)
	if err != nil || !found {
		return false, err
	}
	if streamIDLess(group.LastDeliveredID, last) {
		// What was never read may have been removed by somebody.
		next, err := l.firstBehind(ctx, key, group.LastDeliveredID, last)
		if err != nil || next != "" {
			return false, err
		}
	}
	pending, err := l.oldestPending(ctx, key, group)
	return err == nil && (pending == "" || streamIDLess(last, pending)), err
}

// floor is the oldest id that some group needs, or the last that all have read; empty
// when a required group is missing. unsettled: some group has pending entries.
func (l *core) floor(ctx context.Context, key string) (floor string, unsettled bool, err error) {
	groups, _, err := l.groupsOf(ctx, key)
	if err != nil {
		return "", false, err
	}
	for _, role := range requiredRoles(key) {
		if _, found := groupOf(groups, role); !found {
			return "", false, nil
		}
	}
	for _, g := range groups {
		if holdExpired(g.Name, time.Now()) {
			continue
		}
		pending, err := l.oldestPending(ctx, key, g)
		if err != nil {
			return "", false, err
		}
		unsettled = unsettled || pending != ""
		if needs := cmp.Or(pending, g.LastDeliveredID); floor == "" || streamIDLess(needs, floor) {
			floor = needs
		}
	}
	return floor, unsettled, nil
}

// exportedUntil is the id up to which everything has been exported.
func (l *core) exportedUntil(ctx context.Context, key string, groups []redis.XInfoGroup) (string, error) {
	group, _ := groupOf(groups, RoleExport)
	pending, err := l.oldestPending(ctx, key, group)
	if err != nil || pending == "" {
		return group.LastDeliveredID, err
	}
	return idBefore(pending), nil
}

func streamIDLess(a, b string) bool { return compareStreamIDs(a, b) < 0 }

func compareStreamIDs(a, b string) int {
	am, as := splitStreamID(a)
	bm, bs := splitStreamID(b)
	return cmp.Or(cmp.Compare(am, bm), cmp.Compare(as, bs))
}

func timeOfEntry(id string) time.Time {
	ms, _ := splitStreamID(id)
	return timeOf(int64(ms))
}

func splitStreamID(id string) (ms, sequence uint64) {
	front, back, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(front, 10, 64)
	sequence, _ = strconv.ParseUint(back, 10, 64)
	return ms, sequence
}

// eachPage calls do with a stream's entries between two ids, 1000 at a time.
func (l *core) eachPage(ctx context.Context, key, start, end string, do func([]redis.XMessage) error) error {
	for {
		page, err := l.rdb.XRangeN(ctx, key, start, end, 1000).Result()
		if err != nil || len(page) == 0 {
			return failed("reading a stream", err)
		}
		if err := do(page); err != nil {
			return err
		}
		start = "(" + page[len(page)-1].ID
	}
}

// EachEntry calls do with a role's readable entries since a time, page by page.
func (l Streams) EachEntry(ctx context.Context, role Role, since time.Time, do func([]Entry) error) error {
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
