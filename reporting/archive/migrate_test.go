package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// ordersEnd is how many files make what batchOf goes into.
const ordersEnd = 1

// firstFiles is a schema that ends after some of its files and has no views.
func firstFiles(s *schema, n int) *schema {
	return &schema{files: s.files[:n], views: &migration{name: viewsName}}
}

func TestMigrate_FromEveryEarlierState(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	files := len(own(t).files)
	for n := range files + 1 {
		if !testserver.Long && n != ordersEnd {
			continue
		}

		a := open(t, e, e.NewDatabase(t))
		s := ownOf(t, a)
		o := newOrder(account(1), n, noon, toDelivered...)
		if n > 0 {
			applied, err := a.migrate(t.Context(), firstFiles(s, n))
			if err != nil || len(applied) != n {
				t.Fatalf("%d of %d files: %v %v", len(applied), n, applied, err)
			}
		}

		if n >= ordersEnd {
			noError(t, a.Insert(t.Context(), batchOf(o)))
		}

		applied, err := a.Migrate(t.Context())
		if err != nil || len(applied) != files-n+1 || applied[len(applied)-1] != viewsName {
			t.Errorf("from %d files, %d were applied: %v %v", n, len(applied), applied, err)
		}
		applied, err = a.Migrate(t.Context())
		if err != nil || len(applied) != 0 {
			t.Errorf("from %d files, then %v was applied: %v", n, applied, err)
		}

		if n >= ordersEnd {
			requireStored(t, a, noon, noon, o)
		}

		requireOwnViews(t, a)
		recorded := one[string](t, a, "SELECT arrayStringConcat(groupArray(name), ' ') FROM (SELECT name FROM schema_migrations FINAL ORDER BY applied_at, version)")
		var names []string
		for _, f := range s.files {
			names = append(names, f.name)
		}

		if recorded != strings.Join(append(names, viewsName), " ") {
			t.Errorf("recorded: %s", recorded)
		}
	}
}

// A crash after any statement, recorded or not: the next run goes on. In the gate
// it is after the last, and none is recorded, so that each is run again.
func TestMigrate_AfterACrashBetweenStatements(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	total := 0
	for _, m := range own(t).all() {
		total += len(m.statements())
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
		for _, m := range ownOf(t, a).all() {
			statements := m.statements()
			for _, s := range statements[:min(left, len(statements))] {
				noError(t, a.exec(t.Context(), s))
			}
			if left > len(statements) && crash < total {
				noError(t, a.record(t.Context(), m))
			}
			left = max(left-len(statements), 0)
		}

		if _, err := a.Migrate(t.Context()); err != nil {
			t.Errorf("after a crash at statement %d: %v", crash, err)
		}

		o := newOrder(account(1), 1, noon)
		noError(t, a.Insert(t.Context(), batchOf(o)))
		requireStored(t, a, noon, noon, o)
		requireOwnViews(t, a)
	}
}

// A process looks what is missing, another one makes all of it, and then the first one makes some
// of it and is killed. Nothing is missing then, and the views are those of a database that one
// process made.
func TestMigrate_TheSlowerOfTwoIsKilled(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	s := ownOf(t, a)
	_, err := a.Migrate(t.Context())
	noError(t, err)
	views := viewsOf(t, a)

	for _, m := range s.all() {
		for _, p := range m.parts {
			noError(t, a.run(t.Context(), p))
			if got := viewsOf(t, a); got != views {
				t.Errorf("killed after %s, the slower one has left other views", p.file)
			}
			if applied, err := a.Migrate(t.Context()); err != nil || len(applied) != 0 {
				t.Errorf("killed after %s: then %v was applied: %v", p.file, applied, err)
			}
		}
	}

	requireOwnViews(t, a)
}

// The slower one stops as soon as the other one has done it all.
func TestMigrate_LooksAgainBeforeEachFile(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	noError(t, a.makeDatabase(t.Context()))
	views := &migration{version: viewsRelease, name: viewsName, checksum: "both have this", parts: []part{
		{"views/first.sql", []string{"INSERT INTO schema_migrations SELECT " + fmt.Sprint(viewsRelease) + ", 'views', 'both have this', now64(3)"}}, // as the other process does
		{"views/second.sql", []string{"CREATE VIEW second AS SELECT 1"}},
	}}

	applied, err := a.migrate(t.Context(), &schema{views: views})
	if err != nil || len(applied) != 0 {
		t.Error(applied, err)
	}
	if n := one[uint64](t, a, "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'second'"); n != 0 {
		t.Error("it went on with the second file")
	}
}

