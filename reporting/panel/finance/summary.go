package finance

import (
	"context"

	"vendorapi/reporting/archive"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

// summaryView is the top of home: the period in a few figures.
type summaryView struct {
	Tiles []tile
	// Exceptions is how many there are among the orders that were created in the
	// period.
	Exceptions int64
	Ties       tiesView

	last     *archive.Reconciliation
	outcomes *layout.Chart // nil: no order has ended
}

// tile is a figure.
type tile struct{ Name, Value, Unit, Remark, Class, Address string }

// mostAtOnce is from how many rows of the summary's report on its control totals
// are read only when somebody wants to know: they read every order.
const mostAtOnce = 100_000

// readOutcomes reads what each fleet did.
func (p *Pages) readOutcomes(ctx context.Context, v *view, s *summaryView) error {
	o, err := mustFind("fleet-statement").Outline(ctx, p.archive, v.Filters.params, byFleet...)
	if err != nil {
		return err
	}
	if chart := outcomes(o, v.known); len(chart.Labels) > 0 {
		s.outcomes = chart
	}
	return nil
}

func (p *Pages) countExceptions(ctx context.Context, v *view, s *summaryView) error {
	o, err := mustFind("exceptions").Outline(ctx, p.archive, v.Filters.params)
	if err == nil {
		s.Exceptions = o.Rows
	}
	return err
}

// complete makes the tiles, once everything has been read.
func (s *summaryView) complete(v *view) {
	total := func(key string) int64 { return v.Report.Total(v.totals, key) }
	orders := func(key string) string {
		if n := total(key); n != 1 {
			return layout.Count(n) + " orders"
		}
		return "1 order"
	}
	cash, delivered := orders("cashCount"), "in the period"
	if n := total("cashWithoutAmountCount"); n > 0 {
		cash += ", " + layout.Count(n) + " of them without an amount"
	}
	if n := total("noPaymentTypeCount"); n > 0 {
		delivered += ", " + layout.Count(n) + " of them without a payment type"
	}
	s.Tiles = []tile{
		{Name: "Cash expected", Value: layout.Money(total("cashExpected")), Unit: "TRY", Remark: cash},
		{Name: "Card expected", Value: layout.Money(total("cardExpected")), Unit: "TRY", Remark: orders("cardCount")},
		{Name: "Prepaid", Value: layout.Money(total("prepaidAmount")), Unit: "TRY", Remark: orders("prepaidCount")},
		{Name: "Delivered orders", Value: layout.Count(total("deliveredCount")), Remark: delivered},
	}
	exceptions := tile{Name: "Exceptions to look at", Value: layout.Count(s.Exceptions), Remark: "rows, of orders created in the period",
		Address: address(pathOf(mustFind("exceptions")), v.Filters.Typed, 0)}
	if s.Exceptions > 0 {
		exceptions.Class = "warn"
	}
	s.Tiles = append(s.Tiles, exceptions)
	s.Ties = tiesOf(v.Filters, v.Rows <= mostAtOnce)
	s.Ties.Last = s.last
	if s.outcomes != nil {
		v.Charts = append(v.Charts, s.outcomes)
	}
}

// collected is the sink of a report that is short by nature: it keeps the rows.
type collected struct{ rows [][]reports.Cell }

func (c *collected) Begin(*reports.Report, reports.Params) error { return nil }
func (c *collected) End(reports.Summary) error                   { return nil }
func (c *collected) Abort()                                      { c.rows = nil }

func (c *collected) Row(cells []reports.Cell) error {
	c.rows = append(c.rows, append([]reports.Cell(nil), cells...))
	return nil
}
