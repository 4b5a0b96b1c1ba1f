package finance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

const maxTyped = 100 // characters of a value; no right one is longer

type filters struct {
	Typed   reports.Values // as they came, with the period that stands for none
	params  reports.Params
	page    int
	refused bool // the values make no sense, and stand in Typed all the same
}

// readFilters: VALIDATION_FAILED, where refused is set, or MALFORMED_REQUEST.
func readFilters(r *http.Request, known *directory, now time.Time) (f filters, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return filters{}, delivery.Refuse(delivery.CodeMalformedRequest, "the address cannot be read")
	}
	var wrong reports.ParamErrors
	f.Typed, wrong = reports.ReadValues(query, "filter", "page")
	f.Typed = f.Typed.Map(func(value string) string { return layout.Beginning(value, maxTyped) })
	f.page, _ = strconv.Atoi(query.Get("page")) // what is no number is the first page
	values := known.named(f.Typed)
	if len(wrong) == 0 {
		f.params, err = values.Parse(now)
	}
	if len(wrong) > 0 || errors.As(err, &wrong) {
		return f.refuse(), layout.Invalid(senseless, wrong...)
	}
	f.Typed = values
	f.Typed.From, f.Typed.To = f.params.From.String(), f.params.To.String()
	return f, err
}

func (f filters) refuse() filters {
	f.refused = true
	f.Typed = f.Typed.Map(func(value string) string { return strings.ToValidUTF8(value, "\uFFFD") })
	return f
}

const senseless = "Nothing is shown, because the period or a filter cannot be right."

func address(path string, v reports.Values) string { return layout.Address(path, v.Query()) }

func (f *filters) shortcuts(path string, now time.Time) []layout.Link {
	today := reports.DayOf(now)
	month := today.FirstOfMonth()
	var links []layout.Link
	for _, s := range []struct {
		name     string
		from, to reports.Day
	}{
		{"Today", today, today}, {"Yesterday", today - 1, today - 1}, {"Last 7 days", today - 6, today},
		{"This month", month, today}, {"Last month", (month - 1).FirstOfMonth(), month - 1},
	} {
		v := f.Typed
		v.From, v.To = s.from.String(), s.to.String()
		links = append(links, layout.Link{Name: s.name, Address: address(path, v), Current: v == f.Typed})
	}
	return links
}

const (
	directoryTimeout = 2 * time.Second // for names, which a page can do without
	maxChoices       = 100             // names that a page lists; beyond that a name is typed
	maxStores        = 1000            // similar ones among which a store is looked for
)

// directory has the names of all there are; they are empty while Redis is unavailable.
type directory struct{ Accounts, Fleets layout.Names }

// directory reads the names. What cannot be read is empty, and said in the log.
func (p *Pages) directory(ctx context.Context) *directory {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	var d directory
	var group errgroup.Group
	group.Go(func() (err error) {
		d.Accounts, err = p.lists.AccountNames(ctx)
		return err
	})
	group.Go(func() (err error) {
		d.Fleets, err = p.lists.FleetNames(ctx)
		return err
	})
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		p.log.Warn("names cannot be read; the filters take ids", "error", err)
	}
	return &d
}

func (d *directory) named(v reports.Values) reports.Values {
	v.Account, v.Fleet = d.Accounts.Find(v.Account), d.Fleets.Find(v.Fleet)
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
	find := func(what string, id interface {
		fmt.Stringer
		IsZero() bool
	}, names layout.Names) string {
		if name := names[id.String()]; id.IsZero() || name != "" || len(names) == 0 {
			return name
		}
		unknown = &delivery.FieldError{Field: what, Message: "Unknown " + what + ": no " + what + " has the id " + id.String() + "."}
		return ""
	}
	params.AccountName = find("account", params.Account, known.Accounts)
	params.FleetName = find("fleet", params.Fleet, known.Fleets)
	id, found := p.storeID(ctx, params.Account, params.Store)
	if params.Store = id; !found {
		unknown = &delivery.FieldError{Field: "store", Message: "Unknown store: no store has the id or the name “" + id + "”. Ids are compared letter by letter, capitals included."}
	}
	return unknown
}

// findStores is empty, and said in the log, while Redis is unavailable.
func (p *Pages) findStores(ctx context.Context, filter ledger.StoreFilter, most int) (found []*delivery.Store, more, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	found, more, err := p.ledger.Stores.Find(ctx, filter, most)
	if err != nil {
		p.log.Warn("stores cannot be read; the filter takes ids", "error", err)
	}
	return found, more, err == nil
}

// storeID is the id of a store that was typed: an id as it is, or the name of stores that
// all have one id. known: it is one of both, or that is not known now.
func (p *Pages) storeID(ctx context.Context, account delivery.AccountID, typed string) (id string, known bool) {
	if typed == "" || !utf8.ValidString(typed) {
		return typed, true
	}
	found, more, ok := p.findStores(ctx, ledger.StoreFilter{Account: account, Text: typed}, maxStores)
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
	return typed, more || !ok
}

// stores are the first maxChoices of an account; nil without an account or Redis.
func (p *Pages) stores(ctx context.Context, account delivery.AccountID) (stores []layout.Choice) {
	if account.IsZero() {
		return nil
	}
	found, _, _ := p.findStores(ctx, ledger.StoreFilter{Account: account}, maxChoices)
	for _, s := range found {
		stores = append(stores, layout.Choice{Value: s.ExternalID, Name: s.Name})
	}
	return stores
}
