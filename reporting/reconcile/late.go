package reconcile

import (
	"context"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/operations"
	"vendorapi/reporting/archive"
)

// compareLate compares the stored late deliveries of a day's orders with couriers' reports in Redis. If something
// differs, it waits until the exporter has passed what was in the streams, and compares once more.
func (r *Reconciler) compareLate(ctx context.Context, s *Scope, day time.Time) ([]Difference, error) {
	stored, err := r.archive.LateOfDays(ctx, day, day)
	if err != nil {
		return nil, err
	}
	differing, err := r.differingLate(ctx, s, day, stored, s.reports, s.reports)
	if err != nil || len(differing) == 0 {
		return nil, err
	}

	before, err := r.ledger.Monitor.LateReportsOfDays(ctx, day, day)
	if err != nil {
		return nil, err
	}
	if err := r.awaitExporter(ctx, s); err != nil {
		return nil, err
	}

	stored, err = r.archive.LateOfDays(ctx, day, day)
	if err != nil {
		return nil, err
	}
	after, err := r.ledger.Monitor.LateReportsOfDays(ctx, day, day)
	if err != nil {
		return nil, err
	}

	return r.differingLate(ctx, s, day, stored, before, after)
}

// LateDifferences returns the differences between the late deliveries of the local days from one to another, both
// included, and couriers' reports, by what Redis and ClickHouse have now.
func (r *Reconciler) LateDifferences(ctx context.Context, from, to time.Time) ([]Difference, error) {
	before, err := r.ledger.Monitor.LateReportsOfDays(ctx, from, to)
	if err != nil {
		return nil, err
	}
	all, err := r.archive.LateOfDays(ctx, from, to)
	if err != nil {
		return nil, err
	}

	// What was reported in between is in what is read after it.
	after := before
	isUnreported := func(d archive.LateDelivery) bool { return isContradicted(before, d.Order, d.ReportedAt) }
	if slices.ContainsFunc(all, isUnreported) {
		after, err = r.ledger.Monitor.LateReportsOfDays(ctx, from, to)
		if err != nil {
			return nil, err
		}
	}

	stored := map[time.Time][]archive.LateDelivery{}
	for _, d := range all {
		stored[d.CreatedAt] = append(stored[d.CreatedAt], d)
	}

	var differing []Difference
	for day := archive.BusinessDay(from); !day.After(to); day = day.AddDate(0, 0, 1) {
		ofDay, err := r.differingLate(ctx, &Scope{}, day, stored[day], before, after)
		if err != nil {
			return nil, err
		}
		differing = append(differing, ofDay...)
	}

	return differing, nil
}

// differingLate returns two kinds of differences: reports in before that are not stored, and stored late deliveries
// that after neither has nor may have dropped. before must be read before stored; after may be read later.
func (r *Reconciler) differingLate(ctx context.Context, s *Scope, day time.Time, stored []archive.LateDelivery, before, after *operations.LateReports) ([]Difference, error) {
	unstored, err := r.unstoredLate(ctx, s, day, stored, before)
	return append(unstored, unreportedLate(s, day, stored, after)...), err
}

// unreportedLate returns the stored late deliveries of which there should be a report and is none.
func unreportedLate(s *Scope, day time.Time, stored []archive.LateDelivery, reports *operations.LateReports) []Difference {
	var differing []Difference
	for _, d := range stored {
		if isContradicted(reports, d.Order, d.ReportedAt) && s.includes(d.Account) {
			differing = append(differing, Difference{
				Place: archive.Place{Account: d.Account, Day: day, Order: d.Order},
				kind:  lateUnknown, late: d.ReportedAt,
				What: []string{"no courier has reported its late delivery of " + lateText(d.ReportedAt)},
			})
		}
	}

	return differing
}

// isContradicted reports whether there should be a report of that time, and is none.
func isContradicted(reports *operations.LateReports, order delivery.OrderID, at time.Time) bool {
	return !reports.Has(order, at) && !reports.MayBeDropped(order, at)
}

// unstoredLate returns the reports about orders of a day that are not stored.
func (r *Reconciler) unstoredLate(ctx context.Context, s *Scope, day time.Time, stored []archive.LateDelivery, reports *operations.LateReports) ([]Difference, error) {
	isStored := map[subject]bool{}
	for _, d := range stored {
		isStored[lateSubject(d.Order, d.ReportedAt)] = true
	}

	// The ID's day is in UTC: that of a local day's orders is the day before, or the same.
	first, last := delivery.DayOf(day), delivery.DayOf(day.AddDate(0, 0, 1))
	missing := map[delivery.OrderID][]time.Time{}
	for order, at := range reports.All() {
		mayBeOfDay := order.Day() >= first && order.Day() <= last
		if mayBeOfDay && !isStored[lateSubject(order, at)] {
			missing[order] = append(missing[order], at)
		}
	}

	places, err := r.placesOf(ctx, slices.Collect(maps.Keys(missing)))
	if err != nil {
		return nil, err
	}

	var differing []Difference
	for _, place := range places {
		isOfDay := place.Day.Equal(day) && s.includes(place.Account)
		if !isOfDay {
			continue
		}

		for _, at := range missing[place.Order] {
			differing = append(differing, Difference{
				Place: place,
				kind:  lateMissing, late: at,
				What: []string{"its late delivery of " + lateText(at) + " is not in ClickHouse, or its order is not"},
			})
		}
	}

	return differing, nil
}

// placesOf returns the account and day of each order: from Redis, or from ClickHouse if the order has left Redis.
// Orders that neither knows are left out.
func (r *Reconciler) placesOf(ctx context.Context, orders []delivery.OrderID) ([]archive.Place, error) {
	var places []archive.Place
	for part := range slices.Chunk(orders, ordersAtOnce) {
		held, err := r.read(ctx, part)
		if err != nil {
			return nil, err
		}

		isHeld := map[delivery.OrderID]bool{}
		for _, o := range held {
			places = append(places, archive.PlaceOf(o))
			isHeld[o.ID] = true
		}

		var gone []delivery.OrderID
		for _, id := range part {
			if !isHeld[id] {
				gone = append(gone, id)
			}
		}

		stored, err := r.archive.PlacesOf(ctx, gone)
		if err != nil {
			return nil, err
		}

		places = append(places, stored...)
	}

	return places, nil
}

// fixLate stores missing late deliveries, and removes those that nobody reported and that were counted before
// (Scope.removable). It marks as Fixed what does not differ afterwards.
func (r *Reconciler) fixLate(ctx context.Context, s *Scope, d *Day) error {
	var missing, removable []archive.LateDelivery
	for i := range d.Differences {
		difference := &d.Differences[i]
		late := archive.LateDelivery{Account: difference.Account, CreatedAt: difference.Day, Order: difference.Order, ReportedAt: difference.late}
		switch {
		case difference.kind == lateMissing:
			missing = append(missing, late)
		case difference.kind == lateUnknown && s.removable[difference.subject()]:
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

	remaining, err := r.compareLate(ctx, s, d.Day)
	if err != nil {
		return err
	}

	stillDiffers := map[subject]bool{}
	for i := range remaining {
		stillDiffers[remaining[i].subject()] = true
	}

	for i := range d.Differences {
		difference := &d.Differences[i]
		if !difference.late.IsZero() {
			difference.Fixed = !stillDiffers[difference.subject()]
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
