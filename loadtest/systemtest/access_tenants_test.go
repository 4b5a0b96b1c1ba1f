package systemtest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
)

// crossings try an endpoint from another account or fleet, by the route's name.
// Each is called once, in the order of the names, and leaves everybody's things
// as they were.
var crossings = map[string]func(*testing.T, *env){}

// Here and not above: the functions use the table of the routes, which is
// compared with this one.
func init() {
	maps.Copy(crossings, map[string]func(*testing.T, *env){
		"orders_create": crossCreate, "orders_read": crossRead, "orders_cancel": crossCancel,
		"stores_put": crossStores, "token": crossToken,
		"webhook_put": crossWebhookPut, "webhook_read": crossWebhookRead, "webhook_delete": crossWebhookDelete,
		"webhook_test": crossWebhookTest, "webhook_replay": crossWebhookReplay,
		"fleet_stores_list": crossFleetStores, "fleet_stores_confirm": crossConfirm, "fleet_stores_reject": crossReject,
		"fleet_jobs_list": crossJobs, "fleet_jobs_read": crossJob, "fleet_jobs_accept": crossAccept,
		"fleet_jobs_status": crossStatus, "fleet_jobs_courier": crossCourier, "fleet_locations": crossLocations,
		"fleet_availability": crossAvailability, "fleet_token": crossFleetToken,
	})
}

// testTenants: for a vendor another vendor's things are not there, and for a
// fleet another fleet's are not, down to the bytes of the answer.
func testTenants(t *testing.T, e *env) {
	for _, name := range slices.Sorted(maps.Keys(crossings)) {
		t.Run(name, func(t *testing.T) { crossings[name](t, e) })
	}

	// The owners have been answered by every endpoint, so what was tried is what
	// works for them.
	answered := e.answered(t)
	for name := range crossings {
		if !slices.ContainsFunc(answered[name], func(code string) bool { return strings.HasPrefix(code, "20") }) {
			t.Errorf("%s has answered nobody with success, only %v", name, answered[name])
		}
	}

	// Every webhook has come to its owner and to nobody else.
	a, b := e.a.events(), e.b.events()
	if len(a) == 0 || len(b) == 0 {
		t.Errorf("%d webhooks of one vendor and %d of the other", len(a), len(b))
	}

	for _, got := range a {
		if e.b.has(got.EventID) {
			t.Errorf("event %s (%s) has come to both vendors", got.EventID, got.Event)
		}
	}
}

// unknownTo asks for somebody else's thing and for one that does not exist, and
// fails unless both are refused with the code in the same bytes.
func unknownTo(t *testing.T, c *client.Client, code, method, path, theirs, nothing string, body any) {
	t.Helper()
	for range 2 { // again at once: a limit per order would disclose that there is one
		x := as(t, c, method, strings.ReplaceAll(path, "{}", theirs), body)
		y := as(t, c, method, strings.ReplaceAll(path, "{}", nothing), body)
		if x.Code != code {
			t.Errorf("%s %s: %d %s", method, path, x.Status, x.Raw)
		}
		alike(t, method+" "+path, replyOf(x), replyOf(y))
	}
}

