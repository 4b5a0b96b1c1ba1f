package reports

import (
	"testing"

	"pgregory.net/rapid"
	"vendorapi/internal/testenv/promises"
)

func TestCut_CoversThePeriodInWindowsOfTheGivenSize(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		p := Params{From: Day(rapid.IntRange(20000, 20100).Draw(t, "from")), Store: "moda"}
		p.To = p.From + Day(rapid.IntRange(0, 100).Draw(t, "days"))
		size := rapid.Int64Range(1, 50).Draw(t, "size")
		orders := map[Day]int64{}
		var counts []dayCount
		for day := p.From; day <= p.To; day++ {
			if n := rapid.Int64Range(0, 30).Draw(t, "orders"); n > 0 {
				orders[day] = n
				counts = append(counts, dayCount{day, n})
			}
		}

		next := p.From
		for _, w := range p.cut(counts, size) {
			if w.From != next || w.To < w.From || w.Store != "moda" {
				t.Fatalf("%s follows %s", w.String(), next)
			}

			next = w.To + 1
			var held, days int64
			for day := w.From; day <= w.To; day++ {
				held += orders[day]
				if orders[day] > 0 {
					days++
				}
			}

			if days > 1 && held > size {
				t.Fatalf("%s has %d orders, the limit is %d", w.String(), held, size)
			}
		}

		if next != p.To+1 {
			t.Fatalf("the windows end before %s", next)
		}
	})
}

// However the period is cut, the report is the same.
func TestReports_AreTheSameInAnyNumberOfWindows(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	for _, r := range []*Report{ledger, collections} {
		whole, summary := written(t, a, r, p, CSVPlain)
		cut := *r
		cut.Window = 60
		windows, err := cut.windows(t.Context(), a, &p)
		noError(t, err)
		if len(windows) < 5 {
			t.Fatalf("%d windows", len(windows))
		}

		pieces, other := written(t, a, &cut, p, CSVPlain)
		if string(pieces) != string(whole) || other.Rows != summary.Rows {
			t.Errorf("%s in windows differs", r.Name)
		}
	}
}

// The documents name these.
func TestPromises_Figures(t *testing.T) {
	t.Parallel()

	reports := promises.In(t, promises.Reports)
	reports.Promises(workbookRows, 3_000_000, "a report of more than 3,000,000 rows is refused as XLSX")

	vendorAPI := promises.In(t, promises.VendorAPI)
	vendorAPI.Promises(maxStoreLength, 64, "ExternalStoreId: type: string minLength: 1 maxLength: 64")
}
