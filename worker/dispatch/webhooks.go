package dispatch

import (
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
)

const (
	// memoryPerEndpoint is how many events of one endpoint are in memory at most.
	memoryPerEndpoint = 512
	// sendWithin is how long after a confirmed write of the owner a send may begin. It is less than
	// what must pass before another worker takes the partition over: fencing stops writes, not sends.
	sendWithin = 2 * time.Second
	// A log gets so many lines at once, or those of a second.
	logLines = 16
	logEvery = time.Second
	// A log keeps the newest logKept lines and what was written together with the last of them,
	// but no more than logBytes.
	logKept, logBytes = 200, 256 << 10
	// refreshEvery is how often endpoints are read though no note says that they have changed, should
	// a note be lost.
	refreshEvery = 30 * time.Second
	// unreadPause is until an endpoint is read again whose secret cannot be opened.
	unreadPause = 10 * time.Second
	// summarizeEvery is how often operators are told what waits, summarized how many endpoints'
	// schedules are looked into for that.
	summarizeEvery = time.Second
	summarized     = 256
)

// Webhooks are those of one partition. Its owner calls them from one goroutine.
type Webhooks struct {
	Partition int
	InFlight  int  // sends that have not ended
	Stopped   bool // no more begin

	role      *Role
	scheduler *Scheduler
	now       func() time.Time // the earlier of this machine's clock and Redis's
	results   chan<- *Sent
	ctx       context.Context // of the sends
	confirmed atomic.Int64    // when the owner last wrote, since the process started
	hasLeft   atomic.Bool     // Leave was called: no send begins, though a write is confirmed

	unread    map[delivery.AccountID]time.Time // endpoints that are unknown, or may have changed; when to read them
	refreshed time.Time
	logs      map[delivery.AccountID]*attemptLog
	open      []*attemptLog     // with lines
	closed    []*attemptLog     // with lines of the step that is being written
	own       map[string]*Entry // the owner's batches that it has not read back
	resend    []*attempt        // which were not begun
	ended     map[string]bool   // ids of events; until all that earlier owners published has been read, and none is sent
	items     []*Item

	lines   []outcomeLine // since the last step
	effects []Effect      // of the step that is being written
	written []outcomeLine
	probed  []probed
	writing bool

	// What waits, for operators.
	summary          map[ledger.EndpointState]ledger.QueueStats // to be written; nil: nothing is
	summaryAt        time.Time                                  // when it was last counted
	writtenSummary   map[ledger.EndpointState]ledger.QueueStats
	summaryWrittenAt time.Time // zero: never
}

// Sent is a send that has ended, for Done.
type Sent struct {
	Webhooks *Webhooks
	attempt  *attempt
}

// probed is a request to probe that was taken, to be written.
type probed struct {
	account delivery.AccountID
	request int64
}

type outcomeLine struct {
	account delivery.AccountID
	line    []byte
	final   bool
}

var processStarted = time.Now()

// Webhooks begins with what is stored, for a new owner of the partition. Sends end with ctx; their
// results go to results.
func (r *Role) Webhooks(ctx context.Context, partition int, now func() time.Time, results chan<- *Sent) *Webhooks {
	return &Webhooks{role: r, Partition: partition, now: now, results: results, ctx: ctx, refreshed: time.Now().Add(-rand.N(refreshEvery)),
		scheduler: NewScheduler(Limits{InFlight: r.settings.PerEndpoint, Failures: r.settings.BreakerFailures, Memory: memoryPerEndpoint}),
		unread:    make(map[delivery.AccountID]time.Time), logs: make(map[delivery.AccountID]*attemptLog), own: make(map[string]*Entry)}
}

func (w *Webhooks) ms() int64 { return w.now().UnixMilli() }

// Confirm notes that the owner's write, sent at this time, was written.
func (w *Webhooks) Confirm(sent time.Time) { w.confirmed.Store(int64(sent.Sub(processStarted))) }

