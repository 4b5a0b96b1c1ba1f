package status

import (
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

var (
	noon    = time.Date(2026, 11, 21, 12, 0, 0, 0, delivery.Istanbul)
	mehmet  = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5321112233", VehicleType: "Motorcycle"}
	ayse    = delivery.Courier{Name: "Ayşe Kaya", Phone: "5334445566", VehicleType: "Bicycle"}
	orderID = delivery.MakeOrderID(1, 20_000, [delivery.OrderDigestSize]byte{1, 2, 3})
)

func accept(c delivery.Courier) *delivery.Update {
	return &delivery.Update{Order: orderID, Kind: delivery.KindAccept, Status: delivery.Assigned, At: noon, Courier: c}
}

func swap(c delivery.Courier) *delivery.Update {
	return &delivery.Update{Order: orderID, Kind: delivery.KindSwap, At: noon, Courier: c}
}

func reached(s delivery.Status) *delivery.Update {
	return &delivery.Update{Order: orderID, Kind: delivery.KindStatus, Status: s, At: noon}
}

func failed(reason delivery.FailureReason) *delivery.Update {
	return &delivery.Update{Order: orderID, Kind: delivery.KindStatus, Status: delivery.Failed, Failure: reason, At: noon}
}

func searching() *delivery.Order {
	return &delivery.Order{ID: orderID, CreatedAt: noon.Add(-time.Minute), Status: delivery.Searching, Version: 1<<32 | 1}
}

func TestDecideGroup_AppliesUpdatesOfOneOrderInSequence(t *testing.T) {
	for _, c := range []struct {
		name    string
		updates []*delivery.Update
		results []string
		reaches []delivery.Status
		swapped *delivery.Courier
		settled int // with the commit, or acknowledged when there is none
		reasons []string
	}{
		{"the whole way in one batch",
			[]*delivery.Update{accept(mehmet), reached(delivery.PickingUp), reached(delivery.PickedUp), reached(delivery.Delivering), reached(delivery.Delivered)},
			[]string{resultMoved, resultMoved, resultMoved, resultMoved, resultMoved},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}, nil, 5, nil},
		{"skipped steps are filled in",
			[]*delivery.Update{accept(mehmet), reached(delivery.Delivered)},
			[]string{resultMoved, resultMoved},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}, nil, 2, nil},
		{"repeated and backward ones are dropped with the commit",
			[]*delivery.Update{accept(mehmet), accept(mehmet), reached(delivery.PickedUp), reached(delivery.PickingUp)},
			[]string{resultMoved, resultDropped, resultMoved, resultDropped},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp}, nil, 4, nil},
		{"an illegal one between legal ones",
			[]*delivery.Update{accept(mehmet), failed(delivery.CustomerRefused), accept(ayse), reached(delivery.PickingUp)},
			[]string{resultMoved, resultRefused, resultRefused, resultMoved},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp}, nil, 2, []string{reasonIllegalMove, reasonIllegalMove}},
		{"nothing moves what has failed",
			[]*delivery.Update{accept(mehmet), failed(delivery.CourierIncident), reached(delivery.PickedUp), failed(delivery.CourierIncident)},
			[]string{resultMoved, resultMoved, resultRefused, resultDropped},
			[]delivery.Status{delivery.Assigned, delivery.Failed}, nil, 3, []string{reasonIllegalMove}},
		{"a swap keeps the status",
			[]*delivery.Update{accept(mehmet), swap(ayse)},
			[]string{resultMoved, resultSwapped}, []delivery.Status{delivery.Assigned}, &ayse, 2, nil},
		{"a swap before a courier is illegal",
			[]*delivery.Update{swap(ayse)},
			[]string{resultRefused}, nil, nil, 0, []string{reasonIllegalMove}},
		{"only the service searches and only vendors cancel",
			[]*delivery.Update{reached(delivery.Searching), reached(delivery.Cancelled)},
			[]string{resultRefused, resultRefused}, nil, nil, 0, []string{reasonIllegalMove, reasonIllegalMove}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := reports{order: orderID}
			for _, u := range c.updates {
				g.entries = append(g.entries, ledger.Entry{Update: u})
			}
			order := searching()
			v := newRole(new(ledger.Ledger), "test").decideGroup(g, order, noon.Add(time.Minute))
			var statuses []delivery.Status
			for _, change := range v.commit.Changes {
				statuses = append(statuses, change.Status)
			}
			var reasons []string
			for _, f := range v.refused {
				reasons = append(reasons, f.reason)
			}
			if !slices.Equal(v.results, c.results) || !slices.Equal(statuses, c.reaches) || !slices.Equal(reasons, c.reasons) {
				t.Errorf("results %v, statuses %v, reasons %v", v.results, statuses, reasons)
			}
			if len(v.commit.Settles) != c.settled || v.commits() != (len(c.reaches) > 0 || c.swapped != nil) {
				t.Errorf("%d settled, commits %v", len(v.commit.Settles), v.commits())
			}
			if (v.commit.Swap == nil) != (c.swapped == nil) || c.swapped != nil && *v.commit.Swap != *c.swapped {
				t.Errorf("swap %+v", v.commit.Swap)
			}
			if order.Status != delivery.Searching || order.Version != 1<<32|1 || len(order.Changes) != 0 {
				t.Errorf("the order as read was changed: %+v", order)
			}
		})
	}
}

