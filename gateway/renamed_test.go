package main

import (
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

// Answers and events about a store have its fleet's name as it is, not as it was when the store chose it.
//
//rule:event-types/store.activated
func TestStores_NameTheFleetAsItIsNow(t *testing.T) {
	e := newStoreEnv(t, "")
	fleet := e.courier
	named := func(name string) map[string]any { return map[string]any{"fleetId": fleet.id, "name": name} }
	for _, id := range []string{"kept", "rejected", "confirmed"} {
		want(t, e.putStore(e.account, id, storeBody(kadikoy, fleet.id)), 200, "", "fleet", named("Kurye"))
	}

	e.admin("PATCH", "/fleets/"+fleet.id, `{"name":"Yeni Kurye"}`)
	for name, body := range map[string]string{"unchanged": storeBody(kadikoy, fleet.id), "without fleetId": "{}", "changed": `{"phone":"2161234568"}`} {
		a := e.putStore(e.account, "kept", body)
		want(t, a, 200, "", "fleet", named("Yeni Kurye"))
		if t.Failed() {
			t.Fatalf("%s: %s", name, a.body)
		}
	}

	want(t, e.fleet(fleet, "POST", "/stores/"+e.account.id+"/confirmed/confirm", ""), 200, "")
	want(t, e.fleet(fleet, "POST", "/stores/"+e.account.id+"/rejected/reject", ""), 200, "")
	found := 0
	for _, event := range e.events(3, e.account) {
		data := string(event.Data)
		isOfBefore := event.Type == delivery.StoreActivated && strings.Contains(data, `"s1"`)
		if isOfBefore {
			continue
		}

		found++
		if !strings.Contains(data, `"Yeni Kurye"`) {
			t.Errorf("%s: %s", event.Type, data)
		}
	}

	if found != 2 {
		t.Errorf("%d events after the change of name, want 2", found)
	}
}
