package closing

import (
	"context"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// sealedRows tells whether what was booked of an order is what was sealed. Each day and each batch is
// read once.
type sealedRows struct {
	books   *Books
	decided *Log

	dayChanged   map[time.Time]bool // by day of a closing
	batchChanged map[uuid.UUID]bool // by batch of a correction
}

// wereChanged reports whether rows of the order's day, or of corrections of the order, are not what was sealed.
func (r *sealedRows) wereChanged(ctx context.Context, order archive.Place) (bool, error) {
	dayWasChanged, err := r.dayWasChanged(ctx, order.Day)
	if err != nil || dayWasChanged {
		return dayWasChanged, err
	}

	for _, e := range r.decided.correctionsOf(order.Order) {
		wasChanged, err := r.batchWasChanged(ctx, e)
		if err != nil || wasChanged {
			return wasChanged, err
		}
	}

	return false, nil
}

// dayWasChanged reports whether the rows of a closed day are not what was sealed.
func (r *sealedRows) dayWasChanged(ctx context.Context, day time.Time) (bool, error) {
	wasChanged, isKnown := r.dayChanged[day]
	if isKnown {
		return wasChanged, nil
	}

	closing := r.decided.Closing(MonthOf(day))
	if closing == nil { // before the first month that was closed
		return false, nil
	}

	sealed := closing.sealedDay(day)
	digest, err := r.books.archive.DigestBatchDay(ctx, closing.Batch, day, sealed.Orders.Rows+sealed.Late.Rows)
	if err != nil {
		return false, err
	}

	wasChanged = digest != sealed
	if r.dayChanged == nil {
		r.dayChanged = map[time.Time]bool{}
	}

	r.dayChanged[day] = wasChanged

	return wasChanged, nil
}

func (r *sealedRows) batchWasChanged(ctx context.Context, e *Entry) (bool, error) {
	wasChanged, isKnown := r.batchChanged[e.Batch]
	if isKnown {
		return wasChanged, nil
	}

	days, err := r.books.archive.DigestBatch(ctx, e.Batch, e.Digest.Rows)
	if err != nil {
		return false, err
	}

	wasChanged = archive.Sum(days) != e.Digest
	if r.batchChanged == nil {
		r.batchChanged = map[uuid.UUID]bool{}
	}

	r.batchChanged[e.Batch] = wasChanged

	return wasChanged, nil
}

// sealedDay returns the digest that was sealed of a day. A day without rows has a digest with the name of the
// day alone.
func (m *Manifest) sealedDay(day time.Time) archive.DayDigest {
	name := day.In(delivery.Istanbul).Format(time.DateOnly)
	for _, d := range m.Days {
		if d.Day == name {
			return d
		}
	}
	return archive.DayDigest{Day: name}
}
