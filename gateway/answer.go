package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/bytedance/sonic"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/limits"
)

var (
	headerLimit      = []byte("X-RateLimit-Limit")
	headerRemaining  = []byte("X-RateLimit-Remaining")
	headerReset      = []byte("X-RateLimit-Reset")
	headerRateLimit  = []byte("RateLimit")
	headerRatePolicy = []byte("RateLimit-Policy")
	typeJSON         = []byte("application/json")
)

const headerRequestID = "X-Request-Id"

// data begins a successful answer; the caller appends the data object, and calls ok.
func (x *requestContext) data() []byte { return append(x.out[:0], `{"success":true,"data":`...) }

func (x *requestContext) ok(status int, b []byte) { x.send(status, append(b, '}')) }

func (x *requestContext) okJSON(data any) error { return x.sendJSON(200, data) }

// answers encodes data objects. The members of maps are sorted, so that equal answers are equal bytes.
var answers = sonic.Config{SortMapKeys: true}.Froze()

// sendJSON sends a data object, encoded by sonic. Package delivery appends the answers of
// the Vendor API's order calls, which saves 6 allocations (BenchmarkAnswer).
func (x *requestContext) sendJSON(status int, data any) error {
	encoded, err := answers.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	x.ok(status, append(x.data(), encoded...))
	return nil
}

// show answers with what a call of the ledger gave, as view has it.
func show[T, V any](x *requestContext, view func(T) V) func(T, error) error {
	return func(value T, err error) error {
		if err != nil {
			return err
		}
		return x.okJSON(view(value))
	}
}

// list answers with all that a call of the ledger gave, under a name.
func list[T, V any](x *requestContext, name string, view func(T) V) func([]T, error) error {
	return show(x, func(values []T) map[string]any { return map[string]any{name: viewAll(values, view)} })
}

// okParts sends a list that was put together from the partitions. One that lacks those of a server that
// does not answer says so with incomplete; a whole one has no such member.
func (x *requestContext) okParts(answer map[string]any, gaps ledger.Gaps) error {
	if gaps.Found {
		answer["incomplete"] = true
	}
	return x.okJSON(answer)
}

func viewAll[T, V any](values []T, view func(T) V) []V {
	views := make([]V, len(values))
	for i, value := range values {
		views[i] = view(value)
	}
	return views
}

// okSecret sends a data object that nobody may keep a copy of.
func (x *requestContext) okSecret(data any) error {
	x.ctx.Response.Header.Set("Cache-Control", "no-store")
	return x.okJSON(data)
}

func (x *requestContext) send(status int, b []byte) {
	x.out = b
	r := &x.ctx.Response
	r.SetStatusCode(status)
	r.Header.SetContentTypeBytes(typeJSON)
	x.sendQuota()
	r.SetBody(b)
}

// bucketNames are the limits' names in RateLimit and RateLimit-Policy, those of
// an account's limits, and what counts in them.
var bucketNames = [...]struct{ policy, endpoint string }{
	limits.EndpointOrders:      {"orders", "POST /orders"},
	limits.EndpointOrderStatus: {"orderStatus", "GET /orders/{orderId}"},
	limits.EndpointCancel:      {"cancel", "POST /orders/{orderId}/cancel"},
	limits.EndpointStores:      {"stores", "PUT /stores/{externalStoreId} and /webhook"},
	limits.EndpointToken:       {"token", "POST /token"},
}

