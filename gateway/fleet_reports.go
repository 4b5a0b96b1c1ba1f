package main

import (
	"fmt"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// How far a courier's clock may be off: reports wait in a dead zone for hours,
// and clocks run ahead by minutes.
const (
	maxAhead  = 5 * time.Minute
	maxBehind = 24 * time.Hour
)

// occurred is when a report says it happened, now without a time. A time that
// cannot be true is a fault of the form.
func (f *form) occurred(path string, t *delivery.Text, now time.Time) time.Time {
	at := f.Time(path, *t)
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

// courierForm reads a courier; prefix is "courier." or empty.
type courierForm struct {
	prefix               string
	name, phone, vehicle *delivery.Text
}

func (f *form) courier(prefix string) courierForm {
	return courierForm{prefix: prefix, name: f.text(prefix + "name"), phone: f.text(prefix + "phone"), vehicle: f.text(prefix + "vehicleType")}
}

func (c courierForm) given() bool { return c.name.Set || c.phone.Set || c.vehicle.Set }

func (c courierForm) check(f *form) delivery.Courier {
	courier := delivery.Courier{Name: f.Line(c.prefix+"name", *c.name, true, 2, maxName)}
	if f.Require(c.prefix+"phone", c.phone.Set) {
		phone, err := delivery.NormalizePhone(c.phone.Value)
		if err != nil {
			f.Invalid(c.prefix+"phone", err.Error())
		}
		courier.Phone = phone
	}
	courier.VehicleType = f.Line(c.prefix+"vehicleType", *c.vehicle, true, 1, 32)
	return courier
}

// report takes an update of the job that the path names if it is the fleet's, in
// one round trip. The worker decides the move.
func (g *gateway) report(x *requestContext, u delivery.Update) (*delivery.Order, error) {
	u.Order, u.Fleet = x.order, x.fleet
	order, err := x.ledger.Orders.Report(g.context(x), u, x.now)
	if delivery.CodeOf(err) == delivery.CodeOrderNotFound {
		err = errNotYourJob
	}
	return order, err
}

// reportedView is a job after a report.
type reportedView struct {
	OrderID string `json:"orderId"`
	Status  string `json:"status"`
}

// okAccepted answers a job that has a courier; that may still wait to be decided.
func (x *requestContext) okAccepted(order *delivery.Order, err error) error {
	if err != nil {
		return err
	}
	return x.okJSON(reportedView{order.ID.String(), max(order.Status, delivery.Assigned).String()})
}

// acceptJob is POST /jobs/{orderId}/accept {courier, at?}. An order that has
// ended is 409 JOB_NOT_AVAILABLE at once, one that another courier has taken 409
// JOB_TAKEN; the same courier again is answered alike.
func (g *gateway) acceptJob(x *requestContext) error {
	f := newForm(x.text())
	courier, at := f.courier("courier."), f.text("at")
	f.read()
	u := delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned,
		Courier: courier.check(f), At: f.occurred("at", at, x.now)}
	if err := f.err(); err != nil {
		return err
	}
	return x.okAccepted(g.report(x, u))
}

// swapCourier is PUT /jobs/{orderId}/courier: another courier carries on, the
// status stays. The courier may stand under "courier", as in accept, or be the
// body itself.
func (g *gateway) swapCourier(x *requestContext) error {
	f := newForm(x.text())
	courier, bare, at := f.courier("courier."), f.courier(""), f.text("at")
	f.read()
	if bare.given() && !courier.given() {
		courier = bare
	}
	u := delivery.Update{Kind: delivery.KindSwap, Courier: courier.check(f), At: f.occurred("at", at, x.now)}
	if err := f.err(); err != nil {
		return err
	}
	return x.okAccepted(g.report(x, u))
}

// reportStatus is POST /jobs/{orderId}/status. What can be true of some order is
// answered 202; whether it is legal for this one is decided by the worker. Of an
// order that has ended, anything but what it holds and a first Delivered is 409
// ORDER_ENDED at once.
func (g *gateway) reportStatus(x *requestContext) error {
	f := newForm(x.text())
	status, at, failure, eta := f.text("status"), f.text("at"), f.text("failureReason"), f.text("etaDropoffAt")
	latitude, longitude := f.number("location.latitude"), f.number("location.longitude")
	f.read()
	u := delivery.Update{Kind: delivery.KindStatus, At: f.occurred("at", at, x.now), ETA: f.Time("etaDropoffAt", *eta)}
	u.Status = f.reportable("status", status)
	u.Failure = f.failure("failureReason", failure, u.Status)
	if latitude.Set || longitude.Set {
		u.Location = f.location("location", latitude, longitude, u.At)
	}
	if err := f.err(); err != nil {
		return err
	}
	order, err := g.report(x, u)
	if err != nil {
		return err
	}
	return x.sendJSON(202, reportedView{order.ID.String(), u.Status.String()})
}

// reportable is a status that a fleet can report: Searching and Cancelled are
// never its doing.
func (f *form) reportable(path string, t *delivery.Text) delivery.Status {
	if !f.Require(path, t.Set) {
		return 0
	}
	status, err := delivery.ParseStatus(t.Value)
	if err != nil || status == delivery.Searching || status == delivery.Cancelled {
		f.Invalid(path, "must be Assigned, PickingUp, PickedUp, Delivering, Delivered or Failed")
		return 0
	}
	return status
}

// failure is required with Failed and refused with anything else.
func (f *form) failure(path string, t *delivery.Text, status delivery.Status) delivery.FailureReason {
	switch {
	case status == delivery.Failed && !f.Require(path, t.Set), status != delivery.Failed && !t.Set:
		return ""
	case status != delivery.Failed && status != 0:
		f.Invalid(path, "belongs to status Failed only")
		return ""
	}
	reason, err := delivery.ParseFailureReason(t.Value)
	if err != nil {
		f.Invalid(path, err.Error())
	}
	return reason
}

func (f *form) location(path string, latitude, longitude *delivery.Number, at time.Time) delivery.Location {
	f.Require(path+".latitude", latitude.Set)
	f.Require(path+".longitude", longitude.Set)
	return delivery.Location{At: at, Point: delivery.Point{
		Latitude: f.Within(path+".latitude", *latitude, 90), Longitude: f.Within(path+".longitude", *longitude, 180),
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
	ignored := 0
	if len(positions) > 0 {
		if ignored, err = x.ledger.Orders.ReportLocations(g.work, x.fleet, positions, x.now); err != nil {
			return err
		}
	}
	// In one order: two alike answers are the same bytes.
	return x.okJSON(struct {
		Accepted int `json:"accepted"`
		Ignored  int `json:"ignored"`
	}{len(positions) - ignored, ignored})
}

func decodePositions(body string, now time.Time) ([]ledger.Position, error) {
	f := newForm(body)
	r := &f.reader
	var positions []ledger.Position
	r.RootArray(func(i int) {
		if i >= maxPositions {
			r.Skip()
			f.Invalid("", fmt.Sprintf("the batch must have at most %d positions", maxPositions))
			return
		}
		path := fmt.Sprintf("[%d]", i)
		var order, at delivery.Text
		var latitude, longitude delivery.Number
		isObject := r.Object(path, func(key string) {
			switch key {
			case "orderId":
				r.Text(path+".orderId", &order)
			case "latitude":
				r.Number(path+".latitude", &latitude)
			case "longitude":
				r.Number(path+".longitude", &longitude)
			case "at":
				r.Text(path+".at", &at)
			default:
				r.Skip()
			}
		})
		if r.Wrong = r.Wrong[:min(len(r.Wrong), maxMistyped)]; isObject {
			f.WrongType = r.Wrong
			positions = append(positions, f.position(path, &order, latitude, longitude, &at, now))
		}
	})
	f.WrongType = r.Wrong
	return positions, f.err()
}

func (f *form) position(path string, order *delivery.Text, latitude, longitude delivery.Number, at *delivery.Text, now time.Time) ledger.Position {
	var p ledger.Position
	if f.Require(path+".orderId", order.Set) {
		var err error
		if p.Order, err = delivery.ParseOrderID(order.Value); err != nil {
			f.Invalid(path+".orderId", "must be an order id")
		}
	}
	p.Location = f.location(path, &latitude, &longitude, f.occurred(path+".at", at, now))
	return p
}
