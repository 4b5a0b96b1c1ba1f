package owner

import (
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// Another courier and another estimate are sent, each once, in the order in which they were reported.
func TestRole_SendsWhatHappensBetweenTheStatuses(t *testing.T) {
	h := newHooks(t, nil)
	h.start("w1")
	o := h.reported("", delivery.PickingUp)
	expected := func(minutes int) {
		h.Report(delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.PickingUp, At: time.Now(),
			ETA: o.CreatedAt.Add(time.Duration(minutes) * time.Minute)})
	}

	swap := func(c delivery.Courier) {
		h.Report(delivery.Update{Order: o.ID, Kind: delivery.KindSwap, At: time.Now(), Courier: c})
	}
	expected(90)
	expected(90)
	swap(ayse)
	swap(testenv.Courier)
	swap(testenv.Courier)
	expected(120)
	h.Reach(o, delivery.Delivered, time.Now())

	var events []string
	for _, q := range h.await(9) {
		events = append(events, q.event.Event)
	}

	const status, courier, eta = "delivery.status_changed", "delivery.courier_changed", "delivery.eta_changed"
	want := []string{status, status, eta, courier, courier, eta, status, status, status}
	if !slices.Equal(events, want) {
		t.Errorf("sent %v, want %v", events, want)
	}
}
