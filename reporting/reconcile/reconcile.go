// Package reconcile proves that ClickHouse says what Redis says: order by order, event by
// event, and in each day's control totals.
//
// An order that Redis holds must have its row and its events, value by value; a row without
// an order must be of one that Redis has retired, and is checked by itself. Every late delivery
// in ClickHouse must have its courier's report in Redis, and every report its late delivery, as far
// back as Redis keeps reports. What differs is compared again once the exporter has passed
// everything that was there at first. Outcomes of webhooks, and a store's name and tax number, are
// not compared.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
)

// Scope is what is compared.
type Scope struct {
	From, To time.Time          // local days, both included
	Account  delivery.AccountID // zero: all
	// Fix exports again what differs, and removes rows that are in the way.
	Fix bool
	// RemoveUnknown lets Fix also remove orders, and late deliveries, that Redis never had. To a Redis
	// that has lost its data, or to a wrong one, all of finance's history is unknown. They are counted
	// first, and nothing is removed or repaired when there are too many (ErrManyUnknown).
	RemoveUnknown bool
	// AtMost is how many of them RemoveUnknown may remove; 0: maxUnknown, or maxUnknownShare of those
	// that are compared.
	AtMost int
	// Timeout is how long to wait for the exporter; 0: 1 min.
	Timeout time.Duration

	// removable is what was counted and may be removed.
	removable map[subject]bool

	// reports are those of late deliveries of the days from From to To, as Redis had them at first.
	reports *operations.LateReports
}

// How many orders and late deliveries RemoveUnknown removes when AtMost is 0: whichever is more.
const (
	maxUnknown      = 100
	maxUnknownShare = 0.01 // of the orders that Redis holds in the scope
)

// ErrManyUnknown reports that ClickHouse has so many orders that Redis never had that Redis, rather
// than ClickHouse, may be the wrong one.
var ErrManyUnknown = errors.New("too many orders and late deliveries that Redis never had")

// Difference is an order, or a late delivery of it, on which the two sides differ.
type Difference struct {
	archive.Place
	What  []string // in words, each a sentence without a full stop
	Fixed bool

	kind    kind
	version uint64    // in Redis, when it was last compared
	late    time.Time // when the late delivery was reported; zero: it is about the order itself
}

func (d *Difference) String() string {
	text := fmt.Sprintf("%s account %s order %s: %s", d.Day.Format(time.DateOnly), d.Account, d.Order, strings.Join(d.What, "; "))
	if d.Fixed {
		text += " (fixed)"
	}
	return text
}

// Day is the result for one local day.
type Day struct {
	Day         time.Time
	Compared    int // orders that Redis holds
	Retired     int // rows of orders that have left Redis
	Moving      int // orders that changed during every comparison
	Differences []Difference
	// Totals are disagreements between sums, in words. Without differences, a report
	// calculates wrongly.
	Totals []string

	// digest is that of the orders as the first comparison read them. It may be noted only if isSteady: nothing had
	// to be compared again.
	digest   archive.Digest
	isSteady bool
}

// Left is how many differences were not repaired.
func (d *Day) Left() (n int) {
	for i := range d.Differences {
		if !d.Differences[i].Fixed {
			n++
		}
	}
	return n
}

// Balanced reports whether nothing is left that differs.
func (d *Day) Balanced() bool { return len(d.Totals)+d.Left() == 0 }

// ErrBehind says that the exporter has not caught up in time: what differs may be what is
// not exported yet.
var ErrBehind = errors.New("the exporter is behind")

// Reconciler compares one ledger with one archive.
type Reconciler struct {
	ledger  *ledger.Ledger
	archive *archive.Archive
}

// New prepares one.
func New(l *ledger.Ledger, a *archive.Archive) *Reconciler { return &Reconciler{ledger: l, archive: a} }

