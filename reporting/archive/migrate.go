package archive

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Migrate makes the database and brings its schema up to date. It returns the names of the
// files that it applied. After an error or a crash at any moment it can be called again;
// two processes may call it at once. Files of a newer program stay as they are: what they
// added is of no concern here. It changes nothing when one of them took something away
// (contracts), or when the database was made by other files.
func (a *Archive) Migrate(ctx context.Context) (applied []string, err error) {
	files, err := readMigrations()
	if err != nil {
		return nil, err
	}
	return a.migrate(ctx, files)
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
	if err := a.execOn(ctx, a.server, fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %s %s", a.database, a.onCluster())); err != nil {
		return err
	}
	return a.exec(ctx, a.migrationsTable())
}

func (l layout) migrationsTable() string {
	return "CREATE TABLE IF NOT EXISTS schema_migrations " + l.onCluster() + `
(
    version UInt32,
    name String,
    sha256 String,
    applied_at DateTime64(3, 'Etc/GMT-3')
)
ENGINE = ` + l.engine("Replacing", "all", "schema_migrations", "{shard}_{replica}", "") + `
ORDER BY (version, sha256)`
}

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
	case replicated && a.cluster == "":
		return fmt.Errorf("database %s of clickhouse at %s was made for a cluster: name it in the settings", a.database, a.address)
	case !replicated && a.cluster != "":
		return fmt.Errorf("database %s of clickhouse at %s was made for a single server, the settings name cluster %s", a.database, a.address, a.cluster)
	}
	return nil
}

// errNewer says that the database lacks what this program needs.
var errNewer = errors.New("it was made by a newer program")

// contracts is in the name of a file that takes away what the release before its own still
// uses: a table, a column, a column of a view. Every other file only adds.
const contracts = "_contract_"

func compare(files []migration, known map[uint32]appliedFile) error {
	for version, f := range known {
		switch {
		case int(version) > len(files) && strings.Contains(f.name, contracts):
			return fmt.Errorf("%w: %s is applied, this one ends with number %d", errNewer, f.name, len(files))
		case int(version) > len(files):
			continue
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
	statements, err := a.statements(m)
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

//go:embed schema/*.sql
var schemaFiles embed.FS

type migration struct {
	version uint32
	name    string // of the file
	source  string
}

func (m *migration) checksum() string {
	sum := sha256.Sum256([]byte(m.source))
	return hex.EncodeToString(sum[:])
}

// readMigrations reads the files by their names, 0001_name.sql and so on without a gap.
func readMigrations() (found []migration, err error) {
	entries, err := schemaFiles.ReadDir("schema")
	for i, e := range entries {
		if !strings.HasPrefix(e.Name(), fmt.Sprintf("%04d_", i+1)) {
			return nil, fmt.Errorf("schema: %q has the place of number %d", e.Name(), i+1)
		}
		source, err := schemaFiles.ReadFile("schema/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		found = append(found, migration{version: uint32(i + 1), name: e.Name(), source: string(source)})
	}
	return found, err
}

// layout is where tables are: on a single server or in a cluster.
type layout struct{ database, cluster string }

// local is the table that holds rows: orders, orders_local in a cluster.
func (l layout) local(table string) string {
	if l.cluster == "" {
		return table
	}
	return table + "_local"
}

// physical is the table that holds the rows of t: one that all servers share is not distributed.
func (l layout) physical(t *table) string {
	if t == seals || t == reconciledDays || t == deliveries {
		return t.name
	}
	return l.local(t.name)
}

func (l layout) onCluster() string {
	if l.cluster == "" {
		return ""
	}
	return "ON CLUSTER '" + l.cluster + "'"
}

// replacing is the engine: rows of one key replace each other, the highest
// version stays.
func (l layout) replacing(table, version string) string {
	return l.engine("Replacing", "{shard}", l.local(table), "{replica}", version)
}

// appended is the engine of a table whose rows are only ever added.
func (l layout) appended(table string) string {
	return l.engine("", "{shard}", l.local(table), "{replica}", "")
}

// shared is the same for a small table that every server of a cluster has whole.
func (l layout) shared(table string) string {
	return l.engine("", "all", table, "{shard}_{replica}", "")
}

func (l layout) engine(kind, shard, table, replica, version string) string {
	switch {
	case l.cluster == "" && kind == "":
		return "MergeTree"
	case l.cluster == "":
		return kind + "MergeTree(" + version + ")"
	case version != "":
		version = ", " + version
	}
	return fmt.Sprintf("Replicated%sMergeTree('/clickhouse/tables/%s/%s/%s', '%s'%s)", kind, shard, l.database, table, replica, version)
}

// durability are the settings of a table that holds rows. An answered insert outlives a
// power cut: its parts, and those that they are merged into, are on the disk before.
//
// A replicated table recognises repeated inserts; it records an insert and its part in one
// transaction. A single server must not: it writes the record first, and after a kill
// before the part it would drop the repetition that brings it.
func (l layout) durability() string {
	const synced = "fsync_after_insert = 1, fsync_part_directory = 1, min_compressed_bytes_to_fsync_after_merge = 1"
	if l.cluster == "" {
		return "non_replicated_deduplication_window = 0, " + synced
	}
	return "replicated_deduplication_window = 1000, " + synced
}

// distributed is the table through which a cluster is read and written. It spreads by
// account: versions of an order replace each other only on one shard.
func (l layout) distributed(table string) string {
	if l.cluster == "" {
		return ""
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s %s AS %s\nENGINE = Distributed('%s', '%s', '%s', cityHash64(account_id))",
		table, l.onCluster(), l.local(table), l.cluster, l.database, l.local(table))
}

var comment, semicolon = regexp.MustCompile(`(?m)^[ \t]*--.*\n?`), regexp.MustCompile(`(?m);[ \t\r]*$`)

// statements are a file's in a layout. Each ends with a semicolon at the end of a line;
// lines that begin with -- are comments.
func (l layout) statements(m *migration) ([]string, error) {
	parsed, err := template.New(m.name).Funcs(template.FuncMap{
		"local": l.local, "onCluster": l.onCluster, "replacing": l.replacing, "appended": l.appended, "shared": l.shared, "durability": l.durability, "distributed": l.distributed,
		"database": func() string { return "`" + l.database + "`" }, // for a view that calls another one with parameters
	}).Option("missingkey=error").Parse(m.source)
	var rendered strings.Builder
	if err == nil {
		err = parsed.Execute(&rendered, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	all := semicolon.Split(comment.ReplaceAllString(rendered.String(), ""), -1)
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	if rest := all[len(all)-1]; rest != "" {
		return nil, fmt.Errorf("schema: %s: no semicolon after %.40q", m.name, rest)
	}
	return slices.DeleteFunc(all, func(statement string) bool { return statement == "" }), nil
}
