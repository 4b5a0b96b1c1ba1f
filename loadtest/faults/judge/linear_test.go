package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// script reads a history, one operation a line: start and end in milliseconds,
// what, and what was answered ("?": unknown). An order is named by its external id.
//
//	0-10 create e1 key=k1 body=b1 201
//	20-30 read e1 Assigned
//	20-30 cancel e1 409
//
// The last line is what Redis has in the end: "end e1 Delivered e2 -".
func script(t *testing.T, text string) ([]history.Op, *Facts) {
	t.Helper()
	account := accountNamed(1, Absent)
	f := &Facts{Accounts: []Account{account}}
	var ops []history.Op
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "end" {
			for i := 1; i < len(words); i += 2 {
				if words[i+1] != "-" {
					f.Orders = append(f.Orders, Order{ID: "order " + words[i], Account: account.ID, External: words[i], Status: words[i+1]})
				}
			}
			continue
		}
		op := history.Op{Account: account.ID, Kind: history.Kind(words[1])}
		var from, to int
		if _, err := fmt.Sscanf(words[0], "%d-%d", &from, &to); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		op.Start, op.End = begin.Add(time.Duration(from)*time.Millisecond), begin.Add(time.Duration(to)*time.Millisecond)
		if op.Kind == history.Create {
			op.External = words[2]
		} else {
			op.Order = "order " + words[2]
		}
		for _, word := range words[3:] {
			readWord(&op, word)
		}
		if op.Kind == history.Create && op.OK() {
			op.Order = "order " + op.External
		}
		ops = append(ops, op)
	}
	return ops, f
}

func readWord(op *history.Op, word string) {
	codes := map[string]delivery.Code{"duplicate": delivery.CodeDuplicateOrder, "late": delivery.CodeOrderNotCancellable,
		"suspended": delivery.CodeFleetSuspended, "404": delivery.CodeOrderNotFound}
	statuses := map[string]int{"duplicate": 409, "late": 409, "suspended": 423, "201": 201, "404": 404, "422": 422, "429": 429, "503": 503, "200": 200}
	op.Code = string(codes[word])
	switch {
	case strings.HasPrefix(word, "key="):
		op.Key = word[4:]
	case strings.HasPrefix(word, "body="):
		op.Body = word[5:]
	case word == "invalid":
		op.Invalid = true
	case word == "replay":
		op.Status, op.Replayed = 201, true
	case word == "?":
	case statuses[word] != 0:
		op.Status = statuses[word]
	default:
		op.Status, op.State = 200, word
	}
}

