package main

import (
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

// onceOnly are the operations that do their work again when they are sent again.
var onceOnly = map[string]bool{
	"admin_accounts_create": true, "admin_fleets_create": true, "admin_credentials_rotate": true,
	"admin_fleets_credentials": true, "admin_webhook_rotate": true,
}

func TestUnavailable_SaysWhetherTheRequestMayBeSentAgain(t *testing.T) {
	e := newEnv(t)
	for _, p := range e.endpoints(t) {
		refusal, _ := e.g.fault(&requestContext{route: p.route, meter: p.meter}, delivery.ErrUnavailable)
		isSafe := strings.Contains(refusal.Message, "sending the same request again is safe")
		saysLook := strings.Contains(refusal.Message, "look before you send it again")
		if saysLook != onceOnly[p.name] || isSafe == saysLook {
			t.Errorf("%s: %q", p.name, refusal.Message)
		}

		refusal, _ = e.g.fault(&requestContext{route: p.route, meter: p.meter}, errStarting)
		if !strings.Contains(refusal.Message, "is safe") {
			t.Errorf("%s, before anything is done: %q", p.name, refusal.Message)
		}
	}
}
