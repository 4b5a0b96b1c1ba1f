package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// QueueStats are the queues of all endpoints in one state.
type QueueStats struct {
	Endpoints    int64 // with something waiting or being sent
	Events       int64
	BreakersOpen int64
	// Oldest is when the oldest event happened, of those that are next in their
	// queues; zero when nothing waits.
	Oldest time.Time
}

// queueReads are the commands that tell of one queue: how much waits, and what
// is next of each part.
type queueReads struct {
	endpoint *redis.SliceCmd
	sizes    [3]*redis.IntCmd
	next     [3]*redis.StringSliceCmd
}

// QueueStats sums up what waits for webhook endpoints, by the endpoints' state.
// It looks at every endpoint that has anything.
func (l Monitor) QueueStats(ctx context.Context) (map[EndpointState]QueueStats, error) {
	all := make(map[EndpointState]QueueStats)
	for _, r := range l.partitions {
		accounts, err := l.rdb.ZRange(ctx, r.key(kindSchedule), 0, -1).Result()
		if err != nil {
			return nil, fmt.Errorf("listing webhook queues: %w", failure(err))
		}
		for page := range slices.Chunk(accounts, 500) {
			if err := l.addQueues(ctx, r, page, all); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (l *core) addQueues(ctx context.Context, r partition, accounts []string, all map[EndpointState]QueueStats) error {
	pipe := l.rdb.Pipeline()
	reads := make([]queueReads, len(accounts))
	for i, account := range accounts {
		id := []byte(account)
		q, d, k := r.keyOf(kindQueue, id), r.keyOf(kindRetries, id), r.keyOf(kindLeases, id)
		reads[i] = queueReads{
			endpoint: pipe.HMGet(ctx, r.keyOf(kindEndpoint, id), "state", "gate"),
			sizes:    [3]*redis.IntCmd{pipe.LLen(ctx, q), pipe.ZCard(ctx, d), pipe.ZCard(ctx, k)},
			next:     [3]*redis.StringSliceCmd{pipe.LRange(ctx, q, 0, 0), pipe.ZRange(ctx, d, 0, 0), pipe.ZRange(ctx, k, 0, 0)},
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("reading webhook queues: %w", failure(err))
	}
	next := make(map[EndpointState][]string)
	for _, c := range reads {
		events := c.sizes[0].Val() + c.sizes[1].Val() + c.sizes[2].Val()
		if events == 0 {
			continue
		}
		values := c.endpoint.Val()
		state := EndpointState(text(values[0]))
		var e WebhookEndpoint
		e.readGate(text(values[1]))
		s := all[state]
		s.Endpoints++
		s.Events += events
		if e.BreakerOpen {
			s.BreakersOpen++
		}
		all[state] = s
		for _, part := range c.next {
			next[state] = append(next[state], part.Val()...)
		}
	}
	return l.addOldest(ctx, r, next, all)
}

// addOldest reads when the given events happened.
func (l *core) addOldest(ctx context.Context, r partition, next map[EndpointState][]string, all map[EndpointState]QueueStats) error {
	for state, items := range next {
		pipe := l.rdb.Pipeline()
		ds := make([]*Delivery, len(items))
		records := make([]*redis.StringCmd, len(items))
		for i, item := range items {
			ds[i] = &Delivery{partition: r, item: item}
			records[i] = ds[i].read(ctx, pipe)
		}
		if pipe.Len() > 0 {
			if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
				return fmt.Errorf("reading the oldest events: %w", failure(err))
			}
		}
		s := all[state]
		for i, d := range ds {
			if reason, err := d.fill(r, records[i]); err != nil || reason != "" {
				continue
			}
			if s.Oldest.IsZero() || d.OccurredAt.Before(s.Oldest) {
				s.Oldest = d.OccurredAt
			}
		}
		all[state] = s
	}
	return nil
}
