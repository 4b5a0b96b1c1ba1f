package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// target is what scripts are played against.
type target interface {
	name() string      // as the result shows it
	generator() string // where k6 runs, in words

	// settings are those that k6 needs to read a script. They hold no secrets that the scripts would not have anyway.
	settings() []string

	// lacks says what a script needs and does not get here; empty: nothing.
	lacks(s *script) string

	// with prepares for a script, uses what it may use, and ends it.
	with(ctx context.Context, s *script, use func(context.Context, *session) error) error

	close()
}

// session is what one script may use while it is played.
type session struct {
	env      []string // for k6: where the service is, and the accounts
	accounts []*account
	fresh    bool // nobody has used the accounts before
	webhooks webhooks
	programs []harness.Process // of the system; none of a deployment

	// outages makes programs fail until ctx ends; nil: nothing fails.
	outages func(ctx context.Context) error
}

// account is a vendor that a script plays.
type account struct {
	accountRecord

	label string         // as in the script: its place, from 1
	api   *client.Client // the Vendor API, logged in
}

// label names the accounts of a list as the scripts do.
func label(i int) string { return strconv.Itoa(i + 1) }

// limitsOf are the accounts' limits by label.
func limitsOf(accounts []*account) map[string]results.Limits {
	limits := map[string]results.Limits{}
	for _, a := range accounts {
		limits[a.label] = a.Limits.forResults()
	}
	return limits
}

// chooseTarget is a deployment when the settings name one, and systems of its own otherwise.
func chooseTarget(ctx context.Context, o *options) (target, error) {
	if os.Getenv("BASE_URL") != "" {
		return openDeployment(ctx, o)
	}
	if o.receiver.isGiven() {
		return nil, errors.New("-receiver-url is for a deployment, and BASE_URL names none")
	}
	return newOwnSystems(ctx, o.keep)
}

// ownSystems starts a system for each script, so that none feels what another has left.
type ownSystems struct {
	bin  string // folder of the programs
	keep bool   // the systems' data
}

// courierStep makes a delivery last some seconds, so that every order ends within its script's run or soon after.
const courierStep = 500 * time.Millisecond

func newOwnSystems(ctx context.Context, keep bool) (*ownSystems, error) {
	bin, err := os.MkdirTemp("", "vendor-load-bin-")
	if err != nil {
		return nil, err
	}
	t := &ownSystems{bin: bin, keep: keep}

	fmt.Println("building the programs")
	if err := stack.Build(ctx, bin); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *ownSystems) close() { _ = os.RemoveAll(t.bin) } // it is among the temporary ones

func (t *ownSystems) name() string { return results.OwnSystems }

func (t *ownSystems) generator() string {
	return "k6, the receivers, the gateway, the worker and Redis share these processors, so every figure includes what the generator took"
}

func (t *ownSystems) settings() []string { return []string{"FRESH=yes"} }

func (t *ownSystems) lacks(*script) string { return "" }

func (t *ownSystems) with(ctx context.Context, s *script, use func(context.Context, *session) error) error {
	o := stack.Options{BinDir: t.bin, Courier: "auto", CourierStep: courierStep, Out: os.Stdout}
	if s.needs.Courier != "" {
		o.Courier = s.needs.Courier
	}
	return harness.WithSystem(ctx, os.Stdout, t.keep, o, func(ctx context.Context, system *harness.System) error {
		accounts, err := openAccounts(ctx, system, s)
		if err != nil {
			return err
		}
		list, err := accountsSetting(accounts)
		if err != nil {
			return err
		}

		demo := &system.Demo
		running := &session{
			env: []string{
				"BASE_URL=" + demo.BaseURL, "ACCOUNTS=" + list, "FLEET_ID=" + demo.Fleet.FleetID, "FRESH=yes",
				"OPS_URL=" + demo.OpsURL, "FLEET_CLIENT_ID=" + demo.Fleet.ClientID, "FLEET_CLIENT_SECRET=" + demo.Fleet.ClientSecret,
			},
			accounts: accounts,
			fresh:    true,
			webhooks: &receivers{mux: system.Hooks, url: system.HooksURL},
			programs: []harness.Process{
				{Name: "gateway", PID: system.Gateway.PID()},
				{Name: "worker", PID: system.Worker.PID()},
				{Name: "redis-server", PID: system.Redis.PID()},
			},
		}
		if s.needs.Outages {
			running.outages = func(ctx context.Context) error { return killInTurn(ctx, system) }
			running.programs = nil // they are others after each kill
		}
		return use(ctx, running)
	})
}

