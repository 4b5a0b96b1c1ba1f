package reports

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/sync/errgroup"

	"vendorapi/reporting/archive"
)

// Progress is called every progressStep rows with how many have been read.
type Progress func(rows int64)

const progressStep = 1000

// bounded is a sink that takes no more than so many rows. They are counted before it begins.
type bounded interface{ longest() int64 }

// checkLength refuses a report that has too many rows for its format.
func checkLength(rows, most int64) error {
	if rows <= most {
		return nil
	}
	return ParamErrors{{Field: "to", Message: fmt.Sprintf("ends a period of more than %d rows, which a workbook does not take: take the CSV, or a shorter period", most)}}
}

// Run reads the report and writes it into the sink. progress may be nil.
//
// An error is a ParamErrors when the report is too long for the format, wraps delivery.ErrUnavailable when ClickHouse is unavailable, is the context's
// own when ctx ends (which ends the query, too), and wraps the sink's. The sink has been
// aborted then.
func (r *Report) Run(ctx context.Context, a *archive.Archive, p Params, sink Sink, progress Progress) (s Summary, err error) {
	if progress == nil {
		progress = func(int64) {}
	}

	b, closings, err := booksOf(ctx, a, &p)
	if err == nil {
		r, err = r.asSealed(b, closings, &p)
	}

	if err != nil {
		sink.Abort()
		return Summary{}, err
	}

	s = r.nothing()
	writing := func(err error) error {
		if err != nil {
			err = fmt.Errorf("write %s: %w", r.Name, err)
		}
		return err
	}

	take := func(cells []Cell) error {
		if err := r.add(&s, 1, cells); err != nil {
			return err
		}

		err := writing(sink.Row(cells))
		if s.Rows%progressStep == 0 {
			progress(s.Rows)
		}
		return err
	}

	if limited, isBounded := sink.(bounded); isBounded {
		err = r.checkLength(ctx, a, &p, b, limited.longest())
	}

	if err == nil {
		err = writing(sink.Begin(r, p))
	}

	if err == nil {
		err = r.read(ctx, a, &p, b, take)
	}

	if err == nil {
		progress(s.Rows)
		err = writing(sink.End(s))
	}

	if err != nil {
		sink.Abort()
		return Summary{}, err
	}

	return s, nil
}

// checkLength refuses the report when it has more than so many rows.
func (r *Report) checkLength(ctx context.Context, a *archive.Archive, p *Params, b books, most int64) error {
	if r.Name == control.Name {
		return nil
	}

	var rows int64
	query := "SELECT toInt64(count())" + r.from(b) + b.settings()
	err := a.Each(ctx, query, func(found driver.Rows) error { return found.Scan(&rows) }, p.named()...)
	if err != nil {
		return r.explain(err)
	}

	return checkLength(rows, most)
}

// nothing is the summary of no rows.
func (r *Report) nothing() Summary {
	s := Summary{Totals: make([]Cell, len(r.Columns))}
	for i := range r.Columns {
		s.Totals[i].Given = r.Columns[i].Sum
	}
	return s
}

// add adds the cells of one row, or the sums of several.
func (r *Report) add(s *Summary, rows int64, cells []Cell) error {
	s.Rows += rows
	for i := range r.Columns {
		if !r.Columns[i].Sum || !cells[i].Given {
			continue
		}
		n, sum := cells[i].Number, s.Totals[i].Number
		if n > 0 && sum > math.MaxInt64-n || n < 0 && sum < math.MinInt64-n {
			return fmt.Errorf("%s: the sum of %s exceeds 64 bits", r.Name, r.Columns[i].Key)
		}
		s.Totals[i].Number += n
	}

	return nil
}

