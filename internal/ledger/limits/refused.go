package limits

import (
	"errors"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// RefusalHeld is how long a refusal is repeated without asking Redis again: a change of an
// account's limits or suspension holds on every gateway within a second (decisions, "Private APIs").
const RefusalHeld = time.Second

const (
	// RefusalShards is how many parts the remembered refusals have, each with a lock of its own.
	RefusalShards = 64

	// RefusalsKept bounds a shard. A full one is emptied, which costs one script a refusal.
	RefusalsKept = 1024
)

// RefusedRequests remembers what Redis has just refused, so that a caller who goes on asking
// costs Redis next to nothing. It refuses nothing that Redis would admit: a refusal is
// repeated up to the moment that Redis named, counted from when Redis was asked, and for
// RefusalHeld at most.
type RefusedRequests [RefusalShards]refusalShard

// refusalShard has the refusals of the accounts whose ids end alike.
type refusalShard struct {
	mu   sync.Mutex
	Kept map[RefusedRequest]keptRefusal
}

// RefusedRequest is what was refused: an account's requests to an endpoint or, with an order,
// those that read it.
type RefusedRequest struct {
	Account  delivery.AccountID
	Endpoint Endpoint
	Order    delivery.OrderID
}

// keptRefusal is a refusal as Redis gave it. Its times are of this process's clock, which is
// monotonic: a difference between the clocks does not matter.
type keptRefusal struct {
	refusal  *delivery.Error
	quota    Quota
	answered time.Time
	until    time.Time // from here on Redis is asked again
}

func (r *RefusedRequests) shard(account delivery.AccountID) *refusalShard {
	return &r[account[len(account)-1]%RefusalShards] // the last byte of an id is random
}

// Keep remembers a refusal that Redis answered between asked and answered. Other errors are
// not kept.
func (r *RefusedRequests) Keep(key RefusedRequest, err error, quota Quota, asked, answered time.Time) {
	refusal, refused := errors.AsType[*delivery.Error](err)
	if !refused {
		return
	}

	held := RefusalHeld
	switch refusal.Code {
	case delivery.CodeAccountSuspended:
	case delivery.CodeRateLimited:
		// Redis rounds the wait up to a millisecond.
		held = min(held, refusal.RetryAfter-time.Millisecond)
	default:
		return
	}

	r.shard(key.Account).keep(key, keptRefusal{
		refusal:  refusal,
		quota:    quota,
		answered: answered,
		until:    asked.Add(held),
	})
}

// Find returns the refusal of a request that is to be repeated at now. A nil error means that Redis
// has to decide.
func (r *RefusedRequests) Find(key RefusedRequest, now time.Time) (Quota, error) {
	found, isKept := r.shard(key.Account).find(key, now)
	if !isKept {
		return Quota{}, nil
	}

	repeated := *found.refusal
	if repeated.RetryAfter > 0 {
		repeated.RetryAfter -= max(now.Sub(found.answered), 0)
	}

	return found.quota, &repeated
}

// forget lets Redis decide an account's next requests, whatever it has refused.
func (r *RefusedRequests) forget(account delivery.AccountID) { r.shard(account).forget(account) }

func (s *refusalShard) keep(key RefusedRequest, refusal keptRefusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	core.Remember(&s.Kept, RefusalsKept, key, refusal)
}

// find returns a refusal that is to be repeated at now, and drops one whose time is over.
func (s *refusalShard) find(key RefusedRequest, now time.Time) (keptRefusal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, isKept := s.Kept[key]
	if !isKept {
		return keptRefusal{}, false
	}

	if !now.Before(found.until) {
		delete(s.Kept, key)
		return keptRefusal{}, false
	}

	return found, true
}

func (s *refusalShard) forget(account delivery.AccountID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.Kept {
		if key.Account == account {
			delete(s.Kept, key)
		}
	}
}

// Forget lets Redis decide an account's next requests, whatever it has refused.
func (l *Limits) Forget(account delivery.AccountID) { l.refused.forget(account) }

// KeepRefusal remembers a refusal that Redis has just answered. asked is when the script was sent.
func (l *Limits) KeepRefusal(key RefusedRequest, refusal error, quota Quota, asked time.Time) {
	l.refused.Keep(key, refusal, quota, asked, l.core.LocalNow())
}

// Refused repeats the refusal of a request that Redis has just refused, an account's to an
// endpoint or, with an order's id, a read of that order. A nil error means that Redis has to decide.
//
// It does not call Redis. A RATE_LIMITED request counts as refused in the account's activity; one of
// a suspended account counts only in the total. So whoever calls it must know that the request is
// the account's own.
func (l *Limits) Refused(account delivery.AccountID, endpoint Endpoint, order delivery.OrderID) (Quota, error) {
	now := l.core.LocalNow()
	quota, err := l.refused.Find(RefusedRequest{Account: account, Endpoint: endpoint}, now)
	if err == nil && !order.IsZero() {
		quota, err = l.refused.Find(RefusedRequest{account, endpoint, order}, now)
	}

	if err != nil {
		l.Counts.request(account, delivery.CodeOf(err) == delivery.CodeRateLimited)
	}
	return quota, err
}
