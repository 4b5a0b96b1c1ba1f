// Package finance shows the five reports (decisions, "Finance") as pages: filters, totals,
// rows page by page, charts, downloads, and whether the control totals balance. It shows the
// months of the books, and lets people with the role closer hold and close them and book what
// became known of them (package closing); and where finance's own system is notified of reports.
//
// A page is two questions to ClickHouse: the totals by day, and the rows of the days that
// it shows (reports.Outline). Control totals read every row, for their digests; they are
// fetched afterwards. Names come from Redis; without it, ids serve as well.
package finance

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/panel/admin"
	"vendorapi/reporting/reports"
)

//go:embed page/*.html
var files embed.FS

// Bounds of what ClickHouse is asked at once, and for how long.
const (
	pagesAtOnce   = 6
	queriesAtOnce = 3               // of each page
	digestsAtOnce = 2               // control totals, which read the other reports whole
	queueing      = 5 * time.Second // that a page waits for its turn
	pageLimit     = 30 * time.Second
	digestLimit   = 2 * time.Minute
	// A page waits for ClickHouse as long as pings are answered within pingLimit.
	pingPause = time.Second
	pingLimit = 2500 * time.Millisecond
)

// Pages are the payments as finance sees them.
type Pages struct {
	*layout.Pages

	// Targets are the names in deliver.targets. It is set before the first request.
	Targets []string

	archive *archive.Archive
	books   *closing.Books
	tasks   *closing.Tasks
	admin   *admin.Client
	forms   layout.Once

	// Tests set more for each of these.
	queueing         time.Duration // how long a page waits for its turn
	pageLimit        time.Duration // how long reading a page may take
	directoryTimeout time.Duration // how long a page waits for names, and for what is closed
	taskAnswer       time.Duration // how long a request waits for the end of its task

	logs layout.Cache[*closing.Log] // of what pages of payments say of their period

	reading, digesting *semaphore.Weighted
	pinged             layout.Cache[error] // nil: ClickHouse answers
}

// New parses the templates. Nothing is read before a page is asked for.
func New(f *layout.Layout, a *archive.Archive, books *closing.Books, admin *admin.Client) *Pages {
	return &Pages{Pages: f.Parse("finance", files), archive: a, books: books, tasks: closing.NewTasks(books), admin: admin, forms: layout.Once{Timeout: digestLimit + 2*queueing},
		queueing: queueing, pageLimit: pageLimit, directoryTimeout: directoryTimeout, taskAnswer: 10 * time.Second,

		logs:    layout.Cache[*closing.Log]{MaxAge: 5 * time.Second, Timeout: pageLimit, Read: books.Read},
		reading: semaphore.NewWeighted(pagesAtOnce), digesting: semaphore.NewWeighted(digestsAtOnce),
		pinged: layout.Cache[error]{MaxAge: pingPause, Timeout: pingLimit,
			Read: func(ctx context.Context) (error, error) { return a.Ping(ctx), nil }}}
}

// Run carries out what people decide about the books, until ctx ends.
func (p *Pages) Run(ctx context.Context) { p.tasks.Run(ctx) }

const (
	home        = "/payments"
	balancePath = home + "/ties" // the fragment that says whether the control totals balance
	linesPath   = home + "/control-totals/lines"
)

// Routes adds the pages to mux, for finance alone; what changes something, for people with the role closer.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, serve := range map[string]layout.Handler{
		home: p.serve, home + "/{report}": p.serve, linesPath: p.serve, balancePath: p.serveBalance,
		monthsPath: func(w http.ResponseWriter, r *http.Request) error { return p.showMonths(w, r, nil) }, closingsFile: p.serveClosings,
		monthsPath + "/{month}": func(w http.ResponseWriter, r *http.Request) error { return p.showMonth(w, r, nil) },
		unbookedPath:            func(w http.ResponseWriter, r *http.Request) error { return p.showUnbooked(w, r, nil) },
		deliveryPath:            func(w http.ResponseWriter, r *http.Request) error { return p.showDelivery(w, r, "", nil) },
	} {
		p.Handle(mux, "GET "+pattern, serve, auth.Finance)
	}

	forms := map[string]layout.Handler{unbookedPath + "/book": p.book, deliveryPath + "/url": p.setReceiver, deliveryPath + "/remove": p.removeReceiver}
	for _, kind := range []string{closing.KindHold, closing.KindRelease, closing.KindClose} {
		forms[monthsPath+"/{month}/"+kind] = p.decide(kind)
	}

	for _, kind := range []string{closing.KindDispute, closing.KindSetAside} {
		forms[monthsPath+"/"+kind] = p.settle(kind)
	}

	p.apiRoutes(mux)
	for pattern, act := range forms {
		p.Handle(mux, "POST "+pattern, p.forms.Handler(act), auth.Closer)
	}
}

