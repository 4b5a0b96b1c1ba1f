package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/reporting/layout"
)

const (
	accountsShown = 40 // on a page of the list
	storesOnPage  = 20 // on the pages of accounts and fleets
)

type accountList struct {
	formPage
	Text, State string
	Tabs        []layout.Link
	Accounts    []*delivery.Account
	Uses        [][]limits.EndpointUse // of each of them
	Pages       layout.NextPages
	Counts      accounts.AccountCounts // of all accounts, whatever is searched for
}

var accountStates = []accounts.AccountState{"", accounts.AccountInExcess, accounts.AccountSuspended}

func (p *Pages) listAccounts(w http.ResponseWriter, r *http.Request, o outcome) error {
	query := layout.FiltersOf(r, "text", "state", "after")
	filter := accounts.AccountFilter{Text: strings.TrimSpace(query.Get("text")), State: accounts.AccountState(query.Get("state"))}
	if !slices.Contains(accountStates, filter.State) {
		query.Refuse("state", "is no state of an account")
		filter.State = ""
	}

	list := &accountList{formPage: newFormPage(r, o), Text: query.Get("text"), State: string(filter.State)}
	var gaps ledger.Gaps
	found, next, err := layout.Following(query, func(cursor string) ([]*delivery.Account, string, error) {
		return p.Ledger.Accounts.Page(r.Context(), filter, cursor, accountsShown)
	})
	if err := gaps.Allow(err); err != nil {
		return err
	}

	list.Counts, err = p.Ledger.Accounts.Counts(r.Context())
	if err := gaps.Allow(err); err != nil {
		return err
	}

	list.Accounts, list.Pages = found, layout.NewNextPages("/accounts", query, next)
	list.Tabs = query.Tabs("/accounts", "state", []layout.Choice{
		{Name: "All " + layout.Count(list.Counts.All)},
		{Value: string(accounts.AccountInExcess), Name: "in sustained excess " + layout.Count(list.Counts.Excess)},
		{Value: string(accounts.AccountSuspended), Name: "suspended " + layout.Count(list.Counts.Suspended)},
	})

	ids := make([]delivery.AccountID, len(list.Accounts))
	for i, a := range list.Accounts {
		ids[i] = a.ID
	}

	list.Uses, err = p.Ledger.Limits.Usage(r.Context(), ids)
	if err != nil {
		return err
	}

	return p.Show(w, r, "accounts", layout.View{Title: "Accounts", Data: list, Refused: cmp.Or(o.refused, query.Err()),
		Incomplete: lacking("accounts", gaps)})
}

// lacking is what a page lacks some of; empty: it is whole.
func lacking(what string, gaps ledger.Gaps) string {
	if gaps.Found {
		return what
	}
	return ""
}

type accountPage struct {
	formPage
	Account *delivery.Account
	Limits  []limitRow
	// DefaultLimits are those of a new account.
	DefaultLimits delivery.Limits
	Earlier       earlierSecrets
	Stores        []storeRow // the first ones
	MoreStores    bool
	Receiver      *receiver // nil: none is registered
	Muted         string    // as one of mutedChoices
	MutedChoices  []layout.Choice
}

// mutedChoices are what can be turned off of the events between the statuses.
var mutedChoices = []layout.Choice{
	{Value: "", Name: "all are sent"},
	{Value: string(delivery.CourierChanged), Name: "delivery.courier_changed is off"},
	{Value: string(delivery.ETAChanged), Name: "delivery.eta_changed is off"},
	{Value: string(delivery.CourierChanged) + " " + string(delivery.ETAChanged), Name: "both are off"},
}

// mutedChoice is the value of the choice with these events.
func mutedChoice(events []delivery.EventType) string {
	names := make([]string, len(events))
	for i, event := range events {
		names[i] = string(event)
	}
	return strings.Join(names, " ")
}

func (p *Pages) showAccount(w http.ResponseWriter, r *http.Request, o outcome) error {
	page := &accountPage{formPage: newFormPage(r, o), DefaultLimits: delivery.DefaultLimits()}
	var err error
	page.Account, page.Limits, err = p.accountLimits(r)
	if err != nil {
		return err
	}

	id := page.Account.ID
	page.Muted, page.MutedChoices = mutedChoice(page.Account.MutedEvents), mutedChoices
	for _, until := range page.Account.EarlierSecrets {
		page.Earlier.add(until, p.Ledger.Now())
	}

	stores, more, err := p.Ledger.Stores.Find(r.Context(), accounts.StoreFilter{Account: id}, storesOnPage)
	if err != nil {
		return err
	}

	page.Stores, page.MoreStores = storeRows(stores, layout.Names{id.String(): page.Account.Name}), more
	page.Receiver, err = p.receiver(r, page.Account)
	if err != nil {
		return err
	}

	return p.Show(w, r, "account", layout.View{Title: page.Account.Name, Data: page, Refused: o.refused})
}

