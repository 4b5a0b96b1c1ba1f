package archive

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// own is the schema on a single server.
func own(t testing.TB) *schema {
	t.Helper()
	s, err := layout{database: "delivery"}.readSchema()
	noError(t, err)
	return s
}

// ownOf is the schema as an archive has it.
func ownOf(t testing.TB, a *Archive) *schema {
	t.Helper()
	s, err := a.readSchema()
	noError(t, err)
	return s
}

// all are the numbered files, then the views.
func (s *schema) all() []*migration { return append(slices.Clone(s.files), s.views) }

func (m *migration) statements() (all []string) {
	for _, p := range m.parts {
		all = append(all, p.statements...)
	}
	return all
}

// viewsOf is what ClickHouse has of the views, by their names.
func viewsOf(t testing.TB, a *Archive) string {
	t.Helper()
	all := one[string](t, a, "SELECT arrayStringConcat(groupArray(concat(name, ' ', as_select, ' ', comment)), '\n') "+
		"FROM (SELECT * FROM system.tables WHERE database IN (currentDatabase(), currentDatabase() || '_finance') AND engine LIKE '%View' ORDER BY name)")
	return strings.ReplaceAll(all, a.database, "database")
}

// requireOwnViews checks that the views are those of a database that nothing happened to.
func requireOwnViews(t testing.TB, a *Archive) {
	t.Helper()
	if viewsOf(t, a) != viewsOf(t, idleArchive(t)) {
		t.Errorf("the views of %s are not this program's", a.database)
	}
}

// statementsOf are a source's statements in a layout.
func statementsOf(l layout, source string) ([]string, error) {
	m, err := l.newNumbered(1, "x", source)
	if err != nil {
		return nil, err
	}
	return m.statements(), nil
}

func TestStatements_AreSplitAtSemicolonsThatEndLines(t *testing.T) {
	t.Parallel()

	single, cluster := layout{database: "d"}, layout{database: "d", cluster: "c"}
	for _, c := range []struct {
		layout layout
		source string
		want   []string
	}{
		{single, "SELECT 1;\nSELECT 2;\n", []string{"SELECT 1", "SELECT 2"}},
		{single, "SELECT ';' AS a,\n ';x';  \r\n", []string{"SELECT ';' AS a,\n ';x'"}},
		{single, "-- one;\n  -- two\n\n;\nSELECT 1\n-- three;\nFROM t;", []string{"SELECT 1\nFROM t"}},
		{single, `{{distributed "t" "''"}};` + "\n", nil},
		{single, `CREATE TABLE {{local "t"}} {{onCluster}};`, []string{"CREATE TABLE t"}},
		{cluster, `CREATE TABLE {{local "t"}} {{onCluster}};`, []string{"CREATE TABLE t_local ON CLUSTER 'c'"}},
		{single, `SELECT {{literal "a 'b' \\ c"}};`, []string{`SELECT 'a ''b'' \\ c'`}},
		{single, "FROM {{database}}.v;", []string{"FROM `d`.v"}},
	} {
		got, err := statementsOf(c.layout, c.source)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q %v", c.source, got, err)
		}
	}

	for want, source := range map[string]string{
		"no semicolon after":   "SELECT 1;\nSELECT 2",
		`function "other" not`: "{{other}};",
		"wrong number of args": "{{local}};",
		"unclosed action":      "{{local ",
		"no entry for key":     "{{.X}};",
	} {
		if _, err := statementsOf(single, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", source, err)
		}
	}
}

// clusterSQL is all that is run in a cluster.
func clusterSQL(t testing.TB) []string {
	t.Helper()
	l := layout{database: "delivery", cluster: "main"}
	all := []string{"CREATE DATABASE IF NOT EXISTS delivery " + l.onCluster(), l.migrationsTable()}
	s, err := l.readSchema()
	noError(t, err)
	for _, m := range s.all() {
		all = append(all, m.statements()...)
	}
	return all
}

// Whoever changes a view raises viewsRelease, so that a program of the release before does not
// put its own view back.
func TestViews_AChangeRaisesTheReleaseNumber(t *testing.T) {
	t.Parallel()
	const release, checksum = 1, "0a6d95e5eb9279c8fd36e9dcf506c810baf49f9d1c1875ac750295b337ac7cd6"
	views := own(t).views
	if views.version != release || views.checksum != checksum {
		t.Errorf("the views have changed since release number %d (digest %s): raise viewsRelease unless it was raised since the last release, and note both here", release, views.checksum)
	}
}

func TestViews_AreDefinedOnce(t *testing.T) {
	t.Parallel()

	s := own(t)
	defined := map[string]string{}
	for _, p := range s.views.parts {
		for _, statement := range p.statements {
			if statement == "CREATE DATABASE IF NOT EXISTS `delivery_finance`" {
				continue
			}

			name, isView := strings.CutPrefix(statement, "CREATE OR REPLACE VIEW ")
			name, _, _ = strings.Cut(name, " ")
			if !isView || defined[name] != "" {
				t.Errorf("%s: %.60q, and %q in %q", p.file, statement, name, defined[name])
			}

			defined[name] = p.file
		}
	}

	if len(defined) != 22 {
		t.Errorf("%d views", len(defined))
	}

	for _, m := range s.files {
		for _, statement := range m.statements() {
			if strings.Contains(statement, "VIEW") && !strings.HasPrefix(statement, "CREATE TABLE") {
				t.Errorf("%s has %.60q", m.name, statement)
			}
		}
	}
}

