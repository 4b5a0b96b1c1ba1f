package main

import (
	"crypto/sha256"
	"fmt"
	"time"

	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
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

func readAccountForm(x *requestContext) accountForm {
	f := accountForm{form: newForm(x.text())}
	f.name, f.suspended, f.limits = f.text("name"), f.flag("suspended"), newLimitsForm(f.form)
	f.read()
	return f
}

// apply changes the account as the form says and gathers what is wrong with it.
func (f accountForm) apply(a *delivery.Account) error {
	if f.name.Set {
		a.Name = f.Line("name", *f.name, false, 1, maxName)
	}
	set(f.suspended, &a.Suspended)
	a.Limits = f.limits.apply(a.Limits)
	return f.err()
}

// createAccount is POST /accounts {name, limits?}.
func (g *gateway) createAccount(x *requestContext) error {
	f := readAccountForm(x)
	f.Require("name", f.name.Set)
	account := &delivery.Account{ID: delivery.NewAccountID(), Limits: delivery.DefaultLimits(), CreatedAt: x.now}
	if err := f.apply(account); err != nil {
		return err
	}
	secret := token.NewSecret()
	if err := x.ledger.Accounts.Create(g.work, account, sha256.Sum256([]byte(secret))); err != nil {
		return err
	}
	x.account = account.ID
	g.audit(x, "account created")
	return x.okSecret(map[string]string{
		"accountId": account.ID.String(), "clientId": account.ID.ClientID(), "clientSecret": secret,
	})
}

// listAccounts is GET /accounts.
func (g *gateway) listAccounts(x *requestContext) error {
	accounts, err := x.ledger.Accounts.List(g.work)
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
func (g *gateway) readAccount(x *requestContext) error {
	account, err := x.ledger.Accounts.Get(g.work, x.account)
	if err != nil {
		return err
	}
	return x.okJSON(viewAccount(account))
}

// changeAccount is PATCH /accounts/{id} {name?, suspended?, limits?}. It holds
// with the next request on every gateway.
func (g *gateway) changeAccount(x *requestContext) error {
	f := readAccountForm(x)
	changed, err := x.ledger.Accounts.Update(g.work, x.account, f.apply)
	if err != nil {
		return err
	}
	g.audit(x, "account changed", "suspended", changed.Suspended, "limits", changed.Limits)
	return x.okJSON(viewAccount(changed))
}

// readRevokeOld reads the optional body of a rotation, {revokeOld?}.
func readRevokeOld(x *requestContext) (revokeOld bool, err error) {
	if len(x.body) == 0 {
		return false, nil
	}
	f := newForm(x.text())
	given := f.flag("revokeOld")
	f.read()
	set(given, &revokeOld)
	return revokeOld, f.err()
}

// rotateCredentials is POST /accounts/{id}/credentials {revokeOld?}: a new client
// secret; the one before works for another 24 hours, or all earlier ones and every
// token end now.
func (g *gateway) rotateCredentials(x *requestContext) error {
	return g.rotateSecret(x, x.account.ClientID(), func(digest [sha256.Size]byte, oldUntil time.Time, revokeOld bool) error {
		return x.ledger.Accounts.RotateSecret(g.work, x.account, digest, oldUntil, revokeOld)
	})
}

// rotateSecret issues a client secret in place of another one.
func (g *gateway) rotateSecret(x *requestContext, clientID string, rotate func(digest [sha256.Size]byte, oldUntil time.Time, revokeOld bool) error) error {
	revokeOld, err := readRevokeOld(x)
	if err != nil {
		return err
	}
	secret, oldUntil := token.NewSecret(), x.now
	if !revokeOld {
		oldUntil = x.now.Add(oldSecretLifetime)
	}
	if err := rotate(sha256.Sum256([]byte(secret)), oldUntil, revokeOld); err != nil {
		return err
	}
	g.audit(x, "client secret rotated", "revokeOld", revokeOld)
	g.refreshFleets(x)
	return x.okSecret(map[string]string{
		"clientId": clientID, "clientSecret": secret, "previousValidUntil": formatTime(oldUntil),
	})
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

// apply lays the given windows over limits; faults are gathered in the form.
func (l *limitsForm) apply(limits delivery.Limits) delivery.Limits {
	for i, into := range []*delivery.EndpointLimit{
		&limits.Orders, &limits.OrderStatus, &limits.Cancel, &limits.Stores, &limits.Token,
	} {
		path := "limits." + limitedEndpoints[i]
		l.window(path+".sustained", &into.Sustained)
		l.window(path+".burst", &into.Burst)
	}
	if limits.Stores.Burst.Count*limits.Stores.Sustained.Seconds > delivery.MaxBucket {
		l.Invalid("limits.stores.burst.count", fmt.Sprintf("times limits.stores.sustained.seconds must be at most %d", delivery.MaxBucket))
	}
	return limits
}

func (l *limitsForm) window(path string, into *delivery.Window) {
	count, seconds := l.windows[path][0], l.windows[path][1]
	if !count.Set && !seconds.Set {
		return
	}
	l.Require(path+".count", count.Set)
	l.Require(path+".seconds", seconds.Set)
	*into = delivery.Window{
		Count:   l.Whole(path+".count", *count, 1, delivery.MaxWindowCount),
		Seconds: l.Whole(path+".seconds", *seconds, 1, delivery.MaxWindowSeconds),
	}
}
