// Package judge tells whether a system that went through faults kept its
// promises. It gathers the facts after the system has settled, from Redis,
// ClickHouse, the receivers and the programs' metrics, and holds them against
// what the clients saw (package history) and against each other.
//
// It owns the invariants. It knows nothing of the faults: what it is told of
// them is which receivers were in trouble, nothing else. It refuses to guess: an
// operation without an answer may have happened or not, and only what no run of
// a correct system can explain is a violation.
package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/faults/history"
)

// Violation is one promise that was broken.
type Violation struct {
	Invariant Invariant `json:"invariant"`
	Subjects  []string  `json:"subjects"` // ids of what it is about
	Says      string    `json:"says"`     // one sentence
}

func (v Violation) String() string {
	return fmt.Sprintf("%s [%s]: %s", v.Invariant, strings.Join(v.Subjects, " "), v.Says)
}

// Report counts what was looked at.
type Report struct {
	Operations int `json:"operations"`
	Unknown    int `json:"unknown"`  // operations whose outcome their client could not see
	Replays    int `json:"replays"`  // answered with Idempotent-Replayed
	Refusals   int `json:"refusals"` // answered 4xx, and 503 FLEET_UNAVAILABLE
	Limited    int `json:"limited"`  // those of them that were 429

	Orders   int `json:"orders"`   // in Redis
	States   int `json:"states"`   // that these orders went through, creations included
	Rows     int `json:"rows"`     // of ClickHouse that were compared
	Webhooks int `json:"webhooks"` // requests that reached a receiver
	Windows  int `json:"windows"`  // limits of an account that were checked

	// Histories were searched for a linearization; of Undecided ones the search
	// did not end in time, so nothing is known.
	Histories int `json:"histories"`
	Undecided int `json:"undecided"`
	// UndecidedWindows: neither an excess nor an explanation was found.
	UndecidedWindows int `json:"undecidedWindows"`

	HealthyP99  time.Duration `json:"healthyP99"` // from a change to its arrival at a healthy receiver
	DeadLetters int           `json:"deadLetters"`

	Took time.Duration `json:"took"`
}

// Add sums up two reports; of HealthyP99 it keeps the longer one.
func (r Report) Add(o Report) Report {
	r.Operations += o.Operations
	r.Unknown += o.Unknown
	r.Replays += o.Replays
	r.Refusals += o.Refusals
	r.Limited += o.Limited
	r.Orders += o.Orders
	r.States += o.States
	r.Rows += o.Rows
	r.Webhooks += o.Webhooks
	r.Windows += o.Windows
	r.Histories += o.Histories
	r.Undecided += o.Undecided
	r.UndecidedWindows += o.UndecidedWindows
	r.HealthyP99 = max(r.HealthyP99, o.HealthyP99)
	r.DeadLetters += o.DeadLetters
	r.Took += o.Took
	return r
}

// Check judges all operations of the accounts in f against f. ops must be the
// whole log of these accounts since they were made: an order that no operation
// explains is a violation. It takes half a minute at the most.
func Check(ops []history.Op, f *Facts) (Report, []Violation) {
	began := time.Now()
	c := newCase(ops, f)
	for _, check := range checks {
		check(c)
	}
	c.report.Took = time.Since(began)
	slices.SortStableFunc(c.violations, func(a, b Violation) int { return strings.Compare(string(a.Invariant), string(b.Invariant)) })
	return c.report, c.violations
}
