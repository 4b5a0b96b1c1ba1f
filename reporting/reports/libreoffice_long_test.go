//go:build long

package reports

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
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
	for _, r := range []*Report{ledger, collections, statement} {
		want := plain(t, a, r, p)
		b, _ := written(t, a, r, p, CSV)
		f, sheet := opened(t, r.Name, b)
		raw, err := f.GetRows(sheet, excelize.Options{RawCellValue: true})
		noError(t, err)
		if len(raw) != len(want)+1 {
			t.Fatalf("%s: %d rows, wanted %d", r.Name, len(raw), len(want)+1)
		}
		for n := range want {
			for i := range r.Columns {
				requireCell(t, f, sheet, &r.Columns[i], i, n, raw[n+1], want[n][i])
			}
		}
	}
}

// requireCell compares a cell with what csv-plain has.
func requireCell(t *testing.T, f *excelize.File, sheet string, c *Column, column, n int, raw []string, want string) {
	t.Helper()
	got := ""
	if column < len(raw) {
		got = raw[column]
	}
	cell, _ := excelize.CoordinatesToCellName(column+1, n+2)
	if formula, _ := f.GetCellFormula(sheet, cell); formula != "" {
		t.Errorf("%s, %s: the formula %s was made of %q", sheet, cell, formula, want)
	}
	kind, err := f.GetCellType(sheet, cell)
	noError(t, err)
	number := kind == excelize.CellTypeNumber || kind == excelize.CellTypeUnset
	switch {
	case want == "":
	case c.Kind == Text && c.Key == "taxNumber": // CSV has no types: it becomes a number, its leading zero goes
		want = strings.TrimPrefix(want, "0")
	case c.Kind == Text || c.Kind == Month:
		if number {
			t.Errorf("%s, %s: %q has become a number", sheet, cell, want)
		}
	default:
		if !number {
			t.Errorf("%s, %s: %q has stayed a text", sheet, cell, want)
			return
		}
		got = sheetText(t, c.Kind, got)
	}
	if c.Kind == Time && want != "" { // without the milliseconds
		got, want = got[:19], want[:19]
	}
	if got != want {
		t.Errorf("%s, %s: %q, wanted %q", sheet, cell, got, want)
	}
}

// The dangerous names once more, one by one, and the proof that this test would
// notice: without its apostrophe a formula is carried out.
func TestLibreOffice_ExecutesNoFormula(t *testing.T) {
	t.Parallel()
	names := []string{"=1+1", "+1+1", "-2+3", "@SUM(1;2)", "=HYPERLINK(\"http://example.com\")", " =1+1", "\t=1+1", "\n=1+1", "＝1+1", "=cmd|' /C calc'!A0", "Çiğköfteci İğdır ŞÜĞ"}
	var s story
	for i, name := range names {
		created := moment("2026-11-15T12:00:00.000+03:00").Add(time.Duration(i) * time.Minute)
		s.orders = append(s.orders, archive.Order{
			Account: accounts[0], ID: delivery.MakeOrderID(1, delivery.DayOf(created), delivery.OrderDigest(accounts[0], name)), Version: 7,
			ExternalOrderID: name, ExternalStoreID: name, StoreName: name, FleetName: name, Status: delivery.Searching,
			CreatedAt: created, ReadyAt: created, UpdatedAt: created,
		})
	}
	b, _ := written(t, archiveOf(t, s), ledger, period(t, "2026-11-15", "2026-11-15"), CSV)
	f, sheet := opened(t, "names", b)
	for i, name := range names {
		for _, column := range []string{"B", "C", "D", "G"} {
			cell := fmt.Sprint(column, i+2)
			got, err := f.GetCellValue(sheet, cell)
			noError(t, err)
			formula, _ := f.GetCellFormula(sheet, cell)
			if formula != "" || strings.TrimPrefix(got, "'") != name {
				t.Errorf("%s: %q, formula %q, wanted %q", cell, got, formula, name)
			}
		}
	}
	bare := strings.ReplaceAll(string(b), "'=1+1", "=1+1")
	f, sheet = opened(t, "bare", []byte(bare))
	if formula, _ := f.GetCellFormula(sheet, "D2"); formula != "1+1" {
		t.Errorf("this test would not notice a formula: %q", formula)
	}
}
