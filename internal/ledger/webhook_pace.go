package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"vendorapi/internal/delivery"
)

// paced is an endpoint that takes only so many events a second: by its setting,
// or while it recovers (lua/gate.lua).
type paced struct {
	account delivery.AccountID
	rate    int // events a second
	could   int // how many could go now
}

// paceBurst is which part of a second's events may go at once; the dispatcher
// looks about so often.
const paceBurst = 5

// leasePaced asks the endpoint's pace how many events may go and takes those.
// What the pace allowed and another process took meanwhile is not sent later:
// the pace errs on the slow side.
func (l *core) leasePaced(ctx context.Context, r partition, p paced, g Grant) ([]*Delivery, error) {
	// With a burst of one the library never allows anything at 3, 5, 7 or 9 a second:
	// its times are rounded to less than one interval.
	limit := redis_rate.Limit{Rate: p.rate, Burst: max(2, p.rate/paceBurst), Period: time.Second}
	allowed, err := l.allowAtMost(ctx, r.prefix+"pace:"+p.account.String(), limit, min(p.could, g.Limit))
	if err != nil {
		return nil, fmt.Errorf("pace of an endpoint: %w", failure(err))
	}
	wait := time.Second / time.Duration(p.rate)
	if allowed.RetryAfter > 0 {
		wait = allowed.RetryAfter
	}
	leased, _, _, err := l.lease(ctx, r, g, p.account[:], allowed.Allowed, wait.Milliseconds()+1)
	return leased, err
}
