package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// How k6 exits.
const (
	thresholdsCrossed = 99  // a service level was not held, which the result says in words
	scriptAborted     = 108 // setup() or the script ended the test, with a reason in the log
)

// player has k6 play scripts.
type player struct {
	k6      string // path of the binary
	root    string // the project
	options *options
	out     io.Writer
}

func newPlayer(k6 string, o *options) (*player, error) {
	if o.duration <= 0 {
		return nil, fmt.Errorf("-duration is %v: it must be above 0", o.duration)
	}
	root, err := stack.ModuleDir()
	return &player{k6: k6, root: root, options: o, out: os.Stdout}, err
}

// playAll plays scripts until they are through, one cannot be played or ctx ends. What was played by then is stored.
func (p *player) playAll(ctx context.Context, t target, chosen []*script) error {
	earlier, err := readEarlier(p.options.earlier)
	if err != nil {
		return err
	}
	began := time.Now()
	folder, err := newRun(began)
	if err != nil {
		return err
	}

	run := &results.Run{
		Began:     began,
		Target:    t.name(),
		Machine:   harness.DescribeMachine(ctx),
		K6:        harness.K6Version,
		Generator: t.generator(),
	}
	for _, s := range chosen {
		fmt.Fprintf(p.out, "\n%s, at most %v\n", s.name, s.atMost)
		result, err := p.play(ctx, t, s, folder)
		if err != nil {
			run.Interrupted = fmt.Sprintf("%s: %v", s.name, err)
			break
		}
		run.Scripts = append(run.Scripts, result)
		p.print(result)
	}
	run.TookSeconds = time.Since(began).Seconds()

	if err := store(folder, run, earlier); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "\npage:   %s\nresult: %s\nJUnit:  %s\n",
		filepath.Join(folder, pageFile), filepath.Join(folder, resultFile), filepath.Join(folder, junitFile))
	if run.Interrupted != "" {
		return errors.New(run.Interrupted)
	}
	if !run.Passed() {
		return errors.New("not everything held")
	}
	if earlier != nil {
		return printComparison(earlier, run, 0)
	}
	return nil
}

func (p *player) print(result *results.Script) {
	fmt.Fprintf(p.out, "  %s\n  %s\n", result.Proves, result.Headline())
	for _, failure := range result.Failures {
		fmt.Fprintf(p.out, "    - %s\n", failure)
	}
}

// play plays one script. The error is for a run that could not take place, that was interrupted or in which a program
// died that nobody killed.
func (p *player) play(ctx context.Context, t target, s *script, folder string) (*results.Script, error) {
	var result *results.Script
	err := t.with(ctx, s, func(ctx context.Context, session *session) (err error) {
		result, err = p.playIn(ctx, s, session, folder)
		if err == nil && !result.Passed() {
			err = errNotHeld
		}
		return err
	})
	if errors.Is(err, errNotHeld) {
		err = nil
	}
	return result, err
}

// errNotHeld makes a target keep its data.
var errNotHeld = errors.New("not everything held")

func (p *player) playIn(ctx context.Context, s *script, session *session, folder string) (*results.Script, error) {
	if err := session.webhooks.begin(ctx, session.accounts); err != nil {
		return nil, fmt.Errorf("prepare for webhooks: %w", err)
	}
	defer session.webhooks.end()

	files := filesOf(s.name, folder)
	outcome, err := p.runK6(ctx, s, session, files, folder)
	if err != nil {
		return nil, err
	}

	result, err := results.Build(files, results.Options{
		Name:          s.name,
		File:          p.shown(s.path),
		Limits:        limitsOf(session.accounts),
		FreshAccounts: session.fresh,
	})
	if err != nil {
		return nil, err
	}
	result.Programs, result.OthersCores = outcome.programs, outcome.othersCores
	if outcome.problem != "" {
		result.AddProblem("%s", outcome.problem)
	}
	if outcome.begun {
		result.Webhooks, err = session.webhooks.compare(ctx, session.accounts, result)
		if err != nil {
			return nil, fmt.Errorf("check the webhooks: %w", err)
		}
		p.holdDelay(s, result)
	}
	result.CollectFailures()

	return result, p.tidy(result, folder)
}

// longestDelay is how long 95 of 100 webhooks may take, in ms from what they tell to their arrival. A healthy service
// takes some milliseconds.
const longestDelay = 5000

// holdDelay adds a problem if webhooks came late. Where programs fail, they do.
func (p *player) holdDelay(s *script, result *results.Script) {
	delay := result.Webhooks.Delay
	isLate := delay.Count > 0 && delay.P95 > longestDelay && !s.needs.Outages
	if isLate {
		result.AddProblem("webhooks came late: 5 of 100 took longer than %v, at most %d s is accepted", delay.P95, longestDelay/1000)
	}
}

