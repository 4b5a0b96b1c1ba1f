package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
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

// What is said to be safe to send again is: the second request is answered as the first, or refused because
// its work is done, and leaves no further event or report.
func TestEveryChange_SentAgainChangesNothingMore(t *testing.T) {
	server := testserver.NewRedis(t)
	e := newEnvOn(t, server, nil).withStore(everyLimit())
	want(t, e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id)), 200, "")
	want(t, e.putStore(e.account, "s3", storeBody(kadikoy, e.courier.id)), 200, "")
	want(t, e.putStore(e.account, "s4", storeBody(kadikoy, e.courier.id)), 200, "")
	want(t, e.putStore(e.account, "s5", storeBody(kadikoy, e.courier.id)), 200, "")
	cancelled, order := e.created("POS-1"), e.created("POS-2")
	account, fleet := "/accounts/"+e.account.id, "/fleets/"+e.courier.id
	const ayse = `{"name":"Ayşe Kaya","phone":"5559998877","vehicleType":"Motorcycle"}`
	const mehmet = `{"name":"Mehmet Demir","phone":"5559998866","vehicleType":"Car"}`

	met := map[string]bool{
		// What they do once more is harmless: they make events that receivers may get twice anyway.
		"webhook_test": true, "webhook_replay": true, "admin_webhook_test": true, "admin_webhook_replay": true,
		// A token changes nothing.
		"token": true, "fleet_token": true,
	}

	for _, c := range []struct {
		route, by, method, path, body string
		refusal                       string // of the second request; "": it is answered as the first
	}{
		{"orders_create", "vendor", "POST", "/orders", orderBody("POS-3"), "DUPLICATE_ORDER"},
		{"orders_cancel", "vendor", "POST", "/orders/" + cancelled + "/cancel", `{"reason":"StoreRequest"}`, ""},
		{"stores_put", "vendor", "PUT", "/stores/s6", storeBody(kadikoy, e.courier.id), ""},
		{"webhook_put", "vendor", "PUT", "/webhook", `{"url":"https://vendor.example/hook"}`, ""},
		{"webhook_delete", "vendor", "DELETE", "/webhook", "", "WEBHOOK_NOT_CONFIGURED"},
		{"admin_accounts_change", "admin", "PATCH", account, `{"name":"Yeni"}`, ""},
		{"admin_webhook_put", "admin", "PUT", account + "/webhook", `{"url":"https://vendor.example/hook"}`, ""},
		{"admin_webhook_change", "admin", "PATCH", account + "/webhook", `{"maxInFlight":5}`, ""},
		{"admin_stores_confirm", "admin", "POST", account + "/stores/s2/confirm", "", ""},
		{"admin_stores_reject", "admin", "POST", account + "/stores/s3/reject", "", "STORE_NOT_PENDING"},
		{"fleet_stores_confirm", "fleet", "POST", "/stores/" + e.account.id + "/s4/confirm", "", ""},
		{"fleet_stores_reject", "fleet", "POST", "/stores/" + e.account.id + "/s5/reject", "", "STORE_NOT_FOUND"},
		{"admin_stores_migrate", "admin", "POST", account + "/stores/s2/migrate", `{"closingDate":"2099-01-31"}`, ""},
		{"admin_stores_deactivate", "admin", "POST", account + "/stores/s2/deactivate", `{"reason":"VendorRequest"}`, "STORE_NOT_CONFIGURED"},
		{"admin_fleets_change", "admin", "PATCH", fleet, `{"avgDeliveryMinutes":33}`, ""},
		{"admin_fleets_overdue", "admin", "POST", fleet + "/payment-overdue", "", ""},
		{"admin_finance_webhook_put", "admin", "PUT", "/finance/webhook", `{"url":"https://erp.example/hook"}`, ""},
		{"admin_finance_announce", "admin", "POST", "/finance/reports/available", reportBody(), ""},
		{"admin_finance_webhook_delete", "admin", "DELETE", "/finance/webhook", "", "WEBHOOK_NOT_CONFIGURED"},
		{"fleet_jobs_accept", "fleet", "POST", "/jobs/" + order + "/accept", `{"courier":` + ayse + `}`, ""},
		{"fleet_jobs_status", "fleet", "POST", "/jobs/" + order + "/status", `{"status":"PickingUp"}`, ""},
		{"fleet_jobs_courier", "fleet", "PUT", "/jobs/" + order + "/courier", `{"courier":` + mehmet + `}`, ""},
		{"fleet_locations", "fleet", "POST", "/locations", `[{"orderId":"` + order + `","latitude":40.98,"longitude":29.03}]`, ""},
		{"fleet_availability", "fleet", "PUT", "/availability", `{"couriers":7}`, ""},
	} {
		met[c.route] = true
		send := func() answer {
			switch c.by {
			case "vendor":
				return e.call(c.method, c.path, c.body)
			case "fleet":
				return e.fleet(e.courier, c.method, c.path, c.body)
			}
			return e.tryAdmin(c.method, c.path, c.body)
		}

		first := send()
		if first.status > 299 {
			t.Errorf("%s: %d %s", c.route, first.status, first.body)
			continue
		}

		entries := entriesOf(t, server.Client)

		second := send()

		isAlike := c.refusal == "" && second.status == first.status
		isRefused := c.refusal != "" && second.code == c.refusal
		if !isAlike && !isRefused {
			t.Errorf("%s, sent again: %d %s", c.route, second.status, second.body)
		}
		if after := entriesOf(t, server.Client); !maps.Equal(after, entries) {
			t.Errorf("%s, sent again, leaves %v, not %v", c.route, after, entries)
		}
	}

	for _, p := range e.endpoints(t) {
		isChange := p.method != "GET" && !onceOnly[p.name]
		if isChange && !met[p.name] {
			t.Errorf("%s is not tried", p.name)
		}
	}
}

// entriesOf counts the entries of all streams but two kinds: the audit trail's (U), which notes each try, and
// the notes (N) by which an owner learns that it has to read an endpoint.
func entriesOf(t *testing.T, client *redis.Client) map[string]int64 {
	t.Helper()
	entries := map[string]int64{}
	streams := client.ScanType(t.Context(), 0, "*", 1000, "stream").Iterator()
	for streams.Next(t.Context()) {
		n, err := client.XLen(t.Context(), streams.Val()).Result()
		testenv.Must(t, err)
		isBesides := strings.HasSuffix(streams.Val(), "}U") || strings.HasSuffix(streams.Val(), "}N")
		if !isBesides {
			entries[streams.Val()] = n
		}
	}

	testenv.Must(t, streams.Err())

	return entries
}
