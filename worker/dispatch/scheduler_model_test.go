package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// stored is what Redis keeps of an endpoint.
type stored struct {
	facts    partitions.Facts
	schedule map[string]int64
	counts   map[string][2]int64 // attempts made, replayed at
	askedAt  map[string]int64    // of what waited when a replay asked for it
	mood     int
}

// modelEvent is one event of the stream.
type modelEvent struct {
	account int
	key     string
}

// model plays an owner and everything around it.
type model struct {
	*rapid.T
	accounts []*stored
	stream   [][]modelEvent
	position int // of the last commit: so many entries
	clock    int64
	latest   int64 // of the clock, as of the last commit
	orders   map[string]int
	// A takeover before what a clock that was ahead had planned is drawn back may cost the order, and
	// so may one by a worker whose clock is behind the last owner's.
	disturbed, unordered bool
	asks                 map[string]int  // how often replays have asked for each event
	satisfied            map[string]int  // of each event that has ended, as was committed: how often it had been asked for when its send began
	tried                map[string]bool // its first attempt ended
	refused              map[string]bool // its URL was deleted while it waited: it must not be sent

	// of the owner
	s       *scheduler
	memory  *memory
	read    int // entries
	taken   int // entries of the stream when it took over
	given   map[string]bool
	flying  []*event
	begun   map[*event]int // of what is in flight: how often it had been asked for when that began
	results []func()       // of the next batch
	limits  limits
	free    int
	// unlearned are accounts whose facts were older than what the owner has written.
	unlearned map[int]bool
}

func accountOf(i int) delivery.AccountID { return delivery.AccountID{15: byte(i + 1)} }

func versionKey(order, sequence int) string {
	return fmt.Sprintf("\x01%014d\x00\x00\x00%c", order, rune(sequence))
}

func newModel(rt *rapid.T) *model {
	m := &model{T: rt, clock: 1_800_000_000_000, orders: map[string]int{}, asks: map[string]int{}, satisfied: map[string]int{}, tried: map[string]bool{}, refused: map[string]bool{},
		limits: limits{inFlight: 4, failures: 3, memory: 8}, free: 64}
	for range 3 {
		m.accounts = append(m.accounts, &stored{facts: healthy, schedule: map[string]int64{}, counts: map[string][2]int64{}, askedAt: map[string]int64{}})
	}
	m.takeOver()
	return m
}

func (m *model) pick(label string, n int) int { return rapid.IntRange(0, n-1).Draw(m.T, label) }

func (m *model) takeOver() {
	m.unordered = m.unordered || m.disturbed || m.clock < m.latest
	m.disturbed = false
	size := waitingEvent(modelEvent{}).size()
	m.memory = &memory{budget: 6 * memoryShare * size} // some six events for each account
	m.s = newScheduler(m.limits, m.memory)
	m.unlearned = map[int]bool{}
	clear(m.refused) // who takes over cannot know that a URL was deleted in between
	m.read, m.taken = m.position, len(m.stream)
	m.given, m.flying, m.begun, m.results = map[string]bool{}, nil, map[*event]int{}, nil
	facts := func() {
		for i, a := range m.accounts {
			if len(a.schedule) > 0 || a.facts.Breaker.Open {
				m.learn(i)
			}
		}
	}

	late := m.taken > 0 && m.pick("late facts", 4) == 0
	if !late {
		facts()
	}

	for m.read < m.taken {
		m.add()
	}

	if late {
		facts()
	}
}

func (m *model) learn(i int) {
	facts := m.accounts[i].facts
	facts.Scheduled = len(m.accounts[i].schedule) > 0
	isLearned := m.s.learn(accountOf(i), &facts, m.clock)
	m.unlearned[i] = !isLearned
	if isLearned {
		m.accounts[i].facts.ProbeRequest = 0
	}
}

