package download

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"vendorapi/reporting/reports"
)

// written is what the report is as the program's other ways write it.
func (s *scene) written(name string, format reports.Format, values reports.Values) []byte {
	s.Helper()
	params, err := values.Parse(time.Now())
	must(s, err)
	report, _ := reports.Find(name)
	var b bytes.Buffer
	_, err = report.Run(s.Context(), s.archive, params, reports.NewSink(format, &b), nil)
	must(s, err)
	return b.Bytes()
}

//rule:finance/reports-each/1 finance/reports-each/2 finance/reports-each/3 finance/reports-each/4 finance/reports-each/5
//rule:finance/csv-in-utf-8-with-bom finance/downloads-get-panel-reports-name-.-csv-xlsx-json-from-to
func TestDownload_IsTheReportInEveryFormat(t *testing.T) {
	s := newScene(t)
	s.insertOrders(5000)
	period := reports.Values{From: "2026-11-01", To: "2026-11-30"}
	for _, report := range reports.All() {
		for _, c := range []struct {
			extension, query string
			format           reports.Format
			file             string
		}{
			{".csv", "", reports.CSV, ".csv"},
			{".csv", "&plain=0", reports.CSV, ".csv"},
			{".csv", "&plain=1", reports.CSVPlain, "_plain.csv"},
			{".json", "", reports.JSON, ".json"},
			{".xlsx", "", reports.XLSX, ".xlsx"},
		} {
			t.Run(report.Name+c.file+c.query, func(t *testing.T) {
				a := s.ask("GET", "/reports/"+report.Name+c.extension+november+c.query, "erp").want(t, 200, "")
				a.wantHeader(t, "Content-Type", c.format.ContentType())
				a.wantHeader(t, "Content-Disposition", `attachment; filename="`+report.Name+"_2026-11-01_2026-11-30"+c.file+`"`)
				a.wantHeader(t, "Cache-Control", "no-store").wantHeader(t, "X-Content-Type-Options", "nosniff").wantHeader(t, "Content-Encoding", "")
				want := s.written(report.Name, c.format, period)
				if c.format == reports.XLSX {
					if got, want := unzip(t, a.text), unzip(t, string(want)); got != want {
						t.Errorf("the workbook has %d bytes of sheets, want %d", len(got), len(want))
					}
					return
				}
				if a.text != string(want) {
					t.Errorf("%.200s…\nwant\n%.200s…", a.text, want)
				}
				if c.format == reports.JSON && !json.Valid([]byte(a.text)) {
					t.Error("this is no JSON")
				}
			})
		}
	}
}

// style is a cell's, whose number is another one in each workbook.
var style = regexp.MustCompile(` s="\d+"`)

// unzip is the contents of a workbook's sheets without their styles, each file's
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
	return style.ReplaceAllString(b.String(), "")
}

//rule:finance/downloads-get-panel-reports-name-.-csv-xlsx-json-from-to
func TestDownload_NarrowsByAccountFleetAndStore(t *testing.T) {
	s := newScene(t)
	s.insertOrders(2100)
	one := func(sql string) string { return strings.TrimSpace(s.engine.Exec(t, sql)) }
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
		a := s.ask("GET", "/reports/order-ledger.csv"+c.query+"&plain=1", "erp").want(t, 200, "orderId,")
		if rows := strings.Count(a.text, "\n") - 1; rows != c.rows {
			t.Errorf("%s: %d rows, want %d", c.query, rows, c.rows)
		}
	}
	a := s.ask("GET", "/reports/order-ledger.csv", "erp").want(t, 200, "")
	today := reports.DayOf(time.Now())
	a.wantHeader(t, "Content-Disposition", fmt.Sprintf(`attachment; filename="order-ledger_%s_%s.csv"`, today.FirstOfMonth(), today))
}

