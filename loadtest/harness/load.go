package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// answerTimeout is how long answers may take after the last request was due.
const answerTimeout = 10 * time.Second

// Load is what is sent. All of it is required but Rate, which only OpenLoop
// reads.
type Load struct {
	Addrs       []string      // host:port; the connections go to them in turn
	Connections int           // how many requests can be in flight at once
	Rate        float64       // requests per second
	Duration    time.Duration // how long requests are sent
	// Request appends request n (0, 1, 2, …) to dst: HTTP/1.1, whole, the
	// connection kept. It is called from several goroutines, once for each n.
	Request func(dst []byte, n int) []byte
	Want    int // the status that every answer should have
}

// total is the number of requests of an open loop.
func (l *Load) total() int { return int(l.Rate * l.Duration.Seconds()) }

// Answers are the result of a load.
type Answers struct {
	// Latency is in microseconds up to the last byte of the answer: in an open
	// loop from the scheduled instant, in a closed one from the writing.
	Latency        *hdrhistogram.Histogram
	Answered       int
	Unexpected     int           // of these, without the wanted status
	Sample         string        // the first of those
	Sent, Received int64         // bytes of all requests and answers
	Elapsed        time.Duration // from the first scheduled instant to the last answer
}

// PerSecond is the rate of answers with the wanted status.
func (a *Answers) PerSecond() float64 { return float64(a.Answered-a.Unexpected) / a.Elapsed.Seconds() }

// err is an error when an answer had another status than the wanted one.
func (a *Answers) err() error {
	if a.Unexpected == 0 {
		return nil
	}
	return fmt.Errorf("load: %d of %d answers were not as wanted, the first: %s", a.Unexpected, a.Answered, a.Sample)
}

func newAnswers() *Answers {
	const longest = time.Minute // nothing lasts longer, see answerTimeout
	return &Answers{Latency: hdrhistogram.New(1, longest.Microseconds(), 3)}
}

func (a *Answers) count(l *Load, request []byte, answer Answer, took time.Duration) {
	_ = a.Latency.RecordValue(took.Microseconds()) // within its range, so it cannot fail
	a.Answered++
	a.Sent += int64(len(request))
	a.Received += int64(answer.Size)
	if answer.Status != l.Want {
		if a.Unexpected++; a.Unexpected == 1 {
			a.Sample = fmt.Sprintf("%d %.300s", answer.Status, answer.Body)
		}
	}
}

func (a *Answers) add(other *Answers) {
	a.Latency.Merge(other.Latency)
	a.Answered += other.Answered
	a.Unexpected += other.Unexpected
	if a.Sample == "" {
		a.Sample = other.Sample
	}
	a.Sent += other.Sent
	a.Received += other.Received
}