func (w *Webhooks) mayStart() bool {
	return !w.hasLeft.Load() && time.Since(processStarted)-time.Duration(w.confirmed.Load()) < sendWithin
}

// Wanted are the events among what was read that must be read as a whole.
func (w *Webhooks) Wanted(in *ledger.Inbox) (events []ledger.Event) {
	for _, e := range in.Published {
		if w.own[e.ID] == nil {
			events = append(events, sendable(e.Events)...)
		}
	}
	return events
}

// sendable leaves out what no webhook tells of.
func sendable(events []ledger.Event) (sendable []ledger.Event) {
	for i := range events {
		if events[i].IsSent() {
			sendable = append(sendable, events[i])
		}
	}
	return sendable
}

// Take takes what was read and decided. deliveries are those of Wanted, nil for what is gone. read
// counts the entries before them.
func (w *Webhooks) Take(in *ledger.Inbox, deliveries []*ledger.Delivery, read int64) {
	now := w.ms()
	for i, e := range in.Published {
		count := int64(-1)
		if read >= 0 {
			count = read + int64(i) + 1
		}
		entry := w.own[e.ID]
		if entry != nil {
			delete(w.own, e.ID)
			entry.Read = count
			w.scheduler.Follow(entry, now)
			continue
		}
		n := len(sendable(e.Events))
		entry = &Entry{ID: e.ID, Read: count, Items: w.queue(deliveries[:n]), Again: true}
		deliveries = deliveries[n:]
		if n > 0 || i == len(in.Published)-1 {
			w.scheduler.Add(entry, now)
		}
	}
}

// Noted says that endpoints have changed. They must be read (Learn) before what happened then is taken:
// an endpoint that has just got a URL again would otherwise count as without one.
func (w *Webhooks) Noted(accounts []delivery.AccountID) {
	for _, account := range accounts {
		w.unread[account] = time.Time{}
	}
}

// CaughtUp says that all that earlier owners published has been read. Nothing is sent before: what
// is scheduled is also read again, as far as it is after the position.
func (w *Webhooks) CaughtUp() { w.ended = nil }

// Publish takes the events of the owner's own batch, which it reads back later.
func (w *Webhooks) Publish(batch string, deliveries []*ledger.Delivery) {
	if batch == "" {
		return
	}
	entry := &Entry{ID: batch, Items: w.queue(deliveries)}
	w.own[batch] = entry
	w.scheduler.Place(entry, w.ms())
}

func (w *Webhooks) queue(deliveries []*ledger.Delivery) []*Item {
	all := make([]*Item, 0, len(deliveries))
	for _, d := range deliveries {
		if d != nil && !w.ended[d.EventID] {
			all = append(all, &Item{Account: d.Account, Key: d.Key, Delivery: d})
		}
	}
	w.role.metrics.entries.WithLabelValues(resultQueued).Add(float64(len(all)))
	return all
}

// Fetch reads what the webhooks of several partitions need: endpoints, and parts of schedules. All
// partitions share each round trip: the owner waits for it. After an error nothing of a schedule was taken;
// it is read again in a moment.
func (r *Role) Fetch(ctx context.Context, all []*Webhooks) error {
	if err := cmp.Or(r.Learn(ctx, all), r.summarize(ctx, all)); err != nil {
		return err
	}
	var queries []ledger.ScheduleQuery
	var of []*Webhooks
	for _, w := range all {
		for _, query := range w.scheduler.Loads(w.ms()) {
			query.Partition = w.Partition
			of, queries = append(of, w), append(queries, query)
		}
	}
	if len(queries) == 0 {
		return nil
	}
	found, err := r.ledger.Ownership.Scheduled(ctx, queries)
	if err != nil {
		for i, w := range of {
			w.scheduler.NotLoaded(queries[i].Account, w.ms())
		}
		return err
	}
	for i, w := range of {
		w.loaded(queries[i].Account, found[i])
	}
	return nil
}

