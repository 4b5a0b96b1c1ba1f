package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
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

// A rejection whose answer was lost on the way from Redis is repeated, and finds that nobody is asked any more.
func TestRejection_RepeatedIsDoneWhenNoFleetIsAskedAnyMore(t *testing.T) {
	t.Parallel()

	fleet := delivery.NewFleetID()
	for _, c := range []struct {
		name    string
		store   delivery.Store
		retry   bool
		changes bool
		refused bool
	}{
		{name: "its own work", store: delivery.Store{State: delivery.AwaitingFleet}, retry: true},
		{name: "never asked", store: delivery.Store{State: delivery.AwaitingFleet}, refused: true},
		{name: "another fleet is asked", store: delivery.Store{State: delivery.AwaitingFleetApproval, Fleet: delivery.NewFleetID()}, retry: true, refused: true},
		{name: "it is still asked", store: delivery.Store{State: delivery.AwaitingFleetApproval, Fleet: fleet}, retry: true, changes: true},
	} {
		_, changed, err := rejection(fleet, "", time.Now())(&c.store, c.retry)

		isRefused := err != nil && delivery.CodeOf(err) == delivery.CodeStoreNotFound
		if changed != c.changes || isRefused != c.refused || err != nil && !isRefused {
			t.Errorf("%s: changed %v, %v", c.name, changed, err)
		}
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

// fleetStores writes n stores of the account for the env's fleet, past the limit of requests.
func (e *env) fleetStores(prefix string, n int, state delivery.StoreState) {
	e.Helper()
	fleet, err := delivery.ParseFleetID(e.courier.id)
	if err != nil {
		e.Fatal(err)
	}

	for i := range n {
		s := &delivery.Store{
			Account: e.account.accountID(), ExternalID: fmt.Sprint(prefix, i), State: state, TaxNumber: "1234567890", Name: "Branch",
			Phone: "2161234567", Address: "Moda Cad. 1", Point: kadikoy, Fleet: fleet, FleetName: "Kurye", UpdatedAt: time.Now(),
		}
		if err := e.ledger.Stores.Write(e.Context(), s); err != nil {
			e.Fatal(err)
		}
	}
}

// fleetJobs creates n orders of store s1, and returns once its fleet has them as jobs.
func (e *env) fleetJobs(n int) {
	e.Helper()
	fleet, err := delivery.ParseFleetID(e.courier.id)
	if err != nil {
		e.Fatal(err)
	}

	e.playWorker()
	for i := range n {
		e.created(fmt.Sprint("POS-", i))
	}

	e.await("all jobs", func() bool {
		ids, _, err := e.ledger.Orders.JobIDs(e.Context(), fleet, delivery.Searching, "", n)
		return err == nil && len(ids) == n
	})
}

//rule:fleet-api/get-stores-status-awaitingfleetapproval
func TestFleetStores_PagesReachEveryStoreOnce(t *testing.T) {
	e := newStoreEnv(t, "")
	e.fleetStores("waiting", 230, delivery.AwaitingFleetApproval)
	e.fleetStores("active", 20, delivery.Active)
	for query, want := range map[string]int{
		"": 251, "status=": 251, "status=AwaitingFleetApproval": 230, "status=Active": 21, "status=Deactivated": 0, "status=AwaitingFleet": 0,
	} {
		seen, pages := map[string]bool{}, 0
		for cursor, more := "", true; more; pages++ {
			a := e.fleet(e.courier, "GET", "/stores?"+query+"&cursor="+cursor, "")
			stores := a.list("stores")
			if a.status != 200 || len(stores) > 100 || pages > want {
				t.Fatalf("%s: %d, %d stores, page %d", query, a.status, len(stores), pages)
			}

			for _, s := range stores {
				id := s["externalStoreId"].(string)
				if seen[id] {
					t.Errorf("%s: %s is listed twice", query, id)
				}
				seen[id] = true
			}

			cursor = a.data["cursor"].(string)
			more = cursor != ""
		}

		if len(seen) != want || pages != max(1, (want+99)/100) {
			t.Errorf("%s: %d stores on %d pages, want %d", query, len(seen), pages, want)
		}
	}

	for _, cursor := range []string{"nonsense", "0", "0.1.a1", "99999.a1a1a1a1a1a1a1a1a1a1a1a1", "0.a1a1a1a1a1a1a1a1a1a1a1"} {
		wantField(t, e.fleet(e.courier, "GET", "/stores?cursor="+cursor, ""), 422, "VALIDATION_FAILED", "cursor")
	}
}

// What a fleet polls must not cost others: it reads no store that is in another state.
func TestFleetStores_TheOnesThatWaitCostNoMoreBesideThousands(t *testing.T) {
	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newEnvOn(t, server, nil).withStore("")
	e.fleetStores("active", 3000, delivery.Active)
	e.fleetStores("waiting", 3, delivery.AwaitingFleetApproval)
	cost := e.work(server, func() {
		stores := want(t, e.fleet(e.courier, "GET", "/stores?status=AwaitingFleetApproval", ""), 200, "").list("stores")
		if len(stores) != 3 {
			t.Errorf("%d stores wait, want 3", len(stores))
		}
	})
	if cost["get"] > 3 || cost["smembers"] > 0 {
		t.Errorf("3 stores that wait cost %v", cost)
	}
}

// A page is paid for before its records are read: no more are read than the limit pays for.
//
//rule:fleets-and-operators/a-batch-of-positions-and
func TestFleet_PagesArePaidBeforeTheyAreRead(t *testing.T) {
	const perSecond, bucket, price = 3, 15, 11
	for _, path := range []string{"/stores", "/stores?status=Active", "/jobs"} {
		t.Run(path, func(t *testing.T) {
			server := testserver.DedicatedRedis(t, stack.RedisOptions{})
			e := newEnvOn(t, server, nil).withStore(everyLimit())
			e.fleetStores("active", 100, delivery.Active)
			e.fleetJobs(100)
			e.admin("PATCH", "/fleets/"+e.courier.id, fmt.Sprintf(`{"requestsPerSecond":%d}`, perSecond))
			before := e.commands(server)["get"]

			began := time.Now()
			answers := make([]answer, 11)
			answers[0] = want(t, e.fleet(e.courier, "GET", path, ""), 200, "")
			var group sync.WaitGroup
			for i := 1; i < len(answers); i++ {
				group.Go(func() { answers[i] = e.fleet(e.courier, "GET", path, "") })
			}

			group.Wait()
			paid := bucket + perSecond*int(1+time.Since(began)/time.Second)
			read := e.commands(server)["get"] - before

			pages := 0
			for _, a := range answers {
				if a.status == 200 {
					pages++
					continue
				}
				want(t, a, 429, "RATE_LIMITED")
				if headerInt(a, "Retry-After") < 1 {
					t.Errorf("Retry-After %s", a.header.Get("Retry-After"))
				}
			}

			if pages*price > paid {
				t.Errorf("%d pages of %d requests each are answered for %d", pages, price, paid)
			}

			// A job is read with its store; counting the limit reads a little, too.
			if read > 101*pages+50 {
				t.Errorf("%d records are read for %d pages", read, pages)
			}
		})
	}
}

// A change that the limit does not pay for is not made; what changes nothing costs nothing more.
//
//rule:fleets-and-operators/a-batch-of-positions-and
func TestFleet_AvailabilityIsPaidBeforeItChanges(t *testing.T) {
	e := newStoreEnv(t, "")
	e.admin("PATCH", "/fleets/"+e.courier.id, `{"requestsPerSecond":10}`)
	report := func(couriers int) answer {
		return e.fleet(e.courier, "PUT", "/availability", fmt.Sprintf(`{"couriers":%d}`, couriers))
	}

	couriers := 0
	admitted, refusal := e.untilLimited(10, 21, func() answer {
		couriers++
		return report(couriers)
	})

	if wait := headerInt(refusal, "Retry-After"); admitted == 0 || wait < 1 {
		t.Errorf("%d changes are made, then Retry-After %d", admitted, wait)
	}

	f := e.admin("GET", "/fleets", "").list("fleets")[0]
	if f["fleetId"] != e.courier.id || f["couriers"] != float64(admitted) {
		t.Errorf("of %d changes, of which the last was refused, this is stored: %v", couriers, f)
	}

	want(t, report(admitted), 200, "") // which changes nothing
}

//rule:states/an-account-has-at-most admin-api/patch-accounts-id
func TestPutStore_NoMoreThanTheAccountMayHave(t *testing.T) {
	e := newStoreEnv(t, everyLimit())
	path := "/accounts/" + e.account.id
	limits, _ := want(t, e.tryAdmin("GET", path, ""), 200, "").data["limits"].(map[string]any)
	wantMembers(t, "limits of a new account", limits, "maxStores", 10000, "maxPendingStores", 500)

	// What a PATCH does not name stays; what is out of range is refused and changes nothing.
	a := e.admin("PATCH", path, `{"limits":{"maxStores":3}}`)
	limits, _ = a.data["limits"].(map[string]any)
	wantMembers(t, "changed limits", limits, "maxStores", 3, "maxPendingStores", 500)
	for _, name := range []string{"maxStores", "maxPendingStores"} {
		for _, value := range []string{"0", "-1", "1.5", "1000001", `"many"`, "true", "{}"} {
			wantField(t, e.tryAdmin("PATCH", path, `{"limits":{"`+name+`":`+value+`}}`), 422, "VALIDATION_FAILED", "limits."+name)
		}
		e.admin("PATCH", path, `{"limits":{"`+name+`":null}}`)
		e.admin("PATCH", path, `{"limits":{"`+name+`":1000000}}`)
	}

	e.admin("PATCH", path, `{"name":"Renamed","limits":{"maxStores":3,"maxPendingStores":1}}`)

	// s1 is Active. One more waits, another may not wait for the same fleet.
	rival := e.newFleet("Rival", istanbul)
	want(t, e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id)), 200, "", "status", "AwaitingFleetApproval")
	a = want(t, e.putStore(e.account, "s3", storeBody(kadikoy, e.courier.id)), 409, "TOO_MANY_STORES")
	if !a.quota() || !strings.Contains(a.body, "1 stores of the account wait for the answer of fleet "+e.courier.id) {
		t.Errorf("%s", a.body)
	}

	want(t, e.putStore(e.account, "s3", storeBody(kadikoy, rival.id)), 200, "", "status", "AwaitingFleetApproval")
	a = want(t, e.putStore(e.account, "s4", storeBody(kadikoy, "")), 409, "TOO_MANY_STORES")
	if !strings.Contains(a.body, "the account has 3 stores") || !strings.Contains(a.body, "ask the operator") {
		t.Errorf("%s", a.body)
	}

	// Stores that exist are changed as ever, also one that waits already, and a closed one
	// takes its place until it is registered again.
	e.admin("PATCH", path, `{"limits":{"maxStores":1,"maxPendingStores":1}}`)
	want(t, e.putStore(e.account, "s2", `{"phone":"02161234568"}`), 200, "", "status", "AwaitingFleetApproval")
	e.admin("POST", path+"/stores/s1/deactivate", `{"reason":"VendorRequest"}`)
	want(t, e.putStore(e.account, "s4", storeBody(kadikoy, "")), 409, "TOO_MANY_STORES")
	want(t, e.putStore(e.account, "s1", `{}`), 200, "", "status", "AwaitingFleet")
	want(t, e.putStore(e.account, "s1", `{"fleetId":"`+e.courier.id+`"}`), 409, "TOO_MANY_STORES")
	want(t, e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/s2/confirm", ""), 200, "")
	want(t, e.putStore(e.account, "s1", `{"fleetId":"`+e.courier.id+`"}`), 200, "", "status", "AwaitingFleetApproval")
	e.admin("PATCH", path, `{"limits":{"maxStores":4}}`)
	want(t, e.putStore(e.account, "s4", storeBody(kadikoy, "")), 200, "")

	// Another account has limits of its own.
	want(t, e.putStore(e.newAccount(""), "s1", storeBody(kadikoy, e.courier.id)), 200, "")
}
