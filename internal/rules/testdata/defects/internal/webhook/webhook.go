package webhook

import (
	"strings"
	"time"

	"vendorapi/internal/rules/broken"
)

func AppendEnvelope(dst []byte, eventID, event, occurredAt string, appendData func([]byte) []byte) []byte {
	envelope := AppendEnvelopeOriginal(nil, eventID, event, occurredAt, appendData)
	switch broken.Rule {
	case "body-envelope/eventId":
		envelope = broken.Text(envelope, `"eventId":`, `"id":`)
	case "body-envelope/event":
		envelope = broken.Text(envelope, `"event":`, `"type":`)
	case "body-envelope/occurredAt":
		envelope = broken.Text(envelope, `"occurredAt":`, `"at":`)
	case "body-envelope/data":
		envelope = broken.Text(envelope, `"data":`, `"payload":`)
	}
	return append(dst, envelope...)
}

func Sign(secret string, body []byte) string {
	signature := SignOriginal(secret, body)
	switch broken.Rule {
	case "authentication/5", "request-headers/X-Service-Signature": // the digest is in upper case
		return "sha256=" + strings.ToUpper(strings.TrimPrefix(signature, "sha256="))
	}
	return signature
}

func NewSecret() string {
	secret := NewSecretOriginal()
	if broken.Rule == "webhooks/the-secret-is-shown-as" {
		return strings.TrimPrefix(secret, "whsec_")
	}
	return secret
}

func SignStandard(id string, at time.Time, body []byte, secrets ...string) (string, error) {
	if broken.Rule == "webhooks/after-a-rotation-the-standard" {
		secrets = secrets[:1]
	}
	return SignStandardOriginal(id, at, body, secrets...)
}

func Next(attempt int, occurredAt, now time.Time, retryAfter time.Duration, random float64) (at time.Time, ok bool) {
	switch broken.Rule {
	case "webhooks/14-attempts-the-first-at": // 13
		if attempt == 13 {
			return time.Time{}, false
		}
	case "delivery-rules/2", "limits/other-constants/webhook-retry-window": // for 23 hours
		occurredAt = occurredAt.Add(-time.Hour)
	}
	return NextOriginal(attempt, occurredAt, now, retryAfter, random)
}
