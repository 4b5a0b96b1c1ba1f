package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"vendorapi/internal/testenv/testserver"
)

func compression(method clickhouse.CompressionMethod) func(*clickhouse.Options) {
	return func(o *clickhouse.Options) { o.Compression = &clickhouse.Compression{Method: method, Level: 3} }
}

// everyType has a column of every type that finance uses.
const everyType = `CREATE TABLE every_type (
	id UUID, name String, city LowCardinality(String), tax FixedString(10),
	at DateTime64(3, 'Europe/Istanbul'), utc DateTime64(3, 'UTC'), seconds DateTime('Europe/Istanbul'), day Date, day32 Date32,
	amount Decimal(18, 2), maybe Nullable(Decimal(18, 2)),
	u8 UInt8, u16 UInt16, u32 UInt32, u64 UInt64, i8 Int8, i16 Int16, i32 Int32, i64 Int64,
	cash Bool, reason LowCardinality(Nullable(String)), note Nullable(String),
	tags Array(String), versions Array(Array(UInt64)), status Enum8('Searching' = 1, 'Delivered' = 6), ratio Float64
) ENGINE = MergeTree ORDER BY id`

// everyTypeRow is a row as clickhouse-go reads it.
type everyTypeRow struct {
	ID       uuid.UUID        `ch:"id"`
	Name     string           `ch:"name"`
	City     string           `ch:"city"`
	Tax      string           `ch:"tax"`
	At       time.Time        `ch:"at"`
	UTC      time.Time        `ch:"utc"`
	Seconds  time.Time        `ch:"seconds"`
	Day      time.Time        `ch:"day"`
	Day32    time.Time        `ch:"day32"`
	Amount   decimal.Decimal  `ch:"amount"`
	Maybe    *decimal.Decimal `ch:"maybe"`
	U8       uint8            `ch:"u8"`
	U16      uint16           `ch:"u16"`
	U32      uint32           `ch:"u32"`
	U64      uint64           `ch:"u64"`
	I8       int8             `ch:"i8"`
	I16      int16            `ch:"i16"`
	I32      int32            `ch:"i32"`
	I64      int64            `ch:"i64"`
	Cash     bool             `ch:"cash"`
	Reason   *string          `ch:"reason"`
	Note     *string          `ch:"note"`
	Tags     []string         `ch:"tags"`
	Versions [][]uint64       `ch:"versions"`
	Status   string           `ch:"status"`
	Ratio    float64          `ch:"ratio"`
}

func istanbul(t testing.TB) *time.Location {
	t.Helper()
	location, err := time.LoadLocation("Europe/Istanbul")
	noError(t, err)
	return location
}

// exampleRows differ in everything that may be absent or at the edge of its
// range. Binary bytes, blank lines and quotes are in the text.
func exampleRows(t testing.TB) []everyTypeRow {
	local := istanbul(t)
	day := time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)
	amount, reason, note := decimal.RequireFromString("-0.01"), "CourierIncident", ""
	full := everyTypeRow{
		ID: uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff"), Name: "Moda Şubesi\n\n;'\"\\\x00\xff\t", City: "İstanbul", Tax: "1234567890",
		At: time.Date(2026, 3, 1, 23, 59, 59, 999e6, local), UTC: time.Date(2026, 3, 1, 20, 59, 59, 999e6, time.UTC),
		Seconds: time.Date(2026, 3, 1, 0, 0, 0, 0, local), Day: day, Day32: day,
		Amount: decimal.RequireFromString("9999999999999999.99"), Maybe: &amount,
		U8: 255, U16: 65535, U32: 1<<32 - 1, U64: 1<<64 - 1, I8: -128, I16: -32768, I32: -1 << 31, I64: -1 << 63,
		Cash: true, Reason: &reason, Note: &note, Tags: []string{"a", "", "ğ"}, Versions: [][]uint64{{1, 2}, {}, {3}}, Status: "Delivered", Ratio: 0.1,
	}
	bare := everyTypeRow{
		Tax: "0000000000", At: time.Date(2026, 3, 2, 0, 0, 0, 0, local), UTC: time.Unix(0, 0).UTC(), Seconds: time.Unix(0, 0).In(local),
		Day: time.Unix(0, 0).UTC(), Day32: time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), Amount: decimal.New(0, -2), Status: "Searching",
		Tags: []string{}, Versions: [][]uint64{},
	}
	return []everyTypeRow{bare, full}
}

