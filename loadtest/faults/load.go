package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// load is a series of requests to one gateway. Unlike those of the harness it goes
// on when connections break and answers are refusals.
type load struct {
	addr        string // host:port
	connections int    // requests in flight at most
	// rate is arrivals a second, to a schedule that no answer delays: one that finds
	// every connection busy is not sent. 0: every connection sends again as soon as
	// it is answered.
	rate     float64
	duration time.Duration
	most     int // requests at most; 0: as many as the duration gives
	// request appends request n to dst and says which order of which vendor it is
	// about.
	request func(dst []byte, n int) (request []byte, vendor, number int)
	// answered and lost take the outcome of a request. They are called from several
	// goroutines.
	answered func(s sent, a harness.Answer, took time.Duration)
	lost     func(s sent)
}

// sent is one request of a load.
type sent struct {
	n              int // its place in the load
	vendor, number int // whose it is, and which order
	due            time.Time
}

// answerTimeout bounds how long a client waits for what is in flight at the end.
const answerTimeout = 15 * time.Second

// send sends the load and waits for the last answer. A connection that breaks is
// opened again; the request in flight on it is lost.
func (l *load) send(ctx context.Context) (arrived, unsent int) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(l.duration+answerTimeout))
	defer cancel()
	arrivals := make(chan sent)
	var connections sync.WaitGroup
	for range l.connections {
		connections.Go(func() { l.serve(ctx, arrivals) })
	}
	for ; (l.most == 0 || arrived < l.most) && ctx.Err() == nil; arrived++ {
		due := time.Now()
		if l.rate > 0 {
			due = began.Add(time.Duration(float64(arrived) / l.rate * float64(time.Second)))
			if wait := time.Until(due); wait > 0 {
				time.Sleep(max(wait, time.Millisecond)) // then several are due
			}
		}
		if due.Sub(began) >= l.duration {
			break
		}
		if l.rate > 0 {
			select {
			case arrivals <- sent{n: arrived, due: due}:
			default:
				unsent++
			}
			continue
		}
		select {
		case arrivals <- sent{n: arrived}:
		case <-ctx.Done():
			unsent++
		}
	}
	close(arrivals)
	connections.Wait()
	return arrived, unsent
}

// serve sends on one connection.
func (l *load) serve(ctx context.Context, arrivals <-chan sent) {
	deadline, _ := ctx.Deadline() // send has set one
	var conn *harness.Conn
	var request []byte
	for s := range arrivals {
		if s.due.IsZero() {
			s.due = time.Now()
		}
		request, s.vendor, s.number = l.request(request[:0], s.n)
		var err error
		if conn == nil {
			if conn, err = harness.Dial(ctx, l.addr, deadline); err != nil {
				conn = nil
				l.lost(s)
				continue
			}
		}
		a, err := conn.Exchange(request)
		if err != nil {
			l.lost(s)
		} else {
			l.answered(s, a, time.Since(s.due))
		}
		if err != nil || a.Close {
			conn.Close()
			conn = nil
		}
	}
	if conn != nil {
		conn.Close()
	}
}

// placed is an order that was answered 201.
type placed struct {
	vendor, number int
	id             string
}

// tally is what the clients of a load have seen. It is safe for concurrent use.
type tally struct {
	arrived, unsent int

	mu                      sync.Mutex
	accepted, limited, busy *hdrhistogram.Histogram // microseconds
	orders                  []placed
	again                   []sent // answered 503 or not at all, and reads that came too soon
	unknown                 int    // those that were not answered
	wrong                   int
	sample                  string // the first wrong answer
}

