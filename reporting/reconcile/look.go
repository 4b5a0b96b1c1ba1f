package reconcile

import (
	"context"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// ordersAtOnce is how many orders are read from Redis together.
const ordersAtOnce = 1000

// kind is what can be done about a difference.
type kind uint8

const (
	held    kind = iota // Redis holds the order: it can be exported anew
	strayed             // Redis holds it at another place: this row can go
	unknown             // Redis never had it, as far as it knows
	retired             // it has left Redis: ClickHouse has the only record
)

// suspect is an order that differed in a look.
type suspect struct {
	place   archive.Place
	kind    kind
	version uint64 // in Redis; 0: Redis does not hold it
	what    []string
}

// findings are what a look has found.
type findings struct {
	compared, retired int
	differing         map[delivery.OrderID]suspect
	sums              sums
}

// walk compares what a selection finds in ClickHouse with the orders that belong
// at these places. Both sides are walked in the same order, so that memory does
// not grow with the number of orders.
func (r *Reconciler) walk(ctx context.Context, selection archive.Selection, places []archive.Place) (*findings, error) {
	f := &findings{differing: make(map[delivery.OrderID]suspect)}
	slices.SortFunc(places, archive.ComparePlaces)
	held := &heldOrders{reconciler: r, places: places}
	var others []*archive.Stored // of which Redis holds nothing at this place
	for stored, err := range r.archive.Stored(ctx, selection) {
		if err != nil {
			return nil, err
		}
		for {
			o, err := held.next(ctx)
			if err != nil {
				return nil, err
			}
			if o == nil || archive.ComparePlaces(placeOf(o), stored.Place) > 0 {
				others = append(others, stored)
				break
			}
			held.take()
			if placeOf(o) == stored.Place {
				f.compare(o, stored)
				break
			}
			f.missing(o)
		}
		if len(others) >= ordersAtOnce {
			if err := r.judgeOthers(ctx, f, others); err != nil {
				return nil, err
			}
			others = others[:0]
		}
	}
	for {
		o, err := held.next(ctx)
		if err != nil {
			return nil, err
		}
		if o == nil {
			return f, r.judgeOthers(ctx, f, others)
		}
		held.take()
		f.missing(o)
	}
}

func placeOf(o *delivery.Order) archive.Place {
	return archive.Place{Account: o.Account, Day: archive.BusinessDay(o.CreatedAt), Order: o.ID}
}

// heldOrders reads orders from Redis in the order of their places, ahead of who
// takes them.
type heldOrders struct {
	reconciler *Reconciler
	places     []archive.Place
	ahead      []*delivery.Order
}

// next is the next order that Redis holds; nil at the end. One that was retired
// in between is passed over.
func (h *heldOrders) next(ctx context.Context) (*delivery.Order, error) {
	for len(h.ahead) == 0 && len(h.places) > 0 {
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
	if len(h.ahead) == 0 {
		return nil, nil
	}
	return h.ahead[0], nil
}

func (h *heldOrders) take() { h.ahead = h.ahead[1:] }

// read is those of the orders that Redis holds and that can be read; the others
// are told at the end of the run.
func (r *Reconciler) read(ctx context.Context, ids []delivery.OrderID) ([]*delivery.Order, error) {
	orders, _, err := r.ledger.Orders.GetReadable(ctx, ids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(orders, func(o *delivery.Order) bool { return o == nil }), nil
}

func (f *findings) compare(o *delivery.Order, stored *archive.Stored) {
	f.compared++
	f.sums.addOrder(o)
	want := archive.OrderOf(o, nil)
	differences := stored.Differences(&want, archive.EventsOf(o))
	if len(differences) == 0 {
		return
	}
	x := suspect{place: stored.Place, version: o.Version}
	for _, d := range differences {
		x.what = append(x.what, d.String())
	}
	f.differing[o.ID] = x
}

func (f *findings) missing(o *delivery.Order) {
	f.compared++
	f.sums.addOrder(o)
	f.differing[o.ID] = suspect{place: placeOf(o), version: o.Version, what: []string{"it is not in ClickHouse"}}
}

// judgeOthers looks at rows for which Redis holds no order at this place.
func (r *Reconciler) judgeOthers(ctx context.Context, f *findings, others []*archive.Stored) error {
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
			// It is told at the end of the run. The sums take ClickHouse's word.
			if f.sums.addStored(s) != nil {
				f.sums.open++ // no sums without it
			}
		case orders[i] != nil && placeOf(orders[i]) != s.Place:
			right := placeOf(orders[i])
			x.kind, x.what = strayed, []string{"it belongs to account " + right.Account.String() + " and day " + right.Day.Format(time.DateOnly)}
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
