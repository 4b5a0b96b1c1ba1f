package main

import (
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// webhookView is a registered receiver as its owner sees it. The secret is
// there only in the answer that issued it.
type webhookView struct {
	URL         string `json:"url"`
	Secret      string `json:"secret,omitempty"`
	Status      string `json:"status"`
	StatusSince string `json:"statusSince,omitempty"`
	Waiting     int64  `json:"waitingEvents"`
	NextAttempt string `json:"nextAttemptAt,omitempty"`
	// LastAttempts are the newest, so that a vendor sees why they fail; only in
	// the vendor's own GET /webhook.
	LastAttempts []lastAttempt `json:"lastAttempts,omitzero"`
	// SuccessRate is of the attempts in this clock hour and the one before,
	// tries that failed and will be repeated included.
	SuccessRate *float64 `json:"successRate,omitempty"`
}

func viewWebhook(e *ledger.WebhookEndpoint, issued string) webhookView {
	return webhookView{
		URL: e.URL, Secret: issued, Status: string(e.State), StatusSince: formatTime(e.StateSince),
		Waiting: e.Backlog, NextAttempt: formatTime(e.NextAttempt),
		SuccessRate: successRate(e.RecentOK, e.RecentFailed),
	}
}

// shownAttempts is how many attempts a vendor sees.
const shownAttempts = 10

// lastAttempt is an attempt as the receiver's owner sees it: what came of it, and
// nothing of the network that the worker stands in.
type lastAttempt struct {
	EventID    string `json:"eventId"`
	Event      string `json:"event"`
	Attempt    int    `json:"attempt"`
	At         string `json:"at"`
	State      string `json:"status"`
	HTTPStatus int    `json:"httpStatus,omitempty"`
	Error      string `json:"error,omitempty"`
}

const refusedAddress = "refused address: "

func viewLastAttempts(records []ledger.AttemptRecord) []lastAttempt {
	views := make([]lastAttempt, len(records))
	for i, a := range records {
		views[i] = lastAttempt{EventID: a.EventID, Event: a.Event, Attempt: a.Attempt, At: formatTime(a.At), State: a.State, HTTPStatus: a.HTTPStatus, Error: a.Error}
		if strings.HasPrefix(a.Error, refusedAddress) { // it names the address that the name led to
			_, why, _ := strings.Cut(a.Error, " is ")
			views[i].Error = refusedAddress + why
		}
	}
	return views
}

// formatTime is a time as answers carry it; empty for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return delivery.FormatTime(t)
}

// putWebhook is PUT /webhook: registers a receiver, or moves it and its waiting
// events to another URL. The secret is issued once and shown then.
func (g *gateway) putWebhook(x *exchange) error {
	url, err := g.decodeWebhook(x)
	if err != nil {
		return g.counted(x, err)
	}
	l, err := g.countAndOpen(x)
	if err != nil {
		return err
	}
	endpoint, issued, err := l.Webhooks.SetURL(g.work, x.account, url)
	if err != nil {
		return err
	}
	x.ctx.Response.Header.SetCanonical(headerCache, valueNoStore)
	return x.okJSON(viewWebhook(endpoint, issued))
}

// readWebhook is GET /webhook.
func (g *gateway) readWebhook(x *exchange) error {
	l, err := g.countAndOpen(x)
	if err != nil {
		return err
	}
	endpoint, err := l.Webhooks.Endpoint(g.work, x.account)
	if err != nil {
		return err
	}
	attempts, err := l.Webhooks.LastAttempts(g.work, x.account, shownAttempts)
	if err != nil {
		return err
	}
	view := viewWebhook(endpoint, "")
	view.LastAttempts = viewLastAttempts(attempts)
	return x.okJSON(view)
}

// deleteWebhook is DELETE /webhook: from now on events are recorded as not
// sent. Deleting what is not there is 404 like reading it.
func (g *gateway) deleteWebhook(x *exchange) error {
	l, err := g.countAndOpen(x)
	if err != nil {
		return err
	}
	if _, err := l.Webhooks.Endpoint(g.work, x.account); err != nil {
		return err
	}
	if err := l.Webhooks.Delete(g.work, x.account); err != nil {
		return err
	}
	x.ok(200, append(x.data(), `{}`...))
	return nil
}

// testWebhook is POST /webhook/test: queues a webhook.test event.
func (g *gateway) testWebhook(x *exchange) error {
	l, err := g.countAndOpen(x)
	if err != nil {
		return err
	}
	eventID, err := l.Webhooks.QueueTest(g.work, x.account, x.now)
	if err != nil {
		return err
	}
	return x.okJSON(map[string]string{"eventId": eventID})
}

// countAndOpen counts a request in its bucket and gives the ledger for the rest
// of its work.
func (g *gateway) countAndOpen(x *exchange) (*ledger.Ledger, error) {
	if err := g.count(x); err != nil {
		return nil, err
	}
	return g.ledger()
}
