package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/backup"
)

// changesSchema reports whether a statement is one that only migrating may run.
func changesSchema(statement string) bool {
	verb, _, _ := strings.Cut(statement, " ")
	return slices.Contains([]string{"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "OPTIMIZE", "ATTACH", "DETACH", "GRANT"}, strings.ToUpper(verb))
}

// refusing answers the statements that are named as ClickHouse answers an exception.
func refusing(named func(statement string) bool, code int, text string) archiveenv.Handler {
	return func(statement string, w http.ResponseWriter, _ *http.Request, forward func()) {
		if !named(statement) {
			forward()
			return
		}
		w.Header().Set("X-ClickHouse-Exception-Code", fmt.Sprint(code))
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, fmt.Sprintf("Code: %d. DB::Exception: %s\n", code, text))
	}
}

func every(string) bool { return true }

// States of a ClickHouse that trouble those who work with it.
var (
	wrongPassword = refusing(every, 516, "finance: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)")
	readOnly      = refusing(func(statement string) bool {
		return changesSchema(statement) || strings.HasPrefix(statement, "INSERT") || strings.HasPrefix(statement, "DELETE")
	}, 497, "finance: Not enough privileges. (ACCESS_DENIED)")
	noSchemaChanges = refusing(changesSchema, 159, "Distributed DDL task is not finished on 1 of 2 hosts. (TIMEOUT_EXCEEDED)")
	away            = func(string, http.ResponseWriter, *http.Request, func()) { panic(http.ErrAbortHandler) }
)

// run is `reporting ARGS`, with ClickHouse at url.
func run(t *testing.T, e *archiveenv.System, url string, args ...string) (said string, err error) {
	t.Helper()
	args = append(args, "--config", settingsFile(t))
	out, err := program(t, append(variables(e), "CLICKHOUSE_URL="+url), args...).CombinedOutput()
	return string(out), err
}

// While one server of ClickHouse's cluster is away no statement that changes the schema comes to its
// end. When nothing is missing there is none.
func TestHistory_NothingMissingNeedsNoSchemaChange(t *testing.T) {
	t.Parallel()

	e := archiveenv.NewOn(testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{})), testserver.SharedClickHouse(t)) // all of it is copied
	e.Delivered(time.Now())
	p := e.NewProxy("")
	var mu sync.Mutex
	var changes []string
	var dumps atomic.Int32
	p.Handle(func(statement string, w http.ResponseWriter, r *http.Request, forward func()) {
		if changesSchema(statement) {
			mu.Lock()
			changes = append(changes, statement)
			mu.Unlock()
		}

		isDump := strings.Contains(statement, "FROM audit")
		if isDump { // a backup ends in a later second than it begins
			asked := time.Now().Unix()
			e.Await("another second", func() bool { return time.Now().Unix() > asked })
			dumps.Add(1)
		}

		noSchemaChanges(statement, w, r, forward)
	})

	first := filepath.Join(t.TempDir(), "b")
	for _, c := range []struct{ command, want string }{
		{"migrate", "nothing to do"},
		{"rebuild --from 2020-01-01", "rebuilt 1 orders"},
		{"month status", "The month is over"},
		{"month verify", "nothing is decided yet"},
		{"backup --to " + first, "is whole"},
	} {
		if said, _ := run(t, e, p.URL, strings.Fields(c.command)...); !strings.Contains(said, c.want) {
			t.Errorf("%s: no %q in\n%s", c.command, c.want, said)
		}
	}

	if said, err := run(t, e, p.URL, "reconcile"); err != nil {
		t.Errorf("reconcile: %v, said %s", err, said)
	}

	ops := freeAddr(t)
	cmd := program(t, append(variables(e), "CLICKHOUSE_URL="+p.URL, "REPORTING_OPS_ADDR="+ops), "serve", "--config", settingsFile(t))
	testenv.Must(t, cmd.Start())
	awaitAnswer(t, "http://"+ops+"/readyz", "200 ready")
	e.AwaitExported()

	// Redis goes on while ClickHouse alone is loaded again.
	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".orders DELETE WHERE true SETTINGS mutations_sync = 2")
	said, err := run(t, e, e.ClickHouse.URL, "restore", "--from", first, "--only-history")
	if err != nil || !strings.Contains(said, "Redis was left as it is") {
		t.Errorf("restore --only-history: %v, said %s", err, said)
	}

	e.Want("orders", "count() FROM "+e.Database+".orders FINAL", "1")
	testenv.Must(t, errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()))

	// A view that is missing keeps commands from going on, but for a backup.
	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".schema_migrations DELETE WHERE name = 'views' SETTINGS mutations_sync = 2")
	if said, err := run(t, e, p.URL, "reconcile"); err == nil || !strings.Contains(said, "missing are views") {
		t.Errorf("reconcile without views: %v, said %s", err, said)
	}

	to := filepath.Join(t.TempDir(), "b")
	if said, err := run(t, e, p.URL, "backup", "--to", to); err != nil || !strings.Contains(said, "is whole") {
		t.Errorf("backup without views: %v, said %s", err, said)
	}

	// It is as old as its beginning.
	m, err := backup.Open(to)
	testenv.Must(t, err)
	noted, err := e.Ledger.Monitor.LastBackup(t.Context())
	testenv.Must(t, err)
	if dumps.Load() == 0 {
		t.Error("no backup was made to wait for a second, so its beginning and its end look alike")
	}
	if began := m.Began.Truncate(time.Second); !noted.Equal(began) {
		t.Errorf("the last backup began at %s, and %s is noted", began, noted)
	}

	mu.Lock()
	defer mu.Unlock()
	for _, statement := range changes {
		if !strings.HasPrefix(statement, "ALTER TABLE audit") { // the first start with export.audit_days
			t.Errorf("ran %s", statement)
		}
	}
}

