// Package admin serves the panel's pages of webhooks, accounts, fleets and stores,
// where operators change things. It reads the ledger; each action is one request of
// the gateway's admin API in the operator's name. What was typed is sent as it was
// typed, and a refusal names the fields as the API does, which are also the names
// of the inputs. Secrets are in the answer to the request that issued them only.
package admin

import (
	"context"
	"embed"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/cache"
	"vendorapi/reporting/panel/layout"
)

//go:embed page/*.html
var files embed.FS

// Pages is safe for concurrent use.
type Pages struct {
	layout *layout.Layout
	pages  *layout.Pages
	ledger *ledger.Ledger
	admin  *Client
	log    *slog.Logger
	sent   sentForms
	// Lists are read once for all who look. Changes by this process show at once.
	accounts  cache.Cache[[]*delivery.Account]
	receivers cache.Cache[[]*ledger.WebhookEndpoint]
}

const (
	accountsAge  = 5 * time.Second
	receiversAge = 3 * time.Second
	readTimeout  = 10 * time.Second
)

// New parses the templates. What an operator does goes to admin.
func New(f *layout.Layout, l *ledger.Ledger, admin *Client, log *slog.Logger) (*Pages, error) {
	pages, err := f.Parse(files)
	if err != nil {
		return nil, err
	}
	return &Pages{layout: f, pages: pages, ledger: l, admin: admin, log: log.With("part", "admin"),
		accounts:  cache.Cache[[]*delivery.Account]{MaxAge: accountsAge, Timeout: readTimeout, Read: l.Accounts.List},
		receivers: cache.Cache[[]*ledger.WebhookEndpoint]{MaxAge: receiversAge, Timeout: readTimeout, Read: l.Webhooks.Endpoints},
	}, nil
}

// Routes adds the pages to mux, each for who may see it.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, show := range p.shown() {
		p.layout.Handle(mux, "GET "+pattern, auth.Operator, show)
	}
	for pattern, act := range p.actions() {
		p.layout.Handle(mux, "POST "+pattern, auth.Operator, p.once(act))
	}
}

func (p *Pages) shown() map[string]layout.Handler {
	return map[string]layout.Handler{
		"/webhooks":                 p.listReceivers,
		"/webhooks/live":            p.listReceivers,
		"/webhooks/{account}":       p.show(p.showWebhook),
		"/webhooks/{account}/live":  p.show(p.showWebhook),
		"/accounts":                 p.show(p.listAccounts),
		"/accounts/{account}":       p.show(p.showAccount),
		"/accounts/{account}/use":   p.showUse,
		"/fleets":                   p.show(p.listFleets),
		"/fleets/{fleet}":           p.show(p.showFleet),
		"/stores":                   p.listStores,
		"/stores/{account}/{store}": p.show(p.showStore),
	}
}

// actions are what operators do. Of a record's actions the method and the path of
// the admin API are that of the record, unless the action has its own.
func (p *Pages) actions() map[string]layout.Handler {
	handlers := map[string]layout.Handler{}
	for _, record := range []struct {
		pattern, method string
		api             func(*http.Request) (string, error)
		show            func(http.ResponseWriter, *http.Request, outcome) error
		actions         map[string]func(*http.Request) action
	}{
		{"/accounts", http.MethodPost, func(*http.Request) (string, error) { return Path("accounts"), nil }, p.listAccounts, map[string]func(*http.Request) action{
			"": newAccount,
		}},
		{"/accounts/{account}", http.MethodPatch, accountAPI, p.showAccount, map[string]func(*http.Request) action{
			"/name": renameAccount, "/state": setAccountState, "/limits": limitAccount,
			"/secret": p.newClientSecret(false), "/revoke": p.newClientSecret(true),
		}},
		{"/webhooks/{account}", http.MethodPatch, webhookAPI, p.showWebhook, map[string]func(*http.Request) action{
			"/url": registerWebhook, "/test": testWebhook, "/limits": limitWebhook, "/replay": replayEvents,
			"/secret": p.newWebhookSecret(false), "/revoke": p.newWebhookSecret(true),
		}},
		{"/fleets", http.MethodPost, func(*http.Request) (string, error) { return Path("fleets"), nil }, p.listFleets, map[string]func(*http.Request) action{
			"": newFleet,
		}},
		{"/fleets/{fleet}", http.MethodPatch, fleetAPI, p.showFleet, map[string]func(*http.Request) action{
			"/fields": changeFleet, "/coverage": replaceCoverage, "/state": setFleetState, "/payment-overdue": announceOverdue,
		}},
		{"/stores/{account}/{store}", http.MethodPost, storeAPI, p.showStore, map[string]func(*http.Request) action{
			"/confirm": confirmStore, "/reject": rejectStore, "/migrate": migrateStore, "/deactivate": deactivateStore,
		}},
	} {
		for path, read := range record.actions {
			handlers[record.pattern+path] = func(w http.ResponseWriter, r *http.Request) error {
				api, err := record.api(r)
				if err != nil {
					return err
				}
				a := read(r)
				if a.method == "" {
					a.method = record.method
				}
				a.path = api + a.path
				return p.perform(w, r, a, record.show)
			}
		}
	}
	return handlers
}

func accountID(r *http.Request) (delivery.AccountID, error) {
	id, err := delivery.ParseAccountID(r.PathValue("account"))
	if err != nil {
		return id, delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
	}
	return id, nil
}

func accountAPI(r *http.Request) (string, error) {
	id, err := accountID(r)
	return Path("accounts", id.String()), err
}

func webhookAPI(r *http.Request) (string, error) {
	path, err := accountAPI(r)
	return path + "/webhook", err
}

func fleetID(r *http.Request) (delivery.FleetID, error) {
	id, err := delivery.ParseFleetID(r.PathValue("fleet"))
	if err != nil {
		return id, delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}
	return id, nil
}

func fleetAPI(r *http.Request) (string, error) {
	id, err := fleetID(r)
	return Path("fleets", id.String()), err
}

func storeID(r *http.Request) (string, error) {
	id := r.PathValue("store")
	if given := r.URL.Query().Get("id"); id == layout.NoSegment && given != "" {
		id = given
	}
	if delivery.CheckExternalStoreID(id) != nil {
		return "", delivery.Refuse(delivery.CodeStoreNotFound, "the account has no such store")
	}
	return id, nil
}

func storeAPI(r *http.Request) (string, error) {
	account, err := accountID(r)
	if err != nil {
		return "", err
	}
	id, err := storeID(r)
	return Path("accounts", account.String(), "stores", id), err
}

func (p *Pages) accountNames(ctx context.Context) (map[delivery.AccountID]string, error) {
	accounts, err := p.accounts.Get(ctx)
	names := make(map[delivery.AccountID]string, len(accounts))
	for _, a := range accounts {
		names[a.ID] = a.Name
	}
	return names, err
}

// search is a text as it is compared: trimmed and folded, because who searches
// for istanbul means İstanbul and ISTANBUL as well.
func search(text string) string { return delivery.FoldName(strings.TrimSpace(text)) }

func matches(wanted string, texts ...string) bool {
	for _, text := range texts {
		if strings.Contains(delivery.FoldName(text), wanted) {
			return true
		}
	}
	return wanted == ""
}

func beginning(text string, characters int) string {
	n := 0
	for i := range text {
		if n++; n > characters {
			return text[:i]
		}
	}
	return text
}
