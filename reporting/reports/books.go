package reports

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
)

// books are the views that a report is read from, by the end of their names.
type books string

const (
	live     books = ""        // the orders as they are
	asBooked books = "_booked" // closed months as they were closed, and corrections where they were booked
	asKnown  books = "_known"  // closed months as they were known on a day
)

// lastDate is the last day of ClickHouse's Date: every seal counts.
var lastDate = dayOf(2149, time.June, 6)

// booksOf chooses the views, and returns the closings that count for them, in their order. The error
// is a ParamErrors when the period was not closed on the day that is asked for.
func booksOf(ctx context.Context, a *archive.Archive, p *Params) (books, []closing, error) {
	if p.Basis == Known && p.AsOf == 0 {
		return live, nil, nil
	}

	closings, err := closingsUntil(ctx, a, cmp.Or(p.AsOf, lastDate))
	if err != nil {
		return live, nil, err
	}

	lastClosed := Day(0)
	if len(closings) > 0 {
		lastClosed = closings[len(closings)-1].month.lastOfMonth()
	}

	switch {
	case p.AsOf != 0 && p.To > lastClosed:
		return live, nil, ParamErrors{{Field: "as_of", Message: fmt.Sprintf("%s was not closed on %s: what was known of months that are open is not kept",
			p.To.Midnight().Format("January 2006"), p.AsOf.Text())}}
	case len(closings) == 0:
		return live, nil, nil
	case p.Basis == Known:
		return asKnown, closings, nil
	}

	return asBooked, closings, nil
}

// closing is what the reports need of an entry that closed a month.
type closing struct {
	at      time.Time // when it was decided
	month   Day       // its first
	control []StoredLine
}

// closingsUntil returns the closings that were decided by the end of a day. The whole log is checked
// first: nothing is reported from books that were tampered with.
func closingsUntil(ctx context.Context, a *archive.Archive, day Day) ([]closing, error) {
	entries, err := a.Journal(ctx)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	all, err := closingsOf(entries)
	if err != nil {
		return nil, err
	}

	var closings []closing
	for _, c := range all {
		if DayOf(c.at) <= day {
			closings = append(closings, c)
		}
	}

	return closings, nil
}

// lastClosings are the closings of the log that was parsed last.
var lastClosings atomic.Pointer[parsedClosings]

// parsedClosings are the closings of a log by the seal of its last entry, which names every entry before.
type parsedClosings struct {
	seal     string
	closings []closing
}

// closingsOf returns the closings among all entries of a log. They are shared, and must not be changed.
func closingsOf(entries []journal.Entry) ([]closing, error) {
	seal := entries[len(entries)-1].Seal()
	last := lastClosings.Load()
	if last != nil && last.seal == seal {
		return last.closings, nil
	}

	var closings []closing
	for i := range entries {
		var decision struct {
			Kind    string       `json:"kind"`
			Month   string       `json:"month"`
			At      time.Time    `json:"at"`
			Control []StoredLine `json:"control"`
		}

		if err := json.Unmarshal([]byte(entries[i].Text), &decision); err != nil {
			return nil, fmt.Errorf("entry %d of the books: %w", i+1, err)
		}
		if decision.Kind != "close" {
			continue
		}

		month, err := ParseDay(decision.Month + "-01")
		if err != nil {
			return nil, fmt.Errorf("entry %d of the books: %w", i+1, err)
		}

		closings = append(closings, closing{at: decision.At, month: month, control: decision.Control})
	}

	lastClosings.Store(&parsedClosings{seal: seal, closings: closings})

	return closings, nil
}

func (d Day) lastOfMonth() Day { return (d.FirstOfMonth() + 31).FirstOfMonth() - 1 }

// narrowing are the filters that leave out rows.
func (p *Params) narrowing() []Filter {
	everything := *p
	everything.Basis, everything.AsOf = "", 0
	return everything.Filters()
}

// StoredLine is a line of the control totals of a closed month. Figures are by the keys of columns, amounts in kuruş.
type StoredLine struct {
	Line    string           `json:"line"`
	Figures map[string]int64 `json:"figures"`
	Ties    string           `json:"ties,omitempty"`

	// SHA256 is that of the report of this name as plain CSV, and Format how that was written.
	SHA256 string        `json:"sha256,omitempty"`
	Format *SealedFormat `json:"format,omitempty"`
}

// SealedFormat says how a report was written when a month was closed. The month's reports are written so
// for ever, whatever is added to them later: their bytes do not change.
type SealedFormat struct {
	// Writer names the form of times, amounts and texts.
	Writer string `json:"writer"`

	// Columns are the keys of the report's columns, in their order.
	Columns []string `json:"columns"`
}

// plainWriter is the only form of plain CSV so far; a golden test holds it. Another form would need a
// name of its own, and both writers would stay.
const plainWriter = "csv-plain-1"

// format is how the report is written now.
func (r *Report) format() *SealedFormat {
	f := &SealedFormat{Writer: plainWriter}
	for i := range r.Columns {
		f.Columns = append(f.Columns, r.Columns[i].Key)
	}
	return f
}

