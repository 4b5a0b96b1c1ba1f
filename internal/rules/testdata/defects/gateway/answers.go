package main

import (
	"encoding/json"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/internal/rules/broken"
)

func (x *requestContext) send(status int, b []byte) {
	name := ""
	if x.route != nil {
		name = x.route.name
	}
	isCreation := name == "orders_create" && status == 201
	switch broken.Rule {
	case "response-envelope/success":
		b = broken.Text(b, `"success":true`, `"success":"yes"`)
	case "response-envelope/data":
		b = broken.Text(b, `"data":`, `"result":`)
	case "response-envelope/message":
		b = broken.Text(b, `"message":`, `"text":`)
	case "response-envelope/error-detail-inside-data-errorcode":
		b = broken.Text(b, `"errorCode":`, `"code":`)
	case "errors/error-responses-use-the-envelope":
		b = broken.Text(b, `"success":false`, `"success":true`)
	case "private-apis/private-listener-json-the-same":
		if !x.vendor {
			b = broken.Text(b, `"errorCode":`, `"code":`)
		}
	case "token/accessToken", "what-the-service-does/1":
		b = broken.Text(b, `"accessToken":`, `"access_token":`)
	case "token/tokenType":
		b = broken.Text(b, `"tokenType":"Bearer"`, `"tokenType":"bearer"`)
	case "token/expiresIn":
		b = broken.Text(b, `"expiresIn":3600`, `"expiresIn":3599`)
	case "post-token/response-envelope-with-data":
		if name == "token" {
			b = broken.Text(b, `{"success":true,"data":`, `{"success":true,"token":`)
		}
	case "decisions/success-status":
		if isCreation {
			status = 200
		}
	case "post-orders/synchronous":
		if isCreation {
			status = 202
		}
	case "errors/a-status-query-over-its":
		b = broken.Text(b, "webhook", "list")
	case "fleet-api/get-jobs-status-searching-cursor":
		if name == "fleet_jobs_list" {
			b = broken.Text(b, `"floor":`, `"level":`)
		}
	case "fleet-api/get-stores-status-awaitingfleetapproval":
		b = broken.Text(b, `"stores":`, `"shops":`)
	case "admin-api/post-accounts", "admin-api/post-fleets":
		b = broken.Text(b, `"clientSecret":`, `"secret":`)
	case "admin-api/get-accounts":
		b = broken.Text(b, `"accounts":`, `"vendors":`)
	case "admin-api/get-fleets":
		b = broken.Text(b, `"fleets":`, `"list":`)
	case "admin-api/post-accounts-id-webhook-replay":
		b = broken.Text(b, `"replayed":`, `"queued":`)
	}
	x.sendOriginal(status, b)
	if broken.Rule == "introduction/request-and-response-bodies-are" {
		x.ctx.Response.Header.SetContentType("text/plain")
	}
}

func (x *requestContext) sendQuota() {
	x.sendQuotaOriginal()
	switch broken.Rule {
	case "limits/rules/2":
		x.ctx.Response.Header.Del("X-RateLimit-Remaining")
	case "limits-and-idempotency/headers-on-every-such-response":
		x.ctx.Response.Header.Del("RateLimit")
	}
}

func viewStore(s *delivery.Store, serving []*delivery.Fleet, chosen bool) storeView {
	v := viewStoreOriginal(s, serving, chosen)
	if broken.Rule == "decisions/put-with-fleetid" && chosen {
		v.Fleet = nil
	}
	if broken.Rule == "store/response-fields/status" || broken.Rule == "store-states/states-awaitingfleet-awaitingfleetapproval-active" {
		v.Status = strings.ToUpper(v.Status)
	}
	switch broken.Rule {
	case "store/response-fields/subRegion":
		v.SubRegion = ""
	case "store/response-fields/availableFleets", "what-the-service-does/2", "put-stores-externalstoreid/response-without-an-attached-fleet",
		"what-the-service-does/facts-that/fleet-discovery-is-returned-inside":
		v.Available = nil
	}
	for i := range v.Available {
		fleet := &v.Available[i]
		switch broken.Rule {
		case "store/fleet-option/fleetId":
			fleet.FleetID = strings.ToUpper(fleet.FleetID)
		case "store/fleet-option/name":
			fleet.Name = ""
		case "store/fleet-option/status":
			fleet.Status = "Active"
		case "store/fleet-option/avgDeliveryMinutes":
			fleet.DeliveryMinutes++
		}
	}
	return v
}

func viewJob(o *delivery.Order, store *delivery.Store, now time.Time) jobView {
	v := viewJobOriginal(o, store, now)
	switch broken.Rule {
	case "decisions/what-a-fleet-sees": // the amount of an order that is paid, too
		v.Payment.OrderAmount = json.Number(o.OrderAmount.String())
	case "fleet-api/get-jobs-orderid":
		v.PackageNote = ""
	}
	return v
}

func viewWebhook(e *webhooks.WebhookEndpoint, issued string) webhookView {
	switch broken.Rule {
	case "decisions/webhook-url-and-secret", "admin-api/put-accounts-id-webhook":
		issued = ""
	}
	return viewWebhookOriginal(e, issued)
}
