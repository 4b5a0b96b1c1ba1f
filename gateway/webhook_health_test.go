package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// health expects what the admin API answers about the account's receiver.
func (e *env) health(account party, members ...any) map[string]any {
	e.Helper()
	return want(e, e.tryAdmin("GET", webhookPath(account), ""), 200, "", members...).data
}

// tally is what health counts of attempts.
func tally(delivered, retried int) map[string]int {
	return map[string]int{"delivered": delivered, "retried": retried, "undelivered": 0, "notSent": 0}
}

func TestWebhookHealth_NewReceiver(t *testing.T) {
	e := newEnv(t)
	account := e.named("New")
	got := e.health(account, "accountId", account.id, "accountName", absent, "url", "https://hooks.vendor.example/", "secret", absent,
		"status", "healthy", "waitingEvents", 0, "nextAttemptAt", absent, "successRate", absent, "attempts", tally(0, 0),
		"breaker", "closed", "breakerSince", absent, "paceEventsPerSecond", absent, "maxInFlight", 0, "maxPerSecond", 0)
	if since, err := delivery.ParseTime(got["statusSince"].(string)); err != nil || time.Since(since).Abs() > time.Hour {
		t.Errorf("statusSince = %v", got["statusSince"])
	}
}

// An endpoint fails until its breaker opens, is probed, and comes back.
func TestWebhookHealth_FailsAndRecovers(t *testing.T) {
	e := newEnv(t)
	account := e.named("Shaky")
	e.testEvents(account, 4)
	e.attempts(1, accepted)
	e.attempts(1, failed)
	e.health(account, "status", "failing", "waitingEvents", 3, "successRate", 0.5, "breaker", "closed", "attempts", tally(1, 1))

	e.attempts(2, failed)
	hold := delivery.FormatTime(e.opens(account))
	got := e.health(account, "status", "failing", "waitingEvents", 3, "successRate", 0.25, "breaker", "open", "paceEventsPerSecond", absent, "nextAttemptAt", hold)
	for _, name := range []string{"breakerSince", "statusSince"} {
		if at, err := delivery.ParseTime(fmt.Sprint(got[name])); err != nil || time.Since(at).Abs() > time.Hour {
			t.Errorf("%s = %v", name, got[name])
		}
	}

	e.attempts(1, failed)
	e.health(account, "breaker", "open")
	e.attempts(1, accepted)
	got = e.health(account, "status", "healthy", "breaker", "recovering", "breakerSince", absent)
	if pace, _ := got["paceEventsPerSecond"].(float64); pace <= 0 {
		t.Errorf("pace %v", got["paceEventsPerSecond"])
	}

	// Another receiver for which nothing waits is a clean sheet.
	e.attempts(int(got["waitingEvents"].(float64)), accepted)
	e.admin("PUT", webhookPath(account), `{"url":"https://elsewhere.vendor.example/"}`)
	e.health(account, "status", "healthy", "breaker", "closed", "paceEventsPerSecond", absent, "waitingEvents", 0)
}

// Probes of an open breaker share a line of the log, which counts them.
//
//rule:admin-api/get-accounts-id-webhook-deliveries-status
func TestWebhookHealth_DeliveriesShowProbes(t *testing.T) {
	e := newEnv(t)
	account := e.named("Unavailable")
	e.testEvents(account, 3)
	e.attempts(3, failed)
	e.opens(account)
	e.attempts(2, failed)
	deliveries := func(query string) []map[string]any {
		return e.admin("GET", webhookPath(account)+"/deliveries"+query, "").list("deliveries")
	}
	lines := deliveries("")
	if len(lines) != 4 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}

	wantMembers(t, "probes", lines[0], "probe", true, "probes", 2, "status", "retrying", "httpStatus", 500, "event", "webhook.test", "answer", "out of order")
	for _, name := range []string{"at", "nextAttemptAt"} {
		if !strings.HasSuffix(fmt.Sprint(lines[0][name]), "+03:00") {
			t.Errorf("%s = %v", name, lines[0][name])
		}
	}

	wantMembers(t, "an attempt", lines[1], "probe", absent, "probes", absent, "attempt", 1)
	if n, none := len(deliveries("?status=retrying")), len(deliveries("?status=delivered")); n != 4 || none != 0 {
		t.Errorf("%d retrying, %d delivered", n, none)
	}
}