// Commands look. Only migrating changes the schema, and says so to those that cannot go on.
func TestHistory_CommandsDoNotMigrate(t *testing.T) {
	t.Parallel()

	e := &archiveenv.System{Env: testenv.New(t), ClickHouse: testserver.SharedClickHouse(t)}
	e.Database = e.ClickHouse.NewDatabase(t)
	tables := func() string {
		return e.ClickHouse.Exec(t, "SELECT count() FROM system.tables WHERE database = '"+e.Database+"'")
	}
	for _, command := range []string{
		"rebuild --from 2020-01-01", "reconcile", "month status", "month verify", "backup --to " + t.TempDir() + "/b",
	} {
		said, err := run(t, e, e.ClickHouse.URL, strings.Fields(command)...)
		if err == nil || !strings.Contains(said, "run `reporting migrate`") || !strings.Contains(said, e.Database) {
			t.Errorf("%s: %v, said %s", command, err, said)
		}
	}

	s := startPanel(t, e, e.ClickHouse.URL, "panel")
	testserver.Await(t, "the panel says what is missing", func() bool { return strings.Contains(s.log.String(), "run `reporting migrate`") })
	if got := tables(); got != "0\n" {
		t.Errorf("%s tables were made", got)
	}
	if said, err := run(t, e, e.ClickHouse.URL, "migrate"); err != nil || !strings.Contains(said, "applied 0001_orders.sql") {
		t.Errorf("%v, said %s", err, said)
	}

	s.awaitReports(t, "200") // the panel goes on by itself
	testenv.Must(t, s.stop())
	if said, err := run(t, e, e.ClickHouse.URL, "migrate"); err != nil || !strings.Contains(said, "nothing to do") {
		t.Errorf("%v, said %s", err, said)
	}
	if said, err := run(t, e, e.ClickHouse.URL, "month", "status"); err != nil {
		t.Errorf("%v, said %s", err, said)
	}
}

