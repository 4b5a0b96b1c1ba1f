package archive

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// tablesEnd is the last file that makes tables of rows; later ones need not be
// there for rows to go in.
const tablesEnd = 4

// insertEarlier stores what a program of the release before 0011_order_couriers.sql
// does: it knows no couriers, and no versions but statuses.
func insertEarlier(t testing.TB, a *Archive, b *Batch) {
	t.Helper()
	insertWithout(t, a, orders, reflect.ValueOf(b.Orders), "courier_name", "without_courier")
	insertWithout(t, a, orderEvents, reflect.ValueOf(b.Events), "kind", "courier_name", "eta_dropoff_at")
}

// insertWithout stores rows without the columns of later releases.
func insertWithout(t testing.TB, a *Archive, of *table, rows reflect.Value, later ...string) {
	t.Helper()
	values, err := of.values(rows)
	noError(t, err)
	known := &table{name: of.name}
	var kept []reflect.Value
	for i, c := range of.columns {
		if !slices.Contains(later, c.name) {
			known.columns, kept = append(known.columns, c), append(kept, values[i])
		}
	}
	noError(t, a.insertRows(t.Context(), known, kept, true))
}

func TestMigrate_FromEveryEarlierState(t *testing.T) {
	t.Parallel()
	files := own(t)
	e := testserver.SharedClickHouse(t)
	for n := range len(files) + 1 {
		if !testserver.Long && n != 0 && n != tablesEnd && n != len(files)-1 {
			continue
		}
		a := open(t, e, e.NewDatabase(t))
		applied, err := a.migrate(t.Context(), files[:n])
		if err != nil || len(applied) != n {
			t.Fatalf("%d of %d files: %v %v", len(applied), n, applied, err)
		}
		o := newOrder(account(1), n, noon, toDelivered...)
		o.Courier = delivery.Courier{Name: "Mehmet Yılmaz"}
		if n >= tablesEnd {
			insertEarlier(t, a, batchOf(o))
		}
		for again := range 2 {
			applied, err = a.Migrate(t.Context())
			want := len(files) - n
			if again > 0 {
				want = 0
			}
			if err != nil || len(applied) != want {
				t.Errorf("from %d files, %d were applied, want %d: %v", n, len(applied), want, err)
			}
		}
		if n >= tablesEnd { // and both releases write while one replaces the other
			later := newOrder(account(1), n+100, noon, toDelivered...)
			later.Courier = o.Courier
			insertEarlier(t, a, batchOf(later))
			noError(t, a.Insert(t.Context(), batchOf(o)))
			requireStored(t, a, noon, noon, o, later)
		}
		if comment := one[string](t, a, "SELECT comment FROM system.columns WHERE database = currentDatabase() AND table = 'webhook_outcomes' AND name = 'state'"); !strings.Contains(comment, "retrying") {
			t.Errorf("webhook_outcomes.state is explained as %q", comment)
		}
		recorded := one[string](t, a, "SELECT arrayStringConcat(groupArray(name), ' ') FROM (SELECT name FROM schema_migrations FINAL ORDER BY version)")
		var names []string
		for _, f := range files {
			names = append(names, f.name)
		}
		if recorded != strings.Join(names, " ") {
			t.Errorf("recorded: %s", recorded)
		}
	}
}

// A crash after any statement, recorded or not: the next run goes on. In the gate
// it is after the last, and none is recorded, so that each is run again.
func TestMigrate_AfterACrashBetweenStatements(t *testing.T) {
	t.Parallel()
	files := own(t)
	e := testserver.SharedClickHouse(t)
	total := 0
	for i := range files {
		statements, err := layout{database: "d"}.statements(&files[i])
		noError(t, err)
		total += len(statements)
	}
	crashes := []int{total}
	if testserver.Long {
		for n := range total {
			crashes = append(crashes, n)
		}
	}
	for _, crash := range crashes {
		a := open(t, e, e.NewDatabase(t))
		noError(t, a.makeDatabase(t.Context()))
		left := crash
		for i := range files {
			statements, err := a.statements(&files[i])
			noError(t, err)
			if left >= len(statements) && crash < total {
				noError(t, a.apply(t.Context(), &files[i]))
				left -= len(statements)
				continue
			}
			for _, s := range statements[:min(left, len(statements))] {
				noError(t, a.exec(t.Context(), s))
			}
			if left -= len(statements); left < 0 {
				break
			}
		}
		if _, err := a.Migrate(t.Context()); err != nil {
			t.Errorf("after a crash at statement %d: %v", crash, err)
		}
		o := newOrder(account(1), 1, noon)
		noError(t, a.Insert(t.Context(), batchOf(o)))
		requireStored(t, a, noon, noon, o)
	}
}

