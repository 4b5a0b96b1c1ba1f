package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

//rule:what-the-service-does/2 what-the-service-does/facts-that/fleet-discovery-is-returned-inside response-envelope/success response-envelope/data
//rule:store/response-fields/status store/response-fields/subRegion store/response-fields/availableFleets store/fleet-option/fleetId
//rule:store/fleet-option/name store/fleet-option/status store/fleet-option/avgDeliveryMinutes
//rule:store-states/states-awaitingfleet-awaitingfleetapproval-active store-states/new-or-existing-without-fleet-to-awaitingfleet
//rule:put-stores-externalstoreid/response-without-an-attached-fleet states/a-put-without-fleetid-on decisions/fleet-option-status
func TestPutStore_ListsTheFleetsThatServeIt(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount("")
	beta, alpha := w.newFleet("Beta", istanbul), w.newFleet("Alpha", istanbul)
	w.newFleet("Ankara", ankaraArea)
	w.admin("PATCH", "/fleets/"+beta.id, `{"suspended":true}`)
	a := w.putStore(account, "s1", storeBody(kadikoy, ""))
	want := fmt.Sprintf(`{"success":true,"data":{"status":"AwaitingFleet","subRegion":"Alpha region","availableFleets":[`+
		`{"fleetId":"%s","name":"Alpha","status":"Available","avgDeliveryMinutes":25},`+
		`{"fleetId":"%s","name":"Beta","status":"Unavailable","avgDeliveryMinutes":25}]}}`, alpha.id, beta.id)
	if a.status != 200 || a.body != want || !a.quota() {
		t.Errorf("%d %s\nwant %s", a.status, a.body, want)
	}
	a = w.putStore(account, "s2", storeBody(delivery.Point{Latitude: 38.42, Longitude: 27.14}, ""))
	if want := `{"success":true,"data":{"status":"AwaitingFleet","subRegion":"","availableFleets":[]}}`; a.body != want {
		t.Errorf("where nobody serves: %s", a.body)
	}
}

//rule:what-the-service-does/3 store/request-fields/fleetId store-states/states-awaitingfleet-awaitingfleetapproval-active
//rule:put-stores-externalstoreid/repeating-the-call-with-fleetid decisions/put-with-fleetid
func TestPutStore_WithFleet(t *testing.T) {
	w := newWorld(t)
	account, fleet := w.newAccount(""), w.newFleet("Kurye", istanbul)
	want := fmt.Sprintf(`{"success":true,"data":{"externalStoreId":"ş/1 a","status":"AwaitingFleetApproval","subRegion":"Kurye region",`+
		`"fleet":{"fleetId":"%s","name":"Kurye"}}}`, fleet.id)
	if a := w.putStore(account, "%C5%9F%2F1%20a", storeBody(kadikoy, fleet.id)); a.status != 200 || a.body != want {
		t.Errorf("%d %s", a.status, a.body)
	}
	stored, err := w.ledger().Store(t.Context(), accountID(t, account), "ş/1 a")
	if err != nil || stored.Name != "Branch" || stored.Phone != "2161234567" {
		t.Errorf("%+v, %v", stored, err)
	}
}

//rule:put-stores-externalstoreid/upsert-keyed-by-the-vendor-s decisions/store-fields-required
func TestPutStore_LaterPutsMayOmitFields(t *testing.T) {
	s := newScene(t, "")
	if a := s.putStore(s.account, "s1", `{"phone":"+905551112233"}`); a.status != 200 || a.data["status"] != "Active" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	stored, err := s.ledger().Store(t.Context(), accountID(t, s.account), "s1")
	if err != nil || stored.Phone != "5551112233" || stored.Name != "Branch" || stored.Point != kadikoy {
		t.Errorf("%+v, %v", stored, err)
	}
}

