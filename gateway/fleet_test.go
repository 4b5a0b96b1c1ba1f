package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

const (
	mehmet = `{"courier":{"name":"Mehmet Yılmaz","phone":"+905559998877","vehicleType":"Motorcycle"}}`
	ayse   = `{"courier":{"name":"Ayşe Kaya","phone":"5551112233","vehicleType":"Car"}}`
)

//rule:fleet-api/get-jobs-status-searching-cursor
//rule:what-the-service-does/facts-that/payment-handling-the-service-stores order-creation-request/dropoff.text
//rule:order-creation-request/dropoff.latitude order-creation-request/dropoff.longitude order-creation-request/dropoff.buildingNo
//rule:order-creation-request/dropoff.doorNo order-creation-request/dropoff.floor order-creation-request/dropoff.note
//rule:order-creation-request/packageNote order-creation-request/orderAmount order-creation-request/payment.type
//rule:order-creation-request/payment.collectionAmount order-status-delivery-state/courier.name order-status-delivery-state/courier.phone
//rule:order-status-delivery-state/courier.vehicleType fleet-api/post-jobs-orderid-accept fleet-api/get-jobs-orderid decisions/fleet-option-status
func TestFleetJobs_CarryEveryFieldForTheCourier(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	id := e.created("POS-1", "dropoff.text", `"Moda Cad. 12, zil 3"`, "dropoff.buildingNo", `"12"`, "dropoff.doorNo", `"5"`, "dropoff.floor", `"2"`,
		"dropoff.note", `"arka kapı"`, "packageNote", `"kırılacak"`, "orderAmount", "349.90", "payment.type", `"Cash"`, "payment.collectionAmount", "300.00")
	var a answer
	e.await("the job", func() bool {
		a = want(t, e.fleet(e.courier, "GET", "/jobs?status=Searching", ""), 200, "", "cursor", "")
		return len(a.list("jobs")) == 1
	})

	for _, part := range []string{`"floor":"2"`, `"note":"arka kapı"`, `"buildingNo":"12"`, `"orderAmount":349.90`, `"collectionAmount":300.00`} {
		if !strings.Contains(a.body, part) || !strings.Contains(e.fleet(e.courier, "GET", "/jobs/"+id, "").body, part) {
			t.Errorf("no %s in %s", part, a.body)
		}
	}

	job := a.list("jobs")[0]
	wantMembers(t, "job", job, "orderId", id, "status", "Searching", "packageNote", "kırılacak", "recipient", map[string]any{"name": "Ayşe Yılmaz", "phone": "5321234567"})
	wantMembers(t, "store", job["store"].(map[string]any), "externalStoreId", "s1", "name", "Branch", "phone", "2161234567", "address", "Moda Cad. 1", "latitude", kadikoy.Latitude)
	wantMembers(t, "dropoff", job["dropoff"].(map[string]any), "text", "Moda Cad. 12, zil 3", "doorNo", "5", "latitude", kadikoy.Latitude, "longitude", kadikoy.Longitude)
	wantMembers(t, "payment", job["payment"].(map[string]any), "type", "Cash")
	if job["readyAt"] == "" || job["createdAt"] == "" || job["version"].(float64) <= 0 || job["courier"] != nil {
		t.Errorf("%v", job)
	}
	if jobs := e.fleet(e.courier, "GET", "/jobs", "").list("jobs"); len(jobs) != 1 {
		t.Errorf("Searching is not the default: %v", jobs)
	}

	for _, query := range []string{"?status=Delivered", "?status=searching", "?status=x", "?cursor=nonsense"} {
		want(t, e.fleet(e.courier, "GET", "/jobs"+query, ""), 422, "VALIDATION_FAILED")
	}

	vehicle := strings.Repeat("ü", 32)
	accept := `{"courier":{"name":"Mehmet Yılmaz","phone":"5551112233","vehicleType":"` + vehicle + `"}}`
	want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", accept), 200, "")
	e.await("the courier", func() bool {
		return strings.Contains(e.fleet(e.courier, "GET", "/jobs/"+id, "").body, vehicle)
	})
	shown := e.call("GET", "/orders/"+id, "")
	courier, _ := shown.data["courier"].(map[string]any)
	wantMembers(t, "the vendor's courier", courier, "name", "Mehmet Y.", "phone", "5551112233", "vehicleType", vehicle)
}

//rule:fleet-api/get-jobs-status-searching-cursor
func TestFleetJobs_PagesReachEveryJobOnce(t *testing.T) {
	e := newStoreEnv(t, everyLimit())
	e.playWorker()
	const n = 130
	for i := range n {
		e.created(fmt.Sprint("POS-", i))
	}

	e.await("all jobs", func() bool {
		seen := map[string]bool{}
		for cursor, pages := "", 0; ; pages++ {
			a := e.fleet(e.courier, "GET", "/jobs?cursor="+cursor, "")
			if a.status != 200 || pages > n {
				t.Fatalf("%d %s", a.status, a.body)
			}

			for _, job := range a.list("jobs") {
				id := job["orderId"].(string)
				if seen[id] {
					t.Errorf("%s is listed twice", id)
				}
				seen[id] = true
			}

			cursor = a.data["cursor"].(string)
			if cursor == "" {
				return len(seen) == n
			}
		}
	})
}

