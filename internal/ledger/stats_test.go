package ledger

import (
	"testing"

	"vendorapi/internal/delivery"
)

func TestStats_InFlightIsWhatHasNotEnded(t *testing.T) {
	l := openTest(t)
	inFlight := func(want int64) {
		t.Helper()
		s := get(l.Stats(t.Context()))(t)
		check(t, s.InFlight == want, "%d orders in flight, want %d", s.InFlight, want)
	}
	inFlight(0)
	shops := envsEverywhere(t, l)
	orders := make([]*delivery.Order, len(shops))
	for i, s := range shops {
		orders[i] = s.create(t, "X-1")
	}
	byPartition := make(map[int][]Entry)
	for _, e := range collect(t, l, RoleStatus, "c", len(orders)) {
		byPartition[e.Partition] = append(byPartition[e.Partition], e)
	}
	for p, entries := range byPartition {
		must(t, l.IndexJobs(t.Context(), p, entries))
	}
	inFlight(4)
	shops[0].advance(t, orders[0].ID, delivery.Assigned)
	inFlight(4)
	shops[0].advance(t, orders[0].ID, delivery.Delivered)
	get2(shops[1].CancelOrder(t.Context(), shops[1].account, orders[1].ID, "", "", orders[1].CreatedAt))(t)
	inFlight(2)
}