// FetchAll reads what a new owner must know: every endpoint for which something is scheduled, and
// which events have ended that are after the position.
func (w *Webhooks) FetchAll(ctx context.Context, position string) (err error) {
	if w.ended, err = w.role.ledger.Ownership.Ended(ctx, w.Partition, position); err != nil {
		return err
	}
	err = w.role.ledger.Ownership.Pending(ctx, w.Partition, func(pending []delivery.AccountID) error {
		w.Noted(pending)
		return nil
	})
	if err != nil {
		return err
	}
	return w.role.Learn(ctx, []*Webhooks{w})
}

// Learn reads endpoints that are unknown or may have changed, again until it succeeds.
func (r *Role) Learn(ctx context.Context, all []*Webhooks) error {
	var endpoints []ledger.EndpointAt
	var of []*Webhooks
	for _, w := range all {
		for _, account := range w.wanted() {
			of, endpoints = append(of, w), append(endpoints, ledger.EndpointAt{Partition: w.Partition, Account: account})
		}
	}
	if len(endpoints) == 0 {
		return nil
	}
	facts, err := r.ledger.Ownership.EndpointFacts(ctx, endpoints)
	for i, f := range facts {
		of[i].learn(endpoints[i].Account, f)
	}
	return err
}

// wanted are the endpoints to be read now.
func (w *Webhooks) wanted() (accounts []delivery.AccountID) {
	now := time.Now()
	w.Noted(w.scheduler.Need())
	if now.Sub(w.refreshed) >= refreshEvery {
		w.refreshed = now
		for account, e := range w.scheduler.endpoints {
			if e.known {
				w.unread[account] = time.Time{}
			}
		}
	}
	for account, at := range w.unread {
		if now.After(at) {
			accounts = append(accounts, account)
		}
	}
	return accounts
}

func (w *Webhooks) learn(account delivery.AccountID, f *ledger.Facts) {
	if f.Unreadable != nil {
		w.role.log.Error("webhook endpoint cannot be read, its events wait", "account", account, "error", f.Unreadable)
		w.unread[account] = time.Now().Add(unreadPause)
		return
	}
	delete(w.unread, account)
	w.scheduler.Learn(account, f, w.ms())
	if f.ProbeRequest != 0 {
		w.probed = append(w.probed, probed{account, f.ProbeRequest})
	}
}

// summarize counts what waits, for operators.
func (r *Role) summarize(ctx context.Context, all []*Webhooks) error {
	now := time.Now()
	if !slices.ContainsFunc(all, func(w *Webhooks) bool { return now.Sub(w.summaryAt) >= summarizeEvery }) {
		return nil
	}

	// What is in memory, and which schedules are to be counted.
	summaries := make([]map[ledger.EndpointState]ledger.QueueStats, len(all))
	var scheduled []ledger.EndpointAt
	var of []int // of the partitions
	for i, w := range all {
		summary, most := make(map[ledger.EndpointState]ledger.QueueStats), len(scheduled)+summarized
		summaries[i], w.summaryAt = summary, now
		for account, e := range w.scheduler.endpoints {
			if !e.waits() {
				continue
			}

			sum := summary[e.State]
			sum.Endpoints++
			memory, more := e.backlog()
			sum.Events += int64(memory)
			if e.Breaker.Open {
				sum.BreakersOpen++
			}
			summary[e.State] = sum

			if more && len(scheduled) < most {
				of, scheduled = append(of, i), append(scheduled, ledger.EndpointAt{Partition: w.Partition, Account: account})
			}
		}
	}

	backlogs, err := r.ledger.Ownership.Backlogs(ctx, scheduled)
	if err != nil {
		return err
	}

	for i, b := range backlogs {
		summary, state := summaries[of[i]], all[of[i]].scheduler.endpoints[scheduled[i].Account].State
		sum := summary[state]
		sum.Events += b.Events
		if !b.Oldest.IsZero() && (sum.Oldest.IsZero() || b.Oldest.Before(sum.Oldest)) {
			sum.Oldest = b.Oldest
		}
		summary[state] = sum
	}

	for i, w := range all {
		if w.summary != nil || w.shouldWrite(summaries[i], now) {
			w.summary = summaries[i]
		}
	}
	return nil
}

