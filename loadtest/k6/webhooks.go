package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/k6/results"
)

// webhooks is a way to see which webhooks were sent for a script's orders.
type webhooks interface {
	// description says how the webhooks are seen.
	description() string

	// begin is called before the script, compare after it, and end at last, unless begin failed.
	begin(ctx context.Context, accounts []*account) error
	compare(ctx context.Context, accounts []*account, script *results.Script) (*results.Webhooks, error)
	end()
}

// settleTime is how long the orders of a script may take, after its end, until they have ended and their webhooks have
// arrived. A sandbox courier takes half a minute for a delivery, and a webhook that was lost on the way is sent again
// after ten seconds. Tests lower it.
var settleTime = 90 * time.Second

// unchecked looks at no webhooks.
type unchecked struct{ why string }

func (u unchecked) description() string                     { return "not checked: " + u.why }
func (u unchecked) begin(context.Context, []*account) error { return nil }
func (u unchecked) end()                                    {}
func (u unchecked) compare(context.Context, []*account, *results.Script) (*results.Webhooks, error) {
	return &results.Webhooks{How: results.WebhooksNotChecked, Why: u.why}, nil
}

// receiverOptions say where a deployment reaches a receiver of this process.
type receiverOptions struct {
	url  string // at which the deployment reaches it
	addr string // at which it listens
}

// isGiven reports whether any option was given. Both have to be.
func (o receiverOptions) isGiven() bool { return o.url != "" || o.addr != "" }

// chooseWebhooks returns the way to see a deployment's webhooks: a receiver that it can reach, or the attempts that it
// lists for its operators, or none.
func chooseWebhooks(ctx context.Context, o receiverOptions, d *deployment) (webhooks, error) {
	withWebhook, err := accountWithWebhook(ctx, d.accounts)
	if err != nil {
		return nil, err
	}

	switch {
	case o.isGiven():
		return givenReceivers(ctx, o, d, withWebhook)
	case withWebhook != "":
		return chooseAttempts(d.accounts), nil
	case d.isLoopback():
		return loopbackReceivers(ctx, d)
	}

	return unchecked{why: "give -receiver-url and -receiver-addr, if the deployment can reach this machine"}, nil
}

// givenReceivers returns receivers at the address of the options. It returns an error if no webhook arrives there, or if
// an account has a webhook, whose name is withWebhook.
func givenReceivers(ctx context.Context, o receiverOptions, d *deployment, withWebhook string) (webhooks, error) {
	if o.url == "" || o.addr == "" {
		return nil, errors.New("-receiver-url and -receiver-addr belong together: where the deployment reaches this machine, and where to listen")
	}
	if withWebhook != "" {
		return nil, fmt.Errorf("%s has a webhook already, which the load test would replace: use accounts of its own (go run ./loadtest/k6 accounts)", withWebhook)
	}

	r, err := newReceivers(o.addr, strings.TrimRight(o.url, "/"))
	if err != nil {
		return nil, err
	}

	if err := r.tryOut(ctx, d.accounts[0]); err != nil {
		r.close()
		return nil, fmt.Errorf("no webhook arrives at %s: %w", o.url, err)
	}

	return r, nil
}

// loopbackReceivers returns receivers on this machine, where the deployment runs, too. It may be unable to reach them,
// because it runs in containers or sends to public addresses only; then no webhooks are looked at.
func loopbackReceivers(ctx context.Context, d *deployment) (webhooks, error) {
	r, err := newReceivers("127.0.0.1:0", "")
	if err != nil {
		return nil, err
	}

	if err := r.tryOut(ctx, d.accounts[0]); err != nil {
		r.close()
		return unchecked{why: fmt.Sprintf("no webhook arrives at %s (%v); give -receiver-url and -receiver-addr", r.url, err)}, ctx.Err()
	}
	return r, nil
}

// chooseAttempts returns the attempts of accounts that have webhooks, if the settings allow to read them.
func chooseAttempts(accounts []*account) webhooks {
	hasIDs := !slices.ContainsFunc(accounts, func(a *account) bool { return a.AccountID == "" })
	admin, err := adminOf(os.Getenv("OPS_URL"), os.Getenv("ADMIN_KEY"))
	if err != nil || !hasIDs {
		return unchecked{why: "the accounts have webhooks that go elsewhere; with OPS_URL, ADMIN_KEY and accountIds the attempts are looked at, and accounts without a webhook can have -receiver-url"}
	}
	return &attemptWatcher{admin: admin}
}

// accountWithWebhook returns "account" with the label of one that has a webhook; empty: none has.
func accountWithWebhook(ctx context.Context, accounts []*account) (string, error) {
	for _, a := range accounts {
		answer, err := a.do(ctx, http.MethodGet, "/webhook", nil)
		if err != nil {
			return "", fmt.Errorf("ask for the webhook of account %s: %w", a.label, err)
		}

		if answer.Code == "WEBHOOK_NOT_CONFIGURED" {
			continue
		}
		if err := answer.Err(); err != nil {
			return "", fmt.Errorf("ask for the webhook of account %s: %w", a.label, err)
		}

		return "account " + a.label, nil
	}

	return "", nil
}
