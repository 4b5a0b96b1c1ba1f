package main

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
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

func viewWebhook(e *webhooks.WebhookEndpoint, issued string) webhookView {
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

func viewLastAttempt(a partitions.AttemptRecord) lastAttempt {
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
	fault := webhookURLFault(body.URL.Value, g.settings.localReceivers())
	if f.Require("url", body.URL.Set) && fault != "" {
		f.Invalid("url", fault)
	}

	if err := f.err(); err != nil {
		return err
	}
	if err := g.auditURL(x, "webhook registered", body.URL.Value); err != nil {
		return err
	}

	endpoint, issued, err := x.ledger.Webhooks.SetURL(g.work, x.account, body.URL.Value)
	if err != nil {
		return err
	}

	return x.okSecret(viewWebhook(endpoint, issued))
}

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
	if err := g.auditURL(x, "webhook deleted", ""); err != nil {
		return err
	}
	if err := x.ledger.Webhooks.Delete(g.work, x.account); err != nil {
		return err
	}
	return x.okJSON(struct{}{})
}

// testWebhook is POST /webhook/test: queues a webhook.test event.
func (g *gateway) testWebhook(x *requestContext) error {
	if x.route.access == adminOnly {
		if err := x.form(new(struct{})).err(); err != nil {
			return err
		}
		if err := g.audit(x, "webhook test queued", nil, nil); err != nil {
			return err
		}
	}
	return show(x, viewQueued)(x.ledger.Webhooks.QueueTest(g.work, x.account, x.now))
}

func viewQueued(eventID string) map[string]string { return map[string]string{"eventId": eventID} }

// replayOwn is POST /webhook/replay {since}: events are sent once more, under their own ids. While a
// replay of the account runs, another one is RATE_LIMITED, and counts. The request pays for the first
// thousand events; each further thousand counts as one more.
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

	replayed, err := x.ledger.Webhooks.ReplaySince(g.work, x.account, since, func() error { return g.count(x) })

	return show(x, viewReplayed)(replayed, err)
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
		f.Invalid(path, "must not be more than 24 hours ago"+delivery.ReadAs(from))
	case from.After(now.Add(clockTolerance)):
		f.Invalid(path, "must not lie in the future"+delivery.ReadAsLate(t.Value, from))
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

// The most that an operator may set for one receiver.
const (
	maxInFlightSetting  = 1024
	maxPerSecondSetting = 10000
)

type healthView struct {
	AccountID   string `json:"accountId"`
	AccountName string `json:"accountName,omitempty"` // in the list
	webhookView
	Attempts     attemptsView `json:"attempts"`
	Breaker      string       `json:"breaker"`                // closed, open, recovering
	BreakerSince string       `json:"breakerSince,omitempty"` // when it opened
	// Pace is how many events a second go out while it recovers.
	Pace float64 `json:"paceEventsPerSecond,omitempty"`
	partitions.EndpointLimits
}

// attemptsView are the attempts by how they ended, since the account exists.
type attemptsView struct {
	Delivered   int64 `json:"delivered"`
	Retried     int64 `json:"retried"`
	Undelivered int64 `json:"undelivered"`
	NotSent     int64 `json:"notSent"`
}

func viewHealth(e *webhooks.WebhookEndpoint) healthView {
	v := healthView{
		AccountID: e.Account.String(), webhookView: viewWebhook(e, ""), Breaker: "closed",
		Attempts:       attemptsView{Delivered: e.Delivered, Retried: e.Retried, Undelivered: e.Undelivered, NotSent: e.NotSent},
		EndpointLimits: e.Limits,
	}

	switch {
	case e.BreakerOpen:
		v.Breaker, v.BreakerSince = "open", formatTime(e.BreakerSince)
	case e.Pace > 0:
		v.Breaker, v.Pace = "recovering", e.Pace
	}

	return v
}

