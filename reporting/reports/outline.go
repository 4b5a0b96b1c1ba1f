package reports

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/reporting/archive"
)

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
}

// Paged reports whether the report has outlines and pages, as all but control totals.
func (r *Report) Paged() bool { return r.Step != "" }

// Outline sums the report, each day (in fleet-statement: month) by the values of some
// columns of texts, given by their keys. It lacks days without rows. Errors are Run's.
func (r *Report) Outline(ctx context.Context, a *archive.Archive, p Params, by ...string) (*Outline, error) {
	query, err := r.outlineSQL(by)
	if err != nil {
		return nil, err
	}
	o := &Outline{report: r, params: p}
	all := newTally(r)
	err = a.Each(ctx, query, func(rows driver.Rows) error {
		var day int64
		piece := Piece{By: make([]string, len(by)), Summary: Summary{Totals: make([]Cell, len(r.Columns))}}
		if err := rows.Scan(piece.targets(r, &day)...); err != nil {
			return err
		}
		piece.Day = Day(day)
		o.Pieces = append(o.Pieces, piece)
		return all.add(piece.Rows, piece.Totals)
	}, p.named()...)
	if err != nil {
		return nil, r.explain(err)
	}
	o.Summary = all.summary()
	return o, nil
}

// targets are where a piece's values go.
func (p *Piece) targets(r *Report, day *int64) []any {
	targets := []any{day}
	for i := range p.By {
		targets = append(targets, &p.By[i])
	}
	targets = append(targets, &p.Rows)
	for i := range r.Columns {
		if r.Columns[i].Sum {
			p.Totals[i].Given = true
			targets = append(targets, &p.Totals[i].Number)
		}
	}
	return targets
}

func (r *Report) outlineSQL(by []string) (string, error) {
	if !r.Paged() {
		return "", fmt.Errorf("%s has no sums by days", r.Name)
	}
	keys := []string{r.Step}
	selected := []string{"toInt64(" + r.Step + ")"}
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
	return "SELECT " + strings.Join(selected, ", ") + r.from() + " GROUP BY " + list + " ORDER BY " + list + settings + uncompiled, nil
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
	query := fmt.Sprintf("%s LIMIT %d OFFSET %d%s", o.report.selection(), limit, within, settings+uncompiled)
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
		if before += piece.Rows; before > skip {
			found = true
		}
		if found {
			p.To = min(o.params.To, o.report.last(piece.Day))
		}
	}
	return p, within, found
}

// last is the last day that a piece which begins on a day is about.
func (r *Report) last(day Day) Day {
	if r.Step != "month" {
		return day
	}
	return (day + 31).FirstOfMonth() - 1
}
