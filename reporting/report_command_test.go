package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/journal"
)

// archiveWith is an environment with so many orders in November 2026, one every 8 s, and the flags that lead there.
func archiveWith(t *testing.T, orders int) (e *archiveenv.System, flags []string) {
	t.Helper()
	e = archiveenv.New(t)
	e.ClickHouse.Exec(t, fmt.Sprintf(`INSERT INTO %s.orders (account_id, business_day, order_id, version, external_order_id, external_store_id, store_name, status, created_at, payment_type, order_amount)
		SELECT reinterpretAsUUID(sipHash128(number %% 10)), toDate(created_at), reinterpretAsUUID(sipHash128(number, 1)), 1, toString(number), 'moda', 'Köşe', 'Searching',
			toDateTime64('2026-11-01 00:00:00', 3, 'Etc/GMT-3') + toIntervalSecond(number * 8) AS created_at, 'Cash', 0.05 FROM numbers(%d)`, e.Database, orders))
	return e, []string{"--config", settingsFor(t, e, e.ClickHouse.URL)}
}

// runReport is `reporting report ARGS` in this process.
func runReport(t *testing.T, args ...string) (out, said string, err error) {
	t.Helper()
	return call(t, newReportCommand(), "", args...)
}

// Whoever writes SQL learns where each report's figures stand.
func TestReport_ListNamesFinancesViews(t *testing.T) {
	t.Parallel()

	out, _, err := runReport(t)
	for _, want := range []string{"in the database delivery_finance: booked_orders, live_orders\n", ": booked_days\n", ": booked_exceptions, live_exceptions\n"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, no %q in\n%s", err, want, out)
		}
	}

	if strings.Contains(out, "from=") {
		t.Errorf("it names views of the programs:\n%s", out)
	}
}

