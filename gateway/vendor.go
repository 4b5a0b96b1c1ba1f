package main

import (
	"bytes"
	"cmp"
	"slices"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
)

// vendorRoutes is the Vendor API (spec, "Endpoints"; decisions, "Success status" and the rows below it).
func vendorRoutes() routes {
	const root = "/api/vendor/v1"
	const orders, cancel, stores = limits.EndpointOrders, limits.EndpointCancel, limits.EndpointStores
	return slices.Concat(
		group(root, vendorOnly, nil,
			route{method: post, pattern: "/orders", name: "orders_create", body: requiredBody, bucket: orders, handle: (*gateway).createOrder}),
		group(root+"/orders/{}", vendorOnly, (*requestContext).orderInPath,
			route{method: get, name: "orders_read", bucket: limits.EndpointOrderStatus, handle: (*gateway).readOrder},
			route{method: post, pattern: "/cancel", name: "orders_cancel", body: optionalBody, bucket: cancel, handle: (*gateway).cancelOrder}),
		group(root, vendorOnly, nil,
			route{method: put, pattern: "/stores/{}", name: "stores_put", body: requiredBody, bucket: stores, handle: (*gateway).putStore},
			route{method: put, pattern: "/webhook", name: "webhook_put", body: requiredBody, bucket: stores, handle: counting((*gateway).putWebhook)},
			route{method: get, pattern: "/webhook", name: "webhook_read", bucket: stores, handle: counting((*gateway).readWebhook)},
			route{method: remove, pattern: "/webhook", name: "webhook_delete", bucket: stores, handle: counting((*gateway).deleteWebhook)},
			route{method: post, pattern: "/webhook/test", name: "webhook_test", body: optionalBody, bucket: stores, handle: counting((*gateway).testWebhook)},
			route{method: post, pattern: "/webhook/replay", name: "webhook_replay", body: requiredBody, bucket: stores, handle: counting((*gateway).replayOwn)}),
		group(root, public, nil, tokenRoute("token", (*gateway).vendorToken)),
	)
}

// tokenRoute is an API's POST /token.
func tokenRoute(name string, handle handler) route {
	return route{method: post, pattern: "/token", name: name, login: true, body: requiredBody, maxBody: tokenBody, bucket: limits.EndpointToken, handle: handle}
}

// createOrder is POST /orders. What needs no ledger is checked here, everything else
// in one script. A body that breaks a rule still goes to the ledger: a replay of an
// earlier success, or a conflict with one, is answered first (decisions, "Limits and idempotency").
func (g *gateway) createOrder(x *requestContext) error {
	key, broken, err := x.readOrder(g.sandbox())
	if err != nil {
		return g.counted(x, err)
	}

	c := x.creation
	c.Account, c.IdempotencyKey, c.Body, c.Now = x.account, key, x.body, x.now
	var created orders.Created
	if broken != nil {
		created, x.quota, err = x.ledger.Orders.Replay(g.context(x), c, broken)
	} else {
		c.Draft = &x.draft
		c.Candidates = x.ledger.Fleets.Snapshot().AppendCandidates(c.Candidates[:0], x.draft.Dropoff.Point)
		g.simulate(x.draft.PackageNote, c.Candidates)
		created, x.quota, err = x.ledger.Orders.Create(g.context(x), c)
	}

	if err != nil {
		return err
	}

	x.order, x.first = created.Order.ID, !created.Replayed
	if created.Replayed {
		x.ctx.Response.Header.Set("Idempotent-Replayed", "true")
	}

	g.answerCreated(x, created.Order)

	return nil
}

// readOrder reads the body into x.draft, and the idempotency key, empty when it was
// not sent. broken is the rule that the body breaks; err that body or key could not be
// read.
func (x *requestContext) readOrder(sandbox bool) (key string, broken, err error) {
	var f delivery.Faults
	r := strictjson.New(x.text())
	r.Root(x.fields)
	err = r.End()
	if err != nil {
		return "", nil, err
	}

	f.WrongType, f.Ignored = r.Wrong, r.Ignored
	key, err = x.idempotencyKey(x.request.ExternalOrderID.Value)
	if err != nil {
		return "", nil, err
	}

	x.request.Sandbox = sandbox
	x.draft, broken = x.request.Check(&f, x.now)

	return key, broken, nil
}

// The spec's header, and that of draft-ietf-httpapi-idempotency-key-header.
const (
	headerKey      = "X-Idempotency-Key"
	headerDraftKey = "Idempotency-Key"
)

