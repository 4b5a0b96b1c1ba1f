package download

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/reports"
)

// written is what the report is as the program's other ways write it.
func (e *env) written(name string, format *reports.Format, values reports.Values) []byte {
	e.T.Helper()
	params, err := values.Parse(time.Now())
	must(e.T, err)
	report, _ := reports.Find(name)
	var b bytes.Buffer
	_, err = report.Run(e.T.Context(), e.Archive, params, format.Sink(&b), nil)
	must(e.T, err)

	return b.Bytes()
}

//rule:finance/reports-each/1 finance/reports-each/2 finance/reports-each/3 finance/reports-each/4 finance/reports-each/5
//rule:finance/csv-in-utf-8-with-bom finance/downloads-get-panel-reports-name-.-csv-xlsx-json-from-to
func TestDownload_IsTheReportInEveryFormat(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.insertOrders(300)
	period := reports.Values{From: "2026-11-01", To: "2026-11-30"}
	for i, report := range reports.All() {
		for _, c := range []struct {
			extension, query string
			format           *reports.Format
			file             string
		}{
			{".csv", "", reports.CSV, ".csv"},
			{".csv", "&plain=0", reports.CSV, ".csv"},
			{".csv", "&plain=1", reports.CSVPlain, "_plain.csv"},
			{".csv", "&comma=1", reports.CSVComma, "_comma.csv"},
			{".json", "", reports.JSON, ".json"},
			{".xlsx", "", reports.XLSX, ".xlsx"},
		} {
			if c.query != "" && i > 0 {
				continue // all reports are asked for alike
			}

			t.Run(report.Name+c.file+c.query, func(t *testing.T) {
				a := e.client.For(t).With(authenv.As("finance")).Page("/reports/" + report.Name + c.extension + november + c.query)
				a.Carries(map[string]string{"Content-Type": c.format.ContentType, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Encoding": "",
					"Content-Disposition": `attachment; filename="` + report.Name + "_2026-11-01_2026-11-30" + c.file + `"`})
				want := e.written(report.Name, c.format, period)
				if c.format == reports.XLSX {
					if got, want := unzip(t, a.Text), unzip(t, string(want)); got != want {
						t.Errorf("the workbook has %d bytes of sheets, want %d", len(got), len(want))
					}
					return
				}

				if a.Text != string(want) {
					t.Errorf("%.200s…\nwant\n%.200s…", a.Text, want)
				}
				if c.format == reports.JSON && !json.Valid([]byte(a.Text)) {
					t.Error("this is no JSON")
				}
			})
		}
	}
}

// passing is what is another one in each workbook: the number of a cell's style, and
// when it was asked for.
var passing = regexp.MustCompile(` s="\d+"|as of [-\d]+ [:\d]+`)

// unzip is the contents of a workbook's sheets without what is passing, each file's
// checksum verified.
func unzip(t *testing.T, workbook string) string {
	t.Helper()
	r, err := zip.NewReader(strings.NewReader(workbook), int64(len(workbook)))
	must(t, err)
	var b strings.Builder
	for _, f := range r.File {
		if !strings.HasPrefix(f.Name, "xl/worksheets/") {
			continue
		}
		content, err := f.Open()
		must(t, err)
		_, err = io.Copy(&b, content)
		must(t, err)
	}

	return passing.ReplaceAllString(b.String(), "")
}

