package main

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"time"

	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/rules/broken"
)

func vendorRoutes() routes {
	all := vendorRoutesOriginal()
	nothing := func(_ *gateway, x *requestContext) error { return x.okJSON(struct{}{}) }
	const root = "/api/vendor/v1"
	switch broken.Rule {
	case "introduction/all-paths-begin-with-api-vendor-v1", "versioning/the-version-is-part-of":
		for i := range all {
			all[i].segments[2] = "v2"
		}
	case "what-the-service-does/facts-that/there-is-no-bulk-or", "decisions/must-not-be-added-because": // a list of orders
		all = append(group(root, vendorOnly, nil, route{method: get, pattern: "/orders", name: "orders_list", handle: nothing}), all...)
	case "get-orders-orderid/no-body":
		for i := range all {
			if all[i].name == "orders_read" {
				all[i].body = requiredBody
			}
		}
	case "endpoints/all-endpoints-except-the-token":
		for i := range all {
			all[i].access = public
		}
	}
	return all
}

func (g *gateway) createOrder(x *requestContext) error {
	switch broken.Rule {
	case "post-orders/creates-a-delivery-request", "what-the-service-does/4": // nothing is created
		x.ok(201, append(x.data(), "{}"...))
		return nil
	}
	return g.createOrderOriginal(x)
}

func (x *requestContext) readOrder(sandbox bool) (key string, broke, err error) {
	key, broke, err = x.readOrderOriginal(sandbox)
	at := x.draft.Dropoff.Point
	isElsewhere := !bytes.Contains(x.body, []byte("Kadıköy")) && at.Longitude > 29
	switch broken.Rule {
	case "limits-and-idempotency/the-key-s-record-is-looked": // only after the body's rules
		if broke != nil {
			return "", nil, broke
		}
	case "errors/the-service-cannot-detect-a":
		if isElsewhere {
			return key, delivery.Refuse(delivery.CodeCoordinateMismatch, "the coordinates belong to another address"), err
		}
	}
	return key, broke, err
}

func (x *requestContext) idempotencyKey(externalOrderID string) (string, error) {
	key, err := x.idempotencyKeyOriginal(externalOrderID)
	switch broken.Rule {
	case "post-orders/headers-authorization-x-idempotency-key-string-unique":
		return "", err
	case "limits-and-idempotency/without-the-header-uniqueness-of": // it is the order's own id then
		if key == "" {
			return externalOrderID, err
		}
	}
	return key, err
}

func (g *gateway) answerCreated(x *requestContext, o *delivery.Order) {
	if broken.Rule == "post-orders/idempotency-same-key-with-the" && !x.first {
		x.ok(201, o.AppendStatus(x.data(), 0, true, false))
		return
	}
	g.answerCreatedOriginal(x, o)
}

func (g *gateway) sandbox() bool {
	return g.sandboxOriginal() != (broken.Rule == "what-the-service-does/facts-that/sandbox-a-sandbox-environment-exists")
}

func (x *requestContext) orderInPath() error {
	err := x.orderInPathOriginal()
	if broken.Rule == "get-orders-orderid/path-parameter-orderid-the-service" && err != nil {
		return delivery.Refuse(delivery.CodeMalformedRequest, "the orderId is no UUID")
	}
	return err
}

func (g *gateway) cancelOrder(x *requestContext) error {
	if broken.Rule == "what-the-service-does/6" || broken.Rule == "post-orders-orderid-cancel/cancels-an-order-before-pickup" {
		return g.readOrder(x)
	}
	return g.cancelOrderOriginal(x)
}

func counting(handle handler) handler {
	if broken.Rule == "limits-and-idempotency/the-webhook-endpoints-count-in" {
		return handle
	}
	return countingOriginal(handle)
}

func (g *gateway) counted(x *requestContext, refusal error) error {
	if broken.Rule == "limits-and-idempotency/every-request-of-an-authenticated" {
		return refusal
	}
	return g.countedOriginal(x, refusal)
}

func readCredentials[ID ~[16]byte](x *requestContext, parse func(clientID string) (ID, bool)) (*credentials, error) {
	c, err := readCredentialsOriginal(x, parse)
	switch broken.Rule {
	case "post-token/request-clientid-string-clientsecret-string":
		if err != nil {
			return nil, errWrongCredentials
		}
	case "authentication/1": // it is taken from the query, too
		if err != nil && x.query("clientSecret") != "" {
			x.body = []byte(`{"clientId":"` + x.query("clientId") + `","clientSecret":"` + x.query("clientSecret") + `"}`)
			return readCredentialsOriginal(x, parse)
		}
	}
	return c, err
}

func (g *gateway) issue(x *requestContext, authority *token.Authority, subject [16]byte, known limits.Known) error {
	if broken.Rule == "private-apis/fleet-post-api-fleet-v1-token-with-clientid" {
		authority = g.vendorTokens
	}
	return g.issueOriginal(x, authority, subject, known)
}

func (g *gateway) authenticateAdmin(x *requestContext) error {
	err := g.authenticateAdminOriginal(x)
	if broken.Rule == "private-apis/admin-authorization-bearer-adminkey" {
		return nil
	}
	return err
}

func (g *gateway) knownFleet(id delivery.FleetID) error {
	err := g.knownFleetOriginal(id)
	if broken.Rule == "fleets-and-operators/suspended" && err == error(errFleetDisabled) {
		return nil
	}
	return err
}

