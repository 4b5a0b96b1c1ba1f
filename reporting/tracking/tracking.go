// Package tracking serves the page behind an order's trackingUrl (spec, "Order (creation
// response)"; decisions, "trackingUrl"). The token in the path is the only key: its MAC is checked
// before anything is read, and it is in no log. The link may have been forwarded, so the
// page shows nothing of the recipient's: name, phone, address, door, notes, amounts,
// payment. Drop-off and courier are shown to about 100 m, and not once the order has ended.
package tracking

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/svgmap"
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

	readTimeout time.Duration // of the reads behind one page; tests shorten it
}

// New prepares the pages. The keys are those with which the gateways sign links.
func New(l *ledger.Ledger, keys delivery.TrackingKeys, log *slog.Logger, reg prometheus.Registerer) (*Pages, error) {
	if err := keys.Check(); err != nil {
		return nil, err
	}

	p := &Pages{ledger: l, keys: keys, log: log.With("part", "tracking"), now: func() time.Time { return l.Now() }, readTimeout: readTimeout}
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
	n := cmp.Or(text.Notices[why], text.Notices[unknown])
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

	bounded, cancel := context.WithTimeout(ctx, p.readTimeout)
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

	templates = svgmap.Define(template.Must(template.New("").Option("missingkey=error").ParseFS(files, "page/*.html")))

	assetFiles = layout.NewAssets(files, "page/track.css", "page/track.js", "page/icon.svg")
)

func parsed[V any](value V, err error) V {
	if err != nil {
		panic(fmt.Sprintf("the embedded tracking pages: %v", err))
	}
	return value
}

// view is an order as the page shows it, no more than whoever has the link may know.
type view struct {
	Status                        delivery.Status
	Ended                         bool
	Mood                          string // chooses the colours: "going", "good", "bad" or "off"
	Headline, Detail              string
	Advice                        string // what to do about an order that did not arrive
	Done, Stages                  int    // how far it is
	Estimates                     []estimate
	Store, Fleet                  string
	Courier, CourierMark, Vehicle string // empty: nobody yet
	Steps                         []step
	Map                           *svgmap.Map // nil: none
	CourierShown, CourierLost     bool
	Whereabouts, Position         string
	Updated                       moment
}

type moment struct{ Text, Machine string }

// estimate is something to wait for; of an ended order, its end.
type estimate struct {
	Label string
	At    moment
	Left  string // how long until then; empty when it is over
}

type step struct {
	Name, State string // "done", "now" or "next"
	At          moment // zero: not reached
}

var moods = map[delivery.Status]string{delivery.Delivered: "good", delivery.Failed: "bad", delivery.Cancelled: "off"}

// newView composes the page of an order as of now. store may be nil.
func newView(w *words, o *delivery.Order, store *delivery.Store, now time.Time) *view {
	status := w.status(o.Status)
	v := &view{Status: o.Status, Ended: o.Status.Terminal(), Headline: status.Headline, Detail: status.Detail,
		Fleet: o.Fleet.Name, Mood: cmp.Or(moods[o.Status], "going"), Stages: int(delivery.Delivered), Done: int(o.Status),
		Updated: moment{now.In(delivery.Istanbul).Format(time.TimeOnly), delivery.FormatTime(now)}}
	if o.Status < delivery.PickingUp && o.ReadyAt.After(now.Add(time.Duration(o.Fleet.PickupMinutes)*time.Minute)) {
		v.Detail = w.format("Ahead", w.clock(o.ReadyAt, now))
	}

	if n := len(o.Changes); o.Status == delivery.Failed && n > 0 {
		v.Detail = w.failure(o.Changes[n-1].Failure)
	}

	if o.Status > delivery.Delivered {
		v.Advice = w.Text["AskStore"]
	}

	if store != nil {
		v.Store = store.Name
	}

	if !o.Courier.IsZero() {
		v.Courier = delivery.AbbreviateName(o.Courier.Name)
		if first, _ := utf8.DecodeRuneInString(v.Courier); first != utf8.RuneError {
			v.CourierMark = string(first) // in place of a picture
		}
		v.Vehicle = w.vehicle(o.Courier.VehicleType)
	}

	v.addSteps(w, o, now)
	v.addEstimates(w, o, now)
	if !v.Ended && !o.Shrunk() {
		v.addMap(w, o, store, now)
	}

	return v
}