func (p *Pages) showUse(w http.ResponseWriter, r *http.Request, _ outcome) error {
	_, limits, err := p.accountLimits(r)
	if err != nil {
		return err
	}
	return p.Part(w, r, "use", limits)
}

func (p *Pages) account(r *http.Request) (*delivery.Account, error) {
	id, err := accountID(r)
	if err != nil {
		return nil, err
	}
	return p.Ledger.Accounts.Get(r.Context(), id)
}

func (p *Pages) accountVersion(r *http.Request) (version uint64, err error) {
	account, err := p.account(r)
	if err == nil {
		version = account.Revision
	}
	return version, err
}

func (p *Pages) accountLimits(r *http.Request) (*delivery.Account, []limitRow, error) {
	account, err := p.account(r)
	if err != nil {
		return nil, nil, err
	}
	uses, err := p.Ledger.Limits.Usage(r.Context(), []delivery.AccountID{account.ID})
	if err != nil {
		return nil, nil, err
	}
	return account, limitRows(account.Limits, uses[0], r.PostForm), nil
}

// earlierSecrets are how many replaced secrets still work, the last one until Until.
type earlierSecrets struct {
	Count int
	Until time.Time
}

func (e *earlierSecrets) add(until, now time.Time) {
	if !now.Before(until) {
		return
	}
	e.Count++
	if until.After(e.Until) {
		e.Until = until
	}
}

// limitRow is a window of the limits: limits.orders.sustained.
type limitRow struct {
	Path, ID string // the API's name, and an element's
	Endpoint limits.Endpoint
	Kind     string // sustained or burst
	// Count and Seconds are the inputs' values; empty: there is no such window.
	Count, Seconds string
	Shown          string          // as the form notes it, to find what was changed
	Default        delivery.Window // of a new account; a zero Count: none
	Use            limits.WindowUse
}

// limitRows are both windows of each endpoint, changed ones as they were typed. uses is in
// the ledger's order and may be nil.
func limitRows(stored delivery.Limits, uses []limits.EndpointUse, form url.Values) (rows []limitRow) {
	ofEndpoints := func(l delivery.Limits) []delivery.EndpointLimit {
		return []delivery.EndpointLimit{l.Orders, l.OrderStatus, l.Cancel, l.Stores, l.Token}
	}
	defaults := ofEndpoints(delivery.DefaultLimits())
	uses = slices.Concat(uses, make([]limits.EndpointUse, len(defaults)))
	for i, limit := range ofEndpoints(stored) {
		rows = append(rows, newLimitRow(i, "sustained", limit.Sustained, defaults[i].Sustained, uses[i].Sustained, form),
			newLimitRow(i, "burst", limit.Burst, defaults[i].Burst, uses[i].Burst, form))
	}

	return rows
}

func newLimitRow(endpoint int, kind string, stored, preset delivery.Window, use limits.WindowUse, form url.Values) limitRow {
	row := limitRow{Endpoint: limits.Endpoint(endpoint), Kind: kind, Default: preset, Use: use,
		Count: inputOf(stored.Count), Seconds: inputOf(stored.Seconds)}
	row.Path = "limits." + row.Endpoint.String() + "." + kind
	row.ID, row.Shown = strings.ReplaceAll(row.Path, ".", "-"), windowNote(row.Count, row.Seconds)
	if windowChanged(form, row.Path) {
		row.Count, row.Seconds, row.Shown = form.Get(row.Path+".count"), form.Get(row.Path+".seconds"), form.Get(row.Path+shownSuffix)
	}
	return row
}

func windowNote(count, seconds string) string {
	if count == "" && seconds == "" {
		return ""
	}
	return count + " in " + seconds + " s"
}

// windowChanged is changedIn for the two fields of a window, which have one note.
func windowChanged(form url.Values, path string) bool {
	held := windowNote(strings.TrimSpace(form.Get(path+".count")), strings.TrimSpace(form.Get(path+".seconds")))
	return form.Has(path+".count") && held != form.Get(path+shownSuffix)
}

// storeLimits are the limits that are numbers of stores, by the API's names.
var storeLimits = []string{"maxStores", "maxPendingStores"}

// changedLimits returns the changed windows and numbers of stores as the API takes them.
// Emptied fields are sent as they are, for the API to refuse.
func changedLimits(form url.Values) map[string]any {
	changed := map[string]any{}
	for _, name := range storeLimits {
		path := "limits." + name
		if changedIn(form, path) {
			changed[name] = number(form.Get(path))
		}
	}

	windows := map[string]map[string]any{}
	for _, row := range limitRows(delivery.Limits{}, nil, form) {
		if !windowChanged(form, row.Path) {
			continue
		}

		endpoint := row.Endpoint.String()
		if windows[endpoint] == nil {
			windows[endpoint] = map[string]any{}
			changed[endpoint] = windows[endpoint]
		}

		windows[endpoint][row.Kind] = map[string]any{"count": number(row.Count), "seconds": number(row.Seconds)}
	}

	return changed
}

