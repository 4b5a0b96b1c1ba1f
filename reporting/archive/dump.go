package archive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
	columns "github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	blocks "github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// stated is a table's columns as rows are sent: name and type.
type stated struct {
	table string
	names []string
	kinds []string
}

func stateOf[R any](t *table[R]) stated {
	s := stated{table: t.name}
	for _, c := range t.columns {
		s.names, s.kinds = append(s.names, c.name), append(s.kinds, c.kind)
	}
	return s
}

// held are the tables that hold rows. The rest of the schema is made by Migrate.
func held() []stated {
	return []stated{stateOf(&orders), stateOf(&orderEvents), stateOf(&lateDeliveries), stateOf(&webhookOutcomes)}
}

func heldTable(name string) (stated, error) {
	for _, s := range held() {
		if s.table == name {
			return s, nil
		}
	}
	return stated{}, fmt.Errorf("table %q: the schema has none of that name", name)
}

// Tables are the names of the tables that hold rows.
func Tables() []string {
	var list []string
	for _, s := range held() {
		list = append(list, s.table)
	}
	return list
}

// RowCounts is how many rows each table has, rows that replace each other
// counted one by one.
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

// Dump writes a table in ClickHouse's Native format, as it is at one moment:
// `INSERT INTO orders FORMAT Native` takes it, and so does Load. Rows that
// replace each other are written as they are. progress is told how many rows have
// been written. Memory does not grow with their number.
func (a *Archive) Dump(ctx context.Context, table string, out io.Writer, progress func(rows uint64)) (uint64, error) {
	t, err := heldTable(table)
	if err != nil {
		return 0, err
	}
	casts := make([]string, len(t.names))
	for i, name := range t.names {
		casts[i] = fmt.Sprintf("CAST(%s AS %s) AS %s", name, t.kinds[i], name)
	}
	settings := maps.Clone(reading)
	settings["final"] = 0
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The names of the results must not hide the columns.
	settings["prefer_column_name_to_alias"] = 1
	rows, err := a.conn.Query(clickhouse.Context(ctx, clickhouse.WithSettings(settings)), "SELECT "+strings.Join(casts, ", ")+" FROM "+table)
	if err != nil {
		return 0, a.fault(ctx, "dump of "+table, err)
	}
	defer func() {
		cancel() // first: else closing would read to the end
		_ = rows.Close()
	}()
	d := &dumper{stated: t, out: out}
	if err := d.begin(rows.ColumnTypes()); err != nil {
		return 0, fmt.Errorf("dump of %s: %w", table, err)
	}
	written := uint64(0)
	for rows.Next() {
		if err := d.take(rows); err != nil {
			return written, fmt.Errorf("dump of %s: %w", table, err)
		}
		if d.block.Rows() < rowsAtOnce {
			continue
		}
		if written, err = d.flush(written); err != nil {
			return written, fmt.Errorf("dump of %s: %w", table, err)
		}
		progress(written)
	}
	if err := rows.Err(); err != nil {
		return written, a.fault(ctx, "dump of "+table, err)
	}
	if written, err = d.flush(written); err != nil {
		return written, fmt.Errorf("dump of %s: %w", table, err)
	}
	progress(written)
	return written, nil
}

// dumper gathers rows in blocks.
type dumper struct {
	stated
	out    io.Writer
	block  *blocks.Block
	places []any // pointers into which a row is read
	values []any
}

func (d *dumper) begin(types []driver.ColumnType) error {
	for _, t := range types {
		d.places = append(d.places, reflect.New(t.ScanType()).Interface())
	}
	d.values = make([]any, len(d.places))
	return d.next()
}

// next is an empty block.
func (d *dumper) next() error {
	d.block = blocks.NewBlock()
	for i, name := range d.names {
		if err := d.block.AddColumn(name, columns.Type(d.kinds[i])); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) take(rows driver.Rows) error {
	if err := rows.Scan(d.places...); err != nil {
		return err
	}
	for i, p := range d.places {
		d.values[i] = reflect.ValueOf(p).Elem().Interface()
	}
	return d.block.Append(d.values...)
}

func (d *dumper) flush(before uint64) (uint64, error) {
	rows := uint64(d.block.Rows())
	if rows == 0 {
		return before, nil
	}
	var buffer proto.Buffer
	if err := d.block.Encode(&buffer, 0); err != nil { // revision 0 is the format of files
		return before, err
	}
	if _, err := d.out.Write(buffer.Buf); err != nil {
		return before, err
	}
	return before + rows, d.next()
}

// Load stores the rows that Dump has written. It may be repeated: rows that are
// there already count once. A file that ends early, or names columns that the
// table lacks, is an error, after which some rows may have been stored.
func (a *Archive) Load(ctx context.Context, table string, in io.Reader, rows uint64, progress func(rows uint64)) error {
	t, err := heldTable(table)
	if err != nil {
		return err
	}
	reader := proto.NewReader(bufio.NewReaderSize(in, 1<<20))
	for loaded := uint64(0); loaded < rows; {
		block := blocks.NewBlock()
		if err := block.Decode(reader, 0); err != nil {
			return fmt.Errorf("load of %s after %d of %d rows: %w", table, loaded, rows, err)
		}
		if block.Rows() == 0 {
			return fmt.Errorf("load of %s after %d of %d rows: an empty block", table, loaded, rows)
		}
		if err := t.check(block); err != nil {
			return err
		}
		if err := a.store(ctx, table, block); err != nil {
			return err
		}
		loaded += uint64(block.Rows())
		progress(loaded)
	}
	return nil
}

// check refuses columns that the table does not have. One that it has and the
// file has not, because the file is older, gets its default.
func (t *stated) check(block *blocks.Block) error {
	for i, name := range block.ColumnsNames() {
		j := slices.Index(t.names, name)
		if j < 0 {
			return fmt.Errorf("load of %s: the table has no column %q: the file was made by a newer program", t.table, name)
		}
		if kind := string(block.Columns[i].Type()); kind != t.kinds[j] {
			return fmt.Errorf("load of %s: column %s is %s in the file, wanted is %s", t.table, name, kind, t.kinds[j])
		}
	}
	return nil
}

func (a *Archive) store(ctx context.Context, table string, block *blocks.Block) error {
	names := block.ColumnsNames()
	described := make([]clickhouse.ColumnNameAndType, len(names))
	for i, name := range names {
		described[i] = clickhouse.ColumnNameAndType{Name: name, Type: string(block.Columns[i].Type())}
	}
	bounded, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	bounded = clickhouse.Context(bounded, clickhouse.WithSettings(storing), clickhouse.WithColumnNamesAndTypes(described))
	batch, err := a.conn.PrepareBatch(bounded, "INSERT INTO "+table+" ("+strings.Join(names, ", ")+")")
	if err != nil {
		return a.fault(ctx, "load of "+table, err)
	}
	defer func() { _ = batch.Close() }() // gives the connection back after an error
	values := make([]any, len(names))
	for row := range block.Rows() {
		for i := range values {
			values[i] = block.Columns[i].Row(row, false)
		}
		if err := batch.Append(values...); err != nil {
			return fmt.Errorf("load of %s: %w", table, err)
		}
	}
	return a.fault(ctx, "load of "+table, batch.Send())
}
