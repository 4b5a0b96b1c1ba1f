package finance

import (
	"cmp"
	"context"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

const (
	// directoryTimeout is how long a page waits for names, which it can do without.
	directoryTimeout = 2 * time.Second
	// maxChoices is how many names a page lists; beyond that a name is typed.
	maxChoices = 100
)

// parties are all there are, by name; empty while Redis is unavailable.
type parties struct {
	all   []layout.Choice
	names map[string]string // by id
}

type directory struct{ Accounts, Fleets parties }

// directory reads the names. What cannot be read is empty, and said in the log.
func (p *Pages) directory(ctx context.Context) *directory {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	var d directory
	var group errgroup.Group
	group.Go(func() error {
		accounts, err := p.ledger.Accounts.List(ctx)
		for _, a := range accounts {
			d.Accounts.add(a.ID.String(), a.Name)
		}
		return err
	})
	group.Go(func() error {
		if err := p.ledger.Fleets.Load(ctx); err != nil && p.ledger.Fleets.Snapshot() == nil {
			return err
		}
		for _, f := range p.ledger.Fleets.Snapshot().All() {
			d.Fleets.add(f.ID.String(), f.Name)
		}
		return nil
	})
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		p.log.Warn("names cannot be read; the filters take ids", "error", err)
	}
	return &d
}

func (ps *parties) add(id, name string) {
	if ps.names == nil {
		ps.names = map[string]string{}
	}
	ps.all = append(ps.all, layout.Choice{Value: id, Name: name})
	ps.names[id] = name
}

// name is that of an id; the id itself when nothing is known of it.
func (ps *parties) name(id string) string {
	if name := ps.names[id]; name != "" {
		return name
	}
	return id
}

// labelOr is the name of an id, else the one that it had, else its beginning.
func (ps *parties) labelOr(id, earlier string) string {
	return cmp.Or(ps.names[id], earlier, layout.Short(id)+"…")
}

// find is the id of what was typed: an id as it is, or the name of exactly one, in
// any case. What is neither stays as it is, to be refused.
func (ps *parties) find(typed string) string {
	if _, known := ps.names[typed]; known || typed == "" {
		return typed
	}
	folded := delivery.FoldName(typed)
	for _, is := range []func(name string) bool{
		func(name string) bool { return name == typed },
		func(name string) bool { return delivery.FoldName(name) == folded },
	} {
		var found []string
		for i := range ps.all {
			if is(ps.all[i].Name) {
				found = append(found, ps.all[i].Value)
			}
		}
		if len(found) == 1 {
			return found[0]
		}
	}
	return typed
}

// named has ids in the place of the names of accounts and fleets.
func (d *directory) named(v reports.Values) reports.Values {
	v.Account, v.Fleet = d.Accounts.find(v.Account), d.Fleets.find(v.Fleet)
	return v
}

// Named reads the parameters of downloads, with ids or names. unknown: nobody in Redis has
// such an id or name, so a report without rows is a mistake.
func (p *Pages) Named(ctx context.Context, v reports.Values, now time.Time) (params reports.Params, unknown *delivery.FieldError, err error) {
	known := &directory{}
	if v.Account != "" || v.Fleet != "" {
		known = p.directory(ctx)
	}
	if params, err = known.named(v).Parse(now); err != nil {
		return reports.Params{}, nil, err
	}
	return params, p.findNames(ctx, known, &params), nil
}

// findNames adds the names of account and fleet, and the id of a store given by its name.
func (p *Pages) findNames(ctx context.Context, known *directory, params *reports.Params) (unknown *delivery.FieldError) {
	if id := params.Account; !id.IsZero() {
		if params.AccountName = known.Accounts.names[id.String()]; params.AccountName == "" && len(known.Accounts.all) > 0 {
			unknown = &delivery.FieldError{Field: "account", Message: "Unknown account: no account has the id " + id.String() + "."}
		}
	}
	if id := params.Fleet; !id.IsZero() {
		if params.FleetName = known.Fleets.names[id.String()]; params.FleetName == "" && len(known.Fleets.all) > 0 {
			unknown = &delivery.FieldError{Field: "fleet", Message: "Unknown fleet: no fleet has the id " + id.String() + "."}
		}
	}
	id, found := p.storeID(ctx, params.Account, params.Store)
	if params.Store = id; !found {
		unknown = &delivery.FieldError{Field: "store", Message: "Unknown store: no store has the id or the name “" + id + "”. Ids are compared letter by letter, capitals included."}
	}
	return unknown
}

// storeID is the id of a store that was typed: an id as it is, or the name of stores that
// all have one id. known: it is one of both, or that cannot be told now.
func (p *Pages) storeID(ctx context.Context, account delivery.AccountID, typed string) (id string, known bool) {
	if typed == "" || !utf8.ValidString(typed) {
		return typed, true
	}
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	found, more, err := p.ledger.Stores.Find(ctx, ledger.StoreFilter{Account: account, Text: typed}, maxStores)
	if err != nil {
		p.log.Warn("stores cannot be read; the filter takes ids", "error", err)
		return typed, true
	}
	folded, ids := delivery.FoldName(typed), map[string]bool{}
	for _, s := range found {
		if s.ExternalID == typed {
			return typed, true
		}
		if delivery.FoldName(s.Name) == folded {
			ids[s.ExternalID], id = true, s.ExternalID
		}
	}
	if len(ids) == 1 && !more {
		return id, true
	}
	return typed, more
}

// maxStores is among how many similar stores it is looked for.
const maxStores = 1000

// choice is the field of the filters that asks for an account or a fleet.
type choice struct {
	Field, Label, Value string
	// Options is nil when there are too many or none is known, and the value is typed.
	Options []layout.Choice
}

func (ps *parties) choice(field, label, value string) choice {
	c := choice{Field: field, Label: label, Value: value}
	if len(ps.all) == 0 || len(ps.all) > maxChoices {
		return c
	}
	times := map[string]int{}
	for i := range ps.all {
		times[ps.all[i].Name]++
	}
	for _, one := range ps.all {
		if times[one.Name] > 1 {
			one.Name += " · " + layout.Short(one.Value)
		}
		one.Chosen = one.Value == value
		c.Options = append(c.Options, one)
	}
	if value != "" && ps.names[value] == "" {
		c.Options = append(c.Options, layout.Choice{Value: value, Name: value, Chosen: true})
	}
	return c
}

// stores are the first maxChoices of an account; nil without an account or Redis.
func (p *Pages) stores(ctx context.Context, account delivery.AccountID) []layout.Choice {
	if account.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	found, _, err := p.ledger.Stores.Find(ctx, ledger.StoreFilter{Account: account}, maxChoices)
	if err != nil {
		p.log.Warn("stores cannot be read", "account", account.String(), "error", err)
		return nil
	}
	var stores []layout.Choice
	for _, s := range found {
		stores = append(stores, layout.Choice{Value: s.ExternalID, Name: s.Name})
	}
	return stores
}