// withFormat returns the report with the columns of an older format. It fails when this program cannot
// write that format.
func (r *Report) withFormat(f *SealedFormat) (*Report, error) {
	now := r.format()
	isPrefix := len(f.Columns) <= len(now.Columns) && slices.Equal(f.Columns, now.Columns[:len(f.Columns)])
	if f.Writer != plainWriter || !isPrefix {
		return nil, fmt.Errorf("the report %s of a closed month was written as %s with the columns %v, which this program does not write", r.Name, f.Writer, f.Columns)
	}

	sealed := *r
	sealed.Columns = r.Columns[:len(f.Columns)]
	return &sealed, nil
}

// asSealed returns the report in the format in which it was sealed, when all of one closed month is
// asked for, and the report as it is otherwise.
func (r *Report) asSealed(b books, closings []closing, p *Params) (*Report, error) {
	isWholeMonth := p.From == p.From.FirstOfMonth() && p.To == p.From.lastOfMonth()
	if b != asBooked || !isWholeMonth || len(p.narrowing()) > 0 {
		return r, nil
	}

	for _, c := range closings {
		if c.month != p.From {
			continue
		}
		for _, line := range c.control {
			if line.Line == r.Name && line.Format != nil {
				return r.withFormat(line.Format)
			}
		}
	}

	return r, nil
}

// CloseLines are the control totals of a month as it was booked, to be stored.
func CloseLines(ctx context.Context, a *archive.Archive, p Params) (stored []StoredLine, err error) {
	lines, err := asBooked.controlLines(ctx, a, p)
	for _, line := range lines {
		s := StoredLine{Line: line[control.Column("line")].Text, Figures: map[string]int64{},
			Ties: line[control.Column("ties")].Text, SHA256: line[control.Column("sha256")].Text}
		r, isReport := Find(s.Line)
		if isReport && s.SHA256 != "" {
			s.Format = r.format()
		}

		for i := range control.Columns {
			if c := &control.Columns[i]; c.Numeric() && line[i].Given {
				s.Figures[c.Key] = line[i].Number
			}
		}

		stored = append(stored, s)
	}

	return stored, err
}

// storedLines are the control totals of a period of whole closed months; nil when it is none. Carried in is of the
// first month, carried out of the last, everything else is added up. Orders with exceptions are counted month by month.
func storedLines(closings []closing, p *Params) (lines [][]Cell) {
	if p.From != p.From.FirstOfMonth() || p.To != p.To.lastOfMonth() {
		return nil
	}

	var sums []StoredLine
	var digests []string // of each line, the months' one after the other
	next := p.From
	for _, c := range closings {
		isNext := c.month == next && next <= p.To
		if !isNext { // before the first closing, or after the last
			continue
		}

		next = c.month.lastOfMonth() + 1

		if sums == nil {
			sums, digests = copyLines(c.control), make([]string, len(c.control))
		} else {
			addStored(sums, c.control)
		}

		for i, line := range c.control {
			digests[i] += line.SHA256 + "\n"
		}
	}

	if next != p.To+1 || !carried(sums) {
		return nil
	}

	for i, s := range sums {
		line := make([]Cell, len(control.Columns))
		for j := range control.Columns {
			line[j].Number, line[j].Given = s.Figures[control.Columns[j].Key]
		}

		line[control.Column("line")].Text, line[control.Column("ties")].Text = s.Line, s.Ties
		if s.SHA256 != "" && p.To > p.From.lastOfMonth() {
			sum := sha256.Sum256([]byte(digests[i]))
			s.SHA256 = hex.EncodeToString(sum[:])
		}

		line[control.Column("sha256")].Text = s.SHA256
		lines = append(lines, line)
	}

	return lines
}

const carriedIn, carriedOut = "carried-in", "carried-out"

// copyLines returns lines to which addStored may add.
func copyLines(lines []StoredLine) []StoredLine {
	copied := slices.Clone(lines)
	for i := range copied {
		copied[i].Figures = maps.Clone(lines[i].Figures)
	}
	return copied
}

// addStored adds a later month.
func addStored(sums, later []StoredLine) {
	for i := range sums {
		for key, n := range later[i].Figures {
			switch sums[i].Line {
			case carriedIn:
			case carriedOut:
				sums[i].Figures[key] = n
			default:
				sums[i].Figures[key] += n
			}
		}

		if later[i].Ties == "no" {
			sums[i].Ties = "no"
		}
	}
}

// carried reports whether what ended is what was created, with what was carried in and without what was carried out:
// an order that lives longer than a month is carried over more than one end.
func carried(sums []StoredLine) bool {
	byName := map[string]map[string]int64{}
	for _, s := range sums {
		byName[s.Line] = s.Figures
	}

	for key, ended := range byName["ended-in-period"] {
		if byName["order-ledger"][key]+byName[carriedIn][key]-byName[carriedOut][key] != ended {
			return false
		}
	}

	return true
}

// Balance reports whether the control totals of a period balance, and how many rows its exceptions have.
func Balance(ctx context.Context, a *archive.Archive, p Params) (balanced bool, found int64, err error) {
	balanced = true
	err = control.readRows(ctx, a, control.selection(asBooked)+asBooked.settings(), &p, func(line []Cell) error {
		balanced = balanced && line[control.Column("ties")].Text != "no"
		if line[control.Column("line")].Text == exceptions.Name {
			found = line[control.Column("rows")].Number
		}
		return nil
	})

	return balanced, found, err
}
