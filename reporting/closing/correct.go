package closing

import (
	"cmp"
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
	ordersAtOnce = 500    // the most corrections in one entry of the log
	ordersRead   = 10_000 // the most differing orders of a month that one look reads

	// maxCorrectionRows is more than the rows of one correction: two of each order, or one of a late delivery.
	maxCorrectionRows = 10 * ordersAtOnce

	// confirmedWithin bounds how long after the day of its creation an order can be booked without a person
	// because Redis confirms it. It is longer than an order stays in Redis by default: what Redis says of an
	// older one can only have been written into it.
	confirmedWithin = 10 * 24 * time.Hour

	// Automatic is the By of corrections that no person decided on.
	Automatic = "reporting"
)

// Unexplained is an order of a closed month whose change nobody has booked: it must be seen by a person.
type Unexplained struct {
	archive.ClosedDifference

	// Late is when a late delivery was reported, if that is what waits; else zero.
	Late time.Time

	Why string
}

// String names the order and both sides.
func (u *Unexplained) String() string {
	order := fmt.Sprintf("order %s of %s", u.Order, u.Day.Format(time.DateOnly))
	if !u.Late.IsZero() {
		return fmt.Sprintf("%s: a late delivery of %s: %s", order, u.Late.In(delivery.Istanbul).Format("2 Jan 2006 15:04"), u.Why)
	}

	isSameText := u.BookedSays != "" && u.BookedSays == u.KnownSays
	if isSameText {
		return fmt.Sprintf("%s: booked as (%s), now with other details: %s", order, u.BookedSays, u.Why)
	}
	return fmt.Sprintf("%s: booked as (%s), now (%s): %s", order, cmp.Or(u.BookedSays, nothing), cmp.Or(u.KnownSays, nothing), u.Why)
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

// Correct compares every closed month with the table orders. Late deliveries, newer versions and added orders
// that Redis confirms are booked in the open month. Everything else is returned as Waiting, for a person who names
// the orders (Book). Several processes may run it at once. What was booked before an error is returned with the
// error. progress gets the name of each month.
func (b *Books) Correct(ctx context.Context, progress func(string)) (Outcome, error) {
	const everything = true
	return b.look(ctx, everything, progress)
}

// CorrectChanged is Correct for the orders of which something was stored since the last look, and for those that
// were waiting then, so that its cost does not grow with history. A row that was removed was not stored: Correct and
// CorrectMonth find it.
func (b *Books) CorrectChanged(ctx context.Context) (Outcome, error) {
	const everything = true
	return b.look(ctx, !everything, func(string) {})
}

// Book books orders of closed months as they are known now, because a person says so. An order that is
// booked as it is known, or belongs to an open month, is left out.
func (b *Books) Book(ctx context.Context, by, note string, orders []delivery.OrderID) (Outcome, error) {
	if len(orders) == 0 || len(orders) > archive.MaxPlaces {
		return Outcome{}, refuse("name 1 to %d orders", archive.MaxPlaces)
	}

	l, err := b.Read(ctx)
	if err != nil {
		return Outcome{}, err
	}
	places, err := b.archive.PlacesOf(ctx, orders)
	if err != nil {
		return Outcome{}, err
	}

	c := newCorrector(b)
	c.by, c.note, c.isNamed = by, note, true
	err = c.correct(ctx, archive.PlacesPart(l.closedOf(places)))

	return c.result, err
}

// Unbooked returns what CorrectChanged would find, and changes nothing: how many changes it would book without a
// person, and those on which a person has to decide.
func (b *Books) Unbooked(ctx context.Context) (explained int, waiting []Unexplained, err error) {
	l, err := b.Read(ctx)
	if err != nil || l.Last == nil {
		return 0, nil, err
	}
	_, before, err := b.readReview(ctx)
	if err != nil {
		return 0, nil, err
	}
	now, err := b.archive.Now(ctx)
	if err != nil {
		return 0, nil, err
	}
	parts, err := b.changedParts(ctx, l, before, now)
	if err != nil {
		return 0, nil, err
	}

	c := newCorrector(b)
	for _, part := range parts {
		found, err := c.find(ctx, l, part)
		if err != nil {
			return 0, nil, err
		}
		explained += found.count()
		c.addWaiting(found.waiting)
	}

	return explained, c.result.Waiting, nil
}

// closedOf returns those of some places that are of closed months.
func (l *Log) closedOf(places []archive.Place) []archive.Place {
	return slices.DeleteFunc(slices.Clone(places), func(p archive.Place) bool { return !l.Closed(MonthOf(p.Day)) })
}

// corrector books corrections of parts of the closed months.
type corrector struct {
	*Books
	by, note string

	// isNamed is set when a person has named every order of the parts.
	isNamed bool

	done      map[change]bool // changes that were booked
	isWaiting map[change]bool // changes that are in result.Waiting
	isCutOff  bool            // a part had more changes than one look reads
	result    Outcome
}

// change is what can be booked, or wait for a person.
type change struct {
	archive.Place
	late int64 // when a late delivery was reported, in milliseconds since 1970; 0: it is about the order itself
}

func changeOfLate(d *archive.LateDelivery) change {
	return change{Place: placeOfLate(d), late: d.ReportedAt.UnixMilli()}
}

func newCorrector(b *Books) *corrector {
	return &corrector{Books: b, by: Automatic, done: map[change]bool{}, isWaiting: map[change]bool{}}
}

// addWaiting adds to the result what a person has to decide. An order can be in two parts.
func (c *corrector) addWaiting(waiting []Unexplained) {
	for _, u := range waiting {
		this := change{Place: u.Place}
		if !u.Late.IsZero() {
			this.late = u.Late.UnixMilli()
		}
		if !c.isWaiting[this] {
			c.result.Waiting = append(c.result.Waiting, u)
		}
		c.isWaiting[this] = true
	}
}

// correct books what can be booked of a part, entry by entry, until only what a person has to decide is left.
func (c *corrector) correct(ctx context.Context, part archive.Part) error {
	for {
		l, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if err := l.requireSettled(); err != nil {
			return err
		}

		found, err := c.find(ctx, l, part)
		if err != nil {
			return err
		}

		if found.isEmpty() {
			c.addWaiting(found.waiting)
			return nil
		}

		err = c.bookFound(ctx, l, found)
		if errors.Is(err, ErrChanged) {
			continue
		}

		if err != nil {
			return err
		}

		for _, d := range found.orders {
			c.done[change{Place: d.Place}] = true
		}

		for i := range found.late {
			c.done[changeOfLate(&found.late[i])] = true
		}
	}
}

// bookFound books what was found as one entry, and adds it to the result, also when an error says that it was
// decided but not stored.
func (c *corrector) bookFound(ctx context.Context, l *Log, found *foundChanges) error {
	m := &Manifest{
		Kind: KindCorrection, Month: MonthOf(c.now()), By: c.by, Note: c.note,
		Batch: uuid.New(), Posted: c.today().Format(time.DateOnly),
	}

	for _, d := range found.orders {
		m.Corrections = append(m.Corrections, Correction{Account: d.Account, Order: d.Order, Cause: causeOf(&d)})
	}

	for _, d := range found.late {
		m.Corrections = append(m.Corrections, Correction{Account: d.Account, Order: d.Order, Cause: CauseLate, ReportedAt: d.ReportedAt.UnixMilli()})
	}

	store := func() error {
		if err := c.insertCorrections(ctx, m, found.places(), l.Entries); err != nil {
			return err
		}

		c.step("rows stored")
		if err := c.describe(ctx, m, found.orders); err != nil {
			return err
		}
		return c.requireSealedRows(ctx, l, found.places())
	}

	e, err := c.book(ctx, l, m, func(string) {}, store)
	if e != nil {
		c.result.Booked = append(c.result.Booked, m.Corrections...)
	}

	return err
}

// requireSealedRows fails when the rows of which a correction was made are not what was sealed: they may
// have been changed since they were checked.
func (c *corrector) requireSealedRows(ctx context.Context, l *Log, places []archive.Place) error {
	rows := &sealedRows{books: c.Books, decided: l}
	for _, place := range places {
		wereChanged, err := rows.wereChanged(ctx, place)
		if err != nil {
			return err
		}
		if wereChanged {
			return fmt.Errorf("%w: rows of order %s were changed while it was corrected", delivery.ErrUnavailable, place.Order)
		}
	}

	return nil
}

// foundChanges are changes of orders of closed months.
type foundChanges struct {
	orders  []archive.ClosedDifference // that can be booked
	late    []archive.LateDelivery     // that can be booked
	waiting []Unexplained
}

func (f *foundChanges) count() int    { return len(f.orders) + len(f.late) }
func (f *foundChanges) isEmpty() bool { return f.count() == 0 }

// places returns where the orders that can be booked are.
func (f *foundChanges) places() []archive.Place {
	var places []archive.Place
	for _, d := range f.orders {
		places = append(places, d.Place)
	}

	for i := range f.late {
		places = append(places, placeOfLate(&f.late[i]))
	}
	return places
}

func placeOfLate(d *archive.LateDelivery) archive.Place {
	return archive.Place{Account: d.Account, Day: archive.BusinessDay(d.CreatedAt), Order: d.Order}
}

// find lists what can be booked of a part, at most ordersAtOnce, and what cannot. Nothing explains itself where
// rows of a closed month were changed or removed: what differs can be the falsified row.
func (c *corrector) find(ctx context.Context, l *Log, part archive.Part) (*foundChanges, error) {
	rows := &sealedRows{books: c.Books, decided: l}
	found := &foundChanges{}
	if err := c.findLate(ctx, found, rows, part); err != nil {
		return nil, err
	}

	all, err := c.archive.Differing(ctx, l.batches(), part, ordersRead)
	if err != nil {
		return nil, err
	}

	c.isCutOff = c.isCutOff || len(all) == ordersRead
	for some := range slices.Chunk(all, ordersAtOnce) {
		if err := c.classify(ctx, found, rows, some); err != nil {
			return nil, err
		}
	}

	return found, nil
}

const (
	whyRowsChanged = "rows of the closed month were changed or removed (`reporting month verify`)"
	whyNotReported = "Redis does not confirm that a courier reported it"
	whyStillDiffer = "it was booked just now and differs all the same: it has changed again, or rows were (`reporting month verify`)"
)

// findLate adds late deliveries to found. One explains itself if the report is still in Redis.
func (c *corrector) findLate(ctx context.Context, found *foundChanges, rows *sealedRows, part archive.Part) error {
	late, err := c.archive.UnbookedLate(ctx, rows.decided.batches(), part, ordersRead)
	if err != nil || len(late) == 0 {
		return err
	}

	c.isCutOff = c.isCutOff || len(late) == ordersRead
	ids := make([]delivery.OrderID, len(late))
	for i := range late {
		ids[i] = late[i].Order
	}

	reports, err := c.ledger.Monitor.LateReportsOf(ctx, ids)
	if err != nil {
		return err
	}

	for i := range late {
		d := &late[i]
		why, mustWait, err := c.reasonOfLate(ctx, rows, d, reports.Has(d.Order, d.ReportedAt))
		if err != nil {
			return err
		}

		switch {
		case mustWait, why != "" && !c.isNamed:
			waiting := archive.ClosedDifference{Place: placeOfLate(d)}
			found.waiting = append(found.waiting, Unexplained{ClosedDifference: waiting, Late: d.ReportedAt, Why: why})
		case found.count() < ordersAtOnce:
			found.late = append(found.late, *d)
		}
	}

	return nil
}

// reasonOfLate returns why a late delivery is not booked without a person; it is empty if the report of it is
// still in Redis. mustWait is set when nobody can book it now.
func (c *corrector) reasonOfLate(ctx context.Context, rows *sealedRows, d *archive.LateDelivery, isReported bool) (why string, mustWait bool, err error) {
	wereChanged, err := rows.wereChanged(ctx, placeOfLate(d))
	switch {
	case err != nil:
		return "", false, err
	case c.done[changeOfLate(d)]:
		return whyStillDiffer, true, nil
	case wereChanged:
		return whyRowsChanged, true, nil
	case !isReported:
		return whyNotReported, false, nil
	}

	return "", false, nil
}

// classify adds each order to found.orders (it can be booked now) or to found.waiting (a person has to decide).
// Nobody can book an order while sealed rows of it are not what they were: the correction would take back what
// was never booked. An order that this corrector has booked and that still differs goes to found.waiting, or
// correct would never end. Once ordersAtOnce are found, other orders are skipped: correct finds them again in
// its next round.
func (c *corrector) classify(ctx context.Context, found *foundChanges, rows *sealedRows, orders []archive.ClosedDifference) error {
	why, err := c.reasonsForPerson(ctx, orders)
	if err != nil {
		return err
	}

	for _, d := range orders {
		wereChanged, err := rows.wereChanged(ctx, d.Place)
		if err != nil {
			return err
		}

		needsPerson := why[d.Place] != "" && !c.isNamed
		switch {
		case c.done[change{Place: d.Place}]:
			found.waiting = append(found.waiting, Unexplained{ClosedDifference: d, Why: whyStillDiffer})
		case wereChanged:
			found.waiting = append(found.waiting, Unexplained{ClosedDifference: d, Why: whyRowsChanged})
		case needsPerson:
			found.waiting = append(found.waiting, Unexplained{ClosedDifference: d, Why: why[d.Place]})
		case found.count() < ordersAtOnce:
			found.orders = append(found.orders, d)
		}
	}

	return nil
}

// reasonsForPerson returns why a person has to decide on an order; one that explains itself is missing. A
// newer version, and an order that was not booked, explain themselves if Redis says the same, as long as it can
// still hold the order.
func (b *Books) reasonsForPerson(ctx context.Context, all []archive.ClosedDifference) (map[archive.Place]string, error) {
	why := map[archive.Place]string{}
	byDay := map[time.Time][]*archive.ClosedDifference{}
	ids := make([]delivery.OrderID, len(all))
	for i := range all {
		d := &all[i]
		ids[i] = d.Order
		why[d.Place] = reasonUnconfirmed(d)
		byDay[d.Day] = append(byDay[d.Day], d)
	}

	held, _, err := b.ledger.Orders.GetReadable(ctx, ids)
	if err != nil {
		return nil, err
	}

	inRedis := map[archive.Place]*delivery.Order{}
	for _, o := range held {
		if o != nil {
			inRedis[archive.PlaceOf(o)] = o
		}
	}

	for day, differing := range byDay {
		if err := b.confirm(ctx, why, day, differing, inRedis); err != nil {
			return nil, err
		}
	}

	return why, nil
}

// reasonUnconfirmed says why a person has to decide on an order, as long as Redis does not confirm it.
func reasonUnconfirmed(d *archive.ClosedDifference) string {
	switch causeOf(d) {
	case CauseRemoved:
		return "it is not in ClickHouse any more"
	case CauseChanged:
		return "it has changed without a newer version"
	}
	return "Redis does not hold it any more, so nothing confirms it"
}

// confirm removes from why the orders of a day that Redis confirms, and says of others what Redis says.
func (b *Books) confirm(ctx context.Context, why map[archive.Place]string, day time.Time, differing []*archive.ClosedDifference, inRedis map[archive.Place]*delivery.Order) error {
	selection := archive.Selection{From: day, To: day}
	byPlace := map[archive.Place]*archive.ClosedDifference{}
	for _, d := range differing {
		byPlace[d.Place] = d
		selection.Orders = append(selection.Orders, d.Order)
		if !slices.Contains(selection.Accounts, d.Account) {
			selection.Accounts = append(selection.Accounts, d.Account)
		}
	}

	isRecent := b.now().Sub(day) < confirmedWithin

	return b.archive.Stored(ctx, selection, func(s *archive.Stored) error {
		d, o := byPlace[s.Place], inRedis[s.Place]
		canConfirm := d != nil && o != nil && causeOf(d) != CauseChanged && s.Version == d.KnownVersion
		if !canConfirm {
			return nil
		}

		row := archive.OrderOf(o, nil)
		differences := s.Differences(&row, archive.EventsOf(o))
		switch {
		case len(differences) > 0:
			why[s.Place] = "Redis says something else: " + differences[0]
		case !isRecent:
			why[s.Place] = "it is older than ten days, and what Redis says of such an order is not believed"
		default:
			delete(why, s.Place)
		}

		return nil
	})
}

// insertCorrections stores the rows of a correction under its batch. places are those of its orders, and before are
// the entries before it.
func (b *Books) insertCorrections(ctx context.Context, m *Manifest, places []archive.Place, before []Entry) error {
	posted, err := time.ParseInLocation(time.DateOnly, m.Posted, delivery.Istanbul)
	if err != nil {
		return fmt.Errorf("posted: %w", err)
	}

	byCause := map[string][]archive.Place{}
	var late []archive.LateDelivery
	for _, c := range m.Corrections {
		i := slices.IndexFunc(places, func(p archive.Place) bool { return p.Order == c.Order && p.Account == c.Account })
		if i < 0 {
			return fmt.Errorf("%w: nothing is stored of order %s", delivery.ErrUnavailable, c.Order)
		}

		place := places[i]
		if c.Cause == CauseLate {
			late = append(late, archive.LateDelivery{Account: place.Account, CreatedAt: place.Day, Order: c.Order, ReportedAt: time.UnixMilli(c.ReportedAt)})
		} else {
			byCause[c.Cause] = append(byCause[c.Cause], place)
		}
	}

	for cause, orders := range byCause {
		correction := archive.Correction{Batch: m.Batch, Posted: posted, Cause: cause, Sealed: batchesAbout(before, orders)}
		if err := b.archive.InsertCorrections(ctx, correction, orders); err != nil {
			return err
		}
	}

	if len(late) == 0 {
		return nil
	}

	return b.archive.InsertLate(ctx, archive.Correction{Batch: m.Batch, Posted: posted, Cause: CauseLate}, late)
}

// describe fills in Digest and each correction of m from the batch's rows, and drops corrections without a
// row: the next run finds them again. It fails when an order has changed since find read it, or no correction
// remains.
func (b *Books) describe(ctx context.Context, m *Manifest, orders []archive.ClosedDifference) error {
	rows, err := b.archive.ClosedRows(ctx, m.Batch)
	if err != nil {
		return err
	}

	for _, d := range orders {
		i := slices.IndexFunc(rows, func(r archive.ClosedRow) bool { return r.Place == d.Place && r.Sign == 1 })
		isAsRead := !d.Known || i >= 0 && rows[i].Facts == d.KnownFacts
		if !isAsRead {
			return fmt.Errorf("%w: order %s has changed while it was corrected", delivery.ErrUnavailable, d.Order)
		}
	}

	for i := range m.Corrections {
		m.Corrections[i].fillFrom(rows)
	}

	days, err := b.archive.DigestBatch(ctx, m.Batch, maxCorrectionRows)
	if err != nil {
		return err
	}

	m.Digest = archive.Sum(days)
	if m.Digest.Rows != int64(len(rows)) {
		return fmt.Errorf("%w: there are rows in the batch that are not of it", delivery.ErrUnavailable)
	}

	// What has no row was not booked, and is for the next run.
	m.Corrections = slices.DeleteFunc(m.Corrections, func(c Correction) bool { return c.Month.IsZero() })
	if len(m.Corrections) == 0 {
		return fmt.Errorf("%w: no row was made of the corrections", delivery.ErrUnavailable)
	}

	return nil
}

// fillFrom fills in what the rows of a correction's batch say of it.
func (c *Correction) fillFrom(rows []archive.ClosedRow) {
	for _, r := range rows {
		isOther := r.Order != c.Order || r.Account != c.Account || r.Cause != c.Cause
		isOtherReport := r.Sign == 0 && r.ReportedAt.UnixMilli() != c.ReportedAt
		if isOther || isOtherReport {
			continue
		}

		c.Month = MonthOf(r.Day)
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
