package reconcile

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
)

func look(orders, retired, differences int) Look {
	return Look{Orders: orders, Retired: retired, Differences: differences, Digest: archive.Digest{Rows: int64(orders), SHA256: "d"}}
}

func TestComparison_CountsByWhatWasCompared(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		what             string
		looks            []Look
		isClean, hasOpen bool
	}{
		{"never looked at", nil, false, false},
		{"a clean look at all orders", []Look{look(10, 0, 0)}, true, false},
		{"a day without orders", []Look{look(0, 0, 0)}, true, false},
		{"a look at nothing, because all had left Redis", []Look{look(0, 10, 0)}, false, false},
		{"a look at a part", []Look{look(4, 6, 0)}, false, false},
		{"a difference", []Look{look(10, 0, 1)}, false, true},
		{"a difference, then an empty look", []Look{look(10, 0, 1), look(0, 10, 0)}, false, true},
		{"a difference, then a clean look at fewer", []Look{look(10, 0, 1), look(9, 1, 0)}, false, true},
		{"a difference, then a clean look at as many", []Look{look(10, 0, 1), look(10, 0, 0)}, true, false},
		{"a difference after a clean look", []Look{look(10, 0, 0), look(4, 6, 1)}, true, true},
		{"that one, refuted by a look at as many", []Look{look(10, 0, 0), look(4, 6, 1), look(4, 6, 0)}, true, false},
		{"a smaller difference after a larger one", []Look{look(10, 0, 1), look(4, 6, 1), look(4, 6, 0)}, false, true},
		{"a clean look stays after an empty one", []Look{look(10, 0, 0), look(0, 10, 0)}, true, false},
	} {
		var comparison Comparison
		for _, l := range c.looks {
			comparison.add(l)
		}

		if (comparison.Clean != nil) != c.isClean || (comparison.Open != nil) != c.hasOpen {
			t.Errorf("%s: %+v", c.what, comparison)
		}
	}
}

// However looks follow each other, a difference stays open until as many orders were compared without one.
func TestComparison_NoDifferenceIsForgotten(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		var comparison Comparison
		worst := -1 // orders compared by the look whose difference is open
		for range rapid.IntRange(1, 12).Draw(t, "looks") {
			l := look(rapid.IntRange(0, 5).Draw(t, "orders"), rapid.IntRange(0, 2).Draw(t, "retired"), rapid.IntRange(0, 1).Draw(t, "differences"))
			comparison.add(l)
			switch {
			case l.Differences > 0:
				worst = max(worst, l.Orders)
			case l.Orders >= worst:
				worst = -1
			}

			if (comparison.Open != nil) != (worst >= 0) {
				t.Fatalf("after %+v: %+v, worst is %d", l, comparison, worst)
			}
		}
	})
}

// Nights of several processes do not lose each other's looks.
func TestNoteLook_KeepsWhatOthersNoted(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	day := time.Date(2026, 11, 3, 0, 0, 0, 0, time.FixedZone("", 3*3600))
	note := func(l *ledger.Ledger, look Look) {
		t.Helper()
		testenv.Must(t, noteLook(t.Context(), l, day, look))
	}

	note(e.Ledger, look(10, 0, 1))
	note(e.Ledger, look(3, 7, 0))

	all, err := Comparisons(t.Context(), e.Ledger, day.AddDate(0, 0, -1), day)
	testenv.Must(t, err)
	if len(all) != 2 || all[0].Open != nil || all[0].Clean != nil || all[1].Open == nil || all[1].Open.Orders != 10 {
		t.Errorf("%+v", all)
	}
}