// The reports that have pages of their own kind, as reports.All lists them.
var (
	summary    = reports.All()[1] // expected collections
	statement  = reports.All()[2]
	exceptions = reports.All()[3]
	control    = reports.All()[4]
)

// serve answers with a report. Control totals take long: their page fetches the lines,
// which without scripts are a page of their own.
func (p *Pages) serve(w http.ResponseWriter, r *http.Request) error {
	name, lines := cmp.Or(r.PathValue("report"), summary.Name), r.URL.Path == linesPath
	if lines {
		name = control.Name
	}

	report, found := reports.Find(name)
	if !found {
		return delivery.Refuse(delivery.CodeNotFound, "there is no report of this name; there is %s", strings.Join(reports.Names(), ", "))
	}

	v, err := p.view(r, report)
	switch {
	case v == nil:
		return err
	case err != nil:
		return p.show(w, r, v, err)
	case report != control:
		err = p.within(r.Context(), p.reading, p.pageLimit, func(ctx context.Context) error { return p.readReport(ctx, v) })
	case lines || v.Filters.params.AsOf != 0: // which may not be answered
		err = p.within(r.Context(), p.digesting, digestLimit, func(ctx context.Context) error { return p.readControl(ctx, v) })
	default:
		v.Lines = address(linesPath, v.Filters.Typed)
	}

	if errors.Is(err, delivery.ErrUnavailable) { // a page that says so and keeps its filters
		p.Log.Warn("a page without figures", "report", report.Name, "error", err)
		v.Lost, v.Read, v.Summary, v.Control, v.Charts, v.Kinds, err = true, false, false, nil, nil, nil, nil
	}

	var wrong reports.ParamErrors
	switch {
	case errors.As(err, &wrong):
		v.Filters = v.Filters.refuse()
		return p.show(w, r, v, layout.Invalid(senseless, wrong...))
	case err != nil:
		return err
	case lines && r.Header.Get("HX-Request") != "":
		return p.Part(w, r, "figures", v)
	}

	return p.show(w, r, v, nil)
}

// view begins a report's page by what was asked for. An error comes with the
// view that shows it, or without one when nothing can be shown again.
func (p *Pages) view(r *http.Request, report *reports.Report) (*view, error) {
	known := p.directory(r.Context(), typedAccount(r))
	f, err := readFilters(r, known, time.Now())
	if err != nil && !f.refused {
		return nil, err
	}

	if err == nil && f.Typed.Kind != "" && !report.HasKinds() {
		err = layout.Invalid(senseless, delivery.FieldError{Field: "kind", Message: "is a filter of exceptions only"})
		f = f.refuse()
	}

	var unknown *delivery.FieldError
	if !f.refused {
		unknown = p.findNames(r.Context(), known, &f.params)
		f.Typed.Store = f.params.Store
	}

	v := newView(report, f, known)
	v.Unknown, v.roles = unknown, auth.IdentityOf(r.Context()).Roles

	return v, err
}

func (p *Pages) show(w http.ResponseWriter, r *http.Request, v *view, refused error) error {
	title := v.Report.Title
	if r.URL.Path == home {
		title = "Payments"
	}
	return p.Show(w, r, "payments", layout.View{Title: title, Data: v, Charts: len(v.Charts) > 0, Refused: refused, Plain: true})
}

// within waits for a turn and ends do after limit: SERVICE_UNAVAILABLE when either takes
// too long, ErrUnavailable once ClickHouse does not answer.
func (p *Pages) within(ctx context.Context, free *semaphore.Weighted, limit time.Duration, do func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go p.ping(ctx, end)
	waiting, stop := context.WithTimeoutCause(ctx, p.queueing, &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: p.queueing,
		Message: "many reports are being read right now; try again in a moment"})
	defer stop()
	if free.Acquire(waiting, 1) != nil {
		return context.Cause(waiting)
	}

	defer free.Release(1)
	limited, cancel := context.WithTimeoutCause(ctx, limit, delivery.Refuse(delivery.CodeServiceUnavailable,
		"this takes too long here; ask for a shorter period, or download the report"))
	defer cancel()
	if err := do(limited); err != nil {
		return cmp.Or(context.Cause(limited), err)
	}

	return nil
}

// ping ends what waits for ClickHouse once it does not answer.
func (p *Pages) ping(ctx context.Context, end context.CancelCauseFunc) {
	for ctx.Err() == nil {
		failed, err := p.pinged.Get(ctx)
		if err == nil && (errors.Is(failed, delivery.ErrUnavailable) || errors.Is(failed, context.DeadlineExceeded)) {
			end(fmt.Errorf("%w: ClickHouse does not answer: %w", delivery.ErrUnavailable, failed))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pingPause):
		}
	}
}

// pageRows of the longest kind stay below 100 kB with all else.
const pageRows = 50

// Up to atOnceRows the summary fetches its control totals, which read every order, itself.
const atOnceRows = 100_000