// sendQuota sets the headers of the bucket that the request was counted in (spec,
// "Limits", rule 2), and the same in the fields of draft-ietf-httpapi-ratelimit-headers-10,
// which need no clock. A bucket without a window has no w there.
func (x *requestContext) sendQuota() {
	if x.quota.Limit == 0 {
		return
	}

	var digits [20]byte
	h := &x.ctx.Response.Header
	h.SetCanonical(headerLimit, strconv.AppendInt(digits[:0], int64(x.quota.Limit), 10))
	h.SetCanonical(headerRemaining, strconv.AppendInt(digits[:0], int64(x.quota.Remaining), 10))
	h.SetCanonical(headerReset, strconv.AppendInt(digits[:0], x.quota.Reset, 10))
	var item [96]byte
	name := append(append(item[:0], '"'), bucketNames[x.route.bucket].policy...)
	if x.quota.Window > 0 {
		name = append(strconv.AppendInt(append(name, '-'), int64(x.quota.Window), 10), 's')
	}

	name = append(name, '"')
	policy := strconv.AppendInt(append(name, ";q="...), int64(x.quota.Limit), 10)
	if x.quota.Window > 0 {
		policy = strconv.AppendInt(append(policy, ";w="...), int64(x.quota.Window), 10)
	}

	h.SetCanonical(headerRatePolicy, policy)
	left := strconv.AppendInt(append(name, ";r="...), int64(x.quota.Remaining), 10)
	h.SetCanonical(headerRateLimit, strconv.AppendInt(append(left, ";t="...), int64(x.quota.ResetIn), 10))
}

// refuse answers an error: a *delivery.Error as it is, a failure of Redis 503, anything
// else 500 without detail.
func (g *gateway) refuse(x *requestContext, err error) {
	var refusal *delivery.Error
	requestID := ""
	if !errors.As(err, &refusal) {
		refusal, requestID = g.fault(x, err)
	}

	if refusal.Code == delivery.CodeRateLimited && x.quota.Limit > 0 {
		named := *refusal
		named.Message = bucketNames[x.route.bucket].endpoint + ": " + refusal.Message
		refusal = &named
	}

	x.meter.refused(refusal, ledgerCauseOf(err))
	if l := g.Ledger(); l != nil && x.vendor {
		l.Limits.CountRefusal(refusal.Code) // for the operators' overview, over all gateways
	}

	h := &x.ctx.Response.Header
	if requestID != "" {
		h.Set(headerRequestID, requestID)
	}

	if wait := refusal.WaitSeconds(); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
	}

	status := refusal.Code.HTTPStatus()
	if status == 401 {
		h.Set("WWW-Authenticate", "Bearer")
	}

	x.send(status, refusal.AppendEnvelope(x.out[:0], requestID))
}

func newRequestID() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// fault logs an error of the service under a request id, and makes it a refusal.
func (g *gateway) fault(x *requestContext, err error) (*delivery.Error, string) {
	requestID := newRequestID()
	if x.audited != nil {
		requestID = x.audited.RequestID
	}

	if errors.Is(err, delivery.ErrUnavailable) {
		faults, level, what := &g.outages, slog.LevelError, "the ledger is unavailable"
		if ledgerCauseOf(err) == causeContended {
			faults, level, what = &g.contention, slog.LevelWarn, "a record was changed by others at every try"
		}

		unlogged, due := faults.due(x.now)
		if due {
			g.Log.Log(g.work, level, what, g.about(x, requestID, "error", err, "unlogged", unlogged)...)
		}

		message := "the service cannot answer right now; sending the same request again is safe"
		mayBeDone := x.route != nil && x.route.onceOnly && !errors.Is(err, errStarting)
		switch {
		case mayBeDone:
			message = "the service cannot answer right now, and may have carried the request out; look before you send it again, which would do it once more"
		case errors.Is(err, ledger.ErrUnconfirmed):
			message = "the outcome is not known yet; send the same request again, as after a lost answer"
		}

		return &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second, Message: message}, requestID
	}

	g.Log.Error("request failed", g.about(x, requestID, "error", err)...)

	return delivery.Refuse(delivery.CodeInternal, "something went wrong on our side; quote the request id"), requestID
}

// faultLogPause is how long a faultLog is silent after a line.
const faultLogPause = time.Second

// faultLog keeps an outage from writing thousands of equal lines a second.
type faultLog struct {
	mu       sync.Mutex
	last     time.Time
	unlogged int
}

// due reports whether a line may be written, and how many were not since the last.
func (f *faultLog) due(now time.Time) (unlogged int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.last) < faultLogPause {
		f.unlogged++
		return 0, false
	}

	unlogged, f.last, f.unlogged = f.unlogged, now, 0
	return unlogged, true
}
