package admin

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

const (
	receiversShown = 40 // on a page of the list
	// With as many attempts, and 800 characters of each answer, a page stays below 100 kB.
	attemptsListed = 20
)

type receiver struct {
	*ledger.WebhookEndpoint
	Name string // the account's
}

func (p *Pages) receiver(r *http.Request, a *delivery.Account) (*receiver, error) {
	endpoint, err := p.ledger.Webhooks.Endpoint(r.Context(), a.ID)
	switch {
	case err == nil:
		return &receiver{endpoint, a.Name}, nil
	case delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured:
		return nil, nil
	}
	return nil, err
}

func (p *Pages) receiverVersion(r *http.Request) (uint64, error) {
	id, err := accountID(r)
	if err != nil {
		return 0, err
	}
	endpoint, err := p.ledger.Webhooks.Endpoint(r.Context(), id)
	if err != nil {
		return 0, err
	}
	return uint64(endpoint.Version), nil
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

func (p *Pages) listReceivers(w http.ResponseWriter, r *http.Request, _ outcome) error {
	endpoints, err := p.lists.Endpoints.Get(r.Context())
	if err != nil {
		return err
	}
	names, err := p.lists.AccountNames(r.Context())
	if err != nil {
		return err
	}
	query := layout.FiltersOf(r, "state", "text", "page")
	states := []ledger.EndpointState{ledger.EndpointUnreachable, ledger.EndpointGone, ledger.EndpointFailing, ledger.EndpointHealthy}
	if state := query.Get("state"); state != "" && ledger.EndpointState(state).Severity() < 0 {
		query.Refuse("state", "is no state of a receiver")
	}
	list := &receiverList{Text: query.Get("text"), State: query.Get("state"), Without: len(names)}
	var found []receiver
	counts := map[ledger.EndpointState]int64{}
	for _, e := range endpoints {
		one := receiver{e, names[e.Account.String()]}
		if names.Known(e.Account.String()) == nil {
			list.Without--
		}
		list.Waiting += e.Backlog
		if !matches(list.Text, one.Name, e.Account.String(), e.URL) {
			continue
		}
		counts[e.State]++
		counts[""]++
		if list.State == "" || string(e.State) == list.State {
			found = append(found, one)
		}
	}
	tabs := []layout.Choice{{Name: "All " + layout.Count(counts[""])}}
	for _, state := range states {
		tabs = append(tabs, layout.Choice{Value: string(state), Name: string(state) + " " + layout.Count(counts[state])})
	}
	list.Tabs = query.Tabs("/webhooks", "state", tabs)
	slices.SortFunc(found, func(a, b receiver) int { return ledger.WorstFirst(a.WebhookEndpoint, b.WebhookEndpoint) })
	list.Receivers, list.Pager = layout.Cut(found, receiversShown, "/webhooks", query)
	list.Live = layout.Address("/webhooks/live", query.Values)
	return p.pages.Show(w, r, "webhooks", layout.View{Title: "Webhooks", Data: list, Refused: query.Err()})
}

type webhookPage struct {
	formPage
	Account  *delivery.Account
	Receiver *receiver // nil: none is registered
	URL      string    // its own
	// InFlight and PerSecond are stored limits; empty: the default.
	InFlight, PerSecond string
	Earlier             earlierSecrets
	Tabs                []layout.Link
	Attempts            []ledger.AttemptRecord
	Pager               layout.Pager
	Live                string // the address of the parts that refresh themselves
}

var outcomes = []layout.Choice{
	{Name: "all"}, {Value: "delivered", Name: "delivered"}, {Value: "retrying", Name: "retrying"},
	{Value: "undelivered", Name: "undelivered"}, {Value: "notSent", Name: "not sent"},
}

func (p *Pages) showWebhook(w http.ResponseWriter, r *http.Request, o outcome) error {
	account, err := p.account(r)
	if err != nil {
		return err
	}
	page := &webhookPage{formPage: newFormPage(r, o), Account: account}
	if page.Receiver, err = p.receiver(r, account); err != nil {
		return err
	}
	if e := page.Receiver; e != nil {
		page.URL, page.InFlight, page.PerSecond = e.URL, inputOf(e.Limits.InFlight), inputOf(e.Limits.PerSecond)
		var untils []time.Time
		for _, one := range e.Earlier {
			untils = append(untils, one.Until)
		}
		page.Earlier = earlierOf(untils)
	}
	query, path := layout.FiltersOf(r, "status", "page"), "/webhooks/"+account.ID.String()
	if state := query.Get("status"); !slices.ContainsFunc(outcomes, func(c layout.Choice) bool { return c.Value == state }) {
		query.Refuse("status", "must be delivered, retrying, undelivered, notSent or nothing")
	}
	records, err := p.ledger.Webhooks.Attempts(r.Context(), account.ID, query.Get("status"))
	if err != nil {
		return err
	}
	page.Attempts, page.Pager = layout.Cut(records, attemptsListed, path, query)
	page.Tabs, page.Live = query.Tabs(path, "status", outcomes), layout.Address(path+"/live", query.Values)
	return p.pages.Show(w, r, "webhook", layout.View{Title: "Webhook of " + account.Name, Data: page, Refused: cmp.Or(o.refused, query.Err())})
}
