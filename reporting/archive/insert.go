package archive

import (
	"cmp"
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
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/sync/errgroup"
)

// ErrRow is a row that no waiting makes fit.
var ErrRow = errors.New("clickhouse: a row that it cannot hold")

const (
	// insertTimeout is far longer than 10,000 rows take. The driver's own limit of
	// five minutes is that of long reports; behind a dead connection nobody else
	// would get these rows meanwhile.
	insertTimeout = time.Minute

	// rowsAtOnce is the most rows of one INSERT.
	rowsAtOnce = 10_000
)

// storing are the settings of every INSERT: it is answered when its rows are
// stored, on all shards that they belong to, whatever the server's defaults are.
var storing = clickhouse.Settings{
	"async_insert":                    0,
	"distributed_foreground_insert":   1,
	"max_partitions_per_insert_block": 0, // a rebuild may bring all months at once
	"insert_deduplicate":              0,
}

// Insert stores the rows; nil means that all of them are on the disk. After an
// error some may be: the same batch may be inserted again, any number of times,
// now or after others, and a row counts once. A cluster also recognises the latest
// thousand inserts by their content and does not store them again; a single server
// must not (see layout.durability).
//
// A row that ClickHouse could not hold as it is, such as an amount beyond
// 9,999,999.99, fails the whole batch with ErrRow before anything is sent.
func (a *Archive) Insert(ctx context.Context, b *Batch) error { return a.insert(ctx, b, true) }

// InsertAgain is Insert that is not recognised as a repetition, also in a cluster:
// for rows that were stored, removed, and are to be stored again.
func (a *Archive) InsertAgain(ctx context.Context, b *Batch) error { return a.insert(ctx, b, false) }

func (a *Archive) insert(ctx context.Context, b *Batch, once bool) error {
	err := cmp.Or(orderEvents.checkAll(b.Events), orders.checkAll(b.Orders), lateDeliveries.checkAll(b.Late), webhookOutcomes.checkAll(b.Outcomes))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRow, err)
	}
	// Concurrently: what an insert waits for is the disk.
	var group errgroup.Group
	group.Go(func() error { return orders.insert(ctx, a, b.Orders, once) })
	group.Go(func() error { return orderEvents.insert(ctx, a, b.Events, once) })
	group.Go(func() error { return lateDeliveries.insert(ctx, a, b.Late, once) })
	group.Go(func() error { return webhookOutcomes.insert(ctx, a, b.Outcomes, once) })
	return group.Wait()
}

func (t *table[R]) checkAll(rows []R) error {
	for i := range rows {
		for _, c := range t.columns {
			if c.check == nil {
				continue
			}
			if err := c.check(&rows[i]); err != nil {
				return fmt.Errorf("%s (%s): %w", t.table, strings.Join(t.texts(&rows[i]), ", "), err)
			}
		}
	}
	return nil
}

func (t *table[R]) texts(row *R) []string {
	texts := make([]string, len(t.columns))
	for i := range t.columns {
		texts[i] = t.columns[i].text(row)
	}
	return texts
}

func (t *table[R]) insert(ctx context.Context, a *Archive, rows []R, once bool) error {
	for part := range slices.Chunk(rows, rowsAtOnce) {
		settings := maps.Clone(storing)
		if once && a.settings.Cluster != "" {
			settings["insert_deduplicate"] = 1
			settings["insert_deduplication_token"] = t.token(part)
		}
		err := a.send(ctx, &t.columnSet, settings, func(batch driver.Batch) error {
			for i, c := range t.columns {
				if err := batch.Column(i).Append(c.values(part)); err != nil {
					return fmt.Errorf("column %s: %w", c.name, err)
				}
			}
			// Columns of unequal length would be sent as nothing, without an error.
			for i, c := range batch.Columns() {
				if c.Rows() != len(part) {
					return fmt.Errorf("column %s has %d values for %d rows", t.names[i], c.Rows(), len(part))
				}
			}
			return nil
		})
		if err != nil {
			return a.fault(ctx, fmt.Sprintf("insert of %d rows into %s", len(part), t.table), err)
		}
	}
	return nil
}

// send stores what fill adds to a batch of a table's columns.
func (a *Archive) send(ctx context.Context, t *columnSet, settings clickhouse.Settings, fill func(driver.Batch) error) error {
	described := make([]clickhouse.ColumnNameAndType, len(t.names))
	for i, name := range t.names {
		// Else the driver would ask for them before every insert.
		described[i] = clickhouse.ColumnNameAndType{Name: name, Type: t.kinds[i]}
	}
	ctx, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings), clickhouse.WithColumnNamesAndTypes(described))
	batch, err := a.conn.PrepareBatch(ctx, "INSERT INTO "+t.table+" ("+strings.Join(t.names, ", ")+")")
	if err != nil {
		return err
	}
	defer func() { _ = batch.Close() }() // gives the connection back after an error
	if err := fill(batch); err != nil {
		return err
	}
	return batch.Send()
}

// token names the rows by their content and nothing else: a token that came
// again with other rows would make ClickHouse drop them in silence.
func (t *table[R]) token(rows []R) string {
	h := sha256.New()
	h.Write([]byte(t.table))
	for i := range rows {
		fmt.Fprintf(h, "%q", t.texts(&rows[i])) // quoted: a value ends where it says
	}
	return hex.EncodeToString(h.Sum(nil))
}
