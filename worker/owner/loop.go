package owner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

const (
	// Each owned partition adds this much to a read's block time, because a read costs Redis in
	// proportion to its streams. A partition that is taken during a read is in the next one.
	blockPerPartition = 2 * time.Millisecond
	shortestBlock     = 100 * time.Millisecond
	longestBlock      = time.Second
	// A turn begins so much later for each entry and each result per second that comes, within these
	// bounds: batches grow with the load, and a lone entry does not wait.
	turnPerEntry = 1500 * time.Nanosecond
	shortestTurn = 500 * time.Microsecond
	longestTurn  = 20 * time.Millisecond
	// smoothing is how much of the rate a second replaces.
	smoothing = 10
	// resultsEvery is how long results of sends wait to be written with what is read in between.
	resultsEvery = 50 * time.Millisecond
	// positionsEvery is how often readers of the groups learn how far the owner has got.
	positionsEvery = 250 * time.Millisecond
	// positionsIdleEvery is how often they learn it again while there is nothing new.
	positionsIdleEvery = 2 * time.Minute
	failurePause       = 250 * time.Millisecond
	// leaveAfter is how long an owner that gives partitions up waits for sends in flight.
	leaveAfter = 150 * time.Millisecond
	// maxRounds bounds how often a batch is decided again. A conflict needs a cancellation in the
	// same millisecond.
	maxRounds = 4
	// resultsKept is how many sends may end while the loop is busy.
	resultsKept = 4096
)

// loop processes some of a process's partitions, one turn after the other.
type loop struct {
	role     *Role
	held     map[int]*held
	control  chan func(context.Context)
	results  chan *dispatch.Sent
	reads    chan *readResult
	reading  bool
	read     *readResult // yet to be processed
	came     int         // entries and results since the last turn
	rate     float64     // of them per second, smoothed
	lastTurn time.Time
	sending  context.Context // of the sends; ends after the loop
}

// held is a partition of the loop.
type held struct {
	*ledger.Owned
	webhooks  *dispatch.Webhooks
	confirmed time.Time // when the last write was sent that is known to have been written
	positions ledger.Token
	toldAt    time.Time // when the groups learned those positions
	drained   bool      // the last read brought all there was
	timersAt  time.Time

	// failures are the tasks that fail for the partition at present.
	failures map[task]failure
}

// task is what an owner does for a partition besides writing.
type task int

const (
	readingEntries task = iota
	readingEndpoints
	readingOrders
	readingWebhooks
	readingTimers
)

// failure is the last error of a task, and when it first and last failed without a success in between.
type failure struct {
	first, last time.Time
	err         error
}

// note takes note of how a task has ended for a partition. What ctx has ended has not failed. Nor has a
// task that found damage: partitions are read together, so it may be that of another one, and
// every worker would find it.
func (h *held) note(ctx context.Context, t task, err error) {
	if err == nil {
		delete(h.failures, t)
		return
	}
	if ctx.Err() != nil || ledger.Damaged(err) {
		return
	}

	now := time.Now()
	first := now
	if before, failed := h.failures[t]; failed {
		first = before.first
	}
	h.failures[t] = failure{first: first, last: now, err: err}
}

// giveUpAfter is how long a task may fail for a partition whose token can be renewed: Redis is there, and it is
// this worker that does not get on.
const giveUpAfter = 5 * time.Second

// hopeless returns the error of a task that Redis refuses, or that has failed again and again for
// giveUpAfter. One that failed once and was not needed since tells nothing.
func (h *held) hopeless() error {
	for _, f := range h.failures {
		if ledger.Refused(f.err) || f.last.Sub(f.first) >= giveUpAfter {
			return f.err
		}
	}
	return nil
}

type readResult struct {
	inboxes []*ledger.Inbox
	of      map[int]ledger.Owned // as they were when it was made
	err     error
}

