package dispatch

import (
	"net/http"
	"time"

	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/tracing"
	"vendorapi/worker/dispatch/sender"
)

// headerTraceparent is W3C Trace Context's.
const headerTraceparent = "traceparent"

// promise sends the identity of the span that trace records; zero while tracing is off.
func (r *Role) promise(a *attempt, header http.Header) (identity tracing.Identity) {
	if r.tracer == nil {
		return identity
	}
	identity = r.tracer.OfOrder(orderOf(a.Delivery))
	header[headerTraceparent] = []string{identity.Traceparent()}
	return identity
}

// trace leaves out the receiver's address, whose path may hold a key.
func (r *Role) trace(d *attempt, identity tracing.Identity, began time.Time, a sender.Answer) {
	if r.tracer == nil {
		return
	}

	span := tracing.Span{
		Name: "webhook " + string(d.Type), Kind: tracing.Client, Order: orderOf(d.Delivery), Identity: identity,
		Began: began, Ended: began.Add(a.Took), Failure: a.Class,
		Attributes: []tracing.Attribute{
			tracing.Text("vendorapi.account", d.Account.String()), tracing.Text("vendorapi.event", d.EventID),
			tracing.Number("vendorapi.attempt", d.number), tracing.Text("http.request.method", http.MethodPost),
		},
	}

	if a.Status > 0 {
		span.Attributes = append(span.Attributes, tracing.Number("http.response.status_code", a.Status))
	}

	if d.Order != nil {
		span.Attributes = append(span.Attributes, tracing.Text("vendorapi.order", d.Order.ID.String()))
	}

	r.tracer.Record(&span)
}

// about is what the log shows of a delivery: never its payload, address or answer.
func (r *Role) about(d *attempt, rest ...any) []any {
	line := []any{"account", d.Account, "event", d.EventID, "attempt", d.number}
	if d.Order != nil {
		line = append(line, "order", d.Order.ID)
		if r.tracer != nil {
			line = append(line, "trace_id", tracing.IDOf(d.Order.ID))
		}
	}
	return append(line, rest...)
}

// orderOf is the zero id for a store's event.
func orderOf(d *partitions.Delivery) (order [16]byte) {
	if d.Order != nil {
		order = d.Order.ID
	}
	return order
}
