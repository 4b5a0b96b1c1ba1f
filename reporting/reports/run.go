package reports

import (
	"context"
	"fmt"
	"math"

	"vendorapi/reporting/archive"
)

// Sink writes a report. Begin comes first, then Row for every row, then End; or
// Abort at any time, after which the sink holds nothing more and what it has
// written is not a report. The cells of a row are only lent.
type Sink interface {
	Begin(r *Report, p Params) error
	Row(cells []Cell) error
	End(s Summary) error
	Abort()
}

// Progress is told now and then how many rows have been read.
type Progress func(rows int64)

// progressStep is after how many rows.
const progressStep = 1000

// Run reads the report and writes it into the sink. progress may be nil.
//
// An error of ClickHouse's absence wraps delivery.ErrUnavailable, the end of ctx
// is its own error (and ends the query in ClickHouse, too), an error of the
// sink wraps it. In each case the sink has been aborted: what it has written is
// not the whole report.
func (r *Report) Run(ctx context.Context, a *archive.Archive, p Params, sink Sink, progress Progress) (Summary, error) {
	s, err := r.run(ctx, a, p, sink, progress)
	if err != nil {
		sink.Abort()
		return Summary{}, err
	}
	return s, nil
}

func (r *Report) run(ctx context.Context, a *archive.Archive, p Params, sink Sink, progress Progress) (Summary, error) {
	if progress == nil {
		progress = func(int64) {}
	}
	if err := sink.Begin(r, p); err != nil {
		return Summary{}, fmt.Errorf("write %s: %w", r.Name, err)
	}
	t := newTally(r)
	take := func(cells []Cell) error {
		if err := t.add(cells); err != nil {
			return err
		}
		if err := sink.Row(cells); err != nil {
			return fmt.Errorf("write %s: %w", r.Name, err)
		}
		if t.rows%progressStep == 0 {
			progress(t.rows)
		}
		return nil
	}
	read := r.read
	if r == control {
		read = readControl
	}
	if err := read(ctx, a, &p, take); err != nil {
		return Summary{}, err
	}
	progress(t.rows)
	s := t.summary()
	if err := sink.End(s); err != nil {
		return Summary{}, fmt.Errorf("write %s: %w", r.Name, err)
	}
	return s, nil
}

// tally sums a report up while its rows pass.
type tally struct {
	report *Report
	rows   int64
	sums   []int64
}

func newTally(r *Report) *tally { return &tally{report: r, sums: make([]int64, len(r.Columns))} }

func (t *tally) add(cells []Cell) error {
	t.rows++
	for i := range t.report.Columns {
		if !t.report.Columns[i].Sum || !cells[i].Given {
			continue
		}
		if err := t.addTo(i, cells[i].Number); err != nil {
			return err
		}
	}
	return nil
}

// addTo adds to a column's sum.
func (t *tally) addTo(i int, n int64) error {
	if sum := t.sums[i]; n > 0 && sum > math.MaxInt64-n || n < 0 && sum < math.MinInt64-n {
		return fmt.Errorf("%s: the sum of %s is beyond what is counted here", t.report.Name, t.report.Columns[i].Key)
	}
	t.sums[i] += n
	return nil
}

func (t *tally) summary() Summary {
	s := Summary{Rows: t.rows, Totals: make([]Cell, len(t.sums))}
	for i := range t.sums {
		if t.report.Columns[i].Sum {
			s.Totals[i] = Cell{Number: t.sums[i], Given: true}
		}
	}
	return s
}

// Total is that of the column with the given key; 0 when it has none.
func (r *Report) Total(s Summary, key string) int64 {
	for i := range r.Columns {
		if r.Columns[i].Key == key && i < len(s.Totals) {
			return s.Totals[i].Number
		}
	}
	return 0
}
