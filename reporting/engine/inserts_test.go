package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	chcompress "github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/clickhouse-go/v2"
)

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
	if r := c.send(t, http.MethodPost, in, bytes.NewReader(w.Data), nil); r.status != http.StatusOK ||
		!strings.Contains(r.header.Get("X-ClickHouse-Summary"), `"written_rows":"100000"`) {
		t.Errorf("%d %s %s", r.status, r.body, r.header.Get("X-ClickHouse-Summary"))
	}
}

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

// rowsPerBatch is small enough for many batches and large enough to be caught
// in the middle.
const rowsPerBatch = 2000

// Batches are acknowledged when they are stored, whole, and not before: after
// kill -9 at any moment every acknowledged batch is there, and none in part.
func TestInsert_SurvivesKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	acknowledged, sent := map[uint32]bool{}, uint32(0)
	var mu sync.Mutex
	const rounds, writers = 5, 3
	for round := range rounds {
		c := start(t, childOptions{DataDir: dir})
		if round == 0 {
			c.must(t, "CREATE DATABASE d", nil)
			c.must(t, `CREATE TABLE d.t (batch UInt32, n UInt32, text String) ENGINE = MergeTree ORDER BY (batch, n)
				SETTINGS non_replicated_deduplication_window = 100`, nil)
		}
		checkBatches(t, c, acknowledged)
		var ended sync.WaitGroup
		for range writers {
			ended.Go(func() {
				conn := c.connect(t, "d", compression(clickhouse.CompressionLZ4))
				for {
					mu.Lock()
					sent++
					id := sent
					mu.Unlock()
					if err := sendBatch(t, conn, id); err != nil {
						return
					}
					mu.Lock()
					acknowledged[id] = true
					mu.Unlock()
				}
			})
		}
		time.Sleep(300*time.Millisecond + time.Duration(rand.IntN(200))*time.Millisecond)
		c.kill()
		ended.Wait()
	}
	c := start(t, childOptions{DataDir: dir})
	stored := checkBatches(t, c, acknowledged)
	t.Logf("%d batches sent, %d acknowledged, %d stored, over %d kills", sent, len(acknowledged), stored, rounds)
	if len(acknowledged) == 0 {
		t.Error("no batch was acknowledged")
	}
}

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

func checkBatches(t *testing.T, c *child, acknowledged map[uint32]bool) (stored int) {
	t.Helper()
	rows, err := c.connect(t, "d").Query(t.Context(), "SELECT batch, count(), uniqExact(n) FROM t GROUP BY batch")
	noError(t, err)
	found := map[uint32]bool{}
	for rows.Next() {
		var id uint32
		var count, distinct uint64
		noError(t, rows.Scan(&id, &count, &distinct))
		if count != rowsPerBatch || distinct != rowsPerBatch {
			t.Errorf("batch %d has %d rows", id, count)
		}
		found[id] = true
	}
	noError(t, rows.Err())
	for id := range acknowledged {
		if !found[id] {
			t.Errorf("batch %d was acknowledged and is lost", id)
		}
	}
	return len(found)
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
	for c.must(t, "SELECT count() FROM system.processes WHERE Settings['log_comment'] = 'the one'", nil) == "0\n" {
		time.Sleep(10 * time.Millisecond)
	}
	if r := c.ask(t, "SELECT 1", params("query_id", "the one")); r.header.Get("X-ClickHouse-Exception-Code") != "216" {
		t.Errorf("%d %s", r.status, r.body)
	}
	all.Wait()
	if r := c.ask(t, "SELECT 1", params("query_id", "the one")); r.status != http.StatusOK || r.header.Get("X-ClickHouse-Query-Id") != "the one" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A driver whose caller forgot to send is the caller's business; the engine
// keeps nothing of it.
func TestInsert_AbandonedBatchLeavesNothing(t *testing.T) {
	t.Parallel()
	c, name := database(t)
	conn := c.connect(t, name)
	noError(t, conn.Exec(t.Context(), "CREATE TABLE t (a Int32) ENGINE = MergeTree ORDER BY a"))
	batch, err := conn.PrepareBatch(t.Context(), "INSERT INTO t")
	noError(t, err)
	noError(t, batch.Append(int32(1)))
	noError(t, batch.Abort())
	if err := batch.Send(); !errors.Is(err, clickhouse.ErrBatchAlreadySent) {
		t.Error(err)
	}
	if got := c.must(t, "SELECT count() FROM t", params("database", name)); got != "0\n" {
		t.Error(got)
	}
}