// Of several at once, one that is killed at any moment leaves what the others end.
func TestMigrate_OneOfSeveralIsKilled(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	rounds := 1
	if testserver.Long {
		rounds = 30
	}

	for round := range rounds {
		database := e.NewDatabase(t)
		var running sync.WaitGroup
		for i := range 3 {
			a := open(t, e, database)
			running.Go(func() {
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				if i == 0 {
					time.AfterFunc(time.Duration((round+1)*97%1000)*time.Millisecond, kill)
				}

				if _, err := a.Migrate(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
		}

		running.Wait()
		a := open(t, e, database)
		requireOwnViews(t, a)
		noError(t, a.Check(t.Context()))
	}
}

// later is a schema of a later release: files more, and views whose release number is higher.
func later(s *schema, files []*migration, views *migration) *schema {
	return &schema{files: append(slices.Clone(s.files), files...), views: views}
}

// changedViews is a set of views of a release in which order_ledger is another one.
func changedViews(release uint32) *migration {
	return &migration{version: release, name: viewsName, checksum: fmt.Sprintf("of release %d", release), parts: []part{{"views/changed.sql", []string{
		fmt.Sprintf("CREATE OR REPLACE VIEW order_ledger AS SELECT %d AS release", release),
	}}}}
}

// The way back from a release that added a table, a column and a column of a view.
func TestMigrate_ToleratesWhatANewerProgramAdded(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	database := e.NewDatabase(t)
	newer := open(t, e, database)
	s := ownOf(t, newer)
	next, err := newer.newNumbered(len(s.files)+1, "9999_next.sql", `
CREATE TABLE IF NOT EXISTS next_release (account_id UUID) ENGINE = MergeTree ORDER BY account_id;
ALTER TABLE orders ADD COLUMN IF NOT EXISTS next_release LowCardinality(String);
ALTER TABLE order_events ADD COLUMN IF NOT EXISTS next_release UInt64;
`)

	noError(t, err)
	_, err = newer.Migrate(t.Context())
	noError(t, err)
	if applied, err := newer.migrate(t.Context(), later(s, []*migration{next}, changedViews(viewsRelease+1))); err != nil || len(applied) != 2 {
		t.Fatal(applied, err)
	}

	a := open(t, e, database)
	if applied, err := a.Migrate(t.Context()); err != nil || len(applied) != 0 {
		t.Fatal(applied, err)
	}

	o := newOrder(account(1), 1, noon)
	noError(t, a.Insert(t.Context(), batchOf(o)))
	requireStored(t, a, noon, noon, o)
	if got := one[uint8](t, a, "SELECT release FROM order_ledger"); got != viewsRelease+1 {
		t.Errorf("the view is that of release %d", got)
	}
}

func TestMigrate_WhoseViewsAreReplaced(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	one := &migration{version: 1, name: "0001_one.sql", checksum: "one"}
	two := &migration{version: 2, name: "0002_two.sql", checksum: "two"}
	files := []*migration{one}
	now := &migration{version: 5, name: viewsName, checksum: "now"}
	for name, c := range map[string]struct {
		recorded []*migration // in this order
		replaced bool
		newer    bool // an error
	}{
		"none":                         {[]*migration{one}, true, false},
		"its own":                      {[]*migration{one, now}, false, false},
		"an earlier release's":         {[]*migration{one, {version: 4, name: viewsName, checksum: "then"}}, true, false},
		"others of its own release":    {[]*migration{one, {version: 5, name: viewsName, checksum: "other"}}, true, false},
		"its own, then others":         {[]*migration{one, now, {version: 5, name: viewsName, checksum: "other"}}, true, false},
		"others, then its own":         {[]*migration{one, {version: 5, name: viewsName, checksum: "other"}, now}, false, false},
		"its own, others, its own":     {[]*migration{one, now, {version: 5, name: viewsName, checksum: "other"}, now}, false, false},
		"a later release's":            {[]*migration{one, now, {version: 6, name: viewsName, checksum: "next"}}, false, false},
		"a later one's, then its own":  {[]*migration{one, {version: 6, name: viewsName, checksum: "next"}, now}, false, false},
		"its own and a later file":     {[]*migration{one, now, two}, false, false},
		"none and a later file":        {[]*migration{one, two}, false, true},
		"an earlier one's, later file": {[]*migration{one, {version: 4, name: viewsName, checksum: "then"}, two}, false, true},
	} {
		a := open(t, e, e.NewDatabase(t))
		noError(t, a.makeDatabase(t.Context()))
		for _, m := range c.recorded {
			noError(t, a.record(t.Context(), m))
			time.Sleep(5 * time.Millisecond) // the last one counts
		}

		_, missing, err := a.look(t.Context(), &schema{files: files, views: now})
		if slices.Contains(missing, now) != c.replaced || errors.Is(err, errNewer) != c.newer || err != nil && !c.newer {
			t.Errorf("%s: %d are missing: %v", name, len(missing), err)
		}
	}
}

// A release that has other views replaces those of the one before, once.
func TestMigrate_ReplacesChangedViews(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	s := ownOf(t, a)
	for _, views := range []*migration{s.views, changedViews(viewsRelease), s.views} { // a developer's way there and back
		applied, err := a.migrate(t.Context(), later(s, nil, views))
		if err != nil || !slices.Contains(applied, viewsName) {
			t.Error(applied, err)
		}
		if applied, err := a.migrate(t.Context(), later(s, nil, views)); err != nil || len(applied) != 0 {
			t.Error(applied, err)
		}
	}

	requireOwnViews(t, a)
}

func TestMigrate_RefusesWhatItCannotKnow(t *testing.T) {
	t.Parallel()

	files := own(t).files
	changed := *files[1]
	changed.checksum = digest("changed")
	for _, c := range []struct {
		want   string
		newer  bool
		record *migration
	}{
		{want: "made by a newer program", newer: true, record: &migration{version: uint32(len(files) + 1), name: "9999_contract_orders.sql"}},
		{want: files[1].name + " has been changed since it was applied", record: &changed},
		{want: "has the number 0", record: &migration{version: 0, name: "0000_none.sql"}},
	} {
		e := testserver.SharedClickHouse(t)
		a := open(t, e, e.NewDatabase(t))
		noError(t, a.makeDatabase(t.Context()))
		noError(t, a.record(t.Context(), c.record))
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
	if _, err := a.checkLayout(t.Context()); err == nil || !strings.Contains(err.Error(), "was made for a single server, the settings name cluster main") {
		t.Error(err)
	}
}

func TestMigrate_SaysWhatFailed(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	err := a.run(t.Context(), part{"0001_bad.sql", []string{"SELECT 1", "CREATE TABLE x (a Nonsense) ENGINE = Memory"}})
	if err == nil || !strings.Contains(err.Error(), "schema 0001_bad.sql") || !strings.Contains(err.Error(), "Nonsense") {
		t.Error(err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Migrate(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
