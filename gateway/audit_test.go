package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// audited are the entries as they are exported, oldest first: of each ID the last version.
func (e *env) audited() []*audit.Entry {
	e.Helper()
	latest := map[string]*audit.Entry{}
	err := e.ledger.Streams.EachEntry(e.Context(), ledger.RoleExport, time.Time{}, func(batch []partitions.Entry) error {
		for _, one := range batch {
			if a := one.Audit; a != nil && (latest[a.ID] == nil || latest[a.ID].Version < a.Version) {
				latest[a.ID] = a
			}
		}
		return nil
	})
	if err != nil {
		e.Fatal(err)
	}

	var all []*audit.Entry
	for _, a := range latest {
		all = append(all, a)
	}

	slices.SortFunc(all, func(a, b *audit.Entry) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) })

	return all
}

// lastAudited is the newest entry, and how many there are.
func (e *env) lastAudited() (*audit.Entry, int) {
	e.Helper()
	all := e.audited()
	if len(all) == 0 {
		return new(audit.Entry), 0
	}
	return all[len(all)-1], len(all)
}

const ayseKey = "adm_a-key-that-only-ayse-has"

func namedKey(name, key string) operatorKey {
	return operatorKey{name: name, digest: sha256.Sum256([]byte(key))}
}

// Every request of the admin API that may change something leaves an entry, whatever the log
// level; one that only reads leaves none.
func TestAudit_EveryChangeOfTheAdminAPIIsNoted(t *testing.T) {
	e := newEnv(t, func(s *settings) { s.Log.Level = "error" }).withStore("")
	e.receiver(e.account)
	e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id))
	e.putStore(e.account, "s3", storeBody(kadikoy, e.courier.id))
	account, fleet := "/accounts/"+e.account.id, "/fleets/"+e.courier.id
	hook, polygon := webhookPath(e.account), istanbul
	requests := map[string]struct{ path, body, action string }{
		"admin_accounts_create":    {"/accounts", `{"name":"Yeni"}`, "account created"},
		"admin_accounts_change":    {account, `{"name":"Başka"}`, "account changed"},
		"admin_credentials_rotate": {account + "/credentials", "", "client secret rotated"},
		"admin_webhook_put":        {hook, `{"url":"https://hooks.example.com/b?key=hidden"}`, "webhook registered"},
		"admin_webhook_change":     {hook, `{"maxInFlight":3}`, "webhook limits changed"},
		"admin_webhook_rotate":     {hook + "/rotate", "", "webhook secret rotated"},
		"admin_webhook_replay":     {hook + "/replay", since(time.Now().Add(-time.Hour)), "events replayed"},
		"admin_webhook_test":       {hook + "/test", "", "webhook test queued"},
		"admin_stores_confirm":     {account + "/stores/s2/confirm", "", "store confirmed for its fleet"},
		"admin_stores_reject":      {account + "/stores/s3/reject", "", "store rejected for its fleet"},
		"admin_stores_migrate":     {account + "/stores/s1/migrate", `{"closingDate":"2099-01-01"}`, "store migrating"},
		"admin_stores_deactivate":  {account + "/stores/s2/deactivate", `{"reason":"VendorRequest"}`, "store deactivated"},
		"admin_fleets_create":      {"/fleets", `{"name":"F","avgDeliveryMinutes":20,"subRegion":"R","coverage":` + polygon + `}`, "fleet created"},
		"admin_fleets_change":      {fleet, `{"requestsPerSecond":7}`, "fleet changed"},
		"admin_fleets_credentials": {fleet + "/credentials", "", "client secret rotated"},
		"admin_fleets_overdue":     {fleet + "/payment-overdue", "", "payment overdue announced"},

		"admin_finance_webhook_put":    {"/finance/webhook", `{"url":"https://erp.example.com/b?key=hidden"}`, "webhook registered"},
		"admin_finance_announce":       {"/finance/reports/available", reportBody(), "report announced"},
		"admin_finance_webhook_delete": {"/finance/webhook", "", "webhook deleted"},
	}

	for _, r := range adminRoutes() {
		_, before := e.lastAudited()
		if r.method == get {
			continue
		}

		request, known := requests[r.name]
		if !known {
			t.Errorf("%s: this test does not know it", r.name)
			continue
		}

		want(t, e.tryAdmin(r.method, request.path, request.body), 200, "")
		if last, n := e.lastAudited(); n != before+1 || last.Action != request.action || last.Outcome != "" ||
			strings.Contains(request.path, e.account.id) != (last.Account.String() == e.account.id) ||
			strings.Contains(request.path, e.courier.id) != (last.Fleet.String() == e.courier.id) ||
			last.Actor != "ADMIN_KEY" || last.Address != "127.0.0.1" || !requestIDs.MatchString(last.RequestID) || time.Since(last.At) > time.Hour {
			t.Errorf("%s: %d entries more, the last %+v", r.name, n-before, last)
		}
	}

	_, before := e.lastAudited()
	for _, path := range []string{"/accounts", account, "/webhooks", hook, hook + "/deliveries", "/fleets"} {
		want(t, e.tryAdmin("GET", path, ""), 200, "")
	}

	if _, n := e.lastAudited(); n != before {
		t.Errorf("reading made %d entries", n-before)
	}

	for _, a := range e.audited() {
		if text := fmt.Sprintf("%+v", a); strings.Contains(text, "hidden") || strings.Contains(text, "vas_") || strings.Contains(text, "fls_") || strings.Contains(text, "whsec_") {
			t.Errorf("a secret in %s", text)
		}
	}
}