// One process of an environment migrates at a time. Who finds nothing missing need not wait for it.
func TestHistory_OneProcessMigrates(t *testing.T) {
	t.Parallel()

	e := &archiveenv.System{Env: testenv.New(t), ClickHouse: testserver.SharedClickHouse(t)}
	e.Database = e.ClickHouse.NewDatabase(t)
	l, a := e.OpenAs(stack.ReportingUser), e.OpenArchive()
	err := l.Books.Exclusively(t.Context(), migrateLock, func(context.Context) error {
		if applied, err := migrate(t.Context(), l, a); !errors.Is(err, delivery.ErrUnavailable) || len(applied) > 0 {
			t.Errorf("beside another one: %v %v", applied, err)
		}
		return nil
	})

	testenv.Must(t, err)
	if applied, err := migrate(t.Context(), l, a); err != nil || len(applied) == 0 {
		t.Errorf("alone: %v %v", applied, err)
	}

	testenv.Must(t, l.Books.Exclusively(t.Context(), migrateLock, func(context.Context) error {
		_, err := migrate(t.Context(), l, a)
		return err
	}))
}

// A restore begins with `reporting migrate` in the environment of a backup.
func TestHistory_TheBackupsUserMayMigrate(t *testing.T) {
	t.Parallel()

	e := &archiveenv.System{Env: testenv.New(t), ClickHouse: testserver.SharedClickHouse(t)}
	e.Database = e.ClickHouse.NewDatabase(t)

	applied, err := migrate(t.Context(), e.OpenAs(stack.BackupUser), e.OpenArchive())

	if err != nil || len(applied) == 0 {
		t.Errorf("%v %v", applied, err)
	}
}

// fixMessage is in the log once when somebody has to fix something.
const fixMessage = "ClickHouse cannot be used until this is fixed"

// With ClickHouse in any state the process starts and goes on, and serves customers and what operators
// see of Redis. Roles that need ClickHouse say why they are not ready, and begin as soon as it is fixed.
func TestServe_GoesOnWhateverClickHouseDoes(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		state   archiveenv.Handler
		roles   string
		ready   string
		reports string // while it lasts
		says    string // in the log
		long    bool   // the state and the roles are tried in other cases, too: for the long run
	}{
		"wrong password":            {wrongPassword, "panel", "200 ready", "503", fixMessage, true},
		"wrong password, all roles": {wrongPassword, "export,reconcile,panel", "503 waiting for ClickHouse: clickhouse at ", "503", fixMessage, false},
		"read only":                 {readOnly, "panel", "200 ready", "200", "", false},
		"away":                      {away, "panel", "200 ready", "503", "waiting for ClickHouse", false},
		"away, all roles":           {away, "export,reconcile,panel", "503 waiting for ClickHouse: ", "503", "waiting for ClickHouse", true},
	} {
		if c.long && !testserver.Long {
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := archiveenv.New(t)
			o := e.Delivered(time.Now())
			p := e.NewProxy("")
			p.Handle(c.state)
			s := startPanel(t, e, p.URL, c.roles)
			keys := delivery.TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": make([]byte, 32)}}
			customer := "http://" + s.addr + "/track/" + keys.Token(o.ID)

			awaitAnswer(t, "http://"+s.ops+"/readyz", c.ready)
			awaitAnswer(t, customer, "200 ")
			if c.says != "" {
				testserver.Await(t, "it has tried, and says what is wrong", func() bool { return strings.Contains(s.log.String(), c.says) })
			}

			person := testenv.NewClient(t, "http://"+s.addr, "Authorization: Bearer "+s.token, testenv.AcceptHTML)
			for _, page := range []string{"/overview", "/orders?q=nothing", "/payments", "/payments/months", "/dead-letters", "/audit"} {
				if answer := person.Get(page); answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s: %d %s", page, answer.StatusCode, answer.Words())
				}
			}

			testserver.Await(t, "the order is found", func() bool {
				return strings.Contains(person.Get("/orders/"+o.ID.String()).Words(), o.ExternalOrderID)
			})
			if c.reports == "200" {
				s.awaitReports(t, "200")
			} else if got := s.report(t); got != c.reports {
				t.Errorf("reports answer %s", got)
			}

			p.Guard(nil, nil) // and it is fixed
			s.awaitReports(t, "200")
			awaitAnswer(t, "http://"+s.ops+"/readyz", "200 ready")
			if err := s.stop(); err != nil {
				t.Errorf("it ended with %v", err)
			}

			log := s.log.String()
			isExplained := c.says != fixMessage || strings.Contains(log, "refuses the user or the password")
			if n := strings.Count(log, c.says); c.says != "" && n != 1 || !isExplained {
				t.Errorf("%q stands %d times in\n%.5000s", c.says, n, log)
			}
		})
	}
}

