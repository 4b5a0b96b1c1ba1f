package reconcile

import (
	"context"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
)

// fix repairs what differs and marks it. The wrong rows are removed first,
// whatever their versions say; until the right ones are stored, for moments,
// reports miss these orders.
func (r *Reconciler) fix(ctx context.Context, d *Day) error {
	if len(d.Differences) == 0 {
		return nil
	}
	suspects := make(map[delivery.OrderID]suspect, len(d.Differences))
	places := make([]archive.Place, len(d.Differences))
	for i := range d.Differences {
		places[i] = d.Differences[i].Place
		suspects[places[i].Order] = suspect{place: places[i]}
	}
	for part := range slices.Chunk(places, ordersAtOnce) {
		if err := r.replace(ctx, part); err != nil {
			return err
		}
	}
	found, err := r.lookAt(ctx, d.Day, suspects)
	if err != nil {
		return err
	}
	for i := range d.Differences {
		_, differs := found.differing[d.Differences[i].Order]
		d.Differences[i].Fixed = !differs
	}
	return nil
}

// replace removes the rows at some places, and those that the orders which
// Redis holds have anywhere else, and stores these orders anew.
func (r *Reconciler) replace(ctx context.Context, places []archive.Place) error {
	ids := make([]delivery.OrderID, len(places))
	for i := range places {
		ids[i] = places[i].Order
	}
	orders, err := r.read(ctx, ids)
	if err != nil {
		return err
	}
	right := make([]archive.Place, len(orders))
	for i, o := range orders {
		right[i] = placeOf(o)
	}
	wrong, err := r.archive.Misplaced(ctx, right)
	if err != nil {
		return err
	}
	if err := r.archive.Remove(ctx, slices.Concat(places, right, wrong)); err != nil {
		return err
	}
	rows, err := export.History(ctx, r.ledger, orders)
	if err != nil {
		return err
	}
	return r.archive.InsertAnew(ctx, rows)
}