// idempotencyKey is the key that either header carries; empty when neither was sent. The
// spec suggests the order's own id, which needs no copy.
func (x *requestContext) idempotencyKey(externalOrderID string) (string, error) {
	own, ownSent, err := x.keyIn(headerKey)
	if err != nil {
		return "", err
	}
	draft, draftSent, err := x.keyIn(headerDraftKey)
	if err != nil {
		return "", err
	}

	key := own
	switch {
	case !ownSent:
		key = draft
	case draftSent && !bytes.Equal(own, draft):
		return "", delivery.Refuse(delivery.CodeMalformedRequest, "%s and %s differ; send one of them", headerKey, headerDraftKey)
	}

	if string(key) == externalOrderID {
		return externalOrderID, nil
	}

	return string(key), nil
}

// keyIn reads the key of one header. The error is a *delivery.Error.
func (x *requestContext) keyIn(header string) (key []byte, sent bool, err error) {
	value, times := x.header(header)
	switch {
	case times == 0:
		return nil, false, nil
	case times > 1:
		return nil, true, delivery.Invalid(header, "must be sent once")
	}

	key, ok := unquoted(value)
	if !ok {
		return nil, true, delivery.Invalid(header, `must be a key, or a key in double quotes, with \" for " and \\ for \ within them`)
	}

	return key, true, delivery.CheckIdempotencyKey(header, key)
}

// unquoted is a key without the quotes that the draft wants around it, and without the escapes
// within them (a string of RFC 8941). false: a quote, or an escape, has no other half.
func unquoted(value []byte) (key []byte, ok bool) {
	hasStart, hasEnd := bytes.HasPrefix(value, quote), bytes.HasSuffix(value, quote)
	if !hasStart {
		return value, !hasEnd
	}
	if !hasEnd || len(value) < 2 {
		return nil, false
	}

	inner := value[1 : len(value)-1]
	if !bytes.ContainsAny(inner, `"\`) {
		return inner, true
	}

	for i := 0; i < len(inner); i++ {
		if inner[i] == '"' {
			return nil, false
		}

		if inner[i] == '\\' {
			i++
			isEscape := i < len(inner) && (inner[i] == '"' || inner[i] == '\\')
			if !isEscape {
				return nil, false
			}
		}

		key = append(key, inner[i])
	}

	return key, true
}

var quote = []byte{'"'}

// answerCreated answers 201 with an order that was created, now or earlier.
func (g *gateway) answerCreated(x *requestContext, o *delivery.Order) {
	x.ok(201, o.AppendCreated(x.data(), g.trackingURL(o.ID)))
}

func (g *gateway) sandbox() bool { return g.settings.Environment == delivery.Sandbox }

// simulate makes the fleets refuse when a sandbox's packageNote asks for it
// (decisions, "Sandbox"); the other triggers are the worker's.
func (g *gateway) simulate(note string, candidates []accounts.Candidate) {
	if !g.sandbox() {
		return
	}

	trigger, _ := delivery.ParseTrigger(note) // Check has accepted it
	for i := range candidates {
		candidates[i].NoCouriers = candidates[i].NoCouriers || trigger.Kind == delivery.TriggerFleetUnavailable
		candidates[i].Suspended = candidates[i].Suspended || trigger.Kind == delivery.TriggerFleetSuspended
	}
}

func (g *gateway) trackingURL(id delivery.OrderID) string {
	var buffer [256]byte // on the stack
	url := append(buffer[:0], g.settings.TrackingBaseURL...)
	return string(g.tracking.AppendToken(append(url, '/'), id))
}

var errNoOrder = delivery.Refuse(delivery.CodeOrderNotFound,
	"there is no such order; use the orderId that the creation answered, not the externalOrderId")

func (x *requestContext) orderInPath() error {
	return idInPath(x, delivery.ParseOrderID, &x.order, errNoOrder)
}

// readOrder is GET /orders/{orderId}.
func (g *gateway) readOrder(x *requestContext) error {
	order, quota, err := x.ledger.Orders.Poll(g.context(x), x.account, x.order)
	return x.okOrder(order, quota, err)
}

// okOrder answers an order as its vendor sees it.
func (x *requestContext) okOrder(order *delivery.Order, quota limits.Quota, err error) error {
	x.quota = quota
	if err != nil {
		return err
	}
	x.ok(200, order.AppendStatus(x.data(), 0, true, false))
	return nil
}

// cancelOrder is POST /orders/{orderId}/cancel. It answers the order as
// readOrder does.
func (g *gateway) cancelOrder(x *requestContext) error {
	var request delivery.CancelRequest
	f := x.form(&request)
	reason, note, err := request.Check(&f.Faults)
	err = cmp.Or(f.malformed, err)
	if err != nil {
		return g.counted(x, err)
	}

	order, quota, err := x.ledger.Orders.Cancel(g.context(x), x.account, x.order, reason, note, x.now)
	return x.okOrder(order, quota, err)
}
