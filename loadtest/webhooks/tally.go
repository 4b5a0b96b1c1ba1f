package main

import (
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
)

// deliveryWindow is how long an event may be sent, from when it happened (spec,
// "Delivery rules" 2).
const deliveryWindow = 24 * time.Hour

// eventKey is an event's id before it is written as text.
type eventKey struct {
	order   delivery.OrderID
	version uint64
}

// moment is a time as the tallies keep it: since the bench began, by the
// monotonic clock. A hundred thousand events without a pointer among them cost
// the garbage collector nothing.
type moment = time.Duration

var epoch = time.Now()

func momentOf(t time.Time) moment { return t.Sub(epoch) }

// event is one change of an order that its vendor must be told of.
type event struct {
	deadline moment // not to be sent after this
	issued   moment // when its commit was handed to the ledger
	received moment // first receipt
	receipts int
}

// tally is one vendor's account of what was to come and what came. It knows
// every event before it can arrive, because an order's versions can be told
// before they are stored.
type tally struct {
	mu     sync.Mutex
	events map[eventKey]event
	counts counts
}

// counts are what a tally comes to.
type counts struct {
	Expected   int // events that were committed
	Received   int // of these, received at least once
	Expired    int // of these, not received, and past their deadline
	Duplicates int // further receipts of an event
	Late       int // receipts after the event's deadline
	Pings      int // probes that tell of no event
	Invalid    int // receipts that could not be verified, or of an event that never was
}

func (c *counts) add(o counts) {
	c.Expected += o.Expected
	c.Received += o.Received
	c.Expired += o.Expired
	c.Duplicates += o.Duplicates
	c.Late += o.Late
	c.Pings += o.Pings
	c.Invalid += o.Invalid
}

// expect notes an event at the moment in which its commit is issued.
func (t *tally) expect(key eventKey, occurred, issued time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events == nil {
		t.events = make(map[eventKey]event)
	}
	t.events[key] = event{deadline: momentOf(occurred.Add(deliveryWindow)), issued: momentOf(issued)}
	t.counts.Expected++
}

// receive notes a verified receipt; first tells that the event is new.
func (t *tally) receive(eventID string, at time.Time) (first bool) {
	order, version, err := delivery.ParseEventID(eventID)
	t.mu.Lock()
	defer t.mu.Unlock()
	key := eventKey{order, version}
	e, known := t.events[key]
	if err != nil || !known {
		t.counts.Invalid++
		return false
	}
	now := momentOf(at)
	if now > e.deadline {
		t.counts.Late++
	}
	if e.receipts++; e.receipts == 1 {
		e.received = now
		t.counts.Received++
	} else {
		t.counts.Duplicates++
	}
	t.events[key] = e
	return e.receipts == 1
}

// refuse notes a request that was not a webhook of the service's.
func (t *tally) refuse() {
	t.mu.Lock()
	t.counts.Invalid++
	t.mu.Unlock()
}

// pinged notes a verified webhook.test.
func (t *tally) pinged() {
	t.mu.Lock()
	t.counts.Pings++
	t.mu.Unlock()
}

// sum is what the tally comes to by now.
func (t *tally) sum() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// wait is the time from an event's commit to its receipt.
type wait struct {
	issued moment
	took   time.Duration
}

// waits are those of the events that were issued between two moments and have
// been received.
func (t *tally) waits(from, to time.Time) (waits []wait) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.events {
		if e.receipts > 0 && e.issued >= momentOf(from) && e.issued < momentOf(to) {
			waits = append(waits, wait{e.issued, e.received - e.issued})
		}
	}
	return waits
}

// expire counts what can no longer come; once, when the deadlines that matter
// have passed.
func (t *tally) expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Expired = 0
	for _, e := range t.events {
		if e.receipts == 0 && momentOf(now) > e.deadline {
			t.counts.Expired++
		}
	}
}

// twin is a tally that expects the same events and has received nothing.
func (t *tally) twin() *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := &tally{events: make(map[eventKey]event, len(t.events)), counts: counts{Expected: len(t.events)}}
	for key, e := range t.events {
		other.events[key] = event{deadline: e.deadline, issued: e.issued}
	}
	return other
}

// counter counts distinct receipts over all endpoints and tells when a number
// is reached.
type counter struct {
	received atomic.Int64
	goal     atomic.Int64 // 0: none
	reached  chan struct{}
}

func newCounter() *counter { return &counter{reached: make(chan struct{}, 1)} }

func (c *counter) add() {
	if c.received.Add(1) == c.goal.Load() {
		c.signal()
	}
}

func (c *counter) signal() {
	select {
	case c.reached <- struct{}{}:
	default:
	}
}

// await returns a channel that holds a token once n events have been received.
// One number is awaited at a time.
func (c *counter) await(n int64) <-chan struct{} {
	select {
	case <-c.reached: // of an earlier goal
	default:
	}
	c.goal.Store(n)
	if c.received.Load() >= n {
		c.signal()
	}
	return c.reached
}
