package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

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

	label string // as in the script: its place in the list of accounts, from 1

	mu         sync.Mutex     // guards what is below it
	api        *client.Client // the Vendor API, with the token of the last login
	loggedInAt time.Time      // zero: there was no login
}

// loginAgainAfter is the age from which a token is not used any more. The service accepts it for an hour.
const loginAgainAfter = 30 * time.Minute

// client returns a client of the Vendor API. It logs in if there was no login in the last half hour, because a script may
// take hours and the account is needed again after it.
func (a *account) client(ctx context.Context) (*client.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.loggedInAt) < loginAgainAfter {
		return a.api, nil
	}

	now := time.Now()
	withoutToken := a.api.As(a.api.Base, "")
	api, err := withoutToken.Login(ctx, "/token", a.ClientID, a.ClientSecret)
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}

	a.api, a.loggedInAt = api, now

	return api, nil
}

// do calls the Vendor API as the account. The error is for calls that got no answer; a refusal is an answer.
func (a *account) do(ctx context.Context, method, path string, body any) (*client.Answer, error) {
	api, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	return api.Do(ctx, method, path, body)
}

// call calls the Vendor API as the account. A refusal is an error.
func (a *account) call(ctx context.Context, method, path string, body any) error {
	answer, err := a.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	if err := answer.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
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
