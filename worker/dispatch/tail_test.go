package dispatch

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// The position is the last entry before which, and in which, every event is settled.
func TestTail_PositionPassesNothingThatIsOpen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var tl tail
		var entries []*entry
		settle := func(e *entry) {
			tl.settle(e)
			tl.advance()
		}

		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				e := &entry{id: fmt.Sprint(len(entries) + 1), count: int64(len(entries) + 1), open: rapid.IntRange(0, 2).Draw(rt, "events")}
				entries = append(entries, e)
				tl.push(e)
			},
			"settle": func(rt *rapid.T) {
				var open []*entry
				for _, e := range entries {
					if e.open > 0 {
						open = append(open, e)
					}
				}

				if len(open) > 0 {
					settle(rapid.SampledFrom(open).Draw(rt, "entry"))
				}
			},
			"": func(rt *rapid.T) {
				want := ""
				for _, e := range entries {
					if e.open > 0 {
						break
					}
					want = e.id
				}

				if tl.position != want {
					rt.Fatalf("position %q, want %q", tl.position, want)
				}
			},
		})
	})
}

func TestTail_NamesWhatHasWaitedForASecond(t *testing.T) {
	var tl tail
	tl.push(&entry{id: "1", queuedAt: 100, open: 1})
	tl.push(&entry{id: "2", queuedAt: 200, open: 1})

	if e := tl.overdue(100 + spillAfter - 1); e != nil {
		t.Errorf("entry %s is overdue too early", e.id)
	}
	if e := tl.overdue(100 + spillAfter); e == nil || e.id != "1" {
		t.Errorf("entry %v is overdue, want the first", e)
	}
	if at := tl.overdueAt(); at != 200+spillAfter {
		t.Errorf("the next is overdue at %d", at)
	}
}
