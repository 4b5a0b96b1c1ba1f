// Command simulation plays the life of gateways, workers, an exporter and their users from seeds, see package world.
//
//	go run ./loadtest/simulation -seeds 1000
//	go run ./loadtest/simulation -seed 7 -story
//	go run ./loadtest/simulation -defects
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/simulation/world"
)

const usage = `usage: go run ./loadtest/simulation [flags]

Plays lives of some days from seeds, and checks what everybody was told against what is stored. A failure names its
seed. With -defects it builds the programs with one planted defect at a time, each of which must be found.
`

type options struct {
	first, seeds uint64
	processes    int
	story        bool
	defects      bool
}

func main() {
	var o options
	seed := flag.Uint64("seed", 0, "play this seed alone")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.Uint64Var(&o.seeds, "seeds", 1000, "how many seeds; with -defects, for each defect at most")
	flag.IntVar(&o.processes, "processes", 2, "how many processes play at a time")
	flag.BoolVar(&o.story, "story", false, "show every command as it happens")
	flag.BoolVar(&o.defects, "defects", false, "play each planted defect until it is found")
	harness.Main("simulation", usage, func(ctx context.Context) error {
		if *seed != 0 {
			o.first, o.seeds, o.processes = *seed, 1, 1
		}

		if o.seeds == 0 || o.processes < 1 {
			return errors.New("at least one seed and one process are needed")
		}
		if o.defects {
			return playDefects(ctx, &o, os.Stdout)
		}

		return playAll(ctx, &o, os.Stdout)
	})
}

// defect is what a build of the simulation has wrong.
type defect struct {
	folder string // in the module, of what takes the place of its declarations
	breach string // which shows it
}

// defects are the planted defects. Those of `make faults SUITE=mutants` stand with that program.
var defects = []defect{
	{folder: defectsFolder + "/deadline-ignored", breach: "event-late"},
	{folder: defectsFolder + "/failed-load-forgotten", breach: "stuck"},
	{folder: defectsFolder + "/orders-never-time-out", breach: "not-ended"},
	{folder: defectsFolder + "/webhook-secret-ends-early", breach: "secret-lost"},
	{folder: mutantsFolder + "/accepted-by-all", breach: "job-taken-twice"},
	{folder: mutantsFolder + "/export-acked-early", breach: "clickhouse-differs"},
}

func (d *defect) name() string { return path.Base(d.folder) }

// playDefects builds and plays each planted defect, and reports which were not found by the breach that they must show
// as.
func playDefects(ctx context.Context, o *options, out io.Writer) error {
	var missed []string
	for _, d := range defects {
		s, err := build(ctx, &d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name(), err)
		}

		breached, err := s.playSeeds(ctx, o, d.breach, io.Discard)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name(), err)
		}

		if breached == nil {
			missed = append(missed, d.name())
			fmt.Fprintf(out, "%-28s MISSED by %d seeds, must show as %s\n", d.name(), o.seeds, d.breach)
			continue
		}

		i := slices.IndexFunc(breached.Breaches, func(b world.Breach) bool { return b.What == d.breach })
		fmt.Fprintf(out, "%-28s found by seed %d: %s\n", d.name(), breached.Seed, breached.Breaches[i])
	}

	if len(missed) > 0 {
		return fmt.Errorf("not found: %s", strings.Join(missed, ", "))
	}

	return nil
}

var (
	errBreach        = errors.New("an invariant was breached")
	errNotRepeatable = errors.New("the seed was played again, and its calls came in another order")
)

// playAll plays seeds until one is breached. That one is played again.
func playAll(ctx context.Context, o *options, out io.Writer) error {
	s, err := build(ctx, nil)
	if err != nil {
		return err
	}
	breached, err := s.playSeeds(ctx, o, "", out)
	if err != nil || breached == nil {
		return err
	}

	fmt.Fprintf(out, "\nSEED %d\n%s\n", breached.Seed, breached.Story)
	for _, b := range breached.Breaches {
		fmt.Fprintln(out, b)
	}

	again, err := s.play(ctx, breached.Seed, false)
	if err != nil {
		return errors.Join(errBreach, err)
	}

	if again.Digest != breached.Digest {
		return errors.Join(errBreach, errNotRepeatable)
	}

	fmt.Fprintln(out, "played again: the same, call by call")

	return errBreach
}

// simulation is a program that plays seeds.
type simulation struct {
	module  string // folder
	program string
	shim    string // the library by which redis-server's clock is set
}

