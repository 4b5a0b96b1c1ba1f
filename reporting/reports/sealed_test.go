package reports

import (
	"bytes"
	"slices"
	"testing"

	"vendorapi/internal/testenv"
)

// The plain CSV of a closed month has these bytes for ever. A change here breaks every seal: another
// form needs a writer of another name.
func TestPlainWriter_Golden(t *testing.T) {
	t.Parallel()

	r := &Report{Name: "golden", Columns: []Column{
		{Key: "text", Kind: Text}, {Key: "count", Kind: Count}, {Key: "money", Kind: Money},
		{Key: "day", Kind: DayOnly}, {Key: "month", Kind: Month}, {Key: "time", Kind: Time},
	}}

	number := func(n int64) Cell { return Cell{Number: n, Given: true} }
	row := func(text string, numbers ...int64) []Cell {
		cells := []Cell{{Text: text, Given: true}}
		for _, n := range numbers {
			cells = append(cells, number(n))
		}
		return cells
	}

	var out bytes.Buffer
	sink := CSVPlain.Sink(&out)

	testenv.Must(t, sink.Begin(r, Params{}))
	testenv.Must(t, sink.Row(row("plain", 0, 0, 0, 0, 0)))
	testenv.Must(t, sink.Row(row(`-1,"x";y'`, -7, -12345, 20393, 20393, 1761998399999)))
	testenv.Must(t, sink.Row(row("Çiğköfte\nİç", 1234567, 999999999, 20393, 20393, 1761998400000)))
	testenv.Must(t, sink.Row([]Cell{{}, {}, {}, {}, {}, {}}))
	testenv.Must(t, sink.Row(row(" before", 0, 0, 0, 0, 0)))
	testenv.Must(t, sink.Row(row("behind ", 0, 0, 0, 0, 0)))
	testenv.Must(t, sink.Row(row("a b", 0, 0, 0, 0, 0)))
	testenv.Must(t, sink.End(Summary{Rows: 7, Totals: make([]Cell, 6)}))

	const want = "text,count,money,day,month,time\n" +
		"plain,0,0.00,1970-01-01,1970-01,1970-01-01T03:00:00.000+03:00\n" +
		"\"-1,\"\"x\"\";y'\",-7,-123.45,2025-11-01,2025-11,2025-11-01T14:59:59.999+03:00\n" +
		"\"Çiğköfte\nİç\",1234567,9999999.99,2025-11-01,2025-11,2025-11-01T15:00:00.000+03:00\n" +
		",,,,,\n" +
		"\" before\",0,0.00,1970-01-01,1970-01,1970-01-01T03:00:00.000+03:00\n" +
		"\"behind \",0,0.00,1970-01-01,1970-01,1970-01-01T03:00:00.000+03:00\n" +
		"a b,0,0.00,1970-01-01,1970-01,1970-01-01T03:00:00.000+03:00\n"

	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// A column that is added later is not in the reports of months that were closed before.
func TestAsSealed_KeepsTheColumnsOfTheClosing(t *testing.T) {
	t.Parallel()

	october, _ := ParseDay("2025-10-01")
	before := ledger.format()
	before.Columns = before.Columns[:len(before.Columns)-1]
	closings := []closing{{month: october, control: []StoredLine{{Line: ledger.Name, Format: before}, {Line: control.Name}}}}
	month := &Params{From: october, To: october.lastOfMonth(), Basis: Booked}

	sealed, err := ledger.asSealed(asBooked, closings, month)
	testenv.Must(t, err)
	if !slices.Equal(sealed.format().Columns, before.Columns) {
		t.Errorf("%v", sealed.format().Columns)
	}

	day := *month
	day.To = day.From
	for what, p := range map[string]*Params{"a day of it": &day} {
		now, err := ledger.asSealed(asBooked, closings, p)
		testenv.Must(t, err)
		if len(now.Columns) != len(ledger.Columns) {
			t.Errorf("%s has %d columns", what, len(now.Columns))
		}
	}

	for _, b := range []books{live, asKnown} {
		now, err := ledger.asSealed(b, closings, month)
		testenv.Must(t, err)
		if len(now.Columns) != len(ledger.Columns) {
			t.Errorf("%q has %d columns", b, len(now.Columns))
		}
	}
}

// What this program cannot write as it was is an error, and not something else.
func TestWithFormat_RefusesAnother(t *testing.T) {
	t.Parallel()

	other := ledger.format()
	other.Writer = "csv-plain-2"
	swapped := ledger.format()
	swapped.Columns[0], swapped.Columns[1] = swapped.Columns[1], swapped.Columns[0]
	longer := ledger.format()
	longer.Columns = append(longer.Columns, "later")
	for _, f := range []*SealedFormat{other, swapped, longer} {
		if _, err := ledger.withFormat(f); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}
