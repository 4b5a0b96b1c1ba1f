package finance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"vendorapi/reporting/layout"
	"vendorapi/reporting/reports"
)

func TestBars_AreDaysThenMonthsThenYears(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		from, to, every, first, last string
		bars                         int
	}{
		{"2026-11-30", "2026-11-30", "day", "30 Nov", "30 Nov", 1},
		{"2026-11-01", "2026-11-30", "day", "1 Nov", "30 Nov", 30},
		{"2028-02-01", "2028-02-29", "day", "1 Feb", "29 Feb", 29},
		{"2026-12-31", "2027-01-01", "day", "31 Dec 26", "1 Jan 27", 2},
		{"2026-10-01", "2026-12-01", "day", "1 Oct", "1 Dec", 62},
		{"2026-10-01", "2026-12-02", "month", "Oct 2026", "Dec 2026", 3},
		{"2024-01-15", "2029-02-01", "month", "Jan 2024", "Feb 2029", 62},
		{"2024-01-15", "2029-03-01", "year", "2024", "2029", 6},
		{"2000-01-01", "2100-12-31", "year", "2000", "2100", 101},
	} {
		p := mustParams(t, c.from, c.to)
		every, labels, label := barsOf(p)
		if every != c.every || len(labels) != c.bars || labels[0] != c.first || labels[len(labels)-1] != c.last {
			t.Errorf("%s to %s: %d %ss, %v", c.from, c.to, len(labels), every, labels[:min(3, len(labels))])
		}

		for day := p.From; day <= p.To; day++ {
			if !slices.Contains(labels, label(day)) {
				t.Errorf("%s to %s: %s is in none of %v", c.from, c.to, day, labels)
			}
		}
	}
}

func TestOutcomes_ShowTheLargestFleetsAndTheRestTogether(t *testing.T) {
	t.Parallel()

	o := &reports.Outline{}
	for i := range 30 {
		for range 2 { // two months
			totals := make([]reports.Cell, len(statement.Columns))
			for key, n := range map[string]int{"delivered": i, "failed": 1, "cancelled": i % 3} {
				totals[statement.Column(key)] = reports.Cell{Number: int64(n), Given: true}
			}
			o.Pieces = append(o.Pieces, reports.Piece{By: []string{fmt.Sprintf("fleet-%02d", i), ""}, Summary: reports.Summary{Rows: 1, Totals: totals}})
		}
	}

	known := &directory{Fleets: layout.Names{"fleet-29": "Hızlı Kurye"}}
	c := outcomes(o, known)
	if len(c.Labels) != maxFleets || c.Labels[0] != "Hızlı Kurye" || c.Labels[maxFleets-1] != "19 others" {
		t.Errorf("%q", c.Labels)
	}

	sum := 0.0
	for _, s := range c.Series {
		for _, n := range s.Values {
			sum += n
		}
	}

	if want := float64(2 * (29*30/2 + 30 + 30)); sum != want {
		t.Errorf("%v orders are drawn, want %v", sum, want)
	}
	if none := outcomes(&reports.Outline{}, known); len(none.Labels) != 0 {
		t.Errorf("%q", none.Labels)
	}
}

func TestShortcuts_AreWholePeriods(t *testing.T) {
	t.Parallel()

	for now, want := range map[string][5]string{
		"2026-11-22 12:00:00.000": {"2026-11-22..2026-11-22", "2026-11-21..2026-11-21", "2026-11-16..2026-11-22", "2026-11-01..2026-11-22", "2026-10-01..2026-10-31"},
		"2028-03-01 00:00:00.000": {"2028-03-01..2028-03-01", "2028-02-29..2028-02-29", "2028-02-24..2028-03-01", "2028-03-01..2028-03-01", "2028-02-01..2028-02-29"},
		"2027-01-01 00:00:00.000": {"2027-01-01..2027-01-01", "2026-12-31..2026-12-31", "2026-12-26..2027-01-01", "2027-01-01..2027-01-01", "2026-12-01..2026-12-31"},
		"2026-12-31 23:59:59.999": {"2026-12-31..2026-12-31", "2026-12-30..2026-12-30", "2026-12-25..2026-12-31", "2026-12-01..2026-12-31", "2026-11-01..2026-11-30"},
	} {
		f := filters{}
		f.Typed.Store = "moda"
		for i, l := range f.shortcuts("/payments", local(now).In(time.UTC)) {
			from, to := want[i][:10], want[i][12:]
			if l.Address != "/payments?from="+from+"&store=moda&to="+to {
				t.Errorf("%s: %s leads to %s", now, l.Name, l.Address)
			}
		}
	}

	f := filters{}
	f.Typed.From, f.Typed.To = "2026-11-01", "2026-11-22"
	for _, l := range f.shortcuts("/payments", local("2026-11-22 12:00:00.000")) {
		if l.Current != (l.Name == "This month") {
			t.Errorf("%s: current %v", l.Name, l.Current)
		}
	}
}
