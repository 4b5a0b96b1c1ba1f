package closing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
)

// twoMonths closes October and November, with an order each. Its log is hold, close, hold, close.
func twoMonths(t *testing.T) (e *env, orders []archive.Order) {
	t.Helper()
	e = newEnv(t)
	october := month("2025-10")
	orders = []archive.Order{
		e.order(october.Add(12*time.Hour), delivery.Delivered, 25000),
		e.order(october.Next().Add(12*time.Hour), delivery.Delivered, 700),
	}

	e.store(orders...)
	e.close(october)
	e.close(october.Next())

	return e, orders
}

// lose removes rows of a table.
func (e *env) lose(table, where string) {
	e.T.Helper()
	e.ClickHouse.Exec(e.T, fmt.Sprintf("DELETE FROM %s.%s WHERE %s SETTINGS lightweight_deletes_sync = 2", e.Database, table, where))
}

func (e *env) loseRows(entry *Entry) {
	e.T.Helper()
	for _, table := range []string{"closed_orders", "closed_days"} {
		e.lose(table, "batch = '"+entry.Batch.String()+"'")
	}
}

// closedRows are the rows that count.
func (e *env) closedRows() string {
	e.T.Helper()
	return e.ClickHouse.Exec(e.T, fmt.Sprintf("SELECT * FROM %[1]s.closed_orders WHERE batch IN (SELECT batch FROM %[1]s.journal) ORDER BY ALL", e.Database))
}

func (e *env) recover(from Recovery) (numbers string, err error) {
	e.T.Helper()
	recovered, err := e.books.Recover(e.T.Context(), from, func(string) {})
	for _, entry := range recovered {
		numbers += fmt.Sprint(entry.Sequence)
	}
	return numbers, err
}

func (e *env) wantRecovered(what string, from Recovery, numbers string) {
	e.T.Helper()
	got, err := e.recover(from)
	testenv.Must(e.T, err)
	if got != numbers {
		e.T.Errorf("%s: the entries %q were recovered, want %q", what, got, numbers)
	}
	if v := e.verify(); len(v.Findings)+len(v.Pending) > 0 {
		e.T.Errorf("%s: %+v", what, v)
	}
}

func manifestsOf(entries []Entry) (texts []string) {
	for i := range entries {
		texts = append(texts, entries[i].JSON)
	}
	return texts
}

// The entry is there and its rows are not. They are made again without regard to what is later in the log.
func TestRecover_BringsBackRowsOfStoredEntries(t *testing.T) {
	t.Parallel()

	e, orders := twoMonths(t)
	log := e.log().Entries
	rows := e.closedRows()
	e.wantRecovered("nothing is missing", Recovery{}, "")

	e.loseRows(&log[1])
	e.wantRecovered("October's rows", Recovery{}, "2")
	e.lose("closed_days", "batch = '"+log[3].Batch.String()+"'")
	e.wantRecovered("November's sums", Recovery{}, "4")

	// Entries in the middle, with later ones there.
	e.loseRows(&log[1])
	e.lose("journal", "sequence <= 2")
	e.wantRecovered("October", Recovery{Manifests: manifestsOf(log[:2])}, "12")
	if got := e.closedRows(); got != rows {
		t.Errorf("rows are\n%s\nwere\n%s", got, rows)
	}

	// A correction, whose reversal is of what was booked before it, not of what was booked since.
	for range 2 {
		orders[0].Collection.Minor++
		e.store(orders[0])
		e.correct(1, 0, orders[0].ID)
	}

	log = e.log().Entries
	rows = e.closedRows()
	e.loseRows(&log[5])
	e.wantRecovered("the second correction", Recovery{}, "6")
	if got := e.closedRows(); got != rows {
		t.Errorf("rows are\n%s\nwere\n%s", got, rows)
	}

	// Orders say something else now: what is left stays as it is.
	e.lose("closed_days", "batch = '"+log[4].Batch.String()+"'")
	e.lose("closed_orders", "sign = 1 AND batch = '"+log[4].Batch.String()+"'")
	rows = e.closedRows()
	numbers, err := e.recover(Recovery{})
	if !errors.Is(err, ErrRefused) || numbers != "" || !strings.Contains(err.Error(), "the rows of entry 5 (correction of") || !strings.Contains(err.Error(), log[4].Batch.String()) {
		t.Errorf("%s: %v", numbers, err)
	}
	if got := e.closedRows(); got != rows {
		t.Errorf("rows are\n%s\nwere\n%s", got, rows)
	}
}

