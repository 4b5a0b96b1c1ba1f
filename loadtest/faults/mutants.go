package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
)

// mutant is a row of mutants.yaml, which explains the fields.
type mutant struct {
	Name, Does, Faults string
	Caught             []validate.Invariant
	Redis              []string
	Replica            bool
}

// changesCode reports whether the mutant has a folder. Others have other settings of Redis.
func (m *mutant) changesCode() bool { return len(m.Redis) == 0 }

// folder returns the folder of what the mutant changes, in the module.
func (m *mutant) folder() string { return path.Join(mutantsFolder, m.Name) }

func loadMutants(names string) ([]mutant, error) {
	return readTable("mutants.yaml", names, func(m mutant) string { return m.Name })
}

// mutantLength is enough for a round or two with every fault of a mutant; mutantTimeout is what a run may take beyond
// it, once the programs are built.
const (
	mutantLength  = 45 * time.Second
	mutantTimeout = 4 * time.Minute
)

// runMutants is `faults mutants`: it builds the programs with one defect at a time and runs the suite on them,
// which must find an invariant that the defect breaks. Without a defect they must pass under the same faults.
func runMutants(ctx context.Context, o options, out io.Writer) error {
	chosen, err := loadMutants(o.only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the system's folder for such things

	trials := trialsOf(chosen)
	wrong, table := 0, "\n| defect | in | caught by | after |\n|---|---|---|---|\n"
	for _, t := range trials {
		line, ok, err := t.play(ctx, o, dir, out)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name(), err)
		}
		table += line
		if !ok {
			wrong++
		}
	}

	fmt.Fprint(out, table)
	if wrong > 0 {
		return fmt.Errorf("%d of %d results are wrong", wrong, len(trials))
	}

	return nil
}

// trial is one run of the suite.
type trial struct {
	mutant  *mutant // nil: the code as it is
	faults  string
	replica bool
}

// trialsOf returns the trials of the mutants. Before them the code as it is must pass, under each set of faults.
func trialsOf(mutants []mutant) (trials []trial) {
	for _, m := range mutants {
		sameFaults := func(t trial) bool { return t.faults == m.Faults }
		if !slices.ContainsFunc(trials, sameFaults) {
			trials = append(trials, trial{faults: m.Faults, replica: m.Replica})
		}
	}

	for _, m := range mutants {
		trials = append(trials, trial{mutant: &m, faults: m.Faults, replica: m.Replica})
	}

	return trials
}

func (t *trial) name() string {
	if t.mutant == nil {
		return "(none)"
	}
	return t.mutant.Name
}

// does says what the programs do in the trial.
func (t *trial) does() string {
	if t.mutant == nil {
		return "the system as it is, under " + t.faults
	}
	return t.mutant.Does
}

// result says what the invariants found mean, and whether that is as it should be: a mutant is caught, and nothing
// is found in the code as it is. err is the suite's own error.
func (t *trial) result(found []validate.Invariant, err error) (text string, ok bool) {
	if err != nil && len(found) == 0 {
		return "no result: " + err.Error(), false
	}

	if t.mutant == nil {
		if len(found) > 0 {
			return "BLAMED", false
		}
		return "passes", true
	}

	isWanted := func(i validate.Invariant) bool { return slices.Contains(t.mutant.Caught, i) }
	if !slices.ContainsFunc(found, isWanted) {
		return "MISSED", false
	}

	return "caught", true
}

// options returns the options of the suite, whose data is kept in a folder.
func (t *trial) options(seed uint64, folder string) options {
	o := defaults
	o.only, o.seed, o.duration, o.keep = t.faults, seed, mutantLength, folder
	o.replica = t.replica
	if t.mutant != nil {
		o.redis = t.mutant.Redis
	}
	return o
}

// play builds the programs below dir, plays the trial, prints a line and returns that of the table. An error ends
// the run: the defect cannot be built, or ctx has ended.
func (t *trial) play(ctx context.Context, o options, dir string, out io.Writer) (line string, ok bool, err error) {
	data := filepath.Join(dir, "data")
	if err := os.RemoveAll(data); err != nil {
		return "", false, err
	}

	played := t.options(o.seed, data)
	played.bin, err = build(ctx, dir, t.mutant)
	if err != nil {
		return "", false, err
	}

	limited, cancel := context.WithTimeout(ctx, mutantLength+mutantTimeout)
	defer cancel()
	var output bytes.Buffer
	began := time.Now()
	res, failure := playAll(limited, played, &output)
	if ctx.Err() != nil {
		return "", false, context.Cause(ctx)
	}

	took := time.Since(began)
	found := slices.Sorted(maps.Keys(res.ByInvariant))
	result, ok := t.result(found, failure)
	fmt.Fprintf(out, "%-22s %-7s after %5.1f s  %v\n", t.name(), result, took.Seconds(), found)
	if o.verbose || !ok {
		fmt.Fprintln(out, "    "+strings.ReplaceAll(output.String(), "\n", "\n    "))
	}

	if ok && len(found) > 0 {
		result = fmt.Sprint(found)
	}

	changed, err := t.changed()

	return fmt.Sprintf("| %s: %s | %s | %s | %s |\n", t.name(), t.does(), strings.Join(changed, ", "), result, took.Round(time.Second)), ok, err
}

// changed returns the packages and scripts that the mutant changes, or the settings of Redis.
func (t *trial) changed() (names []string, err error) {
	if t.mutant == nil {
		return nil, nil
	}
	if !t.mutant.changesCode() {
		return t.mutant.Redis, nil
	}

	module, err := stack.ModuleDir()
	if err != nil {
		return nil, err
	}

	err = fs.WalkDir(os.DirFS(filepath.Join(module, t.mutant.folder())), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		if path.Ext(name) == ".go" {
			name = path.Dir(name)
		}

		names = append(names, name)
		return nil
	})

	return names, err
}
