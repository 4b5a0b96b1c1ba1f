package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"vendorapi/gateway/strictjson"
	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
)

// adminRoutes is the admin API (decisions, "Private APIs"). It listens on the private
// listener only; its key is the operators'.
func adminRoutes() routes {
	const root = "/api/admin/v1"
	confirmForFleet := answerForFleet("store confirmed for its fleet", false, confirmation)
	rejectForFleet := answerForFleet("store rejected for its fleet", true, rejection)
	return slices.Concat(
		group(root, adminOnly, nil,
			route{method: post, pattern: "/accounts", name: "admin_accounts_create", onceOnly: true, body: requiredBody, handle: (*gateway).createAccount},
			route{method: get, pattern: "/accounts", name: "admin_accounts_list", handle: (*gateway).listAccounts},
			route{method: get, pattern: "/webhooks", name: "admin_webhooks_list", handle: (*gateway).listWebhooks},
			route{method: post, pattern: "/fleets", name: "admin_fleets_create", onceOnly: true, body: requiredBody, maxBody: noOwnLimit, handle: (*gateway).createFleet},
			route{method: get, pattern: "/fleets", name: "admin_fleets_list", handle: (*gateway).listFleets},
		),
		group(root+"/accounts/{}", adminOnly, (*requestContext).accountInPath,
			route{method: get, name: "admin_accounts_read", handle: (*gateway).readAccount},
			route{method: patch, name: "admin_accounts_change", body: requiredBody, handle: (*gateway).changeAccount},
			route{method: post, pattern: "/credentials", name: "admin_credentials_rotate", onceOnly: true, body: optionalBody, handle: (*gateway).rotateCredentials},
			route{method: put, pattern: "/webhook", name: "admin_webhook_put", body: requiredBody, handle: existing((*gateway).putWebhook)},
			route{method: get, pattern: "/webhook", name: "admin_webhook_read", handle: existing((*gateway).readWebhookHealth)},
			route{method: patch, pattern: "/webhook", name: "admin_webhook_change", body: requiredBody, handle: existing((*gateway).changeWebhook)},
			route{method: post, pattern: "/webhook/rotate", name: "admin_webhook_rotate", onceOnly: true, body: optionalBody, handle: existing((*gateway).rotateWebhookSecret)},
			route{method: get, pattern: "/webhook/deliveries", name: "admin_webhook_deliveries", handle: existing((*gateway).listDeliveries)},
			route{method: post, pattern: "/webhook/replay", name: "admin_webhook_replay", body: requiredBody, maxBody: noOwnLimit, handle: existing((*gateway).replayEvents)},
			route{method: post, pattern: "/webhook/test", name: "admin_webhook_test", body: optionalBody, handle: existing((*gateway).testWebhook)},
		),
		group(root+"/accounts/{}/stores/{}", adminOnly, func(x *requestContext) error { return cmp.Or(x.accountInPath(), x.storeInPath()) },
			route{method: post, pattern: "/confirm", name: "admin_stores_confirm", body: optionalBody, handle: confirmForFleet},
			route{method: post, pattern: "/reject", name: "admin_stores_reject", body: optionalBody, handle: rejectForFleet},
			route{method: post, pattern: "/migrate", name: "admin_stores_migrate", body: requiredBody, handle: (*gateway).migrateStore},
			route{method: post, pattern: "/deactivate", name: "admin_stores_deactivate", body: requiredBody, handle: (*gateway).deactivateStore},
		),
		group(root+"/fleets/{}", adminOnly, (*requestContext).fleetInPath,
			route{method: patch, name: "admin_fleets_change", body: requiredBody, maxBody: noOwnLimit, handle: (*gateway).changeFleet},
			route{method: post, pattern: "/credentials", name: "admin_fleets_credentials", onceOnly: true, body: optionalBody, handle: (*gateway).rotateFleetCredentials},
			route{method: post, pattern: "/payment-overdue", name: "admin_fleets_overdue", body: optionalBody, handle: (*gateway).announceOverdue},
		),
		group(root+"/finance", adminOnly, (*requestContext).ofFinance,
			route{method: put, pattern: "/webhook", name: "admin_finance_webhook_put", body: requiredBody, handle: (*gateway).putWebhook},
			route{method: get, pattern: "/webhook", name: "admin_finance_webhook_read", handle: (*gateway).readWebhookHealth},
			route{method: post, pattern: "/reports/available", name: "admin_finance_announce", body: requiredBody, maxBody: noOwnLimit, handle: (*gateway).announceReport},
			route{method: remove, pattern: "/webhook", name: "admin_finance_webhook_delete", handle: (*gateway).deleteWebhook},
		),
	)
}

