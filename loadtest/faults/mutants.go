package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
)

// mutant is a defect that the suite must catch, see mutants.yaml.
type mutant struct {
	Name, Does, Faults string
	Caught             []validate.Invariant
	Edits              []edit
}

// edit replaces a piece of code that stands exactly once in the files of a pattern.
type edit struct{ In, Old, New string }

//go:embed mutants.yaml
var mutantsYAML []byte

func loadMutants(names string) (mutants []mutant, err error) {
	if err := yaml.UnmarshalWithOptions(mutantsYAML, &mutants, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("mutants.yaml: %w", err)
	}
	return choose(names, mutants, func(m mutant) string { return m.Name })
}

// mutantLength is enough for a round or two with every fault of a mutant;
// mutantTimeout is what a run may take beyond it.
const (
	mutantLength  = 45 * time.Second
	mutantTimeout = 4 * time.Minute
)

// runMutants is `faults mutants`: it gives a copy of the module one defect at a time
// and runs the suite on it, which must find an invariant that the defect breaks. The
// module as it is must pass under the same faults.
func runMutants(ctx context.Context, o options, out io.Writer) error {
	chosen, err := loadMutants(o.only)
	if err != nil {
		return err
	}
	if o.list {
		for _, m := range chosen {
			fmt.Fprintf(out, "%-22s %s\n%22s under %s: %v\n", m.Name, m.Does, "", m.Faults, m.Caught)
		}
		return nil
	}
	h := &hunt{options: o, out: out}
	if h.module, err = stack.ModuleDir(); err != nil {
		return err
	}
	if h.dir, err = os.MkdirTemp("", "mutants-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(h.dir) }() // in the system's folder for such things
	parts := []string{"-R", "configs", "gateway", "go.mod", "go.sum", "internal", "loadtest", "reporting", "worker", h.dir}
	copying := exec.CommandContext(ctx, "cp", parts...)
	copying.Dir = h.module
	if output, err := copying.CombinedOutput(); err != nil {
		return fmt.Errorf("copying the module: %w\n%s", err, output)
	}
	// Programs are built from, and find their settings in, the module around the
	// working directory.
	if err := os.Chdir(h.dir); err != nil {
		return err
	}
	return h.run(ctx, chosen)
}

// hunt is one run of some mutants.
type hunt struct {
	options     options
	module, dir string
	out         io.Writer
}

// outcome is what the suite found in a mutant.
type outcome struct {
	mutant
	files []string
	found []validate.Invariant
	took  time.Duration
	err   error // the suite itself failed
}

// result is what that means and whether it is as it should be: a mutant is caught,
// and nothing is found in a module without a defect.
func (o *outcome) result() (text string, ok bool) {
	switch caught := func(i validate.Invariant) bool { return slices.Contains(o.Caught, i) }; {
	case o.err != nil:
		return "no result: " + o.err.Error(), false
	case len(o.Caught) == 0 && len(o.found) == 0:
		return "passes", true
	case len(o.Caught) == 0:
		return "BLAMED", false
	case slices.ContainsFunc(o.found, caught):
		return "caught", true
	}
	return "MISSED", false
}

// run plays the module as it is under every set of faults, then every mutant.
func (h *hunt) run(ctx context.Context, chosen []mutant) error {
	var all []mutant
	for _, m := range chosen {
		if !slices.ContainsFunc(all, func(other mutant) bool { return other.Faults == m.Faults }) {
			all = append(all, mutant{Name: "(none)", Does: "the system as it is, under " + m.Faults, Faults: m.Faults})
		}
	}
	all = append(all, chosen...)
	wrong, table := 0, "\n| defect | in | caught by | after |\n|---|---|---|---|\n"
	for _, m := range all {
		o, err := h.play(ctx, m)
		if err != nil {
			return fmt.Errorf("defect %s: %w", m.Name, err)
		}
		by, ok := o.result()
		if !ok {
			wrong++
		} else if len(o.found) > 0 {
			by = fmt.Sprint(o.found)
		}
		table += fmt.Sprintf("| %s: %s | %s | %s | %s |\n", o.Name, o.Does, strings.Join(o.files, ", "), by, o.took.Round(time.Second))
	}
	fmt.Fprint(h.out, table)
	if wrong > 0 {
		return fmt.Errorf("%d of %d results are wrong", wrong, len(all))
	}
	return nil
}

// play plays one mutant and prints a line. An error ends the run: an edit does not
// fit, or ctx has ended.
func (h *hunt) play(ctx context.Context, m mutant) (o outcome, err error) {
	changed, err := m.apply(h.module)
	if err != nil {
		return o, err
	}
	o = outcome{mutant: m, files: slices.Sorted(maps.Keys(changed))}
	for file, text := range changed {
		original, err := os.ReadFile(filepath.Join(h.module, file))
		if err != nil {
			return o, err
		}
		copied := filepath.Join(h.dir, file)
		defer func() { _ = os.WriteFile(copied, original, 0o600) }() // the next one's build fails if this does
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			return o, err
		}
	}
	options := defaults
	options.only, options.seed, options.duration = m.Faults, h.options.seed, mutantLength
	options.keep = filepath.Join(h.dir, "data")
	if err := os.RemoveAll(options.keep); err != nil {
		return o, err
	}
	limited, cancel := context.WithTimeout(ctx, mutantLength+mutantTimeout)
	defer cancel()
	var output bytes.Buffer
	began := time.Now()
	res, err := playAll(limited, options, &output)
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	o.took, o.found = time.Since(began), slices.Sorted(maps.Keys(res.ByInvariant))
	if err != nil && len(o.found) == 0 {
		o.err = err
	}
	text, ok := o.result()
	fmt.Fprintf(h.out, "%-22s %-7s after %5.1f s  %v\n", o.Name, text, o.took.Seconds(), o.found)
	if h.options.verbose || !ok {
		fmt.Fprintln(h.out, "    "+strings.ReplaceAll(output.String(), "\n", "\n    "))
	}
	return o, nil
}

// apply makes the edits: the text of every file that they change, by its path in
// the module. An edit that does not fit exactly once is an error. White space in it
// matches any other.
func (m *mutant) apply(module string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, e := range m.Edits {
		words := strings.Fields(e.Old)
		for i := range words {
			words[i] = regexp.QuoteMeta(words[i])
		}
		old := regexp.MustCompile(strings.Join(words, `\s+`))
		files, err := filepath.Glob(filepath.Join(module, e.In))
		fits := 0
		for _, path := range files {
			file, _ := filepath.Rel(module, path) // Glob found it there
			text, failure := changed[file], error(nil)
			if text == nil {
				text, failure = os.ReadFile(path)
			}
			err = errors.Join(err, failure)
			for _, at := range old.FindAllIndex(text, -1) {
				if strings.HasSuffix(file, "_test.go") {
					continue
				}
				if fits++; fits == 1 {
					changed[file] = slices.Concat(text[:at[0]], []byte(e.New), text[at[1]:])
				}
			}
		}
		if err != nil || fits != 1 || e.Old == e.New {
			return nil, fmt.Errorf("%s has this %d times, want a change of one (%v):\n%s", e.In, fits, err, e.Old)
		}
	}
	return changed, nil
}
