package admin

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

const (
	accountsShown = 40 // on a page of the list
	storesOnPage  = 20 // on the pages of accounts and fleets
)

type accountList struct {
	formPage
	Text      string
	Accounts  []*delivery.Account
	Uses      [][]ledger.EndpointUse // of each of them
	Pager     layout.Pager
	Suspended int // of all that were found
	Excessive int
}

func (p *Pages) listAccounts(w http.ResponseWriter, r *http.Request, o outcome) error {
	all, err := p.lists.Accounts.Get(r.Context())
	if err != nil {
		return err
	}
	query := layout.FiltersOf(r, "text", "page")
	list := &accountList{formPage: newFormPage(r, o), Text: query.Get("text")}
	var ranked [3][]*delivery.Account
	for _, a := range all {
		if matches(list.Text, a.Name, a.ID.String(), a.ID.ClientID()) {
			rank := accountRank(a)
			ranked[rank] = append(ranked[rank], a)
			if a.Suspended {
				list.Suspended++
			}
		}
	}
	list.Excessive = len(ranked[0])
	list.Accounts, list.Pager = layout.Cut(slices.Concat(ranked[:]...), accountsShown, "/accounts", query)
	ids := make([]delivery.AccountID, len(list.Accounts))
	for i, a := range list.Accounts {
		ids[i] = a.ID
	}
	if list.Uses, err = p.ledger.Monitor.Usage(r.Context(), ids); err != nil {
		return err
	}
	return p.pages.Show(w, r, "accounts", layout.View{Title: "Accounts", Data: list, Refused: cmp.Or(o.refused, query.Err())})
}

// accountRank puts accounts in sustained excess first, then suspended ones.
func accountRank(a *delivery.Account) int {
	switch {
	case !a.ExcessSince.IsZero():
		return 0
	case a.Suspended:
		return 1
	}
	return 2
}

type accountPage struct {
	formPage
	Account    *delivery.Account
	Limits     []limitRow
	Earlier    earlierSecrets
	Stores     []storeRow // the first ones
	MoreStores bool
	Receiver   *receiver // nil: none is registered
}

func (p *Pages) showAccount(w http.ResponseWriter, r *http.Request, o outcome) error {
	page := &accountPage{formPage: newFormPage(r, o)}
	var err error
	if page.Account, page.Limits, err = p.accountLimits(r); err != nil {
		return err
	}
	id := page.Account.ID
	page.Earlier = earlierOf(page.Account.EarlierSecrets)
	stores, more, err := p.ledger.Stores.Find(r.Context(), ledger.StoreFilter{Account: id}, storesOnPage)
	if err != nil {
		return err
	}
	page.Stores, page.MoreStores = storeRows(stores, layout.Names{id.String(): page.Account.Name}), more
	if page.Receiver, err = p.receiver(r, page.Account); err != nil {
		return err
	}
	return p.pages.Show(w, r, "account", layout.View{Title: page.Account.Name, Data: page, Refused: o.refused})
}

func (p *Pages) showUse(w http.ResponseWriter, r *http.Request, _ outcome) error {
	_, limits, err := p.accountLimits(r)
	if err != nil {
		return err
	}
	return p.pages.Part(w, r, "use", limits)
}

func (p *Pages) account(r *http.Request) (*delivery.Account, error) {
	id, err := accountID(r)
	if err != nil {
		return nil, err
	}
	return p.ledger.Accounts.Get(r.Context(), id)
}

func (p *Pages) accountVersion(r *http.Request) (uint64, error) {
	account, err := p.account(r)
	if err != nil {
		return 0, err
	}
	return account.Revision, nil
}

func (p *Pages) accountLimits(r *http.Request) (*delivery.Account, []limitRow, error) {
	account, err := p.account(r)
	if err != nil {
		return nil, nil, err
	}
	uses, err := p.ledger.Monitor.Usage(r.Context(), []delivery.AccountID{account.ID})
	if err != nil {
		return nil, nil, err
	}
	return account, limitRows(account.Limits, uses[0], r.PostForm), nil
}