// Run compares day by day, calls done for each, and records the end in ClickHouse for the
// panel. An error is what kept it from comparing; differences are none.
func (r *Reconciler) Run(ctx context.Context, s Scope, done func(*Day)) error {
	s.Timeout = cmp.Or(s.Timeout, time.Minute)
	reports, err := r.ledger.Monitor.LateReportsOfDays(ctx, archive.BusinessDay(s.From), archive.BusinessDay(s.To))
	if err != nil {
		return err
	}

	s.reports = reports

	if s.Fix && s.RemoveUnknown {
		if err := r.countUnknown(ctx, &s); err != nil {
			return err
		}
	}

	note := archive.Reconciliation{Account: s.Account, From: s.From, To: s.To}
	held, unreadable := r.index(ctx, &s)
	if unreadable != nil && (ctx.Err() != nil || errors.Is(unreadable, delivery.ErrUnavailable)) {
		return unreadable
	}

	for day := archive.BusinessDay(s.From); !day.After(s.To); day = day.AddDate(0, 0, 1) {
		d, err := r.settledDay(ctx, &s, day, held[day])
		if err != nil {
			return fmt.Errorf("%s: %w", day.Format(time.DateOnly), err)
		}

		note.Orders += d.Compared
		note.Differences += d.Left()
		note.Totals += len(d.Totals)

		isWhole := s.Account.IsZero() && unreadable == nil
		if isWhole {
			if err := r.noteDay(ctx, d); err != nil {
				return err
			}
		}

		done(d)
	}

	if unreadable != nil { // such an order is compared with nothing
		return unreadable
	}

	note.At = r.ledger.Now()

	return r.archive.NoteReconciliation(ctx, &note)
}

// noteDay notes the result for the closing of the day's month, once the day is over. A clean result is noted only if
// nothing had to be compared again or was repaired; otherwise the next comparison decides.
func (r *Reconciler) noteDay(ctx context.Context, d *Day) error {
	now := r.ledger.Now()
	isOver := !now.Before(d.Day.AddDate(0, 0, 1))
	if !isOver {
		return nil
	}

	look := Look{At: now, Orders: d.Compared, Retired: d.Retired, Differences: d.Left() + len(d.Totals), Digest: d.digest}
	isSteady := d.isSteady && d.Moving == 0
	if look.isClean() && !isSteady {
		return nil
	}

	return noteLook(ctx, r.ledger, d.Day, look)
}

// countUnknown compares everything once without a change, and notes what Redis never had, so that nothing
// else is removed. It fails with ErrManyUnknown when there are too many.
func (r *Reconciler) countUnknown(ctx context.Context, s *Scope) error {
	counting := *s
	counting.Fix = false
	held, unreadable := r.index(ctx, &counting)
	if unreadable != nil && (ctx.Err() != nil || errors.Is(unreadable, delivery.ErrUnavailable)) {
		return unreadable // Run names what else cannot be read
	}

	s.removable = map[subject]bool{}
	compared := 0
	for day := archive.BusinessDay(s.From); !day.After(s.To); day = day.AddDate(0, 0, 1) {
		d, err := r.settledDay(ctx, &counting, day, held[day])
		if err != nil {
			return fmt.Errorf("%s: %w", day.Format(time.DateOnly), err)
		}

		compared += d.Compared
		for i := range d.Differences {
			x := &d.Differences[i]
			if x.kind == unknown || x.kind == lateUnknown {
				s.removable[x.subject()] = true
			}
		}
	}

	most := s.mostRemoved(compared)
	if len(s.removable) > most {
		return fmt.Errorf("%w: there are %d and at most %d may be removed, where Redis holds %d; nothing was changed", ErrManyUnknown, len(s.removable), most, compared)
	}

	return nil
}

// mostRemoved returns how many orders and late deliveries may be removed when Redis holds so many orders.
func (s *Scope) mostRemoved(compared int) int {
	if s.AtMost > 0 {
		return s.AtMost
	}
	return max(maxUnknown, int(maxUnknownShare*float64(compared)))
}

