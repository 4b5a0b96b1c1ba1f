package testenv

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Outcome is what becomes of a webhook that an Owner sends.
type Outcome struct {
	At            time.Time // zero: the owner's time
	OK            bool
	Status        int
	Error, Answer string
	Duration      time.Duration
	Retry         time.Time // of a failure; zero: the event is given up
	Gone          bool
}

// oldest is for how long what Schedule takes is due, so that it is sent in the order in which it came.
const oldest = time.Minute

// schedule puts published events into the schedules of their receivers, and records those without
// one as not sent.
func (o *Owner) schedule(ctx context.Context, step *ledger.Step, in *ledger.Inbox) error {
	due := make(map[delivery.AccountID][]ledger.Scheduled)
	missed := make(map[delivery.AccountID][]*ledger.Delivery)
	for _, d := range o.published(ctx, in) {
		facts, err := o.ledger.Ownership.EndpointFacts(ctx, in.Partition, []delivery.AccountID{d.Account})
		if err != nil {
			return err
		}
		if facts[0].URL == "" {
			missed[d.Account] = append(missed[d.Account], d)
			continue
		}
		o.taken++
		due[d.Account] = append(due[d.Account], ledger.Scheduled{Key: d.Key, Due: time.Now().Add(-oldest).UnixMilli() + o.taken})
	}
	for account, events := range due {
		step.Schedule(account, true, events)
	}
	for account, events := range missed {
		if err := o.recordNotSent(ctx, step, in.Partition, account, events); err != nil {
			return err
		}
	}
	step.Token.Webhooks = cmp.Or(in.Events, step.Token.Webhooks)
	return nil
}

func (o *Owner) published(ctx context.Context, in *ledger.Inbox) (sendable []*ledger.Delivery) {
	w := &ledger.Wanted{Partition: in.Partition}
	for _, e := range in.Published {
		w.Events = append(w.Events, e.Events...)
	}
	if err := o.ledger.Ownership.ReadOrders(ctx, []*ledger.Wanted{w}); err != nil {
		panic(err)
	}
	for _, d := range w.Deliveries {
		if d != nil && (d.Order == nil || delivery.Sequence(d.Version) > 1) {
			sendable = append(sendable, d)
		}
	}
	return sendable
}

func (o *Owner) recordNotSent(ctx context.Context, step *ledger.Step, partition int, account delivery.AccountID, events []*ledger.Delivery) error {
	facts, err := o.ledger.Ownership.EndpointFacts(ctx, partition, []delivery.AccountID{account})
	if err != nil {
		return err
	}
	for _, d := range events {
		record := ledger.AttemptRecord{At: time.Now(), State: ledger.StateNotSent, Error: ledger.NoEndpointError}
		line, _ := record.Lines(d, false)
		step.Publish(account, line, true)
		step.Log(account, [][]byte{line}, 200, false)
		facts[0].Tally.NotSent++
	}
	step.Endpoint(account, &ledger.EndpointChange{Tally: &facts[0].Tally})
	return nil
}

// Take decides what has come in, schedules webhooks, and records those of accounts without a URL as
// not sent.
func (o *Owner) Take(ctx context.Context) error {
	o.scheduled = true
	for some := true; some; {
		var err error
		if some, err = o.Decide(ctx, -1); err != nil {
			return err
		}
	}
	return o.eachWaiting(ctx, func(step *ledger.Step, w *waiting) error {
		if w.facts.URL != "" {
			return nil
		}
		var events []*ledger.Delivery
		all := w.due(math.MaxInt64, 1000)
		for _, s := range all {
			events = append(events, s.Delivery)
		}
		step.Unschedule(w.account, keys(all))
		return o.recordNotSent(ctx, step, w.partition, w.account, events)
	})
}

// Send sends webhooks that are due, at most so many, and answers them in the order in which they
// were sent. An endpoint with as many failures in a row as breaker opens its breaker.
func (o *Owner) Send(ctx context.Context, now time.Time, most, breaker int, answer func(*ledger.Scheduled) Outcome) (sent []*ledger.Scheduled, err error) {
	err = o.eachWaiting(ctx, func(step *ledger.Step, w *waiting) error {
		b, until, limit := w.facts.Breaker, now.UnixMilli(), most-len(sent)
		if w.facts.Probe {
			b.Hold = 0
		}
		if b.Open || b.Rate > 0 {
			until, limit = math.MaxInt64, min(limit, 1)
		}
		if b.Hold > now.UnixMilli() || limit <= 0 || w.facts.URL == "" {
			return nil
		}
		w.facts.Breaker = b
		for _, s := range w.due(until, limit) {
			outcome := answer(s)
			outcome.At = laterOf(outcome.At, now)
			w.end(step, s, &outcome, breaker)
			sent = append(sent, s)
		}
		return nil
	})
	return sent, err
}

