package main

import (
	"context"
	"errors"
	"os"
	"strconv"

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// target is what scripts are played against.
type target interface {
	name() string      // as the result shows it
	generator() string // where k6 runs, in words

	// settings returns the environment variables with which k6 reads a script before it is played.
	settings() []string

	// missingFor says what a script needs and does not get here; empty: nothing.
	missingFor(s *script) string

	// withSession prepares a session for a script, calls use with it, and ends the session.
	withSession(ctx context.Context, s *script, use func(context.Context, *session) error) error

	// close ends what was begun for all scripts.
	close()
}

// session is what one script may use while it is played.
type session struct {
	env      []string // environment variables for k6: where the service is, and the accounts
	accounts []*account
	isOwn    bool // a system of the driver's own, with new accounts, beside k6 on this machine
	webhooks webhooks
	programs []harness.Process // programs of the system, to be watched; none of a deployment

	// outages makes programs fail, and says what it did; nil: nothing fails. When ctx ends before each
	// has failed that is an error.
	outages func(ctx context.Context) (notes []string, err error)
}

// account is a vendor that a script plays.
type account struct {
	accountRecord

	label string         // as in the script: its place in the list of accounts, from 1
	api   *client.Client // the Vendor API, logged in
}

// label returns the label of the account with an index, from 0, as the scripts name it.
func label(i int) string { return strconv.Itoa(i + 1) }

// limitsOf returns the accounts' limits by label.
func limitsOf(accounts []*account) map[string]results.Limits {
	limits := map[string]results.Limits{}
	for _, a := range accounts {
		limits[a.label] = a.Limits.forResults()
	}
	return limits
}

// chooseTarget returns the deployment that the settings name, or else a target that starts systems of its own.
func chooseTarget(ctx context.Context, o *options) (target, error) {
	if os.Getenv("BASE_URL") != "" {
		return openDeployment(ctx, o)
	}
	if o.receiver.isGiven() {
		return nil, errors.New("-receiver-url is for a deployment, and BASE_URL names none")
	}
	return newOwnSystems(ctx, o.keep)
}