// ClickHouse comes back between the two questions whose database it is: what the second one answers counts.
func TestServe_ClickHouseComesBackWhileItIsAsked(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	p := e.NewProxy("")
	var asked atomic.Int32
	p.Guard(func(statement string) bool {
		asksForOwner := strings.Contains(statement, archive.Identity)
		return !asksForOwner || asked.Add(1) > 1
	}, nil)

	s := startPanel(t, e, p.URL, "panel")
	awaitAnswer(t, "http://"+s.ops+"/readyz", "200 ready")

	s.awaitReports(t, "200")
	if asked.Load() < 2 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// served is a running `reporting serve` with a program of finance that asks it.
type served struct {
	addr, ops, token string
	program          *testenv.Client // of finance
	log              lockedText
	stop             func() error
}

// lockedText is what a running program has written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startPanel(t *testing.T, e *archiveenv.System, url, roles string, more ...string) *served {
	t.Helper()
	s := &served{addr: freeAddr(t), ops: freeAddr(t), token: "a-token-of-finance"}
	digest := sha256.Sum256([]byte(s.token))
	env := append(variables(e), "CLICKHOUSE_URL="+url, "PANEL_ADDR="+s.addr, "REPORTING_OPS_ADDR="+s.ops,
		"REPORT_TOKENS=test:finance,operator:sha256:"+hex.EncodeToString(digest[:]))
	cmd := program(t, append(env, more...), "serve", "--roles", roles, "--config", settingsFile(t))
	cmd.Stderr = &s.log
	testenv.Must(t, cmd.Start())
	s.program = testenv.NewClient(t, "http://"+s.addr, "Authorization: Bearer "+s.token)
	s.stop = func() error { return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) }

	return s
}

// report asks for the control totals, and returns the status of the answer.
func (s *served) report(t *testing.T) string {
	t.Helper()
	return s.askReport(t)[:3]
}

// askReport returns the status and the body of the answer.
func (s *served) askReport(t *testing.T) string {
	t.Helper()
	answer := s.program.For(t).Get("/reports/control-totals.json?from=2026-11-01&to=2026-11-02")
	return fmt.Sprint(answer.StatusCode, " ", answer.Text)
}

func (s *served) awaitReports(t *testing.T, status string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("the last answer was %s\n%.5000s", last, s.log.String())
		}
	}()

	testserver.Await(t, "reports answer "+status, func() bool {
		last = s.askReport(t)
		return strings.HasPrefix(last, status)
	})
}

