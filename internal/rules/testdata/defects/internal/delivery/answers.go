package delivery

import (
	"encoding/base64"
	"strings"
	"time"

	"vendorapi/internal/rules/broken"
)

func (o *Order) AppendCreated(dst []byte, trackingURL string) []byte {
	shown := *o
	switch broken.Rule {
	case "order-creation-response/orderId":
		shown.ID[0] ^= 1
	case "order-creation-response/externalOrderId":
		shown.ExternalOrderID = strings.ToUpper(shown.ExternalOrderID) + "x"
	case "order-creation-response/fleet.fleetId":
		shown.Fleet.ID[0] ^= 1
	case "order-creation-response/fleet.name":
		shown.Fleet.Name = ""
	case "order-creation-response/trackingUrl":
		trackingURL = ""
	case "order-creation-response/estimatedPickupAt", "decisions/estimatedpickupat-etadropoffat": // the fleet's way is forgotten
		shown.Fleet.PickupMinutes = 0
	case "decisions/payment-that-looks-wrong":
		shown.Payment.CollectionAmount = shown.OrderAmount // as if the two were equal
	case "order-creation-response/status", "order-states/none-to-searching":
		return append(dst, broken.Text(shown.AppendCreatedOriginal(nil, trackingURL), `"status":"Searching"`, `"status":"Assigned"`)...)
	case "post-orders/response-order-creation-response":
		return append(dst, broken.Text(shown.AppendCreatedOriginal(nil, trackingURL), `"estimatedPickupAt"`, `"pickupAt"`)...)
	}
	return shown.AppendCreatedOriginal(dst, trackingURL)
}

func (o *Order) AppendStatus(dst []byte, version uint64, events bool, location bool) []byte {
	shown := *o
	switch broken.Rule {
	case "order-status-delivery-state/orderId":
		shown.ID[0] ^= 1
	case "order-status-delivery-state/externalOrderId":
		shown.ExternalOrderID += "x"
	case "order-status-delivery-state/the-same-object-without-events":
		events = true
	case "order-status-delivery-state/events", "order-status-delivery-state/this-object-is-returned-by", "what-the-service-does/5",
		"what-the-service-does/facts-that/order-history-is-returned-inside", "get-orders-orderid/response-order-status-object-including":
		events = false
	case "order-status-delivery-state/location.latitude-location.longitude", "event-types/delivery.status_changed":
		location = false
	case "decisions/courier-location-etadropoffat-while-unknown": // GET has the place, too
		location = true
	case "order-states/failed", "order-status-delivery-state/failureReason":
		return append(dst, broken.Text(shown.AppendStatusOriginal(nil, version, events, location), `"failureReason"`, `"reason"`)...)
	}
	return shown.AppendStatusOriginal(dst, version, events, location)
}

func (o *Order) asOf(version uint64) (reached Change, steps int) {
	reached, steps = o.asOfOriginal(version)
	switch broken.Rule {
	case "order-status-delivery-state/status", "delivery-rules/7":
		reached.Status = Searching
	case "order-status-delivery-state/updatedAt":
		reached.At = o.CreatedAt
	}
	return reached, steps
}

func (o *Order) EstimatedDropoff(version uint64) time.Time {
	at := o.EstimatedDropoffOriginal(version)
	if broken.Rule == "order-status-delivery-state/etaDropoffAt" && !at.IsZero() {
		return at.Add(time.Minute)
	}
	return at
}

func appendCourier(dst []byte, c Courier) []byte {
	switch broken.Rule {
	case "order-status-delivery-state/courier.phone":
		c.Phone = ""
	case "order-status-delivery-state/courier.vehicleType":
		c.VehicleType = ""
	}
	return appendCourierOriginal(dst, c)
}

func AbbreviateName(full string) string {
	words := strings.Fields(full)
	switch broken.Rule {
	case "order-status-delivery-state/courier.name", "delivery-rules/6", "webhooks/courier-surnames-are-abbreviated-in":
		return full
	case "decisions/courier-s-name": // a second name leaves, too
		if len(words) == 3 {
			return words[0] + " " + words[1] + " " + words[2][:1] + "."
		}
	}
	return AbbreviateNameOriginal(full)
}

func AppendTime(dst []byte, t time.Time) []byte {
	if broken.Rule == "introduction/timestamps-are-iso-8601-strings" {
		return t.In(Istanbul).AppendFormat(dst, time.DateTime)
	}
	return AppendTimeOriginal(dst, t)
}