func crossCreate(t *testing.T, e *env) {
	const key = "X-Idempotency-Key"
	same := e.a.Order(func(o map[string]any) { o["externalOrderId"] = "SHARED-1" })
	var ofA, ofB struct{ OrderID string }
	first := succeeds(t, e.a.Client, http.MethodPost, "/orders", same, &ofA, key, "K-1")
	second := succeeds(t, e.b.Client, http.MethodPost, "/orders", same, &ofB, key, "K-1")
	if ofA.OrderID == ofB.OrderID || second.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the same key and id of two accounts made %s and %s", first.Raw, second.Raw)
	}

	// The other's key with another body conflicts with nothing.
	succeeds(t, e.a.Client, http.MethodPost, "/orders", e.a.Order(nil), nil, key, "ONLY-A")
	fresh := e.b.Order(func(o map[string]any) { o["externalOrderId"] = "SHARED-2" })
	succeeds(t, e.b.Client, http.MethodPost, "/orders", fresh, nil, key, "ONLY-A")
	// Each account's replay is its own answer.
	for v, before := range map[*vendor]*client.Answer{e.a: first, e.b: second} {
		again := succeeds(t, v.Client, http.MethodPost, "/orders", same, nil, key, "K-1")
		if string(again.Raw) != string(before.Raw) || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a replay answers %s instead of %s", again.Raw, before.Raw)
		}
	}

	// A duplicate names the account's own order.
	double := as(t, e.b.Client, http.MethodPost, "/orders", same)
	var detail struct{ OrderID string }
	must(t, json.Unmarshal(double.Data, &detail))
	if double.Code != "DUPLICATE_ORDER" || detail.OrderID != ofB.OrderID {
		t.Errorf("a used external id: %s", double.Raw)
	}

	// A store that only the other has is none.
	succeeds(t, e.a.Client, http.MethodPut, "/stores/only-a", stack.StoreBody(e.Demo.Fleet.FleetID), nil)
	succeeds(t, e.Fleet, http.MethodPost, "/stores/"+e.a.AccountID+"/only-a/confirm", nil, nil)
	at := func(store string) *reply {
		a := as(t, e.b.Client, http.MethodPost, "/orders", e.b.Order(func(o map[string]any) {
			o["externalStoreId"], o["externalOrderId"] = store, "NOWHERE"
		}))
		return replyOf(a)
	}

	theirs := at("only-a")
	if theirs.code() != "STORE_NOT_CONFIGURED" {
		t.Errorf("an order for another account's store: %d %s", theirs.status, theirs.body)
	}

	theirs.body = bytes.ReplaceAll(theirs.body, []byte("only-a"), []byte("only-x")) // the asker's own word
	alike(t, "another account's store", theirs, at("only-x"))
}

func crossRead(t *testing.T, e *env) {
	unknownTo(t, e.b.Client, "ORDER_NOT_FOUND", http.MethodGet, "/orders/{}", e.a.pending, unknownOrder, nil)
	// The others' asking has not used up the owner's one read in 10 s.
	succeeds(t, e.a.Client, http.MethodGet, "/orders/"+e.a.pending, nil, nil)
	unknownTo(t, e.b.Client, "ORDER_NOT_FOUND", http.MethodGet, "/orders/{}", e.a.pending, unknownOrder, nil)
}

func crossCancel(t *testing.T, e *env) {
	mine := e.a.Create(t, nil)
	for _, body := range []any{nil, map[string]string{"reason": "CustomerRequest"}} {
		unknownTo(t, e.b.Client, "ORDER_NOT_FOUND", http.MethodPost, "/orders/{}/cancel", mine, unknownOrder, body)
	}

	var after struct{ Status string }
	succeeds(t, e.a.Client, http.MethodGet, "/orders/"+mine, nil, &after)
	if after.Status != "Searching" {
		t.Errorf("another account's cancel made the order %s", after.Status)
	}

	succeeds(t, e.a.Client, http.MethodPost, "/orders/"+mine+"/cancel", nil, nil)
	unknownTo(t, e.b.Client, "ORDER_NOT_FOUND", http.MethodPost, "/orders/{}/cancel", mine, unknownOrder, nil)
}

// storeOf is what the demo's fleet sees of an account's store.
func (e *env) storeOf(t *testing.T, v *vendor, id string) string {
	t.Helper()
	var list struct{ Stores []json.RawMessage }
	succeeds(t, e.Fleet, http.MethodGet, "/stores", nil, &list)
	for _, raw := range list.Stores {
		if strings.Contains(string(raw), v.AccountID) && strings.Contains(string(raw), `"`+id+`"`) {
			return string(raw)
		}
	}
	return ""
}