const (
	// missing stands for NULL in a column of numbers.
	missing = math.MinInt64

	// call are a view's parameters.
	call = "(from = {from:Date}, to = {to:Date}, account = {account:String}, fleet = {fleet:String}, store = {store:String}"

	// settings end a query. Above 1 GiB ClickHouse sorts and groups with files. Its own
	// block size, eight times as large, takes 100 MB here instead of 40, and as long.
	settings = " SETTINGS max_block_size = 8192, max_bytes_before_external_sort = 1073741824, max_bytes_before_external_group_by = 1073741824"

	// uncompiled keeps ClickHouse from compiling expressions, which takes 100 to 200 ms.
	uncompiled = ", compile_aggregate_expressions = 0, compile_expressions = 0"
)

// from is the report's rows, in a query.
func (r *Report) from(b books) string {
	from := " FROM " + r.View() + string(b) + call
	if b != live {
		from += ", as_of = {as_of:Date}"
	}

	if r.HasKinds() {
		return from + ") WHERE {kind:String} = '' OR kind = {kind:String}"
	}
	return from + ")"
}

// selection is the query of the report's rows, without settings.
func (r *Report) selection(b books) string {
	var sources []string
	for i := range r.Columns {
		c := &r.Columns[i]
		switch {
		case c.Source == "":
		case b == live && c.booked() && c.Kind == Text:
			sources = append(sources, "''")
		case b == live && c.booked():
			sources = append(sources, fmt.Sprintf("toInt64(%d)", missing))
		default:
			sources = append(sources, c.expression())
		}
	}

	order := r.Order
	if b != live {
		order = cmp.Or(r.BookedOrder, r.Order)
	}

	return "SELECT " + strings.Join(sources, ", ") + r.from(b) + " ORDER BY " + order
}

// settings end a query of these books. Those of closed months are small and long: they are not compiled.
func (b books) settings() string {
	if b == live {
		return settings
	}
	return settings + uncompiled
}

// expression is the column in SQL. Numbers of all kinds are read as int64.
func (c *Column) expression() string {
	switch c.Kind {
	case Money:
		return fmt.Sprintf("ifNull(toInt64(%s * 100), %d)", c.Source, missing)
	case Count, DayOnly, Month:
		return fmt.Sprintf("ifNull(toInt64(%s), %d)", c.Source, missing)
	case Time:
		return fmt.Sprintf("ifNull(toUnixTimestamp64Milli(%s), %d)", c.Source, missing)
	default:
		return "toString(" + c.Source + ")"
	}
}

// named are the parameters as the queries call them.
func (p *Params) named() []any {
	return []any{
		clickhouse.Named("from", p.From.String()), clickhouse.Named("to", p.To.String()),
		clickhouse.Named("account", idText(p.Account)), clickhouse.Named("fleet", idText(p.Fleet)),
		clickhouse.Named("store", p.Store), clickhouse.Named("kind", p.Kind), clickhouse.Named("as_of", cmp.Or(p.AsOf, lastDate).String()),
	}
}

// read passes the rows to take, in order. The cells are used again for the next row.
func (r *Report) read(ctx context.Context, a *archive.Archive, p *Params, b books, take func([]Cell) error) error {
	if r.Name == control.Name {
		lines, err := ControlLines(ctx, a, *p)
		for i := 0; i < len(lines) && err == nil; i++ {
			err = take(lines[i])
		}
		return err
	}

	windows, err := r.windows(ctx, a, p)
	if err != nil {
		return err
	}

	query := r.selection(b) + b.settings()
	if r.Threads > 0 {
		query += fmt.Sprintf(", max_threads = %d", r.Threads)
	}

	for i := range windows {
		if err := r.readRows(ctx, a, query, &windows[i], take); err != nil {
			return err
		}
	}

	return nil
}

// readRows reads the rows of a query that begins with r.selection.
func (r *Report) readRows(ctx context.Context, a *archive.Archive, query string, p *Params, take func([]Cell) error) error {
	cells := make([]Cell, len(r.Columns))
	var targets []any
	for i := range r.Columns {
		switch {
		case r.Columns[i].Source == "":
		case r.Columns[i].Kind == Text:
			targets = append(targets, &cells[i].Text)
		default:
			targets = append(targets, &cells[i].Number)
		}
	}

	err := a.Each(ctx, query, func(rows driver.Rows) error {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i := range cells {
			cells[i].Given = cells[i].Number != missing
		}
		return take(cells)
	}, p.named()...)

	return r.explain(err)
}

