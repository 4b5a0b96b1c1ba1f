package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// Causes of corrections.
const (
	CauseLate    = "late delivery" // reported after the order had failed or been cancelled
	CauseNewer   = "newer version"
	CauseAdded   = "added"   // the order was not there when the month was closed
	CauseRemoved = "removed" // it is not there any more
	CauseChanged = "changed" // without a newer version
)

const (
	ordersAtOnce = 500 // in an entry of the log
	ordersRead   = 10_000
	// Automatic is who books what explains itself.
	Automatic = "reporting"
)

// Unexplained is an order of a closed month whose change nobody has booked: it must be seen by a person.
type Unexplained struct {
	archive.ClosedDifference
	Why string
}

// String names the order and both sides.
func (u *Unexplained) String() string {
	return fmt.Sprintf("order %s of %s: booked is %s, orders says %s: %s", u.Order, u.Day.Format(time.DateOnly),
		orNothing(u.BookedSays), orNothing(u.KnownSays), u.Why)
}

// String is for people.
func (c *Correction) String() string {
	text := fmt.Sprintf("order %s of %s, %s: %s", c.Order, c.Month, c.Cause, orNothing(c.From))
	if c.To != c.From {
		text += " is " + orNothing(c.To)
	}
	switch {
	case c.Cause == CauseLate:
		text += fmt.Sprintf(", %s TRY may have been collected", money(c.PossiblyCollected))
	case c.Expected != 0:
		text += fmt.Sprintf(", expected collections %s TRY", money(c.Expected))
	}
	return text
}

func money(kurus int64) string {
	sign := ""
	if kurus < 0 {
		sign, kurus = "-", -kurus
	}
	return fmt.Sprintf("%s%d.%02d", sign, kurus/100, kurus%100)
}

func orNothing(says string) string {
	if says == "" {
		return "nothing"
	}
	return says
}

func causeOf(d *archive.ClosedDifference) string {
	switch {
	case !d.Booked:
		return CauseAdded
	case !d.Known:
		return CauseRemoved
	case d.KnownVersion > d.BookedVersion:
		return CauseNewer
	}
	return CauseChanged
}

// Correct looks for what has become of orders of closed months and books it in the month that is open: late
// deliveries, and newer versions of orders that Redis holds as well. Everything else is returned, and booked when a
// person names the orders. It may run in several processes at once.
func (b *Books) Correct(ctx context.Context, by, note string, named ...delivery.OrderID) (booked []Correction, left []Unexplained, err error) {
	done := map[delivery.OrderID]bool{} // what was booked here
	for {
		l, err := b.Read(ctx)
		if err != nil || l.Last == nil {
			return booked, nil, err
		}
		orders, late, unexplained, err := b.find(ctx, l, named, done)
		if err != nil {
			return booked, nil, err
		}
		if len(orders)+len(late) == 0 {
			return booked, unexplained, nil
		}
		m := &Manifest{Kind: KindCorrection, Month: MonthOf(b.now()), By: by, Note: note, Batch: uuid.New(), Posted: b.today().Format(time.DateOnly)}
		for _, d := range orders {
			m.Corrections = append(m.Corrections, Correction{Order: d.Order, Cause: causeOf(&d)})
		}
		for _, d := range late {
			m.Corrections = append(m.Corrections, Correction{Order: d.Order, Cause: CauseLate, ReportedAt: d.ReportedAt.UnixMilli()})
		}
		_, err = b.book(ctx, l, m, func(string) {}, func() error {
			if err := b.insertCorrections(ctx, &Entry{Manifest: *m}); err != nil {
				return err
			}
			return b.describe(ctx, m, orders)
		})
		if errors.Is(err, ErrChanged) {
			continue
		}
		if err != nil {
			return booked, unexplained, err
		}
		booked = append(booked, m.Corrections...)
		for _, d := range orders {
			done[d.Order] = true
		}
	}
}

// Unbooked is what Correct would find, and changes nothing: how much explains itself, at most ordersAtOnce, and what a
// person has to decide on.
func (b *Books) Unbooked(ctx context.Context) (explained int, left []Unexplained, err error) {
	l, err := b.Read(ctx)
	if err != nil {
		return 0, nil, err
	}
	orders, late, left, err := b.find(ctx, l, nil, nil)
	return len(orders) + len(late), left, err
}

