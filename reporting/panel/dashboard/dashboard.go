// Package dashboard serves the pages on which operators look: overview, orders with their
// timelines, refused courier updates, dead letters and who did what. It changes nothing.
//
// What is live comes from Redis, what was from ClickHouse, without duplicates; Redis is right
// where both know something. A page names what cannot be read, and shows the rest.
package dashboard

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/layout"
)

//go:embed page/*.html
var files embed.FS

// partTimeout is the Pages.partTimeout of every panel.
const partTimeout = 3 * time.Second

// Pages answers the paths that Routes registers. It is safe for concurrent use.
type Pages struct {
	*layout.Pages
	// TrackingURL is the customers' link of an order. Set it before Routes.
	TrackingURL func(delivery.OrderID) string
	Programs    []Program

	// partTimeout is how long reading a part of a page may take. It is partTimeout outside tests.
	partTimeout time.Duration

	archive *archive.Archive
	seen    layout.Cache[*seen]
	refused layout.Cache[[]operations.RefusedUpdate]
	pinged  layout.Cache[bool] // whether ClickHouse answers

	probed atomic.Value // []readiness, one for each of Programs; nil before the first time
}

// New parses the templates. Nothing is read before a page is asked for.
func New(f *layout.Layout, a *archive.Archive) *Pages {
	p := &Pages{Pages: f.Parse("dashboard", files), partTimeout: partTimeout, archive: a}
	p.seen = layout.Cache[*seen]{MaxAge: overviewAge, Timeout: 2 * partTimeout, Read: p.readSeen}
	p.refused = layout.Cache[[]operations.RefusedUpdate]{MaxAge: refusedAge, Timeout: partTimeout, Read: p.readRefused}
	p.pinged = layout.Cache[bool]{MaxAge: pingAge, MaxStale: pingStale, Timeout: pingTimeout,
		Read: func(ctx context.Context) (bool, error) { return a.Ping(ctx) == nil, nil }}
	return p
}

// Routes adds the pages to mux, each for who may see it.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, serve := range map[string]layout.Handler{
		"/overview": p.overview, "/overview/live": p.overview, "/orders": p.orders, "/orders/{id}": p.order, "/orders/{id}/live": p.order,
		"/refused-updates": p.refusedUpdates, "/dead-letters": p.deadLetters,
		"/audit": p.auditTrail,
	} {
		p.Handle(mux, "GET "+pattern, serve, auth.Operator)
	}
}

// reading reads the parts of a page side by side and remembers the unread ones.
type reading struct {
	ctx     context.Context
	timeout time.Duration // of each part
	log     *slog.Logger
	wg      sync.WaitGroup
	mu      sync.Mutex
	lost    []string
}

func (p *Pages) reading(ctx context.Context) *reading {
	return &reading{ctx: ctx, timeout: p.partTimeout, log: p.Log}
}

func (r *reading) part(what string, read func(context.Context) error) {
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, r.timeout)
		defer cancel()
		if err := read(ctx); err != nil {
			r.log.Warn("a part of a page cannot be read", "what", what, "error", err)
			if errors.Is(err, ledger.ErrIncomplete) {
				what = "some of: " + what
			}
			r.mu.Lock()
			r.lost = append(r.lost, what)
			r.mu.Unlock()
		}
	})
}

