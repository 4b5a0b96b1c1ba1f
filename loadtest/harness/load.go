package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// answerTimeout bounds how long after the end of a load its answers may come. A connection breaks then.
const answerTimeout = 10 * time.Second

// Load describes the requests to send. Every field is required except Rate, which only OpenLoop reads.
type Load struct {
	Addrs       []string      // host:port; the connections go to the addresses in turn
	Connections int           // how many requests can be in flight at once
	Rate        float64       // requests per second
	Duration    time.Duration // how long requests are sent

	// Request appends request n (0, 1, 2, …) to dst: HTTP/1.1, whole, the
	// connection kept. It is called from several goroutines, once for each n.
	Request func(dst []byte, n int) []byte
	Want    int // the status that every answer should have
}

// at returns the scheduled instant of request n of an open loop. It depends on nothing that happens during the run.
func (l *Load) at(start time.Time, n int) time.Time {
	return start.Add(time.Duration(float64(n) / l.Rate * float64(time.Second)))
}

// Answers are the result of a load.
type Answers struct {
	// Latency is in microseconds up to the last byte of the answer: in an open
	// loop from the scheduled instant, in a closed one from the writing.
	Latency *hdrhistogram.Histogram

	Answered   int
	Unexpected int    // answers without the wanted status
	Sample     string // status and beginning of the body of the first such answer; empty if there was none

	Sent, Received int64         // bytes of all requests and answers
	Elapsed        time.Duration // from the first scheduled instant to the last answer
}

// PerSecond returns the rate of answers with the wanted status.
func (a *Answers) PerSecond() float64 { return float64(a.Answered-a.Unexpected) / a.Elapsed.Seconds() }

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
		go func() { // makes every request due at its instant; the connections that are free take them in turn
			defer close(due)
			for n := 0; n < cap(due) && SleepUntil(ctx, l.at(start, n)); n++ {
				due <- n
				runtime.Gosched() // a nap in the kernel would keep the request waiting for this processor
			}
		}()

		return func() (n int, at time.Time, more bool) {
			n, more = <-due
			return n, l.at(start, n), more
		}
	})
}

// SleepUntil returns true at the given instant, at most some 50 microseconds late unless no processor is free. It returns
// false when ctx has ended before.
func SleepUntil(ctx context.Context, at time.Time) bool {
	const (
		longest = 20 * time.Millisecond // of one sleep, so that the end of ctx is noticed soon
		late    = 2 * time.Millisecond  // how late a timer of the runtime can be
	)

	for wait := time.Until(at); wait > 0; wait = time.Until(at) {
		if ctx.Err() != nil {
			return false
		}

		if wait > late {
			time.Sleep(min(wait-late, longest))
			continue
		}

		// The kernel is some 50 microseconds late. A timer of the runtime is up to a millisecond late, because the poller that
		// it waits in counts in milliseconds, and that would be the larger part of what is measured.
		t := unix.NsecToTimeval(int64(wait))
		_, _ = unix.Select(0, nil, nil, nil, &t) // woken early: the loop looks at the clock again
	}

	return true
}

// nextRequest returns the number of the next request and the instant at which it is due. more is false at the end. In an
// open loop it blocks until the request is due. It is called from several goroutines.
type nextRequest func() (n int, due time.Time, more bool)

// exchange opens the connections, calls begin once all are open, and sends the requests of the function that begin
// returns. See OpenLoop for its errors.
func (l *Load) exchange(ctx context.Context, begin func(ctx context.Context, start time.Time) nextRequest) (*Answers, error) {
	const longest = time.Minute // nothing lasts longer, see answerTimeout
	connected, disconnect := context.WithCancel(ctx)
	defer disconnect()
	group, working := errgroup.WithContext(connected)
	conns, err := DialAll(working, l.Connections, l.Addrs, time.Now().Add(l.Duration+answerTimeout))
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}

	all := &Answers{Latency: hdrhistogram.New(1, longest.Microseconds(), 3)}
	start := time.Now()
	next := begin(working, start)
	var mu sync.Mutex
	for range l.Connections {
		group.Go(func() error {
			var request []byte
			c := <-conns
			for n, due, more := next(); more; n, due, more = next() {
				request = l.Request(request[:0], n)
				a, err := c.Exchange(request)
				took := time.Since(due)
				if err != nil {
					return err
				}

				mu.Lock()
				_ = all.Latency.RecordValue(took.Microseconds()) // within its range, so it cannot fail
				all.Answered++
				all.Sent += int64(len(request))
				all.Received += int64(a.Size)
				if a.Status != l.Want {
					all.Unexpected++
					if all.Unexpected == 1 {
						all.Sample = fmt.Sprintf("%d %.300s", a.Status, a.Body)
					}
				}
				mu.Unlock()
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

// maxAnswer bounds an answer's body, in bytes. The service's largest is below 200 kB.
const maxAnswer = 1 << 20

// Conn is one keep-alive connection that sends prepared requests, so cheaply that
// a generator on the server's own machine disturbs it little. One goroutine uses it.
type Conn struct {
	conn     countingConn
	reader   *bufio.Reader
	response fasthttp.Response
	leave    func() bool // the context that would end it
}

type countingConn struct {
	net.Conn
	read int
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read += n
	return n, err
}

// Dial connects to addr (host:port). Everything on the connection fails after deadline, and when ctx ends.
func Dial(ctx context.Context, addr string, deadline time.Time) (*Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	c := newConn(conn)
	c.leave = context.AfterFunc(ctx, func() { conn.Close() })

	return c, nil
}

// Conns are connections that are free.
type Conns chan *Conn

// DialAll connects n times, to the addresses in turn.
func DialAll(ctx context.Context, n int, addrs []string, deadline time.Time) (Conns, error) {
	conns := make(Conns, n)
	for i := range n {
		c, err := Dial(ctx, addrs[i%len(addrs)], deadline)
		if err != nil {
			return nil, err
		}
		conns <- c
	}
	return conns, nil
}

func newConn(conn net.Conn) *Conn {
	c := &Conn{conn: countingConn{Conn: conn}, leave: func() bool { return true }}
	c.reader = bufio.NewReaderSize(&c.conn, 4<<10)
	return c
}

// Close ends the connection; an Exchange in progress fails.
func (c *Conn) Close() {
	c.leave()
	c.conn.Close()
}

// Answer is what came back.
type Answer struct {
	Status     int
	Body       []byte // valid until the next Exchange
	Size       int    // in bytes, head and body
	RetryAfter int    // the header in seconds; 0 when absent or a date
	Close      bool   // no further request is answered on this connection
}

// Exchange sends a whole request and reads its answer.
func (c *Conn) Exchange(request []byte) (Answer, error) {
	if _, err := c.conn.Write(request); err != nil {
		return Answer{}, err
	}

	before := c.conn.read - c.reader.Buffered()
	if err := c.response.ReadLimitBody(c.reader, maxAnswer); err != nil {
		return Answer{}, fmt.Errorf("read an answer: %w", err)
	}

	a := Answer{Status: c.response.StatusCode(), Body: c.response.Body(), Close: c.response.ConnectionClose(),
		Size: c.conn.read - c.reader.Buffered() - before}
	a.RetryAfter, _ = strconv.Atoi(string(c.response.Header.Peek("Retry-After")))

	return a, nil
}