func (w *words) moment(t, now time.Time) moment {
	return moment{w.clock(t, now), delivery.FormatTime(t)}
}

// addSteps adds the timeline: what was reached, and what is still to come.
func (v *view) addSteps(w *words, o *delivery.Order, now time.Time) {
	reached := func(s delivery.Status, at time.Time) {
		v.Steps = append(v.Steps, step{w.status(s).Step, "done", w.moment(at, now)})
	}
	reached(delivery.Searching, o.CreatedAt)
	for i := range o.Changes {
		if o.Changes[i].Kind == delivery.StatusReached {
			reached(o.Changes[i].Status, o.Changes[i].At)
		}
	}

	v.Steps[len(v.Steps)-1].State = "now"
	for s := o.Status + 1; s <= delivery.Delivered; s++ {
		v.Steps = append(v.Steps, step{Name: w.status(s).Step, State: "next"})
	}
}

// addEstimates adds what is expected when, or when the order ended.
func (v *view) addEstimates(w *words, o *delivery.Order, now time.Time) {
	if v.Ended {
		label := w.Text["EndsAt"]
		if o.Status == delivery.Delivered {
			label = w.Text["DeliveredAt"]
		}
		v.Estimates = []estimate{{Label: label, At: w.moment(o.UpdatedAt(), now)}}
		return
	}

	expect := func(label string, at time.Time) {
		v.Estimates = append(v.Estimates, estimate{w.Text[label], w.moment(at, now), w.until(at.Sub(now))})
	}
	pickup := time.Time{}
	if o.Status < delivery.PickedUp {
		pickup = o.EstimatedPickup()
	}

	// A courier's own estimate that the pickup has overtaken is worth nothing.
	if at := o.EstimatedDropoff(o.Version); at.After(pickup) {
		expect("DropoffAt", at)
	}

	if !pickup.IsZero() {
		expect("PickupAt", pickup)
	}
}

// Of the places on the map.
const (
	// coarse is the side, in degrees, of the squares to whose middle places are moved: 111 m
	// by 80 to 90 m. Rounding and not noise, which would even out with every look.
	coarse       = 0.001
	coarseMetres = 75              // between a place and that middle, at most, anywhere in Turkey
	lostAfter    = 3 * time.Minute // a courier's position is too old
	nearBy       = 150             // metres that are not worth a figure
)

func coarsely(p delivery.Point) delivery.Point {
	return delivery.Point{Latitude: math.Round(p.Latitude/coarse) * coarse, Longitude: math.Round(p.Longitude/coarse) * coarse}
}

// addMap draws an order that goes on. Drop-off and courier are coarse; the store is public.
func (v *view) addMap(w *words, o *delivery.Order, store *delivery.Store, now time.Time) {
	dropoff := coarsely(o.Dropoff.Point)
	places := svgmap.Places{Dropoff: &dropoff, Blur: coarseMetres}
	var legend []string // for screen readers
	if store != nil {
		places.Store = &store.Point
		legend = append(legend, w.Text["Store"])
	}

	legend = append(legend, w.Text["Dropoff"])
	where := ""
	if !o.Location.IsZero() && o.Status >= delivery.Assigned {
		courier, age := coarsely(o.Location.Point), now.Sub(o.Location.At)
		places.Courier, places.Lost = &courier, age > lostAfter
		v.CourierShown, v.CourierLost = true, places.Lost
		v.Position = w.format("Position", w.age(age))
		v.Whereabouts = whereabouts(w, o.Status, courier, dropoff, store)
		legend = append(legend, w.Text["CourierHere"])
		where = " " + v.Whereabouts + " " + v.Position + "."
	}

	v.Map = svgmap.Surroundings(places, w.Text["Map"], strings.Join(legend, ", ")+"."+where)
}

