package dispatch

// fifo is a queue in one slice, whose elements it moves to the front when half of it is used up.
type fifo[T any] struct {
	all  []T
	head int
}

func (q *fifo[T]) len() int   { return len(q.all) - q.head }
func (q *fifo[T]) at(i int) T { return q.all[q.head+i] }

func (q *fifo[T]) clear() {
	clear(q.all)
	q.all, q.head = q.all[:0], 0
}

func (q *fifo[T]) push(v T) {
	isHalfUsed := len(q.all) == cap(q.all) && q.head > len(q.all)/2
	if isHalfUsed {
		n := copy(q.all, q.all[q.head:])
		clear(q.all[n:])
		q.all, q.head = q.all[:n], 0
	}

	q.all = append(q.all, v)
}

// pushFront makes v the next to be popped. Only what was popped a moment ago comes back so, hence there is hardly
// ever something to be moved.
func (q *fifo[T]) pushFront(v T) {
	if q.head > 0 {
		q.head--
		q.all[q.head] = v
		return
	}

	var none T
	q.all = append(q.all, none)
	copy(q.all[1:], q.all)
	q.all[0] = v
}

func (q *fifo[T]) pop() T {
	var none T
	v := q.all[q.head]
	q.all[q.head] = none
	q.head++
	if q.head == len(q.all) {
		q.all, q.head = q.all[:0], 0
	}
	return v
}
