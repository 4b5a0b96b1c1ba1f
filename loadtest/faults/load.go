package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
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

// placed is an order of a vendor: its number, and its id once that is known.
type placed struct {
	vendor *loadVendor
	number int
	id     string
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

// send waits for the last answer. A connection that breaks is opened again; the request on it is lost.
func (l load) send(ctx context.Context) *tally {
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, time.Minute.Microseconds(), 3) }
	t := &tally{accepted: histogram(), limited: histogram(), busy: histogram(), statuses: make(map[int]int)}
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(l.duration+answerTimeout))
	defer cancel()
	arrivals := make(chan arrival)
	var connections sync.WaitGroup
	for range l.connections {
		connections.Go(func() { l.serve(ctx, arrivals, t) })
	}
	for ; (l.most == 0 || t.arrived < l.most) && ctx.Err() == nil; t.arrived++ {
		after := time.Since(began)
		if l.rate > 0 {
			after = time.Duration(float64(t.arrived) / l.rate * float64(time.Second))
		}
		if after >= l.duration {
			break
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
		case arrivals <- arrival{t.arrived, due}:
		default:
		}
	}
	close(arrivals)
	connections.Wait()
	return t
}

func (l load) serve(ctx context.Context, arrivals <-chan arrival, t *tally) {
	deadline, _ := ctx.Deadline() // send has set one
	var conn *harness.Conn
	var request []byte
	for due := range arrivals {
		if due.due.IsZero() {
			due.due = time.Now()
		}
		var o placed
		request, o = l.request(request[:0], due.n)
		var a harness.Answer
		var err error
		if conn == nil {
			conn, err = harness.Dial(ctx, l.addr, deadline)
		}
		if err == nil {
			a, err = conn.Exchange(request)
		}
		t.count(&l, o, a, err, time.Since(due.due))
		if conn != nil && (err != nil || a.Close) {
			conn.Close()
			conn = nil
		}
	}
	if conn != nil {
		conn.Close()
	}
}

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
	var kind *hdrhistogram.Histogram
	switch {
	case l.accepts == nil:
		return
	case l.accepts(&o, a):
		kind = t.accepted
		t.orders = append(t.orders, o)
	case a.Status == 429 && hasWait(a, delivery.CodeRateLimited):
		kind = t.limited
		if o.id != "" { // a read
			t.again = append(t.again, o)
		}
	case a.Status == 503:
		t.again = append(t.again, o)
		if hasWait(a, delivery.CodeServiceUnavailable) {
			kind = t.busy
		}
	}
	if kind != nil {
		_ = kind.RecordValue(took.Microseconds()) // a minute or less
		return
	}
	if t.wrong++; t.wrong == 1 {
		t.sample = fmt.Sprintf("%d %.200s", a.Status, a.Body)
	}
}

// served reports whether a share of what was sent was answered so, and nothing wrongly.
func (t *tally) served(answers *hdrhistogram.Histogram, share float64) bool {
	n := answers.TotalCount()
	return t.wrong == 0 && n > 0 && float64(n) >= share*float64(t.sent)
}

func counts[K cmp.Ordered](of map[K]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%v: %d", key, of[key]))
	}
	return strings.Join(parts, ", ")
}

func (t *tally) problems() (text string) {
	if t.wrong > 0 {
		text = fmt.Sprintf("; %d wrong answers such as %s", t.wrong, t.sample)
	}
	if t.unknown > 0 {
		text += fmt.Sprintf("; %d without an answer", t.unknown)
	}
	return text
}

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

func created(o *placed, a harness.Answer) bool {
	_, after, found := bytes.Cut(a.Body, []byte(`"orderId":"`))
	if a.Status != 201 || !found || len(after) < 36 {
		return false
	}
	o.id = string(after[:36])
	return true
}

// loadVendor is an account with its request for a new order.
type loadVendor struct {
	*stack.Vendor
	order string // format of the request, of the order's number
}