// shouldWrite reports whether operators must be told what waits: when that has changed, and now and
// then, because what is stored counts for a while only.
func (w *Webhooks) shouldWrite(summary map[ledger.EndpointState]ledger.QueueStats, now time.Time) bool {
	return !maps.Equal(summary, w.writtenSummary) || now.Sub(w.summaryWrittenAt) >= ledger.SummaryEvery
}

func (w *Webhooks) loaded(account delivery.AccountID, found []*ledger.Scheduled) {
	now := w.ms()
	items := make([]*Item, len(found))
	for i, s := range found {
		items[i] = &Item{Account: account, Key: s.Key, Due: s.Due, Attempts: s.Attempts, ReplayedAt: s.ReplayedAt, AskedAt: s.AskedAt, Delivery: s.Delivery}
	}
	w.scheduler.Loaded(account, items, now)
	for i, s := range found {
		// The scheduler has ended what is muted, or goes to no URL, and leaves to a later load what it
		// has not taken.
		isTaken := items[i].state == waiting
		if s.Gone != "" && isTaken {
			w.end(items[i], NotSent, ledger.StateNotSent, s.Gone)
		}
	}
}

// end ends an event that is not sent.
func (w *Webhooks) end(it *Item, ending Ending, state, reason string) {
	now := w.ms()
	w.scheduler.Done(it, Result{Ending: ending, At: now}, now)
	w.unsent(it, state, reason)
}

func (w *Webhooks) unsent(it *Item, state, reason string) {
	w.keep(it.Delivery, &ledger.AttemptRecord{At: w.now(), State: state, Error: reason, Attempt: it.Attempts, Replay: it.isReplay()}, false, true)
}

// Send starts what may be sent now.
func (w *Webhooks) Send() {
	if w.Stopped || w.ended != nil || !w.mayStart() {
		return
	}
	resend := w.resend
	w.resend = nil
	for _, a := range resend {
		a.receiver = a.item.endpoint.Receiver // it may have moved
		a.item.Version = a.receiver.Version
		w.launch(a)
	}
	for free := w.role.free(); free > 0; free = w.role.free() {
		w.items = w.scheduler.Next(w.items[:0], free, w.ms())
		if len(w.items) == 0 {
			return
		}
		now := w.now()
		for _, it := range w.items {
			d := it.Delivery
			if it.Ping {
				d = ledger.Ping(it.Account, time.UnixMilli(it.Due))
			}
			if it.ReplayedAt > 0 { // since it was loaded, perhaps
				d.ReplayedAt = time.UnixMilli(it.ReplayedAt)
			}
			if !it.Ping && !now.Before(d.Deadline()) {
				w.role.metrics.attempts.WithLabelValues(outcomeDeadline).Inc()
				w.end(it, Expired, ledger.StateUndelivered, ledger.ExpiredError)
				continue
			}
			w.launch(&attempt{Delivery: d, item: it, receiver: it.endpoint.Receiver, number: it.Attempts + 1, ping: it.Ping, probe: it.Probe || it.Ping, replay: it.isReplay()})
		}
	}
}

func (w *Webhooks) launch(a *attempt) {
	r := w.role
	r.inFlight.Add(1)
	w.InFlight++
	r.start(func() {
		err := service.Protect(r.metrics.panics, func() error {
			a.signed = r.redisTime()
			r.make(w.ctx, a, w.now(), w.mayStart)
			return nil
		})
		if err != nil {
			r.log.Error("an attempt failed", r.about(a, "error", err)...)
			r.conclude(a, unrenderable)
		}
		r.inFlight.Add(-1)
		w.results <- &Sent{w, a}
	})
}

// Done takes the result of a send.
func (w *Webhooks) Done(s *Sent) {
	a := s.attempt
	w.InFlight--
	if a.ending == 0 {
		w.role.metrics.aborted.Inc()
		w.resend = append(w.resend, a)
		return
	}
	w.scheduler.Done(a.item, a.result(), w.ms())
	if a.ending == Deferred {
		return
	}
	record := a.record()
	failedProbe := a.probe && a.ending != Delivered
	w.keep(a.Delivery, &record, failedProbe, !a.ping)
}

