package dispatch

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/service"
)

const (
	// memoryPerEndpoint is how many events of one endpoint are in memory at most.
	memoryPerEndpoint = 512
	// sendWithin is how long after a confirmed write of the owner a send may begin. It is less than
	// what must pass before another worker takes the partition over: fencing stops writes, not sends.
	sendWithin = 2 * time.Second
	// outcomesEvery is how long outcomes may wait to be written with what the owner reads in between.
	outcomesEvery = 50 * time.Millisecond
	// fullPause is until it is looked again whether something may be sent.
	fullPause = 50 * time.Millisecond
	// idlePause is until it is looked again if nothing is known that will happen.
	idlePause = time.Second
)

// Webhooks sends the webhooks of one partition. The partition's owner calls it from one goroutine, in this order:
//
//	w := role.Open(owned, …)          what earlier owners have left is read, beside the owner's turns
//	for each turn                     (w.IsOpen: it may be about entries, and not only renew the token)
//	    turn := w.Begin(input)        what has come, and what must be read for it
//	    plan := turn.Plan(step)       adds to the owner's step what must be written
//	    plan.Commit(sentAt)           it was written, all of it; or plan.Discard()
//	    next := w.Send()              sends what may be sent; the next turn is due at next
//	for each result: result.Apply() and w.Send()
//	w.GiveUp()                        before the last turn, which schedules what has not ended
//	w.Close()                         when the partition was given up, or is lost
//
// Between Begin and Commit, or the last Discard, it must call nothing else of this Webhooks but Position of the plan. When
// what a turn wants cannot be read, it ends right after Begin, and the next one begins again.
type Webhooks struct {
	// InFlight is how many sends have not ended.
	InFlight int

	partition int
	role      *Role
	scheduler *scheduler
	ctx       context.Context // of sends
	reading   context.Context // of reads; ends with Close
	endReads  context.CancelFunc
	now       func() time.Time // the earlier of this machine's clock and Redis's
	results   chan<- *Result

	state openState
	// ended are the ids of events that ended after the webhook position that was taken over, until the owner has
	// caught up.
	ended map[string]bool
	// confirmed is when the owner's last confirmed write was sent, since the process started.
	confirmed atomic.Int64
	// isLeaving: no send begins any more, also if its connection is being made. The step that gives the partition up
	// is a confirmed write, and the next owner waits for nothing.
	isLeaving atomic.Bool

	// Reads beside the owner's turns.
	unread      unread
	isReading   bool
	readAgainAt time.Time // zero, or when to read again after a failure

	// own are the owner's entries of the stream e that it has not read back yet, by id.
	own map[string]*entry

	// What the next step writes, besides the scheduler's plan.
	lines      []outcomeLine
	probed     []probed
	logs       map[delivery.AccountID]*attemptLog
	openLogs   []*attemptLog // with lines
	closedLogs []*attemptLog // with lines of the next step
	summary    summary       // nil: nothing new
	newsSince  time.Time     // since when something waits for a step; zero: nothing does

	// What was written of the summary, and when the schedules were last counted for it.
	writtenSummary   summary
	summaryWrittenAt time.Time // zero: never
	countedAt        time.Time

	events []*event // used again by Send
}

// openState is how far Webhooks has come since its owner took the partition.
type openState byte

const (
	// opening: what has ended lately is being read. The owner does not read the stream e yet.
	opening openState = iota
	// catchingUp: entries of earlier owners are still to be read. Nothing is sent, because what stands in a schedule
	// may also be among them.
	catchingUp
	sending
	// givingUp: no more sends begin.
	givingUp
)

// probed is a request to probe an endpoint that was taken, which the next step says.
type probed struct {
	account delivery.AccountID
	request int64
}

// outcomeLine is what the export and replays learn: how an event ended (final), or that an attempt has failed.
type outcomeLine struct {
	account delivery.AccountID
	line    []byte
	final   bool
}

// processStarted is what times of confirmations count from: a monotonic clock.
var processStarted = time.Now()

// Open begins with what is stored, for a new owner of a partition, which it took by a write that was sent at
// takenAt. Sends and reads end with ctx; their results go to results, whose receiver applies them.
func (r *Role) Open(ctx context.Context, owned *partitions.Owned, takenAt time.Time, now func() time.Time, results chan<- *Result) *Webhooks {
	w := r.newWebhooks(ctx, owned.Partition, now, results)
	w.confirm(takenAt)
	w.open(owned.Token.Webhooks, owned.CaughtUp())
	return w
}

