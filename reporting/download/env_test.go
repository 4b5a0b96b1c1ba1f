package download

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/reports"
)

// TestMain also checks that the reports' temporary files are gone at the end.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "download-*")
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}

	code := testserver.Run(m)
	if left, listErr := os.ReadDir(dir); err != nil || listErr != nil || len(left) > 0 {
		fmt.Fprintln(os.Stderr, "temporary files:", err, listErr, left)
		code = 1
	}

	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var must = testenv.Must

// env is a panel with downloads over a ClickHouse and a Redis.
type env struct {
	*archiveenv.System
	downloads *Downloads
	client    *testenv.Client
}

func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvOn(t, testserver.SharedClickHouse(t))
}

func newEnvOn(t *testing.T, c *testserver.ClickHouse) *env {
	t.Helper()
	e := &env{System: archiveenv.NewOn(testenv.New(t), c)}
	e.serve(e.Archive, Settings{AtOnce: 8, AtOnceEach: 4, Stall: 2 * time.Minute, Longest: 5 * time.Minute})
	return e
}

// unnamed knows no names.
func unnamed(_ context.Context, v reports.Values, now time.Time) (reports.Params, *delivery.FieldError, error) {
	p, err := v.Parse(now)
	return p, nil, err
}

// serve puts downloads over an archive.
func (e *env) serve(a *archive.Archive, s Settings) {
	e.T.Helper()
	refuse := func(w http.ResponseWriter, r *http.Request, err error) { auth.Refuse(w, r, authenv.Log, err) }
	e.downloads = New(a, unnamed, s, refuse, authenv.Log, prometheus.NewRegistry())
	gate := authenv.Gate(e.T, e.OpenAs(stack.ReportingUser))
	mux := http.NewServeMux()
	mux.Handle("/reports/", e.downloads.Handler(gate))
	mux.Handle("/login", gate.Handler())
	e.client = testenv.Serve(e.T, mux)
}

// insertOrders stores n orders, spread over November 2026, of accounts, stores
// and fleets with Turkish names.
func (e *env) insertOrders(n int) {
	e.T.Helper()
	e.ClickHouse.Exec(e.T, fmt.Sprintf(`INSERT INTO %s.orders
SELECT reinterpretAsUUID(sipHash128('account', number %% 3)), toDate(created_at), reinterpretAsUUID(sipHash128('order', number)), 4294967301,
 concat('A-', toString(number)), concat('şube-', toString(number %% 7)), concat('Çiğköfteci "Ömer"; ', toString(number %% 7)), '1234567890',
 reinterpretAsUUID(sipHash128('fleet', number %% 2)), 'Hızlı Kurye', 'Delivered', '', '',
 toDateTime64('2026-11-01 00:00:00', 3, 'Etc/GMT-3') + toIntervalMillisecond(intDiv(number * 2592000000, %d)) AS created_at,
 NULL, created_at, created_at, created_at, created_at, created_at, created_at,
 ['Cash', 'Card', 'Prepaid'][1 + number %% 3], toDecimal64(toInt64(number %% 100000), 0) / 100, if(number %% 3 = 2, NULL, toDecimal64(toInt64(number %% 100000), 0) / 100), '', false
FROM numbers(%d)`, e.Database, n, n))
}

const november = "?from=2026-11-01&to=2026-11-30"

// ask asks with the token of a role, or none.
func (e *env) ask(method, path, who string, headers ...string) *testenv.Answer {
	e.T.Helper()
	return e.as(who).Do(method, path, "", headers...)
}

func (e *env) as(who string) *testenv.Client {
	if who == "" {
		return e.client
	}
	return e.client.With(authenv.As(who))
}

// request sends finance's request and returns the connection, of which nothing has
// been read.
func (e *env) request(line string) net.Conn {
	e.T.Helper()
	conn, err := net.Dial("tcp", e.client.Addr())
	must(e.T, err)
	e.T.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "%s\r\nHost: panel\r\n%s\r\n\r\n", line, authenv.As("finance"))
	must(e.T, err)

	return conn
}

// ended is how many downloads had a result, of any report and format.
func (e *env) ended(result string) (n float64) {
	e.T.Helper()
	metrics := make(chan prometheus.Metric, 100)
	e.downloads.metrics.downloads.Collect(metrics)
	close(metrics)
	for m := range metrics {
		var d dto.Metric
		must(e.T, m.Write(&d))
		for _, l := range d.GetLabel() {
			if l.GetName() == "result" && l.GetValue() == result {
				n += d.GetCounter().GetValue()
			}
		}
	}

	return n
}

// awaitWhole waits until so many downloads are counted as whole, which happens
// after their last byte.
func (e *env) awaitWhole(want float64) {
	e.T.Helper()
	e.Await("the downloads are counted as whole", func() bool { return e.ended(resultWhole) == want })
}

// ofOurs are the statements that read this database's orders for a report.
func (e *env) ofOurs() string {
	return "query LIKE '%order_ledger(%' AND query NOT LIKE '%system.processes%' AND current_database = '" + e.Database + "'"
}

// queries is how many of them run.
func (e *env) queries() string {
	e.T.Helper()
	return strings.TrimSpace(e.ClickHouse.Exec(e.T, "SELECT count() FROM system.processes WHERE "+e.ofOurs()))
}
