package main

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/webhook"
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
	// LastAttempts are the newest; only in the vendor's own GET /webhook.
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

func viewLastAttempt(a ledger.AttemptRecord) lastAttempt {
	if strings.HasPrefix(a.Error, refusedAddress) { // it names the address that the name led to
		_, why, _ := strings.Cut(a.Error, " is ")
		a.Error = refusedAddress + why
	}
	return lastAttempt{a.EventID, a.Event, a.Attempt, formatTime(a.At), a.State, a.HTTPStatus, a.Error}
}

// formatTime is a time as answers carry it; empty for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return delivery.FormatTime(t)
}

// putWebhook is PUT /webhook {url}: registers a receiver, or moves it and its waiting
// events to another URL. The secret is issued once and shown then.
func (g *gateway) putWebhook(x *requestContext) error {
	var body struct {
		URL delivery.Text `json:"url"`
	}
	f := x.form(&body)
	if f.Require("url", body.URL.Set) {
		if fault := webhookURLFault(body.URL.Value, g.settings.localReceivers()); fault != "" {
			f.Invalid("url", fault)
		}
	}
	if err := f.err(); err != nil {
		return err
	}
	endpoint, issued, err := x.ledger.Webhooks.SetURL(g.work, x.account, body.URL.Value)
	if err != nil {
		return err
	}
	g.audit(x, "webhook registered")
	return x.okSecret(viewWebhook(endpoint, issued))
}

// readWebhook is GET /webhook.
func (g *gateway) readWebhook(x *requestContext) error {
	endpoint, err := x.ledger.Webhooks.Endpoint(g.work, x.account)
	if err != nil {
		return err
	}
	attempts, err := x.ledger.Webhooks.LastAttempts(g.work, x.account, shownAttempts)
	if err != nil {
		return err
	}
	view := viewWebhook(endpoint, "")
	view.LastAttempts = viewAll(attempts, viewLastAttempt)
	return x.okJSON(view)
}

// deleteWebhook is DELETE /webhook: from now on events are recorded as not sent.
func (g *gateway) deleteWebhook(x *requestContext) error {
	if _, err := x.ledger.Webhooks.Endpoint(g.work, x.account); err != nil {
		return err
	}
	if err := x.ledger.Webhooks.Delete(g.work, x.account); err != nil {
		return err
	}
	return x.okJSON(struct{}{})
}

// testWebhook is POST /webhook/test: queues a webhook.test event.
func (g *gateway) testWebhook(x *requestContext) error {
	eventID, err := x.ledger.Webhooks.QueueTest(g.work, x.account, x.now)
	if err != nil {
		return err
	}
	g.audit(x, "webhook test queued", "event", eventID)
	return x.okJSON(map[string]string{"eventId": eventID})
}

// replayOwn is POST /webhook/replay {since}: events are sent once more, under their own
// ids. Another replay of the account meanwhile is RATE_LIMITED, and counts.
func (g *gateway) replayOwn(x *requestContext) error {
	var body struct {
		Since delivery.Text `json:"since"`
	}
	f := x.form(&body)
	f.Require("since", body.Since.Set)
	since := f.replayFrom("since", body.Since, x.now)
	if err := f.err(); err != nil {
		return err
	}
	return show(x, viewReplayed)(x.ledger.Webhooks.ReplaySince(g.work, x.account, since))
}

func viewReplayed(events int) map[string]int { return map[string]int{"replayed": events} }

// How far a replay reaches: events are kept for a day.
const (
	maxReplayed    = 1000
	replayReach    = 24 * time.Hour
	clockTolerance = time.Minute // between the caller's clock and the service's
)

// replayFrom is a time within the last 24 hours; zero when absent or wrong.
func (f *form) replayFrom(path string, t delivery.Text, now time.Time) time.Time {
	from := f.Time(path, t)
	switch {
	case !t.Set:
	case from.Before(now.Add(-replayReach - clockTolerance)):
		f.Invalid(path, "must not be more than 24 hours ago"+delivery.ReadAs(t.Value, from))
	case from.After(now.Add(clockTolerance)):
		f.Invalid(path, "must not lie in the future"+delivery.ReadAs(t.Value, from))
	}
	return from
}

const maxWebhookURL = 2048

// webhookURLFault says what is wrong with the URL of a receiver by its text; empty
// for https and a public host, or with local also http and this machine. It keeps
// mistakes out; what a name resolves to is checked by the worker's dialer at every
// connection.
func webhookURLFault(text string, local bool) string {
	if len(text) > maxWebhookURL {
		return "must have at most 2048 characters"
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "" || strings.ContainsAny(text, " \t\r\n"):
		return "must be an absolute URL"
	case u.Scheme != "https" && (u.Scheme != "http" || !local):
		return "must begin with https://"
	case u.User != nil:
		return "must not contain credentials"
	case u.Fragment != "" || strings.Contains(text, "#"):
		return "must not have a fragment"
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "must have a port from 1 to 65535"
		}
	}
	if !publicHost(u.Hostname(), local) {
		return "must name a public host"
	}
	return ""
}

// publicHost refuses private addresses, and names that only mean something in a network.
func publicHost(host string, local bool) bool {
	name, address, err := webhook.ParseHost(host)
	switch {
	case err != nil:
		return false
	case address.IsValid():
		return webhook.PublicAddress(address) || local && address.Unmap().IsLoopback()
	}
	dot := strings.LastIndexByte(name, '.')
	switch name[dot+1:] {
	case "localhost", "local", "localdomain", "internal", "lan", "home", "corp", "intranet":
		return local
	}
	return dot > 0 || local
}