func (m *model) publish() {
	var events []modelEvent
	for range 1 + m.pick("events", 6) {
		account := m.pick("account", len(m.accounts))
		if m.pick("notice", 4) == 0 {
			events = append(events, modelEvent{account: account, key: fmt.Sprintf("\x02evt_%d_%d", len(m.stream), len(events))})
			continue
		}

		order := fmt.Sprint(account*100 + m.pick("order", 3))
		m.orders[order]++
		var number int
		fmt.Sscan(order, &number)
		events = append(events, modelEvent{account: account, key: versionKey(number, 1+m.orders[order])})
	}

	m.stream = append(m.stream, events)
}

func (m *model) add() {
	entry := &entry{id: fmt.Sprint(m.read + 1), mayBeScheduled: m.read < m.taken}
	for _, event := range m.stream[m.read] {
		entry.events = append(entry.events, waitingEvent(event))
		m.given[event.key] = true
	}

	m.read++
	m.s.acceptEntry(entry, m.clock)
	m.s.follow(entry, m.clock)
}

func waitingEvent(e modelEvent) *event {
	return &event{account: accountOf(e.account), key: e.key, delivery: &partitions.Delivery{}}
}

// ask puts an event into its schedule again, past the stream, as the API does.
func (m *model) beginRequest() {
	if m.read == 0 {
		return
	}

	events := m.stream[m.pick("entry", m.read)]
	event := events[m.pick("event", len(events))]
	a := m.accounts[event.account]
	if a.facts.URL == "" {
		return
	}

	m.clock++ // no two replays of an account are asked for within a millisecond
	if due, there := a.schedule[event.key]; there {
		a.schedule[event.key] = min(due, m.clock)
		a.askedAt[event.key] = m.clock
	} else {
		a.schedule[event.key], a.counts[event.key] = m.clock, [2]int64{0, m.clock}
	}

	m.asks[event.key]++
	delete(m.refused, event.key)
	m.tried[event.key] = true // who asks does without the order
	m.learn(event.account)
}

// learnUnknown reads the endpoints that must be read.
func (m *model) learnUnknown() {
	for _, account := range m.s.takeUnknown() {
		m.learn(int(account[15]) - 1)
	}

	for i, isUnlearned := range m.unlearned {
		if isUnlearned {
			m.learn(i)
		}
	}
}

// load reads schedules.
func (m *model) load() {
	m.learnUnknown()
	owner := m.s
	loads := owner.reads(m.clock)
	var found [][]*event
	for _, l := range loads {
		found = append(found, m.find(l))
	}

	if len(loads) > 0 && m.pick("late load", 4) == 0 { // other things happen before its reply is used
		m.finish()
		m.commit()
		for m.read < len(m.stream) {
			m.add()
		}
	}

	for i, l := range loads {
		if m.s != owner {
			return
		}

		if m.pick("failed load", 8) == 0 {
			m.s.notLoaded(l.Account, m.clock, readAgainAfter)
			continue
		}

		for _, it := range found[i] {
			m.given[it.key] = true
		}

		m.s.loaded(l.Account, found[i], m.clock)
	}
}

func (m *model) find(l *scheduleRead) (items []*event) {
	a := m.accounts[l.Account[15]-1]
	keys := slices.SortedFunc(maps.Keys(a.schedule), func(x, y string) int {
		return cmp.Or(cmp.Compare(a.schedule[x], a.schedule[y]), cmp.Compare(x, y))
	})
	n := 0
	for _, key := range keys {
		due := a.schedule[key]
		if due < l.From || due <= l.Until && n == l.Limit {
			continue
		}

		n++
		it := &event{account: l.Account, key: key, dueAt: due, attempts: int(a.counts[key][0]), replayedAt: a.counts[key][1], askedAt: a.askedAt[key]}
		if !l.Known(key) {
			it.delivery = &partitions.Delivery{}
		}

		items = append(items, it)
		if due > l.Until {
			break
		}
	}

	return items
}

