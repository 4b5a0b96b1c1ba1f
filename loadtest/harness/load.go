package harness

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
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

// at is the scheduled instant of request n of an open loop. It depends on nothing
// that happens during the run.
func (l *Load) at(start time.Time, n int) time.Time {
	return start.Add(time.Duration(float64(n) / l.Rate * float64(time.Second)))
}

// Answers are the result of a load.
type Answers struct {
	// Latency is in microseconds up to the last byte of the answer: in an open
	// loop from the scheduled instant, in a closed one from the writing.
	Latency        *hdrhistogram.Histogram
	Answered       int
	Sent, Received int64         // bytes of all requests and answers
	Elapsed        time.Duration // from the first scheduled instant to the last answer
}

// PerSecond is the rate of answers.
func (a *Answers) PerSecond() float64 { return float64(a.Answered) / a.Elapsed.Seconds() }

func newAnswers() *Answers {
	const longest = time.Minute // nothing lasts longer, see answerTimeout
	return &Answers{Latency: hdrhistogram.New(1, longest.Microseconds(), 3)}
}

func (a *Answers) add(other *Answers) {
	a.Latency.Merge(other.Latency)
	a.Answered += other.Answered
	a.Sent += other.Sent
	a.Received += other.Received
}

// ClosedLoop keeps every connection busy for Duration: the next request goes
// when the last one is answered. It measures how much the server takes, not
// how long a caller waits. An answer without the wanted status is an error.
func ClosedLoop(ctx context.Context, l Load) (*Answers, error) {
	var sent atomic.Int64
	start := time.Now()
	return l.exchange(ctx, start, func(context.Context) (n int, due time.Time, more bool) {
		now := time.Now()
		if now.Sub(start) >= l.Duration {
			return 0, now, false
		}
		return int(sent.Add(1) - 1), now, true
	})
}

// OpenLoop sends Rate requests per second for Duration, whatever the answers
// do, and waits for the last of them. A server that stalls delays every request
// that is due meanwhile, and every one is counted with its delay: a generator
// that waits for the answer before it looks at the clock would leave them out
// (coordinated omission). It fails when a connection breaks, when answers are
// missing 10 s after the last request, when one has not the wanted status, and
// when ctx ends.
func OpenLoop(ctx context.Context, l Load) (*Answers, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	due := make(chan int, int(l.Rate*l.Duration.Seconds()))
	const head = 100 * time.Millisecond // for the connections
	start := time.Now().Add(head)
	go l.schedule(working, start, due)
	return l.exchange(ctx, start, func(ctx context.Context) (n int, at time.Time, more bool) {
		select {
		case n, more = <-due:
			return n, l.at(start, n), more
		case <-ctx.Done():
			return 0, start, false
		}
	})
}

// schedule makes every request due at its instant, as many as due has room for.
// The connections that are free take them in turn.
func (l *Load) schedule(ctx context.Context, start time.Time, due chan<- int) {
	const longestNap = 20 * time.Millisecond // so that it ends soon after ctx
	defer close(due)
	for n := range cap(due) {
		for wait := time.Until(l.at(start, n)); wait > 0; wait = time.Until(l.at(start, n)) {
			if ctx.Err() != nil {
				return
			}
			nap(min(wait, longestNap))
		}
		due <- n
		runtime.Gosched() // a nap in the kernel would keep the request waiting for this processor
	}
}

// nap sleeps in the kernel, which is some 50 microseconds late. A timer of the
// runtime is up to a millisecond late, because the poller that it waits in
// counts in milliseconds, and that would be the larger part of what is measured.
func nap(d time.Duration) {
	t := unix.NsecToTimeval(int64(d))
	_, _ = unix.Select(0, nil, nil, nil, &t) // woken early: the caller looks at the clock again
}

// exchange opens the connections and sends on each the next request that is due
// when the last one is answered, until there are no more.
func (l *Load) exchange(ctx context.Context, start time.Time, next func(context.Context) (n int, due time.Time, more bool)) (*Answers, error) {
	deadline := start.Add(l.Duration + answerTimeout)
	var mu sync.Mutex
	whole := newAnswers()
	group, working := errgroup.WithContext(ctx)
	for i := range l.Connections {
		group.Go(func() error {
			c, err := Dial(working, l.Addrs[i%len(l.Addrs)], deadline)
			if err != nil {
				return err
			}
			defer c.Close()
			defer context.AfterFunc(working, c.Close)()
			own := newAnswers()
			var request []byte
			for n, due, more := next(working); more; n, due, more = next(working) {
				request = l.Request(request[:0], n)
				answer, err := c.Exchange(request)
				if err != nil {
					return err
				}
				if answer.Status != l.Want {
					return fmt.Errorf("answered %d instead of %d: %.300s", answer.Status, l.Want, answer.Body)
				}
				_ = own.Latency.RecordValue(time.Since(due).Microseconds()) // within its range, so it cannot fail
				own.Answered++
				own.Sent += int64(len(request))
				own.Received += int64(answer.Size)
			}
			mu.Lock()
			defer mu.Unlock()
			whole.add(own)
			return nil
		})
	}
	if err := errors.Join(group.Wait(), context.Cause(ctx)); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	whole.Elapsed = time.Since(start)
	return whole, nil
}
