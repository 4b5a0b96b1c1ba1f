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
	ordersAtOnce = 500    // the most corrections in one entry of the log
	ordersRead   = 10_000 // the most differing orders of a month that one search reads
	// Automatic is the By of corrections that no person decided on.
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

// Corrected is what Correct, or Unbooked, found.
type Corrected struct {
	// Booked are the corrections that were booked.
	Booked []Correction

	// Explained counts the changes that Correct would book without a person, at most ordersAtOnce. Only
	// Unbooked sets it.
	Explained int

	// Left are the orders that a person has to decide on.
	Left []Unexplained
}

// Correct looks for what has become of orders of closed months and books it in the month that is open: late
// deliveries, and newer versions of orders that Redis holds as well. Everything else is returned, and booked when a
// person names the orders. It may run in several processes at once. What was booked before an error is returned with it.
func (b *Books) Correct(ctx context.Context, by, note string, named ...delivery.OrderID) (Corrected, error) {
	c := &corrector{Books: b, named: named, done: map[delivery.OrderID]bool{}}
	var result Corrected
	for {
		l, err := b.Read(ctx)
		if err != nil || l.Last == nil {
			return result, err
		}
		if err := l.settled(); err != nil {
			return result, err
		}

		found, err := c.find(ctx, l)
		if err != nil {
			return result, err
		}
		result.Left = found.left
		if found.isEmpty() {
			return result, nil
		}

		booked, err := b.bookCorrections(ctx, l, found, by, note)
		if errors.Is(err, ErrChanged) {
			continue
		}
		if err != nil {
			return result, err
		}
		result.Booked = append(result.Booked, booked...)
		for _, d := range found.orders {
			c.done[d.Order] = true
		}
	}
}

// bookCorrections books what was found as one entry.
func (b *Books) bookCorrections(ctx context.Context, l *Log, found *foundChanges, by, note string) ([]Correction, error) {
	m := &Manifest{
		Kind: KindCorrection, Month: MonthOf(b.now()), By: by, Note: note,
		Batch: uuid.New(), Posted: b.today().Format(time.DateOnly),
	}
	for _, d := range found.orders {
		m.Corrections = append(m.Corrections, Correction{Order: d.Order, Cause: causeOf(&d)})
	}
	for _, d := range found.late {
		m.Corrections = append(m.Corrections, Correction{Order: d.Order, Cause: CauseLate, ReportedAt: d.ReportedAt.UnixMilli()})
	}

	_, err := b.book(ctx, l, m, func(string) {}, func() error {
		if err := b.insertCorrections(ctx, m); err != nil {
			return err
		}
		return b.describe(ctx, m, found.orders)
	})
	return m.Corrections, err
}

// Unbooked returns what Correct would find, and changes nothing.
func (b *Books) Unbooked(ctx context.Context) (Corrected, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return Corrected{}, err
	}
	found, err := (&corrector{Books: b}).find(ctx, l)
	if err != nil {
		return Corrected{}, err
	}
	return Corrected{Explained: found.count(), Left: found.left}, nil
}

// corrector is one call of Correct.
type corrector struct {
	*Books
	named []delivery.OrderID
	done  map[delivery.OrderID]bool // orders that this call has booked
}

// foundChanges are changes of orders of closed months.
type foundChanges struct {
	orders []archive.ClosedDifference // that can be booked
	late   []archive.LateDelivery     // that can be booked
	left   []Unexplained
}

func (f *foundChanges) count() int    { return len(f.orders) + len(f.late) }
func (f *foundChanges) isEmpty() bool { return f.count() == 0 }

