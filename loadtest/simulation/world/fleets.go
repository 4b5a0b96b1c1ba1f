package world

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// fleet carries orders.
type fleet struct {
	w           *world
	name, id    string
	credentials *credentials

	mu      sync.Mutex
	jobs    []*job
	reports []*report
}

// job is an order as its couriers know it.
type job struct {
	order string
	step  int // how many of steps were acknowledged
	ended bool
}

var steps = []string{"Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}

// report is what a fleet has said of an order, and what it was answered.
type report struct {
	order, kind    string // accept, swap or status
	status         string // of kind status
	courier        string // of the other two
	began, ended   time.Time
	answered       int
	code           string
	unknown        bool
	isAcknowledged bool
}

// courierHears tells the fleets of an order. Whose it is they learn by asking.
func (w *world) courierHears(order string) {
	for _, f := range w.fleets {
		f.hear(order)
	}
}

func (f *fleet) hear(order string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.order == order {
			return
		}
	}
	f.jobs = append(f.jobs, &job{order: order})
}

// courier is one of a fleet's people.
type courier struct {
	*fleet
	who    string
	title  string // as it is reported
	random *rand.Rand
}

func (c *courier) act(ctx context.Context) {
	for {
		wait, over := c.w.plan.nextAct(c.random)
		if over {
			return
		}

		pause(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		c.do()
	}
}

func (c *courier) do() {
	n := c.random.IntN(100)
	if n < 8 {
		c.list()
		return
	}
	if n < 12 {
		c.answerStores()
		return
	}
	if n < 14 {
		c.ask("PUT", "/availability", jsonOf(map[string]int{"couriers": 1 + c.random.IntN(20)}))
		return
	}

	c.mu.Lock()
	var open []*job
	for _, j := range c.jobs {
		if !j.ended {
			open = append(open, j)
		}
	}
	c.mu.Unlock()
	if len(open) == 0 {
		return
	}
	j := draw(c.random, open[max(0, len(open)-8):])
	switch {
	case n < 20:
		c.report(&report{order: j.order, kind: "swap", courier: c.title}, "PUT", "/courier", map[string]any{"courier": c.courier()})
	case n < 24:
		c.ask("POST", "/locations", jsonOf([]any{map[string]any{"orderId": j.order, "latitude": courtyard.Latitude, "longitude": courtyard.Longitude}}))
	case n < 28:
		c.status(j, draw(c.random, steps)) // early, late or twice
	case n < 31:
		c.fail(j)
	case j.step == 0:
		c.accept(j)
	default:
		c.status(j, steps[min(j.step, len(steps)-1)])
	}
}

func (c *courier) courier() map[string]any {
	return map[string]any{"name": c.title, "phone": "05559998877", "vehicleType": "Motorcycle"}
}

func (c *courier) ask(method, path, body string) *answer {
	return c.w.ask(c.who, c.random, request{private: true, method: method, path: "/api/fleet/v1" + path, body: body,
		bearer: c.credentials.token(c.who, c.random)})
}

func (c *courier) list() {
	a := c.ask("GET", "/jobs?status=Searching", "")
	var data struct{ Jobs []struct{ OrderID string } }
	a.into(&data)
	for _, j := range data.Jobs {
		c.hear(j.OrderID)
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
	a := c.report(&report{order: j.order, kind: "accept", courier: c.title}, "POST", "/accept", map[string]any{"courier": c.courier()})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case a.ok():
		j.step = max(j.step, 1)
	case a.code == "ORDER_NOT_FOUND" || a.code == "JOB_NOT_FOUND" || a.status == 404 || a.code == "JOB_NOT_AVAILABLE":
		j.ended = true
	case a.code == "JOB_TAKEN":
		j.step = max(j.step, 1)
	}
}

func (c *courier) status(j *job, status string) {
	a := c.report(&report{order: j.order, kind: "status", status: status}, "POST", "/status", map[string]any{"status": status})
	c.took(j, status, a)
}

func (c *courier) fail(j *job) {
	a := c.report(&report{order: j.order, kind: "status", status: "Failed"}, "POST", "/status",
		map[string]any{"status": "Failed", "failureReason": "CourierIncident"})
	c.took(j, "Failed", a)
}

func (c *courier) took(j *job, status string, a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.ok() && status == steps[min(j.step, len(steps)-1)] {
		j.step++
	}
	j.ended = j.ended || j.step >= len(steps) || a.status == 404 || a.status == 409
}

func (c *courier) report(r *report, method, path string, body any) *answer {
	if percent(c.random, 10) { // a phone that was in a dead zone
		withTime := make(map[string]any)
		_ = json.Unmarshal([]byte(jsonOf(body)), &withTime) // what jsonOf has made
		withTime["at"] = time.Now().Add(-time.Duration(c.random.IntN(600)) * time.Second).UTC().Format(time.RFC3339)
		body = withTime
	}
	r.began = time.Now()
	a := c.ask(method, "/jobs/"+r.order+path, jsonOf(body))
	r.ended, r.answered, r.code, r.unknown, r.isAcknowledged = a.ended, a.status, a.code, a.unknown(), a.ok()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, r)
	return a
}

func fleetBody(name string) string {
	const istanbul = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`
	return fmt.Sprintf(`{"name":%q,"avgDeliveryMinutes":25,"subRegion":"Kadıköy","coverage":%s}`, name, istanbul)
}
