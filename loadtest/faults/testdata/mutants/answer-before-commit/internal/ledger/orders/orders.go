package orders

import (
	"context"
	"errors"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/limits"
)

// Create answers with an order although Redis has not said that it has it.
func (l *Orders) Create(ctx context.Context, c *Creation) (Created, limits.Quota, error) {
	created, quota, err := l.CreateOriginal(ctx, c)
	if errors.Is(err, delivery.ErrUnavailable) {
		return Created{Order: &c.Order}, quota, nil
	}
	return created, quota, err
}