func TestDecideGroup_LaterChangesCarryTheSwappedCourier(t *testing.T) {
	g := reports{order: orderID, entries: []ledger.Entry{
		{Update: accept(mehmet)}, {Update: swap(ayse)}, {Update: reached(delivery.PickingUp)},
	}}
	v := newRole(new(ledger.Ledger), "test").decideGroup(g, searching(), noon.Add(time.Minute))
	if len(v.commit.Changes) != 2 || v.commit.Changes[0].Courier != mehmet || v.commit.Changes[1].Courier != ayse {
		t.Fatalf("%+v", v.commit.Changes)
	}
}

func TestDecideGroup_NamesADeliveryThatComesTooLate(t *testing.T) {
	order := searching()
	order.Status, order.Version = delivery.Failed, order.Version+1
	order.Changes = []delivery.Change{{Status: delivery.Failed, At: noon, Failure: delivery.TimedOut}}
	g := reports{order: orderID, entries: []ledger.Entry{{Update: reached(delivery.Delivered)}, {Update: reached(delivery.PickedUp)}}}
	v := newRole(new(ledger.Ledger), "test").decideGroup(g, order, noon.Add(time.Minute))
	if len(v.refused) != 2 || v.refused[0].reason != reasonLateDelivery || v.refused[1].reason != reasonIllegalMove || v.commits() {
		t.Fatalf("%+v", v)
	}
}

func TestDecideGroup_RefusesUpdatesOfAnUnknownOrder(t *testing.T) {
	g := reports{order: orderID, entries: []ledger.Entry{{Update: accept(mehmet)}}}
	v := newRole(new(ledger.Ledger), "test").decideGroup(g, nil, noon)
	if len(v.refused) != 1 || v.refused[0].reason != reasonUnknownOrder || v.commits() || len(v.commit.Settles) != 0 {
		t.Fatalf("%+v", v)
	}
}

func TestJudgeAll_LeavesOutTheOrderThatPanics(t *testing.T) {
	r := newRole(new(ledger.Ledger), "test")
	poisoned := delivery.MakeOrderID(1, 20_000, [delivery.OrderDigestSize]byte{9})
	r.decide = func(o *delivery.Order, u delivery.Update, now time.Time) delivery.Decision {
		if o.ID == poisoned {
			panic("a defect")
		}
		return delivery.Decide(o, u, now)
	}
	bad := searching()
	bad.ID = poisoned
	groups := []reports{
		{order: poisoned, entries: []ledger.Entry{{Update: accept(mehmet)}}},
		{order: orderID, entries: []ledger.Entry{{Update: accept(mehmet)}}},
	}
	outcomes, defects := r.decideAll(groups, []*delivery.Order{bad, searching()}, noon.Add(time.Minute))
	if len(outcomes) != 1 || outcomes[0].order != orderID || defects == nil {
		t.Fatalf("%+v, %v", outcomes, defects)
	}
}

func TestGroupByOrder_KeepsTheStreamsOrder(t *testing.T) {
	other := delivery.MakeOrderID(1, 20_000, [delivery.OrderDigestSize]byte{7})
	first, second, third := accept(mehmet), reached(delivery.PickingUp), reached(delivery.PickedUp)
	between := &delivery.Update{Order: other, Kind: delivery.KindStatus, Status: delivery.PickingUp, At: noon}
	groups := groupByOrder([]ledger.Entry{{Update: first}, {Update: between}, {Update: second}, {Update: third}})
	if len(groups) != 2 || groups[0].order != orderID || groups[1].order != other {
		t.Fatalf("%+v", groups)
	}
	for i, want := range []*delivery.Update{first, second, third} {
		if groups[0].entries[i].Update != want {
			t.Errorf("entry %d is not in stream order", i)
		}
	}
}
