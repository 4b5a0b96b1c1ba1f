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
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/svgmap"
)

//go:embed page/*.html assets/*.css assets/*.js assets/*.svg assets/vendor/*.js
var files embed.FS

var served = []string{"assets/panel.css", "assets/panel.js", "assets/icon.svg", "assets/vendor/htmx.min.js", "assets/vendor/chart.umd.min.js"}

// Layout holds what is the same on every page. It is safe for concurrent use.
type Layout struct {
	Lists  *Lists
	Ledger *ledger.Ledger
	Log    *slog.Logger

	gate        *auth.Gate
	environment string
	assets      *Assets
	templates   *template.Template
	own         *Pages
}

// New prepares the layout for an environment, "production" or "sandbox", which
// every page names.
func New(gate *auth.Gate, led *ledger.Ledger, environment string, log *slog.Logger) *Layout {
	l := &Layout{Ledger: led, Log: log, gate: gate, environment: environment, assets: NewAssets(files, served...), Lists: &Lists{ledger: led}}
	l.Lists.Few = Cache[Names]{MaxAge: 5 * time.Second, Timeout: 10 * time.Second, Read: l.Lists.readFew}
	l.templates = svgmap.Define(template.Must(template.New("").Funcs(l.functions()).ParseFS(files, "page/layout.html", "page/parts.html")))
	l.own = l.Parse("layout", files)
	return l
}

func (l *Layout) address(asset string) string { return "/assets/" + l.assets.Hash + "/" + asset }

// Handler serves a page or an action. An error is answered by Refuse.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Handle registers a handler for everybody with one of the roles; without roles, for everybody
// who is signed in. A token only reads: the gateway's log names a person for every change.
func (l *Layout) Handle(mux *http.ServeMux, pattern string, serve Handler, roles ...auth.Role) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error = errToken
		if who := auth.IdentityOf(r.Context()); auth.Reads(r) || who.BySession() {
			err = serve(w, r)
		}
		if err != nil {
			l.Refuse(w, r, err)
		}
	})

	mux.Handle(pattern, auth.Protect(auth.PolicyScripts, l.gate.Require(answer, roles...)))
}

// liveViewsNotedEvery is how often the refreshes of a page are noted as a view.
const liveViewsNotedEvery = time.Hour

// NoteView notes who looks at a recipient's data before it is shown: of an order, or what the receivers
// of an account have answered. For an hour the refreshes of a page are the same view.
func (l *Layout) NoteView(r *http.Request, account delivery.AccountID, order delivery.OrderID) error {
	who, within := auth.IdentityOf(r.Context()), time.Duration(0)
	if strings.HasSuffix(r.URL.Path, "/live") {
		within = liveViewsNotedEvery
	}

	credential := "token"
	if who.BySession() {
		credential = "session"
	}

	entry := &audit.Entry{
		At:         l.Ledger.Now().Truncate(time.Millisecond),
		ID:         audit.NewID(),
		Version:    1,
		RequestID:  auth.NewRequestID(),
		Action:     "recipient viewed",
		Actor:      who.Name,
		Credential: credential,
		Address:    who.Address,
		Account:    account,
		Order:      order,
	}

	return l.Ledger.Audit.AppendUnless(r.Context(), entry, within)
}

// Routes adds / to mux, which leads to the first page that somebody may see, and for
// everybody the stylesheet, the scripts, and the icon, also where browsers look for it on
// pages that name none.
func (l *Layout) Routes(mux *http.ServeMux) {
	l.Handle(mux, "GET /{$}", func(w http.ResponseWriter, r *http.Request) error {
		first := "/overview"
		roles := auth.IdentityOf(r.Context()).Roles
		switch {
		case roles.Include(auth.Operator):
		case roles.Include(auth.Finance):
			first = "/payments"
		default:
			return delivery.Refuse(delivery.CodeForbidden, "your roles open no page of the panel")
		}

		http.Redirect(w, r, first, http.StatusSeeOther)

		return nil
	})

	assets := http.NewServeMux()
	assets.Handle("GET /assets/{hash}/{name}", gzhttp.GzipHandler(l.assets))
	assets.HandleFunc("/favicon.ico", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=86400")
		http.ServeFileFS(w, r, files, "assets/icon.svg")
	})

	mux.Handle("/assets/", auth.Protect(auth.PolicyData, assets))
	mux.Handle("/favicon.ico", auth.Protect(auth.PolicyData, assets))
}