// A database belongs to one ledger of one environment. Whoever else is given it, by a wrong setting,
// changes nothing there and learns whose it is.
func TestHistory_OneDatabaseHasOneLedger(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	for range 3 {
		e.Delivered(time.Now())
	}

	if _, err := run(t, e, e.ClickHouse.URL, "rebuild", "--from", "2020-01-01"); err != nil {
		t.Fatal(err)
	}

	id := e.Ledger.ID()
	before := e.Ask("* FROM " + e.Database + ".orders ORDER BY ALL")
	another := testenv.New(t)

	for name, c := range map[string]struct {
		env    []string
		says   []string
		serves bool // production refuses to start with the secrets of a test
	}{
		"production": {[]string{"ENVIRONMENT=production", "REDIS_URL=" + e.RedisURL}, []string{id + " of sandbox since", " of production."}, false},
		"a second ledger": {[]string{"REDIS_URL=" + another.ConfigFor(stack.ReportingUser).URL},
			[]string{id + " of sandbox since", "this is ledger " + another.Ledger.ID() + " of sandbox", "`reporting migrate --take-over " + id + "`"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			env := append(variables(e), c.env...)
			for _, command := range []string{
				"migrate", "month status", "month verify", "rebuild --from 2020-01-01", "reconcile --fix --remove-unknown",
				"reconcile --fix --remove-unknown --at-most 1000", "backup --to " + filepath.Join(t.TempDir(), "b"),
			} {
				args := append(strings.Fields(command), "--config", settingsFile(t))
				out, err := program(t, env, args...).CombinedOutput()
				for _, want := range append(c.says, e.Database, "a database of its own") {
					if err == nil || !strings.Contains(string(out), want) {
						t.Errorf("%s: %v, no %q in\n%s", command, err, want, out)
					}
				}
			}

			if !c.serves {
				return
			}

			ops := freeAddr(t)
			cmd := program(t, append(env, "REPORTING_OPS_ADDR="+ops), "export", "--config", settingsFile(t))
			testenv.Must(t, cmd.Start())
			awaitAnswer(t, "http://"+ops+"/readyz", "the database belongs to another ledger")
			testenv.Must(t, errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()))
		})
	}

	if after := e.Ask("* FROM " + e.Database + ".orders ORDER BY ALL"); after != before {
		t.Error("the database was changed")
	}

	e.Want("whose it is", "environment, ledger FROM "+e.Database+".identity", "sandbox\t"+id)
}

// A panel shows nothing of another ledger's database.
func TestHistory_APanelShowsItsOwnOnly(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	o := e.Delivered(time.Now())
	if _, err := run(t, e, e.ClickHouse.URL, "rebuild", "--from", "2020-01-01"); err != nil {
		t.Fatal(err)
	}

	another := testenv.New(t)
	s := startPanel(t, e, e.ClickHouse.URL, "panel", "REDIS_URL="+another.ConfigFor(stack.ReportingUser).URL)
	awaitAnswer(t, "http://"+s.ops+"/readyz", "200 ready")
	person := testenv.NewClient(t, "http://"+s.addr, "Authorization: Bearer "+s.token, testenv.AcceptHTML)
	for _, page := range []string{"/payments", "/orders?q=" + o.ID.String(), "/orders/" + o.ID.String()} {
		if words := person.Get(page).Words(); strings.Contains(words, "123.45") || strings.Contains(words, o.ExternalOrderID) {
			t.Errorf("%s shows it: %s", page, words)
		}
	}

	if got := s.report(t); got != "503" {
		t.Errorf("reports answer %s", got)
	}

	testserver.Await(t, "the log says why", func() bool { return strings.Contains(s.log.String(), "belongs to another ledger") })
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// After Redis was lost without a backup a person gives the database to the new ledger. The old one, should
// it come back, is refused from then on.
func TestMigrate_TakesOverWhatALostLedgerHad(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	another := &archiveenv.System{Env: testenv.New(t), ClickHouse: e.ClickHouse, Database: e.Database}
	id := e.Ledger.ID()
	for _, c := range []struct {
		on   *archiveenv.System
		args string
		says string
		fail bool
	}{
		{another, "migrate --take-over SOMEBODY", "it is that of ledger " + id, true},
		{another, "migrate --take-over " + id, "was that of ledger " + id + " and is now that of ledger " + another.Ledger.ID(), false},
		{another, "migrate --take-over " + id, "nothing to do", false},
		{another, "month status", "The month is over", false},
		{e, "month status", "it is that of ledger " + another.Ledger.ID(), true},
		{e, "migrate --take-over " + id, "it is that of ledger " + another.Ledger.ID(), true},
		{another, "reconcile --at-most 5", "--at-most: want 1 or more, with --remove-unknown", true},
	} {
		said, err := run(t, c.on, e.ClickHouse.URL, strings.Fields(c.args)...)
		if (err != nil) != c.fail || !strings.Contains(said, c.says) {
			t.Errorf("%s: %v, no %q in\n%s", c.args, err, c.says, said)
		}
	}

	if err := e.Archive.CheckOwner(t.Context(), ownerOf(e.Ledger)); !errors.Is(err, archive.ErrOtherOwner) {
		t.Error(err)
	}
}
