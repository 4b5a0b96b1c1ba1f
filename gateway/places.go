package main

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"vendorapi/internal/delivery"
)

const (
	// placeWait is how long a request waits for one of its account's places: an account that
	// sends at once what it may send in a minute is served in turns and not refused.
	placeWait = time.Second
	// maxInLine is how many requests of an account may wait. With unreservedBody it bounds the
	// memory that their bodies take beside the budget of the listener: 16 MB.
	maxInLine = 4096

	placeShards = 64
)

// accountPlaces bounds the requests of each account that are in work at once, so that no
// account takes all the places of the others. Whoever finds them taken waits in the account's
// own line, in which it keeps nobody else out.
type accountPlaces struct {
	most   int64         // of one account; 0: no bound
	wait   time.Duration // of a request in line, at most; placeWait outside tests
	shed   prometheus.Counter
	shards [placeShards]placeShard
	idle   sync.Pool // of *places that no request uses
}

// placeShard has the accounts whose ids end alike.
type placeShard struct {
	mu   sync.Mutex
	open map[delivery.AccountID]*places
}

// places are those of an account of which some request is in work or in line.
type places struct {
	free  *semaphore.Weighted
	users int // in work and in line; guarded by the shard's lock
}

// enter waits for a place of the account, until ctx ends and for the longest wait at most. It reports
// whether it got a place. The caller must call leave after true, and only then.
func (a *accountPlaces) enter(ctx context.Context, account delivery.AccountID) bool {
	if a.most == 0 {
		return true
	}

	p := a.join(account)
	if p == nil {
		a.shed.Inc()
		return false
	}

	if p.free.TryAcquire(1) {
		return true
	}

	waiting, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	if err := p.free.Acquire(waiting, 1); err != nil {
		a.part(account, p)
		a.shed.Inc()
		return false
	}

	return true
}

// leave gives a place back.
func (a *accountPlaces) leave(account delivery.AccountID) {
	if a.most == 0 {
		return
	}

	s := a.shard(account)
	s.mu.Lock()
	p := s.open[account]
	s.mu.Unlock()
	p.free.Release(1)
	a.part(account, p)
}

// join makes a request one of those that use an account's places; nil when too many do.
func (a *accountPlaces) join(account delivery.AccountID) *places {
	s := a.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.open[account]
	if p == nil {
		p, _ = a.idle.Get().(*places)
		if p == nil {
			p = &places{free: semaphore.NewWeighted(a.most)}
		}
		if s.open == nil {
			s.open = make(map[delivery.AccountID]*places)
		}
		s.open[account] = p
	}

	if p.users >= int(a.most)+maxInLine {
		return nil
	}

	p.users++

	return p
}

// part undoes join. The places of an account that has no request are forgotten.
func (a *accountPlaces) part(account delivery.AccountID, p *places) {
	s := a.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.users--
	if p.users == 0 {
		delete(s.open, account)
		a.idle.Put(p)
	}
}

func (a *accountPlaces) shard(account delivery.AccountID) *placeShard {
	return &a.shards[account[len(account)-1]%placeShards] // the last byte of an id is random
}

// enterAccount gets a place for a vendor's request, a login too; after nil the caller leaves it. It
// returns the refusal from memory when Redis has just refused such a request, also to those who were
// in line when the refusal came.
func (g *gateway) enterAccount(x *requestContext) error {
	if err := g.repeatRefusal(x); err != nil {
		return err
	}
	if !g.accounts.enter(g.work, x.account) {
		return errOverloaded
	}

	if err := g.repeatRefusal(x); err != nil {
		g.accounts.leave(x.account)
		return err
	}

	return nil
}

// repeatRefusal returns the refusal of a request like this one that Redis has just refused, and sets
// the quota that is shown with it. A nil error means that Redis has to decide.
func (g *gateway) repeatRefusal(x *requestContext) (err error) {
	l := g.Ledger()
	if l == nil {
		return errStarting
	}
	x.quota, err = l.Limits.Refused(x.account, x.route.bucket, x.order)
	return err
}
