package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/panel/svgmap"
)

const (
	storesFound = 60 // that a search shows
	// toChoose is how many accounts or fleets are listed; beyond that they are typed.
	toChoose = 100
)

type storeList struct {
	Text, Account, Fleet, State string
	AccountName                 string
	Accounts, Fleets            []layout.Choice // nil: too many to choose from
	Tabs                        []layout.Link
	Stores                      []storeRow
	More                        bool
}

type storeRow struct {
	*delivery.Store
	AccountName string
}

func storeRows(stores []*delivery.Store, names map[delivery.AccountID]string) []storeRow {
	rows := make([]storeRow, len(stores))
	for i, s := range stores {
		rows[i] = storeRow{s, names[s.Account]}
	}
	return rows
}

var storeStates = []delivery.StoreState{delivery.AwaitingFleetApproval, delivery.AwaitingFleet, delivery.Active, delivery.Deactivated}

var stateNames = map[delivery.StoreState]string{
	delivery.AwaitingFleet: "awaiting a fleet", delivery.AwaitingFleetApproval: "awaiting approval",
	delivery.Active: "active", delivery.Deactivated: "deactivated",
}

func (p *Pages) listStores(w http.ResponseWriter, r *http.Request) error {
	query := layout.FiltersOf(r, "text", "account", "fleet", "state")
	list := &storeList{Text: query.Get("text"), Account: query.Get("account"), Fleet: query.Get("fleet")}
	if err := p.ledger.Fleets.Load(r.Context()); err != nil {
		return err
	}
	accounts, err := p.accountNames(r.Context())
	if err != nil {
		return err
	}
	if err := p.addName(r.Context(), accounts, list.Account); err != nil {
		return err
	}
	filter := storeFilter(query, accounts, p.ledger.Fleets.Snapshot())
	if !filter.Account.IsZero() {
		list.Account = filter.Account.String()
	}
	list.AccountName, list.State, list.Tabs = accounts[filter.Account], query.Get("state"), storeTabs(query.Values)
	fleets := map[delivery.FleetID]string{}
	for _, f := range p.ledger.Fleets.Snapshot().All() {
		fleets[f.ID] = f.Name
	}
	if len(accounts) <= toChoose {
		list.Accounts = layout.Choices(accounts, filter.Account)
	}
	if len(fleets) <= toChoose {
		list.Fleets = layout.Choices(fleets, filter.Fleet)
	}
	refused := query.Err()
	if refused == nil {
		stores, more, err := p.ledger.Stores.Find(r.Context(), filter, storesFound)
		if err != nil {
			return err
		}
		if list.More = more; !more { // a part of them by name would look like the first
			slices.SortStableFunc(stores, func(a, b *delivery.Store) int {
				return cmp.Compare(delivery.FoldName(a.Name), delivery.FoldName(b.Name))
			})
		}
		list.Stores = storeRows(stores, accounts)
	}
	return p.pages.Show(w, r, "stores", layout.View{Title: "Stores", Data: list, Refused: refused})
}

// addName adds an account that the shared list does not have yet.
func (p *Pages) addName(ctx context.Context, names map[delivery.AccountID]string, given string) error {
	id, err := delivery.ParseAccountID(given)
	if _, there := names[id]; err != nil || there {
		return nil // what is no id is refused later
	}
	account, err := p.ledger.Accounts.Get(ctx, id)
	switch {
	case err == nil:
		names[id] = account.Name
	case delivery.CodeOf(err) != delivery.CodeAccountNotFound:
		return err
	}
	return nil
}

