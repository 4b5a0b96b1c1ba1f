package ledger

import (
	"errors"
	"sync"
	"time"

	"vendorapi/internal/delivery"
)

// refusalHeld is how long a refusal is repeated without asking Redis again: a change of an
// account's limits or suspension holds on every gateway within a second (design section 5).
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
type refusedRequests [refusalShards]struct {
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

func (r *refusedRequests) shard(key *refusedRequest) (*sync.Mutex, *map[refusedRequest]keptRefusal) {
	// The last byte of an account's id is random.
	s := &r[key.account[len(key.account)-1]%refusalShards]
	return &s.mu, &s.kept
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

	mu, kept := r.shard(&key)
	mu.Lock()
	defer mu.Unlock()
	remember(kept, refusalsKept, key, keptRefusal{refusal, quota, answered, asked.Add(held)})
}

// find returns the refusal of a request that is to be repeated at now; nil: ask Redis.
func (r *refusedRequests) find(key refusedRequest, now time.Time) (Quota, error) {
	mu, kept := r.shard(&key)
	mu.Lock()
	defer mu.Unlock()
	found, known := (*kept)[key]
	if !known {
		return Quota{}, nil
	}
	if !now.Before(found.until) {
		delete(*kept, key)
		return Quota{}, nil
	}

	again := *found.refusal
	if again.RetryAfter > 0 {
		again.RetryAfter -= max(now.Sub(found.answered), 0)
	}
	return found.quota, &again
}

// forget lets Redis decide an account's next requests, whatever it has refused.
func (r *refusedRequests) forget(account delivery.AccountID) {
	mu, kept := r.shard(&refusedRequest{account: account})
	mu.Lock()
	defer mu.Unlock()
	for key := range *kept {
		if key.account == account {
			delete(*kept, key)
		}
	}
}

// Refused repeats the refusal of a request that Redis has just refused, an account's to an
// endpoint or, with an order's id, a read of that order. It asks nobody. The request counts
// among the account's refused ones. nil: the request is to be decided by Redis.
func (l Limits) Refused(account delivery.AccountID, endpoint Endpoint, order delivery.OrderID) (Quota, error) {
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
