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
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// courierStep makes a delivery last some seconds, so that every order ends within its script's run or soon after.
const courierStep = 500 * time.Millisecond

// thresholdsCrossed is how k6 exits when a service level was not held.
const thresholdsCrossed = 99

// account is a vendor that a script plays, and its receiver.
type account struct {
	*stack.Vendor
	label    string // as in the script: its place, from 1
	receiver *receiver.Receiver
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

// playAll plays the scripts until they are through, one cannot be played or ctx
// ends. What was played by then is in the page.
func (p *player) playAll(ctx context.Context, chosen []script, path string) error {
	page := page{Began: time.Now(), Machine: harness.DescribeMachine(ctx).String()}
	var broken error
	for i := range chosen {
		s := &chosen[i]
		fmt.Fprintf(p.out, "\n%s, about %.0f s\n", s.name, s.expected(p.scale).Seconds())
		r, err := p.play(ctx, s)
		if err != nil {
			broken = fmt.Errorf("%s: %w", s.name, err)
			page.Interrupted = broken.Error()
			break
		}
		page.Scripts = append(page.Scripts, r)
		fmt.Fprintf(p.out, "  %s\n  %s\n", r.Proves, r.Headline())
		for _, f := range r.Failures {
			fmt.Fprintf(p.out, "    - %s\n", f)
		}
	}
	if len(page.Scripts) == 0 {
		return broken // and an earlier page stays
	}
	if err := page.write(path); err != nil {
		return errors.Join(broken, err)
	}
	fmt.Fprintf(p.out, "\nreport: %s\n", path)
	if broken == nil && !page.Passed() {
		broken = errors.New("not everything held")
	}
	return broken
}

// errFailed keeps the data of a system whose script failed.
var errFailed = errors.New("the script failed")

// play runs one script against a system of its own. The error is for a run that
// could not take place, that was interrupted or in which a program died.
func (p *player) play(ctx context.Context, s *script) (*result, error) {
	r := &result{Name: s.name}
	o := stack.Options{BinDir: p.bin, Courier: "auto", CourierStep: courierStep, Out: p.out}
	if s.manual {
		o.Courier = "manual"
	}
	err := harness.WithSystem(ctx, p.out, p.keep, o, func(ctx context.Context, system *harness.System) error {
		group, ctx := errgroup.WithContext(ctx)
		running, end := context.WithCancel(ctx)
		if s.manual {
			group.Go(func() error { return confirmStores(running, system) })
		}
		group.Go(func() error {
			defer end()
			return p.run(ctx, system, s, r)
		})
		return group.Wait()
	})
	if errors.Is(err, errFailed) {
		err = nil
	}
	return r, err
}

func (p *player) run(ctx context.Context, system *harness.System, s *script, r *result) error {
	accounts, err := openAccounts(ctx, system, s)
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, s.name)
	files := k6Files{path + ".samples.json", path + ".summary.json", path + ".html", path + ".log"}
	for _, old := range []string{files.samples, files.summary, files.dashboard} {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	if !p.keep {
		defer func() { _, _ = os.Remove(files.samples), os.Remove(files.summary) }() // of no use any more
	}
	if err := p.runK6(ctx, system, accounts, s, r, files); err != nil {
		return err
	}
	_, err = os.Stat(files.dashboard)
	r.Dashboard = err == nil
	if err := r.read(files); err != nil {
		return err
	}
	r.Limits = checkLimits(s, r.samples.requests)
	if r.Webhooks, err = checkWebhooks(ctx, accounts, r.samples); err != nil {
		return fmt.Errorf("check the webhooks: %w", err)
	}
	if r.check(); len(r.Failures) > 0 {
		return errFailed
	}
	return nil
}

// confirmStores confirms every store that waits for its fleet, until ctx ends.
func confirmStores(ctx context.Context, system *harness.System) error {
	for ctx.Err() == nil {
		var pending struct {
			Stores []struct{ AccountID, ExternalStoreID string }
		}
		err := system.Fleet.Call(ctx, http.MethodGet, "/stores?status=AwaitingFleetApproval", nil, &pending)
		for _, s := range pending.Stores {
			path := "/stores/" + s.AccountID + "/" + url.PathEscape(s.ExternalStoreID) + "/confirm"
			err = errors.Join(err, system.Fleet.Call(ctx, http.MethodPost, path, nil, nil))
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("confirm stores: %w", err)
		}
		_ = harness.Sleep(ctx, courierStep)
	}
	return nil
}

// openAccounts creates the accounts that a script needs, each with a receiver that knows its secret.
func openAccounts(ctx context.Context, system *harness.System, s *script) (accounts []*account, err error) {
	for n := range s.accounts {
		a := &account{label: strconv.Itoa(n + 1)}
		if a.Vendor, err = system.OpenAccount(ctx, fmt.Sprintf("Yük Testi %s %d", s.name, n+1), s.limits()); err != nil {
			return nil, fmt.Errorf("open account %d: %w", n+1, err)
		}
		if a.WebhookSecret, err = a.SetWebhook(ctx, system.HooksURL+"/"+a.label); err != nil {
			return nil, fmt.Errorf("webhook of account %d: %w", n+1, err)
		}
		if a.receiver, err = receiver.New(receiver.Options{Secrets: []string{a.WebhookSecret}}); err != nil {
			return nil, err
		}
		system.Hooks.Handle("/"+a.label, a.receiver)
		accounts = append(accounts, a)
	}
	return accounts, nil
}

// k6Files are what k6 leaves: its samples, the script's summary, its dashboard as a page
// unless the run was too short for one, and a log.
type k6Files struct{ samples, summary, dashboard, log string }

func (p *player) runK6(ctx context.Context, system *harness.System, accounts []*account, s *script, r *result, files k6Files) error {
	log, err := os.Create(files.log)
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
		"--out", "json="+files.samples, filepath.Join(p.root, "loadtest", s.name+".js"))
	// Nothing of this process's environment, which could change k6 or the script.
	// Secrets are not on the command line, which everybody on the machine can read.
	// A lazier garbage collector leaves more of the processors to the system.
	cmd.Env = []string{
		"HOME=" + p.dir, "GOGC=400", "BASE_URL=" + system.Demo.BaseURL, "FLEET_ID=" + system.FleetID,
		"ACCOUNTS=" + string(list), "SUMMARY=" + files.summary,
		"K6_WEB_DASHBOARD=true", "K6_WEB_DASHBOARD_PORT=-1", "K6_WEB_DASHBOARD_PERIOD=1s", "K6_WEB_DASHBOARD_EXPORT=" + files.dashboard,
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
	r.Took, r.Programs = time.Since(began), stop()
	switch code := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil:
		r.Failures.Add("k6 did not end within %v", timeout)
	case code != 0 && code != thresholdsCrossed:
		text, _ := os.ReadFile(files.log) // the message is only shorter without it
		r.Failures.Add("k6 ended with %v: %s", err, bytes.TrimSpace(text[max(0, len(text)-1000):]))
	}
	return nil
}
