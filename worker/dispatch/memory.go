package dispatch

import "sync/atomic"

// memory is a process's budget for the events that wait for receivers, shared by all of its partitions.
//
// An endpoint may take what is free divided by memoryShare, and always one event. So the first that falls behind get
// much, and none is left out when hundreds do (dynamic thresholds, as for places: scheduler.next). What has no room
// waits in the schedule, where its endpoint's other events are.
type memory struct {
	budget int64
	used   atomic.Int64
}

// fits reports whether an event of so many bytes may join what an endpoint has already.
func (m *memory) fits(bytes, ofEndpoint int64) bool {
	if ofEndpoint == 0 {
		return true
	}
	free := m.budget - m.used.Load()
	return ofEndpoint+bytes <= free/memoryShare
}

// usualEvent is about how many bytes an event takes of which nothing is known yet.
const usualEvent = 3000

// eventsFor returns about how many more events of an endpoint the budget allows, by the size of those that it has.
func (m *memory) eventsFor(e *endpoint) int {
	size := int64(usualEvent)
	if e.inMemory > 0 {
		size = max(e.bytes/int64(e.inMemory), 1)
	}
	free := m.budget - m.used.Load()
	return int((free/memoryShare - e.bytes) / size)
}

func (m *memory) take(bytes int64) { m.used.Add(bytes) }

func (m *memory) give(bytes int64) { m.used.Add(-bytes) }
