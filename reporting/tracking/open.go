package tracking

import (
	"context"
	"errors"
	"time"

	"vendorapi/internal/delivery"
)

// linkLifetime is how long after its end an order is still shown: long enough
// that a customer sees in the evening or the next day what became of it, and
// no longer, because a forwarded link should not go on telling when somebody
// was at home.
const linkLifetime = 24 * time.Hour

// patience bounds the reads behind one page.
const patience = 5 * time.Second

// longestToken is more than a token with the longest kid has (86 characters).
const longestToken = 128

// result is what became of a request.
type result string

const (
	shown       result = "shown"
	unknown     result = "unknown"     // not a token of ours
	expired     result = "expired"     // genuine, and over
	unavailable result = "unavailable" // Redis does not answer
	failed      result = "failed"      // a record cannot be read
	gone        result = "gone"        // the asker did not wait
)

var results = []result{shown, unknown, expired, unavailable, failed, gone}

// open finds the order that a token stands for, and its store, which is nil when
// it cannot be read: the page does without. Nothing is read for a token that
// was not made with our keys.
func (p *Pages) open(ctx context.Context, token string, now time.Time) (*delivery.Order, *delivery.Store, result) {
	if len(token) > longestToken {
		return nil, nil, unknown
	}
	id, err := p.keys.Parse(token)
	if err != nil {
		return nil, nil, unknown
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o, err := p.ledger.Orders.Get(bounded, id)
	switch {
	case delivery.CodeOf(err) == delivery.CodeOrderNotFound:
		return nil, nil, expired // it was retired
	case err != nil:
		return nil, nil, p.failure(ctx, id, err)
	case o.Status.Terminal() && now.Sub(o.UpdatedAt()) > linkLifetime:
		return nil, nil, expired
	}
	store, err := p.ledger.Stores.Get(bounded, o.Account, o.ExternalStoreID)
	if errors.Is(err, delivery.ErrUnavailable) {
		return nil, nil, p.failure(ctx, id, err)
	}
	if err != nil {
		p.log.Warn("a tracking page without its store", "order", id.String(), "error", err)
		return o, nil, shown
	}
	return o, store, shown
}

// failure says what a failed read means, and logs it.
func (p *Pages) failure(ctx context.Context, id delivery.OrderID, err error) result {
	switch {
	case ctx.Err() != nil:
		return gone
	case errors.Is(err, delivery.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded):
		p.log.Warn("a tracking page cannot be answered", "error", err)
		return unavailable
	}
	p.log.Error("a tracking page failed", "order", id.String(), "error", err)
	return failed
}
