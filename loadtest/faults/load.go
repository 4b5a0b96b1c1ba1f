package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/harness"
)

// load is requests to one gateway. Unlike those of the harness it survives broken connections and refusals.
type load struct {
	addr        string // host:port
	connections int    // requests in flight at most
	// rate is arrivals a second, to a schedule that no answer delays: one that finds every connection busy is not
	// sent. 0: every connection sends again as soon as it is answered.
	rate     float64
	duration time.Duration
	most     int // requests at most; 0: as many as the duration gives
	// request appends request n to dst and says which order it is about.
	request func(dst []byte, n int) ([]byte, placed)
	// accepts reports whether an answer is as it should be, and completes the order; nil: any answer will do.
	accepts func(o *placed, a harness.Answer) bool
}

// tally is what the clients of a load have seen.
type tally struct {
	arrived int // what fell due

	mu                      sync.Mutex
	sent                    int                     // of that, what found a free connection
	accepted, limited, busy *hdrhistogram.Histogram // microseconds
	statuses                map[int]int
	orders                  []placed // accepted
	again                   []placed // answered 503 or not at all, and reads that came too soon
	unknown                 int      // those that were not answered
	wrong                   int
	sample                  string // the first wrong answer
}

// arrival is when a request falls due; zero: when a connection is free.
type arrival struct {
	n   int
	due time.Time
}

// answerTimeout bounds how long a client waits for what is in flight at the end.
const answerTimeout = 15 * time.Second

// newTally returns a tally of nothing.
func newTally() *tally {
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, time.Minute.Microseconds(), 3) }
	return &tally{accepted: histogram(), limited: histogram(), busy: histogram(), statuses: make(map[int]int)}
}

// send waits for the last answer. A connection that breaks is opened again; the request on it is lost.
func (l load) send(ctx context.Context) *tally {
	t := newTally()
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(l.duration+answerTimeout))
	defer cancel()

	arrivals := make(chan arrival)
	var connections sync.WaitGroup
	for range l.connections {
		connections.Go(func() { l.serve(ctx, arrivals, t) })
	}

	l.arrive(ctx, began, arrivals, t)
	close(arrivals)
	connections.Wait()

	return t
}

// arrive hands requests to the connections until the load is over.
func (l load) arrive(ctx context.Context, began time.Time, arrivals chan<- arrival, t *tally) {
	for ; (l.most == 0 || t.arrived < l.most) && ctx.Err() == nil; t.arrived++ {
		after := time.Since(began)
		if l.rate > 0 {
			after = time.Duration(float64(t.arrived) / l.rate * float64(time.Second))
		}

		if after >= l.duration {
			return
		}

		if l.rate == 0 {
			arrivals <- arrival{n: t.arrived} // the connections take it even when ctx has ended
			continue
		}

		due := began.Add(after)
		if wait := time.Until(due); wait > 0 {
			time.Sleep(max(wait, time.Millisecond)) // then several are due
		}

		select {
		case arrivals <- arrival{n: t.arrived, due: due}:
		default:
		}
	}
}

// serve sends what arrives over one connection.
func (l load) serve(ctx context.Context, arrivals <-chan arrival, t *tally) {
	deadline, _ := ctx.Deadline() // send has set one
	var conn *harness.Conn
	var request []byte
	for next := range arrivals {
		if next.due.IsZero() {
			next.due = time.Now()
		}

		var o placed
		request, o = l.request(request[:0], next.n)

		var a harness.Answer
		var err error
		if conn == nil {
			conn, err = harness.Dial(ctx, l.addr, deadline)
		}

		if err == nil {
			a, err = conn.Exchange(request)
		}

		t.count(&l, o, a, err, time.Since(next.due))
		if conn != nil && (err != nil || a.Close) {
			conn.Close()
			conn = nil
		}
	}

	if conn != nil {
		conn.Close()
	}
}

// count adds an answer, or the error that came in its place.
func (t *tally) count(l *load, o placed, a harness.Answer, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent++
	if err != nil {
		t.again = append(t.again, o)
		t.unknown++
		return
	}

	t.statuses[a.Status]++
	if l.accepts == nil {
		return
	}

	kind := t.sort(l, o, a)
	if kind != nil {
		_ = kind.RecordValue(took.Microseconds()) // a minute or less
		return
	}

	t.wrong++
	if t.wrong == 1 {
		t.sample = fmt.Sprintf("%d %.200s", a.Status, a.Body)
	}
}

// sort returns the histogram of the kind of an answer, and keeps its order; nil: it is wrong.
func (t *tally) sort(l *load, o placed, a harness.Answer) *hdrhistogram.Histogram {
	isRead := o.id != ""
	if l.accepts(&o, a) {
		t.orders = append(t.orders, o)
		return t.accepted
	}

	switch a.Status {
	case http.StatusTooManyRequests:
		if !hasWait(a, delivery.CodeRateLimited) {
			return nil
		}
		if isRead {
			t.again = append(t.again, o)
		}
		return t.limited
	case http.StatusServiceUnavailable:
		t.again = append(t.again, o)
		if !hasWait(a, delivery.CodeServiceUnavailable) {
			return nil
		}
		return t.busy
	}

	return nil
}

// served reports whether a share of what was sent was answered so, and nothing wrongly.
func (t *tally) served(answers *hdrhistogram.Histogram, share float64) bool {
	n := answers.TotalCount()
	return t.wrong == 0 && n > 0 && float64(n) >= share*float64(t.sent)
}

// counts returns how often there was what, in order.
func counts[K cmp.Ordered](of map[K]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%v: %d", key, of[key]))
	}
	return strings.Join(parts, ", ")
}

// problems returns what was wrong, as the end of a line; empty: nothing was.
func (t *tally) problems() (text string) {
	if t.wrong > 0 {
		text = fmt.Sprintf("; %d wrong answers such as %s", t.wrong, t.sample)
	}
	if t.unknown > 0 {
		text += fmt.Sprintf("; %d without an answer", t.unknown)
	}
	return text
}

// p99 returns within what 99 % of the times are.
func p99(h *hdrhistogram.Histogram) time.Duration {
	return time.Duration(h.ValueAtQuantile(99)) * time.Microsecond
}

// hasWait reports whether a refusal has the code and the same number of seconds to wait in header and body.
func hasWait(a harness.Answer, code delivery.Code) bool {
	var body struct {
		Data struct {
			ErrorCode         delivery.Code
			RetryAfterSeconds int
		}
	}

	err := json.Unmarshal(a.Body, &body)
	return err == nil && a.RetryAfter >= 1 && body.Data.RetryAfterSeconds == a.RetryAfter && body.Data.ErrorCode == code
}
