package ledger

import (
	"context"
	"fmt"

	"vendorapi/internal/delivery"
)

// WindowUse is a limit and how much of it is used. Window.Count less Used is how
// many requests pass now; Used may be above a limit that was just lowered. A
// zero Window.Count: there is no such limit.
type WindowUse struct {
	Window delivery.Window
	Used   int
}

// EndpointUse is how much of an endpoint's limits an account has used.
//
// The stores' Sustained is a bucket, which is no window of its limit's figures:
// it holds Burst.Count requests and is refilled at the sustained rate. It is
// shown as what it comes to: at most Window.Count requests, a full one is empty
// again after Window.Seconds. Used is its debt in whole requests, the last one
// that has begun to be paid off included.
type EndpointUse struct {
	Endpoint         Endpoint
	Sustained, Burst WindowUse
}

// endpointNames are the names of delivery.Limits' fields in JSON.
var endpointNames = [endpoints]string{"orders", "orderStatus", "cancel", "stores", "token"}

// String is orders, orderStatus, cancel, stores or token.
func (e Endpoint) String() string {
	if e >= endpoints {
		return fmt.Sprintf("Endpoint(%d)", uint8(e))
	}
	return endpointNames[e]
}

// useSize is one ring's part of the reply of lua/usage.lua.
const useSize = 1 + 6*4

// Usage tells how much of every endpoint's limits each account has used, as the
// next request would find it, in one round trip. It counts nothing and writes
// nothing. The use of an unknown account is nil in its place.
func (l Monitor) Usage(ctx context.Context, accounts []delivery.AccountID) ([][]EndpointUse, error) {
	calls := make([]call, len(accounts))
	for i, id := range accounts {
		r := l.partitionOf(id)
		for e := range endpoints {
			calls[i].keys = append(calls[i].keys, r.ring(e, id))
		}
	}
	replies, err := l.runAll(ctx, l.scripts.usage, calls)
	if err != nil {
		return nil, err
	}
	uses := make([][]EndpointUse, len(accounts))
	for i, reply := range replies {
		text, err := reply.Text()
		if err != nil {
			return nil, fmt.Errorf("script usage: %w", err)
		}
		if text == "" {
			continue
		}
		if len(text) != int(endpoints)*useSize {
			return nil, fmt.Errorf("script usage answered %d bytes", len(text))
		}
		f := fields{rest: text}
		for e := range endpoints {
			uses[i] = append(uses[i], f.endpointUse(e))
		}
	}
	return uses, nil
}

func (f *fields) endpointUse(e Endpoint) EndpointUse {
	bucket := f.byte()&ringBucket != 0
	u := EndpointUse{Endpoint: e, Sustained: f.windowUse(), Burst: f.windowUse()}
	if bucket {
		refill, depth := u.Sustained.Window, u.Burst.Window.Count
		u.Sustained.Window = delivery.Window{Count: depth, Seconds: (depth*refill.Seconds + refill.Count - 1) / refill.Count}
	}
	return u
}

func (f *fields) windowUse() WindowUse {
	return WindowUse{Window: delivery.Window{Count: int(f.uint32()), Seconds: int(f.uint32())}, Used: int(f.uint32())}
}
