package status

import (
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/tracing"
)

// trace covers one order, from the reading of its batch to the last settlement.
func (r *Role) trace(d *decision, ended time.Time) {
	if r.tracer == nil {
		return
	}

	var moves []string
	for _, change := range d.changes {
		moves = append(moves, change.Status.String())
	}

	r.tracer.Record(&tracing.Span{
		Name: "decide updates", Kind: tracing.Consumer, Order: d.order, Began: d.began, Ended: ended,
		Attributes: append(attributesOf(d.order, d.read),
			tracing.Text("vendorapi.moves", strings.Join(moves, ",")), tracing.Text("vendorapi.results", strings.Join(d.results, ","))),
	})
}

func (r *Role) traceTimeout(order *delivery.Order, change *delivery.Change, began time.Time) {
	if r.tracer == nil {
		return
	}

	r.tracer.Record(&tracing.Span{
		Name: "timer ends order", Kind: tracing.Consumer, Order: order.ID, Began: began, Ended: time.Now(),
		Attributes: append(attributesOf(order.ID, order), tracing.Text("vendorapi.moves", change.Status.String()),
			tracing.Text("vendorapi.failure_reason", string(change.Failure))),
	})
}

func attributesOf(id delivery.OrderID, order *delivery.Order) []tracing.Attribute {
	attributes := []tracing.Attribute{tracing.Text("vendorapi.order", id.String())}
	if order != nil {
		attributes = append(attributes, tracing.Text("vendorapi.account", order.Account.String()))
	}
	return attributes
}

// about is what the log shows of an order.
func (r *Role) about(d *decision, rest ...any) []any {
	line := []any{"order", d.order}
	if d.read != nil {
		line = append(line, "account", d.read.Account)
	}

	if r.tracer != nil {
		line = append(line, "trace_id", tracing.IDOf(d.order))
	}
	return append(line, rest...)
}
