package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// fault is one row of the table: what is done to the system, and what a client
// may see of it. What must hold afterwards is the same for all (package judge).
type fault struct {
	name   string
	does   string
	expect string
	// spare: a second worker runs, which takes over what the first has held.
	spare  bool
	inject func(ctx context.Context, h *harm) error
}

// faults is every row of the plan that one Redis and one machine can show, in
// the order in which a run plays them. Failovers and moving slots are a
// cluster's, see internal/systemtest.
var faults = slices.Concat([]fault{
	{"none", "nothing", "every request is answered", false, nothing},
}, processFaults, networkFaults, storageFaults, receiverFaults)

func nothing(ctx context.Context, h *harm) error { return h.hold(ctx, harmLength/2, harmLength/2) }

// chooseFaults is the table, narrowed to the names in a list with commas; empty:
// all.
func chooseFaults(list string) ([]fault, error) {
	if list == "" {
		return faults, nil
	}
	var chosen []fault
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no fault %q; -list shows them", name)
		}
		chosen = append(chosen, faults[i])
	}
	return chosen, nil
}

func namesOf(fs []fault) []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name
	}
	return names
}
