package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
)

// writeTries bounds how often a store is decided again because somebody else wrote in
// between. Each failed try means that another write succeeded.
const writeTries = 32

func (g *gateway) putStore(x *requestContext) error {
	externalID := x.param(0)
	if err := delivery.CheckExternalStoreID(externalID); err != nil {
		return g.counted(x, err)
	}

	var request delivery.StoreRequest
	f := x.form(&request)
	if f.malformed != nil {
		return g.counted(x, f.malformed)
	}

	before, quota, err := x.ledger.Stores.CountAndGet(g.work, x.account, externalID)
	x.quota = quota
	if err != nil {
		return err
	}

	for range writeTries {
		if before != nil {
			x.ledger.Fleets.Snapshot().NameFleetOf(before)
		}

		asked, err := request.Check(&f.Faults, before)
		if err != nil {
			return err
		}

		serving := x.ledger.Fleets.Snapshot().Covering(asked.Point)
		after, err := upsertStore(before, asked, request.FleetID.Set, serving, x.now)
		if err != nil {
			return err
		}

		after.Account, after.ExternalID = x.account, externalID
		if !sameStore(before, after) {
			err = x.ledger.Stores.Write(g.work, &after)
		}

		if !errors.Is(err, ledger.ErrConflict) {
			return show(x, func(s *delivery.Store) storeView { return viewStore(s, serving, request.FleetID.Set) })(&after, err)
		}

		before, err = x.ledger.Stores.Get(g.work, x.account, externalID)
		if err != nil && delivery.CodeOf(err) != delivery.CodeStoreNotFound {
			return err
		}
	}

	return errContended
}

var errContended = fmt.Errorf("the store is being written by many at once: %w; %w", ledger.ErrConflict, delivery.ErrUnavailable)

// storeMove decides what becomes of a store and the webhook about it; changed is false
// when there is nothing to write. retry: an earlier try of this request was not written,
// or was and the answer got lost, so that the move may find its own work.
type storeMove = func(s *delivery.Store, retry bool) (notice accounts.Notice, changed bool, err error)

// changeStore applies a move until nobody wrote in between.
func (g *gateway) changeStore(x *requestContext, move storeMove) (*delivery.Store, error) {
	for try := range writeTries {
		store, err := x.ledger.Stores.Get(g.work, x.account, x.store)
		if err != nil {
			return nil, err
		}

		x.ledger.Fleets.Snapshot().NameFleetOf(store)
		notice, changed, err := move(store, try > 0)
		if err != nil || !changed {
			return store, err
		}
		err = x.ledger.Stores.Write(g.work, store, notice)
		if !errors.Is(err, ledger.ErrConflict) {
			return store, err
		}
	}

	return nil, errContended
}

// storeInPath reads the path's second parameter; what is no store's id names none.
func (x *requestContext) storeInPath() error {
	x.store = x.param(1)
	if delivery.CheckExternalStoreID(x.store) != nil {
		return delivery.Refuse(delivery.CodeStoreNotFound, "the account has no such store")
	}
	return nil
}

type storeView struct {
	ExternalStoreID string     `json:"externalStoreId,omitempty"` // with a fleet
	Status          string     `json:"status"`
	SubRegion       string     `json:"subRegion"`
	Fleet           *fleetName `json:"fleet,omitempty"`
	// Available is absent when the request has named a fleet.
	Available []fleetOption `json:"availableFleets,omitzero"`
}

type fleetName struct {
	FleetID string `json:"fleetId"`
	Name    string `json:"name"`
}

type fleetOption struct {
	fleetName
	Status          string `json:"status"`
	DeliveryMinutes int    `json:"avgDeliveryMinutes"`
}

// viewStore shows a store; chosen: the request has named a fleet.
func viewStore(s *delivery.Store, serving []*delivery.Fleet, chosen bool) storeView {
	v := storeView{Status: s.State.String(), SubRegion: s.SubRegion}
	if !s.Fleet.IsZero() {
		v.ExternalStoreID, v.Fleet = s.ExternalID, &fleetName{s.Fleet.String(), s.FleetName}
	}

	if chosen {
		return v
	}

	v.Available = make([]fleetOption, len(serving))
	for i, f := range serving {
		v.Available[i] = fleetOption{fleetName{f.ID.String(), f.Name}, "Unavailable", f.DeliveryMinutes}
		if f.Available() {
			v.Available[i].Status = "Available"
		}
	}

	return v
}

