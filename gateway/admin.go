package main

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/delivery"
)

// adminRoutes is the admin API (design section 5). It listens on the private
// listener only; its key is the operators'.
func adminRoutes() routes {
	const root = "/api/admin/v1"
	return slices.Concat(
		group(root, adminOnly, nil,
			route{method: post, pattern: "/accounts", name: "admin_accounts_create", body: requiredBody, handle: (*gateway).createAccount},
			route{method: get, pattern: "/accounts", name: "admin_accounts_list", handle: (*gateway).listAccounts},
			route{method: get, pattern: "/webhooks", name: "admin_webhooks_list", handle: (*gateway).listWebhooks},
			route{method: post, pattern: "/fleets", name: "admin_fleets_create", body: requiredBody, handle: (*gateway).createFleet},
			route{method: get, pattern: "/fleets", name: "admin_fleets_list", handle: (*gateway).listFleets},
		),
		group(root+"/accounts/{}", adminOnly, (*requestContext).accountInPath,
			route{method: get, name: "admin_accounts_read", handle: (*gateway).readAccount},
			route{method: patch, name: "admin_accounts_change", body: requiredBody, handle: (*gateway).changeAccount},
			route{method: post, pattern: "/credentials", name: "admin_credentials_rotate", body: optionalBody, handle: (*gateway).rotateCredentials},
			route{method: put, pattern: "/webhook", name: "admin_webhook_put", body: requiredBody, handle: existing((*gateway).putWebhook)},
			route{method: get, pattern: "/webhook", name: "admin_webhook_read", handle: existing((*gateway).readWebhookHealth)},
			route{method: patch, pattern: "/webhook", name: "admin_webhook_change", body: requiredBody, handle: existing((*gateway).changeWebhook)},
			route{method: post, pattern: "/webhook/rotate", name: "admin_webhook_rotate", body: optionalBody, handle: existing((*gateway).rotateWebhookSecret)},
			route{method: get, pattern: "/webhook/deliveries", name: "admin_webhook_deliveries", handle: existing((*gateway).listDeliveries)},
			route{method: post, pattern: "/webhook/replay", name: "admin_webhook_replay", body: requiredBody, handle: existing((*gateway).replayEvents)},
			route{method: post, pattern: "/webhook/test", name: "admin_webhook_test", body: optionalBody, handle: existing((*gateway).testWebhook)},
		),
		group(root+"/accounts/{}/stores/{}", adminOnly, func(x *requestContext) error { return cmp.Or(x.accountInPath(), x.storeInPath()) },
			route{method: post, pattern: "/confirm", name: "admin_stores_confirm", body: optionalBody, handle: (*gateway).confirmForFleet},
			route{method: post, pattern: "/reject", name: "admin_stores_reject", body: optionalBody, handle: (*gateway).rejectForFleet},
			route{method: post, pattern: "/migrate", name: "admin_stores_migrate", body: requiredBody, handle: (*gateway).migrateStore},
			route{method: post, pattern: "/deactivate", name: "admin_stores_deactivate", body: requiredBody, handle: (*gateway).deactivateStore},
		),
		group(root+"/fleets/{}", adminOnly, (*requestContext).fleetInPath,
			route{method: patch, name: "admin_fleets_change", body: requiredBody, handle: (*gateway).changeFleet},
			route{method: post, pattern: "/credentials", name: "admin_fleets_credentials", body: optionalBody, handle: (*gateway).rotateFleetCredentials},
			route{method: post, pattern: "/payment-overdue", name: "admin_fleets_overdue", body: optionalBody, handle: (*gateway).announceOverdue},
		),
	)
}

// accountInPath reads the path's account id; what is no UUID names no account.
func (x *requestContext) accountInPath() (err error) {
	if x.account, err = delivery.ParseAccountID(x.param(0)); err != nil {
		return delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
	}
	return nil
}

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

// audit notes what an operator changed, and which operator if the request says so;
// never names of customers, addresses or secrets. What vendors change is not noted.
func (g *gateway) audit(x *requestContext, what string, about ...any) {
	if x.route.access != adminOnly {
		return
	}
	var line []any
	if operator := x.operator(); operator != "" {
		line = append(line, "operator", operator)
	}
	g.Log.Info("admin: "+what, append(x.subject(line...), about...)...)
}

const maxOperator = 64 // characters

// operator is the header X-Operator, which the panel sends: printable characters only, so
// that no name looks like another line or field of the log. Anything else is nobody.
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
