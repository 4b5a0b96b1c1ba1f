package systemtest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

var someCourier = map[string]any{"courier": map[string]string{"name": "Kemal Sarıgülözü", "phone": "05457778899", "vehicleType": "Motorcycle"}}

// jobOf is an order as its own fleet sees it.
func (e *env) jobOf(t *testing.T, order string) (status string, courier *struct{ Name string }) {
	t.Helper()
	var job struct {
		Status  string
		Courier *struct{ Name string }
	}

	succeeds(t, e.Fleet, http.MethodGet, "/jobs/"+order, nil, &job)
	return job.Status, job.Courier
}

// pending is a store of a's that waits for the demo's fleet.
func (e *env) pending(t *testing.T, id string) {
	t.Helper()
	succeeds(t, e.a.Client, http.MethodPut, "/stores/"+id, stack.StoreBody(e.Demo.Fleet.FleetID), nil)
}

func crossFleetStores(t *testing.T, e *env) {
	e.pending(t, "waits-1")
	if own := e.storeOf(t, e.a, "waits-1"); !strings.Contains(own, "AwaitingFleetApproval") {
		t.Errorf("the fleet itself sees %q", own)
	}

	for _, query := range []string{"", "?status=AwaitingFleetApproval", "?status=Active", "?fleetId=" + e.Demo.Fleet.FleetID} {
		var list struct{ Stores []json.RawMessage }
		succeeds(t, e.rival, http.MethodGet, "/stores"+query, nil, &list)
		if len(list.Stores) != 0 {
			t.Errorf("another fleet sees %d stores with %q: %s", len(list.Stores), query, list.Stores[0])
		}
	}
}

// crossAnswer: another fleet's yes or no to a store is one to a store that does
// not exist.
func crossAnswer(t *testing.T, e *env, id, answer string) {
	t.Helper()
	e.pending(t, id)
	unknownTo(t, e.rival, "STORE_NOT_FOUND", http.MethodPost, "/stores/"+e.a.AccountID+"/{}/"+answer, id, "never-seen", nil)
	unknownTo(t, e.rival, "STORE_NOT_FOUND", http.MethodPost, "/stores/{}/"+id+"/"+answer, e.a.AccountID, unknownOrder, nil)
	if now := e.storeOf(t, e.a, id); !strings.Contains(now, "AwaitingFleetApproval") {
		t.Errorf("after another fleet's %s the store is %q", answer, now)
	}

	succeeds(t, e.Fleet, http.MethodPost, "/stores/"+e.a.AccountID+"/"+id+"/"+answer, nil, nil)
}

func crossConfirm(t *testing.T, e *env) { crossAnswer(t, e, "waits-2", "confirm") }
func crossReject(t *testing.T, e *env)  { crossAnswer(t, e, "waits-3", "reject") }

func crossJobs(t *testing.T, e *env) {
	var own struct{ Jobs []struct{ OrderID string } }
	succeeds(t, e.Fleet, http.MethodGet, "/jobs", nil, &own)
	if len(own.Jobs) == 0 {
		t.Error("the fleet itself has no job")
	}

	for _, status := range []string{"", "?status=Searching", "?status=Assigned", "?status=Cancelled", "?fleetId=" + e.Demo.Fleet.FleetID} {
		var theirs struct{ Jobs []json.RawMessage }
		succeeds(t, e.rival, http.MethodGet, "/jobs"+status, nil, &theirs)
		if len(theirs.Jobs) != 0 {
			t.Errorf("another fleet sees %d jobs with %q: %s", len(theirs.Jobs), status, theirs.Jobs[0])
		}
	}
}

// crossMove: what another fleet says of a job moves nothing.
func crossMove(t *testing.T, e *env, method, path string, body any) {
	t.Helper()
	status, courier := e.jobOf(t, e.a.pending)
	unknownTo(t, e.rival, "ORDER_NOT_FOUND", method, "/jobs/{}"+path, e.a.pending, unknownOrder, body)
	after, now := e.jobOf(t, e.a.pending)
	if after != status || (courier == nil) != (now == nil) || now != nil && now.Name != courier.Name {
		t.Errorf("after another fleet's %s the order is %s with %v", path, after, now)
	}
}

func crossJob(t *testing.T, e *env) { crossMove(t, e, http.MethodGet, "", nil) }

func crossAccept(t *testing.T, e *env) {
	crossMove(t, e, http.MethodPost, "/accept", someCourier)
	succeeds(t, e.Fleet, http.MethodPost, "/jobs/"+e.a.Create(t, nil)+"/accept", someCourier, nil)
}

func crossCourier(t *testing.T, e *env) {
	crossMove(t, e, http.MethodPut, "/courier", someCourier)
	mine := e.a.Create(t, nil)
	succeeds(t, e.Fleet, http.MethodPost, "/jobs/"+mine+"/accept", someCourier, nil)
	await(t, "the order is assigned", func() bool { status, _ := e.jobOf(t, mine); return status == "Assigned" })
	succeeds(t, e.Fleet, http.MethodPut, "/jobs/"+mine+"/courier", someCourier, nil)
}

func crossStatus(t *testing.T, e *env) {
	for _, status := range []string{"Assigned", "PickedUp", "Delivered"} {
		crossMove(t, e, http.MethodPost, "/status", map[string]string{"status": status})
	}
	succeeds(t, e.Fleet, http.MethodPost, "/jobs/"+e.a.Create(t, nil)+"/status", map[string]string{"status": "PickedUp"}, nil)
}

// crossLocations: a position that another fleet sends is one of an unknown order,
// and the order's own webhooks do not carry it.
func crossLocations(t *testing.T, e *env) {
	at := func(order string) []map[string]any {
		return []map[string]any{{"orderId": order, "latitude": 41.01234, "longitude": 29.05678, "at": time.Now().Format(time.RFC3339)}}
	}
	mine := e.a.Create(t, nil)
	theirs := as(t, e.rival, http.MethodPost, "/locations", at(mine))
	nobodys := as(t, e.rival, http.MethodPost, "/locations", at(unknownOrder))
	alike(t, "a position", replyOf(theirs), replyOf(nobodys))
	succeeds(t, e.Fleet, http.MethodPost, "/jobs/"+mine+"/accept", someCourier, nil)
	seen := ""
	await(t, "the vendor sees that the order is assigned", func() bool {
		for _, got := range e.a.events() {
			if got.Order.OrderID == mine {
				seen = string(got.Data)
			}
		}
		return seen != ""
	})

	if strings.Contains(seen, "location") || strings.Contains(seen, "41.01234") {
		t.Errorf("another fleet has put the courier somewhere: %s", seen)
	}
}

func crossAvailability(t *testing.T, e *env) {
	succeeds(t, e.rival, http.MethodPut, "/availability", map[string]int{"couriers": 0}, nil)
	e.a.Create(t, nil) // at the other fleet
	succeeds(t, e.rival, http.MethodPut, "/availability", map[string]int{"couriers": 3}, nil)
}

func crossFleetToken(t *testing.T, e *env) {
	crossLogin(t, e.Fleet, e.Demo.Fleet.ClientID, e.other.ClientSecret, "flt_00000000000040008000000000000000")
	crossLogin(t, e.Fleet, e.Demo.Fleet.ClientID, e.a.ClientSecret, e.a.ClientID)
}
