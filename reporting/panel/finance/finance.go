// Package finance shows the five reports (design section 8) as pages: filters, totals,
// rows page by page, charts, downloads, and whether the control totals balance.
//
// A page is two questions to ClickHouse: the totals by day, and the rows of the days that
// it shows (reports.Outline). Control totals read every row, for their digests; they are
// fetched afterwards. Names come from Redis; without it, ids serve as well.
package finance

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/cache"
	"vendorapi/reporting/panel/layout"
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
	layout  *layout.Layout
	pages   *layout.Pages
	ledger  *ledger.Ledger
	lists   *layout.Lists
	archive *archive.Archive
	log     *slog.Logger

	reading, digesting *semaphore.Weighted
	pinged             cache.Cache[error] // nil: ClickHouse answers
}

// New parses the templates. Nothing is read before a page is asked for.
func New(f *layout.Layout, l *ledger.Ledger, a *archive.Archive, log *slog.Logger) (*Pages, error) {
	pages, err := f.Parse(files)
	if err != nil {
		return nil, err
	}
	p := &Pages{layout: f, pages: pages, ledger: l, lists: f.Lists, archive: a, log: log.With("part", "finance"),
		reading: semaphore.NewWeighted(pagesAtOnce), digesting: semaphore.NewWeighted(digestsAtOnce)}
	p.pinged = cache.Cache[error]{MaxAge: pingPause, Timeout: pingLimit, Read: func(ctx context.Context) (error, error) { return a.Ping(ctx), nil }}
	return p, nil
}

const (
	home        = "/payments"
	balancePath = home + "/ties" // the fragment that says whether the control totals balance
	linesPath   = home + "/control-totals/lines"
)

// Routes adds the pages to mux, for finance alone.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, serve := range map[string]layout.Handler{
		home: p.serve, home + "/{report}": p.serve, linesPath: p.serve, balancePath: p.serveBalance,
	} {
		p.layout.Handle(mux, "GET "+pattern, auth.Finance, serve)
	}
}

var summary, control = mustFind("expected-collections"), mustFind("control-totals")

func mustFind(name string) *reports.Report {
	r, ok := reports.Find(name)
	if !ok {
		panic("finance: there is no report " + name)
	}
	return r
}

// serve answers with a report. Control totals take long: their page fetches the lines,
// which without scripts are a page of their own.
func (p *Pages) serve(w http.ResponseWriter, r *http.Request) error {
	report, found := summary, true
	lines := r.URL.Path == linesPath
	if name := r.PathValue("report"); name != "" {
		report, found = reports.Find(name)
	} else if lines {
		report = control
	}
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
		err = p.within(r.Context(), p.reading, pageLimit, func(ctx context.Context) error { return p.readReport(ctx, v) })
	case lines:
		err = p.within(r.Context(), p.digesting, digestLimit, func(ctx context.Context) error { return p.readControl(ctx, v) })
	default:
		v.Lines = address(linesPath, v.Filters.Typed)
	}
	if errors.Is(err, delivery.ErrUnavailable) { // a page that says so and keeps its filters
		p.log.Warn("a page without figures", "report", report.Name, "error", err)
		v.Lost, v.Read, v.Summary, v.Control, v.Charts, v.Kinds, err = true, false, false, nil, nil, nil, nil
	}
	switch {
	case err != nil:
		return err
	case lines && r.Header.Get("HX-Request") != "":
		return p.pages.Part(w, r, "figures", v)
	}
	return p.show(w, r, v, nil)
}

// view begins a report's page by what was asked for. An error comes with the
// view that shows it, or without one when nothing can be shown again.
func (p *Pages) view(r *http.Request, report *reports.Report) (*view, error) {
	known := p.directory(r.Context())
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
	return p.pages.Show(w, r, "payments", layout.View{Title: title, Data: v, Charts: len(v.Charts) > 0, Refused: refused, Plain: true})
}

// within waits for a turn and ends do after limit: SERVICE_UNAVAILABLE when either takes
// too long, ErrUnavailable once ClickHouse does not answer.
func (p *Pages) within(ctx context.Context, free *semaphore.Weighted, limit time.Duration, do func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go p.ping(ctx, end)
	waiting, stop := context.WithTimeout(ctx, queueing)
	defer stop()
	if free.Acquire(waiting, 1) != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: queueing,
			Message: "many reports are being read right now; try again in a moment"}
	}
	defer free.Release(1)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(limited)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.Is(cause, delivery.ErrUnavailable):
		return cause
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return &delivery.Error{Code: delivery.CodeServiceUnavailable, Message: "this takes too long here; ask for a shorter period, or download the report"}
	}
	return err
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
