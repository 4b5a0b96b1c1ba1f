package testenv

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Outcome is what becomes of a webhook that an Owner sends.
type Outcome struct {
	OK            bool
	Status        int
	Error, Answer string
	Duration      time.Duration
	Retry         time.Time // of a failure; zero: the event is given up
	Gone          bool
}

// oldest is for how long what Take schedules is due, so that it is sent in the order in which it came.
const oldest = time.Minute

func (o *Owner) schedule(step *ledger.Step, published []*ledger.Delivery) {
	for _, d := range published {
		if d != nil && (d.Order == nil || delivery.Sequence(d.Version) > 1) {
			o.scheduled++
			step.Schedule(d.Account, true, []ledger.Scheduled{{Key: d.Key, Due: time.Now().Add(-oldest).UnixMilli() + o.scheduled}})
		}
	}
}

// Take decides what has come in, schedules webhooks, and records those of accounts without a URL as
// not sent.
func (o *Owner) Take(ctx context.Context) error {
	o.schedules = true
	if err := o.drain(ctx); err != nil {
		return err
	}
	return o.eachWaiting(ctx, func(step *ledger.Step, w *waiting) {
		if w.facts.URL != "" {
			return
		}
		for _, s := range w.events {
			record := ledger.AttemptRecord{At: time.Now(), State: ledger.StateNotSent, Error: ledger.NoEndpointError}
			line, _ := record.Lines(s.Delivery, false)
			step.Unschedule(w.account, []string{s.Key})
			step.Publish(w.account, line, true)
			step.Log(w.account, [][]byte{line}, 200, false)
			w.facts.Tally.NotSent++
		}
		step.Endpoint(w.account, &ledger.EndpointChange{Tally: &w.facts.Tally})
	})
}

// Send sends webhooks that are due, at most so many, and answers them in the order in which they
// were sent. An endpoint with as many failures in a row as breaker opens its breaker.
func (o *Owner) Send(ctx context.Context, now time.Time, most, breaker int, answer func(*ledger.Scheduled) Outcome) (sent []*ledger.Scheduled, err error) {
	err = o.eachWaiting(ctx, func(step *ledger.Step, w *waiting) {
		b, until, limit := &w.facts.Breaker, now.UnixMilli(), most-len(sent)
		if w.facts.URL == "" || b.Hold > now.UnixMilli() && !w.facts.Probe {
			return
		}
		if w.facts.Probe {
			b.Hold = 0
		}
		if b.Open || b.Rate > 0 {
			until, limit = math.MaxInt64, min(limit, 1)
		}
		for _, s := range w.events {
			if limit > 0 && s.Due <= until {
				outcome := answer(s)
				w.end(step, s, &outcome, now, breaker)
				sent = append(sent, s)
				limit--
			}
		}
	})
	return sent, err
}

// waiting is an endpoint for which something waits, or that has a breaker.
type waiting struct {
	account delivery.AccountID
	facts   *ledger.Facts
	events  []*ledger.Scheduled
}

func (o *Owner) waiting(ctx context.Context, partition int) (all []*waiting, err error) {
	accounts, err := o.ledger.Ownership.Pending(ctx, partition)
	queries := make([]ledger.ScheduleQuery, len(accounts))
	for i, account := range accounts {
		queries[i] = ledger.ScheduleQuery{Partition: partition, Account: account, Until: math.MaxInt64, Limit: 1000, Known: func(string) bool { return false }}
	}
	facts, unread := o.ledger.Ownership.EndpointFacts(ctx, partition, accounts)
	events, unlisted := o.ledger.Ownership.Scheduled(ctx, queries)
	if err = errors.Join(err, unread, unlisted); err != nil {
		return nil, err
	}
	for i, account := range accounts {
		all = append(all, &waiting{account, facts[i], events[i]})
	}
	return all, nil
}

