package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// Rebuilt is what a rebuild has stored so far.
type Rebuilt struct {
	Orders, Events, Late, Outcomes int
}

func (r *Rebuilt) add(b *archive.Batch) {
	r.Orders += len(b.Orders)
	r.Events += len(b.Events)
	r.Late += len(b.Late)
	r.Outcomes += len(b.Outcomes)
}

// Rebuild stores again all that Redis still holds of orders created at or after from: the
// orders with their history, and from the streams, which reach back for a shorter time,
// late deliveries and outcomes of webhooks. It may run beside exporters and be repeated.
// progress is called after every batch. The error at the end names orders that cannot be
// read.
func Rebuild(ctx context.Context, l *ledger.Ledger, a *archive.Archive, from time.Time, progress func(Rebuilt)) (Rebuilt, error) {
	var done Rebuilt
	store := func(b *archive.Batch) error {
		if err := a.InsertAgain(ctx, b); err != nil {
			return fmt.Errorf("storing %d rows in ClickHouse: %w", b.Rows(), err)
		}
		done.add(b)
		progress(done)
		return nil
	}
	var waiting []*delivery.Order
	flush := func() error {
		b, err := History(ctx, l, waiting)
		waiting = waiting[:0]
		if err != nil {
			return err
		}
		return store(b)
	}
	var failed error
	unreadable := l.Orders.Each(ctx, func(orders []*delivery.Order) error {
		for _, o := range orders {
			if !o.CreatedAt.Before(from) {
				waiting = append(waiting, o)
			}
		}
		if len(waiting) < entriesAtOnce/2 {
			return nil
		}
		failed = flush()
		return failed
	})
	if failed != nil || errors.Is(unreadable, delivery.ErrUnavailable) {
		return done, unreadable
	}
	if err := flush(); err != nil {
		return done, err
	}
	err := l.Streams.EachEntry(ctx, ledger.RoleExport, from, func(entries []ledger.Entry) error {
		besides := entries[:0]
		for _, e := range entries {
			e.Events = slices.DeleteFunc(e.Events, func(event ledger.Event) bool { return event.LateAt.IsZero() })
			if e.Outcomes != nil || len(e.Events) > 0 {
				besides = append(besides, e)
			}
		}
		b, err := compose(ctx, l, besides)
		if err != nil {
			return err
		}
		return store(&b.Batch)
	})
	if err != nil {
		return done, err
	}
	return done, unreadable
}

// History is the rows of orders with all of their events.
func History(ctx context.Context, l *ledger.Ledger, orders []*delivery.Order) (*archive.Batch, error) {
	rows, _, err := orderRows(ctx, l, orders)
	if err != nil {
		return nil, err
	}
	b := &archive.Batch{Orders: rows}
	for _, o := range orders {
		b.Events = append(b.Events, archive.EventsOf(o)...)
	}
	return b, nil
}
