package engine

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func params(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func TestFormats_AreOneDocumentEach(t *testing.T) {
	t.Parallel()
	c, _ := database(t)
	// More rows than a block has, so that a header per block would show.
	const rows = 200_000
	query := fmt.Sprintf("SELECT number AS n, concat('say \"', toString(number), '\"') AS s FROM numbers(%d)", rows)
	for format, count := range map[string]func(body string) (int, error){
		"CSV":          func(b string) (int, error) { return csvRows(b) },
		"CSVWithNames": func(b string) (int, error) { n, err := csvRows(b); return n - 1, err },
		"TSV":          func(b string) (int, error) { return strings.Count(b, "\n"), nil },
		"TabSeparatedWithNamesAndTypes": func(b string) (int, error) {
			if !strings.HasPrefix(b, "n\ts\nUInt64\tString\n0\t") {
				return 0, fmt.Errorf("begins %q", b[:40])
			}
			return strings.Count(b, "\n") - 2, nil
		},
		"JSON": func(b string) (int, error) {
			var document struct {
				Data []struct{ N, S any }
				Rows int
			}
			err := json.Unmarshal([]byte(b), &document)
			return min(len(document.Data), document.Rows), err
		},
		"JSONCompact": func(b string) (int, error) {
			var document struct{ Data [][]any }
			err := json.Unmarshal([]byte(b), &document)
			return len(document.Data), err
		},
		"JSONEachRow": func(b string) (int, error) { return strings.Count(b, "}\n"), nil },
		"XML": func(b string) (int, error) {
			if strings.Count(b, "<?xml") != 1 || !strings.HasSuffix(b, "</result>\n") {
				return 0, fmt.Errorf("ends %q", b[len(b)-40:])
			}
			return strings.Count(b, "<row>"), nil
		},
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := c.ask(t, query+" FORMAT "+format, nil)
			n, err := count(r.body)
			if r.status != http.StatusOK || n != rows || err != nil || r.header.Get("X-ClickHouse-Format") != format {
				t.Errorf("%d, %d rows, %v", r.status, n, err)
			}
			if byDefault := c.ask(t, "SELECT 1 AS n", params("default_format", format)); byDefault.body != c.must(t, "SELECT 1 AS n FORMAT "+format, nil) &&
				!strings.Contains(format, "JSON") && format != "XML" { // these tell how long they took
				t.Errorf("default_format %s: %s", format, byDefault.body)
			}
		})
	}
}

func csvRows(body string) (int, error) {
	records, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	return len(records), err
}

// Parquet is written at its end and read back by the engine itself, with the
// data in the request.
func TestFormats_ParquetComesBack(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	in := params("database", name)
	c.must(t, "CREATE TABLE p (n UInt64, at DateTime64(3, 'Europe/Istanbul'), amount Decimal(18, 2)) ENGINE = MergeTree ORDER BY n", in)
	rows := c.must(t, "SELECT number AS n, toDateTime64(number, 3, 'Europe/Istanbul') AS at, toDecimal64(number, 2) / 100 AS amount FROM numbers(1000) FORMAT Parquet", in)
	in.Set("query", "INSERT INTO p FORMAT Parquet")
	c.must(t, rows, in)
	if got := c.must(t, "SELECT count(), sum(amount), max(at) FROM p", params("database", name)); got != "1000\t4995\t1970-01-01 02:16:39.000\n" {
		t.Error(got)
	}
}

