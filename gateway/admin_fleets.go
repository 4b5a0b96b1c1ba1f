package main

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"vendorapi/gateway/strictjson"
	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
)

// maxMinutes bounds a fleet's averages: a courier service, not a carrier.
const maxMinutes = 240

type fleetView struct {
	FleetID  string `json:"fleetId"`
	ClientID string `json:"clientId"`
	*delivery.Fleet
	// Couriers is absent while the fleet never reported.
	Couriers *int `json:"couriers,omitempty"`
	// Coverage is GeoJSON; lists leave it out unless asked for it.
	Coverage json.RawMessage `json:"coverage,omitempty"`
}

func viewFleet(f *delivery.Fleet, coverage bool) fleetView {
	v := fleetView{FleetID: f.ID.String(), ClientID: f.ID.ClientID(), Fleet: f}
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

	// What answers have besides, and no request changes.
	FleetID  delivery.Text  `json:"fleetId"`
	ClientID delivery.Text  `json:"clientId"`
	Couriers strictjson.Raw `json:"couriers"`

	parsed *delivery.Coverage // Coverage, once area has read it
}

// apply sets the fields that the form names.
func (f *fleetForm) apply(fleet *delivery.Fleet) error {
	take(f.Name.Set, f.Line("name", f.Name, false, 1, maxName), &fleet.Name)
	take(f.DeliveryMinutes.Set, f.Whole("avgDeliveryMinutes", f.DeliveryMinutes, 1, maxMinutes), &fleet.DeliveryMinutes)
	take(f.PickupMinutes.Set, f.Whole("avgPickupMinutes", f.PickupMinutes, 0, maxMinutes), &fleet.PickupMinutes)
	take(f.SubRegion.Set, f.Line("subRegion", f.SubRegion, false, 0, maxName), &fleet.SubRegion)
	take(f.Requests.Set, f.Whole("requestsPerSecond", f.Requests, 1, delivery.MaxFleetRequests), &fleet.RequestsPerSecond)
	take(f.Coverage.Text != "", f.area(), &fleet.Coverage)
	set(f.Suspended, &fleet.Suspended)
	set(f.Disabled, &fleet.Disabled)

	return f.err()
}

// keepReadOnly refuses changes of what no request changes.
func (f *fleetForm) keepReadOnly(fleet *delivery.Fleet) {
	f.readOnly("fleetId", f.FleetID, fleet.ID.String())
	f.readOnly("clientId", f.ClientID, fleet.ID.ClientID())

	couriers := delivery.Text{Value: f.Couriers.Text, Set: f.Couriers.Text != ""}
	f.readOnly("couriers", couriers, strconv.Itoa(fleet.Couriers))
}