// keep notes a line for the log, and publishes it.
func (w *Webhooks) keep(d *ledger.Delivery, record *ledger.AttemptRecord, failedProbe, publish bool) {
	line, unanswered := record.Lines(d, failedProbe)
	l := w.logs[d.Account]
	if l == nil {
		l = &attemptLog{account: d.Account}
		w.logs[d.Account] = l
	}
	if len(l.lines) == 0 {
		l.since = time.Now()
		w.open = append(w.open, l)
	}
	l.add(line, failedProbe)
	if publish {
		final := record.State != ledger.StateRetrying
		if !final {
			line = unanswered
		}
		w.lines = append(w.lines, outcomeLine{d.Account, line, final})
	}
}

// Write adds to the owner's step what must be written. It may be repeated, with another step, until
// Written.
func (w *Webhooks) Write(step *ledger.Step) {
	if !w.writing {
		w.writing = true
		w.effects = w.scheduler.Effects(w.ms())
		for i := range w.effects {
			for _, it := range w.effects[i].NotSent {
				w.unsent(it, ledger.StateNotSent, ledger.NoEndpointError)
			}
		}
		w.written, w.lines = w.lines, w.written[:0]
		now := time.Now()
		w.open = slices.DeleteFunc(w.open, func(l *attemptLog) bool {
			if !l.due(now) && !w.Stopped {
				return false
			}
			w.closed = append(w.closed, l)
			return l.close()
		})
	}
	for i := range w.effects {
		x := &w.effects[i]
		step.Schedule(x.Account, true, x.Spill)
		step.Schedule(x.Account, false, x.Put)
		step.Unschedule(x.Account, x.Remove)
		step.Endpoint(x.Account, &x.EndpointChange)
	}
	for _, p := range w.probed {
		step.Endpoint(p.account, &ledger.EndpointChange{ProbeAnswered: p.request})
	}
	for _, l := range w.written {
		step.Publish(l.account, l.line, l.final)
	}
	for _, l := range w.closed {
		l.write(step)
	}
	if w.summary != nil {
		step.Summary(w.summary)
	}
	if at := w.scheduler.position; at != "" {
		step.Token.Webhooks = at
	}
}

// Written confirms the step.
func (w *Webhooks) Written() {
	if !w.writing {
		return
	}
	for i := range w.effects {
		if x := &w.effects[i]; x.Proven != 0 {
			r := &w.scheduler.endpoints[x.Account].Receiver
			r.Proven, r.Version = true, x.Version
		}
	}
	w.scheduler.Committed()
	for _, l := range w.closed {
		l.wrote()
	}
	if w.summary != nil {
		w.writtenSummary, w.summaryWrittenAt = w.summary, time.Now()
	}
	w.writing, w.effects, w.summary, w.probed, w.closed = false, nil, nil, nil, w.closed[:0]
}

// Position is up to where all webhooks have ended or are scheduled, and how many entries that are.
func (w *Webhooks) Position() (id string, read int64) {
	return w.scheduler.position, w.scheduler.read
}

// Dirty reports whether a step should be written: not for the position alone.
func (w *Webhooks) Dirty() bool {
	return len(w.lines) > 0 || w.summary != nil || len(w.probed) > 0 || len(w.open) > 0 && w.open[0].due(time.Now())
}

// Wake is for how long nothing is to be done if nothing happens.
func (w *Webhooks) Wake() time.Duration {
	if w.role.free() <= 0 || w.ended != nil || !w.mayStart() {
		return fullPause
	}
	now := w.ms()
	return time.Duration(min(w.scheduler.Wake(now)-now, 1000)) * time.Millisecond
}

// fullPause is until it is looked again whether something may be sent.
const fullPause = 50 * time.Millisecond

