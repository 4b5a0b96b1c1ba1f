//go:build long

package reports

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"
)

// inTurkish is how LibreOffice opens a CSV file in a Turkish locale: semicolons,
// quotes, UTF-8, from the first line on, locale 1055, quoted cells like others,
// dates recognised, and formulas carried out, which is the dangerous choice.
const inTurkish = "CSV:59,34,76,1,,1055,false,true,false,false,false,0,true"

// opened converts a CSV file with LibreOffice and returns its sheet.
func opened(t *testing.T, name string, content []byte) (*excelize.File, string) {
	t.Helper()
	soffice, err := exec.LookPath("soffice")
	if err != nil {
		t.Fatal("soffice is missing: this test opens reports in LibreOffice; `sh internal/stack/deps.sh libreoffice` installs it")
	}

	dir := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(dir, name+".csv"), content, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, soffice, "-env:UserInstallation=file://"+filepath.Join(dir, "profile"), "--headless",
		"--infilter="+inTurkish, "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", filepath.Join(dir, "out"), filepath.Join(dir, name+".csv"))
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("soffice: %v\n%s", err, out)
	}

	f, err := excelize.OpenFile(filepath.Join(dir, "out", name+".xlsx"))
	noError(t, err)
	t.Cleanup(func() { f.Close() })

	return f, f.GetSheetList()[0]
}

func TestLibreOffice_OpensCSV(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	// CSV has no types: a tax number becomes a number, and a month stays a text.
	isNumber := func(c *Column) bool { return c.Kind != Text && c.Kind != Month || c.Key == "taxNumber" }
	for _, r := range []*Report{ledger, collections, statement} {
		want := plain(t, a, r, p)
		for _, row := range want {
			for i := range r.Columns {
				if c := &r.Columns[i]; c.Kind == Time && row[i] != "" { // without the milliseconds
					row[i] = row[i][:19] + ".000+03:00"
				} else if c.Key == "taxNumber" {
					row[i] = strings.TrimPrefix(row[i], "0")
				} else if c.Kind == Text {
					row[i] = disarmed(row[i])
				}
			}
		}

		b, _ := written(t, a, r, p, CSV)
		f, sheet := opened(t, r.Name, b)
		sameRows(t, r.Name, sheetRows(t, f, r, sheet, 1, isNumber), want)
	}

	// This test would notice a formula: without its apostrophe it is carried out.
	f, sheet := opened(t, "bare", []byte("=1+1\n"))
	if formula, _ := f.GetCellFormula(sheet, "A1"); formula != "1+1" {
		t.Errorf("a formula was read as %q", formula)
	}
}
