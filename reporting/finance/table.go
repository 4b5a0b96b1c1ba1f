package finance

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"vendorapi/reporting/access"
	"vendorapi/reporting/frame"
	"vendorapi/reporting/reports"
)

// table is a report's rows as people read them. It has the report's columns but
// for what says nothing here: ids whose names stand beside them, the currency,
// which is always TRY, and what is the same in all rows of a kind. Downloads have
// them all.
type table struct {
	Columns []heading
	Rows    []row
	// Foot begins with the number of rows, which spans FootSpan columns.
	FootSpan int
	Foot     []cell

	report *reports.Report
	known  *directory
	shown  []int // columns of the report
	// orders: order ids lead to the orders, for those who may see them.
	orders bool
}

type heading struct {
	Name  string
	Class string
}

// row is a row whose first cell names it.
type row struct {
	Head  cell
	Cells []cell
}

// cell is a value in words. Class is number, id, long, yes, no, or nothing.
type cell struct{ Text, Class, Address string }

// unshown are columns of downloads only.
var unshown = map[string]bool{"fleetId": true, "currency": true, "reason": true, "sha256": true}

func newTable(r *reports.Report, known *directory, roles access.Roles) *table {
	t := &table{report: r, known: known, orders: roles.Include(access.Operator)}
	summed := false
	for i := range r.Columns {
		c := &r.Columns[i]
		if unshown[c.Key] {
			continue
		}
		h := heading{Name: c.Heading()}
		if c.Numeric() {
			h.Class = "number"
		}
		if summed = summed || c.Sum; !summed {
			t.FootSpan++
		}
		at := len(t.shown)
		if c.Key == "ties" { // what a line is looked up for
			at = 1
		}
		t.Columns, t.shown = slices.Insert(t.Columns, at, h), slices.Insert(t.shown, at, i)
	}
	return t
}

func (t *table) fill(rows [][]reports.Cell) {
	t.Rows = make([]row, len(rows))
	for n, cells := range rows {
		shown := make([]cell, len(t.shown))
		for i, column := range t.shown {
			shown[i] = t.cell(column, cells)
		}
		t.Rows[n] = row{Head: shown[0], Cells: shown[1:]}
	}
}

// total fills the foot with the totals of all rows.
func (t *table) total(s reports.Summary) {
	for _, column := range t.shown[t.FootSpan:] {
		c := cell{}
		if s.Totals[column].Given {
			c = cell{Text: write(t.report.Columns[column].Kind, s.Totals[column].Number), Class: "number"}
		}
		t.Foot = append(t.Foot, c)
	}
}

// longText is from how many characters on a text is broken into lines.
const longText = 36

func (t *table) cell(column int, row []reports.Cell) cell {
	c, value := &t.report.Columns[column], &row[column]
	if c.Kind != reports.Text {
		shown := cell{}
		if c.Numeric() {
			shown.Class = "number"
		}
		if value.Given {
			shown.Text = write(c.Kind, value.Number)
		}
		return shown
	}
	shown := cell{Text: value.Text}
	switch {
	case c.Key == "accountId":
		shown.Text = t.known.Accounts.name(value.Text)
	case c.Key == "fleetName" && value.Text == "":
		shown.Text = t.known.Fleets.name(row[t.report.Column("fleetId")].Text)
	case c.Key == "orderId":
		shown.Class = "id"
		if t.orders {
			shown.Address, shown.Text = "/orders/"+value.Text, frame.Short(value.Text)+"…"
		}
		return shown
	}
	if c.Key == "ties" && (shown.Text == tiesYes || shown.Text == tiesNo) {
		shown.Class = shown.Text
	}
	if utf8.RuneCountInString(shown.Text) > longText {
		shown.Class = "long"
	}
	return shown
}

// write is a given value that is no text.
func write(kind reports.Kind, n int64) string {
	switch kind {
	case reports.Money:
		return frame.Money(n)
	case reports.Count:
		return frame.Count(n)
	case reports.DayOnly:
		return dayText(reports.Day(n))
	case reports.Month:
		return monthText(reports.Day(n))
	case reports.Time:
		return frame.Clock(time.UnixMilli(n))
	default:
		return strconv.FormatInt(n, 10)
	}
}

// dateOf is the day's beginning, in UTC for formatting alone.
func dateOf(d reports.Day) time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

func dayText(d reports.Day) string   { return dateOf(d).Format("2 Jan 2006") }
func monthText(d reports.Day) string { return dateOf(d).Format("Jan 2006") }
