package reconcile

import (
	"context"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// lateComparison is what a comparison of a day's late deliveries has shown.
type lateComparison struct {
	differing []Difference
	digests   []archive.RowDigest // of those that are stored

	// isSteady is set if nothing differed at first sight.
	isSteady bool
}

// compareLate compares the late deliveries of a day's orders with what couriers reported, as far as Redis keeps it.
// What differs is compared again once the exporter has passed everything that was there.
func (r *Reconciler) compareLate(ctx context.Context, s *Scope, day time.Time) (lateComparison, error) {
	stored, digests, err := r.archive.LateOfDay(ctx, day)
	if err != nil {
		return lateComparison{}, err
	}
	differing, err := r.differingLate(ctx, s, day, stored, s.reports, s.reports)
	if err != nil {
		return lateComparison{}, err
	}
	if len(differing) == 0 {
		return lateComparison{digests: digests, isSteady: true}, nil
	}

	before, err := r.ledger.Monitor.LateReportsOfDays(ctx, day, day)
	if err != nil {
		return lateComparison{}, err
	}
	if err := r.awaitExporter(ctx, s); err != nil {
		return lateComparison{}, err
	}
	stored, digests, err = r.archive.LateOfDay(ctx, day)
	if err != nil {
		return lateComparison{}, err
	}
	after, err := r.ledger.Monitor.LateReportsOfDays(ctx, day, day)
	if err != nil {
		return lateComparison{}, err
	}
	differing, err = r.differingLate(ctx, s, day, stored, before, after)
	return lateComparison{differing: differing, digests: digests}, err
}

// differingLate returns reports from before stored was read that are not in it, and those in stored that nobody has
// reported, as Redis says after it was read.
func (r *Reconciler) differingLate(ctx context.Context, s *Scope, day time.Time, stored []archive.LateDelivery, before, after *ledger.LateReports) ([]Difference, error) {
	var differing []Difference
	isStored := map[subject]bool{}
	for _, d := range stored {
		isStored[lateSubject(d.Order, d.ReportedAt)] = true
		isProven := after.Has(d.Order, d.ReportedAt) || after.MayBeDropped(d.Order, d.ReportedAt)
		if !isProven && s.includes(d.Account) {
			place := archive.Place{Account: d.Account, Day: day, Order: d.Order}
			differing = append(differing, Difference{
				Place: place, kind: lateUnknown, late: d.ReportedAt,
				What: []string{"no courier has reported its late delivery of " + lateText(d.ReportedAt)},
			})
		}
	}

	missing := map[delivery.OrderID][]time.Time{}
	for order, at := range before.All() {
		if !isStored[lateSubject(order, at)] {
			missing[order] = append(missing[order], at)
		}
	}
	places, err := r.placesOf(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, place := range places {
		isOfDay := place.Day.Equal(day) && s.includes(place.Account)
		if !isOfDay {
			continue
		}
		for _, at := range missing[place.Order] {
			differing = append(differing, Difference{
				Place: place, kind: lateMissing, late: at,
				What: []string{"its late delivery of " + lateText(at) + " is not in ClickHouse"},
			})
		}
	}
	return differing, nil
}

// placesOf returns where orders are: as Redis says or, of those that have left it, ClickHouse. An order that neither
// knows is left out.
func (r *Reconciler) placesOf(ctx context.Context, orders map[delivery.OrderID][]time.Time) ([]archive.Place, error) {
	ids := make([]delivery.OrderID, 0, len(orders))
	for id := range orders {
		ids = append(ids, id)
	}

	var places []archive.Place
	for part := range slices.Chunk(ids, ordersAtOnce) {
		held, err := r.read(ctx, part)
		if err != nil {
			return nil, err
		}
		isHeld := map[delivery.OrderID]bool{}
		for _, o := range held {
			places = append(places, archive.PlaceOf(o))
			isHeld[o.ID] = true
		}

		gone := slices.DeleteFunc(part, func(id delivery.OrderID) bool { return isHeld[id] })
		stored, err := r.archive.PlacesOf(ctx, gone)
		if err != nil {
			return nil, err
		}
		places = append(places, stored...)
	}
	return places, nil
}

// fixLate stores late deliveries that are missing, and removes those that nobody has reported, if they may be
// removed. It marks what it has repaired.
func (r *Reconciler) fixLate(ctx context.Context, s *Scope, d *Day) error {
	var missing, removable []archive.LateDelivery
	for i := range d.Differences {
		x := &d.Differences[i]
		late := archive.LateDelivery{Account: x.Account, CreatedAt: x.Day, Order: x.Order, ReportedAt: x.late}
		switch {
		case x.kind == lateMissing:
			missing = append(missing, late)
		case x.kind == lateUnknown && s.removable[x.subject()]:
			removable = append(removable, late)
		}
	}
	if len(missing)+len(removable) == 0 {
		return nil
	}

	if err := r.archive.RemoveLate(ctx, removable); err != nil {
		return err
	}
	if err := r.archive.InsertAgain(ctx, &archive.Batch{Late: missing}); err != nil {
		return err
	}
	left, err := r.compareLate(ctx, s, d.Day)
	if err != nil {
		return err
	}
	stillDiffers := map[subject]bool{}
	for i := range left.differing {
		stillDiffers[left.differing[i].subject()] = true
	}
	for i := range d.Differences {
		x := &d.Differences[i]
		if !x.late.IsZero() {
			x.Fixed = !stillDiffers[x.subject()]
		}
	}
	return nil
}

// subject is what a difference is about: an order, or a late delivery of it.
type subject struct {
	order delivery.OrderID
	late  int64 // when the late delivery was reported, in milliseconds since 1970; 0: about the order itself
}

func (d *Difference) subject() subject {
	if d.late.IsZero() {
		return subject{order: d.Order}
	}
	return lateSubject(d.Order, d.late)
}

func lateSubject(order delivery.OrderID, at time.Time) subject {
	return subject{order: order, late: at.UnixMilli()}
}

func lateText(at time.Time) string { return at.In(delivery.Istanbul).Format(time.DateTime) }
