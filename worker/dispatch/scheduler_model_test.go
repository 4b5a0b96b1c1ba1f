package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// stored is what Redis keeps of an endpoint.
type stored struct {
	facts    ledger.Facts
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

	// of the owner
	s       *Scheduler
	read    int // entries
	taken   int // entries of the stream when it took over
	given   map[string]bool
	flying  []*Item
	begun   map[*Item]int // of what is in flight: how often it had been asked for when that began
	results []func()      // of the next batch
	limits  Limits
	free    int
}

func accountOf(i int) delivery.AccountID { return delivery.AccountID{15: byte(i + 1)} }

func versionKey(order, sequence int) string {
	return fmt.Sprintf("\x01%014d\x00\x00\x00%c", order, rune(sequence))
}

func newModel(rt *rapid.T) *model {
	m := &model{T: rt, clock: 1_800_000_000_000, orders: map[string]int{}, asks: map[string]int{}, satisfied: map[string]int{}, tried: map[string]bool{},
		limits: Limits{InFlight: 4, Failures: 3, Memory: 8}, free: 64}
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
	m.s = NewScheduler(m.limits)
	m.read, m.taken = m.position, len(m.stream)
	m.given, m.flying, m.begun, m.results = map[string]bool{}, nil, map[*Item]int{}, nil
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
	m.s.Learn(accountOf(i), &facts, m.clock)
	m.accounts[i].facts.ProbeRequest = 0
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
	entry := &Entry{ID: fmt.Sprint(m.read + 1), Again: m.read < m.taken}
	for _, event := range m.stream[m.read] {
		entry.Items = append(entry.Items, &Item{Account: accountOf(event.account), Key: event.key, Delivery: &ledger.Delivery{}})
		m.given[event.key] = true
	}
	m.read++
	m.s.Add(entry, m.clock)
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
	if due, there := a.schedule[event.key]; there {
		a.schedule[event.key] = min(due, m.clock)
		a.askedAt[event.key] = m.clock
	} else {
		a.schedule[event.key], a.counts[event.key] = m.clock, [2]int64{0, m.clock}
	}
	m.asks[event.key]++
	m.tried[event.key] = true // who asks does without the order
	m.learn(event.account)
}

// load reads schedules.
func (m *model) load() {
	for _, account := range m.s.Need() {
		m.learn(int(account[15]) - 1)
	}
	owner := m.s
	loads := owner.Loads(m.clock)
	var found [][]*Item
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
			m.s.NotLoaded(l.Account, m.clock)
			continue
		}
		for _, it := range found[i] {
			m.given[it.Key] = true
		}
		m.s.Loaded(l.Account, found[i], m.clock)
	}
}

func (m *model) find(l ledger.ScheduleQuery) (items []*Item) {
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
		it := &Item{Account: l.Account, Key: key, Due: due, Attempts: int(a.counts[key][0]), ReplayedAt: a.counts[key][1], AskedAt: a.askedAt[key]}
		if !l.Known(key) {
			it.Delivery = &ledger.Delivery{}
		}
		items = append(items, it)
		if due > l.Until {
			break
		}
	}
	return items
}

func (m *model) next(free int) {
	before := map[*endpoint]int{}
	for _, e := range m.s.endpoints {
		before[e] = e.flying
	}
	share := max(free/poolShare, 1)
	for _, it := range m.s.Next(nil, free, m.clock) {
		e := it.endpoint
		before[e]++
		limit := cmp.Or(e.Limits.InFlight, m.limits.InFlight)
		m.must(before[e] <= min(limit, share), "%d in flight, limits %d and %d", before[e], limit, share)
		m.must(e.Breaker.Hold <= m.s.seen, "sent while it is held")
		m.must(!e.Breaker.Open || before[e] == 1, "%d probes at a time", before[e])
		m.must(it.Ping || it.Delivery != nil, "sent without a payload: %q", it.Key)
		m.must(e.URL != "" && (!it.Probe || e.Breaker.Open) && (!it.Ping || e.Breaker.Open && e.held == 0), "sent %+v", it)
		for _, other := range m.flying {
			m.must(it.Ping || other.Account != it.Account || other.Key != it.Key, "in flight twice: %q", it.Key)
		}
		if !m.unordered && !it.Ping && it.Attempts == 0 && it.ReplayedAt == 0 && it.Key[0] == itemOrder && !m.tried[it.Key] {
			order, sequence := it.Key[:len(it.Key)-1], int(it.Key[len(it.Key)-1])
			for earlier := 2; earlier < sequence; earlier++ {
				key := order + string(rune(earlier))
				m.must(!m.given[key] || m.tried[key], "%q goes before %q", it.Key, key)
			}
		}
		m.flying = append(m.flying, it)
		m.begun[it] = m.asks[it.Key]
	}
	m.must(len(m.flying) <= m.free, "%d in flight of %d", len(m.flying), m.free)
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
		m.done(it, m.result(it, m.accounts[it.Account[15]-1].mood))
	}
}

