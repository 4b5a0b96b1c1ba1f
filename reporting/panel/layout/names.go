package layout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/cache"
)

// Lists are what many pages show, read once for all who look.
type Lists struct {
	Accounts  cache.Cache[[]*delivery.Account] // by name
	Endpoints cache.Cache[[]*ledger.WebhookEndpoint]
	ledger    *ledger.Ledger
}

func newLists(l *ledger.Ledger) *Lists {
	const timeout = 10 * time.Second
	return &Lists{ledger: l,
		Accounts:  cache.Cache[[]*delivery.Account]{MaxAge: 5 * time.Second, Timeout: timeout, Read: l.Accounts.List},
		Endpoints: cache.Cache[[]*ledger.WebhookEndpoint]{MaxAge: 3 * time.Second, Timeout: timeout, Read: l.Webhooks.Endpoints}}
}

// Fleets are all fleets, by name; with an error those that were read before.
func (l *Lists) Fleets(ctx context.Context) ([]*delivery.Fleet, error) {
	err := l.ledger.Fleets.Load(ctx)
	known := l.ledger.Fleets.Snapshot()
	if known == nil {
		return nil, err
	}
	return known.All(), err
}

// Names are those of all accounts or of all fleets, by id.
type Names map[string]string

// AccountNames are empty with an error.
func (l *Lists) AccountNames(ctx context.Context) (Names, error) {
	accounts, err := l.Accounts.Get(ctx)
	return NamesOf(accounts), err
}

// NamesOf are the accounts' names.
func NamesOf(accounts []*delivery.Account) Names {
	names := Names{}
	for _, a := range accounts {
		names[a.ID.String()] = a.Name
	}
	return names
}

// FleetNames are those of Fleets.
func (l *Lists) FleetNames(ctx context.Context) (Names, error) {
	fleets, err := l.Fleets(ctx)
	names := Names{}
	for _, f := range fleets {
		names[f.ID.String()] = f.Name
	}
	return names, err
}

// Find is the id of what was typed: an id as it is, or the name of exactly one, in
// any case. What is neither stays as it is, to be refused.
func (n Names) Find(typed string) string {
	if _, known := n[typed]; known || typed == "" {
		return typed
	}
	for _, as := range []func(string) string{strings.Clone, delivery.FoldName} {
		var found []string
		for id, name := range n {
			if as(name) == as(typed) {
				found = append(found, id)
			}
		}
		if len(found) == 1 {
			return found[0]
		}
	}
	return typed
}

// Of is a name, or the beginning of the id where there is none.
func (n Names) Of(id fmt.Stringer, kind string) string {
	return cmp.Or(n[id.String()], kind+Short(id))
}

// Known fails for an id that nobody has.
func (n Names) Known(id string) error {
	if _, known := n[id]; !known {
		return errUnknown
	}
	return nil
}

var errUnknown = errors.New("nobody has this id")

// Choices are the options by name, also of what was chosen and has no name; nil for
// none and for more than most: then an id or a name is typed. Equal names get their ids.
func (n Names) Choices(chosen string, most int) []Choice {
	if len(n) == 0 || len(n) > most {
		return nil
	}
	var all []Choice
	times := map[string]int{}
	for id, name := range n {
		times[name]++
		all = append(all, Choice{Value: id, Name: name, Chosen: id == chosen})
	}
	for i := range all {
		if c := &all[i]; times[c.Name] > 1 {
			c.Name += " · " + Short(c.Value)
		}
	}
	slices.SortFunc(all, func(a, b Choice) int {
		return cmp.Or(strings.Compare(delivery.FoldName(a.Name), delivery.FoldName(b.Name)), strings.Compare(a.Value, b.Value))
	})
	if _, known := n[chosen]; chosen != "" && !known {
		all = append(all, Choice{Value: chosen, Name: chosen, Chosen: true})
	}
	return all
}
