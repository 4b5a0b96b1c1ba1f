package finance

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/archiveenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/access"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/download"
	"vendorapi/reporting/frame"
	"vendorapi/reporting/reports"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a panel with finance's pages and the downloads, over a real Redis and
// a real ClickHouse.
type world struct {
	*archiveenv.Env
	t      *testing.T
	pages  *Pages
	server *httptest.Server
	tokens map[string]string // by name: fin, ops, and both
	// account and fleet are known in Redis; the others only in ClickHouse.
	account, stranger delivery.AccountID
	fleets            []delivery.FleetID
	orders            []archive.Order
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, testenv.New(t), testserver.SharedClickHouse(t))
}

func newWorldOn(t *testing.T, redis *testenv.Env, e *testserver.ClickHouse) *world {
	t.Helper()
	w := &world{Env: archiveenv.On(redis, e), t: t, tokens: map[string]string{}, stranger: delivery.NewAccountID()}
	w.account = w.Vendor.Account
	w.fleets = []delivery.FleetID{w.Fleet.ID, delivery.NewFleetID(), delivery.NewFleetID()}
	var people access.People
	for name, roles := range map[string]access.Roles{"fin": {access.Finance}, "ops": {access.Operator}, "both": {access.Finance, access.Operator}} {
		text, token, err := access.NewToken(name, roles)
		must(t, err)
		w.tokens[name] = text
		people.Tokens = append(people.Tokens, token)
	}
	quiet := slog.New(slog.DiscardHandler)
	gate, err := access.New(w.Ledger, people, access.Settings{PasswordChecks: 1}, quiet, prometheus.NewRegistry())
	must(t, err)
	f, err := frame.New(gate, "sandbox", quiet)
	must(t, err)
	w.pages, err = New(f, w.Ledger, w.Archive, quiet)
	must(t, err)
	downloads, err := download.New(w.Archive, download.Settings{AtOnce: 8, AtOnceEach: 8, Stall: time.Minute, Longest: time.Minute}, quiet, prometheus.NewRegistry())
	must(t, err)
	mux := http.NewServeMux()
	w.pages.Routes(mux)
	mux.Handle("/reports/", downloads.Handler(gate))
	mux.Handle("/assets/", f.Assets())
	w.server = httptest.NewServer(mux)
	t.Cleanup(w.server.Close)
	return w
}

// local is a moment of 2026 or later, in local time.
func local(s string) time.Time {
	t, err := time.ParseInLocation("2006-01-02 15:04:05.000", s, delivery.Istanbul)
	if err != nil {
		panic(err)
	}
	return t
}

// order makes an order; n tells it from all others, and what it is like.
func (w *world) order(n int, created time.Time) archive.Order {
	account := []delivery.AccountID{w.account, w.stranger}[n%2]
	external := fmt.Sprintf("A-%05d", n)
	o := archive.Order{
		Account: account, Version: 1<<32 | 7, ExternalOrderID: external, ExternalStoreID: fmt.Sprintf("branch-%d", n%7),
		StoreName: fmt.Sprintf("Çiğköfteci Ömer %d", n%7), TaxNumber: "1234567890", Fleet: w.fleets[n%3], FleetName: fmt.Sprintf("Hızlı Kurye %d", n%3),
		Status: delivery.Delivered, CreatedAt: created, OrderedAt: created.Add(-time.Second), ReadyAt: created, AssignedAt: created.Add(time.Minute),
		UpdatedAt: created, PaymentType: delivery.PaymentType(n % 4), OrderAmount: delivery.Money{Minor: int64(n*37+5) % 100_000, Set: true},
		ID: delivery.MakeOrderID(n%16, delivery.DayOf(created), delivery.OrderDigest(account, external)),
	}
	if o.PaymentType == delivery.Cash || o.PaymentType == delivery.Card || n%11 == 0 {
		o.Collection = o.OrderAmount
	}
	o.EndedAt = created.Add(30 * time.Minute)
	switch {
	case n%13 == 5:
		o.Status, o.Failure = delivery.Failed, delivery.TimedOut
	case n%17 == 3:
		o.Status = delivery.Cancelled
	case n%19 == 4:
		o.Status, o.EndedAt = delivery.Searching, time.Time{}
	default:
		o.PickedUpAt, o.DeliveredAt = created.Add(10*time.Minute), o.EndedAt
	}
	return o
}

// store stores orders.
func (w *world) store(orders ...archive.Order) {
	w.t.Helper()
	w.orders = append(w.orders, orders...)
	must(w.t, w.Archive.InsertAnew(w.t.Context(), &archive.Batch{Orders: orders}))
}

// november stores n orders, spread over November 2026.
func (w *world) november(n int) {
	w.t.Helper()
	var orders []archive.Order
	for i := range n {
		orders = append(orders, w.order(i, local("2026-11-01 00:00:00.000").Add(30*24*time.Hour/time.Duration(n)*time.Duration(i)).Truncate(time.Millisecond)))
	}
	w.store(orders...)
}

const november = "from=2026-11-01&to=2026-11-30"

// answer is a response with its body read.
type answer struct {
	*http.Response
	text string
}

// get asks as a browser would that sends somebody's token.
func (w *world) get(path, who string, headers ...string) answer {
	w.t.Helper()
	return w.ask("GET", path, who, append([]string{"Accept: text/html"}, headers...)...)
}

func (w *world) ask(method, path, who string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, nil)
	must(w.t, err)
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+w.tokens[who])
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	must(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return answer{resp, string(text)}
}

// page asks for a page that is expected to be there.
func (w *world) page(path string) *document {
	w.t.Helper()
	a := w.get(path, "fin")
	if a.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %d %.500s", path, a.StatusCode, a.text)
	}
	return parsed(w.t, a.text)
}

// kept are the orders of the world that a condition holds for.
func (w *world) kept(condition func(o *archive.Order) bool) (n int64) {
	for i := range w.orders {
		if condition(&w.orders[i]) {
			n++
		}
	}
	return n
}

func reportNamed(name string) *reports.Report { return mustFind(name) }