// fire sends a load; accept reports whether an answer is as it should be, and the id
// of the order when that is new.
func (l *load) fire(ctx context.Context, accept func(s sent, a harness.Answer) (id string, ok bool)) *tally {
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, time.Minute.Microseconds(), 3) }
	t := &tally{accepted: histogram(), limited: histogram(), busy: histogram()}
	l.answered = func(s sent, a harness.Answer, took time.Duration) {
		id, ok := accept(s, a)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.count(s, a, took, id, ok)
	}
	l.lost = func(s sent) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.again = append(t.again, s)
		t.unknown++
	}
	t.arrived, t.unsent = l.send(ctx)
	return t
}

// count needs mu.
func (t *tally) count(s sent, a harness.Answer, took time.Duration, id string, ok bool) {
	var kind *hdrhistogram.Histogram
	switch {
	case ok:
		kind = t.accepted
		if id != "" {
			t.orders = append(t.orders, placed{s.vendor, s.number, id})
		}
	case a.Status == 429 && saysWhen(a, "RATE_LIMITED"):
		kind = t.limited
		if s.number < 0 { // a read
			t.again = append(t.again, s)
		}
	case a.Status == 503:
		t.again = append(t.again, s)
		if saysWhen(a, "SERVICE_UNAVAILABLE") {
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

// sent is how many requests went out.
func (t *tally) sent() int { return t.arrived - t.unsent }

// served reports whether a share of what was sent was answered so, and nothing
// wrongly.
func (t *tally) served(answers *hdrhistogram.Histogram, share float64) bool {
	n := answers.TotalCount()
	return t.wrong == 0 && n > 0 && float64(n) >= share*float64(t.sent())
}

// checkServed checks that everything was answered so.
func (r *overloadRun) checkServed(t *tally, answers *hdrhistogram.Histogram, what, want string) {
	r.check(t.served(answers, r.form.share), what, want, "%d of %d%s", answers.TotalCount(), t.sent(), t.problems())
}

// problems describes what went wrong, for the end of a figure.
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

// saysWhen reports whether a refusal has the code and the same number of seconds to
// wait in header and body.
func saysWhen(a harness.Answer, code string) bool {
	wait := fmt.Appendf(nil, `"retryAfterSeconds":%d`, a.RetryAfter)
	at := bytes.Index(a.Body, wait)
	return a.RetryAfter >= 1 && at >= 0 && !bytes.ContainsAny(a.Body[at+len(wait):][:1], "0123456789") &&
		bytes.Contains(a.Body, []byte(`"errorCode":"`+code+`"`))
}

// created accepts the answer to a new order.
func created(_ sent, a harness.Answer) (id string, ok bool) {
	_, after, found := bytes.Cut(a.Body, []byte(`"orderId":"`))
	if a.Status != 201 || !found || len(after) < 36 {
		return "", false
	}
	return string(after[:36]), true
}

// loadVendor is an account with its request for a new order.
type loadVendor struct {
	*stack.Vendor
	wide  bool
	order string // format of the request, of the order's number
}

func newLoadVendor(opened *stack.Vendor, wide bool) *loadVendor {
	const id = "POS-%012[1]d"
	body, err := json.Marshal(opened.Order(func(o map[string]any) { o["externalOrderId"] = id }))
	if err != nil {
		panic(err) // it holds numbers and text only
	}
	order := fmt.Sprintf("POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\nAccept: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nX-Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		opened.Bearer, id, len(fmt.Sprintf(string(body), 0)), body)
	return &loadVendor{opened, wide, order}
}

// wide are the numbers of the vendors whose limits are out of reach.
func (s *overloaded) wide() (numbers []int) {
	for i := range s.form.wide {
		numbers = append(numbers, i)
	}
	return numbers
}

// order sends new orders of some vendors, who take turns; most: 0: as many as the
// duration gives.
func (s *overloaded) order(ctx context.Context, vendors []int, connections int, rate float64, d time.Duration, most int) *tally {
	// More than any load sends.
	const span = 100_000_000
	first := int(s.orders.Add(span)) - span
	l := load{addr: s.addr, connections: connections, rate: rate, duration: d, most: most,
		request: func(dst []byte, n int) ([]byte, int, int) {
			v := vendors[n%len(vendors)]
			return fmt.Appendf(dst, s.vendors[v].order, first+n), v, first + n
		}}
	return l.fire(ctx, created)
}

// readers is how many connections read back and send again.
const readers = 32

// resend sends orders again, byte for byte, as clients do until they are answered:
// up to five times what is answered 503 or not at all. It returns those that exist
// and what went wrong.
func (s *overloaded) resend(ctx context.Context, past []sent) (orders []placed, problems string) {
	for try := 0; try < 5 && len(past) > 0 && ctx.Err() == nil; try++ {
		l := load{addr: s.addr, connections: readers, duration: time.Minute, most: len(past),
			request: func(dst []byte, n int) ([]byte, int, int) {
				p := &past[n]
				return fmt.Appendf(dst, s.vendors[p.vendor].order, p.number), p.vendor, p.number
			}}
		t := l.fire(ctx, created)
		orders, past, problems = append(orders, t.orders...), t.again, problems+t.problems()
	}
	return orders, problems
}

// checkResent sends what was refused or not answered again: every one must become
// an order.
func (s *overloaded) checkResent(ctx context.Context, t *tally, what string) []placed {
	orders, problems := s.resend(ctx, t.again)
	s.check(len(orders) == len(t.again), what+", sent again and accepted", "all", "%d of %d%s", len(orders), len(t.again), problems)
	return orders
}

// read reads orders once each.
func (s *overloaded) read(ctx context.Context, orders []placed, connections int, rate float64, d time.Duration) *tally {
	l := load{addr: s.addr, connections: connections, rate: rate, duration: d, most: len(orders),
		request: func(dst []byte, n int) ([]byte, int, int) {
			o := &orders[n]
			return fmt.Appendf(dst, "GET /api/vendor/v1/orders/%s HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer %s\r\n\r\n",
				o.id, s.vendors[o.vendor].Bearer), o.vendor, -1
		}}
	return l.fire(ctx, func(sn sent, a harness.Answer) (string, bool) {
		return "", a.Status == 200 && bytes.Contains(a.Body, []byte(`"orderId":"`+orders[sn.n].id+`"`))
	})
}

// pollInterval is how often one order may be read (spec, "Limits").
const pollInterval = 10 * time.Second

// checkKept reads every accepted order back and sends some of them again: the
// service must know each by its id and by its key.
func (s *overloaded) checkKept(ctx context.Context, lists ...[]placed) {
	orders := slices.Concat(lists...)
	found, problems, left := 0, "", orders
	for try := 0; try < 3 && len(left) > 0 && ctx.Err() == nil; try++ {
		if try > 0 {
			time.Sleep(pollInterval) // some may have been read a moment ago
		}
		t := s.read(ctx, left, readers, 0, 5*time.Minute)
		found, problems = found+int(t.accepted.TotalCount()), problems+t.problems()
		var later []placed
		for _, sn := range t.again {
			later = append(later, left[sn.n])
		}
		left = later
	}
	s.check(found == len(orders), "accepted orders read back", "all", "%d of %d%s", found, len(orders), problems)

	const most = 500
	var sample []placed
	for i := 0; i < len(orders); i += 1 + len(orders)/most {
		if s.vendors[orders[i].vendor].wide {
			sample = append(sample, orders[i])
		}
	}
	s.checkSame(ctx, sample, "sent again, answered with the same order")
}

// checkSame sends orders again, each of which must be answered with itself.
func (s *overloaded) checkSame(ctx context.Context, orders []placed, what string) {
	var past []sent
	for _, o := range orders {
		past = append(past, sent{vendor: o.vendor, number: o.number})
	}
	repeated, problems := s.resend(ctx, past)
	same := 0
	for _, o := range repeated {
		if slices.Contains(orders, o) {
			same++
		}
	}
	s.check(same == len(orders), what, "all", "%d of %d%s", same, len(orders), problems)
}
