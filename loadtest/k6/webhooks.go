package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/k6/results"
)

// webhooks is a way to see which webhooks a script's orders had.
type webhooks interface {
	how() string // in words

	// begin is called before the script, compare after it, and end at last.
	begin(ctx context.Context, accounts []*account) error
	compare(ctx context.Context, accounts []*account, script *results.Script) (*results.Webhooks, error)
	end()
}

// settleTime is how long after a script's end its orders may take to end and their webhooks to arrive. A delivery by a
// sandbox courier lasts half a minute, and a webhook that was lost on the way is sent again after ten seconds. Tests
// lower it.
var settleTime = 90 * time.Second

// unchecked looks at no webhooks.
type unchecked struct{ why string }

func (u unchecked) how() string                             { return "not checked: " + u.why }
func (u unchecked) begin(context.Context, []*account) error { return nil }
func (u unchecked) end()                                    {}
func (u unchecked) compare(context.Context, []*account, *results.Script) (*results.Webhooks, error) {
	return &results.Webhooks{How: results.WebhooksNotChecked, Why: u.why}, nil
}

// receiverOptions say where a deployment reaches a receiver of this process.
type receiverOptions struct{ url, addr string }

func (o receiverOptions) isGiven() bool { return o.url != "" || o.addr != "" }

// chooseWebhooks finds the way to see a deployment's webhooks: a receiver that it can reach, or the attempts that it
// lists for its operators.
func chooseWebhooks(ctx context.Context, o receiverOptions, d *deployment) (webhooks, error) {
	taken, err := accountsWithWebhook(ctx, d.accounts)
	if err != nil {
		return nil, err
	}

	if o.isGiven() {
		if o.url == "" || o.addr == "" {
			return nil, fmt.Errorf("-receiver-url and -receiver-addr belong together: where the deployment reaches this machine, and where to listen")
		}
		if taken != "" {
			return nil, fmt.Errorf("%s has a webhook already, which the load test would replace: use accounts of its own (make load-accounts)", taken)
		}
		r, err := newReceivers(o.addr, strings.TrimRight(o.url, "/"))
		if err != nil {
			return nil, err
		}
		if err := r.tryOut(ctx, d.accounts[0]); err != nil {
			return nil, fmt.Errorf("no webhook arrives at %s: %w", o.url, err)
		}
		return r, nil
	}
	if d.isLoopback() && taken == "" {
		r, err := newReceivers("127.0.0.1:0", "")
		if err != nil {
			return nil, err
		}
		if err := r.tryOut(ctx, d.accounts[0]); err != nil { // it may run in containers, or send to public addresses only
			return unchecked{why: fmt.Sprintf("no webhook arrives at %s (%v); give -receiver-url and -receiver-addr", r.url, err)}, ctx.Err()
		}
		return r, nil
	}

	hasIDs := !slices.ContainsFunc(d.accounts, func(a *account) bool { return a.AccountID == "" })
	admin, adminErr := adminOf(os.Getenv("OPS_URL"), os.Getenv("ADMIN_KEY"))
	switch {
	case adminErr == nil && hasIDs && taken != "":
		return &attempts{admin: admin}, nil
	case taken != "":
		return unchecked{why: "the accounts have webhooks that go elsewhere; with OPS_URL, ADMIN_KEY and accountIds the attempts are looked at, and accounts without a webhook can have -receiver-url"}, nil
	}
	return unchecked{why: "give -receiver-url and -receiver-addr, if the deployment can reach this machine"}, nil
}

// accountsWithWebhook names an account that has a webhook; empty: none has.
func accountsWithWebhook(ctx context.Context, accounts []*account) (string, error) {
	for _, a := range accounts {
		answer, err := a.api.Do(ctx, http.MethodGet, "/webhook", nil)
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
