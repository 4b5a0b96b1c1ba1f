package admin

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/adminapi"
	"vendorapi/reporting/panel/layout"
)

// accountsShown is how many accounts a page of the list has.
const accountsShown = 40

// credentials are what was just issued: shown once.
type credentials struct {
	ClientID, ClientSecret string
	// Name of whom they are for, and the way there.
	Name, Address string
}

// accountList is the page /accounts.
type accountList struct {
	action
	Text      string
	Accounts  []accountRow
	Pager     pager
	Suspended int // over all that were found
	Excessive int
	Issued    *credentials
}

// accountRow is an account with what it has used of its limit of orders.
type accountRow struct {
	*delivery.Account
	Orders ledger.EndpointUse
}

// listAccounts is GET /accounts?text=&page=.
func (p *Pages) listAccounts(w http.ResponseWriter, r *http.Request) error {
	return p.answerAccounts(w, r, nil, nil)
}

func (p *Pages) answerAccounts(w http.ResponseWriter, r *http.Request, issued *credentials, refused error) error {
	all, err := p.accounts.Get(r.Context())
	if err != nil {
		return err
	}
	query := filtersOf(r, "text", "page")
	list := &accountList{action: newAction(r), Text: query.Get("text"), Issued: issued}
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
	slices.SortStableFunc(all, noticeableFirst)
	shown, pg := cut(all, accountsShown, "/accounts", query)
	list.Pager = pg
	if list.Accounts, err = p.withUse(r, shown); err != nil {
		return err
	}
	if refused == nil {
		refused = query.err()
	}
	return p.pages.Show(w, r, "accounts", layout.View{Title: "Accounts", Data: list, Refused: refused})
}

// noticeableFirst puts accounts in sustained excess first, then suspended ones,
// then the others; within each, they stay by name.
func noticeableFirst(a, b *delivery.Account) int {
	rank := func(a *delivery.Account) int {
		switch {
		case !a.ExcessSince.IsZero():
			return 0
		case a.Suspended:
			return 1
		}
		return 2
	}
	return cmp.Compare(rank(a), rank(b))
}

func (p *Pages) withUse(r *http.Request, accounts []*delivery.Account) ([]accountRow, error) {
	ids := make([]delivery.AccountID, len(accounts))
	for i, a := range accounts {
		ids[i] = a.ID
	}
	uses, err := p.ledger.Usage(r.Context(), ids)
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

// createAccount is POST /accounts. The answer shows the client secret.
func (p *Pages) createAccount(w http.ResponseWriter, r *http.Request) error {
	var made struct{ AccountID, ClientID, ClientSecret string }
	name := r.PostForm.Get("name")
	err := p.change(r, http.MethodPost, adminapi.Path("accounts"), map[string]string{"name": name}, &made)
	if err != nil {
		return p.answerAccounts(w, r, nil, err)
	}
	r.PostForm = url.Values{} // what was typed is done with
	return p.answerAccounts(w, r, &credentials{made.ClientID, made.ClientSecret, name, "/accounts/" + url.PathEscape(made.AccountID)}, nil)
}

func accountPath(id delivery.AccountID) string { return "/accounts/" + id.String() }
