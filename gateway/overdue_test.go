package main

import (
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

// One event has at most 250 stores, below what receivers take; a repeated announcement makes no more.
func TestAnnounceOverdue_ComesInBoundedEvents(t *testing.T) {
	e := newStoreEnv(t, "")
	e.fleetStores(strings.Repeat("x", 60), 600, delivery.Active)
	for range 2 {
		want(t, e.tryAdmin("POST", "/fleets/"+e.courier.id+"/payment-overdue", ""), 200, "", "accounts", 1, "stores", 601)
	}

	named := 0
	for _, event := range e.events(4, e.account) {
		if event.Type != delivery.PaymentOverdue {
			continue
		}
		named += strings.Count(string(event.Data), `"xx`)
		if len(event.Data) > 50_000 {
			t.Errorf("an event has %d bytes", len(event.Data))
		}
	}

	if named != 600 {
		t.Errorf("%d stores are named, want each once", named)
	}
}
