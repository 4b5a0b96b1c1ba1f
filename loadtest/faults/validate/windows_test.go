package validate

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

const ms = time.Millisecond

func sorted(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	return spans
}

func TestExcess(t *testing.T) {
	t.Parallel()

	three := delivery.Window{Count: 3, Seconds: 1}
	spans := func(pairs ...int) (s []span) {
		for i := 0; i < len(pairs); i += 2 {
			s = append(s, span{time.Duration(pairs[i]) * ms, time.Duration(pairs[i+1]) * ms})
		}
		return s
	}

	for _, one := range []struct {
		name   string
		spans  []span
		window delivery.Window
		over   bool
	}{
		{"as many as may", spans(0, 10, 100, 110, 900, 910), three, false},
		{"one more", spans(0, 10, 100, 110, 500, 510, 900, 910), three, true},
		{"one more, a window later", spans(0, 10, 100, 110, 500, 510, 1001, 1010), three, false},
		{"one more, that may have been later", spans(0, 10, 100, 110, 500, 510, 900, 1100), three, false},
		{"one more, the first of which may have been earlier", spans(-200, 10, 100, 110, 500, 510, 900, 910), three, false},
		{"one more, that ends when the window does", spans(0, 10, 100, 110, 500, 510, 900, 999), three, false},
		{"all at one moment", spans(5, 5, 5, 5, 5, 5, 5, 5), three, true},
		{"too many only over two windows in a row", spans(0, 900, 0, 900, 0, 900, 500, 1400, 500, 1400, 900, 1900, 900, 1900), three, true},
		{"one less over two windows in a row", spans(0, 900, 0, 900, 0, 900, 500, 1400, 500, 1400, 900, 1900), three, false},
		{"a long one spans the whole", spans(0, 5000, 1000, 1010, 1100, 1110, 1500, 1510), three, false},
		{"one in ten seconds, too early", spans(0, 5, 9980, 9985), delivery.Window{Count: 1, Seconds: 10}, true},
		{"one in ten seconds", spans(0, 5, 9980, 10_003), delivery.Window{Count: 1, Seconds: 10}, false},
	} {
		if _, n, _ := excess(sorted(one.spans), one.window); n > 0 != one.over {
			t.Errorf("%s: %d found, want an excess: %t", one.name, n, one.over)
		}
	}
}

// Whatever requests a limiter lets pass, and however little the clients know of
// when it did, they are never too many; and one that lets a single one more pass
// is found out by clients that know enough.
func TestExcess_BlamesNoLimiterThatIsRight(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		w := delivery.Window{Count: rapid.IntRange(1, 5).Draw(t, "count"), Seconds: 1}
		most := rapid.IntRange(0, 1500).Draw(t, "unsure, ms")
		var moments []time.Duration
		var spans []span
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * ms
			if n := len(moments) - w.Count; n >= 0 && now < moments[n]+time.Second {
				continue
			}
			moments = append(moments, now)
			spans = append(spans, span{now - time.Duration(rapid.IntRange(0, most).Draw(t, "before"))*ms,
				now + time.Duration(rapid.IntRange(0, most).Draw(t, "after"))*ms})
		}

		if at, n, over := excess(sorted(spans), w); n > 0 {
			t.Fatalf("%d from %s within %s", n, at, over)
		}
	})
}

func TestExcess_FindsOneTooMany(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		w := delivery.Window{Count: rapid.IntRange(1, 5).Draw(t, "count"), Seconds: 1}
		unsure := rapid.IntRange(0, 20).Draw(t, "unsure, ms")
		var spans []span
		for i := range w.Count * rapid.IntRange(1, 10).Draw(t, "windows") { // right, all windows full
			at := time.Duration(i/w.Count)*1050*ms + time.Duration(i)*ms
			spans = append(spans, span{at - time.Duration(unsure)*ms, at + time.Duration(unsure)*ms})
		}

		more := spans[rapid.IntRange(0, len(spans)-1).Draw(t, "twice")]
		spans = append(spans, more)
		if _, n, _ := excess(sorted(spans), w); n == 0 {
			t.Fatal("one too many was not found")
		}
	})
}
