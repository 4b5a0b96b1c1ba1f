package admin

import (
	"net/http"
	"net/url"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// receiversShown is how many receivers a page of the list has.
const receiversShown = 40

// receiver is an account's endpoint as the lists show it.
type receiver struct {
	*ledger.WebhookEndpoint
	Name string // the account's
}

var receiverStates = []ledger.EndpointState{
	ledger.EndpointUnreachable, ledger.EndpointGone, ledger.EndpointFailing, ledger.EndpointHealthy,
}

// Tone is the colour of the state.
func (r receiver) Tone() string { return receiverTone(r.State) }

func receiverTone(state ledger.EndpointState) string {
	switch state.Severity() {
	case 0:
		return "good"
	case 1:
		return "warn"
	}
	return "bad"
}

// longestURL is how many characters of a URL a list shows.
const longestURL = 100

// ShortURL is the beginning of the URL; the receiver's page has all of it.
func (r receiver) ShortURL() string {
	shown := 0
	for i := range r.URL {
		if shown++; shown > longestURL {
			return r.URL[:i] + "…"
		}
	}
	return r.URL
}

// Attempted tells whether there were attempts lately; SuccessRate is how many of
// them succeeded, 0 to 1. They are those in this hour of the clock and the one
// before.
func (r receiver) Attempted() bool { return r.RecentAttempts() > 0 }

// RecentAttempts are all of them.
func (r receiver) RecentAttempts() int64 { return r.RecentOK + r.RecentFailed }

// SuccessRate is explained at Attempted.
func (r receiver) SuccessRate() float64 {
	return float64(r.RecentOK) / float64(max(r.RecentAttempts(), 1))
}

// receiverList is the page /webhooks.
type receiverList struct {
	Text      string
	State     string
	Tabs      []tab
	Live      string // the address of the part that refreshes itself
	Receivers []receiver
	Pager     pager
	Without   int // accounts without an endpoint
	Waiting   int64
}

// listWebhooks is GET /webhooks?state=&text=&page=.
func (p *Pages) listWebhooks(w http.ResponseWriter, r *http.Request) error {
	list, refused, err := p.readReceivers(r)
	if err != nil {
		return err
	}
	return p.pages.Show(w, r, "webhooks", layout.View{Title: "Webhooks", Data: list, Refused: refused})
}

// listWebhooksLive is the part of it that refreshes itself.
func (p *Pages) listWebhooksLive(w http.ResponseWriter, r *http.Request) error {
	list, refused, err := p.readReceivers(r)
	if err == nil {
		err = refused
	}
	if err != nil {
		return err
	}
	return p.pages.Part(w, r, "webhooks-live", list)
}

// readReceivers lists those that the request asks for; refused says why it cannot be
// understood.
func (p *Pages) readReceivers(r *http.Request) (list *receiverList, refused, err error) {
	endpoints, err := p.receivers.Get(r.Context())
	if err != nil {
		return nil, nil, err
	}
	names, err := p.accountNames(r)
	if err != nil {
		return nil, nil, err
	}
	query := filtersOf(r, "state", "text", "page")
	if state := query.Get("state"); state != "" && ledger.EndpointState(state).Severity() < 0 {
		query.refuse("state", "is no state of a receiver")
	}
	list = &receiverList{Text: query.Get("text"), State: query.Get("state")}
	found := list.find(endpoints, names)
	slices.SortFunc(found, func(a, b receiver) int { return ledger.WorstFirst(a.WebhookEndpoint, b.WebhookEndpoint) })
	list.Receivers, list.Pager = cut(found, receiversShown, "/webhooks", query)
	list.Live = address("/webhooks/live", query.Values)
	return list, query.err(), nil
}

// find picks the receivers that are asked for, and counts all.
func (list *receiverList) find(endpoints []*ledger.WebhookEndpoint, names map[delivery.AccountID]string) []receiver {
	found := make([]receiver, 0, len(endpoints))
	counts := map[string]int{}
	wanted := search(list.Text)
	for _, e := range endpoints {
		one := receiver{e, names[e.Account]}
		delete(names, e.Account)
		list.Waiting += e.Backlog
		if !matches(wanted, one.Name, e.Account.String(), e.URL) {
			continue
		}
		counts[string(e.State)]++
		counts[""]++
		if list.State == "" || string(e.State) == list.State {
			found = append(found, one)
		}
	}
	list.Without = len(names)
	list.Tabs = receiverTabs(list, counts)
	return found
}

func receiverTabs(list *receiverList, counts map[string]int) []tab {
	tabs := []tab{{Name: "All " + layout.Count(int64(counts[""])), Address: address("/webhooks", url.Values{"text": {list.Text}}), Current: list.State == ""}}
	for _, state := range receiverStates {
		tabs = append(tabs, tab{
			Name:    string(state) + " " + layout.Count(int64(counts[string(state)])),
			Address: address("/webhooks", url.Values{"text": {list.Text}, "state": {string(state)}}),
			Current: list.State == string(state),
		})
	}
	return tabs
}