func TestAudit_SaysWhatWasChangedAndWhatCameOfIt(t *testing.T) {
	e := newStoreEnv(t, "")
	for _, c := range []struct {
		method, path, body  string
		status              int
		old, changed, fails string
	}{
		{"PUT", webhookPath(e.account), `{"url":"https://a.example.com/x?token=t"}`, 200, "", `{"sha256":"9215c197…","url":"https://a.example.com/…"}`, ""},
		{"PUT", webhookPath(e.account), `{"url":"https://b.example.com/"}`, 200, `{"sha256":"9215c197…","url":"https://a.example.com/…"}`, `{"sha256":"4b5d3b0f…","url":"https://b.example.com"}`, ""},
		{"PATCH", webhookPath(e.account), `{"maxInFlight":4}`, 200, `{"maxInFlight":0}`, `{"maxInFlight":4}`, ""},
		{"PATCH", webhookPath(e.account), `{"maxInFlight":null,"maxPerSecond":9}`, 200, `{"maxInFlight":4,"maxPerSecond":0}`, `{"maxInFlight":0,"maxPerSecond":9}`, ""},
		{"PATCH", "/accounts/" + e.account.id, `{}`, 200, "", "", ""},
		{"PATCH", "/fleets/" + e.courier.id, `{"coverage":` + ankaraArea + `}`, 200, "SHA-256", "SHA-256", ""},
		{"POST", "/accounts/" + e.account.id + "/stores/s1/migrate", `{"closingDate":"2099-01-01"}`, 200, "", `{"closingDate":"2099-01-01"}`, ""},
		{"POST", "/accounts/" + e.account.id + "/stores/s1/deactivate", `{"reason":"VendorRequest"}`, 200, `{"closingDate":"2099-01-01","status":"Active"}`, `{"status":"Deactivated"}`, ""},
		{"POST", "/accounts/" + delivery.NewAccountID().String() + "/credentials", `{"revokeOld":true}`, 404, "", `{"revokeOld":true}`, "ACCOUNT_NOT_FOUND"},
	} {
		_, before := e.lastAudited()
		if a := e.tryAdmin(c.method, c.path, c.body); a.status != c.status {
			t.Fatalf("%s: %s", c.path, a.body)
		}

		last, n := e.lastAudited()
		right := last.Old == c.old && last.New == c.changed
		if c.old == "SHA-256" {
			right = strings.Contains(last.Old, c.old) && strings.Contains(last.New, c.old) && last.Old != last.New
		}

		if n != before+1 || !right || last.Outcome != c.fails {
			t.Errorf("%s %s: %d entries more, the last %+v", c.path, c.body, n-before, last)
		}
	}

	for _, refused := range [][2]string{{"/accounts/" + e.account.id, `{"name":""}`}, {"/accounts/" + delivery.NewAccountID().String(), `{}`}, {"/accounts/x", `{}`}} {
		_, before := e.lastAudited()
		e.tryAdmin("PATCH", refused[0], refused[1])
		if _, n := e.lastAudited(); n != before {
			t.Errorf("%v changed nothing, and is noted", refused)
		}
	}
}

