package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/loadtest/harness"
)

// volley is a series of requests to one gateway.
type volley struct {
	addr        string // host:port
	connections int    // requests under way at most
	// rate is arrivals a second, to a schedule that heeds no answer; 0: every
	// connection sends again as soon as it is answered.
	rate     float64
	duration time.Duration
	most     int // requests at most; 0: as many as the duration gives; -1: none
	// request appends request n to dst and says whose it is and of which order.
	request func(dst []byte, n int) (request []byte, vendor, number int)
	// count records an answer.
	count func(t *tally, s shot, a harness.Answer, at time.Time)
}

// answerWithin bounds how long a client waits for what is under way at the end.
const answerWithin = 15 * time.Second

// fire sends the volley and waits for the last answer. An arrival that finds
// every connection busy is not sent: it is counted in unsent. A connection that
// breaks is opened again; the request that was under way on it is unknown.
func (v *volley) fire(ctx context.Context, t *tally) {
	t.began = time.Now()
	until := t.began.Add(v.duration)
	ctx, cancel := context.WithDeadline(ctx, until.Add(answerWithin))
	defer cancel()
	arrivals := make(chan shot)
	var hands sync.WaitGroup
	for range v.connections {
		hands.Go(func() { v.serve(ctx, t, arrivals) })
	}
	if v.rate > 0 {
		v.pour(ctx, t, arrivals, until)
	} else {
		v.feed(ctx, t, arrivals, until)
	}
	close(arrivals)
	hands.Wait()
}

// pour hands arrivals out by the clock, whatever becomes of them.
func (v *volley) pour(ctx context.Context, t *tally, arrivals chan<- shot, until time.Time) {
	step := time.NewTicker(time.Millisecond)
	defer step.Stop()
	n, unsent := 0, 0
	for now := t.began; now.Before(until) && ctx.Err() == nil; {
		for due := int(now.Sub(t.began).Seconds() * v.rate); n < due && (v.most == 0 || n < v.most); n++ {
			at := t.began.Add(time.Duration(float64(n) / v.rate * float64(time.Second)))
			select {
			case arrivals <- shot{n: n, due: at}:
			default:
				unsent++
			}
		}
		select {
		case now = <-step.C:
		case <-ctx.Done():
		}
	}
	t.mu.Lock()
	t.arrived, t.unsent = t.arrived+n, t.unsent+unsent
	t.mu.Unlock()
}

// feed keeps every connection busy.
func (v *volley) feed(ctx context.Context, t *tally, arrivals chan<- shot, until time.Time) {
	var n int
	over := time.NewTimer(time.Until(until))
	defer over.Stop()
	for ; v.most == 0 || n < v.most; n++ {
		select {
		case arrivals <- shot{n: n}:
			continue
		case <-over.C:
		case <-ctx.Done():
		}
		break
	}
	t.mu.Lock()
	t.arrived += n
	t.mu.Unlock()
}

// serve is one connection's life.
func (v *volley) serve(ctx context.Context, t *tally, arrivals <-chan shot) {
	deadline, _ := ctx.Deadline() // fire has set one
	var conn *harness.Conn
	var request []byte
	for s := range arrivals {
		if s.due.IsZero() {
			s.due = time.Now()
		}
		request, s.vendor, s.number = v.request(request[:0], s.n)
		if conn == nil {
			fresh, err := harness.Dial(ctx, v.addr, deadline)
			if err != nil {
				t.lost(s)
				continue
			}
			conn = fresh
		}
		a, err := conn.Exchange(request)
		if err != nil {
			t.lost(s)
		} else {
			v.count(t, s, a, time.Now())
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

// numbers gives every order of a run a number of its own.
type numbers struct{ next atomic.Int64 }

// block reserves n of them and returns the first.
func (b *numbers) block(n int) int { return int(b.next.Add(int64(n))) - n }
