package export

import (
	"context"
	"fmt"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// compose makes the rows of some entries: of every order named its latest
// version, once, and each event. missing are orders that Redis does not hold.
func compose(ctx context.Context, l *ledger.Ledger, entries []ledger.Entry) (batch *archive.Batch, missing []delivery.OrderID, err error) {
	orders, missing, err := readOrders(ctx, l, entries)
	if err != nil {
		return nil, nil, err
	}
	batch = new(archive.Batch)
	if batch.Orders, err = orderRows(ctx, l, orders); err != nil {
		return nil, nil, err
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
		o := byID[e.Event.Order]
		switch {
		case o == nil:
		case !e.Event.LateAt.IsZero():
			batch.Late = append(batch.Late, archive.LateDelivery{Account: o.Account, CreatedAt: o.CreatedAt,
				Order: o.ID, ReportedAt: e.Event.LateAt})
		default:
			if event, ok := archive.EventOf(o, e.Event.Version); ok {
				batch.Events = append(batch.Events, event)
			}
		}
	}
	return batch, missing, nil
}

// readOrders reads every order that the entries name, once.
func readOrders(ctx context.Context, l *ledger.Ledger, entries []ledger.Entry) (orders []*delivery.Order, missing []delivery.OrderID, err error) {
	ids := make([]delivery.OrderID, 0, len(entries))
	seen := make(map[delivery.OrderID]struct{}, len(entries))
	for i := range entries {
		id := entries[i].Event.Order
		if _, again := seen[id]; again || id.IsZero() {
			continue
		}
		seen[id] = struct{}{}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, nil, nil
	}
	found, err := l.Orders(ctx, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %d orders: %w", len(ids), err)
	}
	orders = found[:0]
	for i, o := range found {
		if o == nil {
			missing = append(missing, ids[i])
		} else {
			orders = append(orders, o)
		}
	}
	return orders, missing, nil
}

// orderRows adds to each order its store's name and tax number as they are now.
func orderRows(ctx context.Context, l *ledger.Ledger, orders []*delivery.Order) ([]archive.Order, error) {
	var names []ledger.StoreName
	seen := make(map[ledger.StoreName]struct{})
	for _, o := range orders {
		name := ledger.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}
		if _, again := seen[name]; !again {
			seen[name] = struct{}{}
			names = append(names, name)
		}
	}
	stores, err := l.Stores(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("reading %d stores: %w", len(names), err)
	}
	rows := make([]archive.Order, len(orders))
	for i, o := range orders {
		rows[i] = archive.OrderOf(o, stores[ledger.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}])
	}
	return rows, nil
}

// outcomeRows names each line by its place in the stream, so that the same line
// is the same row whoever exports it how often.
func outcomeRows(e *ledger.Entry) []archive.Outcome {
	rows := make([]archive.Outcome, len(e.Outcomes.Records))
	for i, r := range e.Outcomes.Records {
		rows[i] = archive.Outcome{
			Account: e.Outcomes.Account, At: r.At, EventID: r.EventID, Event: delivery.EventType(r.Event), State: r.State,
			Attempt: r.Attempt, HTTPStatus: r.HTTPStatus, Error: r.Error, Milliseconds: int(r.Millis),
			Replay: r.Replay, Probe: r.Probe, Partition: e.Partition, Entry: e.ID, Line: i + 1,
		}
		if id, err := delivery.ParseOrderID(r.OrderID); err == nil {
			rows[i].Order = id
		}
	}
	return rows
}
