package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// databasePool returns the folder of the run's pool of databases, which all of its test binaries share. A database
// that is free has a file with its name there, test_…, which holds what describeSchema said after its migration. A
// test takes the database by renaming that file to taken_…: of several only one succeeds. To migrate a database takes
// seconds of a processor, to empty it a tenth of that.
var databasePool = shared(databasesVariable, func(dir string) (string, func() error, error) {
	return dir, func() error { return nil }, os.Mkdir(dir, 0o700)
})

type migratedDatabase struct {
	name   string
	schema string // what describeSchema said after the migration
}

// NewMigratedDatabase returns the name of an empty database of the shared engine that has every table and view. Every
// caller in a run, in whichever package, must pass a migrate that makes the same schema, because a later test may
// get the database without calling its own. When the test has ended, the database is emptied for another one, unless
// the test has changed its schema. Nobody may write to it by then: another test would find the rows.
func (c *ClickHouse) NewMigratedDatabase(t testing.TB, migrate func(database string) error) string {
	t.Helper()
	pool, err := databasePool()
	must(t, err)
	return c.NewMigratedDatabaseFrom(t, pool, migrate)
}

// NewMigratedDatabaseFrom is NewMigratedDatabase with a pool of the caller's, a folder.
func (c *ClickHouse) NewMigratedDatabaseFrom(t testing.TB, pool string, migrate func(database string) error) string {
	t.Helper()
	db, found := takeFromPool(t, pool)
	if !found {
		db.name = DatabaseName()
		must(t, migrate(db.name))
		db.schema = describeSchema(t, c, db.name)
	}

	t.Cleanup(func() {
		if describeSchema(t, c, db.name) != db.schema {
			c.DropDatabase(t, db.name)
			return
		}
		truncateTables(t, c, db.name)
		giveToPool(t, pool, db)
	})

	return db.name
}

// takeFromPool takes a database out of a pool, if it has one.
func takeFromPool(t testing.TB, pool string) (db migratedDatabase, found bool) {
	t.Helper()
	free, err := filepath.Glob(filepath.Join(pool, "test_*"))
	must(t, err)

	for _, file := range free {
		name := filepath.Base(file)
		taken := filepath.Join(pool, "taken_"+name)
		err = os.Rename(file, taken)
		if os.IsNotExist(err) {
			continue // another test has it
		}

		must(t, err)

		schema, err := os.ReadFile(taken)
		must(t, err)

		return migratedDatabase{name: name, schema: string(schema)}, true
	}

	return migratedDatabase{}, false
}

// giveToPool returns a database to a pool. It must be empty, and have the schema db.schema.
func giveToPool(t testing.TB, pool string, db migratedDatabase) {
	t.Helper()
	taken := filepath.Join(pool, "taken_"+db.name)
	must(t, os.WriteFile(taken, []byte(db.schema), 0o600))
	must(t, os.Rename(taken, filepath.Join(pool, db.name)))
}

// describeSchema returns a digest of a database's tables and views, of its views for finance, and of what
// schema_migrations says. It is another one when a table or a view was created, dropped or replaced, and when a
// table was altered. It is no number if there is no such database.
func describeSchema(t testing.TB, c *ClickHouse, database string) string {
	t.Helper()
	exists := c.Exec(t, fmt.Sprintf("EXISTS TABLE %s.schema_migrations", database))
	if exists != "1\n" {
		return "none"
	}

	// A view that is replaced gets another UUID. The engine takes long to write the definitions of views.
	return c.Exec(t, fmt.Sprintf(`SELECT
		(SELECT sum(cityHash64(database, name, uuid)) FROM system.tables WHERE database IN ('%[1]s', '%[1]s_finance')),
		(SELECT sum(cityHash64(name, create_table_query)) FROM system.tables WHERE database = '%[1]s' AND engine != 'View'),
		(SELECT sum(cityHash64(*)) FROM %[1]s.schema_migrations)`, database))
}

// truncateTables removes every row but those of schema_migrations.
func truncateTables(t testing.TB, c *ClickHouse, database string) {
	t.Helper()
	c.Exec(t, fmt.Sprintf("TRUNCATE TABLES FROM %s NOT LIKE 'schema_migrations'", database))
}
