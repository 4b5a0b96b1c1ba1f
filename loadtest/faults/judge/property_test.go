package judge

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// drawn takes numbers from rapid.
type drawn struct{ *rapid.T }

func (d drawn) intn(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.T, what) }

// play lets clients do this and that to a world, some of them without ever
// learning what became of it.
func play(w *world, operations int) {
	accounts := w.facts.Accounts
	for range operations {
		w.pass(900 * time.Millisecond)
		account := accounts[w.draw.intn(len(accounts), "account")].ID
		switch w.draw.intn(8, "what") {
		case 0, 1, 2:
			w.playCreate(account)
		case 3:
			w.playOther(account, history.Cancel)
		case 4, 5:
			w.playOther(account, history.Read)
		default:
			if n := len(w.facts.Orders); n > 0 {
				w.courier(&w.facts.Orders[w.draw.intn(n, "order")])
			}
		}
	}
	w.pass(time.Second)
	w.settle()
}

func (w *world) playCreate(account string) {
	names := []string{"e1", "e2", "e3", "e4", "e5"}
	external := names[w.draw.intn(len(names), "external")]
	key := append(names, "", external, external)[w.draw.intn(len(names)+3, "key")]
	body := []string{"b1", "b1", "b2", "bad"}[w.draw.intn(4, "body")]
	if w.draw.intn(12, "never arrives") == 1 {
		w.lost(history.Op{Kind: history.Create, Account: account, Key: key, External: external, Body: body + external, Invalid: body == "bad"})
		return
	}
	op := w.create(account, key, external, body)
	op.Body += external // a body names its order
	if w.draw.intn(5, "lost") == 1 {
		w.lost(op)
		return
	}
	w.saw(op)
}

func (w *world) playOther(account string, kind history.Kind) {
	if len(w.facts.Orders) == 0 {
		return
	}
	id := w.facts.Orders[w.draw.intn(len(w.facts.Orders), "order")].ID
	op := history.Op{Kind: kind, Account: account, Order: id}
	lost := w.draw.intn(6, "lost")
	if lost != 2 { // 2: it never arrives
		if kind == history.Cancel {
			op = w.cancel(account, id)
		} else {
			op = w.read(account, id)
		}
	}
	if lost >= 1 && lost <= 2 {
		w.lost(op)
		return
	}
	w.saw(op)
}

func drawWorld(t *rapid.T) *world {
	w := newWorld(drawn{t}, accountNamed(1, Healthy), accountNamed(2, Disturbed), accountNamed(3, Dead), accountNamed(4, Absent))
	play(w, rapid.IntRange(1, 80).Draw(t, "operations"))
	return w
}

func TestCheck_BlamesNoServiceThatIsRight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		report, violations := w.check()
		if len(violations) > 0 {
			t.Fatalf("violations:%s", listed(violations))
		}
		if report.Undecided > 0 {
			t.Fatalf("%d histories undecided", report.Undecided)
		}
	})
}

// mutant breaks a world, and tells whether it could.
type mutant struct {
	name   string
	caught []Invariant
	breaks func(w *world, t *rapid.T) bool
}

