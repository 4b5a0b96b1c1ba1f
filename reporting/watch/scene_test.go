package watch

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/html"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/archiveenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/access"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/reporting/frame"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// programs are who asks in the tests, by bearer token: a session needs Redis,
// and some tests are about its absence.
var programs = sync.OnceValue(func() (p struct {
	access.People
	tokens map[string]string
}) {
	p.tokens = map[string]string{}
	for name, roles := range map[string]access.Roles{
		"operator": {access.Operator}, "finance": {access.Finance}, "both": {access.Operator, access.Finance},
	} {
		text, token, err := access.NewToken(name, roles)
		if err != nil {
			panic(err)
		}
		p.tokens[name], p.Tokens = text, append(p.Tokens, token)
	}
	return p
})

// watched is a scene with the pages over it.
type watched struct {
	*archiveenv.Env
	pages  *Pages
	server *httptest.Server
}

func newWatched(t *testing.T) *watched { return newWatchedOn(t, testenv.New(t)) }

// newWatchedToStop is on a Redis of its own, which the test may stop.
func newWatchedToStop(t *testing.T) *watched {
	t.Helper()
	return newWatchedOn(t, testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{})))
}

func newWatchedOn(t *testing.T, e *testenv.Env) *watched {
	t.Helper()
	w := &watched{Env: archiveenv.On(e, testserver.SharedClickHouse(t))}
	w.serve(w.Archive)
	return w
}

// serve puts the pages over the scene's Redis and an archive.
func (w *watched) serve(a *archive.Archive) {
	w.T.Helper()
	quiet := slog.New(slog.DiscardHandler)
	config := w.Config()
	config.Secrets = ledger.SecretKeys{} // the panel has none
	config.Log = quiet
	l, err := ledger.Open(w.T.Context(), config)
	must(w.T, err)
	w.T.Cleanup(func() { _ = l.Close() })
	gate, err := access.New(l, programs().People, access.Settings{PasswordChecks: 1}, quiet, prometheus.NewRegistry())
	must(w.T, err)
	f, err := frame.New(gate, "sandbox", quiet)
	must(w.T, err)
	w.pages, err = New(f, l, a, quiet)
	must(w.T, err)
	w.pages.TrackingURL = func(id delivery.OrderID) string { return "https://t.example/track/" + id.String() }
	mux := http.NewServeMux()
	w.pages.Routes(mux)
	w.server = httptest.NewServer(mux)
	w.T.Cleanup(w.server.Close)
}

// answer is a response with its page.
type answer struct {
	*http.Response
	text string
	doc  *html.Node
}

func (w *watched) ask(method, who, path string) answer {
	w.T.Helper()
	r, err := http.NewRequestWithContext(w.T.Context(), method, w.server.URL+path, http.NoBody)
	must(w.T, err)
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+programs().tokens[who])
	}
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: time.Minute}
	resp, err := client.Do(r)
	must(w.T, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(w.T, err)
	doc, err := html.Parse(strings.NewReader(string(body)))
	must(w.T, err)
	return answer{resp, string(body), doc}
}

// mostBytes is what a page may have.
const mostBytes = 100_000

// get asks as an operator for a page that is there.
func (w *watched) get(path string) answer {
	w.T.Helper()
	a := w.ask("GET", "operator", path)
	if a.StatusCode != http.StatusOK {
		w.T.Fatalf("%s: %d %.600s", path, a.StatusCode, a.text)
	}
	if len(a.text) > mostBytes {
		w.T.Errorf("%s has %d bytes", path, len(a.text))
	}
	return a
}

// words are what a reader sees of the content, white space made one blank.
func (a answer) words() string {
	var b strings.Builder
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(n.Data + " ")
		}
		if n.Type == html.ElementNode && (n.Data == "script" || n.Data == "head" || n.Data == "header") {
			return
		}
		for c := range n.ChildNodes() {
			walk(c)
		}
	}
	walk(a.doc)
	return strings.Join(strings.Fields(b.String()), " ")
}

// says wants each of the texts to be seen.
func (a answer) says(t testing.TB, texts ...string) answer {
	t.Helper()
	words := a.words()
	for _, text := range texts {
		if !strings.Contains(words, text) {
			t.Errorf("%s: it does not say %q: %.5000s", a.Request.URL, text, words)
		}
	}
	return a
}

// hides wants none of the texts to be seen.
func (a answer) hides(t testing.TB, texts ...string) answer {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(a.words(), text) {
			t.Errorf("%s: it says %q", a.Request.URL, text)
		}
	}
	return a
}

// links wants each of the addresses to be linked.
func (a answer) links(t testing.TB, hrefs ...string) answer {
	t.Helper()
	for _, href := range hrefs {
		if !strings.Contains(a.text, `href="`+html.EscapeString(href)+`"`) {
			t.Errorf("%s: no link to %s", a.Request.URL, href)
		}
	}
	return a
}

// export runs an exporter until everything is in ClickHouse.
func (w *watched) export() {
	w.T.Helper()
	stop := w.exporting()
	w.AwaitExported()
	stop()
}

func (w *watched) exporting() (stop func()) {
	w.T.Helper()
	e := export.New(w.Ledger, w.Archive, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Minute}, "test",
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return w.Start(e.Run)
}

// register gives the vendor's account a URL.
func (w *watched) register(v *testenv.Vendor) {
	w.T.Helper()
	_, _, err := w.Ledger.SetWebhookURL(w.T.Context(), v.Account, "https://vendor.example/hook")
	must(w.T, err)
}

