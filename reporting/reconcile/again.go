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

// looks is how often an order that keeps changing is looked at.
const looks = 4

// lookAgain looks at suspects until each has turned out to be equal, different
// or always in motion. Every look waits until the exporter has passed what was in
// the streams after the one before, so what still differs then is no matter of
// time.
func (r *Reconciler) lookAgain(ctx context.Context, s *Scope, d *Day, suspects map[delivery.OrderID]suspect) error {
	for look := 1; len(suspects) > 0; look++ {
		if err := r.awaitExporter(ctx, s); err != nil {
			return err
		}
		found, err := r.lookAt(ctx, d.Day, suspects)
		if err != nil {
			return err
		}
		for id, before := range suspects {
			now, differs := found.differing[id]
			switch {
			case differs && now.version != before.version && look < looks:
				suspects[id] = now
				continue
			case differs && now.version != before.version:
				d.Moving++
			case differs:
				d.Differences = append(d.Differences, Difference{Place: now.place, What: now.what, kind: now.kind, version: now.version})
			}
			delete(suspects, id)
		}
	}
	slices.SortFunc(d.Differences, func(a, b Difference) int { return archive.ComparePlaces(a.Place, b.Place) })
	return nil
}

// lookAt compares a few orders of a day.
func (r *Reconciler) lookAt(ctx context.Context, day time.Time, suspects map[delivery.OrderID]suspect) (*findings, error) {
	all := &findings{differing: make(map[delivery.OrderID]suspect)}
	for part := range slices.Chunk(idsOf(suspects), ordersAtOnce) {
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
		maps.Copy(all.differing, found.differing)
	}
	return all, nil
}

// exporterPause is the pause between two looks at the exporter's lag.
const exporterPause = 100 * time.Millisecond

// awaitExporter returns once everything that is in the streams now has been
// exported.
func (r *Reconciler) awaitExporter(ctx context.Context, s *Scope) error {
	mark, err := r.ledger.Streams.Mark(ctx, ledger.RoleExport)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(s.Patience); ; {
		passed, err := r.ledger.Streams.Passed(ctx, ledger.RoleExport, mark)
		if err != nil || passed {
			return err
		}
		if time.Now().After(deadline) {
			return r.behind(ctx, s)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(exporterPause):
		}
	}
}

func (r *Reconciler) behind(ctx context.Context, s *Scope) error {
	lag, err := r.ledger.Streams.Lag(ctx, ledger.RoleExport)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w by %d entries, the oldest of %s, and does not catch up within %s: is it running?",
		ErrBehind, lag.Entries, lag.Oldest.In(delivery.Istanbul).Format(time.DateTime), s.Patience)
}
