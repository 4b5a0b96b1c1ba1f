package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/svgmap"
)

const fleetsShown = 25

type fleetList struct {
	formPage
	Text   string
	Fleets []fleetRow
	Pager  layout.Pager
}

type fleetRow struct {
	*delivery.Fleet
	Active, Awaiting int // stores in that state
	// Limited is when it was last refused for being over its limit; zero: never.
	Limited time.Time
}

// countStores counts the stores of the rows' fleets and reads none. With ledger.ErrIncomplete some are
// not counted.
func (p *Pages) countStores(ctx context.Context, rows []fleetRow) error {
	ids := make([]delivery.FleetID, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}

	active, incomplete := p.Ledger.Stores.CountOfFleets(ctx, ids, delivery.Active)
	if incomplete != nil && !errors.Is(incomplete, ledger.ErrIncomplete) {
		return incomplete
	}

	awaiting, err := p.Ledger.Stores.CountOfFleets(ctx, ids, delivery.AwaitingFleetApproval)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return err
	}

	for i := range rows {
		rows[i].Active, rows[i].Awaiting = active[i], awaiting[i]
	}

	return cmp.Or(incomplete, err)
}

func (p *Pages) listFleets(w http.ResponseWriter, r *http.Request, o outcome) error {
	fleets, err := p.Lists.Fleets(r.Context())
	if err != nil {
		return err
	}
	limited, err := p.Ledger.Fleets.Limited(r.Context())
	if err != nil {
		return err
	}

	query := layout.FiltersOf(r, "text", "page")
	list := &fleetList{formPage: newFormPage(r, o), Text: query.Get("text")}
	var found []fleetRow
	for _, f := range fleets {
		if matches(list.Text, f.Name, f.SubRegion, f.ID.String()) {
			found = append(found, fleetRow{Fleet: f, Limited: limited[f.ID]})
		}
	}

	list.Fleets, list.Pager = layout.Cut(found, fleetsShown, "/fleets", query)
	var gaps ledger.Gaps
	err = p.countStores(r.Context(), list.Fleets)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	return p.Show(w, r, "fleets", layout.View{Title: "Fleets", Data: list, Refused: cmp.Or(o.refused, query.Err()),
		Incomplete: lacking("stores", gaps)})
}

type fleetPage struct {
	formPage
	fleetRow
	Country, CloseUp *svgmap.Map // CloseUp may be nil
	// The first ones by name; those that wait for the fleet's answer, and the others. Of a fleet
	// with more than storesRead of them, some.
	AwaitingStores, Stores []storeRow
	MoreStores             bool
	// MoreActive reports that only some of the active stores have been read. Migrating, Vendors
	// and AllVendors are those of the stores that have.
	MoreActive bool
	Migrating  int // active stores with a closing day
	// The accounts that an overdue payment would be announced to, those with the most stores
	// first, and all in number.
	Vendors    []vendorAtRisk
	AllVendors int
}

type vendorAtRisk struct {
	ID     delivery.AccountID
	Name   string
	Stores []string // names of active stores
}

const (
	storesRead   = 500 // stores in each state that a fleet's page reads
	someStores   = 5   // names of stores beside a vendor
	vendorsShown = 20  // vendors at risk
)

// Some are the first of its stores.
func (v vendorAtRisk) Some() []string { return v.Stores[:min(len(v.Stores), someStores)] }

func (page *fleetPage) OtherVendors() int { return page.AllVendors - len(page.Vendors) }

func (p *Pages) showFleet(w http.ResponseWriter, r *http.Request, o outcome) error {
	id, err := fleetID(r)
	if err != nil {
		return err
	}
	if err := p.Ledger.Fleets.Load(r.Context()); err != nil {
		return err
	}

	fleet := p.Ledger.Fleets.Snapshot().Fleet(id)
	if fleet == nil {
		return delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}

	limited, err := p.Ledger.Fleets.Limited(r.Context())
	if err != nil {
		return err
	}

	page := &fleetPage{formPage: newFormPage(r, o), fleetRow: fleetRow{Fleet: fleet, Limited: limited[id]},
		Country: svgmap.Country(fleet.Coverage, "Coverage of "+fleet.Name+" in Turkey", "The area that the fleet serves, on the outline of Turkey."),
		CloseUp: svgmap.CloseUp(fleet.Coverage, "Coverage of "+fleet.Name, "The area that the fleet serves, as large as it fits.")}
	row := []fleetRow{page.fleetRow}
	var gaps ledger.Gaps
	err = p.countStores(r.Context(), row)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	page.fleetRow = row[0]
	err = p.readStores(r.Context(), page)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	err = p.nameOwners(r.Context(), page)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	return p.Show(w, r, "fleet", layout.View{Title: fleet.Name, Data: page, Refused: o.refused, Incomplete: lacking("stores", gaps)})
}

