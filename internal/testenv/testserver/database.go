package testserver

import (
	"fmt"
	"strings"
	"sync"
	"testing"
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

// NewMigratedDatabase returns the name of an empty database of the shared engine that has every table and view. All
// callers in a process give a migrate that makes the same of them. When the test has ended, the database is emptied
// for another one, unless the test has changed its schema.
func (c *ClickHouse) NewMigratedDatabase(t testing.TB, migrate func(database string) error) string {
	t.Helper()
	db, found := takeFromPool()
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

// describeSchema returns a digest of the definitions of a database's tables and views, of its views
// for finance, and of what schema_migrations says. It is no number if there is no such database.
func describeSchema(t testing.TB, c *ClickHouse, database string) string {
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
func truncateTables(t testing.TB, c *ClickHouse, database string) {
	t.Helper()
	tables := c.Exec(t, fmt.Sprintf("SELECT DISTINCT table FROM system.parts WHERE database = '%s' AND active AND table != 'schema_migrations'", database))
	for _, table := range strings.Fields(tables) {
		c.Exec(t, fmt.Sprintf("TRUNCATE TABLE %s.%s", database, table))
	}
}
