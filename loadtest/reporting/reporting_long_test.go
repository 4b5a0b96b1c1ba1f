//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
)

// The quick form, whole and small: orders through Redis into ClickHouse, every
// report over HTTP, downloads. What holds on any machine is judged.
func TestQuickRun_IsExact(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "figures.json")
	var out bytes.Buffer
	err := run(t.Context(), []string{"-quick", "-orders", "1000", "-history", "10000", "-json", path}, &out)
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	got := map[string]harness.Judged{}
	for _, f := range r.Figures {
		got[f.Key] = f
	}
	for _, key := range []string{"export.wrong", "export.left", "download.differs",
		"download.http.memory", "download.file.memory", "download.xlsx.memory"} {
		if f := got[key]; f.Verdict != harness.Passed {
			t.Errorf("%s: %+v", key, f)
		}
	}
	for _, key := range []string{"export.rows", "reports.account_month.order-ledger", "reports.account_month.order-ledger.cold",
		"reports.year.fleet-statement", "reports.year.fleet-statement.bare", "reports.year.control-totals"} {
		if f := got[key]; f.Median <= 0 || f.Verdict != "" {
			t.Errorf("a quick run judges no times and rates: %s %+v", key, f)
		}
	}
	if rows := got["reports.year.order-ledger.rows"].Median; rows != 10_000 || !r.Quick || r.Orders != 1000 {
		t.Errorf("%v rows in the year, %+v", rows, r)
	}
}

// What is interrupted says so, and leaves nothing behind.
func TestRun_EndsWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-parts", "reports", "-json", filepath.Join(dir, "figures.json")}, io.Discard)
	}()
	left := func(below ...string) []string {
		found, _ := filepath.Glob(filepath.Join(append([]string{dir, "bench-reporting-*"}, below...)...)) // the pattern is well formed
		return found
	}
	testserver.Await(t, "its Redis runs", func() bool { return len(left("*", "redis", "appendonlydir")) > 0 })
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if folders := left(); len(folders) > 0 {
		t.Errorf("left %v", folders)
	}
}

func TestSumLedger_ReadsWhatSpreadsheetsGet(t *testing.T) {
	t.Parallel()
	const header = "\ufefforderId;storeName;orderAmount;collectionAmount;expectedCollection;currency\r\n"
	got, err := sumLedger(strings.NewReader(header +
		"1;\"Moda; Şube\";249,90;249,90;249,90;TRY\r\n" +
		"2;\"'=1\n\";;0,05;0,00;TRY\r\n" +
		"3;Moda;9999999,99;;0,00;TRY\r\n"))
	if want := (sums{rows: 3, amount: 1_000_024_989, collection: 24_995, expected: 24_990}); err != nil || got != want {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	for _, bad := range []string{
		"", "a;b\n", header + "1;2\n", header + "1;x;1.50;;;TRY\n", header + "1;x;1,5;;;TRY\n", header + "1;x;-1,50;;;TRY\n",
		header + "1;x;1,500;;;TRY\n", header + "1;x;12;;;TRY\n",
	} {
		if _, err := sumLedger(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestLookout_FindsWhatIsCutInTwo(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 3000) + `"ties":"no"` + strings.Repeat("y", 5000) + "the end"
	for _, step := range []int{1, 7, 1000, 1 << 20} {
		l := &lookout{mark: []byte(`"ties":"no"`)}
		for rest := text; rest != ""; rest = rest[min(step, len(rest)):] {
			if n, err := l.Write([]byte(rest[:min(step, len(rest))])); err != nil || n == 0 {
				t.Fatal(n, err)
			}
		}
		if !l.met || len(l.tail) != tailLength || !strings.HasSuffix(string(l.tail), "the end") {
			t.Errorf("step %d: met %t, %d bytes", step, l.met, len(l.tail))
		}
	}
}