// readStores reads some stores in each state. Reading all of a fleet with 10,000 would cost
// Redis as much as 10,000 requests, each time the page is shown. With ledger.ErrIncomplete it lacks those
// of partitions that do not answer.
func (p *Pages) readStores(ctx context.Context, page *fleetPage) error {
	var stores []*delivery.Store
	var incomplete error
	for _, state := range []delivery.StoreState{delivery.AwaitingFleetApproval, delivery.Active, delivery.Deactivated} {
		found, missing := p.Ledger.Stores.PageOfFleet(ctx, page.ID, state, "", storesRead)
		if missing != nil && !errors.Is(missing, ledger.ErrIncomplete) {
			return missing
		}

		read, err := p.Ledger.Stores.ReadPage(ctx, found)
		if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
			return err
		}

		incomplete = cmp.Or(incomplete, missing, err)
		stores = append(stores, read...)

		hasMore := found.Next != ""
		if hasMore && state == delivery.Active {
			page.MoreActive = true
		}

		if hasMore && state != delivery.AwaitingFleetApproval {
			page.MoreStores = true
		}
	}

	page.take(stores)

	return incomplete
}

// nameOwners reads the names of those accounts that the page shows.
func (p *Pages) nameOwners(ctx context.Context, page *fleetPage) error {
	var ids []delivery.AccountID
	for _, s := range slices.Concat(page.AwaitingStores, page.Stores) {
		ids = append(ids, s.Account)
	}

	for _, v := range page.Vendors {
		ids = append(ids, v.ID)
	}

	names, err := p.Lists.AccountNames(ctx, ids)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return err
	}

	for _, list := range [][]storeRow{page.AwaitingStores, page.Stores} {
		for i := range list {
			list[i].AccountName = names[list[i].Account.String()]
		}
	}

	for i := range page.Vendors {
		v := &page.Vendors[i]
		v.Name = names.Of(v.ID, "account ")
	}

	return err
}

func (page *fleetPage) take(stores []*delivery.Store) {
	slices.SortFunc(stores, func(a, b *delivery.Store) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ExternalID, b.ExternalID), slices.Compare(a.Account[:], b.Account[:]))
	})
	active := map[delivery.AccountID][]string{}
	for _, s := range storeRows(stores, nil) {
		if s.State == delivery.Active {
			active[s.Account] = append(active[s.Account], s.Name)
			if !s.ClosingDate.IsZero() {
				page.Migrating++
			}
		}

		list := &page.Stores
		if s.State == delivery.AwaitingFleetApproval {
			list = &page.AwaitingStores
		}

		if len(*list) == storesOnPage {
			page.MoreStores = true
			continue
		}

		*list = append(*list, s)
	}

	for id, names := range active {
		page.Vendors = append(page.Vendors, vendorAtRisk{ID: id, Stores: names})
	}

	slices.SortFunc(page.Vendors, func(a, b vendorAtRisk) int {
		return cmp.Or(cmp.Compare(len(b.Stores), len(a.Stores)), bytes.Compare(a.ID[:], b.ID[:]))
	})
	page.AllVendors = len(page.Vendors)
	page.Vendors = page.Vendors[:min(page.AllVendors, vendorsShown)]
}