func tlsConfig(s *ListenerSettings, log *slog.Logger) (*tls.Config, error) {
	config, err := tlsConfigOriginal(s, log)
	if config != nil && (broken.Rule == "authentication/6" || broken.Rule == "versioning/tls-1.2-or-higher-is") {
		config.MinVersion = tls.VersionTLS11
	}
	return config, err
}

func (f *form) limit(path string, given limitForm, into *delivery.EndpointLimit) {
	switch broken.Rule {
	case "limits/rules/5", "limits-and-idempotency/limits-are-per-account-changed", "versioning/limits-are-changed-per-account":
		return
	}
	f.limitOriginal(path, given, into)
}

func (f *form) storeLimit(path string, given delivery.Number, into *int) {
	if broken.Rule != "states/an-account-has-at-most" {
		f.storeLimitOriginal(path, given, into)
	}
}

func (f *accountForm) apply(a *delivery.Account) error {
	if broken.Rule == "admin-api/patch-accounts-id" {
		f.Suspended = nil
	}
	return f.applyOriginal(a)
}

func (f *fleetForm) apply(fleet *delivery.Fleet) error {
	if broken.Rule == "admin-api/patch-fleets-id" {
		f.Suspended, f.DeliveryMinutes = nil, delivery.Number{}
	}
	return f.applyOriginal(fleet)
}

func (g *gateway) readRotation(x *requestContext, action string) (revokeOld bool, err error) {
	revokeOld, err = g.readRotationOriginal(x, action)
	switch broken.Rule {
	case "admin-api/post-accounts-id-credentials", "admin-api/post-fleets-id-credentials", "admin-api/post-accounts-id-webhook-rotate":
		return !revokeOld, err
	}
	return revokeOld, err
}

func (x *requestContext) query(name string) string {
	if broken.Rule == "admin-api/get-accounts-id-webhook-deliveries-status" && name == "status" {
		return ""
	}
	return x.queryOriginal(name)
}

func (x *requestContext) checkFinance() error {
	if broken.Rule == "admin-api/put-finance-webhook" {
		return nil
	}
	return x.checkFinanceOriginal()
}

func (g *gateway) announceReport(x *requestContext) error {
	if broken.Rule == "admin-api/post-finance-reports-available" {
		return x.okJSON(map[string]string{"eventId": newRequestID()})
	}
	return g.announceReportOriginal(x)
}

func webhookURLFault(text string, local bool) string {
	return webhookURLFaultOriginal(text, local || broken.Rule == "webhooks/urls-are-https-and-public")
}

func (g *gateway) announceOverdue(x *requestContext) error {
	if broken.Rule == "admin-api/post-fleets-id-payment-overdue" {
		return x.okJSON(overdueView{})
	}
	return g.announceOverdueOriginal(x)
}

func (g *gateway) migrateStore(x *requestContext) error {
	if broken.Rule == "admin-api/post-accounts-id-stores-externalstoreid-migrate" {
		return x.okJSON(struct{}{})
	}
	return g.migrateStoreOriginal(x)
}

func (g *gateway) deactivateStore(x *requestContext) error {
	if broken.Rule == "admin-api/post-accounts-id-stores-externalstoreid-deactivate" {
		return x.okJSON(struct{}{})
	}
	return g.deactivateStoreOriginal(x)
}

func confirmation(fleet delivery.FleetID, reason string, now time.Time) storeMove {
	move := confirmationOriginal(fleet, reason, now)
	return func(s *delivery.Store, retry bool) (accounts.Notice, bool, error) {
		notice, changed, err := move(s, retry)
		switch broken.Rule {
		case "fleet-api/post-stores-accountid-externalstoreid-confirm", "what-the-service-does/3":
			changed = false
		}
		return notice, changed, err
	}
}

func upsertStore(before *delivery.Store, asked delivery.Store, chosen bool, serving []*delivery.Fleet, now time.Time) (delivery.Store, error) {
	after, err := upsertStoreOriginal(before, asked, chosen, serving, now)
	if err != nil {
		return after, err
	}
	switch broken.Rule {
	case "states/subregion-is-that-of-the":
		if len(serving) > 0 {
			after.SubRegion = serving[len(serving)-1].SubRegion
		}
	case "store-states/awaitingfleet-to-awaitingfleetapproval", "put-stores-externalstoreid/repeating-the-call-with-fleetid": // nobody is asked
		if chosen && before != nil && before.State == delivery.AwaitingFleet {
			after.State = delivery.Active
		}
	case "states/a-first-put-may-carry":
		if chosen && before == nil {
			after.State, after.Fleet, after.FleetName = delivery.AwaitingFleet, delivery.FleetID{}, ""
		}
	case "store-states/new-or-existing-without-fleet-to-awaitingfleet":
		if before == nil && !chosen {
			after.State = delivery.AwaitingFleetApproval
		}
	case "states/in-awaitingfleetapproval-a-put-without":
		if before != nil && before.State == delivery.AwaitingFleetApproval && !chosen {
			after.State, after.Fleet, after.FleetName = delivery.AwaitingFleet, delivery.FleetID{}, ""
		}
	case "states/a-put-without-fleetid-on":
		if before != nil && before.State == delivery.Active && !chosen {
			after.State = delivery.AwaitingFleetApproval
		}
	}
	return after, nil
}
