package archive

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/journal"
)

const (
	biFile    = "../../configs/clickhouse/bi.sql"
	usersFile = "../../configs/clickhouse/users.sql"
)

// financeViews are all that finance sees.
var financeViews = []string{"booked_days", "booked_exceptions", "booked_orders", "live_exceptions", "live_orders", "live_statuses"}

// asked is what a statement answers over HTTP, with the parameters in the address.
func asked(t testing.TB, e *testserver.ClickHouse, statement string, parameters url.Values) (answer string, ok bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/?"+parameters.Encode(), strings.NewReader(statement))
	noError(t, err)
	resp, err := http.DefaultClient.Do(r)
	noError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	noError(t, err)

	return strings.TrimSpace(string(body)), resp.StatusCode == http.StatusOK
}

// refused checks that a statement fails with one of ClickHouse's errors, by their names.
func refused(t testing.TB, e *testserver.ClickHouse, statement string, parameters url.Values, errors ...string) {
	t.Helper()
	answer, ok := asked(t, e, statement, parameters)
	isOne := slices.ContainsFunc(errors, func(name string) bool { return strings.Contains(answer, "("+name+")") })
	if ok || !isOne {
		t.Errorf("%s with %v: %.300s", statement, parameters, answer)
	}
}

// engineFor is an engine with the tables and views of the database delivery, in which fill has
// stored something, and which has been started again with the rights of a user of a file.
func engineFor(t testing.TB, file, user string, fill func(a *Archive)) *testserver.ClickHouse {
	t.Helper()
	e := testserver.DedicatedClickHouse(t)
	e.Kill(t)
	e.StartAs(t, testserver.AllRights())
	a := open(t, e, "delivery")
	_, err := a.Migrate(t.Context())
	noError(t, err)
	e.DefineViews(t, FinanceDatabase("delivery"))
	fill(a)
	e.Kill(t)
	e.StartAs(t, testserver.ReadRights(t, file, user))

	return e
}

// storeTwice stores ten delivered orders of 100.00 each in all their versions, some of them twice, as
// an exporter does that was killed, and keeps ClickHouse from merging them.
func storeTwice(t testing.TB, a *Archive) {
	t.Helper()
	for _, table := range []string{"orders", "order_events", "late_deliveries"} {
		noError(t, a.exec(t.Context(), "SYSTEM STOP MERGES "+table))
	}

	for reached := range len(toDelivered) + 1 {
		var orders []*delivery.Order
		for i := range 10 {
			o := newOrder(account(i%3), i, noon, toDelivered[:reached]...)
			o.OrderAmount, o.Payment.CollectionAmount = money(10000), money(10000)
			orders = append(orders, o)
		}

		b := batchOf(orders...)
		noError(t, a.InsertAgain(t.Context(), b))
		noError(t, a.InsertAgain(t.Context(), b))
	}
}

// The tools send these with their queries, or with some of them. clickhouse-go is the real one
// (askWithDriver). The others cannot be had here, so it is what their sources send: clickhouse-jdbc
// 0.8 and 0.9 (DBeaver's and Metabase's driver: client-v2, HttpAPIClientHelper.addRequestParams, and
// StatementImpl), its first version up to 0.7 (ClickHouseHttpConnection.buildQueryParams), Metabase's
// driver (clickhouse.clj; its limits of rows are 2,000, and 1,048,575 of a download), and Grafana's
// clickhouse-datasource 4 (driver.go: what clickhouse-go sends, and a limit of rows). clickhouse-client
// speaks the native protocol, which the embedded engine does not; it sends what a person sets, such as
// these.
var toolSettings = map[string]url.Values{
	"curl":               {},
	"jdbc":               {"compress": {"0"}, "query_id": {"5f8e"}, "wait_end_of_query": {"1"}},
	"jdbc, http":         {"enable_http_compression": {"1"}, "log_comment": {"report"}, "max_execution_time": {"60"}},
	"jdbc 0.7":           {"extremes": {"0"}, "max_execution_time": {"30"}, "max_result_rows": {"200"}, "result_overflow_mode": {"break"}},
	"dbeaver, 200 rows":  {"max_result_rows": {"200"}, "result_overflow_mode": {"break"}},
	"metabase":           {"session_timezone": {"America/Los_Angeles"}, "max_result_rows": {"2000"}, "result_overflow_mode": {"break"}},
	"metabase, download": {"session_timezone": {"Europe/Istanbul"}, "max_result_rows": {"1048575"}, "result_overflow_mode": {"break"}},
	"metabase, cloud":    {"select_sequential_consistency": {"1"}},
	"grafana":            {"max_execution_time": {"65"}, "default_format": {"JSONEachRow"}, "limit": {"1000"}},
	"clickhouse-client":  {"output_format_pretty_max_rows": {"1000"}, "send_logs_level": {"none"}, "interactive_delay": {"100000"}},
	"json":               {"output_format_json_quote_64bit_integers": {"0"}, "output_format_json_quote_decimals": {"0"}},
}

