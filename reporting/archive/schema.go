package archive

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migration is one numbered file of the schema: a template for both layouts.
type migration struct {
	version uint32
	name    string // of the file
	source  string
}

// checksum is SHA-256 of the file, in hex.
func (m *migration) checksum() string {
	sum := sha256.Sum256([]byte(m.source))
	return hex.EncodeToString(sum[:])
}

var fileName = regexp.MustCompile(`^([0-9]{4})_[a-z0-9_]+\.sql$`)

// readMigrations reads a folder's files by their numbers, from 1 without a gap.
func readMigrations(files fs.FS, dir string) ([]migration, error) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	var found []migration
	for _, e := range entries {
		parts := fileName.FindStringSubmatch(e.Name())
		if parts == nil {
			return nil, fmt.Errorf("schema: %q is not called NNNN_name.sql", e.Name())
		}
		version, err := strconv.ParseUint(parts[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("schema: %q: %w", e.Name(), err)
		}
		source, err := fs.ReadFile(files, dir+"/"+e.Name())
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		found = append(found, migration{version: uint32(version), name: e.Name(), source: string(source)})
	}
	slices.SortStableFunc(found, func(a, b migration) int { return int(a.version) - int(b.version) })
	for i := range found {
		if found[i].version != uint32(i+1) {
			return nil, fmt.Errorf("schema: %s has the place of number %d", found[i].name, i+1)
		}
	}
	return found, nil
}

// layout is where tables are: on a single server or in a cluster.
type layout struct {
	database, cluster string
}

// functions are what the files of the schema call, besides the methods below
// {{database}}, for a view that calls another one with parameters.
func (l layout) functions() template.FuncMap {
	return template.FuncMap{
		"local":       l.local,
		"onCluster":   l.onCluster,
		"replacing":   l.replacing,
		"durability":  l.durability,
		"distributed": l.distributed,
		"database":    func() string { return "`" + l.database + "`" },
	}
}

// local is the table that holds rows: orders, orders_local in a cluster.
func (l layout) local(table string) string {
	if l.cluster == "" {
		return table
	}
	return table + "_local"
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
	if l.cluster == "" {
		return "ReplacingMergeTree(" + version + ")"
	}
	arguments := fmt.Sprintf("'/clickhouse/tables/{shard}/%s/%s', '{replica}'", l.database, l.local(table))
	if version != "" {
		arguments += ", " + version
	}
	return "ReplicatedReplacingMergeTree(" + arguments + ")"
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

// statements are a file's in a layout. Each ends with a semicolon at the end of a line;
// lines that begin with -- are comments.
func (l layout) statements(m *migration) ([]string, error) {
	parsed, err := template.New(m.name).Funcs(l.functions()).Option("missingkey=error").Parse(m.source)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	var rendered strings.Builder
	if err := parsed.Execute(&rendered, nil); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	var all []string
	var statement strings.Builder
	for line := range strings.Lines(rendered.String()) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "--") {
			continue
		}
		body, ends := strings.CutSuffix(line, ";")
		statement.WriteString(body + "\n")
		if !ends {
			continue
		}
		if text := strings.TrimSpace(statement.String()); text != "" {
			all = append(all, text)
		}
		statement.Reset()
	}
	if rest := strings.TrimSpace(statement.String()); rest != "" {
		return nil, fmt.Errorf("schema: %s: no semicolon after %.40q", m.name, rest)
	}
	return all, nil
}
