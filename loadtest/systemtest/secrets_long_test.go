//go:build long

package systemtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// person's data of the orders that testSecrets plays; none of it is anywhere else.
var recipientData = []string{
	"Şehrazat Gülbeşekeroğlu", "Gülbeşeker", "5398761234", "0539 876 12 34", "Nilüfer Apartmanı Kuşkonmaz", "Kuşkonmaz", "Zil bozuk, havlayan köpek", "havlayan",
}

// Who may do what, over every endpoint of all programs, and that nothing of what
// they did it with is written anywhere: what the last part searches is what the
// others have left.
func TestAccess(t *testing.T) {
	t.Parallel()
	e := newEnv(t, stack.Options{DataDir: peopleDir(t), Env: []string{"LOG_LEVEL=debug"}})
	testCredentials(t, e)
	testPrivateRoutes(t, e)
	testTenants(t, e)
	testPanelCredentials(t, e)
	testSecrets(t, e)
}

// testSecrets plays a run in which everything goes wrong that makes programs talk:
// failing receivers, rotations, secrets in places where they do not belong, Redis
// away, programs killed. Then it searches everything that was written.
func testSecrets(t *testing.T, e *env) {
	k := &known{}
	k.addKeys(t, filepath.Join(e.dir, "keys"))
	e.rotate(t, k)
	e.deliver(t)
	e.misplace(t, k)
	e.outage(t, k)
	e.crash(t)
	e.deliver(t)
	k.mustBeMany(t)
	shown := e.shown(t)
	e.tables(t, shown)
	e.Stop()
	for where, content := range shown {
		if strings.HasPrefix(where, "Redis") {
			k.searchExcept(t, where, content, "a key in a webhook's URL")
			continue
		}
		k.search(t, where, content)
		noRecipient(t, where, content)
	}

	e.searchFiles(t, k)
}

// rotate replaces what can be replaced at run time, twice, uses both the old and
// the new, and remembers all of it.
func (e *env) rotate(t *testing.T, k *known) {
	t.Helper()
	for _, v := range []*vendor{e.a, e.b} {
		k.add("a client secret", v.ClientSecret)
		k.add("a vendor's token", v.Bearer)
		k.add("a webhook secret", v.secret)
		for range 2 {
			var issued struct{ ClientSecret, Secret string }
			succeeds(t, e.Admin, http.MethodPost, "/accounts/"+v.AccountID+"/credentials", nil, &issued)
			k.add("a rotated client secret", issued.ClientSecret)
			for _, secret := range []string{v.ClientSecret, issued.ClientSecret} {
				c, err := v.As(v.Base, "").Login(t.Context(), "/token", v.ClientID, secret)
				must(t, err)
				k.add("a later token", c.Bearer)
			}

			v.ClientSecret = issued.ClientSecret
		}
	}

	for _, fleet := range []*stack.DemoFleet{&e.Demo.Fleet, &e.other} {
		var issued struct{ ClientSecret string }
		succeeds(t, e.Admin, http.MethodPost, "/fleets/"+fleet.FleetID+"/credentials", nil, &issued)
		k.add("a fleet's rotated client secret", issued.ClientSecret)
	}

	// A receiver's secret is rotated only where nobody verifies any more.
	dead := e.Vendor(t, stack.Unlimited)
	var set stack.Webhook
	// The URL is the vendor's own to keep secret: some carry a key.
	k.add("a key in a webhook's URL", "anahtar-7f3c9b1e5d2a4c6e8f")
	unreachable := stack.FreeAddr()
	succeeds(t, dead.Client, http.MethodPut, "/webhook", map[string]string{"url": "http://" + unreachable + "/h?key=anahtar-7f3c9b1e5d2a4c6e8f"}, &set)
	k.add("a webhook secret", set.Secret)
	for range 2 {
		succeeds(t, e.Admin, http.MethodPost, "/accounts/"+dead.AccountID+"/webhook/rotate", nil, &set)
		k.add("a rotated webhook secret", set.Secret)
	}

	dead.Create(t, nil)
	succeeds(t, dead.Client, http.MethodPost, "/webhook/test", nil, nil)
	for name, secret := range map[string]string{
		"the demo's client secret": e.Demo.Account.ClientSecret, "the fleet's client secret": e.Demo.Fleet.ClientSecret,
		"another fleet's client secret": e.other.ClientSecret, "a fleet's token": e.Fleet.Bearer, "another fleet's token": e.rival.Bearer,
		"the report token": e.Demo.ReportsToken, "the admin key": e.Demo.AdminKey,
		"a password": everybody.password, "an operator's password": operator.password, "finance's password": finance.password,
	} {
		k.add(name, secret)
	}

	var made struct{ TrackingURL string }
	succeeds(t, e.a.Client, http.MethodPost, "/orders", e.a.Order(nil), &made)
	k.add("a tracking link", made.TrackingURL[strings.LastIndexByte(made.TrackingURL, '/')+1:])
	for who, page := range map[person]string{everybody: "/overview", operator: "/overview", finance: "/payments"} {
		k.add("a session's id", newSession(t, e.Demo.PanelURL, who, page).cookie())
	}
}

