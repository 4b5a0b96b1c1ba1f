package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/testenv/testserver"
)

// onTerminal runs `reporting report ARGS` with a terminal as standard error, and
// as standard output, too, and returns what it showed.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	screen, tty := pseudoTerminal(t)
	cmd := program(t, nil, append([]string{"report"}, args...)...)
	cmd.Stdout, cmd.Stderr = tty, tty
	shown := make(chan string)
	go func() {
		b, _ := io.ReadAll(screen) // it ends with an error when the terminal closes
		shown <- string(b)
	}()
	err := cmd.Run()
	tty.Close()
	text := <-shown
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, text)
	}
	return text
}

func TestReport_OnATerminalIsATableOrShowsProgress(t *testing.T) {
	t.Parallel()
	flags := archiveWith(t, testserver.SharedClickHouse(t), 50_000)
	day := append([]string{"expected-collections", "--from", "2026-11-01", "--to", "2026-11-01"}, flags...)
	if text := onTerminal(t, day...); !strings.HasPrefix(text, "Expected collections, 2026-11-01 to 2026-11-01") || !strings.Contains(text, "0 rows") {
		t.Errorf("shown was %q", text)
	}
	ledger := append([]string{"order-ledger", "--from", "2026-11-01", "--to", "2026-11-30", "-o", filepath.Join(t.TempDir(), "a.csv")}, flags...)
	if text := onTerminal(t, ledger...); !strings.Contains(text, "order-ledger") || !strings.Contains(text, "rows/s") {
		t.Errorf("shown was %q", text)
	}
}
