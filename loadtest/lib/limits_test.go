//go:build long

package lib_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestRequireLimit_LetsAccountsWithEnoughBegin(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "limits.js", api.settings(settings{"ORDERS": "120"}))

	// The order that shows the limit is cancelled.
	said := r.messages("error")
	if contains(said, "account 1") {
		t.Errorf("k6 said %q", said)
	}

	requireCount(t, "orders were created", len(api.requests(postOrder)), 1)
	requireCount(t, "orders were cancelled", len(api.requests(postCancel)), 1)
}

func TestRequireLimit_AbortsWithItsReason(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		orders string
		reply  func(api *vendorAPI) reply // nil for what the contract says
		reason string
	}{
		"a limit that is too low": {
			orders: "121",
			reason: "account 1 may send 120 orders in its tightest window, and this needs 121 in 10 s",
		},
		"no limit in the answer": {
			orders: "1",
			reply:  func(api *vendorAPI) reply { return api.withHeader("X-RateLimit-Limit", "") },
			reason: "the answer to an order shows account 1 no limit",
		},
		"an order that is refused": {
			orders: "1",
			reply:  func(*vendorAPI) reply { return refuse(http.StatusUnprocessableEntity, "VALIDATION_FAILED") },
			reason: "account 1 cannot create an order: 422 VALIDATION_FAILED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			if c.reply != nil {
				api.alwaysReply(postOrder, c.reply(api))
			}

			r := play(t, "limits.js", api.settings(settings{"ORDERS": c.orders}))

			r.requireExit(t, exitAborted)
			said := r.messages("error")
			if len(said) != 1 || !strings.Contains(said[0], c.reason) {
				t.Errorf("k6 said %q, want %q", said, c.reason)
			}
		})
	}
}
