package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
)

// mutant is a defect that the suite must catch, see mutants.yaml.
type mutant struct {
	Name, Says, Faults string
	Caught             []validate.Invariant
	Edits              []edit
}

// edit replaces a piece of code.
type edit struct{ In, Function, Old, New string }

//go:embed mutants.yaml
var mutantsYAML []byte

func loadMutants() (mutants []mutant, err error) {
	err = yaml.UnmarshalWithOptions(mutantsYAML, &mutants, yaml.Strict())
	return mutants, err
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
func runMutants(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "`names` of defects with commas, instead of all")
	seed := flags.Uint64("seed", 1, "the suite's seed")
	list := flags.Bool("list", false, "print the table of defects")
	verbose := flags.Bool("v", false, "print what the suite says of each")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	all, err := loadMutants()
	if err != nil {
		return err
	}
	chosen, err := choose(*only, all, func(m mutant) string { return m.Name })
	if err != nil {
		return err
	}
	if *list {
		for _, m := range chosen {
			fmt.Fprintf(out, "%-22s %s\n%22s under %s: %v\n", m.Name, m.Says, "", m.Faults, m.Caught)
		}
		return nil
	}
	module, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the system's folder for such things
	parts := []string{"-R", "configs", "gateway", "go.mod", "go.sum", "internal", "loadtest", "reporting", "worker", dir}
	copying := exec.CommandContext(ctx, "cp", parts...)
	copying.Dir = module
	if said, err := copying.CombinedOutput(); err != nil {
		return fmt.Errorf("copying the module: %w\n%s", err, said)
	}
	// Programs are built from, and find their settings in, the module around the
	// working directory.
	if err := os.Chdir(dir); err != nil {
		return err
	}
	h := &hunt{module: module, dir: dir, seed: *seed, verbose: *verbose, out: out}
	return h.run(ctx, chosen)
}

// hunt is one run of some mutants.
type hunt struct {
	module, dir string
	seed        uint64
	verbose     bool
	out         io.Writer
	outcomes    []outcome
}

// outcome is what the suite found in a mutant.
type outcome struct {
	mutant
	files []string
	found []validate.Invariant
	took  time.Duration
	err   error // the suite itself failed
}

// passed reports whether the suite found what it should, which is nothing in a
// module without a defect.
func (o *outcome) passed() bool {
	if o.err != nil || len(o.Caught) == 0 {
		return o.err == nil && len(o.found) == 0
	}
	return slices.ContainsFunc(o.found, func(i validate.Invariant) bool { return slices.Contains(o.Caught, i) })
}

func (o *outcome) result() string {
	switch {
	case o.err != nil:
		return "no result: " + o.err.Error()
	case o.passed() && len(o.Caught) == 0:
		return "passes"
	case o.passed():
		return "caught"
	case len(o.Caught) == 0:
		return "BLAMED"
	}
	return "MISSED"
}

// run plays the module as it is under every set of faults, then every mutant.
func (h *hunt) run(ctx context.Context, chosen []mutant) error {
	var all []mutant
	for _, m := range chosen {
		if !slices.ContainsFunc(all, func(other mutant) bool { return other.Faults == m.Faults }) {
			all = append(all, mutant{Name: "(none)", Says: "the system as it is, under " + m.Faults, Faults: m.Faults})
		}
	}
	wrong := 0
	for _, m := range append(all, chosen...) {
		o, err := h.play(ctx, m)
		if err != nil {
			return fmt.Errorf("defect %s: %w", m.Name, err)
		}
		if !o.passed() {
			wrong++
		}
		h.outcomes = append(h.outcomes, o)
	}
	fmt.Fprintln(h.out, "\n| defect | in | caught by | after |\n|---|---|---|---|")
	for _, o := range h.outcomes {
		by := o.result()
		if by == "caught" {
			by = fmt.Sprint(o.found)
		}
		fmt.Fprintf(h.out, "| %s: %s | %s | %s | %s |\n", o.Name, o.Says, strings.Join(o.files, ", "), by, o.took.Round(time.Second))
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d results are wrong", wrong, len(h.outcomes))
	}
	return nil
}