// upsertStore decides what a PUT /stores/{externalStoreId} makes of a store
// (spec, "Store states"; decisions, "States").
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
func upsertStore(before *delivery.Store, asked delivery.Store, chosen bool, serving []*delivery.Fleet, now time.Time) (delivery.Store, error) {
	after := delivery.Store{State: delivery.AwaitingFleet}
	if before != nil {
		after.Revision = before.Revision
		if before.State != delivery.Deactivated {
			after = *before
		}
	}

	after.TaxNumber, after.Name, after.Phone = asked.TaxNumber, asked.Name, asked.Phone
	after.Address, after.Point = asked.Address, asked.Point
	after.SubRegion, after.UpdatedAt = "", now
	if len(serving) > 0 { // by name (decisions, "States")
		after.SubRegion = serving[0].SubRegion
	}

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

// sameStore reports whether a PUT changed nothing worth writing.
func sameStore(before *delivery.Store, after delivery.Store) bool {
	if before == nil {
		return false
	}
	after.UpdatedAt = before.UpdatedAt
	return after == *before
}

// answerForFleet is POST /accounts/{id}/stores/{externalStoreId}/confirm and .../reject
// {fleetId?, reason?}: an operator answers for the fleet that the body names, or without one
// for the one that the store has chosen. Naming it keeps an operator with an old page from
// answering for a fleet that was chosen since.
func answerForFleet(what string, hasReason bool, answer func(fleet delivery.FleetID, reason string, now time.Time) storeMove) handler {
	return func(g *gateway, x *requestContext) error {
		var body struct {
			FleetID delivery.Text `json:"fleetId"`
			Reason  delivery.Text `json:"reason"`
		}

		f := x.form(&body)
		if body.Reason.Set && !hasReason {
			f.Invalid("reason", "is unknown; there are fleetId")
		}

		fleet := delivery.Parse(&f.Faults, "fleetId", body.FleetID, false, "must be a fleet's id", delivery.ParseChosenFleet)
		reason := f.Line("reason", body.Reason, false, 0, maxReason)
		if err := f.err(); err != nil {
			return err
		}

		return g.moveStore(x, what, func(s *delivery.Store, retry bool) (accounts.Notice, bool, error) {
			if !retry && fleet.IsZero() {
				fleet = s.Fleet // a later try is for the same one
			}

			notice, changed, err := answer(fleet, reason, x.now)(s, retry)
			if errors.Is(err, errNotYourStore) {
				err = errAnotherFleet
			}
			return notice, changed, err
		})
	}
}

var errAnotherFleet = delivery.Refuse(delivery.CodeStoreNotFound, "the store is not attached to this fleet")

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

	return g.moveStore(x, "store migrating", func(s *delivery.Store, _ bool) (accounts.Notice, bool, error) {
		before := s.ClosingDate
		if err := delivery.MigrateStore(s, closing, x.now); err != nil {
			return accounts.Notice{}, false, err
		}
		if s.ClosingDate.Equal(before) {
			return accounts.Notice{}, false, nil
		}
		return accounts.StoreNotice(s, delivery.StoreMigrating, x.now, delivery.AppendStoreMigrating(nil, s.ExternalID, s.ClosingDate)), true, nil
	})
}

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

	return g.moveStore(x, "store deactivated", func(s *delivery.Store, retry bool) (accounts.Notice, bool, error) {
		if retry && s.State == delivery.Deactivated {
			return accounts.Notice{}, false, nil // an earlier try was written, and its answer lost
		}
		if err := delivery.DeactivateStore(s, x.now); err != nil {
			return accounts.Notice{}, false, err
		}
		return accounts.StoreNotice(s, delivery.StoreDeactivated, x.now, delivery.AppendStoreDeactivated(nil, s.ExternalID, reason)), true, nil
	})
}

func (g *gateway) moveStore(x *requestContext, what string, move storeMove) error {
	return show(x, viewMoved)(g.changeStore(x, func(s *delivery.Store, retry bool) (accounts.Notice, bool, error) {
		before := viewMoved(s)
		notice, changed, err := move(s, retry)
		if err == nil {
			err = g.audit(x, what, before, viewMoved(s))
		}
		return notice, changed, err
	}))
}

func viewMoved(s *delivery.Store) map[string]string {
	view := map[string]string{"externalStoreId": s.ExternalID, "status": s.State.String()}
	if !s.ClosingDate.IsZero() {
		view["closingDate"] = s.ClosingDate.In(delivery.Istanbul).Format(time.DateOnly)
	}
	return view
}
