package closing

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// sealedRows tells whether what was booked of an order is what was sealed. Each day and each batch is
// read once.
type sealedRows struct {
	*Books
	log *Log

	days    map[time.Time]bool // whether a day of a closing was changed
	batches map[uuid.UUID]bool // whether the batch of a correction was
}

// wereChanged reports whether rows of the order's day, or of corrections of the order, are not what was sealed.
func (r *sealedRows) wereChanged(ctx context.Context, order archive.Place) (bool, error) {
	dayWasChanged, err := r.dayWasChanged(ctx, order.Day)
	if err != nil || dayWasChanged {
		return dayWasChanged, err
	}
	for _, e := range r.log.correctionsOf(order.Order) {
		wasChanged, err := r.batchWasChanged(ctx, e)
		if err != nil || wasChanged {
			return wasChanged, err
		}
	}
	return false, nil
}

// dayWasChanged reports whether the rows of a closed day are not what was sealed.
func (r *sealedRows) dayWasChanged(ctx context.Context, day time.Time) (bool, error) {
	wasChanged, isKnown := r.days[day]
	if isKnown {
		return wasChanged, nil
	}
	closing := r.log.Closing(MonthOf(day))
	if closing == nil { // before the first month that was closed
		return false, nil
	}

	digest, err := r.archive.DigestBatchDay(ctx, closing.Batch, day)
	if err != nil {
		return false, err
	}
	wasChanged = digest != closing.digestOf(day)
	if r.days == nil {
		r.days = map[time.Time]bool{}
	}
	r.days[day] = wasChanged
	return wasChanged, nil
}

func (r *sealedRows) batchWasChanged(ctx context.Context, e *Entry) (bool, error) {
	wasChanged, isKnown := r.batches[e.Batch]
	if isKnown {
		return wasChanged, nil
	}

	days, err := r.archive.DigestBatch(ctx, e.Batch)
	if err != nil {
		return false, err
	}
	wasChanged = archive.Sum(days) != e.Digest
	if r.batches == nil {
		r.batches = map[uuid.UUID]bool{}
	}
	r.batches[e.Batch] = wasChanged
	return wasChanged, nil
}

// digestOf returns the digest that a closing has of a day. Without rows it is the day alone.
func (m *Manifest) digestOf(day time.Time) archive.DayDigest {
	name := day.In(delivery.Istanbul).Format(time.DateOnly)
	for _, d := range m.Days {
		if d.Day == name {
			return d
		}
	}
	return archive.DayDigest{Day: name}
}

// correctionsOf returns the entries that have corrections of an order.
func (l *Log) correctionsOf(order delivery.OrderID) []*Entry {
	var found []*Entry
	for i := range l.Entries {
		corrects := slices.ContainsFunc(l.Entries[i].Corrections, func(c Correction) bool { return c.Order == order })
		if corrects {
			found = append(found, &l.Entries[i])
		}
	}
	return found
}