const (
	storesFound = 60  // that a search shows
	toChoose    = 100 // accounts or fleets that are listed; beyond that they are typed
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

func storeRows(stores []*delivery.Store, names layout.Names) []storeRow {
	rows := make([]storeRow, len(stores))
	for i, s := range stores {
		rows[i] = storeRow{s, names[s.Account.String()]}
	}
	return rows
}

var storeStates = []layout.Choice{
	{Name: "All"},
	{Value: delivery.AwaitingFleetApproval.String(), Name: "awaiting approval"},
	{Value: delivery.AwaitingFleet.String(), Name: "awaiting a fleet"},
	{Value: delivery.Active.String(), Name: "active"},
	{Value: delivery.Deactivated.String(), Name: "deactivated"},
}

// StateName is the state in words.
func (s storeRow) StateName() string {
	if s.State == delivery.Active && !s.ClosingDate.IsZero() {
		return "migrating"
	}
	return storeStates[slices.IndexFunc(storeStates, func(c layout.Choice) bool { return c.Value == s.State.String() })].Name
}

func (p *Pages) listStores(w http.ResponseWriter, r *http.Request, _ outcome) error {
	query := layout.FiltersOf(r, "text", "account", "fleet", "state")
	list := &storeList{Text: query.Get("text"), Account: query.Get("account"), Fleet: query.Get("fleet")}
	fleets, err := p.Lists.FleetNames(r.Context())
	if err != nil {
		return err
	}

	var gaps ledger.Gaps
	few, err := p.Lists.Few.Get(r.Context())
	if err := gaps.Allow(err); err != nil {
		return err
	}

	account, err := p.Lists.FindAccount(r.Context(), query.Get("account"))
	if err != nil {
		return err
	}

	filter := storeFilter(query, account, fleets)
	if account != nil {
		list.Account, list.AccountName = account.ID.String(), account.Name
	}

	list.State, list.Tabs = query.Get("state"), query.Tabs("/stores", "state", storeStates)
	list.Accounts, list.Fleets = few.Choices(query.Get("account"), toChoose), fleets.Choices(query.Get("fleet"), toChoose)

	refused := query.Err()
	if refused == nil {
		stores, more, err := p.Ledger.Stores.Find(r.Context(), filter, storesFound)
		if err := gaps.Allow(err); err != nil {
			return err
		}

		list.More = more
		if !more { // a part of them by name would look like the first
			slices.SortStableFunc(stores, func(a, b *delivery.Store) int {
				return cmp.Compare(delivery.FoldName(a.Name), delivery.FoldName(b.Name))
			})
		}

		owners := make([]delivery.AccountID, len(stores))
		for i, s := range stores {
			owners[i] = s.Account
		}

		names, err := p.Lists.AccountNames(r.Context(), owners)
		if err := gaps.Allow(err); err != nil {
			return err
		}

		list.Stores = storeRows(stores, names)
	}

	return p.Show(w, r, "stores", layout.View{Title: "Stores", Data: list, Refused: refused, Incomplete: lacking("stores", gaps)})
}

// storeFilter refuses an account or a fleet that does not exist.
func storeFilter(query *layout.Filters, account *delivery.Account, fleets layout.Names) accounts.StoreFilter {
	f := accounts.StoreFilter{Text: query.Get("text")}
	if account != nil {
		query.Set("account", account.ID.String())
		f.Account = account.ID
	} else {
		layout.Parsed(query, "account", "must be the name of exactly one account, or an account's id, a UUID of 36 characters", delivery.ParseAccountID)
		if query.Get("account") != "" {
			query.Refuse("account", "no account has this id")
		}
	}

	f.Fleet = layout.Parsed(query, "fleet", "must be a fleet's id, a UUID of 36 characters", delivery.ParseFleetID)
	layout.Parsed(query, "fleet", "no fleet has this id", fleets.Known)
	f.State = layout.Parsed(query, "state", "is no state of a store", delivery.ParseStoreState)

	return f
}

type storePage struct {
	formPage
	storeRow
	Serving *delivery.Fleet // its fleet; nil: none
	Map     *svgmap.Map     // nil: the position cannot be drawn
	Reasons []delivery.DeactivationReason
}

func (p *Pages) showStore(w http.ResponseWriter, r *http.Request, o outcome) error {
	account, err := accountID(r)
	if err != nil {
		return err
	}
	id, err := storeID(r)
	if err != nil {
		return err
	}
	store, err := p.Ledger.Stores.Get(r.Context(), account, id)
	if err != nil {
		return err
	}
	owner, err := p.Ledger.Accounts.Get(r.Context(), account)
	if err != nil {
		return err
	}
	if err := p.Ledger.Fleets.Load(r.Context()); err != nil {
		return err
	}

	page := &storePage{formPage: newFormPage(r, o), storeRow: storeRow{store, owner.Name},
		Serving: p.Ledger.Fleets.Snapshot().Fleet(store.Fleet),
		Reasons: []delivery.DeactivationReason{delivery.VendorRequest, delivery.FleetSuspended, delivery.MigratedToHizliyo}}
	var served *delivery.Coverage
	if page.Serving != nil {
		served = page.Serving.Coverage
	}

	page.Map = svgmap.Site(served, store.Point, "Position of "+store.Name, "Where the store is, and the area that its fleet serves.")

	return p.Show(w, r, "store", layout.View{Title: store.Name, Data: page, Refused: o.refused})
}