func TestAudit_OfAVendorsWebhook(t *testing.T) {
	e := newEnv(t)
	e.account = e.newAccount("")
	want(t, e.call("PUT", "/webhook", `{"url":"https://a.example.com/x?token=t"}`), 200, "")
	last, n := e.lastAudited()
	if last.Action != "webhook registered" || last.Actor != e.account.clientID || last.Credential != "token" || last.Account.String() != e.account.id ||
		last.New != `{"sha256":"9215c197…","url":"https://a.example.com/…"}` || last.Address != "127.0.0.1" {
		t.Errorf("%+v", last)
	}

	want(t, e.call("POST", "/webhook/test", ""), 200, "")
	want(t, e.call("GET", "/webhook", ""), 200, "")
	want(t, e.call("DELETE", "/webhook", ""), 200, "")
	if last, now := e.lastAudited(); now != n+1 || last.Action != "webhook deleted" || last.Old != `{"sha256":"9215c197…","url":"https://a.example.com/…"}` || last.New != "" {
		t.Errorf("%d entries more, the last %+v", now-n, last)
	}

	want(t, e.call("DELETE", "/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
	if last, _ := e.lastAudited(); last.Outcome != "WEBHOOK_NOT_CONFIGURED" {
		t.Errorf("%+v", last)
	}
}

// What cannot be noted is not done.
func TestAudit_NothingIsChangedThatCannotBeNoted(t *testing.T) {
	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		stack.GatewayUser: "g", stack.WorkerUser: "w", stack.ReportingUser: "r", stack.BackupUser: "b", stack.OperatorUser: "o"}}})
	e := newEnvOn(t, server, nil).withStore("")
	e.receiver(e.account)
	before := e.admin("GET", "/accounts/"+e.account.id, "").body + e.admin("GET", webhookPath(e.account), "").body
	options, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}

	operator := redis.NewClient(options)
	defer operator.Close()
	testserver.Do(t, operator, "ACL", "SETUSER", stack.GatewayUser, "-xadd")
	for _, c := range [][3]string{
		{"PATCH", "/accounts/" + e.account.id, `{"suspended":true}`}, {"PUT", webhookPath(e.account), `{"url":"https://b.example.com/"}`},
		{"PATCH", webhookPath(e.account), `{"maxInFlight":5}`}, {"POST", "/accounts", `{"name":"Yeni"}`},
	} {
		want(t, e.tryAdmin(c[0], c[1], c[2]), 503, "SERVICE_UNAVAILABLE")
	}

	want(t, e.call("DELETE", "/webhook", ""), 503, "SERVICE_UNAVAILABLE")
	if after := e.admin("GET", "/accounts/"+e.account.id, "").body + e.admin("GET", webhookPath(e.account), "").body; after != before {
		t.Errorf("before %s, after %s", before, after)
	}
	if accounts := e.admin("GET", "/accounts", "").data["accounts"].([]any); len(accounts) != 1 {
		t.Errorf("%d accounts", len(accounts))
	}
}

func TestAudit_NamedKeysSpeakForTheirOperator(t *testing.T) {
	e := newEnv(t)
	e.g.adminKeys = append(e.g.adminKeys, namedKey("ayse", ayseKey))
	account := e.newAccount("")
	change := func(key string, headers ...string) answer {
		r := request{method: "PATCH", url: e.private + "/api/admin/v1/accounts/" + account.id, token: key, body: `{}`, header: map[string]string{}}
		for i := 0; i < len(headers); i += 2 {
			r.header[headers[i]] = headers[i+1]
		}
		return e.send(r)
	}

	ownRequestID := regexp.MustCompile(`^[0-9a-f]{16}$`)
	for _, c := range []struct {
		key                        string
		headers                    []string
		actor, credential, address string
		request                    string
	}{
		{adminKey, nil, "ADMIN_KEY", "ADMIN_KEY", "127.0.0.1", ""},
		{adminKey, []string{"X-Operator", "deniz", "X-Operator-Address", "2001:db8::7", "X-Request-Id", "00112233aabbccdd"}, "deniz", "ADMIN_KEY", "2001:db8::7", "00112233aabbccdd"},
		{adminKey, []string{"X-Operator", "deniz", "X-Operator-Address", "::ffff:192.0.2.1"}, "deniz", "ADMIN_KEY", "192.0.2.1", ""},
		{adminKey, []string{"X-Operator-Address", "fe80::1%eth0", "X-Request-Id", "00112233AABBCCDD"}, "ADMIN_KEY", "ADMIN_KEY", "127.0.0.1", ""},
		{adminKey, []string{"X-Operator-Address", "nowhere", "X-Request-Id", strings.Repeat("a", 17)}, "ADMIN_KEY", "ADMIN_KEY", "127.0.0.1", ""},
		{ayseKey, nil, "ayse", "admin key", "127.0.0.1", ""},
		{ayseKey, []string{"X-Operator", "deniz", "X-Operator-Address", "192.0.2.1", "X-Request-Id", "00112233aabbccdd"}, "ayse", "admin key", "127.0.0.1", ""},
	} {
		want(t, change(c.key, c.headers...), 200, "")
		last, _ := e.lastAudited()
		isOwnID := ownRequestID.MatchString(last.RequestID)
		if last.Actor != c.actor || last.Credential != c.credential || last.Address != c.address || !isOwnID || (last.RequestID == "00112233aabbccdd") != (c.request != "") {
			t.Errorf("%v: %+v", c.headers, last)
		}
	}

	_, before := e.lastAudited()
	e.g.adminKeys = e.g.adminKeys[:1] // the gateway was started without the line
	want(t, change(ayseKey), 401, "TOKEN_INVALID")
	want(t, change(adminKey), 200, "")
	if _, n := e.lastAudited(); n != before+1 {
		t.Errorf("%d entries of one change", n-before)
	}
}

