package day

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// pacer lets requests through at a steady rate, and not at all while the service's
// headers say that nothing remains. A vendor that keeps to it is never refused.
type pacer struct {
	interval time.Duration

	mu        sync.Mutex
	next      time.Time // when the next request may go
	remaining int       // as far as is known; -1: nothing is known
	reset     time.Time // when remaining is larger again
	inFlight  int       // let through and not answered yet
}

func newPacer(rate float64) *pacer {
	return &pacer{interval: time.Duration(float64(time.Second) / rate), remaining: -1}
}

// take waits for this request's turn.
func (p *pacer) take(ctx context.Context) error {
	for wait := p.claim(time.Now()); wait > 0; wait = p.claim(time.Now()) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	return nil
}

// claim takes a place, or returns how long to wait before asking again.
func (p *pacer) claim(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := p.next.Sub(now); wait > 0 {
		return wait
	}
	if p.remaining == 0 {
		if wait := p.reset.Sub(now); wait > 0 {
			return wait
		}
		p.remaining = 1 // at least one by now; its answer says how many
	}
	if p.remaining > 0 {
		p.remaining--
	}
	p.inFlight++
	p.next = now.Add(p.interval)
	return 0
}

// learn reads an answer's headers. What is in flight counts as taken: its answers may
// be of an earlier state.
func (p *pacer) learn(h http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	remaining, err := strconv.Atoi(h.Get("X-RateLimit-Remaining"))
	reset, resetErr := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if err == nil && resetErr == nil {
		p.remaining, p.reset = max(remaining-p.inFlight, 0), time.Unix(reset, 0)
	}
}