// index lists the orders in scope that Redis holds, by day and account: 16 bytes each.
func (r *Reconciler) index(ctx context.Context, s *Scope) (map[time.Time]map[delivery.AccountID][]delivery.OrderID, error) {
	first, end := archive.BusinessDay(s.From), archive.BusinessDay(s.To).AddDate(0, 0, 1)
	held := make(map[time.Time]map[delivery.AccountID][]delivery.OrderID)
	for day := first; day.Before(end); day = day.AddDate(0, 0, 1) {
		held[day] = make(map[delivery.AccountID][]delivery.OrderID)
	}

	err := r.ledger.Orders.Each(ctx, func(orders []*delivery.Order) error {
		for _, o := range orders {
			if day := held[archive.BusinessDay(o.CreatedAt)]; day != nil && s.includes(o.Account) {
				day[o.Account] = append(day[o.Account], o.ID)
			}
		}
		return nil
	})

	return held, err
}

func (s *Scope) includes(account delivery.AccountID) bool {
	return s.Account.IsZero() || s.Account == account
}

// settledDay compares a day, and again if sums disagree and orders were created on it
// meanwhile. A day that keeps changing is left without sums until it is over.
func (r *Reconciler) settledDay(ctx context.Context, s *Scope, day time.Time, held map[delivery.AccountID][]delivery.OrderID) (*Day, error) {
	var fixed []Difference // in an earlier comparison
	for check := 1; ; check++ {
		d, err := r.day(ctx, s, day, held)
		if err != nil {
			return nil, err
		}

		d.Differences = append(fixed, d.Differences...)
		if len(d.Totals) == 0 {
			return d, nil
		}

		fixed = slices.DeleteFunc(slices.Clone(d.Differences), func(x Difference) bool { return !x.Fixed })
		before := count(held)
		scope := *s
		scope.From, scope.To = day, day
		now, err := r.index(ctx, &scope)
		if errors.Is(err, delivery.ErrUnavailable) || ctx.Err() != nil {
			return nil, err
		}
		held = now[day]
		if count(held) == before {
			return d, nil
		}

		if check == maxChecks {
			d.Totals, d.Moving = nil, max(d.Moving, count(held)-before)
			return d, nil
		}
	}
}

func count(held map[delivery.AccountID][]delivery.OrderID) (n int) {
	for _, orders := range held {
		n += len(orders)
	}
	return n
}

// day compares one day: first all of it, a share of accounts at a time, then what
// differed, once the exporter has passed that.
func (r *Reconciler) day(ctx context.Context, s *Scope, day time.Time, held map[delivery.AccountID][]delivery.OrderID) (*Day, error) {
	shares, err := r.shares(ctx, s, day, held)
	if err != nil {
		return nil, err
	}

	f := &findings{differing: differences{}}
	for _, share := range shares {
		if err := r.walk(ctx, f, archive.Selection{From: day, To: day, Accounts: share.accounts}, share.orders); err != nil {
			return nil, err
		}
	}

	differing, moving, err := r.recheck(ctx, s, day, f.differing)
	if err != nil {
		return nil, err
	}

	late, err := r.compareLate(ctx, s, day)
	hasManyLate := errors.Is(err, archive.ErrManyLate)
	if err != nil && !hasManyLate {
		return nil, err
	}

	d := &Day{
		Day: day, Compared: f.compared, Retired: f.retired, Moving: moving,
		Differences: append(differing.sorted(), late...),
		digest:      archive.DigestOf(f.digests),
		isSteady:    len(f.differing) == 0,
	}

	if hasManyLate {
		d.Totals = append(d.Totals, "its late deliveries were not compared: "+err.Error())
	}

	if s.Fix {
		if err := r.fix(ctx, s, d); err != nil {
			return nil, err
		}
		if err := r.fixLate(ctx, s, d); err != nil {
			return nil, err
		}
	}

	return d, r.compareTotals(ctx, s, d, &f.sums)
}

const shareSize = 20_000

type share struct {
	accounts []delivery.AccountID
	orders   []delivery.OrderID
}

// shares cuts the accounts that either side knows on a day into shares.
func (r *Reconciler) shares(ctx context.Context, s *Scope, day time.Time, held map[delivery.AccountID][]delivery.OrderID) ([]share, error) {
	stored, err := r.archive.AccountsOf(ctx, day)
	if err != nil {
		return nil, err
	}

	for account := range held {
		stored[account] = max(stored[account], uint64(len(held[account])))
	}

	var shares []share
	size := uint64(0)
	for account, count := range stored {
		if !s.includes(account) {
			continue
		}

		if len(shares) == 0 || size+count > shareSize || len(shares[len(shares)-1].accounts) == archive.MaxListed {
			shares, size = append(shares, share{}), 0
		}

		last := &shares[len(shares)-1]
		last.accounts = append(last.accounts, account)
		last.orders = append(last.orders, held[account]...)
		size += count
	}

	return shares, nil
}

