package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"vendorapi/loadtest/faults/judge"
)

// suite is one run: rounds on one rig until the time is over.
type suite struct {
	options options
	out     io.Writer
	rig     *rig
	dir     string
	random  *rand.Rand // draws the rounds
	began   time.Time
	result  result
}

// roundLength is about what a round takes from fresh accounts to the verdict. A
// round is not begun when less is left.
const roundLength = 14 * time.Second

// run plays rounds: every chosen fault alone, then pairs of them, until the time
// is over. The error is about the suite itself; what the system did wrong is in
// the result.
func (s *suite) run(ctx context.Context) (err error) {
	chosen, err := chooseFaults(s.options.only)
	if err != nil {
		return err
	}
	if s.dir, err = workDir(s.options.keep); err != nil {
		return err
	}
	s.random = diceOf(s.options.seed)
	s.result.Seed = s.options.seed
	s.began = time.Now()
	s.print("faults: seed %d, %s, data in %s", s.options.seed, s.options.duration, s.dir)
	if s.rig, err = newRig(ctx, s.dir, s.options.bin, s.startLog()); err != nil {
		s.result.Kept = s.dir
		return err
	}
	defer func() {
		s.rig.stop()
		err = errors.Join(err, s.tidy(err != nil))
	}()
	s.print("faults: the system is up after %.1f s", time.Since(s.began).Seconds())
	s.began = time.Now() // building may have taken minutes
	for number := 1; ; number++ {
		r := s.draw(number, chosen)
		if number > 1 && time.Since(s.began)+roundLength > s.options.duration {
			return nil
		}
		if err := s.play(ctx, r); err != nil {
			return fmt.Errorf("round %d, %s: %w", number, r.name(), err)
		}
		s.record(r)
		if len(r.violations) > 0 {
			return s.explain(r)
		}
	}
}

// draw makes up a round. First each fault has one to itself, in the order of the
// table; then two at a time. When there is no time for all, it is two at a time
// from the beginning.
func (s *suite) draw(number int, chosen []fault) *round {
	r := &round{number: number, seed: s.random.Uint64()}
	enough := time.Duration(len(chosen))*roundLength <= s.options.duration
	switch {
	case len(chosen) == 1:
		r.faults = chosen
	case enough && number <= len(chosen):
		r.faults = []fault{chosen[number-1]}
	default:
		pair := s.random.Perm(len(chosen))[:2]
		r.faults = []fault{chosen[pair[0]], chosen[pair[1]]}
	}
	r.spare = r.dice(3).IntN(3) == 0
	for _, f := range r.faults {
		r.spare = r.spare || f.spare
	}
	return r
}

// diceOf are the dice of a run.
func diceOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func workDir(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "faults-")
	}
	dir, err := filepath.Abs(keep)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return dir, err
}

// tidy removes the data unless somebody wants to look at it.
func (s *suite) tidy(failed bool) error {
	if failed || len(s.result.Violations) > 0 || s.options.keep != "" {
		s.result.Kept = s.dir
		return nil
	}
	return os.RemoveAll(s.dir)
}

func (s *suite) startLog() io.Writer {
	if s.options.verbose {
		return s.out
	}
	return io.Discard
}

func (s *suite) print(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// remark is a line for those who want to see every step.
func (s *suite) remark(format string, args ...any) {
	if s.options.verbose {
		fmt.Fprintf(s.out, "    %6.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// explain leaves what is needed to find the cause: the seed, the history, the
// facts, and the whole story of every order concerned.
func (s *suite) explain(r *round) error {
	if err := r.save(s.dir); err != nil {
		return err
	}
	s.print("\nround %d (%s) broke %d promises; seed %d repeats the run, the round's own is %d", r.number, r.name(), len(r.violations), s.options.seed, r.seed)
	const most = 20
	for i, v := range r.violations {
		if i == most {
			s.print("and %d more", len(r.violations)-most)
			break
		}
		s.print("  %s", v)
	}
	for _, id := range subjects(r.violations, 3) {
		s.print("\n%s", tell(id, r.log.Ops(), r.facts))
	}
	s.print("\nhistory and facts: %s and %s; judge them again with: go run ./loadtest/faults -judge %s",
		historyFile, factsFile, filepath.Join(s.dir, historyFile))
	return nil
}

// subjects are the first different things that violations are about.
func subjects(vs []judge.Violation, most int) (ids []string) {
	seen := make(map[string]bool)
	for _, v := range vs {
		for _, id := range v.Subjects {
			if !seen[id] && len(ids) < most {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}