//rule:finance/downloads-get-panel-reports-name-.-csv-xlsx-json-from-to
func TestDownload_NarrowsByAccountFleetAndStore(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.insertOrders(2100)
	one := func(sql string) string { return strings.TrimSpace(e.ClickHouse.Exec(t, sql)) }
	account := one("SELECT reinterpretAsUUID(sipHash128('account', 1))")
	fleet := one("SELECT reinterpretAsUUID(sipHash128('fleet', 1))")
	for _, c := range []struct {
		query string
		rows  int
	}{
		{november, 2100}, {november + "&account=" + account, 700}, {november + "&fleet=" + fleet, 1050},
		{november + "&store=" + url.QueryEscape("şube-3"), 300}, {november + "&account=" + account + "&fleet=" + fleet, 350},
		{"?from=2026-11-30&to=2026-11-30", 70}, {"?from=2026-12-01&to=2026-12-31", 0}, {november + "&store=nothing", 0},
	} {
		a := e.ask("GET", "/reports/order-ledger.csv"+c.query+"&plain=1", "finance").Want(200, "orderId,")
		if rows := strings.Count(a.Text, "\n") - 1; rows != c.rows {
			t.Errorf("%s: %d rows, want %d", c.query, rows, c.rows)
		}
	}

	for before := (reports.Day)(0); before != reports.DayOf(time.Now()); { // again if midnight came between
		before = reports.DayOf(time.Now())
		a := e.ask("GET", "/reports/order-ledger.csv", "finance").Want(200)
		if before == reports.DayOf(time.Now()) {
			a.Carries(map[string]string{"Content-Disposition": fmt.Sprintf(`attachment; filename="order-ledger_%s_%s.csv"`, before.FirstOfMonth(), before)})
		}
	}
}

