package pace

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// openLoop is one run. Whatever is due and not written yet is known by two
// numbers, because requests are written in the order of the schedule.
type openLoop struct {
	o     *Options
	start time.Time
	total int

	mu       sync.Mutex
	result   *Result
	released int       // requests whose instant has come
	next     int       // the first that has no connection yet; at most released
	idle     []*flight // connections with nothing under way; empty while next < released
	err      error     // the first failure
	over     bool      // the connections are being closed
	done     chan struct{}
}

// flight is a connection and the request that is under way on it.
type flight struct {
	conn    *Conn
	due     time.Time
	n       int
	request []byte
}

// Open sends Rate requests per second for Duration, whatever the answers do, and
// waits for the last of them. It fails when a connection breaks, when answers
// are missing after Patience, and when ctx ends.
func Open(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(true); err != nil {
		return nil, err
	}
	l := &openLoop{o: &o, total: o.total(), result: newResult(), done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, o.Duration+Patience)
	defer cancel()
	deadline, _ := ctx.Deadline() // it was just set
	conns, err := dial(ctx, &o, deadline)
	if err != nil {
		return nil, err
	}
	var readers sync.WaitGroup
	for _, c := range conns {
		f := &flight{conn: c}
		l.idle = append(l.idle, f)
		readers.Go(func() { l.read(f) })
	}
	l.start = time.Now()
	l.dispatch(ctx)
	select {
	case <-l.done:
	case <-ctx.Done():
		l.fail(context.Cause(ctx))
	}
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	hangUp(conns)
	readers.Wait()
	if l.err != nil {
		return nil, fmt.Errorf("pace: %d of %d requests answered: %w", l.result.Answered, l.total, l.err)
	}
	return l.result, nil
}

// dispatch hands every request out at its instant. It never waits for answers.
func (l *openLoop) dispatch(ctx context.Context) {
	for n := range l.total {
		sleepUntil(ctx, l.due(n))
		if ctx.Err() != nil || ended(l.done) {
			return
		}
		if f := l.release(); f != nil {
			l.send(f)
		}
	}
}

// due is the scheduled instant of request n. It depends on nothing that happens
// during the run.
func (l *openLoop) due(n int) time.Time {
	return l.start.Add(time.Duration(float64(n) / l.o.Rate * float64(time.Second)))
}

// release makes one more request due. The result is the connection that has to
// write it, nil when all are busy: then the first to be free does.
func (l *openLoop) release() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released++
	if len(l.idle) == 0 {
		return nil
	}
	f := l.idle[0] // the longest idle, so that all take part
	l.idle = l.idle[1:]
	l.assign(f)
	return f
}

// assign gives f the next request that is due; mu is held.
func (l *openLoop) assign(f *flight) {
	f.n, f.due = l.next, l.due(l.next)
	l.next++
	record(l.result.Lateness, time.Since(f.due))
}

func (l *openLoop) send(f *flight) {
	f.request = l.o.Request(f.request[:0], f.n)
	if err := f.conn.Send(f.request); err != nil {
		l.fail(err)
	}
}

// read records the answers of one connection and writes what waited for it.
func (l *openLoop) read(f *flight) {
	for {
		a, err := f.conn.Receive()
		if err != nil {
			l.fail(err)
			return
		}
		if l.answered(f, a, time.Now()) {
			l.send(f)
		}
	}
}

// answered records an answer; true: another request has been assigned.
func (l *openLoop) answered(f *flight, a Answer, at time.Time) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record(l.result.Latency, at.Sub(f.due))
	l.result.count(a, l.o.Want)
	l.result.Sent += int64(len(f.request))
	if l.result.Answered == l.total {
		l.result.Elapsed = at.Sub(l.start)
		l.finish()
	}
	if l.next < l.released {
		l.assign(f)
		return true
	}
	l.idle = append(l.idle, f)
	return false
}

// fail notes the first failure and ends the run; what fails because the
// connections are closed at its end is none.
func (l *openLoop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.over || l.result.Answered == l.total {
		return
	}
	l.err = err
	l.finish()
}

// finish may be called more than once; mu is held.
func (l *openLoop) finish() {
	if !ended(l.done) {
		close(l.done)
	}
}

func ended(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// sleepUntil returns at t, or within longestNap of the end of ctx.
func sleepUntil(ctx context.Context, t time.Time) {
	const longestNap = 20 * time.Millisecond
	for wait := time.Until(t); wait > 0 && ctx.Err() == nil; wait = time.Until(t) {
		nap(min(wait, longestNap))
	}
}
