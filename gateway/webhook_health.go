package main

import (
	"math"
	"slices"
	"strconv"

	"vendorapi/internal/ledger"
)

// The most that an operator may set for one receiver (requests in flight, and
// requests per second).
const (
	maxInFlightSetting  = 1024
	maxPerSecondSetting = 10000
)

// healthView is a receiver as operators see it: what its owner sees, and what
// the service does about it.
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

// readAccountWebhook is GET /accounts/{id}/webhook.
func (g *gateway) readAccountWebhook(x *exchange) error {
	l, id, err := g.webhookOf(x)
	if err != nil {
		return err
	}
	endpoint, err := l.Webhooks.Endpoint(g.work, id)
	if err != nil {
		return err
	}
	return x.okJSON(viewHealth(endpoint))
}

// changeAccountWebhook is PATCH /accounts/{id}/webhook {maxInFlight?,
// maxPerSecond?}: null or 0 is the default again, what is absent stays. The
// worker heeds it with the next events that it takes.
func (g *gateway) changeAccountWebhook(x *exchange) error {
	f := newForm(x.text())
	inFlight := f.setting("maxInFlight", maxInFlightSetting)
	perSecond := f.setting("maxPerSecond", maxPerSecondSetting)
	if err := f.read(); err != nil {
		return err
	}
	if err := f.err(); err != nil {
		return err
	}
	l, id, err := g.webhookOf(x)
	if err != nil {
		return err
	}
	limits := ledger.EndpointLimits{InFlight: inFlight.orKeep(), PerSecond: perSecond.orKeep()}
	if err := l.Webhooks.SetLimits(g.work, id, limits); err != nil {
		return err
	}
	endpoint, err := l.Webhooks.Endpoint(g.work, id)
	if err != nil {
		return err
	}
	g.audit(x, "webhook limits changed", "account", id.String(),
		"maxInFlight", endpoint.Limits.InFlight, "maxPerSecond", endpoint.Limits.PerSecond)
	return x.okJSON(viewHealth(endpoint))
}

// setting is a number with a default, which null and 0 both stand for.
type setting struct {
	given bool
	value int
}

// orKeep is the value as the ledger takes it: negative for one that stays.
func (s *setting) orKeep() int {
	if !s.given {
		return -1
	}
	return s.value
}

// setting names a field for a whole number up to most. Unlike elsewhere null is
// not absent: it asks for the default.
func (f *form) setting(path string, most int) *setting {
	s := new(setting)
	f.fields[path] = func(path string) {
		literal := f.reader.Raw()
		if s.given = true; literal == "" {
			return
		}
		value, err := strconv.Atoi(literal)
		if err != nil || value < 0 || value > most {
			f.reader.Mistyped(path, "must be a whole number from 0 to "+strconv.Itoa(most)+", or null")
			return
		}
		s.value = value
	}
	return s
}

// listWebhooks is GET /webhooks?status=: every account's receiver, the worst
// first.
func (g *gateway) listWebhooks(x *exchange) error {
	state := ledger.EndpointState(x.query("status"))
	if state != "" && state.Severity() < 0 {
		return invalid("status", "must be healthy, failing, unreachable or gone")
	}
	l, err := g.ledger()
	if err != nil {
		return err
	}
	endpoints, err := l.Webhooks.Endpoints(g.work)
	if err != nil {
		return err
	}
	endpoints = slices.DeleteFunc(endpoints, func(e *ledger.WebhookEndpoint) bool { return state != "" && e.State != state })
	slices.SortFunc(endpoints, ledger.WorstFirst)
	views := make([]healthView, len(endpoints))
	for i, e := range endpoints {
		account, err := l.Accounts.Get(g.work, e.Account)
		if err != nil {
			return err
		}
		views[i] = viewHealth(e)
		views[i].AccountName = account.Name
	}
	return x.okJSON(map[string]any{"webhooks": views})
}
