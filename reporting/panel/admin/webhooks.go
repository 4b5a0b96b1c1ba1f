package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

const (
	receiversShown = 40  // on a page of the list
	longestURL     = 100 // characters in the list
	// With both at their most a page stays below 100 kB.
	attemptsListed = 20
	answerShown    = 800
)

type receiver struct {
	*ledger.WebhookEndpoint
	Name string // the account's
}

var receiverStates = []ledger.EndpointState{
	ledger.EndpointUnreachable, ledger.EndpointGone, ledger.EndpointFailing, ledger.EndpointHealthy,
}

// receiver is the account's; nil: none is registered.
func (p *Pages) receiver(ctx context.Context, a *delivery.Account) (*receiver, error) {
	endpoint, err := p.ledger.Webhooks.Endpoint(ctx, a.ID)
	switch {
	case err == nil:
		return &receiver{endpoint, a.Name}, nil
	case delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured:
		return nil, nil
	}
	return nil, err
}

func (r receiver) ShortURL() string {
	if short := beginning(r.URL, longestURL); short != r.URL {
		return short + "…"
	}
	return r.URL
}

// RecentAttempts are those in this hour of the clock and the one before.
func (r receiver) RecentAttempts() int64 { return r.RecentOK + r.RecentFailed }

// SuccessRate is how many of the recent attempts succeeded, 0 to 1.
func (r receiver) SuccessRate() float64 {
	return float64(r.RecentOK) / float64(max(r.RecentAttempts(), 1))
}

type receiverList struct {
	Text, State string
	Tabs        []layout.Link
	Live        string // the address of the part that refreshes itself
	Receivers   []receiver
	Pager       layout.Pager
	Without     int // accounts without an endpoint
	Waiting     int64
}

func (p *Pages) listReceivers(w http.ResponseWriter, r *http.Request) error {
	list, refused, err := p.readReceivers(r)
	if err != nil {
		return err
	}
	if layout.IsLive(r) && refused == nil {
		return p.pages.Part(w, r, "webhooks-live", list)
	}
	if layout.IsLive(r) {
		return refused
	}
	return p.pages.Show(w, r, "webhooks", layout.View{Title: "Webhooks", Data: list, Refused: refused})
}

// readReceivers lists those that are asked for; refused: the filters are wrong.
func (p *Pages) readReceivers(r *http.Request) (list *receiverList, refused, err error) {
	endpoints, err := p.receivers.Get(r.Context())
	if err != nil {
		return nil, nil, err
	}
	names, err := p.accountNames(r.Context())
	if err != nil {
		return nil, nil, err
	}
	query := layout.FiltersOf(r, "state", "text", "page")
	if state := query.Get("state"); state != "" && ledger.EndpointState(state).Severity() < 0 {
		query.Refuse("state", "is no state of a receiver")
	}
	list = &receiverList{Text: query.Get("text"), State: query.Get("state")}
	found := list.find(endpoints, names)
	slices.SortFunc(found, func(a, b receiver) int { return ledger.WorstFirst(a.WebhookEndpoint, b.WebhookEndpoint) })
	list.Receivers, list.Pager = layout.Cut(found, receiversShown, "/webhooks", query)
	list.Live = layout.Address("/webhooks/live", query.Values)
	return list, query.Err(), nil
}

// find picks the receivers that are asked for, and counts all.
func (list *receiverList) find(endpoints []*ledger.WebhookEndpoint, names map[delivery.AccountID]string) []receiver {
	found := make([]receiver, 0, len(endpoints))
	counts := map[ledger.EndpointState]int{}
	all, wanted := 0, search(list.Text)
	for _, e := range endpoints {
		one := receiver{e, names[e.Account]}
		delete(names, e.Account)
		list.Waiting += e.Backlog
		if !matches(wanted, one.Name, e.Account.String(), e.URL) {
			continue
		}
		counts[e.State]++
		all++
		if list.State == "" || string(e.State) == list.State {
			found = append(found, one)
		}
	}
	list.Without = len(names)
	text := url.Values{"text": {list.Text}}
	list.Tabs = []layout.Link{{Name: "All " + layout.Count(int64(all)), Address: layout.Address("/webhooks", text), Current: list.State == ""}}
	for _, state := range receiverStates {
		list.Tabs = append(list.Tabs, layout.Link{Name: string(state) + " " + layout.Count(int64(counts[state])),
			Address: layout.Address("/webhooks", layout.With(text, "state", string(state))), Current: list.State == string(state)})
	}
	return found
}

type webhookPage struct {
	formPage
	Account  *delivery.Account
	Receiver *receiver // nil: none is registered
	Log      attemptLog
	Live     string // the address of the parts that refresh themselves
}

type attemptLog struct {
	Tabs     []layout.Link
	Attempts []attempt
	Pager    layout.Pager
}

func (page *webhookPage) Earlier() earlierSecrets {
	var untils []time.Time
	for _, one := range page.Receiver.Earlier {
		untils = append(untils, one.Until)
	}
	return earlierOf(untils)
}

func (page *webhookPage) URL() string {
	if page.Receiver == nil {
		return ""
	}
	return page.Receiver.URL
}

