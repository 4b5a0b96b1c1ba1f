package main

import (
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// webhookOf opens the ledger for an account that exists.
func (g *gateway) webhookOf(x *exchange) (*ledger.Ledger, delivery.AccountID, error) {
	l, id, err := g.openAccount(x)
	if err != nil {
		return nil, id, err
	}
	_, err = l.Accounts.Get(g.work, id)
	return l, id, err
}

// putAccountWebhook is PUT /accounts/{id}/webhook {url}.
func (g *gateway) putAccountWebhook(x *exchange) error {
	url, err := g.decodeWebhook(x)
	if err != nil {
		return err
	}
	l, id, err := g.webhookOf(x)
	if err != nil {
		return err
	}
	endpoint, issued, err := l.Webhooks.SetURL(g.work, id, url)
	if err != nil {
		return err
	}
	g.audit(x, "webhook registered", "account", id.String())
	x.ctx.Response.Header.SetCanonical(headerCache, valueNoStore)
	return x.okJSON(viewWebhook(endpoint, issued))
}

// rotateWebhookSecret is POST /accounts/{id}/webhook/rotate {revokeOld?}: a new
// secret; the one before signs, too, for 24 hours, or the earlier ones end now.
func (g *gateway) rotateWebhookSecret(x *exchange) error {
	l, id, err := g.webhookOf(x)
	if err != nil {
		return err
	}
	revokeOld, err := readRevokeOld(x)
	if err != nil {
		return err
	}
	secret, err := l.Webhooks.RotateSecret(g.work, id, revokeOld)
	if err != nil {
		return err
	}
	g.audit(x, "webhook secret rotated", "account", id.String(), "revokeOld", revokeOld)
	x.ctx.Response.Header.SetCanonical(headerCache, valueNoStore)
	return x.okJSON(map[string]string{"secret": secret})
}

// testAccountWebhook is POST /accounts/{id}/webhook/test: queues a webhook.test
// event, as the vendor's own POST /webhook/test does.
func (g *gateway) testAccountWebhook(x *exchange) error {
	l, id, err := g.webhookOf(x)
	if err != nil {
		return err
	}
	eventID, err := l.Webhooks.QueueTest(g.work, id, x.now)
	if err != nil {
		return err
	}
	g.audit(x, "webhook test queued", "account", id.String(), "event", eventID)
	return x.okJSON(map[string]string{"eventId": eventID})
}

// attemptView is a line of the attempt log with its times as answers carry
// them.
type attemptView struct {
	ledger.AttemptRecord
	At     string `json:"at"`
	NextAt string `json:"nextAttemptAt,omitempty"`
}

// deliveryStates are what the log can be filtered by.
var deliveryStates = []string{"", "delivered", "retrying", "undelivered", "notSent"}

// listDeliveries is GET /accounts/{id}/webhook/deliveries?status=, newest first.
// Probes that failed in a row are one line: of the last of them, "retrying".
func (g *gateway) listDeliveries(x *exchange) error {
	state := x.query("status")
	if !slices.Contains(deliveryStates, state) {
		return invalid("status", "must be delivered, retrying, undelivered or notSent")
	}
	l, id, err := g.webhookOf(x)
	if err != nil {
		return err
	}
	attempts, err := l.Webhooks.Attempts(g.work, id, state)
	if err != nil {
		return err
	}
	views := make([]attemptView, len(attempts))
	for i, a := range attempts {
		views[i] = attemptView{AttemptRecord: a, At: formatTime(a.At), NextAt: formatTime(a.NextAt)}
	}
	return x.okJSON(map[string]any{"deliveries": views})
}
