package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/panel/svgmap"
)

const (
	fleetsShown   = 25
	fleetsAtATime = 4
)

type fleetList struct {
	formPage
	Text   string
	Fleets []fleetRow
	Pager  layout.Pager
}

type fleetRow struct {
	*delivery.Fleet
	Active, Awaiting, Migrating int
	// Limited is when it was last refused for being over its limit; zero: never.
	Limited time.Time
}

func (p *Pages) stores(r *http.Request, f *fleetRow) ([]*delivery.Store, error) {
	stores, err := p.ledger.Stores.OfFleet(r.Context(), f.ID, 0)
	for _, s := range stores {
		switch {
		case s.State == delivery.AwaitingFleetApproval:
			f.Awaiting++
		case s.State == delivery.Active && !s.ClosingDate.IsZero():
			f.Migrating++
			f.Active++
		case s.State == delivery.Active:
			f.Active++
		}
	}
	return stores, err
}

func (p *Pages) listFleets(w http.ResponseWriter, r *http.Request, o outcome) error {
	fleets, err := p.lists.Fleets(r.Context())
	if err != nil {
		return err
	}
	limited, err := p.ledger.Fleets.Limited(r.Context())
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
	var group errgroup.Group
	group.SetLimit(fleetsAtATime)
	for i := range list.Fleets {
		group.Go(func() error {
			_, err := p.stores(r, &list.Fleets[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return p.pages.Show(w, r, "fleets", layout.View{Title: "Fleets", Data: list, Refused: cmp.Or(o.refused, query.Err())})
}

type fleetPage struct {
	formPage
	fleetRow
	Country, CloseUp *svgmap.Map // CloseUp may be nil
	// The first ones by name; those that wait for the fleet's answer, and the others.
	AwaitingStores, Stores []storeRow
	MoreStores             bool
	// The first accounts that an overdue payment would be announced to, and all in number.
	Vendors    []vendorAtRisk
	AllVendors int
}

type vendorAtRisk struct {
	*delivery.Account
	Stores []string // names of active stores
}

const (
	someStores   = 5  // names of stores beside a vendor
	vendorsShown = 20 // vendors at risk
)

// Some are the first of its stores.
func (v vendorAtRisk) Some() []string { return v.Stores[:min(len(v.Stores), someStores)] }

func (page *fleetPage) OtherVendors() int { return page.AllVendors - len(page.Vendors) }

func (p *Pages) showFleet(w http.ResponseWriter, r *http.Request, o outcome) error {
	id, err := fleetID(r)
	if err != nil {
		return err
	}
	if err := p.ledger.Fleets.Load(r.Context()); err != nil {
		return err
	}
	fleet := p.ledger.Fleets.Snapshot().Fleet(id)
	if fleet == nil {
		return delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}
	limited, err := p.ledger.Fleets.Limited(r.Context())
	if err != nil {
		return err
	}
	page := &fleetPage{formPage: newFormPage(r, o), fleetRow: fleetRow{Fleet: fleet, Limited: limited[id]},
		Country: svgmap.Country(fleet.Coverage, "Coverage of "+fleet.Name+" in Turkey", "The area that the fleet serves, on the outline of Turkey."),
		CloseUp: svgmap.CloseUp(fleet.Coverage, "Coverage of "+fleet.Name, "The area that the fleet serves, as large as it fits.")}
	stores, err := p.stores(r, &page.fleetRow)
	if err != nil {
		return err
	}
	accounts, err := p.lists.Accounts.Get(r.Context())
	if err != nil {
		return err
	}
	page.take(stores, accounts)
	return p.pages.Show(w, r, "fleet", layout.View{Title: fleet.Name, Data: page, Refused: o.refused})
}

func (page *fleetPage) take(stores []*delivery.Store, accounts []*delivery.Account) {
	slices.SortFunc(stores, func(a, b *delivery.Store) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ExternalID, b.ExternalID), slices.Compare(a.Account[:], b.Account[:]))
	})
	active := map[delivery.AccountID][]string{}
	for _, s := range storeRows(stores, layout.NamesOf(accounts)) {
		if s.State == delivery.Active {
			active[s.Account] = append(active[s.Account], s.Name)
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
	for _, a := range accounts {
		if names := active[a.ID]; len(names) > 0 {
			page.Vendors = append(page.Vendors, vendorAtRisk{a, names})
		}
	}
	page.AllVendors = len(page.Vendors)
	page.Vendors = page.Vendors[:min(page.AllVendors, vendorsShown)]
}
