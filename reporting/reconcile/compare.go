package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

const (
	// ordersAtOnce is how many orders are read from Redis together.
	ordersAtOnce = 1000
	// maxChecks is how often an order that keeps changing is compared.
	maxChecks = 4
	// exporterPause is the pause between two polls of the exporter's progress.
	exporterPause = 100 * time.Millisecond
)

// kind is what can be done about a difference.
type kind uint8

const (
	held      kind = iota // Redis holds the order: it can be exported again
	misplaced             // Redis holds it at another place: this row can go
	unknown               // Redis never had it, as far as it knows
	retired               // it has left Redis: ClickHouse has the only record
)

// suspect is an order that differed when it was compared.
type suspect struct {
	place   archive.Place
	kind    kind
	version uint64 // in Redis; 0: Redis does not hold it
	what    []string
}

// suspects are by order; of an order with several differing rows one is kept.
type suspects map[delivery.OrderID]suspect

func (s suspects) ids() []delivery.OrderID { return slices.Collect(maps.Keys(s)) }

// findings are the result of one comparison.
type findings struct {
	compared, retired int
	differing         suspects
	sums              sums
}

// walk compares what a selection finds in ClickHouse with the orders that belong
// at these places. Both sides are read in the same order, so that memory does
// not grow with the number of orders.
func (r *Reconciler) walk(ctx context.Context, selection archive.Selection, places []archive.Place) (*findings, error) {
	f := &findings{differing: suspects{}}
	slices.SortFunc(places, archive.ComparePlaces)
	held := &heldOrders{reconciler: r, places: places}
	// advance compares the held orders up to a stored one, and reports whether that
	// is held, too; nil: all that are left.
	advance := func(to *archive.Stored) (found bool, err error) {
		for {
			o, err := held.peek(ctx)
			if o == nil || err != nil {
				return false, err
			}
			order := -1
			if to != nil {
				order = archive.ComparePlaces(placeOf(o), to.Place)
			}
			if order > 0 {
				return false, nil
			}
			held.ahead = held.ahead[1:]
			if order == 0 {
				f.compare(o, to)
				return true, nil
			}
			f.missing(o)
		}
	}
	var others []*archive.Stored // of which Redis holds nothing at this place
	for stored, err := range r.archive.Stored(ctx, selection) {
		if err != nil {
			return nil, err
		}
		found, err := advance(stored)
		if err != nil {
			return nil, err
		}
		if found {
			continue
		}
		if others = append(others, stored); len(others) >= ordersAtOnce {
			if err := r.compareOthers(ctx, f, others); err != nil {
				return nil, err
			}
			others = others[:0]
		}
	}
	if _, err := advance(nil); err != nil {
		return nil, err
	}
	return f, r.compareOthers(ctx, f, others)
}

func placeOf(o *delivery.Order) archive.Place {
	return archive.Place{Account: o.Account, Day: archive.BusinessDay(o.CreatedAt), Order: o.ID}
}

// heldOrders reads orders from Redis in the order of their places.
type heldOrders struct {
	reconciler *Reconciler
	places     []archive.Place
	ahead      []*delivery.Order // read and not yet compared
}

// peek is the next order that Redis holds; nil at the end. One that was retired
// in between is passed over.
func (h *heldOrders) peek(ctx context.Context) (*delivery.Order, error) {
	for len(h.ahead) == 0 {
		if len(h.places) == 0 {
			return nil, nil
		}
		part := h.places[:min(len(h.places), ordersAtOnce)]
		h.places = h.places[len(part):]
		ids := make([]delivery.OrderID, len(part))
		for i, p := range part {
			ids[i] = p.Order
		}
		var err error
		if h.ahead, err = h.reconciler.read(ctx, ids); err != nil {
			return nil, err
		}
	}
	return h.ahead[0], nil
}

// read is those of the orders that Redis holds and that can be read; the others
// are reported at the end of the run.
func (r *Reconciler) read(ctx context.Context, ids []delivery.OrderID) ([]*delivery.Order, error) {
	orders, _, err := r.ledger.Orders.GetReadable(ctx, ids)
	return slices.DeleteFunc(orders, func(o *delivery.Order) bool { return o == nil }), err
}

