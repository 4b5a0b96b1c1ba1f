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
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// The statuses with which k6 exits.
const (
	thresholdsCrossed = 99  // a threshold, such as a service level, was crossed
	scriptAborted     = 108 // setup() or the script ended the test, with a reason in the log
)

// player has k6 play scripts.
type player struct {
	k6      string // path of the binary
	root    string // top of the project
	options *options
	out     io.Writer
}

// newPlayer returns an error for options that no run can have.
func newPlayer(k6 string, o *options) (*player, error) {
	if o.duration <= 0 {
		return nil, fmt.Errorf("-duration is %v: it must be above 0", o.duration)
	}
	root, err := stack.ModuleDir()
	return &player{k6: k6, root: root, options: o, out: os.Stdout}, err
}

// playAll plays scripts one after the other, until one cannot be played or ctx ends, and stores what was played. It
// returns an error unless all scripts were played and everything held, and when something has become slower than in the
// earlier run of -compare.
func (p *player) playAll(ctx context.Context, t target, chosen []*script) error {
	earlier, err := readEarlier(p.options.earlier)
	if err != nil {
		return err
	}

	began := time.Now()
	folder, err := newRunFolder(began)
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
		if result != nil { // an interrupted script has a result, too
			run.Scripts = append(run.Scripts, result)
			p.print(result)
		}

		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}

		if err != nil {
			run.Interrupted = fmt.Sprintf("%s: %v", s.name, err)
			break
		}
	}

	run.TookSeconds = time.Since(began).Seconds()

	if err := store(folder, run, earlier); err != nil {
		return err
	}

	fmt.Fprintf(p.out, "\npage:   %s\nresult: %s\nJUnit:  %s\n",
		filepath.Join(folder, pageFile), filepath.Join(folder, resultFile), filepath.Join(folder, junitFile))
	var slower error
	if earlier != nil {
		slower = printComparison(earlier, run, 0)
	}

	if run.Interrupted != "" {
		return errors.New(run.Interrupted)
	}
	if !run.Passed() {
		return errors.New("not everything held")
	}

	return slower
}

// print says how a script ended.
func (p *player) print(result *results.Script) {
	fmt.Fprintf(p.out, "  %s\n  %s\n", result.Proves, result.Headline())
	for _, failure := range result.Failures {
		fmt.Fprintf(p.out, "    - %s\n", failure)
	}
}

// errNotHeld tells a target that a script failed, so that it keeps the data of its system.
var errNotHeld = errors.New("not everything held")

// play plays one script. It returns an error for a run that could not take place, that was interrupted, or in which a
// program ended that was not killed on purpose; what was measured until then is in the result, which is nil if nothing
// was. A script that failed is a result and no error.
func (p *player) play(ctx context.Context, t target, s *script, folder string) (*results.Script, error) {
	var result *results.Script
	err := t.withSession(ctx, s, func(ctx context.Context, session *session) error {
		var err error
		result, err = p.playIn(ctx, s, session, folder)
		if err != nil {
			return err
		}

		if !result.Passed() {
			return errNotHeld
		}
		return nil
	})

	if errors.Is(err, errNotHeld) {
		err = nil
	}

	return result, err
}

// playIn plays a script in a session: it runs k6, reads what k6 left and checks the webhooks.
func (p *player) playIn(ctx context.Context, s *script, session *session, folder string) (*results.Script, error) {
	if err := session.webhooks.begin(ctx, session.accounts); err != nil {
		return nil, fmt.Errorf("prepare for webhooks: %w", err)
	}

	defer session.webhooks.end()

	files := filesOf(s.name, folder)
	outcome, err := p.runK6(ctx, s, session, files)
	if err != nil {
		return nil, err
	}

	result, err := results.Build(files, results.Options{
		Name:           s.name,
		File:           p.pathOnPage(s.path),
		Limits:         limitsOf(session.accounts),
		FreshAccounts:  session.isOwn,
		RelativeLevels: session.isOwn,
	})
	if err != nil {
		return nil, err
	}

	result.Programs, result.OthersCores, result.Notes = outcome.programs, outcome.othersCores, outcome.notes
	if outcome.problem != "" {
		result.AddProblem("%s", outcome.problem)
	}

	if err := p.checkWebhooks(ctx, session, result); err != nil {
		return nil, err
	}

	checkDelay(s, result)
	result.CollectFailures()

	return result, p.tidy(result, folder)
}