func TestDownload_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	ledger := "/reports/order-ledger.csv"
	for _, c := range []struct {
		name, method, path, token string
		status                    int
		part                      string
	}{
		{"nobody", "GET", ledger, "", 401, "TOKEN_INVALID"},
		{"an operator", "GET", ledger, "operator", 403, "FORBIDDEN"},
		{"an operator, whatever it is", "GET", "/reports/nothing.csv", "operator", 403, "FORBIDDEN"},
		{"another report", "GET", "/reports/orders.csv", "finance", 404, "there is order-ledger, expected-collections"},
		{"another extension", "GET", "/reports/order-ledger.pdf", "finance", 404, "NOT_FOUND"},
		{"a terminal's table", "GET", "/reports/order-ledger.txt", "finance", 404, "NOT_FOUND"},
		{"an extension in capitals", "GET", "/reports/order-ledger.CSV", "finance", 404, "NOT_FOUND"},
		{"no extension", "GET", "/reports/order-ledger", "finance", 404, "NOT_FOUND"},
		{"nothing", "GET", "/reports/", "finance", 404, "NOT_FOUND"},
		{"a file below", "GET", "/reports/x/order-ledger.csv", "finance", 404, "NOT_FOUND"},
		{"POST", "POST", ledger, "finance", 405, "METHOD_NOT_ALLOWED"},
		{"DELETE", "DELETE", ledger, "finance", 405, "METHOD_NOT_ALLOWED"},
		{"a query that is none", "GET", ledger + "?from=%zz", "finance", 400, "MALFORMED_REQUEST"},
		{"a day that is none", "GET", ledger + "?from=2026-02-30", "finance", 422, `"field":"from"`},
		{"another form of a day", "GET", ledger + "?to=30.11.2026", "finance", 422, `"field":"to"`},
		{"to before from", "GET", ledger + "?from=2026-11-02&to=2026-11-01", "finance", 422, `"field":"to"`},
		{"an account that is none", "GET", ledger + "?account=x", "finance", 422, `"field":"account"`},
		{"a fleet that is none", "GET", ledger + "?fleet=1", "finance", 422, `"field":"fleet"`},
		{"a store too long", "GET", ledger + "?store=" + strings.Repeat("x", 65), "finance", 422, `"field":"store"`},
		{"a misspelt filter", "GET", ledger + "?acount=x", "finance", 422, `"field":"acount"`},
		{"a filter twice", "GET", ledger + "?store=a&store=b", "finance", 422, `"field":"store"`},
		{"plain XLSX", "GET", "/reports/order-ledger.xlsx?plain=1", "finance", 422, `"field":"plain"`},
		{"two days that are none", "GET", ledger + "?from=22.11.2026&to=22.11.2026", "finance", 422, `"field":"from"`},
		{"two forms of CSV", "GET", ledger + "?plain=1&comma=1", "finance", 422, "give one"},
		{"XLSX with commas", "GET", "/reports/order-ledger.xlsx?comma=1", "finance", 422, `"field":"comma"`},
		{"plain of another kind", "GET", ledger + "?plain=yes", "finance", 422, `"field":"plain"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			allow, challenge := map[int]string{405: "GET, HEAD"}[c.status], map[int]string{401: "Bearer"}[c.status]
			a := e.ask(c.method, c.path, c.token).Want(c.status, c.part).Carries(map[string]string{"Content-Type": "application/json",
				"Content-Disposition": "", "Cache-Control": "no-store", "Allow": allow, "WWW-Authenticate": challenge})
			var envelope struct {
				Success bool
				Message string
				Data    struct{ ErrorCode string }
			}

			if err := json.Unmarshal([]byte(a.Text), &envelope); err != nil || envelope.Success || envelope.Message == "" || envelope.Data.ErrorCode == "" {
				t.Errorf("%s, %v", a.Text, err)
			}
		})
	}
}

func TestDownload_IsCompressedWhenAskedFor(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.insertOrders(5000)
	plain := e.ask("GET", "/reports/order-ledger.csv"+november, "finance").Want(200).Carries(map[string]string{"Vary": "Accept-Encoding", "Content-Encoding": ""})
	a := e.ask("GET", "/reports/order-ledger.csv"+november, "finance", "Accept-Encoding: br, gzip;q=0.5").Want(200).Carries(map[string]string{"Content-Encoding": "gzip"})
	r, err := gzip.NewReader(strings.NewReader(a.Text))
	must(t, err)
	text, err := io.ReadAll(r)
	must(t, err)
	if string(text) != plain.Text {
		t.Errorf("%d bytes, want %d", len(text), len(plain.Text))
	}

	e.ask("GET", "/reports/order-ledger.xlsx"+november, "finance", "Accept-Encoding: gzip").Want(200, "PK").
		Carries(map[string]string{"Content-Encoding": "", "Vary": ""})
}

func TestDownload_AnswersHEADWithoutReadingTheReport(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.insertOrders(100)
	for _, file := range []string{"order-ledger.csv", "exceptions.json", "fleet-statement.xlsx"} {
		whole := e.ask("GET", "/reports/"+file+november, "finance").Want(200)
		head := e.ask("HEAD", "/reports/"+file+november, "finance").Want(200)
		for _, name := range []string{"Content-Type", "Content-Disposition", "Vary", "Cache-Control", "Accept-Ranges"} {
			head.Carries(map[string]string{name: whole.Header.Get(name)})
		}
		if head.Text != "" {
			t.Errorf("a body of %d bytes", len(head.Text))
		}
	}

	e.ask("HEAD", "/reports/order-ledger.pdf", "finance").Want(404)
	e.ask("HEAD", "/reports/order-ledger.csv?from=x", "finance").Want(422)
	e.ask("HEAD", "/reports/order-ledger.csv", "").Want(401)
	e.awaitWhole(3)
}

func TestSettings_AreChecked(t *testing.T) {
	t.Parallel()

	good := Settings{AtOnce: 4, AtOnceEach: 2, Stall: time.Minute, Longest: time.Hour}
	must(t, good.Validate())
	for want, change := range map[string]func(*Settings){
		"download.at_once: ":      func(s *Settings) { s.AtOnce = 0 },
		"download.at_once_each: ": func(s *Settings) { s.AtOnceEach = 5 },
		"download.stall: ":        func(s *Settings) { s.Stall = time.Millisecond },
		"download.longest: ":      func(s *Settings) { s.Longest = time.Second },
	} {
		s := good
		change(&s)
		if err := s.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
