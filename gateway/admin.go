package main

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/delivery"
)

// adminRoutes is the admin API (design section 5). It listens on the private
// listener only; its key is the operators'.
func adminRoutes() routes {
	const root = "/api/admin/v1"
	const account, fleet = root + "/accounts/{}", root + "/fleets/{}"
	rs := routes{
		{method: post, pattern: root + "/accounts", name: "admin_accounts_create", body: requiredBody, handle: (*gateway).createAccount},
		{method: get, pattern: root + "/accounts", name: "admin_accounts_list", handle: (*gateway).listAccounts},
		{method: get, pattern: account, name: "admin_accounts_read", handle: (*gateway).readAccount},
		{method: patch, pattern: account, name: "admin_accounts_change", body: requiredBody, handle: (*gateway).changeAccount},
		{method: post, pattern: account + "/credentials", name: "admin_credentials_rotate", body: optionalBody, handle: (*gateway).rotateCredentials},
		{method: put, pattern: account + "/webhook", name: "admin_webhook_put", body: requiredBody, handle: existing((*gateway).putWebhook)},
		{method: get, pattern: account + "/webhook", name: "admin_webhook_read", handle: existing((*gateway).readWebhookHealth)},
		{method: patch, pattern: account + "/webhook", name: "admin_webhook_change", body: requiredBody, handle: existing((*gateway).changeWebhook)},
		{method: post, pattern: account + "/webhook/rotate", name: "admin_webhook_rotate", body: optionalBody, handle: existing((*gateway).rotateWebhookSecret)},
		{method: get, pattern: account + "/webhook/deliveries", name: "admin_webhook_deliveries", handle: existing((*gateway).listDeliveries)},
		{method: post, pattern: account + "/webhook/replay", name: "admin_webhook_replay", body: requiredBody, handle: existing((*gateway).replayEvents)},
		{method: post, pattern: account + "/webhook/test", name: "admin_webhook_test", body: optionalBody, handle: existing((*gateway).testWebhook)},
		{method: get, pattern: root + "/webhooks", name: "admin_webhooks_list", handle: (*gateway).listWebhooks},
		{method: post, pattern: account + "/stores/{}/confirm", name: "admin_stores_confirm", body: optionalBody, handle: (*gateway).confirmForFleet},
		{method: post, pattern: account + "/stores/{}/reject", name: "admin_stores_reject", body: optionalBody, handle: (*gateway).rejectForFleet},
		{method: post, pattern: account + "/stores/{}/migrate", name: "admin_stores_migrate", body: requiredBody, handle: (*gateway).migrateStore},
		{method: post, pattern: account + "/stores/{}/deactivate", name: "admin_stores_deactivate", body: requiredBody, handle: (*gateway).deactivateStore},
		{method: post, pattern: root + "/fleets", name: "admin_fleets_create", body: requiredBody, handle: (*gateway).createFleet},
		{method: get, pattern: root + "/fleets", name: "admin_fleets_list", handle: (*gateway).listFleets},
		{method: patch, pattern: fleet, name: "admin_fleets_change", body: requiredBody, handle: (*gateway).changeFleet},
		{method: post, pattern: fleet + "/credentials", name: "admin_fleets_credentials", body: optionalBody, handle: (*gateway).rotateFleetCredentials},
		{method: post, pattern: fleet + "/payment-overdue", name: "admin_fleets_overdue", body: optionalBody, handle: (*gateway).announceOverdue},
	}
	for i := range rs {
		rs[i].access = adminOnly
		switch pattern := rs[i].pattern; {
		case strings.HasPrefix(pattern, account+"/stores/"):
			rs[i].about = func(x *requestContext) error { return cmp.Or(x.accountInPath(), x.storeInPath()) }
		case strings.HasPrefix(pattern, account):
			rs[i].about = (*requestContext).accountInPath
		case strings.HasPrefix(pattern, fleet):
			rs[i].about = (*requestContext).fleetInPath
		}
	}
	return rs
}

// accountInPath reads the path's account id; what is no UUID names no account.
func (x *requestContext) accountInPath() (err error) {
	if x.account, err = delivery.ParseAccountID(x.param(0)); err != nil {
		return delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
	}
	return nil
}

// fleetInPath reads the path's fleet id.
func (x *requestContext) fleetInPath() (err error) {
	if x.fleet, err = delivery.ParseFleetID(x.param(0)); err != nil {
		return errNoFleet
	}
	return nil
}

var errNoFleet = delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")

// existing answers ACCOUNT_NOT_FOUND unless the path's account exists.
func existing(handle handler) handler {
	return func(g *gateway, x *requestContext) error {
		if _, err := x.ledger.Accounts.Get(g.work, x.account); err != nil {
			return err
		}
		return handle(g, x)
	}
}

// audit notes what an operator changed of the request's account, fleet or store, and
// which operator if the request says so; never names of customers, addresses or
// secrets. What vendors change is not noted.
func (g *gateway) audit(x *requestContext, what string, about ...any) {
	if x.route.access != adminOnly {
		return
	}
	var line []any
	if operator := x.operator(); operator != "" {
		line = append(line, "operator", operator)
	}
	if !x.account.IsZero() {
		line = append(line, "account", x.account.String())
	}
	if !x.fleet.IsZero() {
		line = append(line, "fleet", x.fleet.String())
	}
	if x.store != "" {
		line = append(line, "store", x.store)
	}
	g.Log.Info("admin: "+what, append(line, about...)...)
}

// maxOperator is the greatest length of an operator's name in characters.
const maxOperator = 64

// operator is who acts, as the panel names them in the header X-Operator: 1 to
// 64 printable characters, blanks within included. Anything else is nobody, so
// that no name can look like another line or another field of the log, or hide
// what it is.
func (x *requestContext) operator() string {
	value, _, err := x.header("X-Operator")
	if err != nil || !utf8.Valid(value) || utf8.RuneCount(value) > maxOperator {
		return ""
	}
	name := string(value)
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return name
}
