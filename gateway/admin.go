package main

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/delivery"
)

// adminRoutes is the admin API (design section 5). It listens on the private
// listener only; its key is the operators'.
func adminRoutes() routes {
	const root = "/api/admin/v1"
	const account = root + "/accounts/{}"
	rs := routes{
		{method: post, pattern: root + "/accounts", name: "admin_accounts_create", body: requiredBody, handle: (*gateway).createAccount},
		{method: get, pattern: root + "/accounts", name: "admin_accounts_list", handle: (*gateway).listAccounts},
		{method: get, pattern: account, name: "admin_accounts_read", handle: (*gateway).readAccount},
		{method: patch, pattern: account, name: "admin_accounts_change", body: requiredBody, handle: (*gateway).changeAccount},
		{method: post, pattern: account + "/credentials", name: "admin_credentials_rotate", body: optionalBody, handle: (*gateway).rotateCredentials},
		{method: put, pattern: account + "/webhook", name: "admin_webhook_put", body: requiredBody, handle: (*gateway).putAccountWebhook},
		{method: get, pattern: account + "/webhook", name: "admin_webhook_read", handle: (*gateway).readAccountWebhook},
		{method: patch, pattern: account + "/webhook", name: "admin_webhook_change", body: requiredBody, handle: (*gateway).changeAccountWebhook},
		{method: post, pattern: account + "/webhook/rotate", name: "admin_webhook_rotate", body: optionalBody, handle: (*gateway).rotateWebhookSecret},
		{method: get, pattern: account + "/webhook/deliveries", name: "admin_webhook_deliveries", handle: (*gateway).listDeliveries},
		{method: post, pattern: account + "/webhook/replay", name: "admin_webhook_replay", body: requiredBody, handle: (*gateway).replayEvents},
		{method: post, pattern: account + "/webhook/test", name: "admin_webhook_test", body: optionalBody, handle: (*gateway).testAccountWebhook},
		{method: get, pattern: root + "/webhooks", name: "admin_webhooks_list", handle: (*gateway).listWebhooks},
		{method: post, pattern: account + "/stores/{}/confirm", name: "admin_stores_confirm", body: optionalBody, handle: (*gateway).confirmForFleet},
		{method: post, pattern: account + "/stores/{}/reject", name: "admin_stores_reject", body: optionalBody, handle: (*gateway).rejectForFleet},
		{method: post, pattern: account + "/stores/{}/migrate", name: "admin_stores_migrate", body: requiredBody, handle: (*gateway).migrateStore},
		{method: post, pattern: account + "/stores/{}/deactivate", name: "admin_stores_deactivate", body: requiredBody, handle: (*gateway).deactivateStore},
		{method: post, pattern: root + "/fleets", name: "admin_fleets_create", body: requiredBody, handle: (*gateway).createFleet},
		{method: get, pattern: root + "/fleets", name: "admin_fleets_list", handle: (*gateway).listFleets},
		{method: patch, pattern: root + "/fleets/{}", name: "admin_fleets_change", body: requiredBody, handle: (*gateway).changeFleet},
		{method: post, pattern: root + "/fleets/{}/credentials", name: "admin_fleets_credentials", body: optionalBody, handle: (*gateway).rotateFleetCredentials},
		{method: post, pattern: root + "/fleets/{}/payment-overdue", name: "admin_fleets_overdue", body: optionalBody, handle: (*gateway).announceOverdue},
	}
	for i := range rs {
		rs[i].access = adminOnly
	}
	return rs
}

// accountID reads the path's account id; what is no UUID names no account.
func (x *exchange) accountID() (delivery.AccountID, error) {
	if id, err := delivery.ParseAccountID(x.param(0)); err == nil {
		return id, nil
	}
	return delivery.AccountID{}, delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
}

// fleetID reads the path's fleet id.
func (x *exchange) fleetID() (delivery.FleetID, error) {
	if id, err := delivery.ParseFleetID(x.param(0)); err == nil {
		return id, nil
	}
	return delivery.FleetID{}, delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
}

// audit notes what an operator changed, and which one if the request says so;
// never names of customers, addresses or secrets.
func (g *gateway) audit(x *exchange, what string, about ...any) {
	if operator := x.operator(); operator != "" {
		about = append([]any{"operator", operator}, about...)
	}
	g.Log.Info("admin: "+what, about...)
}

// maxOperator is the greatest length of an operator's name in characters.
const maxOperator = 64

// operator is who acts, as the panel names them in the header X-Operator: 1 to
// 64 printable characters, blanks within included. Anything else is nobody, so
// that no name can look like another line or another field of the log, or hide
// what it is.
func (x *exchange) operator() string {
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