// Assets are embedded files, served as …/hash/name: addresses that change with the content, so
// that browsers may keep them. They are safe for concurrent use.
type Assets struct {
	Hash     string // of all files
	contents map[string][]byte
}

// NewAssets reads the files, whose base names differ; it panics without one. Stylesheets get
// the maps' classes.
func NewAssets(from fs.FS, names ...string) *Assets {
	f, all := &Assets{contents: map[string][]byte{}}, sha256.New()
	for _, name := range names {
		content, err := fs.ReadFile(from, name)
		if err != nil {
			panic(err)
		}

		if path.Ext(name) == ".css" {
			content = append(content, svgmap.Stylesheet...)
		}

		f.contents[path.Base(name)] = content
		all.Write(content)
	}

	f.Hash = hex.EncodeToString(all.Sum(nil)[:8])

	return f
}

// ServeHTTP serves a file under another hash too, but not to be kept: during an upgrade one
// replica's page asks another for its files.
func (f *Assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	folder, name := path.Split(r.URL.Path)
	content, known := f.contents[name]
	if !known {
		http.NotFound(w, r)
		return
	}

	if path.Base(folder) == f.Hash {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}

	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// Pages are the templates of one package, with the layout around them.
type Pages struct {
	*Layout
	Log   *slog.Logger // names the package
	parts *template.Template

	// unused has the same templates as parts and is never executed, because what has been executed cannot be cloned.
	unused *template.Template
	mu     sync.Mutex
	whole  map[string]*template.Template // by name, of the pages that have been shown; see wholePage
}

// Parse reads the templates of a part of the panel, which are in page/; it panics when one is
// broken. A template "done" has the sentences that say what was done, by the key that Redirect
// puts into the address.
func (l *Layout) Parse(part string, files fs.FS) *Pages {
	unused := template.Must(template.Must(l.templates.Clone()).ParseFS(files, "page/*.html"))
	return &Pages{
		Layout: l,
		Log:    l.Log.With("part", part),
		parts:  template.Must(unused.Clone()),
		unused: unused,
		whole:  map[string]*template.Template{},
	}
}

// wholePage returns a set of templates in which the one of this name is the layout's content; nil if there is
// none. It is made when the page is shown for the first time.
func (p *Pages) wholePage(name string) *template.Template {
	p.mu.Lock()
	defer p.mu.Unlock()

	set := p.whole[name]
	if set != nil {
		return set
	}

	content := p.unused.Lookup(name)
	isPage := content != nil && content.Tree != nil && p.templates.Lookup(name) == nil
	if !isPage {
		return nil
	}

	set = template.Must(p.unused.Clone())
	template.Must(set.AddParseTree("content", content.Tree.Copy()))
	p.whole[name] = set

	return set
}

// View is what a handler shows.
type View struct {
	Title   string
	Data    any
	Charts  bool  // the page has some: their script is loaded
	Refused error // why nothing was done: its message stands above the content, its code decides the status
	Plain   bool  // leaves the code out of a refusal
	Status  int   // of a refusal, in place of its code's; 0: its code's

	// Incomplete names what the page lacks some of, because a Redis server does not answer, such as
	// "accounts"; empty: it is whole.
	Incomplete string
}

// Page is what the layout and every content template gets.
type Page struct {
	View
	User, CSRF  string
	Roles       auth.Roles
	Environment string
	Now         time.Time
	Done        template.HTML
	Alert       *delivery.Error
	RequestID   string
	Path        string
}

// In reports whether it is the page at a path, or one below it.
func (p *Page) In(path string) bool { return p.Path == path || strings.HasPrefix(p.Path, path+"/") }

// Show answers with a whole page: the template of this name within the layout. Below
// /live it is the page's part that refreshes itself, "name-live"; a refusal replaces nothing.
func (p *Pages) Show(w http.ResponseWriter, r *http.Request, name string, v View) error {
	if strings.HasSuffix(r.URL.Path, "/live") {
		if v.Refused != nil {
			return v.Refused
		}
		return p.Part(w, r, name+"-live", v.Data)
	}

	page := p.page(r, v)
	status := http.StatusOK
	if v.Refused != nil {
		page.Alert, page.RequestID = auth.Explain(w, r, p.Layout.Log, v.Refused)
		status = cmp.Or(v.Status, page.Alert.Code.HTTPStatus())
	}

	return p.show(w, status, name, page)
}

// Part answers with a template alone, for what refreshes itself.
func (p *Pages) Part(w http.ResponseWriter, r *http.Request, name string, data any) error {
	return auth.Render(w, http.StatusOK, p.parts, name, p.page(r, View{Data: data}))
}

// show does not compress: pages repeat what was typed next to the CSRF token, which
// compression would let others guess (BREACH).
func (p *Pages) show(w http.ResponseWriter, status int, name string, page *Page) error {
	set := p.wholePage(name)
	if set == nil {
		return fmt.Errorf("layout: no template %q", name)
	}
	return auth.Render(w, status, set, "layout", page)
}

func (p *Pages) page(r *http.Request, v View) *Page {
	who := auth.IdentityOf(r.Context())
	page := &Page{View: v, User: who.Name, CSRF: who.CSRF, Roles: who.Roles, Environment: p.environment, Now: time.Now(), Path: r.URL.Path}
	var done strings.Builder
	if key := r.URL.Query().Get("done"); key != "" && p.parts.ExecuteTemplate(&done, "done", key) == nil {
		page.Done = template.HTML(strings.TrimSpace(done.String()))
	}
	return page
}

// Redirect ends an action: the browser goes on to a path of the panel, escaped and maybe
// with a query, where the sentence with this key says what was done.
func Redirect(w http.ResponseWriter, r *http.Request, path, done string) error {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	http.Redirect(w, r, path+separator+"done="+url.QueryEscape(done), http.StatusSeeOther)
	return nil
}

var errToken = delivery.Refuse(delivery.CodeForbidden, "a token changes nothing; sign in")

// Refuse answers an error: as a page for who navigates or submits a form, in the service's
// envelope for everything else. Nothing of the answer may have been written.
func (l *Layout) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // the way out of an answer that has begun
	}

	if !auth.WantsPage(r) {
		auth.Refuse(w, r, l.Log, err)
		return
	}

	e, requestID := auth.Explain(w, r, l.Log, err)
	status := e.Code.HTTPStatus()
	page := l.own.page(r, View{Title: cmp.Or(refusalTitles[status], "This did not work"), Plain: len(e.Fields) > 0})
	page.Alert, page.RequestID = e, requestID
	w.Header().Set("Content-Security-Policy", auth.PolicyScripts) // whatever handler it stands in for
	if err := l.own.show(w, status, "refusal", page); err != nil {
		auth.Refuse(w, r, l.Log, err)
	}
}

