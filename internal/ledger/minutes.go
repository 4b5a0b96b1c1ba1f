package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"vendorapi/internal/delivery"
)

// Sustained excess (spec, "Limits", rule 3; design section 4): in at least
// excessMinutes of the last excessSpan minutes more than half of an account's
// requests were refused.
const (
	excessMinutes = 5
	excessSpan    = 10
	// FlushMinutesEvery is how often a process adds its counts to Redis.
	FlushMinutesEvery = 10 * time.Second
)

// minuteCounts gathers, in this process, how many requests of each account came
// and how many were refused since the last flush. The figures only ever mark an
// account for an operator, so a crash that loses ten seconds of them is cheaper
// than a write for every refusal.
type minuteCounts struct {
	mu    sync.Mutex
	byAcc map[delivery.AccountID]*minuteCount
}

type minuteCount struct{ all, refused int64 }

func (m *minuteCounts) add(account delivery.AccountID, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byAcc[account]
	if c == nil {
		if m.byAcc == nil {
			m.byAcc = make(map[delivery.AccountID]*minuteCount)
		}
		c = new(minuteCount)
		m.byAcc[account] = c
	}
	c.all++
	if refused {
		c.refused++
	}
}

func (m *minuteCounts) drain() map[delivery.AccountID]*minuteCount {
	m.mu.Lock()
	defer m.mu.Unlock()
	drained := m.byAcc
	m.byAcc = nil
	return drained
}

// Flush adds this process's counts to the current minute and marks or
// clears the accounts in sustained excess. Run it every FlushMinutesEvery, and
// once at the end. What fails to be written is dropped of the accounts' requests
// and kept for the next time of the activity.
func (l Limits) Flush(ctx context.Context, now time.Time) error {
	var calls []call
	for account, c := range l.minutes.drain() {
		r := l.partitionOf(account)
		calls = append(calls, call{
			keys: []string{r.keyOf(kindMinutes, account[:]), r.account(account)},
			args: []any{now.Unix() / 60, c.all, c.refused, excessSpan, excessMinutes, now.UnixMilli()},
		})
	}
	_, err := l.runAll(ctx, l.scripts.countMinutes, calls)
	return errors.Join(err, l.flushActivity(ctx, now), l.flushLimitedFleets(ctx))
}