func (m *model) next(free, forFailing int) {
	before := map[*endpoint]int{}
	for _, e := range m.s.endpoints {
		before[e] = e.pace.inFlight
	}

	share := max(free/poolShare, 1)
	left := forFailing
	for _, it := range m.s.next(nil, places{free: free, forFailing: forFailing}, m.clock) {
		e := it.endpoint
		before[e]++

		limit := cmp.Or(e.pace.ownLimits.InFlight, m.limits.inFlight)
		isOpen := e.pace.breaker.Open
		m.must(before[e] <= min(limit, share), "%d in flight, limits %d and %d", before[e], limit, share)
		m.must(e.pace.breaker.Hold <= m.s.now, "sent while it is held")
		m.must(!isOpen || before[e] == 1, "%d probes at a time", before[e])
		m.must(it.isPing || it.delivery != nil, "sent without a payload: %q", it.key)
		m.must(e.receiver.URL != "" && (!it.isProbe || isOpen) && (!it.isPing || isOpen && e.inMemory == 0), "sent %+v", it)

		if it.isOfFailing {
			left--
		}

		m.must(it.isOfFailing == e.pace.breaker.isFailing() && left >= 0, "%d too many for receivers that fail", -left)

		for _, other := range m.flying {
			m.must(it.isPing || other.account != it.account || other.key != it.key, "in flight twice: %q", it.key)
		}

		m.must(it.isPing || !m.refused[it.key], "%q goes from a URL that was deleted to the next", it.key)

		m.mustFollowItsOrder(it)
		m.flying = append(m.flying, it)
		m.begun[it] = m.asks[it.key]
	}

	m.must(len(m.flying) <= m.free, "%d in flight of %d", len(m.flying), m.free)
}

// mustFollowItsOrder demands that every earlier version of the event's order has been tried. One that is refused, because
// there was no URL for a while, is never sent, so later ones need not wait until that is recorded.
func (m *model) mustFollowItsOrder(it *event) {
	isFirstAttempt := it.attempts == 0 && it.replayedAt == 0 && !m.tried[it.key]
	_, hasOrder := it.order()
	if m.unordered || it.isPing || !hasOrder || !isFirstAttempt {
		return
	}

	order, sequence := it.key[:len(it.key)-1], int(it.key[len(it.key)-1])
	for earlier := 2; earlier < sequence; earlier++ {
		key := order + string(rune(earlier))
		known := it.endpoint.events[key]
		isRefused := known != nil && known.state == refused
		m.must(!m.given[key] || m.tried[key] || isRefused, "%q goes before %q", it.key, key)
	}
}

func (m *model) must(ok bool, format string, values ...any) {
	m.Helper()
	if !ok {
		m.Fatalf(format, values...)
	}
}

// Moods of a receiver.
const (
	accepting = iota
	refusing
	sparing
	fickle
	moods
)

func (m *model) finish() {
	for n := m.pick("results", 6); n > 0 && len(m.flying) > 0; n-- {
		i := m.pick("which", len(m.flying))
		it := m.flying[i]
		m.flying = slices.Delete(m.flying, i, i+1)
		if m.pick("not begun", 10) == 0 {
			m.s.putBack(it, m.clock)
			continue
		}
		m.done(it, m.result(it, m.accounts[it.account[15]-1].mood))
	}
}

func (m *model) result(it *event, mood int) result {
	if mood == fickle {
		mood = m.pick("mood", fickle)
	}

	r := result{ending: retry, at: m.clock + rapid.SampledFrom([]int64{1000, 10_000, 2_400_000, 8 * 3_600_000}).Draw(m.T, "gap")}
	special := m.pick("special", 20)
	switch {
	case special == 0 && !it.isPing:
		return result{ending: expired}
	case special == 1 && !it.isPing:
		return result{ending: deferred, at: m.clock + 7000}
	case mood == accepting:
		return result{ending: delivered, proven: it.isPing}
	case special == 2 && !it.isPing && !it.isProbe:
		r.ending = undelivered
	case special == 3:
		r.isGone = true
	}

	if mood == sparing {
		r.pause = rapid.SampledFrom([]int64{1, 60_000, 5 * 3_600_000}).Draw(m.T, "pause")
	}

	return r
}