func newLoop(r *Role) *loop {
	return &loop{role: r, held: make(map[int]*held), control: make(chan func(context.Context)),
		reads: make(chan *readResult, 1), results: make(chan *dispatch.Sent, resultsKept)}
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

// add begins with a partition that was taken by a write sent at that time. When ctx ends, or what waits in
// the partition cannot be read, it is given up again.
func (l *loop) add(ctx context.Context, o *ledger.Owned, taken time.Time) error {
	result := make(chan error, 1)
	accepted := l.do(ctx, func(ctx context.Context) {
		w := l.role.webhooks.Webhooks(l.sending, o.Partition, l.role.Now, l.results)
		w.Confirm(taken)
		h := &held{Owned: o, webhooks: w, confirmed: taken, positions: o.Token, toldAt: taken, failures: make(map[task]failure)}
		if err := w.FetchAll(ctx, o.Token.Webhooks); err != nil {
			l.lose(h, err)
			result <- err
			return
		}
		if h.CaughtUp() {
			w.CaughtUp()
		}
		l.held[o.Partition] = h
		result <- nil
	})
	if accepted {
		err := <-result
		if err != nil && ctx.Err() == nil && l.role.hasOthers.Load() {
			l.role.release(ctx, o.Partition, o.Token)
		}
		return err
	}
	l.role.dropped(o.Partition)
	l.role.release(ctx, o.Partition, o.Token)
	return nil
}

// release gives up a partition of which nothing is in memory.
func (r *Role) release(ctx context.Context, partition int, token ledger.Token) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.endTimeout)
	defer cancel()
	step := r.ledger.Ownership.Step(partition, token)
	step.Token.Owner = ""
	if err := r.ledger.Ownership.Advance(end, []*ledger.Step{step})[0]; err != nil {
		r.log.Warn("a partition is not given up in order", "partition", partition, "error", err)
		return
	}
	r.announceRelease(end)
}

