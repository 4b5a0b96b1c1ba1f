package archive

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// own are the files of the schema.
func own(t testing.TB) []migration {
	t.Helper()
	files, err := readMigrations()
	noError(t, err)
	return files
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
		{single, `{{distributed "t"}};` + "\n", nil},
		{single, `CREATE TABLE {{local "t"}} {{onCluster}};`, []string{"CREATE TABLE t"}},
		{cluster, `CREATE TABLE {{local "t"}} {{onCluster}};`, []string{"CREATE TABLE t_local ON CLUSTER 'c'"}},
		{single, "FROM {{database}}.v;", []string{"FROM `d`.v"}},
	} {
		got, err := c.layout.statements(&migration{name: "x", source: c.source})
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
		if _, err := single.statements(&migration{name: "x", source: source}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", source, err)
		}
	}
}

// clusterSQL is all that is run in a cluster.
func clusterSQL(t testing.TB) []string {
	t.Helper()
	l := layout{database: "delivery", cluster: "main"}
	all := []string{"CREATE DATABASE IF NOT EXISTS delivery " + l.onCluster(), l.migrationsTable()}
	for _, m := range own(t) {
		statements, err := l.statements(&m)
		noError(t, err)
		all = append(all, statements...)
	}
	return all
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
		"ENGINE = ReplicatedMergeTree('/clickhouse/tables/all/delivery/seals', '{shard}_{replica}')",
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

// The embedded engine makes no users, but it knows the settings, and a query beyond them is refused.
func TestBISettings_BoundAQuery(t *testing.T) {
	t.Parallel()
	a := idleArchive(t)
	source, err := os.ReadFile("../../configs/clickhouse/bi.sql")
	noError(t, err)
	profile := comment.ReplaceAllString(string(source), "")
	for statement := range strings.SplitSeq(strings.TrimSpace(profile), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			noError(t, a.conn.QueryRow(t.Context(), "SELECT formatQuery({sql:String})", clickhouse.Named("sql", statement)).Err())
		}
	}
	_, settings, _ := strings.Cut(profile, "SETTINGS\n")
	settings, _, _ = strings.Cut(settings, ";")
	for query, refused := range map[string]bool{"SELECT count() FROM booked_days": false, "SELECT * FROM numbers(2000000)": true} {
		rows, err := a.conn.Query(t.Context(), query+" SETTINGS "+settings)
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
		}
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "Limit for result exceeded") {
			t.Errorf("%s: %v", query, err)
		}
	}
}