// playSeeds plays seeds until one shows the breach that is sought, or any breach if that is empty, and returns its
// verdict, or nil if there is none.
func (s *simulation) playSeeds(ctx context.Context, o *options, sought string, out io.Writer) (*world.Verdict, error) {
	playing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	seeds := make(chan uint64)
	go func() {
		defer close(seeds)
		for seed := o.first; seed < o.first+o.seeds; seed++ {
			select {
			case seeds <- seed:
			case <-playing.Done():
				return
			}
		}
	}()

	verdicts := make(chan *world.Verdict)
	var processes sync.WaitGroup
	for range o.processes {
		processes.Go(func() {
			for seed := range seeds {
				verdict, err := s.play(playing, seed, o.story)
				if err != nil {
					stop(err)
					return
				}
				verdicts <- verdict
			}
		})
	}

	go func() {
		processes.Wait()
		close(verdicts)
	}()

	began := time.Now()
	played := 0
	var breached *world.Verdict
	for v := range verdicts {
		played++
		fmt.Fprintf(out, "seed %-6d %s  %5.1f s  %6d calls, %4d requests, %3d orders, %2d deaths in %5.1f h  (%.1f seeds/min)\n",
			v.Seed, v.Digest, v.Took.Seconds(), v.Steps, v.Operations, v.Orders, v.Kills, v.Life.Hours(),
			float64(played)/time.Since(began).Minutes())
		if breached == nil && shows(v, sought) {
			breached = v
			stop(errBreach)
		}
	}

	if breached != nil {
		return breached, nil
	}
	if err := context.Cause(playing); err != nil {
		return nil, err
	}

	fmt.Fprintf(out, "%d seeds, nothing found\n", played)

	return nil, nil
}

// shows reports whether a seed was breached in this way, or in any way if none is named.
func shows(v *world.Verdict, breach string) bool {
	return slices.ContainsFunc(v.Breaches, func(b world.Breach) bool { return breach == "" || b.What == breach })
}

// play lets a process of its own play a seed, so that nothing is left in memory of another one.
func (s *simulation) play(ctx context.Context, seed uint64, story bool) (*world.Verdict, error) {
	command := exec.CommandContext(ctx, s.program, "-test.run", "^TestSeed$", "-test.timeout", "1h")
	command.Dir = s.module
	command.Env = append(os.Environ(), "GOMAXPROCS=1", "SIMULATION_MODULE="+s.module, "SIMULATION_SHIM="+s.shim,
		fmt.Sprint("SIMULATION_SEED=", seed))
	command.Stderr = os.Stderr
	if story {
		command.Env = append(command.Env, "SIMULATION_STORY=yes")
	}

	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}

	var verdict *world.Verdict
	var rest strings.Builder
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		text, isVerdict := strings.CutPrefix(lines.Text(), "verdict ")
		if !isVerdict {
			fmt.Fprintln(&rest, lines.Text())
			continue
		}

		verdict = new(world.Verdict)
		if err := json.Unmarshal([]byte(text), verdict); err != nil {
			return nil, errors.Join(err, command.Wait())
		}
	}

	err = errors.Join(lines.Err(), command.Wait())
	if err == nil && verdict == nil {
		err = errors.New("the process ended without a verdict")
	}

	if err != nil {
		return nil, fmt.Errorf("seed %d: %w\n%s", seed, err, rest.String())
	}

	return verdict, nil
}

const (
	// standInsFolder has what every build of the simulation replaces.
	standInsFolder = "loadtest/simulation/testdata/standins"
	// defectsFolder has a folder for each defect that only the simulation plants.
	defectsFolder = "loadtest/simulation/testdata/defects"
	// mutantsFolder has those of `make faults SUITE=mutants`.
	mutantsFolder = "loadtest/faults/testdata/mutants"
	// buildFolder is where the programs are, and the files that take the place of the module's.
	buildFolder = ".data/simulation"
)

// build builds a simulation with a planted defect; nil: none.
func build(ctx context.Context, planted *defect) (*simulation, error) {
	module, err := stack.ModuleDir()
	if err != nil {
		return nil, err
	}

	name, folders := "none", []string{standInsFolder}
	if planted != nil {
		name, folders = planted.name(), append(folders, planted.folder)
	}

	dir := filepath.Join(module, buildFolder, name) // the same each time: the compiler's cache knows it
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	o, err := newOverlay(ctx, module, folders...)
	if err != nil {
		return nil, err
	}
	file, err := o.Write(dir)
	if err != nil {
		return nil, err
	}

	shim, err := failpoint.BuildShim(ctx, dir)
	if err != nil {
		return nil, err
	}

	s := &simulation{module: module, program: filepath.Join(dir, "simulation.test"), shim: shim}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-tags", "simulation", "-overlay", file, "-ldflags=-s -w",
		"-o", s.program, "./loadtest/simulation/world")
	command.Dir = module
	output, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("building the simulation: %w\n%s", err, output)
	}

	return s, nil
}
