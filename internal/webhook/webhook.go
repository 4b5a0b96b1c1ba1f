// Package webhook is the wire contract of an event as a vendor receives it: the
// headers and the body's envelope (spec, "Events"), the two signatures with
// their secrets, and when a failed delivery is tried again (design section 7).
//
// It owns both sides of a signature, so that a receiver written with it and the
// sender cannot disagree.
//
// It refuses everything that is not on the wire: it sends nothing, keeps
// nothing, knows no order and no endpoint, and has no clock of its own. It
// imports nothing of this project.
package webhook

import (
	"encoding/json"
	"unicode/utf8"
)

// Headers of the spec, "Request headers".
const (
	HeaderSignature = "X-Service-Signature" // Sign
	HeaderEvent     = "X-Service-Event"     // the event type
	HeaderAttempt   = "X-Service-Attempt"   // 1 for the first delivery
)

// Headers of Standard Webhooks, which protect against replay, spelled as
// net/http does it.
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
	dst = appendString(dst, eventID)
	dst = append(dst, `,"event":`...)
	dst = appendString(dst, event)
	dst = append(dst, `,"occurredAt":`...)
	dst = appendString(dst, occurredAt)
	dst = append(dst, `,"data":`...)
	return append(appendData(dst), '}')
}

// appendString appends a JSON string. Identifiers, event types and times need
// no escaping; anything else takes the slow way.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) // a string always can be
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
