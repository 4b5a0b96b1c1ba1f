package main

import (
	"fmt"
	"strings"
	"testing"
)

//rule:authentication/7 webhooks/urls-are-https-and-public decisions/webhook-url-and-secret
func TestWebhook_RegisterReadTestDelete(t *testing.T) {
	s := newScene(t, "")
	call := func(method, path, body string) answer {
		return s.send(request{method: method, url: s.vendor + "/api/vendor/v1/webhook" + path, token: s.account.token, body: body})
	}
	put := call("PUT", "", `{"url":"http://127.0.0.1:9000/hook"}`) // a sandbox on the developer's machine
	if put.status != 200 || !strings.HasPrefix(fmt.Sprint(put.data["secret"]), "whsec_") || put.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", put.status, put.body)
	}
	read := call("GET", "", "")
	if read.status != 200 || read.data["url"] != "http://127.0.0.1:9000/hook" || read.data["secret"] != nil || read.data["status"] != put.data["status"] {
		t.Errorf("%d %s", read.status, read.body)
	}
	if a := call("PUT", "", `{"url":"https://vendor.com/hook"}`); a.status != 200 || a.data["secret"] != nil {
		t.Errorf("the secret is shown twice: %s", a.body)
	}
	if a := call("POST", "/test", ""); a.status != 200 || !strings.HasPrefix(a.data["eventId"].(string), "evt_") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, a := range []answer{put, read} {
		if a.header.Get("X-RateLimit-Limit") != "200" && a.header.Get("X-RateLimit-Limit") != "60" {
			t.Errorf("the stores bucket is not shown: %v", a.header)
		}
	}
	if a := call("DELETE", "", ""); a.status != 200 || a.body != `{"success":true,"data":{}}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := call("GET", "", ""); a.status != 404 || a.code != "WEBHOOK_NOT_CONFIGURED" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

//rule:limits-and-idempotency/the-webhook-endpoints-count-in
func TestWebhook_CountsInTheStoresBucket(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount(`{"stores":{"sustained":{"count":1,"seconds":3600},"burst":{"count":2,"seconds":3600}}}`)
	get := func() answer { return w.get(w.vendor+"/api/vendor/v1/webhook", account.token) }
	if a, b := get(), get(); a.status != 404 || b.status != 404 {
		t.Fatalf("%d, %d", a.status, b.status)
	}
	if a := get(); a.status != 429 || a.code != "RATE_LIMITED" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.putStore(account, "s1", storeBody(kadikoy, "")); a.status != 429 {
		t.Errorf("PUT /stores: %d %s", a.status, a.body)
	}
}

//rule:webhooks/urls-are-https-and-public
func TestWebhookURL(t *testing.T) {
	for url, allowed := range map[string]struct{ strict, local bool }{
		"https://vendor.com/hook":                         {true, true},
		"https://vendor.com:8443/hook?a=b%20c":            {true, true},
		"https://çiğköfte.com/":                           {true, true},
		"https://vendor.com.":                             {true, true},
		"HTTPS://VENDOR.COM/":                             {true, true},
		"https://93.184.216.34/":                          {true, true},
		"https://[2606:2800:220:1::1]/":                   {true, true},
		"http://vendor.com/":                              {false, true},
		"http://localhost:9000/":                          {false, true},
		"http://127.0.0.1:9000/":                          {false, true},
		"http://[::1]:9000/":                              {false, true},
		"http://[::ffff:127.0.0.1]/":                      {false, true},
		"http://hook.localhost/":                          {false, true},
		"http://receiver:9000/":                           {false, true},
		"https://receiver.internal/":                      {false, true},
		"https://10.0.0.1/":                               {false, false},
		"https://172.16.0.1/":                             {false, false},
		"https://192.168.1.1/":                            {false, false},
		"https://169.254.169.254/latest":                  {false, false},
		"https://100.100.100.200/":                        {false, false},
		"https://0.0.0.0/":                                {false, false},
		"https://224.0.0.1/":                              {false, false},
		"https://255.255.255.255/":                        {false, false},
		"https://[fd00::1]/":                              {false, false},
		"https://[fe80::1%25eth0]/":                       {false, false},
		"https://[::]/":                                   {false, false},
		"https://[::ffff:10.0.0.1]/":                      {false, false},
		"https://168.63.129.16/":                          {false, false},
		"https://[64:ff9b::a00:1]/":                       {false, false},
		"https://[2002:a00:1::]/":                         {false, false},
		"https://2130706433/":                             {false, false},
		"https://0x7f000001/":                             {false, false},
		"https://127.1/":                                  {false, false},
		"https://user:secret@vendor.com/":                 {false, false},
		"https://vendor.com/#part":                        {false, false},
		"https://vendor.com/#":                            {false, false},
		"https://vendor.com:0/":                           {false, false},
		"https://vendor.com:/":                            {false, false},
		"https://vendor.com:70000/":                       {false, false},
		"https:///hook":                                   {false, false},
		"https:vendor.com":                                {false, false},
		"//vendor.com/":                                   {false, false},
		"/hook":                                           {false, false},
		"vendor.com":                                      {false, false},
		"ftp://vendor.com/":                               {false, false},
		"file:///etc/passwd":                              {false, false},
		"https://vendor.com/a b":                          {false, false},
		" https://vendor.com/":                            {false, false},
		"":                                                {false, false},
		"https://vendor.com/" + strings.Repeat("x", 2030): {false, false},
	} {
		if got := webhookURLFault(url, false) == ""; got != allowed.strict {
			t.Errorf("%.60q: %v (%s)", url, got, webhookURLFault(url, false))
		}
		if got := webhookURLFault(url, true) == ""; got != allowed.local {
			t.Errorf("local, %.60q: %v (%s)", url, got, webhookURLFault(url, true))
		}
	}
}

//rule:webhooks/urls-are-https-and-public
func TestWebhookURL_ProductionAndNeverRefuseThisMachine(t *testing.T) {
	for name, change := range map[string]func(*settings){
		"production": func(s *settings) { s.Environment = production },
		"never":      func(s *settings) { s.Webhook.LocalReceivers = receiversNever },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			account := w.newAccount("")
			a := w.send(request{method: "PUT", url: w.vendor + "/api/vendor/v1/webhook", token: account.token, body: `{"url":"http://127.0.0.1:9000/"}`})
			if a.status != 422 || a.code != "VALIDATION_FAILED" {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}
