package export

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// composed are the rows of some entries, and what stood in their way.
type composed struct {
	archive.Batch
	missing    []delivery.OrderID         // orders that Redis does not hold
	unreadable map[delivery.OrderID]error // whose records cannot be read
	stores     []error                    // stores whose records cannot be read; their names stay empty
}

// compose makes one row of every order, of its latest version, and one of each event.
func compose(ctx context.Context, l *ledger.Ledger, entries []ledger.Entry) (*composed, error) {
	batch, ids := new(composed), ordersOf(entries)
	var orders []*delivery.Order
	var err error
	if len(ids) > 0 {
		if orders, batch.unreadable, err = l.Orders.GetReadable(ctx, ids); err != nil {
			return nil, fmt.Errorf("reading %d orders: %w", len(ids), err)
		}
	}
	byID := make(map[delivery.OrderID]*delivery.Order, len(orders))
	for i, o := range orders {
		switch id := ids[i]; {
		case o != nil:
			byID[id] = o
		case batch.unreadable[id] == nil:
			batch.missing = append(batch.missing, id)
		}
	}
	orders = slices.DeleteFunc(orders, func(o *delivery.Order) bool { return o == nil })
	if batch.Orders, batch.stores, err = orderRows(ctx, l, orders); err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		if e.Outcomes != nil {
			batch.Outcomes = append(batch.Outcomes, outcomeRows(e)...)
			continue
		}
		for _, event := range e.Events {
			o := byID[event.Order]
			switch {
			case o == nil:
			case !event.LateAt.IsZero():
				batch.Late = append(batch.Late, archive.LateDelivery{Account: o.Account, CreatedAt: o.CreatedAt,
					Order: o.ID, ReportedAt: event.LateAt})
			default:
				if row, ok := archive.EventOf(o, event.Version); ok {
					batch.Events = append(batch.Events, row)
				}
			}
		}
	}
	return batch, nil
}

func ordersOf(entries []ledger.Entry) (ids []delivery.OrderID) {
	seen := make(map[delivery.OrderID]bool, len(entries))
	for i := range entries {
		for _, event := range entries[i].Events {
			if id := event.Order; !seen[id] && !id.IsZero() {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// orderRows adds to each order its store's name and tax number as they are now. They stay
// empty without a readable record: the order's money belongs into the reports.
func orderRows(ctx context.Context, l *ledger.Ledger, orders []*delivery.Order) (rows []archive.Order, unreadable []error, err error) {
	unique := make(map[ledger.StoreName]bool)
	for _, o := range orders {
		unique[ledger.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}] = true
	}
	names := slices.Collect(maps.Keys(unique))
	stores, unreadable, err := l.Stores.GetAll(ctx, names)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %d stores: %w", len(names), err)
	}
	rows = make([]archive.Order, len(orders))
	for i, o := range orders {
		rows[i] = archive.OrderOf(o, stores[ledger.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}])
	}
	return rows, unreadable, nil
}

// outcomeRows names each line by its place in the stream, so that it is the same row
// however often it is exported. The two streams number their entries apart, so those of
// tries are marked; an earlier release did not.
func outcomeRows(e *ledger.Entry) []archive.Outcome {
	rows := make([]archive.Outcome, len(e.Outcomes))
	for i, r := range e.Outcomes {
		entry := e.ID
		if r.State == "retrying" {
			entry += "t"
		}
		rows[i] = archive.Outcome{
			Account: r.Account, At: r.At, EventID: r.EventID, Event: delivery.EventType(r.Event), State: r.State,
			Attempt: r.Attempt, HTTPStatus: r.HTTPStatus, Error: r.Error, Milliseconds: int(r.Millis),
			Replay: r.Replay, Probe: r.Probe, Partition: e.Partition, Entry: entry, Line: i + 1,
		}
		if id, err := delivery.ParseOrderID(r.OrderID); err == nil {
			rows[i].Order = id
		}
	}
	return rows
}

// Rebuilt is what a rebuild has stored so far.
type Rebuilt struct {
	Orders, Events, Late, Outcomes int
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
		done.Orders, done.Events = done.Orders+len(b.Orders), done.Events+len(b.Events)
		done.Late, done.Outcomes = done.Late+len(b.Late), done.Outcomes+len(b.Outcomes)
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