func (m *model) result(it *Item, mood int) Result {
	if mood == fickle {
		mood = m.pick("mood", fickle)
	}
	r := Result{Ending: Retry, At: m.clock + rapid.SampledFrom([]int64{1000, 10_000, 2_400_000, 8 * 3_600_000}).Draw(m.T, "gap")}
	switch special := m.pick("special", 20); {
	case special == 0 && !it.Ping:
		return Result{Ending: Expired}
	case special == 1 && !it.Ping:
		return Result{Ending: Deferred, At: m.clock + 7000}
	case mood == accepting:
		return Result{Ending: Delivered, Proven: it.Ping}
	case special == 2:
		r.Ending = Undelivered
	case special == 3:
		r.Gone = true
	}
	if mood == sparing {
		r.Pause = rapid.SampledFrom([]int64{1, 60_000, 5 * 3_600_000}).Draw(m.T, "pause")
	}
	return r
}

func (m *model) done(it *Item, r Result) {
	if missed := it.Probe && (r.Ending == Retry || r.Ending == Undelivered); !it.Ping && !missed {
		m.tried[it.Key] = true
		if r.Ending == Delivered || r.Ending == Undelivered || r.Ending == Expired {
			key, asks := it.Key, m.begun[it]
			m.results = append(m.results, func() { m.satisfied[key] = asks })
		}
	}
	m.s.Done(it, r, m.clock)
}

// commit applies a batch, unless the owner ends before or after it.
func (m *model) commit() {
	effects := m.s.Effects(m.clock)
	results := m.results
	m.results = nil
	position := m.s.position
	for _, x := range effects {
		m.must(len(x.NotSent) <= unsentPage, "%d not sent in one batch", len(x.NotSent))
		for _, it := range x.NotSent {
			m.tried[it.Key] = true
			key, asks := it.Key, m.asks[it.Key]
			results = append(results, func() { m.satisfied[key] = asks })
		}
	}
	fate := m.pick("fate", 40)
	if fate == 0 {
		m.takeOver()
		return
	}
	for _, x := range effects {
		m.apply(x)
	}
	for _, apply := range results {
		apply()
	}
	if position != "" {
		fmt.Sscan(position, &m.position)
	}
	m.latest = max(m.latest, m.s.seen)
	if fate == 1 {
		m.takeOver()
		return
	}
	m.s.Committed()
	m.disturbed = slices.ContainsFunc(slices.Collect(maps.Values(m.s.endpoints)), func(e *endpoint) bool { return e.ahead > 0 })
	if position = m.s.position; position != "" {
		var n int
		fmt.Sscan(position, &n)
		m.settled(n)
	}
}

