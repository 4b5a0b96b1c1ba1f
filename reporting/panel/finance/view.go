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

// pageRows of the longest kind stay below 100 kB with all else.
const pageRows = 50

// Up to atOnceRows the summary fetches its control totals, which read every order, itself.
const atOnceRows = 100_000

type view struct {
	Report                     *reports.Report
	Filters                    filters
	Period                     string // in words: 1 Nov 2026 to 22 Nov 2026
	Tabs, Shortcuts, Downloads []layout.Link
	Choices                    []choice
	Stores                     []layout.Choice
	Read, Lost                 bool // the report was read; ClickHouse did not answer
	Rows                       int64
	Unknown                    *delivery.FieldError // nobody has the id or the name that was asked for
	Future, Filtered           bool                 // the period has not begun; there are filters besides it
	Orders                     int64                // of how many orders the exceptions are
	KindChoices                []reports.ExceptionKind
	Summary                    bool         // home shows the tiles
	Exceptions                 int64        // of home: how many rows there are of orders created in the period
	Balance                    balanceView  // of home
	Control                    *controlView // of control totals
	Lines                      string       // of control totals that are not read yet: where they are
	Charts                     []*layout.Chart
	Kinds                      []kind // of exceptions
	MadeOf                     string // of the fleet statement: what its amount delivered is
	Fleets                     *table // subtotals; nil: there are none
	Table                      *table
	Paging                     layout.Pager

	known  *directory
	roles  auth.Roles
	totals reports.Summary
}

// Total is a sum of the report.
func (v *view) Total(key string) int64 { return v.Report.Total(v.totals, key) }

// ExceptionsAddress leads to the exceptions of the same period and filters.
func (v *view) ExceptionsAddress() string {
	return address(pathOf(mustFind("exceptions")), v.Filters.Typed)
}

type choice struct {
	Field, Label, Value string
	Options             []layout.Choice // nil: too many, or none is known: the value is typed
}

func newView(r *reports.Report, f filters, known *directory) *view {
	v := &view{Report: r, Filters: f, known: known, Shortcuts: f.shortcuts(pathOf(r), time.Now()), Choices: []choice{
		{"account", "Account", f.Typed.Account, known.Accounts.Choices(f.Typed.Account, maxChoices)},
		{"fleet", "Fleet", f.Typed.Fleet, known.Fleets.Choices(f.Typed.Fleet, maxChoices)},
	}}
	for _, other := range reports.All() {
		kept := f.Typed
		if !other.HasKinds() {
			kept.Kind = ""
		}
		v.Tabs = append(v.Tabs, layout.Link{Name: other.Title, Address: address(pathOf(other), kept), Current: other == r})
	}
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
		v.Downloads = append(v.Downloads, layout.Link{Name: d.name, Address: address(downloadPath(r, d.format), f.Typed) + d.query}) // the period is always given
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

func (p *Pages) readReport(ctx context.Context, v *view) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(queriesAtOnce)
	group.Go(func() error { return p.readTable(ctx, v) })
	if v.Report.HasKinds() {
		group.Go(func() (err error) {
			v.Orders, err = reports.CountOrders(ctx, p.archive, v.Filters.params)
			return err
		})
	}
	v.Balance = balanceOf(v.Filters, false)
	var exceptions, statement *reports.Outline
	if v.Report == summary {
		group.Go(func() (err error) {
			statement, err = mustFind("fleet-statement").Outline(ctx, p.archive, v.Filters.params, byFleet...)
			return err
		})
		group.Go(func() (err error) {
			exceptions, err = mustFind("exceptions").Outline(ctx, p.archive, v.Filters.params)
			return err
		})
		group.Go(func() error {
			v.Balance.Last = p.lastReconciled(ctx)
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
	if v.Report != summary {
		return nil
	}
	chart := outcomes(statement, v.known)
	if len(chart.Labels) > 0 {
		v.Charts = append(v.Charts, chart)
	}
	v.Exceptions, v.Balance.AtOnce = exceptions.Rows, v.Rows <= atOnceRows
	v.Summary = v.Rows > 0 || v.Exceptions > 0 || len(chart.Labels) > 0
	return nil
}

func (p *Pages) readTable(ctx context.Context, v *view) error {
	o, err := v.Report.Outline(ctx, p.archive, v.Filters.params, outlinedBy[v.Report.Name]...)
	if err != nil {
		return err
	}
	v.Rows, v.totals = o.Rows, o.Summary
	if o.Rows == 0 {
		return nil
	}
	v.Paging = layout.NewPager(int(o.Rows), pageRows, v.Filters.page, pathOf(v.Report), v.Filters.Typed.Query())
	rows, err := o.Page(ctx, p.archive, int64(v.Paging.First-1), pageRows)
	if err != nil {
		return err
	}
	v.Table = newTable(v.Report, v.known, v.roles)
	v.Table.fill(rows)
	v.Table.total(o.Summary)
	v.Fleets = v.subtotals(o, reports.DayOf(time.Now()))
	v.MadeOf = balance(v.Report, o.Summary)
	v.chart(o)
	return nil
}
