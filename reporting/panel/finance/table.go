package finance

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/layout"
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

func newTable(r *reports.Report, known *directory, roles auth.Roles, rows [][]reports.Cell) *table {
	t := &table{Name: r.Title, report: r, known: known, orders: roles.Include(auth.Operator)}
	for _, keys := range layouts[r.Name] {
		columns := make([]int, len(keys))
		for i, key := range keys {
			columns[i] = r.Column(key)
		}
		c := &r.Columns[columns[0]]
		t.columns, t.Columns = append(t.columns, columns), append(t.Columns, cell{Text: titleOf(r, columns), Class: classes[c.Kind]})
	}

	for _, cells := range rows {
		var row []cell
		for i, columns := range t.columns {
			shown := t.cell(columns[0], cells)
			shown.Label = t.Columns[i].Text
			for _, below := range columns[1:] {
				if text := t.cell(below, cells).Text; text != "" && text != shown.Text {
					shown.Below = append(shown.Below, text)
				}
			}
			row = append(row, shown)
		}

		t.Rows = append(t.Rows, row)
	}

	return t
}

// titleOf names all that stands in a cell: Day, store, fleet, account.
func titleOf(r *reports.Report, columns []int) string {
	title := r.Columns[columns[0]].Heading
	for _, i := range columns[1:] {
		c := &r.Columns[i]
		switch c.Key {
		case "externalStoreId": // stands below the store's name
		case "correctionOf": // says what it is
		case "failureReason":
			title += ", reason"
		case "cancelReason": // an order has one of both reasons
		default:
			title += ", " + strings.ToLower(c.Heading[:1]) + c.Heading[1:]
		}
	}

	return title
}

var classes = map[reports.Kind]string{reports.Money: "money number", reports.Count: "number"}

func (t *table) total(s reports.Summary) {
	sums, summed := []cell{{Text: "Total of all rows"}}, false
	for _, columns := range t.columns[1:] {
		c := &t.report.Columns[columns[0]]
		sum := cell{Label: c.Heading}
		summed = summed || c.Sum
		if c.Sum {
			sum.Text, sum.Class = write(c.Kind, s.Totals[columns[0]].Number), classes[c.Kind]
		}
		sums = append(sums, sum)
	}

	if summed {
		t.Sums = sums
	}
}