func crossStores(t *testing.T, e *env) {
	before := e.storeOf(t, e.a, e.a.Store)
	change := map[string]any{"name": "Öteki Şube", "phone": "02125550099"}
	succeeds(t, e.b.Client, http.MethodPut, "/stores/"+e.a.Store, change, nil)
	if after := e.storeOf(t, e.a, e.a.Store); after != before || before == "" {
		t.Errorf("another account's store of the same id changed\n%s\ninto\n%s", before, after)
	}
	if own := e.storeOf(t, e.b, e.b.Store); !strings.Contains(own, "Öteki Şube") {
		t.Errorf("the account's own store is %s", own)
	}

	// What only the other has registered begins again: nothing of it is kept.
	succeeds(t, e.a.Client, http.MethodPut, "/stores/secret-a", stack.StoreBody(e.Demo.Fleet.FleetID), nil)
	unknown := as(t, e.b.Client, http.MethodPut, "/stores/never-seen", change)
	theirs := as(t, e.b.Client, http.MethodPut, "/stores/secret-a", change)
	if theirs.Code != "VALIDATION_FAILED" {
		t.Errorf("%d %s", theirs.Status, theirs.Raw)
	}

	alike(t, "a store of another account", replyOf(theirs), replyOf(unknown))
}

// crossLogin: one party's secret with another's id is as wrong as an id that
// nobody has.
func crossLogin(t *testing.T, c *client.Client, id, secret, nobodys string) {
	t.Helper()
	try := func(id string) *reply {
		a := as(t, c, http.MethodPost, "/token", map[string]string{"clientId": id, "clientSecret": secret})
		return replyOf(a)
	}

	theirs := try(id)
	if theirs.status != http.StatusUnauthorized || theirs.code() != "INVALID_CREDENTIALS" {
		t.Errorf("another's secret: %d %s", theirs.status, theirs.body)
	}

	alike(t, "an unknown client", theirs, try(nobodys))
}

func crossToken(t *testing.T, e *env) {
	crossLogin(t, e.a.Client, e.a.ClientID, e.b.ClientSecret, "ven_00000000000040008000000000000000")
	crossLogin(t, e.a.Client, e.a.ClientID, e.Demo.Fleet.ClientSecret, e.Demo.Fleet.ClientID)
}

// webhookOf is a vendor's webhook as its operator sees it, without what changes
// by itself.
func (e *env) webhookOf(t *testing.T, v *vendor) (url, status string) {
	t.Helper()
	var w struct{ URL, Status string }
	succeeds(t, e.Admin, http.MethodGet, "/accounts/"+v.AccountID+"/webhook", nil, &w)
	return w.URL, w.Status
}

// undisturbed fails unless a webhook of a is what it was.
func (e *env) undisturbed(t *testing.T) {
	t.Helper()
	if url, status := e.webhookOf(t, e.a); url != e.a.url || status != "healthy" {
		t.Errorf("the other vendor's webhook became %s, %s", url, status)
	}
}

func crossWebhookPut(t *testing.T, e *env) {
	var moved struct{ URL, Secret string }
	succeeds(t, e.b.Client, http.MethodPut, "/webhook", map[string]string{"url": e.a.url}, &moved)
	if moved.Secret != "" || moved.URL != e.a.url {
		t.Errorf("moving a webhook to where another has its own answers %+v", moved)
	}

	e.undisturbed(t)
	succeeds(t, e.b.Client, http.MethodPut, "/webhook", map[string]string{"url": e.b.url}, nil)
	if e.a.secret == e.b.secret {
		t.Error("two vendors sign with one secret")
	}
}

func crossWebhookRead(t *testing.T, e *env) {
	own := succeeds(t, e.b.Client, http.MethodGet, "/webhook", nil, nil)
	if text := string(own.Raw); !strings.Contains(text, e.b.url) || strings.Contains(text, e.a.url) || strings.Contains(text, "whsec_") {
		t.Errorf("a vendor sees %s", text)
	}
}