var (
	errNoAccount = delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
	errNoFleet   = delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
)

func (x *requestContext) accountInPath() error {
	if err := idInPath(x, delivery.ParseAccountID, &x.account, errNoAccount); err != nil {
		return err
	}
	return x.checkFinance()
}

func (x *requestContext) ofFinance() error {
	x.account = delivery.FinanceAccount
	return x.checkFinance()
}

// errFinanceOnly refuses what only finance decides about its own receiver.
var errFinanceOnly = delivery.Refuse(delivery.CodeForbidden,
	"an operator's own key may not change finance's receiver; somebody with the role closer does, on the panel's page Delivery")

// checkFinance refuses changes of finance's receiver, its secret and its events with a key of ADMIN_KEYS: such a
// key speaks for an operator, and only closers may. The panel, which knows who is a closer, has ADMIN_KEY.
func (x *requestContext) checkFinance() error {
	isFinances := x.account == delivery.FinanceAccount
	isOperators := x.keyName != ""
	isChange := x.route.method != get
	if isFinances && isOperators && isChange {
		return errFinanceOnly
	}
	return nil
}

func (x *requestContext) fleetInPath() error {
	return idInPath(x, delivery.ParseFleetID, &x.fleet, errNoFleet)
}

// existing answers ACCOUNT_NOT_FOUND unless the path's account exists, or is finance.
func existing(handle handler) handler {
	return func(g *gateway, x *requestContext) error {
		if _, err := x.ledger.Webhooks.Owner(g.work, x.account); err != nil {
			return err
		}
		return handle(g, x)
	}
}

// oldSecretLifetime is how long a rotated client secret still works (decisions, "Private APIs").
const oldSecretLifetime = 24 * time.Hour

const maxName = 200

type accountView struct {
	AccountID string `json:"accountId"`
	ClientID  string `json:"clientId"`
	*delivery.Account
	MutedEvents []delivery.EventType `json:"mutedEvents"` // a list also without any
	CreatedAt   string               `json:"createdAt"`
	// ExcessSince marks an account in sustained excess of its limits.
	ExcessSince string `json:"excessSince,omitempty"`
}

func viewAccount(a *delivery.Account) accountView {
	return accountView{
		AccountID: a.ID.String(), ClientID: a.ID.ClientID(), Account: a,
		MutedEvents: append([]delivery.EventType{}, a.MutedEvents...),
		CreatedAt:   formatTime(a.CreatedAt), ExcessSince: formatTime(a.ExcessSince),
	}
}

type accountForm struct {
	*form     `json:"-"`
	Name      delivery.Text `json:"name"`
	Suspended *bool         `json:"suspended"`
	Muted     []string      `json:"mutedEvents"` // nil: as it is
	Limits    struct {
		Orders      limitForm `json:"orders"`
		OrderStatus limitForm `json:"orderStatus"`
		Cancel      limitForm `json:"cancel"`
		Stores      limitForm `json:"stores"`
		Token       limitForm `json:"token"`

		MaxStores        delivery.Number `json:"maxStores"`
		MaxPendingStores delivery.Number `json:"maxPendingStores"`
	} `json:"limits"`

	// What answers have besides, and no request changes.
	AccountID   delivery.Text `json:"accountId"`
	ClientID    delivery.Text `json:"clientId"`
	CreatedAt   delivery.Text `json:"createdAt"`
	ExcessSince delivery.Text `json:"excessSince"`
}

// limitForm is the limit of one endpoint as the decisions write it under "Private APIs".
type limitForm struct {
	Sustained strictjson.Raw `json:"sustained"` // a windowForm
	Burst     strictjson.Raw `json:"burst"`     // a windowForm, or null
}

type windowForm struct {
	Count   delivery.Number `json:"count"`
	Seconds delivery.Number `json:"seconds"`
}

