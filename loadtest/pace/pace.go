package pace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Patience is how long answers may take after the last request was due.
const Patience = 10 * time.Second

// Options of a run. All are required but Rate, which only Open reads.
type Options struct {
	// Addrs are host:port; connection i goes to the i-th of them, round and
	// round.
	Addrs []string
	// Connections is how many requests can be under way at once.
	Connections int
	// Rate is requests per second.
	Rate float64
	// Duration is how long requests are sent.
	Duration time.Duration
	// Request appends request n (0, 1, 2, …) to dst: HTTP/1.1, whole, the
	// connection kept. It is called from several goroutines, once for each n.
	Request func(dst []byte, n int) []byte
	// Want is the status that every answer should have.
	Want int
}

func (o *Options) check(open bool) error {
	switch {
	case len(o.Addrs) == 0 || o.Connections < 1 || o.Duration <= 0 || o.Request == nil || o.Want == 0:
		return errors.New("pace: addresses, connections, duration, request and wanted status are required")
	case open && (o.Rate <= 0 || o.total() < 1):
		return errors.New("pace: the rate makes no request within the duration")
	}
	return nil
}

// total is the number of requests of an open loop.
func (o *Options) total() int { return int(o.Rate * o.Duration.Seconds()) }

// Result of a run.
type Result struct {
	// Latency is in microseconds: in an open loop from the scheduled instant,
	// in a closed one from the writing, to the last byte of the answer.
	Latency *hdrhistogram.Histogram
	// Lateness is in microseconds, from the scheduled instant to the writing: the
	// part of the latency that the generator and its connections caused. Empty
	// in a closed loop.
	Lateness *hdrhistogram.Histogram
	// Answered counts the answers, Strange those without the wanted status;
	// Sample is the first of them.
	Answered, Strange int
	Sample            string
	// Sent and Received are the bytes of all requests and answers.
	Sent, Received int64
	// Elapsed is from the first scheduled instant to the last answer.
	Elapsed time.Duration
}

// PerSecond is the rate of answers with the wanted status.
func (r *Result) PerSecond() float64 {
	return float64(r.Answered-r.Strange) / r.Elapsed.Seconds()
}

// Err is an error when an answer had another status than the wanted one.
func (r *Result) Err() error {
	if r.Strange == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d answers were not as wanted, the first: %s", r.Strange, r.Answered, r.Sample)
}

func newResult() *Result { return &Result{Latency: newHistogram(), Lateness: newHistogram()} }

// maxMicros is a minute; nothing lasts longer here (see Patience).
const maxMicros = int64(time.Minute / time.Microsecond)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxMicros, 3) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 0), maxMicros)) // within its range, so it cannot fail
}

func (r *Result) count(a Answer, want int) {
	r.Answered++
	r.Received += int64(a.Size)
	if a.Status != want {
		if r.Strange++; r.Strange == 1 {
			r.Sample = fmt.Sprintf("%d %.300s", a.Status, a.Body)
		}
	}
}

// dial opens every connection of a run; deadline bounds all that happens on
// them.
func dial(ctx context.Context, o *Options, deadline time.Time) ([]*Conn, error) {
	conns := make([]*Conn, 0, o.Connections)
	for i := range o.Connections {
		c, err := Dial(ctx, o.Addrs[i%len(o.Addrs)], deadline)
		if err != nil {
			hangUp(conns)
			return nil, fmt.Errorf("pace: %w", err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func hangUp(conns []*Conn) {
	for _, c := range conns {
		c.Close()
	}
}