//rule:order-status-delivery-state/events delivery-rules/7 fleet-api/post-jobs-orderid-accept fleet-api/post-jobs-orderid-status
//rule:fleet-api/put-jobs-orderid-courier fleet-api/get-jobs-orderid decisions/courier-location-etadropoffat-while-unknown
func TestFleetJobs_FromAcceptToDelivered(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	id := e.created("POS-1")
	path := "/jobs/" + id
	reached := func(member string, value any) {
		t.Helper()
		e.await(fmt.Sprint(member, value), func() bool {
			job := e.fleet(e.courier, "GET", path, "").data
			if courier, there := job["courier"].(map[string]any); there && member == "courier" {
				return courier["name"] == value
			}
			return job[member] == value
		})
	}

	a := e.fleet(e.courier, "POST", path+"/accept", mehmet)
	if a.status != 200 || a.body != fmt.Sprintf(`{"success":true,"data":{"orderId":"%s","status":"Assigned"}}`, id) {
		t.Fatalf("%d %s", a.status, a.body)
	}

	reached("status", "Assigned")
	const ali = `{"courier":{"name":"Ali Veli","phone":"5551112233","vehicleType":"Bicycle"}}`
	want(t, e.fleet(e.courier, "PUT", path+"/courier", ali), 200, "", "status", "Assigned")
	reached("courier", "Ali Veli")
	want(t, e.fleet(e.courier, "POST", path+"/status", `{"status":"PickingUp"}`), 202, "", "status", "PickingUp")
	reached("status", "PickingUp")
	want(t, e.fleet(e.courier, "POST", path+"/accept", ali), 200, "", "status", "PickingUp")
	const both = `{"courier":{"name":"Ece Ak","phone":"5551112255","vehicleType":"Car"},"name":"Ali Veli","phone":"5551112233","vehicleType":"Bicycle"}`
	want(t, e.fleet(e.courier, "PUT", path+"/courier", both), 200, "", "status", "PickingUp")
	reached("courier", "Ece Ak")
	want(t, e.fleet(e.courier, "PUT", path+"/courier", `{"name":"Can Kaya","phone":"5551112244","vehicleType":"Car"}`), 200, "", "status", "PickingUp")
	for _, body := range []string{
		`{"status":"Delivering","location":{"latitude":40.99,"longitude":29.03},"etaDropoffAt":"` + time.Now().Add(10*time.Minute).Format(time.RFC3339) + `"}`,
		`{"status":"Delivered","at":"` + time.Now().Format(time.RFC3339) + `","failureReason":null}`,
	} {
		want(t, e.fleet(e.courier, "POST", path+"/status", body), 202, "", "orderId", id)
	}

	reached("status", "Delivered")
	vendors := want(t, e.call("GET", "/orders/"+id, ""), 200, "", "status", "Delivered", "location", absent)
	if courier := vendors.data["courier"].(map[string]any); len(vendors.list("events")) != 6 || courier["name"] != "Can K." {
		t.Errorf("%s", vendors.body)
	}

	for action, method := range map[string]string{"/accept": "POST", "/courier": "PUT"} {
		want(t, e.fleet(e.courier, method, path+action, mehmet), 409, "JOB_NOT_AVAILABLE", "status", "Delivered")
	}
}

// A report of an ended order is answered alike when the order holds it, and is a
// conflict when not; neither lengthens anything. One delivery that comes too late is
// taken: cash may have been collected.
//
//rule:fleets-and-operators/what-an-order-holds-already fleets-and-operators/of-an-ended-order-one fleet-api/post-jobs-orderid-status
func TestFleetReports_OfAnEndedOrder(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	report := func(id, body string) answer { return e.fleet(e.courier, "POST", "/jobs/"+id+"/status", body) }
	ended := func(id, status string) {
		t.Helper()
		e.await(status, func() bool { return e.stored(id).Status.String() == status })
	}

	appended := func() int64 {
		stats, err := e.ledger.Monitor.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Updates
	}

	delivered := e.created("POS-1")
	want(t, report(delivered, `{"status":"Delivered"}`), 202, "")
	ended(delivered, "Delivered")
	failed := e.created("POS-2")
	want(t, report(failed, `{"status":"Assigned"}`), 202, "")
	ended(failed, "Assigned")
	want(t, report(failed, `{"status":"Failed","failureReason":"CourierIncident"}`), 202, "")
	ended(failed, "Failed")
	cancelled := e.created("POS-3")
	want(t, e.cancel(cancelled, ""), 200, "")
	before := appended()
	for range 3 {
		want(t, report(delivered, `{"status":"Delivered"}`), 202, "", "orderId", delivered, "status", "Delivered")
		want(t, report(delivered, `{"status":"PickedUp"}`), 202, "")
		want(t, report(failed, `{"status":"Failed","failureReason":"CourierIncident"}`), 202, "")
		want(t, report(delivered, `{"status":"Failed","failureReason":"Other"}`), 409, "ORDER_ENDED", "status", "Delivered")
		want(t, report(failed, `{"status":"Failed","failureReason":"Other"}`), 409, "ORDER_ENDED", "status", "Failed")
		want(t, report(failed, `{"status":"PickedUp"}`), 409, "ORDER_ENDED")
		want(t, report(cancelled, `{"status":"PickingUp"}`), 409, "ORDER_ENDED", "status", "Cancelled")
	}

	if now := appended(); now != before {
		t.Errorf("%d reports of ended orders were appended", now-before)
	}

	for range 2 {
		want(t, report(failed, `{"status":"Delivered"}`), 202, "")
		want(t, report(cancelled, `{"status":"Delivered"}`), 202, "")
	}

	if now := appended(); now != before+2 {
		t.Errorf("%d late deliveries were appended, want one for each order", now-before)
	}
}

