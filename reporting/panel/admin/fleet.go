package admin

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/adminapi"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/panel/svgmap"
)

// fleetPage is the page /fleets/{id}.
type fleetPage struct {
	action
	fleetRow
	Country, CloseUp *svgmap.Map // CloseUp may be nil
	// Awaiting are the stores that wait for the fleet's answer, Stores the
	// others; of both the first ones by name.
	AwaitingStores, Stores []*delivery.Store
	MoreStores             bool
	// Vendors would be told of an overdue payment.
	Vendors []vendorAtRisk
	names   map[delivery.AccountID]string
}

// vendorAtRisk is an account with its active stores at the fleet.
type vendorAtRisk struct {
	ID     delivery.AccountID
	Name   string
	Stores int
	Some   []string // the first of their names
}

// someStores is how many names of stores stand beside a vendor.
const someStores = 5

// vendorsShown is how many of the vendors at risk are named.
const vendorsShown = 20

// ShownVendors are the first of them, OtherVendors how many there are besides.
func (page *fleetPage) ShownVendors() []vendorAtRisk {
	return page.Vendors[:min(len(page.Vendors), vendorsShown)]
}

// OtherVendors is explained at ShownVendors.
func (page *fleetPage) OtherVendors() int { return len(page.Vendors) - len(page.ShownVendors()) }

// Rows are stores as lists show them.
func (page *fleetPage) Rows(stores []*delivery.Store) []storeRow {
	rows := make([]storeRow, len(stores))
	for i, s := range stores {
		rows[i] = storeRow{s, page.names[s.Account]}
	}
	return rows
}

func (page *fleetPage) name(accounts []*delivery.Account) {
	page.names = make(map[delivery.AccountID]string, len(accounts))
	for _, a := range accounts {
		page.names[a.ID] = a.Name
	}
}

// showFleet is GET /fleets/{fleet}.
func (p *Pages) showFleet(w http.ResponseWriter, r *http.Request) error {
	return p.answerFleet(w, r, nil)
}

func (p *Pages) answerFleet(w http.ResponseWriter, r *http.Request, refused error) error {
	id, err := fleetID(r)
	if err != nil {
		return err
	}
	if err := p.ledger.LoadFleets(r.Context()); err != nil {
		return err
	}
	fleet := p.ledger.Fleets().Fleet(id)
	if fleet == nil {
		return delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}
	limited, err := p.ledger.LimitedFleets(r.Context())
	if err != nil {
		return err
	}
	page := &fleetPage{action: newAction(r), fleetRow: fleetRow{Fleet: fleet, Limited: limited[id]}}
	if err := page.draw(); err != nil {
		return err
	}
	stores, err := p.ledger.FleetStores(r.Context(), id, 0)
	if err != nil {
		return err
	}
	page.sort(stores)
	accounts, err := p.accounts.Get(r.Context()) // by name
	if err != nil {
		return err
	}
	page.name(accounts)
	page.Vendors = atRisk(stores, accounts)
	return p.pages.Show(w, r, "fleet", layout.View{Title: fleet.Name, Data: page, Refused: refused})
}

func (page *fleetPage) draw() (err error) {
	if page.Country, err = svgmap.Country(page.Coverage, "Coverage of "+page.Name+" in Turkey", "The area that the fleet serves, on the outline of Turkey."); err != nil {
		return err
	}
	page.CloseUp, err = svgmap.CloseUp(page.Coverage, "Coverage of "+page.Name, "The area that the fleet serves, as large as it fits.")
	return err
}

// sort parts the fleet's stores and keeps the first ones.
func (page *fleetPage) sort(stores []*delivery.Store) {
	slices.SortFunc(stores, func(a, b *delivery.Store) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ExternalID, b.ExternalID), slices.Compare(a.Account[:], b.Account[:]))
	})
	page.count(stores)
	for _, s := range stores {
		switch list := page.listFor(s); {
		case len(*list) < storesOnPage:
			*list = append(*list, s)
		default:
			page.MoreStores = true
		}
	}
}

