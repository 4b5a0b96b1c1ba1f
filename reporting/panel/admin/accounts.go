package admin

import (
	"cmp"
	"net/http"
	"slices"
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
