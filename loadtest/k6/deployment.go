package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/k6/results"
)

// deployment is a system that somebody else runs.
type deployment struct {
	origin   string // the Vendor API's URL before /api/vendor/v1
	accounts []*account
	webhooks webhooks
	hasFleet bool // credentials of a fleet are among the settings
}

// openDeployment returns the deployment of BASE_URL. It logs in as each account of the settings, and may send a test event
// to a receiver.
func openDeployment(ctx context.Context, o *options) (*deployment, error) {
	origin, err := originOf(os.Getenv("BASE_URL"))
	if err != nil {
		return nil, err
	}
	accounts, err := givenAccounts()
	if err != nil {
		return nil, err
	}

	d := &deployment{
		origin:   origin,
		hasFleet: os.Getenv("OPS_URL") != "" && os.Getenv("FLEET_CLIENT_ID") != "" && os.Getenv("FLEET_CLIENT_SECRET") != "",
	}

	vendors := client.New(origin+"/api/vendor/v1", 16)
	for i, record := range accounts {
		a := &account{accountRecord: record, label: label(i), api: vendors}
		if _, err := a.client(ctx); err != nil {
			return nil, fmt.Errorf("account %s (%s) at %s: %w", a.label, a.ClientID, origin, err)
		}
		d.accounts = append(d.accounts, a)
	}

	d.webhooks, err = chooseWebhooks(ctx, o.receiver, d)
	if err != nil {
		return nil, err
	}

	fmt.Printf("against %s; accounts: %d; webhooks: %s\n", results.TargetOf(origin), len(d.accounts), d.webhooks.description())

	return d, nil
}

func (d *deployment) close() {}

func (d *deployment) name() string { return results.TargetOf(d.origin) }

func (d *deployment) generator() string {
	return "k6 ran on this machine, and every figure includes the network between it and the deployment"
}

func (d *deployment) settings() []string { return d.environment() }

// environment returns the settings of the scripts, secrets included.
func (d *deployment) environment() []string {
	list, err := accountsSetting(d.accounts)
	if err != nil {
		list = "[]" // the scripts say that they have no accounts
	}
	return []string{"BASE_URL=" + d.origin, "ACCOUNTS=" + list}
}

func (d *deployment) missingFor(s *script) string {
	fewest := d.accounts[0].Limits.burstOrders()
	most := fewest
	for _, a := range d.accounts {
		fewest = min(fewest, a.Limits.burstOrders())
		most = max(most, a.Limits.burstOrders())
	}

	contract := contractLimits().burstOrders()
	isContract := fewest == contract && most == contract

	switch {
	case s.needs.Outages:
		return "somebody who makes the system fail while it runs (-scripts " + s.name + ")"
	case s.needs.Fleet && !d.hasFleet:
		return "a fleet: OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET"
	case s.needs.Orders > 0 && fewest <= contract:
		return fmt.Sprintf("accounts with raised limits (go run ./loadtest/k6 accounts -orders %d)", s.needs.Orders)
	case s.name == "burst" && !isContract:
		return "accounts with the contract's limits"
	}

	return ""
}

func (d *deployment) withSession(ctx context.Context, _ *script, use func(context.Context, *session) error) error {
	return use(ctx, &session{env: d.environment(), accounts: d.accounts, webhooks: d.webhooks})
}

// isLoopback reports whether the deployment is reached at a loopback address, so that it runs on this machine.
func (d *deployment) isLoopback() bool {
	u, err := url.Parse(d.origin)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}
