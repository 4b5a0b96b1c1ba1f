package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/faults/history"
	"vendorapi/loadtest/faults/judge"
)

// result is what a run came to; -json writes it.
type result struct {
	Seed   uint64       `json:"seed"`
	Rounds int          `json:"rounds"`
	Faults []*faultLine `json:"faults"`
	Report judge.Report `json:"report"`
	// Injected is how often any fault struck.
	Injected   int64             `json:"injected"`
	Violations []judge.Violation `json:"violations"`
	// ByInvariant counts the violations.
	ByInvariant map[judge.Invariant]int `json:"byInvariant"`
	NotDone     []string                `json:"notDone"` // faults that could not be done, and why
	Kept        string                  `json:"kept,omitempty"`
	Took        time.Duration           `json:"took"`
}

// faultLine is one fault over the whole run.
type faultLine struct {
	Fault  string `json:"fault"`
	Rounds int    `json:"rounds"`
	Times  int64  `json:"times"`
	// Outage is the longest time without a success for any client, in a round
	// that the fault had to itself.
	Outage time.Duration  `json:"outage"`
	Saw    map[string]int `json:"saw"` // answers by kind, in such rounds
}

func (res *result) line(name string) *faultLine {
	for _, l := range res.Faults {
		if l.Fault == name {
			return l
		}
	}
	l := &faultLine{Fault: name, Saw: make(map[string]int)}
	res.Faults = append(res.Faults, l)
	return l
}

// record adds a round and prints its line.
func (s *suite) record(r *round) {
	res := &s.result
	res.Rounds++
	res.Report = res.Report.Add(r.report)
	ops := r.log.Ops()
	outage := longestOutage(ops, r.began, r.ended)
	var strikes int64
	for i, f := range r.faults {
		l := res.line(f.name)
		l.Rounds++
		l.Times += r.strikes[i]
		strikes += r.strikes[i]
		if len(r.faults) == 1 {
			l.Outage = max(l.Outage, outage)
			addAnswers(l.Saw, ops)
		}
		// In a pair one fault can take away what the other waits for; alone, one
		// that could not be done tests nothing.
		if err := r.failures[i]; err != nil && len(r.faults) == 1 {
			res.NotDone = append(res.NotDone, fmt.Sprintf("round %d, %s: %v", r.number, f.name, err))
		}
	}
	res.Injected += strikes
	if res.ByInvariant == nil {
		res.ByInvariant = make(map[judge.Invariant]int)
	}
	for _, v := range r.violations {
		res.ByInvariant[v.Invariant]++
	}
	res.Violations = append(res.Violations, r.violations...)
	s.print("round %2d  %-36s struck %2d, %4d operations (%3d unknown), %3d orders, %4d webhooks, outage %4.1f s, settled in %4.1f s, violations %d",
		r.number, r.name(), strikes, len(ops), r.report.Unknown, r.report.Orders, r.report.Webhooks, outage.Seconds(), r.settled.Seconds(), len(r.violations))
	for i, err := range r.failures {
		if err != nil {
			s.print("          %s was not done to the end: %v", r.faults[i].name, err)
		}
	}
}

// longestOutage is the longest time in which no client got a success.
func longestOutage(ops []history.Op, began, ended time.Time) (longest time.Duration) {
	last := began
	for _, op := range slices.SortedFunc(slices.Values(ops), func(a, b history.Op) int { return a.End.Compare(b.End) }) {
		if op.OK() {
			longest = max(longest, op.End.Sub(last))
			last = op.End
		}
	}
	return max(longest, ended.Sub(last))
}

func addAnswers(saw map[string]int, ops []history.Op) {
	for i := range ops {
		switch op := &ops[i]; {
		case op.OK():
			saw["2xx"]++
		case op.Status == 0:
			saw["no answer"]++
		case op.Status == 429, op.Status >= 500:
			saw[fmt.Sprint(op.Status)]++
		default:
			saw["4xx"]++
		}
	}
}

// summary prints the table and the totals.
func (s *suite) summary() {
	res := &s.result
	res.Took = time.Since(s.began)
	s.print("\n%-18s %6s %6s  %-10s %s", "fault", "rounds", "times", "outage", "what clients saw in rounds with this fault alone")
	for _, l := range res.Faults {
		var saw []string
		for _, kind := range slices.Sorted(maps.Keys(l.Saw)) {
			saw = append(saw, fmt.Sprintf("%s: %d", kind, l.Saw[kind]))
		}
		s.print("%-18s %6d %6d  %6.1f s   %s", l.Fault, l.Rounds, l.Times, l.Outage.Seconds(), strings.Join(saw, ", "))
	}
	rep := &res.Report
	s.print("\n%d faults injected in %d rounds, %.0f s; seed %d", res.Injected, res.Rounds, res.Took.Seconds(), res.Seed)
	s.print("%d operations checked (%d unknown, %d replays, %d refusals of which %d by limits), %d orders with %d states, %d webhooks, %d rows of ClickHouse, %d windows of limits, %d histories (%d undecided)",
		rep.Operations, rep.Unknown, rep.Replays, rep.Refusals, rep.Limited, rep.Orders, rep.States, rep.Webhooks, rep.Rows, rep.Windows, rep.Histories, rep.Undecided)
	of := func(names ...judge.Invariant) (n int) {
		for _, name := range names {
			n += res.ByInvariant[name]
		}
		return n
	}
	s.print("orders lost %d, duplicates %d, illegal states %d, other violations %d", of(judge.LostOrder), of(judge.DuplicateOrder, judge.KeyTwoOutcomes),
		of(judge.IllegalMove, judge.StateBackwards, judge.VersionGap),
		len(res.Violations)-of(judge.LostOrder, judge.DuplicateOrder, judge.KeyTwoOutcomes, judge.IllegalMove, judge.StateBackwards, judge.VersionGap))
	for _, line := range res.NotDone {
		s.print("not done: %s", line)
	}
	if res.Kept != "" {
		s.print("kept: %s", res.Kept)
	}
}

func (res *result) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(res, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("-json: %w", err)
	}
	return nil
}

// Files of a round that failed.
const (
	historyFile = "history.jsonl"
	factsFile   = "facts.json"
)

// save writes what the verdict was made from.
func (r *round) save(dir string) error {
	facts, err := json.Marshal(r.facts)
	if err != nil {
		return fmt.Errorf("keeping the round: %w", err)
	}
	return errors.Join(history.WriteFile(filepath.Join(dir, historyFile), r.log.Ops()), os.WriteFile(filepath.Join(dir, factsFile), facts, 0o600))
}
