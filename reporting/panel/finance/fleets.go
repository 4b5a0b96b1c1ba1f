package finance

import (
	"cmp"
	"fmt"
	"slices"

	"vendorapi/reporting/reports"
)

// byFleet are the reports that are also added up by fleet, below each other with
// the same columns as their rows.
var byFleet = []string{"fleetId", "fleetName"}

// fleetSums is what a fleet's rows add up to.
type fleetSums struct {
	id, name string
	sums     []int64 // by the report's columns
	today    int64   // of them, the cash that was expected today
}

// subtotals is a table of one row per fleet; nil when there is none. An outline by
// days also tells the cash of today, if today is within the period.
func (v *view) subtotals(o *reports.Outline, today reports.Day) *table {
	if !slices.Equal(outlinedBy[v.Report.Name], byFleet) || len(o.Pieces) == 0 {
		return nil
	}
	cash, byDay := v.Report.Column("cashExpected"), v.Report.Column("day") >= 0
	sums := map[string]*fleetSums{}
	all := &fleetSums{sums: make([]int64, len(v.Report.Columns))}
	for i := range o.Pieces {
		piece := &o.Pieces[i]
		f := sums[piece.By[0]]
		if f == nil {
			f = &fleetSums{id: piece.By[0], name: v.known.Fleets.labelOr(piece.By[0], piece.By[1]), sums: make([]int64, len(v.Report.Columns))}
			sums[piece.By[0]] = f
		}
		for _, to := range []*fleetSums{f, all} {
			to.add(piece.Totals)
			if byDay && piece.Day == today {
				to.today += piece.Totals[cash].Number
			}
		}
	}
	t := &table{Name: v.Report.Title + " by fleet", Columns: []heading{{Name: "Fleet"}}}
	withToday := byDay && v.Filters.params.From <= today && today <= v.Filters.params.To
	var columns []int
	for _, keys := range layouts[v.Report.Name] {
		i := v.Report.Column(keys[0])
		c := &v.Report.Columns[i]
		if !c.Sum {
			continue
		}
		columns, t.Columns = append(columns, i), append(t.Columns, heading{Name: c.Heading(), Class: classOf(c.Kind)})
		if i == cash && withToday {
			columns, t.Columns = append(columns, todaysCash), append(t.Columns, heading{Name: "Cash today", Class: classOf(reports.Money)})
		}
	}
	for _, f := range sorted(sums) {
		t.Rows = append(t.Rows, f.row(t, v.Report, columns))
	}
	all.name = "Total of all fleets"
	t.Sums = all.row(t, v.Report, columns)
	return t
}

// todaysCash stands among the columns for what is no column of the report.
const todaysCash = -1

func (f *fleetSums) add(totals []reports.Cell) {
	for i := range totals {
		f.sums[i] += totals[i].Number
	}
}

// sorted are the fleets by name; those beyond a page are one row together.
func sorted(sums map[string]*fleetSums) []*fleetSums {
	var fleets []*fleetSums
	for _, f := range sums {
		fleets = append(fleets, f)
	}
	slices.SortFunc(fleets, func(a, b *fleetSums) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id)) })
	if len(fleets) <= pageRows {
		return fleets
	}
	others := fleets[pageRows-1]
	for _, f := range fleets[pageRows:] {
		for i := range f.sums {
			others.sums[i] += f.sums[i]
		}
		others.today += f.today
	}
	others.name = fmt.Sprintf("%d others", len(fleets)-pageRows+1)
	return fleets[:pageRows]
}

func (f *fleetSums) row(t *table, r *reports.Report, columns []int) row {
	shown := row{Head: cell{Text: f.name}}
	for n, i := range columns {
		kind, sum := reports.Money, f.today
		if i != todaysCash {
			kind, sum = r.Columns[i].Kind, f.sums[i]
		}
		shown.Cells = append(shown.Cells, cell{Label: t.Columns[n+1].Name, Text: write(kind, sum), Class: classOf(kind)})
	}
	return shown
}