// storeFilter refuses an account or a fleet that does not exist.
func storeFilter(query *layout.Filters, accounts map[delivery.AccountID]string, fleets *ledger.FleetSnapshot) ledger.StoreFilter {
	f := ledger.StoreFilter{Text: query.Get("text")}
	var err error
	if text := query.Get("account"); text != "" {
		if f.Account, err = accountNamed(accounts, text); err != nil {
			query.Refuse("account", "must be the name of exactly one account, or an account's id, a UUID of 36 characters")
		} else if _, there := accounts[f.Account]; !there {
			query.Refuse("account", "no account has this id")
		}
	}
	if text := query.Get("fleet"); text != "" {
		if f.Fleet, err = delivery.ParseFleetID(text); err != nil {
			query.Refuse("fleet", "must be a fleet's id, a UUID of 36 characters")
		} else if fleets.Fleet(f.Fleet) == nil {
			query.Refuse("fleet", "no fleet has this id")
		}
	}
	if text := query.Get("state"); text != "" {
		if f.State, err = delivery.ParseStoreState(text); err != nil {
			query.Refuse("state", "is no state of a store")
		}
	}
	return f
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

func storeTabs(query url.Values) []layout.Link {
	state := query.Get("state")
	tabs := []layout.Link{{Name: "All", Address: layout.Address("/stores", layout.With(query, "state", "")), Current: state == ""}}
	for _, s := range storeStates {
		tabs = append(tabs, layout.Link{Name: stateNames[s], Current: s.String() == state,
			Address: layout.Address("/stores", layout.With(query, "state", s.String()))})
	}
	return tabs
}

func (s storeRow) Path() string { return layout.StorePath(s.Account, s.ExternalID, "") }

func (s storeRow) Action(name string) string {
	return layout.StorePath(s.Account, s.ExternalID, "/"+name)
}

func (s storeRow) StateName() string {
	if s.State == delivery.Active && !s.ClosingDate.IsZero() {
		return "migrating"
	}
	return stateNames[s.State]
}

type storePage struct {
	formPage
	storeRow
	Serving *fleetRow   // its fleet; nil: none
	Map     *svgmap.Map // nil: the position cannot be drawn
	Today   string      // the first day on which it can close
	Closing string      // the closing date as the input has it; empty: none
	Reasons []delivery.DeactivationReason
}

var deactivationReasons = []delivery.DeactivationReason{delivery.VendorRequest, delivery.FleetSuspended, delivery.MigratedToHizliyo}

func (p *Pages) showStore(w http.ResponseWriter, r *http.Request, o outcome) error {
	account, err := accountID(r)
	if err != nil {
		return err
	}
	id, err := storeID(r)
	if err != nil {
		return err
	}
	store, err := p.ledger.Stores.Get(r.Context(), account, id)
	if err != nil {
		return err
	}
	owner, err := p.ledger.Accounts.Get(r.Context(), account)
	if err != nil {
		return err
	}
	if err := p.ledger.Fleets.Load(r.Context()); err != nil {
		return err
	}
	page := &storePage{formPage: newFormPage(r, o), storeRow: storeRow{store, owner.Name}, Reasons: deactivationReasons,
		Today: dateInput(time.Now()), Closing: dateInput(store.ClosingDate)}
	var served *delivery.Coverage
	if fleet := p.ledger.Fleets.Snapshot().Fleet(store.Fleet); fleet != nil {
		page.Serving, served = &fleetRow{Fleet: fleet}, fleet.Coverage
	}
	page.Map, err = svgmap.Site(served, store.Point, "Position of "+store.Name, "Where the store is, and the area that its fleet serves.")
	if err != nil {
		return err
	}
	return p.pages.Show(w, r, "store", layout.View{Title: store.Name, Data: page, Refused: o.refused})
}

// dateInput is the local day of a time as inputs have it; empty for the zero time.
func dateInput(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(delivery.Istanbul).Format(time.DateOnly)
}

// storeAction is one change of a store. The fleet's page has such forms, too.
func storeAction(r *http.Request, path, done string, body map[string]any) action {
	a := action{path: path, done: done, body: body}
	if fleet, err := delivery.ParseFleetID(r.PostForm.Get("backToFleet")); err == nil {
		a.next = "/fleets/" + fleet.String()
	}
	return a
}

func confirmStore(r *http.Request) action {
	return storeAction(r, "/confirm", "store-confirmed", map[string]any{"fleetId": r.PostForm.Get("fleetId")})
}

func rejectStore(r *http.Request) action {
	return storeAction(r, "/reject", "store-rejected", map[string]any{"fleetId": r.PostForm.Get("fleetId"), "reason": r.PostForm.Get("because")})
}

func migrateStore(r *http.Request) action {
	return storeAction(r, "/migrate", "store-migrating", map[string]any{"closingDate": r.PostForm.Get("closingDate")})
}

func deactivateStore(r *http.Request) action {
	return storeAction(r, "/deactivate", "store-deactivated", map[string]any{"reason": r.PostForm.Get("reason")})
}
