package testenv

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

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
		for _, s := range slices.Clone(w.events) {
			w.facts.Tally.NotSent++
			w.keep(step, s, ledger.AttemptRecord{At: time.Now(), State: ledger.StateNotSent, Error: ledger.NoEndpointError}, ledger.EndpointChange{})
		}
	})
}

// Send sends webhooks that are due, at most so many, and returns them in the order in which they were sent. answer
// says what becomes of each: StateDelivered, StateRetrying with NextAt, or StateUndelivered. An endpoint with as many
// failures in a row as breaker opens its breaker.
func (o *Owner) Send(ctx context.Context, now time.Time, most, breaker int, answer func(*ledger.Scheduled) ledger.AttemptRecord) (sent []*ledger.Scheduled, err error) {
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
		for _, s := range slices.Clone(w.events) {
			if limit > 0 && s.Due <= until {
				w.end(step, s, answer(s), now, breaker)
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

// eachWaiting writes what f adds to a step of every partition and, for operators, what waits then.
func (o *Owner) eachWaiting(ctx context.Context, f func(*ledger.Step, *waiting)) error {
	for _, owned := range o.owned {
		all, err := o.waiting(ctx, owned.Partition)
		if err != nil {
			return err
		}
		err = o.advance(ctx, owned, func(step *ledger.Step) {
			sums := make(map[ledger.EndpointState]ledger.QueueStats)
			for _, w := range all {
				f(step, w)
				w.addTo(sums)
			}
			step.Summary(sums)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *waiting) addTo(sums map[ledger.EndpointState]ledger.QueueStats) {
	if len(w.events) == 0 && w.facts.Breaker == (ledger.Breaker{}) {
		return
	}
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

// end records what has become of an event: its state, and what the receiver answered.
func (w *waiting) end(step *ledger.Step, s *ledger.Scheduled, record ledger.AttemptRecord, now time.Time, breaker int) {
	b, t := &w.facts.Breaker, &w.facts.Tally
	change := ledger.EndpointChange{Breaker: b, Probed: w.facts.Probe}
	record.At, record.Attempt, record.Replay, record.Probe = now, s.Attempts+1, s.ReplayedAt > 0, b.Open
	if hour := uint32(now.Unix() / 3600); t.Hour != hour {
		t.Hour, t.OK, t.Failed, t.PreviousOK, t.PreviousFailed = hour, 0, 0, t.OK, t.Failed
	}
	state := ledger.EndpointHealthy
	switch record.State {
	case ledger.StateDelivered:
		t.OK, t.Delivered = t.OK+1, t.Delivered+1
		*b = ledger.Breaker{Rate: b.Rate}
		if record.Probe {
			b.Rate = 10
		}
	case ledger.StateRetrying:
		state = ledger.EndpointFailing
		t.Failed, t.Retried = t.Failed+1, t.Retried+1
		w.failed(now, breaker)
	default:
		state = ledger.EndpointUnreachable
		t.Failed, t.Undelivered = t.Failed+1, t.Undelivered+1
	}
	if record.HTTPStatus == http.StatusGone {
		state = ledger.EndpointGone
	}
	if state != w.facts.State {
		w.facts.State, change.State, change.StateSince = state, state, now.UnixMilli()
	}
	w.keep(step, s, record, change)
	w.facts.Probe = false
}

// keep writes the line of the log, what follows for the event, and the endpoint.
func (w *waiting) keep(step *ledger.Step, s *ledger.Scheduled, record ledger.AttemptRecord, change ledger.EndpointChange) {
	probe, probes := record.Probe && record.State != ledger.StateDelivered, w.facts.Breaker.Probes
	line, unanswered := record.Lines(s.Delivery, probe)
	if probe {
		binary.BigEndian.PutUint32(line[1:], uint32(probes))
	}
	step.Log(w.account, [][]byte{line}, 200, probe && probes > 1)
	w.events = slices.DeleteFunc(w.events, func(e *ledger.Scheduled) bool { return e == s })
	if record.State == ledger.StateRetrying {
		step.Schedule(w.account, false, []ledger.Scheduled{{Key: s.Key, Due: record.NextAt.UnixMilli(), Attempts: record.Attempt, ReplayedAt: s.ReplayedAt}})
		step.Publish(w.account, unanswered, false)
		w.events = append(w.events, s)
	} else {
		step.Unschedule(w.account, []string{s.Key})
		step.Publish(w.account, line, true)
	}
	change.Tally = &w.facts.Tally
	step.Endpoint(w.account, &change)
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
