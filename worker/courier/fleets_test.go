package courier

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// The sandbox courier acts for every fleet, not only for the first or the demo's.
//
//rule:make-run/the-demo-fleet-covers-at
func TestRole_ActsForEveryFleet(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v, first := b.Vendor(), b.Fleet
	second := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "İkinci Kurye", SubRegion: first.SubRegion,
		DeliveryMinutes: 20, PickupMinutes: 5, Couriers: -1, Coverage: first.Coverage}
	if err := b.Ledger.CreateFleet(t.Context(), second, [32]byte{2}); err != nil {
		t.Fatal(err)
	}
	start(b, "w1")
	for _, fleet := range []*delivery.Fleet{first, second} {
		b.Fleet = fleet // the bed's stores and orders are of this one from here on
		store := v.NewStore("branch of "+fleet.Name, delivery.AwaitingFleetApproval)
		b.Await("confirmation by "+fleet.Name, func() bool {
			s, err := b.Ledger.Store(t.Context(), v.Account, store.ExternalID)
			return err == nil && s.State == delivery.Active && s.Fleet == fleet.ID
		})
		v.Store = store
		if o := b.AwaitStatus(v.Order("", time.Now()), delivery.Delivered); o.Fleet.ID != fleet.ID {
			t.Errorf("carried by %s", o.Fleet.Name)
		}
	}
}
