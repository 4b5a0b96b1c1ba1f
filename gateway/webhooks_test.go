package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

//rule:authentication/7 webhooks/urls-are-https-and-public decisions/webhook-url-and-secret
func TestWebhook_RegisterReadTestDelete(t *testing.T) {
	e := newStoreEnv(t, "")
	put := want(t, e.call("PUT", "/webhook", `{"url":"http://127.0.0.1:9000/hook"}`), 200, "") // a sandbox on the developer's machine
	if !strings.HasPrefix(fmt.Sprint(put.data["secret"]), "whsec_") || put.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v", put.body, put.header)
	}

	read := want(t, e.call("GET", "/webhook", ""), 200, "", "url", "http://127.0.0.1:9000/hook", "secret", absent, "status", put.data["status"])
	want(t, e.call("PUT", "/webhook", `{"url":"https://vendor.com/hook"}`), 200, "", "secret", absent) // which is shown once
	if a := want(t, e.call("POST", "/webhook/test", ""), 200, ""); !strings.HasPrefix(a.data["eventId"].(string), "evt_") {
		t.Errorf("%s", a.body)
	}

	for _, a := range []answer{put, read} {
		if limit := headerInt(a, "X-RateLimit-Limit"); limit != 200 && limit != 60 {
			t.Errorf("the stores bucket is not shown: %v", a.header)
		}
	}

	if a := e.call("DELETE", "/webhook", ""); a.status != 200 || a.body != `{"success":true,"data":{}}` {
		t.Errorf("%d %s", a.status, a.body)
	}

	want(t, e.call("GET", "/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
}

// What waited for a receiver that was removed is not sent to the next one.
//
//rule:webhooks/without-a-registered-url-events
func TestWebhook_DeletedWithWhatWaits(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Moved")
	e.testEvents(e.account, 33)
	e.attempts(3, failed)
	want(t, e.call("DELETE", "/webhook", ""), 200, "")
	e.take()
	want(t, e.call("PUT", "/webhook", `{"url":"https://hooks.vendor.example/"}`), 200, "", "waitingEvents", 0)
	e.health(e.account, "waitingEvents", 0, "attempts", map[string]int{"delivered": 0, "retried": 3, "undelivered": 0, "notSent": 33})
	if lines := e.admin("GET", webhookPath(e.account)+"/deliveries?status=notSent", "").list("deliveries"); len(lines) != 33 {
		t.Errorf("%d events are shown as not sent", len(lines))
	}
}

// removeWithWaiting removes a receiver for which an event waits, and which no worker looks after.
func (e *env) removeWithWaiting() {
	e.Helper()
	want(e, e.call("PUT", "/webhook", `{"url":"https://first.example/"}`), 200, "")
	want(e, e.call("POST", "/webhook/test", ""), 200, "")
	want(e, replaying(`{"since":"`+ago(time.Hour)+`"}`)(e), 200, "")
	want(e, e.call("DELETE", "/webhook", ""), 200, "")
}

// Who registers a receiver while no worker records what waited for the last one is refused for a
// second, and nobody is called for it: Redis is well.
func TestWebhook_PutBesideARemovalIsARefusalLikeOthers(t *testing.T) {
	e := newStoreEnv(t, "")
	e.removeWithWaiting()
	want(t, e.tryAdmin("PUT", "/finance/webhook", `{"url":"https://erp.example/a"}`), 200, "")
	want(t, e.tryAdmin("POST", webhookPath(finance)+"/test", ""), 200, "")
	want(t, e.tryAdmin("POST", webhookPath(finance)+"/replay", `{"since":"`+ago(time.Hour)+`"}`), 200, "")
	want(t, e.tryAdmin("DELETE", "/finance/webhook", ""), 200, "")
	for _, a := range []answer{
		e.call("PUT", "/webhook", `{"url":"https://second.example/"}`),
		e.tryAdmin("PUT", webhookPath(e.account), `{"url":"https://second.example/"}`),
		e.tryAdmin("PUT", "/finance/webhook", `{"url":"https://second.example/"}`),
	} {
		want(t, a, 409, "WEBHOOK_BEING_REMOVED", "retryAfterSeconds", 1)
		if a.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}

	metrics := e.get(e.private+"/metrics", "").body
	got := ledgerFailures(metrics)
	if len(got) > 0 {
		t.Errorf("counted as failures of the ledger: %q", got)
	}
	if !strings.Contains(metrics, `gateway_refusals_total{error_code="WEBHOOK_BEING_REMOVED"} 3`) {
		t.Error("the refusals are not counted")
	}
	if strings.Contains(e.logs.String(), "level=ERROR") {
		t.Errorf("an error is logged: %s", e.logs)
	}
}

// ledgerFailures are the lines of the metrics that count requests that the ledger failed.
func ledgerFailures(metrics string) (lines []string) {
	for line := range strings.Lines(metrics) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "gateway_ledger_errors_total{") && !strings.HasSuffix(line, " 0") {
			lines = append(lines, line)
		}
	}
	return lines
}