// A vendor sees why its receiver fails, and nothing of the network that the
// worker stands in.
func TestWebhookHealth_VendorSeesWhatHelps(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Vendor")
	want(t, e.call("GET", "/webhook", ""), 200, "", "lastAttempts", []any{})
	e.testEvents(e.account, shownAttempts+3)
	e.attempts(shownAttempts, accepted)
	e.attempts(1, failed)
	for _, address := range []string{"127.0.0.1:9080 is one of the service's own ports", "10.1.2.3:443 is not a public address"} {
		e.attempts(1, func(*partitions.Scheduled) partitions.AttemptRecord {
			return partitions.AttemptRecord{State: partitions.StateRetrying, Error: "refused address: " + address, NextAt: time.Now().Add(time.Hour)}
		})
	}

	a := want(t, e.call("GET", "/webhook", ""), 200, "", "status", "failing", "waitingEvents", 3)
	names := slices.Sorted(maps.Keys(a.data))
	if wanted := []string{"lastAttempts", "nextAttemptAt", "status", "statusSince", "successRate", "url", "waitingEvents"}; !slices.Equal(names, wanted) {
		t.Errorf("%s", a.body)
	}

	last := a.list("lastAttempts")
	if len(last) != shownAttempts {
		t.Fatalf("%d attempts are shown: %s", len(last), a.body)
	}

	wantMembers(t, "newest", last[0], "event", "webhook.test", "attempt", 1, "status", "retrying", "httpStatus", absent,
		"error", "refused address: not a public address", "answer", absent)
	wantMembers(t, "an own port", last[1], "error", "refused address: one of the service's own ports")
	wantMembers(t, "before it", last[2], "status", "retrying", "httpStatus", 500, "error", "status: 500", "answer", absent)
	wantMembers(t, "a success", last[3], "status", "delivered", "httpStatus", 200, "error", absent)
	if !strings.HasSuffix(fmt.Sprint(last[0]["at"]), "+03:00") || !strings.HasPrefix(fmt.Sprint(last[0]["eventId"]), "evt_") {
		t.Errorf("%v", last[0])
	}
}

// A vendor that has repaired its receiver says so with PUT or a test; the service
// does not wait for the next probe of its own.
//
//rule:webhooks/an-endpoint-whose-breaker-is
func TestWebhookHealth_PutAndTestProbeAtOnce(t *testing.T) {
	const same = `{"url":"https://hooks.vendor.example/"}`
	for name, asks := range map[string]func(*env, party) answer{
		"vendor's PUT":   func(e *env, _ party) answer { return e.call("PUT", "/webhook", same) },
		"vendor's test":  func(e *env, _ party) answer { return e.call("POST", "/webhook/test", "") },
		"operator's PUT": func(e *env, p party) answer { return e.tryAdmin("PUT", webhookPath(p), same) },
		"operator's test": func(e *env, p party) answer {
			return e.tryAdmin("POST", webhookPath(p)+"/test", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.account = e.named("Mended")
			e.testEvents(e.account, 1)
			e.opens(e.account)
			e.attempts(1, failed)
			if _, facts := e.stands(e.account); facts.ProbeRequest != 0 || !facts.Breaker.Open {
				t.Fatalf("%+v", facts)
			}

			want(t, asks(e, e.account), 200, "")
			if _, facts := e.stands(e.account); facts.ProbeRequest == 0 { // by which the worker does not wait
				t.Fatalf("%+v", facts)
			}

			e.attempts(1, accepted)
			e.health(e.account, "breaker", "recovering", "status", "healthy")
		})
	}
}

