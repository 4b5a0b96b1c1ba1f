package operate

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/frame"
)

// receiversShown is how many receivers a page of the list has.
const receiversShown = 40

// receiver is an account's endpoint as the lists show it.
type receiver struct {
	*ledger.WebhookEndpoint
	Name string // the account's
}

// severity ranks the states of receivers.
var severity = map[ledger.EndpointState]int{
	ledger.EndpointUnreachable: 3, ledger.EndpointGone: 2, ledger.EndpointFailing: 1, ledger.EndpointHealthy: 0,
}

var receiverStates = []ledger.EndpointState{
	ledger.EndpointUnreachable, ledger.EndpointGone, ledger.EndpointFailing, ledger.EndpointHealthy,
}

// worstFirst is the order of the admin API's list: by state, then an open
// breaker, then how much waits, then how long the state has lasted; the id makes
// the order the same every time.
func worstFirst(a, b receiver) int {
	open := func(r receiver) int {
		if r.BreakerOpen {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(severity[b.State], severity[a.State]),
		cmp.Compare(open(b), open(a)),
		cmp.Compare(b.Backlog, a.Backlog),
		a.StateSince.Compare(b.StateSince),
		slices.Compare(a.Account[:], b.Account[:]),
	)
}

// Tone is the colour of the state.
func (r receiver) Tone() string { return receiverTone(r.State) }

func receiverTone(state ledger.EndpointState) string {
	switch severity[state] {
	case 0:
		return "good"
	case 1:
		return "warn"
	}
	return "bad"
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
	list, err := p.receivers(r)
	if err != nil {
		return err
	}
	return p.pages.Show(w, r, "webhooks", frame.View{Title: "Webhooks", Data: list})
}

// listWebhooksLive is the part of it that refreshes itself.
func (p *Pages) listWebhooksLive(w http.ResponseWriter, r *http.Request) error {
	list, err := p.receivers(r)
	if err != nil {
		return err
	}
	return p.pages.Part(w, r, "webhooks-live", list)
}

func (p *Pages) receivers(r *http.Request) (*receiverList, error) {
	endpoints, err := p.ledger.WebhookEndpoints(r.Context())
	if err != nil {
		return nil, err
	}
	accounts, err := p.ledger.Accounts(r.Context())
	if err != nil {
		return nil, err
	}
	names := make(map[delivery.AccountID]string, len(accounts))
	for _, a := range accounts {
		names[a.ID] = a.Name
	}
	query := only(r.URL.Query(), "state", "text", "page")
	list := &receiverList{Text: query.Get("text"), State: query.Get("state"), Live: address("/webhooks/live", query)}
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
	slices.SortFunc(found, worstFirst)
	list.Receivers, list.Pager = cut(found, receiversShown, "/webhooks", query)
	list.Tabs = receiverTabs(list, counts)
	return list, nil
}

func receiverTabs(list *receiverList, counts map[string]int) []tab {
	tabs := []tab{{Name: "All " + frame.Count(int64(counts[""])), Address: address("/webhooks", url.Values{"text": {list.Text}}), Current: list.State == ""}}
	for _, state := range receiverStates {
		tabs = append(tabs, tab{
			Name:    string(state) + " " + frame.Count(int64(counts[string(state)])),
			Address: address("/webhooks", url.Values{"text": {list.Text}, "state": {string(state)}}),
			Current: list.State == string(state),
		})
	}
	return tabs
}