// InFlight and PerSecond are stored limits; empty: the default.
func (page *webhookPage) InFlight() string  { return inputOf(page.Receiver.Limits.InFlight) }
func (page *webhookPage) PerSecond() string { return inputOf(page.Receiver.Limits.PerSecond) }

func (p *Pages) showWebhook(w http.ResponseWriter, r *http.Request, o outcome) error {
	page, misread, err := p.readWebhook(r, o)
	if err != nil {
		return err
	}
	if layout.IsLive(r) && misread == nil {
		return p.pages.Part(w, r, "webhook-live", page)
	}
	if layout.IsLive(r) {
		return misread
	}
	return p.pages.Show(w, r, "webhook", layout.View{Title: "Webhook of " + page.Account.Name, Data: page, Refused: cmp.Or(o.refused, misread)})
}

// readWebhook is what the page shows; misread: the log's filters are wrong.
func (p *Pages) readWebhook(r *http.Request, o outcome) (page *webhookPage, misread, err error) {
	id, err := accountID(r)
	if err != nil {
		return nil, nil, err
	}
	page = &webhookPage{formPage: newFormPage(r, o)}
	if page.Account, err = p.ledger.Accounts.Get(r.Context(), id); err != nil {
		return nil, nil, err
	}
	if page.Receiver, err = p.receiver(r.Context(), page.Account); err != nil {
		return nil, nil, err
	}
	query, path := layout.FiltersOf(r, "status", "page"), "/webhooks/"+id.String()
	state := query.Get("status")
	if state != "" && !slices.Contains(outcomes, state) {
		query.Refuse("status", "must be "+strings.Join(outcomes, ", ")+" or nothing")
		state = ""
	}
	records, err := p.ledger.Webhooks.Attempts(r.Context(), id, state)
	if err != nil {
		return nil, nil, err
	}
	records, page.Log.Pager = layout.Cut(records, attemptsListed, path, query)
	for _, a := range records {
		page.Log.Attempts = append(page.Log.Attempts, attempt{a})
	}
	page.Log.Tabs = []layout.Link{{Name: "all", Address: path, Current: state == ""}}
	for _, o := range outcomes {
		page.Log.Tabs = append(page.Log.Tabs, layout.Link{Name: outcomeName(o), Address: path + "?status=" + o, Current: o == state})
	}
	page.Live = layout.Address(path+"/live", query.Values)
	return page, query.Err(), nil
}

type attempt struct{ ledger.AttemptRecord }

func (a attempt) Key() string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z') {
			return r
		}
		return '-'
	}, a.EventID) + a.At.UTC().Format("-150405000000")
}

var outcomes = []string{"delivered", "retrying", "undelivered", "notSent"}

func outcomeName(state string) string {
	if state == "notSent" {
		return "not sent"
	}
	return state
}

func (a attempt) Outcome() string { return outcomeName(a.State) }

func (a attempt) Beginning() string { return beginning(a.Answer, answerShown) }

func (a attempt) IsCut() bool { return len(a.Beginning()) < len(a.Answer) }

// Problem is what went wrong, where the HTTP status does not say it already.
func (a attempt) Problem() string {
	if a.HTTPStatus != 0 && a.Error == fmt.Sprintf("status: %d", a.HTTPStatus) {
		return ""
	}
	return a.Error
}

// ShortID is the end of the event's id: versions of one order differ there.
func (a attempt) ShortID() string { return "…" + a.EventID[max(0, len(a.EventID)-8):] }

// The first URL issues a secret.
func registerWebhook(r *http.Request) action {
	return action{method: http.MethodPut, body: map[string]any{"url": r.PostForm.Get("url")}, done: "webhook-moved"}
}

func testWebhook(*http.Request) action {
	return action{method: http.MethodPost, path: "/test", done: "webhook-tested"}
}

// Emptied limits are the default again.
func limitWebhook(r *http.Request) action {
	return action{body: changes(r.PostForm, numberOrNull, "maxInFlight", "maxPerSecond"), done: "webhook-limited"}
}

// replayEvents replays one event, all of a status, or all since a time, whichever the
// pressed button stands for.
func replayEvents(r *http.Request) action {
	body := map[string]any{}
	switch form := r.PostForm; {
	case form.Has("eventIds"):
		body["eventIds"] = form["eventIds"]
	case form.Has("status"):
		body["status"] = form.Get("status")
	default:
		body["since"] = form.Get("since")
	}
	return action{method: http.MethodPost, path: "/replay", body: body, done: "replayed", nobody: "replayed-none"}
}

// newWebhookSecret is for the version of the receiver that the page showed.
func (p *Pages) newWebhookSecret(revoke bool) func(*http.Request) action {
	return func(r *http.Request) action {
		a := rotation("/rotate", revoke)
		id, err := accountID(r)
		if err == nil {
			var endpoint *ledger.WebhookEndpoint
			if endpoint, err = p.ledger.Webhooks.Endpoint(r.Context(), id); err == nil {
				err = sameVersion(r, uint64(endpoint.Version))
			}
		}
		a.err = err
		return a
	}
}
