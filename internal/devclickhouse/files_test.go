package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

const secret = "secret-of-the-developer"

// waysOut are statements that would read what lies outside of the data folder, write
// there, ask another address, or run a program, by how they would. SECRET is a file,
// ADDRESS a server, FOLDER an empty folder, and DB the test's database.
//
// Two statements that need the key still ask an address, and get nothing from it:
// RESTORE … FROM S3 looks for the backup before it looks at the grants, and CREATE DATABASE
// … SETTINGS disk = disk(type = web, …) has no grant.
var waysOut = map[string][]string{
	"function":                     {"SELECT file('SECRET')"},
	"function with a default":      {"SELECT file('SECRET', 'x')"},
	"function with NULL":           {"SELECT file('SECRET', NULL)"},
	"function, relative":           {"SELECT file('../../../../../../../../SECRET')"},
	"function in quotes":           {"SELECT `file` /* x */ -- y\n ('SECRET')", "SELECT \"fi\\x6ce\"('SECRET')"},
	"function of a row":            {"SELECT file(path) FROM values('path String', 'SECRET')"},
	"function by its name":         {"SELECT arrayMap(file, ['SECRET'])", "SELECT * APPLY file FROM (SELECT 'SECRET')", "SELECT * APPLY(file) FROM (SELECT 'SECRET')"},
	"function in a lambda":         {"SELECT arrayMap(path -> file(path), ['SECRET'])", "WITH (path -> file(path)) AS f SELECT f('SECRET')"},
	"function in an insert":        {"INSERT INTO DB.texts SELECT file('SECRET')", "INSERT INTO DB.texts VALUES (file('SECRET'))", "SELECT * FROM DB.texts"},
	"function in a view":           {"CREATE VIEW DB.reads AS SELECT file('SECRET') AS text", "SELECT * FROM DB.reads"},
	"function in a default":        {"CREATE TABLE DB.defaults (a Int8, text String DEFAULT file('SECRET')) ENGINE = MergeTree ORDER BY a", "INSERT INTO DB.defaults (a) VALUES (1)", "SELECT text FROM DB.defaults"},
	"function in an alias":         {"CREATE TABLE DB.aliases (a Int8, text String ALIAS file('SECRET')) ENGINE = MergeTree ORDER BY a", "INSERT INTO DB.aliases (a) VALUES (1)", "SELECT text FROM DB.aliases"},
	"function of one's own":        {"CREATE FUNCTION reads AS path -> file(path)", "SELECT reads('SECRET')"},
	"function in a mutation":       {"INSERT INTO DB.texts VALUES ('x')", "ALTER TABLE DB.texts UPDATE text = file('SECRET') WHERE 1 SETTINGS mutations_sync = 2", "SELECT * FROM DB.texts"},
	"function in SQL of SQL":       {"SELECT * FROM eval('SELECT fi' || 'le(''SECRET'')') SETTINGS allow_experimental_eval_table_function = 1"},
	"function in EXPLAIN":          {"EXPLAIN SELECT file('SECRET')", "EXPLAIN QUERY TREE SELECT file('SECRET')"},
	"table function":               {"SELECT * FROM file('SECRET', 'LineAsString')"},
	"table function, strange":      {"sElEcT * FROM /* a */ `file` -- b\n\t( 'SECRET' , LineAsString)", "SELECT * FROM \"fi\\x6ce\"('SECRET', 'LineAsString')"},
	"table function in a query":    {"SELECT * FROM (SELECT * FROM file('SECRET', 'LineAsString'))", "WITH a AS (SELECT * FROM file('SECRET', 'LineAsString')) SELECT * FROM a", "SELECT (SELECT * FROM file('SECRET', 'LineAsString'))", "SELECT 1 WHERE 'x' NOT IN (SELECT * FROM file('SECRET', 'LineAsString'))", "SELECT 1 UNION ALL SELECT 2 FROM file('SECRET', 'LineAsString')", "SELECT * FROM view(SELECT * FROM file('SECRET', 'LineAsString'))", "SELECT * FROM viewIfPermitted(SELECT * FROM file('SECRET', 'LineAsString') ELSE null('line String'))", "SELECT * FROM viewExplain('EXPLAIN', '', (SELECT * FROM file('SECRET', 'LineAsString')))", "SELECT * FROM loop(file('SECRET', 'LineAsString')) LIMIT 1"},
	"table function in a view":     {"CREATE VIEW DB.v AS SELECT * FROM file('SECRET', 'LineAsString')", "SELECT * FROM DB.v"},
	"view of a definer":            {"CREATE VIEW DB.d (line String) DEFINER = default SQL SECURITY DEFINER AS SELECT * FROM file('SECRET', 'LineAsString')", "SELECT * FROM DB.d"},
	"view of nobody":               {"CREATE VIEW DB.n (line String) SQL SECURITY NONE AS SELECT * FROM file('SECRET', 'LineAsString')", "SELECT * FROM DB.n"},
	"view with parameters":         {"CREATE VIEW DB.p (line String) AS SELECT * FROM file({path:String}, 'LineAsString')", "SELECT * FROM DB.p(path = 'SECRET')"},
	"materialized view":            {"CREATE MATERIALIZED VIEW DB.m ENGINE = MergeTree ORDER BY line POPULATE AS SELECT * FROM file('SECRET', 'LineAsString')", "SELECT * FROM DB.m"},
	"refreshable view":             {"CREATE MATERIALIZED VIEW DB.r REFRESH EVERY 1 SECOND (line String) ENGINE = MergeTree ORDER BY line AS SELECT * FROM file('SECRET', 'LineAsString')", "SYSTEM REFRESH VIEW DB.r", "SYSTEM WAIT VIEW DB.r", "SELECT * FROM DB.r"},
	"table of a query":             {"CREATE TABLE DB.q ENGINE = MergeTree ORDER BY tuple() AS SELECT * FROM file('SECRET', 'LineAsString')", "SELECT * FROM DB.q"},
	"table of a function":          {"CREATE TABLE DB.f AS file('SECRET', 'LineAsString')", "SELECT * FROM DB.f"},
	"insert of a table function":   {"INSERT INTO DB.texts SELECT * FROM file('SECRET', 'LineAsString')", "INSERT INTO DB.texts FROM INFILE 'SECRET' FORMAT LineAsString", "INSERT INTO DB.texts /* x */ from -- y\n infile 'SECRET' FORMAT LineAsString", "INSERT INTO DB.texts (text) SETTINGS max_threads = 1 FROM INFILE 'SECRET' FORMAT LineAsString", "SELECT * FROM DB.texts"},
	"insert into a table function": {"INSERT INTO FUNCTION file('FOLDER/out', 'CSV', 'a String') SELECT 'x'", "INSERT INTO FUNCTION file('FOLDER/out', 'CSV', 'a String') VALUES ('x')", "INSERT INTO TABLE FUNCTION url('ADDRESS', 'CSV', 'a String') SELECT 'x'", "INSERT INTO FUNCTION remote('127.0.0.1', system.one) SELECT 1"},
	"into outfile":                 {"SELECT 1 INTO OUTFILE 'FOLDER/out'", "SELECT 1 INTO /**/ OUTFILE 'FOLDER/out' APPEND", "SHOW TABLES INTO OUTFILE 'FOLDER/out'", "EXPLAIN SELECT 1 INTO OUTFILE 'FOLDER/out'", "(SELECT 1) INTO\nOUTFILE 'FOLDER/out' AND STDOUT"},
	"describe":                     {"DESCRIBE TABLE file('SECRET')", "DESCRIBE file('SECRET', 'CSVWithNames')", "DESC (SELECT * FROM file('SECRET', 'CSVWithNames'))"},
	"explain":                      {"EXPLAIN SELECT * FROM file('SECRET', 'CSVWithNames')", "EXPLAIN AST SELECT * FROM file('SECRET', 'CSVWithNames')", "EXPLAIN ESTIMATE SELECT * FROM file('SECRET', 'CSVWithNames')", "EXPLAIN QUERY TREE SELECT * FROM file('SECRET', 'CSVWithNames')", "EXPLAIN PIPELINE SELECT * FROM file('SECRET', 'CSVWithNames')", "EXPLAIN TABLE OVERRIDE mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')"},
	"a name that is a path":        {"SELECT * FROM `SECRET`", "SELECT * FROM default.`SECRET`", "SELECT * FROM default.\"SECRET\"", "DESCRIBE TABLE default.`SECRET`", "SHOW CREATE TABLE default.`SECRET`", "SELECT * FROM merge('default', '.*')"},
	"template":                     {"SELECT 1 FORMAT Template SETTINGS format_template_resultset = 'SECRET'", "SELECT 1 AS a FORMAT Template SETTINGS format_template_row = 'SECRET', format_template_resultset_format = '${data}'", "SELECT * FROM format(Template, 'a String', 'x') SETTINGS format_template_row = 'SECRET'", "INSERT INTO DB.texts SETTINGS format_template_row = 'SECRET' FORMAT Template x", "CREATE VIEW DB.template AS SELECT * FROM format(Template, 'a String', 'x') SETTINGS format_template_row = 'SECRET'", "SELECT * FROM DB.template"},
	"schema":                       {"SELECT 1 AS a FORMAT Protobuf SETTINGS format_schema = 'SECRET:X'", "SELECT 1 AS a FORMAT CapnProto SETTINGS format_schema = 'SECRET:X'", "SELECT 1 AS a FORMAT ProtobufList SETTINGS format_schema_source = 'file', format_schema = 'SECRET:X'", "SELECT 1 AS a FORMAT Protobuf SETTINGS output_format_schema = 'FOLDER/out.proto'", "SELECT 1 AS a FORMAT AvroConfluent SETTINGS format_avro_schema_registry_url = 'ADDRESS', output_format_avro_confluent_subject = 'a'"},
	"errors":                       {"SELECT * FROM format(CSV, 'a Int8', 'x') SETTINGS input_format_record_errors_file_path = 'FOLDER/errors', input_format_allow_errors_num = 9, errors_output_format = 'CSV'", "INSERT INTO DB.numbers SETTINGS input_format_record_errors_file_path = 'FOLDER/errors', input_format_allow_errors_num = 9 FORMAT CSV x\n"},
	"url":                          {"SELECT * FROM url('ADDRESS', 'LineAsString')", "SELECT * FROM url('file://SECRET', 'LineAsString')", "SELECT * FROM urlCluster('default', 'ADDRESS', 'LineAsString')", "SELECT * FROM url('x', 'LineAsString') SETTINGS url_base = 'ADDRESS'"},
	"objects":                      {"SELECT * FROM s3('ADDRESS/bucket/a', 'LineAsString')", "SELECT * FROM s3('ADDRESS/bucket/a', NOSIGN, 'LineAsString')", "SELECT * FROM s3Cluster('default', 'ADDRESS/bucket/a', 'LineAsString')", "SELECT * FROM gcs('ADDRESS/bucket/a', 'LineAsString')", "SELECT * FROM oss('ADDRESS/bucket/a', 'LineAsString')", "SELECT * FROM cosn('ADDRESS/bucket/a', 'LineAsString')", "SELECT * FROM azureBlobStorage('ADDRESS', 'a', 'b', 'c', 'd', 'LineAsString')", "SELECT * FROM hdfs('hdfs://127.0.0.1:1/a', 'LineAsString')", "SELECT * FROM hdfsCluster('default', 'hdfs://127.0.0.1:1/a', 'LineAsString')"},
	"lakes":                        {"SELECT * FROM iceberg('ADDRESS/bucket/a')", "SELECT * FROM icebergLocal('FOLDER')", "SELECT * FROM icebergS3('ADDRESS/bucket/a')", "SELECT * FROM deltaLake('ADDRESS/bucket/a')", "SELECT * FROM deltaLakeLocal('FOLDER')", "SELECT * FROM hudi('ADDRESS/bucket/a')", "SELECT * FROM paimonLocal('FOLDER')", "SELECT * FROM ytsaurus('ADDRESS', '//a', 'b', 'c String')"},
	"cluster of files":             {"SELECT * FROM fileCluster('default', 'SECRET', 'LineAsString')", "SELECT * FROM filesystem('FOLDER/..')"},
	"other servers":                {"SELECT * FROM remote('127.0.0.1', view(SELECT * FROM file('SECRET', 'LineAsString')))", "SELECT * FROM remote('127.0.0.1:1', system.one)", "SELECT * FROM remoteSecure('127.0.0.1:1', system.one)", "SELECT * FROM cluster('default', system.one)", "SELECT * FROM clusterAllReplicas('default', system.one)", "SELECT * FROM mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')", "SELECT * FROM postgresql('127.0.0.1:1', 'a', 'b', 'c', 'd')", "SELECT * FROM mongodb('127.0.0.1:1', 'a', 'b', 'c', 'd', 'e String')", "SELECT * FROM redis('127.0.0.1:1', 'key', 'key String')", "SELECT * FROM sqlite('SECRET', 'a')", "SELECT * FROM jdbc('ADDRESS', 'a', 'b')", "SELECT * FROM odbc('DSN=a', 'b', 'c')"},
	"programs":                     {"SELECT * FROM executable('cat SECRET', 'LineAsString', 'a String')", "CREATE TABLE DB.e (a String) ENGINE = Executable('cat SECRET', 'LineAsString')", "SELECT * FROM DB.e", "CREATE TABLE DB.ep (a String) ENGINE = ExecutablePool('cat SECRET', 'LineAsString')", "SELECT * FROM DB.ep", "SELECT catboostEvaluate('SECRET', 1)"},
	"tables elsewhere": {
		"CREATE TABLE DB.file (line String) ENGINE = File('LineAsString', 'SECRET')", "SELECT * FROM DB.file",
		"ATTACH TABLE DB.attached FROM 'SECRET' (line String) ENGINE = File(LineAsString)", "SELECT * FROM DB.attached",
		"CREATE TABLE DB.url (line String) ENGINE = URL('ADDRESS', 'LineAsString')", "SELECT * FROM DB.url",
		"CREATE TABLE DB.s3 (line String) ENGINE = S3('ADDRESS/bucket/a', 'LineAsString')", "SELECT * FROM DB.s3",
		"CREATE TABLE DB.hdfs (line String) ENGINE = HDFS('hdfs://127.0.0.1:1/a', 'LineAsString')", "SELECT * FROM DB.hdfs",
		"CREATE TABLE DB.mysql (line String) ENGINE = MySQL('127.0.0.1:1', 'a', 'b', 'c', 'd')", "SELECT * FROM DB.mysql",
		"CREATE TABLE DB.postgresql (line String) ENGINE = PostgreSQL('127.0.0.1:1', 'a', 'b', 'c', 'd')", "SELECT * FROM DB.postgresql",
		"CREATE TABLE DB.mongo (line String) ENGINE = MongoDB('127.0.0.1:1', 'a', 'b', 'c', 'd')", "SELECT * FROM DB.mongo",
		"CREATE TABLE DB.sqlite (line String) ENGINE = SQLite('SECRET', 'a')", "SELECT * FROM DB.sqlite",
		"CREATE TABLE DB.redis (line String) ENGINE = Redis('127.0.0.1:1') PRIMARY KEY line", "SELECT * FROM DB.redis",
		"CREATE TABLE DB.odbc (line String) ENGINE = ODBC('DSN=a', 'b', 'c')", "SELECT * FROM DB.odbc",
		"CREATE TABLE DB.jdbc (line String) ENGINE = JDBC('ADDRESS', 'b', 'c')", "SELECT * FROM DB.jdbc",
		"CREATE TABLE DB.kafka (line String) ENGINE = Kafka('127.0.0.1:1', 'a', 'b', 'LineAsString')", "SELECT * FROM DB.kafka SETTINGS stream_like_engine_allow_direct_select = 1",
		"CREATE TABLE DB.distributed (line String) ENGINE = Distributed('default', 'system', 'one')", "SELECT * FROM DB.distributed",
		"CREATE TABLE DB.local (a Int8) ENGINE = MergeTree ORDER BY a SETTINGS disk = disk(type = local, path = 'FOLDER/')", "INSERT INTO DB.local VALUES (1)",
		"CREATE TABLE DB.rocks (a Int8) ENGINE = EmbeddedRocksDB(0, 'FOLDER/rocks') PRIMARY KEY a", "INSERT INTO DB.rocks VALUES (1)",
	},
	"databases elsewhere": {
		"CREATE DATABASE DB_files ENGINE = Filesystem('FOLDER/..')", "SELECT * FROM DB_files.`secret.csv`", "SELECT * FROM DB_files.`SECRET`",
		"CREATE DATABASE DB_sqlite ENGINE = SQLite('FOLDER/sqlite')", "SHOW TABLES FROM DB_sqlite",
		"CREATE DATABASE DB_s3 ENGINE = S3('ADDRESS')", "SELECT * FROM DB_s3.`a.csv`",
		"CREATE DATABASE DB_hdfs ENGINE = HDFS('hdfs://127.0.0.1:1')", "SELECT * FROM DB_hdfs.a",
		"CREATE DATABASE DB_mysql ENGINE = MySQL('127.0.0.1:1', 'a', 'b', 'c')", "SHOW TABLES FROM DB_mysql",
		"CREATE DATABASE DB_postgresql ENGINE = PostgreSQL('127.0.0.1:1', 'a', 'b', 'c')", "SHOW TABLES FROM DB_postgresql",
		"CREATE DATABASE DB_lake ENGINE = DataLakeCatalog('ADDRESS') SETTINGS catalog_type = 'rest'", "SHOW TABLES FROM DB_lake",
		"CREATE DATABASE DB_backup ENGINE = Backup('a', File('SECRET'))", "SHOW TABLES FROM DB_backup",
	},
	"dictionaries": {
		"CREATE DICTIONARY DB.file_dictionary (id UInt64 DEFAULT 0, line String DEFAULT '') PRIMARY KEY id SOURCE(FILE(path 'SECRET' format 'CSV')) LAYOUT(FLAT()) LIFETIME(0)", "SELECT * FROM DB.file_dictionary", "SELECT dictGet('DB.file_dictionary', 'line', 1)",
		"CREATE DICTIONARY DB.program (id UInt64 DEFAULT 0, line String DEFAULT '') PRIMARY KEY id SOURCE(EXECUTABLE(command 'cat SECRET' format 'CSV')) LAYOUT(FLAT()) LIFETIME(0)", "SELECT * FROM DB.program", "SELECT * FROM dictionary('DB.program')",
		"CREATE DICTIONARY DB.http (id UInt64 DEFAULT 0, line String DEFAULT '') PRIMARY KEY id SOURCE(HTTP(url 'ADDRESS' format 'CSV')) LAYOUT(FLAT()) LIFETIME(0)", "SELECT * FROM DB.http",
		"CREATE TABLE DB.of_dictionary (id UInt64, line String) ENGINE = Dictionary('DB.http')", "SELECT * FROM DB.of_dictionary",
		"CREATE DICTIONARY DB.yaml (id UInt64 DEFAULT 0, line String DEFAULT '') PRIMARY KEY id SOURCE(YAMLREGEXPTREE(path 'SECRET')) LAYOUT(REGEXP_TREE) LIFETIME(0)", "SELECT * FROM DB.yaml",
		"CREATE DICTIONARY DB.ssd (id UInt64 DEFAULT 0, line String DEFAULT '') PRIMARY KEY id SOURCE(CLICKHOUSE(DB 'system' TABLE 'one')) LAYOUT(SSD_CACHE(PATH 'FOLDER/ssd')) LIFETIME(0)", "SELECT * FROM DB.ssd",
	},
	"backups":     {"BACKUP TABLE DB.texts TO File('FOLDER/backup')", "BACKUP TABLE DB.texts TO Disk('default', 'backup')", "BACKUP TABLE DB.texts TO S3('ADDRESS/bucket/a', 'b', 'c')", "RESTORE TABLE DB.texts AS DB.restored FROM File('SECRET')"},
	"more rights": {"CREATE USER DB_user", "CREATE ROLE DB_role", "GRANT SOURCES ON *.* TO default", "GRANT ALL ON *.* TO CURRENT_USER", "ALTER USER default SETTINGS format_schema = 'x'", "CREATE NAMED COLLECTION DB_named AS url = 'ADDRESS'", "CREATE SETTINGS PROFILE DB_profile SETTINGS format_schema = 'x' TO default", "SET format_schema = 'SECRET'", "SET PROFILE default", "SET ROLE ALL"},
}