func (l limitRow) High() int { return int(math.Ceil(0.8 * float64(l.Use.Window.Count))) }

// inputOf is the value of an input for a number; empty for 0, which is none.
func inputOf(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

const (
	receiversShown = 40 // on a page of the list
	// With as many attempts, and 800 characters of each answer, a page stays below 100 kB.
	attemptsListed = 20
)

type receiver struct {
	*webhooks.WebhookEndpoint
	Name string // the account's
}

func (p *Pages) receiver(r *http.Request, a *delivery.Account) (*receiver, error) {
	endpoint, err := p.Ledger.Webhooks.Endpoint(r.Context(), a.ID)
	switch {
	case err == nil:
		return &receiver{endpoint, a.Name}, nil
	case delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured:
		return nil, nil
	}
	return nil, err
}

func (p *Pages) receiverVersion(r *http.Request) (uint64, error) {
	id, _ := accountID(r) // the action's path is made of it
	endpoint, err := p.Ledger.Webhooks.Endpoint(r.Context(), id)
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
	Pages       layout.NextPages
	Without     int64  // accounts without an endpoint
	Waiting     string // how many events wait for all receivers; empty: some partition has no owner, who alone knows
}

// shownStates are those of the tabs.
var shownStates = []partitions.EndpointState{partitions.EndpointUnreachable, partitions.EndpointGone, partitions.EndpointFailing, partitions.EndpointHealthy}

func (p *Pages) listReceivers(w http.ResponseWriter, r *http.Request, _ outcome) error {
	query := layout.FiltersOf(r, "state", "text", "after")
	requested := query.Get("state")
	if requested != "" && partitions.EndpointState(requested).Severity() < 0 {
		query.Refuse("state", "is no state of a receiver")
	}

	list := &receiverList{Text: query.Get("text"), State: query.Get("state")}
	var gaps ledger.Gaps
	endpoints, next, err := layout.Following(query, func(cursor string) ([]*webhooks.WebhookEndpoint, string, error) {
		return p.receiverPage(r.Context(), strings.TrimSpace(list.Text), partitions.EndpointState(list.State), cursor)
	})
	if err := gaps.Allow(err); err != nil {
		return err
	}

	if !seesFinance(r) {
		endpoints = slices.DeleteFunc(endpoints, func(e *webhooks.WebhookEndpoint) bool { return e.Account == delivery.FinanceAccount })
	}

	list.Pages = layout.NewNextPages("/webhooks", query, next)
	list.Receivers, err = p.withNames(r.Context(), endpoints)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	err = p.countReceivers(r.Context(), list, query)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	list.Live = layout.Address("/webhooks/live", query.Values)

	return p.Show(w, r, "webhooks", layout.View{Title: "Webhooks", Data: list, Refused: query.Err(), Incomplete: lacking("receivers", gaps)})
}

// receiverPage reads a page of all receivers, the worst first, or of those of the accounts that a
// text finds: page by page by name, and the worst first on a page. With ledger.ErrIncomplete it lacks
// those of partitions that do not answer.
func (p *Pages) receiverPage(ctx context.Context, text string, state partitions.EndpointState, cursor string) ([]*webhooks.WebhookEndpoint, string, error) {
	if text == "" {
		return p.Ledger.Webhooks.Page(ctx, state, cursor, receiversShown)
	}

	accounts, next, incomplete := p.Ledger.Accounts.Page(ctx, accounts.AccountFilter{Text: text}, cursor, receiversShown)
	if incomplete != nil && !errors.Is(incomplete, ledger.ErrIncomplete) {
		return nil, "", incomplete
	}

	var owners []delivery.AccountID
	finance := text == delivery.FinanceAccount.String() || strings.HasPrefix(delivery.FoldName(delivery.FinanceName), delivery.FoldName(text))
	if finance && cursor == "" { // it is no account
		owners = append(owners, delivery.FinanceAccount)
	}

	for _, a := range accounts {
		owners = append(owners, a.ID)
	}

	endpoints, err := p.Ledger.Webhooks.EndpointsOf(ctx, owners)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return nil, "", err
	}

	inOtherState := func(e *webhooks.WebhookEndpoint) bool { return state != "" && e.State != state }
	endpoints = slices.DeleteFunc(endpoints, inOtherState)
	slices.SortStableFunc(endpoints, func(a, b *webhooks.WebhookEndpoint) int {
		return cmp.Or(cmp.Compare(b.State.Severity(), a.State.Severity()), a.StateSince.Compare(b.StateSince))
	})

	return endpoints, next, cmp.Or(incomplete, err)
}

