package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/webhook"
	"vendorapi/worker/dispatch/sender"
)

const (
	userAgent = "DeliveryVendorAPI-Webhooks/1"
	usualBody = 1 << 10
)

// What is recorded of attempts for which no request could be made.
var (
	unsignable   = sender.Answer{Class: sender.ClassURL, Detail: "the endpoint's secret cannot be used"}
	unrenderable = sender.Answer{Class: sender.ClassURL, Detail: "the event cannot be rendered"}
)

// attempt is one send of an event, with its answer.
type attempt struct {
	*partitions.Delivery
	event    *event
	receiver partitions.Receiver
	number   int // 1 for the first
	ping     bool
	probe    bool // a ping, or an event before its time
	replay   bool // a replay has asked for it

	started time.Time // by the owner's clock, see Webhooks.now
	signed  time.Time // by Redis's clock: which secrets sign, and the request's timestamp
	ending  ending    // 0: it was cut off, or not begun, and nothing is known
	next    time.Time
	answer  sender.Answer
}

// make sends the event, unless it is to be held back. mayBegin is asked when the request
// is ready, and again as the last thing before its first byte.
func (r *Role) make(ctx context.Context, a *attempt, now time.Time, mayBegin func() bool) {
	a.started = now
	if next, held := r.holdBack(a, now); held {
		r.metrics.attempts.WithLabelValues(outcomeHeldBack).Inc()
		a.ending, a.next = deferred, next
		return
	}

	body := appendBody(make([]byte, 0, usualBody), a.Delivery)
	header, err := headers(a, a.signed, body)
	if err != nil {
		r.log.Error("an event cannot be signed", r.about(a, "error", err)...)
		r.conclude(a, unsignable)
		return
	}

	identity := r.promise(a, header)
	request := sender.Request{URL: a.receiver.URL, Header: header, Body: body, MayBegin: mayBegin}
	answered := r.sender.Send(ctx, request)
	if answered.NotBegun {
		return
	}

	r.trace(a, identity, now, answered)
	if ctx.Err() != nil && !answered.OK() && answered.Status == 0 {
		return // cut off by the shutdown: unknown, so it is sent again
	}

	if answered.OK() && r.triggered(a.Delivery, delivery.TriggerDuplicate) {
		r.sender.Send(ctx, request)
	}

	r.conclude(a, answered)
}

// conclude decides what follows from an answer, and with it how often an event is sent: the log's line and the metrics
// are made of that. When an event is sent is decided by its endpoint's pace.
func (r *Role) conclude(a *attempt, answered sender.Answer) {
	r.metrics.observe(a, answered)
	a.answer = answered
	ended := a.started.Add(answered.Took)
	// The pauses between attempts end at the deadline; a replay's window is its own.
	next, more := webhook.Next(a.number, a.Deadline().Add(-webhook.Window), ended, a.wait(), rand.Float64())
	switch {
	case answered.OK():
		a.ending = delivered
	case more || a.probe: // a probe is no attempt of the event's own, so it never ends it
		a.ending, a.next = retry, next
	default:
		a.ending = undelivered
		r.metrics.undelivered.Inc()
		r.log.Debug("event undelivered, given up", r.about(a, "error", a.errorText())...)
	}
}

// wait is how long the receiver asks to be left alone.
func (a *attempt) wait() time.Duration {
	return webhook.ParseRetryAfter(a.answer.RetryAfter, a.started.Add(a.answer.Took))
}

// errorText says why an attempt failed. The detail may quote what the receiver has sent.
func (a *attempt) errorText() string {
	if a.answer.OK() {
		return ""
	}
	return delivery.Excerpt(a.answer.Class+": "+a.answer.Detail, delivery.MaxForeignError)
}

// result returns what the scheduler needs to know.
func (a *attempt) result() result {
	r := result{
		ending: a.ending,
		at:     a.next.UnixMilli(),
		isGone: a.answer.Status == http.StatusGone,
		proven: a.ending == delivered && a.Type == delivery.WebhookTest,
	}

	if slices.Contains(busy, a.answer.Status) {
		r.pause = max(a.wait().Milliseconds(), 1)
	}

	return r
}

