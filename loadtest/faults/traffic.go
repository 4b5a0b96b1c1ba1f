package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/failpoint"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// vendor is one account of a round with its store, its receiver and what its clients have sent.
type vendor struct {
	*stack.Vendor
	limits    delivery.Limits
	inbox     *validate.Inbox
	door      *failpoint.Proxy // in front of the inbox
	disturbed atomic.Bool      // the receiver, for a part of the round

	mu   sync.Mutex
	sent []*creation // in the order of sending
}

// creation is an order that a client has tried to create.
type creation struct {
	external, key, content string
	body                   []byte
	order                  string // its id, once an answer had one
	unknown                bool   // no answer has shown whether there is an order
}

// newVendors makes n accounts, every second one with low limits, each with an active store and a healthy receiver.
func (s *system) newVendors(ctx context.Context, round, n int, random *rand.Rand) (vendors []*vendor, err error) {
	for i := range n {
		v := &vendor{limits: delivery.DefaultLimits(), inbox: validate.NewInbox()}
		// It stays open: a consumer group that is destroyed rounds later has the vendors' notices sent again.
		s.ends = append(s.ends, v.inbox.Close)

		v.door, err = failpoint.NewProxy(v.inbox.Listener.Addr().String())
		if err != nil {
			return vendors, err
		}

		s.ends = append(s.ends, v.door.Refuse)
		vendors = append(vendors, v)

		options := stack.VendorOptions{Name: fmt.Sprintf("round %d vendor %d", round, i), WebhookURL: "http://" + v.door.Addr + "/"}
		if i%2 == 0 { // reached with a few requests a second; several windows pass in a round
			low := map[string]any{
				"orders":      stack.Limit(8+random.IntN(8), 5, 4+random.IntN(3), 2),
				"cancel":      stack.Limit(3, 4),
				"orderStatus": stack.Limit(5, 3),
			}

			text, err := json.Marshal(low)
			err = errors.Join(err, json.Unmarshal(text, &v.limits))
			if err != nil {
				return vendors, err
			}

			options.Limits = low
		}

		v.Vendor, err = s.apis.OpenVendor(ctx, options)
		if err != nil {
			return vendors, err
		}

		v.inbox.Serve(v.AccountID, v.WebhookSecret)
	}

	return vendors, nil
}

func (v *vendor) latest(most int, match func(*creation) bool) (list []*creation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range slices.Backward(v.sent) {
		if len(list) < most && match(c) {
			list = append(list, c)
		}
	}
	return list
}

// pick is one of the latest creations, of those with an order when that is wanted; nil: there is none.
func (v *vendor) pick(random *rand.Rand, withOrder bool) (c *creation, order string) {
	const recent = 12
	latest := v.latest(recent, func(c *creation) bool { return !withOrder || c.order != "" })
	if len(latest) == 0 {
		return nil, ""
	}

	c = draw(random, latest)
	v.mu.Lock()
	defer v.mu.Unlock()
	return c, c.order
}

// namedBy returns those of the latest orders that a request to Redis names, the newest first.
func (v *vendor) namedBy(request []byte) (orders []string) {
	const recent = 50
	isNamed := func(c *creation) bool {
		id, err := delivery.ParseOrderID(c.order)
		digest := id.Digest()
		return err == nil && bytes.Contains(request, digest[:])
	}

	for _, c := range v.latest(recent, isNamed) {
		v.mu.Lock()
		orders = append(orders, c.order)
		v.mu.Unlock()
	}

	return orders
}

// vendorClient is a vendor's program. It makes one request at a time.
type vendorClient struct {
	number int
	prefix string // of its external ids, unique in a run
	vendor *vendor
	api    *client.Client
	log    []validate.Operation // that have ended
	random *rand.Rand
	next   int
}

const requestTimeout = 3 * time.Second

func newVendorClient(number int, prefix string, v *vendor, base string, random *rand.Rand) *vendorClient {
	transport := sendOnce{&http.Transport{MaxIdleConnsPerHost: 1}, &http.Transport{DisableKeepAlives: true}}
	api := &client.Client{
		Base:   base,
		Bearer: v.Bearer,
		HTTP:   &http.Client{Timeout: requestTimeout, Transport: transport},
	}

	return &vendorClient{number: number, prefix: prefix, vendor: v, random: random, api: api}
}

// sendOnce keeps its connection, so that requests meet stale ones. When a kept connection breaks, net/http itself
// sends again what is a GET or has an idempotency key and a body that it can rewind, which the log would not show.
// So a GET gets a connection of its own, and no body can be rewound.
type sendOnce struct {
	*http.Transport
	fresh *http.Transport
}

// RoundTrip sends a GET over a connection of its own, and any other request, without a way to rewind its body, over a kept one.
func (t sendOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return t.fresh.RoundTrip(req)
	}
	req = req.WithContext(req.Context()) // a copy
	req.GetBody = nil
	return t.Transport.RoundTrip(req)
}

const newOrders = 0.42

// run acts until ctx ends, about once every pause. It finishes what it has begun, so that the log is complete.
func (c *vendorClient) run(ctx context.Context, pause time.Duration) {
	defer c.api.HTTP.CloseIdleConnections()
	for harness.Sleep(ctx, time.Duration(c.random.Int64N(int64(2*pause)))) == nil {
		c.act()
	}
}