var refusalTitles = map[int]string{
	http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed",
	http.StatusInternalServerError: "Something went wrong", http.StatusServiceUnavailable: "Not available right now",
}

// Chart is a picture of figures, which panel.js draws from its JSON, with a table of them
// below. Show it with {{template "chart" .C}}, where .C is a *Chart.
type Chart struct {
	ID      string   `json:"-"` // unique on the page
	Title   string   `json:"-"`
	Unit    string   `json:"unit"` // of the values, such as "orders" or "TRY"
	Stacked bool     `json:"stacked,omitempty"`
	Across  bool     `json:"across,omitempty"` // bars on their side, for long labels
	Labels  []string `json:"labels"`
	Series  []Series `json:"series"`
}

// Series is one colour of a chart, with a value and a text for every label.
type Series struct {
	Name   string    `json:"name"`
	Tone   string    `json:"tone,omitempty"` // accent, good, bad, warn, quiet, second; empty: one after the other
	Values []float64 `json:"values"`
	Texts  []string  `json:"-"` // the values as the table writes them
}

// Add adds a series of whole numbers, or of kuruş, drawn as lira, when the unit is TRY.
func (c *Chart) Add(name, tone string, values []int64) {
	s := Series{Name: name, Tone: tone}
	for _, n := range values {
		value, text := float64(n), Count(n)
		if c.Unit == "TRY" {
			value, text = float64(n)/100, Money(n)
		}
		s.Values, s.Texts = append(s.Values, value), append(s.Texts, text)
	}

	c.Series = append(c.Series, s)
}

func (c *Chart) json() (string, error) {
	b, err := json.Marshal(c)
	return string(b), err
}