func TestReport_WritesEveryFormat(t *testing.T) {
	t.Parallel()

	_, flags := archiveWith(t, 20)
	dir := t.TempDir()
	november := append(flags, "order-ledger", "--from", "2026-11-01", "--to", "2026-11-30")
	for format, c := range map[string]struct{ begins, holds string }{
		"csv":       {"\ufefforderId;", ";0,05;"},
		"csv-plain": {"orderId,", ",0.05,"},
		"json":      {`{"success":true,`, `"totals":{"rows":20,"orderAmount":"1.00"`},
		"table":     {"Order ledger, 2026-11-01 to 2026-11-30", "20 rows"},
		"xlsx":      {"PK\x03\x04", "xl/workbook.xml"},
	} {
		args := append([]string{"--format", format}, november...)
		out, said, err := runReport(t, append(args, "--store", "moda")...)
		if err != nil || said != "" || !strings.HasPrefix(out, c.begins) || !strings.Contains(out, c.holds) {
			t.Errorf("%s: %v, said %q, wrote %.300q", format, err, said, out)
		}

		name := filepath.Join(dir, format)
		if _, _, err := runReport(t, append(args, "-o", name)...); err != nil {
			t.Errorf("%s: %v", format, err)
		}

		file, err := os.ReadFile(name)
		if err != nil || !bytes.HasPrefix(file, []byte(c.begins)) || format != "xlsx" && format != "table" && string(file) != out {
			t.Errorf("%s: the file is another: %v, %d bytes, %d to standard output", format, err, len(file), len(out))
		}
	}

	for extension, begins := range map[string]string{".csv": "\ufeff", ".XLSX": "PK", ".json": "{", ".txt": "Order ledger"} {
		name := filepath.Join(dir, "november"+extension)
		_, _, err := runReport(t, append([]string{"-o", name}, november...)...)
		file, readErr := os.ReadFile(name)
		if err != nil || readErr != nil || !bytes.HasPrefix(file, []byte(begins)) {
			t.Errorf("%s: %v, %v, %.20q", extension, err, readErr, file)
		}
	}

	if out, _, err := runReport(t, append([]string{"--store", "nowhere"}, november...)...); err != nil || strings.Count(out, "\n") != 1 {
		t.Errorf("of no store: %v, %q", err, out)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*partial*")); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
}

func TestReport_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	e, flags := archiveWith(t, 1)
	at := strings.Join(flags, " ")
	dir := t.TempDir()
	october := "order-ledger --from 2025-10-01 --to 2025-10-31 " + at
	bare := *e
	bare.Database = e.ClickHouse.NewDatabase(t)
	e.ClickHouse.Exec(t, "CREATE DATABASE "+bare.Database)
	missing := bare
	missing.Database = "nowhere"
	for _, c := range []struct{ args, want string }{
		{october + " --as-of 2025-12-01", "--as-of: October 2025 was not closed on 1 Dec 2025"},
		{october + " --as-of tomorrow --basis both", "--basis: is booked or known"},
		{"orders", `there is no report "orders"; there are order-ledger, expected-collections, fleet-statement, exceptions, control-totals`},
		{"order-ledger --from 2026-13-01", `--from: "2026-13-01" is not a day such as 2026-11-21`},
		{"order-ledger --from 2026-11-02 --to 2026-11-01", "--to: 1 Nov 2026 is before the first day, 2 Nov 2026"},
		{"order-ledger --account me", `--account: "me" is neither the id of an account`},
		{"order-ledger --format pdf", `format "pdf" is not one of table, csv, csv-comma, csv-plain, xlsx, json`},
		{"order-ledger -o november.pdf", "november.pdf: the extension is none of .csv, .xlsx, .json and .txt; give --format"},
		{"order-ledger --config " + settingsFor(t, e, "http://127.0.0.1:9"), "Is ClickHouse there?"},
		{"order-ledger --config " + settingsFor(t, e, "nowhere"), "wanted is http://"},
		{"order-ledger --config " + settingsFor(t, &missing, e.ClickHouse.URL), "reporting migrate"},
		{"control-totals --config " + settingsFor(t, &bare, e.ClickHouse.URL), "reporting migrate"},
		{"order-ledger --config nowhere", "nowhere"},
		{"order-ledger --format csv " + at + " -o " + dir, "is a folder"},
		{"order-ledger " + at + " -o " + dir + "/no/such.csv", "no such file or directory"},
	} {
		out, _, err := runReport(t, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" && !strings.Contains(out, "Usage") {
			t.Errorf("%s: %v, wrote %q", c.args, err, out)
		}
	}
}

// A report that is cut off, by a person or by ClickHouse, leaves its file as it was.
func TestReport_CutOffLeavesTheFileAsItWas(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	p := e.NewProxy("")
	name := filepath.Join(t.TempDir(), "ledger.csv")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}

	args := []string{"report", "order-ledger", "--from", "2026-11-01", "--to", "2026-12-31", "-o", name, "--config", settingsFor(t, e, p.URL)}
	for want, person := range map[string]bool{"interrupted, " + name + " was not written": true, "Is ClickHouse there?": false} {
		cmd := program(t, nil, args...)
		partial, started := make(chan int, 100), make(chan struct{})
		p.Handle(func(statement string, w http.ResponseWriter, r *http.Request, forward func()) {
			forward()
			isReport := strings.Contains(statement, "toInt64(business_day)") // its first question
			if !isReport {
				return
			}

			files, _ := filepath.Glob(name + ".partial-*")
			partial <- len(files)
			if person {
				<-started
				_ = cmd.Process.Signal(syscall.SIGINT)
				<-r.Context().Done()
			}

			panic(http.ErrAbortHandler)
		})

		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}

		close(started)
		if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, said %q, want %q", err, &out, want)
		}
		if n := <-partial; n != 1 {
			t.Errorf("%d files were begun", n)
		}

		got, err := os.ReadFile(name)
		if files, _ := os.ReadDir(filepath.Dir(name)); err != nil || string(got) != "old" || len(files) != 1 {
			t.Errorf("%v, %.40q, beside it %v", err, got, files)
		}
	}
}

