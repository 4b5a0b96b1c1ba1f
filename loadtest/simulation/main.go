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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/stack"
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
	seed := flag.Uint64("seed", 0, "play this seed alone, and show the breach's story")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.Uint64Var(&o.seeds, "seeds", 1000, "how many seeds; with -defects, for each defect at most")
	flag.IntVar(&o.processes, "processes", 2, "how many processes play at a time")
	flag.BoolVar(&o.story, "story", false, "show every command as it happens")
	flag.BoolVar(&o.defects, "defects", false, "play each planted defect until it is found")
	harness.Main("simulation", usage, func(ctx context.Context) error {
		if *seed != 0 {
			o.first, o.seeds, o.processes = *seed, 1, 1
		}
		if o.defects {
			return playDefects(ctx, &o, os.Stdout)
		}
		_, err := playAll(ctx, &o, "", os.Stdout)
		return err
	})
}

// defects are the planted defects, each a folder of defectsFolder, and which breach shows it.
var defects = map[string]string{
	"deadline-ignored":             "event-late",
	"export-acknowledged-unstored": "clickhouse-differs",
	"failed-load-forgotten":        "stuck",
	"job-taken-twice":              "job-taken-twice",
	"orders-never-time-out":        "not-ended",
	"revocation-forgotten":         "revoked-works",
	"webhook-secret-ends-early":    "secret-lost",
}

// playDefects plays each planted defect until a seed finds it, by the breach that it must show.
func playDefects(ctx context.Context, o *options, out io.Writer) error {
	var missed []string
	for _, defect := range slices.Sorted(maps.Keys(defects)) {
		var log strings.Builder
		breached, err := playAll(ctx, o, defect, &log)
		if err != nil && !errors.Is(err, errBreach) {
			return fmt.Errorf("%s: %w", defect, err)
		}
		if !showsAs(breached, defects[defect]) {
			missed = append(missed, defect)
			fmt.Fprintf(out, "%-28s MISSED, which must show as %s\n%s\n", defect, defects[defect], log.String())
			continue
		}
		fmt.Fprintf(out, "%-28s found by seed %d: %s\n", defect, breached.Seed, breached.Breaches[0])
	}
	if len(missed) > 0 {
		return fmt.Errorf("not found: %s", strings.Join(missed, ", "))
	}
	return nil
}

// showsAs reports whether a seed was breached in this way. A nil verdict is that of no seed.
func showsAs(v *world.Verdict, breach string) bool {
	return v != nil && slices.ContainsFunc(v.Breaches, func(b world.Breach) bool { return b.What == breach })
}

var errBreach = errors.New("an invariant was breached")

// playAll plays seeds until one is breached, and returns its verdict with errBreach. That seed is played again.
func playAll(ctx context.Context, o *options, defect string, out io.Writer) (*world.Verdict, error) {
	module, err := stack.ModuleDir()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(os.TempDir(), "vendorapi-simulation"+defect+".test")
	if err := build(ctx, module, program, defect); err != nil {
		return nil, err
	}

	verdicts := make(chan *world.Verdict)
	seeds := make(chan uint64)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		defer close(seeds)
		for seed := o.first; seed < o.first+o.seeds; seed++ {
			select {
			case seeds <- seed:
			case <-ctx.Done():
				return
			}
		}
	}()
	var processes sync.WaitGroup
	for range o.processes {
		processes.Go(func() {
			for seed := range seeds {
				verdict, err := play(ctx, module, program, seed, o.story)
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
		if len(v.Breaches) > 0 && breached == nil {
			breached = v
			stop(errBreach)
		}
	}
	if breached == nil {
		fmt.Fprintf(out, "%d seeds, nothing found\n", played)
		return nil, context.Cause(ctx)
	}

	fmt.Fprintf(out, "\nSEED %d\n%s\n\n", breached.Seed, breached.Story)
	for _, b := range breached.Breaches {
		fmt.Fprintln(out, b)
	}
	again, err := play(context.WithoutCancel(ctx), module, program, breached.Seed, false)
	if err != nil {
		return breached, errors.Join(errBreach, err)
	}
	switch {
	case again.Digest == breached.Digest:
		fmt.Fprintln(out, "played again: the same, call by call")
	case len(again.Breaches) > 0:
		fmt.Fprintf(out, "played again: breached too, by other calls: %s\n", again.Breaches[0])
	default:
		fmt.Fprintln(out, "played again: NOT breached, the calls came in another order")
	}
	return breached, errBreach
}

// play lets a process of its own play a seed, so that nothing is left in memory of another one.
func play(ctx context.Context, module, program string, seed uint64, story bool) (*world.Verdict, error) {
	command := exec.CommandContext(ctx, program, "-test.run", "^TestSeed$", "-test.timeout", "1h")
	command.Dir = module
	command.Env = append(os.Environ(), "GOMAXPROCS=1", "SIMULATION_MODULE="+module,
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
		err = errors.New("it has told no verdict")
	}
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w\n%s", seed, err, rest.String())
	}
	return verdict, nil
}

// defectsFolder has a folder for each planted defect.
const defectsFolder = "loadtest/simulation/testdata/defects"

// build builds the programs of a simulation, with a planted defect unless that is empty.
func build(ctx context.Context, module, program, defect string) error {
	dir := filepath.Join(os.TempDir(), "vendorapi-simulation-"+defect) // the same one each time: the compiler's cache knows it
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	folders := []string{standins}
	if defect != "" {
		folders = append(folders, filepath.Join(defectsFolder, defect))
	}
	o, err := simulated(ctx, module, folders...)
	if err != nil {
		return err
	}
	file, err := o.Write(dir)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-tags", "simulation", "-overlay", file, "-ldflags=-s -w",
		"-o", program, "./loadtest/simulation/world")
	command.Dir = module
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the simulation: %w\n%s", err, output)
	}
	return nil
}