func (f *accountForm) apply(a *delivery.Account) error {
	if f.Name.Set {
		a.Name = f.Line("name", f.Name, false, 1, maxName)
	}

	set(f.Suspended, &a.Suspended)
	f.readOnly("accountId", f.AccountID, a.ID.String())
	f.readOnly("clientId", f.ClientID, a.ID.ClientID())
	f.readOnly("createdAt", f.CreatedAt, formatTime(a.CreatedAt))
	f.readOnly("excessSince", f.ExcessSince, formatTime(a.ExcessSince))
	if f.Muted != nil {
		a.MutedEvents = f.muted("mutedEvents", f.Muted)
	}

	f.limit("limits.orders", f.Limits.Orders, &a.Limits.Orders)
	f.limit("limits.orderStatus", f.Limits.OrderStatus, &a.Limits.OrderStatus)
	f.limit("limits.cancel", f.Limits.Cancel, &a.Limits.Cancel)
	f.limit("limits.stores", f.Limits.Stores, &a.Limits.Stores)
	f.limit("limits.token", f.Limits.Token, &a.Limits.Token)
	f.storeLimit("limits.maxStores", f.Limits.MaxStores, &a.Limits.MaxStores)
	f.storeLimit("limits.maxPendingStores", f.Limits.MaxPendingStores, &a.Limits.MaxPendingStores)
	isRemoved := f.Limits.Stores.Burst.Set && a.Limits.Stores.Burst == (delivery.Window{})
	if isRemoved {
		f.Invalid("limits.stores.burst", "cannot be removed: it is how many requests may come at once")
	}

	if a.Limits.Stores.Burst.Count*a.Limits.Stores.Sustained.Seconds > delivery.MaxBucket {
		f.Invalid("limits.stores.burst.count", fmt.Sprintf("times limits.stores.sustained.seconds must be at most %d", delivery.MaxBucket))
	}

	return f.err()
}

// muted reads the events that are turned off, in the order of delivery.MutableEvents and each once.
func (f *form) muted(path string, given []string) (muted []delivery.EventType) {
	for i, name := range given {
		if !slices.Contains(delivery.MutableEvents, delivery.EventType(name)) {
			f.Invalid(fmt.Sprintf("%s[%d]", path, i), "must be delivery.courier_changed or delivery.eta_changed")
		}
	}

	for _, event := range delivery.MutableEvents {
		if slices.Contains(given, string(event)) {
			muted = append(muted, event)
		}
	}

	return muted
}

func (f *form) limit(path string, given limitForm, into *delivery.EndpointLimit) {
	f.sustained(path+".sustained", given.Sustained, &into.Sustained)
	f.burst(path+".burst", given.Burst, &into.Burst)
}

// sustained reads a window that cannot be removed.
func (f *form) sustained(path string, given strictjson.Raw, into *delivery.Window) {
	if !given.Set {
		return
	}

	if given.Text == "" {
		f.Invalid(path, "must be an object; only burst can be removed")
		return
	}

	var window windowForm
	f.readObject(path, given.Text, &window)
	f.window(path, window, into)
}

// burst reads a window that may be removed: with null, or with zeros.
func (f *form) burst(path string, given strictjson.Raw, into *delivery.Window) {
	if !given.Set {
		return
	}

	if given.Text == "" {
		*into = delivery.Window{}
		return
	}

	var window windowForm
	f.readObject(path, given.Text, &window)
	if window.Count.Literal == "0" && window.Seconds.Literal == "0" {
		*into = delivery.Window{}
		return
	}

	f.window(path, window, into)
}

// readOnly refuses a member that answers have and no request changes, unless it is what it was: so an
// answer can be sent back with some members changed.
func (f *form) readOnly(path string, given delivery.Text, current string) {
	if given.Set && given.Value != current {
		f.Invalid(path, "is read-only: leave it out, or send it as it is")
	}
}

func (f *form) storeLimit(path string, given delivery.Number, into *int) {
	if given.Set {
		*into = f.Whole(path, given, 1, delivery.MaxStoreLimit)
	}
}

func (f *form) window(path string, given windowForm, into *delivery.Window) {
	f.Require(path+".count", given.Count.Set)
	f.Require(path+".seconds", given.Seconds.Set)
	*into = delivery.Window{
		Count:   f.Whole(path+".count", given.Count, 1, delivery.MaxWindowCount),
		Seconds: f.Whole(path+".seconds", given.Seconds, 1, delivery.MaxWindowSeconds),
	}
}

// createAccount is POST /accounts {name, mutedEvents?, limits?}.
func (g *gateway) createAccount(x *requestContext) error {
	f := new(accountForm)
	f.form = x.form(f)
	f.Require("name", f.Name.Set)
	account := &delivery.Account{ID: delivery.NewAccountID(), Limits: delivery.DefaultLimits(), CreatedAt: x.now}
	if err := f.apply(account); err != nil {
		return err
	}

	secret := token.NewSecret()
	x.account = account.ID
	if err := g.audit(x, "account created", nil, account); err != nil {
		return err
	}
	if err := x.ledger.Accounts.Create(g.work, account, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}

	return x.okSecret(map[string]string{
		"accountId": account.ID.String(), "clientId": account.ID.ClientID(), "clientSecret": secret,
	})
}

