package finance

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/html"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/download"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/panel/admin"
)

func TestMain(m *testing.M) { testserver.Main(m) }

var must = testenv.Must

// env is a panel with finance's pages and the downloads.
type env struct {
	*archiveenv.System
	pages  *Pages
	client *testenv.Client // finance's browser, which sends a token
	// gateway is where the admin API is; empty: nowhere.
	gateway string
	// account and fleet are known in Redis; the others only in ClickHouse.
	account, stranger delivery.AccountID
	fleets            []delivery.FleetID
	orders            []archive.Order
}

func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvOn(t, testenv.New(t))
}

func newEnvOn(t *testing.T, redis *testenv.Env) *env {
	t.Helper()
	e := &env{System: archiveenv.NewOn(redis, testserver.SharedClickHouse(t)), stranger: delivery.NewAccountID()}
	e.account = e.Vendor.Account
	e.fleets = []delivery.FleetID{e.Fleet.ID, delivery.NewFleetID(), delivery.NewFleetID()}
	e.serve(e.Archive)

	return e
}

// serve puts the pages over an archive.
func (e *env) serve(a *archive.Archive) {
	e.T.Helper()
	l := e.OpenAs(stack.ReportingUser)
	gate := authenv.Gate(e.T, l)
	f := layout.New(gate, l, "sandbox", authenv.Log)
	f.Lists.Few.MaxAge = 0 // tests make accounts themselves
	gateway, err := admin.NewClient(admin.Settings{URL: cmp.Or(e.gateway, "http://127.0.0.1:1")}, strings.Repeat("k", 16))
	must(e.T, err)
	gateway.Timeout = testserver.Timeout
	e.pages = New(f, a, closing.New(l, a, archiveenv.BooksKeys, authenv.Log), gateway)
	e.pages.logs.MaxAge = 0
	e.waitLonger(f)
	go e.pages.Run(e.T.Context())
	downloads := download.New(a, e.pages.Named, download.Settings{AtOnce: 8, AtOnceEach: 8, Stall: testserver.Timeout, Longest: testserver.Timeout},
		f.Refuse, authenv.Log, prometheus.NewRegistry())
	mux := http.NewServeMux()
	e.pages.Routes(mux)
	f.Routes(mux)
	for _, path := range []string{"/login", "/login.css"} {
		mux.Handle(path, gate.Handler())
	}

	mux.Handle("/reports/", downloads.Handler(gate))
	e.client = testenv.Serve(e.T, mux, testenv.AcceptHTML, authenv.As("finance"))
}