// whereabouts is how far the courier is from where the courier goes next.
func whereabouts(w *words, s delivery.Status, courier, dropoff delivery.Point, store *delivery.Store) string {
	to, far, near := dropoff, "CourierAway", "CourierNear"
	if s < delivery.PickedUp {
		if store == nil {
			return ""
		}
		to, far, near = store.Point, "CourierFromStore", "CourierAtStore"
	}

	metres := svgmap.Distance(courier, to)
	if metres < nearBy {
		return w.Text[near]
	}

	return w.format(far, w.distance(metres))
}

// words are all texts of the pages in one language, from page/en.json and its like. A
// failure's text says what the holder of a link may know, which is not that it was about money.
type words struct {
	Language string
	Text     map[string]string
	Statuses map[string]statusWords // by name
	Failures map[delivery.FailureReason]string
	Vehicles map[string]string // by lower-case name; others are shown as given
	Notices  map[result]notice
	Months   [12]string
}

type statusWords struct{ Step, Headline, Detail string }

type notice struct{ Title, Text string }

var english, turkish = readWords("en.json"), readWords("tr.json")

func readWords(name string) *words {
	w := new(words)
	d := json.NewDecoder(bytes.NewReader(parsed(files.ReadFile("page/" + name))))
	d.DisallowUnknownFields()
	return parsed(w, d.Decode(w))
}

// wordsFor chooses by Accept-Language; English when it asks for neither.
func wordsFor(r *http.Request) *words {
	if auth.Language(r) == turkish.Language {
		return turkish
	}
	return english
}

func (w *words) status(s delivery.Status) statusWords { return w.Statuses[s.String()] }

func (w *words) format(name string, args ...any) string { return fmt.Sprintf(w.Text[name], args...) }

// failure is the reason in words; an unknown one is some other.
func (w *words) failure(r delivery.FailureReason) string {
	return cmp.Or(w.Failures[r], w.Failures[delivery.OtherFailure])
}

func (w *words) vehicle(name string) string { return cmp.Or(w.Vehicles[strings.ToLower(name)], name) }

// clock is the local time of day, with the day when that is not today.
func (w *words) clock(t, now time.Time) string {
	t, now = t.In(delivery.Istanbul), now.In(delivery.Istanbul)
	text := t.Format("15:04")
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		text = fmt.Sprintf("%d %s %s", t.Day(), w.Months[t.Month()-1], text)
	}
	return text
}

// age is how long ago something was; the future is now.
func (w *words) age(d time.Duration) string {
	switch {
	case d < 5*time.Second:
		return w.Text["Now"]
	case d < time.Minute:
		return w.format("SecondsAgo", int(d.Seconds()))
	case d < time.Hour:
		return w.format("MinutesAgo", int(d.Minutes()))
	}
	return w.format("HoursAgo", int(d.Hours()))
}

// until is how long it takes until the estimate; a minute late is not late.
func (w *words) until(d time.Duration) string {
	switch {
	case d < -2*time.Minute:
		return w.Text["Late"]
	case d < 90*time.Second:
		return w.Text["Soon"]
	}

	minutes := int(d.Round(time.Minute).Minutes())
	if minutes < 90 {
		return w.format("Minutes", minutes)
	}

	return w.format("Hours", minutes/60, minutes%60)
}

// distance is metres in hundreds, or kilometres with a decimal below 10.
func (w *words) distance(metres float64) string {
	hundreds := int(metres/100 + 0.5)
	switch {
	case hundreds < 10:
		return strconv.Itoa(hundreds*100) + " m"
	case hundreds < 100:
		return strconv.Itoa(hundreds/10) + w.Text["Decimal"] + strconv.Itoa(hundreds%10) + " km"
	}
	return strconv.Itoa((hundreds+5)/10) + " km"
}