// dial opens every connection; all that happens on them ends at the deadline.
func (l *Load) dial(ctx context.Context, deadline time.Time) ([]*Conn, error) {
	conns := make([]*Conn, 0, l.Connections)
	for i := range l.Connections {
		c, err := Dial(ctx, l.Addrs[i%len(l.Addrs)], deadline)
		if err != nil {
			closeAll(conns)
			return nil, fmt.Errorf("load: %w", err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func closeAll(conns []*Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// ClosedLoop keeps every connection busy for Duration: the next request goes
// when the last one is answered. It measures how much the server takes, not
// how long a caller waits. An answer without the wanted status is an error.
func ClosedLoop(ctx context.Context, l Load) (*Answers, error) {
	conns, err := l.dial(ctx, time.Now().Add(l.Duration+answerTimeout))
	if err != nil {
		return nil, err
	}
	defer closeAll(conns)
	defer context.AfterFunc(ctx, func() { closeAll(conns) })()
	var (
		next  atomic.Int64
		mu    sync.Mutex
		whole = newAnswers()
		group errgroup.Group
	)
	start := time.Now()
	for _, c := range conns {
		group.Go(func() error {
			own := newAnswers()
			var request []byte
			for now := time.Now(); now.Sub(start) < l.Duration; {
				request = l.Request(request[:0], int(next.Add(1)-1))
				answer, err := c.Exchange(request)
				if err != nil {
					return err
				}
				answered := time.Now()
				own.count(&l, request, answer, answered.Sub(now))
				now = answered
			}
			mu.Lock()
			defer mu.Unlock()
			whole.add(own)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("load: %w", errors.Join(context.Cause(ctx), err))
	}
	whole.Elapsed = time.Since(start)
	return whole, whole.err()
}

// openLoop is one run. What is due and not written yet is known by two numbers,
// because requests are written in the order of the schedule.
type openLoop struct {
	load  *Load
	start time.Time

	mu      sync.Mutex
	answers *Answers
	due     int       // requests whose instant has come
	next    int       // the first that has no connection yet; at most due
	idle    []*flight // connections with nothing in flight; empty while next < due
	end     context.CancelCauseFunc
}

// flight is a connection and the request in flight on it.
type flight struct {
	conn    *Conn
	n       int
	request []byte
}

// errAllAnswered ends an open loop in order.
var errAllAnswered = errors.New("all are answered")

// OpenLoop sends Rate requests per second for Duration, whatever the answers
// do, and waits for the last of them. A server that stalls delays every request
// that is due meanwhile, and every one is counted with its delay: a generator
// that waits for the answer before it looks at the clock would leave them out
// (coordinated omission). It fails when a connection breaks, when answers are
// missing 10 s after the last request, when one has not the wanted status, and
// when ctx ends.
func OpenLoop(ctx context.Context, l Load) (*Answers, error) {
	bounded, cancel := context.WithTimeout(ctx, l.Duration+answerTimeout)
	defer cancel()
	deadline, _ := bounded.Deadline() // it was just set
	conns, err := l.dial(bounded, deadline)
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancelCause(bounded)
	o := &openLoop{load: &l, answers: newAnswers(), end: end, start: time.Now()}
	var readers sync.WaitGroup
	for _, c := range conns {
		f := &flight{conn: c}
		o.idle = append(o.idle, f)
		readers.Go(func() { o.read(f) })
	}
	o.dispatch(running)
	<-running.Done()
	closeAll(conns)
	readers.Wait()
	if err := context.Cause(running); !errors.Is(err, errAllAnswered) {
		return nil, fmt.Errorf("load: %d of %d requests answered: %w", o.answers.Answered, l.total(), err)
	}
	return o.answers, o.answers.err()
}

// at is the scheduled instant of request n. It depends on nothing that happens
// during the run.
func (o *openLoop) at(n int) time.Time {
	return o.start.Add(time.Duration(float64(n) / o.load.Rate * float64(time.Second)))
}

// dispatch makes every request due at its instant. It never waits for answers.
func (o *openLoop) dispatch(ctx context.Context) {
	const longestNap = 20 * time.Millisecond // so that it ends soon after ctx
	for n := range o.load.total() {
		for wait := time.Until(o.at(n)); wait > 0 && ctx.Err() == nil; wait = time.Until(o.at(n)) {
			nap(min(wait, longestNap))
		}
		if ctx.Err() != nil {
			return
		}
		o.mu.Lock()
		o.due++
		var f *flight
		if len(o.idle) > 0 { // the longest idle, so that all take part
			f, o.idle = o.idle[0], o.idle[1:]
			o.assign(f)
		} // otherwise the first connection to be free writes it
		o.mu.Unlock()
		if f != nil {
			o.send(f)
		}
	}
}

// assign gives f the next request that is due; mu is held.
func (o *openLoop) assign(f *flight) {
	f.n = o.next
	o.next++
}

func (o *openLoop) send(f *flight) {
	f.request = o.load.Request(f.request[:0], f.n)
	if err := f.conn.Send(f.request); err != nil {
		o.end(err)
	}
}

// read records the answers of one connection and writes what waited for it.
func (o *openLoop) read(f *flight) {
	for {
		answer, err := f.conn.Receive()
		if err != nil {
			o.end(err) // without effect once the run has ended
			return
		}
		if o.answered(f, answer, time.Now()) {
			o.send(f)
		}
	}
}

// answered records an answer; more: another request was assigned.
func (o *openLoop) answered(f *flight, answer Answer, at time.Time) (more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers.count(o.load, f.request, answer, at.Sub(o.at(f.n)))
	if o.answers.Answered == o.load.total() {
		o.answers.Elapsed = at.Sub(o.start)
		o.end(errAllAnswered)
	}
	if o.next < o.due {
		o.assign(f)
		return true
	}
	o.idle = append(o.idle, f)
	return false
}
