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

// deliver makes one attempt and hands its result to the partition's recorder, which frees its slot.
// until: the end of the lease.
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

// attempt is done unless the lease shall expire with nothing recorded.
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

// appendBody uses only what is stored: every attempt of an event has the same bytes.
func appendBody(dst []byte, d *ledger.Delivery) []byte {
	return webhook.AppendEnvelope(dst, d.EventID, string(d.Type), delivery.FormatTime(d.OccurredAt), func(dst []byte) []byte {
		if d.Order == nil {
			return append(dst, d.Data...)
		}
		return d.Order.AppendStatus(dst, d.Version, false, true)
	})
}

// headers are those of the spec and of Standard Webhooks. For 24 h after a rotation the latter
// carry both signatures. The spec's has room for one: the old secret's until a test ping, signed
// with the new one, was accepted (design section 7).
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
