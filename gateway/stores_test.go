package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

//rule:what-the-service-does/2 what-the-service-does/facts-that/fleet-discovery-is-returned-inside response-envelope/success response-envelope/data
//rule:store/response-fields/status store/response-fields/subRegion store/response-fields/availableFleets store/fleet-option/fleetId
//rule:store/fleet-option/name store/fleet-option/status store/fleet-option/avgDeliveryMinutes
//rule:store-states/states-awaitingfleet-awaitingfleetapproval-active store-states/new-or-existing-without-fleet-to-awaitingfleet
//rule:put-stores-externalstoreid/response-without-an-attached-fleet states/a-put-without-fleetid-on decisions/fleet-option-status
func TestPutStore_ListsTheFleetsThatServeIt(t *testing.T) {
	e := newEnv(t)
	account := e.newAccount("")
	beta, alpha := e.newFleet("Beta", istanbul), e.newFleet("Alpha", istanbul)
	e.newFleet("Ankara", ankaraArea)
	e.admin("PATCH", "/fleets/"+beta.id, `{"suspended":true}`)
	a := e.putStore(account, "s1", storeBody(kadikoy, ""))
	wanted := fmt.Sprintf(`{"success":true,"data":{"status":"AwaitingFleet","subRegion":"Alpha region","availableFleets":[`+
		`{"fleetId":"%s","name":"Alpha","status":"Available","avgDeliveryMinutes":25},`+
		`{"fleetId":"%s","name":"Beta","status":"Unavailable","avgDeliveryMinutes":25}]}}`, alpha.id, beta.id)
	if a.status != 200 || a.body != wanted || !a.quota() {
		t.Errorf("%d %s\nwant %s", a.status, a.body, wanted)
	}
	a = e.putStore(account, "s2", storeBody(delivery.Point{Latitude: 38.42, Longitude: 27.14}, ""))
	if a.body != `{"success":true,"data":{"status":"AwaitingFleet","subRegion":"","availableFleets":[]}}` {
		t.Errorf("where nobody serves: %s", a.body)
	}
}

//rule:what-the-service-does/3 store/request-fields/fleetId store-states/states-awaitingfleet-awaitingfleetapproval-active
//rule:put-stores-externalstoreid/repeating-the-call-with-fleetid decisions/put-with-fleetid
func TestPutStore_WithFleet(t *testing.T) {
	e := newEnv(t)
	account, fleet := e.newAccount(""), e.newFleet("Kurye", istanbul)
	wanted := fmt.Sprintf(`{"success":true,"data":{"externalStoreId":"ş/1 a","status":"AwaitingFleetApproval","subRegion":"Kurye region",`+
		`"fleet":{"fleetId":"%s","name":"Kurye"}}}`, fleet.id)
	if a := e.putStore(account, "%C5%9F%2F1%20a", storeBody(kadikoy, fleet.id)); a.status != 200 || a.body != wanted {
		t.Errorf("%d %s", a.status, a.body)
	}
	if stored := e.storedStore(account, "ş/1 a"); stored.Name != "Branch" || stored.Phone != "2161234567" {
		t.Errorf("%+v", stored)
	}
}

//rule:put-stores-externalstoreid/upsert-keyed-by-the-vendor-s decisions/store-fields-required
func TestPutStore_LaterPutsMayOmitFields(t *testing.T) {
	e := newStoreEnv(t, "")
	want(t, e.putStore(e.account, "s1", `{"phone":"+905551112233"}`), 200, "", "status", "Active")
	if stored := e.storedStore(e.account, "s1"); stored.Phone != "5551112233" || stored.Name != "Branch" || stored.Point != kadikoy {
		t.Errorf("%+v", stored)
	}
}

//rule:states/a-put-without-fleetid-on
func TestPutStore_OnAnActiveStore(t *testing.T) {
	e := newStoreEnv(t, "")
	before := e.storedStore(e.account, "s1")
	want(t, e.putStore(e.account, "s1", storeBody(kadikoy, e.courier.id)), 200, "", "status", "Active", "availableFleets", absent)
	for _, body := range []string{storeBody(kadikoy, ""), `{}`} {
		a := want(t, e.putStore(e.account, "s1", body), 200, "", "status", "Active")
		if fleets := a.list("availableFleets"); len(fleets) != 1 || fleets[0]["fleetId"] != e.courier.id {
			t.Errorf("%s: it cannot turn to another fleet: %s", body, a.body)
		}
	}
	if after := e.storedStore(e.account, "s1"); *after != *before { // nothing changed, so nothing is written
		t.Errorf("got %+v, want %+v", after, before)
	}
	far := e.newFleet("Ankara", ankaraArea)
	want(t, e.putStore(e.account, "s1", storeBody(ankara, "")), 200, "", "status", "AwaitingFleet")
	want(t, e.order(orderBody("POS-1"), ""), 409, "STORE_NOT_CONFIGURED")
	want(t, e.putStore(e.account, "s1", `{"fleetId":"`+far.id+`"}`), 200, "", "status", "AwaitingFleetApproval")
}

