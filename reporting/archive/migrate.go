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

// The schema is two things.
//
// Numbered files (schema/NNNN_name.sql) make tables. One that was applied is never edited; a new
// one is added. Files only add; one that takes something away has _contract_ in its name.
//
// Views (views/*.sql) are each defined once, in their present form. They are replaced as a set,
// whenever the digest of the set's SQL is not the one that was recorded last.
//
// The table schema_migrations records both, so one look tells what is missing. A row is written
// after all statements that it stands for, and each statement may be run again: what dies half
// way is done again from its beginning.
//
// A program leaves the views of a newer release alone. There are some when a numbered file is
// recorded that the program does not have, or a set of views with a release number that is higher
// than its own viewsRelease. Otherwise it replaces what is not its own. Two programs of one
// release write the same views, so they may do it at once, and it does not matter which of them
// dies when. Programs of two releases look again before each file; callers keep them apart (see
// ledger.Alone).

// viewsRelease is the release number of the views. Each change of them raises it (a test compares
// their digest), so that a program of the release before leaves the new ones alone.
const viewsRelease = 1

// Migrate makes the database and brings its schema up to date. It returns the names of what
// it applied. After an error or a crash at any moment it can be called again;
// two processes may call it at once. Files of a newer program stay as they are: what they
// added is of no concern here. It changes nothing when one of them took something away
// (contracts), or when the database was made by other files.
//
// It looks first, and runs no statement that changes the schema when nothing is missing.
func (a *Archive) Migrate(ctx context.Context) (applied []string, err error) {
	own, err := a.readSchema()
	if err != nil {
		return nil, err
	}
	return a.migrate(ctx, own)
}

// ErrIncomplete reports that something is missing in the database, which `reporting migrate` makes.
var ErrIncomplete = errors.New("it is not complete: run `reporting migrate`")

// Check is nil when nothing is missing that Migrate makes, and otherwise wraps ErrIncomplete. It
// changes nothing.
func (a *Archive) Check(ctx context.Context) error {
	own, err := a.readSchema()
	if err != nil {
		return err
	}
	_, missing, err := a.look(ctx, own)
	if err != nil || len(missing) == 0 {
		return err
	}

	var names []string
	for _, m := range missing {
		names = append(names, m.name)
	}

	return fmt.Errorf("database %s of clickhouse at %s: %w: missing are %s", a.database, a.address, ErrIncomplete, strings.Join(names, ", "))
}

func (a *Archive) migrate(ctx context.Context, s *schema) (applied []string, err error) {
	found, missing, err := a.look(ctx, s)
	if err != nil || len(missing) == 0 {
		return nil, err
	}

	if !found.exists {
		if err := a.makeDatabase(ctx); err != nil {
			return nil, err
		}
	}

	for _, m := range missing {
		done, err := a.apply(ctx, s, m)
		if err != nil {
			return applied, err
		}
		if done {
			applied = append(applied, m.name)
		}
	}

	return applied, nil
}