//rule:limits-and-idempotency/the-webhook-endpoints-count-in
func TestWebhook_CountsInTheStoresBucket(t *testing.T) {
	e := newEnv(t)
	e.account = e.newAccount(`{"stores":{"sustained":{"count":1,"seconds":86400},"burst":{"count":2,"seconds":86400}}}`)
	for range 2 {
		want(t, e.call("GET", "/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
	}
	want(t, e.call("GET", "/webhook", ""), 429, "RATE_LIMITED")
	want(t, e.putStore(e.account, "s1", storeBody(kadikoy, "")), 429, "RATE_LIMITED")
}

//rule:webhooks/urls-are-https-and-public
func TestWebhookURL(t *testing.T) {
	type allowed struct{ strict, local bool }
	for a, urls := range map[allowed][]string{
		{true, true}: {
			"https://vendor.com/hook", "https://vendor.com:8443/hook?a=b%20c", "https://çiğköfte.com/", "https://vendor.com.", "HTTPS://VENDOR.COM/", "https://93.184.216.34/",
			"https://[2606:2800:220:1::1]/",
		},
		{false, true}: {
			"http://vendor.com/", "http://localhost:9000/", "http://127.0.0.1:9000/", "http://[::1]:9000/", "http://[::ffff:127.0.0.1]/", "http://hook.localhost/",
			"http://receiver:9000/", "https://receiver.internal/",
		},
		{false, false}: {
			"https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.1.1/", "https://169.254.169.254/latest", "https://100.100.100.200/", "https://0.0.0.0/",
			"https://224.0.0.1/", "https://255.255.255.255/", "https://[fd00::1]/", "https://[fe80::1%25eth0]/", "https://[::]/", "https://[::ffff:10.0.0.1]/",
			"https://168.63.129.16/", "https://[64:ff9b::a00:1]/", "https://[2002:a00:1::]/", "https://2130706433/", "https://0x7f000001/", "https://127.1/",
			"https://user:secret@vendor.com/", "https://vendor.com/#part", "https://vendor.com/#", "https://vendor.com:0/", "https://vendor.com:/", "https://vendor.com:70000/",
			"https:///hook", "https:vendor.com", "//vendor.com/", "/hook", "vendor.com", "ftp://vendor.com/", "file:///etc/passwd", "https://vendor.com/a b",
			" https://vendor.com/", "", "https://vendor.com/" + strings.Repeat("x", 2030),
		},
	} {
		for _, url := range urls {
			if got := webhookURLFault(url, false) == ""; got != a.strict {
				t.Errorf("%.60q: %v (%s)", url, got, webhookURLFault(url, false))
			}
			if got := webhookURLFault(url, true) == ""; got != a.local {
				t.Errorf("local, %.60q: %v (%s)", url, got, webhookURLFault(url, true))
			}
		}
	}
}

// What the worker's dialer refuses in the end is refused at once where the text
// alone shows it, in every notation that a resolver or a browser would read.
func TestWebhookURL_NotationsOfAddresses(t *testing.T) {
	for _, host := range []string{
		"2130706433", "017700000001", "0x7f000001", "0X7F000001", "127.1", "127.0.1", "0x7f.1", "0177.0.0.1", "0177.0.0.01",
		"0x7f.0x0.0x0.0x1", "127.000.000.001", "127.0.0.1.", "127.0.0.1..", "0", "0.", "3232235521", "0xa9.0xfe.0xa9.0xfe",
		"１２７.０.０.１", "127。0。0。1", "１２７．０．０．１", "①②⑦.⓪.⓪.①", "２１３０７０６４３３", "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1",
		"127%2e0%2e0%2e1", "%31%32%37.0.0.1", "127.0.0.1%00.vendor.com", "[::ffff:127.0.0.1]", "[::FFFF:7F00:1]", "[::127.0.0.1]",
		"[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::127.0.0.1]", "[2002:7f00:1::1]", "[2001:0:53aa:64c:0:0:80ff:fffe]",
		"[fe80::1%25eth0]", "[fe80::5efe:127.0.0.1]", "[2606:4700::1111%25eth0]", "[::ffff:10.0.0.1%25eth0]", "[fd00:ec2::254]",
		"[127.0.0.1]", "[::]", "[::1", "::1", "192.31.196.1", "192.0.0.192", "[2620:4f:8000::1]", "[3fff::1]", "[5f00::1]",
		"ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "LOCALHOST", "localhost.", "loc\u00adalhost", "hook.LocalHost.", "metadata.google.internal", "METADATA.GOOGLE.INTERNAL.",
		"vendor.com@127.0.0.1", "127.0.0.1\\@vendor.com", "vendor.com\\.127.0.0.1", "vendor..com", ".vendor.com", "vendor.com..",
		"vendor.com%20", "vendor,com", "vendor.com:80:80", "vendor", strings.Repeat("a", 64) + ".com",
	} {
		if fault := webhookURLFault("https://"+host+"/hook", false); fault == "" {
			t.Errorf("%s is accepted", host)
		}
	}

	for _, host := range []string{
		"vendor.com", "VENDOR.COM", "vendor.com.", "a_b.vendor.com", "1.vendor.com", "0x7f.vendor.com", "127.0.0.1.vendor.com",
		"ÇİĞKÖFTE.com", "中国。com", "xn--fiqs8s.com", "8.8.8.8", "８.８.８.８", "[2606:4700::1111]", "[2606:4700:0:0::1111]", "vendor.com:8443",
	} {
		if fault := webhookURLFault("https://"+host+"/hook", false); fault != "" {
			t.Errorf("%s: %s", host, fault)
		}
	}
}

// What a PUT answers is what it did, whatever a DELETE does right behind it.
func TestPutWebhook_MeetsADeletion(t *testing.T) {
	e := newEnv(t)
	account := e.as(t, e.newAccount(""))

	for range 20 {
		var deleting sync.WaitGroup
		for range 4 {
			deleting.Go(func() { account.call("DELETE", "/webhook", "") })
		}

		put := account.call("PUT", "/webhook", `{"url":"https://example.com/hook"}`)
		deleting.Wait()

		if put.status == 404 {
			t.Fatalf("a registration is answered %s", put.body)
		}
	}
}
