package main

import (
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// confirmForFleet is POST /accounts/{id}/stores/{externalStoreId}/confirm {fleetId?}.
func (g *gateway) confirmForFleet(x *requestContext) error {
	return g.answerForFleet(x, "store confirmed for its fleet", func(fleet delivery.FleetID, _ string) storeMove {
		return confirmation(fleet, x.now)
	})
}

// rejectForFleet is POST /accounts/{id}/stores/{externalStoreId}/reject {fleetId?, reason?}.
func (g *gateway) rejectForFleet(x *requestContext) error {
	return g.answerForFleet(x, "store rejected for its fleet", func(fleet delivery.FleetID, reason string) storeMove {
		return rejection(fleet, reason, x.now)
	})
}

// answerForFleet answers for the fleet that the body names, or without one for the one
// that the store has chosen. Naming it keeps an operator with an old page from answering
// for a fleet that was chosen since.
func (g *gateway) answerForFleet(x *requestContext, what string, answer func(fleet delivery.FleetID, reason string) storeMove) error {
	fleet, reason, err := readActingFleet(x)
	if err != nil {
		return err
	}
	return g.moveStore(x, what, func(s *delivery.Store, retry bool) ([]ledger.Notice, bool, error) {
		if !retry && fleet.IsZero() {
			fleet = s.Fleet // a later try is for the same one
		}
		notices, changed, err := answer(fleet, reason)(s, retry)
		if errors.Is(err, errNotYourStore) {
			err = errAnotherFleet
		}
		return notices, changed, err
	})
}

var errAnotherFleet = delivery.Refuse(delivery.CodeStoreNotFound, "the store is not attached to this fleet")

// readActingFleet reads an optional fleetId and reason.
func readActingFleet(x *requestContext) (fleet delivery.FleetID, reason string, err error) {
	var body struct {
		FleetID delivery.Text `json:"fleetId"`
		Reason  delivery.Text `json:"reason"`
	}
	f := x.form(&body)
	if body.FleetID.Set {
		if fleet, err = delivery.ParseFleetID(body.FleetID.Value); err != nil || fleet.IsZero() {
			f.Invalid("fleetId", "must be a fleet's id")
		}
	}
	return fleet, f.Line("reason", body.Reason, false, 0, maxReason), f.err()
}

// migrateStore is POST /accounts/{id}/stores/{externalStoreId}/migrate
// {closingDate}: the store stays Active until the end of that local day. The
// same date again changes and announces nothing.
func (g *gateway) migrateStore(x *requestContext) error {
	var body struct {
		ClosingDate delivery.Text `json:"closingDate"`
	}
	f := x.form(&body)
	closing, err := time.ParseInLocation(time.DateOnly, body.ClosingDate.Value, delivery.Istanbul)
	if f.Require("closingDate", body.ClosingDate.Set) && err != nil {
		f.Invalid("closingDate", "must be a date such as 2026-11-21")
	}
	if err := f.err(); err != nil {
		return err
	}
	return g.moveStore(x, "store migrating", func(s *delivery.Store, _ bool) ([]ledger.Notice, bool, error) {
		before := s.ClosingDate
		if err := delivery.MigrateStore(s, closing, x.now); err != nil {
			return nil, false, err
		}
		if s.ClosingDate.Equal(before) {
			return nil, false, nil
		}
		return notice(s, delivery.StoreMigrating, x.now, delivery.AppendStoreMigrating(nil, s.ExternalID, s.ClosingDate)), true, nil
	})
}

// deactivateStore is POST /accounts/{id}/stores/{externalStoreId}/deactivate {reason}.
func (g *gateway) deactivateStore(x *requestContext) error {
	var body struct {
		Reason delivery.Text `json:"reason"`
	}
	f := x.form(&body)
	reason := delivery.DeactivationReason(body.Reason.Value)
	known := reason == delivery.MigratedToHizliyo || reason == delivery.FleetSuspended || reason == delivery.VendorRequest
	if f.Require("reason", body.Reason.Set) && !known {
		f.Invalid("reason", "must be MigratedToHizliyo, FleetSuspended or VendorRequest")
	}
	if err := f.err(); err != nil {
		return err
	}
	return g.moveStore(x, "store deactivated", func(s *delivery.Store, retry bool) ([]ledger.Notice, bool, error) {
		if retry && s.State == delivery.Deactivated {
			return nil, false, nil // an earlier try was written, and its answer lost
		}
		if err := delivery.DeactivateStore(s, x.now); err != nil {
			return nil, false, err
		}
		return notice(s, delivery.StoreDeactivated, x.now, delivery.AppendStoreDeactivated(nil, s.ExternalID, reason)), true, nil
	})
}

func (g *gateway) moveStore(x *requestContext, what string, move storeMove) error {
	store, err := g.changeStore(x, move)
	if err != nil {
		return err
	}
	g.audit(x, what)
	view := map[string]string{"externalStoreId": x.store, "status": store.State.String()}
	if !store.ClosingDate.IsZero() {
		view["closingDate"] = store.ClosingDate.In(delivery.Istanbul).Format(time.DateOnly)
	}
	return x.okJSON(view)
}
