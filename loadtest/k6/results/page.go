package results

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"vendorapi/loadtest/harness"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"charts":   chartsOf,
	"duration": wholeSeconds,

	"number":    harness.Number,
	"rate":      formatRate,
	"grouped":   harness.Grouped[int],
	"cores":     func(busy float64) string { return fmt.Sprintf("%.2f", busy) },
	"megabytes": func(bytes uint64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) },
	"traffic":   func(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) },

	"scriptPart": func(page *pageData, script *Script) scriptPart {
		return scriptPart{Page: page, Script: script}
	},
}).Parse(pageText))

// pageData is what the template gets.
type pageData struct {
	Run *Run

	// Comparison compares the run with an earlier one; nil without one.
	Comparison *Comparison
}

// RowsOf returns the rows of a script's comparison with the earlier run; nil without one.
func (d *pageData) RowsOf(script string) []ComparisonRow {
	if d.Comparison == nil {
		return nil
	}

	return d.Comparison.rowsOf(script)
}

// scriptPart is what the template of one script gets.
type scriptPart struct {
	Page   *pageData
	Script *Script
}

// FailedChecks returns the checks that did not hold for every answer.
func (s *Script) FailedChecks() []Check {
	var failed []Check
	for _, check := range s.Checks {
		if check.Fails > 0 {
			failed = append(failed, check)
		}
	}

	return failed
}

// WritePage writes the run as an HTML page that loads nothing: no scripts, no fonts, no images.
// The page compares the run with an earlier one, which may be nil.
func WritePage(w io.Writer, run, earlier *Run) error {
	data := &pageData{Run: run}
	if earlier != nil {
		data.Comparison = Compare(earlier, run, 0)
	}

	// A page that fails in the middle must not look like a whole one.
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, data); err != nil {
		return fmt.Errorf("make the page: %w", err)
	}
	if _, err := page.WriteTo(w); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}

	return nil
}

// wholeSeconds returns a duration, rounded to seconds.
func wholeSeconds(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}
