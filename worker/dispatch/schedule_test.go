package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vendorapi/internal/ledger/partitions"
)

// scheduleModel is an endpoint's schedule in Redis, and what memory has of its events.
type scheduleModel struct {
	*rapid.T
	schedule schedule
	now      int64

	redis    map[int]int64 // events, by when they are due
	memory   map[int]bool  // those of them that memory has
	arriving map[int]*event
	names    int

	// Of the read in progress.
	found []int
}

// leave lets a new event go from memory to the schedule.
func (m *scheduleModel) leave(t *rapid.T) {
	m.names++
	ev := &event{dueAt: m.now + rapid.Int64Range(0, 50).Draw(t, "due in"), isUnattempted: rapid.Bool().Draw(t, "unattempted")}
	m.arriving[m.names] = ev
	if ev.isUnattempted {
		m.schedule.holdsEarlier = true
	}
	m.schedule.arrive(ev)
}

// confirm lets all that is on its way arrive.
func (m *scheduleModel) confirm(*rapid.T) {
	for name, ev := range m.arriving {
		m.redis[name] = ev.dueAt
		if m.schedule.reading != nil {
			m.schedule.confirmed = append(m.schedule.confirmed, ev)
		} else {
			m.schedule.arrived(ev)
		}
	}

	clear(m.arriving)
}

// ask puts an event there, as a replay does.
func (m *scheduleModel) ask(*rapid.T) {
	m.names++
	m.redis[m.names] = m.now
	m.schedule.changedByOthers()
}

func (m *scheduleModel) byDue() []int {
	return slices.SortedFunc(maps.Keys(m.redis), func(a, b int) int { return cmp.Compare(m.redis[a], m.redis[b]) })
}

func (m *scheduleModel) begin(*rapid.T) {
	isWanted := m.schedule.reading == nil && m.now >= max(m.schedule.nextDue, m.schedule.notBefore)
	if isWanted {
		m.schedule.readBegins(&scheduleRead{ScheduleQuery: partitions.ScheduleQuery{Until: m.now}})
		m.found = m.byDue()
	}
}

// finish takes the events that were found, up to a number.
func (m *scheduleModel) finish(t *rapid.T) {
	if m.schedule.reading == nil {
		return
	}

	if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
		m.schedule.readFails(m.now + reloadWait)
		m.forgetConfirmed()
		return
	}

	room := rapid.IntRange(1, 5).Draw(t, "room")
	result := loadResult{isComplete: true, next: never}
	for _, name := range m.found {
		due, isThere := m.redis[name]
		if !isThere || m.memory[name] {
			continue
		}

		if due > m.schedule.reading.Until {
			result.next = due
			break
		}

		if room == 0 {
			result.isComplete = false
			break
		}

		room--
		m.memory[name] = true
	}

	m.schedule.finishLoad(result, m.now)
	m.forgetConfirmed()
}

func (m *scheduleModel) forgetConfirmed() {
	for _, ev := range m.schedule.confirmed {
		m.schedule.arrived(ev)
	}
	m.schedule.confirmed = nil
}

// end ends an event that memory has.
func (m *scheduleModel) end(t *rapid.T) {
	if len(m.memory) == 0 {
		return
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(m.memory))).Draw(t, "event")
	delete(m.memory, name)
	delete(m.redis, name)
}

// check demands that no event of the schedule is forgotten.
func (m *scheduleModel) check(t *rapid.T) {
	if m.schedule.reading != nil {
		return
	}

	for name, due := range m.redis {
		if !m.memory[name] && m.schedule.nextDue > due {
			t.Fatalf("an event is due at %d, nothing is expected before %d", due, m.schedule.nextDue)
		}
	}
}

// Whatever is put into the schedule, and whenever it is read, the owner never expects its first event too late.
func TestSchedule_ForgetsNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &scheduleModel{
			T:        rt,
			schedule: schedule{nextDue: never},
			now:      moment,
			redis:    make(map[int]int64),
			memory:   make(map[int]bool),
			arriving: make(map[int]*event),
		}

		rt.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"leave":   m.leave,
			"confirm": m.confirm,
			"ask":     m.ask,
			"begin":   m.begin,
			"finish":  m.finish,
			"end":     m.end,
			"wait":    func(rt *rapid.T) { m.now += rapid.Int64Range(1, 400).Draw(rt, "wait") },
		})
	})
}
