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
	// pagesAtOnce, each with up to queriesAtOnce queries.
	pagesAtOnce   = 6
	queriesAtOnce = 3
	// digestsAtOnce is for control totals, which read the other reports whole.
	digestsAtOnce = 2
	// queueing is how long a page waits for its turn.
	queueing = 5 * time.Second
	// pageLimit and digestLimit end what takes too long.
	pageLimit   = 30 * time.Second
	digestLimit = 2 * time.Minute
	// ClickHouse is asked every pingPause whether it answers, while a page waits
	// for it. A report may take long; without an answer within pingLimit the page
	// goes without figures.
	pingPause = time.Second
	pingLimit = 2500 * time.Millisecond
)

// Pages are finance's pages. It is safe for concurrent use.
type Pages struct {
	frame   *layout.Layout
	pages   *layout.Pages
	ledger  *ledger.Ledger
	archive *archive.Archive
	log     *slog.Logger
	// reading and digesting are turns at ClickHouse.
	reading, digesting *semaphore.Weighted
	pinged             cache.Cache[error] // nil: ClickHouse answers
}

// New prepares the pages. It fails for a defect of theirs only.
func New(f *layout.Layout, l *ledger.Ledger, a *archive.Archive, log *slog.Logger) (*Pages, error) {
	pages, err := f.Parse(files)
	if err != nil {
		return nil, fmt.Errorf("finance: %w", err)
	}
	p := &Pages{frame: f, pages: pages, ledger: l, archive: a, log: log.With("part", "finance"),
		reading: semaphore.NewWeighted(pagesAtOnce), digesting: semaphore.NewWeighted(digestsAtOnce)}
	p.pinged = cache.Cache[error]{MaxAge: pingPause, Timeout: pingLimit, Read: func(ctx context.Context) (error, error) { return a.Ping(ctx), nil }}
	return p, nil
}

// home is the path of the first page.
const home = "/payments"

// Routes registers the pages, for those with the role finance.
func (p *Pages) Routes(mux *http.ServeMux) {
	p.frame.Handle(mux, "GET "+home, auth.Finance, p.serve)
	p.frame.Handle(mux, "GET "+home+"/{report}", auth.Finance, p.serve)
	p.frame.Handle(mux, "GET "+tiesPath, auth.Finance, p.serveTies)
	p.frame.Handle(mux, "GET "+linesPath, auth.Finance, p.serveLines)
}

// summary is the report that home shows.
var summary, control = mustFind("expected-collections"), mustFind("control-totals")

func mustFind(name string) *reports.Report {
	r, ok := reports.Find(name)
	if !ok {
		panic("finance: there is no report " + name)
	}
	return r
}

// serve answers with a report; of control totals with a page that fetches them,
// since to add up and digest four reports takes longer than a page may.
func (p *Pages) serve(w http.ResponseWriter, r *http.Request) error {
	report := summary
	if name := r.PathValue("report"); name != "" {
		var found bool
		if report, found = reports.Find(name); !found {
			return delivery.Refuse(delivery.CodeNotFound, "there is no report of this name; there is %s", strings.Join(reports.Names(), ", "))
		}
	}
	v, err := p.view(r, report)
	if v == nil || err != nil {
		return p.show(w, r, v, err)
	}
	if report == control {
		v.Lines = address(linesPath, v.Filters.Typed, 0)
		return p.show(w, r, v, nil)
	}
	err = p.attended(r.Context(), func(ctx context.Context) error {
		return within(ctx, p.reading, pageLimit, func(ctx context.Context) error {
			return p.readReport(ctx, v, auth.IdentityOf(r.Context()).Roles)
		})
	})
	if err = p.without(v, err); err != nil {
		return err
	}
	return p.show(w, r, v, nil)
}

// serveLines answers with the control totals: with the part that the page
// fetches, or with a whole page for those without scripts.
func (p *Pages) serveLines(w http.ResponseWriter, r *http.Request) error {
	v, err := p.view(r, control)
	if v == nil || err != nil {
		return p.show(w, r, v, err)
	}
	err = p.attended(r.Context(), func(ctx context.Context) error {
		return within(ctx, p.digesting, digestLimit, func(ctx context.Context) error { return p.readControl(ctx, v) })
	})
	err = p.without(v, err)
	switch {
	case err != nil:
		return err
	case r.Header.Get("HX-Request") != "":
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
		err, f = invalid("kind", "is a filter of exceptions only"), f.refuse()
	}
	var unknown *delivery.FieldError
	if !f.refused {
		unknown = p.findNames(r.Context(), known, &f.params)
		f.Typed.Store = f.params.Store
	}
	v := newView(report, f, known)
	v.Unknown = unknown
	return v, err
}

func (p *Pages) show(w http.ResponseWriter, r *http.Request, v *view, refused error) error {
	if v == nil {
		return refused
	}
	title := v.Report.Title
	if r.URL.Path == home {
		title = "Payments"
	}
	return p.pages.Show(w, r, "payments", layout.View{Title: title, Data: v, Charts: len(v.Charts) > 0, Refused: refused, Plain: true})
}

// attended does something that waits for ClickHouse, and ends it with
// ErrUnavailable once ClickHouse does not answer.
func (p *Pages) attended(ctx context.Context, do func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
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
	}()
	err := do(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, delivery.ErrUnavailable) {
		return cause
	}
	return err
}

// without makes of ClickHouse's absence a page that says so and keeps its filters.
func (p *Pages) without(v *view, err error) error {
	if !errors.Is(err, delivery.ErrUnavailable) {
		return err
	}
	p.log.Warn("a page without figures", "report", v.Report.Name, "error", err)
	v.Lost, v.Read, v.Control, v.Charts, v.Kinds = true, false, nil, nil, nil
	return nil
}

// within does something when it is its turn, and no longer than limit.
// SERVICE_UNAVAILABLE when it has to wait or takes too long.
func within(ctx context.Context, turns *semaphore.Weighted, limit time.Duration, do func(context.Context) error) error {
	waiting, stop := context.WithTimeout(ctx, queueing)
	defer stop()
	if err := turns.Acquire(waiting, 1); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: queueing,
			Message: "many reports are being read right now; try again in a moment"}
	}
	defer turns.Release(1)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(limited)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return &delivery.Error{Code: delivery.CodeServiceUnavailable, Message: "this takes too long here; ask for a shorter period, or download the report"}
	}
	return err
}
