package archiveenv

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// databasePool holds migrated, empty databases of the shared ClickHouse that earlier tests of this
// process have left. To migrate one takes several times as long as to empty it.
var databasePool struct {
	sync.Mutex
	free []migratedDatabase
}

type migratedDatabase struct {
	name   string
	schema string // what describeSchema said after the migration
}

// newMigratedDatabase returns the name of an empty database that has every table and view. When the
// test has ended, the database is emptied for another one, unless the test has changed its schema.
func newMigratedDatabase(t *testing.T, c *testserver.ClickHouse) string {
	t.Helper()
	db, found := takeFromPool()
	if !found {
		db = migrateNewDatabase(t, c)
	}

	t.Cleanup(func() {
		if describeSchema(t, c, db.name) != db.schema {
			c.DropDatabase(t, db.name)
			return
		}
		truncateTables(t, c, db.name)
		giveToPool(db)
	})
	return db.name
}

func takeFromPool() (db migratedDatabase, found bool) {
	databasePool.Lock()
	defer databasePool.Unlock()

	last := len(databasePool.free) - 1
	if last < 0 {
		return migratedDatabase{}, false
	}
	db = databasePool.free[last]
	databasePool.free = databasePool.free[:last]
	return db, true
}

func giveToPool(db migratedDatabase) {
	databasePool.Lock()
	defer databasePool.Unlock()
	databasePool.free = append(databasePool.free, db)
}

func migrateNewDatabase(t *testing.T, c *testserver.ClickHouse) migratedDatabase {
	t.Helper()
	db := migratedDatabase{name: testserver.DatabaseName()}
	a, err := archive.Open(archive.Settings{URL: c.URL, Database: db.name, BooksKeys: BooksKeys})
	testenv.Must(t, err)
	defer func() { _ = a.Close() }() // every statement has been answered

	_, err = a.Migrate(t.Context())
	testenv.Must(t, err)
	db.schema = describeSchema(t, c, db.name)
	return db
}

// describeSchema returns a digest of the definitions of a database's tables and views, of its views
// for finance, and of what schema_migrations says. It is no number if there is no such database.
func describeSchema(t *testing.T, c *testserver.ClickHouse, database string) string {
	t.Helper()
	exists := c.Exec(t, fmt.Sprintf("EXISTS TABLE %s.schema_migrations", database))
	if exists != "1\n" {
		return "none"
	}
	return c.Exec(t, fmt.Sprintf(`SELECT
		(SELECT sum(cityHash64(database, name, create_table_query)) FROM system.tables WHERE database IN ('%[1]s', '%[1]s_finance')),
		(SELECT sum(cityHash64(*)) FROM %[1]s.schema_migrations)`, database))
}

// truncateTables removes every row but those of schema_migrations.
func truncateTables(t *testing.T, c *testserver.ClickHouse, database string) {
	t.Helper()
	tables := c.Exec(t, fmt.Sprintf("SELECT DISTINCT table FROM system.parts WHERE database = '%s' AND active AND table != 'schema_migrations'", database))
	for _, table := range strings.Fields(tables) {
		c.Exec(t, fmt.Sprintf("TRUNCATE TABLE %s.%s", database, table))
	}
}
