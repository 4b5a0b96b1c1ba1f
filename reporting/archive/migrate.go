package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Migrate makes the database and brings its schema up to date. It returns the names of the
// files that it applied. After an error or a crash at any moment it can be called again;
// two processes may call it at once. It changes nothing when the database was made by a
// newer program or by other files.
func (a *Archive) Migrate(ctx context.Context) (applied []string, err error) {
	files, err := readMigrations(schemaFiles, "schema")
	if err != nil {
		return nil, err
	}
	return a.migrate(ctx, files)
}

func (a *Archive) layout() layout {
	return layout{database: a.database, cluster: a.settings.Cluster}
}

func (a *Archive) migrate(ctx context.Context, files []migration) (applied []string, err error) {
	if err := a.makeDatabase(ctx); err != nil {
		return nil, err
	}
	known, err := a.appliedFiles(ctx)
	if err != nil {
		return nil, err
	}
	if err := compare(files, known); err != nil {
		return nil, fmt.Errorf("database %s of clickhouse at %s: %w", a.database, a.address, err)
	}
	for i := range files {
		if _, done := known[files[i].version]; done {
			continue
		}
		if err := a.apply(ctx, &files[i]); err != nil {
			return applied, err
		}
		applied = append(applied, files[i].name)
	}
	return applied, nil
}

// makeDatabase makes the database and the table of what was applied, whose rows all
// servers of a cluster share.
func (a *Archive) makeDatabase(ctx context.Context) error {
	l := a.layout()
	statement := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %s %s", a.database, l.onCluster())
	if err := a.server.Exec(ctx, statement); err != nil {
		return a.fault(ctx, firstWords(statement), err)
	}
	return a.exec(ctx, l.migrationsTable())
}

func (l layout) migrationsTable() string {
	engine := "ReplacingMergeTree"
	if l.cluster != "" {
		engine = fmt.Sprintf("ReplicatedReplacingMergeTree('/clickhouse/tables/all/%s/schema_migrations', '{shard}_{replica}')", l.database)
	}
	return "CREATE TABLE IF NOT EXISTS schema_migrations " + l.onCluster() + `
(
    version UInt32,
    name String,
    sha256 String,
    applied_at DateTime64(3, 'Etc/GMT-3')
)
ENGINE = ` + engine + `
ORDER BY (version, sha256)`
}

// appliedFile is a row of schema_migrations.
type appliedFile struct{ name, checksum string }

func (a *Archive) appliedFiles(ctx context.Context) (map[uint32]appliedFile, error) {
	if err := a.checkLayout(ctx); err != nil {
		return nil, err
	}
	known := map[uint32]appliedFile{}
	err := a.Each(ctx, "SELECT version, name, sha256 FROM schema_migrations ORDER BY version, applied_at DESC", func(rows driver.Rows) error {
		var version uint32
		var f appliedFile
		if err := rows.Scan(&version, &f.name, &f.checksum); err != nil {
			return err
		}
		if other, twice := known[version]; twice && other != f {
			return fmt.Errorf("database %s of clickhouse at %s: number %d was applied as %s and as %s, whose contents differ",
				a.database, a.address, version, f.name, other.name)
		}
		known[version] = f
		return nil
	})
	return known, err
}

// checkLayout refuses a single server's database when the settings name a cluster, and the
// other way round: its tables are others.
func (a *Archive) checkLayout(ctx context.Context) error {
	var replicated bool
	row := a.conn.QueryRow(ctx, "SELECT engine LIKE 'Replicated%' FROM system.tables WHERE database = {database:String} AND name = 'schema_migrations'",
		clickhouse.Named("database", a.database))
	if err := row.Scan(&replicated); err != nil {
		return a.fault(ctx, "reading system.tables", err)
	}
	switch {
	case replicated && a.settings.Cluster == "":
		return fmt.Errorf("database %s of clickhouse at %s was made for a cluster: name it in the settings", a.database, a.address)
	case !replicated && a.settings.Cluster != "":
		return fmt.Errorf("database %s of clickhouse at %s was made for a single server, the settings name cluster %s", a.database, a.address, a.settings.Cluster)
	}
	return nil
}

// errNewer says that the database has files that this program lacks.
var errNewer = errors.New("it was made by a newer program")

// compare checks what was applied against what this program has.
func compare(files []migration, known map[uint32]appliedFile) error {
	for version, f := range known {
		switch {
		case int(version) > len(files):
			return fmt.Errorf("%w: %s is applied, this one ends with number %d", errNewer, f.name, len(files))
		case version == 0:
			return fmt.Errorf("%s has the number 0", f.name)
		}
		if file := &files[version-1]; file.checksum() != f.checksum {
			return fmt.Errorf("%s has been changed since it was applied as %s (SHA-256 %s, was %s): a file that was applied is never edited, a new one is added",
				file.name, f.name, file.checksum(), f.checksum)
		}
	}
	return nil
}

// apply runs a file's statements, which may have been run before, and records it.
func (a *Archive) apply(ctx context.Context, m *migration) error {
	statements, err := a.layout().statements(m)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if err := a.exec(ctx, statement); err != nil {
			return fmt.Errorf("schema %s: %w", m.name, err)
		}
	}
	return a.exec(ctx, "INSERT INTO schema_migrations SELECT {version:UInt32}, {name:String}, {sha256:String}, now64(3)",
		clickhouse.Named("version", m.version), clickhouse.Named("name", m.name), clickhouse.Named("sha256", m.checksum()))
}