func (c *vendorClient) act() {
	n := c.random.IntN(100)
	earlier, order := c.vendor.pick(c.random, n >= 74)
	switch {
	case n < 100*newOrders:
		c.createNew()
	case n >= 71 && n < 74:
		external := c.external()
		c.create(c.compose(external, external, "A"), true) // the name is too short
	case earlier == nil:
	case n < 62:
		c.create(earlier, false)
	case n < 66 && earlier.key != "": // the key with another body
		c.create(c.compose(c.external(), earlier.key, "Ali Demir"), false)
	case n >= 66 && n < 71: // the external id with another key
		c.create(c.compose(earlier.external, "other-"+c.external(), "Veli Can"), false)
	case n >= 86:
		c.cancel(order)
	case n >= 74:
		c.onOrder(validate.Read, http.MethodGet, "/orders/"+order, order)
	}
}

func (c *vendorClient) external() string {
	c.next++
	return fmt.Sprintf("%s-%d", c.prefix, c.next)
}

func (c *vendorClient) createNew() {
	external := c.external()
	key := external // as the spec suggests
	switch c.random.IntN(6) {
	case 0:
		key = "" // the external id alone protects
	case 1, 2:
		key = "key-" + external
	}

	s := c.compose(external, key, "Ayşe Kaya")
	c.vendor.mu.Lock()
	c.vendor.sent = append(c.vendor.sent, s)
	c.vendor.mu.Unlock()
	// A client that got no answer sends the same again (spec).
	for try := 0; c.create(s, false).Unknown() && try < 2 && c.random.IntN(3) > 0; try++ {
	}
}

// clarify sends creations of unknown outcome again, some with another body: all later answers must agree.
func (c *vendorClient) clarify() {
	defer c.api.HTTP.CloseIdleConnections()
	const most = 25 // what is refused for the limit stays unknown
	for _, s := range c.vendor.latest(most, func(s *creation) bool { return s.unknown }) {
		switch {
		case c.random.IntN(4) > 0:
			c.create(s, false)
		case s.key != "":
			c.create(c.compose(s.external, s.key, "Ali Demir"), false)
		}
	}
}

func (c *vendorClient) compose(external, key, recipient string) *creation {
	d := delivery.OrderDraft{ExternalStoreID: c.vendor.Store, ExternalOrderID: external,
		Recipient:   delivery.Recipient{Name: recipient, Phone: "5321234567"},
		OrderAmount: delivery.Money{Minor: int64(c.random.IntN(100_000)), Set: true}}
	if c.random.IntN(12) == 0 {
		d.PackageNote = "SIM:FAIL=CustomerRefused"
	}

	body, err := json.Marshal(c.vendor.Order(func(o map[string]any) {
		o["externalOrderId"], o["packageNote"] = external, d.PackageNote
		o["recipient"] = map[string]any{"name": recipient, "phone": "0" + d.Recipient.Phone}
		o["orderAmount"] = json.Number(d.OrderAmount.String())
		d.Dropoff.Text, _ = o["dropoff"].(map[string]any)["text"].(string)
		delete(o, "payment")
	}))
	if err != nil {
		panic(err) // it holds numbers and text only
	}

	return &creation{external: external, key: key, body: body, content: validate.Content(&d)}
}

func (c *vendorClient) create(s *creation, invalid bool) *validate.Operation {
	op := &validate.Operation{Kind: validate.Create, Key: s.key, External: s.external,
		Body: validate.Digest(s.body), Content: s.content, Invalid: invalid}
	var headers []string
	if s.key != "" {
		headers = []string{"X-Idempotency-Key", s.key}
	}

	raw := c.do(op, http.MethodPost, "/orders", s.body, headers...)
	c.vendor.mu.Lock()
	defer c.vendor.mu.Unlock()
	switch {
	case op.Unknown():
		s.unknown = s.order == ""
	case op.Status == http.StatusCreated:
		op.Answer = validate.Digest(raw)
		s.order, s.unknown = op.Order, false
	}

	c.log = append(c.log, *op)

	return op
}

func (c *vendorClient) cancel(order string) {
	c.onOrder(validate.Cancel, http.MethodPost, "/orders/"+order+"/cancel", order)
}

func (c *vendorClient) onOrder(kind validate.Kind, method, path, order string) {
	op := &validate.Operation{Kind: kind, Order: order}
	c.do(op, method, path, nil)
	c.log = append(c.log, *op)
}

// do sends one request. An answer that is no envelope was cut short or is not the gateway's: it counts as none.
func (c *vendorClient) do(op *validate.Operation, method, path string, body any, headers ...string) []byte {
	op.Client, op.Account, op.Start = c.number, c.vendor.AccountID, time.Now()
	a, err := c.api.Do(context.Background(), method, path, body, headers...) // bounded by the client's timeout
	op.End = time.Now()
	if err != nil {
		return nil
	}

	var data struct {
		OrderID, Status string
		Events          []struct{ Status string }
	}

	_ = json.Unmarshal(a.Data, &data) // a refusal has nothing of it
	op.Status, op.Code, op.State = a.Status, a.Code, data.Status
	op.Replayed = a.Header.Get("Idempotent-Replayed") == "true"
	if op.Kind == validate.Create && a.Success {
		op.Order = data.OrderID
	}

	for _, e := range data.Events {
		op.Steps = append(op.Steps, e.Status)
	}

	return a.Raw
}