func laterOf(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

// waiting is an endpoint for which something waits.
type waiting struct {
	partition int
	account   delivery.AccountID
	facts     *ledger.Facts
	events    []*ledger.Scheduled
}

func (w *waiting) due(until int64, limit int) (due []*ledger.Scheduled) {
	for _, s := range w.events {
		if s.Due <= until && len(due) < limit {
			due = append(due, s)
		}
	}
	return due
}

func keys(all []*ledger.Scheduled) (keys []string) {
	for _, s := range all {
		keys = append(keys, s.Key)
	}
	return keys
}

// eachWaiting writes what f adds to a step of every partition, and then what waits.
func (o *Owner) eachWaiting(ctx context.Context, f func(*ledger.Step, *waiting) error) (err error) {
	for _, owned := range o.owned {
		p := owned.Partition
		accounts, err := o.ledger.Ownership.Pending(ctx, p)
		if err != nil {
			return err
		}
		facts, err := o.ledger.Ownership.EndpointFacts(ctx, p, accounts)
		if err != nil {
			return err
		}
		queries := make([]ledger.ScheduleQuery, len(accounts))
		for i, account := range accounts {
			queries[i] = ledger.ScheduleQuery{Partition: p, Account: account, Until: math.MaxInt64, Limit: 1000, Known: func(string) bool { return false }}
		}
		events, err := o.ledger.Ownership.Scheduled(ctx, queries)
		if err != nil {
			return err
		}
		var failure error
		err = o.advance(ctx, owned, func(step *ledger.Step) {
			for i, account := range accounts {
				failure = cmp.Or(failure, f(step, &waiting{p, account, facts[i], events[i]}))
			}
		})
		if err = cmp.Or(failure, err, o.summarize(ctx, owned)); err != nil {
			return err
		}
	}
	return nil
}

// summarize tells operators what waits.
func (o *Owner) summarize(ctx context.Context, owned *ledger.Owned) error {
	p := owned.Partition
	accounts, err := o.ledger.Ownership.Pending(ctx, p)
	if err != nil {
		return err
	}
	facts, err := o.ledger.Ownership.EndpointFacts(ctx, p, accounts)
	if err != nil {
		return err
	}
	backlogs, _, err := o.ledger.Ownership.Backlogs(ctx, p, accounts)
	if err != nil {
		return err
	}
	sums := make(map[ledger.EndpointState]ledger.QueueStats)
	for i, b := range backlogs {
		sum := sums[facts[i].State]
		sum.Endpoints, sum.Events = sum.Endpoints+1, sum.Events+b.Events
		if facts[i].Breaker.Open {
			sum.BreakersOpen++
		}
		if sum.Oldest.IsZero() || b.Oldest.Before(sum.Oldest) {
			sum.Oldest = b.Oldest
		}
		sums[facts[i].State] = sum
	}
	return o.advance(ctx, owned, func(step *ledger.Step) { step.Summary(sums) })
}

// end records what has become of an event.
func (w *waiting) end(step *ledger.Step, s *ledger.Scheduled, o *Outcome, breaker int) {
	record := ledger.AttemptRecord{At: o.At, State: ledger.StateDelivered, HTTPStatus: o.Status, Attempt: s.Attempts + 1,
		Error: o.Error, Answer: o.Answer, Millis: o.Duration.Milliseconds(), Replay: s.ReplayedAt > 0, NextAt: o.Retry}
	b, t, change := &w.facts.Breaker, &w.facts.Tally, ledger.EndpointChange{State: ledger.EndpointHealthy, Probed: w.facts.Probe}
	record.Probe = b.Open
	if hour := uint32(o.At.Unix() / 3600); t.Hour != hour {
		t.Hour, t.OK, t.Failed, t.PreviousOK, t.PreviousFailed = hour, 0, 0, t.OK, t.Failed
	}
	again := []ledger.Scheduled{{Key: s.Key, Due: o.Retry.UnixMilli(), Attempts: s.Attempts + 1, ReplayedAt: s.ReplayedAt}}
	switch {
	case o.OK:
		t.OK, t.Delivered = t.OK+1, t.Delivered+1
		*b = ledger.Breaker{Rate: b.Rate}
		if record.Probe {
			b.Rate = 10
		}
	case o.Retry.IsZero():
		record.State, change.State = ledger.StateUndelivered, ledger.EndpointUnreachable
		t.Failed, t.Undelivered = t.Failed+1, t.Undelivered+1
	default:
		record.State, change.State = ledger.StateRetrying, ledger.EndpointFailing
		t.Failed, t.Retried = t.Failed+1, t.Retried+1
	}
	if o.Gone {
		change.State = ledger.EndpointGone
	}
	if record.State == ledger.StateRetrying {
		w.failed(b, o.At, breaker)
	}
	if record.State == ledger.StateRetrying {
		step.Schedule(w.account, false, again)
	} else {
		step.Unschedule(w.account, []string{s.Key})
	}
	probe := record.Probe && !o.OK
	line, unanswered := record.Lines(s.Delivery, probe)
	if probe {
		binary.BigEndian.PutUint32(line[1:], uint32(b.Probes))
	}
	step.Log(w.account, [][]byte{line}, 200, probe && b.Probes > 1)
	if record.State == ledger.StateRetrying {
		step.Publish(w.account, unanswered, false)
	} else {
		step.Publish(w.account, line, true)
	}
	if change.State == w.facts.State {
		change.State = ""
	} else {
		w.facts.State, change.StateSince = change.State, o.At.UnixMilli()
	}
	change.Breaker, change.Tally = b, t
	step.Endpoint(w.account, &change)
	w.facts.Probe = false
}

// failed opens a breaker, or waits longer for the next probe.
func (w *waiting) failed(b *ledger.Breaker, at time.Time, breaker int) {
	b.Failures++
	switch {
	case b.Open:
		b.Probes++
	case int(b.Failures) >= breaker:
		b.Open, b.Since, b.Rate = true, at.UnixMilli(), 0
	default:
		return
	}
	b.Hold = at.Add(time.Second << min(b.Probes, 5)).UnixMilli()
}

// Send takes all partitions, decides everything that has come in, and sends all webhooks that are
// due.
func (e *Env) Send(breaker int, answer func(*ledger.Scheduled) Outcome) (sent []*ledger.Scheduled) {
	e.T.Helper()
	ctx := e.T.Context()
	o, err := NewOwner(ctx, e.Ledger)
	Must(e.T, err)
	Must(e.T, o.Take(ctx))
	sent, err = o.Send(ctx, time.Now(), math.MaxInt, breaker, answer)
	Must(e.T, err)
	Must(e.T, o.Leave(ctx))
	return sent
}