//rule:fleet-api/post-jobs-orderid-accept
func TestFleetJobs_OneCourierIsToldThatTheJobIsTheirs(t *testing.T) {
	e := newStoreEnv(t, "") // without a worker: nothing is decided
	path := "/jobs/" + e.created("POS-1") + "/accept"
	for range 2 {
		want(t, e.fleet(e.courier, "POST", path, mehmet), 200, "", "status", "Assigned")
		want(t, e.fleet(e.courier, "POST", path, strings.Replace(mehmet, "Mehmet", "Ali", 1)), 409, "JOB_TAKEN", "courier", map[string]any{"name": "Mehmet Y."})
	}

	want(t, e.fleet(e.courier, "PUT", strings.Replace(path, "/accept", "/courier", 1), strings.Replace(mehmet, "Mehmet", "Can", 1)), 200, "", "status", "Assigned")
	want(t, e.fleet(e.courier, "PUT", "/jobs/"+e.created("POS-2")+"/courier", mehmet), 409, "JOB_NOT_AVAILABLE", "status", "Searching")
}

//rule:fleets-and-operators/what-is-no-step-forward
func TestFleetReports_OfOneOrderAreBounded(t *testing.T) {
	e := newStoreEnv(t, "")
	path := "/jobs/" + e.created("POS-1")
	want(t, e.fleet(e.courier, "POST", path+"/accept", mehmet), 200, "")
	var a answer
	for n := 0; n < 1000 && a.status < 400; n++ {
		a = e.fleet(e.courier, "PUT", path+"/courier", fmt.Sprintf(`{"name":"Courier %d","phone":"5551112244","vehicleType":"Car"}`, n))
	}

	want(t, a, 409, "TOO_MANY_REPORTS")
	want(t, e.fleet(e.courier, "POST", path+"/status", `{"status":"Failed","failureReason":"CustomerRefused"}`), 409, "TOO_MANY_REPORTS")
	want(t, e.fleet(e.courier, "POST", path+"/status", `{"status":"Delivered"}`), 202, "")
}

// A report reads nothing besides: Redis is asked once.
func TestFleetReports_CostOneCall(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newQuietEnv(t, server).withStore("")
	path := "/jobs/" + e.created("POS-1") + "/status"
	work := e.work(server, func() { want(t, e.fleet(e.courier, "POST", path, `{"status":"Assigned"}`), 202, "") })
	if work["fcall"] != 1 || work["get"] > 1 {
		t.Errorf("a report costs Redis %v", work)
	}
}

// What the courier does not need is not shown: the amount of an order that is paid,
// and a customer's phone once the day's questions are answered.
//
//rule:decisions/what-a-fleet-sees
func TestFleetJobs_ShowWhatTheCourierNeeds(t *testing.T) {
	e := newStoreEnv(t, "")
	for paid, amount := range map[string]any{`"Prepaid"`: absent, `"Cash"`: 349.9, `"Card"`: 349.9} {
		id := e.created("POS-"+paid, "payment", `{"type":`+paid+`}`)
		job := want(t, e.fleet(e.courier, "GET", "/jobs/"+id, ""), 200, "").data
		wantMembers(t, paid, job["payment"].(map[string]any), "orderAmount", amount)
	}

	id := e.created("POS-1")
	want(t, e.cancel(id, ""), 200, "")
	order := e.stored(id)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{phoneShownFor - time.Millisecond, "5321234567"}, {phoneShownFor, ""}} {
		if got := viewJob(order, nil, order.UpdatedAt().Add(c.after)).Recipient.Phone; got != c.want {
			t.Errorf("%s after the end the phone is %q, want %q", c.after, got, c.want)
		}
	}

	whole := e.fleet(e.courier, "GET", "/jobs/"+id, "").data
	delete(whole, "recipient")
	delete(whole, "dropoff")
	testenv.Shrink(t, e.ledger)
	wantMembers(t, "a day after the end", map[string]any{"job": e.fleet(e.courier, "GET", "/jobs/"+id, "").data}, "job", whole)
}

//rule:fleet-api/get-jobs-orderid
func TestFleetJobs_CancelledOnesAreListed(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	id := e.created("POS-1")
	e.cancel(id, "")
	e.await("the cancelled job", func() bool {
		jobs := e.fleet(e.courier, "GET", "/jobs?status=Cancelled", "").list("jobs")
		return len(jobs) == 1 && jobs[0]["orderId"] == id
	})

	want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", mehmet), 409, "JOB_NOT_AVAILABLE", "status", "Cancelled")
}

//rule:private-apis/fleet-post-api-fleet-v1-token-with-clientid fleets-and-operators/on-a-status-update-the decisions/fleet-option-status
func TestFleetJobs_Refusals(t *testing.T) {
	e := newStoreEnv(t, "")
	id, rival := e.created("POS-1"), e.newFleet("Rival", istanbul)
	path := "/jobs/" + id
	at := func(d time.Duration) string { return `"at":"` + time.Now().Add(d).Format(time.RFC3339) + `"` }
	for body, field := range map[string]string{
		`{}`: "status", `{"status":"Flying"}`: "status", `{"status":"Searching"}`: "status", `{"status":"Cancelled"}`: "status",
		`{"status":"Failed"}`: "failureReason", `{"status":"Failed","failureReason":"Bored"}`: "failureReason",
		`{"status":"Delivered","failureReason":"Other"}`: "failureReason", `{"status":"PickedUp",` + at(-25*time.Hour) + `}`: "at", `{"status":"PickedUp","at":"now"}`: "at",
		`{"status":"PickedUp","location":{"latitude":1}}`:                   "location.longitude",
		`{"status":"PickedUp","location":{"latitude":91,"longitude":0}}`:    "location.latitude",
		`{"status":"PickedUp","location":"here"}`:                           "location",
		`{"status":"PickedUp","location":{"latitude":41,"longitude":"29"}}`: "location.longitude",
		`{"status":"PickedUp","etaDropoffAt":"soon"}`:                       "etaDropoffAt",
	} {
		wantField(t, e.fleet(e.courier, "POST", path+"/status", body), 422, "VALIDATION_FAILED", field)
	}

	want(t, e.fleet(e.courier, "POST", path+"/status", `{`), 400, "MALFORMED_REQUEST")
	for body, field := range map[string]string{
		`{}`: "courier.name", `{"courier":"Mehmet"}`: "courier", `{"courier":{"name":"Mehmet","phone":"1","vehicleType":"Car"}}`: "courier.phone",
		`{"courier":{"name":"Mehmet","phone":"5551112233","vehicleType":"` + strings.Repeat("x", 33) + `"}}`: "courier.vehicleType",
	} {
		wantField(t, e.fleet(e.courier, "POST", path+"/accept", body), 422, "VALIDATION_FAILED", field)
	}

	want(t, e.fleet(e.courier, "GET", "/couriers", ""), 404, "NOT_FOUND")
	for _, r := range [][3]string{{"GET", "", ""}, {"POST", "/accept", mehmet}, {"POST", "/status", `{"status":"PickedUp"}`}, {"PUT", "/courier", mehmet}} {
		want(t, e.fleet(rival, r[0], path+r[1], r[2]), 404, "ORDER_NOT_FOUND") // another fleet's
		want(t, e.fleet(e.courier, r[0], "/jobs/"+delivery.NewFleetID().String()+r[1], r[2]), 404, "ORDER_NOT_FOUND")
		want(t, e.fleet(e.courier, r[0], "/jobs/x"+r[1], r[2]), 404, "ORDER_NOT_FOUND")
	}
}

