package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/sync/errgroup"
)

// ErrRow is a row that no waiting makes fit.
var ErrRow = errors.New("clickhouse: a row that it cannot hold")

// insertTimeout is far longer than 10,000 rows take. The driver's own limit of
// five minutes is that of long reports; behind a connection that has gone dead
// nobody else would get these rows meanwhile.
const insertTimeout = time.Minute

// rowsAtOnce is the most rows of one INSERT.
const rowsAtOnce = 10_000

// storing are the settings of every INSERT: it is answered when its rows are
// stored, on all shards that they belong to, whatever the server's defaults are.
var storing = clickhouse.Settings{
	"async_insert":                    0,
	"distributed_foreground_insert":   1,
	"max_partitions_per_insert_block": 0, // a rebuild may bring all months at once
	"insert_deduplicate":              0,
}

// Insert stores the rows; nil means that all of them are, on the disk. After an
// error some may be: the same batch may be inserted again, any number of times,
// now or after others. The tables see to it that a row counts once. A cluster
// also recognises the latest thousand inserts by their content and does not store
// them again; a single server must not (see layout.durability).
//
// A row that ClickHouse could not hold as it is, such as an amount beyond
// 9,999,999.99, fails the whole batch with ErrRow before anything is sent.
func (a *Archive) Insert(ctx context.Context, b *Batch) error { return a.insert(ctx, b, true) }

// InsertAnew is Insert that is not recognised as a repetition, also in a cluster:
// for rows that were stored, removed, and are to be stored again.
func (a *Archive) InsertAnew(ctx context.Context, b *Batch) error { return a.insert(ctx, b, false) }

func (a *Archive) insert(ctx context.Context, b *Batch, once bool) error {
	if err := checkAll(b); err != nil {
		return fmt.Errorf("%w: %w", ErrRow, err)
	}
	// At once: what an insert waits for is the disk.
	var group errgroup.Group
	group.Go(func() error { return insertRows(ctx, a, &orders, b.Orders, once) })
	group.Go(func() error { return insertRows(ctx, a, &orderEvents, b.Events, once) })
	group.Go(func() error { return insertRows(ctx, a, &lateDeliveries, b.Late, once) })
	group.Go(func() error { return insertRows(ctx, a, &webhookOutcomes, b.Outcomes, once) })
	return group.Wait()
}

func checkAll(b *Batch) error {
	if err := checkRows(&orderEvents, b.Events); err != nil {
		return err
	}
	if err := checkRows(&orders, b.Orders); err != nil {
		return err
	}
	if err := checkRows(&lateDeliveries, b.Late); err != nil {
		return err
	}
	return checkRows(&webhookOutcomes, b.Outcomes)
}

func checkRows[R any](t *table[R], rows []R) error {
	for i := range rows {
		if err := t.check(&rows[i]); err != nil {
			var row []string
			for _, c := range t.columns {
				row = append(row, c.text(&rows[i]))
			}
			return fmt.Errorf("%s (%s): %w", t.name, strings.Join(row, ", "), err)
		}
	}
	return nil
}

func insertRows[R any](ctx context.Context, a *Archive, t *table[R], rows []R, once bool) error {
	for part := range slices.Chunk(rows, rowsAtOnce) {
		settings := maps.Clone(storing)
		if once && a.settings.Cluster != "" {
			settings["insert_deduplicate"] = 1
			settings["insert_deduplication_token"] = t.token(part)
		}
		bounded, cancel := context.WithTimeout(ctx, insertTimeout)
		err := t.send(bounded, a, part, settings)
		cancel()
		if err != nil {
			return a.fault(ctx, fmt.Sprintf("insert of %d rows into %s", len(part), t.name), err)
		}
	}
	return nil
}

// send stores the rows, of which there is at least one.
func (t *table[R]) send(ctx context.Context, a *Archive, rows []R, settings clickhouse.Settings) error {
	described := make([]clickhouse.ColumnNameAndType, len(t.columns))
	columns := make([]string, len(t.columns))
	for i, c := range t.columns {
		// Else the driver would ask for them before every insert.
		described[i] = clickhouse.ColumnNameAndType{Name: c.name, Type: c.kind}
		columns[i] = c.name
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings), clickhouse.WithColumnNamesAndTypes(described))
	batch, err := a.conn.PrepareBatch(ctx, "INSERT INTO "+t.name+" ("+strings.Join(columns, ", ")+")")
	if err != nil {
		return err
	}
	defer func() { _ = batch.Close() }() // gives the connection back after an error
	for i, c := range t.columns {
		if err := batch.Column(i).Append(c.values(rows)); err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	// Columns of unequal length would be sent as nothing, without an error.
	for i, c := range batch.Columns() {
		if c.Rows() != len(rows) {
			return fmt.Errorf("column %s has %d values for %d rows", t.columns[i].name, c.Rows(), len(rows))
		}
	}
	return batch.Send()
}

// token names the rows by their content and nothing else: a token that came
// again with other rows would make ClickHouse drop them in silence.
func (t *table[R]) token(rows []R) string {
	h := sha256.New()
	h.Write([]byte(t.name))
	var buffer []byte
	for i := range rows {
		buffer = buffer[:0]
		for j := range t.columns {
			buffer = t.columns[j].encode(buffer, &rows[i])
		}
		h.Write(buffer)
	}
	return hex.EncodeToString(h.Sum(nil))
}
