package admin

import (
	"cmp"
	"context"
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
	Accounts  []accountRow
	Pager     layout.Pager
	Suspended int // of all that were found
	Excessive int
}

type accountRow struct {
	*delivery.Account
	Orders ledger.EndpointUse
}

func (p *Pages) listAccounts(w http.ResponseWriter, r *http.Request, o outcome) error {
	all, err := p.accounts.Get(r.Context())
	if err != nil {
		return err
	}
	query := layout.FiltersOf(r, "text", "page")
	list := &accountList{formPage: newFormPage(r, o), Text: query.Get("text")}
	wanted := search(list.Text)
	all = slices.DeleteFunc(slices.Clone(all), func(a *delivery.Account) bool {
		return !matches(wanted, a.Name, a.ID.String(), a.ID.ClientID())
	})
	for _, a := range all {
		if a.Suspended {
			list.Suspended++
		}
		if !a.ExcessSince.IsZero() {
			list.Excessive++
		}
	}
	slices.SortStableFunc(all, func(a, b *delivery.Account) int { return cmp.Compare(accountRank(a), accountRank(b)) })
	all, list.Pager = layout.Cut(all, accountsShown, "/accounts", query)
	if list.Accounts, err = p.withUse(r.Context(), all); err != nil {
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

func (p *Pages) withUse(ctx context.Context, accounts []*delivery.Account) ([]accountRow, error) {
	ids := make([]delivery.AccountID, len(accounts))
	for i, a := range accounts {
		ids[i] = a.ID
	}
	uses, err := p.ledger.Monitor.Usage(ctx, ids)
	if err != nil {
		return nil, err
	}
	rows := make([]accountRow, len(accounts))
	for i, a := range accounts {
		rows[i].Account = a
		for _, use := range uses[i] {
			if use.Endpoint == ledger.EndpointOrders {
				rows[i].Orders = use
			}
		}
	}
	return rows, nil
}

type accountPage struct {
	formPage
	Account    *delivery.Account
	Limits     []limitRow
	Stores     []storeRow // the first ones
	MoreStores bool
	Receiver   *receiver // nil: none is registered
}

func (page *accountPage) Earlier() earlierSecrets { return earlierOf(page.Account.EarlierSecrets) }

func (p *Pages) showAccount(w http.ResponseWriter, r *http.Request, o outcome) error {
	page := &accountPage{formPage: newFormPage(r, o)}
	var err error
	if page.Account, page.Limits, err = p.accountLimits(r); err != nil {
		return err
	}
	keepTyped(page.Limits, r.PostForm)
	id := page.Account.ID
	stores, more, err := p.ledger.Stores.Find(r.Context(), ledger.StoreFilter{Account: id}, storesOnPage)
	if err != nil {
		return err
	}
	page.Stores, page.MoreStores = storeRows(stores, map[delivery.AccountID]string{id: page.Account.Name}), more
	if page.Receiver, err = p.receiver(r.Context(), page.Account); err != nil {
		return err
	}
	if page.Issued != nil {
		page.Issued.Name = page.Account.Name
	}
	return p.pages.Show(w, r, "account", layout.View{Title: page.Account.Name, Data: page, Refused: o.refused})
}

func (p *Pages) showUse(w http.ResponseWriter, r *http.Request) error {
	_, limits, err := p.accountLimits(r)
	if err != nil {
		return err
	}
	return p.pages.Part(w, r, "use", limits)
}

func (p *Pages) accountLimits(r *http.Request) (*delivery.Account, []limitRow, error) {
	id, err := accountID(r)
	if err != nil {
		return nil, nil, err
	}
	account, err := p.ledger.Accounts.Get(r.Context(), id)
	if err != nil {
		return nil, nil, err
	}
	uses, err := p.ledger.Monitor.Usage(r.Context(), []delivery.AccountID{id})
	if err != nil {
		return nil, nil, err
	}
	return account, limitRows(account.Limits, uses[0]), nil
}

func newAccount(r *http.Request) action {
	return action{body: map[string]any{"name": r.PostForm.Get("name")}}
}

func renameAccount(r *http.Request) action {
	return action{body: changes(r.PostForm, plainText, "name"), done: "account-renamed"}
}

func setAccountState(r *http.Request) action {
	return setFlag(r, "suspended", "account-suspended", "account-resumed")
}

func limitAccount(r *http.Request) action {
	body := map[string]any{}
	if changed := changedLimits(r.PostForm); len(changed) > 0 {
		body["limits"] = changed
	}
	return action{body: body, done: "account-limited"}
}

// newClientSecret is for the version of the account that the page showed, so that
// what is ended is what the page said.
func (p *Pages) newClientSecret(revoke bool) func(*http.Request) action {
	return func(r *http.Request) action {
		a := rotation("/credentials", revoke)
		id, err := accountID(r)
		if err == nil {
			var account *delivery.Account
			if account, err = p.ledger.Accounts.Get(r.Context(), id); err == nil {
				err = sameVersion(r, account.Revision)
			}
		}
		a.err = err
		return a
	}
}

func rotation(path string, revoke bool) action {
	a := action{method: http.MethodPost, path: path, revoke: revoke}
	if revoke {
		a.body = map[string]any{"revokeOld": true}
	}
	return a
}

// earlierSecrets are how many replaced secrets still work, the last one until Until.
type earlierSecrets struct {
	Count int
	Until time.Time
}

func earlierOf(untils []time.Time) (e earlierSecrets) {
	for _, until := range untils {
		if !time.Now().Before(until) {
			continue
		}
		if e.Count++; until.After(e.Until) {
			e.Until = until
		}
	}
	return e
}
