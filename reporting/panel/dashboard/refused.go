package dashboard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
)

const (
	mostRefused  = 1000 // refused updates that are read
	entriesShown = 100  // on the pages of refused updates and dead letters
)

// refusedView is what the template "refused-updates" shows.
type refusedView struct {
	Lost    []string
	Fleets  []layout.Choice
	Fleet   string
	Rows    []refusedRow
	More    bool
	Finance bool // who looks may see the exceptions
	Read    bool
}

// refusedRow is an update that was refused.
type refusedRow struct {
	ledger.RefusedUpdate
	AccountName, FleetName string
	// Unreadable says that no more than the time and the reason are known.
	Unreadable bool
}

func (p *Pages) readRefused(ctx context.Context) ([]ledger.RefusedUpdate, error) {
	return p.ledger.Monitor.RefusedUpdates(ctx, mostRefused)
}

func (p *Pages) refusedUpdates(w http.ResponseWriter, r *http.Request) error {
	v := &refusedView{Fleet: r.URL.Query().Get("fleet")}
	var only delivery.FleetID
	var refused error
	if v.Fleet != "" {
		var err error
		if only, err = delivery.ParseFleetID(v.Fleet); err != nil {
			refused = layout.Invalid("this filter cannot be understood", delivery.FieldError{Field: "fleet", Message: "must be a fleet's id, a UUID of 36 characters"})
		}
	}
	var updates []ledger.RefusedUpdate
	var fleets []*delivery.Fleet
	var names accountNames
	parts := p.reading(r.Context())
	parts.part("refused updates", func(ctx context.Context) (err error) {
		updates, err = p.readRefused(ctx)
		v.Read = err == nil
		return err
	})
	read(parts, "names of fleets", &fleets, p.fleets)
	read(parts, "names of accounts", &names, p.accountNames)
	v.Lost = parts.wait()
	v.take(updates, only, names, v.offer(fleets, only))
	identity := auth.IdentityOf(r.Context())
	v.Finance = identity.Roles.Include(auth.Finance)
	return p.pages.Show(w, r, "refused-updates", layout.View{Title: "Refused updates", Refused: refused, Data: v})
}

// offer lists the fleets to choose from, and returns their names.
func (v *refusedView) offer(fleets []*delivery.Fleet, chosen delivery.FleetID) map[delivery.FleetID]string {
	names := make(map[delivery.FleetID]string, len(fleets))
	v.Fleets = []layout.Choice{{Name: "all", Chosen: chosen.IsZero()}}
	for _, f := range fleets {
		names[f.ID] = f.Name
		v.Fleets = append(v.Fleets, layout.Choice{Value: f.ID.String(), Name: f.Name, Chosen: f.ID == chosen})
	}
	if !chosen.IsZero() && names[chosen] == "" {
		v.Fleets = append(v.Fleets, layout.Choice{Value: chosen.String(), Name: "fleet " + layout.Short(chosen), Chosen: true})
	}
	return names
}

func (v *refusedView) take(updates []ledger.RefusedUpdate, only delivery.FleetID, accounts accountNames, fleets map[delivery.FleetID]string) {
	for _, u := range updates {
		if !only.IsZero() && u.Update.Fleet != only {
			continue
		}
		if len(v.Rows) == entriesShown {
			v.More = true
			return
		}
		row := refusedRow{RefusedUpdate: u, Unreadable: u.Update.Order.IsZero(), FleetName: cmp.Or(fleets[u.Update.Fleet], "fleet "+layout.Short(u.Update.Fleet))}
		if !u.Account.IsZero() {
			row.AccountName = accounts.of(u.Account)
		}
		v.Rows = append(v.Rows, row)
	}
}

// Reported is what the courier's fleet reported.
func (r *refusedRow) Reported() string {
	switch r.Update.Kind {
	case delivery.KindAccept:
		return "takes the job"
	case delivery.KindSwap:
		return "another courier"
	case delivery.KindStatus:
		if r.Update.Failure != "" {
			return r.Update.Status.String() + ", " + string(r.Update.Failure)
		}
		return r.Update.Status.String()
	}
	return "cannot be read"
}

// IsStatus reports whether a status was reported.
func (r *refusedRow) IsStatus() bool { return r.Update.Kind == delivery.KindStatus }

// Exceptions leads to finance's list of the day on which the order was created.
func (r *refusedRow) Exceptions() string {
	from, to := creationDays(r.Update.Order)
	query := url.Values{"from": {dateText(from)}, "to": {dateText(to)}}
	if !r.Account.IsZero() {
		query.Set("account", r.Account.String())
	}
	return layout.Address("/payments/exceptions", query)
}

// lettersView is what the template "dead-letters" shows.
type lettersView struct {
	Lost    []string
	Read    bool
	Letters []letter
	More    bool
}

// letter is an entry that nobody could read or handle.
type letter struct {
	ledger.DeadLetter
	Order delivery.OrderID // zero: it names none
	Lines []field
}

type field struct{ Name, Value string }

func (p *Pages) deadLetters(w http.ResponseWriter, r *http.Request) error {
	v := new(lettersView)
	parts := p.reading(r.Context())
	parts.part("dead letters", func(ctx context.Context) error {
		letters, err := p.ledger.Monitor.DeadLetters(ctx, entriesShown+1)
		v.Read, v.More = err == nil, len(letters) > entriesShown
		for _, l := range letters[:min(len(letters), entriesShown)] {
			v.Letters = append(v.Letters, letterOf(l))
		}
		return err
	})
	v.Lost = parts.wait()
	return p.pages.Show(w, r, "dead-letters", layout.View{Title: "Dead letters", Data: v})
}

func letterOf(l ledger.DeadLetter) letter {
	shown := letter{DeadLetter: l}
	for _, name := range slices.Sorted(maps.Keys(l.Fields)) {
		if id, err := delivery.ParseOrderID(l.Fields[name]); name == "order" && err == nil {
			shown.Order = id
			continue
		}
		shown.Lines = append(shown.Lines, field{name, l.Fields[name]})
	}
	return shown
}