func (m *model) done(it *event, r result) {
	isMissed := it.isProbe && r.ending == retry
	if !it.isPing && !isMissed {
		m.tried[it.key] = true
		if r.ending == delivered || r.ending == undelivered || r.ending == expired {
			key, asks := it.key, m.begun[it]
			m.results = append(m.results, func() { m.satisfied[key] = asks })
		}
	}

	m.s.finish(it, r, m.clock)
}

// refuse takes note of what is recorded as not sent.
func (m *model) refuse(refused []*event) {
	m.must(len(refused) <= unsentPage, "%d not sent in one step", len(refused))
	for _, it := range refused {
		m.must(it.delivery != nil, "%q is recorded as not sent, and nobody knows what it was", it.key)
		m.tried[it.key] = true
		key, asks := it.key, m.asks[it.key]
		m.results = append(m.results, func() { m.satisfied[key] = asks })
	}
}

// commit applies a plan, unless it is discarded, or the owner ends before or after it.
func (m *model) commit() {
	m.refuse(m.s.begin(m.clock))
	plans := m.s.plan()
	position := m.s.tail.position
	fate := m.pick("fate", 40)
	switch fate {
	case 0:
		m.takeOver()
		return
	case 1, 2: // another one follows
		return
	}

	for i := range plans {
		m.apply(&plans[i])
	}

	for _, apply := range m.results {
		apply()
	}

	m.results = nil
	if position != "" {
		fmt.Sscan(position, &m.position)
	}

	m.latest = max(m.latest, m.s.now)
	if fate == 3 {
		m.takeOver()
		return
	}

	m.s.commit(plans)
	m.disturbed = slices.ContainsFunc(slices.Collect(maps.Values(m.s.endpoints)), func(e *endpoint) bool { return e.schedule.moveUntil > 0 })
	position = m.s.tail.position
	if position != "" {
		var n int
		fmt.Sscan(position, &n)
		m.settled(n)
	}
}

func (m *model) apply(p *endpointPlan) {
	a := m.accounts[p.endpoint.account[15]-1]
	put := func(w partitions.Scheduled) {
		a.schedule[w.Key] = w.Due
		if w.Attempts > 0 || w.ReplayedAt > 0 {
			a.counts[w.Key] = [2]int64{int64(w.Attempts), w.ReplayedAt}
			delete(a.askedAt, w.Key)
		}
	}

	for _, w := range p.added {
		if _, isThere := a.schedule[w.Key]; !isThere {
			put(w)
		}
	}

	for _, w := range p.moved {
		if _, isThere := a.schedule[w.Key]; isThere {
			a.schedule[w.Key] = w.Due
		}
	}

	for _, w := range p.rescheduled {
		put(w)
	}

	for _, event := range p.ended {
		known := [2]int64{event.ReplayedAt, event.AskedAt}
		stored := [2]int64{a.counts[event.Key][1], a.askedAt[event.Key]}
		if known == stored {
			delete(a.schedule, event.Key)
			delete(a.counts, event.Key)
			delete(a.askedAt, event.Key)
		}
	}

	if p.breaker != nil {
		a.facts.Breaker = *p.breaker
	}

	if p.tally != nil {
		a.facts.Tally = *p.tally
	}

	if p.state != "" {
		a.facts.State = p.state
	}

	if p.proven != 0 && a.facts.Version == p.proven {
		a.facts.Version++
	}
}

// settled demands that of the first n entries every event has ended, in a send that began after it was last
// asked for, or is in a schedule.
func (m *model) settled(n int) {
	for i, events := range m.stream[:n] {
		for _, event := range events {
			_, waits := m.accounts[event.account].schedule[event.key]
			asks, hasEnded := m.satisfied[event.key]
			isDone := hasEnded && asks >= m.asks[event.key]
			m.must(isDone || waits, "entry %d is behind the position, its event %q is lost", i+1, event.key)
		}
	}
}

func (m *model) check(rt *rapid.T) {
	m.T = rt
	m.settled(m.position)
	var bytes int64
	for i, a := range m.accounts {
		e := m.s.endpoints[accountOf(i)]
		if e == nil {
			continue
		}
		bytes += e.bytes
		m.checkEndpoint(e)
		m.checkSchedule(e, a)
	}

	m.must(m.memory.used.Load() == bytes, "%d bytes in use, the endpoints have %d", m.memory.used.Load(), bytes)
}

