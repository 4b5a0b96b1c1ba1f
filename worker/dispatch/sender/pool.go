package sender

import (
	"slices"
	"sync"
	"time"
)

// A pool keeps connections of HTTP/1.1 between requests, each for the URL that it was dialled for.
type pool struct {
	maxIdle int           // of all URLs
	perURL  int           // of one
	timeout time.Duration // how long one is kept

	mu    sync.Mutex
	idle  map[string][]*connection // by the host with its label, the one that was used last at the end
	count int
	sweep *time.Timer // closes what has been idle for too long; nil while nothing is idle
}

// take returns the connection of a URL that was used last, or nil. It closes those on which the receiver has
// hung up, or has said what nobody asked for.
func (p *pool) take(key string) *connection {
	for {
		c := p.last(key)
		if c == nil || !c.mayHoldRemains() {
			return c
		}
		c.Close()
	}
}

func (p *pool) last(key string) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := p.idle[key]
	if len(conns) == 0 {
		return nil
	}

	c := conns[len(conns)-1]
	conns[len(conns)-1] = nil
	p.idle[key] = conns[:len(conns)-1]
	p.count--

	return c
}

// put keeps a connection for the next request to its URL.
func (p *pool) put(key string, c *connection) {
	c.idleSince = time.Now()
	closeAll(p.add(key, c))
}

// add returns the connections for which there is no room.
func (p *pool) add(key string, c *connection) (surplus []*connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[key]) >= p.perURL {
		return []*connection{c}
	}

	if p.idle == nil {
		p.idle = make(map[string][]*connection)
	}

	p.idle[key] = append(p.idle[key], c)
	p.count++
	if p.sweep == nil {
		p.sweep = time.AfterFunc(p.timeout, p.closeExpired)
	}

	if p.count > p.maxIdle {
		surplus, _ = p.removeUntil(p.oldest())
	}

	return surplus
}

// oldest returns a time since when an eighth of what is idle has been so, so that there is room for a while then.
func (p *pool) oldest() time.Time {
	times := make([]time.Time, 0, p.count)
	for _, conns := range p.idle {
		for _, c := range conns {
			times = append(times, c.idleSince)
		}
	}

	slices.SortFunc(times, time.Time.Compare)
	return times[len(times)/8]
}

// closeExpired closes what has been idle for the pool's timeout, and comes again when that is so of the next.
func (p *pool) closeExpired() {
	p.mu.Lock()
	expired, next := p.removeUntil(time.Now().Add(-p.timeout))
	p.sweep = nil
	if p.count > 0 {
		p.sweep = time.AfterFunc(time.Until(next.Add(p.timeout)), p.closeExpired)
	}

	p.mu.Unlock()
	closeAll(expired)
}

// closeIdle closes all that is idle.
func (p *pool) closeIdle() {
	p.mu.Lock()
	all, _ := p.removeUntil(time.Now())
	if p.sweep != nil {
		p.sweep.Stop()
		p.sweep = nil
	}

	p.mu.Unlock()
	closeAll(all)
}

// removeUntil removes what has been idle since that time or longer. oldest is since when the oldest is that is left.
func (p *pool) removeUntil(limit time.Time) (removed []*connection, oldest time.Time) {
	for key, conns := range p.idle {
		// What was used last stands at the end.
		isLeft := func(c *connection) bool { return c.idleSince.After(limit) }
		first := slices.IndexFunc(conns, isLeft)
		if first < 0 {
			removed = append(removed, conns...)
			delete(p.idle, key)
			continue
		}

		removed = append(removed, conns[:first]...)
		p.idle[key] = slices.Delete(conns, 0, first)
		if oldest.IsZero() || conns[0].idleSince.Before(oldest) {
			oldest = conns[0].idleSince
		}
	}

	p.count -= len(removed)

	return removed, oldest
}

// closeAll closes connections. It may wait for the network, so no lock is held.
func closeAll(conns []*connection) {
	for _, c := range conns {
		c.Close()
	}
}
