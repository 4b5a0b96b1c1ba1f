package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Code is an errorCode of the envelope (spec, "Errors"; decisions, "Malformed or unknown",
// "Authentication", "Unknown order" and "Duplicate order").
type Code string

// The codes of the spec, each with its HTTP status.
var (
	CodeMalformedRequest      = code(400, "MALFORMED_REQUEST")
	CodeTokenExpired          = code(401, "TOKEN_EXPIRED")
	CodeInvalidCredentials    = code(401, "INVALID_CREDENTIALS")
	CodeTokenInvalid          = code(401, "TOKEN_INVALID")
	CodeAccountSuspended      = code(403, "ACCOUNT_SUSPENDED")
	CodeForbidden             = code(403, "FORBIDDEN")
	CodeFleetDisabled         = code(403, "FLEET_DISABLED")
	CodeNotFound              = code(404, "NOT_FOUND")
	CodeOrderNotFound         = code(404, "ORDER_NOT_FOUND")
	CodeAccountNotFound       = code(404, "ACCOUNT_NOT_FOUND")
	CodeFleetNotFound         = code(404, "FLEET_NOT_FOUND")
	CodeStoreNotFound         = code(404, "STORE_NOT_FOUND")
	CodeWebhookNotConfigured  = code(404, "WEBHOOK_NOT_CONFIGURED")
	CodeEventNotFound         = code(404, "EVENT_NOT_FOUND")
	CodeMethodNotAllowed      = code(405, "METHOD_NOT_ALLOWED")
	CodeStoreNotConfigured    = code(409, "STORE_NOT_CONFIGURED")
	CodeDuplicateOrder        = code(409, "DUPLICATE_ORDER")
	CodeOrderNotCancellable   = code(409, "ORDER_NOT_CANCELLABLE")
	CodeStoreNotPending       = code(409, "STORE_NOT_PENDING")
	CodeJobNotAvailable       = code(409, "JOB_NOT_AVAILABLE")
	CodeOrderEnded            = code(409, "ORDER_ENDED")
	CodeJobTaken              = code(409, "JOB_TAKEN")
	CodeTooManyReports        = code(409, "TOO_MANY_REPORTS")
	CodeTooManySecrets        = code(409, "TOO_MANY_SECRETS")
	CodeTooManyStores         = code(409, "TOO_MANY_STORES")
	CodeTooManyReplays        = code(409, "TOO_MANY_REPLAYS")
	CodeWebhookBeingRemoved   = code(409, "WEBHOOK_BEING_REMOVED")
	CodeLengthRequired        = code(411, "LENGTH_REQUIRED")
	CodePayloadTooLarge       = code(413, "PAYLOAD_TOO_LARGE")
	CodeUnsupportedMediaType  = code(415, "UNSUPPORTED_MEDIA_TYPE")
	CodeInvalidRecipient      = code(422, "INVALID_RECIPIENT")
	CodeInvalidPhone          = code(422, "INVALID_PHONE")
	CodeInvalidAddress        = code(422, "INVALID_ADDRESS")
	CodeCoordinateMismatch    = code(422, "COORDINATE_MISMATCH")
	CodeDropoffOutOfCoverage  = code(422, "DROPOFF_OUT_OF_COVERAGE")
	CodeReadyAtTooFar         = code(422, "READY_AT_TOO_FAR")
	CodeValidationFailed      = code(422, "VALIDATION_FAILED")
	CodeFleetNotAvailable     = code(422, "FLEET_NOT_AVAILABLE")
	CodeFleetSuspended        = code(423, "FLEET_SUSPENDED")
	CodeRateLimited           = code(429, "RATE_LIMITED")
	CodeRequestHeaderTooLarge = code(431, "REQUEST_HEADER_TOO_LARGE")
	CodeInternal              = code(500, "INTERNAL_ERROR")
	CodeFleetUnavailable      = code(503, "FLEET_UNAVAILABLE")
	CodeServiceUnavailable    = code(503, "SERVICE_UNAVAILABLE")
)

var httpStatuses = map[Code]int{}

func code(status int, name Code) Code {
	httpStatuses[name] = status
	return name
}

// HTTPStatus is the status of an answer with this code; 500 for an unknown code.
func (c Code) HTTPStatus() int { return cmp.Or(httpStatuses[c], 500) }

// Codes lists every code once, in no particular order.
func Codes() []Code { return slices.Collect(maps.Keys(httpStatuses)) }

// FieldError is a field of a request, by its JSON path, that breaks a rule.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error is a refusal for the caller. Other errors answer 500 or 503 without detail.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // how long to wait, whole seconds in answers; zero: it does not help
	Fields     []FieldError  // all faults of a body, the one that decided the code first
	OrderID    OrderID       // set for a DUPLICATE_ORDER caused by a used externalOrderId
	Status     Status        // set for ORDER_NOT_CANCELLABLE, JOB_NOT_AVAILABLE and ORDER_ENDED
	Store      StoreState    // set for STORE_NOT_CONFIGURED and STORE_NOT_PENDING, if there is one
	Courier    string        // set for JOB_TAKEN: the abbreviated name of who has the job
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// WaitSeconds is how long the client should wait, rounded up, at least 1 of a 429; 0: in vain.
func (e *Error) WaitSeconds() int64 {
	wait := int64((e.RetryAfter + time.Second - 1) / time.Second)
	if e.Code == CodeRateLimited {
		wait = max(wait, 1)
	}
	return wait
}

// Refuse builds a refusal with a formatted message.
func Refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf is the code of a *Error in err's chain, else INTERNAL_ERROR.
func CodeOf(err error) Code {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal.Code
	}
	return CodeInternal
}

// ErrUnavailable marks a failure of Redis. It answers 503 SERVICE_UNAVAILABLE.
var ErrUnavailable = errors.New("the ledger is unavailable")