func (m *model) checkEndpoint(e *endpoint) {
	inMemory, flying, free := 0, 0, 0
	var bytes int64
	for _, it := range e.events {
		if it.state == queued || it.state == inFlight {
			inMemory++
			bytes += it.bytes
		}

		if it.state == inFlight {
			flying++
		}

		if it.inQueue.isFree {
			free++
		}
	}

	m.must(inMemory == e.inMemory && inMemory <= m.limits.memory, "%d events in memory, counted %d", inMemory, e.inMemory)
	m.must(bytes == e.bytes, "events of %d bytes, counted %d", bytes, e.bytes)
	m.must(free == e.queue.free && flying <= e.pace.inFlight, "%d free to go, counted %d", free, e.queue.free)
	m.must(len(e.queue.newest) <= e.inMemory, "%d orders of %d events", len(e.queue.newest), e.inMemory)

	isHeldBack := e.isKnown && e.receiver.URL != "" && (e.pace.breaker.Open || e.pace.breaker.Hold > m.s.now)
	m.must(!isHeldBack || inMemory-flying <= 1, "%d events wait in memory for a receiver that gets none", inMemory-flying)
}

// checkSchedule demands that the owner knows when the first event is due that it has not in memory, unless it is
// reading the schedule, or will be told of a change.
func (m *model) checkSchedule(e *endpoint, a *stored) {
	isBeingMoved := e.schedule.moveUntil > 0 || e.pace.breaker.Forward > 0
	if !e.isKnown || e.schedule.reading != nil || isBeingMoved {
		return
	}

	for key, due := range a.schedule {
		isOwn := e.events[key] != nil
		m.must(isOwn || e.schedule.nextDue <= max(due, m.s.now), "%q is due at %d, nothing is expected before %d", key, due, e.schedule.nextDue)
	}
}

func (m *model) turn() {
	for m.read < len(m.stream) {
		m.add()
	}

	m.load()
	free := m.pick("free", m.free-len(m.flying)+1)
	m.next(free, m.pick("free for those that fail", free+1))
	m.finish()
	m.commit()
}

func (m *model) wait() {
	m.clock += rapid.SampledFrom([]int64{1, 100, 1000, 5000, 31_000, 600_000, 3 * 3_600_000, 80 * 3_600_000}).Draw(m.T, "wait")
}

func (m *model) setBack() {
	m.clock -= rapid.SampledFrom([]int64{500, 5000, 3_600_000}).Draw(m.T, "back")
	m.s.wakeAt(m.clock)
	m.disturbed = m.disturbed || m.clock < m.latest
}

func (m *model) change() {
	i := m.pick("account", len(m.accounts))
	a := m.accounts[i]
	f := &a.facts

	moved := false
	switch m.pick("change", 5) {
	case 0:
		if f.URL == "" && len(a.schedule) > 0 {
			return // as the API refuses it; what is in memory the owner has to end
		}
		f.URL, moved = healthy.URL, true
	case 1:
		f.URL, moved = "", true
		f.Deleted = f.Version + 1
		m.refuseAll(i)
	case 2:
		f.Version++
	case 3:
		if f.URL != "" {
			f.ProbeRequest = 1
		}
	case 4:
		f.Limits = partitions.EndpointLimits{InFlight: m.pick("in flight", 4), PerSecond: rapid.SampledFrom([]int{0, 5, 1000}).Draw(m.T, "pace")}
	}

	if moved {
		f.Version++
		f.Moved = f.Version
	}

	m.tell(i, moved)
}

// refuseAll takes note of what memory has of an account whose URL is deleted.
func (m *model) refuseAll(i int) {
	e := m.s.endpoints[accountOf(i)]
	if e == nil || !e.isKnown || e.receiver.URL == "" {
		return
	}

	for key, ev := range e.events {
		if ev.state.isInMemory() {
			m.refused[key] = true
		}
	}
}