// mostOnPage is how many accounts, or receivers, a page of a list has unless fewer are asked for.
const mostOnPage = 100

// pageLimit reads limit, mostOnPage without one.
func (x *requestContext) pageLimit() (int, error) {
	text := x.query("limit")
	if text == "" {
		return mostOnPage, nil
	}

	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > mostOnPage {
		return 0, delivery.Invalid("limit", fmt.Sprintf("must be a whole number from 1 to %d", mostOnPage))
	}
	return limit, nil
}

type accountCountsView struct {
	All       int64 `json:"all"`
	Excess    int64 `json:"excess"`
	Suspended int64 `json:"suspended"`
}

// listAccounts is GET /accounts?q=&state=&cursor=&limit=; the last page has an empty cursor.
func (g *gateway) listAccounts(x *requestContext) error {
	filter := accounts.AccountFilter{Text: x.query("q"), State: accounts.AccountState(x.query("state"))}
	if utf8.RuneCountInString(filter.Text) > maxName {
		return delivery.Invalid("q", fmt.Sprintf("must have at most %d characters", maxName))
	}

	switch filter.State {
	case "", accounts.AccountInExcess, accounts.AccountSuspended:
	default:
		return delivery.Invalid("state", "must be excess or suspended")
	}

	limit, err := x.pageLimit()
	if err != nil {
		return err
	}

	var gaps ledger.Gaps
	accounts, next, err := x.ledger.Accounts.Page(g.work, filter, x.query("cursor"), limit)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	counts, err := x.ledger.Accounts.Counts(g.work)
	if err := gaps.Allow(err); err != nil {
		return err
	}

	return x.okParts(map[string]any{"accounts": viewAll(accounts, viewAccount), "cursor": next, "counts": accountCountsView(counts)}, gaps)
}

func (g *gateway) readAccount(x *requestContext) error {
	return show(x, viewAccount)(x.ledger.Accounts.Get(g.work, x.account))
}

// changeAccount is PATCH /accounts/{id} {name?, suspended?, mutedEvents?, limits?}. Every gateway
// follows it from its next request on, and the worker that sends the account's webhooks at once.
func (g *gateway) changeAccount(x *requestContext) error {
	f := new(accountForm)
	f.form = x.form(f)
	return show(x, viewAccount)(x.ledger.Accounts.Update(g.work, x.account, func(a *delivery.Account) error {
		before := *a
		if err := f.apply(a); err != nil {
			return err
		}
		return g.audit(x, "account changed", &before, a)
	}))
}

// readRotation reads {revokeOld?}, and notes what is about to be done.
func (g *gateway) readRotation(x *requestContext, action string) (revokeOld bool, err error) {
	var body struct {
		RevokeOld *bool `json:"revokeOld"`
	}
	err = x.form(&body).err()
	if err == nil {
		set(body.RevokeOld, &revokeOld)
		err = g.audit(x, action, nil, map[string]bool{"revokeOld": revokeOld})
	}
	return revokeOld, err
}

// rotateCredentials is POST /accounts/{id}/credentials {revokeOld?}. With revokeOld all
// earlier secrets and every token end now.
func (g *gateway) rotateCredentials(x *requestContext) error {
	return rotateSecret(g, x, x.account, x.account.ClientID(), x.ledger.Accounts.RotateSecret)
}

func rotateSecret[ID ~[16]byte](g *gateway, x *requestContext, id ID, clientID string,
	rotate func(ctx context.Context, id ID, digest [sha256.Size]byte, overlap time.Duration, revokeOld bool) (oldUntil time.Time, err error)) error {
	revokeOld, err := g.readRotation(x, "client secret rotated")
	if err != nil {
		return err
	}

	secret := token.NewSecret()
	oldUntil, err := rotate(g.work, id, sha256.Sum256([]byte(secret)), oldSecretLifetime, revokeOld)
	if err != nil {
		return err
	}

	g.refreshFleets(x)

	return x.okSecret(map[string]string{
		"clientId": clientID, "clientSecret": secret, "previousValidUntil": formatTime(oldUntil),
	})
}
