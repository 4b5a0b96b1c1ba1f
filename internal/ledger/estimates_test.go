package ledger

import (
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
)

// expected is the report of a status with an estimate.
func expected(o *delivery.Order, status delivery.Status, eta time.Time) delivery.Update {
	return delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: status, ETA: eta}
}

func TestReport_TakesAnotherEstimateForTheStatusThatWasReported(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	eta := time.Now().Add(30 * time.Minute).Truncate(time.Second)
	for i, c := range []struct {
		what     string
		status   delivery.Status
		eta      time.Time
		appended int64
	}{
		{"the first report", delivery.PickingUp, eta, 1},
		{"its repetition, which waits to be decided", delivery.PickingUp, eta, 1},
		{"less than a minute later", delivery.PickingUp, eta.Add(time.Minute - time.Millisecond), 1},
		{"less than a minute earlier", delivery.PickingUp, eta.Add(time.Millisecond - time.Minute), 1},
		{"no estimate", delivery.PickingUp, time.Time{}, 1},
		{"a status that was left", delivery.Assigned, eta.Add(time.Hour), 1},
		{"a minute later", delivery.PickingUp, eta.Add(time.Minute), 2},
		{"its repetition", delivery.PickingUp, eta.Add(time.Minute), 2},
		{"back", delivery.PickingUp, eta, 3},
		{"a minute earlier", delivery.PickingUp, eta.Add(-time.Minute), 4},
		{"the next status", delivery.Delivering, eta, 5},
		{"its repetition", delivery.Delivering, eta, 5},
		{"another estimate of it", delivery.Delivering, eta.Add(time.Hour), 6},
		{"the delivery", delivery.Delivered, eta, 7},
		{"an estimate of what is delivered", delivery.Delivered, eta.Add(time.Hour), 7},
		{"one of the status before", delivery.Delivering, eta, 7},
	} {
		t.Log(i, c.what)
		s.wantReport(t, expected(o, c.status, c.eta), "", c.appended)
	}
}

// The owner writes the estimate that the vendor was last told, also one that nobody has reported.
func TestReport_ComparesEstimatesWithTheOneInForce(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.wantReport(t, delivery.Update{Order: o.ID, Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: mehmet}, "", 1)
	s.change(t, o, assigned()...)
	stored := get(s.Orders.Get(t.Context(), o.ID))(t)
	computed := stored.EstimatedDropoff(stored.Version)

	s.wantReport(t, expected(o, delivery.Assigned, computed.Add(time.Minute-time.Millisecond)), "", 1)
	revision := expected(o, delivery.Assigned, computed.Add(70*time.Second))
	s.wantReport(t, revision, "", 2)
	revision.At = time.Now()
	s.change(t, stored, delivery.Decide(stored, revision, revision.At).Changes...)
	s.wantReport(t, revision, "", 2)
	s.wantReport(t, expected(o, delivery.Assigned, computed), "", 3)

	moved := get(s.Orders.Get(t.Context(), o.ID))(t)
	want := delivery.Change{Kind: delivery.EstimateRevised, Status: delivery.Assigned, Courier: mehmet, ETA: revision.ETA}
	got := moved.Changes[1]
	check(t, got.Kind == want.Kind && got.Status == want.Status && got.Courier == want.Courier && got.ETA.Equal(want.ETA), "%+v", got)
	check(t, moved.EstimatedDropoff(moved.Version).Equal(revision.ETA), "in force is %v", moved.EstimatedDropoff(moved.Version))
}

// Who accepts an order once more may know better when it will be delivered.
func TestReport_TakesAnotherEstimateOfWhoAcceptsAgain(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	eta := time.Now().Add(30 * time.Minute).Truncate(time.Millisecond)
	accept := delivery.Update{Order: o.ID, Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: mehmet, ETA: eta}

	s.wantReport(t, accept, "", 1)
	s.wantReport(t, accept, "", 1)
	accept.ETA = eta.Add(time.Minute)
	s.wantReport(t, accept, "", 2)
	s.wantReport(t, accept, "", 2)

	const entries = 3 // the order and its two reports
	last := collectFrom(t, s.Ledger, []core.Partition{s.core.Partitions[o.ID.Partition()]}, core.RoleStatus, entries)[entries-1].Update
	check(t, last.Kind == delivery.KindAccept && last.Courier == mehmet && last.ETA.Equal(accept.ETA), "%+v", last)

	decided := *o
	decided.Status, decided.Courier = delivery.Delivering, mehmet
	decision := delivery.Decide(&decided, *last, time.Now())
	check(t, decision.Action == delivery.Revise && decision.Changes[0].Status == delivery.Delivering, "%+v", decision)
}

