package main

import (
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Reports wait in a dead zone for hours, and clocks run ahead by minutes.
const (
	maxAhead  = 5 * time.Minute
	maxBehind = 24 * time.Hour
)

// occurred is the time of a report, now without one.
func (f *form) occurred(path string, t delivery.Text, now time.Time) time.Time {
	at := f.Time(path, t)
	switch {
	case at.IsZero():
		return now
	case at.After(now.Add(maxAhead)):
		f.Invalid(path, "must not lie more than 5 minutes in the future"+delivery.ReadAs(t.Value, at))
	case at.Before(now.Add(-maxBehind)):
		f.Invalid(path, "must not lie more than 24 hours in the past"+delivery.ReadAs(t.Value, at))
	}
	return at
}

type courierForm struct {
	Name    delivery.Text `json:"name"`
	Phone   delivery.Text `json:"phone"`
	Vehicle delivery.Text `json:"vehicleType"`
}

func (c courierForm) given() bool { return c.Name.Set || c.Phone.Set || c.Vehicle.Set }

// courier checks a courier; prefix is "courier." or empty.
func (f *form) courier(prefix string, c courierForm) delivery.Courier {
	return delivery.Courier{
		Name:        f.Line(prefix+"name", c.Name, true, 2, maxName),
		Phone:       delivery.Parse(&f.Faults, prefix+"phone", c.Phone, true, "", delivery.NormalizePhone),
		VehicleType: f.Line(prefix+"vehicleType", c.Vehicle, true, 1, 32),
	}
}

// report queues an update in one round trip; the worker decides it. After an acceptance
// or a swap the job has a courier; that may still wait to be decided.
func (g *gateway) report(x *requestContext, f *form, u delivery.Update) error {
	if err := f.err(); err != nil {
		return err
	}
	u.Order, u.Fleet = x.order, x.fleet
	was, err := x.ledger.Orders.Report(g.context(x), u, x.now)
	if delivery.CodeOf(err) == delivery.CodeOrderNotFound {
		return errNotYourJob
	}
	if err != nil {
		return err
	}
	code, status := 200, max(was, delivery.Assigned)
	if u.Kind == delivery.KindStatus {
		code, status = 202, u.Status
	}
	return x.sendJSON(code, struct {
		OrderID string `json:"orderId"`
		Status  string `json:"status"`
	}{x.order.String(), status.String()})
}

// courierReport is the body of a report about the courier.
type courierReport struct {
	Courier courierForm   `json:"courier"`
	At      delivery.Text `json:"at"`
}

// acceptJob is POST /jobs/{orderId}/accept {courier, at?}. An order that has
// ended is 409 JOB_NOT_AVAILABLE at once, one that another courier has taken 409
// JOB_TAKEN; the same courier again is answered alike.
func (g *gateway) acceptJob(x *requestContext) error {
	var body courierReport
	f := x.form(&body)
	u := delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned,
		Courier: f.courier("courier.", body.Courier), At: f.occurred("at", body.At, x.now)}
	return g.report(x, f, u)
}

// swapCourier is PUT /jobs/{orderId}/courier; the status stays. The courier is under
// "courier", as in accept, or the body itself.
func (g *gateway) swapCourier(x *requestContext) error {
	var body struct {
		courierReport
		courierForm
	}
	f := x.form(&body)
	prefix, courier := "courier.", body.Courier
	if body.given() && !courier.given() {
		prefix, courier = "", body.courierForm
	}
	u := delivery.Update{Kind: delivery.KindSwap, Courier: f.courier(prefix, courier), At: f.occurred("at", body.At, x.now)}
	return g.report(x, f, u)
}

