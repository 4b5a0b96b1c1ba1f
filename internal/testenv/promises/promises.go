// Package promises holds figures of the product, such as limits, times and counts, to the documents that
// promise them.
package promises

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The documents that promise figures, by their paths in the module.
const (
	Specification     = "docs/spec/delivery-vendor-api-v1.md"
	Decisions         = "docs/spec/decisions.md"
	VendorAPI         = "gateway/openapi/vendor.yaml"
	Webhooks          = "gateway/openapi/WEBHOOKS.md"
	Security          = ".github/SECURITY.md"
	Operations        = "docs/operations.md"
	Keys              = "docs/keys.md"
	Runbook           = "docs/runbook.md"
	ReportingSettings = "configs/reporting.yaml"
	WorkerSettings    = "configs/worker.yaml"
	Reports           = "reporting/REPORTS.md"
	Closing           = "reporting/CLOSING.md"
	Panel             = "reporting/PANEL.md"
)

// A Document is the text of a document, for one test.
type Document struct {
	t    *testing.T
	path string
	text string // in one line
}

// In reads a document, which is named by its path in the module.
func In(t *testing.T, path string) *Document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return &Document{t: t, path: path, text: inOneLine(string(text))}
}

// Promises fails the test where the product has another figure than the literal, in value or type, or
// where the document does not have the quote, which names the figure: whoever changes one of the three
// has to change all. Any white space in the quote and in the document counts as one blank.
func (d *Document) Promises(has, literal any, quote string) {
	d.t.Helper()
	if has != literal {
		d.t.Errorf("%s: %q: the product has %v, promised is %v", d.path, quote, has, literal)
	}
	if quote == "" || !strings.Contains(d.text, inOneLine(quote)) {
		d.t.Errorf("%s does not say %q, which promises %v", d.path, quote, literal)
	}
}

// moduleRoot returns the folder above the test's that has go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}

	for {
		_, err := os.Stat(filepath.Join(folder, "go.mod"))
		if err == nil {
			return folder
		}

		parent := filepath.Dir(folder)
		if parent == folder {
			t.Fatal("there is no go.mod above the test's folder")
		}

		folder = parent
	}
}

func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
