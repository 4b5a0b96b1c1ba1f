package admin

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/adminapi"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/cache"
	"vendorapi/reporting/panel/layout"
)

//go:embed page/*.html
var files embed.FS

// Pages serve what lies below /webhooks, /accounts, /fleets and /stores. They
// are safe for concurrent use.
type Pages struct {
	frame  *layout.Frame
	pages  *layout.Pages
	ledger *ledger.Ledger
	admin  *adminapi.Client
	log    *slog.Logger
	sent   sentForms
	// What every list needs is read once for all who look; what this process
	// changes is seen at once, what others change a moment later.
	accounts  cache.Cache[[]*delivery.Account]
	receivers cache.Cache[[]*ledger.WebhookEndpoint]
}

// How old the lists may be that those who look share, and how long their reads
// may take.
const (
	accountsAge  = 5 * time.Second
	receiversAge = 3 * time.Second
	readPatience = 10 * time.Second
)

// New prepares the pages. It fails for a defect of the templates only.
func New(f *layout.Frame, l *ledger.Ledger, admin *adminapi.Client, log *slog.Logger) (*Pages, error) {
	pages, err := f.Parse(files, sentences)
	if err != nil {
		return nil, err
	}
	return &Pages{frame: f, pages: pages, ledger: l, admin: admin, log: log.With("part", "operate"),
		accounts:  cache.Cache[[]*delivery.Account]{MaxAge: accountsAge, Timeout: readPatience, Read: l.Accounts},
		receivers: cache.Cache[[]*ledger.WebhookEndpoint]{MaxAge: receiversAge, Timeout: readPatience, Read: l.WebhookEndpoints},
	}, nil
}

// Routes registers all pages and actions, every one for operators only.
func (p *Pages) Routes(mux *http.ServeMux) {
	for pattern, show := range p.shown() {
		p.frame.Handle(mux, "GET "+pattern, auth.Operator, show)
	}
	for pattern, act := range p.actions() {
		p.frame.Handle(mux, "POST "+pattern, auth.Operator, p.once(act))
	}
}

// shown are the pages, and the parts of them that refresh themselves.
func (p *Pages) shown() map[string]layout.Handler {
	return map[string]layout.Handler{
		"/webhooks":                 p.listWebhooks,
		"/webhooks/live":            p.listWebhooksLive,
		"/webhooks/{account}":       p.showWebhook,
		"/webhooks/{account}/live":  p.showWebhookLive,
		"/accounts":                 p.listAccounts,
		"/accounts/{account}":       p.showAccount,
		"/accounts/{account}/use":   p.showUse,
		"/fleets":                   p.listFleets,
		"/fleets/{fleet}":           p.showFleet,
		"/stores":                   p.listStores,
		"/stores/{account}/{store}": p.showStore,
	}
}

// actions are what operators do.
func (p *Pages) actions() map[string]layout.Handler {
	return map[string]layout.Handler{
		"/webhooks/{account}/url":              p.registerWebhook,
		"/webhooks/{account}/secret":           p.rotateWebhookSecret,
		"/webhooks/{account}/revoke":           p.revokeWebhookSecrets,
		"/webhooks/{account}/test":             p.testWebhook,
		"/webhooks/{account}/replay":           p.replayEvents,
		"/webhooks/{account}/limits":           p.limitWebhook,
		"/accounts":                            p.createAccount,
		"/accounts/{account}/name":             p.renameAccount,
		"/accounts/{account}/state":            p.suspendAccount,
		"/accounts/{account}/secret":           p.rotateClientSecret,
		"/accounts/{account}/revoke":           p.revokeClientSecrets,
		"/accounts/{account}/limits":           p.limitAccount,
		"/fleets":                              p.createFleet,
		"/fleets/{fleet}/fields":               p.changeFleet,
		"/fleets/{fleet}/coverage":             p.replaceCoverage,
		"/fleets/{fleet}/state":                p.setFleetState,
		"/fleets/{fleet}/payment-overdue":      p.announceOverdue,
		"/stores/{account}/{store}/confirm":    p.confirmStore,
		"/stores/{account}/{store}/reject":     p.rejectStore,
		"/stores/{account}/{store}/migrate":    p.migrateStore,
		"/stores/{account}/{store}/deactivate": p.deactivateStore,
	}
}

// sentences say what was done.
var sentences = layout.Done{
	"sent-before": "This form was sent before, and what it asked for was done then. Nothing was done now.",
	"unchanged":   "Nothing was changed: the form held what it held when it was shown.",

	"webhook-moved":   "The URL is changed. What waits goes to the new one.",
	"webhook-tested":  "A test event is queued; its attempt appears in the log below.",
	"webhook-limited": "The receiver's limits are changed.",
	"replayed":        "The events are queued again, under their own ids; their attempts appear in the log below.",
	"replayed-none":   "There was nothing to send again.",

	"account-renamed":   "The account has its new name.",
	"account-suspended": "The account is suspended: all of its requests are refused.",
	"account-resumed":   "The account is active again.",
	"account-limited":   "The limits are changed; the next request is held to them.",

	"fleet-changed":   "The fleet is changed.",
	"fleet-covered":   "The fleet has its new coverage.",
	"fleet-suspended": "The fleet is suspended: it gets no new orders.",
	"fleet-resumed":   "The fleet takes orders again.",
	"fleet-disabled":  "The fleet is disabled: every request of it is refused, and its stores get no new orders.",
	"fleet-enabled":   "The fleet may log in and report again.",
	"overdue":         "The vendors of the fleet's active stores are told that its payment is overdue.",
	"overdue-nobody":  "The fleet has no active store, so no vendor got an event.",

	"store-confirmed":   "The store is confirmed and takes orders.",
	"store-rejected":    "The store is rejected and awaits another choice of fleet.",
	"store-migrating":   "The closing date is set and the vendor is told.",
	"store-deactivated": "The store is deactivated and the vendor is told.",
}

// change is one request of the admin API, in the operator's name. Whoever asked
// may go away meanwhile: what has been begun is ended. An error is fit to be
// shown.
func (p *Pages) change(r *http.Request, method, path string, body, into any) error {
	operator := auth.IdentityOf(r.Context()).Name
	err := p.admin.Do(context.WithoutCancel(r.Context()), operator, method, path, body, into)
	p.accounts.Forget()
	p.receivers.Forget()
	if !errors.Is(err, delivery.ErrUnavailable) {
		return err
	}
	p.log.Warn("the admin API is unavailable", "error", err)
	return delivery.Refuse(delivery.CodeServiceUnavailable,
		"The gateway does not answer, so nobody knows whether this was done. Look at what the page shows now, then send it again if need be.")
}

// action is what every page with forms has in common.
type action struct {
	// Once is this showing of the page; see once.
	Once string
	// Typed is what a refused form held.
	Typed typed
}

func newAction(r *http.Request) action { return action{Once: rand.Text(), Typed: typed{r.PostForm}} }

// accountID reads the path's account; what is no id names no account.
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