// openAccounts creates the accounts that a script needs.
func openAccounts(ctx context.Context, system *harness.System, s *script) ([]*account, error) {
	limits := contractLimits()
	if s.needs.Orders > 0 {
		limits = raisedLimits(s.needs.Orders)
	}

	var accounts []*account
	for i := range s.needs.Accounts {
		vendor, err := system.OpenAccount(ctx, fmt.Sprintf("Yük Testi %s %d", s.name, i+1), limits)
		if err != nil {
			return nil, fmt.Errorf("open account %d: %w", i+1, err)
		}
		accounts = append(accounts, &account{
			accountRecord: accountRecord{
				AccountID: vendor.AccountID, ClientID: vendor.ClientID, ClientSecret: vendor.ClientSecret, Limits: limits,
			},
			label: label(i),
			api:   vendor.Client,
		})
	}
	return accounts, nil
}

// Outages of a system of its own: each program is killed once, the first after betweenOutages.
const (
	betweenOutages = 6 * time.Second
	downFor        = time.Second
)

// killInTurn kills the gateway, the worker and Redis with SIGKILL, one after the other, and starts each again.
func killInTurn(ctx context.Context, system *harness.System) error {
	programs := []*stack.Program{system.Gateway, system.Worker, system.Redis.Program}
	for _, program := range programs {
		if err := harness.Sleep(ctx, betweenOutages); err != nil {
			return nil // k6 has ended
		}
		fmt.Printf("  killing %s for %v\n", program.Name, downFor)
		program.Kill()
		_ = harness.Sleep(ctx, downFor) // it is started again even when k6 has ended: the webhooks need it
		if err := program.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// causeOutages makes programs fail while k6 runs, if the session has outages. The returned function waits for their
// end, and returns why they could not be caused.
func (s *session) causeOutages(ctx context.Context, k6 *exec.Cmd) (wait func() error) {
	if s.outages == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.outages(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// deployment is a system that somebody else runs.
type deployment struct {
	origin   string // of the Vendor API, as the scripts find it
	accounts []*account
	webhooks webhooks
	hasFleet bool // credentials of a fleet are among the settings
}

func openDeployment(ctx context.Context, o *options) (*deployment, error) {
	origin, err := originOf(os.Getenv("BASE_URL"))
	if err != nil {
		return nil, err
	}
	accounts, err := givenAccounts()
	if err != nil {
		return nil, err
	}

	d := &deployment{origin: origin}
	d.hasFleet = os.Getenv("OPS_URL") != "" && os.Getenv("FLEET_CLIENT_ID") != "" && os.Getenv("FLEET_CLIENT_SECRET") != ""
	vendors := client.New(origin+"/api/vendor/v1", 16)
	for i, record := range accounts {
		api, err := vendors.Login(ctx, "/token", record.ClientID, record.ClientSecret)
		if err != nil {
			return nil, fmt.Errorf("account %d (%s) cannot log in at %s: %w", i+1, record.ClientID, origin, err)
		}
		d.accounts = append(d.accounts, &account{accountRecord: record, label: label(i), api: api})
	}

	d.webhooks, err = chooseWebhooks(ctx, o.receiver, d)
	if err != nil {
		return nil, err
	}
	fmt.Printf("against %s, as %d accounts; webhooks: %s\n", results.TargetOf(origin), len(d.accounts), d.webhooks.how())
	return d, nil
}

func (d *deployment) close() {}

func (d *deployment) name() string { return results.TargetOf(d.origin) }

func (d *deployment) generator() string {
	return "k6 ran on this machine, and every figure includes the network between it and the deployment"
}

func (d *deployment) settings() []string { return d.environment() }

// environment is what the scripts need.
func (d *deployment) environment() []string {
	list, err := accountsSetting(d.accounts)
	if err != nil {
		list = "[]" // the scripts say that they have no accounts
	}
	return []string{"BASE_URL=" + d.origin, "ACCOUNTS=" + list}
}

func (d *deployment) lacks(s *script) string {
	fewest := d.accounts[0].Limits.burstOf()
	for _, a := range d.accounts {
		fewest = min(fewest, a.Limits.burstOf())
	}
	contract := contractLimits().burstOf()

	switch {
	case s.needs.Outages:
		return "somebody who makes the system fail meanwhile (-scripts " + s.name + ")"
	case s.needs.Fleet && !d.hasFleet:
		return "a fleet: OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET"
	case s.needs.Orders > 0 && fewest <= contract:
		return fmt.Sprintf("accounts with raised limits (make load-accounts ORDERS=%d)", s.needs.Orders)
	case s.name == "burst" && fewest != contract:
		return "accounts with the contract's limits"
	}
	return ""
}

func (d *deployment) with(ctx context.Context, _ *script, use func(context.Context, *session) error) error {
	return use(ctx, &session{env: d.environment(), accounts: d.accounts, webhooks: d.webhooks})
}

// isLoopback reports that the deployment runs on this machine.
func (d *deployment) isLoopback() bool {
	u, err := url.Parse(d.origin)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return host == "localhost" || host == "::1" || len(host) > 4 && host[:4] == "127."
}