// fleetCalls is a request to every endpoint of the fleet API that wants a token.
var fleetCalls = [][3]string{
	{"GET", "/stores", ""}, {"POST", "/stores/a/b/confirm", ""}, {"POST", "/stores/a/b/reject", ""},
	{"GET", "/jobs", ""}, {"GET", "/jobs/x", ""}, {"POST", "/jobs/x/accept", mehmet}, {"POST", "/jobs/x/status", `{"status":"PickedUp"}`},
	{"PUT", "/jobs/x/courier", mehmet}, {"POST", "/locations", "[]"}, {"PUT", "/availability", `{"couriers":3}`},
}

// A disabled fleet is refused by what every gateway knows already; one that is
// suspended goes on reporting.
//
//rule:fleets-and-operators/suspended
func TestFleet_DisabledIsRefusedAndCostsRedisNothing(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newEnvOn(t, server, nil).withStore("")
	twin := e.twin(e.secrets)
	path := "/jobs/" + e.created("POS-1") + "/status"
	e.admin("PATCH", "/fleets/"+e.courier.id, `{"suspended":true}`)
	want(t, e.fleet(e.courier, "POST", path, `{"status":"Assigned"}`), 202, "")
	want(t, e.login("fleet", e.courier.clientID, e.courier.secret), 200, "")
	e.admin("PATCH", "/fleets/"+e.courier.id, `{"suspended":false,"disabled":true}`)
	want(t, e.order(orderBody("POS-2"), ""), 423, "FLEET_SUSPENDED")
	want(t, e.login("fleet", e.courier.clientID, e.courier.secret), 403, "FLEET_DISABLED")
	want(t, e.login("fleet", e.courier.clientID, "wrong"), 401, "INVALID_CREDENTIALS")
	e.await("the other gateway", func() bool { return twin.fleet(e.courier, "GET", "/jobs", "").status == 403 })
	work := e.work(server, func() {
		for _, c := range fleetCalls {
			want(t, e.fleet(e.courier, c[0], c[1], c[2]), 403, "FLEET_DISABLED")
		}
		want(t, e.login("fleet", e.courier.clientID, e.courier.secret), 403, "FLEET_DISABLED")
	})

	for _, without := range []string{"hello", "info", "hmget", "time"} { // these figures, whether there are changes, Redis's clock
		delete(work, without)
	}

	for name, n := range work {
		if n > 0 {
			t.Errorf("refusing costs Redis %d commands %s", n, name)
		}
	}

	e.admin("PATCH", "/fleets/"+e.courier.id, `{"disabled":false}`)
	want(t, e.fleet(e.courier, "POST", path, `{"status":"PickingUp"}`), 202, "")
	noted := e.audited()
	if n := len(noted); noted[n-2].New != `{"disabled":true,"suspended":false}` || noted[n-1].New != `{"disabled":false}` || noted[n-1].Fleet.String() != e.courier.id {
		t.Errorf("no entry says that the fleet was disabled: %+v, %+v", noted[n-2], noted[n-1])
	}
}

//rule:fleets-and-operators/a-fleet-s-requests-are-held
func TestFleet_IsHeldToItsLimit(t *testing.T) {
	e := newStoreEnv(t, "")
	wantField(t, e.tryAdmin("PATCH", "/fleets/"+e.courier.id, `{"requestsPerSecond":0}`), 422, "VALIDATION_FAILED", "requestsPerSecond")
	want(t, e.admin("PATCH", "/fleets/"+e.courier.id, `{"requestsPerSecond":1}`), 200, "", "requestsPerSecond", 1, "disabled", false)
	for _, c := range fleetCalls {
		var a answer
		for n := 0; n < 1000 && a.status != 429; n++ {
			a = e.fleet(e.courier, c[0], c[1], c[2])
		}
		want(t, a, 429, "RATE_LIMITED")
		if a.header.Get("Retry-After") == "" || a.quota() {
			t.Errorf("%s: %v", a.asked, a.header)
		}
	}

	want(t, e.login("fleet", e.courier.clientID, e.courier.secret), 200, "")
	other := e.newFleet("Rival", istanbul)
	want(t, e.fleet(other, "GET", "/jobs", ""), 200, "")
	if text := e.get(e.private+"/metrics", "").body; !strings.Contains(text, `gateway_limited_total{endpoint="fleet_locations"} 1`) {
		t.Error("the metrics count no limited request")
	}

	want(t, e.admin("PATCH", "/fleets/"+e.courier.id, `{"requestsPerSecond":10000}`), 200, "", "requestsPerSecond", 10000)
	want(t, e.fleet(e.courier, "GET", "/jobs", ""), 200, "")
}