// area parses once: a large one costs time, and apply is repeated when another writer interferes.
func (f *fleetForm) area() *delivery.Coverage {
	if f.Coverage.Text == "" || f.parsed != nil {
		return f.parsed
	}

	var err error
	f.parsed, err = delivery.ParseCoverage([]byte(f.Coverage.Text))
	if err != nil {
		f.Invalid("coverage", err.Error())
	} else if !f.parsed.ReachesTurkey() {
		f.Invalid("coverage", "is not in Turkey; a position is [longitude, latitude], check that they are not swapped")
	}

	return f.parsed
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
	fleet := &delivery.Fleet{ID: delivery.NewFleetID(), PickupMinutes: delivery.DefaultPickupMinutes, Couriers: -1,
		RequestsPerSecond: delivery.DefaultFleetRequests}
	f.keepReadOnly(fleet)
	if err := f.apply(fleet); err != nil {
		return err
	}

	secret := token.NewSecret()
	x.fleet = fleet.ID
	if err := g.audit(x, "fleet created", nil, auditFleet(fleet)); err != nil {
		return err
	}
	if err := x.ledger.Fleets.Create(g.work, fleet, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}

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

// refreshControls is refreshFleets for what changes no record: it does not wait for the areas of
// other fleets.
func (g *gateway) refreshControls(x *requestContext) {
	if err := x.ledger.Fleets.Refresh(g.work); err != nil {
		g.Log.Warn("a fleet was changed but not reloaded; the next poll does it", "error", err)
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
	if err := f.apply(new(delivery.Fleet)); err != nil { // a wrong form is refused whether or not the fleet exists
		return err
	}

	changed, err := x.ledger.Fleets.Update(g.work, x.fleet, func(fleet *delivery.Fleet) error {
		before := auditFleet(fleet)
		f.keepReadOnly(fleet)
		if err := f.apply(fleet); err != nil {
			return err
		}
		return g.audit(x, "fleet changed", before, auditFleet(fleet))
	})
	if err != nil {
		return err
	}

	g.refreshFleets(x)

	return x.okJSON(viewFleet(changed, false))
}

// rotateFleetCredentials is POST /fleets/{id}/credentials {revokeOld?}.
func (g *gateway) rotateFleetCredentials(x *requestContext) error {
	return rotateSecret(g, x, x.fleet, x.fleet.ClientID(), x.ledger.Fleets.RotateSecret)
}

// errUnreadFleet is the answer where an event would go out without the fleet's name, because its
// stored record is broken. Operators repair it with a change that sets what the record has.
var errUnreadFleet = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second,
	Message: "the fleet's record cannot be read, so nothing was announced; set its name, avgDeliveryMinutes, avgPickupMinutes, subRegion and coverage with PATCH /fleets/{fleetId}, then send this again"}

// overdueView is the answer of payment-overdue.
type overdueView struct {
	Accounts int `json:"accounts"`
	Stores   int `json:"stores"`
	// Unreadable is how many Active stores no account was told of, because their records are broken.
	Unreadable int `json:"unreadable"`
}

// announceOverdue is POST /fleets/{id}/payment-overdue: every account with
// Active stores at the fleet gets events with those at risk (spec,
// fleet.payment_overdue), each once a day, so that it can be repeated.
func (g *gateway) announceOverdue(x *requestContext) error {
	if err := x.form(new(struct{})).err(); err != nil {
		return err
	}
	if err := x.ledger.Fleets.Load(g.work); err != nil {
		return err
	}

	fleets := x.ledger.Fleets.Snapshot()
	fleet := fleets.Fleet(x.fleet)
	if fleet == nil {
		return errNoFleet
	}

	if !fleets.HasRecord(x.fleet) {
		g.Log.Error("an overdue payment is not announced: the fleet's record cannot be read", "fleet", x.fleet)
		return errUnreadFleet
	}

	stores, unreadable, err := x.ledger.Stores.OfFleet(g.work, x.fleet, delivery.Active)
	if err != nil {
		return err
	}

	atRisk := map[delivery.AccountID][]string{}
	for _, s := range stores {
		atRisk[s.Account] = append(atRisk[s.Account], s.ExternalID)
	}

	notices := make([]accounts.Notice, 0, len(atRisk))
	for account, ids := range atRisk {
		slices.Sort(ids)
		for part := range slices.Chunk(ids, delivery.OverdueStores) {
			notices = append(notices, accounts.Notice{
				Account: account, Type: delivery.PaymentOverdue, OccurredAt: x.now,
				Data: delivery.AppendPaymentOverdue(nil, x.fleet, fleet.Name, part),
				Day:  x.now.In(delivery.Istanbul).Format(time.DateOnly),
			})
		}
	}

	if err := g.audit(x, "payment overdue announced", nil, map[string]int{"accounts": len(atRisk)}); err != nil {
		return err
	}
	if err := x.ledger.Webhooks.Publish(g.work, notices...); err != nil {
		return err
	}

	return x.okJSON(overdueView{Accounts: len(atRisk), Stores: len(stores), Unreadable: unreadable})
}
