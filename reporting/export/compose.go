package export

import (
	"context"
	"fmt"
	"maps"
	"slices"

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
	batch := new(composed)
	orders, err := batch.readOrders(ctx, l, entries)
	if err != nil {
		return nil, err
	}
	if batch.Orders, batch.stores, err = orderRows(ctx, l, orders); err != nil {
		return nil, err
	}
	byID := make(map[delivery.OrderID]*delivery.Order, len(orders))
	for _, o := range orders {
		byID[o.ID] = o
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

// ordersOf are the ids of the orders that the entries name, each once.
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

// readOrders reads every order that the entries name.
func (c *composed) readOrders(ctx context.Context, l *ledger.Ledger, entries []ledger.Entry) (orders []*delivery.Order, err error) {
	ids := ordersOf(entries)
	if len(ids) == 0 {
		return nil, nil
	}
	found, unreadable, err := l.Orders.GetReadable(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("reading %d orders: %w", len(ids), err)
	}
	c.unreadable = unreadable
	for i, o := range found {
		switch {
		case o != nil:
			orders = append(orders, o)
		case unreadable[ids[i]] == nil:
			c.missing = append(c.missing, ids[i])
		}
	}
	return orders, nil
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
