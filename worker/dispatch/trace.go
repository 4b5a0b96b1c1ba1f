package dispatch

import (
	"net/http"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/tracing"
)

// headerTraceparent is W3C Trace Context's, in Go's spelling.
const headerTraceparent = "Traceparent"

// promise tells the receiver the span that trace records; nothing while tracing is off.
func (r *Role) promise(d *ledger.Delivery, header http.Header) (identity tracing.Identity) {
	if r.tracer == nil {
		return identity
	}
	identity = r.tracer.OfOrder(orderOf(d))
	header[headerTraceparent] = []string{identity.Traceparent()}
	return identity
}

// trace records an attempt. The receiver's address is left out: its path may hold a
// key of the vendor's.
func (r *Role) trace(d *ledger.Delivery, identity tracing.Identity, began time.Time, a answer) {
	if r.tracer == nil {
		return
	}
	span := tracing.Span{
		Name: "webhook " + string(d.Type), Kind: tracing.Client, Order: orderOf(d), Identity: identity,
		Began: began, Ended: began.Add(a.took), Failure: a.class,
		Attributes: []tracing.Attribute{
			tracing.Text("vendorapi.account", d.Account.String()), tracing.Text("vendorapi.event", d.EventID),
			tracing.Number("vendorapi.attempt", d.Attempt), tracing.Text("http.request.method", http.MethodPost),
		},
	}
	if a.status > 0 {
		span.Attributes = append(span.Attributes, tracing.Number("http.response.status_code", a.status))
	}
	if d.Order != nil {
		span.Attributes = append(span.Attributes, tracing.Text("vendorapi.order", d.Order.ID.String()))
	}
	r.tracer.Record(&span)
}

// about is what every line of the log about a delivery carries: its account, event
// and attempt, its order if it has one, and the trace while tracing is on. Never
// the payload, the receiver's address or its answer.
func (r *Role) about(d *ledger.Delivery, rest ...any) []any {
	line := []any{"account", d.Account, "event", d.EventID, "attempt", d.Attempt}
	if d.Order != nil {
		line = append(line, "order", d.Order.ID)
		if r.tracer != nil {
			line = append(line, "trace_id", tracing.IDOf(d.Order.ID))
		}
	}
	return append(line, rest...)
}

// orderOf is whose trace an event belongs to; all zero for one of a store.
func orderOf(d *ledger.Delivery) (order [16]byte) {
	if d.Order != nil {
		order = d.Order.ID
	}
	return order
}