// one draws an element that matches; nil when there is none.
func one[T any](t *rapid.T, list []T, match func(*T) bool) *T {
	var found []int
	for i := range list {
		if match(&list[i]) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &list[rapid.SampledFrom(found).Draw(t, "victim")]
}

func isCreated(op *history.Op) bool { return op.Kind == history.Create && op.OK() }

var mutants = []mutant{
	{"an acknowledged order is dropped", []Invariant{LostOrder}, func(w *world, t *rapid.T) bool {
		op := one(t, w.log, isCreated)
		if op != nil {
			w.erase(op.Order)
		}
		return op != nil
	}},
	{"an acknowledged order is dropped by Redis only", []Invariant{LostOrder, ClickHouseDiffers}, func(w *world, t *rapid.T) bool {
		op := one(t, w.log, isCreated)
		if op != nil {
			w.forget(op.Order)
		}
		return op != nil
	}},
	{"an answer's bytes change", []Invariant{ReplayDiffers}, func(w *world, t *rapid.T) bool {
		op := one(t, w.log, func(op *history.Op) bool {
			return isCreated(op) && op.Replayed && slices.ContainsFunc(w.log, func(other history.Op) bool {
				return isCreated(&other) && other.Key == op.Key && other.Account == op.Account && !other.Start.Equal(op.Start)
			})
		})
		if op != nil {
			op.Answer += "!"
		}
		return op != nil
	}},
	{"a replay is a second acceptance", []Invariant{DuplicateOrder, KeyTwoOutcomes, NotLinearizable}, func(w *world, t *rapid.T) bool {
		op := one(t, w.log, func(op *history.Op) bool { return isCreated(op) && op.Replayed })
		if op != nil {
			// What it repeats was before it, or nobody saw it; a second one is one too many.
			second := *op
			second.Replayed, second.Key = false, op.Key+"'"
			op.Replayed = false
			w.log = append(w.log, second)
		}
		return op != nil
	}},
	{"a cancellation is forgotten", []Invariant{StateLost}, func(w *world, t *rapid.T) bool {
		op := one(t, w.log, func(op *history.Op) bool { return op.Kind == history.Cancel && op.OK() })
		if op != nil {
			o := w.order(op.Order)
			o.Changes = o.Changes[:len(o.Changes)-1]
			o.Status, o.Version = o.statusAt(uint32(len(o.Changes)+1)), o.Version-1
		}
		return op != nil
	}},
	{"a step is forgotten", []Invariant{IllegalMove, VersionGap, ClickHouseDiffers}, func(w *world, t *rapid.T) bool {
		o := one(t, w.facts.Orders, func(o *Order) bool { return len(o.Changes) > 1 })
		if o != nil {
			o.Changes = slices.Delete(o.Changes, 0, 1)
		}
		return o != nil
	}},
	{"a limit admits one more", []Invariant{OverLimit}, func(w *world, _ *rapid.T) bool {
		w.now = w.now.Add(time.Hour)
		for range tight.Orders.Burst.Count + 1 {
			w.now = w.now.Add(500 * time.Millisecond)
			w.saw(history.Op{Kind: history.Create, Account: well, External: "x", Body: "b", Status: 422, Code: "INVALID_PHONE", Invalid: true})
		}
		return true
	}},
	{"an event is not sent", []Invariant{EventLost}, func(w *world, t *rapid.T) bool {
		a := one(t, w.facts.Arrivals, func(*Arrival) bool { return true })
		if a != nil {
			w.facts.Arrivals = without(w.facts.Arrivals, func(other Arrival) bool { return other.EventID == a.EventID })
		}
		return a != nil
	}},
	{"an event has another body", []Invariant{EventWrong}, func(w *world, t *rapid.T) bool {
		a := one(t, w.facts.Arrivals, func(*Arrival) bool { return true })
		if a != nil {
			a.Status = delivery.Searching.String()
		}
		return a != nil
	}},
	{"a row of ClickHouse is dropped", []Invariant{ClickHouseDiffers}, func(w *world, t *rapid.T) bool {
		e := one(t, w.facts.Archive.Events, func(*ArchivedEvent) bool { return true })
		if e != nil {
			gone := *e
			w.facts.Archive.Events = without(w.facts.Archive.Events, func(e ArchivedEvent) bool { return e == gone })
		}
		return e != nil
	}},
	{"an order comes from nowhere", []Invariant{UnknownOrder}, func(w *world, _ *rapid.T) bool {
		w.create(well, "", "nobody's", "b")
		return w.find(well, "nobody's") != nil
	}},
}

func TestCheck_FindsEveryMutant(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			tried := 0
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t)
				if !m.breaks(w, t) {
					return
				}
				tried++
				_, violations := w.check()
				if !slices.ContainsFunc(invariants(violations), func(i Invariant) bool { return slices.Contains(m.caught, i) }) {
					t.Fatalf("none of %v was found, but:%s", m.caught, listed(violations))
				}
			})
			if tried == 0 {
				t.Error("it was never tried")
			}
		})
	}
}