// untilLimited repeats a request that counts as price until the limit of its fleet, of perSecond requests a second,
// refuses it. No more are admitted than the limit pays for: five seconds' worth at once, and then what comes in by the
// second.
func (e *env) untilLimited(perSecond, price int, send func() answer) (admitted int, refusal answer) {
	e.Helper()
	began := time.Now()
	for range 200 {
		a := send()
		if a.status == 429 {
			return admitted, want(e, a, 429, "RATE_LIMITED")
		}

		want(e, a, 200, "")
		admitted++

		seconds := 5 + time.Since(began).Seconds()
		paid := float64(perSecond)*seconds + 1
		if float64(admitted*price) > paid {
			e.Fatalf("%d requests that count as %d each are admitted, the limit pays for %.1f", admitted, price, paid)
		}
	}

	e.Fatalf("%d requests that count as %d each are admitted, and none is refused", admitted, price)

	return admitted, refusal
}

// A batch of positions is not one request: it is asked for before Redis is.
//
//rule:fleets-and-operators/a-batch-of-positions-and
func TestFleet_BatchesCountByTheirSize(t *testing.T) {
	e := newStoreEnv(t, "")
	for name, element := range map[string]string{
		"positions":           `{"orderId":"7c9e6679-7425-80de-944b-e07fc1f90ae7","latitude":41,"longitude":29}`,
		"what cannot be read": "null",
	} {
		t.Run(name, func(t *testing.T) {
			e := e.as(t, e.account)
			fleet := e.newFleet("Careless", istanbul)
			e.admin("PATCH", "/fleets/"+fleet.id, `{"requestsPerSecond":10}`)
			batch := "[" + strings.Repeat(element+",", 299) + element + "]"

			admitted, refusal := e.untilLimited(10, 31, func() answer { return e.fleet(fleet, "POST", "/locations", batch) })

			if admitted == 0 {
				t.Error("the first batch is refused")
			}
			if wait := headerInt(refusal, "Retry-After"); wait < 1 {
				t.Errorf("Retry-After %d for a batch that counts as three seconds of requests", wait)
			}
		})
	}
}

// Many reports of one fleet at once, and many changes by operators, are answered: the last
// report wins.
func TestFleetAvailability_ManyAtOnceAllSucceed(t *testing.T) {
	e := newStoreEnv(t, "")
	e.admin("PATCH", "/fleets/"+e.courier.id, `{"requestsPerSecond":10000}`)
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			a := e.fleet(e.courier, "PUT", "/availability", fmt.Sprintf(`{"couriers":%d}`, n+1))
			if a.status != 200 {
				t.Errorf("a report among many: %d %s", a.status, a.body)
			}
		})

		all.Go(func() {
			a := e.tryAdmin("PATCH", "/fleets/"+e.courier.id, fmt.Sprintf(`{"avgDeliveryMinutes":%d}`, n+1))
			if a.status != 200 && (a.status != 503 || a.header.Get("Retry-After") == "") {
				t.Errorf("a change among many: %d %s", a.status, a.body)
			}
		})
	}

	all.Wait()
	e.created("POS-1")
	want(t, e.fleet(e.courier, "PUT", "/availability", `{"couriers":0}`), 200, "")
	want(t, e.order(orderBody("POS-2"), ""), 503, "FLEET_UNAVAILABLE")
}

// A report of couriers moves no area, neither into Redis nor out of it.
func TestFleetAvailability_CostsNoArea(t *testing.T) {
	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newQuietEnv(t, server).withStore("")
	n := 0
	cost := e.work(server, func() {
		n++
		want(t, e.fleet(e.courier, "PUT", "/availability", fmt.Sprintf(`{"couriers":%d}`, n)), 200, "")
	})
	if cost["hset"] != 1 || cost["hgetall"] > 8 || cost["hmget"] > 3 { // the load after the change
		t.Errorf("a report costs %v", cost)
	}
}

// A store whose record is broken hides no job, and an announcement says that nobody was told of it.
func TestFleets_AnUnreadableStoreHidesNoJobAndIsCounted(t *testing.T) {
	redis := testserver.NewRedis(t)
	e := newEnvOn(t, redis, nil).withStore("")
	e.activeStore(e.account, e.courier, "s2")
	order := e.created("POS-1")

	digest := delivery.OrderDigest(e.account.accountID(), "s1")
	found, _ := redis.Do(t, "KEYS", "{*}s*").([]any)
	spoilt := 0
	for _, key := range found {
		if strings.HasSuffix(key.(string), "}s"+string(digest[:])) {
			redis.Do(t, "SET", key, "\x7fbroken")
			spoilt++
		}
	}

	if spoilt != 1 {
		t.Fatalf("%d records of the store", spoilt)
	}

	job := want(t, e.fleet(e.courier, "GET", "/jobs/"+order, ""), 200, "").data
	if job["orderId"] != order {
		t.Errorf("the job is %v", job)
	}

	want(t, e.tryAdmin("POST", "/fleets/"+e.courier.id+"/payment-overdue", ""), 200, "", "accounts", 1, "stores", 1, "unreadable", 1)
}