func (m *model) tell(i int, moved bool) {
	a := m.accounts[i]
	e := m.s.endpoints[accountOf(i)]
	if e != nil && e.isKnown && a.facts.Version <= e.receiver.Version {
		a.facts.Version = e.receiver.Version + 1 // it was proven, which is not written yet
		if moved {
			a.facts.Moved = a.facts.Version
			if a.facts.URL == "" {
				a.facts.Deleted = a.facts.Version
			}
		}
	}

	m.learn(i)
}

// drain demands that everything ends once the receivers accept it, with no more than what Wake
// tells of the time.
func (m *model) drain() {
	for i, a := range m.accounts {
		a.mood = accepting
		a.facts.Limits.PerSecond, a.facts.ProbeRequest = 0, 1
		m.tell(i, false)
	}

	idle := 0
	for range 5000 {
		for m.read < len(m.stream) {
			m.add()
		}

		m.learnUnknown()
		reads := m.s.reads(m.clock)
		for _, r := range reads {
			found := m.find(r)
			for _, it := range found {
				m.given[it.key] = true
			}
			m.s.loaded(r.Account, found, m.clock)
		}

		m.next(m.free-len(m.flying), m.free)
		sent := len(m.flying)
		for _, it := range m.flying {
			m.done(it, result{ending: delivered})
		}

		m.flying = nil
		m.refuse(m.s.begin(m.clock))
		plans := m.s.plan()
		for i := range plans {
			m.apply(&plans[i])
		}

		for _, apply := range m.results {
			apply()
		}

		m.results = nil
		m.s.commit(plans)

		idle++
		if len(plans)+len(reads)+sent > 0 {
			idle = 0
		}

		if idle > 3 && m.wakeAt() <= m.s.now {
			m.Fatalf("woken again and again")
		}
		if m.over() {
			return
		}

		if at := m.wakeAt(); at < never {
			m.clock = max(m.clock, at)
		} else {
			break
		}
	}

	m.Fatalf("not everything ended: %s", m)
}

func (m *model) wakeAt() int64 {
	if m.s.wantsRead(m.clock) {
		return m.clock
	}
	return m.s.wakeAt(m.clock)
}

func (m *model) over() bool {
	for _, a := range m.accounts {
		if len(a.schedule) > 0 {
			return false
		}
	}
	return m.s.tail.position == fmt.Sprint(len(m.stream)) || len(m.stream) == m.position
}

func (m *model) String() string {
	text := fmt.Sprintf("clock %d, position %s of %d", m.clock, m.s.tail.position, len(m.stream))
	for _, e := range m.s.endpoints {
		text += fmt.Sprintf("\n%+v", *e)
	}

	for _, a := range m.accounts {
		text += fmt.Sprintf("\nschedule %v", a.schedule)
	}
	return text
}

func TestScheduler_LosesNothingAndKeepsTheRules(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)

		actions := map[string]func(*rapid.T){
			"":     m.check,
			"turn": func(rt *rapid.T) { m.T = rt; m.turn() },
			"turns": func(rt *rapid.T) {
				m.T = rt
				m.turn()
				m.clock += 20
				m.turn()
				m.clock += 1100
				m.turn()
			},
			"publish":    func(rt *rapid.T) { m.T = rt; m.publish() },
			"publish 2":  func(rt *rapid.T) { m.T = rt; m.publish(); m.publish(); m.turn() },
			"finish":     func(rt *rapid.T) { m.T = rt; m.finish() },
			"wait":       func(rt *rapid.T) { m.T = rt; m.wait() },
			"set back":   func(rt *rapid.T) { m.T = rt; m.setBack() },
			"mood":       func(rt *rapid.T) { m.T = rt; m.accounts[m.pick("account", 3)].mood = m.pick("mood", moods) },
			"change":     func(rt *rapid.T) { m.T = rt; m.change() },
			"ask":        func(rt *rapid.T) { m.T = rt; m.beginRequest() },
			"takes over": func(rt *rapid.T) { m.T = rt; m.takeOver() },
		}

		rt.Repeat(actions)
		m.T = rt
		m.drain()
	})
}
