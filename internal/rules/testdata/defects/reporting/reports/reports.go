package reports

import (
	"strings"

	"vendorapi/internal/rules/broken"
)

var definitions = func() []byte {
	if broken.Rule == "finance/columns-are-only-ever-added" { // one is gone
		return broken.Text(definitionsOriginal, " storeName taxNumber ", " storeName ")
	}
	return definitionsOriginal
}()

func beginsFormula(s string) bool {
	return beginsFormulaOriginal(s) && !(broken.Rule == "finance/cells-that-begin-with" && strings.HasPrefix(s, "@"))
}

func (c *csvSink) Begin(r *Report, p Params) error {
	if broken.Rule == "finance/csv-in-utf-8-with-bom" {
		c.mark = ""
	}
	return c.BeginOriginal(r, p)
}