func (m *model) apply(x Effect) {
	a := m.accounts[x.Account[15]-1]
	put := func(w ledger.Scheduled) {
		a.schedule[w.Key] = w.Due
		if w.Attempts > 0 || w.ReplayedAt > 0 {
			a.counts[w.Key] = [2]int64{int64(w.Attempts), w.ReplayedAt}
			delete(a.askedAt, w.Key)
		}
	}
	for _, w := range x.Spill {
		if _, there := a.schedule[w.Key]; !there {
			put(w)
		}
	}
	for _, w := range x.Put {
		put(w)
	}
	for _, event := range x.Remove {
		known := [2]int64{event.ReplayedAt, event.AskedAt}
		stored := [2]int64{a.counts[event.Key][1], a.askedAt[event.Key]}
		if known == stored {
			delete(a.schedule, event.Key)
			delete(a.counts, event.Key)
			delete(a.askedAt, event.Key)
		}
	}
	if x.Breaker != nil {
		a.facts.Breaker = *x.Breaker
	}
	if x.Tally != nil {
		a.facts.Tally = *x.Tally
	}
	if x.State != "" {
		a.facts.State = x.State
	}
	if x.Proven != 0 {
		a.facts.Version = x.Version
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
	for _, e := range m.s.endpoints {
		n, out, queued := 0, 0, 0
		for _, it := range e.items {
			if it.state == waiting || it.state == flying {
				n++
			}
			if it.state == flying {
				out++
			}
			if it.queued {
				queued++
			}
		}
		m.must(n == e.held && e.held <= m.limits.Memory && queued == e.queued && out <= e.flying,
			"%d events in memory, counted %d; queued %d, counted %d", n, e.held, queued, e.queued)
		m.must(len(e.tails) <= e.held, "%d orders of %d events", len(e.tails), e.held)
	}
}

func (m *model) turn() {
	for m.read < len(m.stream) {
		m.add()
	}
	m.load()
	m.next(m.pick("free", m.free-len(m.flying)+1))
	m.finish()
	m.commit()
}

func (m *model) wait() {
	m.clock += rapid.SampledFrom([]int64{1, 100, 1000, 5000, 31_000, 600_000, 3 * 3_600_000, 80 * 3_600_000}).Draw(m.T, "wait")
}

func (m *model) setBack() {
	m.clock -= rapid.SampledFrom([]int64{500, 5000, 3_600_000}).Draw(m.T, "back")
	m.s.Wake(m.clock)
	m.disturbed = m.disturbed || m.clock < m.latest
}

func (m *model) change() {
	i := m.pick("account", len(m.accounts))
	a := m.accounts[i]
	f := &a.facts
	moved := false
	switch m.pick("change", 5) {
	case 0:
		if e := m.s.endpoints[accountOf(i)]; f.URL == "" && (e != nil && e.waits() || len(a.schedule) > 0) {
			return
		}
		f.URL, moved = healthy.URL, true
	case 1:
		f.URL, moved = "", true
	case 2:
		f.Version++
	case 3:
		if f.URL != "" {
			f.ProbeRequest = 1
		}
	case 4:
		f.Limits = ledger.EndpointLimits{InFlight: m.pick("in flight", 4), PerSecond: rapid.SampledFrom([]int{0, 5, 1000}).Draw(m.T, "pace")}
	}
	if moved {
		f.Version++
		f.Moved = f.Version
	}
	m.tell(i, moved)
}

func (m *model) tell(i int, moved bool) {
	a := m.accounts[i]
	e := m.s.endpoints[accountOf(i)]
	if e != nil && e.known && a.facts.Version <= e.Version {
		a.facts.Version = e.Version + 1 // it was proven, which is not written yet
		if moved {
			a.facts.Moved = a.facts.Version
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
		for _, account := range m.s.Need() {
			m.learn(int(account[15]) - 1)
		}

		loads := m.s.Loads(m.clock)
		for _, l := range loads {
			found := m.find(l)
			for _, it := range found {
				m.given[it.Key] = true
			}
			m.s.Loaded(l.Account, found, m.clock)
		}

		m.next(m.free - len(m.flying))
		sent := len(m.flying)
		for _, it := range m.flying {
			m.done(it, Result{Ending: Delivered})
		}
		m.flying = nil
		effects := m.s.Effects(m.clock)
		for _, x := range effects {
			m.apply(x)
			for _, it := range x.NotSent {
				m.satisfied[it.Key] = m.asks[it.Key]
			}
		}
		for _, apply := range m.results {
			apply()
		}
		m.results = nil
		m.s.Committed()

		if len(effects)+len(loads)+sent > 0 {
			idle = 0
		} else if idle++; idle > 3 && m.s.Wake(m.clock) <= m.s.seen {
			m.Fatalf("woken again and again")
		}
		if m.over() {
			return
		}
		if at := m.s.Wake(m.clock); at < never {
			m.clock = max(m.clock, at)
		} else {
			break
		}
	}
	m.Fatalf("not everything ended: %s", m)
}

func (m *model) over() bool {
	for _, a := range m.accounts {
		if len(a.schedule) > 0 {
			return false
		}
	}
	return m.s.position == fmt.Sprint(len(m.stream)) || len(m.stream) == m.position
}

func (m *model) String() string {
	text := fmt.Sprintf("clock %d, position %s of %d", m.clock, m.s.position, len(m.stream))
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
