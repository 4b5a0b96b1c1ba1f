package dispatch

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// queueModel plays an endpoint that sends what its queue hands out.
type queueModel struct {
	*rapid.T
	queue    queue
	versions map[int]int // of each order, the newest
	waiting  []*event
	inFlight []*event
}

func (m *queueModel) add(ev *event) {
	ev.state = queued
	m.waiting = append(m.waiting, ev)
	m.queue.add(ev)
}

// addVersion queues the next version of an order.
func (m *queueModel) addVersion(t *rapid.T) {
	order := rapid.IntRange(0, 2).Draw(t, "order")
	m.versions[order]++
	m.add(&event{key: versionKey(order, m.versions[order])})
}

func (m *queueModel) addNotice(t *rapid.T) {
	m.add(&event{key: fmt.Sprintf("\x02%d", len(m.waiting)+len(m.inFlight))})
}

func (m *queueModel) addRetry(t *rapid.T) {
	m.add(&event{key: versionKey(rapid.IntRange(0, 2).Draw(t, "order"), 0), attempts: 1})
}

// next hands out an event, and demands that it may go.
func (m *queueModel) next(t *rapid.T) {
	ev := m.queue.next()
	if ev == nil {
		return
	}
	if !slices.Contains(m.waiting, ev) {
		t.Fatalf("%q is handed out, and does not wait", ev.key)
	}

	m.waiting = slices.DeleteFunc(m.waiting, func(other *event) bool { return other == ev })
	order, hasOrder := ev.order()
	for _, other := range append(slices.Clone(m.waiting), m.inFlight...) {
		otherOrder, _ := other.order()
		isEarlier := hasOrder && order == otherOrder && other.attempts == 0 && other.key < ev.key
		if isEarlier && ev.attempts == 0 {
			t.Fatalf("%q goes before the first attempt of %q has ended", ev.key, other.key)
		}
	}

	ev.state = inFlight
	m.inFlight = append(m.inFlight, ev)
}

// end ends an attempt, or an event that waits.
func (m *queueModel) end(t *rapid.T) {
	all := append(slices.Clone(m.waiting), m.inFlight...)
	if len(all) == 0 {
		return
	}

	ev := rapid.SampledFrom(all).Draw(t, "event")
	isEv := func(other *event) bool { return other == ev }
	m.waiting, m.inFlight = slices.DeleteFunc(m.waiting, isEv), slices.DeleteFunc(m.inFlight, isEv)
	ev.state = ended
	m.queue.remove(ev)
}

// putBack takes back an event that was not sent: nothing is handed out before it.
func (m *queueModel) putBack(t *rapid.T) {
	if len(m.inFlight) == 0 {
		return
	}

	ev := rapid.SampledFrom(m.inFlight).Draw(t, "event")
	m.inFlight = slices.DeleteFunc(m.inFlight, func(other *event) bool { return other == ev })
	m.waiting = append(m.waiting, ev)
	ev.state = queued
	m.queue.putBack(ev)
}

func TestQueue_SendsVersionsOfAnOrderOneAtATime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &queueModel{T: rt, versions: make(map[int]int)}
		rt.Repeat(map[string]func(*rapid.T){
			"add version": m.addVersion,
			"add notice":  m.addNotice,
			"add retry":   m.addRetry,
			"next":        m.next,
			"end":         m.end,
			"put back":    m.putBack,
		})

		// Everything that waits goes in the end.
		for len(m.waiting)+len(m.inFlight) > 0 {
			before := len(m.waiting)
			m.next(rt)
			if len(m.waiting) == before && len(m.inFlight) == 0 {
				rt.Fatalf("%d events wait for nothing", before)
			}
			if len(m.inFlight) > 0 {
				m.end(rt)
			}
		}

		if m.queue.free != 0 || len(m.queue.newest) != 0 {
			rt.Fatalf("an empty queue has %d events and %d orders", m.queue.free, len(m.queue.newest))
		}
	})
}

func TestQueue_NextAfterPutBackIsTheSame(t *testing.T) {
	var q queue
	for _, name := range []string{"1.2", "1.3", "2.2"} {
		q.add(&event{key: keyOf(name), state: queued})
	}

	q.add(&event{key: keyOf("3.2"), attempts: 1, state: queued})
	q.next() // the retry

	first := q.next()
	q.putBack(first)

	if again := q.next(); again != first {
		t.Errorf("%q goes before %q", again.key, first.key)
	}
	if other := q.next(); other.key != keyOf("2.2") {
		t.Errorf("%q is next, want the other order's", other.key)
	}
}
