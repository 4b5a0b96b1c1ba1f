package owner

import (
	"cmp"
	"context"
	"errors"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

// maxRounds bounds how often a batch is decided, the first time included. A conflict needs a cancellation in the
// same millisecond.
const maxRounds = 4

// A turn is what the loop does for one partition in one go. It begins with what has come, is planned, written with one
// step of the ledger, and committed. Until then nothing is taken of what has come. Events that Begin has marked, to be
// scheduled or to end as not sent, stay marked: they go with a later step.
type turn struct {
	partition *partition
	webhooks  *dispatch.Turn
	mustRenew bool // the token must be written, also when there is nothing else

	// What has come; nil if nothing has. batch is about the orders of the inbox.
	inbox *partitions.Inbox
	batch *status.Batch
	// timers are the orders whose timers have run out, of a turn that is about them, which began at began.
	timers *status.Timers
	began  time.Time

	// The plan.
	step   *partitions.Step
	plan   *dispatch.Plan
	counts partitions.Counts // entries up to the positions of the step's token
	// publishesPositions: the step sets the consumer groups to the positions.
	publishesPositions bool
}

// beginTurn begins a partition's turn about what has come; the inbox may be nil.
func (p *partition) beginTurn(inbox *partitions.Inbox) *turn {
	t := &turn{partition: p, inbox: inbox}
	if inbox == nil {
		t.webhooks = p.webhooks.Begin(dispatch.Input{}, nil)
		return t
	}

	t.batch = status.NewBatch(inbox)
	input := dispatch.Input{
		Inbox:         inbox,
		EntriesBefore: p.ReadFrom,
		CatchesUp:     p.CatchesUp(cmp.Or(inbox.Events, p.From)),
	}

	t.webhooks = p.webhooks.Begin(input, &t.batch.Wanted)

	return t
}

// wanted returns what must be read before the turn can be planned; nil for nothing.
func (t *turn) wanted() *partitions.Wanted {
	switch {
	case t.batch != nil:
		return &t.batch.Wanted
	case t.timers != nil:
		return &t.timers.Wanted
	default:
		return nil
	}
}

// makePlan plans the turn. What it wanted has been read.
func (t *turn) makePlan(role *Role, now time.Time) {
	p := t.partition
	t.step = role.ledger.Ownership.Step(p.Partition, p.Token)
	t.counts = p.Read

	from, readFrom := p.From, p.ReadFrom
	if t.inbox != nil {
		from, readFrom = cmp.Or(t.inbox.Events, from), plus(readFrom, t.inbox.ReadEvents)
		t.step.Token.Updates = cmp.Or(t.inbox.Updates, p.Token.Updates)
		t.counts.Updates = plus(p.Read.Updates, t.inbox.ReadUpdates)
		role.status.Decide(t.batch, t.step, now)
	}

	if t.timers != nil {
		role.status.Fire(t.timers, t.step, now)
	}

	if partitions.Later(from, p.Token.Events) {
		t.step.Token.Events, t.counts.Events = from, readFrom
	}

	t.plan = t.webhooks.Plan(t.step)
	position, count := t.plan.Position()
	if position != "" {
		t.counts.Webhooks = count
	}
}

// mustWrite reports whether the step has to be written. What the owner itself has published comes back to it, which
// alone is no reason.
func (t *turn) mustWrite() bool {
	hasReports := t.inbox != nil && t.inbox.Updates != ""
	p := t.partition
	positionsDue := p.groupPositions != p.positions() && time.Since(p.groupPositionsAt) >= positionsEvery
	return !t.step.Empty() || hasReports || t.mustRenew || positionsDue
}

// shouldPublishPositions reports whether the step sets the consumer groups to the owner's positions: always when it
// gives the partition up, now and then while it gets on, and seldom when there is nothing new, because somebody may
// have destroyed the groups.
func (t *turn) shouldPublishPositions(sentAt time.Time) bool {
	givesUp := t.step.Token.Owner == ""
	if givesUp {
		return true
	}

	p := t.partition
	before, after := p.Token, t.step.Token
	moves := after.Events != before.Events || after.Updates != before.Updates || after.Webhooks != before.Webhooks
	hasNews := !t.step.Empty() || moves || p.groupPositions != p.positions()
	pause := positionsIdleEvery
	if hasNews {
		pause = positionsEvery
	}

	return sentAt.Sub(p.groupPositionsAt) >= pause
}

// commit takes note that the step, which was sent at sentAt, was written; zero: there was nothing to write. Then
// the partition goes on behind what was read.
func (t *turn) commit(role *Role, sentAt time.Time) {
	p := t.partition
	if !sentAt.IsZero() {
		p.Token, p.Read, p.confirmedAt = t.step.Token, t.counts, sentAt
		if t.publishesPositions {
			p.groupPositions, p.groupPositionsAt = p.positions(), sentAt
		}
	}

	if t.inbox != nil {
		role.status.Written(t.batch)
		p.From, p.ReadFrom = cmp.Or(t.inbox.Events, p.From), plus(p.ReadFrom, t.inbox.ReadEvents)
		p.Notes = cmp.Or(t.inbox.Note, p.Notes)
	}

	if t.timers != nil {
		role.status.Fired(t.timers, t.began)
		mayHaveMore := len(t.timers.Reported) == status.TimersAtOnce
		if mayHaveMore {
			p.timersReadAt = time.Time{}
		}
	}

	t.plan.Commit(sentAt)
}

// plus counts on, unless the count is not known.
func plus(known, more int64) int64 {
	if known < 0 {
		return known
	}
	return known + more
}

// decide plans and writes turns until no order was changed in between. What cannot be read is read again later.
func (l *loop) decide(ctx context.Context, turns []*turn) {
	for round := 0; len(turns) > 0 && round < maxRounds; round++ {
		if !l.readFor(ctx, turns) {
			return
		}

		now := l.role.Now()
		var toWrite []*turn
		for _, t := range turns {
			t.makePlan(l.role, now)
			if t.mustWrite() {
				toWrite = append(toWrite, t)
			} else {
				t.commit(l.role, time.Time{})
			}
		}

		turns = l.write(ctx, toWrite)
	}
}

// readFor reads what turns want, in one round trip; false: it could not be read.
func (l *loop) readFor(ctx context.Context, turns []*turn) bool {
	var wanted []*partitions.Wanted
	for _, t := range turns {
		if w := t.wanted(); w != nil {
			wanted = append(wanted, w)
		}
	}

	if len(wanted) == 0 {
		return true
	}

	err := l.role.ledger.Ownership.ReadOrders(ctx, wanted)
	if partitions.Damaged(err) { // perhaps an endpoint: it must not hold up the decisions of all
		for _, t := range turns {
			t.webhooks.ReadEndpointsLater()
		}
		err = l.role.ledger.Ownership.ReadOrders(ctx, wanted)
	}

	for _, t := range turns {
		if t.wanted() != nil {
			t.partition.note(ctx, readingOrders, err)
		}
	}

	if err != nil && ctx.Err() == nil {
		l.role.log.Warn("reading orders fails, it is tried again", "error", err)
	}

	return err == nil
}

// write writes the turns' steps, commits the turns whose steps were written, and returns those that must be planned again,
// because an order was changed since it was read. It lets go of a partition of which another worker is the owner,
// and of one of which it does not know whether the step was written: such a one is taken again, with what is stored.
func (l *loop) write(ctx context.Context, turns []*turn) (again []*turn) {
	if len(turns) == 0 {
		return nil
	}

	sentAt := time.Now()
	steps := make([]*partitions.Step, len(turns))
	for i, t := range turns {
		t.publishesPositions = t.shouldPublishPositions(sentAt)
		if t.publishesPositions {
			t.step.Positions(t.counts)
		}
		steps[i] = t.step
	}

	for i, err := range l.role.ledger.Ownership.Advance(ctx, steps) {
		t := turns[i]
		switch {
		case err == nil:
			t.commit(l.role, sentAt)
		case errors.Is(err, ledger.ErrConflict):
			t.plan.Discard()
			l.role.status.Conflicted(t.step.Conflicts)
			again = append(again, t)
		default:
			t.plan.Discard()
			l.lose(ctx, t.partition, err)
		}
	}

	return again
}

// lose lets go of a partition whose step was not written, or perhaps not. A worker whose steps are refused leaves it
// to others.
func (l *loop) lose(ctx context.Context, p *partition, err error) {
	if !errors.Is(err, context.Canceled) {
		l.role.log.Warn("partition lost", "partition", p.Partition, "error", err)
	}

	l.drop(p)
	if partitions.Refused(err) && l.role.hasOthers.Load() {
		l.role.standBack(p.Partition, err)
		l.role.release(ctx, p.Partition, p.Token)
	}
}

// fire ends orders that have waited too long. One that changed, or got a report, in between is left for the next
// time. A partition whose timers cannot be read is read at the next interval; the others go on.
func (l *loop) fire(ctx context.Context) {
	began := time.Now()
	partitions := l.withTimers(began)
	if len(partitions) == 0 {
		return
	}

	numbers := make([]int, len(partitions))
	for i, p := range partitions {
		p.timersReadAt = began
		numbers[i] = p.Partition
	}

	now := l.role.Now()
	due, err := l.role.ledger.Ownership.Due(ctx, numbers, now, status.TimersAtOnce)
	if err != nil && ctx.Err() == nil {
		l.role.log.Warn("reading some timers fails, they are read again at the next interval", "error", err)
	}

	var turns []*turn
	for i, p := range partitions {
		p.note(ctx, readingTimers, err)
		if len(due[i]) > 0 {
			t := p.beginTurn(nil)
			t.timers, t.began = status.NewTimers(p.Partition, due[i], p.Token.Updates), began
			turns = append(turns, t)
		}
	}

	if !l.readFor(ctx, turns) {
		return
	}

	for _, t := range turns {
		t.makePlan(l.role, now)
	}

	l.write(ctx, turns)
}
