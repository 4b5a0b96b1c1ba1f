// Package tracking serves the page behind an order's trackingUrl (spec, "Order (creation
// response)"; design section 9). The token in the path is the only key: its MAC is checked
// before anything is read, and it is in no log. The link may have been forwarded, so the
// page shows nothing of the recipient's: name, phone, address, door, notes, amounts,
// payment. Drop-off and courier are shown to about 100 m, and not once the order has ended.
package tracking

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/assets"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/svgmap"
)

const (
	policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	linkLifetime = 24 * time.Hour  // after its end an order is still shown
	readTimeout  = 5 * time.Second // of the reads behind one page
	retryAfter   = 5               // seconds that a browser is asked to wait for Redis
	longestToken = 128             // more than a token with the longest kid has (86 characters)
	deepest      = 16              // levels below /track/ at which a page still finds its files
)

// Pages are the tracking pages. They are safe for concurrent use.
type Pages struct {
	ledger   *ledger.Ledger
	keys     delivery.TrackingKeys
	log      *slog.Logger
	requests *prometheus.CounterVec // by form and result
	now      func() time.Time
}

// New prepares the pages. The keys are those with which the gateways sign links.
func New(l *ledger.Ledger, keys delivery.TrackingKeys, log *slog.Logger, reg prometheus.Registerer) (*Pages, error) {
	if err := keys.Check(); err != nil {
		return nil, err
	}
	p := &Pages{ledger: l, keys: keys, log: log.With("part", "tracking"), now: time.Now}
	p.requests = promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "reporting_tracking_requests_total",
		Help: "Requests for tracking pages, by what was asked for (page: opened, live: renewed by a page that is open) and what became of it.",
	}, []string{"form", "result"})
	for _, r := range results {
		p.counter(full, r)
		p.counter(renewal, r)
	}
	return p, nil
}

func (p *Pages) counter(f form, r result) prometheus.Counter {
	return p.requests.WithLabelValues(strings.TrimSuffix(string(f), ".html"), string(r))
}

// Handler serves everything below /track/, with all headers that belong to it.
func (p *Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /track/{token}", func(w http.ResponseWriter, r *http.Request) { p.show(w, r, full) })
	mux.HandleFunc("GET /track/{token}/live", func(w http.ResponseWriter, r *http.Request) { p.show(w, r, renewal) })
	mux.HandleFunc("GET /track/assets/{hash}/{name}", assetFiles.ServeHTTP)
	mux.HandleFunc("GET /track/", func(w http.ResponseWriter, r *http.Request) {
		p.counter(full, unknown).Inc()
		p.notice(w, r, full, unknown)
	})
	mux.HandleFunc("/track/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		p.notice(w, r, full, readOnly)
	})
	return auth.Protect(policy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The link is the key: no site may learn it, no search engine may list it.
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("X-Robots-Tag", "noindex, nofollow, noarchive")
		mux.ServeHTTP(w, r)
	}))
}

type form string

const (
	full    form = "page.html"
	renewal form = "live.html"
)

type sheet struct {
	*words
	Root, Assets string // relative paths to /track/ and to the files
	Token        string
	Order        *view   // nil: a notice
	Notice       *notice // nil: an order
	Again        int     // seconds after which the page loads itself again; 0: never
}

type result string

const (
	shown       result = "shown"
	unknown     result = "unknown"     // not a token made with these keys
	expired     result = "expired"     // its order has ended long ago
	unavailable result = "unavailable" // Redis does not answer
	failed      result = "failed"      // a record cannot be read
	gone        result = "gone"        // the asker did not wait
	readOnly    result = "read_only"   // another method than GET; not counted
)

var results = []result{shown, unknown, expired, unavailable, failed, gone}

// statuses are those of notices; 404 of all others.
var statuses = map[result]int{
	unavailable: http.StatusServiceUnavailable, failed: http.StatusInternalServerError, readOnly: http.StatusMethodNotAllowed,
}

func (p *Pages) show(w http.ResponseWriter, r *http.Request, f form) {
	token, now := r.PathValue("token"), p.now()
	o, store, result := p.open(r.Context(), token, now)
	p.counter(f, result).Inc()
	if result != shown {
		p.notice(w, r, f, result)
		return
	}
	text := wordsFor(r)
	p.write(w, r, f, http.StatusOK, &sheet{words: text, Token: token, Order: newView(text, o, store, now)})
}

func (p *Pages) notice(w http.ResponseWriter, r *http.Request, f form, why result) {
	text, status := wordsFor(r), cmp.Or(statuses[why], http.StatusNotFound)
	n, known := text.Notices[why]
	if !known {
		n = text.Notices[unknown]
	}
	s := &sheet{words: text, Notice: &n}
	if why == unavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if status >= http.StatusInternalServerError {
		s.Again = 2 * retryAfter
	}
	p.write(w, r, f, status, s)
}

// open finds a token's order and its store, which is nil when it cannot be read. Nothing is
// read for a token that was not made with the keys.
func (p *Pages) open(ctx context.Context, token string, now time.Time) (*delivery.Order, *delivery.Store, result) {
	if len(token) > longestToken {
		return nil, nil, unknown
	}
	id, err := p.keys.Parse(token)
	if err != nil {
		return nil, nil, unknown
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o, err := p.ledger.Orders.Get(bounded, id)
	switch {
	case delivery.CodeOf(err) == delivery.CodeOrderNotFound:
		return nil, nil, expired // it was retired
	case err != nil:
		return nil, nil, p.failure(ctx, id, err)
	case o.Status.Terminal() && now.Sub(o.UpdatedAt()) > linkLifetime:
		return nil, nil, expired
	}
	store, err := p.ledger.Stores.Get(bounded, o.Account, o.ExternalStoreID)
	if errors.Is(err, delivery.ErrUnavailable) {
		return nil, nil, p.failure(ctx, id, err)
	}
	if err != nil {
		p.log.Warn("a tracking page without its store", "order", id.String(), "error", err)
		return o, nil, shown
	}
	return o, store, shown
}

// failure is the result of a failed read, which it logs.
func (p *Pages) failure(ctx context.Context, id delivery.OrderID, err error) result {
	switch {
	case ctx.Err() != nil:
		return gone
	case errors.Is(err, delivery.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded):
		p.log.Warn("a tracking page cannot be answered", "error", err)
		return unavailable
	}
	p.log.Error("a tracking page failed", "order", id.String(), "error", err)
	return failed
}

func (p *Pages) write(w http.ResponseWriter, r *http.Request, f form, status int, s *sheet) {
	below := strings.Count(r.URL.EscapedPath(), "/") - strings.Count("/track/", "/")
	s.Root = strings.Repeat("../", min(max(below, 0), deepest)) // whatever path a proxy has put in front
	s.Assets = s.Root + "assets/" + assetFiles.Hash + "/"
	w.Header().Set("Content-Language", s.Language)
	w.Header().Set("Vary", "Accept-Language")
	if err := auth.Render(w, status, templates, string(f), s); err != nil {
		p.log.Error("a tracking page failed", "error", err)
		http.Error(w, s.Notices[failed].Title, http.StatusInternalServerError)
	}
}

// The embedded files: a broken one stops the program before it serves anything.
var (
	//go:embed page
	files embed.FS

	templates = parsed(svgmap.Define(parsed(template.New("").Option("missingkey=error").ParseFS(files, "page/*.html"))))

	assetFiles = parsed(assets.New(files, "page/track.css", "page/track.js", "page/icon.svg"))
)

func parsed[V any](value V, err error) V {
	if err != nil {
		panic(fmt.Sprintf("the embedded tracking pages: %v", err))
	}
	return value
}
