package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
)

// fix repairs what can be repaired, and marks it. What Redis holds is stored again; rows
// are removed only where that does not help, because they claim a later version or lie
// elsewhere. Of what has left Redis nothing is ever removed.
func (r *Reconciler) fix(ctx context.Context, s *Scope, d *Day) error {
	repairable := differences{}
	for _, x := range d.Differences {
		if x.kind == held || x.kind == misplaced || x.kind == unknown && s.RemoveUnknown {
			repairable[x.Order] = x
		}
	}
	if err := r.storeAgain(ctx, repairable); err != nil {
		return err
	}
	left, _, err := r.recheck(ctx, s, d.Day, repairable)
	if err != nil {
		return err
	}
	if err := r.replace(ctx, left, repairable); err != nil {
		return err
	}
	if left, _, err = r.recheck(ctx, s, d.Day, left); err != nil {
		return err
	}
	for i := range d.Differences {
		x := &d.Differences[i]
		_, tried := repairable[x.Order]
		_, differs := left[x.Order]
		x.Fixed = tried && !differs
	}
	return nil
}

// storeAgain stores what Redis holds of these orders, and notes its version.
func (r *Reconciler) storeAgain(ctx context.Context, differing differences) error {
	for part := range slices.Chunk(differing.ids(), ordersAtOnce) {
		orders, err := r.read(ctx, part)
		if err != nil {
			return err
		}
		if err := r.store(ctx, orders); err != nil {
			return err
		}
		for _, o := range orders {
			x := differing[o.ID]
			x.version = o.Version
			differing[o.ID] = x
		}
	}
	return nil
}

func (r *Reconciler) store(ctx context.Context, orders []*delivery.Order) error {
	rows, err := export.History(ctx, r.ledger, orders)
	if err != nil {
		return err
	}
	return r.archive.InsertAgain(ctx, rows)
}

// replace removes the rows of orders that storing again has not repaired, wherever they
// lie, and stores what Redis holds of them. In between, reports miss these orders.
func (r *Reconciler) replace(ctx context.Context, differing, repairable differences) error {
	for part := range slices.Chunk(differing.ids(), ordersAtOnce) {
		orders, err := r.read(ctx, part)
		if err != nil {
			return err
		}
		right := make([]archive.Place, len(orders))
		for i, o := range orders {
			right[i] = archive.PlaceOf(o)
		}
		wrong, err := r.archive.Misplaced(ctx, right)
		if err != nil {
			return err
		}
		remove := slices.Concat(right, wrong)
		for _, id := range part {
			if x := differing[id]; x.kind == repairable[id].kind {
				remove = append(remove, x.Place)
			}
		}
		if err := r.exchange(ctx, remove, orders); err != nil {
			return err
		}
	}
	return nil
}

// exchangeTimeout is how long each half of an exchange may take once it has
// begun, whatever has become of the caller's context.
const exchangeTimeout = time.Minute

// exchange removes rows and stores orders, and is not interrupted in between. It stores
// even when the removal has failed: ClickHouse may go on with it. The orders are read again
// after the removal: they may have been changed and exported meanwhile. Of one that cannot
// be read any more, what was read before is stored.
func (r *Reconciler) exchange(ctx context.Context, remove []archive.Place, before []*delivery.Order) error {
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTimeout)
	failed := r.archive.Remove(removing, remove)
	cancel()
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTimeout)
	defer cancel()
	ids := make([]delivery.OrderID, len(before))
	for i, o := range before {
		ids[i] = o.ID
	}
	now, _, err := r.ledger.Orders.GetReadable(storing, ids)
	if err != nil {
		now = make([]*delivery.Order, len(before))
	}
	for i := range now {
		if now[i] == nil {
			now[i] = before[i]
		}
	}
	return errors.Join(failed, err, r.store(storing, now))
}