// The figures of the control totals. Amounts, from amountDelivered on, are in kuruş.
const (
	orders = iota
	delivered
	failed
	cancelled
	amountDelivered
	cash
	card
	prepaid
	figureCount
)

var figureNames = [figureCount]string{"orders", "delivered", "failed", "cancelled",
	"order amount of what was delivered", "expected cash", "expected card", "prepaid"}

// sums are the figures of a day's orders.
type sums struct {
	open    int // orders that have not ended
	figures [figureCount]int64
}

func (s *sums) add(o *delivery.Order) {
	s.figures[orders]++
	switch o.Status {
	case delivery.Delivered:
		s.figures[delivered]++
		s.figures[amountDelivered] += o.OrderAmount.Minor
		switch o.Payment.Type {
		case delivery.Cash:
			s.figures[cash] += o.Payment.CollectionAmount.Minor
		case delivery.Card:
			s.figures[card] += o.Payment.CollectionAmount.Minor
		case delivery.Prepaid:
			s.figures[prepaid] += o.OrderAmount.Minor
		default: // not known: its amount is in no sum of collections
		}
	case delivery.Failed:
		s.figures[failed]++
	case delivery.Cancelled:
		s.figures[cancelled]++
	default:
		s.open++
	}
}

// controlTotals are the lines of the view, with -1 for a figure that it lacks.
const controlTotals = `SELECT line, toBool(ifNull(ties, 1) = 1), arrayMap(x -> toInt64(ifNull(x, -1)), [
	toInt64(orders), toInt64(delivered), toInt64(failed), toInt64(cancelled),
	toInt64(order_amount_delivered * 100), toInt64(cash_expected * 100), toInt64(card_expected * 100), toInt64(prepaid_amount * 100)])
FROM control_totals(from='%[1]s', to='%[1]s', account='%[2]s', fleet='', store='') ORDER BY line_number`

// compareTotals compares the sums of the day with the control totals, and checks that these
// balance, once all of the day's orders have ended.
func (r *Reconciler) compareTotals(ctx context.Context, s *Scope, d *Day, expected *sums) error {
	if expected.open > 0 || d.Moving > 0 || !d.Balanced() {
		return nil
	}

	account := ""
	if !s.Account.IsZero() {
		account = s.Account.String()
	}

	return r.archive.Each(ctx, fmt.Sprintf(controlTotals, d.Day.Format(time.DateOnly), account), func(rows driver.Rows) error {
		var name string
		var balanced bool
		var figures []int64
		if err := rows.Scan(&name, &balanced, &figures); err != nil {
			return err
		}

		if !balanced {
			d.Totals = append(d.Totals, name+" does not balance with the orders that ended on the day")
		}

		if name != "order-ledger" {
			return nil
		}

		for i, want := range expected.figures {
			if figures[i] != want {
				d.Totals = append(d.Totals, fmt.Sprintf("order-ledger: %s is %s, should be %s", figureNames[i], figureText(i, figures[i]), figureText(i, want)))
			}
		}

		return nil
	})
}

func figureText(figure int, n int64) string {
	switch {
	case n < 0:
		return "not there"
	case figure >= amountDelivered:
		return fmt.Sprintf("%d.%02d", n/100, n%100)
	}
	return fmt.Sprint(n)
}

// Settings are the keys below "reconcile" of configs/reporting.yaml, which explains them.
type Settings struct {
	At   string `yaml:"at"`
	Days int    `yaml:"days"`
}

const (
	clockLayout = "15:04"
	// dailyTimeout is longer than an exporter needs after most outages.
	dailyTimeout = 10 * time.Minute
)

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	if _, err := time.Parse(clockLayout, s.At); err != nil {
		return fmt.Errorf("reconcile.at: %q is no time such as 03:30", s.At)
	}
	if s.Days < 1 || s.Days > 31 {
		return errors.New("reconcile.days: want 1 to 31")
	}
	return nil
}