func TestPutStore_ConcurrentPutsAreNotLost(t *testing.T) {
	e := newStoreEnv(t, "")
	for round := range 5 {
		e.putStore(e.account, "s1", storeBody(kadikoy, ""))
		var group sync.WaitGroup
		for _, body := range []string{`{"phone":"5550000001"}`, `{"name":"Renamed"}`, `{"taxNumber":"98765432109"}`, `{"address":{"text":"Bahariye Cad. 7"}}`} {
			group.Go(func() { want(t, e.putStore(e.account, "s1", body), 200, "") })
		}
		group.Wait()
		got := e.storedStore(e.account, "s1")
		if got.Phone != "5550000001" || got.Name != "Renamed" || got.TaxNumber != "98765432109" || got.Address != "Bahariye Cad. 7" {
			t.Fatalf("round %d: %+v", round, got)
		}
	}
}

//rule:what-the-service-does/3 store-states/states-awaitingfleet-awaitingfleetapproval-active store-states/awaitingfleetapproval-to-active
//rule:event-types/store.activated fleet-api/get-stores-status-awaitingfleetapproval fleet-api/post-stores-accountid-externalstoreid-confirm
func TestFleetStores_ConfirmOnce(t *testing.T) {
	e := newEnv(t)
	account, fleet, rival := e.newAccount(""), e.newFleet("Kurye", istanbul), e.newFleet("Rival", istanbul)
	e.putStore(account, "s1", storeBody(kadikoy, fleet.id))
	path := "/stores/" + account.id + "/s1"
	listed := func(who party, query string, n int) []map[string]any {
		t.Helper()
		stores := want(t, e.fleet(who, "GET", "/stores"+query, ""), 200, "").list("stores")
		if len(stores) != n {
			t.Fatalf("%s: %v", query, stores)
		}
		return stores
	}
	wantMembers(t, "pending", listed(fleet, "?status=AwaitingFleetApproval", 1)[0], "externalStoreId", "s1", "accountId", account.id)
	want(t, e.fleet(rival, "POST", path+"/confirm", ""), 404, "STORE_NOT_FOUND")
	for range 3 {
		want(t, e.fleet(fleet, "POST", path+"/confirm", ""), 200, "", "status", "Active")
	}
	want(t, e.fleet(fleet, "POST", path+"/reject", ""), 409, "STORE_NOT_PENDING")
	listed(fleet, "?status=AwaitingFleetApproval", 0)
	listed(fleet, "", 1)
	listed(rival, "", 0)
	want(t, e.fleet(fleet, "GET", "/stores?status=active", ""), 422, "VALIDATION_FAILED")
	e.wantEvents(map[party][]delivery.EventType{account: {delivery.StoreActivated}})
}

//rule:store-states/awaitingfleet-to-awaitingfleetapproval put-stores-externalstoreid/repeating-the-call-with-fleetid
//rule:fleet-api/post-stores-accountid-externalstoreid-reject states/stores-awaitingfleet-awaitingfleetapproval
func TestFleetStores_RejectSendsTheVendorBack(t *testing.T) {
	e := newEnv(t)
	account, fleet := e.newAccount(""), e.newFleet("Kurye", istanbul)
	e.putStore(account, "s1", storeBody(kadikoy, fleet.id))
	path := "/stores/" + account.id + "/s1"
	for _, body := range []string{`{"reason":1}`, `{"reason":"` + strings.Repeat("ş", 257) + `"}`, `{"reason":"a\u0007b"}`} {
		want(t, e.fleet(fleet, "POST", path+"/reject", body), 422, "VALIDATION_FAILED")
	}
	want(t, e.fleet(fleet, "POST", path+"/reject", `{`), 400, "MALFORMED_REQUEST")
	want(t, e.fleet(fleet, "POST", path+"/reject", `{"reason":" Çok uzak "}`), 200, "", "status", "AwaitingFleet")
	want(t, e.fleet(fleet, "POST", path+"/confirm", ""), 404, "STORE_NOT_FOUND")
	want(t, e.putStore(account, "s1", `{"fleetId":"`+fleet.id+`"}`), 200, "", "status", "AwaitingFleetApproval")
	want(t, e.fleet(fleet, "POST", path+"/reject", ""), 200, "", "status", "AwaitingFleet")
	want(t, e.putStore(account, "s1", `{"fleetId":"`+fleet.id+`"}`), 200, "", "status", "AwaitingFleetApproval")
	rejected := `{"externalStoreId":"s1","fleet":{"fleetId":"` + fleet.id + `","name":"Kurye"}`
	for i, d := range e.events(2, account) {
		if wanted := rejected + []string{`,"reason":"Çok uzak"}`, `}`}[i]; d.Type != delivery.StoreRejected || string(d.Data) != wanted {
			t.Errorf("%s %s, want %s", d.Type, d.Data, wanted)
		}
	}
	for _, path := range []string{"/stores/" + account.id + "/none", "/stores/" + delivery.NewAccountID().String() + "/s1", "/stores/x/s1"} {
		want(t, e.fleet(fleet, "POST", path+"/confirm", ""), 404, "STORE_NOT_FOUND")
	}
}

