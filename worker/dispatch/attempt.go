package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/webhook"
)

// Triggers at the start of packageNote in the sandbox (design section 9).
const (
	triggerDuplicate = "SIM:DUPLICATE"
	triggerReorder   = "SIM:REORDER"
)

// deliver makes one attempt and hands its result to the partition's recorder.
// It holds one slot. until is when the lease ends at the earliest.
func (r *Role) deliver(ctx context.Context, partition int, d *ledger.Delivery, until time.Time) {
	defer r.freeSlot()
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
		r.log.Error("an attempt failed, its event will be sent again", "event", d.EventID, "attempt", d.Attempt, "error", err)
	}
	r.settled(partition, 1)
}

// attempt decides what to do with a delivery and does it. done is false when
// nothing is to be recorded and the lease is left to expire.
func (r *Role) attempt(ctx context.Context, d *ledger.Delivery, until time.Time) (o ledger.Outcome, done bool) {
	now := time.Now()
	switch {
	case now.Add(r.settings.Timeout).After(until):
		// The process was stopped for long: another one may be sending this.
		r.metrics.leasesLost.Inc()
		return o, false
	case !now.Before(d.Deadline):
		r.metrics.attempts.WithLabelValues(outcomeDeadline).Inc()
		return ledger.Outcome{At: now, Error: "deadline: the event is older than 24 h"}, true
	}
	if retry, held := r.holdBack(d, now); held {
		r.metrics.attempts.WithLabelValues(outcomeHeldBack).Inc()
		return ledger.Outcome{At: now, Deferred: true, Retry: retry}, true
	}
	body := appendBody(nil, d)
	header, err := headers(d, now, body)
	if err != nil {
		r.log.Error("an event cannot be signed", "event", d.EventID, "error", err)
		return r.judge(d, now, answer{class: classURL, detail: "the endpoint's secret cannot be used"}), true
	}
	a := r.sender.send(ctx, d.Endpoint.URL, header, body)
	if ctx.Err() != nil && !a.ok() && a.status == 0 {
		return o, false // cut off by the shutdown: unknown, so it is sent again
	}
	if a.ok() && r.triggered(d, triggerDuplicate) {
		r.sender.send(ctx, d.Endpoint.URL, header.Clone(), body)
	}
	return r.judge(d, now, a), true
}

// judge turns an answer into what is recorded, and says when to try again.
func (r *Role) judge(d *ledger.Delivery, started time.Time, a answer) ledger.Outcome {
	o := ledger.Outcome{At: started, OK: a.ok(), Status: a.status, Duration: a.took, Answer: a.body}
	r.metrics.observe(d, a, started)
	if o.OK {
		return o
	}
	o.Error = a.class + ": " + a.detail
	o.Gone = a.status == http.StatusGone
	ended := started.Add(a.took)
	wait := webhook.ParseRetryAfter(a.retryAfter, ended)
	// The schedule ends at the deadline; a replay's window is its own.
	if at, ok := webhook.Next(d.Attempt, d.Deadline.Add(-webhook.Window), ended, wait, rand.Float64()); ok {
		o.Retry = at
	} else {
		r.metrics.undelivered.Inc()
		r.log.Warn("event undelivered, given up", "account", d.Account, "event", d.EventID, "attempts", d.Attempt, "error", o.Error)
	}
	return o
}

// appendBody appends the envelope. It depends only on what is stored, so that
// every attempt of an event carries the same bytes.
func appendBody(dst []byte, d *ledger.Delivery) []byte {
	data := d.Data
	if d.Order != nil {
		data = d.Order.AppendStatus(nil, d.Version, false, true)
	}
	return webhook.AppendEnvelope(dst, d.EventID, string(d.Type), delivery.FormatTime(d.OccurredAt), data)
}

// headers are those of the spec and of Standard Webhooks. For 24 h after a
// rotation the latter carry both signatures; the spec's has room for one, and
// stays with the old secret until a test ping has shown that the receiver knows
// the new one (design section 7). The ping itself is signed with the new one.
func headers(d *ledger.Delivery, now time.Time, body []byte) (http.Header, error) {
	e := d.Endpoint
	secret, secrets := e.Secret, []string{e.Secret}
	if e.PreviousSecret != "" {
		secrets = append(secrets, e.PreviousSecret)
		if !e.Proven && d.Type != delivery.WebhookTest {
			secret = e.PreviousSecret
		}
	}
	standard, err := webhook.SignStandard(d.EventID, now, body, secrets...)
	if err != nil {
		return nil, fmt.Errorf("sign event %s: %w", d.EventID, err)
	}
	h := make(http.Header, 10)
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", userAgent)
	h.Set(webhook.HeaderSignature, webhook.Sign(secret, body))
	h.Set(webhook.HeaderEvent, string(d.Type))
	h.Set(webhook.HeaderAttempt, strconv.Itoa(d.Attempt))
	h.Set(webhook.HeaderID, d.EventID)
	h.Set(webhook.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(webhook.HeaderStandardSignature, standard)
	// Not sent: it tells the transport that the request may be repeated on a
	// fresh connection when a kept one turns out to be dead, which receivers
	// that deduplicate by eventId allow.
	h["Idempotency-Key"] = nil
	return h, nil
}

// holdBack postpones every second event of an order with SIM:REORDER for
// longer than the courier's step, so that the one after it overtakes it. The
// clock tells whether that has been done already.
func (r *Role) holdBack(d *ledger.Delivery, now time.Time) (until time.Time, held bool) {
	if !r.triggered(d, triggerReorder) || delivery.Sequence(d.Version)%2 != 0 {
		return time.Time{}, false
	}
	until = d.OccurredAt.Add(r.reorder)
	return until, d.Attempt == 1 && !d.Replay && now.Before(until)
}

func (r *Role) triggered(d *ledger.Delivery, trigger string) bool {
	return r.sandbox && d.Order != nil && strings.HasPrefix(d.Order.PackageNote, trigger)
}
