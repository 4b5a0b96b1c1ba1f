// Package admin serves the panel's pages of webhooks, accounts, fleets and stores. It reads
// the ledger; each action is one request of the gateway's admin API in the operator's name.
// What was typed is sent as it was typed; inputs have the names of the API's fields. Secrets
// are in the answer to the request that issued them only.
package admin

import (
	"embed"
	"fmt"
	"net/http"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
)

//go:embed page/*.html
var files embed.FS

// Pages is safe for concurrent use.
type Pages struct {
	*layout.Pages
	admin *Client
	sent  sentForms
}

// New parses the templates. What an operator does goes to admin.
func New(f *layout.Layout, admin *Client) (*Pages, error) {
	pages, err := f.Parse("admin", files)
	if err != nil {
		return nil, err
	}
	return &Pages{Pages: pages, admin: admin}, nil
}

// Routes adds the pages to mux, each for who may see it.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, show := range p.shown() {
		p.Handle(mux, "GET "+pattern, auth.Operator, func(w http.ResponseWriter, r *http.Request) error {
			return show(w, r, outcome{})
		})
	}
	for pattern, act := range p.actions() {
		p.Handle(mux, "POST "+pattern, auth.Operator, p.once(act))
	}
}

// show answers with a page, also after what was done or refused there.
type show func(http.ResponseWriter, *http.Request, outcome) error

type outcome struct {
	issued  *issued
	refused error
}

func (p *Pages) shown() map[string]show {
	return map[string]show{
		"/webhooks":                 p.listReceivers,
		"/webhooks/live":            p.listReceivers,
		"/webhooks/{account}":       p.showWebhook,
		"/webhooks/{account}/live":  p.showWebhook,
		"/accounts":                 p.listAccounts,
		"/accounts/{account}":       p.showAccount,
		"/accounts/{account}/use":   p.showUse,
		"/fleets":                   p.listFleets,
		"/fleets/{fleet}":           p.showFleet,
		"/stores":                   p.listStores,
		"/stores/{account}/{store}": p.showStore,
	}
}

// record is what a page has forms for. Requests have the record's method and path of the
// admin API, unless the action has its own.
type record struct {
	pattern, method, api string
	show                 show
	version              func(*http.Request) (uint64, error)
	actions              map[string]action // by what follows the page's path
}

func (p *Pages) records() []record {
	return []record{
		{"/accounts", http.MethodPost, "/accounts", p.listAccounts, nil, map[string]action{
			"": {fields: fields{"name": plainText}},
		}},
		{"/accounts/{account}", http.MethodPatch, "/accounts/{account}", p.showAccount, p.accountVersion, map[string]action{
			"/name":   {fields: fields{"name": plainText}, done: "account-renamed"},
			"/state":  {fields: fields{"suspended": flag}, done: "account-"},
			"/limits": {fields: fields{}, limits: true, done: "account-limited"},
			"/secret": {method: http.MethodPost, path: "/credentials", secret: true},
			"/revoke": {method: http.MethodPost, path: "/credentials", secret: true, revoke: true},
		}},
		{"/webhooks/{account}", http.MethodPatch, "/accounts/{account}/webhook", p.showWebhook, p.receiverVersion, map[string]action{
			"/url":    {method: http.MethodPut, fields: fields{"url": plainText}, done: "webhook-moved"}, // the first issues a secret
			"/test":   {method: http.MethodPost, path: "/test", done: "webhook-tested"},
			"/limits": {fields: fields{"maxInFlight": numberOrNull, "maxPerSecond": numberOrNull}, done: "webhook-limited"},
			"/replay": {method: http.MethodPost, path: "/replay", fields: fields{"eventIds": listOfOne, "status": plainText, "since": plainText},
				done: "replayed", nobody: "replayed-none"},
			"/secret": {method: http.MethodPost, path: "/rotate", secret: true},
			"/revoke": {method: http.MethodPost, path: "/rotate", secret: true, revoke: true},
		}},
		{"/fleets", http.MethodPost, "/fleets", p.listFleets, nil, map[string]action{
			"": {fields: fields{"name": plainText, "subRegion": plainText, "avgDeliveryMinutes": number, "avgPickupMinutes": numberOrNull, "coverage": coverageOf}},
		}},
		{"/fleets/{fleet}", http.MethodPatch, "/fleets/{fleet}", p.showFleet, nil, map[string]action{
			"/fields": {fields: fields{"name": plainText, "subRegion": plainText, "avgDeliveryMinutes": number, "avgPickupMinutes": number,
				"requestsPerSecond": number}, done: "fleet-changed"},
			"/coverage":        {fields: fields{"coverage": coverageOf}, done: "fleet-covered"},
			"/state":           {fields: fields{"suspended": flag, "disabled": flag}, done: "fleet-"},
			"/payment-overdue": {method: http.MethodPost, path: "/payment-overdue", done: "overdue", nobody: "overdue-nobody"},
		}},
		{"/stores/{account}/{store}", http.MethodPost, "/accounts/{account}/stores/{store}", p.showStore, nil, map[string]action{
			"/confirm":    {path: "/confirm", fields: fields{"fleetId": plainText}, done: "store-confirmed"},
			"/reject":     {path: "/reject", fields: fields{"fleetId": plainText, "reason": plainText}, done: "store-rejected"},
			"/migrate":    {path: "/migrate", fields: fields{"closingDate": plainText}, done: "store-migrating"},
			"/deactivate": {path: "/deactivate", fields: fields{"reason": plainText}, done: "store-deactivated"},
		}},
	}
}

func (p *Pages) actions() map[string]layout.Handler {
	handlers := map[string]layout.Handler{}
	for _, one := range p.records() {
		for path, a := range one.actions {
			handlers[one.pattern+path] = p.perform(&one, &a)
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

func fleetID(r *http.Request) (delivery.FleetID, error) {
	id, err := delivery.ParseFleetID(r.PathValue("fleet"))
	if err != nil {
		return id, delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
	}
	return id, nil
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

func apiPath(r *http.Request, pattern string) (string, error) {
	segments := strings.Split(pattern[1:], "/")
	for i, segment := range segments {
		var id fmt.Stringer
		var err error
		switch segment {
		case "{account}":
			id, err = accountID(r)
			segments[i] = id.String()
		case "{fleet}":
			id, err = fleetID(r)
			segments[i] = id.String()
		case "{store}":
			segments[i], err = storeID(r)
		}
		if err != nil {
			return "", err
		}
	}
	return Path(segments...), nil
}

// matches compares folded: who searches for istanbul means İstanbul and ISTANBUL as well.
func matches(wanted string, texts ...string) bool {
	wanted = delivery.FoldName(strings.TrimSpace(wanted))
	for _, text := range texts {
		if strings.Contains(delivery.FoldName(text), wanted) {
			return true
		}
	}
	return wanted == ""
}
