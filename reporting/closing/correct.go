package closing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
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
		cmp.Or(u.BookedSays, nothing), cmp.Or(u.KnownSays, nothing), u.Why)
}

// String is for people.
func (c *Correction) String() string {
	text := fmt.Sprintf("order %s of %s, %s: %s", c.Order, c.Month, c.Cause, cmp.Or(c.From, nothing))
	if c.To != c.From {
		text += " is " + cmp.Or(c.To, nothing)
	}
	switch {
	case c.Cause == CauseLate:
		text += fmt.Sprintf(", %s TRY may have been collected", money(c.PossiblyCollected))
	case c.Expected != 0:
		text += fmt.Sprintf(", expected collections %s TRY", money(c.Expected))
	}
	return text
}

const nothing = "nothing" // what is said of an order that is not there

func money(kurus int64) string { return delivery.Money{Minor: kurus, Set: true}.String() }

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
		m := MonthOf(month)
		rows, err := b.changed(ctx, l, m, changed)
		if err != nil {
			return nil, nil, nil, err
		}
		for part := range slices.Chunk(all, ordersAtOnce) {
			why, err := b.unexplained(ctx, m, part)
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
	if is, looked := known[m]; looked {
		return is, nil
	}
	closed := slices.IndexFunc(l.Entries, func(e Entry) bool { return e.Kind == KindClose && !e.Month.Before(m.Time) })
	for i := range l.Entries {
		e := &l.Entries[i]
		if i != closed && !slices.ContainsFunc(e.Corrections, func(c Correction) bool { return c.Month == m }) {
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

// unexplained says of which orders of a month, and why, a person has to decide. A newer version explains itself if Redis
// says the same.
func (b *Books) unexplained(ctx context.Context, m Month, all []archive.ClosedDifference) (map[delivery.OrderID]string, error) {
	why := map[delivery.OrderID]string{}
	ids := make([]delivery.OrderID, len(all))
	for i := range all {
		ids[i] = all[i].Order
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
	return why, b.archive.Stored(ctx, archive.Selection{From: m.Time, To: m.LastDay(), Orders: ids}, func(s *archive.Stored) error {
		i := slices.Index(ids, s.Order)
		o := held[i]
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
		m.Corrections[i].describe(rows)
	}
	return nil
}

// describe fills in what the rows of its batch say.
func (c *Correction) describe(rows []archive.ClosedRow) {
	for _, r := range rows {
		if r.Order != c.Order || r.Cause != c.Cause || r.Sign == 0 && r.ReportedAt.UnixMilli() != c.ReportedAt {
			continue
		}
		c.Account, c.Month = r.Account, MonthOf(r.Day)
		c.Expected += r.Expected
		c.PossiblyCollected += r.Collection
		if r.Sign <= 0 {
			c.From = r.Status
		}
		if r.Sign >= 0 {
			c.To = r.Status
		}
	}
}

// NewNightly prepares what corrects closed months after the comparison with Redis.
func NewNightly(b *Books, reg prometheus.Registerer) func(context.Context) {
	m := service.NewMetrics(reg, nil)
	unexplained := m.Gauge("reporting_closed_orders_unexplained",
		"Orders of closed months that have changed in a way that a person has to decide on, at the last look.")
	completed := m.Gauge("reporting_closings_last_completed_timestamp_seconds",
		"When closed months were last compared with what orders say; 0: not since the start.")
	corrections := m.Counter("reporting_corrections_total", "Corrections of closed months that were booked.")
	return func(ctx context.Context) {
		booked, left, err := b.Correct(ctx, Automatic, "")
		corrections.Add(float64(len(booked)))
		for i := range booked {
			b.log.Info("a correction of a closed month was booked", "correction", booked[i].String())
		}
		if err != nil {
			if ctx.Err() == nil {
				b.log.Error("closed months could not be compared", "error", err)
			}
			return
		}
		for i := range left {
			b.log.Error("an order of a closed month has changed; `reporting month correct --order` books it", "order", left[i].String())
		}
		unexplained.Set(float64(len(left)))
		completed.SetToCurrentTime()
	}
}
