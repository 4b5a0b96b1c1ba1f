package owner

import (
	"context"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/ledger/partitions"
	"vendorapi/worker/dispatch"
)

const (
	// Each owned partition adds this much to a read's block time, because a read costs Redis in
	// proportion to its streams. A partition that is taken during a read is in the next one.
	blockPerPartition = 2 * time.Millisecond
	shortestBlock     = 100 * time.Millisecond
	longestBlock      = time.Second
	// openingBlock is the block time of a read that leaves out partitions whose webhooks are being opened, which
	// takes some milliseconds: the next read has them.
	openingBlock = 10 * time.Millisecond
	// A turn begins so much later for each entry and each result per second that comes, within these
	// bounds: batches grow with the load, and a single entry does not wait.
	turnPerEntry = 1500 * time.Nanosecond
	shortestTurn = 500 * time.Microsecond
	longestTurn  = 20 * time.Millisecond
	// smoothing is how much of the rate a second replaces.
	smoothing = 10
	// positionsEvery is how often readers of the groups learn how far the owner has got.
	positionsEvery = 250 * time.Millisecond
	// positionsIdleEvery is how often they learn it again while there is nothing new.
	positionsIdleEvery = 2 * time.Minute
	failurePause       = 250 * time.Millisecond
	// leaveAfter is how long an owner that gives partitions up waits for sends in flight.
	leaveAfter = 150 * time.Millisecond
	// resultsKept is how many sends may end while the loop is busy.
	resultsKept = 4096
)

// A loop processes some of a process's partitions, one turn after the other, in one goroutine. Reads of the streams,
// sends and what the webhooks read run beside it; it takes what they bring between two turns.
type loop struct {
	role       *Role
	partitions map[int]*partition
	control    chan func(context.Context)
	results    chan *dispatch.Result
	sending    context.Context // of sends, and of reads for them; ends after the loop

	// The read of the streams.
	reads       chan *readResult
	isReading   bool
	unprocessed *readResult

	// How long turns wait for each other depends on what has come lately.
	arrived  int     // entries and results since the last turn
	rate     float64 // of them per second, smoothed
	lastTurn time.Time
}

// readResult is what a read of the streams has brought.
type readResult struct {
	inboxes []*partitions.Inbox
	readAs  map[int]partitions.Owned // the partitions that were read, as they were when the read began
	err     error
}

func newLoop(r *Role) *loop {
	return &loop{
		role:       r,
		partitions: make(map[int]*partition),
		control:    make(chan func(context.Context)),
		results:    make(chan *dispatch.Result, resultsKept),
		reads:      make(chan *readResult, 1),
	}
}

// do lets the loop's goroutine run f; false: ctx ends, and it does not.
func (l *loop) do(ctx context.Context, f func(context.Context)) bool {
	select {
	case l.control <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// add begins with a partition that was taken by a write sent at takenAt. If ctx ends first, the partition is given up
// again.
func (l *loop) add(ctx context.Context, o *partitions.Owned, takenAt time.Time) {
	isAccepted := l.do(ctx, func(context.Context) {
		l.partitions[o.Partition] = &partition{
			Owned:            o,
			webhooks:         l.role.webhooks.Open(l.sending, o, takenAt, l.role.Now, l.results),
			confirmedAt:      takenAt,
			groupPositions:   o.Token,
			groupPositionsAt: takenAt,
			failures:         make(map[task]failure),
		}
	})

	if !isAccepted {
		l.role.dropped(o.Partition)
		l.role.release(ctx, o.Partition, o.Token)
	}
}

// release gives up a partition of which nothing is in memory.
func (r *Role) release(ctx context.Context, partition int, token partitions.Token) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.endTimeout)
	defer cancel()
	step := r.ledger.Ownership.Step(partition, token)
	step.Token.Owner = ""
	err := r.ledger.Ownership.Advance(end, []*partitions.Step{step})[0]
	if err != nil {
		r.log.Warn("a partition is not given up in order", "partition", partition, "error", err)
		return
	}

	r.announceRelease(end)
}

func (l *loop) giveUp(ctx context.Context, numbers []int) {
	l.do(ctx, func(ctx context.Context) {
		var leaving []*partition
		for _, n := range numbers {
			if p := l.partitions[n]; p != nil {
				leaving = append(leaving, p)
			}
		}
		l.leave(ctx, leaving)
	})
}

