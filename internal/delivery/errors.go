package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Code is an errorCode of the envelope (spec, "Errors"; design section 9).
type Code string

// The codes of the spec.
const (
	CodeTokenExpired          Code = "TOKEN_EXPIRED"
	CodeStoreNotConfigured    Code = "STORE_NOT_CONFIGURED"
	CodeDuplicateOrder        Code = "DUPLICATE_ORDER"
	CodeInvalidRecipient      Code = "INVALID_RECIPIENT"
	CodeInvalidPhone          Code = "INVALID_PHONE"
	CodeInvalidAddress        Code = "INVALID_ADDRESS"
	CodeCoordinateMismatch    Code = "COORDINATE_MISMATCH"
	CodeDropoffOutOfCoverage  Code = "DROPOFF_OUT_OF_COVERAGE"
	CodeReadyAtTooFar         Code = "READY_AT_TOO_FAR"
	CodeFleetSuspended        Code = "FLEET_SUSPENDED"
	CodeRateLimited           Code = "RATE_LIMITED"
	CodeFleetUnavailable      Code = "FLEET_UNAVAILABLE"
	CodeMalformedRequest      Code = "MALFORMED_REQUEST"
	CodeValidationFailed      Code = "VALIDATION_FAILED"
	CodeNotFound              Code = "NOT_FOUND"
	CodeMethodNotAllowed      Code = "METHOD_NOT_ALLOWED"
	CodeLengthRequired        Code = "LENGTH_REQUIRED"
	CodePayloadTooLarge       Code = "PAYLOAD_TOO_LARGE"
	CodeUnsupportedMediaType  Code = "UNSUPPORTED_MEDIA_TYPE"
	CodeInternal              Code = "INTERNAL_ERROR"
	CodeInvalidCredentials    Code = "INVALID_CREDENTIALS"
	CodeTokenInvalid          Code = "TOKEN_INVALID"
	CodeAccountSuspended      Code = "ACCOUNT_SUSPENDED"
	CodeOrderNotFound         Code = "ORDER_NOT_FOUND"
	CodeOrderNotCancellable   Code = "ORDER_NOT_CANCELLABLE"
	CodeFleetNotAvailable     Code = "FLEET_NOT_AVAILABLE"
	CodeServiceUnavailable    Code = "SERVICE_UNAVAILABLE"
	CodeAccountNotFound       Code = "ACCOUNT_NOT_FOUND"
	CodeFleetNotFound         Code = "FLEET_NOT_FOUND"
	CodeStoreNotFound         Code = "STORE_NOT_FOUND"
	CodeStoreNotPending       Code = "STORE_NOT_PENDING"
	CodeWebhookNotConfigured  Code = "WEBHOOK_NOT_CONFIGURED"
	CodeJobNotAvailable       Code = "JOB_NOT_AVAILABLE"
	CodeEventNotFound         Code = "EVENT_NOT_FOUND"
	CodeRequestHeaderTooLarge Code = "REQUEST_HEADER_TOO_LARGE"
	CodeForbidden             Code = "FORBIDDEN"
	CodeFleetDisabled         Code = "FLEET_DISABLED"
	CodeOrderEnded            Code = "ORDER_ENDED"
	CodeJobTaken              Code = "JOB_TAKEN"
	CodeTooManyReports        Code = "TOO_MANY_REPORTS"
	CodeTooManySecrets        Code = "TOO_MANY_SECRETS"
)

// httpStatuses is the one table of codes and HTTP statuses.
var httpStatuses = map[Code]int{
	CodeMalformedRequest: 400,
	CodeTokenExpired:     401, CodeInvalidCredentials: 401, CodeTokenInvalid: 401,
	CodeAccountSuspended: 403, CodeForbidden: 403, CodeFleetDisabled: 403,
	CodeNotFound: 404, CodeOrderNotFound: 404, CodeAccountNotFound: 404, CodeFleetNotFound: 404,
	CodeStoreNotFound: 404, CodeWebhookNotConfigured: 404, CodeEventNotFound: 404,
	CodeMethodNotAllowed:   405,
	CodeStoreNotConfigured: 409, CodeDuplicateOrder: 409, CodeOrderNotCancellable: 409, CodeStoreNotPending: 409,
	CodeJobNotAvailable: 409, CodeOrderEnded: 409, CodeJobTaken: 409, CodeTooManyReports: 409,
	CodeTooManySecrets:       409,
	CodeLengthRequired:       411,
	CodePayloadTooLarge:      413,
	CodeUnsupportedMediaType: 415,
	CodeInvalidRecipient:     422, CodeInvalidPhone: 422, CodeInvalidAddress: 422, CodeCoordinateMismatch: 422,
	CodeDropoffOutOfCoverage: 422, CodeReadyAtTooFar: 422, CodeValidationFailed: 422, CodeFleetNotAvailable: 422,
	CodeFleetSuspended:        423,
	CodeRateLimited:           429,
	CodeRequestHeaderTooLarge: 431,
	CodeInternal:              500,
	CodeFleetUnavailable:      503, CodeServiceUnavailable: 503,
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
