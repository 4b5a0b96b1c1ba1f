package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// ownSystems starts a system for each script, so that no script is affected by what another one left.
type ownSystems struct {
	bin  string // folder of the programs
	keep bool   // keep the systems' data, also of scripts that held
}

// courierStep makes a delivery last some seconds, so that every order ends within its script's run or soon after.
const courierStep = 500 * time.Millisecond

// newOwnSystems builds the programs into a temporary folder, which close removes.
func newOwnSystems(ctx context.Context, keep bool) (*ownSystems, error) {
	bin, err := os.MkdirTemp("", "vendor-load-bin-")
	if err != nil {
		return nil, err
	}

	o := &ownSystems{bin: bin, keep: keep}

	fmt.Println("building the programs")
	if err := stack.Build(ctx, bin); err != nil {
		o.close()
		return nil, err
	}

	return o, nil
}

func (o *ownSystems) close() { _ = os.RemoveAll(o.bin) } // a folder that stays is a temporary one

func (o *ownSystems) name() string { return results.OwnSystems }

func (o *ownSystems) generator() string {
	return "k6, the receivers, the gateway, the worker and Redis share these processors, so every figure includes what the generator took"
}

// settings has no accounts: those of the environment are not these systems'.
func (o *ownSystems) settings() []string { return []string{"FRESH=yes", "ACCOUNTS=", "BASE_URL="} }

func (o *ownSystems) missingFor(*script) string { return "" }

func (o *ownSystems) withSession(ctx context.Context, s *script, use func(context.Context, *session) error) error {
	system := stack.Options{BinDir: o.bin, Courier: "auto", CourierStep: courierStep, Out: os.Stdout}
	if s.needs.Courier != "" {
		system.Courier = s.needs.Courier
	}

	return harness.WithSystem(ctx, os.Stdout, o.keep, system, func(ctx context.Context, system *harness.System) error {
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
				"BASE_URL=" + demo.BaseURL,
				"OPS_URL=" + demo.OpsURL,
				"ACCOUNTS=" + list,
				"FRESH=yes",
				"FLEET_ID=" + demo.Fleet.FleetID,
				"FLEET_CLIENT_ID=" + demo.Fleet.ClientID,
				"FLEET_CLIENT_SECRET=" + demo.Fleet.ClientSecret,
			},
			accounts: accounts,
			isOwn:    true,
			webhooks: &receivers{mux: system.Hooks, url: system.HooksURL},
			programs: []harness.Process{
				{Name: "gateway", PID: system.Gateway.PID()},
				{Name: "worker", PID: system.Worker.PID()},
				{Name: "redis-server", PID: system.Redis.PID()},
			},
		}

		if s.needs.Outages {
			running.outages = func(ctx context.Context) ([]string, error) { return killInTurn(ctx, system) }
			running.programs = nil // each is another process after it was killed
		}

		return use(ctx, running)
	})
}

// openAccounts creates the accounts that a script needs, with raised limits if it needs them.
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
				AccountID:    vendor.AccountID,
				ClientID:     vendor.ClientID,
				ClientSecret: vendor.ClientSecret,
				Limits:       limits,
			},
			label:      label(i),
			api:        vendor.Client,
			loggedInAt: time.Now(),
		})
	}

	return accounts, nil
}
