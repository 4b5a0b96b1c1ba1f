package finance

import (
	"cmp"
	"fmt"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

// Bounds of what a chart shows, so that it can be read and stays small.
const (
	maxBars   = 62 // days, then months, then years
	maxFleets = 12
)

// chart adds the report's chart.
func (v *view) chart(o *reports.Outline) {
	switch v.Report.Name {
	case "expected-collections":
		v.Charts = append(v.Charts, v.collections(o))
	case "order-ledger":
		v.Charts = append(v.Charts, v.orders(o))
	case "fleet-statement":
		v.Charts = append(v.Charts, outcomes(o, v.known))
	case "exceptions":
		v.Kinds = v.kindsOf(o)
		v.Charts = append(v.Charts, exceptionKinds(v.Kinds))
	}
}

// bars are the stretches of time of a chart: every day of the period, or every
// month or year of a long one, whether something happened or not.
type bars struct {
	labels []string
	places map[string]int
	layout string
	every  string // day, month or year
}

func barsOf(p reports.Params) bars {
	b := bars{layout: "2 Jan", every: "day"}
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
	b.places = map[string]int{}
	for day := p.From; day <= p.To; day++ {
		label := dateOf(day).Format(b.layout)
		if _, there := b.places[label]; !there {
			b.places[label] = len(b.labels)
			b.labels = append(b.labels, label)
		}
	}
	return b
}

// add adds to the bar that a day is in.
func (b *bars) add(values []int64, day reports.Day, n int64) {
	if i, there := b.places[dateOf(day).Format(b.layout)]; there {
		values[i] += n
	}
}

// moneySeries draws kuruş as lira. The floats are for drawing alone; the texts
// are exact.
func moneySeries(name, tone string, kurus []int64) layout.Series {
	s := layout.Series{Name: name, Tone: tone}
	for _, n := range kurus {
		s.Values = append(s.Values, float64(n)/100)
		s.Texts = append(s.Texts, layout.Money(n))
	}
	return s
}

func countSeries(name, tone string, counts []int64) layout.Series {
	s := layout.Series{Name: name, Tone: tone}
	for _, n := range counts {
		s.Values = append(s.Values, float64(n))
		s.Texts = append(s.Texts, layout.Count(n))
	}
	return s
}

// collections is what was expected, by the day of delivery.
func (v *view) collections(o *reports.Outline) *layout.Chart {
	b := barsOf(v.Filters.params)
	cash, card := make([]int64, len(b.labels)), make([]int64, len(b.labels))
	for i := range o.Pieces {
		piece := &o.Pieces[i]
		b.add(cash, piece.Day, v.Report.Total(piece.Summary, "cashExpected"))
		b.add(card, piece.Day, v.Report.Total(piece.Summary, "cardExpected"))
	}
	return &layout.Chart{ID: "collections", Title: "Expected cash and card per " + b.every, Unit: "TRY", Stacked: true, Labels: b.labels,
		Series: []layout.Series{moneySeries("Cash", "accent", cash), moneySeries("Card", "second", card)}}
}

// orders is how many were created, by what has become of them.
func (v *view) orders(o *reports.Outline) *layout.Chart {
	b := barsOf(v.Filters.params)
	counts := make([][]int64, 4)
	for i := range counts {
		counts[i] = make([]int64, len(b.labels))
	}
	for i := range o.Pieces {
		place := 3
		switch o.Pieces[i].By[0] {
		case delivery.Delivered.String():
			place = 0
		case delivery.Failed.String():
			place = 1
		case delivery.Cancelled.String():
			place = 2
		}
		b.add(counts[place], o.Pieces[i].Day, o.Pieces[i].Rows)
	}
	return &layout.Chart{ID: "orders", Title: "Orders created per " + b.every, Stacked: true, Labels: b.labels,
		Series: []layout.Series{countSeries("Delivered", "good", counts[0]), countSeries("Failed", "bad", counts[1]),
			countSeries("Cancelled", "quiet", counts[2]), countSeries("In progress", "accent", counts[3])}}
}

// outcome is what a fleet did.
type outcome struct {
	name                         string
	delivered, failed, cancelled int64
}

func (o *outcome) all() int64 { return o.delivered + o.failed + o.cancelled }

// maxLabel is how many characters of a name a chart has room for.
const maxLabel = 24

func shortLabel(name string) string {
	if runes := []rune(name); len(runes) > maxLabel {
		return string(runes[:maxLabel-1]) + "…"
	}
	return name
}

// outcomes is what came of the orders of each fleet, those with the most first.
// nil when none has ended.
func outcomes(o *reports.Outline, known *directory) *layout.Chart {
	byFleet := map[string]*outcome{}
	statement := mustFind("fleet-statement")
	for i := range o.Pieces {
		piece := &o.Pieces[i]
		f := byFleet[piece.By[0]]
		if f == nil {
			f = &outcome{name: shortLabel(known.Fleets.labelOr(piece.By[0], piece.By[1]))}
			byFleet[piece.By[0]] = f
		}
		f.delivered += statement.Total(piece.Summary, "delivered")
		f.failed += statement.Total(piece.Summary, "failed")
		f.cancelled += statement.Total(piece.Summary, "cancelled")
	}
	var fleets []*outcome
	for _, f := range byFleet {
		if f.all() > 0 {
			fleets = append(fleets, f)
		}
	}
	slices.SortFunc(fleets, func(a, b *outcome) int { return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(a.name, b.name)) })
	if len(fleets) > maxFleets {
		others := &outcome{name: fmt.Sprintf("%d others", len(fleets)-maxFleets+1)}
		for _, f := range fleets[maxFleets-1:] {
			others.delivered, others.failed, others.cancelled = others.delivered+f.delivered, others.failed+f.failed, others.cancelled+f.cancelled
		}
		fleets = append(fleets[:maxFleets-1], others)
	}
	c := &layout.Chart{ID: "outcomes", Title: "Orders by outcome and fleet", Stacked: true, Across: true}
	var delivered, failed, cancelled []int64
	for _, f := range fleets {
		c.Labels = append(c.Labels, f.name)
		delivered, failed, cancelled = append(delivered, f.delivered), append(failed, f.failed), append(cancelled, f.cancelled)
	}
	c.Series = []layout.Series{countSeries("Delivered", "good", delivered), countSeries("Failed", "bad", failed), countSeries("Cancelled", "quiet", cancelled)}
	return c
}

