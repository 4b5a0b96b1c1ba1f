package finance

import (
	"cmp"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

// table is a report's rows for people, amounts beside what names the row; see layouts.
type table struct {
	Name    string
	Columns []cell
	Rows    [][]cell // the first cell names the row
	Sums    []cell   // the totals of all rows; nil: there are none

	report  *reports.Report
	known   *directory
	columns [][]int // of the report: what a cell shows, one below the other
	orders  bool    // order ids lead to the orders, for those who may see them
}

// cell is a value in words. Class is money, number, yes, no, or nothing.
type cell struct {
	Label                string // the column's heading, which a phone shows beside the value
	Text, Class, Address string
	Whole                string   // what Text is the beginning of; empty: all of it
	Below                []string // further values of the row that belong to this one
}

// layouts are the columns of the tables: the first key, and those of the values below it.
// lineNames are the lines of control totals in words, and what they are.
var layouts, lineNames = func() (map[string][][]string, map[string][2]string) {
	var all struct {
		Columns map[string][][]string
		Lines   map[string][2]string
	}
	if err := yaml.UnmarshalWithOptions(tables, &all, yaml.Strict()); err != nil {
		panic(fmt.Sprintf("tables.yaml: %v", err)) // at every start
	}
	return all.Columns, all.Lines
}()

//go:embed tables.yaml
var tables []byte

func newTable(r *reports.Report, known *directory, roles auth.Roles) *table {
	t := &table{Name: r.Title, report: r, known: known, orders: roles.Include(auth.Operator)}
	for _, keys := range layouts[r.Name] {
		columns := make([]int, len(keys))
		for i, key := range keys {
			columns[i] = r.Column(key)
		}
		c := &r.Columns[columns[0]]
		t.columns, t.Columns = append(t.columns, columns), append(t.Columns, cell{Text: titleOf(r, columns), Class: classOf(c.Kind)})
	}
	return t
}

// titleOf names all that stands in a cell: Day, store, fleet, account.
func titleOf(r *reports.Report, columns []int) string {
	title := r.Columns[columns[0]].Heading
	for _, i := range columns[1:] {
		switch c := &r.Columns[i]; c.Key {
		case "externalStoreId": // stands below the store's name
		case "failureReason":
			title += ", reason"
		case "cancelReason": // an order has one of both reasons
		default:
			title += ", " + strings.ToLower(c.Heading[:1]) + c.Heading[1:]
		}
	}
	return title
}

func classOf(k reports.Kind) string {
	if k == reports.Money {
		return "money number"
	}
	if k == reports.Count {
		return "number"
	}
	return ""
}

func (t *table) fill(rows [][]reports.Cell) {
	t.Rows = make([][]cell, len(rows))
	for n, cells := range rows {
		for i, columns := range t.columns {
			shown := t.cell(columns[0], cells)
			shown.Label = t.Columns[i].Text
			for _, below := range columns[1:] {
				if text := t.cell(below, cells).Text; text != "" && text != shown.Text {
					shown.Below = append(shown.Below, text)
				}
			}
			t.Rows[n] = append(t.Rows[n], shown)
		}
	}
}

func (t *table) total(s reports.Summary) {
	sums, summed := []cell{{Text: "Total of all rows"}}, false
	for _, columns := range t.columns[1:] {
		c := &t.report.Columns[columns[0]]
		sum := cell{Label: c.Heading}
		if summed = summed || c.Sum; c.Sum {
			sum.Text, sum.Class = write(c.Kind, s.Totals[columns[0]].Number), classOf(c.Kind)
		}
		sums = append(sums, sum)
	}
	if summed {
		t.Sums = sums
	}
}

func (t *table) cell(column int, row []reports.Cell) cell {
	c, value := &t.report.Columns[column], &row[column]
	shown := cell{Label: c.Heading, Class: classOf(c.Kind)}
	switch {
	case c.Kind == reports.Text:
		shown.Text = value.Text
	case value.Given:
		shown.Text = write(c.Kind, value.Number)
	}
	switch c.Key {
	case "accountId":
		shown.Text = cmp.Or(t.known.Accounts[value.Text], value.Text)
	case "fleetName":
		if value.Text == "" {
			id := row[t.report.Column("fleetId")].Text
			shown.Text = cmp.Or(t.known.Fleets[id], id)
		}
	case "storeName":
		if value.Text == "" {
			shown.Text = row[t.report.Column("externalStoreId")].Text
		}
	case "orderId":
		shown.Text, shown.Whole = layout.Short(value.Text)+"…", value.Text
		if t.orders {
			shown.Address = "/orders/" + value.Text
		}
	case "paymentType":
		if value.Text == "" {
			shown.Text = "not given"
		}
	case "orderAmount", "collectionAmount":
		if !value.Given {
			shown.Text = "–" // as the pages of orders have it
		}
	case "rows":
		if shown.Text == "1" {
			shown.Text = "1 row"
		} else if value.Given {
			shown.Text += " rows"
		}
	case "line":
		name := lineNames[value.Text]
		shown.Text, shown.Below = name[0], []string{name[1]}
	case "ties":
		switch value.Text {
		case "":
			shown.Text = "not compared"
		case tiesYes, tiesNo:
			shown.Class = value.Text
		}
	}
	return shown
}

func write(kind reports.Kind, n int64) string {
	switch kind {
	case reports.Money:
		return layout.Money(n)
	case reports.Count:
		return layout.Count(n)
	case reports.DayOnly:
		return reports.Day(n).Text()
	case reports.Month:
		return dateOf(reports.Day(n)).Format("Jan 2006")
	case reports.Time:
		return layout.Clock(time.UnixMilli(n))
	default:
		return strconv.FormatInt(n, 10)
	}
}

// dateOf is the day's beginning, in UTC for formatting alone.
func dateOf(d reports.Day) time.Time { return time.Unix(int64(d)*86400, 0).UTC() }
