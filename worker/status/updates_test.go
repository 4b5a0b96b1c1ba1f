package status

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
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

func expected(s delivery.Status, minutes int) *delivery.Update {
	u := reached(s)
	u.ETA = noon.Add(time.Duration(minutes) * time.Minute)
	return u
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
		reasons []string
	}{
		{"the whole way in one batch",
			[]*delivery.Update{accept(mehmet), reached(delivery.PickingUp), reached(delivery.PickedUp), reached(delivery.Delivering), reached(delivery.Delivered)},
			[]string{resultMoved, resultMoved, resultMoved, resultMoved, resultMoved},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}, nil},
		{"skipped steps are filled in",
			[]*delivery.Update{accept(mehmet), reached(delivery.Delivered)},
			[]string{resultMoved, resultMoved},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}, nil},
		{"repeated and backward ones are dropped with the commit",
			[]*delivery.Update{accept(mehmet), accept(mehmet), reached(delivery.PickedUp), reached(delivery.PickingUp)},
			[]string{resultMoved, resultDropped, resultMoved, resultDropped},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp}, nil},
		{"an illegal one between legal ones",
			[]*delivery.Update{accept(mehmet), failed(delivery.CustomerRefused), accept(ayse), reached(delivery.PickingUp)},
			[]string{resultMoved, resultRefused, resultRefused, resultMoved},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp}, []string{reasonIllegalMove, reasonIllegalMove}},
		{"nothing moves what has failed",
			[]*delivery.Update{accept(mehmet), failed(delivery.CourierIncident), reached(delivery.PickedUp), failed(delivery.CourierIncident)},
			[]string{resultMoved, resultMoved, resultRefused, resultDropped},
			[]delivery.Status{delivery.Assigned, delivery.Failed}, []string{reasonIllegalMove}},
		{"a swap keeps the status",
			[]*delivery.Update{accept(mehmet), swap(ayse)},
			[]string{resultMoved, resultSwapped}, []delivery.Status{delivery.Assigned, delivery.Assigned}, nil},
		{"a swap back and forth is two changes, and again none",
			[]*delivery.Update{accept(mehmet), swap(ayse), swap(mehmet), swap(mehmet)},
			[]string{resultMoved, resultSwapped, resultSwapped, resultDropped},
			[]delivery.Status{delivery.Assigned, delivery.Assigned, delivery.Assigned}, nil},
		{"estimates change what was estimated before, in the order of arrival",
			[]*delivery.Update{accept(mehmet), expected(delivery.Assigned, 30), expected(delivery.Assigned, 40), expected(delivery.Assigned, 40),
				expected(delivery.Assigned, 30), expected(delivery.PickingUp, 50), expected(delivery.PickingUp, 50), expected(delivery.Assigned, 60)},
			[]string{resultMoved, resultRevised, resultRevised, resultDropped, resultRevised, resultMoved, resultDropped, resultDropped},
			[]delivery.Status{delivery.Assigned, delivery.Assigned, delivery.Assigned, delivery.Assigned, delivery.PickingUp}, nil},
		{"neither a courier nor an estimate comes after the end",
			[]*delivery.Update{accept(mehmet), reached(delivery.Delivered), swap(ayse), expected(delivery.Delivering, 40), expected(delivery.Delivered, 40)},
			[]string{resultMoved, resultMoved, resultRefused, resultRefused, resultDropped},
			[]delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered},
			[]string{reasonIllegalMove, reasonIllegalMove}},
		{"a swap before a courier is illegal",
			[]*delivery.Update{swap(ayse)},
			[]string{resultRefused}, nil, []string{reasonIllegalMove}},
		{"only the service searches and only vendors cancel",
			[]*delivery.Update{reached(delivery.Searching), reached(delivery.Cancelled)},
			[]string{resultRefused, resultRefused}, nil, []string{reasonIllegalMove, reasonIllegalMove}},
	} {
		t.Run(c.name, func(t *testing.T) {
			order := searching()
			d := newRole(nil).decideGroup(reports{orderID, c.updates}, order, noon.Add(time.Minute))
			var statuses []delivery.Status
			for _, change := range d.changes {
				statuses = append(statuses, change.Status)
			}

			var reasons []string
			for _, f := range d.refused {
				reasons = append(reasons, f.reason)
			}

			if !slices.Equal(d.results, c.results) || !slices.Equal(statuses, c.reaches) || !slices.Equal(reasons, c.reasons) {
				t.Errorf("results %v, statuses %v, reasons %v", d.results, statuses, reasons)
			}
			if order.Status != delivery.Searching || order.Version != 1<<32|1 || len(order.Changes) != 0 {
				t.Errorf("the order as read was changed: %+v", order)
			}
		})
	}
}

func TestDecideGroup_LaterChangesCarryTheSwappedCourier(t *testing.T) {
	updates := []*delivery.Update{accept(mehmet), swap(ayse), reached(delivery.PickingUp)}
	d := newRole(nil).decideGroup(reports{orderID, updates}, searching(), noon.Add(time.Minute))
	if len(d.changes) != 3 || d.changes[0].Courier != mehmet || d.changes[1].Courier != ayse || d.changes[2].Courier != ayse {
		t.Fatalf("%+v", d.changes)
	}
}

func TestDecideGroup_NamesADeliveryThatComesTooLate(t *testing.T) {
	order := searching()
	order.Status, order.Version = delivery.Failed, order.Version+1
	order.Changes = []delivery.Change{{Status: delivery.Failed, At: noon, Failure: delivery.TimedOut}}
	updates := []*delivery.Update{reached(delivery.Delivered), reached(delivery.PickedUp)}
	d := newRole(nil).decideGroup(reports{orderID, updates}, order, noon.Add(time.Minute))
	if len(d.refused) != 2 || d.refused[0].reason != reasonLateDelivery || d.refused[1].reason != reasonIllegalMove || len(d.changes) != 0 {
		t.Fatalf("%+v", d)
	}
}

