package main

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

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

// fleetForm is the body of a creation and of a change.
type fleetForm struct {
	*form
	name, subRegion  *delivery.Text
	delivery, pickup *delivery.Number
	requests         *delivery.Number
	suspended        **bool
	disabled         **bool
	coverage         *string
}

func readFleetForm(x *exchange) (fleetForm, error) {
	f := fleetForm{form: newForm(x.text())}
	f.name, f.subRegion = f.text("name"), f.text("subRegion")
	f.delivery, f.pickup = f.number("avgDeliveryMinutes"), f.number("avgPickupMinutes")
	f.requests = f.number("requestsPerSecond")
	f.suspended, f.disabled, f.coverage = f.flag("suspended"), f.flag("disabled"), f.raw("coverage")
	return f, f.read()
}

// over changes the fleet as the form says and gathers what is wrong with it.
func (f fleetForm) over(fleet *delivery.Fleet) error {
	if f.name.Set {
		fleet.Name = f.plain("name", f.name, 1, maxName)
	}
	if f.delivery.Set {
		fleet.DeliveryMinutes = f.whole("avgDeliveryMinutes", f.delivery, 1, maxMinutes)
	}
	if f.pickup.Set {
		fleet.PickupMinutes = f.whole("avgPickupMinutes", f.pickup, 0, maxMinutes)
	}
	if f.subRegion.Set {
		fleet.SubRegion = f.plain("subRegion", f.subRegion, 0, maxName)
	}
	if *f.suspended != nil {
		fleet.Suspended = **f.suspended
	}
	if *f.disabled != nil {
		fleet.Disabled = **f.disabled
	}
	if f.requests.Set {
		fleet.RequestsPerSecond = f.whole("requestsPerSecond", f.requests, 1, delivery.MaxFleetRequests)
	}
	if *f.coverage != "" {
		coverage, err := delivery.ParseCoverage([]byte(*f.coverage))
		switch {
		case err != nil:
			f.invalid("coverage", err.Error())
		case !coverage.ReachesTurkey():
			f.invalid("coverage", "is not in Turkey; a position is [longitude, latitude], check that they are not swapped")
		}
		fleet.Coverage = coverage
	}
	return f.err()
}

// createFleet is POST /fleets {name, avgDeliveryMinutes, avgPickupMinutes?,
// coverage, subRegion}.
func (g *gateway) createFleet(x *exchange) error {
	l, err := g.ledger()
	if err != nil {
		return err
	}
	f, err := readFleetForm(x)
	if err != nil {
		return err
	}
	f.require("name", f.name.Set)
	f.require("avgDeliveryMinutes", f.delivery.Set)
	f.require("coverage", *f.coverage != "")
	f.require("subRegion", f.subRegion.Set)
	fleet := &delivery.Fleet{ID: delivery.NewFleetID(), PickupMinutes: delivery.DefaultPickupMinutes, Couriers: -1,
		RequestsPerSecond: delivery.DefaultFleetRequests}
	if err := f.over(fleet); err != nil {
		return err
	}
	secret := token.NewSecret()
	if err := l.Fleets.Create(g.work, fleet, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}
	g.audit(x, "fleet created", "fleet", fleet.ID.String())
	g.refreshFleets(l)
	x.ctx.Response.Header.SetCanonical(headerCache, valueNoStore)
	return x.okJSON(map[string]string{
		"fleetId": fleet.ID.String(), "clientId": fleet.ID.ClientID(), "clientSecret": secret,
	})
}

// refreshFleets lets this replica see its own change at once; the others see it
// within their next poll.
func (g *gateway) refreshFleets(l *ledger.Ledger) {
	if err := l.Fleets.Load(g.work); err != nil {
		g.Log.Warn("fleets were changed but not reloaded; the next poll does it", "error", err)
	}
}

// listFleets is GET /fleets; ?coverage=true adds the areas.
func (g *gateway) listFleets(x *exchange) error {
	l, err := g.ledger()
	if err != nil {
		return err
	}
	if err := l.Fleets.Load(g.work); err != nil {
		return err
	}
	coverage := x.query("coverage") == "true"
	views := []fleetView{}
	for _, f := range l.Fleets.Snapshot().All() {
		views = append(views, viewFleet(f, coverage))
	}
	return x.okJSON(map[string]any{"fleets": views})
}

