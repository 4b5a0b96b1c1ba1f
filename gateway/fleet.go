package main

import (
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// fleetRoutes is the fleet API (design section 5). What a fleet reports of an
// order is appended to the stream and answered; the move is decided by the
// worker.
func fleetRoutes() routes {
	const root = "/api/fleet/v1"
	rs := routes{
		{method: get, pattern: root + "/stores", name: "fleet_stores_list", handle: (*gateway).listStores},
		{method: post, pattern: root + "/stores/{}/{}/confirm", name: "fleet_stores_confirm", body: optionalBody, handle: (*gateway).confirmStore},
		{method: post, pattern: root + "/stores/{}/{}/reject", name: "fleet_stores_reject", body: optionalBody, handle: (*gateway).rejectStore},
		{method: get, pattern: root + "/jobs", name: "fleet_jobs_list", handle: (*gateway).listJobs},
		{method: get, pattern: root + "/jobs/{}", name: "fleet_jobs_read", handle: (*gateway).readJob},
		{method: post, pattern: root + "/jobs/{}/accept", name: "fleet_jobs_accept", body: requiredBody, handle: (*gateway).acceptJob},
		{method: post, pattern: root + "/jobs/{}/status", name: "fleet_jobs_status", body: requiredBody, handle: (*gateway).reportStatus},
		{method: put, pattern: root + "/jobs/{}/courier", name: "fleet_jobs_courier", body: requiredBody, handle: (*gateway).swapCourier},
		{method: post, pattern: root + "/locations", name: "fleet_locations", body: requiredBody, handle: (*gateway).reportLocations},
		{method: put, pattern: root + "/availability", name: "fleet_availability", body: requiredBody, handle: (*gateway).setAvailability},
	}
	for i := range rs {
		rs[i].access = fleetOnly
	}
	return append(rs, route{method: post, pattern: root + "/token", name: "fleet_token", access: public, login: true,
		body: requiredBody, handle: (*gateway).fleetToken})
}

type fleetStoreView struct {
	AccountID       string      `json:"accountId"`
	ExternalStoreID string      `json:"externalStoreId"`
	Status          string      `json:"status"`
	Name            string      `json:"name"`
	TaxNumber       string      `json:"taxNumber"`
	Phone           string      `json:"phone"`
	Address         addressView `json:"address"`
	SubRegion       string      `json:"subRegion"`
	ClosingDate     string      `json:"closingDate,omitempty"`
	UpdatedAt       string      `json:"updatedAt"`
}

type addressView struct {
	Text      string  `json:"text"`
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

func viewFleetStore(s *delivery.Store) fleetStoreView {
	v := fleetStoreView{
		AccountID: s.Account.String(), ExternalStoreID: s.ExternalID, Status: s.State.String(),
		Name: s.Name, TaxNumber: s.TaxNumber, Phone: s.Phone,
		Address:   addressView{Text: s.Address, Latitude: s.Point.Latitude, Longitude: s.Point.Longitude},
		SubRegion: s.SubRegion, UpdatedAt: formatTime(s.UpdatedAt),
	}
	if !s.ClosingDate.IsZero() {
		v.ClosingDate = s.ClosingDate.In(delivery.Istanbul).Format("2006-01-02")
	}
	return v
}

// listStores is GET /stores?status=: the fleet's stores, those that wait for its
// answer, or all without a status.
func (g *gateway) listStores(x *exchange) error {
	var state delivery.StoreState
	if name := x.query("status"); name != "" {
		var err error
		if state, err = delivery.ParseStoreState(name); err != nil {
			return invalid("status", "must be AwaitingFleet, AwaitingFleetApproval, Active or Deactivated")
		}
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	stores, err := l.Stores.OfFleet(g.work, x.fleet, state)
	if err != nil {
		return err
	}
	l.Fleets.Owe(x.fleet, len(stores)/countedAsOne)
	views := make([]fleetStoreView, len(stores))
	for i, s := range stores {
		views[i] = viewFleetStore(s)
	}
	return x.okJSON(map[string]any{"stores": views})
}

var errNotYourStore = delivery.Refuse(delivery.CodeStoreNotFound, "no such store is attached to your fleet")

// storeMove decides what becomes of a store, see changeStore.
type storeMove = func(s *delivery.Store, again bool) (notices []ledger.Notice, changed bool, err error)

// confirmation is a fleet's yes: the store becomes Active, and store.activated
// goes out with the same write. Confirming again announces nothing.
func confirmation(fleet delivery.FleetID, now time.Time) storeMove {
	return func(s *delivery.Store, _ bool) ([]ledger.Notice, bool, error) {
		if s.Fleet != fleet {
			return nil, false, errNotYourStore
		}
		if s.State == delivery.Active {
			return nil, false, nil
		}
		if err := delivery.ConfirmStore(s, now); err != nil {
			return nil, false, err
		}
		return []ledger.Notice{{
			Account: s.Account, Type: delivery.StoreActivated, OccurredAt: now,
			Data: delivery.AppendStoreActivated(nil, s.ExternalID, s.Fleet, s.FleetName),
		}}, true, nil
	}
}

// rejection is a fleet's no: the vendor has to choose again, and store.rejected goes
// out with the same write.
func rejection(fleet delivery.FleetID, reason string, now time.Time) storeMove {
	return func(s *delivery.Store, again bool) ([]ledger.Notice, bool, error) {
		if again && s.State == delivery.AwaitingFleet {
			return nil, false, nil // an earlier try of ours, whose answer was lost
		}
		if s.Fleet != fleet {
			return nil, false, errNotYourStore
		}
		notice := ledger.Notice{
			Account: s.Account, Type: delivery.StoreRejected, OccurredAt: now,
			Data: delivery.AppendStoreRejected(nil, s.ExternalID, s.Fleet, s.FleetName, reason),
		}
		return []ledger.Notice{notice}, true, delivery.RejectStore(s, now)
	}
}

// confirmStore is POST /stores/{accountId}/{externalStoreId}/confirm. Again is
// answered alike.
func (g *gateway) confirmStore(x *exchange) error {
	return g.answerPending(x, confirmation(x.fleet, x.now))
}

// rejectStore is POST /stores/{accountId}/{externalStoreId}/reject {reason?}.
func (g *gateway) rejectStore(x *exchange) error {
	reason := ""
	if len(x.body) > 0 {
		f := newForm(x.text())
		given := f.text("reason")
		if err := f.read(); err != nil {
			return err
		}
		reason = f.plain("reason", given, 0, maxReason)
		if err := f.err(); err != nil {
			return err
		}
	}
	return g.answerPending(x, rejection(x.fleet, reason, x.now))
}

// maxReason is how long a fleet's reason may be, in code points.
const maxReason = 256

// answerPending applies a fleet's answer to the store that the path names.
func (g *gateway) answerPending(x *exchange, move storeMove) error {
	account, err := x.accountID()
	if err != nil {
		return errNotYourStore
	}
	externalID, err := x.storeID()
	if err != nil {
		return errNotYourStore
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	store, err := g.changeStore(l, account, externalID, move)
	if delivery.CodeOf(err) == delivery.CodeStoreNotFound {
		return errNotYourStore
	}
	if err != nil {
		return err
	}
	return x.okJSON(viewFleetStore(store))
}

// availabilityCounts is how many requests more a change of availability counts as:
// every gateway reads all fleets again.
const availabilityCounts = 20

// setAvailability is PUT /availability {couriers: n}: at 0 new orders get 503
// FLEET_UNAVAILABLE.
func (g *gateway) setAvailability(x *exchange) error {
	f := newForm(x.text())
	given := f.number("couriers")
	if err := f.read(); err != nil {
		return err
	}
	f.require("couriers", given.Set)
	couriers := f.whole("couriers", given, 0, 1_000_000)
	if err := f.err(); err != nil {
		return err
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	_, err = l.Fleets.Update(g.work, x.fleet, func(fleet *delivery.Fleet) error {
		if fleet.Couriers == couriers {
			return errUnchanged
		}
		fleet.Couriers = couriers
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	if err == nil {
		l.Fleets.Owe(x.fleet, availabilityCounts)
		g.refreshFleets(l)
	}
	return x.okJSON(map[string]int{"couriers": couriers})
}

// errUnchanged spares every gateway the reload of a fleet that reports what is
// known already.
var errUnchanged = errors.New("unchanged")
