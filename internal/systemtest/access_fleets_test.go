package systemtest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

var someCourier = map[string]any{"courier": map[string]string{"name": "Kemal Sarıgülözü", "phone": "05457778899", "vehicleType": "Motorcycle"}}

// jobOf is an order as its own fleet sees it.
func (s *site) jobOf(t *testing.T, order string) (status string, courier *struct{ Name string }) {
	t.Helper()
	var job struct {
		Status  string
		Courier *struct{ Name string }
	}
	succeeds(t, s.fleet, http.MethodGet, "/jobs/"+order, nil, &job)
	return job.Status, job.Courier
}

// pending is a store of a's that waits for the demo's fleet.
func (s *site) pending(t *testing.T, id string) {
	t.Helper()
	succeeds(t, s.a.Client, http.MethodPut, "/stores/"+id, storeBody(s.Demo.Fleet.FleetID), nil)
}

func crossFleetStores(t *testing.T, s *site) {
	s.pending(t, "waits-1")
	if own := s.storeOf(t, s.a, "waits-1"); !strings.Contains(own, "AwaitingFleetApproval") {
		t.Errorf("the fleet itself sees %q", own)
	}
	for _, query := range []string{"", "?status=AwaitingFleetApproval", "?status=Active", "?fleetId=" + s.Demo.Fleet.FleetID} {
		var list struct{ Stores []json.RawMessage }
		succeeds(t, s.rival, http.MethodGet, "/stores"+query, nil, &list)
		if len(list.Stores) != 0 {
			t.Errorf("another fleet sees %d stores with %q: %s", len(list.Stores), query, list.Stores[0])
		}
	}
}

// crossAnswer: another fleet's yes or no to a store is one to a store that does
// not exist.
func crossAnswer(t *testing.T, s *site, id, answer string) {
	t.Helper()
	s.pending(t, id)
	unknownTo(t, s.rival, "STORE_NOT_FOUND", http.MethodPost, "/stores/"+s.a.accountID+"/{}/"+answer, id, "never-seen", nil)
	unknownTo(t, s.rival, "STORE_NOT_FOUND", http.MethodPost, "/stores/{}/"+id+"/"+answer, s.a.accountID, unknownOrder, nil)
	if now := s.storeOf(t, s.a, id); !strings.Contains(now, "AwaitingFleetApproval") {
		t.Errorf("after another fleet's %s the store is %q", answer, now)
	}
	succeeds(t, s.fleet, http.MethodPost, "/stores/"+s.a.accountID+"/"+id+"/"+answer, nil, nil)
}

func crossConfirm(t *testing.T, s *site) { crossAnswer(t, s, "waits-2", "confirm") }
func crossReject(t *testing.T, s *site)  { crossAnswer(t, s, "waits-3", "reject") }

func crossJobs(t *testing.T, s *site) {
	var own struct{ Jobs []struct{ OrderID string } }
	succeeds(t, s.fleet, http.MethodGet, "/jobs", nil, &own)
	if len(own.Jobs) == 0 {
		t.Error("the fleet itself has no job")
	}
	for _, status := range []string{"", "?status=Searching", "?status=Assigned", "?status=Cancelled", "?fleetId=" + s.Demo.Fleet.FleetID} {
		var theirs struct{ Jobs []json.RawMessage }
		succeeds(t, s.rival, http.MethodGet, "/jobs"+status, nil, &theirs)
		if len(theirs.Jobs) != 0 {
			t.Errorf("another fleet sees %d jobs with %q: %s", len(theirs.Jobs), status, theirs.Jobs[0])
		}
	}
}

// crossMove: what another fleet says of a job moves nothing.
func crossMove(t *testing.T, s *site, method, path string, body any) {
	t.Helper()
	status, courier := s.jobOf(t, s.a.pending)
	unknownTo(t, s.rival, "ORDER_NOT_FOUND", method, "/jobs/{}"+path, s.a.pending, unknownOrder, body)
	after, now := s.jobOf(t, s.a.pending)
	if after != status || (courier == nil) != (now == nil) || now != nil && now.Name != courier.Name {
		t.Errorf("after another fleet's %s the order is %s with %v", path, after, now)
	}
}

func crossJob(t *testing.T, s *site) { crossMove(t, s, http.MethodGet, "", nil) }

func crossAccept(t *testing.T, s *site) {
	crossMove(t, s, http.MethodPost, "/accept", someCourier)
	succeeds(t, s.fleet, http.MethodPost, "/jobs/"+s.a.create(t, nil)+"/accept", someCourier, nil)
}

func crossCourier(t *testing.T, s *site) {
	crossMove(t, s, http.MethodPut, "/courier", someCourier)
	mine := s.a.create(t, nil)
	succeeds(t, s.fleet, http.MethodPost, "/jobs/"+mine+"/accept", someCourier, nil)
	eventually(t, time.Minute, "the order is assigned", func() bool { status, _ := s.jobOf(t, mine); return status == "Assigned" })
	succeeds(t, s.fleet, http.MethodPut, "/jobs/"+mine+"/courier", someCourier, nil)
}

func crossStatus(t *testing.T, s *site) {
	for _, status := range []string{"Assigned", "PickedUp", "Delivered"} {
		crossMove(t, s, http.MethodPost, "/status", map[string]string{"status": status})
	}
	succeeds(t, s.fleet, http.MethodPost, "/jobs/"+s.a.create(t, nil)+"/status", map[string]string{"status": "PickedUp"}, nil)
}

// crossLocations: a position that another fleet sends is one of an unknown order,
// and the order's own webhooks do not carry it.
func crossLocations(t *testing.T, s *site) {
	at := func(order string) []map[string]any {
		return []map[string]any{{"orderId": order, "latitude": 41.01234, "longitude": 29.05678, "at": time.Now().Format(time.RFC3339)}}
	}
	mine := s.a.create(t, nil)
	theirs := as(t, s.rival, http.MethodPost, "/locations", at(mine))
	nobodys := as(t, s.rival, http.MethodPost, "/locations", at(unknownOrder))
	alike(t, "a position", &reply{theirs.Status, theirs.Header, theirs.Raw}, &reply{nobodys.Status, nobodys.Header, nobodys.Raw})
	succeeds(t, s.fleet, http.MethodPost, "/jobs/"+mine+"/accept", someCourier, nil)
	told := ""
	eventually(t, time.Minute, "the vendor is told that the order is assigned", func() bool {
		for _, e := range s.a.events() {
			if e.Order.OrderID == mine {
				told = string(e.Data)
			}
		}
		return told != ""
	})
	if strings.Contains(told, "location") || strings.Contains(told, "41.01234") {
		t.Errorf("another fleet has put the courier somewhere: %s", told)
	}
}

func crossAvailability(t *testing.T, s *site) {
	succeeds(t, s.rival, http.MethodPut, "/availability", map[string]int{"couriers": 0}, nil)
	s.a.create(t, nil) // at the other fleet
	succeeds(t, s.rival, http.MethodPut, "/availability", map[string]int{"couriers": 3}, nil)
}

func crossFleetToken(t *testing.T, s *site) {
	crossLogin(t, s.fleet, s.Demo.Fleet.ClientID, s.other.ClientSecret, "flt_00000000000040008000000000000000")
	crossLogin(t, s.fleet, s.Demo.Fleet.ClientID, s.a.clientSecret, s.a.clientID)
}
