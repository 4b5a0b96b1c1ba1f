package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// health is what the admin API tells of the account's receiver.
func (w *world) health(account party) map[string]any {
	w.Helper()
	return w.admin("GET", webhookPath(account), "").data
}

// holds compares some members of an object; "absent" stands for none.
func holds(t *testing.T, what string, got map[string]any, want map[string]any) {
	t.Helper()
	for name, value := range want {
		found, there := got[name]
		if !there {
			found = "absent"
		}
		if fmt.Sprint(found) != fmt.Sprint(value) {
			t.Errorf("%s: %s is %v, want %v in %v", what, name, found, value, got)
		}
	}
}

func TestWebhookHealth_NewReceiver(t *testing.T) {
	w := newWorld(t)
	account := w.named("New")
	got := w.health(account)
	holds(t, "new", got, map[string]any{
		"accountId": account.id, "accountName": "absent", "url": "https://hooks.vendor.example/", "secret": "absent",
		"status": "healthy", "waitingEvents": 0, "nextAttemptAt": "absent", "successRate": "absent",
		"attempts": map[string]any{"delivered": 0, "retried": 0, "undelivered": 0, "notSent": 0},
		"breaker":  "closed", "breakerSince": "absent", "paceEventsPerSecond": "absent", "maxInFlight": 0, "maxPerSecond": 0,
	})
	if since, err := delivery.ParseTime(got["statusSince"].(string)); err != nil || time.Since(since).Abs() > time.Minute {
		t.Errorf("statusSince = %v", got["statusSince"])
	}
}

// An endpoint fails until its breaker opens, is probed, and comes back.
func TestWebhookHealth_FailsAndRecovers(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	account := w.named("Shaky")
	w.testEvents(account, 1+breakerAfter)
	w.attempts(1, accepted)
	w.attempts(1, failed)
	holds(t, "one failure", w.health(account), map[string]any{
		"status": "failing", "waitingEvents": breakerAfter, "successRate": 0.5, "breaker": "closed",
		"attempts": map[string]any{"delivered": 1, "retried": 1, "undelivered": 0, "notSent": 0},
	})

	w.attempts(breakerAfter-1, failed)
	got := w.health(account)
	holds(t, "open", got, map[string]any{
		"status": "failing", "waitingEvents": breakerAfter, "successRate": 0.25, "breaker": "open", "paceEventsPerSecond": "absent",
	})
	for _, name := range []string{"breakerSince", "nextAttemptAt", "statusSince"} {
		if at, err := delivery.ParseTime(fmt.Sprint(got[name])); err != nil || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s = %v", name, got[name])
		}
	}

	if d := w.attempts(1, failed)[0]; !d.Probe {
		t.Errorf("not a probe: %+v", d)
	}
	w.attempts(1, accepted)
	got = w.health(account)
	holds(t, "recovering", got, map[string]any{"status": "healthy", "breaker": "recovering", "breakerSince": "absent"})
	if pace, _ := got["paceEventsPerSecond"].(float64); pace <= 0 {
		t.Errorf("pace %v", got["paceEventsPerSecond"])
	}
	// Another receiver for which nothing waits is a clean sheet.
	w.attempts(int(got["waitingEvents"].(float64)), accepted)
	w.admin("PUT", webhookPath(account), `{"url":"https://elsewhere.vendor.example/"}`)
	holds(t, "moved", w.health(account), map[string]any{"status": "healthy", "breaker": "closed", "paceEventsPerSecond": "absent", "waitingEvents": 0})
}

// Probes of an open breaker share a line of the log, which counts them.
//
//rule:admin-api/get-accounts-id-webhook-deliveries-status
func TestWebhookHealth_DeliveriesShowProbes(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	account := w.named("Away")
	w.testEvents(account, breakerAfter)
	w.attempts(breakerAfter, failed)
	w.attempts(2, failed)
	path := webhookPath(account) + "/deliveries"
	lines := w.admin("GET", path, "").data["deliveries"].([]any)
	if len(lines) != breakerAfter+1 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	probe := lines[0].(map[string]any)
	holds(t, "probes", probe, map[string]any{"probe": true, "probes": 2, "status": "retrying", "httpStatus": 500, "event": "webhook.test", "answer": "out of order"})
	for _, name := range []string{"at", "nextAttemptAt"} {
		if !strings.HasSuffix(fmt.Sprint(probe[name]), "+03:00") {
			t.Errorf("%s = %v", name, probe[name])
		}
	}
	holds(t, "an attempt", lines[1].(map[string]any), map[string]any{"probe": "absent", "probes": "absent", "attempt": 1})
	if a := w.admin("GET", path+"?status=retrying", ""); len(a.data["deliveries"].([]any)) != breakerAfter+1 {
		t.Errorf("%s", a.body)
	}
	if a := w.admin("GET", path+"?status=delivered", ""); len(a.data["deliveries"].([]any)) != 0 {
		t.Errorf("%s", a.body)
	}
}

