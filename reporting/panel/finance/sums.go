package finance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

const (
	maxBars   = 62 // days, then months, then years
	maxFleets = 12 // in a chart
	maxLabel  = 23 // characters of a name in a chart
)

// group is the sum of the pieces with the same first column: a fleet or a kind.
type group struct {
	by    []string
	name  string // a fleet's
	rows  int64
	sums  []int64 // by the report's columns
	today int64   // of them, the cash that was expected today
}

func (g *group) add(other *group) {
	g.rows += other.rows
	g.today += other.today
	for i, n := range other.sums {
		g.sums[i] += n
	}
}

func groupsOf(r *reports.Report, o *reports.Outline, today reports.Day) map[string]*group {
	groups := map[string]*group{}
	cash := r.Column("cashExpected")
	byDay := cash >= 0 && r.Column("day") >= 0
	for i := range o.Pieces {
		piece := &o.Pieces[i]
		g := groups[piece.By[0]]
		if g == nil {
			g = &group{by: piece.By, sums: make([]int64, len(r.Columns))}
			groups[piece.By[0]] = g
		}
		g.rows += piece.Rows
		for column := range piece.Totals {
			g.sums[column] += piece.Totals[column].Number
		}
		if byDay && piece.Day == today {
			g.today += piece.Totals[cash].Number
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

// byFleet are the columns of the reports that are also summed up by fleet.
var byFleet = []string{"fleetId", "fleetName"}

// todaysCash stands among the columns for what is no column of the report.
const todaysCash = -1

// subtotals has a row per fleet; nil: there are none. An outline by days also shows the
// cash of today, if that is within the period.
func (v *view) subtotals(o *reports.Outline, today reports.Day) *table {
	if !slices.Equal(outlinedBy[v.Report.Name], byFleet) || len(o.Pieces) == 0 {
		return nil
	}
	t := &table{Name: v.Report.Title + " by fleet", Columns: []cell{{Text: "Fleet"}}}
	withToday := v.Report.Column("day") >= 0 && v.Filters.params.From <= today && today <= v.Filters.params.To
	columns := []int{}
	for _, keys := range layouts[v.Report.Name] {
		i := v.Report.Column(keys[0])
		c := &v.Report.Columns[i]
		if !c.Sum {
			continue
		}
		columns, t.Columns = append(columns, i), append(t.Columns, cell{Text: c.Heading, Class: classOf(c.Kind)})
		if c.Key == "cashExpected" && withToday {
			columns, t.Columns = append(columns, todaysCash), append(t.Columns, cell{Text: "Cash today", Class: classOf(reports.Money)})
		}
	}
	row := func(g *group) []cell {
		cells := []cell{{Text: g.name}}
		for n, i := range columns {
			kind, sum := reports.Money, g.today
			if i != todaysCash {
				kind, sum = v.Report.Columns[i].Kind, g.sums[i]
			}
			cells = append(cells, cell{Label: t.Columns[n+1].Text, Text: write(kind, sum), Class: classOf(kind)})
		}
		return cells
	}
	all := &group{name: "Total of all fleets", sums: make([]int64, len(v.Report.Columns))}
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
		orders := func(holds func(delivery.Status) bool) func(*reports.Piece) int64 {
			return func(piece *reports.Piece) int64 {
				if status, _ := delivery.ParseStatus(piece.By[0]); holds(status) {
					return piece.Rows
				}
				return 0
			}
		}
		are := func(wanted delivery.Status) func(delivery.Status) bool {
			return func(s delivery.Status) bool { return s == wanted }
		}
		v.byDay(o, layout.Chart{ID: "orders", Title: "Orders created"}, []daySeries{
			{"Delivered", "good", orders(are(delivery.Delivered))}, {"Failed", "bad", orders(are(delivery.Failed))},
			{"Cancelled", "quiet", orders(are(delivery.Cancelled))},
			{"In progress", "accent", orders(func(s delivery.Status) bool { return !s.Terminal() })},
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

// bars are the days of a chart, or the months or years of a long one, empty ones too.
type bars struct {
	labels []string
	places map[string]int
	layout string
	every  string // day, month or year
}

func barsOf(p reports.Params) bars {
	b := bars{layout: "2 Jan", every: "day", places: map[string]int{}}
	first, last := dateOf(p.From), dateOf(p.To)
	months := (last.Year()-first.Year())*12 + int(last.Month()) - int(first.Month()) + 1
	switch {
	case int(p.To-p.From) < maxBars:
		if first.Year() != last.Year() {
			b.layout = "2 Jan 06"
		}
	case months <= maxBars:
		b.layout, b.every = "Jan 2006", "month"
	default:
		b.layout, b.every = "2006", "year"
	}
	for day := p.From; day <= p.To; day++ {
		label := dateOf(day).Format(b.layout)
		if _, there := b.places[label]; !there {
			b.places[label] = len(b.labels)
			b.labels = append(b.labels, label)
		}
	}
	return b
}

func (b *bars) add(values []int64, day reports.Day, n int64) {
	if i, there := b.places[dateOf(day).Format(b.layout)]; there {
		values[i] += n
	}
}

type daySeries struct {
	name, tone string
	value      func(*reports.Piece) int64
}

func (v *view) byDay(o *reports.Outline, c layout.Chart, series []daySeries) {
	b := barsOf(v.Filters.params)
	c.Title, c.Stacked, c.Labels = c.Title+" per "+b.every, true, b.labels
	for _, s := range series {
		values := make([]int64, len(b.labels))
		for i := range o.Pieces {
			b.add(values, o.Pieces[i].Day, s.value(&o.Pieces[i]))
		}
		c.Add(s.name, s.tone, values)
	}
	v.Charts = append(v.Charts, &c)
}

// outcomes is by fleet, the largest first. It has no labels when no order has ended.
func outcomes(o *reports.Outline, known *directory) *layout.Chart {
	r := mustFind("fleet-statement")
	columns := []int{r.Column("delivered"), r.Column("failed"), r.Column("cancelled")}
	ended := func(g *group) int64 { return g.sums[columns[0]] + g.sums[columns[1]] + g.sums[columns[2]] }
	groups := groupsOf(r, o, 0)
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

// kind is a kind of exceptions; Meaning is the report's column reason.
type kind struct {
	Name, Meaning, Todo, Address string
	Rows, Amount, Collection     int64
}

func (v *view) kindsOf(o *reports.Outline) (kinds []kind) {
	amount, collection := v.Report.Column("orderAmount"), v.Report.Column("collectionAmount")
	for name, g := range groupsOf(v.Report, o, 0) {
		only := v.Filters.Typed
		only.Kind = name
		kinds = append(kinds, kind{Name: name, Meaning: g.by[1], Todo: reports.Todo(name), Address: address(pathOf(v.Report), only),
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