// The shared engine has no key, so each of these statements is as free as it can be.
func TestFiles_StayWhereTheyAre(t *testing.T) {
	t.Parallel()

	c, database := database(t)

	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(secret + "\n"))
	}))
	defer elsewhere.Close()

	dir := t.TempDir()
	file, folder := filepath.Join(dir, "secret.csv"), filepath.Join(dir, "empty")
	noError(t, os.WriteFile(file, []byte("1,"+secret+"\n"), 0o600))
	noError(t, os.Mkdir(folder, 0o700))
	fill := strings.NewReplacer("SECRET", file, "FOLDER", folder, "ADDRESS", elsewhere.URL, "DB", database)

	c.must(t, fill.Replace("CREATE TABLE DB.texts (text String) ENGINE = MergeTree ORDER BY tuple()"), nil)
	c.must(t, fill.Replace("CREATE TABLE DB.numbers (a Int8) ENGINE = MergeTree ORDER BY a"), nil)

	for name, statements := range waysOut {
		refused := false
		for _, statement := range statements {
			got := c.ask(t, fill.Replace(statement), nil)
			refused = refused || got.status != http.StatusOK
			if strings.Contains(got.body, secret) {
				t.Errorf("%s: %s\nhands out %.300s", name, statement, got.body)
			}
			if n := asked.Swap(0); n > 0 {
				t.Errorf("%s: %s\nasks another address", name, statement)
			}

			written, err := os.ReadDir(folder)
			noError(t, err)
			for _, entry := range written {
				t.Errorf("%s: %s\nwrites %s", name, statement, entry.Name())
				noError(t, os.RemoveAll(filepath.Join(folder, entry.Name())))
			}
		}

		if !refused {
			t.Errorf("%s: nothing is refused", name)
		}
	}
}

// A request's settings are set before its statement is read.
func TestFiles_StayWhereTheyAre_WithSettingsOfTheURL(t *testing.T) {
	t.Parallel()

	c, _ := database(t)

	file := filepath.Join(t.TempDir(), "secret.csv")
	noError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))

	for _, setting := range []string{"format_template_resultset", "format_template_row", "format_schema"} {
		got := c.ask(t, "SELECT 1 AS a", params(setting, file, "default_format", "Template"))
		if got.status == http.StatusOK || strings.Contains(got.body, secret) {
			t.Errorf("%s: %d %s", setting, got.status, got.body)
		}
	}
}