// The user whom bi.sql makes gets right sums with plain SQL, whatever tool asks and however often
// versions are stored, and can do nothing else.
func TestBI_PlainSQLIsRightAndNothingElseIsSeen(t *testing.T) {
	t.Parallel()

	e := engineFor(t, biFile, "bi", func(a *Archive) { storeTwice(t, a) })

	for query, want := range map[string]string{
		"SELECT count(), sum(order_amount), sum(expected_collection) FROM delivery_finance.live_orders":                                    "10\t1000\t1000",
		"SELECT sum(orders), sum(order_amount), sum(expected_collection) FROM delivery_finance.booked_orders":                              "10\t1000\t1000",
		"SELECT sum(created), sum(delivered), sum(cash_expected) FROM delivery_finance.booked_days":                                        "10\t10\t1000",
		"SELECT status, count() FROM delivery_finance.live_statuses GROUP BY status ORDER BY count(), status LIMIT 1":                      "Assigned\t10",
		"SELECT count() FROM delivery_finance.booked_exceptions WHERE kind = 'CourierMissing'":                                             "10",
		"SELECT count() FROM delivery_finance.live_exceptions WHERE kind = 'CourierMissing' AND day BETWEEN '2026-11-21' AND '2026-11-21'": "10",
	} {
		for tool, sent := range toolSettings {
			parameters := url.Values{"default_format": {"TSV"}}
			for name, values := range sent {
				parameters[name] = values
			}
			parameters.Set("default_format", "TSV")
			if answer, ok := asked(t, e, query, parameters); !ok || answer != want {
				t.Errorf("%s: %s: %.300q, want %q", tool, query, answer, want)
			}
		}
	}

	t.Run("nothing else is in sight", func(t *testing.T) {
		for query, want := range map[string]string{
			"SHOW DATABASES": "delivery_finance",
			"SELECT name FROM system.tables WHERE database NOT IN ('system', 'information_schema', 'INFORMATION_SCHEMA') ORDER BY name":         strings.Join(financeViews, "\n"),
			"SELECT DISTINCT table FROM system.columns WHERE database NOT IN ('system', 'information_schema', 'INFORMATION_SCHEMA') ORDER BY 1": strings.Join(financeViews, "\n"),
			"SELECT count() FROM system.parts": "0",
		} {
			if answer, _ := asked(t, e, query, nil); answer != want {
				t.Errorf("%s: %q", query, answer)
			}
		}

		for _, table := range append(Tables(), "schema_migrations", "identity") {
			refused(t, e, "SELECT * FROM delivery."+table, nil, "ACCESS_DENIED")
		}

		refused(t, e, "SELECT * FROM delivery.order_ledger(from='2026-11-01', to='2026-11-30', account='', fleet='', store='')", nil, "ACCESS_DENIED")
	})

	t.Run("nothing is written", func(t *testing.T) {
		for _, statement := range []string{
			"INSERT INTO delivery_finance.live_orders (status) VALUES ('x')", "INSERT INTO delivery.journal (text) VALUES ('x')",
			"CREATE TABLE delivery_finance.t (a Int8) ENGINE = Memory", "CREATE TEMPORARY TABLE t (a Int8)", "CREATE VIEW delivery_finance.v AS SELECT 1",
			"DROP VIEW delivery_finance.live_orders", "DROP DATABASE delivery", "TRUNCATE TABLE delivery.audit",
			"ALTER TABLE delivery.orders DELETE WHERE 1", "DELETE FROM delivery.orders WHERE 1", "SYSTEM STOP MERGES delivery.orders", "OPTIMIZE TABLE delivery.orders",
			"SELECT * FROM url('http://127.0.0.1:1/', 'TSV', 'a String')", "SELECT * FROM remote('127.0.0.1:1', 'delivery', 'audit')",
		} {
			refused(t, e, statement, nil, "ACCESS_DENIED", "READONLY")
		}
	})

	t.Run("no bound is raised", func(t *testing.T) {
		for _, s := range []string{
			"max_execution_time=121", "max_execution_time=0", "max_memory_usage=2000000001", "max_memory_usage=0", "max_memory_usage_for_user=0",
			"max_result_rows=1048577", "max_result_rows=0", "max_rows_to_read=1000000001", "max_rows_to_read=0", "max_threads=3",
			"max_bytes_before_external_group_by=0", "max_bytes_before_external_sort=0", "max_concurrent_queries_for_user=21",
			"final=0", "readonly=0", "do_not_merge_across_partitions_select_final=0", "timeout_overflow_mode=break", "read_overflow_mode=break",
			"group_by_overflow_mode=any", "sort_overflow_mode=break", "distinct_overflow_mode=break", "set_overflow_mode=break", "join_overflow_mode=break",
		} {
			name, value, _ := strings.Cut(s, "=")
			refused(t, e, "SELECT 1", url.Values{name: {value}}, "SETTING_CONSTRAINT_VIOLATION", "READONLY")
		}

		refused(t, e, "SELECT * FROM numbers(2000000)", url.Values{"default_format": {"JSON"}}, "TOO_MANY_ROWS_OR_BYTES")
		refused(t, e, "SELECT count() FROM numbers(2000000000) WHERE NOT ignore(number)", url.Values{"default_format": {"JSON"}}, "TOO_MANY_ROWS")
	})

	t.Run("clickhouse-go", func(t *testing.T) { askWithDriver(t, e) })
}

