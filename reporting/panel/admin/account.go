package admin

import (
	"context"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/adminapi"
	"vendorapi/reporting/panel/layout"
)

// storesOnPage is how many stores the pages of accounts and fleets list; there
// is a link to the others.
const storesOnPage = 20

// accountPage is the page /accounts/{id}.
type accountPage struct {
	action
	Account    *delivery.Account
	Limits     []limitRow
	Stores     []*delivery.Store
	MoreStores bool
	Receiver   *receiver // nil: none is registered
	Issued     *credentials
	// OldUntil is until when the client secret before the issued one works.
	OldUntil time.Time
	Revoked  bool // with the issued one every earlier one ended
}

// StoreRows are the first of the account's stores.
func (page *accountPage) StoreRows() []storeRow {
	rows := make([]storeRow, len(page.Stores))
	for i, s := range page.Stores {
		rows[i] = storeRow{s, page.Account.Name}
	}
	return rows
}

// Refill is what the stores' bucket gets back.
func (page *accountPage) Refill() string { return shownWindow(page.Account.Limits.Stores.Sustained) }

// showAccount is GET /accounts/{account}.
func (p *Pages) showAccount(w http.ResponseWriter, r *http.Request) error {
	return p.answerAccount(w, r, nil)
}

// answerAccount shows the page, changed by issued, or with why an action was
// refused.
func (p *Pages) answerAccount(w http.ResponseWriter, r *http.Request, refused error, issued ...func(*accountPage)) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	page := &accountPage{action: newAction(r)}
	if page.Account, err = p.ledger.Account(r.Context(), id); err != nil {
		return err
	}
	if page.Limits, err = p.limitRows(r.Context(), page.Account); err != nil {
		return err
	}
	keepTyped(page.Limits, r.PostForm)
	if page.Stores, page.MoreStores, err = p.ledger.FindStores(r.Context(), ledger.StoreFilter{Account: id}, storesOnPage); err != nil {
		return err
	}
	endpoint, err := p.ledger.WebhookEndpoint(r.Context(), id)
	switch {
	case err == nil:
		page.Receiver = &receiver{endpoint, page.Account.Name}
	case delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured:
		return err
	}
	for _, change := range issued {
		change(page)
	}
	return p.pages.Show(w, r, "account", layout.View{Title: page.Account.Name, Data: page, Refused: refused})
}

// showUse is GET /accounts/{account}/use: what the limits' meters say now.
func (p *Pages) showUse(w http.ResponseWriter, r *http.Request) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	account, err := p.ledger.Account(r.Context(), id)
	if err != nil {
		return err
	}
	page := &accountPage{Account: account}
	if page.Limits, err = p.limitRows(r.Context(), account); err != nil {
		return err
	}
	return p.pages.Part(w, r, "use", page)
}

func (p *Pages) limitRows(ctx context.Context, a *delivery.Account) ([]limitRow, error) {
	uses, err := p.ledger.Usage(ctx, []delivery.AccountID{a.ID})
	if err != nil {
		return nil, err
	}
	return rowsOf(a.Limits, uses[0]), nil
}

// actOnAccount is one change of an account and the way back to its page.
func (p *Pages) actOnAccount(w http.ResponseWriter, r *http.Request, sentence string, body map[string]any) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return unchanged(w, r)
	}
	if err := p.change(r, http.MethodPatch, adminapi.Path("accounts", id.String()), body, nil); err != nil {
		return p.answerAccount(w, r, err)
	}
	return layout.Redirect(w, r, accountPath(id), sentence)
}

// renameAccount is POST /accounts/{account}/name.
func (p *Pages) renameAccount(w http.ResponseWriter, r *http.Request) error {
	return p.actOnAccount(w, r, "account-renamed", changes(r.PostForm, plainText, "name"))
}

// suspendAccount is POST /accounts/{account}/state: suspended is true or false.
func (p *Pages) suspendAccount(w http.ResponseWriter, r *http.Request) error {
	wanted, sentence := flag(r.PostForm.Get("suspended")), "account-resumed"
	if wanted == true {
		sentence = "account-suspended"
	}
	return p.actOnAccount(w, r, sentence, map[string]any{"suspended": wanted})
}

// flag is true or false as it was sent; anything else goes as the text that it
// is, for the API to refuse.
func flag(text string) any {
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	return text
}

// limitAccount is POST /accounts/{account}/limits: the windows that were changed
// in the form, so that two operators at once do not undo each other.
func (p *Pages) limitAccount(w http.ResponseWriter, r *http.Request) error {
	body := map[string]any{}
	if changed := changedLimits(r.PostForm); len(changed) > 0 {
		body["limits"] = changed
	}
	return p.actOnAccount(w, r, "account-limited", body)
}

// Earlier are the client secrets before the present one that still work.
func (page *accountPage) Earlier() earlierSecrets { return earlierOf(page.Account.EarlierSecrets) }

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

// rotateClientSecret is POST /accounts/{account}/secret.
func (p *Pages) rotateClientSecret(w http.ResponseWriter, r *http.Request) error {
	return p.newClientSecret(w, r, nil)
}

// revokeClientSecrets is POST /accounts/{account}/revoke.
func (p *Pages) revokeClientSecrets(w http.ResponseWriter, r *http.Request) error {
	return p.newClientSecret(w, r, revokeOld)
}

// revokeOld is the body of a rotation that ends the earlier secrets.
var revokeOld = map[string]bool{"revokeOld": true}

// newClientSecret is for the version of the account that the page showed, so that
// what is ended is what the page said.
func (p *Pages) newClientSecret(w http.ResponseWriter, r *http.Request, body any) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	account, err := p.ledger.Account(r.Context(), id)
	if err != nil {
		return err
	}
	if err := sameVersion(r, account.Revision); err != nil {
		return p.answerAccount(w, r, err)
	}
	var made struct {
		ClientID, ClientSecret string
		PreviousValidUntil     time.Time
	}
	if err := p.change(r, http.MethodPost, adminapi.Path("accounts", id.String(), "credentials"), body, &made); err != nil {
		return p.answerAccount(w, r, err)
	}
	return p.answerAccount(w, r, nil, func(page *accountPage) {
		page.Issued = &credentials{ClientID: made.ClientID, ClientSecret: made.ClientSecret, Name: page.Account.Name}
		if page.OldUntil = made.PreviousValidUntil; body != nil {
			page.OldUntil, page.Revoked = time.Time{}, true
		}
	})
}
