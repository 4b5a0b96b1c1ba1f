package main

import (
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// confirmForFleet is POST /accounts/{id}/stores/{externalStoreId}/confirm
// {fleetId?}: what the store's fleet does with its own POST …/confirm, on its
// behalf.
func (g *gateway) confirmForFleet(x *exchange) error {
	return g.answerForFleet(x, "store confirmed for its fleet", func(fleet delivery.FleetID, _ string) storeMove {
		return confirmation(fleet, x.now)
	})
}

// rejectForFleet is POST /accounts/{id}/stores/{externalStoreId}/reject
// {fleetId?, reason?}, the fleet's no.
func (g *gateway) rejectForFleet(x *exchange) error {
	return g.answerForFleet(x, "store rejected for its fleet", func(fleet delivery.FleetID, reason string) storeMove {
		return rejection(fleet, reason, x.now)
	})
}

// answerForFleet answers for the fleet that the body names, or without one for
// whichever the store has chosen. Naming it keeps an operator who looks at an
// old page from answering for a fleet that the vendor has turned to since.
func (g *gateway) answerForFleet(x *exchange, what string, answer func(fleet delivery.FleetID, reason string) storeMove) error {
	fleet, reason, err := readActingFleet(x)
	if err != nil {
		return err
	}
	return g.moveStore(x, what, func(s *delivery.Store, again bool) ([]ledger.Notice, bool, error) {
		if !again && fleet.IsZero() {
			fleet = s.Fleet // a later try is for the same one
		}
		notices, changed, err := answer(fleet, reason)(s, again)
		if errors.Is(err, errNotYourStore) {
			err = errAnotherFleet
		}
		return notices, changed, err
	})
}

var errAnotherFleet = delivery.Refuse(delivery.CodeStoreNotFound, "the store is not attached to this fleet")

// readActingFleet is the body's fleetId, zero when there is none, and its reason.
func readActingFleet(x *exchange) (fleet delivery.FleetID, reason string, err error) {
	if len(x.body) == 0 {
		return fleet, "", nil
	}
	f := newForm(x.text())
	given, why := f.text("fleetId"), f.text("reason")
	if err := f.read(); err != nil {
		return fleet, "", err
	}
	if given.Set {
		if fleet, err = delivery.ParseFleetID(given.Value); err != nil || fleet.IsZero() {
			f.invalid("fleetId", "must be a fleet's id")
		}
	}
	return fleet, f.plain("reason", why, 0, maxReason), f.err()
}

// migrateStore is POST /accounts/{id}/stores/{externalStoreId}/migrate
// {closingDate}: the store stays Active until the end of that local day. The
// same date again changes and announces nothing.
func (g *gateway) migrateStore(x *exchange) error {
	f := newForm(x.text())
	given := f.text("closingDate")
	if err := f.read(); err != nil {
		return err
	}
	closing, err := time.ParseInLocation(time.DateOnly, given.Value, delivery.Istanbul)
	if f.require("closingDate", given.Set) && err != nil {
		f.invalid("closingDate", "must be a date such as 2026-11-21")
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
		return []ledger.Notice{{
			Account: s.Account, Type: delivery.StoreMigrating, OccurredAt: x.now,
			Data: delivery.AppendStoreMigrating(nil, s.ExternalID, s.ClosingDate),
		}}, true, nil
	})
}

// deactivateStore is POST /accounts/{id}/stores/{externalStoreId}/deactivate
// {reason}.
func (g *gateway) deactivateStore(x *exchange) error {
	f := newForm(x.text())
	given := f.text("reason")
	if err := f.read(); err != nil {
		return err
	}
	reason := delivery.DeactivationReason(given.Value)
	known := reason == delivery.MigratedToHizliyo || reason == delivery.FleetSuspended || reason == delivery.VendorRequest
	if f.require("reason", given.Set) && !known {
		f.invalid("reason", "must be MigratedToHizliyo, FleetSuspended or VendorRequest")
	}
	if err := f.err(); err != nil {
		return err
	}
	return g.moveStore(x, "store deactivated", func(s *delivery.Store, again bool) ([]ledger.Notice, bool, error) {
		if again && s.State == delivery.Deactivated {
			return nil, false, nil // an earlier try of ours, whose answer was lost
		}
		if err := delivery.DeactivateStore(s, x.now); err != nil {
			return nil, false, err
		}
		return []ledger.Notice{{
			Account: s.Account, Type: delivery.StoreDeactivated, OccurredAt: x.now,
			Data: delivery.AppendStoreDeactivated(nil, s.ExternalID, reason),
		}}, true, nil
	})
}

// moveStore changes the store that the path names and answers what became of
// it.
func (g *gateway) moveStore(x *exchange, what string, move storeMove) error {
	l, account, err := g.openAccount(x)
	if err != nil {
		return err
	}
	externalID, err := x.storeID()
	if err != nil {
		return err
	}
	store, err := g.changeStore(l, account, externalID, move)
	if err != nil {
		return err
	}
	g.audit(x, what, "account", account.String(), "store", externalID)
	view := map[string]string{"externalStoreId": externalID, "status": store.State.String()}
	if !store.ClosingDate.IsZero() {
		view["closingDate"] = store.ClosingDate.In(delivery.Istanbul).Format(time.DateOnly)
	}
	return x.okJSON(view)
}

// storeID reads the path's second parameter; what is no store's id names none.
func (x *exchange) storeID() (string, error) {
	id := x.param(1)
	if delivery.CheckExternalStoreID(id) != nil {
		return "", delivery.Refuse(delivery.CodeStoreNotFound, "the account has no such store")
	}
	return id, nil
}