func (r *Report) explain(err error) error {
	const unknownFunction = 46 // what ClickHouse takes the call of a missing view for
	if exception, ok := errors.AsType[*clickhouse.Exception](err); ok && exception.Code == unknownFunction {
		return fmt.Errorf("%w (`reporting migrate` makes the view %s and those beside it)", err, r.View())
	}
	return err
}

const (
	controlAttempts = 3
	// readsAtOnce is how many of the five queries run together; more would take memory.
	readsAtOnce = 3
)

// ControlLines are the rows of control totals: the view's lines, each with the SHA-256
// of its report as csv-plain.
//
// Orders may change between the queries. Where a report's totals are not those of its
// line, all is read again; a line that still differs then says "changing".
//
// Those of whole closed months, of everything, were stored when these were closed. Of several months the digest is that of
// the months' digests, each with a line feed behind it.
func ControlLines(ctx context.Context, a *archive.Archive, p Params) (lines [][]Cell, err error) {
	b, closings, err := booksOf(ctx, a, &p)
	if err != nil {
		return nil, err
	}

	if b == asBooked && len(p.narrowing()) == 0 {
		stored := storedLines(closings, &p)
		if stored != nil {
			return stored, nil
		}
	}

	return b.controlLines(ctx, a, p)
}

func (b books) controlLines(ctx context.Context, a *archive.Archive, p Params) (lines [][]Cell, err error) {
	for attempt, steady := 1, false; attempt <= controlAttempts && !steady && err == nil; attempt++ {
		lines, steady, err = readTogether(ctx, a, &p, b)
	}
	return lines, err
}

// readTogether reads the view and digests the other reports into its lines; steady is that
// all of them saw the same orders.
func readTogether(ctx context.Context, a *archive.Archive, p *Params, b books) (lines [][]Cell, steady bool, err error) {
	others := []*Report{ledger, collections, statement, exceptions}
	summaries, digests := make([]Summary, len(others)), make([]hash.Hash, len(others))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	group.Go(func() error {
		return control.readRows(ctx, a, control.selection(b)+b.settings(), p, func(cells []Cell) error {
			lines = append(lines, slices.Clone(cells))
			return nil
		})
	})

	for i, r := range others {
		digests[i] = sha256.New()
		group.Go(func() (err error) {
			summaries[i], err = r.Run(ctx, a, *p, CSVPlain.Sink(digests[i]), nil)
			return err
		})
	}

	if err := group.Wait(); err != nil {
		return nil, false, err
	}

	steady = true
	for i, r := range others {
		n := slices.IndexFunc(lines, func(line []Cell) bool { return line[control.Column("line")].Text == r.Name })
		if n < 0 {
			return nil, false, fmt.Errorf("control totals have no line %s", r.Name)
		}
		lines[n][control.Column("sha256")].Text = hex.EncodeToString(digests[i].Sum(nil))
		if !r.agrees(summaries[i], lines[n]) {
			steady, lines[n][control.Column("ties")].Text = false, "changing"
		}
	}

	return lines, steady, nil
}

// agreeing are the columns of a line that a report's totals must equal.
var agreeing = map[*Report][]string{
	collections: {"delivered", "cashExpected", "cardExpected", "prepaidAmount", "noPaymentTypeAmount"},
	statement: {"created", "delivered", "failed", "cancelled", "orderAmountDelivered", "cashExpected", "cardExpected",
		"prepaidAmount", "noPaymentTypeAmount"},
}

// agrees compares the report's totals with those of its line.
func (r *Report) agrees(s Summary, line []Cell) bool {
	number := func(key string) int64 { return line[control.Column(key)].Number }
	if number("rows") != s.Rows {
		return false
	}
	if r == ledger {
		return r.Total(s, "expectedCollection") == number("cashExpected")+number("cardExpected")
	}

	return !slices.ContainsFunc(agreeing[r], func(key string) bool {
		total := key
		if r == collections && key == "delivered" {
			total = "deliveredCount"
		}
		return r.Total(s, total) != number(key)
	})
}

