package ledger

import (
	"context"
	"errors"

	"vendorapi/internal/delivery"
)

// Create answers with an order although Redis has not said that it has it.
func (l *Orders) Create(ctx context.Context, c *Creation) (Created, Quota, error) {
	created, quota, err := l.CreateOriginal(ctx, c)
	if errors.Is(err, delivery.ErrUnavailable) {
		return Created{Order: &c.order}, quota, nil
	}
	return created, quota, err
}
