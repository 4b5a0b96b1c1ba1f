package reports

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/reporting/archive"
)

// missing stands for NULL in a column of numbers: no amount, count or time that
// the service accepts is anywhere near.
const missing = math.MinInt64

// spill is how many bytes of rows ClickHouse sorts or groups in memory before it
// goes on with files, per query.
const spill = 1 << 30

// blockRows is how many rows come at once. With ClickHouse's own number, eight
// times as many, reading takes 100 MB instead of 40, and as long.
const blockRows = 8192

// sql asks for the report's rows. Numbers of all kinds come as whole ones, which
// need no decimal arithmetic here and no memory of their own.
func (r *Report) sql() string {
	query := r.selection() + settings
	if r.threads > 0 {
		query += fmt.Sprintf(", max_threads = %d", r.threads)
	}
	return query
}

// call are a view's parameters.
const call = "(from = {from:Date}, to = {to:Date}, account = {account:String}, fleet = {fleet:String}, store = {store:String})"

// settings end a query.
var settings = fmt.Sprintf(" SETTINGS max_block_size = %d, max_bytes_before_external_sort = %d, max_bytes_before_external_group_by = %d", blockRows, spill, spill)

// selection is the query without its settings.
func (r *Report) selection() string {
	var b strings.Builder
	b.WriteString("SELECT ")
	separator := ""
	for i := range r.Columns {
		if source := r.Columns[i].Source; source != "" {
			b.WriteString(separator + r.Columns[i].expression())
			separator = ", "
		}
	}
	b.WriteString(r.from() + " ORDER BY " + r.order)
	return b.String()
}

func (c *Column) expression() string {
	switch c.Kind {
	case Money:
		return fmt.Sprintf("ifNull(toInt64(%s * 100), %d)", c.Source, missing)
	case Count, DayOnly, Month:
		return fmt.Sprintf("ifNull(toInt64(%s), %d)", c.Source, missing)
	case Time:
		return fmt.Sprintf("ifNull(toUnixTimestamp64Milli(%s), %d)", c.Source, missing)
	default:
		return "toString(" + c.Source + ")"
	}
}

// read hands the rows to take, one by one and in order. The cells are those of
// the columns that ClickHouse has, and are used again for the next row.
func (r *Report) read(ctx context.Context, a *archive.Archive, p *Params, take func([]Cell) error) error {
	windows, err := r.windows(ctx, a, p)
	if err != nil {
		return err
	}
	for i := range windows {
		if err := r.readWindow(ctx, a, &windows[i], take); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) readWindow(ctx context.Context, a *archive.Archive, p *Params, take func([]Cell) error) error {
	return r.readRows(ctx, a, r.sql(), p, take)
}

// readRows reads what a query of the report's columns answers.
func (r *Report) readRows(ctx context.Context, a *archive.Archive, query string, p *Params, take func([]Cell) error) (err error) {
	// Whatever ends the reading early ends the query, too.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := a.Select(ctx, query, p.named()...)
	if err != nil {
		return r.explain(err)
	}
	defer func() {
		cancel()
		if closing := rows.Close(); err == nil && closing != nil && !errors.Is(closing, context.Canceled) {
			err = closing
		}
	}()
	cells := make([]Cell, len(r.Columns))
	targets := r.targets(cells)
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return fmt.Errorf("read a row of %s: %w", r.Name, err)
		}
		for i := range cells {
			cells[i].Given = cells[i].Number != missing
		}
		if err := take(cells); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// unknownFunction is ClickHouse's code for a parameterised view that is not
// there.
const unknownFunction = 46

// explain adds what to do about a missing view.
func (r *Report) explain(err error) error {
	var exception *clickhouse.Exception
	if errors.As(err, &exception) && exception.Code == unknownFunction {
		return fmt.Errorf("%w (`reporting migrate` makes the view %s)", err, r.view)
	}
	return err
}

// targets are where a row's values go.
func (r *Report) targets(cells []Cell) []any {
	var targets []any
	for i := range r.Columns {
		switch {
		case r.Columns[i].Source == "":
		case r.Columns[i].Kind == Text:
			targets = append(targets, &cells[i].Text)
		default:
			targets = append(targets, &cells[i].Number)
		}
	}
	return targets
}