// Which batches count and which month is open is read in one look: an entry that is stored between two
// would have a month counted twice.
func TestViews_ReadTheJournalOnce(t *testing.T) {
	t.Parallel()

	looks := 0
	for _, statement := range own(t).views.statements() {
		all := strings.Count(statement, "FROM journal")
		equal := strings.Count(statement, "addMonths(maxIf(month, kind = 'close'), 1))) FROM journal)")
		if all != equal {
			t.Errorf("%.60s has %d looks into the journal, %d of them equal", statement, all, equal)
		}
		looks += all
	}

	if looks < 20 {
		t.Errorf("%d looks in all views", looks)
	}
}

// People who write SQL see from each table and view what a row is and how to read it.
func TestSchema_ExplainsEachTable(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	err := a.Each(t.Context(), "SELECT name, engine, comment FROM system.tables WHERE database IN (currentDatabase(), currentDatabase() || '_finance')", func(rows driver.Rows) error {
		var name, engine, comment string
		if err := rows.Scan(&name, &engine, &comment); err != nil {
			return err
		}

		isTable := !strings.HasSuffix(engine, "View")
		switch {
		case comment == "", isTable && !strings.Contains(comment, "one row per"):
			t.Errorf("%s: %q", name, comment)
		case strings.HasPrefix(engine, "Replacing") && !strings.Contains(comment, "with FINAL"):
			t.Errorf("%s has rows that replace each other, and does not say FINAL: %q", name, comment)
		}

		return nil
	})

	noError(t, err)
	for _, table := range []string{"orders", "closed_orders"} {
		if !strings.Contains(strings.Join(clusterSQL(t), "\n"), "'"+table+"_local', cityHash64(account_id))\nCOMMENT '") {
			t.Errorf("%s has no comment in a cluster", table)
		}
	}
}

// The embedded engine has no cluster, but its parser knows them.
func TestSchema_ClusterSQLParses(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	removal := layout{database: "delivery", cluster: "main"}.removal("orders", []string{"('a', '2026-11-21', 'b')"})
	if !strings.HasPrefix(removal, "DELETE FROM orders_local ON CLUSTER 'main' WHERE") {
		t.Error(removal)
	}

	for _, statement := range append(clusterSQL(t), removal) {
		var formatted string
		err := a.conn.QueryRow(t.Context(), "SELECT formatQuery({sql:String})", clickhouse.Named("sql", statement)).Scan(&formatted)
		if err != nil || !strings.Contains(formatted, "ON CLUSTER main") {
			t.Errorf("%s\n%s %v", statement, formatted, err)
		}
	}
}

func TestSchema_ClusterTables(t *testing.T) {
	t.Parallel()

	sql := strings.Join(clusterSQL(t), ";\n")
	for _, table := range []string{"orders", "order_events", "late_deliveries", "webhook_outcomes", "reconciliations", "audit"} {
		version := ""
		if table == "orders" || table == "order_events" || table == "audit" {
			version = ", version"
		}

		for _, want := range []string{
			"CREATE TABLE IF NOT EXISTS " + table + "_local ON CLUSTER 'main'",
			"ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/delivery/" + table + "_local', '{replica}'" + version + ")",
			"CREATE TABLE IF NOT EXISTS " + table + " ON CLUSTER 'main' AS " + table + "_local\n" +
				"ENGINE = Distributed('main', 'delivery', '" + table + "_local', cityHash64(account_id))",
		} {
			if !strings.Contains(sql, want) {
				t.Errorf("missing: %s", want)
			}
		}
	}

	for _, want := range []string{
		"ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/delivery/closed_orders_local', '{replica}')",
		"ENGINE = Distributed('main', 'delivery', 'closed_days_local', cityHash64(account_id))",
		"ENGINE = ReplicatedMergeTree('/clickhouse/tables/all/delivery/journal', '{shard}_{replica}')",
		"ENGINE = ReplicatedMergeTree('/clickhouse/tables/all/delivery/identity', '{shard}_{replica}')",
		"ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/all/delivery/schema_migrations', '{shard}_{replica}')",
	} {
		if !strings.Contains(sql, want) {
			t.Errorf("missing: %s", want)
		}
	}

	if n := strings.Count(sql, "SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1"); n != 11 {
		t.Errorf("%d tables recognise repeated inserts", n)
	}
	if strings.Contains(sql, "non_replicated") {
		t.Error("a setting of single servers in a cluster's SQL")
	}

	// What is not a table's own must go through the Distributed tables.
	for _, view := range regexp.MustCompile(`(?s)CREATE OR REPLACE VIEW.*?;\n`).FindAllString(sql, -1) {
		if strings.Contains(view, "_local") {
			t.Errorf("%s", view)
		}
	}
}
