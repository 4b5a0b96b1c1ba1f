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
