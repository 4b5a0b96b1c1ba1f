package reports

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/reporting/archive"
)

// A long report is read with several queries, each about some days in a row, so
// that ClickHouse never has to sort more than a window's orders at once and the
// first rows come soon. The windows cover the period without a gap, and the
// reports that are read so are sorted by time, so their rows come as they would
// with one query.

// countDays tells how many orders each day has, versions that ClickHouse has not
// merged yet included: that is what it has to sort.
const countDays = `SELECT toInt64(business_day), toInt64(count()) FROM orders
WHERE business_day BETWEEN {from:Date} AND {to:Date}
	AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
	AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
	AND ({store:String} = '' OR external_store_id = {store:String})
GROUP BY business_day ORDER BY business_day SETTINGS final = 0`

// dayCount is how many orders were created on a day.
type dayCount struct {
	day    Day
	orders int64
}

// windows cuts the period.
func (r *Report) windows(ctx context.Context, a *archive.Archive, p *Params) ([]Params, error) {
	if r.window == 0 || p.From == p.To {
		return []Params{*p}, nil
	}
	rows, err := a.Select(ctx, countDays, p.named()...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err tells what went wrong
	var counts []dayCount
	for rows.Next() {
		var day, orders int64
		if err := rows.Scan(&day, &orders); err != nil {
			return nil, fmt.Errorf("count the orders of %s: %w", p.String(), err)
		}
		counts = append(counts, dayCount{day: Day(day), orders: orders})
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return p.cut(counts, r.window), ctx.Err()
}

// cut makes windows of at most size orders, or of one day. A window that is half
// full also ends with the month, which is how the tables are partitioned.
func (p *Params) cut(counts []dayCount, size int64) []Params {
	var all []Params
	current, held := *p, int64(0)
	for _, c := range counts {
		full := held > 0 && held+c.orders > size || held > size/2 && c.day == c.day.FirstOfMonth()
		if full && c.day > current.From {
			current.To = c.day - 1
			all = append(all, current)
			current.From, held = c.day, 0
		}
		held += c.orders
	}
	current.To = p.To
	return append(all, current)
}

// named are the parameters as the queries call them.
func (p *Params) named() []any {
	return []any{
		clickhouse.Named("from", p.From.String()), clickhouse.Named("to", p.To.String()),
		clickhouse.Named("account", p.account()), clickhouse.Named("fleet", p.fleet()), clickhouse.Named("store", p.Store), clickhouse.Named("kind", p.Kind),
	}
}
