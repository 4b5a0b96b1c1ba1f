package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// mutant is a defect that the suite must catch, see mutants.yaml.
type mutant struct {
	Name, Does, Faults string
	Caught             []validate.Invariant
	Edits              []edit
	Redis              []string // further settings of redis-server
	Replica            bool     // under redis.durability: replica
}

// edit replaces a piece of code that stands exactly once in the files of a pattern.
type edit struct{ In, Old, New string }

func loadMutants(names string) ([]mutant, error) {
	return readTable("mutants.yaml", names, func(m mutant) string { return m.Name })
}

// mutantLength is enough for a round or two with every fault of a mutant; mutantTimeout is what a run may take beyond it.
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
	// The module as it is goes first, under every set of faults.
	var all []mutant
	for _, m := range chosen {
		if !slices.ContainsFunc(all, func(other mutant) bool { return other.Faults == m.Faults }) {
			all = append(all, mutant{Name: "(none)", Does: "the system as it is, under " + m.Faults, Faults: m.Faults, Replica: m.Replica})
		}
	}
	all = append(all, chosen...)
	wrong, table := 0, "\n| defect | in | caught by | after |\n|---|---|---|---|\n"
	for _, m := range all {
		line, ok, err := m.play(ctx, o, dir, out)
		if err != nil {
			return fmt.Errorf("defect %s: %w", m.Name, err)
		}
		if table += line; !ok {
			wrong++
		}
	}
	fmt.Fprint(out, table)
	if wrong > 0 {
		return fmt.Errorf("%d of %d results are wrong", wrong, len(all))
	}
	return nil
}

// result is what found means and whether it is as it should be: a mutant is caught, and nothing is found in a module
// without a defect. err is of the suite itself.
func (m *mutant) result(found []validate.Invariant, err error) (text string, ok bool) {
	switch caught := func(i validate.Invariant) bool { return slices.Contains(m.Caught, i) }; {
	case err != nil && len(found) == 0:
		return "no result: " + err.Error(), false
	case len(m.Caught) == 0 && len(found) == 0:
		return "passes", true
	case len(m.Caught) == 0:
		return "BLAMED", false
	case slices.ContainsFunc(found, caught):
		return "caught", true
	}
	return "MISSED", false
}

// play plays one mutant, prints a line and returns that of the table. An error ends the run: an edit does not fit, or
// ctx has ended.
func (m *mutant) play(ctx context.Context, o options, dir string, out io.Writer) (line string, ok bool, err error) {
	overlay, files, err := m.overlay(dir)
	if err != nil {
		return "", false, err
	}
	options := defaults
	options.only, options.seed, options.duration, options.redis = m.Faults, o.seed, mutantLength, m.Redis
	options.replica, options.keep = m.Replica, filepath.Join(dir, "data")
	options.bin = filepath.Join(options.keep, "bin")
	limited, cancel := context.WithTimeout(ctx, mutantLength+mutantTimeout)
	defer cancel()
	flags := os.Getenv("GOFLAGS")
	err = errors.Join(os.RemoveAll(options.keep), os.Setenv("GOFLAGS", flags+" -overlay="+overlay),
		stack.Build(limited, options.bin), os.Setenv("GOFLAGS", flags))
	if err != nil {
		return "", false, err
	}
	var output bytes.Buffer
	began := time.Now()
	res, failure := playAll(limited, options, &output)
	if ctx.Err() != nil {
		return "", false, context.Cause(ctx)
	}
	took, found := time.Since(began), slices.Sorted(maps.Keys(res.ByInvariant))
	by, ok := m.result(found, failure)
	fmt.Fprintf(out, "%-22s %-7s after %5.1f s  %v\n", m.Name, by, took.Seconds(), found)
	if o.verbose || !ok {
		fmt.Fprintln(out, "    "+strings.ReplaceAll(output.String(), "\n", "\n    "))
	}
	if ok && len(found) > 0 {
		by = fmt.Sprint(found)
	}
	return fmt.Sprintf("| %s: %s | %s | %s | %s |\n", m.Name, m.Does, strings.Join(slices.Concat(files, m.Redis), ", "),
		by, took.Round(time.Second)), ok, nil
}

// overlay writes the files that the edits change to dir, and the file for go build -overlay that puts them in the
// place of the module's.
func (m *mutant) overlay(dir string) (overlay string, files []string, err error) {
	module, err := stack.ModuleDir()
	if err != nil {
		return "", nil, err
	}
	changed, err := m.apply(module)
	replaced := make(map[string]string)
	for file, text := range changed {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		err = errors.Join(err, os.WriteFile(path, text, 0o600))
		replaced[filepath.Join(module, file)] = path
	}
	overlay = filepath.Join(dir, "overlay.json")
	err = errors.Join(err, harness.WriteJSON(overlay, map[string]any{"Replace": replaced}, io.Discard))
	return overlay, slices.Sorted(maps.Keys(changed)), err
}

// apply makes the edits: the text of every file that they change, by its path in the module. An edit that does not
// fit exactly once is an error. White space in it matches any other.
func (m *mutant) apply(module string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, e := range m.Edits {
		old := regexp.MustCompile(strings.Join(strings.Fields(regexp.QuoteMeta(e.Old)), `\s+`))
		files, err := fs.Glob(os.DirFS(module), e.In)
		fits := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, failure := changed[file], error(nil)
			if text == nil {
				text, failure = os.ReadFile(filepath.Join(module, file))
			}
			err = errors.Join(err, failure)
			places := old.FindAllIndex(text, -1)
			if fits += len(places); len(places) == 1 {
				changed[file] = slices.Concat(text[:places[0][0]], []byte(e.New), text[places[0][1]:])
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.In, err)
		}
		if fits != 1 || e.Old == e.New {
			return nil, fmt.Errorf("%s has this %d times, want a change of one:\n%s", e.In, fits, e.Old)
		}
	}
	return changed, nil
}
