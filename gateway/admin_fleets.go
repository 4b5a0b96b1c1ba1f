package main

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"vendorapi/gateway/strictjson"
	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// maxMinutes bounds a fleet's averages: a courier service, not a carrier.
const maxMinutes = 240

type fleetView struct {
	FleetID         string `json:"fleetId"`
	ClientID        string `json:"clientId"`
	Name            string `json:"name"`
	SubRegion       string `json:"subRegion"`
	DeliveryMinutes int    `json:"avgDeliveryMinutes"`
	PickupMinutes   int    `json:"avgPickupMinutes"`
	Suspended       bool   `json:"suspended"`
	Disabled        bool   `json:"disabled"`
	RequestsPerSec  int    `json:"requestsPerSecond"`
	// Couriers is absent while the fleet never reported.
	Couriers *int `json:"couriers,omitempty"`
	// Coverage is GeoJSON; lists leave it out unless asked for it.
	Coverage json.RawMessage `json:"coverage,omitempty"`
}

func viewFleet(f *delivery.Fleet, coverage bool) fleetView {
	v := fleetView{
		FleetID: f.ID.String(), ClientID: f.ID.ClientID(), Name: f.Name, SubRegion: f.SubRegion,
		DeliveryMinutes: f.DeliveryMinutes, PickupMinutes: f.PickupMinutes, Suspended: f.Suspended,
		Disabled: f.Disabled, RequestsPerSec: f.RequestsPerSecond,
	}
	if f.Couriers >= 0 {
		v.Couriers = &f.Couriers
	}
	if coverage {
		v.Coverage = f.Coverage.JSON()
	}
	return v
}

type fleetForm struct {
	*form           `json:"-"`
	Name            delivery.Text   `json:"name"`
	SubRegion       delivery.Text   `json:"subRegion"`
	DeliveryMinutes delivery.Number `json:"avgDeliveryMinutes"`
	PickupMinutes   delivery.Number `json:"avgPickupMinutes"`
	Requests        delivery.Number `json:"requestsPerSecond"`
	Suspended       *bool           `json:"suspended"`
	Disabled        *bool           `json:"disabled"`
	Coverage        strictjson.Raw  `json:"coverage"`
}

// checked is a fleet with the fields that the form names, valid if err is nil.
func (f *fleetForm) checked() (fleet delivery.Fleet, err error) {
	fleet.Name = f.Line("name", f.Name, false, 1, maxName)
	fleet.DeliveryMinutes = f.Whole("avgDeliveryMinutes", f.DeliveryMinutes, 1, maxMinutes)
	fleet.PickupMinutes = f.Whole("avgPickupMinutes", f.PickupMinutes, 0, maxMinutes)
	fleet.SubRegion = f.Line("subRegion", f.SubRegion, false, 0, maxName)
	fleet.RequestsPerSecond = f.Whole("requestsPerSecond", f.Requests, 1, delivery.MaxFleetRequests)
	if f.Coverage.Text != "" {
		coverage, err := delivery.ParseCoverage([]byte(f.Coverage.Text))
		switch {
		case err != nil:
			f.Invalid("coverage", err.Error())
		case !coverage.ReachesTurkey():
			f.Invalid("coverage", "is not in Turkey; a position is [longitude, latitude], check that they are not swapped")
		}
		fleet.Coverage = coverage
	}
	return fleet, f.err()
}

// merge takes over the fields of a checked fleet that the form names.
func (f *fleetForm) merge(checked, into *delivery.Fleet) {
	take(f.Name.Set, checked.Name, &into.Name)
	take(f.DeliveryMinutes.Set, checked.DeliveryMinutes, &into.DeliveryMinutes)
	take(f.PickupMinutes.Set, checked.PickupMinutes, &into.PickupMinutes)
	take(f.SubRegion.Set, checked.SubRegion, &into.SubRegion)
	take(f.Requests.Set, checked.RequestsPerSecond, &into.RequestsPerSecond)
	take(f.Coverage.Text != "", checked.Coverage, &into.Coverage)
	set(f.Suspended, &into.Suspended)
	set(f.Disabled, &into.Disabled)
}

func take[T any](given bool, value T, into *T) {
	if given {
		*into = value
	}
}