// CountOrders is of how many orders the exceptions are: one can have several rows.
func CountOrders(ctx context.Context, a *archive.Archive, p Params) (n int64, err error) {
	b, _, err := booksOf(ctx, a, &p)
	if err != nil {
		return 0, err
	}
	query := "SELECT toInt64(uniqExact(order_id))" + exceptions.from(b) + settings + uncompiled
	err = a.Each(ctx, query, func(rows driver.Rows) error { return rows.Scan(&n) }, p.named()...)
	return n, exceptions.explain(err)
}

// countDays is how many orders each day has, with versions that are not merged yet, which
// ClickHouse has to sort, too.
const countDays = `SELECT toInt64(business_day), toInt64(count()) FROM orders
WHERE business_day BETWEEN {from:Date} AND {to:Date}
	AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
	AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
	AND ({store:String} = '' OR external_store_id = {store:String})
GROUP BY business_day ORDER BY business_day SETTINGS final = 0`

type dayCount struct {
	day    Day
	orders int64
}

// windows cuts the period of a report that is sorted by time into windows of days, a query
// for each: ClickHouse never sorts more orders at once, and the first rows come soon.
func (r *Report) windows(ctx context.Context, a *archive.Archive, p *Params) ([]Params, error) {
	if r.Window == 0 || p.From == p.To {
		return []Params{*p}, nil
	}

	var counts []dayCount
	err := a.Each(ctx, countDays, func(rows driver.Rows) error {
		var day, orders int64
		err := rows.Scan(&day, &orders)
		counts = append(counts, dayCount{day: Day(day), orders: orders})
		return err
	}, p.named()...)

	return p.cut(counts, r.Window), err
}

// cut makes windows of at most size orders, or of one day. A window that is half full also
// ends with the month, as the tables' partitions do.
func (p *Params) cut(counts []dayCount, size int64) []Params {
	var all []Params
	current, held := *p, int64(0)
	for _, c := range counts {
		full := held > 0 && held+c.orders > size || held > size/2 && c.day == c.day.FirstOfMonth()
		if full && c.day > current.From {
			current.To = c.day - 1
			all = append(all, current)
			current.From, held = c.day, 0
		}
		held += c.orders
	}

	current.To = p.To

	return append(all, current)
}

// Piece is the sums of the rows of one day, or of one month.
type Piece struct {
	// Day is the rows' day, or the first day of their month.
	Day Day
	// By are the values of the columns that were asked for.
	By []string
	Summary
}

// Outline is the sums of a report: in all, and by days or months, oldest first.
//
// ClickHouse sums. The days and their numbers of rows say in which of them a page lies, so
// that reading it does not depend on how many pages come before. What arrives between the
// two queries arrives on the last day; an order of an earlier day may change its status.
type Outline struct {
	Summary
	Pieces []Piece

	report *Report
	params Params
	books  books
}

// mostPieces bounds what a page keeps in memory: a piece of the expected collections, the largest, takes
// 750 bytes, so a page takes 45 MB. It is enough for a month of 1,900 fleets, and for a year of 160.
const mostPieces = 60_000

