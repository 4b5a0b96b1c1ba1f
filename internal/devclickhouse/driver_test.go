package main

import (
	"context"
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

func istanbul(t testing.TB) *time.Location {
	t.Helper()
	location, err := time.LoadLocation("Europe/Istanbul")
	noError(t, err)
	return location
}

// everyType has a column of every type that finance uses, with values that differ
// in what may be absent or at the edge of its range. Binary bytes, blank lines and
// quotes are in the text.
func everyType(t testing.TB) (columns []string, rows [2][]any) {
	local := istanbul(t)
	utc := func(year, month, day int) time.Time {
		return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	}
	cents := decimal.RequireFromString
	some := func(s string) *string { return &s }
	cent := cents("-0.01")
	for _, c := range []struct {
		column    string
		bare, set any
	}{
		{"id UUID", uuid.UUID{}, uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff")},
		{"name String", "", "Moda Şubesi\n\n;'\"\\\x00\xff\t"},
		{"city LowCardinality(String)", "", "İstanbul"},
		{"tax FixedString(10)", "0000000000", "1234567890"},
		{"at DateTime64(3, 'Europe/Istanbul')", time.Date(2026, 3, 2, 0, 0, 0, 0, local), time.Date(2026, 3, 1, 23, 59, 59, 999e6, local)},
		{"utc DateTime64(3, 'UTC')", time.Unix(0, 0).UTC(), utc(2026, 3, 1).Add(-time.Millisecond)},
		// At revision 0, ClickHouse leaves the zone out of a DateTime's name.
		{"seconds DateTime('Europe/Istanbul')", time.Unix(0, 0), time.Date(2026, 3, 1, 0, 0, 0, 0, local)},
		{"day Date", utc(1970, 1, 1), utc(2028, 2, 29)},
		{"day32 Date32", utc(1900, 1, 1), utc(2028, 2, 29)},
		{"amount Decimal(18, 2)", cents("0.00"), cents("9999999999999999.99")},
		{"maybe Nullable(Decimal(18, 2))", (*decimal.Decimal)(nil), &cent},
		{"u8 UInt8", uint8(0), uint8(255)}, {"u16 UInt16", uint16(0), uint16(65535)},
		{"u32 UInt32", uint32(0), uint32(1<<32 - 1)}, {"u64 UInt64", uint64(0), uint64(1<<64 - 1)},
		{"i8 Int8", int8(0), int8(-128)}, {"i16 Int16", int16(0), int16(-32768)},
		{"i32 Int32", int32(0), int32(-1 << 31)}, {"i64 Int64", int64(0), int64(-1 << 63)},
		{"cash Bool", false, true}, {"ratio Float64", 0.0, 0.1},
		{"reason LowCardinality(Nullable(String))", (*string)(nil), some("CourierIncident")},
		{"note Nullable(String)", (*string)(nil), some("")},
		{"tags Array(String)", []string{}, []string{"a", "", "ğ"}},
		{"versions Array(Array(UInt64))", [][]uint64{}, [][]uint64{{1, 2}, {}, {3}}},
		{"status Enum8('Searching' = 1, 'Delivered' = 6)", "Searching", "Delivered"},
	} {
		columns, rows[0], rows[1] = append(columns, c.column), append(rows[0], c.bare), append(rows[1], c.set)
	}

	return columns, rows
}

func TestDriver_RoundTripsEveryType(t *testing.T) {
	t.Parallel()

	columns, rows := everyType(t)
	for _, method := range []clickhouse.CompressionMethod{clickhouse.CompressionNone, clickhouse.CompressionLZ4} {
		t.Run(method.String(), func(t *testing.T) {
			t.Parallel()

			c, name := database(t)
			conn := c.connect(t, name, compression(method))
			noError(t, conn.Exec(t.Context(), "CREATE TABLE every_type ("+strings.Join(columns, ", ")+") ENGINE = MergeTree ORDER BY id"))
			batch, err := conn.PrepareBatch(t.Context(), "INSERT INTO every_type")
			noError(t, err)
			for _, row := range rows {
				noError(t, batch.Append(row...))
			}

			noError(t, batch.Send())
			stored, err := conn.Query(t.Context(), "SELECT * FROM every_type ORDER BY id")
			noError(t, err)
			for _, row := range rows {
				got := make([]any, len(row))
				for i := range row {
					got[i] = reflect.New(reflect.TypeOf(row[i])).Interface()
				}

				if !stored.Next() {
					t.Fatalf("a row is missing: %v", stored.Err())
				}

				noError(t, stored.Scan(got...))
				for i := range row {
					if have := reflect.ValueOf(got[i]).Elem().Interface(); inText(have) != inText(row[i]) {
						t.Errorf("%s: wrote %s, read %s", columns[i], inText(row[i]), inText(have))
					}
				}
			}

			noError(t, stored.Close())
			// The engine's own eyes: the local day, the exact amount.
			if got := c.must(t, "SELECT toDate(at), amount FROM every_type WHERE cash", params("database", name)); got != "2026-03-01\t9999999999999999.99\n" {
				t.Error(got)
			}
		})
	}
}

// inText makes values comparable: times and decimals have several forms.
func inText(v any) string {
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && !r.IsNil() {
		v = r.Elem().Interface()
	}

	switch x := v.(type) {
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case decimal.Decimal:
		return x.StringFixed(2)
	}

	return fmt.Sprintf("%q", fmt.Sprint(v))
}

func TestDriver_GetsTypedExceptions(t *testing.T) {
	t.Parallel()

	c, name := database(t)
	for _, method := range []clickhouse.CompressionMethod{clickhouse.CompressionNone, clickhouse.CompressionLZ4} {
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
