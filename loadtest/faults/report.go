package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// result is what a run came to.
type result struct {
	Seed        uint64
	Rounds      int
	Faults      []*faultLine
	Report      validate.Report
	Injected    int64 // how often any fault struck
	Violations  []validate.Violation
	ByInvariant map[validate.Invariant]int
	NotDone     []string // faults that could not be done, and why
}

type faultLine struct {
	Fault  string
	Rounds int
	Times  int64
	// In rounds with this fault alone: the longest time without a success for any client, the answers by kind.
	Outage time.Duration
	Saw    map[string]int
}

func (res *result) line(name string) *faultLine {
	i := slices.IndexFunc(res.Faults, func(l *faultLine) bool { return l.Fault == name })
	if i < 0 {
		i = len(res.Faults)
		res.Faults = append(res.Faults, &faultLine{Fault: name, Saw: make(map[string]int)})
	}
	return res.Faults[i]
}

func (s *suite) record(r *round) {
	res := &s.result
	res.Rounds++
	res.Report.Add(r.report)
	ops := r.operations
	outage := longestOutage(ops, r.began, r.ended)
	var strikes int64
	for _, in := range r.injections {
		l := res.line(in.Name)
		l.Rounds++
		l.Times += in.times.Load()
		strikes += in.times.Load()
		if len(r.injections) > 1 {
			continue // one fault can prevent what the other waits for
		}

		l.Outage = max(l.Outage, outage)
		for _, op := range ops {
			l.Saw[kindOf(&op)]++
		}

		if in.failure != nil {
			res.NotDone = append(res.NotDone, fmt.Sprintf("round %d, %s: %v", r.number, in.Name, in.failure))
		}
	}

	res.Injected += strikes
	res.addViolations(r)
	s.printRound(r, "%d workers, struck %2d, %4d operations (%3d unknown), %3d orders, %4d webhooks, outage %4.1f s, settled in %4.1f s",
		r.workers, strikes, len(ops), r.report.Unknown, r.report.Orders, r.report.Webhooks, outage.Seconds(), r.settled.Seconds())
	for _, in := range r.injections {
		if in.failure != nil {
			s.print("          %s was not done to the end: %v", in.Name, in.failure)
		}
	}
}

// recordOwn is record for a round on a system of its own.
func (s *suite) recordOwn(r *round) {
	s.result.Rounds++
	s.result.addViolations(r)
	s.printRound(r, "a system of its own, %d figures checked, %.0f s", r.figures, r.ended.Sub(r.began).Seconds())
}

func (res *result) addViolations(r *round) {
	for _, v := range r.violations {
		res.ByInvariant[v.Invariant]++
	}
	res.Violations = append(res.Violations, r.violations...)
}

// printRound prints the line of a round.
func (s *suite) printRound(r *round, format string, args ...any) {
	s.print("round %2d  %-36s %s, violations %d", r.number, r.name(), fmt.Sprintf(format, args...), len(r.violations))
}

func longestOutage(ops []validate.Operation, began, ended time.Time) (longest time.Duration) {
	last := began
	for _, op := range slices.SortedFunc(slices.Values(ops), func(a, b validate.Operation) int { return a.End.Compare(b.End) }) {
		if op.OK() {
			longest = max(longest, op.End.Sub(last))
			last = op.End
		}
	}
	return max(longest, ended.Sub(last))
}

func kindOf(op *validate.Operation) string {
	switch {
	case op.OK():
		return "2xx"
	case op.Status == 0:
		return "no answer"
	case op.Status == 429, op.Status >= 500:
		return strconv.Itoa(op.Status)
	}
	return "4xx"
}

// summary prints what the run came to.
func (s *suite) summary() {
	res := &s.result
	if len(res.Faults) > 0 {
		s.summarizeShared()
	}

	s.print("\n%d rounds, %.0f s", res.Rounds, time.Since(s.began).Seconds())
	by := res.ByInvariant
	lost, duplicates := by[validate.LostOrder], by[validate.DuplicateOrder]+by[validate.KeyTwoOutcomes]
	illegal := by[validate.IllegalMove] + by[validate.StateBackwards] + by[validate.VersionGap]
	s.print("orders lost %d, duplicates %d, illegal states %d, other violations %d",
		lost, duplicates, illegal, len(res.Violations)-lost-duplicates-illegal)
	for _, v := range res.Violations {
		if v.Invariant == validate.WrongFigure {
			s.print("  %s", v)
		}
	}

	for _, line := range res.NotDone {
		s.print("not done: %s", line)
	}
}