// find lists what can be booked, at most ordersAtOnce, and what cannot. Nothing explains itself in a month of which rows
// were changed or removed.
func (c *corrector) find(ctx context.Context, l *Log) (*foundChanges, error) {
	rows := &changedRows{Books: c.Books, log: l, known: map[Month]bool{}}
	found := &foundChanges{}

	late, err := c.archive.UnbookedLate(ctx, ordersAtOnce)
	if err != nil {
		return nil, err
	}
	for _, d := range late {
		areChanged, err := rows.wereChanged(ctx, MonthOf(d.CreatedAt))
		if err != nil {
			return nil, err
		}
		if !areChanged {
			found.late = append(found.late, d)
		}
	}

	months, err := c.archive.MonthsDiffering(ctx)
	if err != nil {
		return nil, err
	}
	for _, month := range months {
		areChanged, err := rows.wereChanged(ctx, MonthOf(month))
		if err != nil {
			return nil, err
		}
		all, err := c.archive.DifferingIn(ctx, month, ordersRead)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(all, ordersAtOnce) {
			if err := c.classify(ctx, found, MonthOf(month), part, areChanged); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// classify adds each order to found.orders (it can be booked now) or to found.left (a person has to decide). An
// order that this run has booked and that still differs goes to found.left, or the run would not end. Once
// ordersAtOnce are found, further ones are left for the next round of Correct.
func (c *corrector) classify(ctx context.Context, found *foundChanges, m Month, orders []archive.ClosedDifference, rowsChanged bool) error {
	why, err := c.unexplained(ctx, m, orders)
	if err != nil {
		return err
	}
	for _, d := range orders {
		if rowsChanged {
			why[d.Order] = "rows of the closed month were changed or removed (`reporting month verify`)"
		}
		needsPerson := why[d.Order] != "" && !slices.Contains(c.named, d.Order)
		switch {
		case c.done[d.Order]:
			found.left = append(found.left, Unexplained{d, "it was booked just now and differs all the same: it has changed again, or rows were (`reporting month verify`)"})
		case needsPerson:
			found.left = append(found.left, Unexplained{d, why[d.Order]})
		case found.count() < ordersAtOnce:
			found.orders = append(found.orders, d)
		}
	}
	return nil
}

// changedRows answers, once for each month, whether rows of the month are not those that were sealed.
type changedRows struct {
	*Books
	log   *Log
	known map[Month]bool
}

func (r *changedRows) wereChanged(ctx context.Context, m Month) (bool, error) {
	changed, isKnown := r.known[m]
	if isKnown {
		return changed, nil
	}

	for _, e := range r.log.entriesOf(m) {
		isWhole, err := r.isWhole(ctx, e)
		if err != nil {
			return false, err
		}
		changed = changed || !isWhole
	}
	r.known[m] = changed
	return changed, nil
}

// entriesOf returns the closing of a month, which may be that of a later one, and the corrections of its orders.
func (l *Log) entriesOf(m Month) []*Entry {
	var found []*Entry
	hasClosing := false
	for i := range l.Entries {
		e := &l.Entries[i]
		isClosing := e.Kind == KindClose && !hasClosing && !e.Month.Before(m.Time)
		corrects := slices.ContainsFunc(e.Corrections, func(c Correction) bool { return c.Month == m })
		if isClosing || corrects {
			found = append(found, e)
		}
		hasClosing = hasClosing || isClosing
	}
	return found
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
func (b *Books) insertCorrections(ctx context.Context, m *Manifest) error {
	posted, err := time.ParseInLocation(time.DateOnly, m.Posted, delivery.Istanbul)
	if err != nil {
		return fmt.Errorf("posted: %w", err)
	}
	byCause := map[string][]delivery.OrderID{}
	var late []archive.LateDelivery
	for _, c := range m.Corrections {
		if c.Cause == CauseLate {
			late = append(late, archive.LateDelivery{Order: c.Order, ReportedAt: time.UnixMilli(c.ReportedAt)})
		} else {
			byCause[c.Cause] = append(byCause[c.Cause], c.Order)
		}
	}
	for cause, orders := range byCause {
		if err := b.archive.InsertCorrections(ctx, archive.Correction{Batch: m.Batch, Posted: posted, Cause: cause}, orders); err != nil {
			return err
		}
	}
	if len(late) == 0 {
		return nil
	}
	return b.archive.InsertLate(ctx, archive.Correction{Batch: m.Batch, Posted: posted, Cause: CauseLate}, late)
}

// describe fills in each correction of m from the batch's rows. It fails, and with it the whole run, when an
// order has changed since find read it: the next run books what it is then.
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

	// What has no row was not booked, and is for the next run.
	m.Corrections = slices.DeleteFunc(m.Corrections, func(c Correction) bool { return c.Month.IsZero() })
	if len(m.Corrections) == 0 {
		return fmt.Errorf("%w: no row was made of the corrections", delivery.ErrUnavailable)
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
		defer b.verifyNightly(ctx) // also after a failure

		result, err := b.Correct(ctx, Automatic, "")
		corrections.Add(float64(len(result.Booked)))
		for i := range result.Booked {
			b.log.Info("a correction of a closed month was booked", "correction", result.Booked[i].String())
		}
		if err != nil && ctx.Err() == nil {
			b.log.Error("closed months could not be compared", "error", err)
		}
		if err != nil {
			return
		}

		for i := range result.Left {
			b.log.Error("an order of a closed month has changed; `reporting month correct --order` books it", "order", result.Left[i].String())
		}
		unexplained.Set(float64(len(result.Left)))
		completed.SetToCurrentTime()
	}
}

// verifyNightly verifies one closed month, and logs what is not any more what was sealed.
func (b *Books) verifyNightly(ctx context.Context) {
	month, findings, err := b.VerifyInTurn(ctx)
	if err != nil && ctx.Err() == nil {
		b.log.Error("a closed month could not be verified", "month", month.String(), "error", err)
	}
	for _, finding := range findings {
		b.log.Error("a closed month is not any more what was sealed (`reporting month verify`)", "month", month.String(), "finding", finding)
	}
}