// Leave lets the next step schedule everything that has not ended, and write all figures. From then on no
// send begins, also none whose connection is being made: that step may free the partition, and the next
// owner waits for nothing.
func (w *Webhooks) Leave() {
	w.hasLeft.Store(true)
	w.scheduler.Leave(w.ms())
}

// attemptLog is what is to be added to an endpoint's log.
type attemptLog struct {
	account delivery.AccountID
	since   time.Time // when the first of the lines came
	lines   [][]byte
	closed  [][]byte // lines that are being written
	again   bool     // the first of which takes the place of the log's first entry
	probe   []byte   // the last line, if it is a failed probe's
	written []chunk  // the log's entries, the newest first, as far as this owner wrote them
	alone   bool     // the log has no other entries
}

type chunk struct{ lines, bytes int }

// add adds a line. Failed probes in a row share one, so that an endpoint that is unavailable for a
// day keeps the log of what went before.
func (l *attemptLog) add(line []byte, failedProbe bool) {
	if failedProbe && l.probe != nil {
		binary.BigEndian.PutUint32(line[1:], binary.BigEndian.Uint32(l.probe[1:])+1)
		if n := len(l.lines); n > 0 {
			l.lines = l.lines[:n-1]
		} else {
			l.again = true
		}
	}
	l.lines = append(l.lines, line)
	if l.probe = nil; failedProbe {
		l.probe = line
	}
}

// due reports whether the lines should be written.
func (l *attemptLog) due(now time.Time) bool {
	return len(l.lines) >= logLines || now.Sub(l.since) >= logEvery
}

// close takes lines for the step that is written next; false: some are left for the one after, because
// a shared one is written by itself.
func (l *attemptLog) close() bool {
	n := len(l.lines)
	if l.again {
		n = 1
	} else if l.probe != nil && n > 1 {
		n--
	}
	l.closed, l.lines = newestLines(l.lines[:n:n], l.limit()), l.lines[n:]
	return len(l.lines) == 0
}

// newestLines leaves out the oldest lines that a log would not keep; never the last one.
func newestLines(lines [][]byte, limit int) [][]byte {
	first, sum := len(lines), chunk{}
	for first > 0 {
		line := chunkOf(lines[first-1 : first])
		full := sum.lines == logKept || sum.bytes+line.bytes > limit
		if full && sum.lines > 0 {
			break
		}
		sum.lines, sum.bytes = sum.lines+line.lines, sum.bytes+line.bytes
		first--
	}
	return lines[first:]
}

// limit is how many bytes this owner's entries of the log may have. Half of the log is for those
// of earlier owners, whose sizes are unknown, as long as there may be any.
func (l *attemptLog) limit() int {
	if l.alone {
		return logBytes
	}
	return logBytes / 2
}

func (l *attemptLog) write(step *ledger.Step) {
	if len(l.written) == 0 {
		step.TrimLog(l.account, logBytes-l.limit())
	}
	step.Log(l.account, l.closed, l.kept(), l.again)
}

// kept is how many entries of the log are kept.
func (l *attemptLog) kept() int {
	sum := chunkOf(l.closed)
	for i, c := range l.written {
		if sum.lines >= logKept || sum.bytes+c.bytes > l.limit() {
			return i + 1
		}
		sum.lines, sum.bytes = sum.lines+c.lines, sum.bytes+c.bytes
	}
	return logKept
}

// lineOverhead is what an entry takes for each of its lines besides the line.
const lineOverhead = 3

func chunkOf(lines [][]byte) (c chunk) {
	for _, line := range lines {
		c.lines, c.bytes = c.lines+1, c.bytes+len(line)+lineOverhead
	}
	return c
}

// wrote confirms what was written.
func (l *attemptLog) wrote() {
	added := chunkOf(l.closed)
	if l.again {
		l.written[0] = added
	} else {
		kept, before := l.kept(), len(l.written)
		l.written = append([]chunk{added}, l.written[:min(before, kept-1)]...)
		l.alone = l.alone || kept <= before+1
	}
	l.closed, l.again = nil, false
}