// look reads what was applied to the database, and returns what is missing in the order in which
// it is to be applied.
func (a *Archive) look(ctx context.Context, s *schema) (found *recorded, missing []*migration, err error) {
	found, err = a.recorded(ctx)
	if err != nil {
		return nil, nil, err
	}
	missing, err = s.missing(found)
	if err != nil {
		return nil, nil, fmt.Errorf("database %s of clickhouse at %s: %w", a.database, a.address, err)
	}
	return found, missing, nil
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
ORDER BY (version, sha256)
COMMENT 'What was applied to this database: one row per numbered file, whose number is version, and one named views per set of views, whose release number is version. The views that were applied last count. Read it with FINAL.'`
}

// recorded is what schema_migrations says was applied.
type recorded struct {
	exists bool // schema_migrations itself

	files map[uint32]appliedFile // by number

	views        appliedFile // that were applied last; zero: none were
	viewsRelease uint32      // the highest release number of views that were applied
}

type appliedFile struct{ name, checksum string }

// recorded reads schema_migrations. A database that is not there yet has nothing.
func (a *Archive) recorded(ctx context.Context) (*recorded, error) {
	found := &recorded{files: map[uint32]appliedFile{}}
	exists, err := a.checkLayout(ctx)
	if err != nil || !exists {
		return found, err
	}

	found.exists = true
	err = a.Each(ctx, "SELECT version, name, sha256 FROM schema_migrations ORDER BY applied_at, version", func(rows driver.Rows) error {
		var version uint32
		var f appliedFile
		if err := rows.Scan(&version, &f.name, &f.checksum); err != nil {
			return err
		}

		if f.name == viewsName {
			found.views = f
			found.viewsRelease = max(found.viewsRelease, version)
			return nil
		}

		if other, twice := found.files[version]; twice && other != f {
			return fmt.Errorf("database %s of clickhouse at %s: number %d was applied as %s and as %s, whose contents differ",
				a.database, a.address, version, f.name, other.name)
		}

		found.files[version] = f

		return nil
	})

	return found, err
}

// checkLayout reports whether schema_migrations exists. It fails for a single server's database
// when the settings name a cluster, and the other way round: its tables are others.
func (a *Archive) checkLayout(ctx context.Context) (exists bool, err error) {
	var tables uint64
	var replicated bool
	row := a.server.QueryRow(ctx, "SELECT count(), max(engine LIKE 'Replicated%') = 1 FROM system.tables WHERE database = {database:String} AND name = 'schema_migrations'",
		clickhouse.Named("database", a.database))
	if err := row.Scan(&tables, &replicated); err != nil {
		return false, a.fault(ctx, "reading system.tables", err)
	}

	switch {
	case tables == 0:
		return false, nil
	case replicated && a.cluster == "":
		return false, fmt.Errorf("database %s of clickhouse at %s was made for a cluster: name it in the settings", a.database, a.address)
	case !replicated && a.cluster != "":
		return false, fmt.Errorf("database %s of clickhouse at %s was made for a single server, the settings name cluster %s", a.database, a.address, a.cluster)
	}

	return true, nil
}

// errNewer says that the database does not have what this program needs, and that this program
// may not change it.
var errNewer = errors.New("it was made by a newer program")

// contracts is in the name of a file that takes away what the release before its own still
// uses: a table, a column, a column of a view. Every other file only adds.
const contracts = "_contract_"

// schema is what a program needs in the database.
type schema struct {
	files []*migration // numbered from 1 without a gap
	views *migration
}

// migration is what is applied and recorded as one.
type migration struct {
	version  uint32 // number of the file; release number of the views
	name     string // of the file; viewsName
	checksum string
	parts    []part
}

// part is a file's statements.
type part struct {
	file       string
	statements []string
}

// missing returns what was not applied, in the order in which it is.
func (s *schema) missing(found *recorded) (missing []*migration, err error) {
	newerFiles := false
	for version, f := range found.files {
		switch {
		case int(version) > len(s.files) && strings.Contains(f.name, contracts):
			return nil, fmt.Errorf("%w: %s is applied, this one ends with number %d", errNewer, f.name, len(s.files))
		case int(version) > len(s.files):
			newerFiles = true
			continue
		case version == 0:
			return nil, fmt.Errorf("%s has the number 0", f.name)
		}

		if file := s.files[version-1]; file.checksum != f.checksum {
			return nil, fmt.Errorf("%s has been changed since it was applied as %s (SHA-256 %s, was %s): a file that was applied is never edited, a new one is added",
				file.name, f.name, file.checksum, f.checksum)
		}
	}

	for _, file := range s.files {
		if _, done := found.files[file.version]; !done {
			missing = append(missing, file)
		}
	}

	switch {
	case found.viewsRelease > s.views.version, found.views.checksum == s.views.checksum:
		return missing, nil
	case newerFiles:
		return nil, fmt.Errorf("%w, which has not made its views yet: run `reporting migrate` of that release", errNewer)
	}

	return append(missing, s.views), nil
}

// apply runs a migration's statements, which may have been run before, and records it. It stops
// and reports false when another process has applied it, or what is newer, in the meantime.
func (a *Archive) apply(ctx context.Context, s *schema, m *migration) (applied bool, err error) {
	for _, p := range m.parts {
		_, missing, err := a.look(ctx, s)
		if err != nil || !slices.Contains(missing, m) {
			return false, err
		}
		if err := a.run(ctx, p); err != nil {
			return false, err
		}
	}

	return true, a.record(ctx, m)
}

func (a *Archive) run(ctx context.Context, p part) error {
	for _, statement := range p.statements {
		if err := a.exec(ctx, statement); err != nil {
			return fmt.Errorf("schema %s: %w", p.file, err)
		}
	}
	return nil
}

func (a *Archive) record(ctx context.Context, m *migration) error {
	return a.exec(ctx, "INSERT INTO schema_migrations SELECT {version:UInt32}, {name:String}, {sha256:String}, now64(3)",
		clickhouse.Named("version", m.version), clickhouse.Named("name", m.name), clickhouse.Named("sha256", m.checksum))
}

//go:embed schema/*.sql views/*.sql
var schemaFiles embed.FS

// viewsName is the name under which views are recorded.
const viewsName = "views"

// readSchema reads the files, as they are in a layout.
func (l layout) readSchema() (*schema, error) {
	files, err := l.readNumbered()
	if err != nil {
		return nil, err
	}
	views, err := l.readViews()
	if err != nil {
		return nil, err
	}
	return &schema{files: files, views: views}, nil
}

// readNumbered reads the numbered files by their names, 0001_name.sql and so on without a gap.
func (l layout) readNumbered() (found []*migration, err error) {
	entries, err := schemaFiles.ReadDir("schema")
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}

	for i, e := range entries {
		if !strings.HasPrefix(e.Name(), fmt.Sprintf("%04d_", i+1)) {
			return nil, fmt.Errorf("schema: %q has the place of number %d", e.Name(), i+1)
		}

		source, err := schemaFiles.ReadFile("schema/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		m, err := l.newNumbered(i+1, e.Name(), string(source))
		if err != nil {
			return nil, err
		}

		found = append(found, m)
	}

	return found, nil
}

// newNumbered is a numbered file. Its checksum is that of its source, which is the same in every
// layout.
func (l layout) newNumbered(number int, name, source string) (*migration, error) {
	parsed, err := l.newTemplate(name).Parse(source)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	statements, err := render(parsed)
	if err != nil {
		return nil, err
	}
	return &migration{version: uint32(number), name: name, checksum: digest(source), parts: []part{{name, statements}}}, nil
}

// readViews reads the views, whose files share templates. Their checksum is that of all
// statements.
func (l layout) readViews() (*migration, error) {
	all, err := l.newTemplate(viewsName).ParseFS(schemaFiles, "views/*.sql")
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	entries, err := schemaFiles.ReadDir("views")
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}

	views := &migration{version: viewsRelease, name: viewsName}
	var sql strings.Builder
	for _, e := range entries {
		statements, err := render(all.Lookup(e.Name()))
		if err != nil {
			return nil, err
		}

		if len(statements) == 0 { // it has only templates
			continue
		}

		views.parts = append(views.parts, part{"views/" + e.Name(), statements})
		sql.WriteString(strings.Join(statements, ";\n") + ";\n")
	}

	views.checksum = digest(sql.String())

	return views, nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
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
	if t == journalTable || t == deliverySets || t == identity {
		return t.name
	}
	return l.local(t.name)
}

// FinanceDatabase is the name of the database with the views that people read with SQL, beside the one
// with the tables.
func FinanceDatabase(database string) string { return database + "_finance" }

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
func (l layout) distributed(table, comment string) string {
	if l.cluster == "" {
		return ""
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s %s AS %s\nENGINE = Distributed('%s', '%s', '%s', cityHash64(account_id))\nCOMMENT %s",
		table, l.onCluster(), l.local(table), l.cluster, l.database, l.local(table), comment)
}

// literal is a text as SQL has it.
func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(text) + "'"
}

// newTemplate is a file's template, with what depends on the layout.
func (l layout) newTemplate(name string) *template.Template {
	return template.New(name).Funcs(template.FuncMap{
		"local": l.local, "onCluster": l.onCluster, "replacing": l.replacing, "appended": l.appended, "shared": l.shared,
		"durability": l.durability, "distributed": l.distributed, "literal": literal,
		"database": func() string { return "`" + l.database + "`" }, // for a view that calls another one with parameters
		"finance":  func() string { return "`" + FinanceDatabase(l.database) + "`" },
	}).Option("missingkey=error")
}

var comment, semicolon = regexp.MustCompile(`(?m)^[ \t]*--.*\n?`), regexp.MustCompile(`(?m);[ \t\r]*$`)

// render returns a file's statements. Each ends with a semicolon at the end of a line;
// lines that begin with -- are comments.
func render(file *template.Template) ([]string, error) {
	var rendered strings.Builder
	if err := file.Execute(&rendered, nil); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}

	all := semicolon.Split(comment.ReplaceAllString(rendered.String(), ""), -1)
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}

	if rest := all[len(all)-1]; rest != "" {
		return nil, fmt.Errorf("schema: %s: no semicolon after %.40q", file.Name(), rest)
	}

	return slices.DeleteFunc(all, func(statement string) bool { return statement == "" }), nil
}
