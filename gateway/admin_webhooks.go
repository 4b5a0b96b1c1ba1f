package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// The most that an operator may set for one receiver.
const (
	maxInFlightSetting  = 1024
	maxPerSecondSetting = 10000
)

// healthView is a receiver as operators see it.
type healthView struct {
	AccountID   string `json:"accountId"`
	AccountName string `json:"accountName,omitempty"` // in the list
	webhookView
	Attempts     attemptsView `json:"attempts"`
	Breaker      string       `json:"breaker"`                // closed, open, recovering
	BreakerSince string       `json:"breakerSince,omitempty"` // when it opened
	// Pace is how many events a second go out while it recovers.
	Pace float64 `json:"paceEventsPerSecond,omitempty"`
	// Settings; 0: the worker's default, or no pace.
	MaxInFlight  int `json:"maxInFlight"`
	MaxPerSecond int `json:"maxPerSecond"`
}

// attemptsView are the attempts by how they ended, since the account exists.
type attemptsView struct {
	Delivered   int64 `json:"delivered"`
	Retried     int64 `json:"retried"`
	Undelivered int64 `json:"undelivered"`
	NotSent     int64 `json:"notSent"`
}

func viewHealth(e *ledger.WebhookEndpoint) healthView {
	v := healthView{
		AccountID: e.Account.String(), webhookView: viewWebhook(e, ""), Breaker: "closed",
		Attempts:    attemptsView{Delivered: e.Delivered, Retried: e.Retried, Undelivered: e.Undelivered, NotSent: e.NotSent},
		MaxInFlight: e.Limits.InFlight, MaxPerSecond: e.Limits.PerSecond,
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
	rate := tenThousandths / 1e4
	return &rate
}

// readWebhookHealth is GET /accounts/{id}/webhook.
func (g *gateway) readWebhookHealth(x *requestContext) error {
	return show(x, viewHealth)(x.ledger.Webhooks.Endpoint(g.work, x.account))
}

// changeWebhook is PATCH /accounts/{id}/webhook {maxInFlight?, maxPerSecond?}: null or
// 0 restores the default. The worker follows it with the next events that it takes.
func (g *gateway) changeWebhook(x *requestContext) error {
	var body struct {
		InFlight  strictjson.Raw `json:"maxInFlight"`
		PerSecond strictjson.Raw `json:"maxPerSecond"`
	}
	f := x.form(&body)
	limits := ledger.EndpointLimits{
		InFlight:  f.setting("maxInFlight", body.InFlight, maxInFlightSetting),
		PerSecond: f.setting("maxPerSecond", body.PerSecond, maxPerSecondSetting),
	}
	if err := f.err(); err != nil {
		return err
	}
	if err := x.ledger.Webhooks.SetLimits(g.work, x.account, limits); err != nil {
		return err
	}
	endpoint, err := x.ledger.Webhooks.Endpoint(g.work, x.account)
	if err == nil {
		g.audit(x, "webhook limits changed", "maxInFlight", endpoint.Limits.InFlight, "maxPerSecond", endpoint.Limits.PerSecond)
	}
	return show(x, viewHealth)(endpoint, err)
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

// listWebhooks is GET /webhooks?status=, the worst first.
func (g *gateway) listWebhooks(x *requestContext) error {
	state := ledger.EndpointState(x.query("status"))
	if state != "" && state.Severity() < 0 {
		return invalid("status", "must be healthy, failing, unreachable or gone")
	}
	endpoints, err := x.ledger.Webhooks.Endpoints(g.work)
	if err != nil {
		return err
	}
	endpoints = slices.DeleteFunc(endpoints, func(e *ledger.WebhookEndpoint) bool { return state != "" && e.State != state })
	slices.SortFunc(endpoints, ledger.WorstFirst)
	views := make([]healthView, len(endpoints))
	for i, e := range endpoints {
		account, err := x.ledger.Accounts.Get(g.work, e.Account)
		if err != nil {
			return err
		}
		views[i] = viewHealth(e)
		views[i].AccountName = account.Name
	}
	return x.okJSON(map[string]any{"webhooks": views})
}

// rotateWebhookSecret is POST /accounts/{id}/webhook/rotate {revokeOld?}: the secret
// before signs, too, for 24 hours, or the earlier ones end now.
func (g *gateway) rotateWebhookSecret(x *requestContext) error {
	revokeOld, err := readRevokeOld(x)
	if err != nil {
		return err
	}
	secret, err := x.ledger.Webhooks.RotateSecret(g.work, x.account, revokeOld)
	if err != nil {
		return err
	}
	g.audit(x, "webhook secret rotated", "revokeOld", revokeOld)
	return x.okSecret(map[string]string{"secret": secret})
}

// attemptView is a line of the attempt log with its times formatted.
type attemptView struct {
	ledger.AttemptRecord
	At     string `json:"at"`
	NextAt string `json:"nextAttemptAt,omitempty"`
}

func viewAttempt(a ledger.AttemptRecord) attemptView {
	return attemptView{AttemptRecord: a, At: formatTime(a.At), NextAt: formatTime(a.NextAt)}
}

var deliveryStates = []string{"", "delivered", "retrying", "undelivered", "notSent"}

// listDeliveries is GET /accounts/{id}/webhook/deliveries?status=, newest first.
// Probes that failed in a row are one line: of the last of them, "retrying".
func (g *gateway) listDeliveries(x *requestContext) error {
	state := x.query("status")
	if !slices.Contains(deliveryStates, state) {
		return invalid("status", "must be delivered, retrying, undelivered or notSent")
	}
	return list(x, "deliveries", viewAttempt)(x.ledger.Webhooks.Attempts(g.work, x.account, state))
}

var replayStates = []string{"undelivered", "notSent"}

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
	named, since := body.EventIDs != nil, body.Since.Set
	switch state := body.Status; {
	case named && (since || state.Set):
		f.Invalid("eventIds", "must stand alone, without since and status")
	case named:
		f.checkEventIDs("eventIds", body.EventIDs)
	case state.Set && !slices.Contains(replayStates, state.Value):
		f.Invalid("status", "must be undelivered or notSent")
	case !state.Set && !since:
		f.Invalid("eventIds", "is required, or since or status instead of it")
	}
	from := f.replayFrom("since", body.Since, x.now)
	if err := f.err(); err != nil {
		return err
	}
	var replayed int
	var err error
	switch webhooks := x.ledger.Webhooks; {
	case named:
		replayed, err = webhooks.ReplayEvents(g.work, x.account, body.EventIDs)
	case !body.Status.Set:
		replayed, err = webhooks.ReplaySince(g.work, x.account, from)
	case !since:
		replayed, err = webhooks.ReplayOutcomes(g.work, x.account, body.Status.Value, x.now.Add(-replayReach))
	default:
		replayed, err = webhooks.ReplayOutcomes(g.work, x.account, body.Status.Value, from)
	}
	if err != nil {
		return err
	}
	g.audit(x, "events replayed", "events", replayed)
	return x.okJSON(viewReplayed(replayed))
}

func (f *form) checkEventIDs(path string, ids []string) {
	if len(ids) == 0 || len(ids) > maxReplayed {
		f.Invalid(path, fmt.Sprintf("must have 1 to %d ids", maxReplayed))
		return
	}
	for i, id := range ids {
		if id == "" {
			f.Invalid(fmt.Sprintf("%s[%d]", path, i), "must not be empty")
		}
	}
}