// checkWebhooks waits for the webhooks of a script and compares them. When ctx ends, by a signal or because a program of
// the system has ended, the script counts as interrupted, and its webhooks are not checked.
func (p *player) checkWebhooks(ctx context.Context, session *session, result *results.Script) error {
	isSilent := len(result.Orders) == 0 && len(result.Stores) == 0
	if isSilent {
		result.Webhooks = &results.Webhooks{How: results.WebhooksNotChecked, Why: "the script has created no order"}
	} else if ctx.Err() == nil {
		fmt.Fprintln(p.out, "  k6 has ended; its orders' webhooks are awaited and compared")
		checked, err := session.webhooks.compare(ctx, session.accounts, result)
		if ctx.Err() == nil {
			result.Webhooks = checked
			return err
		}
	}

	if ctx.Err() != nil {
		result.Interrupted = fmt.Sprintf("before its end: %v", context.Cause(ctx))
		result.Webhooks = &results.Webhooks{How: results.WebhooksNotChecked, Why: "the script was interrupted"}
	}

	return nil
}

// longestDelay is how long 95 of 100 webhooks may take from their event to their arrival, in ms. A healthy service takes
// some milliseconds.
const longestDelay = 5000

// checkDelay adds a problem if webhooks arrived late. While programs are killed they may.
func checkDelay(s *script, result *results.Script) {
	delay := result.Webhooks.Delay
	isLate := delay.Count > 0 && delay.P95 > longestDelay && !s.needs.Outages
	if isLate {
		result.AddProblem("webhooks came late: 5 of 100 took longer than %v, at most %d s is accepted", delay.P95, longestDelay/1000)
	}
}

// tidy removes the samples of a script that held, unless they are to be kept. Those of a script that failed stay, so that
// the reason can be found.
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

// pathOnPage returns a path as the page shows it: from the top of the project, or only the file's name if the file is
// outside the project.
func (p *player) pathOnPage(path string) string {
	inside, err := filepath.Rel(p.root, absolutePath(path))
	if err != nil || strings.HasPrefix(inside, "..") {
		return filepath.Base(path)
	}
	return inside
}

// filesOf returns the names of the files that k6 leaves for a script.
func filesOf(name, folder string) results.ScriptFiles {
	return results.ScriptFiles{
		Folder:    folder,
		Samples:   []string{name + ".samples.json.gz"},
		Summaries: []string{name + ".summary.json"},
		Dashboard: name + ".html",
		Log:       name + ".log",
	}
}

// outcome is the result of a run of k6, except for its files.
type outcome struct {
	problem string // why the run proves nothing; empty: it ended as it should

	notes       []string // what was done to the system
	programs    []harness.Watched
	othersCores *float64 // processors that other programs kept busy; nil: not known
}

// runK6 runs k6 until it ends, or ctx does. It returns an error if k6 could not be started; how k6 ended is in the
// outcome.
func (p *player) runK6(ctx context.Context, s *script, session *session, files results.ScriptFiles) (*outcome, error) {
	log, err := os.Create(filepath.Join(files.Folder, files.Log))
	if err != nil {
		return nil, err
	}
	defer log.Close()

	timeout := s.atMost + 5*time.Minute // for setup(), and to write what is left
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := p.command(bounded, s, session, files)
	cmd.Stdout, cmd.Stderr = log, log

	before, err := harness.Measure(session.programs...)
	if err != nil {
		return nil, err
	}

	// A driver that is killed takes k6 with it, which would load a deployment until the script's end.
	if err := stack.StartChild(cmd); err != nil {
		return nil, fmt.Errorf("start k6: %w", err)
	}

	generators := []harness.Process{{Name: "k6", PID: cmd.Process.Pid}, harness.Self("driver and receivers")}
	stop := harness.Watch(ctx, 500*time.Millisecond, slices.Concat(session.programs, generators)...)

	endOutages := session.causeOutages(bounded)
	err = cmd.Wait()
	caused := endOutages()
	result := &outcome{programs: stop(), notes: caused.notes}
	result.othersCores = othersOf(before, result.programs)

	code := cmd.ProcessState.ExitCode()
	switch {
	case ctx.Err() != nil: // whoever called sees that, too
	case bounded.Err() != nil:
		result.problem = fmt.Sprintf("k6 did not end within %v", timeout)
	case code == scriptAborted:
		result.problem = "k6 ended the script: " + lastLines(log.Name(), 1)
	case code != 0 && code != thresholdsCrossed:
		result.problem = fmt.Sprintf("k6 ended with %v: %s", err, lastLines(log.Name(), 8))
	case code == thresholdsCrossed:
		result.problem = otherThresholds(filepath.Join(files.Folder, files.Summaries[0]))
	}

	thrown := exceptionsIn(log.Name())
	switch {
	case result.problem != "" || ctx.Err() != nil:
	case caused.err != nil:
		result.problem = fmt.Sprintf("not all outages were caused: %v", caused.err)
	case thrown != "":
		result.problem = thrown
	}

	return result, nil
}