// successRate is the part of the recent attempts that succeeded, 0 to 1 with at
// most four decimals; nil when there were none. Rounding never says all or
// nothing when that is not so.
func successRate(ok, failed int64) *float64 {
	if ok+failed == 0 {
		return nil
	}

	tenThousandths := math.Round(1e4 * float64(ok) / float64(ok+failed))
	if ok > 0 && failed > 0 {
		tenThousandths = min(max(tenThousandths, 1), 9999)
	}
	return new(tenThousandths / 1e4)
}

func (g *gateway) readWebhookHealth(x *requestContext) error {
	return show(x, viewHealth)(x.ledger.Webhooks.Endpoint(g.work, x.account))
}

// changeWebhook is PATCH /accounts/{id}/webhook {maxInFlight?, maxPerSecond?}: null or
// 0 restores the default. The worker follows it with the next events that it takes.
func (g *gateway) changeWebhook(x *requestContext) error {
	var body struct {
		InFlight  strictjson.Raw `json:"maxInFlight"`
		PerSecond strictjson.Raw `json:"maxPerSecond"`
		healthMembers
	}

	f := x.form(&body)
	limits := partitions.EndpointLimits{
		InFlight:  f.setting("maxInFlight", body.InFlight, maxInFlightSetting),
		PerSecond: f.setting("maxPerSecond", body.PerSecond, maxPerSecondSetting),
	}

	if err := f.err(); err != nil {
		return err
	}

	endpoint, err := x.ledger.Webhooks.Endpoint(g.work, x.account)
	if err != nil {
		return err
	}

	after := endpoint.Limits
	take(limits.InFlight >= 0, limits.InFlight, &after.InFlight)
	take(limits.PerSecond >= 0, limits.PerSecond, &after.PerSecond)
	if err := g.audit(x, "webhook limits changed", endpoint.Limits, after); err != nil {
		return err
	}
	if err := x.ledger.Webhooks.SetLimits(g.work, x.account, limits); err != nil {
		return err
	}

	return show(x, viewHealth)(x.ledger.Webhooks.Endpoint(g.work, x.account))
}

// healthMembers are the members of an endpoint's answer that a PATCH takes and ignores, so that the
// answer can be sent back. Most change by themselves, so they are not compared.
type healthMembers struct {
	AccountID    strictjson.Raw `json:"accountId"`
	AccountName  strictjson.Raw `json:"accountName"`
	URL          strictjson.Raw `json:"url"`
	Status       strictjson.Raw `json:"status"`
	StatusSince  strictjson.Raw `json:"statusSince"`
	Waiting      strictjson.Raw `json:"waitingEvents"`
	NextAttempt  strictjson.Raw `json:"nextAttemptAt"`
	SuccessRate  strictjson.Raw `json:"successRate"`
	Attempts     strictjson.Raw `json:"attempts"`
	Breaker      strictjson.Raw `json:"breaker"`
	BreakerSince strictjson.Raw `json:"breakerSince"`
	Pace         strictjson.Raw `json:"paceEventsPerSecond"`
}

// setting is a whole number up to most, 0 for null, and -1, which the ledger takes for
// unchanged, when absent.
func (f *form) setting(path string, given strictjson.Raw, most int) int {
	switch {
	case !given.Set:
		return -1
	case given.Text == "":
		return 0
	}

	n, err := strconv.Atoi(given.Text)
	if err != nil || n < 0 || n > most {
		f.Invalid(path, fmt.Sprintf("must be a whole number from 0 to %d, or null", most))
	}

	return n
}

// listWebhooks is GET /webhooks?status=&cursor=&limit=, the worst first; the last page has an
// empty cursor.
func (g *gateway) listWebhooks(x *requestContext) error {
	state := partitions.EndpointState(x.query("status"))
	if state != "" && state.Severity() < 0 {
		return delivery.Invalid("status", "must be healthy, failing, unreachable or gone")
	}

	limit, err := x.pageLimit()
	if err != nil {
		return err
	}

	var gaps ledger.Gaps
	endpoints, next, err := x.ledger.Webhooks.Page(g.work, state, x.query("cursor"), limit)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	counts, err := x.ledger.Webhooks.Counts(g.work)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	owners := make([]delivery.AccountID, len(endpoints))
	for i, e := range endpoints {
		owners[i] = e.Account
	}

	names, err := x.ledger.Webhooks.OwnerNames(g.work, owners)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	views := viewAll(endpoints, viewHealth)
	for i := range views {
		views[i].AccountName = names[i]
	}

	return x.okParts(map[string]any{"webhooks": views, "cursor": next, "counts": counts}, gaps)
}