// tidy removes the samples of a script that held, unless they are to be kept. Those of one that did not are what says
// why.
func (p *player) tidy(result *results.Script, folder string) error {
	if p.options.keep || !result.Passed() {
		return nil
	}
	for _, name := range result.Files.Samples {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	result.Files.Samples = nil
	return nil
}

// shown returns a path as it stands on the page: within the project from its top.
func (p *player) shown(path string) string {
	inside, err := filepath.Rel(p.root, path)
	if err != nil || strings.HasPrefix(inside, "..") {
		return filepath.Base(path)
	}
	return inside
}

// filesOf names what k6 leaves of a script.
func filesOf(name, folder string) results.ScriptFiles {
	return results.ScriptFiles{
		Folder:    folder,
		Samples:   []string{name + ".samples.json.gz"},
		Summaries: []string{name + ".summary.json"},
		Dashboard: name + ".html",
		Log:       name + ".log",
	}
}

// outcome is what a run of k6 came to, besides its files.
type outcome struct {
	begun       bool   // orders may have been created
	problem     string // empty: none
	programs    []harness.Watched
	othersCores *float64
}

// runK6 runs k6 until it ends. A failure of ctx is the only one that is an error.
func (p *player) runK6(ctx context.Context, s *script, session *session, files results.ScriptFiles, folder string) (*outcome, error) {
	log, err := os.Create(filepath.Join(folder, files.Log))
	if err != nil {
		return nil, err
	}
	defer log.Close()

	timeout := s.atMost + 5*time.Minute // for setup(), and to write what is left
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := p.command(bounded, s, session, files, folder)
	cmd.Stdout, cmd.Stderr = log, log

	before, err := harness.Measure(session.programs...)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start k6: %w", err)
	}
	generators := []harness.Process{{Name: "k6", PID: cmd.Process.Pid}, harness.Self("driver and receivers")}
	stop := harness.Watch(ctx, 500*time.Millisecond, slices.Concat(session.programs, generators)...)

	failed := session.causeOutages(bounded)
	err = cmd.Wait()
	result := &outcome{programs: stop(), begun: true}
	result.othersCores = othersOf(before, result.programs)

	code := cmd.ProcessState.ExitCode()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case bounded.Err() != nil:
		result.problem = fmt.Sprintf("k6 did not end within %v", timeout)
	case code == scriptAborted:
		result.begun = false
		result.problem = "k6 ended the script: " + lastOf(log.Name(), 1)
	case code != 0 && code != thresholdsCrossed:
		result.problem = fmt.Sprintf("k6 ended with %v: %s", err, lastOf(log.Name(), 8))
	case code == thresholdsCrossed:
		result.problem = otherThresholds(filepath.Join(folder, files.Summaries[0]))
	}
	outageErr := failed()
	if outageErr != nil {
		result.problem = fmt.Sprintf("the outages could not be caused: %v", outageErr)
	}
	return result, nil
}

// command is the call of k6.
func (p *player) command(ctx context.Context, s *script, session *session, files results.ScriptFiles, folder string) *exec.Cmd {
	args := []string{"run", "--quiet", "--no-color", "--no-usage-report",
		"--address", "", // no port that may be in use
		"--out", "json=" + filepath.Join(folder, files.Samples[0])}
	for _, output := range slices.Concat(p.options.outputs, outputsOfEnvironment()) {
		args = append(args, "--out", output)
	}

	cmd := exec.CommandContext(ctx, p.k6, append(args, s.path)...)
	// Secrets are not on the command line, which everybody on the machine can read.
	cmd.Env = slices.Concat(p.environment(), session.env, []string{
		"SUMMARY=" + filepath.Join(folder, files.Summaries[0]),
		"K6_WEB_DASHBOARD=true", "K6_WEB_DASHBOARD_PORT=-1", "K6_WEB_DASHBOARD_PERIOD=1s",
		"K6_WEB_DASHBOARD_EXPORT=" + filepath.Join(folder, files.Dashboard),
	})
	// A Ctrl-C at the terminal reaches the driver only; the driver then asks k6.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// environment is the caller's, for the settings of scripts and of k6's outputs, with defaults of this program.
func (p *player) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(setting string) bool {
		return strings.HasPrefix(setting, "K6_OUT=") || strings.HasPrefix(setting, "MAKE")
	})
	for _, unset := range [][2]string{
		{"DURATION", p.options.duration.String()},
		// A lazier garbage collector leaves more of the processors to the system.
		{"GOGC", "400"},
		// What the dashboard's row of load tests shows (K6.md).
		{"K6_PROMETHEUS_RW_TREND_AS_NATIVE_HISTOGRAM", "true"},
		{"K6_PROMETHEUS_RW_STALE_MARKERS", "true"},
	} {
		if os.Getenv(unset[0]) == "" {
			env = append(env, unset[0]+"="+unset[1])
		}
	}
	return env
}

// outputsOfEnvironment are those of K6_OUT, which k6 forgets when it gets --out.
func outputsOfEnvironment() []string {
	outputs := os.Getenv("K6_OUT")
	if outputs == "" {
		return nil
	}
	return strings.Split(outputs, ",")
}

// otherThresholds names the thresholds that were crossed and are no service levels; empty: there are none. The levels
// are in the result.
func otherThresholds(summary string) string {
	text, err := os.ReadFile(summary)
	if err != nil {
		return "" // the missing summary is a failure of its own
	}
	var read struct {
		Levels  []struct{ Metric string }
		Metrics map[string]struct {
			Thresholds map[string]struct{ OK bool }
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return ""
	}

	var crossed []string
	for metric, m := range read.Metrics {
		isLevel := slices.ContainsFunc(read.Levels, func(l struct{ Metric string }) bool { return l.Metric == metric })
		for threshold, t := range m.Thresholds {
			if !t.OK && !isLevel {
				crossed = append(crossed, threshold+" of "+metric)
			}
		}
	}
	if len(crossed) == 0 {
		return ""
	}
	slices.Sort(crossed)
	return "k6's thresholds were crossed: " + strings.Join(crossed, ", ")
}

// othersOf returns how many processors programs besides the watched ones kept busy; nil if that is not known.
func othersOf(before harness.Usage, watched []harness.Watched) *float64 {
	now, err := harness.Measure()
	if err != nil {
		return nil
	}
	used := now.Since(harness.Usage{"seconds": before["seconds"], "busy": before["busy"]})
	busy := used["busy"] / used["seconds"]
	for _, w := range watched {
		busy -= w.Cores
	}
	others := max(0, busy)
	return &others
}

// lastOf returns the last lines of a log.
func lastOf(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "(k6's log cannot be read)"
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
