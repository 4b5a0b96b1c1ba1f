package dashboard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/export"
	"vendorapi/reporting/layout"
)

func TestMain(m *testing.M) { testserver.Main(m) }

var must = testenv.Must

// env is an archive environment with the pages over it.
type env struct {
	*archiveenv.System
	pages  *Pages
	client *testenv.Client // an operator's browser, which sends a token
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newEnvOn(t, testenv.New(t))
}

// newEnvToStop is on a Redis of its own, which the test may stop.
func newEnvToStop(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newEnvOn(t, testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{})))
}

func newEnvOn(t *testing.T, base *testenv.Env) *env {
	t.Helper()
	e := &env{System: archiveenv.NewOn(base, testserver.SharedClickHouse(t))}
	e.serve(e.Archive)
	return e
}

// serve puts the pages over the environment's Redis and an archive.
func (e *env) serve(a *archive.Archive) {
	e.T.Helper()
	l := e.OpenAs(stack.ReportingUser)
	f := layout.New(authenv.Gate(e.T, l), l, "sandbox", authenv.Log)
	f.Lists.Few.MaxAge = 0 // tests change things themselves
	e.pages = New(f, a)
	e.waitLonger(f)
	e.pages.TrackingURL = func(id delivery.OrderID) string { return "https://t.example/track/" + id.String() }
	mux := http.NewServeMux()
	e.pages.Routes(mux)
	e.client = testenv.Serve(e.T, mux, testenv.AcceptHTML, authenv.As("operator"))
}

// waitLonger has the pages wait for Redis and ClickHouse as long as a test may: on a busy machine both answer later than
// people are kept waiting.
func (e *env) waitLonger(f *layout.Layout) {
	e.pages.partTimeout = testserver.Timeout
	e.pages.seen.Timeout = testserver.Timeout
	e.pages.refused.Timeout = testserver.Timeout
	e.pages.pinged.Timeout = testserver.Timeout
	f.Lists.Few.Timeout = testserver.Timeout
}

// unavailable is an archive that nobody answers.
func (e *env) unavailable() *archive.Archive {
	e.T.Helper()
	a, err := archive.Open(archive.Settings{URL: "http://127.0.0.1:1", Database: e.Database})
	must(e.T, err)
	e.T.Cleanup(func() { _ = a.Close() })
	return a
}

// get asks as an operator for a page that is there and not too large.
func (e *env) get(path string) *testenv.Answer {
	e.T.Helper()
	a := e.client.Page(path)
	if len(a.Text) > 100_000 {
		e.T.Errorf("%s has %d bytes", path, len(a.Text))
	}
	return a
}

// finds wants the page to list these orders, in this order.
func (e *env) finds(a *testenv.Answer, ids ...delivery.OrderID) *testenv.Answer {
	e.T.Helper()
	var want []string
	for _, id := range ids {
		want = append(want, id.String())
	}

	if got := listed(a); strings.Join(got, " ") != strings.Join(want, " ") {
		e.T.Errorf("%s: found %v, want %v", a, got, want)
	}
	return a
}

// listed are the ids of the orders that a page lists.
func listed(a *testenv.Answer) (ids []string) {
	for _, n := range testenv.All(a.Tree(), "a") {
		if id, ok := strings.CutPrefix(testenv.Attribute(n, "href"), "/orders/"); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// export runs an exporter until everything is in ClickHouse.
func (e *env) export() {
	e.T.Helper()
	x := export.New(e.Ledger, e.Archive, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Minute}, "test",
		authenv.Log, prometheus.NewRegistry())
	stop := e.Start(x.Run)
	e.AwaitExported()
	stop()
}

// register gives the vendor's account a URL.
func (e *env) register(v *testenv.Vendor) {
	e.T.Helper()
	_, _, err := e.Ledger.Webhooks.SetURL(e.T.Context(), v.Account, "https://vendor.example/hook")
	must(e.T, err)
}

// sends plays the sending of every event that is to be sent now, of which answer says what becomes.
func (e *env) sends(answer func(*partitions.Scheduled) partitions.AttemptRecord) {
	e.T.Helper()
	e.Send(answer)
	e.keepOwners()
}

// owned lets every partition have an owner, for which nothing waits.
func (e *env) owned() {
	e.T.Helper()
	for p := range e.Ledger.Partitions() {
		e.Step(p, func(step *partitions.Step) { step.Summary(nil) })
	}
	e.keepOwners()
}

// keepOwners lets what the owners told last as long as the test.
func (e *env) keepOwners() { e.T.Helper(); e.EachKey("P", "redis.call('PERSIST', k)") }

func accepted(*partitions.Scheduled) partitions.AttemptRecord {
	return partitions.AttemptRecord{State: partitions.StateDelivered, HTTPStatus: 204, Millis: 34}
}

func failed(answer string) func(*partitions.Scheduled) partitions.AttemptRecord {
	return func(*partitions.Scheduled) partitions.AttemptRecord {
		return partitions.AttemptRecord{State: partitions.StateRetrying, HTTPStatus: 500, Error: "status: 500", Answer: answer, Millis: 120, NextAt: time.Now().Add(time.Hour)}
	}
}

// insertOrders puts n orders into ClickHouse alone, one every step back from now,
// of accounts, stores and fleets with Turkish names.
func (e *env) insertOrders(n int, step time.Duration) {
	e.T.Helper()
	e.ClickHouse.Exec(e.T, fmt.Sprintf(`INSERT INTO %s.orders
SELECT reinterpretAsUUID(sipHash128('account', number %% 3)), toDate(created_at), %s, 4294967301,
 concat('A-', toString(number)), concat('şube-', toString(number %% 7)), concat('Çiğköfteci "Ömer" ISPARTA ', toString(number %% 7)), '1234567890',
 reinterpretAsUUID(sipHash128('fleet', number %% 2)), 'Hızlı Kurye', ['Delivered', 'Delivered', 'Failed', 'Cancelled', 'Searching'][1 + number %% 5], '', '',
 toDateTime64(%d, 3, 'Etc/GMT-3') - toIntervalMillisecond(number * %d) AS created_at,
 NULL, created_at, NULL, NULL, NULL, NULL, created_at,
 ['Cash', 'Card', 'Prepaid'][1 + number %% 3], toDecimal64(toInt64(number %% 100000), 0) / 100, NULL, '', false
FROM numbers(%d)`, e.Database, orderIDExpression, time.Now().Unix(), step.Milliseconds(), n))
}

// orderIDExpression makes an id that this service could have issued, of
// partition 0 and the day of created_at in UTC.
const orderIDExpression = `toUUID(concat(substring(hex(sipHash128('order', number)) AS h, 1, 8), '-', substring(h, 9, 4), '-80',
 lower(leftPad(hex(toUInt8(intDiv(toRelativeDayNum(toTimeZone(created_at, 'UTC')), 256))), 2, '0')), '-80',
 lower(leftPad(hex(toUInt8(toRelativeDayNum(toTimeZone(created_at, 'UTC')) % 256)), 2, '0')), '-', substring(h, 13, 12)))`