// What cannot be read of one fleet leaves what operators do to others in force.
//
//rule:fleets-and-operators/what-cannot-be-read-of-a-fleet
func TestFleets_AnUnreadableOneLeavesRevocationsAndSuspensionsInForce(t *testing.T) {
	redis := testserver.NewRedis(t)
	e := newEnvOn(t, redis, nil).withStore("")
	bad := e.newFleet("Unreadable", istanbul)
	id, err := delivery.ParseFleetID(bad.id)
	if err != nil {
		t.Fatal(err)
	}

	redis.Do(t, "HSET", "{sg}fleets", id[:], "\x01garbage")
	redis.Do(t, "HSET", "{sg}fleets_versions", id[:], "1000000")
	redis.Do(t, "HINCRBY", "{sg}meta", "fleets", 1)
	e.await("the unreadable fleet in the metrics", func() bool {
		return strings.Contains(e.get(e.private+"/metrics", "").body, "gateway_fleets_unreadable 1")
	})
	e.created("POS-1")
	overdue := want(t, e.tryAdmin("POST", "/fleets/"+bad.id+"/payment-overdue", ""), 503, "SERVICE_UNAVAILABLE")
	if !strings.Contains(overdue.message, "PATCH /fleets/{fleetId}") {
		t.Errorf("%q does not say what to do", overdue.message)
	}

	want(t, e.tryAdmin("PATCH", "/fleets/"+bad.id, `{"disabled":true}`), 200, "", "disabled", true)
	want(t, e.fleet(bad, "GET", "/jobs", ""), 403, "FLEET_DISABLED")
	want(t, e.tryAdmin("PATCH", "/fleets/"+e.courier.id, `{"suspended":true}`), 200, "")
	want(t, e.order(orderBody("POS-2"), ""), 423, "FLEET_SUSPENDED")
	want(t, e.tryAdmin("POST", "/accounts/"+e.account.id+"/credentials", `{"revokeOld":true}`), 200, "")
	e.await("the end of the revoked token", func() bool { return e.order(orderBody("POS-3"), "").status == 401 })
	e.awaitReady()
}

// A gateway that cannot learn of suspensions says so while Redis answers.
func TestReady_NotWithFleetsThatAreStale(t *testing.T) {
	redis := testserver.NewRedis(t)
	e := newEnvOn(t, redis, nil, func(s *settings) { s.FleetsStaleAfter = time.Second })
	e.newFleet("Kurye", istanbul)
	redis.Do(t, "RENAME", "{sg}fleets_controls", "{sg}away")
	redis.Do(t, "SET", "{sg}fleets_controls", "no hash")
	redis.Do(t, "HINCRBY", "{sg}meta", "fleets", 1)
	e.await("not ready", func() bool {
		a := e.get(e.private+"/readyz", "")
		return a.status == 503 && strings.Contains(a.body, "suspensions")
	})

	text := e.get(e.private+"/metrics", "").body
	if !regexp.MustCompile(`gateway_fleets_age_seconds [1-9]`).MatchString(text) {
		t.Error("the metrics do not show the age")
	}

	redis.Do(t, "RENAME", "{sg}away", "{sg}fleets_controls")
	e.awaitReady()
}

//rule:fleets-and-operators/at-most-64-requests-of
func TestFleet_HoldsSoManyRequestsInFlight(t *testing.T) {
	e := newStoreEnv(t, "")
	id, err := delivery.ParseFleetID(e.courier.id)
	if err != nil {
		t.Fatal(err)
	}

	own := e.g.fleetLimiter(id)
	for range maxFleetInFlight {
		if !own.enter() {
			t.Fatal("no place")
		}
	}

	want(t, e.fleet(e.courier, "GET", "/jobs", ""), 503, "SERVICE_UNAVAILABLE", "retryAfterSeconds", 1)
	want(t, e.fleet(e.newFleet("Rival", istanbul), "GET", "/jobs", ""), 200, "")
	own.leave()
	want(t, e.fleet(e.courier, "GET", "/jobs", ""), 200, "")
	if inside := own.inside.Load(); inside != maxFleetInFlight-1 {
		t.Errorf("%d inside", inside)
	}
}

//rule:fleet-api/post-locations
func TestFleetLocations_KeepTheLastPosition(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	id := e.created("POS-1")
	e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", mehmet)
	stranger := delivery.MakeOrderID(0, 1, delivery.OrderDigest(delivery.AccountID{}, "x")).String()
	now := time.Now()
	body := fmt.Sprintf(`[{"orderId":%q,"latitude":40.99,"longitude":29.03,"at":%q},{"orderId":%q,"latitude":41,"longitude":29}]`,
		id, now.Format(time.RFC3339Nano), stranger)
	want(t, e.fleet(e.courier, "POST", "/locations", body), 200, "", "accepted", 1, "ignored", 1)
	older := fmt.Sprintf(`[{"orderId":%q,"latitude":41,"longitude":29,"at":%q}]`, id, now.Add(-time.Minute).Format(time.RFC3339Nano))
	want(t, e.fleet(e.courier, "POST", "/locations", older), 200, "")
	if order := e.stored(id); order.Location.Point != (delivery.Point{Latitude: 40.99, Longitude: 29.03}) {
		t.Errorf("%+v", order.Location)
	}

	want(t, e.fleet(e.courier, "POST", "/locations", `[]`), 200, "", "accepted", 0, "ignored", 0, "rejectedCount", 0, "rejected", []any{})
	tooMany := "[" + strings.Repeat(`{"orderId":"`+id+`","latitude":41,"longitude":29},`, 5000) + `1]`
	wantField(t, e.fleet(e.courier, "POST", "/locations", tooMany), 422, "VALIDATION_FAILED", "")
	for _, noArray := range []string{`{}`, `null`, `"x"`, `[1`, `[1,]`, `[{"orderId":"x"}{}]`, `[NaN]`, `[] []`, "[\"\xff\"]"} {
		want(t, e.fleet(e.courier, "POST", "/locations", noArray), 400, "MALFORMED_REQUEST")
	}
}