// find lists what can be booked, at most ordersAtOnce, and what cannot. An order that was booked and still differs cannot:
// it would be booked without end. Nothing explains itself in a month of which rows were changed or removed.
func (b *Books) find(ctx context.Context, l *Log, named []delivery.OrderID, done map[delivery.OrderID]bool) (orders []archive.ClosedDifference, late []archive.LateDelivery, left []Unexplained, err error) {
	if late, err = b.archive.UnbookedLate(ctx, ordersAtOnce); err != nil {
		return nil, nil, nil, err
	}
	changed := map[Month]bool{}
	late = slices.DeleteFunc(late, func(d archive.LateDelivery) bool {
		is, failed := b.changed(ctx, l, MonthOf(d.CreatedAt), changed)
		err = errors.Join(err, failed)
		return is
	})
	if err != nil {
		return nil, nil, nil, err
	}
	months, err := b.archive.MonthsDiffering(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, month := range months {
		all, err := b.archive.DifferingIn(ctx, month, ordersRead)
		if err != nil {
			return nil, nil, nil, err
		}
		rows, err := b.changed(ctx, l, MonthOf(month), changed)
		if err != nil {
			return nil, nil, nil, err
		}
		for part := range slices.Chunk(all, ordersAtOnce) {
			why, err := b.unexplained(ctx, part)
			if err != nil {
				return nil, nil, nil, err
			}
			for _, d := range part {
				if rows {
					why[d.Order] = "rows of the closed month were changed or removed (`reporting month verify`)"
				}
				switch {
				case done[d.Order]:
					left = append(left, Unexplained{d, "it was booked just now and differs all the same: it has changed again, or rows were (`reporting month verify`)"})
				case why[d.Order] != "" && !slices.Contains(named, d.Order):
					left = append(left, Unexplained{d, why[d.Order]})
				case len(orders)+len(late) < ordersAtOnce:
					orders = append(orders, d)
				}
			}
		}
	}
	return orders, late, left, nil
}

// changed reports whether rows of a month are not those that were sealed; known keeps the answers.
func (b *Books) changed(ctx context.Context, l *Log, m Month, known map[Month]bool) (is bool, err error) {
	is, looked := known[m]
	closed := false
	for i := range l.Entries {
		e := &l.Entries[i]
		holds := e.Kind == KindClose && !closed && !e.Month.Before(m.Time)
		closed = closed || holds
		if looked || !holds && !slices.ContainsFunc(e.Corrections, func(c Correction) bool { return c.Month == m }) {
			continue
		}
		whole, err := b.whole(ctx, e)
		if err != nil {
			return false, err
		}
		is = is || !whole
	}
	known[m] = is
	return is, nil
}

// unexplained says of which orders, and why, a person has to decide. A newer version explains itself if Redis says the same.
func (b *Books) unexplained(ctx context.Context, all []archive.ClosedDifference) (map[delivery.OrderID]string, error) {
	why := map[delivery.OrderID]string{}
	ids := make([]delivery.OrderID, len(all))
	from, to := all[0].Day, all[0].Day
	for i := range all {
		ids[i] = all[i].Order
		if from.After(all[i].Day) {
			from = all[i].Day
		}
		if to.Before(all[i].Day) {
			to = all[i].Day
		}
		switch causeOf(&all[i]) {
		case CauseRemoved:
			why[ids[i]] = "it is not in ClickHouse any more"
		case CauseChanged:
			why[ids[i]] = "it has changed without a newer version"
		default:
			why[ids[i]] = "Redis does not hold it any more, so nothing confirms it"
		}
	}
	held, _, err := b.ledger.Orders.GetReadable(ctx, ids)
	if err != nil {
		return nil, err
	}
	byID := map[delivery.OrderID]*delivery.Order{}
	for _, o := range held {
		if o != nil {
			byID[o.ID] = o
		}
	}
	return why, b.archive.Stored(ctx, archive.Selection{From: from, To: to, Orders: ids}, func(s *archive.Stored) error {
		i := slices.Index(ids, s.Order)
		o := byID[s.Order]
		if o == nil || causeOf(&all[i]) == CauseChanged || s.Version != all[i].KnownVersion {
			return nil
		}
		row := archive.OrderOf(o, nil)
		if differences := s.Differences(&row, archive.EventsOf(o)); len(differences) > 0 {
			why[s.Order] = "Redis says something else: " + differences[0]
		} else {
			delete(why, s.Order)
		}
		return nil
	})
}

// insertCorrections stores the rows of a correction under its batch.
func (b *Books) insertCorrections(ctx context.Context, e *Entry) error {
	posted, err := time.ParseInLocation(time.DateOnly, e.Posted, delivery.Istanbul)
	if err != nil {
		return fmt.Errorf("posted: %w", err)
	}
	byCause := map[string][]delivery.OrderID{}
	var late []archive.LateDelivery
	for _, c := range e.Corrections {
		if c.Cause == CauseLate {
			late = append(late, archive.LateDelivery{Order: c.Order, ReportedAt: time.UnixMilli(c.ReportedAt)})
		} else {
			byCause[c.Cause] = append(byCause[c.Cause], c.Order)
		}
	}
	for cause, orders := range byCause {
		if err := b.archive.InsertCorrections(ctx, archive.Correction{Batch: e.Batch, Posted: posted, Cause: cause}, orders); err != nil {
			return err
		}
	}
	if len(late) == 0 {
		return nil
	}
	return b.archive.InsertLate(ctx, archive.Correction{Batch: e.Batch, Posted: posted, Cause: CauseLate}, late)
}

// describe fills in what the batch's rows say of each correction. An order that has changed since it was looked at
// is for the next time.
func (b *Books) describe(ctx context.Context, m *Manifest, orders []archive.ClosedDifference) error {
	rows, err := b.archive.ClosedRows(ctx, m.Batch)
	if err != nil {
		return err
	}
	for _, d := range orders {
		i := slices.IndexFunc(rows, func(r archive.ClosedRow) bool { return r.Order == d.Order && r.Sign == 1 })
		if d.Known && (i < 0 || rows[i].Version != d.KnownVersion) {
			return fmt.Errorf("%w: order %s has changed while it was corrected", delivery.ErrUnavailable, d.Order)
		}
	}
	for i := range m.Corrections {
		c := &m.Corrections[i]
		for _, r := range rows {
			if r.Order == c.Order && (r.Cause == CauseLate) == (c.Cause == CauseLate) && (r.Sign != 0 || r.ReportedAt.UnixMilli() == c.ReportedAt) {
				c.add(&r)
			}
		}
	}
	return nil
}

func (c *Correction) add(r *archive.ClosedRow) {
	c.Account, c.Month = r.Account, MonthOf(r.Day)
	c.Expected += r.Expected
	c.PossiblyCollected += r.Collection
	switch r.Sign {
	case -1:
		c.From = r.Status
	case 1:
		c.To = r.Status
	default:
		c.From, c.To = r.Status, r.Status
	}
}
