package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/orders"
)

// maxBehind is how old a report may be: it may have waited in a dead zone for hours.
const maxBehind = 24 * time.Hour

// The estimate of a drop-off lies between these, counted from now.
const (
	maxEstimateBehind = time.Hour
	maxEstimateAhead  = 6 * time.Hour
)

// occurred is the time of a report, its member "at": now without one, and also when the phone's clock is ahead,
// however far, because nobody but the phone's owner can set it.
func (f *form) occurred(t delivery.Text, now time.Time) time.Time {
	at := f.Time("at", t)
	if !t.Set || at.After(now) {
		return now
	}

	// One that cannot be read is zero. It is recorded already, and Invalid adds no second fault.
	if at.Before(now.Add(-maxBehind)) {
		f.Invalid("at", "must not lie more than 24 hours in the past"+delivery.ReadAs(at))
	}

	return at
}

// estimate is when the courier will be at the door; zero when it is not given.
func (f *form) estimate(path string, t delivery.Text, now time.Time) time.Time {
	at := f.Time(path, t)
	if !t.Set {
		return time.Time{}
	}

	earliest, latest := now.Add(-maxEstimateBehind), now.Add(maxEstimateAhead)
	bounds := "must lie between one hour ago and 6 hours ahead, from " + delivery.FormatTime(earliest) + " to " +
		delivery.FormatTime(latest)
	switch {
	case at.Before(earliest):
		f.Invalid(path, bounds+delivery.ReadAs(at))
	case at.After(latest):
		f.Invalid(path, bounds+delivery.ReadAsLate(t.Value, at))
	}

	return at
}

type courierForm struct {
	Name    delivery.Text `json:"name"`
	Phone   delivery.Text `json:"phone"`
	Vehicle delivery.Text `json:"vehicleType"`
}

func (c courierForm) given() bool { return c.Name.Set || c.Phone.Set || c.Vehicle.Set }

// maxVehicleType is how long a vehicle's type may be, in code points.
const maxVehicleType = 32

