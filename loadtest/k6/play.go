package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"vendorapi/loadtest/k6/samples"
)

// outcomes of k6 that are verdicts on the service, not troubles of the script.
const (
	exitPassed     = 0
	exitThresholds = 99
)

// played is what one script did and found.
type played struct {
	script   *script
	plan     samples.Plan
	run      *samples.Run
	limits   []limitRow
	webhooks *webhooks
	usage    []usage
	began    time.Time
	took     time.Duration // k6's own run
	log      string        // k6's log
	// failures is everything that makes the script's verdict a no, in words.
	failures []string
}

func (p *played) passed() bool { return len(p.failures) == 0 }

// player runs scripts with one k6.
type player struct {
	k6    string  // path of the binary
	bin   string  // folder of the programs
	root  string  // the project
	dir   string  // logs
	scale float64 // of the lengths
	keep  bool    // the samples and the system's data, too
	out   io.Writer
}

// play runs one script against a house of its own. The error is for a run that
// could not take place, that was interrupted or in which a program died; a
// verdict is in the result.
func (p *player) play(ctx context.Context, s *script) (result *played, err error) {
	h, err := openHouse(ctx, p.bin, s.courier, p.out)
	if err != nil {
		return nil, err
	}
	defer func() {
		failed := err != nil && !errors.Is(err, context.Canceled) || result != nil && !result.passed()
		h.close(p.keep || failed)
		if p.keep || failed {
			fmt.Fprintln(p.out, "  data and logs:", h.dir)
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel(nil)
	beside.Go(func() {
		if err := h.Wait(ctx); err != nil {
			cancel(err)
		}
	})
	if s.courier == "manual" {
		beside.Go(func() {
			if err := h.confirmStores(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	result, err = p.playIn(ctx, h, s)
	if cause := context.Cause(ctx); cause != nil {
		err = cause // why it ended early
	}
	return result, err
}

// playIn runs one script to its end and judges it.
func (p *player) playIn(ctx context.Context, h *house, s *script) (*played, error) {
	accounts, err := h.admit(ctx, s)
	if err != nil {
		return nil, err
	}
	result := &played{script: s, log: filepath.Join(p.dir, s.name+".log")}
	if result.plan, err = p.inspect(ctx, s); err != nil {
		return nil, err
	}
	files := runFiles{samples: filepath.Join(p.dir, s.name+".csv"), summary: filepath.Join(p.dir, s.name+".json")}
	if !p.keep {
		defer files.remove()
	}
	if err := p.runK6(ctx, h, result, accounts, files); err != nil {
		return nil, err
	}
	if err := result.read(files); err != nil {
		return nil, err
	}
	result.limits = judgeLimits(s, result.run)
	if result.webhooks, err = h.checkWebhooks(ctx, accounts, result.run); err != nil {
		return nil, fmt.Errorf("check the webhooks: %w", err)
	}
	result.judge()
	return result, nil
}

// inspect asks k6 what the script says of itself.
func (p *player) inspect(ctx context.Context, s *script) (samples.Plan, error) {
	cmd := exec.CommandContext(ctx, p.k6, "inspect", p.path(s))
	cmd.Env = plainEnvironment()
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	said, err := cmd.Output()
	if err != nil {
		return samples.Plan{}, fmt.Errorf("k6 inspect: %w\n%s", err, complaint.Bytes())
	}
	return samples.ReadPlan(said)
}

func (p *player) path(s *script) string { return filepath.Join(p.root, "loadtest", s.name+".js") }

// runFiles are what k6 writes for the driver.
type runFiles struct{ samples, summary string }

func (f runFiles) remove() {
	_ = os.Remove(f.samples) // not written when k6 ended early
	_ = os.Remove(f.summary)
}

// runK6 runs the script, with everything that k6 says in its log.
func (p *player) runK6(ctx context.Context, h *house, result *played, accounts []*account, files runFiles) error {
	s := result.script
	files.remove()
	given, err := h.environment(accounts)
	if err != nil {
		return err
	}
	log, err := os.Create(result.log)
	if err != nil {
		return err
	}
	defer log.Close()
	bounded, cancel := context.WithTimeout(ctx, s.patience(p.scale))
	defer cancel()
	cmd := exec.CommandContext(bounded, p.k6, "run", "--quiet", "--no-color", "--no-usage-report",
		"--address", "", // no port that may be in use
		"--out", "csv="+files.samples, "--summary-export", files.summary, p.path(s))
	cmd.Env = append(plainEnvironment(), given...)
	cmd.Env = append(cmd.Env, s.environment(p.scale)...)
	// Microseconds, because limits are judged by these times. A lazier garbage
	// collector leaves more of the processors to the system under test.
	cmd.Env = append(cmd.Env, "K6_CSV_TIME_FORMAT=unix_micro", "GOGC=400")
	cmd.Stdout, cmd.Stderr = log, log
	// A Ctrl-C at the terminal reaches the driver only; the driver then asks k6.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	result.began = time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start k6: %w", err)
	}
	stop := watching(ctx, h, cmd.Process.Pid)
	err = cmd.Wait()
	result.took, result.usage = time.Since(result.began), stop()
	switch code := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil:
		result.fail("k6 did not end within %v", s.patience(p.scale))
	case code != exitPassed && code != exitThresholds:
		result.fail("k6 ended with %v: %s", err, lastLines(result.log, 5))
	}
	return nil
}

// plainEnvironment is this process's environment without what would change k6
// or a script.
func plainEnvironment() (env []string) {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(name, "K6_"), name == "DURATION", name == "STEP", name == "RATES",
			name == "CLIENT_ID", name == "CLIENT_SECRET", name == "ACCOUNTS":
		default:
			env = append(env, e)
		}
	}
	return env
}

// read takes what k6 wrote. Without the files there is nothing to judge, and
// that is a failure, too.
func (p *played) read(files runFiles) error {
	p.run = &samples.Run{Stores: map[string]int{}}
	in, err := os.Open(files.samples)
	if errors.Is(err, os.ErrNotExist) {
		p.fail("k6 wrote no samples")
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if p.run, err = samples.ReadCSV(in); err != nil {
		return err
	}
	summary, err := os.ReadFile(files.summary)
	if errors.Is(err, os.ErrNotExist) {
		p.fail("k6 wrote no summary")
		return nil
	}
	if err != nil {
		return err
	}
	return p.plan.Measure(summary)
}

// judge gathers the failures.
func (p *played) judge() {
	for _, l := range p.plan.Levels {
		if !l.Held {
			p.fail("service level not held: %s (%s of %s): %s", l.Words, l.Threshold, l.Metric, l.Measured)
		}
	}
	for _, l := range p.limits {
		if l.Held {
			continue
		}
		p.fail("limit not exact: %s, %s: %d admitted within it, %d refused with room left", l.Bucket, l.Limit, l.Most, max(0, l.Wronged))
	}
	for _, problem := range p.webhooks.told() {
		p.fail("webhooks: %s", problem)
	}
	if len(p.run.Requests) == 0 {
		p.fail("nothing was sent")
	}
}

func (p *played) fail(format string, args ...any) {
	p.failures = append(p.failures, fmt.Sprintf(format, args...))
}

// lastLines is the end of a file, for a message.
func lastLines(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
