package main

import (
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
		{method: get, pattern: root + "/webhooks", name: "admin_webhooks_list", handle: (*gateway).listWebhooks},
		{method: post, pattern: account + "/stores/{}/migrate", name: "admin_stores_migrate", body: requiredBody, handle: (*gateway).migrateStore},
		{method: post, pattern: account + "/stores/{}/deactivate", name: "admin_stores_deactivate", body: requiredBody, handle: (*gateway).deactivateStore},
		{method: post, pattern: root + "/fleets", name: "admin_fleets_create", body: requiredBody, handle: (*gateway).createFleet},
		{method: get, pattern: root + "/fleets", name: "admin_fleets_list", handle: (*gateway).listFleets},
		{method: patch, pattern: root + "/fleets/{}", name: "admin_fleets_change", body: requiredBody, handle: (*gateway).changeFleet},
		{method: post, pattern: root + "/fleets/{}/payment-overdue", name: "admin_fleets_overdue", body: optionalBody, handle: (*gateway).announceOverdue},
	}
	for i := range rs {
		rs[i].access = adminOnly
	}
	return rs
}

// accountID reads the path's account id; what is no UUID names no account.
func (x *exchange) accountID() (delivery.AccountID, error) {
	if text, ok := x.param(0); ok {
		if id, err := delivery.ParseAccountID(text); err == nil {
			return id, nil
		}
	}
	return delivery.AccountID{}, delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
}

// fleetID reads the path's fleet id.
func (x *exchange) fleetID() (delivery.FleetID, error) {
	if text, ok := x.param(0); ok {
		if id, err := delivery.ParseFleetID(text); err == nil {
			return id, nil
		}
	}
	return delivery.FleetID{}, delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
}

// audit notes what an operator changed; never names, addresses or secrets.
func (g *gateway) audit(what string, about ...any) {
	g.log.Info("admin: "+what, about...)
}