// waitLonger has the pages wait for Redis and ClickHouse as long as a test may: on a busy machine both answer later than
// people are kept waiting.
func (e *env) waitLonger(f *layout.Layout) {
	e.pages.queueing = testserver.Timeout
	e.pages.pageLimit = testserver.Timeout
	e.pages.directoryTimeout = testserver.Timeout
	e.pages.taskAnswer = testserver.Timeout
	e.pages.logs.Timeout = testserver.Timeout
	e.pages.pinged.Timeout = testserver.Timeout
	f.Lists.Few.Timeout = testserver.Timeout
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
func (e *env) order(n int, created time.Time) archive.Order {
	account := []delivery.AccountID{e.account, e.stranger}[n%2]
	external := fmt.Sprintf("A-%05d", n)
	o := archive.Order{
		Account: account, Version: 1<<32 | 7, ExternalOrderID: external, ExternalStoreID: fmt.Sprintf("branch-%d", n%7),
		StoreName: fmt.Sprintf("Çiğköfteci Ömer %d", n%7), TaxNumber: "1234567890", Fleet: e.fleets[n%3], FleetName: fmt.Sprintf("Hızlı Kurye %d", n%3),
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
func (e *env) store(orders ...archive.Order) {
	e.T.Helper()
	e.orders = append(e.orders, orders...)
	must(e.T, e.Archive.InsertAgain(e.T.Context(), &archive.Batch{Orders: orders}))
}

// november stores n orders, spread over November 2026.
func (e *env) november(n int) {
	e.T.Helper()
	var orders []archive.Order
	for i := range n {
		orders = append(orders, e.order(i, local("2026-11-01 00:00:00.000").Add(30*24*time.Hour/time.Duration(n)*time.Duration(i)).Truncate(time.Millisecond)))
	}
	e.store(orders...)
}

const november = "from=2026-11-01&to=2026-11-30"

// kept are the environment's orders that a condition holds for.
func (e *env) kept(condition func(o *archive.Order) bool) (n int64) {
	for i := range e.orders {
		if condition(&e.orders[i]) {
			n++
		}
	}
	return n
}

// page is an answer with a report.
type page struct{ *testenv.Answer }

func (e *env) page(path string) page { e.T.Helper(); return page{e.client.Page(path)} }

// report is the table of the report's rows, which stands below that of the fleets;
// nil when there is none.
func (p page) report() *html.Node {
	if tables := testenv.All(p.Tree(), "table", "report"); len(tables) > 0 {
		return tables[len(tables)-1]
	}
	return nil
}

// fleets are the totals of each fleet, by the headings above them.
func (p page) fleets() map[string]map[string]string {
	all := map[string]map[string]string{}
	if tables := testenv.All(p.Tree(), "table", "report"); len(tables) > 1 {
		for _, tr := range testenv.All(tables[0], "tr")[1:] {
			cells := cellsOf(tr)
			all[cells[0]] = headed(tables[0], cells)
		}
	}
	return all
}

// rows are the texts of the table's body; what stands below each other in a cell
// has a | between.
func (p page) rows() (rows [][]string) {
	table := p.report()
	if table == nil {
		return nil
	}

	bodies := testenv.All(table, "tbody")
	for _, tr := range testenv.All(bodies[len(bodies)-1], "tr") {
		rows = append(rows, cellsOf(tr))
	}
	return rows
}

func cellsOf(tr *html.Node) (cells []string) {
	for n := range tr.ChildNodes() {
		if n.Type != html.ElementNode {
			continue
		}

		var lines []string
		for part := range n.Descendants() {
			if part.Type == html.TextNode && strings.TrimSpace(part.Data) != "" {
				lines = append(lines, strings.Join(strings.Fields(part.Data), " "))
			}
		}

		cells = append(cells, strings.Join(lines, "|"))
	}

	return cells
}

// headed are the cells that say something, by the headings above them.
func headed(table *html.Node, cells []string) map[string]string {
	by := map[string]string{}
	for i, heading := range cellsOf(testenv.All(table, "tr")[0]) {
		if i > 0 && cells[i] != "" {
			by[heading] = cells[i]
		}
	}
	return by
}

// totals are the sums of all rows, by the headings above them.
func (p page) totals() map[string]string {
	table := p.report()
	if table == nil {
		return map[string]string{}
	}

	for _, sums := range testenv.All(table, "tbody", "sums") {
		return headed(table, cellsOf(testenv.All(sums, "tr")[0]))
	}
	return map[string]string{}
}

// total is how many rows the page says that the report has.
func (p page) total() string {
	navs := testenv.All(p.Tree(), "nav", "buttons")
	if len(navs) == 0 {
		return "0"
	}

	said := testenv.Words(testenv.All(navs[0], "span")[0])
	if _, after, several := strings.Cut(said, " of "); several {
		said = after
	}
	return strings.ReplaceAll(strings.Fields(said)[0], ",", "")
}

// chart are the figures of a chart, by label and then in the order of its
// series.
func (p page) chart(id string) map[string][]string {
	figures := map[string][]string{}
	if figure := p.ByID(id); figure != nil {
		for _, tr := range testenv.All(testenv.All(figure, "tbody")[0], "tr") {
			cells := cellsOf(tr)
			figures[cells[0]] = cells[1:]
		}
	}
	return figures
}

// tile is the text of a tile by its name.
func (p page) tile(name string) string {
	for _, tile := range testenv.All(p.Tree(), "div", "tile") {
		if said := testenv.Words(tile); strings.HasPrefix(said, name) {
			return strings.TrimSpace(strings.TrimPrefix(said, name))
		}
	}
	return ""
}