func (f *findings) compare(o *delivery.Order, stored *archive.Stored) {
	f.compared++
	f.sums.addOrder(o)
	want := archive.OrderOf(o, nil)
	if differences := stored.Differences(&want, archive.EventsOf(o)); len(differences) > 0 {
		f.differing[o.ID] = suspect{place: stored.Place, version: o.Version, what: differences}
	}
}

func (f *findings) missing(o *delivery.Order) {
	f.compared++
	f.sums.addOrder(o)
	f.differing[o.ID] = suspect{place: placeOf(o), version: o.Version, what: []string{"it is not in ClickHouse"}}
}

// compareOthers checks rows for which Redis holds no order at this place.
func (r *Reconciler) compareOthers(ctx context.Context, f *findings, others []*archive.Stored) error {
	if len(others) == 0 {
		return nil
	}
	ids := make([]delivery.OrderID, len(others))
	for i, s := range others {
		ids[i] = s.Order
	}
	// Orders first: one that is retired in between is then still known.
	orders, unreadable, err := r.ledger.Orders.GetReadable(ctx, ids)
	if err != nil {
		return err
	}
	gone, err := r.ledger.Orders.Retired(ctx, ids)
	if err != nil {
		return err
	}
	for i, s := range others {
		x := suspect{place: s.Place}
		switch {
		case unreadable[s.Order] != nil:
			// Reported at the end of the run. The sums take ClickHouse's word.
			if f.sums.addStored(s) != nil {
				f.sums.open++ // no sums without it
			}
		case orders[i] != nil && placeOf(orders[i]) != s.Place:
			right := placeOf(orders[i])
			x.kind, x.what = misplaced, []string{"it belongs to account " + right.Account.String() + " and day " + right.Day.Format(time.DateOnly)}
		case orders[i] != nil:
			// Created since the index was made: it is compared next time.
		case gone[i]:
			f.retired++
			if x.kind, x.what = retired, s.Flaws(); len(x.what) == 0 {
				err = f.sums.addStored(s) // Flaws has tried it
			}
		default:
			x.kind, x.what = unknown, []string{"Redis never had it: " + s.Describe()}
		}
		if len(x.what) > 0 {
			f.differing[s.Order] = x
		}
	}
	return err
}

// recheck compares suspects until each has turned out to be equal, different or
// always changing. Before each round the exporter has passed what was in the
// streams after the one before, so what still differs then is not merely late.
func (r *Reconciler) recheck(ctx context.Context, s *Scope, d *Day, suspected suspects) error {
	for check := 1; len(suspected) > 0; check++ {
		if err := r.awaitExporter(ctx, s); err != nil {
			return err
		}
		differing, err := r.check(ctx, d.Day, suspected)
		if err != nil {
			return err
		}
		for id, before := range suspected {
			now, differs := differing[id]
			switch {
			case differs && now.version != before.version && check < maxChecks:
				suspected[id] = now
				continue
			case differs && now.version != before.version:
				d.Moving++
			case differs:
				d.Differences = append(d.Differences, Difference{Place: now.place, What: now.what, kind: now.kind, version: now.version})
			}
			delete(suspected, id)
		}
	}
	slices.SortFunc(d.Differences, func(a, b Difference) int { return archive.ComparePlaces(a.Place, b.Place) })
	return nil
}

// check compares some orders of a day.
func (r *Reconciler) check(ctx context.Context, day time.Time, suspected suspects) (suspects, error) {
	differing := suspects{}
	for part := range slices.Chunk(suspected.ids(), ordersAtOnce) {
		orders, err := r.read(ctx, part)
		if err != nil {
			return nil, err
		}
		var places []archive.Place
		for _, o := range orders {
			if p := placeOf(o); p.Day.Equal(day) {
				places = append(places, p)
			}
		}
		found, err := r.walk(ctx, archive.Selection{From: day, To: day, Orders: part}, places)
		if err != nil {
			return nil, err
		}
		maps.Copy(differing, found.differing)
	}
	return differing, nil
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