// play plays one mutant and prints a line. An error ends the hunt: the table is
// stale, or ctx has ended.
func (h *hunt) play(ctx context.Context, m mutant) (o outcome, err error) {
	changed, err := m.apply(h.module)
	if err != nil {
		return o, err
	}
	o = outcome{mutant: m, files: slices.Sorted(maps.Keys(changed))}
	for file, text := range changed {
		if err := os.WriteFile(filepath.Join(h.dir, file), text, 0o600); err != nil {
			return o, err
		}
		defer func() {
			text, failure := os.ReadFile(filepath.Join(h.module, file))
			err = errors.Join(err, failure, os.WriteFile(filepath.Join(h.dir, file), text, 0o600))
		}()
	}
	data := filepath.Join(h.dir, "data")
	if err := os.RemoveAll(data); err != nil {
		return o, err
	}
	options, err := parse([]string{"-only", m.Faults, "-duration", mutantLength.String(), "-seed", strconv.FormatUint(h.seed, 10), "-keep", data})
	if err != nil {
		return o, err
	}
	limited, cancel := context.WithTimeout(ctx, mutantLength+mutantTimeout)
	defer cancel()
	var said bytes.Buffer
	began := time.Now()
	res, err := playAll(limited, options, &said)
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	o.took, o.found = time.Since(began), slices.Sorted(maps.Keys(res.ByInvariant))
	if err != nil && len(o.found) == 0 {
		o.err = err
	}
	fmt.Fprintf(h.out, "%-22s %-7s after %5.1f s  %v\n", o.Name, o.result(), o.took.Seconds(), o.found)
	if h.verbose || !o.passed() {
		fmt.Fprintln(h.out, "    "+strings.ReplaceAll(said.String(), "\n", "\n    "))
	}
	return o, nil
}

// apply makes the edits: the text of every file that they change, by its path in
// the module. An edit that does not fit exactly once is an error.
func (m *mutant) apply(module string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, e := range m.Edits {
		fits := 0
		for _, file := range e.files(module) {
			text, ok := changed[file]
			if !ok {
				var err error
				if text, err = os.ReadFile(filepath.Join(module, file)); err != nil {
					return nil, err
				}
			}
			for _, at := range e.find(text) {
				if fits++; fits == 1 {
					changed[file] = slices.Concat(text[:at[0]], []byte(e.New), text[at[1]:])
				}
			}
		}
		if fits != 1 || e.Old == e.New {
			return nil, fmt.Errorf("%s %s has this %d times, want a change of one:\n%s", e.In, e.Function, fits, e.Old)
		}
	}
	return changed, nil
}

// files are those in which an edit looks, as paths in the module.
func (e *edit) files(module string) (files []string) {
	if path.Ext(e.In) != "" {
		return []string{e.In}
	}
	for _, pattern := range []string{"*.go", "*.lua"} {
		found, _ := filepath.Glob(filepath.Join(module, e.In, pattern)) // the pattern is well formed
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") {
				files = append(files, path.Join(e.In, filepath.Base(file)))
			}
		}
	}
	return files
}

// find returns the begins and ends of the places in a text where an edit fits. A
// function at the top level, of Go as of Lua, ends with the first line that is not
// indented.
func (e *edit) find(text []byte) (fits [][]int) {
	parts := [][]int{{0, len(text)}}
	if e.Function != "" {
		receiver, name, isMethod := strings.Cut(e.Function, ".")
		header := `func \(\w+ \*?` + regexp.QuoteMeta(receiver) + `\) ` + regexp.QuoteMeta(name)
		if !isMethod {
			header = `(func|function|local function) ` + regexp.QuoteMeta(e.Function)
		}
		parts = regexp.MustCompile(`(?ms)^`+header+`\b.*?^(\}|end)`).FindAllIndex(text, -1)
	}
	words := strings.Fields(e.Old)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	for _, part := range parts {
		for _, at := range regexp.MustCompile(strings.Join(words, `\s+`)).FindAllIndex(text[part[0]:part[1]], -1) {
			fits = append(fits, []int{part[0] + at[0], part[0] + at[1]})
		}
	}
	return fits
}