func (r *Role) newWebhooks(ctx context.Context, partition int, now func() time.Time, results chan<- *Result) *Webhooks {
	limits := limits{
		inFlight: r.settings.PerEndpoint,
		failures: r.settings.BreakerFailures,
		memory:   memoryPerEndpoint,
	}

	reading, endReads := context.WithCancel(ctx)
	return &Webhooks{
		reading:   reading,
		endReads:  endReads,
		partition: partition,
		role:      r,
		scheduler: newScheduler(limits, r.memory),
		ctx:       ctx,
		now:       now,
		results:   results,
		unread:    newUnread(time.Now().Add(-rand.N(refreshEvery))),
		own:       make(map[string]*entry),
		logs:      make(map[delivery.AccountID]*attemptLog),
	}
}

// opened is what a new owner has to know before anything else.
type opened struct {
	position string
	caughtUp bool
	ended    map[string]bool
	err      error
}

// open reads which events have ended after a position of the stream e.
func (w *Webhooks) open(position string, caughtUp bool) {
	w.role.reads.Go(func() {
		o := &opened{position: position, caughtUp: caughtUp}
		o.err = service.Protect(w.role.metrics.panics, func() (err error) {
			o.ended, err = w.role.ledger.Ownership.Ended(w.reading, w.partition, position)
			return err
		})

		if o.err != nil {
			pause(w.reading, readAgainAfter)
		}

		w.results <- &Result{Webhooks: w, opened: o}
	})
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// applyOpened takes what open has read, or opens again after a failure.
func (w *Webhooks) applyOpened(o *opened) error {
	if o.err != nil {
		w.open(o.position, o.caughtUp)
		return o.err
	}

	if w.state == opening {
		w.state = catchingUp
	}

	w.ended = o.ended
	if o.caughtUp {
		w.caughtUp()
	}

	w.findWaiting()

	return nil
}

// findWaiting looks for the endpoints of the partition for which something waits, among all of its accounts. They come
// page by page.
func (w *Webhooks) findWaiting() {
	w.role.searches.Go(func() {
		err := service.Protect(w.role.metrics.panics, func() error {
			return w.role.ledger.Ownership.Pending(w.reading, w.partition, func(page []delivery.AccountID) error {
				w.results <- &Result{Webhooks: w, found: &found{accounts: slices.Clone(page)}}
				return nil
			})
		})

		if err != nil {
			pause(w.reading, readAgainAfter)
		}

		w.results <- &Result{Webhooks: w, found: &found{isLast: true, err: err}}
	})
}

// found are endpoints for which something waits. The last ones say whether all were found.
type found struct {
	accounts []delivery.AccountID
	isLast   bool
	err      error
}

func (w *Webhooks) applyFound(f *found) error {
	for _, account := range f.accounts {
		if w.scheduler.endpoints[account] == nil {
			w.unread.add(account)
		}
	}

	if f.err != nil {
		w.findWaiting()
	}
	return f.err
}

// caughtUp takes note that all that earlier owners published has been read.
func (w *Webhooks) caughtUp() {
	w.ended = nil
	if w.state == catchingUp {
		w.state = sending
	}
}

// IsOpen reports whether the owner may read the partition's streams. Until then its turns only renew the token.
func (w *Webhooks) IsOpen() bool { return w.state != opening }

// IsIdle reports whether nothing will be sent before something comes, or the time of something has come: no send and
// no read is in progress, no step is to be confirmed from which a read would follow, and nothing waits for a place.
func (w *Webhooks) IsIdle() bool {
	isInProgress := w.InFlight > 0 || w.isReading || w.state == opening
	mayFollow := w.scheduler.hasConfirmationPending() || w.state == sending && w.scheduler.canSend()
	return !isInProgress && !mayFollow
}

// A Result is something that has ended beside the owner's turns: a send, or a read.
type Result struct {
	Webhooks *Webhooks

	// One of them is set.
	attempt *attempt
	read    *read
	opened  *opened
	found   *found
}

// Partition returns the number of the partition that the result is of.
func (r *Result) Partition() int { return r.Webhooks.partition }

// Kind is what a Result is of.
type Kind int

const (
	KindSend     Kind = iota
	KindOutcomes      // which events have ended lately
	KindSearch        // for which endpoints something waits
	KindRead          // endpoints, and parts of schedules
)

// Kind says what the result is of.
func (r *Result) Kind() Kind {
	switch {
	case r.attempt != nil:
		return KindSend
	case r.opened != nil:
		return KindOutcomes
	case r.found != nil:
		return KindSearch
	default:
		return KindRead
	}
}

// Apply takes the result. Its error is Redis's, of a read that is made again; it says nothing of receivers.
func (r *Result) Apply() error {
	w := r.Webhooks
	switch {
	case r.attempt != nil:
		w.finished(r.attempt)
		return nil
	case r.read != nil:
		return w.applyRead(r.read)
	case r.opened != nil:
		return w.applyOpened(r.opened)
	default:
		return w.applyFound(r.found)
	}
}

// Input is what an owner has read for a turn.
type Input struct {
	// Inbox may be nil: nothing has come.
	Inbox *partitions.Inbox
	// EntriesBefore is how many entries the stream e had before those of the inbox; less than 0: not known.
	EntriesBefore int64
	// CatchesUp: with these entries all has been read that earlier owners have published.
	CatchesUp bool
}

// A Turn is what has come for the webhooks. Nothing of it is taken before Plan's Commit.
type Turn struct {
	webhooks *Webhooks
	input    Input
	wanted   *partitions.Wanted
}

// Begin begins a turn. It adds to wanted what must be read for it; wanted may be nil if nothing has come.
func (w *Webhooks) Begin(in Input, wanted *partitions.Wanted) *Turn {
	for _, ev := range w.scheduler.begin(w.ms()) {
		w.recordUnsent(ev, partitions.StateNotSent, partitions.NoEndpointError)
	}

	w.closeLogs()

	if in.Inbox != nil {
		wanted.Endpoints = in.Inbox.Notes
		for _, e := range in.Inbox.Published {
			if w.own[e.ID] == nil {
				wanted.Events = append(wanted.Events, sendable(e.Events)...)
			}
		}
	}

	return &Turn{webhooks: w, input: in, wanted: wanted}
}

// ReadEndpointsLater lets the endpoints that the turn wanted be read beside the owner's turns, because they, or others,
// could not be read with it.
func (t *Turn) ReadEndpointsLater() {
	if t.wanted == nil {
		return
	}
	for _, account := range t.wanted.Endpoints {
		t.webhooks.unread.add(account)
	}
	t.wanted.Endpoints = nil
}

// closeLogs takes the lines of logs that are due for the next step.
func (w *Webhooks) closeLogs() {
	if len(w.closedLogs) > 0 {
		return // of a plan that was discarded
	}

	now := time.Now()
	left := w.openLogs[:0]
	for _, l := range w.openLogs {
		if !l.isDue(now) && w.state != givingUp {
			left = append(left, l)
			continue
		}

		isEmpty := l.close()
		w.closedLogs = append(w.closedLogs, l)
		if !isEmpty {
			left = append(left, l)
		}
	}

	clear(w.openLogs[len(left):])
	w.openLogs = left
}

// sendable leaves out what no webhook tells of.
func sendable(events []partitions.Event) (sendable []partitions.Event) {
	for i := range events {
		if events[i].IsSent() {
			sendable = append(sendable, events[i])
		}
	}
	return sendable
}

// A Plan is what a step writes of the webhooks. Commit or Discard must follow, and after Discard perhaps another Plan of
// the same turn.
type Plan struct {
	turn      *Turn
	step      *partitions.Step
	endpoints []endpointPlan
}

// Plan adds to the owner's step what must be written. It changes nothing, and may be called again with another
// step after Discard.
func (t *Turn) Plan(step *partitions.Step) *Plan {
	w := t.webhooks
	p := &Plan{turn: t, step: step, endpoints: w.scheduler.plan()}
	for i := range p.endpoints {
		p.endpoints[i].write(step)
	}

	for _, p := range w.probed {
		step.Endpoint(p.account, &partitions.EndpointChange{ProbeAnswered: p.request})
	}

	for _, l := range w.lines {
		step.Publish(l.account, l.line, l.final)
	}

	for _, l := range w.closedLogs {
		l.write(step)
	}

	if w.summary != nil {
		step.Summary(w.summary)
	}

	if w.scheduler.tail.position != "" {
		step.Token.Webhooks = w.scheduler.tail.position
	}

	return p
}

func (p *endpointPlan) write(step *partitions.Step) {
	account := p.endpoint.account
	step.Schedule(account, true, p.added)
	step.MoveScheduled(account, p.moved)
	step.Schedule(account, false, p.rescheduled)
	step.Unschedule(account, p.ended)
	step.Endpoint(account, &partitions.EndpointChange{
		Breaker:    p.breaker,
		Tally:      p.tally,
		Waiting:    p.waiting,
		State:      p.state,
		StateSince: p.stateSince,
		Proven:     p.proven,
	})
}

// Position returns up to where all webhooks have ended or are scheduled, as the step says, and how many entries the
// stream e has had up to there, less than 0 if that is not known; an empty id for nowhere yet.
func (p *Plan) Position() (id string, count int64) {
	t := &p.turn.webhooks.scheduler.tail
	return t.position, t.count
}

// Discard says that the step was not written. What would have been written stays as it is, also what Begin has changed, and
// goes with a later plan: of the same turn, or of the next one. So a turn may end with Discard. What had been read for it is
// not taken then, and has to be read again.
func (p *Plan) Discard() { p.turn = nil }

// Commit takes note that the step, which was sent at sentAt, was written. Then it takes what has come, and the events that
// the step has published.
//
// If the step had nothing to write, sentAt is zero, and the time until which sends may begin stays. All else is as after a
// write: an entry whose events are muted is settled although nothing was written of it, and the webhook position that it
// moves is written with a later step.
func (p *Plan) Commit(sentAt time.Time) {
	w := p.turn.webhooks
	if !sentAt.IsZero() {
		w.confirm(sentAt)
	}

	w.scheduler.commit(p.endpoints)
	for i := range p.endpoints {
		if p.endpoints[i].proven != 0 {
			w.unread.add(p.endpoints[i].endpoint.account) // the script has compared the version
		}
	}

	for _, l := range w.closedLogs {
		l.commit()
	}

	if w.summary != nil {
		w.writtenSummary, w.summaryWrittenAt, w.summary = w.summary, time.Now(), nil
	}

	clear(w.lines)
	w.lines, w.probed, w.closedLogs = w.lines[:0], nil, w.closedLogs[:0]
	w.newsSince = time.Time{}

	p.turn.takeInput()
	w.takePublished(p.step)
	p.turn = nil
}

// takeInput takes what has come, and what was read for it. Endpoints come first: one that has just got a URL again would
// otherwise count as without one.
func (t *Turn) takeInput() {
	w, in := t.webhooks, t.input.Inbox
	if in == nil {
		return
	}

	for i, account := range t.wanted.Endpoints {
		w.learn(account, t.wanted.Facts[i])
	}

	now := w.ms()
	deliveries := t.wanted.Deliveries
	for i, e := range in.Published {
		count := int64(-1)
		if t.input.EntriesBefore >= 0 {
			count = t.input.EntriesBefore + int64(i) + 1
		}

		own := w.own[e.ID]
		if own != nil {
			delete(w.own, e.ID)
			own.count = count
			w.scheduler.follow(own, now)
			continue
		}

		n := len(sendable(e.Events))
		isLast := i == len(in.Published)-1
		if n > 0 || isLast {
			entry := &entry{id: e.ID, count: count, events: w.newEvents(deliveries[:n]), mayBeScheduled: true}
			w.scheduler.acceptEntry(entry, now)
			w.scheduler.follow(entry, now)
		}

		deliveries = deliveries[n:]
	}

	if t.input.CatchesUp {
		w.caughtUp()
	}
}

// takePublished takes the events that the owner's step has published, which it reads back later.
func (w *Webhooks) takePublished(step *partitions.Step) {
	if step.Batch == "" {
		return
	}
	entry := &entry{id: step.Batch, events: w.newEvents(step.Published)}
	w.own[step.Batch] = entry
	w.scheduler.acceptEntry(entry, w.ms())
}

func (w *Webhooks) newEvents(deliveries []*partitions.Delivery) []*event {
	events := make([]*event, 0, len(deliveries))
	for _, d := range deliveries {
		if d != nil && !w.ended[d.EventID] {
			events = append(events, &event{account: d.Account, key: d.Key, delivery: d})
		}
	}

	w.role.metrics.entries.WithLabelValues(resultQueued).Add(float64(len(events)))
	return events
}

// confirm takes note that a write of the owner, sent at that time, was written.
func (w *Webhooks) confirm(sentAt time.Time) { w.confirmed.Store(int64(sentAt.Sub(processStarted))) }

// mayBegin reports whether a send may begin: no other worker can have taken the partition over.
func (w *Webhooks) mayBegin() bool {
	sinceConfirmed := time.Since(processStarted) - time.Duration(w.confirmed.Load())
	return sinceConfirmed < sendWithin && !w.isLeaving.Load()
}

// Send starts what may be sent now, and the reads that are wanted. It returns when the next turn is due at the
// latest, if nothing happens.
func (w *Webhooks) Send() (nextTurn time.Time) {
	if w.state == opening {
		return time.Now().Add(idlePause)
	}

	canSend := w.state == sending && w.mayBegin()
	for canSend && w.sendSome() {
	}
	w.wantEndpoints()
	w.startRead()
	hasPlaces := w.role.freePlaces().free > 0 && len(w.scheduler.waiting) == 0

	return w.nextTurn(canSend && hasPlaces)
}

// sendSome starts sends as far as there are places; false: there is nothing more to send, or no place.
func (w *Webhooks) sendSome() bool {
	w.role.placing.Lock()
	defer w.role.placing.Unlock()
	places := w.role.freePlaces()
	if places.free <= 0 {
		return false
	}

	w.events = w.scheduler.next(w.events[:0], places, w.ms())
	now := w.now()
	for _, ev := range w.events {
		a := w.attemptOf(ev)
		isTooLate := !ev.isPing && !now.Before(a.Deadline())
		if isTooLate {
			w.role.metrics.attempts.WithLabelValues(outcomeDeadline).Inc()
			w.endUnsent(ev, expired, partitions.StateUndelivered, partitions.ExpiredError)
			continue
		}
		w.launch(a)
	}

	return len(w.events) > 0
}

func (w *Webhooks) attemptOf(ev *event) *attempt {
	d := ev.delivery
	if ev.isPing {
		d = partitions.Ping(ev.account, time.UnixMilli(ev.dueAt))
	}

	if ev.replayedAt > 0 { // since it was loaded, perhaps
		d.ReplayedAt = time.UnixMilli(ev.replayedAt)
	}

	return &attempt{
		Delivery: d,
		event:    ev,
		receiver: ev.endpoint.receiver,
		number:   ev.attempts + 1,
		ping:     ev.isPing,
		probe:    ev.isProbe || ev.isPing,
		replay:   ev.isReplay(),
	}
}

// wantEndpoints lets the endpoints be read that are unknown, and now and then all.
func (w *Webhooks) wantEndpoints() {
	for _, account := range w.scheduler.takeUnknown() {
		w.unread.add(account)
	}

	now := time.Now()
	if now.Sub(w.unread.refreshed) < refreshEvery {
		return
	}

	w.unread.refreshed = now
	for account, e := range w.scheduler.endpoints {
		if e.isKnown {
			w.unread.add(account)
		}
	}
}

// nextTurn returns when the next turn is due: to send, to write, or to read. canSend: something could be sent if it
// waited.
func (w *Webhooks) nextTurn(canSend bool) time.Time {
	now := time.Now()
	next := now.Add(fullPause)
	if canSend {
		next = now.Add(w.untilSend())
	}

	for _, due := range []time.Time{w.writeDue(now), w.readDue(now)} {
		if !due.IsZero() && due.Before(next) {
			next = due
		}
	}

	return next
}

// untilSend returns in how long something may be sent, or the scheduler has something to write; idlePause at most.
func (w *Webhooks) untilSend() time.Duration {
	now := w.ms()
	wait := min(w.scheduler.wakeAt(now)-now, idlePause.Milliseconds())
	return time.Duration(wait) * time.Millisecond
}

// writeDue returns when what has gathered must be written; zero if nothing has.
func (w *Webhooks) writeDue(now time.Time) time.Time {
	hasNews := len(w.lines)+len(w.probed) > 0 || w.summary != nil || w.scheduler.hasConfirmationPending()
	if hasNews && w.newsSince.IsZero() {
		w.newsSince = now
	}

	switch {
	case len(w.closedLogs) > 0: // of a plan that was discarded
		return now
	case hasNews:
		return w.newsSince.Add(outcomesEvery)
	case len(w.openLogs) > 0:
		return w.openLogs[0].since.Add(logEvery)
	default:
		return time.Time{}
	}
}

// readDue returns when the next read may begin; zero if nothing is to be read, or a read is in progress.
func (w *Webhooks) readDue(now time.Time) time.Time {
	if w.isReading {
		return time.Time{}
	}

	due, hasUnread := w.unread.next(now)
	if w.mayLoad() && w.scheduler.wantsRead(w.ms()) {
		due, hasUnread = now, true
	}

	if !hasUnread {
		return time.Time{}
	}
	if due.Before(w.readAgainAt) {
		return w.readAgainAt
	}

	return due
}

// launch starts a send.
func (w *Webhooks) launch(a *attempt) {
	r := w.role
	w.InFlight++
	r.takePlace(a.event)
	r.start(func() {
		err := service.Protect(r.metrics.panics, func() error {
			a.signed = r.redisTime()
			r.make(w.ctx, a, w.now(), w.mayBegin)
			return nil
		})

		if err != nil {
			r.log.Error("an attempt failed", r.about(a, "error", err)...)
			r.conclude(a, unrenderable)
		}

		r.givePlaceBack(a.event)
		w.results <- &Result{Webhooks: w, attempt: a}
	})
}

// finished takes the result of a send.
func (w *Webhooks) finished(a *attempt) {
	w.InFlight--
	if a.ending == 0 {
		w.role.metrics.aborted.Inc()
		w.scheduler.putBack(a.event, w.ms())
		return
	}

	w.scheduler.finish(a.event, a.result(), w.ms())
	if a.ending == deferred {
		return
	}

	record := a.record()
	isFailedProbe := a.probe && a.ending != delivered
	if a.ending == retry && !a.probe {
		record.NextAt = a.event.nextAttempt()
	}

	w.record(a.Delivery, &record, isFailedProbe, !a.ping)
}

// endUnsent ends an event that is not sent.
func (w *Webhooks) endUnsent(ev *event, how ending, state, reason string) {
	now := w.ms()
	w.recordUnsent(ev, state, reason)
	w.scheduler.finish(ev, result{ending: how, at: now}, now)
}

func (w *Webhooks) recordUnsent(ev *event, state, reason string) {
	record := &partitions.AttemptRecord{At: w.now(), State: state, Error: reason, Attempt: ev.attempts, Replay: ev.isReplay()}
	w.record(ev.delivery, record, false, true)
}

// record adds a line to the endpoint's log, and publishes it for the export and for replays.
func (w *Webhooks) record(d *partitions.Delivery, record *partitions.AttemptRecord, isFailedProbe, publish bool) {
	line, unanswered := record.Lines(d, isFailedProbe)
	l := w.logs[d.Account]
	if l == nil {
		l = &attemptLog{account: d.Account}
		w.logs[d.Account] = l
	}

	if len(l.lines) == 0 {
		l.since = time.Now()
		w.openLogs = append(w.openLogs, l)
	}

	l.add(line, isFailedProbe)

	if !publish {
		return
	}

	isFinal := record.State != partitions.StateRetrying
	if !isFinal {
		line = unanswered
	}

	w.lines = append(w.lines, outcomeLine{account: d.Account, line: line, final: isFinal})
}

// GiveUp begins no more sends, and lets the next turn schedule everything that has not ended, and write all figures.
func (w *Webhooks) GiveUp() {
	w.state = givingUp
	w.isLeaving.Store(true)
	w.scheduler.giveUp(w.ms())
}

// Close forgets everything. Results that come later are not applied.
func (w *Webhooks) Close() {
	w.isLeaving.Store(true)
	w.endReads()
	w.scheduler.close()
}

func (w *Webhooks) ms() int64 { return w.now().UnixMilli() }
