package validate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// script reads a history: start and end in milliseconds, what, and what was answered
// ("?": unknown). An order is named by its external id. The last part is what Redis
// has in the end.
//
//	0-10 create e1 key=k1 body=b1 201; 20-30 read e1 Assigned; end e1 Delivered e2 -
func script(t *testing.T, text string) ([]Operation, *Facts) {
	t.Helper()
	account := accountNamed(1, false)
	f := &Facts{Accounts: []Account{account}}
	var ops []Operation
	for line := range strings.SplitSeq(text, ";") {
		words := strings.Fields(line)
		if words[0] == "end" {
			for i := 1; i < len(words); i += 2 {
				if words[i+1] != "-" {
					f.Orders = append(f.Orders, Order{ID: "order " + words[i], Account: account.ID, External: words[i], Status: words[i+1]})
				}
			}
			continue
		}

		op := Operation{Account: account.ID, Kind: Kind(words[1])}
		var from, to int
		if _, err := fmt.Sscanf(words[0], "%d-%d", &from, &to); err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		op.Start, op.End = begin.Add(time.Duration(from)*time.Millisecond), begin.Add(time.Duration(to)*time.Millisecond)
		if op.Kind == Create {
			op.External = words[2]
		} else {
			op.Order = "order " + words[2]
		}

		for _, word := range words[3:] {
			readWord(&op, word)
		}

		if op.Kind == Create && op.OK() {
			op.Order = "order " + op.External
		}

		ops = append(ops, op)
	}

	return ops, f
}

