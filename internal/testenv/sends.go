package testenv

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// oldest is for how long what an Owner schedules is due, so that it is sent in the order in which it came.
const oldest = time.Minute

// Outcome says what becomes of a webhook: StateDelivered, StateRetrying with NextAt, or StateUndelivered.
type Outcome = func(*partitions.Scheduled) partitions.AttemptRecord

// Send decides everything that has come in, records webhooks of accounts without a URL as not sent, and sends others
// that are due, at most so many. It returns these in the order in which they were sent. An endpoint whose breaker is
// open, or that recovers, is sent one, due or not. No breaker opens by itself.
func (o *Owner) Send(ctx context.Context, most int, outcome Outcome) (sent []*partitions.Scheduled, err error) {
	err = o.drain(ctx)
	if err != nil {
		return nil, err
	}

	for p := range o.owned {
		var accounts []delivery.AccountID
		err := o.ledger.Ownership.Pending(ctx, p, func(page []delivery.AccountID) error {
			accounts = append(accounts, page...)
			return nil
		})

		endpoints, queries := make([]partitions.EndpointAt, len(accounts)), make([]partitions.ScheduleQuery, len(accounts))
		for i, account := range accounts {
			endpoints[i] = partitions.EndpointAt{Partition: p, Account: account}
			queries[i] = partitions.ScheduleQuery{Partition: p, Account: account, Until: math.MaxInt64, Limit: 1000,
				Known: func(string) bool { return false }}
		}

		facts, unread := o.ledger.Ownership.EndpointFacts(ctx, endpoints)
		events, unlisted := o.ledger.Ownership.Scheduled(ctx, queries)
		err = errors.Join(err, unread, unlisted)
		if err != nil {
			return nil, err
		}

		err = Step(ctx, o.ledger, p, func(step *partitions.Step) {
			step.Summary(nil)
			for i := range accounts {
				sent = append(sent, send(step, facts[i], events[i], most-len(sent), outcome)...)
			}
		})
		if err != nil {
			return nil, err
		}
	}

	return sent, nil
}

func send(step *partitions.Step, f *partitions.Facts, all []*partitions.Scheduled, most int, outcome Outcome) (sent []*partitions.Scheduled) {
	until := time.Now().UnixMilli()
	if f.Breaker.Open || f.Breaker.Rate > 0 {
		until, most = math.MaxInt64, min(most, 1)
	}

	for _, s := range all {
		switch {
		case f.URL == "":
			notSent := partitions.AttemptRecord{State: partitions.StateNotSent, Error: partitions.NoEndpointError, Attempt: s.Attempts}
			end(step, f, s, notSent)
		case len(sent) < most && s.Due <= until:
			record := outcome(s)
			record.Attempt, record.Probe = s.Attempts+1, f.Breaker.Open
			end(step, f, s, record)
			sent = append(sent, s)
		}
	}

	return sent
}

// end records what has become of an event: a line of the log, what follows for it, and the endpoint.
func end(step *partitions.Step, f *partitions.Facts, s *partitions.Scheduled, record partitions.AttemptRecord) {
	now, account, b, t := time.Now(), s.Delivery.Account, &f.Breaker, &f.Tally
	record.At = now
	record.Replay = s.ReplayedAt > 0 || s.AskedAt > 0

	if hour := uint32(now.Unix() / 3600); t.Hour != hour {
		t.Hour, t.OK, t.Failed, t.PreviousOK, t.PreviousFailed = hour, 0, 0, t.OK, t.Failed
	}

	state := f.State
	switch record.State {
	case partitions.StateDelivered:
		state = partitions.EndpointHealthy
		t.OK, t.Delivered = t.OK+1, t.Delivered+1
		*b = partitions.Breaker{Rate: b.Rate}
		if record.Probe {
			b.Rate = 10
		}
	case partitions.StateRetrying:
		state = partitions.EndpointFailing
		t.Failed, t.Retried = t.Failed+1, t.Retried+1
	case partitions.StateUndelivered:
		state = partitions.EndpointUnreachable
		t.Failed, t.Undelivered = t.Failed+1, t.Undelivered+1
	default:
		t.NotSent++
	}

	if record.HTTPStatus == http.StatusGone {
		state = partitions.EndpointGone
	}

	failedProbe := record.Probe && record.State != partitions.StateDelivered
	line, unanswered := record.Lines(s.Delivery, failedProbe)
	if failedProbe {
		b.Probes++
		binary.BigEndian.PutUint32(line[1:], uint32(b.Probes))
	}

	step.Log(account, [][]byte{line}, 200, failedProbe && b.Probes > 1)
	if record.State == partitions.StateRetrying {
		again := partitions.Scheduled{Key: s.Key, Due: record.NextAt.UnixMilli(), Attempts: record.Attempt, ReplayedAt: s.ReplayedAt}
		step.Schedule(account, false, []partitions.Scheduled{again})
		step.Publish(account, unanswered, false)
	} else {
		step.Unschedule(account, []partitions.Unscheduled{{Key: s.Key, ReplayedAt: s.ReplayedAt, AskedAt: s.AskedAt}})
		step.Publish(account, line, true)
	}

	change := partitions.EndpointChange{Breaker: b, Tally: t, ProbeAnswered: f.ProbeRequest}
	f.ProbeRequest = 0
	if state != f.State {
		f.State, change.State, change.StateSince = state, state, now.UnixMilli()
	}

	step.Endpoint(account, &change)
}
