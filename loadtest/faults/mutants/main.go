// Command mutants finds out whether the suite of faults would notice: it gives
// the system one seeded defect at a time, a replacement in its source, and runs the
// suite on it, which must fail and name an invariant that the defect breaks. The
// unchanged system must pass with the same arguments.
//
//	go run ./loadtest/faults/mutants
//	go run ./loadtest/faults/mutants -only everysec,lease-unfenced -v
//
// It owns the table of defects. It never touches the module: programs are built
// with an overlay (go help build), settings are copied, and everything lies below
// a temporary folder. The suite and its validation are always those without a defect.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"vendorapi/internal/stack"
)

type options struct {
	only    string
	seed    uint64
	list    bool
	verbose bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, chosen []defect, err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&o.only, "only", "", "`names` of defects with commas, instead of all")
	flags.Uint64Var(&o.seed, "seed", 1, "the suite's seed")
	flags.BoolVar(&o.list, "list", false, "print the table of defects")
	flags.BoolVar(&o.verbose, "v", false, "print what the suite says of each")
	if err := flags.Parse(args); err != nil {
		return o, nil, err
	}
	if flags.NArg() > 0 {
		return o, nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.only == "" {
		return o, defects, nil
	}
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.IndexFunc(defects, func(d defect) bool { return d.name == strings.TrimSpace(name) })
		if i < 0 {
			return o, nil, fmt.Errorf("-only: there is no defect %q; -list shows them", name)
		}
		chosen = append(chosen, defects[i])
	}
	return o, chosen, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, chosen, err := parse(args)
	if err != nil {
		return err
	}
	if o.list {
		for _, d := range defects {
			fmt.Fprintf(out, "%-22s %s\n%22s under %s: %v\n", d.name, d.says, "", d.faults, d.caught)
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
	defer func() { _ = os.RemoveAll(dir) }() // a folder left in /tmp harms nobody
	h := &hunt{options: o, module: module, dir: dir, out: out, suite: filepath.Join(dir, "faults")}
	if err := h.prepare(ctx); err != nil {
		return err
	}
	return h.all(ctx, chosen)
}

// hunt is one run of this program.
type hunt struct {
	options
	module, dir, suite string
	out                io.Writer
	verdicts           []verdict
}

// prepare builds the suite, without any defect.
func (h *hunt) prepare(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", h.suite, "./loadtest/faults")
	cmd.Dir = h.module
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the suite: %w\n%s", err, out)
	}
	return nil
}

// all plays the unchanged system with every set of arguments, and then every
// defect.
func (h *hunt) all(ctx context.Context, chosen []defect) error {
	var played []arguments
	for _, d := range chosen {
		a := arguments{d.faults, d.duration, h.seed}
		if slices.Contains(played, a) {
			continue
		}
		played = append(played, a)
		if err := h.one(ctx, defect{name: "(none)", says: "the system as it is, under " + d.faults}, a); err != nil {
			return err
		}
	}
	for _, d := range chosen {
		if err := h.one(ctx, d, arguments{d.faults, d.duration, h.seed}); err != nil {
			return err
		}
	}
	return h.summary()
}

// one plays one defect. An error ends the hunt: the table is stale, or somebody
// wants it to end. What is wrong with the suite's verdict is told in the end.
func (h *hunt) one(ctx context.Context, d defect, a arguments) error {
	dir := filepath.Join(h.dir, "place")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	changed, err := d.apply(h.module)
	if err != nil {
		return err
	}
	p, err := newPlace(h.module, dir, changed)
	if err != nil {
		return err
	}
	if err := p.build(ctx); err != nil {
		return fmt.Errorf("defect %s: %w", d.name, err)
	}
	v := p.play(ctx, h.suite, a)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	v.name, v.says, v.wanted = d.name, d.says, d.caught
	v.files = slices.Sorted(maps.Keys(changed))
	h.verdicts = append(h.verdicts, v)
	fmt.Fprintln(h.out, v.line())
	if h.verbose || !v.passed() {
		fmt.Fprintln(h.out, indent(v.log))
	}
	return nil
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// line is a verdict on one line.
func (v *verdict) line() string {
	said := "MISSED"
	switch {
	case v.err != nil:
		said = "no verdict: " + v.err.Error()
	case v.passed() && len(v.wanted) == 0:
		said = "passes"
	case v.passed():
		said = "caught"
	case len(v.wanted) == 0:
		said = "BLAMED"
	}
	return fmt.Sprintf("%-22s %-7s after %5.1f s  %v", v.name, said, v.after.Seconds(), v.found)
}

// summary is the table, as the README has it.
func (h *hunt) summary() error {
	fmt.Fprintln(h.out, "\n| defect | in | caught by | after |\n|---|---|---|---|")
	wrong := 0
	for i := range h.verdicts {
		v := &h.verdicts[i]
		by := "MISSED"
		switch {
		case v.err != nil:
			by = "no verdict"
		case len(v.wanted) == 0 && v.passed():
			by = "nothing, as it should be"
		case v.passed():
			by = fmt.Sprint(v.found)
		}
		if !v.passed() {
			wrong++
		}
		fmt.Fprintf(h.out, "| %s: %s | %s | %s | %s |\n", v.name, v.says, strings.Join(v.files, ", "), by, v.after.Round(time.Second))
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d verdicts are wrong", wrong, len(h.verdicts))
	}
	return nil
}