func readWord(op *Operation, word string) {
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
		name    string
		illegal bool
		text    string
	}{
		{"create, replay, conflict, duplicate", false, `0-10 create e1 key=k1 body=b1 201; 20-30 create e1 key=k1 body=b1 replay; 20-30 create e1 key=k1 body=b2 duplicate; 40-50 create e1 key=k2 body=b1 duplicate; end e1 Searching`},
		{"a replay before the first", true, `0-10 create e1 key=k1 body=b1 replay; 20-30 create e1 key=k1 body=b1 201; end e1 Searching`},
		{"a replay that overlaps the first", false, `0-25 create e1 key=k1 body=b1 replay; 20-30 create e1 key=k1 body=b1 201; end e1 Searching`},
		{"a conflict with nothing", true, `0-10 create e1 key=k1 body=b1 duplicate; end e1 -`},
		{"a conflict with what no client saw", false, `0-10 create e1 key=k1 body=b1 ?; 20-30 create e1 key=k1 body=b2 duplicate; end e1 Searching`},
		{"a conflict with what no client saw and what is not there", true, `0-10 create e1 key=k1 body=b1 ?; 20-30 create e1 key=k1 body=b2 duplicate; end e1 -`},
		{"accepted after what no client saw, which never happened", false, `0-10 create e1 key=k1 body=b1 ?; 20-30 create e1 key=k1 body=b1 201; end e1 Searching`},
		{"accepted after a replay showed that it had happened", true, `0-10 create e1 key=k1 body=b1 ?; 20-30 create e1 key=k1 body=b1 replay; 40-50 create e1 key=k1 body=b1 201; end e1 Searching`},
		{"what no client saw happens long after its client gave up", false, `0-10 create e1 key=k1 body=b1 ?; 20-30 create e1 key=k2 body=b1 suspended; 40-50 create e1 key=k1 body=b1 replay; end e1 Searching`},
		{"a refusal by the fleet after the key succeeded", true, `0-10 create e1 key=k1 body=b1 201; 20-30 create e1 key=k1 body=b1 suspended; end e1 Searching`},
		{"an invalid body under a key that succeeded", false, `0-10 create e1 key=k1 body=b1 201; 20-30 create e1 key=k1 body=b2 invalid duplicate; end e1 Searching`},
		{"an invalid body under a key that succeeded, refused by its rules", true, `0-10 create e1 key=k1 body=b1 201; 20-30 create e1 key=k1 body=b2 invalid 422; end e1 Searching`},
		{"an invalid body is accepted", true, `0-10 create e1 key=k1 body=b1 invalid 201; end e1 Searching`},
		{"a valid body is refused by its rules", true, `0-10 create e1 key=k1 body=b1 422; end e1 -`},
		{"two orders that share a key", true, `0-10 create e1 key=k1 body=b1 201; 20-30 create e2 key=k1 body=b2 201; end e1 Searching e2 Searching`},
		{"a key is free until an order has it", false, `0-10 create e1 body=b1 201; 20-30 create e1 key=k1 body=b1 duplicate; 40-50 create e2 key=k1 body=b2 201; end e1 Searching e2 Searching`},
		{"an order that was acknowledged is not there", true, `0-10 create e1 key=k1 body=b1 201; end e1 -`},
		{"an order that was acknowledged is not found", true, `0-10 create e1 key=k1 body=b1 201; 20-30 read e1 404; end e1 Searching`},
		{"an order is not found while it is made", false, `0-25 create e1 key=k1 body=b1 201; 20-30 read e1 404; end e1 Searching`},
		{"a courier moves it", false, `0-10 create e1 201; 20-30 read e1 Searching; 40-50 read e1 Delivering; 60-70 read e1 Delivered; end e1 Delivered`},
		{"it moves back", true, `0-10 create e1 201; 20-30 read e1 PickingUp; 40-50 read e1 Assigned; end e1 Delivered`},
		{"it ended and went on", true, `0-10 create e1 201; 20-30 read e1 Failed; end e1 Delivered`},
		{"cancelled, and again", false, `0-10 create e1 201; 20-30 cancel e1 Cancelled; 40-50 cancel e1 Cancelled; end e1 Cancelled`},
		{"cancelled, and delivered", true, `0-10 create e1 201; 20-30 cancel e1 Cancelled; end e1 Delivered`},
		{"cancelled after the pickup was seen", true, `0-10 create e1 201; 20-30 read e1 PickedUp; 40-50 cancel e1 Cancelled; end e1 Cancelled`},
		{"too late, and not yet seen to be", false, `0-10 create e1 201; 20-30 cancel e1 late; 40-50 read e1 PickingUp; end e1 Delivered`},
		{"too late, and then cancelled", true, `0-10 create e1 201; 20-30 cancel e1 late; 40-50 cancel e1 Cancelled; end e1 Cancelled`},
		{"too late for one that was cancelled", true, `0-10 create e1 201; 20-30 cancel e1 Cancelled; 40-50 cancel e1 late; end e1 Cancelled`},
		{"a cancellation that no client saw happened", false, `0-10 create e1 201; 20-30 cancel e1 ?; end e1 Cancelled`},
		{"a cancellation that no client saw did not happen", false, `0-10 create e1 201; 20-30 cancel e1 ?; end e1 Delivered`},
		{"a cancellation without a request", false, `0-10 create e1 201; end e1 Cancelled`}, // whose it is the invariants of states say
		{"a cancellation that no client saw, and both", true, `0-10 create e1 201; 20-30 cancel e1 ?; 40-50 read e1 Cancelled; 60-70 read e1 Assigned; end e1 Cancelled`},
		{"a refusal by a limit changes nothing", false, `0-10 create e1 key=k1 body=b1 429; 20-30 create e1 key=k1 body=b1 201; 40-50 cancel e1 429; 60-70 read e1 429; end e1 Searching`},
		{"a cancellation of nothing", false, `0-10 create e1 key=k1 ?; 20-30 cancel e1 Cancelled; end e1 -`}, // no answer and no store ties the id to e1
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()

			ops, facts := script(t, one.text)
			c := index(ops, facts)
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
func TestHistories_AreJoinedByKeysAndIds(t *testing.T) {
	t.Parallel()

	ops, facts := script(t, `0-10 create e1 key=k1 201; 0-10 create e2 key=k1 duplicate; 0-10 create e2 key=k2 201; 0-10 create e3 key=k3 201; 20-30 read e1 Searching; 20-30 read e3 Searching; 20-30 read e9 404; end e1 Searching e2 Searching e3 Searching`)
	var sizes []string
	for _, one := range index(ops, facts).histories() {
		slices.Sort(one.externals)
		sizes = append(sizes, fmt.Sprint(one.externals, len(one.ops)))
	}

	slices.Sort(sizes)
	if want := []string{"[e1 e2] 4", "[e3] 2"}; !slices.Equal(sizes, want) {
		t.Errorf("histories %v, want %v", sizes, want)
	}
}
