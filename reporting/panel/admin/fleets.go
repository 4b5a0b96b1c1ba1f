package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/adminapi"
	"vendorapi/reporting/panel/layout"
)

// fleetsShown is how many fleets a page of the list has: each of them is asked
// for its stores, some at a time.
const (
	fleetsShown    = 25
	fleetsAskedFor = 4
)

// fleetList is the page /fleets.
type fleetList struct {
	action
	Text   string
	Fleets []fleetRow
	Pager  pager
	Issued *credentials
}

// fleetRow is a fleet with how many stores it has by state.
type fleetRow struct {
	*delivery.Fleet
	Active, Awaiting, Migrating int
	// Limited is when it was last refused for being over its limit; zero: never.
	Limited time.Time
}

// Status is what vendors see of the fleet, and why.
func (f fleetRow) Status() string { return fleetStatus(f.Fleet) }

// Tone is the status' colour.
func (f fleetRow) Tone() string { return fleetTone(f.Fleet) }

func fleetStatus(f *delivery.Fleet) string {
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

func fleetTone(f *delivery.Fleet) string {
	switch {
	case f.Disabled, f.Suspended:
		return "bad"
	case f.Couriers == 0:
		return "warn"
	}
	return "good"
}

// listFleets is GET /fleets?text=&page=.
func (p *Pages) listFleets(w http.ResponseWriter, r *http.Request) error {
	return p.answerFleets(w, r, nil, nil)
}

func (p *Pages) answerFleets(w http.ResponseWriter, r *http.Request, issued *credentials, refused error) error {
	if err := p.ledger.LoadFleets(r.Context()); err != nil {
		return err
	}
	query := filtersOf(r, "text", "page")
	list := &fleetList{action: newAction(r), Text: query.Get("text"), Issued: issued}
	var found []*delivery.Fleet
	wanted := search(list.Text)
	for _, f := range p.ledger.Fleets().All() {
		if matches(wanted, f.Name, f.SubRegion, f.ID.String()) {
			found = append(found, f)
		}
	}
	shown, pg := cut(found, fleetsShown, "/fleets", query)
	list.Pager = pg
	var err error
	if list.Fleets, err = p.withStores(r.Context(), shown); err != nil {
		return err
	}
	if refused == nil {
		refused = query.err()
	}
	return p.pages.Show(w, r, "fleets", layout.View{Title: "Fleets", Data: list, Refused: refused})
}

func (p *Pages) withStores(ctx context.Context, fleets []*delivery.Fleet) ([]fleetRow, error) {
	rows := make([]fleetRow, len(fleets))
	limited, err := p.ledger.LimitedFleets(ctx)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fleetsAskedFor)
	for i, f := range fleets {
		rows[i].Fleet, rows[i].Limited = f, limited[f.ID]
		group.Go(func() error {
			stores, err := p.ledger.FleetStores(ctx, f.ID, 0)
			rows[i].count(stores)
			return err
		})
	}
	return rows, group.Wait()
}

func (f *fleetRow) count(stores []*delivery.Store) {
	for _, s := range stores {
		if s.State == delivery.AwaitingFleetApproval {
			f.Awaiting++
		}
		if s.State == delivery.Active {
			f.Active++
			if !s.ClosingDate.IsZero() {
				f.Migrating++
			}
		}
	}
}

// createFleet is POST /fleets. The answer shows the client secret.
func (p *Pages) createFleet(w http.ResponseWriter, r *http.Request) error {
	body := fieldsOf(r.PostForm)
	body["coverage"] = coverageOf(r.PostForm.Get("coverage"))
	var made struct{ FleetID, ClientID, ClientSecret string }
	err := explainCoverage(p.change(r, http.MethodPost, adminapi.Path("fleets"), body, &made), r.PostForm.Get("coverage"))
	if err != nil {
		return p.answerFleets(w, r, nil, err)
	}
	name := r.PostForm.Get("name")
	r.PostForm = url.Values{} // what was typed is done with
	return p.answerFleets(w, r, &credentials{made.ClientID, made.ClientSecret, name, "/fleets/" + url.PathEscape(made.FleetID)}, nil)
}

// fieldsOf are a new fleet's fields but for its coverage. Pickup minutes that are
// left empty are the service's default.
func fieldsOf(form url.Values) map[string]any {
	body := map[string]any{
		"name": form.Get("name"), "subRegion": form.Get("subRegion"),
		"avgDeliveryMinutes": number(form.Get("avgDeliveryMinutes")),
	}
	if pickup := numberOrNull(form.Get("avgPickupMinutes")); pickup != nil {
		body["avgPickupMinutes"] = pickup
	}
	return body
}

// coverageOf is a pasted area as it goes into a body. What is no JSON goes as a
// text, which the API refuses; so does null, which there means that nothing is to
// be changed.
func coverageOf(pasted string) any {
	if json.Valid([]byte(pasted)) && strings.TrimSpace(pasted) != "null" {
		return json.RawMessage(pasted)
	}
	return pasted
}

// explainCoverage replaces what the API says of a coverage that was no JSON: it
// saw a text, and not where the JSON ended.
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
