package auth

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// mostWaiting bounds how many sign-ins wait for their turn; each holds a
// connection.
const mostWaiting = 256

// attempt is a sign-in that waits for its password to be checked.
type attempt struct {
	user, address string
	known         bool
	many          error // RATE_LIMITED: more were tried than the limits say; nil: not
	turn          chan bool
}

// turns hands out the right to check a password. Who is next is said by order.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*attempt // in the order in which they came
}

// take waits for a's turn, which give ends; false when ctx ends first or others
// have taken all places to wait in.
func (t *turns) take(ctx context.Context, a *attempt) bool {
	a.turn = make(chan bool, 1)
	t.mu.Lock()
	t.waiting = append(t.waiting, a)
	t.next()
	if len(t.waiting) > mostWaiting {
		t.answer(slices.MaxFunc(t.waiting, t.order()), false)
	}
	t.mu.Unlock()
	select {
	case mine := <-a.turn:
		return mine
	case <-ctx.Done():
	}
	t.mu.Lock()
	if slices.Contains(t.waiting, a) {
		t.answer(a, false)
	}
	t.mu.Unlock()
	return <-a.turn // it may have come in between
}

// give makes room for the next.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.next()
}

func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		t.free--
		t.answer(slices.MinFunc(t.waiting, t.order()), true)
	}
}

func (t *turns) answer(a *attempt, turn bool) {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *attempt) bool { return w == a })
	a.turn <- turn
}

// order puts those within the limits first, then those of whose address the fewest
// wait, and of these the oldest: nobody waits for a queue that another address
// fills, and who fills it is the first to be sent away. Users make no difference:
// a flood that tries ever other names would pass by whoever has one.
func (t *turns) order() func(a, b *attempt) int {
	addresses, came := map[string]int{}, make(map[*attempt]int, len(t.waiting))
	for i, a := range t.waiting {
		addresses[a.address]++
		came[a] = i
	}
	late := func(a *attempt) int {
		if a.many != nil {
			return 1
		}
		return 0
	}
	return func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(late(a), late(b)), cmp.Compare(addresses[a.address], addresses[b.address]), cmp.Compare(came[a], came[b]))
	}
}
