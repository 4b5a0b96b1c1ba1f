package archive

import (
	"fmt"
	"strings"
	"testing"

	"vendorapi/internal/testenv/testserver"
)

// A database goes from test to test.
func TestNewArchive_HasAnEmptyDatabaseAsMigrated(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	pool := t.TempDir() // nobody else's, so that the database that was returned is the one that is given
	newArchive := func(t *testing.T) *Archive {
		return open(t, e, e.NewMigratedDatabaseFrom(t, pool, func(database string) error { return migrateIn(e, database) }))
	}
	var used, changed string

	t.Run("used", func(t *testing.T) {
		used = newArchive(t).database
		for _, table := range tablesWithRows(t, e, used) {
			e.Exec(t, fmt.Sprintf("INSERT INTO %s.%s SELECT * FROM generateRandom() LIMIT 2", used, table))
		}
	})

	t.Run("given again", func(t *testing.T) {
		changed = newArchive(t).database
		if changed != used {
			t.Errorf("%s was given, not %s, which was returned", changed, used)
		}

		for _, table := range tablesWithRows(t, e, changed) {
			count := e.Exec(t, fmt.Sprintf("SELECT count() FROM %s.%s", changed, table))
			if count != "0\n" {
				t.Errorf("%s has %s rows", table, count)
			}
		}

		e.Exec(t, fmt.Sprintf("DROP VIEW %s.batch_days", changed))
	})

	t.Run("not given again", func(t *testing.T) {
		other := newArchive(t).database
		if other == changed {
			t.Errorf("%s was given again, whose schema has changed", other)
		}
	})
}

// tablesWithRows returns the names of a database's tables, but for the one that says what was migrated.
func tablesWithRows(t *testing.T, e *testserver.ClickHouse, database string) []string {
	t.Helper()
	names := strings.Fields(e.Exec(t, fmt.Sprintf(
		"SELECT name FROM system.tables WHERE database = '%s' AND engine LIKE '%%MergeTree' AND name != 'schema_migrations'", database)))
	if len(names) < 5 {
		t.Fatalf("only the tables %q were found", names)
	}
	return names
}