// inText makes rows comparable: times and decimals have several forms. Of a
// DateTime only the moment is kept: at revision 0, ClickHouse leaves the zone
// out of its name (not out of DateTime64's).
func inText(rows []everyTypeRow) []string {
	var lines []string
	for _, r := range rows {
		r.Seconds = r.Seconds.UTC()
		v, line := reflect.ValueOf(r), ""
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				f = f.Elem()
			}
			switch x := f.Interface().(type) {
			case time.Time:
				line += x.Format("|2006-01-02T15:04:05.000Z07:00")
			case decimal.Decimal:
				line += "|" + x.StringFixed(2)
			default:
				line += fmt.Sprintf("|%q", fmt.Sprint(x))
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func TestDriver_RoundTripsEveryType(t *testing.T) {
	t.Parallel()
	for _, method := range []clickhouse.CompressionMethod{
		clickhouse.CompressionNone, clickhouse.CompressionLZ4, clickhouse.CompressionZSTD,
		clickhouse.CompressionGZIP, clickhouse.CompressionDeflate, clickhouse.CompressionBrotli,
	} {
		t.Run(method.String(), func(t *testing.T) {
			t.Parallel()
			c, name := database(t)
			conn := c.connect(t, name, compression(method))
			noError(t, conn.Ping(t.Context()))
			noError(t, conn.Exec(t.Context(), everyType))
			batch, err := conn.PrepareBatch(t.Context(), "INSERT INTO every_type")
			noError(t, err)
			rows := exampleRows(t)
			for _, r := range rows {
				noError(t, batch.AppendStruct(&r))
			}
			noError(t, batch.Send())

			var got []everyTypeRow
			noError(t, conn.Select(t.Context(), &got, "SELECT * FROM every_type ORDER BY id"))
			want, have := inText(rows), inText(got)
			for i := range want {
				if i >= len(have) || have[i] != want[i] {
					t.Fatalf("wrote %s\n read %v", want[i], have)
				}
			}
			// The engine's own eyes: the local day, the exact amount.
			var day, text string
			noError(t, conn.QueryRow(t.Context(), "SELECT toString(toDate(at)), toString(sum(amount) OVER ()) FROM every_type WHERE cash").Scan(&day, &text))
			if day != "2026-03-01" || text != "9999999999999999.99" {
				t.Errorf("day %s, amount %s", day, text)
			}
		})
	}
}

func TestDriver_ReadsManyBlocks(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	for _, method := range []clickhouse.CompressionMethod{clickhouse.CompressionNone, clickhouse.CompressionLZ4, clickhouse.CompressionZSTD} {
		rows, err := c.connect(t, name, compression(method)).Query(t.Context(), "SELECT number, toString(number) FROM numbers(100000) SETTINGS max_block_size = 3000")
		noError(t, err)
		var next uint64
		for ; rows.Next(); next++ {
			var n uint64
			var s string
			noError(t, rows.Scan(&n, &s))
			if n != next || s != fmt.Sprint(n) {
				t.Fatalf("row %d is %d %s", next, n, s)
			}
		}
		noError(t, rows.Err())
		if next != 100000 {
			t.Errorf("%v: %d rows", method, next)
		}
	}
}

func TestDriver_BindsParameters(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	conn := c.connect(t, name)
	at := time.Date(2026, 3, 1, 0, 0, 0, 1e6, istanbul(t))
	var s, n, moment, amount, list string
	noError(t, conn.QueryRow(t.Context(), `SELECT {s:String}, toString({n:UInt64} + 1), toString({at:DateTime64(3, 'Europe/Istanbul')}),
		toString({amount:Decimal(18, 2)}), toString({list:Array(String)}), {none:Nullable(String)} IS NULL`,
		clickhouse.Named("s", "it's \\ a\ttab\nline {x:Y}"), clickhouse.Named("n", uint64(41)),
		clickhouse.DateNamed("at", at, clickhouse.MilliSeconds), clickhouse.Named("amount", decimal.RequireFromString("12.30")),
		clickhouse.Named("list", []string{"a'b", "ç"}), clickhouse.Named("none", nil)).Scan(&s, &n, &moment, &amount, &list, new(uint8)))
	if s != "it's \\ a\ttab\nline {x:Y}" || n != "42" || moment != "2026-03-01 00:00:00.001" || amount != "12.3" || list != `['a\'b','ç']` {
		t.Errorf("%q %q %q %q %q", s, n, moment, amount, list)
	}
	noError(t, conn.Exec(t.Context(), "CREATE TABLE sums (k String, v Decimal(18, 2)) ENGINE = MergeTree ORDER BY k"))
	for i := range 3 { // parameters of a statement that changes something
		noError(t, conn.Exec(t.Context(), "INSERT INTO sums SELECT {k:String}, {v:Decimal(18, 2)}",
			clickhouse.Named("k", fmt.Sprint(i%2)), clickhouse.Named("v", decimal.New(int64(i), -1))))
	}
	noError(t, conn.Exec(t.Context(), "INSERT INTO sums VALUES ({k:String}, {v:Decimal(18, 2)})",
		clickhouse.Named("k", "0"), clickhouse.Named("v", "7.77")))
	noError(t, conn.Exec(t.Context(), "CREATE VIEW sum_of AS SELECT k, sum(v) AS total FROM sums WHERE k = {wanted:String} GROUP BY k"))
	var k string
	var total decimal.Decimal
	noError(t, conn.QueryRow(t.Context(), "SELECT k, total FROM sum_of(wanted = {w:String})", clickhouse.Named("w", "0")).Scan(&k, &total))
	if k != "0" || total.StringFixed(2) != "7.97" {
		t.Errorf("%s %s", k, total)
	}
}

func TestDriver_GetsTypedExceptions(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	for _, method := range []clickhouse.CompressionMethod{clickhouse.CompressionNone, clickhouse.CompressionLZ4, clickhouse.CompressionGZIP} {
		conn := c.connect(t, name, compression(method))
		for _, e := range []struct {
			sql    string
			code   int32
			name   string
			status int
		}{
			{"SELECT * FROM nope", 60, "UNKNOWN_TABLE", http.StatusNotFound},
			{"SELEC 1", 62, "SYNTAX_ERROR", http.StatusBadRequest},
			{"SELECT throwIf(1, 'kuruş')", 395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO", http.StatusInternalServerError},
			{"SELECT {x:UInt8}", 456, "UNKNOWN_QUERY_PARAMETER", http.StatusBadRequest},
			{"DROP TABLE nope", 60, "UNKNOWN_TABLE", http.StatusNotFound},
			{"CREATE TABLE x (a Nope) ENGINE = Memory", 50, "UNKNOWN_TYPE", http.StatusNotFound},
		} {
			err := conn.Exec(t.Context(), e.sql)
			var exception *clickhouse.Exception
			var answer *clickhouse.HTTPError
			if !errors.As(err, &exception) || exception.Code != e.code || exception.CodeName != e.name || !errors.As(err, &answer) || answer.StatusCode != e.status {
				t.Errorf("%v %s: %v", method, e.sql, err)
			}
		}
		// Half a result is an error, too, and a typed one.
		rows, err := conn.Query(t.Context(), "SELECT throwIf(number = 60000, 'late'), repeat('x', 100) FROM numbers(80000) SETTINGS max_block_size = 1000")
		noError(t, err)
		for rows.Next() {
		}
		var late *clickhouse.Exception
		if !errors.As(rows.Err(), &late) || late.Code != 395 || !strings.Contains(late.Message, "late") {
			t.Errorf("%v: %v", method, rows.Err())
		}
		rows.Close()
	}
}

func TestDriver_SettingsHoldForOneStatement(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	conn := c.connect(t, name, func(o *clickhouse.Options) { o.Settings = clickhouse.Settings{"max_threads": 1} })
	read := func(ctx context.Context) (threads uint64, limit uint64) {
		noError(t, conn.QueryRow(ctx, "SELECT toUInt64(getSetting('max_threads')), toUInt64(getSetting('max_result_rows'))").Scan(&threads, &limit))
		return threads, limit
	}
	if threads, limit := read(clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"max_result_rows": 7}))); threads != 1 || limit != 7 {
		t.Errorf("threads %d, rows %d", threads, limit)
	}
	if _, limit := read(t.Context()); limit != 0 {
		t.Errorf("a setting of another statement holds: %d", limit)
	}
}