// reportStatus is POST /jobs/{orderId}/status. What can be true of some order is
// answered 202; whether it is legal for this one is decided by the worker. Of an
// order that has ended, anything but what it holds and a first Delivered is 409
// ORDER_ENDED at once.
func (g *gateway) reportStatus(x *requestContext) error {
	var body struct {
		Status    delivery.Text   `json:"status"`
		At        delivery.Text   `json:"at"`
		Failure   delivery.Text   `json:"failureReason"`
		ETA       delivery.Text   `json:"etaDropoffAt"`
		Latitude  delivery.Number `json:"location.latitude"`
		Longitude delivery.Number `json:"location.longitude"`
	}
	f := x.form(&body)
	u := delivery.Update{Kind: delivery.KindStatus, At: f.occurred("at", body.At, x.now), ETA: f.Time("etaDropoffAt", body.ETA)}
	u.Status = delivery.Parse(&f.Faults, "status", body.Status, true, "", reportable)
	u.Failure = f.failure("failureReason", body.Failure, u.Status)
	if body.Latitude.Set || body.Longitude.Set {
		u.Location = f.location("location", body.Latitude, body.Longitude, u.At)
	}
	return g.report(x, f, u)
}

// reportable is a status that a fleet can report.
func reportable(name string) (delivery.Status, error) {
	status, err := delivery.ParseStatus(name)
	if err != nil || status == delivery.Searching || status == delivery.Cancelled {
		return 0, errors.New("must be Assigned, PickingUp, PickedUp, Delivering, Delivered or Failed")
	}
	return status, nil
}

// failure is required with Failed and refused with anything else.
func (f *form) failure(path string, t delivery.Text, status delivery.Status) delivery.FailureReason {
	switch {
	case status != delivery.Failed && !t.Set:
		return ""
	case status != delivery.Failed && status != 0:
		f.Invalid(path, "belongs to status Failed only")
		return ""
	}
	return delivery.Parse(&f.Faults, path, t, status == delivery.Failed, "", delivery.ParseFailureReason)
}

func (f *form) location(path string, latitude, longitude delivery.Number, at time.Time) delivery.Location {
	f.Require(path+".latitude", latitude.Set)
	f.Require(path+".longitude", longitude.Set)
	return delivery.Location{At: at, Point: delivery.Point{
		Latitude: f.Within(path+".latitude", latitude, 90), Longitude: f.Within(path+".longitude", longitude, 180),
	}}
}

// maxPositions is how many positions one POST /locations may carry, maxMistyped how
// many fields of wrong types are looked at.
const (
	maxPositions = 5000
	maxMistyped  = 50
)

// reportLocations is POST /locations [{orderId, latitude, longitude, at}]: the
// last position of each order is kept. Orders that have ended or are unknown are
// counted as ignored; a line that cannot be read refuses the batch.
func (g *gateway) reportLocations(x *requestContext) error {
	positions, err := decodePositions(x.text(), x.now)
	if err != nil {
		return err
	}
	if err := x.ledger.Fleets.Charge(g.work, x.fleet, len(positions)/countedAsOne, x.now); err != nil {
		return err
	}
	ignored, err := x.ledger.Orders.ReportLocations(g.work, x.fleet, positions, x.now)
	if err != nil {
		return err
	}
	// In one order: two alike answers are the same bytes.
	return x.okJSON(struct {
		Accepted int `json:"accepted"`
		Ignored  int `json:"ignored"`
	}{len(positions) - ignored, ignored})
}

func decodePositions(body string, now time.Time) (positions []ledger.Position, err error) {
	var f form
	readElements(&f, body, "", maxPositions, "the batch must have at most %d positions", func(path string, given positionForm, isObject bool) {
		if isObject {
			positions = append(positions, f.position(path, given, now))
		}
	})
	return positions, f.err()
}

type positionForm struct {
	Order     delivery.Text   `json:"orderId"`
	Latitude  delivery.Number `json:"latitude"`
	Longitude delivery.Number `json:"longitude"`
	At        delivery.Text   `json:"at"`
}

func (f *form) position(path string, given positionForm, now time.Time) ledger.Position {
	order := delivery.Parse(&f.Faults, path+".orderId", given.Order, true, "must be an order id", delivery.ParseOrderID)
	return ledger.Position{Order: order, Location: f.location(path, given.Latitude, given.Longitude, f.occurred(path+".at", given.At, now))}
}
