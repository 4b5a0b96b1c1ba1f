// Package dashboard serves the pages on which operators look: overview, orders with their
// timelines, refused courier updates and dead letters. It changes nothing.
//
// What is live comes from Redis, what was from ClickHouse, without duplicates; Redis is right
// where both know something. A page names what cannot be read, and shows the rest.
package dashboard

import (
	"context"
	"embed"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/cache"
	"vendorapi/reporting/panel/layout"
)

//go:embed page/*.html
var files embed.FS

const partTimeout = 3 * time.Second

// Pages answers the paths that Routes registers. It is safe for concurrent use.
type Pages struct {
	// TrackingURL is the customers' link of an order; optional. Set it before Routes.
	TrackingURL func(delivery.OrderID) string
	Programs    []Program

	layout  *layout.Layout
	pages   *layout.Pages
	ledger  *ledger.Ledger
	lists   *layout.Lists
	archive *archive.Archive
	log     *slog.Logger
	seen    cache.Cache[*seen]
	refused cache.Cache[[]ledger.RefusedUpdate]
	pinged  cache.Cache[bool] // whether ClickHouse answers

	probed atomic.Pointer[[]readiness] // one for each of Programs
}

// New parses the templates. Nothing is read before a page is asked for.
func New(f *layout.Layout, l *ledger.Ledger, a *archive.Archive, log *slog.Logger) (*Pages, error) {
	pages, err := f.Parse(files)
	if err != nil {
		return nil, err
	}
	p := &Pages{layout: f, pages: pages, ledger: l, lists: f.Lists, archive: a, log: log.With("part", "dashboard")}
	p.seen = cache.Cache[*seen]{MaxAge: overviewAge, Timeout: 2 * partTimeout, Read: p.readSeen}
	p.refused = cache.Cache[[]ledger.RefusedUpdate]{MaxAge: refusedAge, Timeout: partTimeout, Read: p.readRefused}
	p.pinged = cache.Cache[bool]{MaxAge: pingAge, MaxStale: pingStale, Timeout: pingTimeout,
		Read: func(ctx context.Context) (bool, error) { return a.Ping(ctx) == nil, nil }}
	return p, nil
}

// Routes adds the pages to mux, each for who may see it.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, serve := range map[string]layout.Handler{
		"GET /overview":         p.overview,
		"GET /overview/live":    p.overview,
		"GET /orders":           p.orders,
		"GET /orders/{id}":      p.order,
		"GET /orders/{id}/live": p.order,
		"GET /refused-updates":  p.refusedUpdates,
		"GET /dead-letters":     p.deadLetters,
	} {
		p.layout.Handle(mux, pattern, auth.Operator, serve)
	}
}

// reading reads the parts of a page side by side and remembers the unread ones.
type reading struct {
	ctx  context.Context
	log  *slog.Logger
	wg   sync.WaitGroup
	mu   sync.Mutex
	lost []string
}

func (p *Pages) reading(ctx context.Context) *reading { return &reading{ctx: ctx, log: p.log} }

// part reads one; what is the words in which the page names it.
func (r *reading) part(what string, read func(context.Context) error) {
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, partTimeout)
		defer cancel()
		if err := read(ctx); err != nil {
			r.log.Warn("a part of a page cannot be read", "what", what, "error", err)
			r.mu.Lock()
			r.lost = append(r.lost, what)
			r.mu.Unlock()
		}
	})
}

// read reads a part into a variable, which stays as it is when that fails.
func read[T any](r *reading, what string, into *T, get func(context.Context) (T, error)) {
	r.part(what, func(ctx context.Context) error {
		value, err := get(ctx)
		if err == nil {
			*into = value
		}
		return err
	})
}

func (r *reading) wait() []string {
	r.wg.Wait()
	slices.Sort(r.lost)
	return r.lost
}

// Program is one whose readiness the overview shows.
type Program struct {
	Name string
	Ask  func(context.Context) error // its /readyz; nil: it is ready
}

// How often the programs are asked, and how long each may take to answer.
const (
	probePause   = 3 * time.Second
	probeTimeout = 2 * time.Second
)

type readiness struct {
	Name  string    // empty: it was not asked yet
	Wrong error     // nil: it is ready
	Since time.Time // when Wrong was seen first, as far as this process knows
}

// Probe asks the programs until ctx ends.
func (p *Pages) Probe(ctx context.Context) {
	for ctx.Err() == nil {
		p.probe(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}

func (p *Pages) probe(ctx context.Context) {
	probed := make([]readiness, len(p.Programs))
	before := p.programs()
	var all sync.WaitGroup
	for i, program := range p.Programs {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			probed[i] = readiness{program.Name, program.Ask(ctx), before[i].Since}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return // this process ends; that says nothing of them
	}
	for i := range probed {
		if before[i].Wrong == nil {
			probed[i].Since = time.Now()
		}
	}
	p.probed.Store(&probed)
}

func (p *Pages) programs() []readiness {
	if probed := p.probed.Load(); probed != nil {
		return *probed
	}
	return make([]readiness, len(p.Programs))
}
