package admin

import (
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/adminapi"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/panel/svgmap"
)

// storePage is the page /stores/{account}/{store}.
type storePage struct {
	action
	storeRow
	Serving *fleetRow   // its fleet; nil: none
	Map     *svgmap.Map // nil: the position cannot be drawn
	Today   string      // the first day on which it can close
	Reasons []delivery.DeactivationReason
}

var deactivationReasons = []delivery.DeactivationReason{delivery.VendorRequest, delivery.FleetSuspended, delivery.MigratedToHizliyo}

// Confirmable, Migratable and Closable tell what can be done with it.
func (s *storePage) Confirmable() bool { return s.State == delivery.AwaitingFleetApproval }

// Migratable is explained at Confirmable.
func (s *storePage) Migratable() bool { return s.State == delivery.Active }

// Closable is explained at Confirmable.
func (s *storePage) Closable() bool { return s.State != delivery.Deactivated }

// Closing is the closing date as the input has it; empty: none.
func (s *storePage) Closing() string {
	if s.ClosingDate.IsZero() {
		return ""
	}
	return s.ClosingDate.In(delivery.Istanbul).Format(time.DateOnly)
}

// showStore is GET /stores/{account}/{store}.
func (p *Pages) showStore(w http.ResponseWriter, r *http.Request) error {
	return p.answerStore(w, r, nil)
}

// answerStore shows the page, with why an action was refused.
func (p *Pages) answerStore(w http.ResponseWriter, r *http.Request, refused error) error {
	account, id, err := storeOf(r)
	if err != nil {
		return err
	}
	store, err := p.ledger.Store(r.Context(), account, id)
	if err != nil {
		return err
	}
	owner, err := p.ledger.Account(r.Context(), account)
	if err != nil {
		return err
	}
	if err := p.ledger.LoadFleets(r.Context()); err != nil {
		return err
	}
	page := &storePage{action: newAction(r), storeRow: storeRow{store, owner.Name}, Reasons: deactivationReasons,
		Today: time.Now().In(delivery.Istanbul).Format(time.DateOnly)}
	var served *delivery.Coverage
	if fleet := p.ledger.Fleets().Fleet(store.Fleet); fleet != nil {
		page.Serving, served = &fleetRow{Fleet: fleet}, fleet.Coverage
	}
	page.Map, err = svgmap.Site(served, store.Point, "Position of "+store.Name, "Where the store is, and the area that its fleet serves.")
	if err != nil {
		return err
	}
	return p.pages.Show(w, r, "store", layout.View{Title: store.Name, Data: page, Refused: refused})
}

func storeOf(r *http.Request) (account delivery.AccountID, id string, err error) {
	if account, err = accountID(r); err == nil {
		id, err = storeID(r)
	}
	return account, id, err
}

// actOnStore is one change of a store and the way back to where it was asked
// for: the store's page, or its fleet's.
func (p *Pages) actOnStore(w http.ResponseWriter, r *http.Request, act, sentence string, body any) error {
	account, id, err := storeOf(r)
	if err != nil {
		return err
	}
	path := adminapi.Path("accounts", account.String(), "stores", id, act)
	if err := p.change(r, http.MethodPost, path, body, nil); err != nil {
		return p.answerStore(w, r, err)
	}
	if fleet, err := delivery.ParseFleetID(r.PostForm.Get("backToFleet")); err == nil {
		return layout.Redirect(w, r, fleetPath(fleet), sentence)
	}
	return layout.Redirect(w, r, layout.StorePath(account, id, ""), sentence)
}

// confirmStore is POST …/confirm on behalf of the fleet that the page showed.
func (p *Pages) confirmStore(w http.ResponseWriter, r *http.Request) error {
	return p.actOnStore(w, r, "confirm", "store-confirmed", map[string]string{"fleetId": r.PostForm.Get("fleetId")})
}

// rejectStore is POST …/reject, the same fleet's no, with the reason that the
// vendor is told.
func (p *Pages) rejectStore(w http.ResponseWriter, r *http.Request) error {
	return p.actOnStore(w, r, "reject", "store-rejected", map[string]string{"fleetId": r.PostForm.Get("fleetId"), "reason": r.PostForm.Get("because")})
}

// migrateStore is POST …/migrate.
func (p *Pages) migrateStore(w http.ResponseWriter, r *http.Request) error {
	return p.actOnStore(w, r, "migrate", "store-migrating", map[string]string{"closingDate": r.PostForm.Get("closingDate")})
}

// deactivateStore is POST …/deactivate.
func (p *Pages) deactivateStore(w http.ResponseWriter, r *http.Request) error {
	return p.actOnStore(w, r, "deactivate", "store-deactivated", map[string]string{"reason": r.PostForm.Get("reason")})
}