// askWithDriver asks with clickhouse-go, with which Grafana and many programs read. It sends the time
// that is left as max_execution_time, of which this user may ask for two minutes.
func askWithDriver(t *testing.T, e *testserver.ClickHouse) {
	t.Helper()
	address, err := url.Parse(e.URL)
	noError(t, err)
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr: []string{address.Host}, Protocol: clickhouse.HTTP, Auth: clickhouse.Auth{Database: "delivery_finance"},
		Settings: clickhouse.Settings{"limit": 1000},
	})

	noError(t, err)
	defer conn.Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var orders uint64
	noError(t, conn.QueryRow(ctx, "SELECT count() FROM live_orders").Scan(&orders))
	if orders != 10 {
		t.Errorf("%d orders", orders)
	}
}

// The user who writes can do all that the roles export and reconcile and the panel's decisions do, and
// cannot change a table; the one who reads can only read.
func TestUsers_EachDoesItsOwn(t *testing.T) {
	t.Parallel()

	day := BusinessDay(noon)
	e := engineFor(t, usersFile, "reporting_write", func(a *Archive) { storeTwice(t, a) })
	a := open(t, e, "delivery")
	ctx := t.Context()

	noError(t, a.Check(ctx))
	applied, err := a.Migrate(ctx)
	if err != nil || len(applied) > 0 {
		t.Errorf("%v, %v", applied, err)
	}

	o := newOrder(account(1), 100, noon, toDelivered...)
	noError(t, a.Insert(ctx, batchOf(o)))
	noError(t, a.Remove(ctx, []Place{PlaceOf(o)}))
	noError(t, a.InsertAgain(ctx, batchOf(o)))
	noError(t, a.NoteReconciliation(ctx, &Reconciliation{At: noon, From: noon, To: noon}))
	noError(t, a.KeepAudit(ctx, 30))
	entry := &journal.Entry{Text: `{"sequence":1}`, KeyID: "k1", Signature: "x"}
	noError(t, a.InsertEntry(ctx, entry))
	noError(t, a.InsertEntry(ctx, &journal.Entry{Text: "nonsense"}))
	noError(t, a.RemoveRows(ctx, []string{entry.Digest()}, math.MaxUint64))
	batch := uuid.New()
	noError(t, a.Freeze(ctx, batch, day, day))
	noError(t, a.InsertDays(ctx, batch))
	noError(t, a.RemoveBatch(ctx, batch))
	noError(t, a.RecordDeliverySets(ctx, []DeliverySet{{Target: "erp", Name: "x", Version: 1, ChangedAt: noon, DueAt: noon}}))

	definitions := []string{
		"CREATE TABLE delivery.t (a Int8) ENGINE = Memory", "CREATE OR REPLACE VIEW delivery.order_ledger AS SELECT 1", "DROP TABLE delivery.journal",
		"ALTER TABLE delivery.orders ADD COLUMN x Int8", "ALTER TABLE delivery.orders DROP COLUMN status", "ALTER TABLE delivery.orders MODIFY TTL day + toIntervalDay(1)",
		"ALTER TABLE delivery.journal UPDATE text = '' WHERE 1", "TRUNCATE TABLE delivery.orders", "DROP DATABASE delivery", "RENAME TABLE delivery.orders TO delivery.o",
		"DELETE FROM delivery.audit WHERE 1", "DELETE FROM delivery.delivery_sets WHERE 1", "DELETE FROM delivery.identity WHERE 1",
		"INSERT INTO delivery.identity SELECT 9, 'production', 'x', now64(3)", "INSERT INTO delivery.schema_migrations SELECT 1, 'x', 'y', now64(3)",
		"CREATE OR REPLACE VIEW delivery_finance.live_orders AS SELECT 1", "SELECT * FROM url('http://127.0.0.1:1/', 'TSV', 'a String')",
	}

	for _, statement := range definitions {
		refused(t, e, statement, nil, "ACCESS_DENIED")
	}

	e.Kill(t)
	e.StartAs(t, testserver.ReadRights(t, usersFile, "reporting_read"))
	noError(t, a.Check(ctx))
	if n := one[uint64](t, a, "SELECT count() FROM orders FINAL"); n != 11 {
		t.Errorf("%d orders are read", n)
	}
	if n := one[uint64](t, a, "SELECT count() FROM journal"); n != 1 {
		t.Errorf("the journal has %d rows", n)
	}

	more := []string{
		"INSERT INTO delivery.journal (text) VALUES ('x')", "INSERT INTO delivery.orders (status) VALUES ('x')", "DELETE FROM delivery.orders WHERE 1",
		"ALTER TABLE delivery.orders DELETE WHERE 1", "ALTER TABLE delivery.audit MODIFY TTL day + toIntervalDay(1)", "OPTIMIZE TABLE delivery.orders",
	}

	for _, statement := range append(definitions, more...) {
		refused(t, e, statement, nil, "ACCESS_DENIED")
	}
}

