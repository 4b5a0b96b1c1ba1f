//go:build long

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A report of millions of rows takes no more memory than a small one, on either
// side of the pipe, and a client that reads slowly makes the engine wait.
func TestStreaming_TakesConstantMemory(t *testing.T) {
	t.Parallel()

	c := start(t, t.TempDir())
	const rows = 3_000_000
	query := fmt.Sprintf("SELECT number, toString(number), toDecimal64(number, 2), now64(3) FROM numbers(%d) FORMAT CSV", rows)
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
	if lines != rows || peak == 0 || peak-before > 96<<10 {
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