// deliver carries an order of a customer whose data is recognizable to the door,
// once while the vendor's receiver fails.
func (e *env) deliver(t *testing.T) {
	t.Helper()
	id := e.a.Create(t, func(o map[string]any) {
		o["recipient"] = map[string]any{"name": recipientData[0], "phone": "0" + recipientData[2]}
		o["dropoff"] = map[string]any{"text": recipientData[4] + " No: 9", "latitude": 40.9880, "longitude": 29.0300, "note": recipientData[6], "doorNo": "17"}
		o["packageNote"] = recipientData[6]
	})

	e.a.down.Store(true)
	succeeds(t, e.Fleet, http.MethodPost, "/jobs/"+id+"/accept", someCourier, nil)
	await(t, "the order is assigned", func() bool { status, _ := e.jobOf(t, id); return status == "Assigned" })
	for _, status := range []string{"PickedUp", "Delivered"} {
		succeeds(t, e.Fleet, http.MethodPost, "/jobs/"+id+"/status", map[string]string{"status": status}, nil)
	}

	await(t, "the order is delivered", func() bool { status, _ := e.jobOf(t, id); return status == "Delivered" })
	await(t, "the endpoint fails", func() bool { _, status := e.webhookOf(t, e.a); return status != "healthy" })
	e.a.down.Store(false)
	// A move that is refused is logged and kept for operators.
	succeeds(t, e.Fleet, http.MethodPost, "/jobs/"+id+"/status", map[string]string{"status": "PickingUp"}, nil)
}

// misplace sends secrets where they do not belong, everywhere.
func (e *env) misplace(t *testing.T, k *known) {
	t.Helper()
	for i, secret := range k.samples() {
		headers := [][]string{
			nil,
			{"Authorization", "Bearer " + secret},
			{"Authorization", secret, "X-Operator", secret + "\tx", "X-Idempotency-Key", "not allowed " + secret, "Cookie", "panel=" + secret},
			{"Authorization", "Bearer " + e.Demo.AdminKey, "Referer", "https://x.example/?" + secret, "User-Agent", secret},
			{"Authorization", "Bearer " + e.a.Bearer, "Expect", secret},
			{"Authorization", "Bearer " + e.a.Bearer, "X-Idempotency-Key", "not allowed " + secret},
			{"Authorization", "Bearer " + e.Fleet.Bearer, "Content-Type", "text/" + secret},
		}

		for j, r := range e.misplaced(t, secret) {
			// Some of it no client lets pass, and some ends the connection.
			_, _ = e.try(t, r[0], r[1], r[2], headers[(i+j)%len(headers)]...)
			if i < 5 {
				_, _ = e.try(t, r[0], r[1], r[2], headers[(i+j+3)%len(headers)]...)
			}
		}

		if i >= 5 {
			continue // checking passwords takes time
		}

		form := url.Values{"user": {secret}, "password": {secret}, "next": {"/" + secret}, "csrf": {secret}}.Encode()
		for _, path := range []string{"/login", "/logout", "/accounts"} {
			e.ask(t, http.MethodPost, e.Demo.PanelURL+path, form, "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html")
		}
	}
}