func TestDecideGroup_RefusesUpdatesOfAnUnknownOrder(t *testing.T) {
	d := newRole(nil).decideGroup(reports{orderID, []*delivery.Update{accept(mehmet)}}, nil, noon)
	if len(d.refused) != 1 || d.refused[0].reason != reasonUnknownOrder || len(d.changes) != 0 {
		t.Fatalf("%+v", d)
	}
}

// A batch wants new orders and those of updates, each once, with its updates in stream order.
func TestNewBatch_WantsEachOrderOnce(t *testing.T) {
	other := delivery.MakeOrderID(1, 20_000, [delivery.OrderDigestSize]byte{7})
	first, second, third := accept(mehmet), reached(delivery.PickingUp), reached(delivery.PickedUp)
	between := &delivery.Update{Order: other, Kind: delivery.KindStatus, Status: delivery.PickingUp, At: noon}
	b := NewBatch(&partitions.Inbox{Partition: 1, Entries: []partitions.Entry{
		{Events: []partitions.Event{{Order: orderID, Version: 2<<32 | 1}}},
		{Events: []partitions.Event{{Order: other, Version: 1<<32 | 2}, {Order: other, Version: 1<<32 | 3}}}, // batched changes
		{Events: []partitions.Event{{Notice: "evt_1"}}},
		{Events: []partitions.Event{{Order: other, LateAt: noon}}},
		{Update: first}, {Update: between}, {Update: second}, {Update: third}}})
	if b.Partition != 1 || !slices.Equal(b.New, []delivery.OrderID{orderID}) || !slices.Equal(b.Reported, []delivery.OrderID{orderID, other}) {
		t.Fatalf("new %v, reported %v", b.New, b.Reported)
	}
	if !slices.Equal(b.groups[0].updates, []*delivery.Update{first, second, third}) || !slices.Equal(b.groups[1].updates, []*delivery.Update{between}) {
		t.Errorf("%+v", b.groups)
	}
}

// decideAll decides, as the owner of the partition of o does, what has come into it.
func (e *env) decideAll(o *delivery.Order, between func()) {
	e.T.Helper()
	tokens, err := e.Ledger.Ownership.Tokens(e.T.Context())
	testenv.Must(e.T, err)
	owned, err := e.Ledger.Ownership.Take(e.T.Context(), o.ID.Partition(), tokens[o.ID.Partition()], "w")
	testenv.Must(e.T, err)
	owned.From = owned.CatchUp // the new orders are of no interest
	inboxes, err := e.Ledger.Ownership.Read(e.T.Context(), []*partitions.Owned{owned}, 64, -1)
	testenv.Must(e.T, err)
	b := NewBatch(inboxes[0])
	e.Step(o.ID.Partition(), func(step *partitions.Step) { // again after a conflict
		testenv.Must(e.T, e.Ledger.Ownership.ReadOrders(e.T.Context(), []*partitions.Wanted{&b.Wanted}))
		between()
		e.role.Decide(b, step, time.Now())
	})

	e.role.Written(b)
}

func TestDecide_DeadLettersWhatCannotBeDecidedAlone(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		spoil        func(*env, *delivery.Order)
	}{
		{"a defect", "panic: a defect", func(e *env, bad *delivery.Order) {
			e.role.decide = func(o *delivery.Order, u delivery.Update, now time.Time) delivery.Decision {
				if o.ID == bad.ID {
					panic("a defect")
				}
				return delivery.Decide(o, u, now)
			}
		}},
		{"a damaged record", "order record", func(e *env, bad *delivery.Order) {
			e.Record("o", bad.ID.Digest(), "redis.call('SETRANGE', k, 0, '\\9')")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t)
			first, bad, last := e.order(), e.order(), e.order()
			for _, o := range []*delivery.Order{first, bad, last} {
				e.Accept(o, time.Now())
				e.Reach(o, delivery.PickingUp, time.Now())
			}

			c.spoil(e, bad)
			e.decideAll(first, func() {})
			e.CheckPath(first, "Searching Assigned PickingUp")
			e.CheckPath(last, "Searching Assigned PickingUp")
			letters, err := e.Ledger.Monitor.DeadLetters(t.Context(), 10)
			if err != nil || len(letters) != 2 {
				t.Fatalf("%d dead letters, %v", len(letters), err)
			}

			e.EachKey("u", "redis.call('DEL', k)") // a trimmed stream
			letters, err = e.Ledger.Monitor.DeadLetters(t.Context(), 10)
			testenv.Must(t, err)
			for _, letter := range letters {
				if !strings.Contains(letter.Reason, c.reason) || letter.Fields["order"] != bad.ID.String() || letter.Stream != "updates" {
					t.Errorf("%+v", letter)
				}
			}

			if moved, failed := e.entries(resultMoved), e.entries(resultFailed); moved != 4 || failed != 2 {
				t.Errorf("%v moved, %v failed", moved, failed)
			}
		})
	}
}

func TestDecide_AgainAfterACancellation(t *testing.T) {
	e := newEnv(t)
	o := e.order()
	e.Accept(o, time.Now())
	e.decideAll(o, sync.OnceFunc(func() {
		_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, o.ID, delivery.CustomerRequest, "", time.Now())
		testenv.Must(t, err)
	}))

	e.CheckPath(o, "Searching Cancelled")
	if refused, moved := e.entries(resultRefused), e.entries(resultMoved); refused != 1 || moved != 0 || e.Stats().RefusedUpdates != 1 {
		t.Errorf("%v refused, %v moved, %d kept", refused, moved, e.Stats().RefusedUpdates)
	}
}
