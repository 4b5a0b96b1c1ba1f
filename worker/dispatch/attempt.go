package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/webhook"
)

const usualBody = 1 << 10

// deliver makes one attempt and hands its result to the partition's recorder,
// which frees its slot. until is when the lease ends at the earliest.
func (r *Role) deliver(ctx context.Context, partition int, d *ledger.Delivery, until time.Time) {
	var outcome ledger.Outcome
	done := false
	err := r.protect(func() error {
		outcome, done = r.attempt(ctx, d, until)
		return nil
	})
	if done {
		r.recorders[partition].results <- result{ledger.Result{Delivery: d, Outcome: outcome}, until}
		return
	}
	if err != nil {
		r.log.Error("an attempt failed, its event will be sent again", r.about(d, "error", err)...)
	}
	r.freeSlots(1)
	r.wakeUp(partition)
	r.sends.Done()
}

// attempt decides what to do with a delivery and does it. done is false when
// nothing is to be recorded and the lease is left to expire.
func (r *Role) attempt(ctx context.Context, d *ledger.Delivery, until time.Time) (o ledger.Outcome, done bool) {
	now := r.now()
	switch {
	case now.Add(r.settings.Timeout).After(until):
		// The process was stopped for long: another one may be sending this.
		r.metrics.leasesLost.Inc()
		return o, false
	case !now.Before(d.Deadline):
		more, err := r.ledger.Queue.DropExpired(ctx, d, now)
		if err != nil {
			r.log.Warn("late events stay in their queue for now", "account", d.Account, "error", err)
		}
		r.metrics.attempts.WithLabelValues(outcomeDeadline).Add(float64(1 + more))
		return ledger.Outcome{At: now, Expired: true, Error: ledger.ExpiredError}, true
	}
	if retry, held := r.holdBack(d, now); held {
		r.metrics.attempts.WithLabelValues(outcomeHeldBack).Inc()
		return ledger.Outcome{At: now, Deferred: true, Retry: retry}, true
	}
	body := appendBody(make([]byte, 0, usualBody), d)
	header, err := headers(d, now, body)
	if err != nil {
		r.log.Error("an event cannot be signed", r.about(d, "error", err)...)
		return r.outcome(d, now, answer{class: classURL, detail: "the endpoint's secret cannot be used"}), true
	}
	identity := r.promise(d, header)
	a := r.sender.send(ctx, d.Receiver.URL, header, body)
	r.trace(d, identity, now, a)
	if ctx.Err() != nil && !a.ok() && a.status == 0 {
		return o, false // cut off by the shutdown: unknown, so it is sent again
	}
	if a.ok() && r.triggered(d, delivery.TriggerDuplicate) {
		r.sender.send(ctx, d.Receiver.URL, header.Clone(), body)
	}
	return r.outcome(d, now, a), true
}

// outcome turns an answer into what is recorded, and says when to try again.
func (r *Role) outcome(d *ledger.Delivery, started time.Time, a answer) ledger.Outcome {
	o := ledger.Outcome{At: started, OK: a.ok(), Status: a.status, Duration: a.took, Answer: a.body}
	r.metrics.observe(d, a, started)
	if o.OK {
		return o
	}
	o.Error = a.class + ": " + a.detail
	o.Gone = a.status == http.StatusGone
	ended := started.Add(a.took)
	o.Wait = webhook.ParseRetryAfter(a.retryAfter, ended)
	o.Busy = busy(a.status)
	if d.Probe || d.Ping {
		return o // no attempt of the event's own, so its schedule stays as it is
	}
	// The schedule ends at the deadline; a replay's window is its own.
	if at, ok := webhook.Next(d.Attempt, d.Deadline.Add(-webhook.Window), ended, o.Wait, rand.Float64()); ok {
		o.Retry = at
	} else {
		r.metrics.undelivered.Inc()
		r.log.Debug("event undelivered, given up", r.about(d, "error", o.Error)...)
	}
	return o
}

func busy(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// appendBody appends the envelope. It depends only on what is stored, so that
// every attempt of an event carries the same bytes.
func appendBody(dst []byte, d *ledger.Delivery) []byte {
	return webhook.AppendEnvelope(dst, d.EventID, string(d.Type), delivery.FormatTime(d.OccurredAt), func(dst []byte) []byte {
		if d.Order == nil {
			return append(dst, d.Data...)
		}
		return d.Order.AppendStatus(dst, d.Version, false, true)
	})
}

// headers are those of the spec and of Standard Webhooks. For 24 h after a
// rotation the latter carry both signatures; the spec's has room for one, and
// stays with the old secret until a test ping has shown that the receiver knows
// the new one (design section 7). The ping itself is signed with the new one.
func headers(d *ledger.Delivery, now time.Time, body []byte) (http.Header, error) {
	secrets := d.Receiver.Secrets(now)
	secret := secrets[0]
	if len(secrets) > 1 && !d.Receiver.Proven && d.Type != delivery.WebhookTest {
		secret = secrets[1]
	}
	standard, err := webhook.SignStandard(d.EventID, now, body, secrets...)
	if err != nil {
		return nil, fmt.Errorf("sign event %s: %w", d.EventID, err)
	}
	values := []string{
		webhook.Sign(secret, body), string(d.Type), strconv.Itoa(d.Attempt),
		d.EventID, strconv.FormatInt(now.Unix(), 10), standard,
	}
	return http.Header{ // nobody changes the values
		"Content-Type":                  jsonContent,
		"User-Agent":                    ownAgent,
		webhook.HeaderSignature:         values[0:1:1],
		webhook.HeaderEvent:             values[1:2:2],
		webhook.HeaderAttempt:           values[2:3:3],
		webhook.HeaderID:                values[3:4:4],
		webhook.HeaderTimestamp:         values[4:5:5],
		webhook.HeaderStandardSignature: values[5:6:6],
		// Not sent: it tells the transport that the request may be repeated on a fresh connection
		// when a kept one turns out to be dead, which receivers that deduplicate by eventId allow.
		"Idempotency-Key": nil,
	}, nil
}

// Header values that are always the same.
var (
	jsonContent = []string{"application/json"}
	ownAgent    = []string{userAgent}
)

// holdBack postpones every second event of an order with SIM:REORDER for longer than the courier's
// step, so that the one after it overtakes it. The clock tells whether that has been done already.
func (r *Role) holdBack(d *ledger.Delivery, now time.Time) (until time.Time, held bool) {
	if !r.triggered(d, delivery.TriggerReorder) || delivery.Sequence(d.Version)%2 != 0 {
		return time.Time{}, false
	}
	until = d.OccurredAt.Add(r.reorder)
	return until, d.Attempt == 1 && !d.Replay && now.Before(until)
}

func (r *Role) triggered(d *ledger.Delivery, kind delivery.TriggerKind) bool {
	if !r.sandbox || d.Order == nil {
		return false
	}
	trigger, _ := delivery.ParseTrigger(d.Order.PackageNote)
	return trigger.Kind == kind
}