// courier checks a courier; prefix is "courier." or empty.
func (f *form) courier(prefix string, c courierForm) delivery.Courier {
	name := f.CourierName(prefix+"name", c.Name, 2, maxName)
	if delivery.AbbreviateName(name) == "" {
		f.Invalid(prefix+"name", "must have a letter") // unless something else is wrong with it
	}
	return delivery.Courier{
		Name:        name,
		Phone:       delivery.Parse(&f.Faults, prefix+"phone", c.Phone, true, "", delivery.NormalizePhone),
		VehicleType: f.Line(prefix+"vehicleType", c.Vehicle, true, 1, maxVehicleType),
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

// progressForm is what a report may say of the way to the door, as members of its body.
type progressForm struct {
	ETA       delivery.Text   `json:"etaDropoffAt"`
	Latitude  delivery.Number `json:"location.latitude"`
	Longitude delivery.Number `json:"location.longitude"`
}

// progress completes an update whose time has been read. A place where no courier can be is left out:
// the phone does not know where it is, and the rest of the report is true all the same.
func (f *form) progress(given progressForm, u *delivery.Update, now time.Time) {
	u.ETA = f.estimate("etaDropoffAt", given.ETA, now)
	if !given.Latitude.Set && !given.Longitude.Set {
		return
	}

	place := f.place("location.", given.Latitude, given.Longitude)
	if delivery.IsNearTurkey(place) {
		u.Location = delivery.Location{At: u.At, Point: place}
	}
}

// acceptJob is POST /jobs/{orderId}/accept {courier, at?, location?, etaDropoffAt?}. An order that has
// ended is 409 JOB_NOT_AVAILABLE at once, one that another courier has taken 409
// JOB_TAKEN; the same courier again is answered alike.
func (g *gateway) acceptJob(x *requestContext) error {
	var body struct {
		courierReport
		progressForm
	}

	f := x.form(&body)
	u := delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned,
		Courier: f.courier("courier.", body.Courier), At: f.occurred(body.At, x.now)}
	f.progress(body.progressForm, &u, x.now)
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

	u := delivery.Update{Kind: delivery.KindSwap, Courier: f.courier(prefix, courier), At: f.occurred(body.At, x.now)}

	return g.report(x, f, u)
}

// reportStatus is POST /jobs/{orderId}/status. What can be true of some order is
// answered 202; whether it is legal for this one is decided by the worker. Of an
// order that has ended, anything but what it holds and a first Delivered is 409
// ORDER_ENDED at once.
func (g *gateway) reportStatus(x *requestContext) error {
	var body struct {
		Status  delivery.Text `json:"status"`
		At      delivery.Text `json:"at"`
		Failure delivery.Text `json:"failureReason"`
		progressForm
	}

	f := x.form(&body)
	u := delivery.Update{Kind: delivery.KindStatus, At: f.occurred(body.At, x.now)}
	u.Status = delivery.Parse(&f.Faults, "status", body.Status, true, "", reportable)
	u.Failure = f.failure("failureReason", body.Failure, u.Status)
	f.progress(body.progressForm, &u, x.now)

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

// place checks a point on the earth; prefix is "location." or empty.
func (f *form) place(prefix string, latitude, longitude delivery.Number) delivery.Point {
	f.Require(prefix+"latitude", latitude.Set)
	f.Require(prefix+"longitude", longitude.Set)
	return delivery.Point{
		Latitude:  f.Within(prefix+"latitude", latitude, 90),
		Longitude: f.Within(prefix+"longitude", longitude, 180),
	}
}

const (
	// maxPositions is how many positions one POST /locations may carry.
	maxPositions = 5000
	// maxRejected is how many of those that cannot be read are named.
	maxRejected = 100
)

// reportLocations is POST /locations [{orderId, latitude, longitude, at?}]: the
// last position of each order is kept. Orders that have ended or are unknown, and places
// where no courier can be, are counted as ignored; what cannot be read is named in the answer,
// and the rest is kept.
func (g *gateway) reportLocations(x *requestContext) error {
	batch, err := decodePositions(x.text(), x.now)
	if err != nil {
		return err
	}
	if err := x.ledger.Fleets.Charge(g.work, x.fleet, batch.size/countedAsOne, x.now); err != nil {
		return err
	}

	ignored, err := x.ledger.Orders.ReportLocations(g.work, x.fleet, batch.positions, x.now)
	if err != nil {
		return err
	}

	// In one order: two alike answers are the same bytes.
	return x.okJSON(struct {
		Accepted      int                `json:"accepted"`
		Ignored       int                `json:"ignored"`
		RejectedCount int                `json:"rejectedCount"`
		Rejected      []rejectedPosition `json:"rejected"`
	}{
		Accepted:      len(batch.positions) - ignored,
		Ignored:       ignored + batch.implausible,
		RejectedCount: batch.rejectedCount,
		Rejected:      batch.rejected,
	})
}

// positionBatch is the body of POST /locations, as far as it can be read.
type positionBatch struct {
	size        int // how many elements the body has
	positions   []orders.Position
	implausible int // places where no courier can be

	rejectedCount int                // elements that cannot be read
	rejected      []rejectedPosition // the first maxRejected of them; never nil
}

// rejectedPosition says why an element of a batch cannot be read.
type rejectedPosition struct {
	Index     int           `json:"index"`
	ErrorCode delivery.Code `json:"errorCode"`
	Message   string        `json:"message"`
}

type positionForm struct {
	Order     delivery.Text   `json:"orderId"`
	Latitude  delivery.Number `json:"latitude"`
	Longitude delivery.Number `json:"longitude"`
	At        delivery.Text   `json:"at"`
}

// decodePositions reads a batch element by element. The error is MALFORMED_REQUEST for what is no
// JSON array, and VALIDATION_FAILED for one that is too long.
func decodePositions(body string, now time.Time) (positionBatch, error) {
	var given positionForm
	fields := strictjson.Bind(&given)
	reader := strictjson.New(body)
	reader.NotesDuplicates = true
	batch := positionBatch{rejected: []rejectedPosition{}}

	reader.RootArray(func(i int) {
		batch.size++
		if batch.size > maxPositions {
			reader.Skip()
			return
		}

		given = positionForm{}
		reader.Wrong, reader.Duplicate, reader.Ignored = nil, "", nil
		isObject := reader.Object("", fields)
		position, err := readPosition(given, isObject, &reader, now)
		switch {
		case err != nil:
			batch.reject(i, err)
		case delivery.IsNearTurkey(position.Location.Point):
			batch.positions = append(batch.positions, position)
		default:
			batch.implausible++
		}
	})

	if err := reader.End(); err != nil {
		return positionBatch{}, err
	}
	if batch.size > maxPositions {
		return positionBatch{}, delivery.Invalid("", fmt.Sprintf("the batch must have at most %d positions", maxPositions))
	}

	return batch, nil
}

func (b *positionBatch) reject(index int, refusal *delivery.Error) {
	b.rejectedCount++
	if len(b.rejected) < maxRejected {
		b.rejected = append(b.rejected, rejectedPosition{Index: index, ErrorCode: refusal.Code, Message: allFaults(refusal)})
	}
}

// allFaults is the message of a refusal that is shown without its list of fields, so it names each.
func allFaults(refusal *delivery.Error) string {
	if len(refusal.Fields) == 0 {
		return refusal.Message
	}

	faults := make([]string, len(refusal.Fields))
	for i, field := range refusal.Fields {
		faults[i] = field.Field + " " + field.Message
	}
	return strings.Join(faults, "; ")
}

// readPosition checks the element that the reader has read last; nil: it is a position.
func readPosition(given positionForm, isObject bool, r *strictjson.Reader, now time.Time) (orders.Position, *delivery.Error) {
	if !isObject {
		return orders.Position{}, delivery.Refuse(delivery.CodeValidationFailed, "must be an object")
	}
	if r.Duplicate != "" {
		return orders.Position{}, delivery.Refuse(delivery.CodeMalformedRequest, "%s", r.Duplicate)
	}

	f := form{Faults: delivery.Faults{WrongType: r.Wrong, Ignored: r.Ignored}}
	position := orders.Position{
		Order: delivery.Parse(&f.Faults, "orderId", given.Order, true, "must be an order id", delivery.ParseOrderID),
		Location: delivery.Location{
			Point: f.place("", given.Latitude, given.Longitude),
			At:    f.occurred(given.At, now),
		},
	}

	refusal, _ := errors.AsType[*delivery.Error](f.Err())

	return position, refusal
}
