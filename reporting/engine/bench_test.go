package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"
	"github.com/shopspring/decimal"
)

// BenchmarkSelectOne is the price of a request: a session, its settings, a
// trivial statement, the pipe.
func BenchmarkSelectOne(b *testing.B) {
	c, name := database(b)
	conn := c.connect(b, name)
	for b.Loop() {
		var one uint8
		if err := conn.QueryRow(b.Context(), "SELECT 1").Scan(&one); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInsert sends batches of 10,000 rows of 25 columns, as the exporter
// does. Making the rows counts, as it does there.
func BenchmarkInsert(b *testing.B) {
	const rows = 10_000
	for _, method := range []clickhouse.CompressionMethod{clickhouse.CompressionNone, clickhouse.CompressionLZ4, clickhouse.CompressionZSTD} {
		b.Run(method.String(), func(b *testing.B) {
			c, name := database(b)
			conn := c.connect(b, name, compression(method))
			noError(b, conn.Exec(b.Context(), benchTable()))
			defer conn.Exec(b.Context(), "DROP DATABASE "+name+" SYNC")
			now, amount := time.Now(), decimal.New(24990, -2)
			for b.Loop() {
				batch, err := conn.PrepareBatch(b.Context(), "INSERT INTO orders")
				noError(b, err)
				for i := range rows {
					row := []any{fmt.Sprintf("a-%d", i%500), now, uuid.New(), uint64(i)}
					for range 7 {
						row = append(row, "Moda Şubesi", now, amount)
					}
					noError(b, batch.Append(row...))
				}
				noError(b, batch.Send())
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func benchTable() string {
	var columns strings.Builder
	for i := range 7 {
		fmt.Fprintf(&columns, ", s%d LowCardinality(String), t%d DateTime64(3, 'Europe/Istanbul'), d%d Decimal(18, 2)", i, i, i)
	}
	return `CREATE TABLE orders (account_id LowCardinality(String), business_day Date, order_id UUID, version UInt64` + columns.String() + `)
		ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(business_day) ORDER BY (account_id, business_day, order_id)`
}

// BenchmarkDownload reads a result of a million rows as CSV.
func BenchmarkDownload(b *testing.B) {
	c, _ := database(b)
	const query = "SELECT number, toString(number), toDecimal64(number, 2) FROM numbers(1000000) FORMAT CSV"
	b.SetBytes(int64(len(c.must(b, query, nil))))
	for b.Loop() {
		c.must(b, query, nil)
	}
}