func (t *table) cell(column int, row []reports.Cell) cell {
	c, value := &t.report.Columns[column], &row[column]
	shown := cell{Label: c.Heading, Class: classes[c.Kind]}
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
		id := row[t.report.Column("fleetId")].Text
		shown.Text = cmp.Or(value.Text, t.known.Fleets[id], id)
	case "storeName":
		shown.Text = cmp.Or(value.Text, row[t.report.Column("externalStoreId")].Text)
	case "orderId":
		shown.Text, shown.Whole = layout.Short(value.Text)+"…", value.Text
		if t.orders {
			shown.Address = "/orders/" + value.Text
		}
	case "correctionOf":
		if value.Given {
			shown.Text = t.booking(row) + " of " + shown.Text
		}
	case "paymentType":
		shown.Text = cmp.Or(value.Text, "not given")
	case "orderAmount", "collectionAmount":
		if !value.Given {
			shown.Text = "–" // as the pages of orders have it
		}
	case "rows":
		if value.Given {
			shown.Text = layout.Plural(value.Number, "row", "rows")
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

// booking is what a row that was booked later is: of an order there are two, which take back and set.
func (t *table) booking(row []reports.Cell) string {
	if i := t.report.Column("booking"); i >= 0 {
		return row[i].Text
	}
	return "correction"
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
		return reports.Day(n).Midnight().Format("Jan 2006")
	case reports.Time:
		return layout.Clock(time.UnixMilli(n))
	default:
		return strconv.FormatInt(n, 10)
	}
}

const (
	maxBars   = 62 // days, then months, then years
	maxFleets = 12 // in a chart
	maxLabel  = 23 // characters of a name in a chart
)

type group struct {
	by   []string
	name string // a fleet's
	rows int64
	sums []int64 // by the report's columns; the last is the cash that was expected today
}

func (g *group) add(other *group) {
	g.rows += other.rows
	for i, n := range other.sums {
		g.sums[i] += n
	}
}

func groupsOf(r *reports.Report, o *reports.Outline, today reports.Day) map[string]*group {
	groups := map[string]*group{}
	cash, byDay := r.Column("cashExpected"), r.Column("day") >= 0
	for i := range o.Pieces {
		piece := &o.Pieces[i]
		g := groups[piece.By[0]]
		if g == nil {
			g = &group{by: piece.By, sums: make([]int64, len(r.Columns)+1)}
			groups[piece.By[0]] = g
		}

		g.rows += piece.Rows
		for column := range piece.Totals {
			g.sums[column] += piece.Totals[column].Number
		}

		if byDay && cash >= 0 && piece.Day == today {
			g.sums[len(r.Columns)] += piece.Totals[cash].Number
		}
	}

	return groups
}

// fleetsOf are the named fleets in an order; those beyond most are one together.
func fleetsOf(groups map[string]*group, known *directory, most int, order func(a, b *group) int) []*group {
	for id, g := range groups {
		g.name = cmp.Or(known.Fleets[id], g.by[1], layout.Short(id)+"…")
	}

	fleets := slices.SortedFunc(maps.Values(groups), order)
	if len(fleets) <= most {
		return fleets
	}

	others := fleets[most-1]
	for _, g := range fleets[most:] {
		others.add(g)
	}

	others.name = fmt.Sprintf("%d others", len(fleets)-most+1)

	return fleets[:most]
}

var byFleet = []string{"fleetId", "fleetName"}

// subtotals has a row per fleet; nil: there are none. An outline by days also shows the
// cash of today, if that is within the period.
func (v *view) subtotals(o *reports.Outline, today reports.Day) *table {
	if !slices.Equal(outlinedBy[v.Report.Name], byFleet) || len(o.Pieces) == 0 {
		return nil
	}

	t := &table{Name: v.Report.Title + " by fleet", Columns: []cell{{Text: "Fleet"}}}
	withToday := v.Report.Column("day") >= 0 && v.Filters.params.From <= today && today <= v.Filters.params.To
	var columns []int // of a group's sums
	var kinds []reports.Kind
	add := func(column int, heading string, kind reports.Kind) {
		columns, kinds, t.Columns = append(columns, column), append(kinds, kind), append(t.Columns, cell{Text: heading, Class: classes[kind]})
	}
	for _, keys := range layouts[v.Report.Name] {
		i := v.Report.Column(keys[0])
		if c := &v.Report.Columns[i]; c.Sum {
			add(i, c.Heading, c.Kind)
		}
		if keys[0] == "cashExpected" && withToday {
			add(len(v.Report.Columns), "Cash today", reports.Money)
		}
	}

	row := func(g *group) []cell {
		cells := []cell{{Text: g.name}}
		for n, column := range columns {
			heading := t.Columns[n+1]
			cells = append(cells, cell{Label: heading.Text, Text: write(kinds[n], g.sums[column]), Class: heading.Class})
		}
		return cells
	}

	all := &group{name: "Total of all fleets", sums: make([]int64, len(v.Report.Columns)+1)}
	byName := func(a, b *group) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.by[0], b.by[0])) }
	for _, g := range fleetsOf(groupsOf(v.Report, o, today), v.known, pageRows, byName) {
		all.add(g)
		t.Rows = append(t.Rows, row(g))
	}

	t.Sums = row(all)

	return t
}

func (v *view) chart(o *reports.Outline) {
	switch v.Report.Name {
	case "expected-collections":
		expected := func(key string) func(*reports.Piece) int64 {
			return func(piece *reports.Piece) int64 { return v.Report.Total(piece.Summary, key) }
		}
		v.byDay(o, layout.Chart{ID: "collections", Title: "Expected cash and card", Unit: "TRY"}, []daySeries{
			{"Cash", "accent", expected("cashExpected")}, {"Card", "second", expected("cardExpected")},
		})
	case "order-ledger":
		orders := func(wanted delivery.Status) func(*reports.Piece) int64 { // 0: those in progress
			return func(piece *reports.Piece) int64 {
				status, _ := delivery.ParseStatus(piece.By[0])
				if status == wanted || wanted == 0 && !status.Terminal() {
					return piece.Rows
				}
				return 0
			}
		}

		v.byDay(o, layout.Chart{ID: "orders", Title: "Orders created"}, []daySeries{
			{"Delivered", "good", orders(delivery.Delivered)}, {"Failed", "bad", orders(delivery.Failed)},
			{"Cancelled", "quiet", orders(delivery.Cancelled)}, {"In progress", "accent", orders(0)},
		})
	case "fleet-statement":
		v.Charts = append(v.Charts, outcomes(o, v.known))
	case "exceptions":
		v.Kinds = v.kindsOf(o)
		c := &layout.Chart{ID: "kinds", Title: "Exceptions by kind", Across: true}
		var counts []int64
		for _, k := range v.Kinds {
			c.Labels, counts = append(c.Labels, k.Name), append(counts, k.Rows)
		}
		c.Add("Exceptions", "warn", counts)
		v.Charts = append(v.Charts, c)
	}
}

