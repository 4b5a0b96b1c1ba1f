package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// courierStep makes a delivery last some seconds, so that every order ends
// within its script's run or soon after.
const courierStep = 500 * time.Millisecond

// thresholdsCrossed is how k6 exits when a service level was not held.
const thresholdsCrossed = 99

// account is a vendor that a script plays, and its receiver.
type account struct {
	*stack.Vendor
	label    string // as in the script: its place, from 1
	receiver *receiver.Receiver
}

// summary is what a script says of itself and of its service levels
// (handleSummary in loadtest/lib/levels.js).
type summary struct {
	Title, Proves string
	Levels        []struct {
		Metric, Threshold, Words string
		Measured                 string
		Held                     bool
	}
}

// result is what one script did and found.
type result struct {
	summary
	script   *script
	samples  *samples
	limits   []limitRow
	webhooks *webhooks
	programs []harness.Watched
	took     time.Duration // k6's own run
	failures []string      // why the script failed; none: everything held
}

func (r *result) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// player runs scripts with one k6.
type player struct {
	k6    string  // path of the binary
	bin   string  // folder of the programs
	root  string  // the project
	dir   string  // of k6's logs and pages
	scale float64 // of the lengths
	keep  bool    // the samples and the system's data, too
	out   io.Writer
}

// play runs one script against a system of its own. The error is for a run that
// could not take place, that was interrupted or in which a program died.
func (p *player) play(ctx context.Context, s *script) (r *result, err error) {
	dir, err := os.MkdirTemp("", "vendor-load-")
	if err != nil {
		return nil, err
	}
	defer func() {
		failed := err != nil && !errors.Is(err, context.Canceled) || r != nil && len(r.failures) > 0
		if p.keep || failed {
			fmt.Fprintln(p.out, "  data and logs:", dir)
			return
		}
		_ = os.RemoveAll(dir) // a folder of the system's for temporary ones
	}()
	courier := "auto"
	if s.manual {
		courier = "manual"
	}
	system, err := stack.Start(ctx, stack.Options{
		DataDir: dir, BinDir: p.bin, Courier: courier, CourierStep: courierStep, Out: programErrors{p.out},
	})
	if err != nil {
		return nil, err
	}
	defer system.Stop()
	api, err := system.Demo.Connect(ctx, client.New("", readers))
	if err != nil {
		return nil, err
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	beside.Go(func() { cancel(system.Wait(ctx)) })
	if s.manual {
		beside.Go(func() {
			if err := confirmStores(ctx, api); err != nil {
				cancel(err)
			}
		})
	}
	accounts, stop, err := openAccounts(ctx, api, s)
	if err != nil {
		return nil, err
	}
	defer stop()
	r, err = p.run(ctx, system, accounts, s)
	if cause := context.Cause(ctx); cause != nil {
		err = cause // why it ended early
	}
	return r, err
}

// run plays the script to its end and checks it.
func (p *player) run(ctx context.Context, system *stack.Stack, accounts []*account, s *script) (*result, error) {
	r := &result{script: s}
	samplesFile, summaryFile := filepath.Join(p.dir, s.name+".samples.json"), filepath.Join(p.dir, s.name+".json")
	if !p.keep {
		defer func() { _ = os.Remove(samplesFile) }() // of no use any more
		defer func() { _ = os.Remove(summaryFile) }()
	}
	if err := p.runK6(ctx, system, accounts, r, samplesFile, summaryFile); err != nil {
		return nil, err
	}
	if err := r.read(samplesFile, summaryFile); err != nil {
		return nil, err
	}
	r.limits = checkLimits(s, r.samples.requests)
	var err error
	if r.webhooks, err = checkWebhooks(ctx, accounts, r.samples); err != nil {
		return nil, fmt.Errorf("check the webhooks: %w", err)
	}
	r.check()
	return r, nil
}

// programErrors lets through what programs report as errors, and not how the system
// comes up.
type programErrors struct{ out io.Writer }

func (e programErrors) Write(b []byte) (int, error) {
	name, _, found := strings.Cut(string(b), ": ")
	if found && slices.Contains([]string{"gateway", "worker", "redis-server"}, name) {
		return e.out.Write(b)
	}
	return len(b), nil
}

// confirmStores confirms every store that waits for its fleet, until ctx ends.
func confirmStores(ctx context.Context, api *stack.APIs) error {
	for {
		var pending struct {
			Stores []struct{ AccountID, ExternalStoreID string }
		}
		err := api.Fleet.Call(ctx, http.MethodGet, "/stores?status=AwaitingFleetApproval", nil, &pending)
		for _, s := range pending.Stores {
			path := "/stores/" + s.AccountID + "/" + url.PathEscape(s.ExternalStoreID) + "/confirm"
			err = errors.Join(err, api.Fleet.Call(ctx, http.MethodPost, path, nil, nil))
		}
		if err != nil {
			return fmt.Errorf("confirm stores: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(courierStep):
		}
	}
}

// openAccounts creates the accounts that a script needs, each with a receiver that
// knows its secret.
func openAccounts(ctx context.Context, api *stack.APIs, s *script) (accounts []*account, stop func(), err error) {
	hooks := http.NewServeMux()
	base, stop, err := receiver.Serve(hooks)
	if err != nil {
		return nil, nil, err
	}
	for n := range s.accounts {
		a := &account{label: strconv.Itoa(n + 1)}
		if a.Vendor, err = api.OpenAccount(ctx, fmt.Sprintf("Yük Testi %s %d", s.name, n+1), s.limits()); err != nil {
			break
		}
		if a.WebhookSecret, err = a.SetWebhook(ctx, base+"/"+a.label); err != nil {
			break
		}
		if a.receiver, err = receiver.New(receiver.Options{Secrets: []string{a.WebhookSecret}}); err != nil {
			break
		}
		hooks.Handle("/"+a.label, a.receiver)
		accounts = append(accounts, a)
	}
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("open account %d: %w", len(accounts)+1, err)
	}
	return accounts, stop, nil
}

// runK6 runs the script. k6 leaves its samples, the script's summary, a log, and its
// dashboard as a page unless the run was too short for one.
func (p *player) runK6(ctx context.Context, system *stack.Stack, accounts []*account, r *result, samplesFile, summaryFile string) error {
	s, page := r.script, filepath.Join(p.dir, r.script.name+".html")
	for _, old := range []string{samplesFile, summaryFile, page} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	log, err := os.Create(filepath.Join(p.dir, s.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var credentials []map[string]string
	for _, a := range accounts {
		credentials = append(credentials, map[string]string{"clientId": a.ClientID, "clientSecret": a.ClientSecret})
	}
	list, err := json.Marshal(credentials)
	if err != nil {
		return err
	}
	timeout := 2*s.expected(p.scale) + 2*time.Minute
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(bounded, p.k6, "run", "--quiet", "--no-color", "--no-usage-report",
		"--address", "", // no port that may be in use
		"--out", "json="+samplesFile, filepath.Join(p.root, "loadtest", s.name+".js"))
	// Nothing of this process's environment, which could change k6 or the script.
	// Secrets are not on the command line, which everybody on the machine can read.
	// A lazier garbage collector leaves more of the processors to the system.
	cmd.Env = []string{
		"HOME=" + p.dir, "GOGC=400", "BASE_URL=" + system.Demo.BaseURL, "FLEET_ID=" + system.Demo.Fleet.FleetID,
		"ACCOUNTS=" + string(list), "SUMMARY=" + summaryFile,
		"K6_WEB_DASHBOARD=true", "K6_WEB_DASHBOARD_PORT=-1", "K6_WEB_DASHBOARD_PERIOD=1s", "K6_WEB_DASHBOARD_EXPORT=" + page,
	}
	if s.setting != "" {
		cmd.Env = append(cmd.Env, s.setting+"="+s.scaled(p.scale).String())
	}
	cmd.Stdout, cmd.Stderr = log, log
	// A Ctrl-C at the terminal reaches the driver only; the driver then asks k6.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start k6: %w", err)
	}
	stop := harness.Watch(ctx, 500*time.Millisecond, harness.Process{Name: "gateway", PID: system.Gateway.PID()},
		harness.Process{Name: "worker", PID: system.Worker.PID()}, harness.Process{Name: "redis-server", PID: system.Redis.PID()},
		harness.Process{Name: "k6", PID: cmd.Process.Pid}, harness.Self("driver and receivers"))
	err = cmd.Wait()
	r.took, r.programs = time.Since(began), stop()
	switch code := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil:
		r.fail("k6 did not end within %v", timeout)
	case code != 0 && code != thresholdsCrossed:
		text, _ := os.ReadFile(log.Name()) // the message is only shorter without it
		r.fail("k6 ended with %v: %s", err, bytes.TrimSpace(text[max(0, len(text)-1000):]))
	}
	return nil
}

// read reads what k6 wrote. Without the files there is nothing to check, and that is
// a failure, too.
func (r *result) read(samplesFile, summaryFile string) error {
	r.samples = &samples{stores: map[string]int{}}
	in, err := os.Open(samplesFile)
	if errors.Is(err, os.ErrNotExist) {
		r.fail("k6 wrote no samples")
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if r.samples, err = readSamples(in); err != nil {
		return err
	}
	text, err := os.ReadFile(summaryFile)
	if errors.Is(err, os.ErrNotExist) {
		r.fail("the script wrote no summary")
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.summary)
	}
	return err
}

// check gathers the failures.
func (r *result) check() {
	if len(r.Levels) == 0 {
		r.fail("the script has no service levels")
	}
	for _, l := range r.Levels {
		if !l.Held {
			r.fail("service level not held: %s (%s of %s): %s", l.Words, l.Threshold, l.Metric, l.Measured)
		}
	}
	for _, l := range r.limits {
		if !l.held {
			r.fail("limit not exact: %s, %s: %d admitted within it, %d refused with room left", l.bucket, l.limit, l.most, max(0, l.wronged))
		}
	}
	for _, problem := range r.webhooks.firstProblems() {
		r.fail("webhooks: %s", problem)
	}
	if len(r.samples.requests) == 0 {
		r.fail("nothing was sent")
	}
}
