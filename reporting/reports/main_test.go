package reports

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	_ "time/tzdata"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newArchive is a migrated archive in an engine, and its database.
func newArchive(t testing.TB, e *testserver.ClickHouse) (*archive.Archive, string) {
	t.Helper()
	database := e.NewDatabase(t)
	a, err := archive.Open(archive.Settings{URL: e.URL, Database: database})
	noError(t, err)
	t.Cleanup(func() { a.Close() })
	_, err = a.Migrate(t.Context())
	noError(t, err)

	return a, database
}

// The tests that only read share two archives, which stay until the engine ends:
// that of an example sample, over allDays, and one whose ledger takes a while.
var shared struct {
	once     sync.Once
	sample   sample
	example  *archive.Archive
	many     *archive.Archive
	database string // of many
}

var allDays = asked{from: "2026-10-01", to: "2028-12-31"}

// manyOrders are in shared.many, of 100 accounts, from 2026-11-01 on.
const manyOrders = 300_000

func readShared(t *testing.T) {
	t.Helper()
	shared.once.Do(func() {
		keep := &kept{TB: t}
		shared.sample = samples(400).Example(int(testserver.Seed(t) % 1e9))
		shared.example = archiveOf(keep, shared.sample)
		e := testserver.SharedClickHouse(t)
		shared.many, shared.database = newArchive(keep, e)
		insertMany(t, e, shared.database)
	})

	if shared.database == "" {
		t.Fatal("the shared archives could not be made")
	}
}

// kept is a test whose cleanups wait for the end of the process.
type kept struct{ testing.TB }

func (*kept) Cleanup(func()) {}

func insertMany(t testing.TB, e *testserver.ClickHouse, database string) {
	t.Helper()
	e.Exec(t, fmt.Sprintf(`INSERT INTO %s.orders (account_id, business_day, order_id, version, external_order_id, status, created_at)
		SELECT reinterpretAsUUID(sipHash128(number %% 100)), toDate(created_at), reinterpretAsUUID(sipHash128(number, 1)), 1, repeat('x', 60), 'Searching',
			toDateTime64('2026-11-01 00:00:00', 3, 'Etc/GMT-3') + toIntervalSecond(number * 8) AS created_at FROM numbers(%d)`, database, manyOrders))
}

func exampleArchive(t *testing.T) (*archive.Archive, sample) {
	t.Helper()
	readShared(t)
	return shared.example, shared.sample
}

// archiveOf holds the given sample, stored in a way that the reports must not
// see: an earlier version of every order first, some of them once more at the
// end, and all late deliveries twice.
func archiveOf(t testing.TB, s sample) *archive.Archive {
	t.Helper()
	a, _ := newArchive(t, testserver.SharedClickHouse(t))
	earlier := slices.Clone(s.orders)
	for i := range earlier {
		o := &earlier[i]
		o.Version--
		o.Status, o.Failure, o.Cancel, o.EndedAt, o.DeliveredAt = 1, "", "", time.Time{}, time.Time{}
	}

	noError(t, a.InsertAgain(t.Context(), &archive.Batch{Orders: earlier, Late: s.late}))
	noError(t, a.InsertAgain(t.Context(), &archive.Batch{Orders: s.orders, Late: s.late}))
	noError(t, a.InsertAgain(t.Context(), &archive.Batch{Orders: earlier[:len(earlier)/2]}))

	return a
}

// written is a report in a format.
func written(t testing.TB, a *archive.Archive, r *Report, p Params, f *Format) ([]byte, Summary) {
	t.Helper()
	var b bytes.Buffer
	s, err := r.Run(t.Context(), a, p, f.Sink(&b), nil)
	noError(t, err)
	return b.Bytes(), s
}

// plain are the rows of a report as csv-plain has them, without the header.
func plain(t testing.TB, a *archive.Archive, r *Report, p Params) [][]string {
	t.Helper()
	b, _ := written(t, a, r, p, CSVPlain)
	return readCSV(t, b, ',', r)
}

// readCSV reads a file with its header, and checks that.
func readCSV(t testing.TB, b []byte, separator rune, r *Report) [][]string {
	t.Helper()
	reader := csv.NewReader(bytes.NewReader(b))
	reader.Comma = separator
	rows, err := reader.ReadAll()
	noError(t, err)
	if len(rows) == 0 || !slices.Equal(rows[0], keysOf(r)) {
		t.Fatalf("%s begins with %q", r.Name, rows[:min(1, len(rows))])
	}
	return rows[1:]
}

func keysOf(r *Report) []string {
	keys := make([]string, len(r.Columns))
	for i := range r.Columns {
		keys[i] = r.Columns[i].Key
	}
	return keys
}

// sameRows compares, and ends the test at the first column that differs.
func sameRows(t testing.TB, what string, got, want [][]string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		for column := range max(len(got[i]), len(want[i])) {
			if column >= len(got[i]) || column >= len(want[i]) {
				t.Fatalf("%s, row %d: %d columns, wanted %d", what, i, len(got[i]), len(want[i]))
			}
			if got[i][column] != want[i][column] {
				t.Fatalf("%s, row %d (%s), column %d: %q, wanted %q", what, i, want[i][0], column, got[i][column], want[i][column])
			}
		}
	}

	switch {
	case len(got) < len(want):
		t.Fatalf("%s: %d rows, wanted %d; missing is %q", what, len(got), len(want), want[len(got)])
	case len(got) > len(want):
		t.Fatalf("%s: %d rows, wanted %d; too much is %q", what, len(got), len(want), got[len(want)])
	}
}

// period is a Params from two days.
func period(t testing.TB, from, to string) Params {
	t.Helper()
	p, err := Values{From: from, To: to}.Parse(time.Now())
	noError(t, err)
	return p
}
