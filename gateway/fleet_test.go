package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// feed consumes a role's entries as a worker does, until stop is called.
func (w *world) feed(role ledger.Role, handle func(partition int, batch []ledger.Entry) error) (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = w.ledger().RunFeed(ctx, ledger.Feed{
			Role: role, Consumer: "test",
			Handle: func(_ context.Context, partition int, batch []ledger.Entry) error { return handle(partition, batch) },
			Log:    func(string, ...any) {},
		})
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// worker plays the status worker: it indexes new orders and decides updates.
func (w *world) worker() (stop func()) {
	l := w.ledger()
	return w.feed(ledger.RoleStatus, func(partition int, batch []ledger.Entry) error {
		var events []ledger.Entry
		for _, e := range batch {
			if e.Update == nil {
				events = append(events, e)
				continue
			}
			order, err := l.Order(w.Context(), e.Update.Order)
			if err != nil {
				return err
			}
			decision := delivery.Decide(order, *e.Update, time.Now())
			commit := ledger.Commit{Order: order, Changes: decision.Changes, Settles: []ledger.Entry{e}}
			if decision.Verdict == delivery.Swap {
				commit.Swap = &e.Update.Courier
			}
			if _, err := l.CommitAll(w.Context(), []ledger.Commit{commit}); err != nil {
				return err
			}
		}
		if len(events) == 0 {
			return nil
		}
		return l.IndexJobs(w.Context(), partition, events)
	})
}

const mehmet = `{"courier":{"name":"Mehmet Yılmaz","phone":"+905559998877","vehicleType":"Motorcycle"}}`

//rule:fleet-api/get-jobs-status-searching-cursor
func TestFleetJobs_ListShowsWhatACourierNeeds(t *testing.T) {
	s := newScene(t, "")
	defer s.worker()()
	id := s.created("POS-1", "packageNote", `"Kapıya"`, "dropoff.doorNo", `"5"`)
	var job map[string]any
	s.await("the job", func() bool {
		a := s.fleet(s.courier, "GET", "/jobs?status=Searching", "")
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		jobs := a.data["jobs"].([]any)
		if len(jobs) == 1 {
			job = jobs[0].(map[string]any)
		}
		return len(jobs) == 1 && a.data["cursor"] == ""
	})
	store, recipient := job["store"].(map[string]any), job["recipient"].(map[string]any)
	dropoff, payment := job["dropoff"].(map[string]any), job["payment"].(map[string]any)
	for what, ok := range map[string]bool{
		"orderId":     job["orderId"] == id,
		"status":      job["status"] == "Searching",
		"store":       store["externalStoreId"] == "s1" && store["name"] == "Branch" && store["phone"] == "2161234567" && store["address"] == "Moda Cad. 1" && store["latitude"] == kadikoy.Latitude,
		"recipient":   recipient["name"] == "Ayşe Yılmaz" && recipient["phone"] == "5321234567",
		"dropoff":     dropoff["doorNo"] == "5" && dropoff["longitude"] == kadikoy.Longitude,
		"packageNote": job["packageNote"] == "Kapıya",
		"payment":     payment["type"] == "Card" && payment["collectionAmount"] == 349.9,
		"times":       job["readyAt"] != "" && job["createdAt"] != "",
		"version":     job["version"].(float64) > 0,
		"no courier":  job["courier"] == nil,
	} {
		if !ok {
			t.Errorf("%s is wrong in %v", what, job)
		}
	}
	if a := s.fleet(s.courier, "GET", "/jobs", ""); len(a.data["jobs"].([]any)) != 1 {
		t.Errorf("Searching is not the default: %s", a.body)
	}
	for _, query := range []string{"?status=Delivered", "?status=searching", "?status=x"} {
		if a := s.fleet(s.courier, "GET", "/jobs"+query, ""); a.status != 422 {
			t.Errorf("%s: %d", query, a.status)
		}
	}
	if a := s.fleet(s.courier, "GET", "/jobs?cursor=nonsense", ""); a.status != 422 && a.status != 200 {
		t.Errorf("a cursor that is none: %d %s", a.status, a.body)
	}
}

//rule:fleet-api/get-jobs-status-searching-cursor
func TestFleetJobs_PagesReachEveryJobOnce(t *testing.T) {
	s := newScene(t, `{"orders":{"sustained":{"count":1000,"seconds":60},"burst":{"count":1000,"seconds":10}}}`)
	defer s.worker()()
	const n = 130
	for i := range n {
		s.created(fmt.Sprint("POS-", i))
	}
	s.await("all jobs", func() bool {
		seen := map[string]bool{}
		for cursor, pages := "", 0; ; pages++ {
			a := s.fleet(s.courier, "GET", "/jobs?cursor="+cursor, "")
			if a.status != 200 || pages > n {
				t.Fatalf("%d %s", a.status, a.body)
			}
			for _, job := range a.data["jobs"].([]any) {
				id := job.(map[string]any)["orderId"].(string)
				if seen[id] {
					t.Errorf("%s is listed twice", id)
				}
				seen[id] = true
			}
			if cursor = a.data["cursor"].(string); cursor == "" {
				return len(seen) == n
			}
		}
	})
}

//rule:order-status-delivery-state/events delivery-rules/7 fleet-api/post-jobs-orderid-accept fleet-api/post-jobs-orderid-status
//rule:fleet-api/put-jobs-orderid-courier fleet-api/get-jobs-orderid decisions/courier-location-etadropoffat-while-unknown
func TestFleetJobs_FromAcceptToDelivered(t *testing.T) {
	s := newScene(t, "")
	defer s.worker()()
	id := s.created("POS-1")
	a := s.fleet(s.courier, "POST", "/jobs/"+id+"/accept", mehmet)
	if a.status != 200 || a.body != fmt.Sprintf(`{"success":true,"data":{"orderId":"%s","status":"Assigned"}}`, id) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	reached := func(status string) {
		t.Helper()
		s.await(status, func() bool { return s.fleet(s.courier, "GET", "/jobs/"+id, "").data["status"] == status })
	}
	reached("Assigned")
	swap := `{"courier":{"name":"Ali Veli","phone":"5551112233","vehicleType":"Bicycle"}}`
	if a := s.fleet(s.courier, "PUT", "/jobs/"+id+"/courier", swap); a.status != 200 || a.data["status"] != "Assigned" {
		t.Errorf("swap: %d %s", a.status, a.body)
	}
	s.await("the other courier", func() bool {
		courier := s.fleet(s.courier, "GET", "/jobs/"+id, "").data["courier"].(map[string]any)
		return courier["name"] == "Ali Veli"
	})
	if a := s.fleet(s.courier, "PUT", "/jobs/"+id+"/courier", `{"name":"Can Kaya","phone":"5551112244","vehicleType":"Car"}`); a.status != 200 {
		t.Errorf("bare swap: %d %s", a.status, a.body)
	}
	for _, body := range []string{
		`{"status":"PickingUp"}`,
		`{"status":"Delivering","location":{"latitude":40.99,"longitude":29.03},"etaDropoffAt":"` + time.Now().Add(10*time.Minute).Format(time.RFC3339) + `"}`,
		`{"status":"Delivered","at":"` + time.Now().Format(time.RFC3339) + `","failureReason":null}`,
	} {
		if a := s.fleet(s.courier, "POST", "/jobs/"+id+"/status", body); a.status != 202 || a.data["orderId"] != id {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
	}
	reached("Delivered")
	vendors := s.get(s.vendor+"/api/vendor/v1/orders/"+id, s.account.token)
	if events := vendors.data["events"].([]any); len(events) != 6 {
		t.Errorf("events = %v", events)
	}
	if courier := vendors.data["courier"].(map[string]any); courier["name"] != "Can K." {
		t.Errorf("courier = %v", courier)
	}
	if _, there := vendors.data["location"]; there {
		t.Error("the location is in GET")
	}
	for _, r := range [][2]string{{"POST", "accept"}, {"PUT", "courier"}} {
		if a := s.fleet(s.courier, r[0], "/jobs/"+id+"/"+r[1], mehmet); a.status != 409 || a.code != "JOB_NOT_AVAILABLE" || a.data["status"] != "Delivered" {
			t.Errorf("%s after the end: %d %s", r[1], a.status, a.body)
		}
	}
	if a := s.fleet(s.courier, "POST", "/jobs/"+id+"/status", `{"status":"PickedUp"}`); a.status != 202 {
		t.Errorf("an illegal move is the worker's to refuse: %d %s", a.status, a.body)
	}
}

//rule:fleet-api/get-jobs-orderid
func TestFleetJobs_CancelledOnesAreListed(t *testing.T) {
	s := newScene(t, "")
	defer s.worker()()
	id := s.created("POS-1")
	s.await("the job", func() bool { return len(s.fleet(s.courier, "GET", "/jobs", "").data["jobs"].([]any)) == 1 })
	s.cancel(id, "")
	s.await("the cancelled job", func() bool {
		jobs := s.fleet(s.courier, "GET", "/jobs?status=Cancelled", "").data["jobs"].([]any)
		return len(jobs) == 1 && jobs[0].(map[string]any)["orderId"] == id
	})
	if a := s.fleet(s.courier, "POST", "/jobs/"+id+"/accept", mehmet); a.status != 409 || a.code != "JOB_NOT_AVAILABLE" || a.data["status"] != "Cancelled" {
		t.Errorf("accept: %d %s", a.status, a.body)
	}
}

//rule:private-apis/fleet-post-api-fleet-v1-token-with-clientid fleets-and-operators/on-a-status-update-the decisions/fleet-option-status
func TestFleetJobs_Refusals(t *testing.T) {
	s := newScene(t, "")
	id, rival := s.created("POS-1"), s.newFleet("Rival", istanbul)
	status := func(body string) (string, string, string) { return "POST", "/jobs/" + id + "/status", body }
	accept := func(body string) (string, string, string) { return "POST", "/jobs/" + id + "/accept", body }
	at := func(d time.Duration) string { return `"at":"` + time.Now().Add(d).Format(time.RFC3339) + `"` }
	check := func(name string, want int, code, field string) func(method, path, body string) {
		return func(method, path, body string) {
			t.Helper()
			a := s.fleet(s.courier, method, path, body)
			got := ""
			if fields, ok := a.data["fields"].([]any); ok {
				got = fields[0].(map[string]any)["field"].(string)
			}
			if a.status != want || a.code != code || got != field {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
	}
	const invalid = "VALIDATION_FAILED"
	check("no status", 422, invalid, "status")(status(`{}`))
	check("unknown status", 422, invalid, "status")(status(`{"status":"Flying"}`))
	check("Searching", 422, invalid, "status")(status(`{"status":"Searching"}`))
	check("Cancelled", 422, invalid, "status")(status(`{"status":"Cancelled"}`))
	check("Failed without reason", 422, invalid, "failureReason")(status(`{"status":"Failed"}`))
	check("unknown reason", 422, invalid, "failureReason")(status(`{"status":"Failed","failureReason":"Bored"}`))
	check("reason without Failed", 422, invalid, "failureReason")(status(`{"status":"Delivered","failureReason":"Other"}`))
	check("too far ahead", 422, invalid, "at")(status(`{"status":"PickedUp",` + at(6*time.Minute) + `}`))
	check("too long ago", 422, invalid, "at")(status(`{"status":"PickedUp",` + at(-25*time.Hour) + `}`))
	check("no time", 422, invalid, "at")(status(`{"status":"PickedUp","at":"now"}`))
	check("half a location", 422, invalid, "location.longitude")(status(`{"status":"PickedUp","location":{"latitude":1}}`))
	check("location off the earth", 422, invalid, "location.latitude")(status(`{"status":"PickedUp","location":{"latitude":91,"longitude":0}}`))
	check("location of another type", 422, invalid, "location")(status(`{"status":"PickedUp","location":"here"}`))
	check("eta unreadable", 422, invalid, "etaDropoffAt")(status(`{"status":"PickedUp","etaDropoffAt":"soon"}`))
	check("malformed", 400, "MALFORMED_REQUEST", "")(status(`{`))
	check("no courier", 422, invalid, "courier.name")(accept(`{}`))
	check("courier of another type", 422, invalid, "courier")(accept(`{"courier":"Mehmet"}`))
	check("phone wrong", 422, invalid, "courier.phone")(accept(`{"courier":{"name":"Mehmet","phone":"1","vehicleType":"Car"}}`))
	check("vehicle too long", 422, invalid, "courier.vehicleType")(accept(`{"courier":{"name":"Mehmet","phone":"5551112233","vehicleType":"` + strings.Repeat("x", 33) + `"}}`))
	check("no such job", 404, "ORDER_NOT_FOUND", "")("GET", "/jobs/"+delivery.NewFleetID().String(), "")
	check("no id", 404, "ORDER_NOT_FOUND", "")("POST", "/jobs/x/status", `{"status":"PickedUp"}`)
	check("nowhere", 404, "NOT_FOUND", "")("GET", "/couriers", "")
	for _, r := range [][3]string{{"GET", "", ""}, {"POST", "/accept", mehmet}, {"POST", "/status", `{"status":"PickedUp"}`}, {"PUT", "/courier", mehmet}} {
		if a := s.fleet(rival, r[0], "/jobs/"+id+r[1], r[2]); a.status != 404 || a.code != "ORDER_NOT_FOUND" {
			t.Errorf("another fleet's %s: %d %s", r[1], a.status, a.body)
		}
	}
}

func TestFleetTokens_Refusals(t *testing.T) {
	s := newScene(t, "")
	for name, token := range map[string]string{"none": "", "a vendor's": s.account.token, "the admin key": adminKey} {
		if a := s.fleet(party{token: token}, "GET", "/jobs", ""); a.status != 401 || a.code != "TOKEN_INVALID" {
			t.Errorf("token %s: %d %s", name, a.status, a.body)
		}
	}
	ghost, err := s.g.fleetTokens.Issue(delivery.NewFleetID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if a := s.fleet(party{token: ghost}, "GET", "/jobs", ""); a.status != 401 || a.code != "TOKEN_INVALID" {
		t.Errorf("token of an unknown fleet: %d %s", a.status, a.body)
	}
	fleetID, _ := delivery.ParseFleetID(s.courier.id)
	old, err := s.g.fleetTokens.Issue(fleetID, time.Now().Add(-2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if a := s.fleet(party{token: old}, "GET", "/jobs", ""); a.status != 401 || a.code != "TOKEN_EXPIRED" {
		t.Errorf("expired token: %d %s", a.status, a.body)
	}
	if a := s.login("fleet", s.courier.clientID, "wrong"); a.status != 401 || a.code != "INVALID_CREDENTIALS" {
		t.Errorf("wrong secret: %d %s", a.status, a.body)
	}
	if a := s.login("fleet", s.account.clientID, s.account.secret); a.status != 401 || a.code != "INVALID_CREDENTIALS" {
		t.Errorf("a vendor's credentials: %d %s", a.status, a.body)
	}
}

//rule:fleet-api/post-locations
func TestFleetLocations_KeepTheLastPosition(t *testing.T) {
	s := newScene(t, "")
	defer s.worker()()
	id := s.created("POS-1")
	s.fleet(s.courier, "POST", "/jobs/"+id+"/accept", mehmet)
	stranger := delivery.MakeOrderID(0, 1, delivery.OrderDigest(delivery.AccountID{}, "x")).String()
	now := time.Now()
	body := fmt.Sprintf(`[{"orderId":%q,"latitude":40.99,"longitude":29.03,"at":%q},{"orderId":%q,"latitude":1,"longitude":1}]`,
		id, now.Format(time.RFC3339Nano), stranger)
	if a := s.fleet(s.courier, "POST", "/locations", body); a.status != 200 || a.data["accepted"] != 1.0 || a.data["ignored"] != 1.0 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	older := fmt.Sprintf(`[{"orderId":%q,"latitude":1,"longitude":1,"at":%q}]`, id, now.Add(-time.Minute).Format(time.RFC3339Nano))
	if a := s.fleet(s.courier, "POST", "/locations", older); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	parsed, _ := delivery.ParseOrderID(id)
	order, err := s.ledger().Order(t.Context(), parsed)
	if err != nil || order.Location.Point != (delivery.Point{Latitude: 40.99, Longitude: 29.03}) {
		t.Errorf("%+v, %v", order.Location, err)
	}
	if a := s.fleet(s.courier, "POST", "/locations", `[]`); a.status != 200 || a.data["accepted"] != 0.0 {
		t.Errorf("empty batch: %d %s", a.status, a.body)
	}
	for body, field := range map[string]string{
		`[1]`:                            "[0]",
		`[{"latitude":1,"longitude":1}]`: "[0].orderId",
		`[{"orderId":"` + id + `"}]`:     "[0].latitude",
		`[{"orderId":"x","latitude":1,"longitude":1}]`:                                        "[0].orderId",
		`[{"orderId":"` + id + `","latitude":"1","longitude":1}]`:                             "[0].latitude",
		`[{"orderId":"` + id + `","latitude":1,"longitude":181}]`:                             "[0].longitude",
		`[{"orderId":"` + id + `","latitude":1,"longitude":1},{"orderId":2}]`:                 "[1].orderId",
		`[{"orderId":"` + id + `","latitude":1,"longitude":1,"at":"2001-01-01T00:00:00Z"}]`:   "[0].at",
		"[" + strings.Repeat(`{"orderId":"`+id+`","latitude":1,"longitude":1},`, 5000) + `1]`: "",
	} {
		a := s.fleet(s.courier, "POST", "/locations", body)
		if fields, ok := a.data["fields"].([]any); a.status != 422 || !ok || fields[0].(map[string]any)["field"] != field {
			t.Errorf("%.80s: %d %.200s", body, a.status, a.body)
		}
	}
	if a := s.fleet(s.courier, "POST", "/locations", `{}`); a.status != 400 {
		t.Errorf("no array: %d %s", a.status, a.body)
	}
}

//rule:fleet-api/put-availability decisions/fleet-option-status
func TestFleetAvailability_HoldsAtOnce(t *testing.T) {
	s := newScene(t, "")
	if a := s.fleet(s.courier, "PUT", "/availability", `{"couriers":0}`); a.status != 200 || a.data["couriers"] != 0.0 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.order(orderBody("POS-1"), ""); a.status != 503 || a.code != "FLEET_UNAVAILABLE" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.putStore(s.account, "s2", storeBody(kadikoy, "")); !strings.Contains(a.body, `"status":"Unavailable"`) {
		t.Errorf("%s", a.body)
	}
	for range 2 {
		if a := s.fleet(s.courier, "PUT", "/availability", `{"couriers":3}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for i := range 5 { // n is never counted down by the service
		s.created(fmt.Sprint("POS-", i))
	}
	for _, body := range []string{`{}`, `{"couriers":-1}`, `{"couriers":1.5}`, `{"couriers":"3"}`, `{"couriers":null}`} {
		if a := s.fleet(s.courier, "PUT", "/availability", body); a.status != 422 {
			t.Errorf("%s: %d", body, a.status)
		}
	}
}
