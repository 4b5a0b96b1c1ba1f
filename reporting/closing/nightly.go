package closing

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/service"
)

// Nightly corrects closed months after the comparison with Redis.
type Nightly struct {
	books *Books

	unexplained, completed prometheus.Gauge
	booked                 prometheus.Counter
}

// NewNightly prepares it.
func NewNightly(b *Books, reg prometheus.Registerer) *Nightly {
	m := service.NewMetrics(reg, nil)
	return &Nightly{books: b,
		unexplained: m.Gauge("reporting_closed_orders_unexplained",
			"Orders of closed months that have changed in a way that a person has to decide on, at the last look."),
		completed: m.Gauge("reporting_closings_last_completed_timestamp_seconds",
			"When closed months were last compared with what orders say; 0: not since the start."),
		booked: m.Counter("reporting_corrections_total", "Corrections of closed months that were booked."),
	}
}

// Run looks once.
func (n *Nightly) Run(ctx context.Context) {
	booked, left, err := n.books.Correct(ctx, Automatic, "")
	n.booked.Add(float64(len(booked)))
	for i := range booked {
		n.books.log.Info("a correction of a closed month was booked", "correction", booked[i].String())
	}
	if err != nil {
		if ctx.Err() == nil {
			n.books.log.Error("closed months could not be compared", "error", err)
		}
		return
	}
	for i := range left {
		n.books.log.Error("an order of a closed month has changed; `reporting month correct --order` books it", "order", left[i].String())
	}
	n.unexplained.Set(float64(len(left)))
	n.completed.SetToCurrentTime()
}