// barsOf are the days of a chart, or the months or years of a long one, empty ones too, and
// which of them a day is in.
func barsOf(p reports.Params) (every string, labels []string, label func(reports.Day) string) {
	every, form := "day", "2 Jan"
	first, last := p.From.Midnight(), p.To.Midnight()
	months := (last.Year()-first.Year())*12 + int(last.Month()) - int(first.Month()) + 1
	switch {
	case int(p.To-p.From) < maxBars:
		if first.Year() != last.Year() {
			form = "2 Jan 06"
		}
	case months <= maxBars:
		every, form = "month", "Jan 2006"
	default:
		every, form = "year", "2006"
	}

	label = func(day reports.Day) string { return day.Midnight().Format(form) }
	for day := p.From; day <= p.To; day++ {
		labels = append(labels, label(day))
	}

	return every, slices.Compact(labels), label
}

type daySeries struct {
	name, tone string
	value      func(*reports.Piece) int64
}

func (v *view) byDay(o *reports.Outline, c layout.Chart, series []daySeries) {
	every, labels, label := barsOf(v.Filters.params)
	c.Title, c.Stacked, c.Labels = c.Title+" per "+every, true, labels
	for _, s := range series {
		values := make([]int64, len(labels))
		for i := range o.Pieces {
			if bar := slices.Index(labels, label(o.Pieces[i].Day)); bar >= 0 {
				values[bar] += s.value(&o.Pieces[i])
			}
		}
		c.Add(s.name, s.tone, values)
	}

	v.Charts = append(v.Charts, &c)
}

// outcomes is by fleet, the largest first. It has no labels when no order has ended.
func outcomes(o *reports.Outline, known *directory) *layout.Chart {
	columns := []int{statement.Column("delivered"), statement.Column("failed"), statement.Column("cancelled")}
	ended := func(g *group) int64 { return g.sums[columns[0]] + g.sums[columns[1]] + g.sums[columns[2]] }
	groups := groupsOf(statement, o, 0)
	maps.DeleteFunc(groups, func(_ string, g *group) bool { return ended(g) == 0 })
	c := &layout.Chart{ID: "outcomes", Title: "Orders by outcome and fleet", Stacked: true, Across: true}
	var counts [3][]int64
	for _, g := range fleetsOf(groups, known, maxFleets, func(a, b *group) int {
		return cmp.Or(cmp.Compare(ended(b), ended(a)), cmp.Compare(a.name, b.name))
	}) {
		c.Labels = append(c.Labels, layout.Shorten(g.name, maxLabel))
		for i, column := range columns {
			counts[i] = append(counts[i], g.sums[column])
		}
	}

	c.Add("Delivered", "good", counts[0])
	c.Add("Failed", "bad", counts[1])
	c.Add("Cancelled", "quiet", counts[2])

	return c
}

type kind struct {
	Name, Meaning, Todo, Address string
	Rows, Amount, Collection     int64
}

func (v *view) kindsOf(o *reports.Outline) (kinds []kind) {
	amount, collection := v.Report.Column("orderAmount"), v.Report.Column("collectionAmount")
	for name, g := range groupsOf(v.Report, o, 0) {
		only := v.Filters.Typed
		only.Kind = name
		kinds = append(kinds, kind{Name: name, Meaning: g.by[1], Todo: reports.ExceptionKinds()[name], Address: address(pathOf(v.Report), only),
			Rows: g.rows, Amount: g.sums[amount], Collection: g.sums[collection]})
	}

	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Name, b.Name)) })
	return kinds
}

// balance says what the amount delivered is made of. Cash and card are amounts to
// collect, the others order amounts; the rest is by what these differ.
func balance(r *reports.Report, s reports.Summary) string {
	if r.Column("orderAmountDelivered") < 0 {
		return ""
	}

	rest := r.Total(s, "orderAmountDelivered")
	text := "Amount delivered " + layout.Money(rest) + " ="
	for _, part := range []struct{ key, name string }{
		{"cashExpected", "cash expected"}, {"cardExpected", "+ card expected"}, {"prepaidAmount", "+ prepaid"}, {"noPaymentTypeAmount", "+ without payment type"},
	} {
		n := r.Total(s, part.key)
		text, rest = text+" "+part.name+" "+layout.Money(n), rest-n
	}

	switch {
	case rest > 0:
		text += " + " + layout.Money(rest) + " of cash and card orders that was not to be collected"
	case rest < 0:
		text += " - " + layout.Money(-rest) + " of cash and card orders that was to be collected beyond the order amounts"
	}

	return text + "."
}
