package validate

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

// drawn takes numbers from rapid.
type drawn struct{ *rapid.T }

func (d drawn) intn(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.T, what) }

// play lets clients do this and that to an env, some of them without ever
// learning what became of it.
func play(e *env, operations int) {
	accounts := e.facts.Accounts
	for range operations {
		e.pass(900 * time.Millisecond)
		account := accounts[e.draw.intn(len(accounts), "account")].ID
		switch e.draw.intn(8, "what") {
		case 0, 1, 2:
			e.playCreate(account)
		case 3:
			e.playOther(account, Cancel)
		case 4, 5:
			e.playOther(account, Read)
		default:
			if n := len(e.facts.Orders); n > 0 {
				e.courier(&e.facts.Orders[e.draw.intn(n, "order")])
			}
		}
	}

	e.pass(time.Second)
	e.settle()
}

func (e *env) playCreate(account string) {
	names := []string{"e1", "e2", "e3", "e4", "e5"}
	external := names[e.draw.intn(len(names), "external")]
	key := append(names, "", external, external)[e.draw.intn(len(names)+3, "key")]
	body := []string{"b1", "b1", "b2", "bad"}[e.draw.intn(4, "body")]
	if e.draw.intn(12, "never arrives") == 1 {
		e.lost(Operation{Kind: Create, Account: account, Key: key, External: external, Body: body + external, Invalid: body == "bad"})
		return
	}

	op := e.create(account, key, external, body)
	op.Body += external // a body names its order
	if e.draw.intn(5, "lost") == 1 {
		e.lost(op)
		return
	}

	e.saw(op)
}

func (e *env) playOther(account string, kind Kind) {
	if len(e.facts.Orders) == 0 {
		return
	}

	id := e.facts.Orders[e.draw.intn(len(e.facts.Orders), "order")].ID
	op := Operation{Kind: kind, Account: account, Order: id}
	lost := e.draw.intn(6, "lost")
	if lost != 2 { // 2: it never arrives
		if kind == Cancel {
			op = e.cancel(account, id)
		} else {
			op = e.read(account, id)
		}
	}

	if lost >= 1 && lost <= 2 {
		e.lost(op)
		return
	}

	e.saw(op)
}

func drawEnv(t *rapid.T) *env {
	e := newEnv(drawn{t}, accountNamed(1, false), accountNamed(2, true))
	play(e, rapid.IntRange(1, 80).Draw(t, "operations"))
	return e
}

func TestCheck_BlamesNoServiceThatIsRight(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		e := drawEnv(t)
		report, violations := e.check()
		if len(violations) > 0 {
			t.Fatalf("violations:%s", listed(violations))
		}
		if report.Undecided > 0 {
			t.Fatalf("%d histories undecided", report.Undecided)
		}
	})
}

// mutant breaks an env and reports whether it could.
type mutant struct {
	name   string
	caught []Invariant
	breaks func(e *env, t *rapid.T) bool
}

// one changes one element that matches, which is drawn.
func one[T any](list func(e *env) []T, match func(e *env, one *T) bool, change func(e *env, one *T)) func(e *env, t *rapid.T) bool {
	return func(e *env, t *rapid.T) bool {
		all := list(e)
		var found []int
		for i := range all {
			if match == nil || match(e, &all[i]) {
				found = append(found, i)
			}
		}

		if len(found) == 0 {
			return false
		}

		change(e, &all[rapid.SampledFrom(found).Draw(t, "victim")])

		return true
	}
}

func logged(e *env) []Operation          { return e.log }
func arrivals(e *env) []Arrival          { return e.facts.Arrivals }
func isCreated(op *Operation) bool       { return op.Kind == Create && op.OK() }
func created(_ *env, op *Operation) bool { return isCreated(op) }

// repeated is a replay of what somebody saw.
func repeated(e *env, op *Operation) bool {
	return isCreated(op) && op.Replayed && slices.ContainsFunc(e.log, func(other Operation) bool {
		return isCreated(&other) && other.Key == op.Key && other.Account == op.Account && !other.Start.Equal(op.Start)
	})
}

var mutants = []mutant{
	{"an acknowledged order is dropped", []Invariant{LostOrder}, one(logged, created, func(e *env, op *Operation) { e.erase(op.Order) })},
	{"an acknowledged order is dropped by Redis only", []Invariant{LostOrder, ClickHouseDiffers}, one(logged, created, func(e *env, op *Operation) { e.forget(op.Order) })},
	{"an answer's bytes change", []Invariant{ReplayDiffers}, one(logged, repeated, func(_ *env, op *Operation) { op.Answer += "!" })},
	{"a replay is a second acceptance", []Invariant{DuplicateOrder, KeyTwoOutcomes, NotLinearizable}, one(logged,
		func(_ *env, op *Operation) bool { return isCreated(op) && op.Replayed },
		func(e *env, op *Operation) {
			// What it repeats was before it, or no client saw it; a second one is one too many.
			second := *op
			second.Replayed, second.Key = false, op.Key+"'"
			op.Replayed = false
			e.log = append(e.log, second)
		})},
	{"a cancellation is forgotten", []Invariant{StateLost}, one(logged,
		func(_ *env, op *Operation) bool { return op.Kind == Cancel && op.OK() },
		func(e *env, op *Operation) {
			o := e.order(op.Order)
			o.Changes = o.Changes[:len(o.Changes)-1]
			o.Status, o.Version = o.path()[len(o.Changes)], o.Version-1
		})},
	{"a step is forgotten", []Invariant{IllegalMove, VersionGap, ClickHouseDiffers}, one(
		func(e *env) []Order { return e.facts.Orders },
		func(_ *env, o *Order) bool { return len(o.Changes) > 1 },
		func(_ *env, o *Order) { o.Changes = slices.Delete(o.Changes, 0, 1) })},
	{"a limit admits one more", []Invariant{OverLimit}, func(e *env, _ *rapid.T) bool {
		e.now = e.now.Add(time.Hour)
		for range tight.Orders.Burst.Count + 1 {
			e.now = e.now.Add(500 * time.Millisecond)
			e.saw(Operation{Kind: Create, Account: well, External: "x", Body: "b", Status: 422, Code: "INVALID_PHONE", Invalid: true})
		}
		return true
	}},
	{"an event is not sent", []Invariant{EventLost}, one(arrivals, nil, func(e *env, a *Arrival) {
		gone := a.EventID
		e.facts.Arrivals = without(e.facts.Arrivals, func(other Arrival) bool { return other.EventID == gone })
	})},
	{"an event has another body", []Invariant{EventWrong}, one(arrivals, nil, func(_ *env, a *Arrival) { a.Status = delivery.Searching.String() })},
	{"a row of ClickHouse is dropped", []Invariant{ClickHouseDiffers}, one(
		func(e *env) [][]string { return e.facts.Archive.Steps }, nil,
		func(e *env, row *[]string) {
			gone := *row
			e.facts.Archive.Steps = without(e.facts.Archive.Steps, func(row []string) bool { return slices.Equal(row, gone) })
		})},
	{"an order comes from nowhere", []Invariant{UnknownOrder}, func(e *env, _ *rapid.T) bool {
		e.create(well, "", "nobody's", "b")
		return e.find(well, "nobody's") != nil
	}},
}

func TestCheck_FindsEveryMutant(t *testing.T) {
	t.Parallel()

	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()

			tried := 0
			rapid.Check(t, func(t *rapid.T) {
				e := drawEnv(t)
				if !m.breaks(e, t) {
					return
				}

				tried++
				_, violations := e.check()
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