func TestWebhooks_ListTheWorstFirst(t *testing.T) {
	e := newEnv(t)
	e.newAccount("") // has no receiver
	deleted := e.as(t, e.named("Deleted"))
	want(t, deleted.call("DELETE", "/webhook", ""), 200, "")
	want(t, e.tryAdmin("GET", "/webhooks", ""), 200, "", "webhooks", []any{})
	outcomes := map[string]func(*partitions.Scheduled) partitions.AttemptRecord{
		"Healthy": accepted, "Failing": failed, "Failing, more waiting": failed, "Gone": wentAway, "Unreachable": givenUp,
	}
	names := map[string]string{}
	for name := range outcomes {
		account := e.named(name)
		names[account.id] = name
		e.testEvents(account, 1+len(name)/len("Failing, more waiting"))
	}

	e.attempts(6, func(s *partitions.Scheduled) partitions.AttemptRecord {
		return outcomes[names[s.Delivery.Account.String()]](s)
	})

	worstFirst := []string{"Unreachable", "Gone", "Failing", "Failing, more waiting", "Healthy"}
	listed := e.admin("GET", "/webhooks?status=failing", "").list("webhooks")
	if len(listed) == 2 && listed[0]["accountName"] != "Failing" {
		slices.Reverse(worstFirst[2:4]) // those that have failed for longest come first
	}

	for query, wanted := range map[string][]string{
		"": worstFirst, "?status=": worstFirst, "?status=unreachable": worstFirst[:1], "?status=gone": worstFirst[1:2],
		"?status=failing": worstFirst[2:4], "?status=healthy": worstFirst[4:],
	} {
		var got []string
		for _, row := range e.admin("GET", "/webhooks"+query, "").list("webhooks") {
			got = append(got, row["accountName"].(string))
			if names[row["accountId"].(string)] != row["accountName"] || row["secret"] != nil {
				t.Errorf("%v", row)
			}
		}

		if !slices.Equal(got, wanted) {
			t.Errorf("%q: %v, want %v", query, got, wanted)
		}
	}

	for _, status := range []string{"Healthy", "open", "healthy,gone", "%00"} {
		wantField(t, e.tryAdmin("GET", "/webhooks?status="+status, ""), 422, "VALIDATION_FAILED", "status")
	}

	var paged []string
	for cursor := ""; ; {
		page := e.admin("GET", "/webhooks?limit=2&cursor="+cursor, "")
		for _, row := range page.list("webhooks") {
			paged = append(paged, row["accountName"].(string))
		}
		cursor = page.data["cursor"].(string)
		if cursor == "" {
			break
		}
	}

	if !slices.Equal(paged, worstFirst) {
		t.Errorf("by pages %v, want %v", paged, worstFirst)
	}

	counts := e.admin("GET", "/webhooks?limit=1", "").data["counts"].(map[string]any)
	wantMembers(t, "counts", counts, "unreachable", 1, "gone", 1, "failing", 2, "healthy", 1)
	wantPagesRefused(t, e, "/webhooks")
}

// wantPagesRefused tries cursors and limits that no page of a list takes.
func wantPagesRefused(t *testing.T, e *env, path string) {
	t.Helper()
	for _, limit := range []string{"0", "-1", "101", "x", "1.0", "%00", "99999999999999999999"} {
		wantField(t, e.tryAdmin("GET", path+"?limit="+limit, ""), 422, "VALIDATION_FAILED", "limit")
	}
	for _, cursor := range []string{"x", "1", "0.00", "%00", strings.Repeat("A", 2000)} {
		wantField(t, e.tryAdmin("GET", path+"?cursor="+cursor, ""), 422, "VALIDATION_FAILED", "cursor")
	}
}