// command returns the call of k6 for a script. When ctx ends k6 is asked to end, and killed 20 s later.
func (p *player) command(ctx context.Context, s *script, session *session, files results.ScriptFiles) *exec.Cmd {
	args := []string{"run", "--quiet", "--no-color", "--no-usage-report",
		"--address", "", // no port that may be in use
		"--out", "json=" + filepath.Join(files.Folder, files.Samples[0])}
	for _, output := range slices.Concat(p.options.outputs, outputsOfEnvironment()) {
		args = append(args, "--out", output)
	}

	cmd := exec.CommandContext(ctx, p.k6, append(args, s.path)...)

	// Secrets are not on the command line, which everybody on the machine can read.
	cmd.Env = slices.Concat(p.environment(), session.env, []string{
		"SUMMARY=" + filepath.Join(files.Folder, files.Summaries[0]),
		"K6_WEB_DASHBOARD=true", "K6_WEB_DASHBOARD_PORT=-1", "K6_WEB_DASHBOARD_PERIOD=1s",
		"K6_WEB_DASHBOARD_EXPORT=" + filepath.Join(files.Folder, files.Dashboard),
	})

	// A Ctrl-C at the terminal reaches the driver only (see stack.StartChild); the driver then asks k6.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second

	return cmd
}

// environment returns the environment of this process, which may have settings of scripts and of k6's outputs, with
// defaults for what is not set. It leaves out K6_OUT, which becomes flags, and the variables of make.
func (p *player) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(setting string) bool {
		return strings.HasPrefix(setting, "K6_OUT=") || strings.HasPrefix(setting, "MAKE")
	})
	defaults := []struct{ name, value string }{
		{name: "DURATION", value: p.options.duration.String()},

		// k6 collects garbage less often, which leaves more of the processors to the system.
		{name: "GOGC", value: "400"},

		// The dashboard's row of load tests needs these (K6.md).
		{name: "K6_PROMETHEUS_RW_TREND_AS_NATIVE_HISTOGRAM", value: "true"},
		{name: "K6_PROMETHEUS_RW_STALE_MARKERS", value: "true"},
	}

	for _, setting := range defaults {
		if os.Getenv(setting.name) == "" {
			env = append(env, setting.name+"="+setting.value)
		}
	}

	return env
}

// outputsOfEnvironment returns the outputs of K6_OUT, which k6 ignores when it gets --out.
func outputsOfEnvironment() []string {
	outputs := os.Getenv("K6_OUT")
	if outputs == "" {
		return nil
	}
	return strings.Split(outputs, ",")
}

// otherThresholds returns a sentence with the thresholds that were crossed and are not those of service levels, which the
// result has. It is empty if there are none, or if the summary cannot be read, which is a problem of the result, too.
func otherThresholds(summary string) string {
	text, err := os.ReadFile(summary)
	if err != nil {
		return ""
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
		if isLevel {
			continue
		}

		for threshold, t := range m.Thresholds {
			if !t.OK {
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

// othersOf returns how many processors were kept busy, since before, by programs that were not watched; nil if that is not
// known.
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

// exceptionsIn says how many iterations of a script threw an exception, and shows the first; empty: none did. k6 has no
// metric of them and goes on.
func exceptionsIn(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return ""
	}

	count, first := 0, ""
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "source=stacktrace") {
			continue
		}
		if count == 0 {
			first = strings.TrimSpace(line)
		}
		count++
	}

	if count == 0 {
		return ""
	}

	return fmt.Sprintf("the script threw %d exceptions, the first: %s", count, first)
}

// lastLines returns the last lines of a log; at most so many.
func lastLines(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "(k6's log cannot be read)"
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