// kind is a kind of exceptions, what it means (the report's column reason), what to do,
// and where its rows are.
type kind struct {
	Name, Meaning, Todo, Address string
	Rows, Amount, Collection     int64
}

// kindsOf sums the exceptions of each kind, the most frequent one first.
func (v *view) kindsOf(o *reports.Outline) []kind {
	sums := map[string]*kind{}
	for i := range o.Pieces {
		piece := &o.Pieces[i]
		k := sums[piece.By[0]]
		if k == nil {
			only := v.Filters.Typed
			only.Kind = piece.By[0]
			k = &kind{Name: piece.By[0], Meaning: piece.By[1], Todo: reports.Todo(piece.By[0]), Address: address(pathOf(v.Report), only, 0)}
			sums[k.Name] = k
		}
		k.Rows += piece.Rows
		k.Amount += v.Report.Total(piece.Summary, "orderAmount")
		k.Collection += v.Report.Total(piece.Summary, "collectionAmount")
	}
	var kinds []kind
	for _, k := range sums {
		kinds = append(kinds, *k)
	}
	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Name, b.Name)) })
	return kinds
}

func exceptionKinds(kinds []kind) *layout.Chart {
	c := &layout.Chart{ID: "kinds", Title: "Exceptions by kind", Across: true}
	var counts []int64
	for _, k := range kinds {
		c.Labels, counts = append(c.Labels, k.Name), append(counts, k.Rows)
	}
	c.Series = []layout.Series{countSeries("Exceptions", "warn", counts)}
	return c
}