// eachWaiting writes what f adds to a step of every partition, and then, for operators, what waits.
func (o *Owner) eachWaiting(ctx context.Context, f func(*ledger.Step, *waiting)) error {
	for _, owned := range o.owned {
		all, err := o.waiting(ctx, owned.Partition)
		if err == nil {
			err = o.advance(ctx, owned, func(step *ledger.Step) {
				for _, w := range all {
					f(step, w)
				}
			})
		}
		if err == nil {
			all, err = o.waiting(ctx, owned.Partition)
		}
		sums := make(map[ledger.EndpointState]ledger.QueueStats)
		for _, w := range all {
			sum := sums[w.facts.State]
			sum.Endpoints, sum.Events = sum.Endpoints+1, sum.Events+int64(len(w.events))
			if w.facts.Breaker.Open {
				sum.BreakersOpen++
			}
			if len(w.events) > 0 && (sum.Oldest.IsZero() || w.events[0].Delivery.OccurredAt.Before(sum.Oldest)) {
				sum.Oldest = w.events[0].Delivery.OccurredAt
			}
			sums[w.facts.State] = sum
		}
		if err == nil {
			err = o.advance(ctx, owned, func(step *ledger.Step) { step.Summary(sums) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end records what has become of an event.
func (w *waiting) end(step *ledger.Step, s *ledger.Scheduled, o *Outcome, now time.Time, breaker int) {
	b, t, change := &w.facts.Breaker, &w.facts.Tally, ledger.EndpointChange{State: ledger.EndpointHealthy, Probed: w.facts.Probe}
	record := ledger.AttemptRecord{At: now, State: ledger.StateDelivered, HTTPStatus: o.Status, Attempt: s.Attempts + 1,
		Error: o.Error, Answer: o.Answer, Millis: o.Duration.Milliseconds(), Replay: s.ReplayedAt > 0, Probe: b.Open, NextAt: o.Retry}
	if hour := uint32(now.Unix() / 3600); t.Hour != hour {
		t.Hour, t.OK, t.Failed, t.PreviousOK, t.PreviousFailed = hour, 0, 0, t.OK, t.Failed
	}
	retries := !o.OK && !o.Retry.IsZero()
	switch {
	case o.OK:
		t.OK, t.Delivered = t.OK+1, t.Delivered+1
		*b = ledger.Breaker{Rate: b.Rate}
		if record.Probe {
			b.Rate = 10
		}
	case retries:
		record.State, change.State = ledger.StateRetrying, ledger.EndpointFailing
		t.Failed, t.Retried = t.Failed+1, t.Retried+1
		w.failed(now, breaker)
	default:
		record.State, change.State = ledger.StateUndelivered, ledger.EndpointUnreachable
		t.Failed, t.Undelivered = t.Failed+1, t.Undelivered+1
	}
	if o.Gone {
		change.State = ledger.EndpointGone
	}
	probe := record.Probe && !o.OK
	line, unanswered := record.Lines(s.Delivery, probe)
	if probe {
		binary.BigEndian.PutUint32(line[1:], uint32(b.Probes))
	}
	step.Log(w.account, [][]byte{line}, 200, probe && b.Probes > 1)
	if retries {
		step.Schedule(w.account, false, []ledger.Scheduled{{Key: s.Key, Due: o.Retry.UnixMilli(), Attempts: s.Attempts + 1, ReplayedAt: s.ReplayedAt}})
		step.Publish(w.account, unanswered, false)
	} else {
		step.Unschedule(w.account, []string{s.Key})
		step.Publish(w.account, line, true)
	}
	if change.State == w.facts.State {
		change.State = ""
	} else {
		w.facts.State, change.StateSince = change.State, now.UnixMilli()
	}
	change.Breaker, change.Tally = b, t
	step.Endpoint(w.account, &change)
	w.facts.Probe = false
}

// failed opens a breaker, or waits longer for the next probe.
func (w *waiting) failed(now time.Time, breaker int) {
	b := &w.facts.Breaker
	b.Failures++
	switch {
	case b.Open:
		b.Probes++
	case int(b.Failures) >= breaker:
		b.Open, b.Since, b.Rate = true, now.UnixMilli(), 0
	default:
		return
	}
	b.Hold = now.Add(time.Second << min(b.Probes, 5)).UnixMilli()
}