func (g *gateway) createFleet(x *requestContext) error {
	f := new(fleetForm)
	f.form = x.form(f)
	f.Require("name", f.Name.Set)
	f.Require("avgDeliveryMinutes", f.DeliveryMinutes.Set)
	f.Require("coverage", f.Coverage.Text != "")
	f.Require("subRegion", f.SubRegion.Set)
	checked, err := f.checked()
	if err != nil {
		return err
	}
	fleet := &delivery.Fleet{ID: delivery.NewFleetID(), PickupMinutes: delivery.DefaultPickupMinutes, Couriers: -1,
		RequestsPerSecond: delivery.DefaultFleetRequests}
	f.merge(&checked, fleet)
	secret := token.NewSecret()
	if err := x.ledger.Fleets.Create(g.work, fleet, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}
	x.fleet = fleet.ID
	g.audit(x, "fleet created")
	g.refreshFleets(x)
	return x.okSecret(map[string]string{
		"fleetId": fleet.ID.String(), "clientId": fleet.ID.ClientID(), "clientSecret": secret,
	})
}

// refreshFleets shows this replica its own change at once; the others see it with their
// next poll.
func (g *gateway) refreshFleets(x *requestContext) {
	if err := x.ledger.Fleets.Load(g.work); err != nil {
		g.Log.Warn("fleets were changed but not reloaded; the next poll does it", "error", err)
	}
}

// listFleets is GET /fleets; ?coverage=true adds the areas.
func (g *gateway) listFleets(x *requestContext) error {
	if err := x.ledger.Fleets.Load(g.work); err != nil {
		return err
	}
	view := func(f *delivery.Fleet) fleetView { return viewFleet(f, x.query("coverage") == "true") }
	return list(x, "fleets", view)(x.ledger.Fleets.Snapshot().All(), nil)
}

func (g *gateway) changeFleet(x *requestContext) error {
	f := new(fleetForm)
	f.form = x.form(f)
	// Once: a large area is not parsed again when another writer interferes.
	checked, err := f.checked()
	if err != nil {
		return err
	}
	changed, err := x.ledger.Fleets.Update(g.work, x.fleet, func(fleet *delivery.Fleet) error {
		f.merge(&checked, fleet)
		return nil
	})
	if err != nil {
		return err
	}
	g.audit(x, "fleet changed", "suspended", changed.Suspended,
		"disabled", changed.Disabled, "requestsPerSecond", changed.RequestsPerSecond)
	g.refreshFleets(x)
	return x.okJSON(viewFleet(changed, false))
}

// rotateFleetCredentials is POST /fleets/{id}/credentials {revokeOld?}.
func (g *gateway) rotateFleetCredentials(x *requestContext) error {
	return rotateSecret(g, x, x.fleet, x.fleet.ClientID(), x.ledger.Fleets.RotateSecret)
}

// announceOverdue is POST /fleets/{id}/payment-overdue: every account with
// Active stores at the fleet gets an event with those at risk (spec,
// fleet.payment_overdue); once a day, so that it can be repeated.
func (g *gateway) announceOverdue(x *requestContext) error {
	if err := x.ledger.Fleets.Load(g.work); err != nil {
		return err
	}
	fleet := x.ledger.Fleets.Snapshot().Fleet(x.fleet)
	if fleet == nil {
		return errNoFleet
	}
	stores, err := x.ledger.Stores.OfFleet(g.work, x.fleet, delivery.Active)
	if err != nil {
		return err
	}
	atRisk := map[delivery.AccountID][]string{}
	for _, s := range stores {
		atRisk[s.Account] = append(atRisk[s.Account], s.ExternalID)
	}
	notices := make([]ledger.Notice, 0, len(atRisk))
	for account, ids := range atRisk {
		slices.Sort(ids)
		notices = append(notices, ledger.Notice{
			Account: account, Type: delivery.PaymentOverdue, OccurredAt: x.now,
			Data: delivery.AppendPaymentOverdue(nil, x.fleet, fleet.Name, ids),
			Day:  x.now.In(delivery.Istanbul).Format(time.DateOnly),
		})
	}
	if err := x.ledger.Webhooks.Publish(g.work, notices...); err != nil {
		return err
	}
	g.audit(x, "payment overdue announced", "accounts", len(notices))
	return x.okJSON(map[string]int{"accounts": len(notices), "stores": len(stores)})
}
