package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
)

// unavailableFor is how long a client is asked to wait for Redis or ClickHouse
// when nobody knows better.
const unavailableFor = 2 * time.Second

// Explain is err as the client is told of it: a *delivery.Error in its chain as
// it is, a failure of what the service stands on as SERVICE_UNAVAILABLE, and
// anything else without detail. The last two are logged under a request id.
func Explain(r *http.Request, log *slog.Logger, err error) (e *delivery.Error, requestID string) {
	if errors.As(err, &e) {
		return e, ""
	}
	requestID = fmt.Sprintf("%016x", rand.Uint64())
	switch {
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		log.Debug("the client has gone", "request_id", requestID, "path", r.URL.Path, "error", err)
	case errors.Is(err, delivery.ErrUnavailable):
		log.Warn("unavailable", "request_id", requestID, "path", r.URL.Path, "error", err)
		return &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: unavailableFor,
			Message: "the service cannot answer right now; sending the same request again is safe"}, requestID
	default:
		log.Error("request failed", "request_id", requestID, "path", r.URL.Path, "error", err)
	}
	return delivery.Refuse(delivery.CodeInternal, "something went wrong on our side; quote the request id"), requestID
}

// envelope is an error's answer (spec, "Response envelope"; design section 9).
type envelope struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Data    detail `json:"data"`
}

type detail struct {
	ErrorCode         delivery.Code         `json:"errorCode"`
	RetryAfterSeconds int64                 `json:"retryAfterSeconds,omitempty"`
	Fields            []delivery.FieldError `json:"fields,omitempty"`
	RequestID         string                `json:"requestId,omitempty"`
}

// Refuse answers an error in the service's envelope, with WWW-Authenticate and
// Retry-After where they belong. Nothing of the answer may have been written.
func Refuse(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	e, requestID := Explain(r, log, err)
	body, err := json.Marshal(envelope{Message: e.Message,
		Data: detail{ErrorCode: e.Code, RetryAfterSeconds: WaitSeconds(e), Fields: e.Fields, RequestID: requestID}})
	if err != nil {
		log.Error("encode a refusal", "error", err)
	}
	writeRefusal(w, e, requestID, "application/json", body)
}

// writeRefusal writes what a refusal's answers have in common, whatever their
// form.
func writeRefusal(w http.ResponseWriter, e *delivery.Error, requestID, contentType string, body []byte) {
	h := w.Header()
	if wait := WaitSeconds(e); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
	}
	if requestID != "" {
		h.Set("X-Request-Id", requestID)
	}
	status := e.Code.HTTPStatus()
	if status == http.StatusUnauthorized && contentType == "application/json" {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the asker went away: nothing to do
}

// WaitSeconds is how long the client should wait, rounded up; 0 when waiting
// does not help. A 429 always says at least one second.
func WaitSeconds(e *delivery.Error) int64 {
	wait := int64((e.RetryAfter + time.Second - 1) / time.Second)
	if e.Code == delivery.CodeRateLimited {
		wait = max(wait, 1)
	}
	return wait
}
