package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/validate"
)

// fleet carries orders.
type fleet struct {
	w           *world
	name, id    string
	credentials *credentials

	mu   sync.Mutex
	jobs []*job
}

// job is an order as a fleet's couriers know it.
type job struct {
	account, order string
	taken          int // how many of steps were acknowledged
	ended          bool
}

var steps = []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}

// courierHears tells the fleets of an order. Whose it is they learn by asking.
func (w *world) courierHears(account, order string) {
	for _, f := range w.fleets {
		f.hear(account, order)
	}
}

func (f *fleet) hear(account, order string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	isKnown := slices.ContainsFunc(f.jobs, func(j *job) bool { return j.order == order })
	if !isKnown {
		f.jobs = append(f.jobs, &job{account: account, order: order})
	}
}

// pick returns one of the latest jobs that have not ended, or nil.
func (f *fleet) pick(random *rand.Rand) *job {
	f.mu.Lock()
	defer f.mu.Unlock()
	var open []*job
	for _, j := range f.jobs {
		if !j.ended {
			open = append(open, j)
		}
	}

	if len(open) == 0 {
		return nil
	}

	return draw(random, open[max(0, len(open)-8):])
}

// courier is one of a fleet's people. Their reports come early, late, twice and wrong.
type courier struct {
	*fleet
	number int // among all clients
	who    string
	phone  string // as orders have it
	random *rand.Rand
}

func (c *courier) do() {
	n := c.random.IntN(100)
	switch {
	case n < 8:
		c.list()
	case n < 12:
		c.answerStores()
	case n < 14:
		c.ask("PUT", "/availability", jsonOf(map[string]int{"couriers": 1 + c.random.IntN(20)}))
	default:
		j := c.pick(c.random)
		if j != nil {
			c.work(j, n)
		}
	}
}

// work does something about a job; n is from 14 to 99.
func (c *courier) work(j *job, n int) {
	switch {
	case n < 20:
		swap := validate.Operation{Kind: validate.Swap, Courier: c.phone}
		c.report(j, swap, "PUT", "/courier", map[string]any{"courier": c.courier()})
	case n < 24:
		location := map[string]any{
			"orderId":   j.order,
			"latitude":  courtyard.Latitude,
			"longitude": courtyard.Longitude,
		}
		c.ask("POST", "/locations", jsonOf([]any{location}))
	case n < 28:
		c.status(j, draw(c.random, steps)) // early, late or twice
	case n < 31:
		c.status(j, delivery.Failed)
	case c.next(j) == delivery.Assigned:
		c.accept(j)
	default:
		c.status(j, c.next(j))
	}
}

// next returns the status that comes next on the way to a delivery.
func (f *fleet) next(j *job) delivery.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return j.next()
}

// next is fleet.next for who holds the fleet's mutex.
func (j *job) next() delivery.Status { return steps[min(j.taken, len(steps)-1)] }

func (c *courier) courier() map[string]any {
	return map[string]any{"name": "Kurye " + c.phone, "phone": "0" + c.phone, "vehicleType": "Motorcycle"}
}

func (c *courier) ask(method, path, body string) *answer {
	return c.w.ask(c.who, c.random, request{private: true, method: method, path: "/api/fleet/v1" + path, body: body,
		bearer: c.credentials.token(c.who, c.random)})
}

func (c *courier) list() {
	a := c.ask("GET", "/jobs?status=Searching", "")
	var data struct {
		Jobs []struct {
			OrderID string
			Store   struct{ AccountID string }
		}
	}

	a.into(&data)
	for _, j := range data.Jobs {
		c.hear(j.Store.AccountID, j.OrderID)
	}
}

// answerStores confirms, and at times rejects, the stores that wait for the fleet.
func (c *courier) answerStores() {
	a := c.ask("GET", "/stores?status=AwaitingFleetApproval", "")
	var data struct {
		Stores []struct{ AccountID, ExternalStoreID string }
	}
	a.into(&data)
	for _, s := range data.Stores {
		verb := "confirm"
		if percent(c.random, 15) {
			verb = "reject"
		}
		c.ask("POST", "/stores/"+s.AccountID+"/"+s.ExternalStoreID+"/"+verb, "")
	}
}

func (c *courier) accept(j *job) {
	acceptance := validate.Operation{Kind: validate.Accept, Courier: c.phone}
	a := c.report(j, acceptance, "POST", "/accept", map[string]any{"courier": c.courier()})

	c.mu.Lock()
	defer c.mu.Unlock()
	hasCourier := a.ok() || a.code == string(delivery.CodeJobTaken)
	if hasCourier {
		j.taken = max(j.taken, 1)
	}

	isRefused := a.status == 404 || a.status == 409
	if isRefused && !hasCourier {
		j.ended = true
	}
}

func (c *courier) status(j *job, status delivery.Status) {
	body := map[string]any{"status": status.String()}
	if status == delivery.Failed {
		body["failureReason"] = "CourierIncident"
	}

	a := c.report(j, validate.Operation{Kind: validate.Progress, Reported: status.String()}, "POST", "/status", body)

	c.mu.Lock()
	defer c.mu.Unlock()
	if a.ok() && status == j.next() {
		j.taken++
	}

	isRefused := a.status == 404 || a.status == 409
	if isRefused || j.taken == len(steps) {
		j.ended = true
	}
}

// report sends a report of a job, and logs what was answered.
func (c *courier) report(j *job, op validate.Operation, method, path string, body map[string]any) *answer {
	if percent(c.random, 10) { // a phone that was in a dead zone
		body["at"] = time.Now().Add(-time.Duration(c.random.IntN(600)) * time.Second).UTC().Format(time.RFC3339)
	}

	op.Client, op.Account, op.Order, op.Start = c.number, j.account, j.order, time.Now()
	a := c.ask(method, "/jobs/"+j.order+path, jsonOf(body))
	op.End, op.Status, op.Code = a.ended, a.status, a.code
	c.w.log(op)

	return a
}

func fleetBody(name string) string {
	const istanbul = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`
	return fmt.Sprintf(`{"name":%q,"avgDeliveryMinutes":25,"subRegion":"Kadıköy","coverage":%s}`, name, istanbul)
}
