package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
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

// Status is what vendors see of the fleet, and why.
func (f fleetRow) Status() string {
	switch {
	case f.Disabled:
		return "disabled"
	case f.Suspended:
		return "suspended"
	case f.Couriers == 0:
		return "no couriers"
	}
	return "available"
}

func (f *fleetRow) count(stores []*delivery.Store) {
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
}

func (p *Pages) listFleets(w http.ResponseWriter, r *http.Request, o outcome) error {
	if err := p.ledger.Fleets.Load(r.Context()); err != nil {
		return err
	}
	query := layout.FiltersOf(r, "text", "page")
	list := &fleetList{formPage: newFormPage(r, o), Text: query.Get("text")}
	var found []*delivery.Fleet
	wanted := search(list.Text)
	for _, f := range p.ledger.Fleets.Snapshot().All() {
		if matches(wanted, f.Name, f.SubRegion, f.ID.String()) {
			found = append(found, f)
		}
	}
	found, list.Pager = layout.Cut(found, fleetsShown, "/fleets", query)
	var err error
	if list.Fleets, err = p.withStores(r.Context(), found); err != nil {
		return err
	}
	return p.pages.Show(w, r, "fleets", layout.View{Title: "Fleets", Data: list, Refused: cmp.Or(o.refused, query.Err())})
}

func (p *Pages) withStores(ctx context.Context, fleets []*delivery.Fleet) ([]fleetRow, error) {
	rows := make([]fleetRow, len(fleets))
	limited, err := p.ledger.Fleets.Limited(ctx)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fleetsAtATime)
	for i, f := range fleets {
		rows[i].Fleet, rows[i].Limited = f, limited[f.ID]
		group.Go(func() error {
			stores, err := p.ledger.Stores.OfFleet(ctx, f.ID, 0)
			rows[i].count(stores)
			return err
		})
	}
	return rows, group.Wait()
}

type fleetPage struct {
	formPage
	fleetRow
	Country, CloseUp *svgmap.Map // CloseUp may be nil
	// The first ones by name; those that wait for the fleet's answer, and the others.
	AwaitingStores, Stores []storeRow
	MoreStores             bool
	// The first accounts that would be told of an overdue payment, and how many in all.
	Vendors    []vendorAtRisk
	AllVendors int
}

type vendorAtRisk struct {
	ID     delivery.AccountID
	Name   string
	Stores int
	Some   []string // the first of their names
}

const (
	someStores   = 5  // names of stores beside a vendor
	vendorsShown = 20 // vendors at risk
)

func (page *fleetPage) OtherVendors() int { return page.AllVendors - len(page.Vendors) }

func (p *Pages) showFleet(w http.ResponseWriter, r *http.Request, o outcome) error {
	id, err := fleetID(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := p.ledger.Fleets.Load(ctx); err != nil {
		return err
	}
	fleet := p.ledger.Fleets.Snapshot().Fleet(id)
	if fleet == nil {
		return delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}
	limited, err := p.ledger.Fleets.Limited(ctx)
	if err != nil {
		return err
	}
	page := &fleetPage{formPage: newFormPage(r, o), fleetRow: fleetRow{Fleet: fleet, Limited: limited[id]}}
	if page.Country, err = svgmap.Country(fleet.Coverage, "Coverage of "+fleet.Name+" in Turkey", "The area that the fleet serves, on the outline of Turkey."); err != nil {
		return err
	}
	if page.CloseUp, err = svgmap.CloseUp(fleet.Coverage, "Coverage of "+fleet.Name, "The area that the fleet serves, as large as it fits."); err != nil {
		return err
	}
	stores, err := p.ledger.Stores.OfFleet(ctx, id, 0)
	if err != nil {
		return err
	}
	accounts, err := p.accounts.Get(ctx) // by name
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
	names := make(map[delivery.AccountID]string, len(accounts))
	for _, a := range accounts {
		names[a.ID] = a.Name
	}
	page.count(stores)
	for _, s := range storeRows(stores, names) {
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
	vendors := atRisk(stores, accounts)
	page.Vendors, page.AllVendors = vendors[:min(len(vendors), vendorsShown)], len(vendors)
}

// atRisk are the accounts whom an overdue payment would be announced to.
func atRisk(stores []*delivery.Store, accounts []*delivery.Account) (vendors []vendorAtRisk) {
	active := map[delivery.AccountID][]string{}
	for _, s := range stores {
		if s.State == delivery.Active {
			active[s.Account] = append(active[s.Account], s.Name)
		}
	}
	for _, a := range accounts {
		if names := active[a.ID]; len(names) > 0 {
			vendors = append(vendors, vendorAtRisk{ID: a.ID, Name: a.Name, Stores: len(names), Some: names[:min(len(names), someStores)]})
		}
	}
	return vendors
}

// Pickup minutes that are left empty are the service's default.
func newFleet(r *http.Request) action {
	form := r.PostForm
	body := map[string]any{
		"name": form.Get("name"), "subRegion": form.Get("subRegion"),
		"avgDeliveryMinutes": number(form.Get("avgDeliveryMinutes")), "coverage": coverageOf(form.Get("coverage")),
	}
	if pickup := numberOrNull(form.Get("avgPickupMinutes")); pickup != nil {
		body["avgPickupMinutes"] = pickup
	}
	return action{body: body}
}

func changeFleet(r *http.Request) action {
	body := changes(r.PostForm, plainText, "name", "subRegion")
	maps.Copy(body, changes(r.PostForm, number, "avgDeliveryMinutes", "avgPickupMinutes", "requestsPerSecond"))
	return action{body: body, done: "fleet-changed"}
}

func replaceCoverage(r *http.Request) action {
	return action{body: map[string]any{"coverage": coverageOf(r.PostForm.Get("coverage"))}, done: "fleet-covered"}
}

func setFleetState(r *http.Request) action {
	if r.PostForm.Has("disabled") {
		return setFlag(r, "disabled", "fleet-disabled", "fleet-enabled")
	}
	return setFlag(r, "suspended", "fleet-suspended", "fleet-resumed")
}

func announceOverdue(*http.Request) action {
	return action{method: http.MethodPost, path: "/payment-overdue", done: "overdue", nobody: "overdue-nobody"}
}

// coverageOf is a pasted area in a body. What is no JSON, and null, which would change
// nothing, goes as a text, which the API refuses.
func coverageOf(pasted string) any {
	if json.Valid([]byte(pasted)) && strings.TrimSpace(pasted) != "null" {
		return json.RawMessage(pasted)
	}
	return pasted
}

// explainCoverage says where a coverage stopped being JSON; the API only saw a text.
func explainCoverage(err error, pasted string) error {
	var refusal *delivery.Error
	if !errors.As(err, &refusal) {
		return err
	}
	var ignored json.RawMessage
	fault := json.Unmarshal([]byte(pasted), &ignored)
	for i := range refusal.Fields {
		if field := &refusal.Fields[i]; field.Field == "coverage" && fault != nil {
			field.Message = "is not JSON: " + fault.Error()
			if refusal.Message = "coverage " + field.Message; len(refusal.Fields) > 1 {
				refusal.Message = refusal.Fields[0].Field + " " + refusal.Fields[0].Message
			}
		}
	}
	return err
}