// earlierSecrets are how many replaced secrets still work, the last one until Until.
type earlierSecrets struct {
	Count int
	Until time.Time
}

func earlierOf(untils []time.Time) (e earlierSecrets) {
	for _, until := range untils {
		if time.Now().Before(until) {
			e.Count++
			e.Until = slices.MaxFunc([]time.Time{e.Until, until}, time.Time.Compare)
		}
	}
	return e
}

// limitRow is a window of the limits: limits.orders.sustained.
type limitRow struct {
	Path, ID string // the API's name, and an element's
	Endpoint ledger.Endpoint
	Kind     string // sustained or burst
	// Count and Seconds are the inputs' values; empty: there is no such window.
	Count, Seconds string
	Shown          string          // as the form notes it, to find what was changed
	Default        delivery.Window // of a new account; a zero Count: none
	Use            ledger.WindowUse
}

// limitRows are both windows of each endpoint, changed ones as they were typed. uses is in
// the ledger's order and may be nil.
func limitRows(limits delivery.Limits, uses []ledger.EndpointUse, form url.Values) (rows []limitRow) {
	ofEndpoints := func(l delivery.Limits) []delivery.EndpointLimit {
		return []delivery.EndpointLimit{l.Orders, l.OrderStatus, l.Cancel, l.Stores, l.Token}
	}
	defaults := ofEndpoints(delivery.DefaultLimits())
	for i, limit := range ofEndpoints(limits) {
		use := ledger.EndpointUse{}
		if i < len(uses) {
			use = uses[i]
		}
		for _, w := range []struct {
			kind           string
			stored, preset delivery.Window
			use            ledger.WindowUse
		}{
			{"sustained", limit.Sustained, defaults[i].Sustained, use.Sustained}, {"burst", limit.Burst, defaults[i].Burst, use.Burst},
		} {
			row := limitRow{Endpoint: ledger.Endpoint(i), Kind: w.kind, Default: w.preset, Use: w.use,
				Count: inputOf(w.stored.Count), Seconds: inputOf(w.stored.Seconds)}
			row.Path = "limits." + row.Endpoint.String() + "." + w.kind
			row.ID, row.Shown = strings.ReplaceAll(row.Path, ".", "-"), windowNote(row.Count, row.Seconds)
			if windowChanged(form, row.Path) {
				row.Count, row.Seconds, row.Shown = form.Get(row.Path+".count"), form.Get(row.Path+".seconds"), form.Get(row.Path+shownSuffix)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func windowNote(count, seconds string) string {
	if count == "" && seconds == "" {
		return ""
	}
	return count + " in " + seconds + " s"
}

// windowChanged is changedIn for the two fields of a window, which have one note.
func windowChanged(form url.Values, path string) bool {
	held := windowNote(strings.TrimSpace(form.Get(path+".count")), strings.TrimSpace(form.Get(path+".seconds")))
	return form.Has(path+".count") && held != form.Get(path+shownSuffix)
}

// changedLimits are the changed windows as the API takes them. Emptied fields are sent
// as they are, for the API to refuse.
func changedLimits(form url.Values) map[string]map[string]any {
	changed := map[string]map[string]any{}
	for _, row := range limitRows(delivery.Limits{}, nil, form) {
		if !windowChanged(form, row.Path) {
			continue
		}
		endpoint := row.Endpoint.String()
		if changed[endpoint] == nil {
			changed[endpoint] = map[string]any{}
		}
		changed[endpoint][row.Kind] = map[string]any{"count": number(row.Count), "seconds": number(row.Seconds)}
	}
	return changed
}

func (l limitRow) High() int { return int(math.Ceil(0.8 * float64(l.Use.Window.Count))) }

// inputOf is the value of an input for a number; empty for 0, which is none.
func inputOf(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
