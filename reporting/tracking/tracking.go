package tracking

import (
	"bytes"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/svgmap"
)

// policy lets the page load its own files and fetch its own fragment, and
// nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Pages are the tracking pages. They are safe for concurrent use.
type Pages struct {
	ledger  *ledger.Ledger
	keys    delivery.TrackingKeys
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time
}

// New prepares the pages of the orders in the ledger. The keys are those with
// which the gateways sign links; an error says what is wrong with them.
func New(l *ledger.Ledger, keys delivery.TrackingKeys, log *slog.Logger, reg prometheus.Registerer) (*Pages, error) {
	if err := keys.Check(); err != nil {
		return nil, err
	}
	return &Pages{ledger: l, keys: keys, log: log.With("part", "tracking"), metrics: newMetrics(reg), now: time.Now}, nil
}

// Handler serves everything below /track/, with all headers that belong to it.
func (p *Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /track/{token}", p.page)
	mux.HandleFunc("GET /track/{token}/live", p.fragment)
	mux.HandleFunc("GET /track/assets/{hash}/{name}", serveAsset)
	mux.HandleFunc("GET /track/", func(w http.ResponseWriter, r *http.Request) { p.refuse(w, r, full, unknown) })
	mux.HandleFunc("/track/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		p.notice(w, r, full, http.StatusMethodNotAllowed, wordsFor(r).ReadOnly)
	})
	return auth.Protect(policy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The link is the key: no site may learn it from a Referer, no search
		// engine may list it.
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("X-Robots-Tag", "noindex, nofollow, noarchive")
		mux.ServeHTTP(w, r)
	}))
}

// form is how much of the page is asked for.
type form string

const (
	full    form = "page.html"
	renewal form = "live.html"
)

func (p *Pages) page(w http.ResponseWriter, r *http.Request)     { p.show(w, r, full) }
func (p *Pages) fragment(w http.ResponseWriter, r *http.Request) { p.show(w, r, renewal) }

// sheet is what the templates render.
type sheet struct {
	*words
	// Root leads from the page to /track/, whatever path a proxy has put in
	// place of that.
	Root, Assets string
	Token        string
	Order        *view   // nil: a notice
	Notice       *notice // nil: an order
	Again        int     // seconds after which the page loads itself again; 0: never
}

// show answers with an order, or says why not.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, f form) {
	token := r.PathValue("token")
	now := p.now()
	o, store, result := p.open(r.Context(), token, now)
	if result != shown {
		p.refuse(w, r, f, result)
		return
	}
	text := wordsFor(r)
	p.metrics.of(f, shown).Inc()
	p.write(w, r, f, http.StatusOK, &sheet{words: text, Token: token, Order: newView(text, o, store, now)})
}

// retryAfter is how many seconds a browser is asked to wait for Redis.
const retryAfter = 5

// refuse says why there is no order to show.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, f form, why result) {
	p.metrics.of(f, why).Inc()
	text := wordsFor(r)
	switch why {
	case unavailable:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		p.notice(w, r, f, http.StatusServiceUnavailable, text.Unavailable)
	case failed:
		p.notice(w, r, f, http.StatusInternalServerError, text.Broken)
	case expired:
		p.notice(w, r, f, http.StatusNotFound, text.Expired)
	default:
		p.notice(w, r, f, http.StatusNotFound, text.Unknown)
	}
}

func (p *Pages) notice(w http.ResponseWriter, r *http.Request, f form, status int, n notice) {
	s := &sheet{words: wordsFor(r), Notice: &n}
	if status >= http.StatusInternalServerError {
		s.Again = 2 * retryAfter
	}
	p.write(w, r, f, status, s)
}

func (p *Pages) write(w http.ResponseWriter, r *http.Request, f form, status int, s *sheet) {
	s.Root = rootOf(r)
	s.Assets = s.Root + "assets/" + assetsHash + "/"
	var body bytes.Buffer
	if err := templates.ExecuteTemplate(&body, string(f), s); err != nil {
		p.log.Error("render a tracking page", "error", err)
		http.Error(w, s.Broken.Title, http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", s.Language)
	h.Set("Vary", "Accept-Language")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the asker went away: nothing to do
}

// deepest bounds how far a page may lie below /track/ and still find its files.
const deepest = 16

// rootOf is the relative way from the request's page to /track/.
func rootOf(r *http.Request) string {
	below := strings.Count(r.URL.EscapedPath(), "/") - strings.Count("/track/", "/")
	return strings.Repeat("../", min(max(below, 0), deepest))
}

var templates = parseTemplates()

// parseTemplates reads the embedded pages; a broken one stops the program
// before it serves anything.
func parseTemplates() *template.Template {
	set, err := template.ParseFS(files, "page/*.html")
	if err == nil {
		set, err = svgmap.Define(set)
	}
	if err != nil {
		panic(fmt.Sprintf("the embedded tracking pages: %v", err))
	}
	return set
}
