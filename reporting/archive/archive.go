package archive

import (
	"context"
	"fmt"
	"strings"
	_ "time/tzdata" // the driver looks up zones of columns and servers; not every machine has them

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Archive is a ClickHouse database. Its methods may be called at once from any
// number of goroutines. After an absence of ClickHouse it works again by itself.
//
// What is ClickHouse's fault or absence wraps delivery.ErrUnavailable and may
// succeed later; the end of a context is the context's own error; the rest is a
// defect of the caller or of the schema.
type Archive struct {
	settings Settings
	database string
	address  string // for errors: hosts, no credentials
	conn     driver.Conn
	// server is connected to no database: ours may not be there yet.
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

// Close gives the connections back. Nothing may be under way.
func (a *Archive) Close() error {
	err := a.conn.Close()
	if other := a.server.Close(); err == nil {
		err = other
	}
	return err
}

// Ping reports whether ClickHouse answers, and accepts the credentials.
func (a *Archive) Ping(ctx context.Context) error {
	return a.fault(ctx, "ping", a.server.Ping(ctx))
}

// reading are the settings of every SELECT: FINAL wherever it has a meaning,
// which need not look across partitions, for an order's partition never changes.
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

// Select runs a query on the database and streams its rows; they must be
// closed. args are clickhouse.Named values for parameters such as
// {day:Date}. Tables are read with FINAL, whether the query says so or not.
func (a *Archive) Select(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	rows, err := a.conn.Query(clickhouse.Context(ctx, clickhouse.WithSettings(reading)), query, args...)
	if err != nil {
		return nil, a.fault(ctx, "select", err)
	}
	return &result{Rows: rows, archive: a, ctx: ctx}, nil
}

// result tells faults that come in the middle of the rows as all others.
type result struct {
	driver.Rows
	archive *Archive
	ctx     context.Context
}

func (r *result) Err() error { return r.archive.fault(r.ctx, "select", r.Rows.Err()) }

// exec runs a statement on the database.
func (a *Archive) exec(ctx context.Context, statement string, args ...any) error {
	return a.fault(ctx, firstWords(statement), a.conn.Exec(ctx, statement, args...))
}

// firstWords name a statement in an error.
func firstWords(statement string) string {
	words := strings.Fields(statement)
	return strings.Join(words[:min(len(words), 6)], " ")
}
