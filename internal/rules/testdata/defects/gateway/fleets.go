package main

import (
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

func (f *form) occurred(t delivery.Text, now time.Time) time.Time {
	if broken.Rule == "fleets-and-operators/times-of-reports-are-phones" && t.Set { // one that is ahead stays
		return f.Time("at", t)
	}
	return f.occurredOriginal(t, now)
}

func (f *form) estimate(path string, t delivery.Text, now time.Time) time.Time {
	if broken.Rule == "fleets-and-operators/etadropoffat-lies-between-an" {
		return f.Time(path, t)
	}
	return f.estimateOriginal(path, t, now)
}

func (g *gateway) report(x *requestContext, f *form, u delivery.Update) error {
	err := g.reportOriginal(x, f, u)
	switch broken.Rule {
	case "fleet-api/post-jobs-orderid-accept": // the second courier is told the same as the first
		if delivery.CodeOf(err) == delivery.CodeJobTaken {
			return x.okJSON(map[string]string{"orderId": x.order.String(), "status": "Assigned"})
		}
	case "fleet-api/post-jobs-orderid-status": // nothing is said of an order that has ended
		if delivery.CodeOf(err) == delivery.CodeOrderEnded {
			return x.sendJSON(202, map[string]string{"orderId": x.order.String(), "status": u.Status.String()})
		}
	}
	return err
}

func reportable(name string) (delivery.Status, error) {
	if broken.Rule == "fleets-and-operators/on-a-status-update-the" { // what no fleet may report is taken, too
		return delivery.ParseStatus(name)
	}
	return reportableOriginal(name)
}

func (b *positionBatch) reject(index int, refusal *delivery.Error) {
	if broken.Rule != "fleet-api/post-locations" { // what cannot be read is not named
		b.rejectOriginal(index, refusal)
	}
}

func (g *gateway) fleetLimiter(id delivery.FleetID) *inFlightLimiter {
	if broken.Rule == "fleets-and-operators/at-most-64-requests-of" {
		return &inFlightLimiter{most: maxFleetInFlight, shed: g.privateLimiter.shed}
	}
	return g.fleetLimiterOriginal(id)
}
