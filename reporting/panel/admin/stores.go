package admin

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// storesFound is how many stores a search shows, and toChoose up to how
// many fleets one of them is chosen from a list; beyond that by its id. Accounts likewise, and by name.
const (
	storesFound = 60
	toChoose    = 100
)

// storeList is the page /stores.
type storeList struct {
	Text, Account, Fleet, State string
	AccountName                 string
	Accounts                    []storeAccount // nil: too many to choose from, one is typed
	Fleets                      []*delivery.Fleet
	Tabs                        []tab
	Stores                      []storeRow
	More                        bool
}

// storeRow is a store with its account's name.
type storeRow struct {
	*delivery.Store
	AccountName string
}

var storeStates = []delivery.StoreState{delivery.AwaitingFleetApproval, delivery.AwaitingFleet, delivery.Active, delivery.Deactivated}

// stateNames are the states in words.
var stateNames = map[delivery.StoreState]string{
	delivery.AwaitingFleet: "awaiting a fleet", delivery.AwaitingFleetApproval: "awaiting approval",
	delivery.Active: "active", delivery.Deactivated: "deactivated",
}

// listStores is GET /stores?text=&account=&fleet=&state=.
func (p *Pages) listStores(w http.ResponseWriter, r *http.Request) error {
	query := filtersOf(r, "text", "account", "fleet", "state")
	list := &storeList{Text: query.Get("text"), Account: query.Get("account"), Fleet: query.Get("fleet")}
	if err := p.ledger.LoadFleets(r.Context()); err != nil {
		return err
	}
	if fleets := p.ledger.Fleets().All(); len(fleets) <= toChoose {
		list.Fleets = fleets
	}
	accounts, err := p.accountNames(r)
	if err != nil {
		return err
	}
	if err := p.addName(r.Context(), accounts, query.Get("account")); err != nil {
		return err
	}
	list.Accounts = storeAccounts(accounts)
	filter := storeFilter(query, accounts, p.ledger.Fleets())
	if !filter.Account.IsZero() {
		list.Account = filter.Account.String()
	}
	list.AccountName, list.State, list.Tabs = accounts[filter.Account], query.Get("state"), storeTabs(query.Values)
	refused := query.err()
	if refused == nil {
		stores, more, err := p.ledger.FindStores(r.Context(), filter, storesFound)
		if err != nil {
			return err
		}
		if list.More = more; !more { // a part of them by name would look like the first
			slices.SortStableFunc(stores, func(a, b *delivery.Store) int {
				return cmp.Compare(delivery.FoldName(a.Name), delivery.FoldName(b.Name))
			})
		}
		for _, s := range stores {
			list.Stores = append(list.Stores, storeRow{s, accounts[s.Account]})
		}
	}
	return p.pages.Show(w, r, "stores", layout.View{Title: "Stores", Data: list, Refused: refused})
}

// addName adds an account that the shared list does not have yet.
func (p *Pages) addName(ctx context.Context, names map[delivery.AccountID]string, given string) error {
	id, err := delivery.ParseAccountID(given)
	if _, there := names[id]; err != nil || there {
		return nil // what is no id is refused later
	}
	account, err := p.ledger.Account(ctx, id)
	switch {
	case err == nil:
		names[id] = account.Name
	case delivery.CodeOf(err) != delivery.CodeAccountNotFound:
		return err
	}
	return nil
}

// storeFilter is what the query asks for, of the accounts and fleets that there
// are; what is none of them is refused.
func storeFilter(query *filters, accounts map[delivery.AccountID]string, fleets *ledger.FleetSnapshot) ledger.StoreFilter {
	f := ledger.StoreFilter{Text: query.Get("text")}
	var err error
	if text := query.Get("account"); text != "" {
		if f.Account, err = accountNamed(accounts, text); err != nil {
			query.refuse("account", "must be the name of exactly one account, or an account's id, a UUID of 36 characters")
		} else if _, there := accounts[f.Account]; !there {
			query.refuse("account", "no account has this id")
		}
	}
	if text := query.Get("fleet"); text != "" {
		if f.Fleet, err = delivery.ParseFleetID(text); err != nil {
			query.refuse("fleet", "must be a fleet's id, a UUID of 36 characters")
		} else if fleets.Fleet(f.Fleet) == nil {
			query.refuse("fleet", "no fleet has this id")
		}
	}
	if text := query.Get("state"); text != "" {
		if f.State, err = delivery.ParseStoreState(text); err != nil {
			query.refuse("state", "is no state of a store")
		}
	}
	return f
}

// storeAccount is an account that stores can be looked for by.
type storeAccount struct{ ID, Name string }

// storeAccounts are all accounts by name; nil when they are too many for a list.
func storeAccounts(names map[delivery.AccountID]string) (all []storeAccount) {
	if len(names) > toChoose {
		return nil
	}
	for id, name := range names {
		all = append(all, storeAccount{id.String(), name})
	}
	slices.SortFunc(all, func(a, b storeAccount) int {
		return cmp.Or(cmp.Compare(delivery.FoldName(a.Name), delivery.FoldName(b.Name)), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// accountNamed is the account with the id, or else the only one with the name.
func accountNamed(names map[delivery.AccountID]string, text string) (delivery.AccountID, error) {
	id, err := delivery.ParseAccountID(text)
	if err == nil {
		return id, nil
	}
	for other, name := range names {
		if delivery.FoldName(name) != delivery.FoldName(text) {
			continue
		}
		if !id.IsZero() {
			return delivery.AccountID{}, err // several have it
		}
		id = other
	}
	if id.IsZero() {
		return id, err
	}
	return id, nil
}

func storeTabs(query url.Values) []tab {
	tabs := []tab{{Name: "All"}}
	for _, state := range storeStates {
		tabs = append(tabs, tab{Name: stateNames[state]})
	}
	for i := range tabs {
		q := maps.Clone(query)
		if q.Del("state"); i > 0 {
			q.Set("state", storeStates[i-1].String())
		}
		tabs[i].Address, tabs[i].Current = address("/stores", q), q.Get("state") == query.Get("state")
	}
	return tabs
}

func (p *Pages) accountNames(r *http.Request) (map[delivery.AccountID]string, error) {
	accounts, err := p.accounts.Get(r.Context())
	names := make(map[delivery.AccountID]string, len(accounts))
	for _, a := range accounts {
		names[a.ID] = a.Name
	}
	return names, err
}

// Path is the address of a store's page.
func (s storeRow) Path() string { return layout.StorePath(s.Account, s.ExternalID, "") }

// Action is the address of one of the store's actions.
func (s storeRow) Action(name string) string {
	return layout.StorePath(s.Account, s.ExternalID, "/"+name)
}

// storeID reads the path's store.
func storeID(r *http.Request) (string, error) {
	id := r.PathValue("store")
	if given := r.URL.Query().Get("id"); id == layout.NoSegment && given != "" {
		id = given
	}
	if delivery.CheckExternalStoreID(id) != nil {
		return "", delivery.Refuse(delivery.CodeStoreNotFound, "the account has no such store")
	}
	return id, nil
}

// StateName is the state in words.
func (s storeRow) StateName() string {
	if s.State == delivery.Active && !s.ClosingDate.IsZero() {
		return "migrating"
	}
	return stateNames[s.State]
}

// Tone is the colour of the state.
func (s storeRow) Tone() string {
	switch {
	case s.State == delivery.Active && !s.ClosingDate.IsZero():
		return "warn"
	case s.State == delivery.Active:
		return "good"
	case s.State == delivery.AwaitingFleetApproval:
		return "accent"
	}
	return ""
}