// Exactly what the exporter relies on: a repeated batch with the same token is
// dropped, versions replace each other under FINAL in any order of arrival.
func TestDriver_DeduplicatesAndReplaces(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	conn := c.connect(t, name, compression(clickhouse.CompressionLZ4))
	noError(t, conn.Exec(t.Context(), `CREATE TABLE orders (account_id String, business_day Date, order_id UUID, version UInt64, amount Decimal(18, 2))
		ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(business_day) ORDER BY (account_id, business_day, order_id)
		SETTINGS non_replicated_deduplication_window = 100`))
	send := func(token string, version uint64, amount string) {
		ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"insert_deduplication_token": token}))
		batch, err := conn.PrepareBatch(ctx, "INSERT INTO orders")
		noError(t, err)
		for i := range 100 {
			day := time.Date(2026, time.Month(1+i%12), 1, 0, 0, 0, 0, time.UTC)
			noError(t, batch.Append("a1", day, uuid.NewSHA1(uuid.Nil, []byte{byte(i)}), version, decimal.RequireFromString(amount)))
		}
		noError(t, batch.Send())
	}
	send("v2", 2, "0.02")
	send("v1", 1, "9.99")
	send("v2", 2, "0.02")
	send("v3", 3, "0.03")
	send("v1", 1, "9.99")
	var stored, final uint64
	var total decimal.Decimal
	noError(t, conn.QueryRow(t.Context(), "SELECT count() FROM orders").Scan(&stored))
	ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{"final": 1, "do_not_merge_across_partitions_select_final": 1}))
	noError(t, conn.QueryRow(ctx, "SELECT count(), sum(amount) FROM orders").Scan(&final, &total))
	if stored > 300 || final != 100 || total.StringFixed(2) != "3.00" {
		t.Errorf("%d rows stored, %d after FINAL, total %s", stored, final, total)
	}
}