func (l *loop) giveUp(ctx context.Context, partitions []int) {
	l.do(ctx, func(ctx context.Context) {
		var leaving []*held
		for _, p := range partitions {
			if h := l.held[p]; h != nil {
				leaving = append(leaving, h)
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
		wait := l.wait()
		if wait <= 0 {
			l.turn(working)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case f := <-l.control:
			f(working)
		case l.read = <-l.reads:
			l.reading = false
		case s := <-l.results:
			l.take(s)
		case <-timer.C:
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.role.endTimeout)
	defer cancel()
	l.leave(end, slices.Collect(maps.Values(l.held)))
}

// startRead begins to wait for entries, unless some are yet to be processed.
func (l *loop) startRead(ctx context.Context) {
	if l.reading || l.read != nil || len(l.held) == 0 {
		return
	}
	l.reading = true
	owned, of := make([]*ledger.Owned, 0, len(l.held)), make(map[int]ledger.Owned, len(l.held))
	for p, h := range l.held {
		o := *h.Owned
		owned, of[p] = append(owned, &o), o
	}
	pause := l.pause()
	block := min(max(time.Duration(len(owned))*blockPerPartition, shortestBlock), longestBlock)
	go func() {
		sleep(ctx, pause) // a read ends with the first entry; those that come in a turn shall be one batch
		inboxes, err := l.role.ledger.Ownership.Read(ctx, owned, l.role.batch, block)
		if err != nil {
			sleep(ctx, failurePause)
		}
		l.reads <- &readResult{inboxes, of, err}
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

// take takes the results of sends, and uses the places that are free now.
func (l *loop) take(s *dispatch.Sent) {
	touched := make(map[*dispatch.Webhooks]bool)
	for {
		l.came++
		if h := l.held[s.Webhooks.Partition]; h != nil && h.webhooks == s.Webhooks {
			s.Webhooks.Done(s)
			touched[s.Webhooks] = true
		}
		select {
		case s = <-l.results:
			continue
		default:
		}
		break
	}
	for w := range touched {
		w.Send()
	}
}

// wait is until the next turn.
func (l *loop) wait() time.Duration {
	now := time.Now()
	need := renewEvery // until a turn is needed
	if l.read != nil {
		need = 0
	}
	for _, h := range l.held {
		need = min(need, h.confirmed.Add(renewEvery).Sub(now), h.webhooks.Wake())
		if h.drained {
			need = min(need, h.timersAt.Add(l.role.timers).Sub(now))
		}
		if h.positions != h.told() {
			need = min(need, h.toldAt.Add(positionsEvery).Sub(now))
		}
		if h.webhooks.Dirty() {
			need = min(need, l.lastTurn.Add(resultsEvery).Sub(now))
		}
	}
	return max(need, l.pause())
}

// pause is until the next turn may begin.
func (l *loop) pause() time.Duration {
	turn := min(max(time.Duration(l.rate*float64(turnPerEntry)), shortestTurn), longestTurn)
	return time.Until(l.lastTurn.Add(turn))
}

// told is the token with nothing but what the groups are told next.
func (h *held) told() ledger.Token {
	t := ledger.Token{Events: h.Token.Events, Updates: h.Token.Updates, Webhooks: h.Token.Webhooks}
	if ledger.Later(h.From, t.Events) {
		t.Events = h.From
	}
	return t
}

// turn decides what has come, writes it together with what the webhooks have to write, fires timers
// and sends.
func (l *loop) turn(ctx context.Context) {
	now := time.Now()
	passed := max(now.Sub(l.lastTurn), time.Millisecond)
	l.lastTurn = now
	writes := l.begin()
	l.rate += (float64(l.came)/passed.Seconds() - l.rate) * min(passed.Seconds()*smoothing, 1)
	l.came = 0
	all := make([]*dispatch.Webhooks, 0, len(l.held))
	for _, h := range l.held {
		all = append(all, h.webhooks)
	}
	if slices.ContainsFunc(writes, func(w *write) bool { return w.inbox != nil && len(w.inbox.Notes) > 0 }) {
		err := l.role.webhooks.Learn(ctx, all)
		l.noteAll(ctx, readingEndpoints, err)
		if err != nil { // what was read is read again
			l.role.log.Warn("reading webhook endpoints fails, it is tried again", "error", err)
			return
		}
	}
	l.decide(ctx, writes)
	l.fire(ctx)
	err := l.role.webhooks.Fetch(ctx, all)
	l.noteAll(ctx, readingWebhooks, err)
	if err != nil && ctx.Err() == nil {
		l.role.log.Warn("reading webhooks fails, it is tried again", "error", err)
	}
	for _, h := range l.held {
		h.webhooks.Send()
	}
	l.leaveHopeless(ctx)
}

// noteAll takes note of how a task has ended for all partitions of the loop.
func (l *loop) noteAll(ctx context.Context, t task, err error) {
	for _, h := range l.held {
		h.note(ctx, t, err)
	}
}

// leaveHopeless gives up the partitions that this worker cannot work on, if another one may be able to.
func (l *loop) leaveHopeless(ctx context.Context) {
	if !l.role.hasOthers.Load() {
		return
	}

	var leaving []*held
	for _, h := range l.held {
		if err := h.hopeless(); err != nil {
			l.role.standBack(h.Partition, err)
			leaving = append(leaving, h)
		}
	}
	if len(leaving) > 0 {
		l.leave(ctx, leaving)
	}
}

// write is a step of one partition in the making.
type write struct {
	*held
	batch *status.Batch // nil: nothing has come
	inbox *ledger.Inbox
	step  *ledger.Step
	read  ledger.Counts
	renew bool // the token must be written, also when there is nothing else
	tells bool // the groups
	sends bool // it has what the webhooks write
}

// begin makes a write for every partition, with what was read.
func (l *loop) begin() []*write {
	inboxes := make(map[int]*ledger.Inbox)
	if result := l.read; result != nil {
		l.read = nil
		if result.err != nil {
			l.role.log.Warn("reading entries fails, it is tried again", "error", result.err)
		}
		for p, h := range l.held {
			of := result.of[p]
			if _, isRead := result.of[p]; isRead {
				h.note(l.sending, readingEntries, result.err)
			}
			h.drained = result.err == nil && of.Token.Epoch == h.Token.Epoch && of.CaughtUp()
		}
		for _, in := range result.inboxes {
			of := result.of[in.Partition]
			if h := l.held[in.Partition]; h != nil && h.Token.Epoch == of.Token.Epoch && h.From == of.From && h.Token.Updates == of.Token.Updates {
				inboxes[in.Partition] = in
				h.drained = h.drained && !in.Full
				l.came += len(in.Entries)
			}
		}
	}
	renewed := time.Now().Add(-l.renewalAge()) // what was confirmed before that is renewed
	writes := make([]*write, 0, len(l.held))
	for p, h := range l.held {
		w := &write{held: h, inbox: inboxes[p], renew: !h.confirmed.After(renewed)}
		if w.inbox != nil {
			h.webhooks.Noted(w.inbox.Notes)
			w.batch = status.NewBatch(w.inbox)
			w.batch.Events = h.webhooks.Wanted(w.inbox)
		}
		writes = append(writes, w)
	}
	return writes
}

// renewalAge returns how long ago a partition's last write must have been for this turn to renew it.
// When one partition is due, those older than half the interval are renewed too, so that they share
// one call, and calls are at least renewTogether apart.
func (l *loop) renewalAge() time.Duration {
	now := time.Now()
	for _, h := range l.held {
		if now.Sub(h.confirmed) >= renewEvery {
			return renewTogether
		}
	}
	return renewEvery
}

// decide writes until no order was changed in between. What cannot be read is read again later.
func (l *loop) decide(ctx context.Context, writes []*write) {
	for round := 0; len(writes) > 0 && round < maxRounds; round++ {
		var wanted []*ledger.Wanted
		for _, w := range writes {
			if w.batch != nil {
				wanted = append(wanted, &w.batch.Wanted)
			}
		}
		if !l.readOrders(ctx, wanted) {
			return
		}
		now := l.role.Now()
		needed := writes[:0]
		for _, w := range writes {
			if l.prepare(w, now) {
				needed = append(needed, w)
			}
		}
		again := writes[:0:0]
		for i, err := range l.advance(ctx, needed) {
			if errors.Is(err, ledger.ErrConflict) {
				l.role.status.Conflicted(needed[i].step.Conflicts)
				again = append(again, needed[i])
			}
		}
		writes = again
	}
}

func (l *loop) readOrders(ctx context.Context, wanted []*ledger.Wanted) bool {
	if len(wanted) == 0 {
		return true
	}
	err := l.role.ledger.Ownership.ReadOrders(ctx, wanted)
	for _, w := range wanted {
		if h := l.held[w.Partition]; h != nil {
			h.note(ctx, readingOrders, err)
		}
	}
	if err != nil && ctx.Err() == nil {
		l.role.log.Warn("reading orders fails, it is tried again", "error", err)
	}
	return err == nil
}

// prepare makes the step; false: there is nothing to write.
func (l *loop) prepare(w *write, now time.Time) bool {
	w.step = l.role.ledger.Ownership.Step(w.Partition, w.Token)
	w.read = w.Read
	from, read := w.From, w.ReadFrom
	if in := w.inbox; in != nil {
		from, read = cmp.Or(in.Events, from), plus(read, in.ReadEvents)
		w.step.Token.Updates, w.read.Updates = cmp.Or(in.Updates, w.Token.Updates), plus(w.Read.Updates, in.ReadUpdates)
		l.role.status.Decide(w.batch, w.step, now)
	}
	if ledger.Later(from, w.Token.Events) {
		w.step.Token.Events, w.read.Events = from, read
	}
	w.webhooks.Write(w.step)
	w.sends = true
	if id, read := w.webhooks.Position(); id != "" {
		w.read.Webhooks = read
	}
	due := w.renew || w.positions != w.told() && time.Since(w.toldAt) >= positionsEvery
	// What this owner has published comes back to it, which alone is no reason to write.
	if w.step.Empty() && (w.inbox == nil || w.inbox.Updates == "") && !due {
		w.webhooks.Written()
		l.taken(w)
		return false
	}
	return true
}

// shouldTell reports whether the step tells the groups how far the owner has got: always when it
// leaves, now and then while it gets on, and seldom when there is nothing to tell, because somebody
// may have destroyed the groups.
func (w *write) shouldTell(sent time.Time) bool {
	leaving := w.step.Token.Owner == ""
	to, from := w.step.Token, w.Token
	moves := to.Events != from.Events || to.Updates != from.Updates || to.Webhooks != from.Webhooks
	idle := w.step.Empty() && !moves && w.positions == w.told()
	sinceTold := sent.Sub(w.toldAt)

	if idle {
		return leaving || sinceTold >= positionsIdleEvery
	}
	return leaving || sinceTold >= positionsEvery
}

// plus counts on, unless the count is not known.
func plus(known, more int64) int64 {
	if known < 0 {
		return known
	}
	return known + more
}

// advance writes steps of different partitions. It lets go of a partition of which another worker
// is the owner, and of one of which it does not know whether the step was written: such a one is
// taken again, with what is stored.
func (l *loop) advance(ctx context.Context, writes []*write) []error {
	if len(writes) == 0 {
		return nil
	}
	sent := time.Now()
	steps := make([]*ledger.Step, len(writes))
	for i, w := range writes {
		w.tells = w.shouldTell(sent)
		if w.tells {
			w.step.Positions(w.read)
		}
		steps[i] = w.step
	}
	results := l.role.ledger.Ownership.Advance(ctx, steps)
	for i, err := range results {
		switch {
		case err == nil:
			l.written(writes[i], sent)
		case !errors.Is(err, ledger.ErrConflict):
			l.lose(writes[i].held, err)
			if ledger.Refused(err) && l.role.hasOthers.Load() {
				l.role.standBack(writes[i].Partition, err)
				l.role.release(ctx, writes[i].Partition, writes[i].Token)
			}
		}
	}
	return results
}

// written takes note of a step that was sent at that time.
func (l *loop) written(w *write, sent time.Time) {
	h := w.held
	h.Token, h.Read, h.confirmed = w.step.Token, w.read, sent
	if w.tells {
		h.positions, h.toldAt = h.told(), sent
	}
	h.webhooks.Confirm(sent)
	if w.sends {
		h.webhooks.Written()
	}
	l.taken(w)
	h.webhooks.Publish(w.step.Batch, w.step.Published)
}

// taken goes on behind what was read and is decided.
func (l *loop) taken(w *write) {
	h, in := w.held, w.inbox
	if in == nil {
		return
	}
	l.role.status.Written(w.batch)
	h.webhooks.Take(in, w.batch.Deliveries, h.ReadFrom)
	h.From, h.ReadFrom = cmp.Or(in.Events, h.From), plus(h.ReadFrom, in.ReadEvents)
	h.Notes = cmp.Or(in.Note, h.Notes)
	if h.CaughtUp() {
		h.webhooks.CaughtUp()
	}
}

func (l *loop) lose(h *held, err error) {
	if !errors.Is(err, context.Canceled) {
		l.role.log.Warn("partition lost", "partition", h.Partition, "error", err)
	}
	l.drop(h)
}

func (l *loop) drop(h *held) {
	delete(l.held, h.Partition)
	l.role.dropped(h.Partition)
}

// leave gives partitions up in order: sends in flight may end for a moment, and what has not ended
// is scheduled for the next owner.
func (l *loop) leave(ctx context.Context, leaving []*held) {
	for _, h := range leaving {
		h.webhooks.Stopped = true
	}
	for deadline := time.NewTimer(leaveAfter); ; {
		flying := 0
		for _, h := range leaving {
			flying += h.webhooks.InFlight
		}
		if flying == 0 {
			break
		}
		select {
		case s := <-l.results:
			l.take(s)
			continue
		case <-deadline.C:
		}
		break
	}
	writes := make([]*write, len(leaving))
	for i, h := range leaving {
		h.webhooks.Leave()
		writes[i] = &write{held: h}
		l.prepare(writes[i], l.role.Now())
		writes[i].step.Token.Owner = ""
	}
	released := false
	for i, err := range l.advance(ctx, writes) {
		if err == nil {
			l.role.log.Info("partition given up", "partition", leaving[i].Partition)
			l.drop(leaving[i])
			released = true
		}
	}

	if released {
		l.role.announceRelease(ctx)
	}
}

// withTimers lists the partitions whose timers are to be read now. When one partition is due, those
// older than half the interval are read too, so that they share one call.
func (l *loop) withTimers(now time.Time) (partitions []int) {
	isDue := false
	for p, h := range l.held {
		sinceRead := now.Sub(h.timersAt)
		// What was reported before counts before what time has ended.
		if h.drained && sinceRead >= l.role.timers/2 {
			partitions = append(partitions, p)
		}
		isDue = isDue || h.drained && sinceRead >= l.role.timers
	}

	if !isDue {
		return nil
	}
	return partitions
}

// fire ends orders that have waited too long. An order that changed, or got a report, in between is left
// for the next round. A partition whose timers cannot be read is read at the next interval; the others
// go on.
func (l *loop) fire(ctx context.Context) {
	began := time.Now()
	partitions := l.withTimers(began)
	if len(partitions) == 0 {
		return
	}

	for _, p := range partitions {
		l.held[p].timersAt = began
	}
	now := l.role.Now()
	due, err := l.role.ledger.Ownership.Due(ctx, partitions, now, status.TimersAtOnce)
	if err != nil && ctx.Err() == nil {
		l.role.log.Warn("reading some timers fails, they are read again at the next interval", "error", err)
	}
	for _, p := range partitions {
		if h := l.held[p]; h != nil {
			h.note(ctx, readingTimers, err)
		}
	}
	var wanted []*ledger.Wanted
	var timers []*status.Timers
	for i, p := range partitions {
		if h := l.held[p]; h != nil && len(due[i]) > 0 {
			t := status.NewTimers(p, due[i], h.Token.Updates)
			timers, wanted = append(timers, t), append(wanted, &t.Wanted)
		}
	}
	if !l.readOrders(ctx, wanted) {
		return
	}
	writes := make([]*write, len(timers))
	for i, t := range timers {
		w := &write{held: l.held[t.Partition]}
		w.step, w.read = l.role.ledger.Ownership.Step(t.Partition, w.Token), w.Read
		l.role.status.Fire(t, w.step, now)
		writes[i] = w
	}
	for i, err := range l.advance(ctx, writes) {
		if err == nil {
			l.role.status.Fired(timers[i], began)
			if len(timers[i].Reported) == status.TimersAtOnce {
				writes[i].timersAt = time.Time{} // there may be more
			}
		}
	}
}
