package ledger

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"vendorapi/internal/delivery"
)

// A fleet's requests are held to its limit by permits. Redis has the bucket; each gateway
// takes blocks of it and spends them without asking. A gateway that dies loses its block.
const (
	// fleetBurst is the bucket's size in seconds of permits.
	fleetBurst = 5
	// fleetBlocks is how many blocks a second's worth is taken in.
	fleetBlocks = 10
)

// fleetGuard is what this process holds of a fleet's permits. It is locked while Redis is
// asked: the fleet's other requests wait for the same answer.
type fleetGuard struct {
	mu      sync.Mutex
	rate    int // permits a second; what is held was taken under it
	permits int // less than 0: so many are owed
	// Until then requests, or batches, are refused without asking Redis.
	closedUntil, batchesUntil time.Time
	refused                   time.Time // the last refusal that operators do not know of; zero: none
}

// takePermits asks the bucket for up to n permits of so many a second.
type takePermits func(rate, n int) (*redis_rate.Result, error)

// admit spends a permit. RATE_LIMITED with RetryAfter.
func (g *fleetGuard) admit(rate int, now time.Time, take takePermits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rate != rate {
		g.rate, g.permits = rate, min(max(g.permits, 1-fleetBurst*rate), 0)
		g.closedUntil, g.batchesUntil = time.Time{}, time.Time{}
	}
	return g.spend(1, max(rate/fleetBlocks, 1), &g.closedUntil, now, take)
}

// charge spends n permits, capped at the bucket, or none. RATE_LIMITED with RetryAfter.
func (g *fleetGuard) charge(n int, now time.Time, take takePermits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, fleetBurst*g.rate-1)
	return g.spend(n, n, &g.batchesUntil, now, take)
}

// spend spends n permits, of a new block if need be, or refuses until closed.
func (g *fleetGuard) spend(n, block int, closed *time.Time, now time.Time, take takePermits) error {
	if g.permits < n {
		if now.Before(*closed) {
			return g.refuse(now, *closed)
		}
		result, err := take(g.rate, min(block-g.permits, fleetBurst*g.rate))
		if err != nil {
			return failed("permits of a fleet", err)
		}
		if g.permits += result.Allowed; g.permits < n {
			// When the empty bucket has the block; one more, because it rounds down.
			*closed = now.Add(time.Duration(block-g.permits+1) * time.Second / time.Duration(g.rate))
			return g.refuse(now, *closed)
		}
	}
	g.permits -= n
	return nil
}

// owe notes n permits that were spent already, capped at what the bucket holds.
func (g *fleetGuard) owe(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.permits = max(g.permits-n, 1-fleetBurst*g.rate)
}

func (g *fleetGuard) refuse(now, until time.Time) error {
	g.refused = now
	return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: until.Sub(now),
		Message: fmt.Sprintf("the fleet's limit of %d requests a second is used up; wait as Retry-After says", g.rate)}
}

func (l *core) fleetGuard(id delivery.FleetID) *fleetGuard {
	if g, there := l.guards.Load(id); there {
		return g.(*fleetGuard)
	}
	g, _ := l.guards.LoadOrStore(id, new(fleetGuard))
	return g.(*fleetGuard)
}

// Admit counts a request of a fleet. RATE_LIMITED with RetryAfter.
func (l Fleets) Admit(ctx context.Context, f *delivery.Fleet, now time.Time) error {
	return l.fleetGuard(f.ID).admit(f.RequestsPerSecond, now, l.fleetPermits(ctx, f.ID))
}

// Charge counts an admitted request as n more. RATE_LIMITED with RetryAfter.
func (l Fleets) Charge(ctx context.Context, id delivery.FleetID, n int, now time.Time) error {
	return l.fleetGuard(id).charge(n, now, l.fleetPermits(ctx, id))
}

// Owe counts an admitted request as n more once it is done: later ones wait.
func (l Fleets) Owe(id delivery.FleetID, n int) { l.fleetGuard(id).owe(n) }

func (l *core) fleetPermits(ctx context.Context, id delivery.FleetID) takePermits {
	return func(rate, n int) (*redis_rate.Result, error) {
		limit := redis_rate.Limit{Rate: rate, Burst: fleetBurst * rate, Period: time.Second}
		return l.allow(ctx, l.global.prefix+"fleet:"+string(id[:]), limit, n)
	}
}

func (l *core) limitedFleetsKey() string { return l.global.prefix + "fleets_limited" }

// flushLimitedFleets stores which fleets this process has refused since the last call.
func (l *core) flushLimitedFleets(ctx context.Context) error {
	var values []any
	l.guards.Range(func(id, guard any) bool {
		g, fleet := guard.(*fleetGuard), id.(delivery.FleetID)
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.refused.IsZero() {
			values = append(values, fleet[:], g.refused.UnixMilli())
			g.refused = time.Time{}
		}
		return true
	})
	if len(values) == 0 {
		return nil
	}
	return failure(l.rdb.HSet(ctx, l.limitedFleetsKey(), values...).Err())
}

// Limited is when each fleet last exceeded its limit, within some seconds.
func (l Fleets) Limited(ctx context.Context) (map[delivery.FleetID]time.Time, error) {
	known, err := l.rdb.HGetAll(ctx, l.limitedFleetsKey()).Result()
	if err != nil {
		return nil, failed("reading the fleets over their limit", err)
	}
	at := make(map[delivery.FleetID]time.Time, len(known))
	for id, ms := range known {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && len(id) == len(delivery.FleetID{}) {
			at[delivery.FleetID([]byte(id))] = time.UnixMilli(n)
		}
	}
	return at, nil
}
