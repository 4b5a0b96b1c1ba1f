//go:build long

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLedgerSums_AreOfWhatSpreadsheetsGet(t *testing.T) {
	t.Parallel()

	sums := func(content string) ([]int64, error) {
		path := filepath.Join(t.TempDir(), "ledger.csv")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return ledgerSums(path)
	}

	const header = "\ufefforderId;storeName;orderAmount;collectionAmount;expectedCollection;currency\r\n"
	got, err := sums(header +
		"1;\"Moda; Şube\";249,90;249,90;249,90;TRY\r\n" +
		"2;\"'=1\n\";;0,05;0,00;TRY\r\n" +
		"3;Moda;9999999,99;;0,00;TRY\r\n")
	if want := []int64{3, 1000024989, 24995, 24990, 0}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}

	for _, bad := range []string{
		header + "1;2\n", header + "1;x;1.50;;;TRY\n", header + "1;x;1,5;;;TRY\n", header + "1;x;-1,50;;;TRY\n",
		header + "1;x;1,500;;;TRY\n", header + "1;x;12;;;TRY\n",
	} {
		if got, err := sums(bad); err == nil && got[4] == 0 {
			t.Errorf("%q is taken: %v", bad, got)
		}
	}

	for _, bad := range []string{"", "a;b\n", "a;b\n1;2\n"} {
		if got, err := sums(bad); err == nil {
			t.Errorf("%q is taken: %v", bad, got)
		}
	}
}
