package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
)

const (
	ordersAtOnce  = 1000
	maxChecks     = 4
	exporterPause = 100 * time.Millisecond
)

// kind is what can be done about a difference.
type kind uint8

const (
	held        kind = iota // Redis holds the order: it can be exported again
	misplaced               // Redis holds it at another place: this row can go
	unknown                 // Redis never had it, as far as it knows
	retired                 // it has left Redis: ClickHouse has the only record
	lateMissing             // a late delivery that Redis knows: it can be stored again
	lateUnknown             // a late delivery of which Redis should have the report, and has none
)

// differences are by order; of an order with several differing rows one is kept.
type differences map[delivery.OrderID]Difference

func (d differences) ids() []delivery.OrderID { return slices.Collect(maps.Keys(d)) }

type findings struct {
	compared, retired int
	differing         differences
	sums              sums

	digests []archive.RowDigest // of all orders that ClickHouse has
}

// walk compares the rows of one day with Redis, looks for those of the ids that ClickHouse lacks,
// and adds to the findings. Memory holds ordersAtOnce orders, and 32 bytes for each row.
func (r *Reconciler) walk(ctx context.Context, f *findings, selection archive.Selection, ids []delivery.OrderID) error {
	missing := make(map[delivery.OrderID]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}

	var stored []*archive.Stored
	err := r.archive.Stored(ctx, selection, func(one *archive.Stored) (err error) {
		stored = append(stored, one)
		if len(stored) == ordersAtOnce {
			err = r.compareStored(ctx, f, stored, missing)
			stored = stored[:0]
		}
		return err
	})

	if err == nil {
		err = r.compareStored(ctx, f, stored, missing)
	}

	if err != nil {
		return err
	}

	for part := range slices.Chunk(slices.Collect(maps.Keys(missing)), ordersAtOnce) {
		orders, err := r.read(ctx, part)
		if err != nil {
			return err
		}

		for _, o := range orders {
			if place := archive.PlaceOf(o); place.Day.Equal(selection.From) {
				f.compared++
				f.sums.add(o)
				f.differing[o.ID] = Difference{Place: place, version: o.Version, What: []string{"it is not in ClickHouse"}}
			}
		}
	}

	return nil
}

// read is those of the orders that Redis holds and that can be read; the others
// are reported at the end of the run.
func (r *Reconciler) read(ctx context.Context, ids []delivery.OrderID) ([]*delivery.Order, error) {
	orders, _, err := r.ledger.Orders.GetReadable(ctx, ids)
	return slices.DeleteFunc(orders, func(o *delivery.Order) bool { return o == nil }), err
}

func (r *Reconciler) compareStored(ctx context.Context, f *findings, stored []*archive.Stored, missing map[delivery.OrderID]bool) error {
	ids := make([]delivery.OrderID, len(stored))
	for i, s := range stored {
		ids[i] = s.Order
	}

	// Orders first: one that is retired in between is then still known.
	orders, unreadable, err := r.ledger.Orders.GetReadable(ctx, ids)
	if err != nil {
		return err
	}

	var absent []*archive.Stored
	for i, s := range stored {
		if s.HasOrder() {
			f.digests = append(f.digests, s.Digest)
		}

		o := orders[i]
		switch {
		case unreadable[s.Order] != nil:
			// Reported at the end of the run. The sums take ClickHouse's word.
			if f.addStored(s) != nil {
				f.sums.open++ // no sums without it
			}
		case o == nil:
			absent = append(absent, s)
		case archive.PlaceOf(o) != s.Place:
			right := archive.PlaceOf(o)
			f.differing[o.ID] = Difference{Place: s.Place, kind: misplaced,
				What: []string{"it belongs to account " + right.Account.String() + " and day " + right.Day.Format(time.DateOnly)}}
		default:
			delete(missing, o.ID)
			f.compared++
			f.sums.add(o)
			want := archive.OrderOf(o, nil)
			if what := s.Differences(&want, archive.EventsOf(o)); len(what) > 0 {
				f.differing[o.ID] = Difference{Place: s.Place, version: o.Version, What: what}
			}
		}
	}

	return r.checkAbsent(ctx, f, absent)
}

