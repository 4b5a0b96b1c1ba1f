// Package webhook is the wire contract of an event as a vendor receives it: the
// headers and the body's envelope (spec, "Events"), the two signatures with
// their secrets, and when a failed delivery is tried again (decisions, "Webhooks").
package webhook

import "vendorapi/internal/delivery"

// Names of headers are in lower case, as Standard Webhooks has them and as HTTP/2 sends them:
// verifiers of PHP and Ruby look up nothing else where the server hands names on as they came,
// and a program that lowers them with a Turkish locale makes "webhook-ıd" of "Webhook-Id".
// http.Header.Set and Get would change the names: they are keys of the map.

// Headers of the spec, "Request headers".
const (
	HeaderSignature = "x-service-signature" // Sign
	HeaderEvent     = "x-service-event"     // the event type
	HeaderAttempt   = "x-service-attempt"   // 1 for the first delivery
)

// Headers of Standard Webhooks.
const (
	HeaderID                = "webhook-id"        // the eventId
	HeaderTimestamp         = "webhook-timestamp" // Unix seconds of the attempt
	HeaderStandardSignature = "webhook-signature" // SignStandard
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
