package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

func storeBody(p delivery.Point, fleetID string) string {
	body := fmt.Sprintf(`{"taxNumber":"1234567890","name":"Branch","phone":"02161234567","address":{"text":"Moda Cad. 1","latitude":%v,"longitude":%v}`,
		p.Latitude, p.Longitude)
	if fleetID != "" {
		body += `,"fleetId":"` + fleetID + `"`
	}
	return body + "}"
}

func (w *world) putStore(account party, id, body string) answer {
	w.Helper()
	return w.send(request{method: "PUT", url: w.vendor + "/api/vendor/v1/stores/" + id, token: account.token, body: body})
}

// activeStore registers a store in Kadikoy with the fleet and has it confirmed.
func (w *world) activeStore(account, fleet party, id string) {
	w.Helper()
	if a := w.putStore(account, id, storeBody(kadikoy, fleet.id)); a.status != 200 || a.data["status"] != "AwaitingFleetApproval" {
		w.Fatalf("PUT store: %d %s", a.status, a.body)
	}
	if a := w.fleet(fleet, "POST", "/stores/"+account.id+"/"+id+"/confirm", ""); a.status != 200 || a.data["status"] != "Active" {
		w.Fatalf("confirm: %d %s", a.status, a.body)
	}
}

func (w *world) fleet(p party, method, path, body string) answer {
	w.Helper()
	return w.send(request{method: method, url: w.private + "/api/fleet/v1" + path, token: p.token, body: body})
}

// scene is an account with an Active store "s1" at a fleet that serves Istanbul.
type scene struct {
	*world
	account, courier party
}

func newScene(t testing.TB, limits string, change ...func(*settings)) *scene {
	t.Helper()
	w := newWorld(t, change...)
	s := &scene{world: w, account: w.newAccount(limits), courier: w.newFleet("Kurye", istanbul)}
	w.activeStore(s.account, s.courier, "s1")
	return s
}

// orderBody is a valid order; the changes replace or add members by path, with
// values as JSON; "-" removes one.
func orderBody(externalID string, changes ...string) string {
	order := map[string]any{
		"externalStoreId": "s1", "externalOrderId": externalID,
		"recipient": map[string]any{"name": "Ayşe Yılmaz", "phone": "05321234567"},
		"dropoff": map[string]any{"text": "Caferağa Mah. Moda Cad. No:12", "latitude": kadikoy.Latitude,
			"longitude": kadikoy.Longitude},
		"orderAmount": json.Number("349.90"),
		"payment":     map[string]any{"type": "Card", "collectionAmount": json.Number("349.90")},
	}
	for i := 0; i+1 < len(changes); i += 2 {
		into, path := order, changes[i]
		if parent, child, nested := strings.Cut(path, "."); nested {
			into, path = order[parent].(map[string]any), child
		}
		if changes[i+1] == "-" {
			delete(into, path)
			continue
		}
		into[path] = json.RawMessage(changes[i+1])
	}
	body, err := json.Marshal(order)
	if err != nil {
		panic(err)
	}
	return string(body)
}

func (s *scene) order(body, key string) answer {
	s.Helper()
	r := request{method: "POST", url: s.vendor + "/api/vendor/v1/orders", token: s.account.token, body: body}
	if key != "" {
		r.header = map[string]string{"X-Idempotency-Key": key}
	}
	return s.send(r)
}

// created creates an order and returns its id.
func (s *scene) created(externalID string, changes ...string) string {
	s.Helper()
	a := s.order(orderBody(externalID, changes...), "")
	if a.status != 201 {
		s.Fatalf("POST /orders: %d %s", a.status, a.body)
	}
	return a.data["orderId"].(string)
}

func (s *scene) cancel(orderID, body string) answer {
	s.Helper()
	return s.send(request{method: "POST", url: s.vendor + "/api/vendor/v1/orders/" + orderID + "/cancel", token: s.account.token, body: body})
}

// ledger is the gateway's own, for what only a worker does otherwise.
func (w *world) ledger() *ledger.Ledger { return w.g.opened.Load() }

func (a answer) quota() bool {
	return a.header.Get("X-RateLimit-Limit") != "" && a.header.Get("X-RateLimit-Remaining") != "" && a.header.Get("X-RateLimit-Reset") != ""
}