func TestMigrate_TwoAtOnce(t *testing.T) {
	t.Parallel()
	e := testserver.SharedClickHouse(t)
	rounds := 1
	if testserver.Long {
		rounds = 5
	}
	for range rounds {
		database := e.NewDatabase(t)
		var running sync.WaitGroup
		for range 3 {
			a := open(t, e, database)
			running.Go(func() {
				if _, err := a.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		a := open(t, e, database)
		if applied, err := a.Migrate(t.Context()); err != nil || len(applied) != 0 {
			t.Errorf("afterwards %v is applied: %v", applied, err)
		}
	}
}

// The way back from a release that added a table, a column and a column of a view.
func TestMigrate_ToleratesWhatANewerProgramAdded(t *testing.T) {
	t.Parallel()
	files := own(t)
	e := testserver.SharedClickHouse(t)
	database := e.NewDatabase(t)
	newer := open(t, e, database)
	next := migration{version: uint32(len(files) + 1), name: "9999_next.sql", source: `
CREATE TABLE IF NOT EXISTS next_release (account_id UUID) ENGINE = MergeTree ORDER BY account_id;
ALTER TABLE orders ADD COLUMN IF NOT EXISTS next_release LowCardinality(String);
ALTER TABLE order_events ADD COLUMN IF NOT EXISTS next_release UInt64;
`}
	if applied, err := newer.migrate(t.Context(), append(slices.Clone(files), next)); err != nil || len(applied) != len(files)+1 {
		t.Fatal(applied, err)
	}
	a := open(t, e, database)
	if applied, err := a.Migrate(t.Context()); err != nil || len(applied) != 0 {
		t.Fatal(applied, err)
	}
	o := newOrder(account(1), 1, noon)
	noError(t, a.Insert(t.Context(), batchOf(o)))
	requireStored(t, a, noon, noon, o)
}

func TestMigrate_RefusesWhatItCannotKnow(t *testing.T) {
	t.Parallel()
	files := own(t)
	changed := files[1]
	changed.source += "-- changed\n"
	for _, c := range []struct {
		want   string
		newer  bool
		record migration
	}{
		{want: "made by a newer program", newer: true, record: migration{version: uint32(len(files) + 1), name: "9999_contract_orders.sql", source: "SELECT 1;\n"}},
		{want: files[1].name + " has been changed since it was applied", record: changed},
		{want: "has the number 0", record: migration{version: 0, name: "0000_none.sql"}},
	} {
		e := testserver.SharedClickHouse(t)
		a := open(t, e, e.NewDatabase(t))
		noError(t, a.makeDatabase(t.Context()))
		noError(t, a.apply(t.Context(), &c.record))
		applied, err := a.Migrate(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, errNewer) != c.newer || len(applied) != 0 {
			t.Errorf("%q: %v %v", c.want, applied, err)
		}
		if n := one[uint64](t, a, fmt.Sprintf("SELECT count() FROM system.tables WHERE database = '%s' AND name IN ('orders', 'late_deliveries')", a.database)); n != 0 {
			t.Errorf("%q: %d tables were made", c.want, n)
		}
	}
}

func TestMigrate_RefusesTheOtherLayout(t *testing.T) {
	t.Parallel()
	a := *idleArchive(t)
	a.cluster = "main"
	if err := a.checkLayout(t.Context()); err == nil || !strings.Contains(err.Error(), "was made for a single server, the settings name cluster main") {
		t.Error(err)
	}
}

func TestMigrate_SaysWhatFailed(t *testing.T) {
	t.Parallel()
	a := idleArchive(t)
	bad := migration{version: 1, name: "0001_bad.sql", source: "SELECT 1;\nCREATE TABLE x (a Nonsense) ENGINE = Memory;\n"}
	err := a.apply(t.Context(), &bad)
	if err == nil || !strings.Contains(err.Error(), "schema 0001_bad.sql") || !strings.Contains(err.Error(), "Nonsense") {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Migrate(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