// What cannot be read of a batch hides nothing else of it, and is named.
//
//rule:fleet-api/post-locations
func TestFleetLocations_KeepWhatCanBeReadAndNameTheRest(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	first, last := e.created("POS-1"), e.created("POS-2")
	for _, id := range []string{first, last} {
		e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", mehmet)
	}

	place := func(id string) string { return `{"orderId":"` + id + `","latitude":40.99,"longitude":29.03}` }

	for element, message := range map[string]string{
		`null`: "must be an object", `1`: "must be an object", `"x"`: "must be an object", `[]`: "must be an object", `true`: "must be an object",
		`[{"orderId":"` + first + `","latitude":41,"longitude":29}]`: "must be an object",
		`{}`:                             "orderId is required; latitude is required; longitude is required",
		`{"latitude":41,"longitude":29}`: "orderId is required",
		`{"orderId":"` + first + `"}`:    "latitude is required; longitude is required",
		`{"OrderId":"` + first + `","latitude":41,"longitude":29}`:                             "orderId is required; \"OrderId\" is not known; did you mean \"orderId\"?",
		`{"orderId":null,"latitude":41,"longitude":29}`:                                        "orderId is required",
		`{"orderId":"A-1001","latitude":41,"longitude":29}`:                                    "orderId must be an order id",
		`{"orderId":"7c9e6679-7425-40de-944b-e07fc1f90ae7","latitude":41,"longitude":29}`:      "orderId must be an order id",
		`{"orderId":17,"latitude":41,"longitude":29}`:                                          "orderId must be a string",
		`{"orderId":"` + first + `","latitude":null,"longitude":29}`:                           "latitude is required",
		`{"orderId":"` + first + `","latitude":"41","longitude":29}`:                           "latitude must be a number, without quotes",
		`{"orderId":"` + first + `","latitude":{},"longitude":29}`:                             "latitude must be a number",
		`{"orderId":"` + first + `","latitude":91,"longitude":29}`:                             "latitude must be from -90 to 90",
		`{"orderId":"` + first + `","latitude":1e999,"longitude":29}`:                          "latitude must be from -90 to 90",
		`{"orderId":"` + first + `","latitude":41,"longitude":-180.5}`:                         "longitude must be from -180 to 180",
		`{"orderId":"` + first + `","latitude":41,"longitude":29,"at":"yesterday"}`:            "at must be an ISO 8601 time such as 2026-11-21T12:30:00+03:00",
		`{"orderId":"` + first + `","latitude":41,"longitude":29,"at":1795836193}`:             "at must be a string",
		`{"orderId":"` + first + `","latitude":41,"longitude":29,"at":"2001-01-01T00:00:00Z"}`: "at must not lie more than 24 hours in the past; it is read as 2001-01-01T03:00:00.000+03:00",
		`{"orderId":"` + first + `","latitude":41,"latitude":42,"longitude":29}`:               `the key "latitude" occurs twice in one object`,
		`{"orderId":"` + first + `","latitude":41,"longitude":29,"x":[{"y":1,"y":1}]}`:         `the key "y" occurs twice in one object`,
	} {
		a := want(t, e.fleet(e.courier, "POST", "/locations", "["+place(first)+","+element+","+place(last)+"]"), 200, "", "accepted", 2, "ignored", 0, "rejectedCount", 1)
		code := "VALIDATION_FAILED"
		if strings.Contains(message, "twice") {
			code = "MALFORMED_REQUEST"
		}

		named := []any{map[string]any{"index": 1.0, "errorCode": code, "message": message}}
		if got := a.data["rejected"]; !reflect.DeepEqual(got, named) {
			t.Errorf("%s: %v, want %v", element, got, named)
		}

		want(t, e.fleet(e.courier, "POST", "/locations", "["+element+"]"), 200, "", "accepted", 0, "ignored", 0, "rejectedCount", 1)
	}

	// Unknown members are ignored, as everywhere.
	want(t, e.fleet(e.courier, "POST", "/locations", `[{"orderId":"`+first+`","latitude":41,"longitude":29,"accuracy":8,"at":null}]`), 200, "", "accepted", 1)
	many := want(t, e.fleet(e.courier, "POST", "/locations", "["+strings.Repeat("1,", 4999)+place(first)+"]"), 200, "", "accepted", 1, "rejectedCount", 4999)
	if named := many.list("rejected"); len(named) != 100 || named[99]["index"] != 99.0 {
		t.Errorf("%d are named", len(named))
	}
}

// A phone that does not know where it is, and one that says where no courier can be.
//
//rule:fleets-and-operators/a-place-more-than-two
func TestFleetReports_LeaveOutWhereNoCourierCanBe(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	for n, place := range []string{
		`"latitude":0,"longitude":0`, `"latitude":-0.0,"longitude":-0.0`, `"latitude":0.0004,"longitude":-0.0002`, `"latitude":1e-300,"longitude":0`,
		`"latitude":-89.9,"longitude":29`, `"latitude":52.52,"longitude":13.4`, `"latitude":29.03,"longitude":40.98`, `"latitude":40.98,"longitude":0`,
	} {
		id := e.created(fmt.Sprint("POS-", n))
		want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", strings.TrimSuffix(mehmet, "}")+`,"location":{`+place+`}}`), 200, "")
		want(t, e.fleet(e.courier, "POST", "/locations", `[{"orderId":"`+id+`",`+place+`}]`), 200, "", "accepted", 0, "ignored", 1, "rejectedCount", 0)
		want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/status", `{"status":"PickingUp","location":{`+place+`}}`), 202, "")
		e.await("the status", func() bool { return e.stored(id).Status == delivery.PickingUp })
		if o := e.stored(id); !o.Location.IsZero() || !o.Changes[0].Location.IsZero() || !o.Changes[1].Location.IsZero() {
			t.Errorf("%s is a place: %+v", place, o)
		}
	}

	id := e.created("POS-near") // Alexandroupoli, in Greece
	const place = `"location":{"latitude":40.85,"longitude":25.87}`
	want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", strings.TrimSuffix(mehmet, "}")+`,`+place+`}`), 200, "")
	e.await("the acceptance", func() bool { return e.stored(id).Status == delivery.Assigned })
	if o := e.stored(id); o.Location.Longitude != 25.87 {
		t.Errorf("%+v", o.Location)
	}
}

