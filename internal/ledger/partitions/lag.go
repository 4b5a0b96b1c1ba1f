package partitions

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger/core"
)

// Lag is how far a role is behind.
type Lag struct {
	Entries int64     // unread or unsettled
	Oldest  time.Time // when the oldest of them was written; zero: there is none
}

// Lag sums up all partitions. A missing group lags behind by everything. With ErrIncomplete the sums
// lack those of partitions that do not answer.
func (l *Streams) Lag(ctx context.Context, role core.Role) (Lag, error) {
	var streams []*laggingStream
	for _, p := range l.core.Partitions {
		for _, kind := range core.RoleStreams[role] {
			streams = append(streams, &laggingStream{key: p.Key(kind)})
		}
	}

	_, errs := core.PipelinedEach(ctx, l.core.Redis, "reading groups", streams, func(pipe redis.Pipeliner, s *laggingStream) func() error {
		groups := pipe.XInfoGroups(ctx, s.key)
		return func() error {
			s.exists = groups.Err() == nil
			s.group, _ = core.GroupOf(groups.Val(), role)
			return nil
		}
	})

	_, more := core.PipelinedEach(ctx, l.core.Redis, "reading pending entries", streams, func(pipe redis.Pipeliner, s *laggingStream) func() error {
		return s.findFirst(ctx, pipe)
	})

	var lag Lag
	for i, s := range streams {
		errs[i] = cmp.Or(errs[i], more[i])
		if errs[i] != nil || s.first == "" {
			continue
		}

		unread, err := l.core.Unread(ctx, s.key, &s.group)
		if err != nil {
			errs[i] = err
			continue
		}

		lag.Entries += s.group.Pending + unread
		at := core.TimeOfEntry(s.first)
		if lag.Oldest.IsZero() || at.Before(lag.Oldest) {
			lag.Oldest = at
		}
	}

	err := core.Partly(errs)
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
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
func (l *Streams) Mark(ctx context.Context, role core.Role) (Mark, error) {
	mark := make(Mark)
	err := l.core.EachStream(role, func(_ core.Partition, key string) error {
		info, err := l.core.Redis.XInfoStream(ctx, key).Result()
		if redis.HasErrorPrefix(err, "no such key") {
			return nil
		}

		if err == nil && info.LastGeneratedID != "0-0" {
			mark[key] = info.LastGeneratedID
		}
		return core.Failure(err)
	})

	return mark, err
}

// Passed reports whether a role has settled all up to a mark, whatever the clocks say.
func (l *Streams) Passed(ctx context.Context, role core.Role, mark Mark) (bool, error) {
	for key, last := range mark {
		groups, _, err := l.core.GroupsOf(ctx, key)
		group, found := core.GroupOf(groups, role)
		if err != nil || !found {
			return false, err
		}
		first, err := l.core.FirstUnsettled(ctx, key, group)
		if err != nil || first != "" && !core.StreamIDLess(last, first) {
			return false, err
		}
	}

	return true, nil
}

// EachEntry calls do with a role's readable entries since a time, page by page.
func (l *Streams) EachEntry(ctx context.Context, role core.Role, since time.Time, do func([]Entry) error) error {
	start := strconv.FormatInt(max(since.UnixMilli(), 0), 10)
	return l.core.EachStream(role, func(p core.Partition, key string) error {
		return l.core.EachPage(ctx, key, start, "+", func(page []redis.XMessage) error {
			entries := make([]Entry, 0, len(page))
			for _, message := range page {
				e := Entry{Partition: p.Number, ID: message.ID}
				if e.Read(p, message.Values) == nil {
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