func TestWebhookSettings_ChangeAndKeep(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Vendor")
	path := webhookPath(e.account)
	for _, step := range []struct {
		body                string
		inFlight, perSecond int
	}{
		{`{}`, 0, 0},
		{`{"maxInFlight":2}`, 2, 0},
		{`{"maxPerSecond":100}`, 2, 100},
		{`{"maxInFlight":1024,"maxPerSecond":10000}`, 1024, 10000},
		{`{"maxInFlight":null}`, 0, 10000},
		{`{"maxInFlight":1,"maxPerSecond":0}`, 1, 0},
		{`{}`, 1, 0},
	} {
		members := []any{"maxInFlight", step.inFlight, "maxPerSecond", step.perSecond, "url", "https://hooks.vendor.example/", "secret", absent}
		want(t, e.tryAdmin("PATCH", path, step.body), 200, "", members...)
		e.health(e.account, members...)
	}

	// The settings are the account's, whatever its URL is, and the operator's: the
	// vendor cannot lift them.
	e.admin("PUT", path, `{"url":"https://elsewhere.vendor.example/"}`)
	e.health(e.account, "maxInFlight", 1)
	e.admin("PATCH", path, `{"maxPerSecond":7}`)
	want(t, e.call("DELETE", "/webhook", ""), 200, "")
	want(t, e.call("PUT", "/webhook", `{"url":"https://hooks.vendor.example/"}`), 200, "")
	e.health(e.account, "maxInFlight", 1, "maxPerSecond", 7)
}

func TestWebhookSettings_Refusals(t *testing.T) {
	e := newEnv(t)
	account, bare := e.named("Vendor"), e.newAccount("")
	e.admin("PATCH", webhookPath(account), `{"maxInFlight":7,"maxPerSecond":8}`)
	for field, bodies := range map[string][]string{
		"maxInFlight": {`{"maxInFlight":-1}`, `{"maxInFlight":1025}`, `{"maxInFlight":1.5}`, `{"maxInFlight":1e2}`, `{"maxInFlight":"7"}`,
			`{"maxInFlight":true}`, `{"maxInFlight":[]}`, `{"maxInFlight":99999999999999999999}`},
		"maxPerSecond": {`{"maxPerSecond":-1}`, `{"maxPerSecond":10001}`, `{"maxPerSecond":{}}`, `{"maxPerSecond":"100","maxInFlight":1}`},
	} {
		for _, body := range bodies {
			wantField(t, e.tryAdmin("PATCH", webhookPath(account), body), 422, "VALIDATION_FAILED", field)
		}
	}

	for _, body := range []string{`{`, `[]`, `{"maxInFlight":1,"maxInFlight":2}`, `{"maxInFlight":01}`} {
		want(t, e.tryAdmin("PATCH", webhookPath(account), body), 400, "MALFORMED_REQUEST")
	}

	e.health(account, "maxInFlight", 7, "maxPerSecond", 8)
	want(t, e.tryAdmin("GET", webhookPath(bare), ""), 404, "WEBHOOK_NOT_CONFIGURED")
	want(t, e.tryAdmin("PATCH", webhookPath(bare), `{"maxInFlight":1}`), 404, "WEBHOOK_NOT_CONFIGURED")
}

func TestSuccessRate(t *testing.T) {
	if rate := successRate(0, 0); rate != nil {
		t.Errorf("without attempts: %v", *rate)
	}

	for figures, rate := range map[[2]int64]float64{
		{1, 0}: 1, {0, 1}: 0, {1, 1}: 0.5, {1, 2}: 0.3333, {2, 1}: 0.6667, {999, 1}: 0.999,
		{1_000_000, 1}: 0.9999, {1, 1_000_000}: 0.0001, {1_000_000, 0}: 1, {0, 1_000_000}: 0,
	} {
		if got := *successRate(figures[0], figures[1]); got != rate {
			t.Errorf("%v: %v, want %v", figures, got, rate)
		}
	}
}