// Daily compares the last days at its start and then every day. It repairs nothing: a
// difference is a defect that somebody should see first.
type Daily struct {
	reconciler *Reconciler
	settings   Settings
	log        *slog.Logger

	// Then is called after each comparison; nil: nothing.
	Then func(context.Context)

	found, unbalanced int // what the gauges show

	differences, totals, succeeded prometheus.Gauge
	runs                           *prometheus.CounterVec
}

// NewDaily prepares it.
func NewDaily(l *ledger.Ledger, a *archive.Archive, s Settings, log *slog.Logger, reg prometheus.Registerer) *Daily {
	metrics := service.NewMetrics(reg, nil)
	return &Daily{reconciler: New(l, a), settings: s, log: log.With("role", "reconcile"),
		differences: metrics.Gauge("reporting_reconcile_differences",
			"Orders and late deliveries on which Redis and ClickHouse differed at the last daily comparison; each is a defect."),
		totals: metrics.Gauge("reporting_reconcile_totals_untied",
			"Sums of reports that did not balance at the last daily comparison; each is a defect."),
		succeeded: metrics.Gauge("reporting_reconcile_last_completed_timestamp_seconds",
			"When a daily comparison last came to its end, whatever it found; 0: not since the start."),
		runs: metrics.Counters("reporting_reconcile_runs_total",
			"Daily comparisons by result; a failed one could not compare.", "result", "tied", "differs", "failed"),
	}
}

// Run compares until ctx ends, and returns nil then.
func (d *Daily) Run(ctx context.Context) error {
	for {
		d.compare(ctx, d.reconciler.ledger.Now())
		if d.Then != nil {
			d.Then(ctx)
		}

		now := d.reconciler.ledger.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d.settings.next(now).Sub(now)):
		}
	}
}

// next is the first moment after now that has the settings' local time.
func (s *Settings) next(now time.Time) time.Time {
	clock, _ := time.Parse(clockLayout, s.At) // Validate has parsed it
	y, m, day := now.In(delivery.Istanbul).Date()
	at := time.Date(y, m, day, clock.Hour(), clock.Minute(), 0, 0, delivery.Istanbul)
	if !at.After(now) {
		at = at.AddDate(0, 0, 1)
	}
	return at
}

func (d *Daily) compare(ctx context.Context, now time.Time) {
	today := archive.BusinessDay(now)
	scope := Scope{From: today.AddDate(0, 0, -d.settings.Days), To: today.AddDate(0, 0, -1), Timeout: dailyTimeout}
	differences, totals, orders := 0, 0, 0
	err := d.reconciler.Run(ctx, scope, func(day *Day) {
		differences, totals, orders = differences+len(day.Differences), totals+len(day.Totals), orders+day.Compared
		for i := range day.Differences {
			d.log.Error("ClickHouse differs from Redis; `reporting reconcile --fix` repairs it", "difference", day.Differences[i].String())
		}
		for _, t := range day.Totals {
			d.log.Error("a report does not balance", "day", day.Day.Format(time.DateOnly), "what", t)
		}
	})
	if ctx.Err() != nil {
		return
	}

	if err != nil { // what was found before the failure is shown; what was known is kept
		differences, totals = max(d.found, differences), max(d.unbalanced, totals)
	}

	d.found, d.unbalanced = differences, totals
	d.differences.Set(float64(differences))
	d.totals.Set(float64(totals))
	if err != nil {
		d.runs.WithLabelValues("failed").Inc()
		d.log.Error("the daily comparison failed", "error", err)
		return
	}

	d.succeeded.SetToCurrentTime()
	result := "tied"
	if differences+totals > 0 {
		result = "differs"
	}

	d.runs.WithLabelValues(result).Inc()
	d.log.Info("compared Redis with ClickHouse", "result", result, "from", scope.From.Format(time.DateOnly),
		"to", scope.To.Format(time.DateOnly), "orders", orders, "differences", differences)
}