func (r *Reconciler) checkAbsent(ctx context.Context, f *findings, absent []*archive.Stored) error {
	ids := make([]delivery.OrderID, len(absent))
	for i, s := range absent {
		ids[i] = s.Order
	}

	gone, err := r.ledger.Orders.Retired(ctx, ids)
	if err != nil {
		return err
	}

	for i, s := range absent {
		x := Difference{Place: s.Place, kind: retired}
		if !gone[i] {
			x.kind, x.What = unknown, []string{"Redis never had it: " + s.Describe()}
		} else {
			f.retired++
			x.What = s.Flaws()
		}

		if len(x.What) > 0 {
			f.differing[s.Order] = x
		} else if err := f.addStored(s); err != nil {
			return err
		}
	}

	return nil
}

// addStored adds to the sums an order of which only ClickHouse has a readable record.
func (f *findings) addStored(s *archive.Stored) error {
	o, err := s.Summed()
	if err == nil {
		f.sums.add(o)
	}
	return err
}

// recheck compares suspects until each is known to be equal, different or always changing,
// and returns those that differ. Before each round the exporter passes what was in the
// streams after the one before, so what still differs is not merely late.
func (r *Reconciler) recheck(ctx context.Context, s *Scope, day time.Time, suspects differences) (differing differences, moving int, err error) {
	differing = differences{}
	suspects = maps.Clone(suspects)
	for check := 1; len(suspects) > 0; check++ {
		if err := r.awaitExporter(ctx, s); err != nil {
			return nil, 0, err
		}

		found := &findings{differing: differences{}}
		for ids := range slices.Chunk(suspects.ids(), ordersAtOnce) {
			if err := r.walk(ctx, found, archive.Selection{From: day, To: day, Orders: ids}, ids); err != nil {
				return nil, 0, err
			}
		}

		for id, before := range suspects {
			now, differs := found.differing[id]
			changed := differs && now.version != before.version
			if changed && check < maxChecks {
				suspects[id] = now
				continue
			}

			switch {
			case changed:
				moving++
			case differs:
				differing[id] = now
			}

			delete(suspects, id)
		}
	}

	return differing, moving, nil
}

func (d differences) sorted() []Difference {
	return slices.SortedFunc(maps.Values(d), func(a, b Difference) int {
		return cmp.Or(bytes.Compare(a.Account[:], b.Account[:]), bytes.Compare(a.Order[:], b.Order[:]))
	})
}

// awaitExporter returns once everything that is in the streams now has been
// exported; ErrBehind after the scope's timeout.
func (r *Reconciler) awaitExporter(ctx context.Context, s *Scope) error {
	mark, err := r.ledger.Streams.Mark(ctx, ledger.RoleExport)
	if err != nil {
		return err
	}

	for deadline := time.Now().Add(s.Timeout); ; {
		passed, err := r.ledger.Streams.Passed(ctx, ledger.RoleExport, mark)
		if err != nil || passed {
			return err
		}

		if time.Now().After(deadline) {
			lag, err := r.ledger.Streams.Lag(ctx, ledger.RoleExport)
			if err != nil {
				return err
			}
			return fmt.Errorf("%w by %d entries, the oldest of %s, and does not catch up within %s: is it running?",
				ErrBehind, lag.Entries, lag.Oldest.In(delivery.Istanbul).Format(time.DateTime), s.Timeout)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(exporterPause):
		}
	}
}

// fix repairs what can be repaired, and marks it. What Redis holds is stored again; rows
// are removed only where that does not help, because they claim a later version or lie
// elsewhere. Of what has left Redis nothing is ever removed.
func (r *Reconciler) fix(ctx context.Context, s *Scope, d *Day) error {
	repairable := differences{}
	for _, x := range d.Differences {
		if x.kind == held || x.kind == misplaced || x.kind == unknown && s.removable[x.subject()] {
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
	left, _, err = r.recheck(ctx, s, d.Day, left)
	if err != nil {
		return err
	}

	for i := range d.Differences {
		x := &d.Differences[i]
		if !x.late.IsZero() { // fixLate's
			continue
		}
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
	for i, o := range now {
		if o != nil {
			before[i] = o
		}
	}

	return errors.Join(failed, err, r.store(storing, before))
}
