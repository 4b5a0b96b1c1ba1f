package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Stats is what operators watch, summed over the partitions.
type Stats struct {
	Events, Updates int64          // entries in the streams
	Unread          map[Role]int64 // entries that a role has yet to read
	Pending         map[Role]int64 // read and not settled
	RefusedUpdates  int64          // traces kept of updates that were refused
	DeadLetters     int64
	// InFlight is how many orders have not ended: those with a timer, which an
	// order has from when the status role sees it to its end.
	InFlight int64
}

// Stats reads the figures of every partition in one round trip per kind.
func (l Monitor) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Unread: make(map[Role]int64), Pending: make(map[Role]int64)}
	pipe := l.rdb.Pipeline()
	type reading struct {
		events, updates, refused, dead, timers *redis.IntCmd
		groups                                 [2]*redis.XInfoGroupsCmd
	}
	reads := make([]reading, len(l.partitions))
	for i, r := range l.partitions {
		reads[i] = reading{
			events: pipe.XLen(ctx, r.key(kindEvents)), updates: pipe.XLen(ctx, r.key(kindUpdates)),
			refused: pipe.XLen(ctx, r.key(kindRefused)),
			dead:    pipe.XLen(ctx, r.key(kindDeadLetters)),
			timers:  pipe.ZCard(ctx, r.key(kindTimers)),
			groups:  [2]*redis.XInfoGroupsCmd{pipe.XInfoGroups(ctx, r.key(kindEvents)), pipe.XInfoGroups(ctx, r.key(kindUpdates))},
		}
	}
	_, err := pipe.Exec(ctx)
	// A stream that nobody has written to yet has no groups to tell of.
	if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "no such key") {
		return s, fmt.Errorf("reading statistics: %w", failure(err))
	}
	for _, p := range reads {
		s.Events += p.events.Val()
		s.Updates += p.updates.Val()
		s.RefusedUpdates += p.refused.Val()
		s.DeadLetters += p.dead.Val()
		s.InFlight += p.timers.Val()
		for _, groups := range p.groups {
			for _, g := range groups.Val() {
				s.Unread[Role(g.Name)] += g.Lag
				s.Pending[Role(g.Name)] += g.Pending
			}
		}
	}
	return s, nil
}