// The user who migrates makes both databases, whatever is in them, and nothing beside them.
func TestUsers_OneMigrates(t *testing.T) {
	t.Parallel()

	e := testserver.DedicatedClickHouse(t)
	e.Kill(t)
	e.StartAs(t, testserver.ReadRights(t, usersFile, "reporting_migrate"))
	a := open(t, e, "delivery")

	_, err := a.Migrate(t.Context())
	noError(t, err)
	noError(t, a.Claim(t.Context(), Owner{Environment: "sandbox", Ledger: "x"}))
	noError(t, a.exec(t.Context(), "OPTIMIZE TABLE journal FINAL DEDUPLICATE"))
	if orders, ok := asked(t, e, "SELECT count() FROM delivery_finance.live_orders", nil); !ok || orders != "0" {
		t.Error(orders)
	}

	noError(t, a.exec(t.Context(), "DELETE FROM schema_migrations WHERE name = 'views'"))
	applied, err := a.Migrate(t.Context())
	if err != nil || !slices.Equal(applied, []string{"views"}) {
		t.Errorf("%v, %v", applied, err)
	}

	refused(t, e, "CREATE DATABASE another", nil, "ACCESS_DENIED")
	refused(t, e, "SELECT * FROM url('http://127.0.0.1:1/', 'TSV', 'a String')", nil, "ACCESS_DENIED")
}

// The statements of the files parse as they stand: the engine's own users are made of them in
// another way (testserver.StartAs).
func TestUsers_StatementsParse(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	for _, file := range []string{biFile, usersFile} {
		for _, statement := range statementsOfFile(t, file) {
			var formatted string
			err := a.conn.QueryRow(t.Context(), "SELECT formatQuery({sql:String})", clickhouse.Named("sql", statement)).Scan(&formatted)
			if err != nil {
				t.Errorf("%s: %s: %v", file, statement, err)
			}
		}
	}
}

// statementsOfFile are the statements of a file of SQL for administrators.
func statementsOfFile(t testing.TB, file string) (all []string) {
	t.Helper()
	source, err := os.ReadFile(file)
	noError(t, err)
	for statement := range strings.SplitSeq(comment.ReplaceAllString(string(source), ""), ";\n") {
		statement = strings.TrimSpace(statement)
		if statement != "" {
			all = append(all, statement)
		}
	}

	return all
}
