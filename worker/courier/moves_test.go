package courier

import (
	"slices"
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
		if got := journey(c.note); !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.note, got, c.want)
		}
	}
}

func TestNextMove_WaitsForItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		status, reported delivery.Status
		after            time.Duration
		want             bool
	}{
		"before the step is over":      {delivery.Assigned, 0, step - time.Millisecond, false},
		"after a step":                 {delivery.Assigned, 0, step, true},
		"a step before, less a moment": {delivery.Assigned, 0, time.Millisecond - step, false},
		"dated ahead by a clock":       {delivery.Assigned, 0, -time.Hour, true},
		"a report waits to be decided": {delivery.Assigned, delivery.PickingUp, time.Hour, false},
		"a report that was decided":    {delivery.Assigned, delivery.Assigned, time.Hour, true},
		"it has been delivered":        {delivery.Delivered, 0, time.Hour, false},
		"it has failed":                {delivery.Failed, 0, time.Hour, false},
		"it has been cancelled":        {delivery.Cancelled, 0, time.Hour, false},
	} {
		o := orderIn(c.status, "")
		o.Reported = c.reported
		if u, moves := nextMove(o, created.Add(c.after), step); moves != c.want || moves && u.Status != delivery.PickingUp {
			t.Errorf("%s: %v %v", name, u.Status, moves)
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
		part := progress[status]
		if part < last {
			t.Errorf("%s is %v of the way, less than before", status, part)
		}
		last = part
	}

	if between(from, to, progress[delivery.Assigned]) != from || between(from, to, progress[delivery.Delivered]) != to {
		t.Error("the way does not begin at the store and end at the drop-off")
	}
}
