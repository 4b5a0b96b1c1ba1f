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
)

// answerTimeout is how long answers may take after the last request was due.
const answerTimeout = 10 * time.Second

// Load is what is sent. All of it is required but Rate, which only OpenLoop reads.
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

// at is the scheduled instant of request n of an open loop. It depends on nothing that happens during the run.
func (l *Load) at(start time.Time, n int) time.Time {
	return start.Add(time.Duration(float64(n) / l.Rate * float64(time.Second)))
}

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

	mu sync.Mutex // until the load has ended
}

// PerSecond is the rate of answers with the wanted status.
func (a *Answers) PerSecond() float64 { return float64(a.Answered-a.Unexpected) / a.Elapsed.Seconds() }

func (a *Answers) count(l *Load, request []byte, answer Answer, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
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

// ClosedLoop keeps every connection busy for Duration: the next request goes when the last one is answered. It
// measures how much the server takes, not how long a caller waits. Its errors are OpenLoop's.
func ClosedLoop(ctx context.Context, l Load) (*Answers, error) {
	var sent atomic.Int64
	return l.exchange(ctx, func(_ context.Context, start time.Time) nextRequest {
		return func() (n int, due time.Time, more bool) {
			now := time.Now()
			if now.Sub(start) >= l.Duration {
				return 0, now, false
			}
			return int(sent.Add(1) - 1), now, true
		}
	})
}

// OpenLoop sends Rate requests per second for Duration, whatever the answers do, and waits for the last of them.
// Latency counts from the scheduled instant, so a server that stalls delays every request that is due meanwhile (no
// coordinated omission). It fails when a connection breaks, when answers are missing 10 s after the last request,
// when one has not the wanted status, and when ctx ends.
func OpenLoop(ctx context.Context, l Load) (*Answers, error) {
	return l.exchange(ctx, func(ctx context.Context, start time.Time) nextRequest {
		due := make(chan int, int(l.Rate*l.Duration.Seconds()))
		go l.schedule(ctx, start, due)
		return func() (n int, at time.Time, more bool) {
			select {
			case n, more = <-due:
				return n, l.at(start, n), more
			case <-ctx.Done():
				return 0, start, false
			}
		}
	})
}

// schedule makes every request due at its instant, as many as due has room for.
// The connections that are free take them in turn.
func (l *Load) schedule(ctx context.Context, start time.Time, due chan<- int) {
	defer close(due)
	for n := range cap(due) {
		if !SleepUntil(ctx, l.at(start, n)) {
			return
		}
		due <- n
		runtime.Gosched() // a nap in the kernel would keep the request waiting for this processor
	}
}

// SleepUntil is some 50 microseconds late at most, unless no processor is free. It is false when ctx ended before.
func SleepUntil(ctx context.Context, at time.Time) bool {
	const (
		longest = 20 * time.Millisecond // so that it ends soon after ctx
		late    = 2 * time.Millisecond  // that a timer can be
	)
	for wait := time.Until(at); wait > 0; wait = time.Until(at) {
		if ctx.Err() != nil {
			return false
		}
		if wait > late {
			time.Sleep(min(wait-late, longest))
		} else {
			nap(wait)
		}
	}
	return true
}

// nextRequest is the request that is due next and its instant, unless there are no more.
type nextRequest func() (n int, due time.Time, more bool)

// exchange sends on each connection the next request that is due when the last one is answered, until there are no
// more. begin is called when all are connected. All that happens on them ends some time after the last request was due.
func (l *Load) exchange(ctx context.Context, begin func(ctx context.Context, start time.Time) nextRequest) (*Answers, error) {
	const longest = time.Minute // nothing lasts longer, see answerTimeout
	connected, disconnect := context.WithCancel(ctx)
	defer disconnect()
	group, working := errgroup.WithContext(connected)
	deadline := time.Now().Add(l.Duration + answerTimeout)
	conns := make([]*Conn, l.Connections)
	for i := range conns {
		var err error
		if conns[i], err = Dial(working, l.Addrs[i%len(l.Addrs)], deadline); err != nil {
			return nil, fmt.Errorf("load: %w", err)
		}
	}
	all := &Answers{Latency: hdrhistogram.New(1, longest.Microseconds(), 3)}
	start := time.Now()
	next := begin(working, start)
	for _, c := range conns {
		group.Go(func() error {
			var request []byte
			for n, due, more := next(); more; n, due, more = next() {
				request = l.Request(request[:0], n)
				answer, err := c.Exchange(request)
				if err != nil {
					return err
				}
				all.count(l, request, answer, time.Since(due))
			}
			return nil
		})
	}
	if err := errors.Join(group.Wait(), context.Cause(ctx)); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	all.Elapsed = time.Since(start)
	if all.Unexpected > 0 {
		return all, fmt.Errorf("load: %d of %d answers were not as wanted, the first: %s", all.Unexpected, all.Answered, all.Sample)
	}
	return all, nil
}
