package day

import (
	"bytes"
	"net/http"
	"time"
)

// delivered is the usual order.
func delivered(*planner, *order, *request) {}

// failures are the reasons that the sandbox courier is asked for.
var failures = []string{
	"CustomerRefused", "AddressNotFound", "CourierIncident", "CustomerUnreachable", "StoreClosed",
	"PaymentRefused", "PackageNotReady", "PackageDamaged", "Other",
}

func failing(i int) func(*planner, *order, *request) {
	return func(_ *planner, o *order, r *request) {
		o.PackageNote = "SIM:FAIL=" + failures[i]
		r.wantEnd, r.wantReason = "Failed", failures[i]
	}
}

// cancellable are the statuses in which a vendor may cancel; the courier is
// asked to wait there, so that the cancellation is never too late.
var cancellable = []string{"Searching", "Assigned", "PickingUp"}

func cancelled(i int) func(*planner, *order, *request) {
	return func(_ *planner, o *order, r *request) {
		o.PackageNote = "SIM:HOLD=" + cancellable[i]
		r.cancelAt, r.wantEnd = cancellable[i], "Cancelled"
	}
}

// receiverKinds try what a receiver has to stand.
var receiverKinds = []func(*planner, *order, *request){
	func(_ *planner, o *order, r *request) {
		o.PackageNote, r.duplicates = "SIM:DUPLICATE her olay iki kez", true
	},
	func(_ *planner, o *order, _ *request) { o.PackageNote = "SIM:REORDER sıra karışık" },
}

// invalidKinds are orders that must be refused, one for each code.
var invalidKinds = []func(*planner, *order, *request){
	refused(http.StatusUnprocessableEntity, "INVALID_PHONE", func(o *order) { o.Recipient.Phone = "532 123" }),
	refused(http.StatusUnprocessableEntity, "DROPOFF_OUT_OF_COVERAGE", func(o *order) { moveTo(o, outOfCoverage) }),
	refused(http.StatusUnprocessableEntity, "INVALID_ADDRESS", func(o *order) { o.Dropoff.Text = "Moda" }),
	refused(http.StatusConflict, "STORE_NOT_CONFIGURED", func(o *order) { o.ExternalStoreID = "no-such-store" }),
	refused(http.StatusUnprocessableEntity, "VALIDATION_FAILED", func(o *order) { o.OrderAmount = "12.345" }),
	refused(http.StatusUnprocessableEntity, "INVALID_RECIPIENT", func(o *order) { o.Recipient.Name = "A" }),
	refused(http.StatusUnprocessableEntity, "COORDINATE_MISMATCH", func(o *order) { moveTo(o, outOfTurkey) }),
	refused(http.StatusServiceUnavailable, "FLEET_UNAVAILABLE", func(o *order) { o.PackageNote = "SIM:FLEET_UNAVAILABLE" }),
	refused(http.StatusUnprocessableEntity, "READY_AT_TOO_FAR", func(o *order) {
		o.ReadyAt = time.Now().Add(5 * time.Hour).Format(time.RFC3339)
	}),
	refused(http.StatusLocked, "FLEET_SUSPENDED", func(o *order) { o.PackageNote = "SIM:FLEET_SUSPENDED" }),
	refused(http.StatusUnprocessableEntity, "VALIDATION_FAILED", func(o *order) { o.Payment = &payment{Type: "Barter"} }),
	func(_ *planner, o *order, r *request) {
		r.body = bytes.TrimSuffix(encode(*o), []byte("}"))
		r.wantStatus, r.wantCode, r.wantEnd = http.StatusBadRequest, "MALFORMED_REQUEST", ""
	},
}

func refused(status int, code string, breakRule func(*order)) func(*planner, *order, *request) {
	return func(_ *planner, o *order, r *request) {
		breakRule(o)
		r.wantStatus, r.wantCode, r.wantEnd = status, code, ""
	}
}

func moveTo(o *order, p place) {
	o.Dropoff.Latitude, o.Dropoff.Longitude = p.latitude, p.longitude
	o.Dropoff.Text = p.street + " No: 1, " + p.district + "/" + p.city
}