func newLoadVendor(opened *stack.Vendor) *loadVendor {
	const id = "POS-%012[1]d"
	body, err := json.Marshal(opened.Order(func(o map[string]any) { o["externalOrderId"] = id }))
	if err != nil {
		panic(err) // it holds numbers and text only
	}
	order := fmt.Sprintf("POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\n"+
		"Accept: application/json\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"X-Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		opened.Bearer, id, len(fmt.Sprintf(string(body), 0)), body)
	return &loadVendor{opened, order}
}

func (s *overloaded) post(ctx context.Context, l load, order func(n int) placed) *tally {
	l.addr, l.accepts = s.addr, created
	l.request = func(dst []byte, n int) ([]byte, placed) {
		o := order(n)
		return fmt.Appendf(dst, o.vendor.order, o.number), o
	}
	return l.send(ctx)
}

func (s *overloaded) order(ctx context.Context, vendors []*loadVendor, l load) *tally {
	const span = 100_000_000 // more than any load sends
	first := int(s.orders.Add(span)) - span
	return s.post(ctx, l, func(n int) placed { return placed{vendor: vendors[n%len(vendors)], number: first + n} })
}

const readers = 32

// resend sends orders again, up to five times what is answered 503 or not at all. It returns those that exist.
func (s *overloaded) resend(ctx context.Context, past []placed) (orders []placed, problems string) {
	for try := 0; try < 5 && len(past) > 0 && ctx.Err() == nil; try++ {
		t := s.post(ctx, load{connections: readers, duration: time.Minute, most: len(past)},
			func(n int) placed { return placed{vendor: past[n].vendor, number: past[n].number} })
		orders, past, problems = append(orders, t.orders...), t.again, problems+t.problems()
	}
	return orders, problems
}

// checkResent: what was refused or not answered must become an order when it is sent again.
func (s *overloaded) checkResent(ctx context.Context, t *tally, what string) []placed {
	orders, problems := s.resend(ctx, t.again)
	s.check(len(orders) == len(t.again), what+", sent again and accepted", "all",
		"%d of %d%s", len(orders), len(t.again), problems)
	return orders
}

func (s *overloaded) read(ctx context.Context, orders []placed, l load) *tally {
	l.addr, l.most = s.addr, len(orders)
	if len(orders) == 0 {
		l.duration = 0
	}
	l.request = func(dst []byte, n int) ([]byte, placed) {
		return fmt.Appendf(dst, "GET /api/vendor/v1/orders/%s HTTP/1.1\r\nHost: api.example.com\r\n"+
			"Authorization: Bearer %s\r\n\r\n", orders[n].id, orders[n].vendor.Bearer), orders[n]
	}
	l.accepts = func(o *placed, a harness.Answer) bool {
		return a.Status == 200 && bytes.Contains(a.Body, []byte(`"orderId":"`+o.id+`"`))
	}
	return l.send(ctx)
}

// checkKept: the service must know every accepted order by its id, and some of them by their key.
func (s *overloaded) checkKept(ctx context.Context, lists ...[]placed) {
	orders := slices.Concat(lists...)
	found, problems, left := 0, "", orders
	for try := 0; try < 3 && len(left) > 0 && ctx.Err() == nil; try++ {
		if try > 0 {
			time.Sleep(delivery.PollInterval) // some may have been read a moment ago
		}
		t := s.read(ctx, left, load{connections: readers, duration: 5 * time.Minute})
		found, problems, left = found+len(t.orders), problems+t.problems(), t.again
	}
	s.check(found == len(orders), "accepted orders read back", "all", "%d of %d%s", found, len(orders), problems)

	const most = 500
	var sample []placed
	for i := 0; i < len(orders); i += 1 + len(orders)/most {
		if !slices.Contains(s.ordinary, orders[i].vendor) {
			sample = append(sample, orders[i])
		}
	}
	s.checkSame(ctx, sample, "sent again, answered with the same order")
}

// checkSame: orders that are sent again must be answered with themselves.
func (s *overloaded) checkSame(ctx context.Context, orders []placed, what string) {
	repeated, problems := s.resend(ctx, orders)
	same := len(slices.DeleteFunc(repeated, func(o placed) bool { return !slices.Contains(orders, o) }))
	s.check(same == len(orders), what, "all", "%d of %d%s", same, len(orders), problems)
}
