package main

import (
	"slices"
	"time"

	"vendorapi/internal/delivery"
)

// upsertStore decides what a PUT /stores/{externalStoreId} makes of a store
// (spec, "Store states"; design section 6). It is pure, so that it can be asked
// again when somebody else wrote in between.
//
// before is the stored store, nil for none; asked is the request merged with it;
// chosen tells that the request itself named a fleet, which asked.Fleet alone
// does not; serving are the fleets that serve asked.Point, by name. The result
// carries before's revision. The error is FLEET_NOT_AVAILABLE.
//
//	before                  fleetId            after
//	none, Deactivated       none               AwaitingFleet
//	any                     not serving        FLEET_NOT_AVAILABLE
//	none, Deactivated       serving            AwaitingFleetApproval
//	AwaitingFleet           serving            AwaitingFleetApproval
//	AwaitingFleet           none               AwaitingFleet
//	AwaitingFleetApproval   none, the same     AwaitingFleetApproval
//	Active                  none, the same     Active
//	either of these two     another, serving   AwaitingFleetApproval
//	either of these two     none, and its fleet does not serve
//	                        the address        AwaitingFleet
//
// A store that does not stay Active does not migrate any more.
func upsertStore(before *delivery.Store, asked delivery.StoreFields, chosen bool, serving []*delivery.Fleet, now time.Time) (delivery.Store, error) {
	after := delivery.Store{State: delivery.AwaitingFleet}
	if before != nil {
		after.Revision = before.Revision
		if before.State != delivery.Deactivated {
			after = *before
		}
	}
	after.TaxNumber, after.Name, after.Phone = asked.TaxNumber, asked.Name, asked.Phone
	after.Address, after.Point = asked.Address, asked.Point
	after.SubRegion = subRegion(serving)
	after.UpdatedAt = now

	at := slices.IndexFunc(serving, func(f *delivery.Fleet) bool { return f.ID == asked.Fleet })
	switch {
	case chosen && at < 0:
		return delivery.Store{}, delivery.Refuse(delivery.CodeFleetNotAvailable,
			"fleet %s does not serve the address; repeat the call without fleetId: its availableFleets are those that do", asked.Fleet)
	case chosen && after.Fleet != asked.Fleet:
		after.State = delivery.AwaitingFleetApproval
		after.Fleet, after.FleetName = asked.Fleet, serving[at].Name
	case !after.Fleet.IsZero() && at < 0:
		after.State = delivery.AwaitingFleet
		after.Fleet, after.FleetName = delivery.FleetID{}, ""
	}
	if after.State != delivery.Active {
		after.ClosingDate = time.Time{}
	}
	return after, nil
}

// subRegion is that of the first serving fleet by name; empty without one
// (design section 6).
func subRegion(serving []*delivery.Fleet) string {
	if len(serving) == 0 {
		return ""
	}
	return serving[0].SubRegion
}

// sameStore reports whether a PUT changed nothing worth writing.
func sameStore(before *delivery.Store, after delivery.Store) bool {
	if before == nil {
		return false
	}
	after.UpdatedAt = before.UpdatedAt
	return after == *before
}