// changeFleet is PATCH /fleets/{id}: any field of the creation, suspended, disabled and
// requestsPerSecond.
func (g *gateway) changeFleet(x *exchange) error {
	id, err := x.fleetID()
	if err != nil {
		return err
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	f, err := readFleetForm(x)
	if err != nil {
		return err
	}
	// What is wrong with the form is said before the fleet is looked for, and
	// parsing a large area is not repeated when another writer interferes.
	var wanted delivery.Fleet
	if err := f.over(&wanted); err != nil {
		return err
	}
	changed, err := l.Fleets.Update(g.work, id, func(fleet *delivery.Fleet) error {
		f.copy(&wanted, fleet)
		return nil
	})
	if err != nil {
		return err
	}
	g.audit(x, "fleet changed", "fleet", id.String(), "suspended", changed.Suspended,
		"disabled", changed.Disabled, "requestsPerSecond", changed.RequestsPerSecond)
	g.refreshFleets(l)
	return x.okJSON(viewFleet(changed, false))
}

// rotateFleetCredentials is POST /fleets/{id}/credentials {revokeOld?}, as for an
// account.
func (g *gateway) rotateFleetCredentials(x *exchange) error {
	id, err := x.fleetID()
	if err != nil {
		return err
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	revokeOld, err := readRevokeOld(x)
	if err != nil {
		return err
	}
	secret, oldUntil := token.NewSecret(), rotated(x, revokeOld)
	if err := l.Fleets.RotateSecret(g.work, id, sha256.Sum256([]byte(secret)), oldUntil, revokeOld); err != nil {
		return err
	}
	g.audit(x, "client secret rotated", "fleet", id.String(), "revokeOld", revokeOld)
	g.refreshFleets(l)
	x.ctx.Response.Header.SetCanonical(headerCache, valueNoStore)
	return x.okJSON(map[string]string{
		"clientId": id.ClientID(), "clientSecret": secret, "previousValidUntil": formatTime(oldUntil),
	})
}

// copy takes over the fields that the form named.
func (f fleetForm) copy(from, to *delivery.Fleet) {
	if f.name.Set {
		to.Name = from.Name
	}
	if f.delivery.Set {
		to.DeliveryMinutes = from.DeliveryMinutes
	}
	if f.pickup.Set {
		to.PickupMinutes = from.PickupMinutes
	}
	if f.subRegion.Set {
		to.SubRegion = from.SubRegion
	}
	if *f.suspended != nil {
		to.Suspended = from.Suspended
	}
	if *f.disabled != nil {
		to.Disabled = from.Disabled
	}
	if f.requests.Set {
		to.RequestsPerSecond = from.RequestsPerSecond
	}
	if *f.coverage != "" {
		to.Coverage = from.Coverage
	}
}

// announceOverdue is POST /fleets/{id}/payment-overdue: every account with
// Active stores at the fleet is told which of them are at risk (spec,
// fleet.payment_overdue); once a day, so that it can be repeated.
func (g *gateway) announceOverdue(x *exchange) error {
	id, err := x.fleetID()
	if err != nil {
		return err
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	if err := l.Fleets.Load(g.work); err != nil {
		return err
	}
	fleet := l.Fleets.Snapshot().Fleet(id)
	if fleet == nil {
		return delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}
	stores, err := l.Stores.OfFleet(g.work, id, delivery.Active)
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
			Data: delivery.AppendPaymentOverdue(nil, id, fleet.Name, ids),
			Day:  x.now.In(delivery.Istanbul).Format(time.DateOnly),
		})
	}
	if err := l.Webhooks.Publish(g.work, notices...); err != nil {
		return err
	}
	g.audit(x, "payment overdue announced", "fleet", id.String(), "accounts", len(notices))
	return x.okJSON(map[string]int{"accounts": len(notices), "stores": len(stores)})
}