// rotateWebhookSecret is POST /accounts/{id}/webhook/rotate {revokeOld?}: the secret
// before signs, too, for 24 hours, or the earlier ones end now.
func (g *gateway) rotateWebhookSecret(x *requestContext) error {
	revokeOld, err := g.readRotation(x, "webhook secret rotated")
	if err != nil {
		return err
	}
	secret, err := x.ledger.Webhooks.RotateSecret(g.work, x.account, revokeOld)
	if err != nil {
		return err
	}
	return x.okSecret(map[string]string{"secret": secret})
}

type attemptView struct {
	partitions.AttemptRecord
	At     string `json:"at"`
	NextAt string `json:"nextAttemptAt,omitempty"`
}

func viewAttempt(a partitions.AttemptRecord) attemptView {
	return attemptView{AttemptRecord: a, At: formatTime(a.At), NextAt: formatTime(a.NextAt)}
}

// listDeliveries is GET /accounts/{id}/webhook/deliveries?status=, newest first.
// Probes that failed in a row are one line: of the last of them, "retrying".
func (g *gateway) listDeliveries(x *requestContext) error {
	state := x.query("status")
	if !slices.Contains([]string{"", "delivered", "retrying", "undelivered", "notSent"}, state) {
		return delivery.Invalid("status", "must be delivered, retrying, undelivered or notSent")
	}
	return list(x, "deliveries", viewAttempt)(x.ledger.Webhooks.Attempts(g.work, x.account, state))
}

// replayEvents is POST /accounts/{id}/webhook/replay: {eventIds}, or {since}, or
// {status, since?} for everything whose final outcome was that one, since 24 hours ago
// unless it says otherwise.
func (g *gateway) replayEvents(x *requestContext) error {
	var body struct {
		EventIDs []string      `json:"eventIds"`
		Since    delivery.Text `json:"since"`
		Status   delivery.Text `json:"status"`
	}

	f := x.form(&body)
	if err := f.err(); err != nil { // before a wrong type is taken for an absent field
		return err
	}

	hasIDs := body.EventIDs != nil
	hasSince := body.Since.Set
	status := body.Status
	switch {
	case hasIDs && (hasSince || status.Set):
		f.Invalid("eventIds", "must stand alone, without since and status")
	case hasIDs && (len(body.EventIDs) == 0 || len(body.EventIDs) > maxReplayed):
		f.Invalid("eventIds", fmt.Sprintf("must have 1 to %d ids", maxReplayed))
	case hasIDs:
		for i, id := range body.EventIDs {
			if id == "" {
				f.Invalid(fmt.Sprintf("eventIds[%d]", i), "must not be empty")
			}
		}
	case status.Set && status.Value != "undelivered" && status.Value != "notSent":
		f.Invalid("status", "must be undelivered or notSent")
	case !status.Set && !hasSince:
		f.Invalid("eventIds", "is required, or since or status instead of it")
	}

	from := f.replayFrom("since", body.Since, x.now)
	if err := f.err(); err != nil {
		return err
	}

	asked := map[string]any{"events": len(body.EventIDs), "status": status.Value, "since": formatTime(from)}
	if err := g.audit(x, "events replayed", nil, asked); err != nil {
		return err
	}

	webhooks := x.ledger.Webhooks
	var replayed int
	var err error
	switch {
	case hasIDs:
		replayed, err = webhooks.ReplayEvents(g.work, x.account, body.EventIDs)
	case !status.Set:
		replayed, err = webhooks.ReplaySince(g.work, x.account, from, nil)
	default:
		if !hasSince {
			from = x.now.Add(-replayReach)
		}
		replayed, err = webhooks.ReplayOutcomes(g.work, x.account, status.Value, from)
	}

	if err != nil {
		return err
	}

	return x.okJSON(viewReplayed(replayed))
}