func TestFormats_CurlWithEverything(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	curl := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "curl", append([]string{"-sS", "--fail-with-body", "--max-time", "20"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return string(out)
	}
	base := "http://" + c.addr + "/?database=" + name
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"http://" + c.addr + "/ping"}, "Ok.\n"},
		{[]string{base, "-d", "CREATE TABLE t (a Int32, b String) ENGINE = MergeTree ORDER BY a"}, ""},
		{[]string{base, "-d", "INSERT INTO t VALUES (1, 'x;y'), (2, '--')"}, ""},
		{[]string{base + "&query=INSERT+INTO+t+FORMAT+CSV", "--data-binary", "3,\"c\n\nd\"\n"}, ""},
		{[]string{base + "&query=INSERT+INTO+t+(b,+a)+FORMAT+JSONEachRow", "-d", `{"a": 4, "b": "ş"}`}, ""},
		{[]string{base, "--data-binary", "INSERT INTO t FORMAT TSV\n5\te\n"}, ""},
		{[]string{base + "&query=SELECT+count(),sum(a)+FROM+t+FORMAT+CSV"}, "5,15\n"},
		{[]string{base + "&query=SELECT+a,b+FROM+t", "-d", "WHERE a > 3 ORDER BY a"}, "4\tş\n5\te\n"},
		{[]string{"--compressed", base + "&param_a=3", "-d", "SELECT b FROM t WHERE a = {a:Int32} FORMAT JSONEachRow"}, "{\"b\":\"c\\n\\nd\"}\n"},
		{[]string{"-H", "X-ClickHouse-Format: JSONCompactEachRow", "-u", "default:", base + "&max_threads=1", "-d", "SELECT a FROM t ORDER BY a LIMIT 2"}, "[1]\n[2]\n"},
		{[]string{"-T", "-", "-X", "POST", base + "&query=SELECT+1"}, "1\n"},
	} {
		if got := curl(step.args...); got != step.want {
			t.Fatalf("curl %q\n got %q\nwant %q", step.args, got, step.want)
		}
	}
	// A result that breaks off is an error to curl, with the reason at its end.
	if got := curl(base, "-d", "SELECT throwIf(number = 3000000, 'broke') FROM numbers(4000000)"); !strings.HasPrefix(got, "exit status 18") || !strings.Contains(got[len(got)-400:], "broke") {
		t.Errorf("…%s", got[max(0, len(got)-400):])
	}
	// With wait_end_of_query it is one from the start.
	r := c.ask(t, "SELECT throwIf(number = 3000000, 'broke') FROM numbers(4000000)", params("wait_end_of_query", "1"))
	if r.status != http.StatusInternalServerError || r.header.Get("X-ClickHouse-Exception-Code") != "395" || !strings.HasPrefix(r.body, "Code: 395. DB::Exception: broke") {
		t.Errorf("%d %.200s", r.status, r.body)
	}
	if got := c.must(t, "SELECT number FROM numbers(3000000)", params("wait_end_of_query", "1")); strings.Count(got, "\n") != 3000000 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestFormats_Compress(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	gzipped := func(s string) *bytes.Buffer {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		io.WriteString(w, s)
		w.Close()
		return &b
	}
	in := params("database", name)
	c.must(t, "CREATE TABLE t (a Int32) ENGINE = MergeTree ORDER BY a", in)
	r := c.send(t, http.MethodPost, in, gzipped("INSERT INTO t FORMAT CSV\n1\n2\n"), http.Header{"Content-Encoding": {"gzip"}})
	if r.status != http.StatusOK {
		t.Fatal(r.body)
	}
	for accept, coding := range map[string]string{"gzip": "gzip", "gzip, deflate, br": "gzip", "gzip;q=0": "", "": "", "zstd": ""} {
		r := c.send(t, http.MethodPost, in, strings.NewReader("SELECT sum(a) FROM t"), http.Header{"Accept-Encoding": {accept}})
		if got := r.header.Get("Content-Encoding"); got != coding {
			t.Errorf("Accept-Encoding %q: %q", accept, got)
		}
		if coding == "gzip" {
			content, err := gzip.NewReader(strings.NewReader(r.body))
			noError(t, err)
			plain, err := io.ReadAll(content)
			noError(t, err)
			r.body = string(plain)
		}
		if r.body != "3\n" {
			t.Errorf("Accept-Encoding %q: %q", accept, r.body)
		}
	}
	if r := c.send(t, http.MethodPost, in, strings.NewReader("SELECT 1"), http.Header{"Content-Encoding": {"lzma"}}); r.status != http.StatusNotImplemented {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A report of millions of rows takes no more memory than a small one, on either
// side of the pipe, and a client that reads slowly makes the engine wait.
func TestStreaming_TakesConstantMemory(t *testing.T) {
	t.Parallel()
	c := start(t, childOptions{})
	const rows = 3_000_000
	query := fmt.Sprintf("SELECT number, toString(number), toDecimal64(number, 2), now64(3) FROM numbers(%d) FORMAT CSVWithNames", rows)
	c.must(t, strings.Replace(query, strconv.Itoa(rows), "100000", 1), nil) // what is needed once
	before := memory(t, c, "RssAnon")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.addr, strings.NewReader(query))
	noError(t, err)
	resp, err := plainTransport.RoundTrip(req)
	noError(t, err)
	defer resp.Body.Close()
	time.Sleep(300 * time.Millisecond) // time enough to run ahead, if it did
	buffer, lines, size, peak := make([]byte, 1<<20), 0, 0, 0
	for {
		n, err := resp.Body.Read(buffer)
		lines += bytes.Count(buffer[:n], []byte("\n"))
		if size>>26 != (size+n)>>26 {
			peak = max(peak, memory(t, c, "RssAnon"))
		}
		size += n
		if err == io.EOF {
			break
		}
		noError(t, err)
	}
	t.Logf("%d MB; anonymous memory %d MB before, %d MB at most", size>>20, before>>10, peak>>10)
	if lines != rows+1 || peak == 0 || peak-before > 96<<10 {
		t.Errorf("%d lines, memory grew from %d to %d kB", lines, before, peak)
	}
}

// memory reads a line of /proc/PID/status, in kB.
func memory(t testing.TB, c *child, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	noError(t, err)
	_, line, _ := strings.Cut(string(status), name+":")
	n, err := strconv.Atoi(strings.Fields(line)[0])
	noError(t, err)
	return n
}