func TestWebhookHealth_VendorSeesWhatHelps(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	account := w.named("Vendor")
	w.testEvents(account, 3)
	w.attempts(1, accepted)
	w.attempts(2, failed)
	a := w.get(w.vendor+"/api/vendor/v1/webhook", account.token)
	names := slices.Sorted(maps.Keys(a.data))
	if want := []string{"nextAttemptAt", "status", "statusSince", "successRate", "url", "waitingEvents"}; a.status != 200 || !slices.Equal(names, want) {
		t.Errorf("%d %s", a.status, a.body)
	}
	holds(t, "vendor", a.data, map[string]any{"status": "failing", "waitingEvents": 2, "successRate": 0.3333})
}

func TestWebhooks_ListTheWorstFirst(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	w.newAccount("") // has no receiver
	deleted := w.named("Deleted")
	if a := w.send(request{method: "DELETE", url: w.vendor + "/api/vendor/v1/webhook", token: deleted.token}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if all := w.admin("GET", "/webhooks", "").data["webhooks"].([]any); len(all) != 0 {
		t.Errorf("%v", all)
	}
	judges := map[string]func(*ledger.Delivery) ledger.Outcome{
		"Healthy": accepted, "Failing": failed, "Failing, more waiting": failed, "Gone": wentAway, "Unreachable": givenUp,
	}
	names := map[string]string{}
	for name := range judges {
		account := w.named(name)
		names[account.id] = name
		w.testEvents(account, 1+len(name)/len("Failing, more waiting"))
	}
	w.attempts(6, func(d *ledger.Delivery) ledger.Outcome { return judges[names[d.Account.String()]](d) })

	for query, want := range map[string][]string{
		"":                    {"Unreachable", "Gone", "Failing, more waiting", "Failing", "Healthy"},
		"?status=":            {"Unreachable", "Gone", "Failing, more waiting", "Failing", "Healthy"},
		"?status=unreachable": {"Unreachable"}, "?status=gone": {"Gone"},
		"?status=failing": {"Failing, more waiting", "Failing"}, "?status=healthy": {"Healthy"},
	} {
		var got []string
		for _, row := range w.admin("GET", "/webhooks"+query, "").data["webhooks"].([]any) {
			row := row.(map[string]any)
			got = append(got, row["accountName"].(string))
			if names[row["accountId"].(string)] != row["accountName"] || row["secret"] != nil {
				t.Errorf("%v", row)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
	for _, status := range []string{"Healthy", "open", "healthy,gone", "%00"} {
		if a := w.tryAdmin("GET", "/webhooks?status="+status, ""); a.status != 422 || a.firstField() != "status" {
			t.Errorf("%s: %d %s", status, a.status, a.body)
		}
	}
	for name, token := range map[string]string{"none": "", "a vendor's": deleted.token} {
		if a := w.get(w.private+"/api/admin/v1/webhooks", token); a.status != 401 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := w.get(w.vendor+"/api/admin/v1/webhooks", adminKey); a.status != 404 {
		t.Errorf("the vendors' listener: %d", a.status)
	}
}

func TestWebhookSettings_ChangeAndKeep(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	account := w.named("Vendor")
	path := webhookPath(account)
	for _, step := range []struct {
		body                string
		inFlight, perSecond int
	}{
		{`{}`, 0, 0},
		{`{"maxInFlight":2}`, 2, 0},
		{`{"maxPerSecond":100}`, 2, 100},
		{`{"maxInFlight":1024,"maxPerSecond":10000}`, 1024, 10000},
		{`{"maxInFlight":null}`, 0, 10000},
		{`{"maxInFlight":1,"maxPerSecond":0,"else":"x"}`, 1, 0},
		{`{}`, 1, 0},
	} {
		want := map[string]any{"maxInFlight": step.inFlight, "maxPerSecond": step.perSecond, "url": "https://hooks.vendor.example/", "secret": "absent"}
		holds(t, step.body, w.admin("PATCH", path, step.body).data, want)
		holds(t, step.body+", read", w.health(account), want)
	}
	w.testEvents(account, 3)
	id := accountID(t, account)
	leased := 0
	for partition := range w.ledger().Partitions() {
		ds, _, err := w.ledger().Lease(t.Context(), partition, ledger.Grant{Limit: 10, Share: 10, InFlight: 10, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		leased += len(ds)
	}
	if leased != 1 {
		t.Errorf("%d of account %s in flight, its setting is 1", leased, id)
	}
	// The settings are the account's, whatever its URL is.
	w.admin("PUT", path, `{"url":"https://elsewhere.vendor.example/"}`)
	holds(t, "moved", w.health(account), map[string]any{"maxInFlight": 1})
}

func TestWebhookSettings_Refusals(t *testing.T) {
	w := newWorld(t)
	account, bare := w.named("Vendor"), w.newAccount("")
	path := webhookPath(account)
	w.admin("PATCH", path, `{"maxInFlight":7,"maxPerSecond":8}`)
	for body, field := range map[string]string{
		`{"maxInFlight":-1}`: "maxInFlight", `{"maxInFlight":1025}`: "maxInFlight", `{"maxInFlight":1.5}`: "maxInFlight",
		`{"maxInFlight":1e2}`: "maxInFlight", `{"maxInFlight":"7"}`: "maxInFlight", `{"maxInFlight":true}`: "maxInFlight",
		`{"maxInFlight":[]}`: "maxInFlight", `{"maxInFlight":99999999999999999999}`: "maxInFlight",
		`{"maxPerSecond":-1}`: "maxPerSecond", `{"maxPerSecond":10001}`: "maxPerSecond", `{"maxPerSecond":{}}`: "maxPerSecond",
		`{"maxPerSecond":"100","maxInFlight":1}`: "maxPerSecond",
	} {
		if a := w.tryAdmin("PATCH", path, body); a.status != 422 || a.code != "VALIDATION_FAILED" || a.firstField() != field {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, body := range []string{`{`, `[]`, `{"maxInFlight":1,"maxInFlight":2}`, `{"maxInFlight":01}`} {
		if a := w.tryAdmin("PATCH", path, body); a.status != 400 || a.code != "MALFORMED_REQUEST" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	holds(t, "after refusals", w.health(account), map[string]any{"maxInFlight": 7, "maxPerSecond": 8})
	for _, method := range []string{"GET", "PATCH"} {
		body := ""
		if method == "PATCH" {
			body = `{"maxInFlight":1}`
		}
		if a := w.tryAdmin(method, webhookPath(bare), body); a.status != 404 || a.code != "WEBHOOK_NOT_CONFIGURED" {
			t.Errorf("%s without a receiver: %d %s", method, a.status, a.body)
		}
		for _, id := range []string{delivery.NewAccountID().String(), "nobody"} {
			if a := w.tryAdmin(method, "/accounts/"+id+"/webhook", body); a.status != 404 || a.code != "ACCOUNT_NOT_FOUND" {
				t.Errorf("%s %s: %d %s", method, id, a.status, a.body)
			}
		}
	}
}

func TestSuccessRate(t *testing.T) {
	if rate := successRate(0, 0); rate != nil {
		t.Errorf("without attempts: %v", *rate)
	}
	for figures, want := range map[[2]int64]float64{
		{1, 0}: 1, {0, 1}: 0, {1, 1}: 0.5, {1, 2}: 0.3333, {2, 1}: 0.6667, {999, 1}: 0.999,
		{1_000_000, 1}: 0.9999, {1, 1_000_000}: 0.0001, {1_000_000, 0}: 1, {0, 1_000_000}: 0,
	} {
		if got := *successRate(figures[0], figures[1]); got != want {
			t.Errorf("%v: %v, want %v", figures, got, want)
		}
	}
}
