//go:build long

package devclickhouse

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestInsert_BodyIsBounded(t *testing.T) {
	t.Parallel()
	c := start(t, childOptions{MaxBody: 1 << 20})
	c.must(t, "CREATE DATABASE d", nil)
	c.must(t, "CREATE TABLE d.t (b String) ENGINE = MergeTree ORDER BY b", nil)
	in := params("query", "INSERT INTO d.t FORMAT TSV")
	line := strings.Repeat("x", 1000) + "\n"
	for size, status := range map[int]int{1000: http.StatusOK, 2000: http.StatusRequestEntityTooLarge} {
		known := c.ask(t, strings.Repeat(line, size), in)
		unknown := c.send(t, http.MethodPost, in, struct{ io.Reader }{strings.NewReader(strings.Repeat(line, size))}, nil)
		if known.status != status || unknown.status != status {
			t.Errorf("%d lines: %d with a length, %d without", size, known.status, unknown.status)
		}
	}
	if got := c.must(t, "SELECT count() FROM d.t", nil); got != "2000\n" {
		t.Errorf("%s rows", got)
	}
}

// More statements than slots wait for their turn; ids that are running are not
// taken twice.
func TestConcurrent_SlotsAndIds(t *testing.T) {
	t.Parallel()
	c := start(t, childOptions{MaxQueries: 2})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if r := c.ask(t, "SELECT sleep(0.05)", nil); r.status != http.StatusOK {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	all.Wait()
	all.Go(func() { c.must(t, "SELECT sleep(2.5)", params("query_id", "the one")) })
	c.awaitRunning(t, "the one")
	if r := c.ask(t, "SELECT 1", params("query_id", "the one")); r.header.Get("X-ClickHouse-Exception-Code") != "216" {
		t.Errorf("%d %s", r.status, r.body)
	}
	all.Wait()
	if r := c.ask(t, "SELECT 1", params("query_id", "the one")); r.status != http.StatusOK || r.header.Get("X-ClickHouse-Query-Id") != "the one" {
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
	resp, err := c.stream(t, query)
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