func TestDownload_SaysWhatIsWrong(t *testing.T) {
	s := newScene(t)
	ledger := "/reports/order-ledger.csv"
	for _, c := range []struct {
		name, method, path, token string
		status                    int
		part                      string
	}{
		{"nobody", "GET", ledger, "", 401, "TOKEN_INVALID"},
		{"an operator", "GET", ledger, "ops", 403, "FORBIDDEN"},
		{"an operator, whatever it is", "GET", "/reports/nothing.csv", "ops", 403, "FORBIDDEN"},
		{"another report", "GET", "/reports/orders.csv", "erp", 404, "there is order-ledger, expected-collections"},
		{"another extension", "GET", "/reports/order-ledger.pdf", "erp", 404, "NOT_FOUND"},
		{"a terminal's table", "GET", "/reports/order-ledger.txt", "erp", 404, "NOT_FOUND"},
		{"an extension in capitals", "GET", "/reports/order-ledger.CSV", "erp", 404, "NOT_FOUND"},
		{"no extension", "GET", "/reports/order-ledger", "erp", 404, "NOT_FOUND"},
		{"nothing", "GET", "/reports/", "erp", 404, "NOT_FOUND"},
		{"a file below", "GET", "/reports/x/order-ledger.csv", "erp", 404, "NOT_FOUND"},
		{"POST", "POST", ledger, "erp", 405, "METHOD_NOT_ALLOWED"},
		{"DELETE", "DELETE", ledger, "erp", 405, "METHOD_NOT_ALLOWED"},
		{"a query that is none", "GET", ledger + "?from=%zz", "erp", 400, "MALFORMED_REQUEST"},
		{"a day that is none", "GET", ledger + "?from=2026-02-30", "erp", 422, `"field":"from"`},
		{"another form of a day", "GET", ledger + "?to=30.11.2026", "erp", 422, `"field":"to"`},
		{"to before from", "GET", ledger + "?from=2026-11-02&to=2026-11-01", "erp", 422, `"field":"to"`},
		{"an account that is none", "GET", ledger + "?account=x", "erp", 422, `"field":"account"`},
		{"a fleet that is none", "GET", ledger + "?fleet=1", "erp", 422, `"field":"fleet"`},
		{"a store too long", "GET", ledger + "?store=" + strings.Repeat("x", 65), "erp", 422, `"field":"store"`},
		{"a misspelt filter", "GET", ledger + "?acount=x", "erp", 422, `"field":"acount"`},
		{"a filter twice", "GET", ledger + "?store=a&store=b", "erp", 422, `"field":"store"`},
		{"plain XLSX", "GET", "/reports/order-ledger.xlsx?plain=1", "erp", 422, `"field":"plain"`},
		{"plain of another kind", "GET", ledger + "?plain=yes", "erp", 422, `"field":"plain"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.ask(c.method, c.path, c.token).want(t, c.status, c.part)
			a.wantHeader(t, "Content-Type", "application/json").wantHeader(t, "Content-Disposition", "").wantHeader(t, "Cache-Control", "no-store")
			var envelope struct {
				Success bool
				Message string
				Data    struct{ ErrorCode string }
			}
			if err := json.Unmarshal([]byte(a.text), &envelope); err != nil || envelope.Success || envelope.Message == "" || envelope.Data.ErrorCode == "" {
				t.Errorf("%s, %v", a.text, err)
			}
			allow, challenge := "", ""
			if c.status == 405 {
				allow = "GET, HEAD"
			}
			if c.status == 401 {
				challenge = "Bearer"
			}
			a.wantHeader(t, "Allow", allow).wantHeader(t, "WWW-Authenticate", challenge)
		})
	}
}

// A browser is led to the sign-in page and from there to the file.
func TestDownload_ComesToABrowserThatSignsIn(t *testing.T) {
	s := newScene(t)
	s.insertOrders(10)
	jar, err := cookiejar.New(nil)
	must(t, err)
	client := &http.Client{Jar: jar}
	get := func(url string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		must(t, err)
		r.Header.Set("Accept", "text/html,*/*;q=0.8")
		resp, err := client.Do(r)
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp, string(text)
	}
	link := s.server.URL + "/reports/order-ledger.csv" + november
	page, text := get(link)
	if page.Request.URL.Path != "/login" || !strings.Contains(text, "<form") {
		t.Fatalf("%s %s", page.Request.URL, text)
	}
	next := page.Request.URL.Query().Get("next")
	resp, err := client.PostForm(s.server.URL+"/login", url.Values{"user": {"ayse"}, "password": {password}, "next": {next}})
	must(t, err)
	defer resp.Body.Close()
	file, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != 200 || resp.Request.URL.String() != link || bytes.Count(file, []byte("\n")) != 11 {
		t.Errorf("%d %s %.200s", resp.StatusCode, resp.Request.URL, file)
	}
	if resp, _ := get(link + "&plain=1"); resp.StatusCode != 200 {
		t.Errorf("%d", resp.StatusCode)
	}
	// Empty filters mean all, as forms send them.
	if resp, again := get(link + "&account=&fleet=&store="); resp.StatusCode != 200 || again != string(file) {
		t.Errorf("%d: the form's file is another one", resp.StatusCode)
	}
}

func TestDownload_IsCompressedWhenAskedFor(t *testing.T) {
	s := newScene(t)
	s.insertOrders(20_000)
	plain := s.ask("GET", "/reports/order-ledger.csv"+november, "erp").want(t, 200, "").wantHeader(t, "Vary", "Accept-Encoding")
	for accept, packed := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "*": true, "GZIP": true, "x-gzip": true,
		"": false, "identity": false, "br": false, "gzip;q=0": false, "*;q=0": false, "gzip;q=0, *": false, "gzip;q=x": false} {
		a := s.ask("GET", "/reports/order-ledger.csv"+november, "erp", "Accept-Encoding: "+accept).want(t, 200, "")
		text := a.text
		if packed {
			a.wantHeader(t, "Content-Encoding", "gzip")
			r, err := gzip.NewReader(strings.NewReader(a.text))
			must(t, err)
			b, err := io.ReadAll(r)
			must(t, err)
			text = string(b)
		} else {
			a.wantHeader(t, "Content-Encoding", "")
		}
		if text != plain.text {
			t.Errorf("%q: %d bytes, want %d", accept, len(text), len(plain.text))
		}
	}
	s.ask("GET", "/reports/order-ledger.xlsx"+november, "erp", "Accept-Encoding: gzip").want(t, 200, "PK").
		wantHeader(t, "Content-Encoding", "").wantHeader(t, "Vary", "")
}

func TestDownload_AnswersHEADWithoutReadingTheReport(t *testing.T) {
	s := newScene(t)
	s.insertOrders(1000)
	for _, file := range []string{"order-ledger.csv", "exceptions.json", "fleet-statement.xlsx"} {
		whole := s.ask("GET", "/reports/"+file+november, "erp").want(t, 200, "")
		head := s.ask("HEAD", "/reports/"+file+november, "erp").want(t, 200, "")
		for _, name := range []string{"Content-Type", "Content-Disposition", "Vary", "Cache-Control", "Accept-Ranges"} {
			head.wantHeader(t, name, whole.Header.Get(name))
		}
		if head.text != "" {
			t.Errorf("a body of %d bytes", len(head.text))
		}
	}
	s.ask("HEAD", "/reports/order-ledger.pdf", "erp").want(t, 404, "")
	s.ask("HEAD", "/reports/order-ledger.csv?from=x", "erp").want(t, 422, "")
	s.ask("HEAD", "/reports/order-ledger.csv", "").want(t, 401, "")
	if n := s.ended(resultWhole); n != 3 {
		t.Errorf("%v reports were read, want 3", n)
	}
}

func TestSettings_AreJudged(t *testing.T) {
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
		if _, err := New(nil, s, nil, nil); err == nil {
			t.Error("taken")
		}
	}
}
