package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
	columns "github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	blocks "github.com/ClickHouse/clickhouse-go/v2/lib/proto"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
)

// ErrRow is a row that no waiting makes fit.
var ErrRow = errors.New("clickhouse: a row that it cannot hold")

const (
	// insertTimeout is far longer than 10,000 rows take. The driver's own limit of five
	// minutes, for long reports, would hold these rows behind a dead connection.
	insertTimeout = time.Minute

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

// storingSettings are those of an INSERT into a table. In a cluster rows of the books are confirmed by
// most of the servers that have them before the INSERT is answered, so that the loss of one server
// loses none, and so that a SELECT can ask for all that were confirmed. That wants one such INSERT
// at a time: a second one into the same table fails, and may be repeated.
func (l layout) storingSettings(t *table) clickhouse.Settings {
	settings := maps.Clone(storing)
	if l.cluster != "" && t.appended {
		settings["insert_quorum"] = "auto"
		settings["insert_quorum_parallel"] = 0
	}
	return settings
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
	for i, slice := range []any{b.Orders, b.Events, b.Late, b.Outcomes, auditRows(b.Audit)} {
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
	settings := a.storingSettings(t)
	if once && a.cluster != "" {
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
	batch, err := a.conn.PrepareBatch(ctx, "INSERT INTO "+t.name+" ("+t.list("%[1]s")+")")
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

func rowTable(name string) (*table, error) {
	i := slices.Index(Tables(), name)
	if i < 0 {
		return nil, fmt.Errorf("table %q: the schema has none of that name", name)
	}
	return rowTables[i], nil
}

// RowCounts is how many rows each table has, with those that replace each other.
func (a *Archive) RowCounts(ctx context.Context) (map[string]uint64, error) {
	counts := make(map[string]uint64)
	for _, t := range Tables() {
		var n uint64
		if err := a.conn.QueryRow(ctx, "SELECT count() FROM "+t+" SETTINGS final = 0").Scan(&n); err != nil {
			return nil, a.fault(ctx, "count "+t, err)
		}
		counts[t] = n
	}
	return counts, nil
}

// Dump writes a table, as it is at one moment, in ClickHouse's Native format, which Load
// and `INSERT INTO orders FORMAT Native` take. progress is called with how many rows have
// been written. Memory does not grow with their number.
func (a *Archive) Dump(ctx context.Context, table string, out io.Writer, progress func(rows uint64)) (written uint64, err error) {
	t, err := rowTable(table)
	if err != nil {
		return 0, err
	}
	block, err := t.newBlock()
	if err != nil {
		return 0, err
	}

	flush := func() error {
		var buffer proto.Buffer
		if err := block.Encode(&buffer, 0); err != nil { // revision 0 is the format of files
			return err
		}
		if _, err := out.Write(buffer.Buf); err != nil {
			return err
		}

		written += uint64(block.Rows())
		progress(written)
		block, err = t.newBlock()

		return err
	}

	var values []any // pointers, which the block takes, too
	// The names of the results must not hide the columns.
	query := "SELECT " + t.list("CAST(%[1]s AS %[2]s) AS %[1]s") + " FROM " + table + " SETTINGS final = 0, prefer_column_name_to_alias = 1"
	err = a.Each(ctx, query, func(rows driver.Rows) error {
		if values == nil {
			for _, column := range rows.ColumnTypes() {
				values = append(values, reflect.New(column.ScanType()).Interface())
			}
		}

		if err := rows.Scan(values...); err != nil {
			return err
		}
		if err := block.Append(values...); err != nil || block.Rows() < rowsAtOnce {
			return err
		}

		return flush()
	})

	if err == nil && block.Rows() > 0 {
		err = flush()
	}

	if err != nil {
		err = fmt.Errorf("dump of %s: %w", table, err)
	}

	return written, err
}

func (t *table) newBlock() (*blocks.Block, error) {
	block := blocks.NewBlock()
	for _, c := range t.columns {
		if err := block.AddColumn(c.name, columns.Type(c.kind)); err != nil {
			return nil, err
		}
	}
	return block, nil
}

// Load stores the rows that Dump has written. It may be repeated: rows count once. After
// an error, such as a file that ends early, some may have been stored.
func (a *Archive) Load(ctx context.Context, table string, in io.Reader, rows uint64, progress func(rows uint64)) error {
	t, err := rowTable(table)
	if err != nil {
		return err
	}

	// What an interrupted restore had loaded would count twice where rows do not replace each other.
	mayRepeat := false
	if t.appended {
		row := a.conn.QueryRow(ctx, "SELECT count() > 0 FROM "+t.name+" SETTINGS final = 0")
		if err := row.Scan(&mayRepeat); err != nil {
			return a.fault(ctx, "load of "+table, err)
		}
	}

	reader := proto.NewReader(bufio.NewReaderSize(in, 1<<20))
	for loaded := uint64(0); loaded < rows; progress(loaded) {
		block := blocks.NewBlock()
		if err := block.Decode(reader, 0); err != nil {
			return fmt.Errorf("load of %s after %d of %d rows: %w", table, loaded, rows, err)
		}
		if block.Rows() == 0 {
			return fmt.Errorf("load of %s after %d of %d rows: an empty block", table, loaded, rows)
		}

		held, err := t.columnsOf(block)
		if err != nil {
			return fmt.Errorf("load of %s: %w", table, err)
		}

		err = a.send(ctx, held, a.storingSettings(t), block.Rows(), func(i int, to driver.BatchColumn) error {
			for row := range block.Rows() {
				if err := to.AppendRow(block.Columns[i].Row(row, false)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return a.fault(ctx, "load of "+table, err)
		}

		loaded += uint64(block.Rows())
	}

	if mayRepeat && rows > 0 {
		return a.deduplicate(ctx, t, answerWithin)
	}

	return nil
}

const (
	// answerWithin is how long a partition's merge may keep its request waiting. The driver gives
	// up after five minutes, and proxies sooner; the merge goes on without the request.
	answerWithin = time.Minute

	mergePoll = 500 * time.Millisecond
)

// deduplicate removes the second and later of equal rows, partition by partition. However long a merge
// takes, it is waited for until ctx ends.
func (a *Archive) deduplicate(ctx context.Context, t *table, answerWithin time.Duration) error {
	partitions := make(map[string]bool) // by id
	query := "SELECT DISTINCT partition_id FROM " + a.onAllServers("system.parts") + " WHERE active AND database = {database:String} AND table = {table:String}"
	err := a.Each(ctx, query, func(rows driver.Rows) error {
		var id string
		err := rows.Scan(&id)
		partitions[id] = true
		return err
	}, a.physicalNamed(t)...)
	if err != nil {
		return err
	}

	for _, id := range slices.Sorted(maps.Keys(partitions)) {
		if err := a.deduplicatePartition(ctx, t, id, answerWithin); err != nil {
			return err
		}
	}

	return nil
}

func (a *Archive) deduplicatePartition(ctx context.Context, t *table, id string, answerWithin time.Duration) error {
	before, err := a.partitionState(ctx, t, id)
	if err != nil {
		return err
	}

	waiting, cancel := context.WithTimeout(ctx, answerWithin)
	err = a.exec(waiting, fmt.Sprintf("OPTIMIZE TABLE %s %s PARTITION ID '%s' FINAL DEDUPLICATE", a.physical(t), a.onCluster(), id))
	cancel()
	for {
		isLate := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, delivery.ErrUnavailable)
		if err == nil || !isLate || ctx.Err() != nil {
			return err
		}

		after, failed := a.partitionState(ctx, t, id)
		switch {
		case failed != nil:
			return failed
		case after.merging:
			time.Sleep(mergePoll)
		case after.parts == before.parts: // it has not begun, or failed
			return err
		default:
			return nil
		}
	}
}

// partitionState is how a partition is stored, on all servers.
type partitionState struct {
	parts   string // the names of its active parts, which change with every merge
	merging bool   // a merge of it is in progress
}

func (a *Archive) partitionState(ctx context.Context, t *table, id string) (state partitionState, err error) {
	query := fmt.Sprintf(`SELECT
	(SELECT arrayStringConcat(arraySort(groupArray(hostName() || name)), ',') FROM %s
		WHERE active AND database = {database:String} AND table = {table:String} AND partition_id = {partition:String}),
	(SELECT count() > 0 FROM %s WHERE database = {database:String} AND table = {table:String} AND partition_id = {partition:String})`,
		a.onAllServers("system.parts"), a.onAllServers("system.merges"))
	row := a.conn.QueryRow(ctx, query, append(a.physicalNamed(t), clickhouse.Named("partition", id))...)
	err = row.Scan(&state.parts, &state.merging)
	return state, a.fault(ctx, "wait for the merge of "+t.name, err)
}

// onAllServers is a table of the database system, of every server of a cluster.
func (l layout) onAllServers(table string) string {
	if l.cluster == "" {
		return table
	}
	return fmt.Sprintf("clusterAllReplicas('%s', %s)", l.cluster, table)
}

func (a *Archive) physicalNamed(t *table) []any {
	return []any{clickhouse.Named("database", a.database), clickhouse.Named("table", a.physical(t))}
}

// columnsOf are those of a block. One that an older file lacks gets its default.
func (t *table) columnsOf(block *blocks.Block) (*table, error) {
	held := &table{name: t.name}
	for i, name := range block.ColumnsNames() {
		j := t.index(name)
		if j < 0 {
			return nil, fmt.Errorf("the table has no column %q: the file was made by a newer program", name)
		}
		if kind := string(block.Columns[i].Type()); kind != t.columns[j].kind {
			return nil, fmt.Errorf("column %s is %s in the file, wanted is %s", name, kind, t.columns[j].kind)
		}
		held.columns = append(held.columns, t.columns[j])
	}

	return held, nil
}