func (p *Pages) withNames(ctx context.Context, endpoints []*webhooks.WebhookEndpoint) ([]receiver, error) {
	ids := make([]delivery.AccountID, len(endpoints))
	for i, e := range endpoints {
		ids[i] = e.Account
	}

	names, err := p.Lists.AccountNames(ctx, ids)
	receivers := make([]receiver, len(endpoints))
	for i, e := range endpoints {
		receivers[i] = receiver{e, names.Of(e.Account, "account ")}
	}

	return receivers, err
}

// countReceivers counts all receivers, whatever is searched for. With ledger.ErrIncomplete some are not
// counted.
func (p *Pages) countReceivers(ctx context.Context, list *receiverList, query *layout.Filters) error {
	counts, incomplete := p.Ledger.Webhooks.Counts(ctx)
	if incomplete != nil && !errors.Is(incomplete, ledger.ErrIncomplete) {
		return incomplete
	}

	accounts, err := p.Ledger.Accounts.Counts(ctx)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return err
	}

	finance, err := p.Ledger.Webhooks.EndpointsOf(ctx, []delivery.AccountID{delivery.FinanceAccount})
	if errors.Is(err, delivery.ErrUnavailable) { // while others answered
		incomplete = cmp.Or(incomplete, fmt.Errorf("%w: %w", ledger.ErrIncomplete, err))
	} else if err != nil {
		return err
	}

	queues, err := p.Ledger.Monitor.QueueStats(ctx)
	isNoOwner := errors.Is(err, operations.ErrNoOwner)
	if err != nil && !isNoOwner && !errors.Is(err, ledger.ErrIncomplete) {
		return err
	}

	var all int64
	tabs := []layout.Choice{{}}
	for _, state := range shownStates {
		tabs = append(tabs, layout.Choice{Value: string(state), Name: string(state) + " " + layout.Count(counts[state])})
		all += counts[state]
	}

	tabs[0].Name = "All " + layout.Count(all)
	list.Tabs = query.Tabs("/webhooks", "state", tabs)
	if incomplete == nil { // else nobody knows how many of the others have none
		list.Without = max(0, accounts.All-(all-int64(len(finance))))
	}

	if !isNoOwner {
		var waiting int64
		for _, q := range queues {
			waiting += q.Events
		}
		list.Waiting = layout.Plural(waiting, "event waits", "events wait")
		incomplete = cmp.Or(incomplete, err)
	}

	return incomplete
}

type webhookPage struct {
	formPage
	Account  *delivery.Account
	Receiver *receiver // nil: none is registered
	URL      string    // its own
	Earlier  earlierSecrets
	Tabs     []layout.Link
	Attempts []partitions.AttemptRecord
	Pager    layout.Pager
	Live     string // the address of the parts that refresh themselves
}

var outcomes = []layout.Choice{
	{Name: "all"}, {Value: "delivered", Name: "delivered"}, {Value: "retrying", Name: "retrying"},
	{Value: "undelivered", Name: "undelivered"}, {Value: "notSent", Name: "not sent"},
}

func (p *Pages) showWebhook(w http.ResponseWriter, r *http.Request, o outcome) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	account, err := p.Ledger.Webhooks.Owner(r.Context(), id)
	if err != nil {
		return err
	}

	page := &webhookPage{formPage: newFormPage(r, o), Account: account}
	page.Receiver, err = p.receiver(r, account)
	if err != nil {
		return err
	}

	if e := page.Receiver; e != nil {
		page.URL = e.URL
		for _, one := range e.Earlier {
			page.Earlier.add(one.Until, p.Ledger.Now())
		}
	}

	query, path := layout.FiltersOf(r, "status", "page"), "/webhooks/"+account.ID.String()
	if state := query.Get("status"); !slices.ContainsFunc(outcomes, func(c layout.Choice) bool { return c.Value == state }) {
		query.Refuse("status", "must be delivered, retrying, undelivered, notSent or nothing")
	}

	records, err := p.Ledger.Webhooks.Attempts(r.Context(), account.ID, query.Get("status"))
	if err != nil {
		return err
	}

	page.Attempts, page.Pager = layout.Cut(records, attemptsListed, path, query)
	if slices.ContainsFunc(page.Attempts, func(a partitions.AttemptRecord) bool { return a.Answer != "" }) {
		if err := p.NoteView(r, account.ID, delivery.OrderID{}); err != nil {
			return err
		}
	}

	page.Tabs, page.Live = query.Tabs(path, "status", outcomes), layout.Address(path+"/live", query.Values)

	return p.Show(w, r, "webhook", layout.View{Title: "Webhook of " + account.Name, Data: page, Refused: cmp.Or(o.refused, query.Err())})
}
