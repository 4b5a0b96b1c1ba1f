package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// databasePool is the folder of the pool: migrated, empty databases of the shared ClickHouse that
// earlier tests of the run have left, those of other packages too. Each is a file with its name,
// which holds what describeSchema said after the migration. Who renames the file has the database.
// To migrate one takes several seconds of a processor, to empty it a tenth of that.
var databasePool = shared(databasesVariable, func(dir string) (string, func() error, error) {
	return dir, func() error { return nil }, os.Mkdir(dir, 0o700)
})

type migratedDatabase struct {
	name   string
	schema string // what describeSchema said after the migration
}

// NewMigratedDatabase returns the name of an empty database of the shared engine that has every table and view. All
// callers in a run give a migrate that makes the same of them. When the test has ended, the database is emptied
// for another one, unless the test has changed its schema.
func (c *ClickHouse) NewMigratedDatabase(t testing.TB, migrate func(database string) error) string {
	t.Helper()
	pool, err := databasePool()
	must(t, err)

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

// takeFromPool takes a database out of the pool, if it has one. No other process can take the same:
// only one of them succeeds in renaming its file.
func takeFromPool(t testing.TB, pool string) (db migratedDatabase, found bool) {
	t.Helper()
	free, err := filepath.Glob(filepath.Join(pool, "test_*"))
	must(t, err)

	for _, file := range free {
		taken := filepath.Join(pool, "taken_"+filepath.Base(file))
		err := os.Rename(file, taken)
		if os.IsNotExist(err) {
			continue // another test has it
		}
		must(t, err)
		schema, err := os.ReadFile(taken)
		must(t, err)
		return migratedDatabase{name: filepath.Base(file), schema: string(schema)}, true
	}
	return migratedDatabase{}, false
}

// giveToPool puts a database into the pool, which is empty and has the schema that it had.
func giveToPool(t testing.TB, pool string, db migratedDatabase) {
	t.Helper()
	taken := filepath.Join(pool, "taken_"+db.name)
	must(t, os.WriteFile(taken, []byte(db.schema), 0o600))
	must(t, os.Rename(taken, filepath.Join(pool, db.name)))
}

// describeSchema returns a digest of a database's tables and views, of its views for finance, and of what
// schema_migrations says. It changes with each statement that changes a definition: one that replaces a
// table or a view gives it another UUID, and one that alters it writes its file. It is no number if there
// is no such database.
func describeSchema(t testing.TB, c *ClickHouse, database string) string {
	t.Helper()
	exists := c.Exec(t, fmt.Sprintf("EXISTS TABLE %s.schema_migrations", database))
	if exists != "1\n" {
		return "none"
	}
	return c.Exec(t, fmt.Sprintf(`SELECT
		(SELECT sum(cityHash64(database, name, uuid, metadata_modification_time)) FROM system.tables WHERE database IN ('%[1]s', '%[1]s_finance')),
		(SELECT sum(cityHash64(*)) FROM %[1]s.schema_migrations)`, database))
}

// truncateTables removes every row but those of schema_migrations.
func truncateTables(t testing.TB, c *ClickHouse, database string) {
	t.Helper()
	c.Exec(t, fmt.Sprintf("TRUNCATE TABLES FROM %s NOT LIKE 'schema_migrations'", database))
}
