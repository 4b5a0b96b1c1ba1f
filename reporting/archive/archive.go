// Package archive is finance's copy of the ledger in ClickHouse: one row per
// order and version, one per status reached, one per webhook attempt.
//
// It holds the schema (schema/NNNN_*.sql) for a single server and for a cluster. A batch
// that is stored twice, late or out of order changes nothing: the order's own version
// says which row is the latest.
package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	_ "time/tzdata" // the driver looks up zones of columns and servers; not every machine has them

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Archive is a ClickHouse database. It is safe for concurrent use.
//
// An error wraps delivery.ErrUnavailable when the call may succeed later; the end of a
// context is the context's own error; the rest is a defect of the caller or the schema.
type Archive struct {
	settings Settings
	database string
	address  string // for errors: hosts, no credentials
	conn     driver.Conn
	// server is connected to no database: this one may not exist yet.
	server driver.Conn
}

// Open reads the settings. It connects to nothing.
func Open(s Settings) (*Archive, error) {
	options, database, err := s.options()
	if err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}
	a := &Archive{settings: s, database: database, address: strings.Join(options.Addr, ",")}
	if a.conn, err = clickhouse.Open(options); err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}
	serverOptions := *options
	serverOptions.Auth.Database = ""
	serverOptions.MaxOpenConns, serverOptions.MaxIdleConns = 2, 1
	if a.server, err = clickhouse.Open(&serverOptions); err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}
	return a, nil
}

// Close gives the connections back. No call may be in progress.
func (a *Archive) Close() error { return errors.Join(a.conn.Close(), a.server.Close()) }

// Ping reports whether ClickHouse answers, and accepts the credentials.
func (a *Archive) Ping(ctx context.Context) error {
	return a.fault(ctx, "ping", a.server.Ping(ctx))
}

// reading are the settings of every SELECT. FINAL need not look across partitions: an
// order's never changes.
var reading = clickhouse.Settings{
	"final": 1,
	"do_not_merge_across_partitions_select_final": 1,
	"max_query_size": maxQuerySize,
	"readonly":       2, // nothing but settings may be changed
	// A server that knows the reader has gone stops, but only with this and the
	// one before.
	"cancel_http_readonly_queries_on_client_close": 1,
}

// maxQuerySize leaves room for lists of MaxListed ids.
const maxQuerySize = 1 << 20

// Each calls take, which scans it, for every row of a query. take's first error ends the
// query. args are clickhouse.Named values for parameters such as {day:Date}. Tables are
// read with FINAL.
func (a *Archive) Each(ctx context.Context, query string, take func(driver.Rows) error, args ...any) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := a.conn.Query(clickhouse.Context(running, clickhouse.WithSettings(reading)), query, args...)
	if err != nil {
		return a.fault(ctx, "select", err)
	}
	defer func() {
		cancel() // first: else closing would read to the end
		_ = rows.Close()
	}()
	for rows.Next() {
		if err := take(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return a.fault(ctx, "select", err)
	}
	return ctx.Err()
}

// exec runs a statement on the database.
func (a *Archive) exec(ctx context.Context, statement string, args ...any) error {
	return a.fault(ctx, firstWords(statement), a.conn.Exec(ctx, statement, args...))
}

// firstWords name a statement in an error.
func firstWords(statement string) string {
	words := strings.Fields(statement)
	return strings.Join(words[:min(len(words), 6)], " ")
}
