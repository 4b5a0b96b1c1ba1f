package dashboard

import (
	"context"
	"math"
	"net/http"
	"net/url"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
)

const (
	mostRefused  = 1000 // refused updates that are read
	entriesShown = 100  // on the pages of refused updates and dead letters
)

type refusedView struct {
	Lost    []string
	Fleets  []layout.Choice
	Fleet   string
	Rows    []refusedRow
	More    bool
	Finance bool // who looks may see the exceptions
	Read    bool
}

type refusedRow struct {
	ledger.RefusedUpdate
	AccountName, FleetName string
	Kind                   string // of the update; empty: it cannot be read
}

func (p *Pages) readRefused(ctx context.Context) ([]ledger.RefusedUpdate, error) {
	return p.ledger.Monitor.RefusedUpdates(ctx, mostRefused)
}

func (p *Pages) refusedUpdates(w http.ResponseWriter, r *http.Request) error {
	v := &refusedView{Fleet: r.URL.Query().Get("fleet"), Finance: auth.IdentityOf(r.Context()).Roles.Include(auth.Finance)}
	query := layout.FiltersOf(r, "fleet")
	var only delivery.FleetID
	query.Read("fleet", "must be a fleet's id, a UUID of 36 characters", func(text string) (err error) {
		only, err = delivery.ParseFleetID(text)
		return err
	})
	var updates []ledger.RefusedUpdate
	var fleets, accounts layout.Names
	parts := p.reading(r.Context())
	parts.part("refused updates", func(ctx context.Context) (err error) {
		updates, err = p.readRefused(ctx)
		v.Read = err == nil
		return err
	})
	read(parts, "names of fleets", &fleets, p.lists.FleetNames)
	read(parts, "names of accounts", &accounts, p.lists.AccountNames)
	v.Lost = parts.wait()
	v.Fleets = fleets.Choices(query.Get("fleet"), math.MaxInt)
	for _, u := range updates {
		if !only.IsZero() && u.Update.Fleet != only {
			continue
		}
		if v.More = len(v.Rows) == entriesShown; v.More {
			break
		}
		row := refusedRow{RefusedUpdate: u, Kind: kinds[u.Update.Kind], FleetName: fleets.Of(u.Update.Fleet, "fleet ")}
		if !u.Account.IsZero() {
			row.AccountName = accounts.Of(u.Account, "account ")
		}
		v.Rows = append(v.Rows, row)
	}
	return p.pages.Show(w, r, "refused-updates", layout.View{Title: "Refused updates", Refused: query.Err(), Data: v})
}

var kinds = map[delivery.UpdateKind]string{delivery.KindAccept: "accept", delivery.KindSwap: "swap", delivery.KindStatus: "status"}

// Unreadable reports that no more than the time and the reason are known.
func (r refusedRow) Unreadable() bool { return r.Update.Order.IsZero() }

// Exceptions leads to finance's list of the day on which the order was created.
func (r refusedRow) Exceptions() string {
	from, to := creationDays(r.Update.Order)
	query := url.Values{"from": {layout.ISODay(from)}, "to": {layout.ISODay(to)}}
	if !r.Account.IsZero() {
		query.Set("account", r.Account.String())
	}
	return layout.Address("/payments/exceptions", query)
}

type lettersView struct {
	Lost    []string
	Read    bool
	Letters []ledger.DeadLetter
	More    bool
}

func (p *Pages) deadLetters(w http.ResponseWriter, r *http.Request) error {
	v := new(lettersView)
	parts := p.reading(r.Context())
	parts.part("dead letters", func(ctx context.Context) error {
		letters, err := p.ledger.Monitor.DeadLetters(ctx, entriesShown+1)
		v.Read, v.More = err == nil, len(letters) > entriesShown
		v.Letters = letters[:min(len(letters), entriesShown)]
		return err
	})
	v.Lost = parts.wait()
	return p.pages.Show(w, r, "dead-letters", layout.View{Title: "Dead letters", Data: v})
}
