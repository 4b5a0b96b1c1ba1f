// Package layout is what all pages of the panel have in common: navigation, stylesheet,
// scripts, formats, lists with filters and pages, charts, and refusals.
//
// A package of pages embeds its templates, parses them with Layout.Parse and registers
// handlers by role with Layout.Handle. A template has its page's name and gets a *Page.
// A form that changes something carries {{template "csrf" .}}; its handler answers with
// Redirect, or with Show and View.Refused. An error that a handler returns becomes a page.
// Everything but charts and refreshing works without scripts; nothing is loaded from
// elsewhere (assets/vendor/README.md).
package layout

import (
	"embed"
	"html/template"
	"log/slog"
	"net/http"

	"github.com/klauspost/compress/gzhttp"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/assets"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/svgmap"
)

//go:embed page/*.html assets/*.css assets/*.js assets/*.svg assets/vendor/*.js
var files embed.FS

var served = []string{"assets/panel.css", "assets/panel.js", "assets/icon.svg", "assets/vendor/htmx.min.js", "assets/vendor/chart.umd.min.js"}

// Layout holds what is the same on every page. It is safe for concurrent use.
type Layout struct {
	Lists *Lists

	gate        *auth.Gate
	log         *slog.Logger
	environment string
	assets      *assets.Files
	templates   *template.Template
	own         *Pages
}

// New prepares the layout for an environment, "production" or "sandbox", which
// every page names.
func New(gate *auth.Gate, led *ledger.Ledger, environment string, log *slog.Logger) (*Layout, error) {
	l := &Layout{Lists: newLists(led), gate: gate, log: log, environment: environment}
	var err error
	if l.assets, err = assets.New(files, served...); err != nil {
		return nil, err
	}
	if l.templates, err = template.New("").Funcs(l.functions()).ParseFS(files, "page/layout.html", "page/parts.html"); err != nil {
		return nil, err
	}
	if _, err = svgmap.Define(l.templates); err != nil {
		return nil, err
	}
	l.own, err = l.Parse(files, "page/refusal.html")
	return l, err
}

func (l *Layout) address(asset string) string { return "/assets/" + l.assets.Hash + "/" + asset }

// Handler serves a page or an action. An error is answered by Refuse.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Handle registers a handler for those with a role, behind Guard.
func (l *Layout) Handle(mux *http.ServeMux, pattern string, role auth.Role, serve Handler) {
	mux.Handle(pattern, l.Guard(serve, role))
}

// Guard is a handler for everybody with one of the roles; without roles, for everybody who
// is signed in. A token only reads: the gateway's log names a person for every change.
func (l *Layout) Guard(serve Handler, roles ...auth.Role) http.Handler {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error = errToken
		if who := auth.IdentityOf(r.Context()); auth.Reads(r) || who.BySession() {
			err = serve(w, r)
		}
		if err != nil {
			l.Refuse(w, r, err)
		}
	})
	return auth.Protect(auth.PolicyScripts, l.gate.Require(answer, roles...))
}

type section struct {
	Path, Name, Icon string
	role             auth.Role
	Current          bool
}

// sections are the navigation, in its order.
var sections = []section{
	{"/overview", "Overview", "overview", auth.Operator, false},
	{"/orders", "Orders", "orders", auth.Operator, false},
	{"/webhooks", "Webhooks", "webhooks", auth.Operator, false},
	{"/accounts", "Accounts", "accounts", auth.Operator, false},
	{"/fleets", "Fleets", "fleets", auth.Operator, false},
	{"/stores", "Stores", "stores", auth.Operator, false},
	{"/refused-updates", "Refused updates", "refused", auth.Operator, false},
	{"/dead-letters", "Dead letters", "letters", auth.Operator, false},
	{"/payments", "Payments", "payments", auth.Finance, false},
}

// Home leads from / to the first page that somebody may see.
func (l *Layout) Home() http.Handler {
	return l.Guard(func(w http.ResponseWriter, r *http.Request) error {
		who := auth.IdentityOf(r.Context())
		for _, s := range sections {
			if who.Roles.Include(s.role) {
				http.Redirect(w, r, s.Path, http.StatusSeeOther)
				return nil
			}
		}
		return errNoPages
	})
}

// Icon serves the icon where browsers look for it on pages that name none.
func (l *Layout) Icon() http.Handler {
	return auth.Protect(auth.PolicyData, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=86400")
		http.ServeFileFS(w, r, files, "assets/icon.svg")
	}))
}

// Assets serves the stylesheet, scripts and icon, to everybody.
func (l *Layout) Assets() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/{hash}/{name}", gzhttp.GzipHandler(l.assets))
	return auth.Protect(auth.PolicyData, mux)
}