// Both databases were restored to an older state, or the end of the log was cut off in both. What was
// delivered is found, and brought back by one command.
func TestCheckDelivered_FindsWhatTheLogDoesNotHave(t *testing.T) {
	e, _ := twoMonths(t)
	b, r := newBucket(t, "erp"), &receiver{}
	log := e.log().Entries
	before := log[1].signed.Head()
	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	check := func() string {
		t.Helper()
		wrong, err := e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
		testenv.Must(t, err)
		return strings.Join(wrong, "\n")
	}
	if wrong := check(); wrong != "" {
		t.Fatal(wrong)
	}

	e.Do("SET", headKey, before)
	e.lose("journal", "sequence > 2")
	e.loseRows(&log[3])
	if l := e.log(); len(l.Entries) != 2 {
		t.Fatalf("%d entries", len(l.Entries))
	}

	wrong := check()
	wantContains(t, "what is found", wrong,
		"2025-11-closing-000004 at erp was delivered with the seal "+log[3].Seal[:12]+", and the log has no such entry.",
		"delivery_sets has a row for 2025-11-closing-000004 at erp",
		"`reporting month recover` with 2025-11-closing-000004/manifest.json")

	if n := strings.Count(wrong, "\n") + 1; n != 2 {
		t.Errorf("%d findings: %s", n, wrong)
	}

	e.lose("delivery_sets", "name = '2025-11-closing-000004'")
	if wrong := check(); strings.Contains(wrong, "\n") || !strings.HasPrefix(wrong, "2025-11-closing-000004 at erp was delivered") {
		t.Errorf("without the row: %s", wrong)
	}

	// A folder without a manifest is not a set, and days are not of the log.
	b.put(t, "2025-12-closing-000009/order-ledger.csv", "x")
	b.put(t, "2025-12-01-daily/"+manifestFile, "{}")
	if wrong := check(); strings.Contains(wrong, "2025-12") {
		t.Error(wrong)
	}

	delivered := Recovery{Manifests: manifestsOf(log[2:])}
	numbers, err := e.recover(delivered)
	if !errors.Is(err, ErrRefused) || numbers != "" || !strings.Contains(err.Error(), "--newer") {
		t.Errorf("without --newer: %s, %v", numbers, err)
	}

	delivered.TakeNewer = true
	for _, c := range []struct{ what, old, replacement string }{
		{"two that differ", "", ""},
		{"another digest of the rows", `"digest":{"rows":1,"sha256":"`, `"digest":{"rows":1,"sha256":"0`},
		{"one person for both", `"by":"ece"`, `"by":"ayse"`},
	} {
		edited := Recovery{TakeNewer: true, Manifests: manifestsOf(log[2:])}
		edited.Manifests[1] = strings.Replace(edited.Manifests[1], c.old, c.replacement, 1)
		if c.old == "" {
			edited.Manifests = append(edited.Manifests, strings.Replace(edited.Manifests[0], "seen", "not seen", 1))
		}

		l := e.log()
		_, err := e.recover(edited)
		if !errors.Is(err, ErrRefused) || e.log().Closed(month("2025-11")) {
			t.Errorf("%s: %v", c.what, err)
		}

		if c.old == "" && len(e.log().Entries) != len(l.Entries) {
			t.Errorf("%s: one of them was taken", c.what)
		}
	}

	e.wantRecovered("the closing of November", delivered, "4") // the hold was taken above
	if wrong := check(); wrong != "" {
		t.Error(wrong)
	}

	d.mustDeliver(t)
	if wrong := check(); wrong != "" {
		t.Error(wrong)
	}
}
