package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	chcompress "github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/devclickhouse/libchdb"
	"vendorapi/internal/testenv/testserver"
)

// An insert is acknowledged when it is stored: kill -9 takes nothing of it. Meanwhile
// no other process can have the folder.
func TestInsert_AcknowledgedSurvivesKill(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	c := start(t, dir)
	c.must(t, "CREATE DATABASE d", nil)
	c.must(t, "CREATE TABLE d.t (batch UInt32, n UInt32, text String) ENGINE = MergeTree ORDER BY (batch, n)", nil)
	noError(t, sendBatch(t, c.connect(t, "d", compression(clickhouse.CompressionLZ4)), 1))
	want := fmt.Sprintf("the data folder is in use: %s, by process %d", dir, c.cmd.Process.Pid)
	if said := refusal(t, dir); !strings.Contains(said, want) {
		t.Errorf("said %q", said)
	}

	c.kill()
	c = start(t, dir)
	if got := c.must(t, "SELECT count(), uniqExact(n) FROM d.t", nil); got != fmt.Sprintf("%[1]d\t%[1]d\n", rowsPerBatch) {
		t.Errorf("stored are %s", got)
	}
}

// refusal starts an engine that must not start, and returns what it says.
func refusal(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := childCommand(dir, args...)
	tooLong := time.AfterFunc(testserver.Timeout, func() { _ = cmd.Process.Kill() })
	defer tooLong.Stop()
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !tooLong.Stop() {
		t.Fatalf("it started: %v, %s", err, out)
	}
	return string(out)
}

func TestRun_SaysWhatIsWrong(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		library, path string // CHDB_LIBRARY and PATH; "": as they are
		args          []string
		want          string
	}{
		{"", "", []string{"-addr", "0.0.0.0:0"}, "0.0.0.0:0: reading needs no password, so only loopback is served"},
		{"", "", []string{"-addr", ":0"}, "only loopback is served"},
		{"", "", []string{"-addr", "here"}, "missing port"},
		{"", "", []string{"serve"}, `devclickhouse: unknown command "serve"`},
		{"/nowhere/libchdb.so", "", nil, "CHDB_LIBRARY: stat /nowhere/libchdb.so"},
		{"none", "", nil, "`devclickhouse install` fetches it"},
		{"none", empty, []string{"install"}, "npm is missing"},
	} {
		t.Run(c.want, func(t *testing.T) {
			if c.library == "none" {
				t.Setenv(libchdb.PathVariable, "")
				t.Setenv("XDG_CACHE_HOME", empty)
				t.Setenv("HOME", empty)
			} else if c.library != "" {
				t.Setenv(libchdb.PathVariable, c.library)
			}

			if c.path != "" {
				t.Setenv("PATH", c.path)
			}

			if said := refusal(t, t.TempDir(), c.args...); !strings.Contains(said, c.want) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// An insert whose body ends early, by either kind of length, leaves nothing;
// neither does one that is damaged or too long.
func TestInsert_AllOrNothing(t *testing.T) {
	t.Parallel()

	c, name := database(t)
	in := params("database", name)
	c.must(t, "CREATE TABLE t (a UInt64, b String) ENGINE = MergeTree ORDER BY a", in)
	var rows strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&rows, "%d,\"row %d\"\n", i, i)
	}

	whole := rows.String()
	target := "/?database=" + name + "&query=INSERT+INTO+t+FORMAT+CSV"
	for _, head := range []string{
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(whole), whole[:len(whole)/2]),
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", len(whole), whole[:len(whole)/2]),                   // within a chunk
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(whole)/2, whole[:len(whole)/2]),             // between two
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nnonsense\r\n", len(whole)/2, whole[:len(whole)/2]), // broken
	} {
		conn, err := net.Dial("tcp", c.addr)
		noError(t, err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%s", target, head)
		noError(t, err)
		noError(t, conn.(*net.TCPConn).CloseWrite())
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("a body that was cut off is answered %d", resp.StatusCode)
		}

		conn.Close()
	}

	in.Set("query", "INSERT INTO t FORMAT CSV")
	if r := c.ask(t, whole+"x,y\n", in); r.status != http.StatusBadRequest {
		t.Errorf("%d %s", r.status, r.body)
	}

	in.Set("decompress", "1")
	w := chcompress.NewWriter(chcompress.LevelZero, chcompress.LZ4)
	noError(t, w.Compress([]byte(whole)))
	for what, body := range map[string][]byte{
		"damaged": append(append(bytes.Clone(w.Data), w.Data[:len(w.Data)-1]...), 'x'),
		"cut":     append(bytes.Clone(w.Data), w.Data[:len(w.Data)/2]...),
		"plain":   []byte(whole),
	} {
		if r := c.send(t, http.MethodPost, in, bytes.NewReader(body), nil); r.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", what, r.status, r.body)
		}
	}

	if got := c.must(t, "SELECT count() FROM t", params("database", name)); got != "0\n" {
		t.Fatalf("%s rows are left", got)
	}
	if r := c.send(t, http.MethodPost, in, bytes.NewReader(w.Data), nil); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	if got := c.must(t, "SELECT count() FROM t", params("database", name)); got != "100000\n" {
		t.Errorf("%s rows are there", got)
	}
}

// rowsPerBatch is small enough for many batches and large enough to be caught
// in the middle.
const rowsPerBatch = 2000

func sendBatch(t *testing.T, conn clickhouse.Conn, id uint32) error {
	batch, err := conn.PrepareBatch(t.Context(), "INSERT INTO t")
	if err != nil {
		return err
	}

	for n := range uint32(rowsPerBatch) {
		if err := batch.Append(id, n, "line one\n\nline three"); err != nil {
			return err
		}
	}

	return batch.Send()
}

// Readers and writers at once: every reader sees whole batches only, and the
// end is exact.
func TestConcurrent_ReadersAndWriters(t *testing.T) {
	t.Parallel()

	c, name := database(t)
	conn := c.connect(t, name)
	noError(t, conn.Exec(t.Context(), "CREATE TABLE t (batch UInt32, n UInt32, text String) ENGINE = MergeTree ORDER BY (batch, n)"))
	const writers, batches = 4, 10
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	failures := make(chan error, 100)
	for w := range uint32(writers) {
		writing.Go(func() {
			for b := range uint32(batches) {
				if err := sendBatch(t, conn, w*batches+b); err != nil {
					failures <- err
				}
			}
		})
	}

	for range 3 {
		reading.Go(func() {
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				default:
				}

				var rows, last uint64
				if err := conn.QueryRow(t.Context(), "SELECT count(), countIf(n = {last:UInt32}) FROM t", clickhouse.Named("last", rowsPerBatch-1)).Scan(&rows, &last); err != nil {
					failures <- err
				} else if rows != last*rowsPerBatch {
					failures <- fmt.Errorf("%d rows, %d last ones", rows, last)
				}
			}
		})
	}

	writing.Wait()
	close(done)
	reading.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}

	var rows uint64
	noError(t, conn.QueryRow(t.Context(), "SELECT count() FROM t").Scan(&rows))
	if rows != writers*batches*rowsPerBatch {
		t.Errorf("%d rows", rows)
	}
}
