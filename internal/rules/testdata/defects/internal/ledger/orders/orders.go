package orders

import (
	"context"
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/rules/broken"
)

func (l *Orders) Create(ctx context.Context, c *Creation) (Created, limits.Quota, error) {
	created, quota, err := l.CreateOriginal(ctx, c)
	switch broken.Rule {
	case "limits-and-idempotency/never-an-order-without-its": // it is accepted while nothing can be counted
		if errors.Is(err, delivery.ErrUnavailable) {
			return Created{Order: &c.Order}, quota, nil
		}
	case "what-the-service-does/facts-that/the-service-never-retries-a":
		for try := 0; errors.Is(err, delivery.ErrUnavailable) && try < 5; try++ {
			time.Sleep(time.Second)
			created, quota, err = l.CreateOriginal(ctx, c)
		}
	}
	return created, quota, err
}

func refusedReport(reply string, o *delivery.Order, u *delivery.Update) error {
	if broken.Rule == "fleets-and-operators/of-an-ended-order-one" {
		return nil
	}
	return refusedReportOriginal(reply, o, u)
}