// record is the line of the log.
func (a *attempt) record() partitions.AttemptRecord {
	record := partitions.AttemptRecord{
		Attempt: a.number, At: a.started, State: partitions.StateRetrying, HTTPStatus: a.answer.Status, Error: a.errorText(),
		Millis: a.answer.Took.Milliseconds(), Replay: a.replay, Probe: a.probe,
	}

	switch {
	case a.ending == delivered:
		record.State = partitions.StateDelivered
	case a.ending == undelivered:
		record.State = partitions.StateUndelivered
	case a.probe && !a.ping:
		record.NextAt = time.UnixMilli(a.event.dueAt)
	case !a.probe:
		record.NextAt = a.next
	}

	if !a.answer.OK() {
		record.Answer = delivery.Excerpt(string(a.answer.Body), delivery.MaxForeignAnswer)
	}

	return record
}

// busy are the statuses of a receiver that asks to be left alone.
var busy = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// appendBody uses only what is stored: every attempt of an event has the same bytes.
func appendBody(dst []byte, d *partitions.Delivery) []byte {
	return webhook.AppendEnvelope(dst, d.EventID, string(d.Type), delivery.FormatTime(d.OccurredAt), func(dst []byte) []byte {
		if d.Order == nil {
			return append(dst, d.Data...)
		}
		return d.Order.AppendStatus(dst, d.Version, false, true)
	})
}

// headers are those of the spec and of Standard Webhooks. For 24 h after a rotation the latter
// carry both signatures. The spec's has room for one: the old secret's until a test ping, signed
// with the new one, was accepted (decisions, "Webhooks").
func headers(a *attempt, now time.Time, body []byte) (http.Header, error) {
	secrets := a.receiver.Secrets(now)
	secret := secrets[0]
	if len(secrets) > 1 && !a.receiver.Proven && a.Type != delivery.WebhookTest {
		secret = secrets[1]
	}

	standard, err := webhook.SignStandard(a.EventID, now, body, secrets...)
	if err != nil {
		return nil, fmt.Errorf("sign event %s: %w", a.EventID, err)
	}

	values := []string{
		webhook.Sign(secret, body), string(a.Type), strconv.Itoa(a.number),
		a.EventID, strconv.FormatInt(now.Unix(), 10), standard,
	}

	// Nobody changes the values. The names of package webhook are sent as they are spelled;
	// net/http wants its own spelling of User-Agent and Idempotency-Key.
	return http.Header{
		"Content-Type":                  jsonContent,
		"User-Agent":                    ownAgent,
		webhook.HeaderSignature:         values[0:1:1],
		webhook.HeaderEvent:             values[1:2:2],
		webhook.HeaderAttempt:           values[2:3:3],
		webhook.HeaderID:                values[3:4:4],
		webhook.HeaderTimestamp:         values[4:5:5],
		webhook.HeaderStandardSignature: values[5:6:6],
		// Not sent: it allows the transport to repeat a request whose kept connection is dead.
		"Idempotency-Key": nil,
	}, nil
}

var (
	jsonContent = []string{"application/json"}
	ownAgent    = []string{userAgent}
)

// holdBack postpones every second event of an order with SIM:REORDER once, for longer than the
// courier's step: the one after it overtakes it.
func (r *Role) holdBack(a *attempt, now time.Time) (until time.Time, held bool) {
	if !r.triggered(a.Delivery, delivery.TriggerReorder) || delivery.Sequence(a.Version)%2 != 0 {
		return time.Time{}, false
	}
	until = a.OccurredAt.Add(r.reorder)
	return until, a.number == 1 && !a.replay && now.Before(until)
}

func (r *Role) triggered(d *partitions.Delivery, kind delivery.TriggerKind) bool {
	if !r.sandbox || d.Order == nil {
		return false
	}
	trigger, _ := delivery.ParseTrigger(d.Order.PackageNote)
	return trigger.Kind == kind
}
