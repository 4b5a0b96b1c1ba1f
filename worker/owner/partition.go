package owner

import (
	"context"
	"time"

	"vendorapi/internal/ledger/partitions"
	"vendorapi/worker/dispatch"
)

// A partition is one that this process owns.
type partition struct {
	*partitions.Owned
	webhooks *dispatch.Webhooks

	// confirmedAt is when the last write was sent that is known to have been written.
	confirmedAt time.Time
	// webhooksDue is when the webhooks want the next turn.
	webhooksDue time.Time
	// isDrained: the last read brought all there was, and the owner has caught up. No timer runs out before: what would
	// have stopped it may be unread.
	isDrained    bool
	timersReadAt time.Time

	// What the consumer groups were last set to, and when. Readers see in them how far the owner has got.
	groupPositions   partitions.Token
	groupPositionsAt time.Time

	// failures are the tasks that fail for the partition at present.
	failures map[task]failure
}

// positions returns what the consumer groups are to be set to.
func (p *partition) positions() partitions.Token {
	positions := partitions.Token{Events: p.Token.Events, Updates: p.Token.Updates, Webhooks: p.Token.Webhooks}
	if partitions.Later(p.From, positions.Events) {
		positions.Events = p.From
	}
	return positions
}

// untilTurn returns how long the partition can do without a turn. timersEvery is how often timers are read.
func (p *partition) untilTurn(now time.Time, timersEvery time.Duration) time.Duration {
	wait := min(p.confirmedAt.Add(renewEvery).Sub(now), p.webhooksDue.Sub(now))
	if p.isDrained {
		wait = min(wait, p.timersReadAt.Add(timersEvery).Sub(now))
	}

	if p.groupPositions != p.positions() {
		wait = min(wait, p.groupPositionsAt.Add(positionsEvery).Sub(now))
	}
	return wait
}

// A task is what an owner does for a partition besides writing.
type task int

const (
	readingEntries task = iota
	readingOrders
	readingOutcomes
	searchingEndpoints
	readingWebhooks
	readingTimers
)

// failure is the last error of a task, and when it first and last failed without a success in between.
type failure struct {
	first, last time.Time
	err         error
}

// note takes note of how a task has ended, and reports whether it has begun to fail. What ctx has ended has not
// failed. Nor has a task that found damage: partitions are read together, so it may be that of another one, and
// every worker would find it.
func (p *partition) note(ctx context.Context, t task, err error) (beginsToFail bool) {
	if err == nil {
		delete(p.failures, t)
		return false
	}

	if ctx.Err() != nil || partitions.Damaged(err) {
		return false
	}

	now := time.Now()
	before, hasFailed := p.failures[t]
	first := now
	if hasFailed {
		first = before.first
	}

	p.failures[t] = failure{first: first, last: now, err: err}

	return !hasFailed
}

// giveUpAfter is how long a task may fail for a partition whose token can be renewed: Redis is there, and it is
// this worker that does not get on.
const giveUpAfter = 5 * time.Second

// hopeless returns the error of a task that Redis refuses, or that has failed again and again for giveUpAfter; nil
// if there is none. One that failed once and was not needed since says nothing.
func (p *partition) hopeless() error {
	for _, f := range p.failures {
		failsForLong := f.last.Sub(f.first) >= giveUpAfter
		if failsForLong || partitions.Refused(f.err) {
			return f.err
		}
	}
	return nil
}
