package main

import (
	"crypto/sha256"
	"fmt"
	"time"

	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// oldSecretLifetime is how long a rotated client secret goes on working (design
// section 5).
const oldSecretLifetime = 24 * time.Hour

const maxName = 200

type accountView struct {
	AccountID string          `json:"accountId"`
	ClientID  string          `json:"clientId"`
	Name      string          `json:"name"`
	Suspended bool            `json:"suspended"`
	Limits    delivery.Limits `json:"limits"`
	CreatedAt string          `json:"createdAt"`
	// ExcessSince marks an account in sustained excess of its limits.
	ExcessSince string `json:"excessSince,omitempty"`
}

func viewAccount(a *delivery.Account) accountView {
	return accountView{
		AccountID: a.ID.String(), ClientID: a.ID.ClientID(), Name: a.Name, Suspended: a.Suspended,
		Limits: a.Limits, CreatedAt: formatTime(a.CreatedAt), ExcessSince: formatTime(a.ExcessSince),
	}
}

// accountForm is the body of a creation and of a change.
type accountForm struct {
	*form
	name      *delivery.Text
	suspended **bool
	limits    *limitsForm
}

func readAccountForm(x *exchange) (accountForm, error) {
	f := accountForm{form: newForm(x.text())}
	f.name, f.suspended, f.limits = f.text("name"), f.flag("suspended"), newLimitsForm(f.form)
	return f, f.read()
}

// createAccount is POST /accounts {name, limits?}.
func (g *gateway) createAccount(x *exchange) error {
	l, err := g.ledger()
	if err != nil {
		return err
	}
	f, err := readAccountForm(x)
	if err != nil {
		return err
	}
	f.require("name", f.name.Set)
	account := &delivery.Account{
		ID: delivery.NewAccountID(), Name: f.plain("name", f.name, 1, maxName),
		Limits: f.limits.over(delivery.DefaultLimits()), CreatedAt: x.now,
	}
	if *f.suspended != nil {
		account.Suspended = **f.suspended
	}
	if err := f.err(); err != nil {
		return err
	}
	secret := token.NewSecret()
	if err := l.Accounts.Create(g.work, account, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}
	g.audit(x, "account created", "account", account.ID.String())
	x.ctx.Response.Header.SetCanonical(headerCache, valueNoStore)
	return x.okJSON(map[string]string{
		"accountId": account.ID.String(), "clientId": account.ID.ClientID(), "clientSecret": secret,
	})
}

// listAccounts is GET /accounts.
func (g *gateway) listAccounts(x *exchange) error {
	l, err := g.ledger()
	if err != nil {
		return err
	}
	accounts, err := l.Accounts.List(g.work)
	if err != nil {
		return err
	}
	views := make([]accountView, len(accounts))
	for i, a := range accounts {
		views[i] = viewAccount(a)
	}
	return x.okJSON(map[string]any{"accounts": views})
}

// readAccount is GET /accounts/{id}.
func (g *gateway) readAccount(x *exchange) error {
	l, id, err := g.openAccount(x)
	if err != nil {
		return err
	}
	account, err := l.Accounts.Get(g.work, id)
	if err != nil {
		return err
	}
	return x.okJSON(viewAccount(account))
}

// changeAccount is PATCH /accounts/{id} {name?, suspended?, limits?}. It holds
// with the next request on every gateway.
func (g *gateway) changeAccount(x *exchange) error {
	l, id, err := g.openAccount(x)
	if err != nil {
		return err
	}
	f, err := readAccountForm(x)
	if err != nil {
		return err
	}
	name := ""
	if f.name.Set {
		name = f.plain("name", f.name, 1, maxName)
	}
	changed, err := l.Accounts.Update(g.work, id, func(a *delivery.Account) error {
		a.Limits = f.limits.over(a.Limits)
		if f.name.Set {
			a.Name = name
		}
		if *f.suspended != nil {
			a.Suspended = **f.suspended
		}
		return f.err()
	})
	if err != nil {
		return err
	}
	g.audit(x, "account changed", "account", id.String(), "suspended", changed.Suspended, "limits", changed.Limits)
	return x.okJSON(viewAccount(changed))
}

// readRevokeOld reads the optional body of a rotation, {revokeOld?}.
func readRevokeOld(x *exchange) (bool, error) {
	if len(x.body) == 0 {
		return false, nil
	}
	f := newForm(x.text())
	revoke := f.flag("revokeOld")
	if err := f.read(); err != nil {
		return false, err
	}
	return *revoke != nil && **revoke, f.err()
}

// rotated is until when the client secret before a new one works.
func rotated(x *exchange, revokeOld bool) time.Time {
	if revokeOld {
		return x.now
	}
	return x.now.Add(oldSecretLifetime)
}

// rotateCredentials is POST /accounts/{id}/credentials {revokeOld?}: a new client
// secret; the one before works for another 24 hours, or all earlier ones and every
// token end now.
func (g *gateway) rotateCredentials(x *exchange) error {
	l, id, err := g.openAccount(x)
	if err != nil {
		return err
	}
	revokeOld, err := readRevokeOld(x)
	if err != nil {
		return err
	}
	secret, oldUntil := token.NewSecret(), rotated(x, revokeOld)
	if err := l.Accounts.RotateSecret(g.work, id, sha256.Sum256([]byte(secret)), oldUntil, revokeOld); err != nil {
		return err
	}
	g.audit(x, "client secret rotated", "account", id.String(), "revokeOld", revokeOld)
	if revokeOld {
		g.refreshFleets(l)
	}
	x.ctx.Response.Header.SetCanonical(headerCache, valueNoStore)
	return x.okJSON(map[string]string{
		"clientId": id.ClientID(), "clientSecret": secret, "previousValidUntil": formatTime(oldUntil),
	})
}

func (g *gateway) openAccount(x *exchange) (*ledger.Ledger, delivery.AccountID, error) {
	id, err := x.accountID()
	if err != nil {
		return nil, id, err
	}
	l, err := g.ledger()
	return l, id, err
}

// limitsForm reads limits as design section 5 writes them. What is absent keeps
// what it is laid over: a whole endpoint, or one of its two windows.
type limitsForm struct {
	*form
	windows map[string][2]*delivery.Number // count and seconds by path
}

var limitedEndpoints = []string{"orders", "orderStatus", "cancel", "stores", "token"}

func newLimitsForm(f *form) *limitsForm {
	l := &limitsForm{form: f, windows: map[string][2]*delivery.Number{}}
	f.closed = "limits" // a misspelt limit would otherwise stay as it was
	for _, endpoint := range limitedEndpoints {
		for _, window := range []string{"sustained", "burst"} {
			path := "limits." + endpoint + "." + window
			l.windows[path] = [2]*delivery.Number{f.number(path + ".count"), f.number(path + ".seconds")}
		}
	}
	return l
}

// over lays the given windows over limits; faults are gathered in the form.
func (l *limitsForm) over(limits delivery.Limits) delivery.Limits {
	for i, into := range []*delivery.EndpointLimit{
		&limits.Orders, &limits.OrderStatus, &limits.Cancel, &limits.Stores, &limits.Token,
	} {
		path := "limits." + limitedEndpoints[i]
		l.window(path+".sustained", &into.Sustained)
		l.window(path+".burst", &into.Burst)
	}
	if limits.Stores.Burst.Count*limits.Stores.Sustained.Seconds > delivery.MaxBucket {
		l.invalid("limits.stores.burst.count", fmt.Sprintf("times limits.stores.sustained.seconds must be at most %d", delivery.MaxBucket))
	}
	return limits
}

func (l *limitsForm) window(path string, into *delivery.Window) {
	count, seconds := l.windows[path][0], l.windows[path][1]
	if !count.Set && !seconds.Set {
		return
	}
	l.require(path+".count", count.Set)
	l.require(path+".seconds", seconds.Set)
	*into = delivery.Window{
		Count:   l.whole(path+".count", count, 1, delivery.MaxWindowCount),
		Seconds: l.whole(path+".seconds", seconds, 1, delivery.MaxWindowSeconds),
	}
}