// Outline sums the report, each day (in fleet-statement: month) by the values of some
// columns of texts, given by their keys. It lacks days without rows. Errors are Run's, and a ParamErrors for
// a period of more than mostPieces.
func (r *Report) Outline(ctx context.Context, a *archive.Archive, p Params, by ...string) (*Outline, error) {
	b, _, err := booksOf(ctx, a, &p)
	if err != nil {
		return nil, err
	}
	query, err := r.outlineSQL(b, by)
	if err != nil {
		return nil, err
	}

	o := &Outline{Summary: r.nothing(), report: r, params: p, books: b}
	err = a.Each(ctx, query, func(rows driver.Rows) error {
		if len(o.Pieces) == mostPieces {
			return errTooManyPieces
		}

		var day int64
		piece := Piece{By: make([]string, len(by)), Summary: r.nothing()}
		targets := []any{&day}
		for i := range by {
			targets = append(targets, &piece.By[i])
		}

		targets = append(targets, &piece.Rows)
		for i := range r.Columns {
			if r.Columns[i].Sum {
				targets = append(targets, &piece.Totals[i].Number)
			}
		}

		if err := rows.Scan(targets...); err != nil {
			return err
		}

		piece.Day = Day(day)
		o.Pieces = append(o.Pieces, piece)

		return r.add(&o.Summary, piece.Rows, piece.Totals)
	}, p.named()...)
	if err != nil {
		return nil, r.explain(err)
	}

	return o, nil
}

var errTooManyPieces = ParamErrors{{Field: "to",
	Message: fmt.Sprintf("ends a period with more than %d sums of days and fleets, which a page does not take: take the CSV, or a shorter period", mostPieces)}}

func (r *Report) outlineSQL(b books, by []string) (string, error) {
	if r.Step == "" {
		return "", fmt.Errorf("%s has no sums by days", r.Name)
	}

	step := r.Step
	if b != live {
		step = cmp.Or(r.BookedStep, r.Step)
	}

	keys := []string{step}
	selected := []string{"toInt64(" + step + ")"}
	for _, key := range by {
		i := r.Column(key)
		if i < 0 || r.Columns[i].Kind != Text {
			return "", fmt.Errorf("%s has no column of texts %s", r.Name, key)
		}
		keys = append(keys, r.Columns[i].Source)
		selected = append(selected, r.Columns[i].expression())
	}

	selected = append(selected, "toInt64(count())")
	for i := range r.Columns {
		if c := &r.Columns[i]; c.Sum {
			sum := "sum(" + c.Source + ")"
			if c.Kind == Money {
				sum += " * 100"
			}
			selected = append(selected, "ifNull(toInt64("+sum+"), 0)")
		}
	}

	list := strings.Join(keys, ", ")

	return "SELECT " + strings.Join(selected, ", ") + r.from(b) + " GROUP BY " + list + " ORDER BY " + list + fmt.Sprintf(" LIMIT %d", mostPieces+1) + settings + uncompiled, nil
}

// Page reads rows of the report, in its order: at most limit, 1 to 1000, after
// the first skip ones.
func (o *Outline) Page(ctx context.Context, a *archive.Archive, skip int64, limit int) ([][]Cell, error) {
	if skip < 0 || limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("no page of %s has %d rows after %d", o.report.Name, limit, skip)
	}

	p, within, found := o.days(skip, int64(limit))
	if !found {
		return nil, nil
	}

	query := fmt.Sprintf("%s LIMIT %d OFFSET %d%s", o.report.selection(o.books), limit, within, settings+uncompiled)
	page := make([][]Cell, 0, limit)
	err := o.report.readRows(ctx, a, query, &p, func(cells []Cell) error {
		page = append(page, slices.Clone(cells))
		return nil
	})

	return page, err
}

// days narrows the period to the days that have the rows; within is how many rows of
// these come before them; not found when the report is not that long.
func (o *Outline) days(skip, limit int64) (p Params, within int64, found bool) {
	p = o.params
	before := int64(0)
	for i := range o.Pieces {
		piece := &o.Pieces[i]
		first := i == 0 || piece.Day != o.Pieces[i-1].Day
		if first && found && before >= skip+limit {
			break
		}

		if first && !found {
			p.From, within = max(o.params.From, piece.Day), skip-before
		}

		before += piece.Rows
		if before > skip {
			found = true
		}

		if found {
			last := piece.Day
			if o.report.Step == "month" { // a piece is named by its first day
				last = (last + 31).FirstOfMonth() - 1
			}
			p.To = min(o.params.To, last)
		}
	}

	return p, within, found
}
