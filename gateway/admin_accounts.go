package main

import (
	"crypto/sha256"
	"fmt"
	"time"

	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
)

// oldSecretLifetime is how long a rotated client secret still works (design section 5).
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

type accountForm struct {
	*form     `json:"-"`
	Name      delivery.Text `json:"name"`
	Suspended *bool         `json:"suspended"`
	// A misspelt limit would otherwise stay as it was.
	Limits struct {
		Orders      limitForm `json:"orders"`
		OrderStatus limitForm `json:"orderStatus"`
		Cancel      limitForm `json:"cancel"`
		Stores      limitForm `json:"stores"`
		Token       limitForm `json:"token"`
	} `json:"limits" closed:"true"`
}

// limitForm is the limit of one endpoint as design section 5 writes it.
type limitForm struct {
	Sustained windowForm `json:"sustained"`
	Burst     windowForm `json:"burst"`
}

type windowForm struct {
	Count   delivery.Number `json:"count"`
	Seconds delivery.Number `json:"seconds"`
}

func readAccountForm(x *requestContext) *accountForm {
	f := new(accountForm)
	f.form = x.form(f)
	return f
}

func (f *accountForm) apply(a *delivery.Account) error {
	if f.Name.Set {
		a.Name = f.Line("name", f.Name, false, 1, maxName)
	}
	set(f.Suspended, &a.Suspended)
	f.limit("limits.orders", f.Limits.Orders, &a.Limits.Orders)
	f.limit("limits.orderStatus", f.Limits.OrderStatus, &a.Limits.OrderStatus)
	f.limit("limits.cancel", f.Limits.Cancel, &a.Limits.Cancel)
	f.limit("limits.stores", f.Limits.Stores, &a.Limits.Stores)
	f.limit("limits.token", f.Limits.Token, &a.Limits.Token)
	if a.Limits.Stores.Burst.Count*a.Limits.Stores.Sustained.Seconds > delivery.MaxBucket {
		f.Invalid("limits.stores.burst.count", fmt.Sprintf("times limits.stores.sustained.seconds must be at most %d", delivery.MaxBucket))
	}
	return f.err()
}

// limit replaces the given windows of a limit.
func (f *form) limit(path string, given limitForm, into *delivery.EndpointLimit) {
	f.window(path+".sustained", given.Sustained, &into.Sustained)
	f.window(path+".burst", given.Burst, &into.Burst)
}

func (f *form) window(path string, given windowForm, into *delivery.Window) {
	if !given.Count.Set && !given.Seconds.Set {
		return
	}
	f.Require(path+".count", given.Count.Set)
	f.Require(path+".seconds", given.Seconds.Set)
	*into = delivery.Window{
		Count:   f.Whole(path+".count", given.Count, 1, delivery.MaxWindowCount),
		Seconds: f.Whole(path+".seconds", given.Seconds, 1, delivery.MaxWindowSeconds),
	}
}

// createAccount is POST /accounts {name, limits?}.
func (g *gateway) createAccount(x *requestContext) error {
	f := readAccountForm(x)
	f.Require("name", f.Name.Set)
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
	return list(x, "accounts", viewAccount)(x.ledger.Accounts.List(g.work))
}

// readAccount is GET /accounts/{id}.
func (g *gateway) readAccount(x *requestContext) error {
	return show(x, viewAccount)(x.ledger.Accounts.Get(g.work, x.account))
}

// changeAccount is PATCH /accounts/{id} {name?, suspended?, limits?}. Every gateway
// follows it from its next request on.
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
	var body struct {
		RevokeOld *bool `json:"revokeOld"`
	}
	f := x.form(&body)
	set(body.RevokeOld, &revokeOld)
	return revokeOld, f.err()
}

// rotateCredentials is POST /accounts/{id}/credentials {revokeOld?}. With revokeOld all
// earlier secrets and every token end now.
func (g *gateway) rotateCredentials(x *requestContext) error {
	return g.rotateSecret(x, x.account.ClientID(), func(digest [sha256.Size]byte, oldUntil time.Time, revokeOld bool) error {
		return x.ledger.Accounts.RotateSecret(g.work, x.account, digest, oldUntil, revokeOld)
	})
}

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