func crossWebhookDelete(t *testing.T, e *env) {
	third := newVendor(t, e.stackEnv)
	succeeds(t, third.Client, http.MethodDelete, "/webhook", nil, nil)
	if gone := as(t, third.Client, http.MethodGet, "/webhook", nil); gone.Code != "WEBHOOK_NOT_CONFIGURED" {
		t.Errorf("after the deletion: %d %s", gone.Status, gone.Raw)
	}
	e.undisturbed(t)
}

func crossWebhookTest(t *testing.T, e *env) {
	var queued struct{ EventID string }
	succeeds(t, e.b.Client, http.MethodPost, "/webhook/test", nil, &queued)
	await(t, "the test event has come", func() bool { return e.b.has(queued.EventID) })
	if e.a.has(queued.EventID) {
		t.Error("another vendor's test event has come, too")
	}

	// One vendor's receiver in trouble is nobody else's trouble.
	e.b.down.Store(true)
	succeeds(t, e.b.Client, http.MethodPost, "/webhook/test", nil, nil)
	await(t, "the endpoint fails", func() bool { _, status := e.webhookOf(t, e.b); return status != "healthy" })
	e.undisturbed(t)
	e.b.down.Store(false)
	// A failed test event is tried again in 10 s; another one shows sooner that
	// the receiver is well.
	succeeds(t, e.b.Client, http.MethodPost, "/webhook/test", nil, nil)
	await(t, "the endpoint is healthy", func() bool { _, status := e.webhookOf(t, e.b); return status == "healthy" })
}

func crossWebhookReplay(t *testing.T, e *env) {
	activated := func(v *vendor) int {
		n := 0
		for _, e := range v.events() {
			if e.Event == "store.activated" {
				n++
			}
		}
		return n
	}

	before, own := activated(e.a), activated(e.b)
	var queued struct{ Events int }
	since := map[string]string{"since": time.Now().Add(-time.Hour).Format(time.RFC3339)}
	succeeds(t, e.b.Client, http.MethodPost, "/webhook/replay", since, &queued)
	await(t, "the vendor's own events come again", func() bool { return activated(e.b) > own })
	if after := activated(e.a); after != before {
		t.Errorf("another vendor's replay sent %d events to this one", after-before)
	}
}

// testOwnPorts: a vendor of the sandbox names what the system itself listens on as
// its receiver, such as a statement to the embedded ClickHouse, which needs its
// key for that besides.
func testOwnPorts(t *testing.T, e *env) {
	const statement = "INSERT INTO delivery.schema_migrations SELECT * FROM delivery.schema_migrations"
	own := []string{e.Demo.ClickHouseURL, e.Demo.BaseURL, e.Demo.OpsURL, e.Demo.PanelURL, e.Redis.URL, e.ClickHouseURL()}
	v := e.Vendor(t, stack.Unlimited)
	for _, origin := range own {
		u, err := url.Parse(origin)
		must(t, err)
		v.SetWebhook(t, "http://localhost:"+u.Port()+"/?query="+url.QueryEscape(statement))
		var sent struct{ EventID string }
		must(t, v.Call(t.Context(), http.MethodPost, "/webhook/test", nil, &sent))
		var seen struct {
			LastAttempts []struct{ EventID, Error string }
		}
		await(t, "the attempt", func() bool {
			must(t, v.Call(t.Context(), http.MethodGet, "/webhook", nil, &seen))
			return len(seen.LastAttempts) > 0 && seen.LastAttempts[0].EventID == sent.EventID
		})

		if got := seen.LastAttempts[0].Error; got != "refused address: one of the service's own ports" {
			t.Errorf("%s: %s", origin, got)
		}

		must(t, v.Call(t.Context(), http.MethodDelete, "/webhook", nil, nil))
	}

	if r := e.ask(t, http.MethodPost, e.Demo.ClickHouseURL, statement); r.status != http.StatusForbidden {
		t.Errorf("changed without the key: %d %s", r.status, r.body)
	}
	if r := e.ask(t, http.MethodPost, e.Demo.ClickHouseURL, "SELECT 1"); r.status != http.StatusOK {
		t.Errorf("reading needs a key: %d %s", r.status, r.body)
	}
}