// sends plays the webhook worker: it takes every event that is to be sent now,
// and lets answer say what became of it.
func (w *watched) sends(answer func(*ledger.Delivery) ledger.Outcome) {
	w.T.Helper()
	grant := ledger.Grant{Limit: 100, Share: 32, InFlight: 32, Lease: time.Minute}
	w.Feed(ledger.RoleWebhook, func(partition int, batch []ledger.Entry) error {
		leased, err := w.Ledger.QueueEvents(w.T.Context(), partition, batch, grant)
		for err == nil && len(leased.Deliveries) > 0 {
			results := make([]ledger.Result, len(leased.Deliveries))
			for i, d := range leased.Deliveries {
				results[i] = ledger.Result{Delivery: d, Outcome: answer(d)}
			}
			var recorded ledger.Recorded
			recorded, err = w.Ledger.RecordAttempts(w.T.Context(), results, grant, 1000)
			leased = recorded.Leased
		}
		return err
	})
}

func accepted(*ledger.Delivery) ledger.Outcome {
	return ledger.Outcome{At: time.Now(), OK: true, Status: 204, Duration: 34 * time.Millisecond}
}

func failed(answer string) func(*ledger.Delivery) ledger.Outcome {
	return func(*ledger.Delivery) ledger.Outcome {
		return ledger.Outcome{At: time.Now(), Status: 500, Error: "status: 500", Answer: []byte(answer),
			Duration: 120 * time.Millisecond, Retry: time.Now().Add(time.Hour)}
	}
}

// refuse keeps the trace of an update as the status worker does.
func (w *watched) refuse(status delivery.Status, reason string, late bool) {
	w.T.Helper()
	w.Feed(ledger.RoleStatus, func(_ int, batch []ledger.Entry) error {
		for _, e := range batch {
			var err error
			if e.Update == nil {
				err = w.Ledger.Ack(w.T.Context(), ledger.RoleStatus, e)
			} else {
				err = w.Ledger.RefuseUpdate(w.T.Context(), e, status, reason, late)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// index plays the status worker for new orders.
func (w *watched) index() {
	w.T.Helper()
	w.Feed(ledger.RoleStatus, func(partition int, batch []ledger.Entry) error {
		return w.Ledger.IndexJobs(w.T.Context(), partition, batch)
	})
}

// account adds an account by name.
func (w *watched) account(name string) delivery.AccountID {
	w.T.Helper()
	a := &delivery.Account{ID: delivery.NewAccountID(), Name: name, CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
	must(w.T, w.Ledger.CreateAccount(w.T.Context(), a, [32]byte{3}))
	return a.ID
}

// insertOrders puts n orders into ClickHouse alone, one every step back from now,
// of accounts, stores and fleets with Turkish names.
func (w *watched) insertOrders(n int, step time.Duration) {
	w.T.Helper()
	insertOrders(w.T, w.ClickHouse, w.Database, n, step)
}

func insertOrders(t testing.TB, e *testserver.ClickHouse, database string, n int, step time.Duration) {
	t.Helper()
	e.Exec(t, fmt.Sprintf(`INSERT INTO %s.orders
SELECT reinterpretAsUUID(sipHash128('account', number %% 3)), toDate(created_at), %s, 4294967301,
 concat('A-', toString(number)), concat('şube-', toString(number %% 7)), concat('Çiğköfteci "Ömer" ISPARTA ', toString(number %% 7)), '1234567890',
 reinterpretAsUUID(sipHash128('fleet', number %% 2)), 'Hızlı Kurye', ['Delivered', 'Delivered', 'Failed', 'Cancelled', 'Searching'][1 + number %% 5], '', '',
 toDateTime64(%d, 3, 'Etc/GMT-3') - toIntervalMillisecond(number * %d) AS created_at,
 NULL, created_at, NULL, NULL, NULL, NULL, created_at,
 ['Cash', 'Card', 'Prepaid'][1 + number %% 3], toDecimal64(toInt64(number %% 100000), 0) / 100, NULL
FROM numbers(%d)`, database, orderIDExpression, time.Now().Unix(), step.Milliseconds(), n))
}

// orderIDExpression makes an id that this service could have issued, of
// partition 0 and the day of created_at in UTC.
const orderIDExpression = `toUUID(concat(substring(hex(sipHash128('order', number)) AS h, 1, 8), '-', substring(h, 9, 4), '-80',
 lower(leftPad(hex(toUInt8(intDiv(toRelativeDayNum(toTimeZone(created_at, 'UTC')), 256))), 2, '0')), '-80',
 lower(leftPad(hex(toUInt8(toRelativeDayNum(toTimeZone(created_at, 'UTC')) % 256)), 2, '0')), '-', substring(h, 13, 12)))`

// away is an archive that nobody answers.
func (w *watched) away() *archive.Archive {
	w.T.Helper()
	a, err := archive.Open(archive.Settings{URL: "http://127.0.0.1:1", Database: w.Database})
	must(w.T, err)
	w.T.Cleanup(func() { _ = a.Close() })
	return a
}

// hanging is an archive whose server takes connections and never answers.
func (w *watched) hanging() *archive.Archive {
	w.T.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.T, err)
	w.T.Cleanup(func() { _ = silent.Close() })
	a, err := archive.Open(archive.Settings{URL: "http://" + silent.Addr().String(), Database: w.Database})
	must(w.T, err)
	w.T.Cleanup(func() { _ = a.Close() })
	return a
}
