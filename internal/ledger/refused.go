package ledger

import (
	"errors"
	"sync"
	"time"

	"vendorapi/internal/delivery"
)

// refusalHeld is how long a refusal is repeated without asking Redis again: a change of an
// account's limits or suspension holds on every gateway within a second (decisions, "Private APIs").
const refusalHeld = time.Second

const (
	refusalShards = 64
	// refusalsKept bounds a shard. A full one is emptied, which costs one script a refusal.
	refusalsKept = 1024
)

// refusedRequests remembers what Redis has just refused, so that a caller who goes on asking
// costs Redis next to nothing. It refuses nothing that Redis would admit: a refusal is
// repeated up to the moment that Redis named, counted from when Redis was asked, and for
// refusalHeld at most.
type refusedRequests [refusalShards]refusalShard

// refusalShard has the refusals of the accounts whose ids end alike.
type refusalShard struct {
	mu   sync.Mutex
	kept map[refusedRequest]keptRefusal
}

// refusedRequest is what was refused: an account's requests to an endpoint or, with an order,
// those that read it.
type refusedRequest struct {
	account  delivery.AccountID
	endpoint Endpoint
	order    delivery.OrderID
}

// keptRefusal is a refusal as Redis gave it. Its times are of this process's clock, which is
// monotonic: a difference between the clocks does not matter.
type keptRefusal struct {
	refusal  *delivery.Error
	quota    Quota
	answered time.Time
	until    time.Time // from here on Redis is asked again
}

func (r *refusedRequests) shard(account delivery.AccountID) *refusalShard {
	return &r[account[len(account)-1]%refusalShards] // the last byte of an id is random
}

// keep remembers a refusal that Redis answered between asked and answered. Other errors are
// not kept.
func (r *refusedRequests) keep(key refusedRequest, err error, quota Quota, asked, answered time.Time) {
	refusal, refused := errors.AsType[*delivery.Error](err)
	if !refused {
		return
	}

	held := refusalHeld
	switch refusal.Code {
	case delivery.CodeAccountSuspended:
	case delivery.CodeRateLimited:
		// Redis rounds the wait up to a millisecond.
		held = min(held, refusal.RetryAfter-time.Millisecond)
	default:
		return
	}

	r.shard(key.account).keep(key, keptRefusal{
		refusal:  refusal,
		quota:    quota,
		answered: answered,
		until:    asked.Add(held),
	})
}

// find returns the refusal of a request that is to be repeated at now. A nil error means that Redis
// has to decide.
func (r *refusedRequests) find(key refusedRequest, now time.Time) (Quota, error) {
	found, isKept := r.shard(key.account).find(key, now)
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
func (r *refusedRequests) forget(account delivery.AccountID) { r.shard(account).forget(account) }

func (s *refusalShard) keep(key refusedRequest, refusal keptRefusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	remember(&s.kept, refusalsKept, key, refusal)
}

// find returns a refusal that is to be repeated at now, and drops one whose time is over.
func (s *refusalShard) find(key refusedRequest, now time.Time) (keptRefusal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, isKept := s.kept[key]
	if !isKept {
		return keptRefusal{}, false
	}

	if !now.Before(found.until) {
		delete(s.kept, key)
		return keptRefusal{}, false
	}

	return found, true
}

func (s *refusalShard) forget(account delivery.AccountID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.kept {
		if key.account == account {
			delete(s.kept, key)
		}
	}
}

// Refused repeats the refusal of a request that Redis has just refused, an account's to an
// endpoint or, with an order's id, a read of that order. A nil error means that Redis has to decide.
//
// It does not call Redis. A RATE_LIMITED request counts as refused in the account's activity; one of
// a suspended account counts only in the total. So whoever calls it must know that the request is
// the account's own.
func (l *Limits) Refused(account delivery.AccountID, endpoint Endpoint, order delivery.OrderID) (Quota, error) {
	now := l.now()
	quota, err := l.refused.find(refusedRequest{account: account, endpoint: endpoint}, now)
	if err == nil && !order.IsZero() {
		quota, err = l.refused.find(refusedRequest{account, endpoint, order}, now)
	}

	if err != nil {
		l.activity.request(account, delivery.CodeOf(err) == delivery.CodeRateLimited)
	}
	return quota, err
}
