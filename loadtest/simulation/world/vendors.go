package world

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/validate"
)

// vendor is an account with a store and a receiver, and what its people know.
type vendor struct {
	w       *world
	name    string
	id      string
	limits  delivery.Limits // the highest that it ever had
	changes bool            // its settings change all the time
	prone   bool            // its receiver fails at times

	credentials *credentials
	receiver    *receiver

	mu     sync.Mutex
	placed []*placed
	next   int
}

// placed is an order that somebody has tried to create.
type placed struct {
	external, key, body, content string
	order                        string // its id, once an answer had one
}

// courtyard is a place that both fleets serve.
var courtyard = delivery.Point{Latitude: 40.9871, Longitude: 29.0276}

func storeBody(fleet string) string {
	store := map[string]any{"taxNumber": "1234567890", "name": "Branch", "phone": "02161234567",
		"address": map[string]any{"text": "Moda Cad. 1", "latitude": courtyard.Latitude, "longitude": courtyard.Longitude}}
	if fleet != "" {
		store["fleetId"] = fleet
	}
	return jsonOf(store)
}

func (v *vendor) compose(random *rand.Rand, external, key, recipient string) *placed {
	d := delivery.OrderDraft{ExternalStoreID: "s1", ExternalOrderID: external,
		Recipient:   delivery.Recipient{Name: recipient, Phone: "5321234567"},
		OrderAmount: delivery.Money{Minor: int64(random.IntN(100_000)), Set: true}}
	d.Dropoff.Text = "Caferağa Mah. Moda Cad. No:12"
	body := jsonOf(map[string]any{
		"externalStoreId": d.ExternalStoreID, "externalOrderId": external,
		"recipient":   map[string]any{"name": recipient, "phone": "0" + d.Recipient.Phone},
		"dropoff":     map[string]any{"text": d.Dropoff.Text, "latitude": courtyard.Latitude, "longitude": courtyard.Longitude},
		"orderAmount": json.Number(d.OrderAmount.String()),
	})

	return &placed{external: external, key: key, body: body, content: validate.Content(&d)}
}

// client is one person, or program, of a vendor. It makes one request at a time.
type client struct {
	*vendor
	number int
	who    string
	random *rand.Rand
}

func (c *client) do() {
	n := c.random.IntN(100)
	earlier := c.pick(n >= 55)
	switch {
	case n < 40:
		c.createNew()
	case earlier == nil:
	case n < 47:
		c.create(earlier)
	case n < 51 && earlier.key != "":
		c.create(c.compose(c.random, c.external(), earlier.key, "Ali Demir"))
	case n < 55:
		c.create(c.compose(c.random, earlier.external, "other-"+c.external(), "Veli Can"))
	case n < 68:
		c.onOrder(validate.Cancel, "POST", "/orders/"+earlier.order+"/cancel", earlier.order)
	case n < 96:
		c.onOrder(validate.Read, "GET", "/orders/"+earlier.order, earlier.order)
	default:
		c.w.ask(c.who, c.random, c.request("POST", "/webhook/test", ""))
	}
}

func (v *vendor) external() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next++
	return fmt.Sprintf("%s-%d", v.name, v.next)
}

// pick is one of the latest orders; nil: there is none.
func (c *client) pick(withID bool) *placed {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*placed
	for _, p := range c.placed[max(0, len(c.placed)-12):] {
		if !withID || p.order != "" {
			found = append(found, p)
		}
	}

	if len(found) == 0 {
		return nil
	}

	chosen := *draw(c.random, found)

	return &chosen
}

func (c *client) createNew() {
	external := c.external()
	key := external
	switch c.random.IntN(6) {
	case 0:
		key = ""
	case 1, 2:
		key = "key-" + external
	}

	p := c.compose(c.random, external, key, "Ayşe Kaya")
	c.mu.Lock()
	c.placed = append(c.placed, p)
	c.mu.Unlock()
	for range 3 {
		op := c.create(p)
		if !op.Unknown() || percent(c.random, 30) {
			return
		}
	}
}

func (c *client) create(p *placed) *validate.Operation {
	op := &validate.Operation{
		Kind:     validate.Create,
		Key:      p.key,
		External: p.external,
		Body:     validate.Digest([]byte(p.body)),
		Content:  p.content,
	}

	r := c.request("POST", "/orders", p.body)
	if p.key != "" {
		r.header = map[string]string{"X-Idempotency-Key": p.key}
	}

	c.send(op, r)
	if op.Status == 201 {
		c.mu.Lock()
		for _, known := range c.placed {
			if known.external == p.external {
				known.order = op.Order
			}
		}
		c.mu.Unlock()
		c.w.courierHears(c.id, op.Order)
	}

	return op
}

func (c *client) onOrder(kind validate.Kind, method, path, order string) {
	c.send(&validate.Operation{Kind: kind, Order: order}, c.request(method, path, ""))
}

func (c *client) request(method, path, body string) request {
	return request{method: method, path: "/api/vendor/v1" + path, body: body, bearer: c.credentials.token(c.who, c.random)}
}

func (c *client) send(op *validate.Operation, r request) {
	op.Client, op.Account, op.Start = c.number, c.id, time.Now()
	a := c.w.ask(c.who, c.random, r)
	op.End = a.ended
	var data struct {
		OrderID, Status string
		Events          []struct{ Status string }
	}

	a.into(&data)
	op.Status, op.Code, op.State, op.Replayed = a.status, a.code, data.Status, a.replayed
	if op.Kind == validate.Create && a.ok() {
		op.Order, op.Answer = data.OrderID, validate.Digest(a.raw)
	}

	for _, e := range data.Events {
		op.Steps = append(op.Steps, e.Status)
	}

	c.w.log(*op)
}