func TestAudit_TokenOfAReplacedSecretOnceAnHour(t *testing.T) {
	e := newStoreEnv(t, "")
	for kind, of := range map[string]party{"vendor": e.account, "fleet": e.courier} {
		path := map[string]string{"vendor": "/accounts/", "fleet": "/fleets/"}[kind] + of.id
		want(t, e.login(kind, of.clientID, of.secret), 200, "")
		fresh := e.admin("POST", path+"/credentials", "").data["clientSecret"].(string)
		_, before := e.lastAudited()
		want(t, e.login(kind, of.clientID, fresh), 200, "")
		want(t, e.login(kind, of.clientID, "wrong"), 401, "INVALID_CREDENTIALS")
		if _, n := e.lastAudited(); n != before {
			t.Errorf("%s: %d entries of the new secret", kind, n-before)
		}

		for range 3 {
			want(t, e.login(kind, of.clientID, of.secret), 200, "")
		}

		if last, n := e.lastAudited(); n != before+1 || last.Action != "token issued for a replaced secret" || last.Actor != of.clientID ||
			last.Credential != "replaced secret" || (last.Account.String() == of.id) == (last.Fleet.String() == of.id) {
			t.Errorf("%s: %d entries, the last %+v", kind, n-before, last)
		}
	}
}