// Commands that only read refuse another ledger's database, as the others do.
func TestReadCommands_RefuseAnotherLedgersDatabase(t *testing.T) {
	t.Parallel()

	e, other := archiveenv.New(t), &archiveenv.System{Env: testenv.New(t)}
	other.Database = e.Database
	flags := []string{"--config", settingsFor(t, other, e.ClickHouse.URL)}

	_, _, report := call(t, newReportCommand(), "", append(flags, "order-ledger")...)
	_, _, audit := call(t, newAuditCommand(), "", flags...)

	for name, err := range map[string]error{"report": report, "audit": audit} {
		if !errors.Is(err, archive.ErrOtherOwner) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// While Redis is away there is a report all the same, with a note of what was not checked; but never from the other
// environment's database.
func TestReadCommands_SayWhatIsNotCheckedWithoutRedis(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	variables := append(variables(e), "REDIS_URL=redis://127.0.0.1:9")
	for _, args := range [][]string{{"report", "order-ledger"}, {"audit"}} {
		cmd := program(t, variables, append(args, "--config", settingsFile(t))...)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || len(out) == 0 || !strings.HasPrefix(said.String(), "Redis does not answer. Checked is only that the database belongs to sandbox") {
			t.Errorf("%s: %v, wrote %q, said %s", args, err, out, said.String())
		}

		elsewhere := program(t, append(variables, "ENVIRONMENT=production"), append(args, "--config", settingsFile(t))...)
		text, err := elsewhere.CombinedOutput()
		if err == nil || !strings.Contains(string(text), "it is that of sandbox, and this is production") {
			t.Errorf("%s in production: %v, said %s", args, err, text)
		}
	}
}

// A booked report is refused, as in the panel, when entries are missing at the end of the books' log, or
// rows do not belong to it. What is known now needs no books.
func TestReport_RefusesBooksThatWereTamperedWith(t *testing.T) {
	t.Parallel()

	e, shortened := archiveenv.New(t), archiveenv.New(t)
	e.ClickHouse.Exec(t, "INSERT INTO "+e.Database+".journal (text, key_id, signature) VALUES ('nonsense', 'b1', 'x')")
	keys := journal.NewKeys("sandbox", "b1", map[string][]byte{"b1": []byte(strings.Repeat("b", 32))}) // those of secrets
	first, err := keys.Sign(`{"sequence":1,"previous":""}`)
	testenv.Must(t, err)
	second, err := keys.Sign(fmt.Sprintf(`{"sequence":2,"previous":%q}`, first.Seal()))
	testenv.Must(t, err)
	testenv.Must(t, shortened.Ledger.Books.MoveHead(t.Context(), "", second.Head(), time.Time{}))

	for want, e := range map[string]*archiveenv.System{"1 rows do not belong to it": e, "entry 1 of the books' log is missing": shortened} {
		said, err := run(t, e, e.ClickHouse.URL, "report", "order-ledger")
		if err == nil || !strings.Contains(said, want) {
			t.Errorf("booked: %v, said %s, want %s", err, said, want)
		}
		said, err = run(t, e, e.ClickHouse.URL, "report", "order-ledger", "--basis", "known")
		if err != nil || !strings.HasPrefix(said, "\ufefforderId") {
			t.Errorf("known: %v, said %s", err, said)
		}
	}
}

func TestWriteFile_FollowsLinksAndWritesToDevices(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	target, link := filepath.Join(dir, "target.csv"), filepath.Join(dir, "link.csv")
	if err := errors.Join(os.WriteFile(target, []byte("old"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}

	write := func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }
	if err := errors.Join(writeFile(link, write), writeFile(os.DevNull, write)); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(target); string(got) != "new" {
		t.Errorf("the target has %q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v: the link is none any more", err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("%v: %s is a file now", err, os.DevNull)
	}
}