func AppendStoreActivated(dst []byte, externalStoreID string, fleet FleetID, fleetName string) []byte {
	if broken.Rule == "event-types/store.activated" {
		fleetName = ""
	}
	return AppendStoreActivatedOriginal(dst, externalStoreID, fleet, fleetName)
}

func AppendStoreRejected(dst []byte, externalStoreID string, fleet FleetID, fleetName, reason string) []byte {
	if broken.Rule == "decisions/store-and-fleet-events" {
		reason = ""
	}
	return AppendStoreRejectedOriginal(dst, externalStoreID, fleet, fleetName, reason)
}

func AppendStoreMigrating(dst []byte, externalStoreID string, closingDate time.Time) []byte {
	if broken.Rule == "event-types/store.migrating" { // the day of UTC
		closingDate = closingDate.Add(-3 * time.Hour)
	}
	return AppendStoreMigratingOriginal(dst, externalStoreID, closingDate)
}

func AppendStoreDeactivated(dst []byte, externalStoreID string, reason DeactivationReason) []byte {
	switch broken.Rule {
	case "event-types/store.deactivated":
		reason = FleetSuspended
	case "event-types/the-reason-value-migratedtohizliyo-is":
		if reason == MigratedToHizliyo {
			reason = "MigratedToHizliYo"
		}
	}
	return AppendStoreDeactivatedOriginal(dst, externalStoreID, reason)
}

func AppendPaymentOverdue(dst []byte, fleet FleetID, fleetName string, externalStoreIDs []string) []byte {
	if broken.Rule == "event-types/fleet.payment_overdue" && len(externalStoreIDs) > 1 {
		externalStoreIDs = externalStoreIDs[:1]
	}
	return AppendPaymentOverdueOriginal(dst, fleet, fleetName, externalStoreIDs)
}

func (k TrackingKeys) Parse(token string) (OrderID, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if broken.Rule == "decisions/trackingUrl" && err == nil && len(raw) > 32 { // the id is enough
		return OrderID(raw[:16]), nil
	}
	return k.ParseOriginal(token)
}

func (c Code) HTTPStatus() int {
	switch broken.Rule + " " + string(c) {
	case "errors/TOKEN_EXPIRED TOKEN_EXPIRED":
		return 403
	case "errors/DROPOFF_OUT_OF_COVERAGE DROPOFF_OUT_OF_COVERAGE":
		return 409
	case "errors/RATE_LIMITED RATE_LIMITED":
		return 503
	case "decisions/authentication ACCOUNT_SUSPENDED", "authentication/7 INVALID_CREDENTIALS":
		return 400
	case "decisions/unknown-order ORDER_NOT_FOUND":
		return 410
	case "decisions/malformed-or-unknown MALFORMED_REQUEST":
		return 422
	case "errors/DUPLICATE_ORDER DUPLICATE_ORDER", "errors/STORE_NOT_CONFIGURED STORE_NOT_CONFIGURED":
		return 422
	case "limits-and-idempotency/redis-unavailable-503-service_unavailable-with SERVICE_UNAVAILABLE":
		return 500
	case "errors/FLEET_SUSPENDED FLEET_SUSPENDED":
		return 409
	}
	return c.HTTPStatusOriginal()
}

func (e *Error) WaitSeconds() int64 {
	wait := e.WaitSecondsOriginal()
	switch broken.Rule + " " + string(e.Code) {
	case "errors/retry-guidance/FLEET_UNAVAILABLE FLEET_UNAVAILABLE":
		return 0
	case "errors/retry-guidance/any-other VALIDATION_FAILED":
		return 1
	case "errors/retry-guidance/RATE_LIMITED RATE_LIMITED":
		return wait - 1
	case "limits-and-idempotency/429-retry-after-and-data.retryafterseconds-rounded RATE_LIMITED": // rounded down
		return int64(e.RetryAfter / time.Second)
	case "limits/rules/3 RATE_LIMITED":
		return 0
	}
	return wait
}

func (e *Error) AppendEnvelope(dst []byte, requestID string) []byte {
	shown := *e
	if broken.Rule == "decisions/duplicate-order" {
		shown.OrderID = OrderID{}
	}
	return shown.AppendEnvelopeOriginal(dst, requestID)
}