//rule:states/a-put-without-fleetid-on
func TestPutStore_MovingAnActiveStoreAway(t *testing.T) {
	s := newScene(t, "")
	far := s.newFleet("Ankara", ankaraArea)
	if a := s.putStore(s.account, "s1", storeBody(ankara, "")); a.status != 200 || a.data["status"] != "AwaitingFleet" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.order(orderBody("POS-1"), ""); a.code != "STORE_NOT_CONFIGURED" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.putStore(s.account, "s1", `{"fleetId":"`+far.id+`"}`); a.data["status"] != "AwaitingFleetApproval" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

//rule:states/a-put-without-fleetid-on
func TestPutStore_NothingChangedWritesNothing(t *testing.T) {
	s := newScene(t, "")
	read := func() *delivery.Store {
		store, err := s.ledger().Store(t.Context(), accountID(t, s.account), "s1")
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	before := read()
	for _, body := range []string{storeBody(kadikoy, s.courier.id), storeBody(kadikoy, ""), `{}`} {
		if a := s.putStore(s.account, "s1", body); a.status != 200 || a.data["status"] != "Active" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if after := read(); *after != *before {
		t.Errorf("got %+v, want %+v", after, before)
	}
}

func TestPutStore_ConcurrentPutsAreNotLost(t *testing.T) {
	s := newScene(t, "")
	fields := []string{`{"phone":"5550000001"}`, `{"name":"Renamed"}`, `{"taxNumber":"98765432109"}`, `{"address":{"text":"Bahariye Cad. 7"}}`}
	for round := range 5 {
		s.putStore(s.account, "s1", storeBody(kadikoy, ""))
		var group sync.WaitGroup
		for _, body := range fields {
			group.Go(func() {
				if a := s.putStore(s.account, "s1", body); a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
		group.Wait()
		got, err := s.ledger().Store(t.Context(), accountID(t, s.account), "s1")
		if err != nil || got.Phone != "5550000001" || got.Name != "Renamed" || got.TaxNumber != "98765432109" || got.Address != "Bahariye Cad. 7" {
			t.Fatalf("round %d: %+v, %v", round, got, err)
		}
	}
}

//rule:limits/put-stores-id
func TestPutStore_BurstThenOnePerSecond(t *testing.T) {
	s := newScene(t, `{"stores":{"sustained":{"count":60,"seconds":60},"burst":{"count":5,"seconds":10}}}`)
	// One request was spent by the scene; the bucket refills one a second.
	refused := false
	for range 6 {
		a := s.putStore(s.account, "s1", `{}`)
		if !a.quota() {
			t.Errorf("headers = %v", a.header)
		}
		refused = refused || a.status == 429
	}
	if !refused {
		t.Error("the burst has no end")
	}
}

//rule:what-the-service-does/3 store-states/states-awaitingfleet-awaitingfleetapproval-active store-states/awaitingfleetapproval-to-active
//rule:event-types/store.activated fleet-api/get-stores-status-awaitingfleetapproval fleet-api/post-stores-accountid-externalstoreid-confirm
func TestFleetStores_ConfirmOnce(t *testing.T) {
	w := newWorld(t)
	account, fleet, rival := w.newAccount(""), w.newFleet("Kurye", istanbul), w.newFleet("Rival", istanbul)
	w.putStore(account, "s1", storeBody(kadikoy, fleet.id))
	path := "/stores/" + account.id + "/s1"
	pending := w.fleet(fleet, "GET", "/stores?status=AwaitingFleetApproval", "")
	if stores := pending.data["stores"].([]any); len(stores) != 1 || stores[0].(map[string]any)["externalStoreId"] != "s1" ||
		stores[0].(map[string]any)["accountId"] != account.id {
		t.Fatalf("%s", pending.body)
	}
	if a := w.fleet(rival, "POST", path+"/confirm", ""); a.status != 404 || a.code != "STORE_NOT_FOUND" {
		t.Errorf("another fleet confirms: %d %s", a.status, a.body)
	}
	for range 3 {
		if a := w.fleet(fleet, "POST", path+"/confirm", ""); a.status != 200 || a.data["status"] != "Active" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	w.awaitNotices(notices{account.id: {delivery.StoreActivated}})
	if a := w.fleet(fleet, "POST", path+"/reject", ""); a.status != 409 || a.code != "STORE_NOT_PENDING" {
		t.Errorf("reject of an Active store: %d %s", a.status, a.body)
	}
	if stores := w.fleet(fleet, "GET", "/stores?status=AwaitingFleetApproval", "").data["stores"].([]any); len(stores) != 0 {
		t.Errorf("still pending: %v", stores)
	}
	if stores := w.fleet(fleet, "GET", "/stores", "").data["stores"].([]any); len(stores) != 1 {
		t.Errorf("all: %v", stores)
	}
	if stores := w.fleet(rival, "GET", "/stores", "").data["stores"].([]any); len(stores) != 0 {
		t.Errorf("the rival sees %v", stores)
	}
	if a := w.fleet(fleet, "GET", "/stores?status=active", ""); a.status != 422 {
		t.Errorf("unknown status: %d", a.status)
	}
}

//rule:store-states/awaitingfleet-to-awaitingfleetapproval put-stores-externalstoreid/repeating-the-call-with-fleetid
//rule:fleet-api/post-stores-accountid-externalstoreid-reject states/stores-awaitingfleet-awaitingfleetapproval
func TestFleetStores_RejectSendsTheVendorBack(t *testing.T) {
	w := newWorld(t)
	account, fleet := w.newAccount(""), w.newFleet("Kurye", istanbul)
	w.putStore(account, "s1", storeBody(kadikoy, fleet.id))
	path := "/stores/" + account.id + "/s1"
	if a := w.fleet(fleet, "POST", path+"/reject", ""); a.status != 200 || a.data["status"] != "AwaitingFleet" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := w.fleet(fleet, "POST", path+"/confirm", ""); a.status != 404 || a.code != "STORE_NOT_FOUND" {
		t.Errorf("confirm after reject: %d %s", a.status, a.body)
	}
	if a := w.putStore(account, "s1", `{"fleetId":"`+fleet.id+`"}`); a.data["status"] != "AwaitingFleetApproval" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"/stores/" + account.id + "/none", "/stores/" + delivery.NewAccountID().String() + "/s1", "/stores/x/s1"} {
		if a := w.fleet(fleet, "POST", path+"/confirm", ""); a.status != 404 || a.code != "STORE_NOT_FOUND" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

//rule:event-types/store.migrating event-types/store.deactivated admin-api/post-accounts-id-stores-externalstoreid-migrate
//rule:admin-api/post-accounts-id-stores-externalstoreid-deactivate states/stores-awaitingfleet-awaitingfleetapproval
func TestAdminStores_MigrateAndDeactivate(t *testing.T) {
	s := newScene(t, "")
	path := "/accounts/" + s.account.id + "/stores/s1"
	call := func(what, body string) answer {
		return s.send(request{method: "POST", url: s.private + "/api/admin/v1" + path + what, token: adminKey, body: body})
	}
	day := func(ahead int) string {
		return time.Now().In(delivery.Istanbul).AddDate(0, 0, ahead).Format(time.DateOnly)
	}
	for _, body := range []string{`{}`, `{"closingDate":"tomorrow"}`, `{"closingDate":1}`, `{"closingDate":"` + day(-1) + `"}`, `{"closingDate":"2026-02-30"}`} {
		if a := call("/migrate", body); a.status != 422 || a.code != "VALIDATION_FAILED" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for range 2 {
		if a := call("/migrate", `{"closingDate":"`+day(0)+`"}`); a.status != 200 || a.data["status"] != "Active" || a.data["closingDate"] != day(0) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := call("/migrate", `{"closingDate":"`+day(3)+`"}`); a.status != 200 || a.data["closingDate"] != day(3) {
		t.Errorf("another date: %d %s", a.status, a.body)
	}
	s.created("POS-1")
	for _, body := range []string{`{}`, `{"reason":"Bored"}`, `{"reason":null}`} {
		if a := call("/deactivate", body); a.status != 422 || a.code != "VALIDATION_FAILED" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := call("/deactivate", `{"reason":"FleetSuspended"}`); a.status != 200 || a.data["status"] != "Deactivated" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.order(orderBody("POS-2"), ""); a.code != "STORE_NOT_CONFIGURED" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := call("/migrate", `{"closingDate":"`+day(1)+`"}`); a.status != 409 {
		t.Errorf("migrate of a closed store: %d %s", a.status, a.body)
	}
	if a := s.putStore(s.account, "s1", `{}`); a.status != 200 || a.data["status"] != "AwaitingFleet" {
		t.Errorf("registered anew: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/accounts/" + s.account.id + "/stores/none/deactivate", "/accounts/" + delivery.NewAccountID().String() + "/stores/s1/deactivate"} {
		a := s.send(request{method: "POST", url: s.private + "/api/admin/v1" + path, token: adminKey, body: `{"reason":"VendorRequest"}`})
		if a.status != 404 || a.code != "STORE_NOT_FOUND" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	s.awaitNotices(notices{s.account.id: {
		delivery.StoreActivated, delivery.StoreMigrating, delivery.StoreMigrating, delivery.StoreDeactivated,
	}})
}

// notices are the kinds of events of some accounts, by account id.
type notices map[string][]delivery.EventType

// awaitNotices expects exactly these events in the streams. It registers
// receivers and moves the streams to their queues, as a worker does, so a test
// can ask once only.
func (w *world) awaitNotices(want notices) {
	w.Helper()
	l := w.ledger()
	for id := range want {
		if _, _, err := l.SetWebhookURL(w.Context(), accountID(w, party{id: id}), "https://vendor.example/"); err != nil {
			w.Fatal(err)
		}
	}
	var mu sync.Mutex
	got := notices{}
	stop := w.feed(ledger.RoleWebhook, func(partition int, batch []ledger.Entry) error {
		leased, err := l.QueueEvents(w.Context(), partition, batch, ledger.Grant{Limit: 100, Share: 100, InFlight: 100, Lease: time.Minute})
		mu.Lock()
		defer mu.Unlock()
		for _, d := range leased.Deliveries {
			id := d.Account.String()
			got[id] = append(got[id], d.Type)
			slices.Sort(got[id])
		}
		return err
	})
	defer stop()
	for _, kinds := range want {
		slices.Sort(kinds)
	}
	w.await(fmt.Sprintf("notices %v", want), func() bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.EqualFunc(got, want, slices.Equal[[]delivery.EventType])
	})
}

func accountID(t testing.TB, p party) delivery.AccountID {
	t.Helper()
	id, err := delivery.ParseAccountID(p.id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