// summarizeShared prints what the rounds on the run's system came to.
func (s *suite) summarizeShared() {
	res := &s.result
	s.print("\n%-18s %6s %6s  %-10s %s", "fault", "rounds", "times", "outage", "what clients saw in rounds with this fault alone")
	for _, l := range res.Faults {
		s.print("%-18s %6d %6d  %6.1f s   %s", l.Fault, l.Rounds, l.Times, l.Outage.Seconds(), counts(l.Saw))
	}

	rep := &res.Report
	s.print("\n%d faults injected; seed %d", res.Injected, res.Seed)
	s.print("%d operations checked (%d unknown, %d replays, %d refusals of which %d by limits, %d reports of fleets, %d requests of clerks), %d orders with %d states, "+
		"%d webhooks, %d rows of ClickHouse, %d windows of limits, %d histories (%d undecided)",
		rep.Operations, rep.Unknown, rep.Replays, rep.Refusals, rep.Limited, rep.Reports, rep.Clerks, rep.Orders, rep.States,
		rep.Webhooks, rep.Rows, rep.Windows, rep.Histories, rep.Undecided)
}

// roundFile holds the record of a round with violations.
const roundFile = "round.json"

// record is what a round was validated from.
type record struct {
	Operations []validate.Operation `json:"operations"`
	Facts      *validate.Facts      `json:"facts"`
}

// explain keeps the round and prints the timelines of some of the subjects of its violations.
func (s *suite) explain(r *round) error {
	path := filepath.Join(s.dir, roundFile)
	rec := record{r.operations, r.facts}
	if err := harness.WriteJSON(path, rec, s.out); err != nil {
		return fmt.Errorf("keeping the round: %w", err)
	}

	s.print("\nround %d (%s) has %d violations; seed %d repeats the run, the round's own is %d",
		r.number, r.name(), len(r.violations), s.options.seed, r.seed)
	var subjects []string
	for i, v := range r.violations {
		if i < 20 {
			s.print("  %s", v)
		}
		for _, id := range v.Subjects {
			if !slices.Contains(subjects, id) && len(subjects) < 3 {
				subjects = append(subjects, id)
			}
		}
	}

	for _, id := range subjects {
		s.print("\n%s", rec.timeline(id))
	}

	s.print("\nvalidate the operations and facts again with: go run ./loadtest/faults -validate %s", path)

	return nil
}

func validateAgain(path string, out io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("-validate: %w", err)
	}

	var rec record
	if err := json.Unmarshal(text, &rec); err != nil || rec.Facts == nil {
		return fmt.Errorf("-validate: %s is no record of a round: %w", path, err)
	}

	report, violations := validate.Check(rec.Operations, rec.Facts)
	fmt.Fprintf(out, "%+v\n", report)
	for _, v := range violations {
		fmt.Fprintln(out, v)
	}

	if len(violations) > 0 {
		return fmt.Errorf("%d violations", len(violations))
	}

	return nil
}

// timeline is everything that is known of one subject of a violation (an order, a version, a key, an event), by time.
func (rec *record) timeline(id string) string {
	subject, _, _ := strings.Cut(id, "/")
	if event, _, err := delivery.ParseEventID(id); err == nil {
		subject = event.String()
	}

	var lines []string // each begins with its time
	add := func(at time.Time, source, of string, what any) {
		text, err := json.Marshal(what)
		if err != nil {
			text = []byte(err.Error())
		}
		if of == subject || bytes.Contains(text, []byte(`"`+subject+`"`)) {
			lines = append(lines, fmt.Sprintf("%s  %s %s", at.UTC().Format("2006-01-02T15:04:05.000"), source, text))
		}
	}

	for _, op := range rec.Operations {
		add(op.Start, "client", op.Order, op)
	}

	for _, o := range rec.Facts.Orders {
		add(o.Created, "Redis", o.ID, o)
	}

	for _, a := range rec.Facts.Arrivals {
		add(a.Began, "receiver", a.Order, a)
	}

	archive := &rec.Facts.Archive
	for _, row := range slices.Concat(archive.Orders, archive.Steps) {
		ms, _ := strconv.ParseInt(row[5], 10, 64) // both kinds have their time there
		add(time.UnixMilli(ms), "ClickHouse", row[0], row)
	}

	for _, a := range archive.Attempts {
		event, _, _ := delivery.ParseEventID(a.EventID) // a notice is of no order
		add(a.At, "ClickHouse", event.String(), a)
	}

	slices.Sort(lines)
	const most = 60

	return "what is known of " + id + ":\n  " + strings.Join(lines[max(0, len(lines)-most):], "\n  ")
}