type view struct {
	Report                     *reports.Report
	Filters                    filters
	Period                     string // in words: 1 Nov 2026 to 22 Nov 2026
	Books                      string // whether it is closed; empty: not known
	Tabs, Shortcuts, Downloads []layout.Link
	// AccountChoices and FleetChoices are nil when there are too many, or none is known: then
	// the value is typed.
	AccountChoices, FleetChoices, Stores []layout.Choice
	Read, Lost                           bool // the report was read; ClickHouse did not answer
	Rows                                 int64
	Unknown                              *delivery.FieldError // nobody has the id or the name that was asked for
	Future, Filtered                     bool                 // the period has not begun; there are filters besides it
	Orders                               int64                // of how many orders the exceptions are
	KindChoices                          map[string]string
	Summary                              bool         // home shows the tiles
	Exceptions                           int64        // of home: how many rows there are of orders created in the period
	Balance                              balanceView  // of home
	Control                              *controlView // of control totals
	Lines                                string       // of control totals that are not read yet: where they are
	Charts                               []*layout.Chart
	Kinds                                []kind // of exceptions
	MadeOf                               string // of the fleet statement: what its amount delivered is
	Fleets                               *table // subtotals; nil: there are none
	Table                                *table
	Paging                               layout.Pager

	known  *directory
	roles  auth.Roles
	totals reports.Summary
}

// Total is a sum of the report.
func (v *view) Total(key string) int64 { return v.Report.Total(v.totals, key) }

// ExceptionsAddress leads to the exceptions of the same period and filters.
func (v *view) ExceptionsAddress() string {
	return address(pathOf(exceptions), v.Filters.Typed)
}

func newView(r *reports.Report, f filters, known *directory) *view {
	v := &view{Report: r, Filters: f, known: known, Tabs: tabs(pathOf(r), f.Typed), Shortcuts: f.shortcuts(pathOf(r), time.Now()),
		AccountChoices: known.few.Choices(f.Typed.Account, maxChoices), FleetChoices: known.Fleets.Choices(f.Typed.Fleet, maxChoices)}
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

	for _, d := range []struct{ name, extension, query string }{
		{"XLSX", ".xlsx", ""}, {"CSV with ;", ".csv", ""}, {"CSV with ,", ".csv", "&comma=1"}, {"JSON", ".json", ""},
	} { // the period is always given
		v.Downloads = append(v.Downloads, layout.Link{Name: d.name, Address: address("/reports/"+r.Name+d.extension, f.Typed) + d.query})
	}

	return v
}

func pathOf(r *reports.Report) string {
	if r == summary {
		return home
	}
	return home + "/" + r.Name
}

var outlinedBy = map[string][]string{
	"order-ledger": {"status"}, "expected-collections": byFleet, "fleet-statement": byFleet, "exceptions": {"kind", "reason"},
}

func (p *Pages) readReport(ctx context.Context, v *view) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(queriesAtOnce)
	group.Go(func() error { return p.readTable(ctx, v) })
	if v.Report.HasKinds() {
		read(group, &v.Orders, func() (int64, error) { return reports.CountOrders(ctx, p.archive, v.Filters.params) })
	}

	v.Balance = balanceOf(v.Filters)
	var found, ended *reports.Outline // exceptions, and fleets' outcomes
	if v.Report == summary {
		read(group, &ended, func() (*reports.Outline, error) {
			return statement.Outline(ctx, p.archive, v.Filters.params, byFleet...)
		})
		read(group, &found, func() (*reports.Outline, error) { return exceptions.Outline(ctx, p.archive, v.Filters.params) })
		group.Go(func() error {
			v.Balance.Last = p.lastReconciled(ctx)
			return nil
		})
	}

	group.Go(func() error {
		v.Stores, v.Books = p.stores(ctx, v.Filters.params.Account), p.booksOf(ctx, &v.Filters.params)
		return nil
	})

	if err := group.Wait(); err != nil {
		return err
	}

	v.Read = true
	if v.Report != summary {
		return nil
	}

	chart := outcomes(ended, v.known)
	if len(chart.Labels) > 0 {
		v.Charts = append(v.Charts, chart)
	}

	v.Exceptions, v.Balance.AtOnce = found.Rows, v.Rows <= atOnceRows
	v.Summary = v.Rows > 0 || v.Exceptions > 0 || len(chart.Labels) > 0

	return nil
}

// read reads a value side by side with the group's others.
func read[T any](group *errgroup.Group, into *T, get func() (T, error)) {
	group.Go(func() (err error) {
		*into, err = get()
		return err
	})
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

	p.addAccounts(ctx, v.known, v.Report, rows)
	v.Table = newTable(v.Report, v.known, v.roles, rows)
	v.Table.total(o.Summary)
	v.Fleets = v.subtotals(o, reports.DayOf(time.Now()))
	v.MadeOf = balance(v.Report, o.Summary)
	v.chart(o)

	return nil
}
