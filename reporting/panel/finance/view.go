package finance

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

// view is what the page of a report shows.
type view struct {
	Report  *reports.Report
	Filters filters
	// Period in words: 1 Nov 2026 to 22 Nov 2026.
	Period          string
	Tabs, Shortcuts []link
	Choices         []choice
	Stores          []party
	Downloads       []link
	// Read: the report was read, and has so many rows. Lost: ClickHouse did not
	// answer.
	Read bool
	Lost bool
	Rows int64
	// Unknown: nobody has the id or the name that was asked for.
	Unknown *delivery.FieldError
	// Future: the period has not begun. Filtered: there are filters besides it.
	Future, Filtered bool
	// Orders is of how many orders the exceptions are.
	Orders int64
	// KindChoices are those of exceptions.
	KindChoices []reports.ExceptionKind
	Summary     *summaryView // of home
	Control     *controlView // of control totals
	Lines       string       // of control totals that are not read yet: where they are
	Charts      []*layout.Chart
	Kinds       []kind // of exceptions
	Balance     string // of the fleet statement: what its amount delivered is made of
	Fleets      *table // subtotals; nil: there are none
	Table       *table
	Paging      paging

	known  *directory
	totals reports.Summary
}

func newView(r *reports.Report, f filters, known *directory) *view {
	v := &view{Report: r, Filters: f, known: known, Choices: []choice{
		known.Accounts.choice("account", "Account", f.Typed.Account), known.Fleets.choice("fleet", "Fleet", f.Typed.Fleet),
	}}
	path := pathOf(r)
	for _, other := range reports.All() {
		kept := f.Typed
		if !other.HasKinds() {
			kept.Kind = ""
		}
		v.Tabs = append(v.Tabs, link{Name: other.Title, Address: address(pathOf(other), kept, 0), Current: other == r})
	}
	v.Shortcuts = f.shortcuts(path, time.Now())
	if r.HasKinds() {
		v.KindChoices = reports.ExceptionKinds()
	}
	if f.refused {
		return v
	}
	v.Future = f.params.From > reports.DayOf(time.Now())
	v.Filtered = len(f.params.Filters()) > 0
	v.Period = f.params.From.Text()
	if f.params.To != f.params.From {
		v.Period += " to " + f.params.To.Text()
	}
	for _, d := range []struct {
		name, query string
		format      reports.Format
	}{{"XLSX", "", reports.XLSX}, {"CSV with ;", "", reports.CSV}, {"CSV with ,", "&comma=1", reports.CSVComma}, {"JSON", "", reports.JSON}} {
		v.Downloads = append(v.Downloads, link{Name: d.name, Address: address(downloadPath(r, d.format), f.Typed, 0) + d.query}) // the period is always given
	}
	return v
}

func pathOf(r *reports.Report) string {
	if r == summary {
		return home
	}
	return home + "/" + r.Name
}

func downloadPath(r *reports.Report, f reports.Format) string {
	return "/reports/" + r.Name + f.Extension()
}

// outlinedBy are the columns by which a report's chart needs its totals.
var outlinedBy = map[string][]string{
	"order-ledger": {"status"}, "expected-collections": byFleet, "fleet-statement": byFleet, "exceptions": {"kind", "reason"},
}

// readReport reads what the page of a report shows.
func (p *Pages) readReport(ctx context.Context, v *view, roles auth.Roles) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(queriesAtOnce)
	group.Go(func() error { return p.readTable(ctx, v, roles) })
	if v.Report.HasKinds() {
		group.Go(func() (err error) {
			v.Orders, err = reports.CountOrders(ctx, p.archive, v.Filters.params)
			return err
		})
	}
	var s *summaryView
	if v.Report == summary {
		s = &summaryView{}
		group.Go(func() error { return p.readOutcomes(ctx, v, s) })
		group.Go(func() error { return p.countExceptions(ctx, v, s) })
		group.Go(func() error {
			s.last = p.lastReconciled(ctx)
			return nil
		})
	}
	group.Go(func() error {
		v.Stores = p.stores(ctx, v.Filters.params.Account)
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	v.Read = true
	if s != nil && (v.Rows > 0 || s.Exceptions > 0 || s.outcomes != nil) {
		s.complete(v)
		v.Summary = s
	}
	return nil
}

// readTable reads the totals and a page of rows.
func (p *Pages) readTable(ctx context.Context, v *view, roles auth.Roles) error {
	o, err := v.Report.Outline(ctx, p.archive, v.Filters.params, outlinedBy[v.Report.Name]...)
	if err != nil {
		return err
	}
	v.Rows, v.totals = o.Rows, o.Summary
	if o.Rows == 0 {
		return nil
	}
	v.Paging = pagingOf(v, o.Rows)
	rows, err := o.Page(ctx, p.archive, v.Paging.skip, pageRows)
	if err != nil {
		return err
	}
	v.Paging.end(len(rows))
	v.Table = newTable(v.Report, v.known, roles)
	v.Table.fill(rows)
	v.Table.total(o.Summary)
	v.Fleets = v.subtotals(o, reports.DayOf(time.Now()))
	v.Balance = balance(v.Report, o.Summary)
	v.chart(o)
	return nil
}

// balance says of the fleet statement what the amount delivered is made of. Cash and
// card are amounts to collect, all else is order amounts; the rest is what an amount
// to collect differs from its order amount.
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