// misplaced are requests, by method, URL and body, with a secret in a place for
// something else.
func (e *env) misplaced(t *testing.T, secret string) [][3]string {
	t.Helper()
	in := url.QueryEscape(secret)
	encoded, err := json.Marshal(secret)
	must(t, err)
	text := string(encoded)
	vendor, fleet, admin, panel := e.root("vendor"), e.root("fleet"), e.root("admin"), e.Demo.PanelURL

	return [][3]string{
		{"GET", vendor + "/orders/" + in, ""},
		{"GET", vendor + "/orders?access_token=" + in, ""},
		{"POST", vendor + "/token?clientSecret=" + in, "{}"},
		{"POST", vendor + "/token", `{"clientId":` + text + `,"clientSecret":` + text + `}`},
		{"POST", vendor + "/token", `{"clientId":"ven_x","clientSecret":` + text},
		{"POST", vendor + "/token", secret},
		{"POST", vendor + "/orders", `{"recipient":` + text + `}`},
		{"POST", vendor + "/" + in, "{}"},
		{"PUT", vendor + "/webhook", `{"url":` + text + `}`},
		{"POST", fleet + "/token", `{"clientId":` + text + `,"clientSecret":1}`},
		{"GET", fleet + "/jobs/" + in + "?cursor=" + in, ""},
		{"GET", fleet + "/jobs?status=" + in, ""},
		{"GET", fleet + "/jobs?cursor=" + in, ""},
		{"POST", fleet + "/jobs/" + in + "/status", secret},
		{"GET", admin + "/accounts/" + in, ""},
		{"POST", admin + "/accounts", `{"limits":` + text + `}`},
		{"GET", panel + "/overview?token=" + in, ""},
		{"GET", panel + "/login?next=" + in, ""},
		{"GET", panel + "/track/" + in, ""},
		{"GET", panel + "/reports/" + in + "?from=" + in, ""},
		{"BREW", e.Demo.BaseURL + "/" + in, ""},
	}
}

// outage stops Redis while requests go on.
func (e *env) outage(t *testing.T, k *known) {
	t.Helper()
	e.Redis.Kill()
	for _, api := range []string{"vendor", "fleet", "admin"} {
		own := map[string]string{"vendor": e.a.Bearer, "fleet": e.Fleet.Bearer, "admin": e.Demo.AdminKey}[api]
		for _, r := range apiRoutes[api][:4] {
			_, _ = e.try(t, r.method, e.root(api)+e.filled(r.path), r.body, "Authorization", "Bearer "+own)
		}
	}

	for _, login := range [][2]string{{e.a.ClientID, e.a.ClientSecret}, {e.a.ClientID, "vas_wrong"}} {
		_, _ = e.a.Do(t.Context(), http.MethodPost, "/token", map[string]string{"clientId": login[0], "clientSecret": login[1]})
	}

	cookie := "panel=" + k.one("a session's id")
	for _, path := range []string{"/overview", "/accounts", "/track/" + k.one("a tracking link"), "/payments"} {
		_, _ = e.try(t, http.MethodGet, e.Demo.PanelURL+path, "", "Cookie", cookie)
	}

	form := url.Values{"user": {operator.name}, "password": {operator.password}}.Encode()
	_, _ = e.try(t, http.MethodPost, e.Demo.PanelURL+"/login", form, "Content-Type", "application/x-www-form-urlencoded")
	must(t, e.Redis.Start(t.Context()))
	must(t, e.Gateway.AwaitReady(t.Context()))
}

// crash kills all programs and starts them again.
func (e *env) crash(t *testing.T) {
	t.Helper()
	for _, p := range []*stack.Program{e.Gateway, e.Worker, e.Reporting} {
		p.Kill()
	}
	for _, p := range []*stack.Program{e.Gateway, e.Worker, e.Reporting} {
		must(t, p.Start(t.Context()))
	}
}

// searchFiles looks through everything below the data directory. Left out are the
// files that are there to hold secrets, which must be their owner's alone, and the
// programs themselves.
func (e *env) searchFiles(t *testing.T, k *known) {
	t.Helper()
	aof, logs := 0, 0
	err := filepath.WalkDir(e.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}

		name, err := filepath.Rel(e.dir, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}

		top, _, _ := strings.Cut(name, string(filepath.Separator))
		switch {
		case top == "keys" || strings.HasPrefix(name, "demo."):
			if info.Mode().Perm()&0o077 != 0 && !entry.IsDir() && info.Size() > 0 && !strings.HasPrefix(filepath.Base(path), "panel-") {
				t.Errorf("%s may be read by others: %v", name, info.Mode())
			}
			return nil
		case !info.Mode().IsRegular() || top == "bin":
			return nil
		}

		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		switch {
		case strings.HasSuffix(name, ".aof"):
			aof += len(content)
			k.searchExcept(t, name, content, "a key in a webhook's URL") // which is needed to send
			k.hashed(t, content)
			return nil
		case top == "logs" || strings.HasSuffix(name, ".log"):
			logs += len(content)
			noRecipient(t, name, content)
		}

		k.search(t, name, content)

		return nil
	})

	must(t, err)
	if aof < 10_000 || logs < 10_000 {
		t.Errorf("only %d bytes of Redis' file and %d of logs were searched", aof, logs)
	}
}