// run processes what comes until ctx ends, and gives all partitions up.
func (l *loop) run(ctx context.Context) {
	sending, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	l.sending = sending
	working, done := l.role.outlasting(ctx)
	defer done()
	timer := time.NewTimer(0)
	defer timer.Stop()

	for ctx.Err() == nil {
		l.startRead(ctx)
		wait := l.untilNextTurn()
		if wait <= 0 {
			l.takeTurns(working)
			continue
		}

		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case f := <-l.control:
			f(working)
		case l.unprocessed = <-l.reads:
			l.isReading = false
		case result := <-l.results:
			l.apply(result)
		case <-timer.C:
		}
	}

	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.role.endTimeout)
	defer cancel()
	l.leave(end, slices.Collect(maps.Values(l.partitions)))
}

// startRead begins to wait for entries, unless some are yet to be processed. It leaves out partitions whose webhooks
// are still being opened.
func (l *loop) startRead(ctx context.Context) {
	if l.isReading || l.unprocessed != nil {
		return
	}

	owned, readAs := make([]*partitions.Owned, 0, len(l.partitions)), make(map[int]partitions.Owned, len(l.partitions))
	for number, p := range l.partitions {
		if p.webhooks.IsOpen() {
			o := *p.Owned
			owned, readAs[number] = append(owned, &o), o
		}
	}

	if len(owned) == 0 {
		return
	}

	l.isReading = true
	pause := l.batchingPause()
	block := min(max(time.Duration(len(owned))*blockPerPartition, shortestBlock), longestBlock)
	if len(owned) < len(l.partitions) {
		block = openingBlock
	}

	go func() {
		sleep(ctx, pause) // a read ends with the first entry; those that come in a turn shall be one batch
		inboxes, err := l.role.ledger.Ownership.Read(ctx, owned, l.role.batch, block)
		if err != nil {
			sleep(ctx, failurePause)
		}
		l.reads <- &readResult{inboxes: inboxes, readAs: readAs, err: err}
	}()
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// apply takes a result, and all that have come with it, and uses the places that are free now.
func (l *loop) apply(result *dispatch.Result) {
	touched := make(map[*partition]bool)
	for result != nil {
		l.arrived++
		p := l.partitions[result.Partition()]
		isOwned := p != nil && p.webhooks == result.Webhooks
		if isOwned {
			l.applyTo(p, result)
			touched[p] = true
		}

		select {
		case result = <-l.results:
		default:
			result = nil
		}
	}

	for p := range touched {
		p.webhooksDue = p.webhooks.Send()
	}
}

// webhookTasks are the tasks that results of reads belong to.
var webhookTasks = map[dispatch.Kind]task{
	dispatch.KindOutcomes: readingOutcomes,
	dispatch.KindSearch:   searchingEndpoints,
	dispatch.KindRead:     readingWebhooks,
}

func (l *loop) applyTo(p *partition, result *dispatch.Result) {
	err := result.Apply()
	if result.Kind() == dispatch.KindSend {
		return
	}

	beginsToFail := p.note(l.sending, webhookTasks[result.Kind()], err)
	if beginsToFail {
		l.role.log.Warn("reading webhooks fails, it is tried again", "partition", p.Partition, "error", err)
	}
}

// untilNextTurn returns how long the loop may sleep: until some partition needs a turn, but at least for the rest of
// the batching pause.
func (l *loop) untilNextTurn() time.Duration {
	if l.unprocessed != nil {
		return l.batchingPause()
	}

	now := time.Now()
	wait := renewEvery
	for _, p := range l.partitions {
		wait = min(wait, p.untilTurn(now, l.role.timers))
	}

	return max(wait, l.batchingPause())
}

// batchingPause returns until when the next turn has to wait, so that what comes is handled together.
func (l *loop) batchingPause() time.Duration {
	pause := min(max(time.Duration(l.rate*float64(turnPerEntry)), shortestTurn), longestTurn)
	return time.Until(l.lastTurn.Add(pause))
}

// takeTurns makes a turn of every partition: it decides what has come, writes it together with what the webhooks have to
// write, fires timers and sends.
func (l *loop) takeTurns(ctx context.Context) {
	turns := l.beginTurns()
	l.measureRate()
	l.decide(ctx, turns)
	l.fire(ctx)
	for _, p := range l.partitions {
		p.webhooksDue = p.webhooks.Send()
	}

	l.leaveHopeless(ctx)
}

// measureRate takes what has come since the last turn into the rate.
func (l *loop) measureRate() {
	now := time.Now()
	passed := max(now.Sub(l.lastTurn), time.Millisecond).Seconds()
	l.rate += (float64(l.arrived)/passed - l.rate) * min(passed*smoothing, 1)
	l.lastTurn, l.arrived = now, 0
}

// beginTurns begins a turn of every partition, with what was read.
func (l *loop) beginTurns() []*turn {
	inboxes := l.takeInboxes()
	renewalAge := l.renewalAge()
	now := time.Now()

	turns := make([]*turn, 0, len(l.partitions))
	for number, p := range l.partitions {
		t := p.beginTurn(inboxes[number])
		t.mustRenew = now.Sub(p.confirmedAt) >= renewalAge
		turns = append(turns, t)
	}

	return turns
}

// takeInboxes returns what was read of the partitions that are still as they were when the read began, by partition.
func (l *loop) takeInboxes() map[int]*partitions.Inbox {
	result := l.unprocessed
	if result == nil {
		return nil
	}

	l.unprocessed = nil
	if result.err != nil {
		l.role.log.Warn("reading entries fails, it is tried again", "error", result.err)
	}

	for number, p := range l.partitions {
		readAs, isRead := result.readAs[number]
		if isRead {
			p.note(l.sending, readingEntries, result.err)
		}
		p.isDrained = result.err == nil && readAs.Token.Epoch == p.Token.Epoch && readAs.CaughtUp()
	}

	inboxes := make(map[int]*partitions.Inbox)
	for _, inbox := range result.inboxes {
		readAs, p := result.readAs[inbox.Partition], l.partitions[inbox.Partition]
		isAsRead := p != nil && p.Token.Epoch == readAs.Token.Epoch && p.From == readAs.From && p.Token.Updates == readAs.Token.Updates
		if isAsRead {
			inboxes[inbox.Partition] = inbox
			p.isDrained = p.isDrained && !inbox.Full
			l.arrived += len(inbox.Entries)
		}
	}

	return inboxes
}

// renewalAge returns how long ago a partition's last write must have been for this turn to renew it.
// When one partition is due, those older than half the interval are renewed too, so that they share
// one call, and calls are at least renewTogether apart.
func (l *loop) renewalAge() time.Duration {
	now := time.Now()
	for _, p := range l.partitions {
		if now.Sub(p.confirmedAt) >= renewEvery {
			return renewTogether
		}
	}
	return renewEvery
}

// withTimers returns the partitions whose timers are to be read now. When one is due, those older than half the
// interval are read too, so that they share one call. What was reported before counts before what time has ended, so
// a partition has to be drained.
func (l *loop) withTimers(now time.Time) (partitions []*partition) {
	isDue := false
	for _, p := range l.partitions {
		sinceRead := now.Sub(p.timersReadAt)
		if p.isDrained && sinceRead >= l.role.timers/2 {
			partitions = append(partitions, p)
		}
		isDue = isDue || p.isDrained && sinceRead >= l.role.timers
	}

	if !isDue {
		return nil
	}

	return partitions
}

// leaveHopeless gives up the partitions that this worker cannot work on, if another one may be able to.
func (l *loop) leaveHopeless(ctx context.Context) {
	if !l.role.hasOthers.Load() {
		return
	}

	var leaving []*partition
	for _, p := range l.partitions {
		if err := p.hopeless(); err != nil {
			l.role.standBack(p.Partition, err)
			leaving = append(leaving, p)
		}
	}

	if len(leaving) > 0 {
		l.leave(ctx, leaving)
	}
}

// leave gives partitions up in order: sends in flight may end for a moment, and what has not ended is scheduled for
// the next owner.
func (l *loop) leave(ctx context.Context, leaving []*partition) {
	for _, p := range leaving {
		p.webhooks.GiveUp()
	}

	l.awaitSends(leaving)

	turns := make([]*turn, len(leaving))
	for i, p := range leaving {
		turns[i] = p.beginTurn(nil)
		turns[i].makePlan(l.role, l.role.Now())
		turns[i].step.Token.Owner = ""
	}

	l.write(ctx, turns)

	isAnyReleased := false
	for _, p := range leaving {
		isReleased := p.Token.Owner == ""
		if isReleased {
			l.role.log.Info("partition given up", "partition", p.Partition)
			l.drop(p)
			isAnyReleased = true
		}
	}

	if isAnyReleased {
		l.role.announceRelease(ctx)
	}
}

// awaitSends waits for the sends of partitions that are in flight, but not longer than leaveAfter.
func (l *loop) awaitSends(partitions []*partition) {
	deadline := time.NewTimer(leaveAfter)
	defer deadline.Stop()
	for {
		inFlight := 0
		for _, p := range partitions {
			inFlight += p.webhooks.InFlight
		}

		if inFlight == 0 {
			return
		}

		select {
		case result := <-l.results:
			l.apply(result)
		case <-deadline.C:
			return
		}
	}
}

// drop forgets a partition.
func (l *loop) drop(p *partition) {
	p.webhooks.Close()
	delete(l.partitions, p.Partition)
	l.role.dropped(p.Partition)
}
