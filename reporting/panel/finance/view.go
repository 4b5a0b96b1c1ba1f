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
	Report  *reports.Report
	Filters filters
	// Period in words: 1 Nov 2026 to 22 Nov 2026.
	Period                     string
	Tabs, Shortcuts, Downloads []layout.Link
	Choices                    []choice
	Stores                     []layout.Choice
	// Read: the report was read. Lost: ClickHouse did not answer.
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
	Paging      layout.Pager

	known  *directory
	totals reports.Summary
}

type summaryView struct {
	Tiles   []tile
	Balance balanceView
}

type tile struct{ Name, Value, Unit, Remark, Class, Address string }

func newView(r *reports.Report, f filters, known *directory) *view {
	v := &view{Report: r, Filters: f, known: known, Shortcuts: f.shortcuts(pathOf(r), time.Now()), Choices: []choice{
		known.Accounts.choice("account", "Account", f.Typed.Account), known.Fleets.choice("fleet", "Fleet", f.Typed.Fleet),
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
	balance := balanceOf(v.Filters, false)
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
			balance.Last = p.lastReconciled(ctx)
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
	if v.Rows > 0 || exceptions.Rows > 0 || len(chart.Labels) > 0 {
		balance.AtOnce = v.Rows <= atOnceRows
		v.Summary = &summaryView{Tiles: v.tiles(exceptions.Rows), Balance: balance}
	}
	return nil
}

func (p *Pages) readTable(ctx context.Context, v *view, roles auth.Roles) error {
	o, err := v.Report.Outline(ctx, p.archive, v.Filters.params, outlinedBy[v.Report.Name]...)
	if err != nil {
		return err
	}
	v.Rows, v.totals = o.Rows, o.Summary
	if o.Rows == 0 {
		return nil
	}
	v.Paging = layout.NewPager(int(o.Rows), pageRows, v.Filters.page, pathOf(v.Report), queryOf(v.Filters.Typed))
	rows, err := o.Page(ctx, p.archive, int64(v.Paging.First-1), pageRows)
	if err != nil {
		return err
	}
	v.Table = newTable(v.Report, v.known, roles)
	v.Table.fill(rows)
	v.Table.total(o.Summary)
	v.Fleets = v.subtotals(o, reports.DayOf(time.Now()))
	v.Balance = balance(v.Report, o.Summary)
	v.chart(o)
	return nil
}

// exceptions is how many there are of orders created in the period.
func (v *view) tiles(exceptions int64) []tile {
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
	class := ""
	if exceptions > 0 {
		class = "warn"
	}
	return []tile{
		{Name: "Cash expected", Value: layout.Money(total("cashExpected")), Unit: "TRY", Remark: cash},
		{Name: "Card expected", Value: layout.Money(total("cardExpected")), Unit: "TRY", Remark: orders("cardCount")},
		{Name: "Prepaid", Value: layout.Money(total("prepaidAmount")), Unit: "TRY", Remark: orders("prepaidCount")},
		{Name: "Delivered orders", Value: layout.Count(total("deliveredCount")), Remark: delivered},
		{Name: "Exceptions to look at", Value: layout.Count(exceptions), Remark: "rows, of orders created in the period",
			Class: class, Address: address(pathOf(mustFind("exceptions")), v.Filters.Typed)},
	}
}
