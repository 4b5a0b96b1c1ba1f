package courier

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

const step = 5 * time.Second

var (
	created = time.Date(2026, 11, 21, 12, 0, 0, 0, delivery.Istanbul)
	testID  = delivery.MakeOrderID(3, 100, [delivery.OrderDigestSize]byte{1, 2, 3, 4, 5, 6, 7, 8})
)

func orderIn(status delivery.Status, note string) *delivery.Order {
	o := &delivery.Order{ID: testID, CreatedAt: created, Status: status, Version: 1}
	o.PackageNote = note
	o.Fleet.ID = delivery.FleetID{9}
	if status > delivery.Searching {
		o.Changes = []delivery.Change{{Status: status, At: created}}
		o.Version++
	}
	return o
}

// journey is every status the sandbox courier would take an order through.
func journey(note string) []delivery.Status {
	path := []delivery.Status{}
	for o := orderIn(delivery.Searching, note); ; {
		u, moves := nextMove(o, created.Add(time.Hour), step)
		if !moves {
			return path
		}
		path = append(path, u.Status)
		o = orderIn(u.Status, note)
	}
}

func TestNextMove_Journeys(t *testing.T) {
	delivered := []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}
	for _, c := range []struct {
		note string
		want []delivery.Status
	}{
		{"", delivered},
		{"leave at the door", delivered},
		{"please SIM:NO_COURIER", delivered}, // not at the start
		{"SIM:NO_COURIERS", delivered},
		{"SIM:FAIL=Nonsense", delivered},
		{"SIM:HOLD=Nonsense", delivered},
		{"SIM:DUPLICATE", delivered},
		{"SIM:REORDER", delivered},
		{"SIM:NO_COURIER", nil},
		{"SIM:NO_COURIER and more", nil},
		{"SIM:HOLD=Searching", nil},
		{"SIM:HOLD=PickingUp\nnote", delivered[:2]},
		{"SIM:HOLD=Delivering", delivered[:4]},
		{"SIM:FAIL=Other", []delivery.Status{delivery.Failed}},
		{"SIM:FAIL=NoCourierFound", []delivery.Status{delivery.Failed}},
		{"SIM:FAIL=StoreClosed", []delivery.Status{delivery.Assigned, delivery.Failed}},
		{"SIM:FAIL=PackageNotReady", []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.Failed}},
		{"SIM:FAIL=PackageDamaged", []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Failed}},
		{"SIM:FAIL=CustomerRefused please", []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Failed}},
	} {
		got := journey(c.note)
		if len(got) != len(c.want) {
			t.Errorf("%q: %v, want %v", c.note, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q: %v, want %v", c.note, got, c.want)
			}
		}
	}
}

func TestNextMove_WaitsAStep(t *testing.T) {
	o := orderIn(delivery.Assigned, "")
	if _, moves := nextMove(o, created.Add(step-time.Millisecond), step); moves {
		t.Error("moved before the step was over")
	}
	if u, moves := nextMove(o, created.Add(step), step); !moves || u.Status != delivery.PickingUp {
		t.Errorf("after a step: %v %v", u.Status, moves)
	}
}

func TestNextMove_WaitsForAReportUnderWay(t *testing.T) {
	o := orderIn(delivery.Assigned, "")
	o.Reported = delivery.PickingUp
	if _, moves := nextMove(o, created.Add(time.Hour), step); moves {
		t.Error("reported again what still waits to be decided")
	}
	o.Reported = delivery.Assigned
	if _, moves := nextMove(o, created.Add(time.Hour), step); !moves {
		t.Error("a report that was decided keeps the order from moving")
	}
}

func TestNextMove_LeavesEndedOrdersAlone(t *testing.T) {
	for _, status := range []delivery.Status{delivery.Delivered, delivery.Failed, delivery.Cancelled} {
		if u, moves := nextMove(orderIn(status, ""), created.Add(time.Hour), step); moves {
			t.Errorf("%s moved to %s", status, u.Status)
		}
	}
}

func TestNextMove_AcceptNamesACourier(t *testing.T) {
	now := created.Add(time.Minute)
	u, _ := nextMove(orderIn(delivery.Searching, ""), now, step)
	if u.Kind != delivery.KindAccept || u.Order != testID || u.Fleet != (delivery.FleetID{9}) || !u.At.Equal(now) {
		t.Fatalf("%+v", u)
	}
	if phone, err := delivery.NormalizePhone(u.Courier.Phone); err != nil || phone != u.Courier.Phone {
		t.Errorf("phone %q: %v", u.Courier.Phone, err)
	}
	if u.Courier.VehicleType != "Motorcycle" || u.Courier.Name == "" || !u.ETA.Equal(now.Add(4*step)) {
		t.Errorf("%+v", u)
	}
	if again, _ := nextMove(orderIn(delivery.Searching, ""), now, step); again.Courier != u.Courier {
		t.Error("a second replica would send another courier")
	}
}

func TestPerson_IsAlwaysValid(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		p := person(delivery.MakeOrderID(1, 1, [delivery.OrderDigestSize]byte{byte(i), byte(i >> 4), byte(i * 7), 0, byte(i * 13), 6, 7, byte(i * 31)}))
		if _, err := delivery.NormalizePhone(p.Phone); err != nil || delivery.AbbreviateName(p.Name) == p.Name {
			t.Fatalf("%+v: %v", p, err)
		}
		seen[p.Name] = true
	}
	if len(seen) < 20 {
		t.Errorf("only %d different people", len(seen))
	}
}

func TestBetween_LeadsFromTheStoreToTheDropoff(t *testing.T) {
	from, to := delivery.Point{Latitude: 41, Longitude: 29}, delivery.Point{Latitude: 41.1, Longitude: 28.9}
	last := -1.0
	for status := delivery.Assigned; status <= delivery.Delivered; status++ {
		part := progress(status)
		if part < last {
			t.Errorf("%s is %v of the way, less than before", status, part)
		}
		last = part
	}
	if between(from, to, progress(delivery.Assigned)) != from || between(from, to, progress(delivery.Delivered)) != to {
		t.Error("the way does not begin at the store and end at the drop-off")
	}
}