func TestDriver_CancelKillsTheStatement(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	conn := c.connect(t, name)
	noError(t, conn.Exec(t.Context(), "CREATE TABLE slow (a UInt64) ENGINE = MergeTree ORDER BY a"))
	for _, sql := range []string{
		"SELECT sleepEachRow(1) FROM numbers(60) SETTINGS function_sleep_max_microseconds_per_block = 600000000, max_block_size = 1",
		"SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(sipHash64(number))",
		"INSERT INTO slow SELECT number FROM numbers(1000000000000) WHERE sipHash64(number) = 1",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := conn.Exec(ctx, sql)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	testserver.Await(t, "no statement runs", func() bool {
		return c.must(t, "SELECT count() FROM system.processes WHERE current_database = '"+name+"'", nil) == "0\n"
	})
}

func TestDriver_ServesDatabaseSQL(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	db := clickhouse.OpenDB(c.options(name))
	defer db.Close()
	noError(t, db.PingContext(t.Context()))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE t (a Int32, b Nullable(String)) ENGINE = MergeTree ORDER BY a")
	noError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	noError(t, err)
	batch, err := tx.PrepareContext(t.Context(), "INSERT INTO t (a, b)")
	noError(t, err)
	for i := range 10 {
		_, err := batch.Exec(int32(i), sql.NullString{String: "x", Valid: i%2 == 0})
		noError(t, err)
	}
	noError(t, tx.Commit())
	var rows, texts int
	noError(t, db.QueryRowContext(t.Context(), "SELECT count(), count(b) FROM t WHERE a < {n:Int32}", clickhouse.Named("n", 9)).Scan(&rows, &texts))
	if rows != 9 || texts != 5 {
		t.Errorf("%d rows, %d texts", rows, texts)
	}
}