// A flood of guesses makes as many entries as there are addresses and minutes, and no more.
func TestFailedKeys_AreCountedByAddressAndMinute(t *testing.T) {
	t.Parallel()

	e := newQuietEnv(t, testserver.NewRedis(t))
	minute := time.Now().Add(-time.Hour).Truncate(time.Minute)
	for i := range 3 * failedKeysKept {
		e.g.failedKeys.count(minute.Add(time.Second), fmt.Sprintf("192.0.2.%d/32", i))
	}

	e.g.failedKeys.count(minute.Add(time.Minute-1), "192.0.2.1/32")

	for range 2 { // a repetition finds nothing new
		if err := e.g.failedKeys.flush(t.Context(), e.ledger, minute); err != nil {
			t.Fatal(err)
		}
		if _, n := e.lastAudited(); n != 0 {
			t.Errorf("%d entries at the minute's beginning", n)
		}
	}

	for range 2 {
		if err := e.g.failedKeys.flush(t.Context(), e.ledger, minute.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}

	entries := e.audited()
	counts := map[string]string{}
	for _, a := range entries {
		counts[a.Address] = a.New
		if !a.At.Equal(minute) || a.Action != "admin key refused" || a.Actor != "" || a.Outcome != "TOKEN_INVALID" {
			t.Errorf("%+v", a)
		}
	}

	others := fmt.Sprintf(`{"count":%d}`, 2*failedKeysKept)
	if len(entries) != failedKeysKept+1 || counts["192.0.2.1"] != `{"count":2}` || counts["other addresses"] != others {
		t.Errorf("%d entries: %v", len(entries), counts)
	}
}

// Guesses of the minutes that were not over yet are noted at the end.
func TestFailedKeys_AreNotedAtAnOrderlyEnd(t *testing.T) {
	e := newEnv(t)
	began := time.Now()
	for range 30 {
		want(t, e.send(request{method: "GET", url: e.private + "/api/admin/v1/accounts", token: "a-guess-of-some-length"}), 401, "TOKEN_INVALID")
	}

	minutes := int(time.Since(began.Truncate(time.Minute))/time.Minute) + 1
	if !strings.Contains(e.get(e.private+"/metrics", "").body, "\ngateway_admin_key_failures_total 30\n") {
		t.Error("the metrics do not count them")
	}

	e.stop()

	entries, sum := e.audited(), 0
	for _, a := range entries {
		var noted struct{ Count int }
		if err := json.Unmarshal([]byte(a.New), &noted); err != nil || a.Address != "127.0.0.1" || a.Action != "admin key refused" {
			t.Errorf("%+v, %v", a, err)
		}
		sum += noted.Count
	}

	if sum != 30 || len(entries) > minutes {
		t.Errorf("30 guesses in %d minutes are noted as %d in %d entries", minutes, sum, len(entries))
	}
}

func TestAdminKeys_AreReadOrRefused(t *testing.T) {
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(ayseKey)))
	other := strings.Repeat("0", 64)
	for text, wanted := range map[string]string{
		"ayse:sha256:" + digest: "ayse",
		"# keys\n\n ayse:sha256:" + digest + "\r\nk.w+x@y:sha256:" + other + "\n": "ayse k.w+x@y",
		"ayse:sha256:" + digest + "\nayse:sha256:" + other:                        "line 2: want name:sha256:",
		"ayse:sha256:" + digest + "\ndeniz:sha256:" + digest:                      "line 2: want name:sha256:",
		"\nayse:sha256:" + digest[1:]:                                             "line 2: want name:sha256:",
		"ayse:sha256:" + strings.ToUpper(digest):                                  "line 1: want name:sha256:",
		"ayse:" + ayseKey:                                                         "line 1: want name:sha256:",
		"Ayşe:sha256:" + digest:                                                   "line 1: want name:sha256:",
		":sha256:" + digest:                                                       "line 1: want name:sha256:",
		"ayse:operator:sha256:" + digest:                                          "line 1: want name:sha256:",
		strings.Repeat("a", 65) + ":sha256:" + digest:                             "line 1: want name:sha256:",
	} {
		t.Setenv(adminKeysVariable, text)
		keys, err := readAdminKeys()
		var names []string
		for _, key := range keys {
			names = append(names, key.name)
		}

		if got := strings.Join(names, " "); err == nil && got != wanted || err != nil && !strings.Contains(err.Error(), wanted) ||
			err != nil && (strings.Contains(err.Error(), ayseKey) || strings.Contains(err.Error(), digest)) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}

	t.Setenv(adminKeysVariable, "")
	if keys, err := readAdminKeys(); keys != nil || err != nil {
		t.Errorf("without any: %v, %v", keys, err)
	}

	file := filepath.Join(t.TempDir(), "admin-keys")
	t.Setenv(adminKeysVariable+"_FILE", file)
	if _, err := readAdminKeys(); err == nil {
		t.Error("a file that is not there has no keys")
	}

	for _, text := range []string{"", "\n", "\n\n", "# none\n"} { // the last one was taken back
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if keys, err := readAdminKeys(); keys != nil || err != nil {
			t.Errorf("in a file with %q: %v, %v", text, keys, err)
		}
	}
}

// A URL's path, query and credentials may all be secrets, and the audit trail is kept for years.
func TestAudit_ShowsNothingOfAURLThatMayBeSecret(t *testing.T) {
	for address, want := range map[string]string{
		"https://hooks.example/T0/B0/geheim":  "https://hooks.example/…",
		"https://hooks.example/?key=geheim":   "https://hooks.example/…",
		"https://geheim:geheim@hooks.example": "https://hooks.example/…",
		"https://hooks.example/%67eheim#x":    "https://hooks.example/…",
		"https://hooks.example:8443/":         "https://hooks.example:8443",
		"https://hooks.example":               "https://hooks.example",
	} {
		shown, _ := withoutSecrets(address).(map[string]string)
		if shown["url"] != want || len(shown["sha256"]) != len("01234567…") || strings.Contains(fmt.Sprint(shown), "geheim") {
			t.Errorf("%s is shown as %v, want %s", address, shown, want)
		}
	}

	if withoutSecrets("") != nil {
		t.Error("no URL is shown as one")
	}

	first, second := fmt.Sprint(withoutSecrets("https://a.example/1")), fmt.Sprint(withoutSecrets("https://a.example/2"))
	if first == second {
		t.Errorf("two URLs are both %s", first)
	}
}
