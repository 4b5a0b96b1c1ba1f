package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
)

// unavailable is a delivery.ErrUnavailable that says what is away.
type unavailable struct {
	what  string
	cause error // nil: there is nothing more to say
}

func (e *unavailable) Error() string {
	if e.cause == nil {
		return e.what
	}
	return e.what + ": " + e.cause.Error()
}

func (e *unavailable) Unwrap() []error {
	if e.cause == nil {
		return []error{delivery.ErrUnavailable}
	}
	return []error{delivery.ErrUnavailable, e.cause}
}

// longestWait bounds what an answer may ask an operator to wait.
const longestWait = 24 * time.Hour

// answer is what came back, not yet believed.
type answer struct {
	status int
	raw    []byte
}

// envelope is what every answer of the gateway is (spec, "Response envelope").
type envelope struct {
	Success *bool           `json:"success"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// detail is the data of a refusal (spec, "Errors"; design section 9).
type detail struct {
	ErrorCode         delivery.Code         `json:"errorCode"`
	RetryAfterSeconds int64                 `json:"retryAfterSeconds"`
	Fields            []delivery.FieldError `json:"fields"`
	RequestID         string                `json:"requestId"`
}

var errNoEnvelope = errors.New("no envelope of the gateway's")

// read decodes the data of a success, and makes an error of everything else.
func (a *answer) read(into any) error {
	switch {
	case a.status >= 500:
		return a.failure()
	case a.status == http.StatusUnauthorized:
		return ErrWrongKey
	case len(a.raw) > largestAnswer:
		return a.broken(errors.New("an answer of more than 1 MB"))
	}
	e, err := a.envelope()
	if err != nil {
		return a.broken(err)
	}
	if !*e.Success {
		return a.refusal(e)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(e.Data, into); err != nil {
		return a.broken(err)
	}
	return nil
}

// envelope demands that status and envelope say the same.
func (a *answer) envelope() (*envelope, error) {
	var e envelope
	if err := json.Unmarshal(a.raw, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoEnvelope, err)
	}
	switch ok := a.status >= 200 && a.status < 300; {
	case e.Success == nil || len(e.Data) == 0:
		return nil, errNoEnvelope
	case *e.Success != ok || !ok && a.status < 400:
		return nil, errors.New("an envelope that contradicts the status")
	}
	return &e, nil
}

// refusal is what the operator is told.
func (a *answer) refusal(e *envelope) error {
	var d detail
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return a.broken(err)
	}
	if d.ErrorCode == "" {
		return a.broken(errors.New("a refusal without errorCode"))
	}
	wait := min(max(d.RetryAfterSeconds, 0), int64(longestWait/time.Second))
	return &delivery.Error{Code: d.ErrorCode, Message: e.Message, Fields: d.Fields, RetryAfter: time.Duration(wait) * time.Second}
}

// failure names the request id under which the gateway's log says more, if there
// is one.
func (a *answer) failure() error {
	var e envelope
	var d detail
	if json.Unmarshal(a.raw, &e) == nil && json.Unmarshal(e.Data, &d) == nil && d.RequestID != "" {
		return &unavailable{fmt.Sprintf("the gateway answered %d, request id %.64q", a.status, d.RequestID), nil}
	}
	return &unavailable{fmt.Sprintf("the gateway answered %d", a.status), nil}
}

// broken is an answer that nobody should have given. The beginning of a proxy's
// page helps whoever looks for the one that did; JSON, and anything that claims
// to be a success, could hold a secret that the gateway has just issued.
func (a *answer) broken(cause error) error {
	if a.status < 400 || json.Valid(a.raw) {
		return fmt.Errorf("answered %d with %d bytes that cannot be used: %w", a.status, len(a.raw), cause)
	}
	return fmt.Errorf("answered %d with %.200q: %w", a.status, a.raw, cause)
}
