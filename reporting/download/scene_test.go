package download

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/access"
	"vendorapi/reporting/archive"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scene is a panel with downloads over a real ClickHouse and a real Redis.
type scene struct {
	*testing.T
	engine    *testserver.ClickHouse
	database  string
	archive   *archive.Archive
	gate      *access.Gate
	downloads *Downloads
	server    *httptest.Server
	tokens    map[string]string // by name: erp and bi are finance, ops is operator
}

// newScene is one on the shared engine, with a few orders.
func newScene(t *testing.T, change ...func(*Settings)) *scene {
	t.Helper()
	return newSceneOn(t, testserver.SharedClickHouse(t), change...)
}

func newSceneOn(t *testing.T, e *testserver.ClickHouse, change ...func(*Settings)) *scene {
	t.Helper()
	s := &scene{T: t, engine: e, database: e.NewDatabase(t), tokens: map[string]string{}}
	var err error
	s.archive, err = archive.Open(archive.Settings{URL: e.URL, Database: s.database})
	must(t, err)
	t.Cleanup(func() { _ = s.archive.Close() })
	_, err = s.archive.Migrate(t.Context())
	must(t, err)
	s.openGate()
	settings := Settings{AtOnce: 8, AtOnceEach: 4, Stall: 30 * time.Second, Longest: 5 * time.Minute}
	for _, c := range change {
		c(&settings)
	}
	s.downloads, err = New(s.archive, settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/reports/", s.downloads.Handler(s.gate))
	for _, path := range []string{"/login", "/logout", "/login.css"} {
		mux.Handle(path, s.gate.Handler())
	}
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	return s
}

func (s *scene) openGate() {
	s.Helper()
	redis, err := stack.StartRedis(s.Context(), stack.RedisOptions{Dir: s.TempDir(), Extra: []string{"--appendfsync", "no"}})
	must(s, err)
	s.Cleanup(redis.Stop)
	l, err := ledger.Open(s.Context(), ledger.Config{URL: redis.URL, Environment: "sandbox", Partitions: 1})
	must(s, err)
	s.Cleanup(func() { _ = l.Close() })
	var people access.People
	for name, role := range map[string]access.Role{"erp": access.Finance, "bi": access.Finance, "ops": access.Operator} {
		text, token, err := access.NewToken(name, access.Roles{role})
		must(s, err)
		s.tokens[name] = text
		people.Tokens = append(people.Tokens, token)
	}
	user, err := access.NewUser("ayse", access.Roles{access.Finance}, password)
	must(s, err)
	people.Users = append(people.Users, user)
	s.gate, err = access.New(l, people, access.Settings{PasswordChecks: 1}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(s, err)
}

const password = "doğru at pil zımba"

// insertOrders stores n orders, spread over November 2026, of accounts, stores
// and fleets with Turkish names.
func (s *scene) insertOrders(n int) {
	s.Helper()
	s.engine.Exec(s, fmt.Sprintf(`INSERT INTO %s.orders
SELECT reinterpretAsUUID(sipHash128('account', number %% 3)), toDate(created_at), reinterpretAsUUID(sipHash128('order', number)), 4294967301,
 concat('A-', toString(number)), concat('şube-', toString(number %% 7)), concat('Çiğköfteci "Ömer"; ', toString(number %% 7)), '1234567890',
 reinterpretAsUUID(sipHash128('fleet', number %% 2)), 'Hızlı Kurye', 'Delivered', '', '',
 toDateTime64('2026-11-01 00:00:00', 3, 'Etc/GMT-3') + toIntervalMillisecond(intDiv(number * 2592000000, %d)) AS created_at,
 NULL, created_at, created_at, created_at, created_at, created_at, created_at,
 ['Cash', 'Card', 'Prepaid'][1 + number %% 3], toDecimal64(toInt64(number %% 100000), 0) / 100, if(number %% 3 = 2, NULL, toDecimal64(toInt64(number %% 100000), 0) / 100)
FROM numbers(%d)`, s.database, n, n))
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	text string
}

// ask sends a request of a token's, and reads the answer.
func (s *scene) ask(method, path, token string, headers ...string) answer {
	s.Helper()
	resp := s.begin(method, path, token, headers...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s, err)
	return answer{resp, string(text)}
}

// begin sends a request and leaves the body to the caller.
func (s *scene) begin(method, path, token string, headers ...string) *http.Response {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, nil)
	must(s, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+s.tokens[token])
	}
	r.Header.Set("Accept-Encoding", "identity")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	must(s, err)
	return resp
}

// want checks the status and a part of the text.
func (a answer) want(t testing.TB, status int, part string) answer {
	t.Helper()
	if a.StatusCode != status || !strings.Contains(a.text, part) {
		t.Fatalf("%s %s: %d %v %.300s; want %d %q", a.Request.Method, a.Request.URL, a.StatusCode, a.Header, a.text, status, part)
	}
	return a
}

// wantHeader checks a header's value.
func (a answer) wantHeader(t testing.TB, name, value string) answer {
	t.Helper()
	if got := a.Header.Get(name); got != value {
		t.Errorf("%s %s: %s is %q, want %q", a.Request.Method, a.Request.URL, name, got, value)
	}
	return a
}

// await polls until the condition holds.
func (s *scene) await(what string, condition func() bool) {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited in vain: %s", what)
		}
	}
}

// ended is how many downloads had a result, of any report and format.
func (s *scene) ended(result string) (n float64) {
	s.Helper()
	metrics := make(chan prometheus.Metric, 100)
	s.downloads.metrics.downloads.Collect(metrics)
	close(metrics)
	for m := range metrics {
		var d dto.Metric
		must(s, m.Write(&d))
		for _, l := range d.GetLabel() {
			if l.GetName() == "result" && l.GetValue() == result {
				n += d.GetCounter().GetValue()
			}
		}
	}
	return n
}

// queries is how many statements about orders run in ClickHouse.
func (s *scene) queries() string {
	s.Helper()
	return strings.TrimSpace(s.engine.Exec(s, `SELECT count() FROM system.processes WHERE query LIKE '%order_ledger(%' AND query NOT LIKE '%processes%'`))
}

// watchTemporaryFiles makes a folder the place of temporary files and checks at the end that
// none was left.
func watchTemporaryFiles(t *testing.T) (check func()) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return func() {
		t.Helper()
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

const november = "?from=2026-11-01&to=2026-11-30"