// Nobody can set a courier's clock: what it dates ahead was reported now, and hides nothing later.
//
//rule:fleets-and-operators/times-of-reports-are-phones
func TestFleetReports_ReadATimeAheadAsNow(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	for n, ahead := range []string{
		formatTime(time.Now().Add(time.Minute)), formatTime(time.Now().Add(6 * time.Minute)), formatTime(time.Now().Add(24 * time.Hour)),
		formatTime(time.Now().AddDate(1, 0, 0)), "2106-02-07T06:28:15Z", "9999-12-31T23:59:59Z",
	} {
		id := e.created(fmt.Sprint("POS-", n))
		timed := func(body string) string { return strings.TrimSuffix(body, "}") + `,"at":"` + ahead + `"}` }
		want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", timed(mehmet)), 200, "")
		want(t, e.fleet(e.courier, "POST", "/locations", "["+timed(`{"orderId":"`+id+`","latitude":40.99,"longitude":29.03}`)+"]"), 200, "", "accepted", 1)
		want(t, e.fleet(e.courier, "POST", "/locations", `[{"orderId":"`+id+`","latitude":40.98,"longitude":29.04}]`), 200, "", "accepted", 1)
		want(t, e.fleet(e.courier, "PUT", "/jobs/"+id+"/courier", timed(ayse)), 200, "")
		want(t, e.fleet(e.courier, "POST", "/locations", `[{"orderId":"`+id+`","latitude":40.97,"longitude":29.05}]`), 200, "", "accepted", 1)
		want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/status", timed(`{"status":"Delivered"}`)), 202, "")
		e.await("the delivery", func() bool { return e.stored(id).Status == delivery.Delivered })
		o := e.stored(id)
		if o.UpdatedAt().After(time.Now().Add(time.Second)) || o.Location.Latitude != 40.97 || o.Courier.Name != "Ayşe Kaya" {
			t.Errorf("%s: %+v", ahead, o)
		}
	}
}

func TestFleetReports_MayBeADayOld(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, isTaken := range map[string]bool{"2026-11-21T12:00:00Z": true, "2026-11-21T11:59:59.999Z": false} {
		f := new(form)

		f.occurred(delivery.Text{Set: true, Value: text}, now)

		if got := f.err() == nil; got != isTaken {
			t.Errorf("%s is taken: %t, want %t", text, got, isTaken)
		}
	}
}

//rule:fleets-and-operators/etadropoffat-lies-between-an
func TestFleetReports_TakeAnEstimateOfThePresentOnly(t *testing.T) {
	e := newStoreEnv(t, "")
	e.playWorker()
	id := e.created("POS-1")
	in := func(d time.Duration) string {
		return `"etaDropoffAt":"` + time.Now().Add(d).Format(time.RFC3339Nano) + `"}`
	}
	accept, status := strings.TrimSuffix(mehmet, "}")+",", `{"status":"PickingUp",`
	for _, estimate := range []string{in(-61 * time.Minute), in(6*time.Hour + time.Minute), `"etaDropoffAt":"2000-01-01T00:00:00Z"}`, `"etaDropoffAt":"2099-01-01T00:00:00Z"}`} {
		for path, body := range map[string]string{"/accept": accept, "/status": status} {
			a := e.fleet(e.courier, "POST", "/jobs/"+id+path, body+estimate)
			wantField(t, a, 422, "VALIDATION_FAILED", "etaDropoffAt")
			if !strings.Contains(a.message, "between one hour ago and 6 hours ahead, from 20") {
				t.Errorf("%q names no bounds", a.message)
			}

			// Only a time that is too late may be a local one with a Z behind it.
			isEarly := strings.Contains(estimate, "2000-")
			if isEarly && strings.Contains(a.message, "has no Z") {
				t.Errorf("%s: %q", estimate, a.message)
			}
		}
	}

	want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/accept", accept+in(5*time.Hour+59*time.Minute)), 200, "")
	want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/status", status+in(-59*time.Minute)), 202, "")
	e.await("the status", func() bool { return e.stored(id).Status == delivery.PickingUp })
	if o := e.stored(id); o.Changes[0].ETA.IsZero() || o.Changes[1].ETA.IsZero() {
		t.Errorf("%+v", o.Changes)
	}
}

//rule:fleet-api/put-availability decisions/fleet-option-status
func TestFleetAvailability_HoldsAtOnce(t *testing.T) {
	e := newStoreEnv(t, "")
	available := func(couriers string) answer {
		return e.fleet(e.courier, "PUT", "/availability", `{"couriers":`+couriers+`}`)
	}
	want(t, available("0"), 200, "", "couriers", 0)
	want(t, e.order(orderBody("POS-1"), ""), 503, "FLEET_UNAVAILABLE")
	if a := e.putStore(e.account, "s2", storeBody(kadikoy, "")); !strings.Contains(a.body, `"status":"Unavailable"`) {
		t.Errorf("%s", a.body)
	}

	for range 2 {
		want(t, available("3"), 200, "")
	}

	for i := range 5 { // n is never counted down by the service
		e.created(fmt.Sprint("POS-", i))
	}

	for _, wrong := range []string{"-1", "1.5", `"3"`, "null"} {
		want(t, available(wrong), 422, "VALIDATION_FAILED")
	}

	want(t, e.fleet(e.courier, "PUT", "/availability", "{}"), 422, "VALIDATION_FAILED")
}