func TestCheckLinearizable(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name, text string
		illegal    bool
	}{
		{"create, replay, conflict, duplicate", `
			0-10 create e1 key=k1 body=b1 201
			20-30 create e1 key=k1 body=b1 replay
			20-30 create e1 key=k1 body=b2 duplicate
			40-50 create e1 key=k2 body=b1 duplicate
			end e1 Searching`, false},
		{"a replay before the first", `
			0-10 create e1 key=k1 body=b1 replay
			20-30 create e1 key=k1 body=b1 201
			end e1 Searching`, true},
		{"a replay that overlaps the first", `
			0-25 create e1 key=k1 body=b1 replay
			20-30 create e1 key=k1 body=b1 201
			end e1 Searching`, false},
		{"a conflict with nothing", `
			0-10 create e1 key=k1 body=b1 duplicate
			end e1 -`, true},
		{"a conflict with what nobody saw", `
			0-10 create e1 key=k1 body=b1 ?
			20-30 create e1 key=k1 body=b2 duplicate
			end e1 Searching`, false},
		{"a conflict with what nobody saw and what is not there", `
			0-10 create e1 key=k1 body=b1 ?
			20-30 create e1 key=k1 body=b2 duplicate
			end e1 -`, true},
		{"accepted after what nobody saw, which never happened", `
			0-10 create e1 key=k1 body=b1 ?
			20-30 create e1 key=k1 body=b1 201
			end e1 Searching`, false},
		{"accepted after a replay showed that it had happened", `
			0-10 create e1 key=k1 body=b1 ?
			20-30 create e1 key=k1 body=b1 replay
			40-50 create e1 key=k1 body=b1 201
			end e1 Searching`, true},
		{"what nobody saw happens long after its client gave up", `
			0-10 create e1 key=k1 body=b1 ?
			20-30 create e1 key=k2 body=b1 suspended
			40-50 create e1 key=k1 body=b1 replay
			end e1 Searching`, false},
		{"a refusal by the fleet after the key succeeded", `
			0-10 create e1 key=k1 body=b1 201
			20-30 create e1 key=k1 body=b1 suspended
			end e1 Searching`, true},
		{"an invalid body under a key that succeeded", `
			0-10 create e1 key=k1 body=b1 201
			20-30 create e1 key=k1 body=b2 invalid duplicate
			end e1 Searching`, false},
		{"an invalid body under a key that succeeded, judged by its rules", `
			0-10 create e1 key=k1 body=b1 201
			20-30 create e1 key=k1 body=b2 invalid 422
			end e1 Searching`, true},
		{"an invalid body is accepted", `
			0-10 create e1 key=k1 body=b1 invalid 201
			end e1 Searching`, true},
		{"a valid body is refused by its rules", `
			0-10 create e1 key=k1 body=b1 422
			end e1 -`, true},
		{"two orders that share a key", `
			0-10 create e1 key=k1 body=b1 201
			20-30 create e2 key=k1 body=b2 201
			end e1 Searching e2 Searching`, true},
		{"a key is free until an order has it", `
			0-10 create e1 body=b1 201
			20-30 create e1 key=k1 body=b1 duplicate
			40-50 create e2 key=k1 body=b2 201
			end e1 Searching e2 Searching`, false},
		{"an order that was acknowledged is not there", `
			0-10 create e1 key=k1 body=b1 201
			end e1 -`, true},
		{"an order that was acknowledged is not found", `
			0-10 create e1 key=k1 body=b1 201
			20-30 read e1 404
			end e1 Searching`, true},
		{"an order is not found while it is made", `
			0-25 create e1 key=k1 body=b1 201
			20-30 read e1 404
			end e1 Searching`, false},
		{"a courier moves it", `
			0-10 create e1 201
			20-30 read e1 Searching
			40-50 read e1 Delivering
			60-70 read e1 Delivered
			end e1 Delivered`, false},
		{"it moves back", `
			0-10 create e1 201
			20-30 read e1 PickingUp
			40-50 read e1 Assigned
			end e1 Delivered`, true},
		{"it ended and went on", `
			0-10 create e1 201
			20-30 read e1 Failed
			end e1 Delivered`, true},
		{"cancelled, and again", `
			0-10 create e1 201
			20-30 cancel e1 Cancelled
			40-50 cancel e1 Cancelled
			end e1 Cancelled`, false},
		{"cancelled, and delivered", `
			0-10 create e1 201
			20-30 cancel e1 Cancelled
			end e1 Delivered`, true},
		{"cancelled after the pickup was seen", `
			0-10 create e1 201
			20-30 read e1 PickedUp
			40-50 cancel e1 Cancelled
			end e1 Cancelled`, true},
		{"too late, and not yet seen to be", `
			0-10 create e1 201
			20-30 cancel e1 late
			40-50 read e1 PickingUp
			end e1 Delivered`, false},
		{"too late, and then cancelled", `
			0-10 create e1 201
			20-30 cancel e1 late
			40-50 cancel e1 Cancelled
			end e1 Cancelled`, true},
		{"too late for one that was cancelled", `
			0-10 create e1 201
			20-30 cancel e1 Cancelled
			40-50 cancel e1 late
			end e1 Cancelled`, true},
		{"a cancellation that nobody saw happened", `
			0-10 create e1 201
			20-30 cancel e1 ?
			end e1 Cancelled`, false},
		{"a cancellation that nobody saw did not happen", `
			0-10 create e1 201
			20-30 cancel e1 ?
			end e1 Delivered`, false},
		{"a cancellation that nobody asked for", `
			0-10 create e1 201
			end e1 Cancelled`, false}, // whose it is the invariants of states say
		{"a cancellation that nobody saw, and both", `
			0-10 create e1 201
			20-30 cancel e1 ?
			40-50 read e1 Cancelled
			60-70 read e1 Assigned
			end e1 Cancelled`, true},
		{"a refusal by a limit changes nothing", `
			0-10 create e1 key=k1 body=b1 429
			20-30 create e1 key=k1 body=b1 201
			40-50 cancel e1 429
			60-70 read e1 429
			end e1 Searching`, false},
		{"a cancellation of nothing", `
			0-10 create e1 key=k1 ?
			20-30 cancel e1 Cancelled
			end e1 -`, false}, // no answer and no store ties the id to e1
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			ops, facts := script(t, one.text)
			c := newCase(ops, facts)
			c.checkLinearizable()
			if got := len(c.violations) > 0; got != one.illegal {
				t.Errorf("illegal %t, want %t:%s", got, one.illegal, listed(c.violations))
			}
			if c.report.Undecided > 0 {
				t.Error("undecided")
			}
		})
	}
}

// Operations that share neither an external id nor a key never meet, however
// they are linked to others.
func TestIslands_AreJoinedByKeysAndIds(t *testing.T) {
	t.Parallel()
	ops, facts := script(t, `
		0-10 create e1 key=k1 201
		0-10 create e2 key=k1 duplicate
		0-10 create e2 key=k2 201
		0-10 create e3 key=k3 201
		20-30 read e1 Searching
		20-30 read e3 Searching
		20-30 read e9 404
		end e1 Searching e2 Searching e3 Searching`)
	var sizes []string
	for _, one := range newCase(ops, facts).islands() {
		slices.Sort(one.names)
		sizes = append(sizes, fmt.Sprint(one.names, len(one.ops)))
	}
	slices.Sort(sizes)
	if want := []string{"[e1 e2] 4", "[e3] 2"}; !slices.Equal(sizes, want) {
		t.Errorf("islands %v, want %v", sizes, want)
	}
}