// The first estimate is decided while the fleet has already given a second one. When it takes the
// second back, the vendor has to hear of both.
func TestReport_TakesAnEstimateBackThatWaitsToBeDecided(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	first := time.Now().Add(30 * time.Minute).Truncate(time.Millisecond)
	second := first.Add(5 * time.Minute)

	s.wantReport(t, expected(o, delivery.Assigned, first), "", 1)
	s.wantReport(t, expected(o, delivery.Assigned, second), "", 2)
	s.change(t, o, delivery.Change{Status: delivery.Assigned, At: time.Now(), ETA: first})

	s.wantReport(t, expected(o, delivery.Assigned, second), "", 2)
	s.wantReport(t, expected(o, delivery.Assigned, first), "", 3)
}

// A fleet that reports another estimate all the time finds room for other couriers still, and nothing
// keeps the order from its end.
func TestReport_BoundsEstimates(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.wantReport(t, delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Assigned}, "", 1)
	eta := time.Now().Truncate(time.Millisecond)
	for n := range int64(orders.MaxEstimates) {
		eta = eta.Add(time.Minute)
		s.wantReport(t, expected(o, delivery.Assigned, eta), "", 2+n)
	}

	appended := int64(1 + orders.MaxEstimates)
	s.wantReport(t, expected(o, delivery.Assigned, eta.Add(time.Hour)), "", appended)

	swap := delivery.Update{Order: o.ID, Kind: delivery.KindSwap}
	for n := range orders.MaxSideReports - orders.MaxEstimates {
		swap.Courier = delivery.Courier{Name: fmt.Sprint("Courier ", n), Phone: "5551112233", VehicleType: "Car"}
		appended++
		s.wantReport(t, swap, "", appended)
	}

	s.wantReport(t, expected(o, delivery.Assigned, eta.Add(time.Hour)), "", appended)
	swap.Courier.Name = "One more"
	s.wantReport(t, swap, delivery.CodeTooManyReports, appended)

	s.wantReport(t, expected(o, delivery.PickingUp, eta.Add(time.Hour)), "", appended+1)
	s.wantReport(t, expected(o, delivery.Delivered, eta), "", appended+2)
}

// As many versions as reports can make, and their sequences, fit an order's record.
func TestChange_HoldsAllThatCanBeReportedOfAnOrder(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.change(t, o, assigned()...)
	eta := time.Now().Truncate(time.Millisecond)
	for n := range orders.MaxSideReports {
		o = get(s.Orders.Get(t.Context(), o.ID))(t)
		u := expected(o, delivery.Assigned, eta.Add(time.Duration(n)*time.Minute))
		if n >= orders.MaxEstimates {
			u = delivery.Update{Order: o.ID, Kind: delivery.KindSwap, Courier: delivery.Courier{Name: fmt.Sprint("Courier ", n)}}
		}
		s.change(t, o, delivery.Decide(o, u, time.Now()).Changes...)
	}

	o = get(s.Orders.Get(t.Context(), o.ID))(t)
	s.change(t, o, delivery.Decide(o, delivery.Update{Kind: delivery.KindStatus, Status: delivery.Delivered}, time.Now()).Changes...)

	whole := get(s.Orders.Get(t.Context(), o.ID))(t)
	equal(t, len(whole.Changes), 5+orders.MaxSideReports, "changes")
	equal(t, int(delivery.Sequence(whole.Version)), len(whole.Changes)+1, "the sequence")
	s.shrink(t)
	shrunk := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, shrunk.Shrunk(), "the order is not shrunk")
	equal(t, shrunk.Changes, whole.Changes, "the changes of a shrunk order")
}