// The refusal says what is missing, for the eye and for the program.
//
//rule:errors/STORE_NOT_CONFIGURED
func TestCreateOrder_SaysWhyTheStoreTakesNone(t *testing.T) {
	e := newStoreEnv(t, "")
	e.putStore(e.account, "chosen", storeBody(kadikoy, e.courier.id))
	e.putStore(e.account, "bare", storeBody(kadikoy, ""))
	e.putStore(e.account, "closed", storeBody(kadikoy, ""))
	e.admin("POST", "/accounts/"+e.account.id+"/stores/closed/deactivate", `{"reason":"VendorRequest"}`)
	for store, c := range map[string]struct {
		message string
		status  any
	}{
		"none":   {"no store is registered as none; register it with PUT /stores/{externalStoreId}", nil},
		"bare":   {"store bare has no fleet; choose one with PUT /stores/{externalStoreId} and fleetId", "AwaitingFleet"},
		"chosen": {"store chosen is AwaitingFleetApproval, not Active; wait for store.activated", "AwaitingFleetApproval"},
		"closed": {"store closed is Deactivated, not Active", "Deactivated"},
	} {
		a := want(t, e.order(orderBody("POS-1", "externalStoreId", `"`+store+`"`), ""), 409, "STORE_NOT_CONFIGURED")
		if !strings.Contains(a.body, `"message":"`+c.message+`"`) || a.data["status"] != c.status {
			t.Errorf("%s: %s", store, a.body)
		}
	}
}

//rule:event-types/store.migrating event-types/store.deactivated admin-api/post-accounts-id-stores-externalstoreid-migrate
//rule:admin-api/post-accounts-id-stores-externalstoreid-deactivate states/stores-awaitingfleet-awaitingfleetapproval
func TestAdminStores_MigrateAndDeactivate(t *testing.T) {
	e := newStoreEnv(t, "")
	call := func(what, body string) answer {
		return e.tryAdmin("POST", "/accounts/"+e.account.id+"/stores/s1"+what, body)
	}
	// A day ahead at least: today may have ended when it arrives.
	day := func(ahead int) string {
		return time.Now().In(delivery.Istanbul).AddDate(0, 0, ahead).Format(time.DateOnly)
	}
	for _, body := range []string{`{}`, `{"closingDate":"tomorrow"}`, `{"closingDate":1}`, `{"closingDate":"` + day(-1) + `"}`, `{"closingDate":"2026-02-30"}`} {
		want(t, call("/migrate", body), 422, "VALIDATION_FAILED")
	}
	one, three := day(1), day(3)
	for range 2 {
		want(t, call("/migrate", `{"closingDate":"`+one+`"}`), 200, "", "status", "Active", "closingDate", one)
	}
	want(t, call("/migrate", `{"closingDate":"`+three+`"}`), 200, "", "closingDate", three)
	e.created("POS-1")
	for _, body := range []string{`{}`, `{"reason":"Bored"}`, `{"reason":null}`} {
		want(t, call("/deactivate", body), 422, "VALIDATION_FAILED")
	}
	want(t, call("/deactivate", `{"reason":"FleetSuspended"}`), 200, "", "status", "Deactivated")
	want(t, e.order(orderBody("POS-2"), ""), 409, "STORE_NOT_CONFIGURED")
	want(t, call("/migrate", `{"closingDate":"`+one+`"}`), 409, "STORE_NOT_CONFIGURED")
	want(t, e.putStore(e.account, "s1", `{}`), 200, "", "status", "AwaitingFleet")
	e.wantEvents(map[party][]delivery.EventType{e.account: {
		delivery.StoreActivated, delivery.StoreMigrating, delivery.StoreMigrating, delivery.StoreDeactivated,
	}})
}
