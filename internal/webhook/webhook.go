// Package webhook is the wire contract of an event as a vendor receives it: the
// headers and the body's envelope (spec, "Events"), the two signatures with
// their secrets, and when a failed delivery is tried again (design section 7).
package webhook

import "vendorapi/internal/delivery"

// Headers of the spec, "Request headers".
const (
	HeaderSignature = "X-Service-Signature" // Sign
	HeaderEvent     = "X-Service-Event"     // the event type
	HeaderAttempt   = "X-Service-Attempt"   // 1 for the first delivery
)

// Headers of Standard Webhooks, spelled as net/http does it.
const (
	HeaderID                = "Webhook-Id"        // the eventId
	HeaderTimestamp         = "Webhook-Timestamp" // Unix seconds of the attempt
	HeaderStandardSignature = "Webhook-Signature" // SignStandard
)

// AppendEnvelope appends the body of an event (spec, "Body envelope").
// occurredAt is formatted already; appendData appends a JSON value, which is
// taken as it is.
func AppendEnvelope(dst []byte, eventID, event, occurredAt string, appendData func([]byte) []byte) []byte {
	dst = append(dst, `{"eventId":`...)
	dst = delivery.AppendString(dst, eventID)
	dst = append(dst, `,"event":`...)
	dst = delivery.AppendString(dst, event)
	dst = append(dst, `,"occurredAt":`...)
	dst = delivery.AppendString(dst, occurredAt)
	dst = append(dst, `,"data":`...)
	return append(appendData(dst), '}')
}