// read reads a part into a variable, which stays as it is when that fails. With ledger.ErrIncomplete the
// variable gets what could be read, and what is remembered is that some of it could not.
func read[T any](r *reading, what string, into *T, get func(context.Context) (T, error)) {
	r.part(what, func(ctx context.Context) error {
		value, err := get(ctx)
		if err == nil || errors.Is(err, ledger.ErrIncomplete) {
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
	Name  string
	Wrong error     // nil: it is ready
	Since time.Time // when Wrong was seen first, as far as this process knows
}

// Probe asks the programs until ctx ends.
func (p *Pages) Probe(ctx context.Context) {
	service.Repeat(ctx, p.Log, probePause, "", "", func(ctx context.Context) error {
		p.probe(ctx)
		return nil
	})
}

func (p *Pages) probe(ctx context.Context) {
	probed := make([]readiness, len(p.Programs))
	before, _ := p.probed.Load().([]readiness)
	var all sync.WaitGroup
	for i, program := range p.Programs {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			probed[i] = readiness{program.Name, program.Ask(ctx), time.Now()}
			if before != nil && before[i].Wrong != nil {
				probed[i].Since = before[i].Since
			}
		})
	}

	all.Wait()
	if ctx.Err() != nil {
		return // this process ends; that says nothing of them
	}

	p.probed.Store(probed)
}

const (
	mostRefused  = 1000 // refused updates that are read
	entriesShown = 100  // on the pages of refused updates and dead letters
)

type refusedView struct {
	Lost    []string
	Fleets  []layout.Choice
	Fleet   string
	Rows    []refusedRow
	More    bool
	Finance bool // who looks may see the exceptions
	Read    bool
}

type refusedRow struct {
	operations.RefusedUpdate
	AccountName, FleetName string
	Kind                   string // of the update; empty: it cannot be read
}

func (p *Pages) readRefused(ctx context.Context) ([]operations.RefusedUpdate, error) {
	return p.Ledger.Monitor.RefusedUpdates(ctx, mostRefused)
}

func (p *Pages) refusedUpdates(w http.ResponseWriter, r *http.Request) error {
	v := &refusedView{Fleet: r.URL.Query().Get("fleet"), Finance: auth.IdentityOf(r.Context()).Roles.Include(auth.Finance)}
	query := layout.FiltersOf(r, "fleet")
	only := layout.Parsed(query, "fleet", "must be a fleet's id, a UUID of 36 characters", delivery.ParseFleetID)
	var updates []operations.RefusedUpdate
	var fleets layout.Names
	parts := p.reading(r.Context())
	read(parts, refusedPart, &updates, p.readRefused)
	read(parts, "names of fleets", &fleets, p.Lists.FleetNames)
	v.Lost = parts.wait()
	v.Read = !slices.Contains(v.Lost, refusedPart)
	v.Fleets = fleets.Choices(query.Get("fleet"), math.MaxInt)
	for _, u := range updates {
		if !only.IsZero() && u.Update.Fleet != only {
			continue
		}
		v.More = len(v.Rows) == entriesShown
		if v.More {
			break
		}
		v.Rows = append(v.Rows, refusedRow{RefusedUpdate: u, Kind: kinds[u.Update.Kind], FleetName: fleets.Of(u.Update.Fleet, "fleet ")})
	}

	v.Lost = append(v.Lost, p.nameRefused(r.Context(), v.Rows)...)

	return p.Show(w, r, "refused-updates", layout.View{Title: "Refused updates", Refused: query.Err(), Data: v})
}

// nameRefused reads the names of the rows' accounts, and returns what could not be read.
func (p *Pages) nameRefused(ctx context.Context, rows []refusedRow) (lost []string) {
	var ids []delivery.AccountID
	for _, row := range rows {
		if !row.Account.IsZero() {
			ids = append(ids, row.Account)
		}
	}

	var names layout.Names
	parts := p.reading(ctx)
	read(parts, accountNamesPart, &names, func(ctx context.Context) (layout.Names, error) { return p.Lists.AccountNames(ctx, ids) })
	lost = parts.wait()
	for i := range rows {
		if !rows[i].Account.IsZero() {
			rows[i].AccountName = names.Of(rows[i].Account, "account ")
		}
	}

	return lost
}

var kinds = map[delivery.UpdateKind]string{delivery.KindAccept: "accept", delivery.KindSwap: "swap", delivery.KindStatus: "status"}

// Unreadable reports that no more than the time and the reason are known.
func (r refusedRow) Unreadable() bool { return r.Update.Order.IsZero() }

// Exceptions leads to finance's list of the day on which the order was created.
func (r refusedRow) Exceptions() string {
	from, to := creationDays(r.Update.Order)
	query := url.Values{"from": {layout.ISODay(from)}, "to": {layout.ISODay(to)}}
	if !r.Account.IsZero() {
		query.Set("account", r.Account.String())
	}
	return layout.Address("/payments/exceptions", query)
}

type lettersView struct {
	Lost    []string // not empty: nobody knows
	Letters []operations.DeadLetter
	More    bool
}

func (p *Pages) deadLetters(w http.ResponseWriter, r *http.Request) error {
	var letters []operations.DeadLetter
	parts := p.reading(r.Context())
	read(parts, "dead letters", &letters, func(ctx context.Context) ([]operations.DeadLetter, error) {
		return p.Ledger.Monitor.DeadLetters(ctx, entriesShown+1)
	})
	v := &lettersView{Lost: parts.wait(), Letters: letters[:min(len(letters), entriesShown)], More: len(letters) > entriesShown}
	return p.Show(w, r, "dead-letters", layout.View{Title: "Dead letters", Data: v})
}

const auditRows = 200 // of the page

type auditView struct {
	Search *layout.Filters
	Rows   []audit.Entry
	Lost   []string
	More   bool

	Finance delivery.AccountID // has no page of an account
}

func (p *Pages) auditTrail(w http.ResponseWriter, r *http.Request) error {
	v := &auditView{Finance: delivery.FinanceAccount, Search: layout.FiltersOf(r, "from", "to", "actor", "action", "about")}
	v.Search.Faults = archive.AuditSearch(v.Search.Values, time.Now())
	if v.Search.Err() == nil {
		parts := p.reading(r.Context())
		read(parts, "who did what (ClickHouse)", &v.Rows, func(ctx context.Context) ([]audit.Entry, error) {
			return p.archive.AuditEntries(ctx, v.Search.Values, auditRows+1)
		})
		v.Lost = parts.wait()
	}

	v.More = len(v.Rows) > auditRows
	if v.More {
		v.Rows = v.Rows[:auditRows]
	}

	return p.Show(w, r, "audit", layout.View{Title: "Audit trail", Refused: v.Search.Err(), Data: v})
}
