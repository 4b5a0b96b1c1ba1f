package archive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/ClickHouse/ch-go/proto"
	columns "github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	blocks "github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

func rowTable(name string) (*table, error) {
	for _, t := range rowTables {
		if t.name == name {
			return t, nil
		}
	}
	return nil, fmt.Errorf("table %q: the schema has none of that name", name)
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
	defer func() {
		if err != nil {
			err = fmt.Errorf("dump of %s: %w", table, err)
		}
	}()
	var casts []string
	for _, c := range t.columns {
		casts = append(casts, fmt.Sprintf("CAST(%s AS %s) AS %s", c.name, c.kind, c.name))
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
	query := "SELECT " + strings.Join(casts, ", ") + " FROM " + table + " SETTINGS final = 0, prefer_column_name_to_alias = 1"
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
		err = a.send(ctx, held, storing, block.Rows(), func(i int, to driver.BatchColumn) error {
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
	return nil
}

// columnsOf are those of a block. One that an older file lacks gets its default.
func (t *table) columnsOf(block *blocks.Block) (*table, error) {
	held := &table{name: t.name}
	for i, name := range block.ColumnsNames() {
		j := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
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
