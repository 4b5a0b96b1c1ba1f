//go:build long

package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the programs say is shown as text, and who reads the page learns what failed.
func TestWrite_TellsWhatFailed(t *testing.T) {
	t.Parallel()
	held := Script{Name: "steady", Title: "Steady state"}
	broken := Script{Name: "burst", Title: "Bursts", Failures: []string{"nobody is refused: 3", "webhooks: <script>alert(1)</script>"}}
	for _, c := range []struct {
		page Page
		says string // "": it passes
	}{
		{Page{Scripts: []Script{held}}, ""},
		{Page{}, "Not everything held"},
		{Page{Scripts: []Script{held}, Interrupted: "the gateway ended"}, "the gateway ended"},
		{Page{Scripts: []Script{held, broken}}, "nobody is refused: 3"},
		{Page{Scripts: []Script{held, broken}}, "&lt;script&gt;alert"},
	} {
		path := filepath.Join(t.TempDir(), "report.html")
		if err := Write(path, c.page); err != nil {
			t.Fatal(err)
		}
		html, err := os.ReadFile(path)
		if err != nil || c.page.Passed() != (c.says == "") || !strings.Contains(string(html), c.says) || strings.Contains(string(html), "<script") {
			t.Errorf("%+v: passed %t, %v", c.page, c.page.Passed(), err)
		}
	}
}
