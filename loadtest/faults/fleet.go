package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// fleetClient is a program of the fleet. Its reports come early, late, twice and wrong, beside those of
// the sandbox courier, who moves every order.
type fleetClient struct {
	number int
	api    *client.Client
	log    []validate.Operation // that have ended
	random *rand.Rand
}

// run reports until ctx ends.
func (c *fleetClient) run(ctx context.Context, vendors []*vendor, pause time.Duration) {
	for harness.Sleep(ctx, time.Duration(c.random.Int64N(int64(2*pause)))) == nil {
		v := draw(c.random, vendors)
		_, order := v.pick(c.random, true)
		if order != "" {
			c.report(v.AccountID, order)
		}
	}
}

// report sends one report of an order, or the same one twice.
func (c *fleetClient) report(account, order string) {
	op := validate.Operation{Client: c.number, Account: account, Order: order}
	var method, path string
	var body map[string]any

	chance := c.random.IntN(10)
	switch {
	case chance < 3:
		method, path, op.Kind = http.MethodPost, "/accept", validate.Accept
		op.Courier, body = c.drawCourier()
	case chance < 4:
		method, path, op.Kind = http.MethodPut, "/courier", validate.Swap
		op.Courier, body = c.drawCourier()
	default:
		method, path, op.Kind = http.MethodPost, "/status", validate.Progress
		op.Reported, body = c.drawStatus()
	}

	for range 1 + c.random.IntN(2) {
		c.send(op, method, path, body)
	}
}

// drawCourier returns the phone of a courier, as orders have it, and the body that names the courier.
func (c *fleetClient) drawCourier() (phone string, body map[string]any) {
	phone = draw(c.random, []string{"5320000001", "5320000002", "5320000003"})
	courier := map[string]any{"name": "Kurye " + phone, "phone": "0" + phone, "vehicleType": "Motorcycle"}
	return phone, map[string]any{"courier": courier}
}

func (c *fleetClient) drawStatus() (reported string, body map[string]any) {
	status := draw(c.random, []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp,
		delivery.Delivering, delivery.Delivered, delivery.Failed})
	body = map[string]any{"status": status.String()}
	if status == delivery.Failed {
		body["failureReason"] = "CourierIncident"
	}
	return status.String(), body
}

// send sends one report and logs what was answered. An answer that cannot be read counts as none.
func (c *fleetClient) send(op validate.Operation, method, path string, body map[string]any) {
	op.Start = time.Now()
	answer, err := c.api.Do(context.Background(), method, "/jobs/"+op.Order+path, body) // bounded by the client's timeout
	op.End = time.Now()
	if err == nil {
		op.Status, op.Code = answer.Status, answer.Code
	}
	c.log = append(c.log, op)
}
