package dispatch

// A queue has the events of one endpoint that wait in memory for a place.
//
// Versions of one order that were never attempted go one at a time, in the order of their versions: the next one
// may go when the first attempt of the one before has ended, in whichever way. Retries and replays do not wait.
//
//	add ──> behind an earlier version ──> free to go ──> next (in flight) ──> remove
//
// The zero value is empty.
type queue struct {
	fresh fifo[*event] // free to go, never attempted
	due   fifo[*event] // free to go, to be attempted again or replayed

	// free counts the events of both lists that are still queued: an event that ends while it waits stays in its
	// list until its turn comes.
	free int
	// isFreshNext: fresh and due take turns, so that neither a long replay nor new events hold up the others.
	isFreshNext bool
	// newest is, by order, the newest version that has not had its first attempt.
	newest map[string]*event
}

// inQueue is where an event stands in its queue.
type inQueue struct {
	isFree    bool // in one of the lists
	isOrdered bool // among the versions of its order
	earlier   *event
	later     *event
}

// add queues an event.
func (q *queue) add(ev *event) {
	if ev.attempts > 0 || ev.replayedAt > 0 {
		q.release(&q.due, ev)
		return
	}

	order, hasOrder := ev.order()
	if !hasOrder {
		q.release(&q.fresh, ev)
		return
	}

	q.line(order, ev)
	if ev.inQueue.earlier == nil {
		q.release(&q.fresh, ev)
	}
}

// line puts an event among the versions of its order. Those after it are there already only if a replay has asked
// for a later version, which brought it forward.
func (q *queue) line(order string, ev *event) {
	earlier, later := q.newest[order], (*event)(nil)
	for earlier != nil && earlier.key > ev.key {
		earlier, later = earlier.inQueue.earlier, earlier
	}

	ev.inQueue = inQueue{isOrdered: true, earlier: earlier, later: later}
	if earlier != nil {
		earlier.inQueue.later = ev
	}

	if later != nil {
		later.inQueue.earlier = ev
		return
	}

	if q.newest == nil {
		q.newest = make(map[string]*event)
	}

	q.newest[order] = ev
}

func (q *queue) release(list *fifo[*event], ev *event) {
	list.push(ev)
	ev.inQueue.isFree = true
	q.free++
}

// next takes the next event out, to be sent; nil if none may go. Its later versions wait until remove.
func (q *queue) next() *event {
	first, second := &q.due, &q.fresh
	if q.isFreshNext {
		first, second = second, first
	}

	q.isFreshNext = !q.isFreshNext

	ev := q.pop(first)
	if ev == nil {
		ev = q.pop(second)
	}

	return ev
}

func (q *queue) pop(list *fifo[*event]) *event {
	for list.len() > 0 {
		ev := list.pop()
		if ev.inQueue.isFree {
			ev.inQueue.isFree = false
			q.free--
			return ev
		}
	}
	return nil
}

// putBack makes an event that next took out the first to go.
func (q *queue) putBack(ev *event) {
	list := &q.fresh
	if ev.attempts > 0 || ev.replayedAt > 0 {
		list = &q.due
	}

	list.pushFront(ev)
	q.isFreshNext = list == &q.fresh
	ev.inQueue.isFree = true
	q.free++
}

// remove takes out an event that waits, or whose attempt has ended, and lets the next version of its order go.
func (q *queue) remove(ev *event) {
	if ev.inQueue.isFree {
		ev.inQueue.isFree = false
		q.free--
	}

	if q.free == 0 {
		q.fresh.clear()
		q.due.clear()
	}

	if ev.inQueue.isOrdered {
		q.unline(ev)
	}
}

func (q *queue) unline(ev *event) {
	earlier, later := ev.inQueue.earlier, ev.inQueue.later
	ev.inQueue = inQueue{}
	if earlier != nil {
		earlier.inQueue.later = later
	}

	order, _ := ev.order()
	switch {
	case later != nil:
		later.inQueue.earlier = earlier
		isNext := earlier == nil && later.state == queued && !later.inQueue.isFree
		if isNext {
			q.release(&q.fresh, later)
		}
	case earlier != nil:
		q.newest[order] = earlier
	default:
		delete(q.newest, order)
	}
}