func (page *fleetPage) listFor(s *delivery.Store) *[]*delivery.Store {
	if s.State == delivery.AwaitingFleetApproval {
		return &page.AwaitingStores
	}
	return &page.Stores
}

// atRisk are the accounts with active stores among those of a fleet, as the
// announcement of an overdue payment would reach them; in the accounts' order.
func atRisk(stores []*delivery.Store, accounts []*delivery.Account) (vendors []vendorAtRisk) {
	byAccount := map[delivery.AccountID]*vendorAtRisk{}
	for _, s := range stores {
		if s.State != delivery.Active {
			continue
		}
		v := byAccount[s.Account]
		if v == nil {
			v = &vendorAtRisk{ID: s.Account}
			byAccount[s.Account] = v
		}
		if v.Stores++; len(v.Some) < someStores {
			v.Some = append(v.Some, s.Name)
		}
	}
	for _, a := range accounts {
		if v := byAccount[a.ID]; v != nil {
			v.Name = a.Name
			vendors = append(vendors, *v)
		}
	}
	return vendors
}

// actOnFleet is one change of a fleet and the way back to its page.
func (p *Pages) actOnFleet(w http.ResponseWriter, r *http.Request, sentence string, body map[string]any) error {
	id, err := fleetID(r)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return unchanged(w, r)
	}
	err = p.change(r, http.MethodPatch, adminapi.Path("fleets", id.String()), body, nil)
	if err != nil {
		return p.answerFleet(w, r, explainCoverage(err, r.PostForm.Get("coverage")))
	}
	return layout.Redirect(w, r, fleetPath(id), sentence)
}

// changeFleet is POST /fleets/{fleet}/fields: those that were changed in the form.
func (p *Pages) changeFleet(w http.ResponseWriter, r *http.Request) error {
	body := changes(r.PostForm, plainText, "name", "subRegion")
	maps.Copy(body, changes(r.PostForm, number, "avgDeliveryMinutes", "avgPickupMinutes", "requestsPerSecond"))
	return p.actOnFleet(w, r, "fleet-changed", body)
}

// replaceCoverage is POST /fleets/{fleet}/coverage.
func (p *Pages) replaceCoverage(w http.ResponseWriter, r *http.Request) error {
	return p.actOnFleet(w, r, "fleet-covered", map[string]any{"coverage": coverageOf(r.PostForm.Get("coverage"))})
}

// setFleetState is POST /fleets/{fleet}/state: suspended or disabled is true or false.
func (p *Pages) setFleetState(w http.ResponseWriter, r *http.Request) error {
	if r.PostForm.Has("disabled") {
		wanted, sentence := flag(r.PostForm.Get("disabled")), "fleet-enabled"
		if wanted == true {
			sentence = "fleet-disabled"
		}
		return p.actOnFleet(w, r, sentence, map[string]any{"disabled": wanted})
	}
	wanted, sentence := flag(r.PostForm.Get("suspended")), "fleet-resumed"
	if wanted == true {
		sentence = "fleet-suspended"
	}
	return p.actOnFleet(w, r, sentence, map[string]any{"suspended": wanted})
}

// announceOverdue is POST /fleets/{fleet}/payment-overdue.
func (p *Pages) announceOverdue(w http.ResponseWriter, r *http.Request) error {
	id, err := fleetID(r)
	if err != nil {
		return err
	}
	var told struct{ Accounts int }
	if err := p.change(r, http.MethodPost, adminapi.Path("fleets", id.String(), "payment-overdue"), nil, &told); err != nil {
		return p.answerFleet(w, r, err)
	}
	if told.Accounts == 0 {
		return layout.Redirect(w, r, fleetPath(id), "overdue-nobody")
	}
	return layout.Redirect(w, r, fleetPath(id), "overdue")
}

func fleetPath(id delivery.FleetID) string { return "/fleets/" + url.PathEscape(id.String()) }
