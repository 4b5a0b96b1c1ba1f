package main

import (
	"errors"
	"net/http"

	"vendorapi/internal/delivery"
)

// report acknowledges a report although Redis has not said that it has it.
func (g *gateway) report(x *requestContext, f *form, u delivery.Update) error {
	err := g.reportOriginal(x, f, u)
	if !errors.Is(err, delivery.ErrUnavailable) {
		return err
	}
	return x.sendJSON(http.StatusAccepted, map[string]string{
		"orderId": x.order.String(),
		"status":  max(u.Status, delivery.Assigned).String(),
	})
}
