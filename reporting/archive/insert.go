package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/sync/errgroup"
)

// ErrRow is a row that no waiting makes fit.
var ErrRow = errors.New("clickhouse: a row that it cannot hold")

const (
	// insertTimeout is far longer than 10,000 rows take. The driver's own limit of five
	// minutes, for long reports, would hold these rows behind a dead connection.
	insertTimeout = time.Minute

	// rowsAtOnce is the most rows of one INSERT.
	rowsAtOnce = 10_000
)

// storing are the settings of every INSERT: it is answered when its rows are stored on
// all of their shards, whatever the server's defaults are.
var storing = clickhouse.Settings{
	"async_insert":                    0,
	"distributed_foreground_insert":   1,
	"max_partitions_per_insert_block": 0, // a rebuild may bring all months at once
	"insert_deduplicate":              0,
}

// Insert stores the rows; nil means that all of them are on the disk. After an error some
// may be: the batch may be inserted again, any number of times, and a row counts once. A
// cluster recognises the latest thousand inserts by their content and does not store them
// again; a single server must not (see layout.durability).
//
// A row that ClickHouse could not hold, such as an amount beyond 9,999,999.99, fails the
// whole batch with ErrRow before anything is sent.
func (a *Archive) Insert(ctx context.Context, b *Batch) error { return a.insert(ctx, b, true) }

// InsertAgain is Insert that is not recognised as a repetition, also in a cluster:
// for rows that were stored, removed, and are to be stored again.
func (a *Archive) InsertAgain(ctx context.Context, b *Batch) error { return a.insert(ctx, b, false) }

func (a *Archive) insert(ctx context.Context, b *Batch, once bool) error {
	parts := make([][][]reflect.Value, len(rowTables)) // of each table: the columns of each INSERT
	for i, slice := range []any{b.Orders, b.Events, b.Late, b.Outcomes} {
		rows := reflect.ValueOf(slice)
		for from := 0; from < rows.Len(); from += rowsAtOnce {
			columns, err := rowTables[i].values(rows.Slice(from, min(from+rowsAtOnce, rows.Len())))
			if err != nil {
				return fmt.Errorf("%w: %w", ErrRow, err)
			}
			parts[i] = append(parts[i], columns)
		}
	}
	// Concurrently: what an insert waits for is the disk.
	var group errgroup.Group
	for i, t := range rowTables {
		group.Go(func() error {
			for _, columns := range parts[i] {
				if err := a.insertRows(ctx, t, columns, once); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (a *Archive) insertRows(ctx context.Context, t *table, columns []reflect.Value, once bool) error {
	settings := maps.Clone(storing)
	if once && a.settings.Cluster != "" {
		settings["insert_deduplicate"] = 1
		settings["insert_deduplication_token"] = token(t.name, columns)
	}
	rows := columns[0].Len()
	err := a.send(ctx, t, settings, rows, func(i int, to driver.BatchColumn) error { return to.Append(columns[i].Interface()) })
	return a.fault(ctx, fmt.Sprintf("insert of %d rows into %s", rows, t.name), err)
}

// send stores the rows with which fill fills each of the table's columns.
func (a *Archive) send(ctx context.Context, t *table, settings clickhouse.Settings, rows int,
	fill func(i int, to driver.BatchColumn) error) error {
	described := make([]clickhouse.ColumnNameAndType, len(t.columns))
	for i, c := range t.columns {
		// Else the driver would ask for them before every insert.
		described[i] = clickhouse.ColumnNameAndType{Name: c.name, Type: c.kind}
	}
	ctx, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings), clickhouse.WithColumnNamesAndTypes(described))
	batch, err := a.conn.PrepareBatch(ctx, "INSERT INTO "+t.name+" ("+strings.Join(t.names(), ", ")+")")
	if err != nil {
		return err
	}
	defer func() { _ = batch.Close() }() // gives the connection back after an error
	for i, c := range t.columns {
		if err := fill(i, batch.Column(i)); err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
		// Columns of unequal length would be sent as nothing, without an error.
		if n := batch.Columns()[i].Rows(); n != rows {
			return fmt.Errorf("column %s has %d values for %d rows", c.name, n, rows)
		}
	}
	return batch.Send()
}

// token names the rows by their content: ClickHouse drops other rows of the same token in
// silence.
func token(table string, columns []reflect.Value) string {
	h := sha256.New()
	h.Write([]byte(table))
	for _, column := range columns {
		for _, value := range column.Seq2() {
			fmt.Fprintf(h, "%q", printed(value)) // quoted: a value ends where it says
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
