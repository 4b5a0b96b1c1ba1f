package ledger

import (
	"context"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// Outcome is what became of an attempt.
type Outcome struct {
	At       time.Time
	OK       bool
	Status   int    // HTTP status; 0: there was no answer
	Error    string // class and text, such as "timeout: …"; empty with a 2xx
	Duration time.Duration
	Answer   []byte    // what is to be kept of the answer's body, at most 2 kB
	Retry    time.Time // when to try again; zero with OK false: given up
	// Deferred: nothing was sent, the event only goes later, at Retry. For the
	// order of events that ends its first attempt.
	Deferred bool
	Expired  bool // nothing was sent, the deadline has passed
	Gone     bool // the receiver answered 410
	// Busy: the receiver asked to be spared (429, 502, 503, 504), for Wait, or
	// for as long as the ledger thinks fit.
	Busy bool
	Wait time.Duration
}

// endpoint is what an attempt that failed says of the endpoint.
func (o *Outcome) endpoint(final bool) EndpointState {
	switch {
	case o.Gone:
		return EndpointGone
	case final:
		return EndpointUnreachable
	}
	return EndpointFailing
}

// Result is a leased event with what became of its attempt.
type Result struct {
	Delivery *Delivery
	Outcome  Outcome
}

// Recorded is the answer to Record.
type Recorded struct {
	// OK[i] is false when the lease had run out and the event is somebody
	// else's; nothing was recorded then.
	OK []bool
	Leased
}

// Record settles leased events of one partition, those of one endpoint
// in one script, and hands out as many as may go next: for each endpoint no more
// than it was given results for, and none when the grant's Limit is 0. breaker
// is how many failures in a row open an endpoint's breaker. After an error
// nothing is known of any of them, and all may be recorded again.
func (l Queue) Record(ctx context.Context, results []Result, g Grant, breaker int) (Recorded, error) {
	settled := make([]settlement, len(results))
	for i := range results {
		settled[i] = results[i].settlement()
	}
	return l.settle(ctx, settled, g, breaker)
}

// settlement is one result as the script takes it.
type settlement struct {
	delivery *Delivery
	outcome  string
	next     int64 // next attempt, ms
	attempts int   // the number of this one
	line     []byte
	// unanswered is how much of the line comes before what was answered.
	unanswered int
	endpoint   EndpointState
	pause      any // "" when nothing was sent, else ms
}

func (r *Result) settlement() settlement {
	d, o := r.Delivery, &r.Outcome
	s := settlement{delivery: d, next: millis(o.Retry), attempts: d.Attempt, pause: o.pause()}
	kind := byte(lineAttempt)
	switch {
	case o.Deferred:
		s.outcome = outcomeDeferred
		return s
	case o.OK:
		s.outcome, s.endpoint = outcomeDelivered, EndpointHealthy
		if d.Type == delivery.WebhookTest {
			s.endpoint = endpointProven
		}
	case o.Expired:
		s.outcome, s.endpoint = outcomeUndelivered, EndpointUnreachable
	case d.Ping:
		s.outcome, s.endpoint, kind = outcomeDropped, o.endpoint(false), lineProbe
	case d.Probe:
		s.outcome, s.endpoint, kind = outcomeDeferred, o.endpoint(false), lineProbe
		s.next = millis(d.due)
	case o.Retry.IsZero():
		s.outcome, s.endpoint = outcomeUndelivered, o.endpoint(true)
	default:
		s.outcome, s.endpoint = outcomeRetrying, o.endpoint(false)
	}
	s.line = r.line(kind, &s)
	return s
}

func (o *Outcome) pause() any {
	switch {
	case o.Deferred || o.Expired:
		return ""
	case o.Busy:
		return max(o.Wait.Milliseconds(), 1)
	}
	return 0
}

func (r *Result) line(kind byte, s *settlement) []byte {
	d, o := r.Delivery, &r.Outcome
	a := AttemptRecord{
		event: d.eventReference(), Event: string(d.Type), Attempt: d.Attempt, At: o.At, State: s.outcome,
		HTTPStatus: o.Status, Error: o.Error, Millis: o.Duration.Milliseconds(),
		Replay: d.Replay, Probe: d.Probe || d.Ping, NextAt: timeOf(s.next),
	}
	if kind == lineProbe {
		a.State = outcomeRetrying
	}
	if o.Expired {
		a.Attempt = d.Attempt - 1
	}
	if !o.OK {
		a.Answer = strings.ToValidUTF8(string(o.Answer), "\uFFFD")
	}
	line := a.appendLine(make([]byte, 0, 96+len(a.Error)+len(a.Answer)), kind)
	s.unanswered = len(line) - len(appendText(nil, a.Answer))
	return line
}

// unsent ends an event for which nothing can be sent any more.
func (l *core) unsent(d *Delivery, reason string) settlement {
	s := settlement{delivery: d, outcome: outcomeNotSent, attempts: d.Attempt, pause: ""}
	if d.Ping {
		s.outcome = outcomeDropped
		return s
	}
	a := AttemptRecord{event: d.itemReference(l.epoch.Load()), Event: string(d.Type), At: l.now(), State: outcomeNotSent, Error: reason, Replay: d.Replay}
	s.line = a.appendLine(nil, lineAttempt)
	return s
}

// endpointProven tells the script that the endpoint is healthy and has accepted
// a test ping, which is signed with the newest secret.
const endpointProven EndpointState = "proven"

// settle runs one script for each endpoint, all in one round trip.
func (l *core) settle(ctx context.Context, settlements []settlement, g Grant, breaker int) (Recorded, error) {
	var calls []call
	indexes := make(map[delivery.AccountID]int)
	members := make([][]int, 0, len(settlements))
	for i := range settlements {
		d := settlements[i].delivery
		at, ok := indexes[d.Account]
		if !ok {
			at = len(calls)
			indexes[d.Account] = at
			calls = append(calls, call{keys: []string{d.partition.keyOf(kindEndpoint, d.Account[:])},
				args: []any{d.partition.prefix, d.Account[:], 0, g.Share, g.InFlight, g.lease(), breaker}})
			members = append(members, nil)
		}
		calls[at].args = settlements[i].appendTo(calls[at].args)
		members[at] = append(members[at], i)
	}
	for at := range calls {
		calls[at].args[2] = min(g.Limit, len(members[at]))
		g.Limit -= min(g.Limit, len(members[at]))
	}
	replies, err := l.runAll(ctx, l.scripts.recordAttempts, calls)
	if err != nil {
		return Recorded{}, err
	}
	recorded := Recorded{OK: make([]bool, len(settlements))}
	var leased []*Delivery
	for at, reply := range replies {
		values, _ := reply.Val().([]any)
		if len(values) < 4 || len(text(values[0])) != len(members[at]) {
			return Recorded{}, unreadable("record_attempts")
		}
		for j, i := range members[at] {
			recorded.OK[i] = text(values[0])[j] == 'r'
		}
		more, _ := values[2].(int64)
		recorded.More = recorded.More || more == 1
		first := settlements[members[at][0]].delivery
		leased = first.partition.appendLeases(leased, first.Account, text(values[1]), text(values[3]), values[4:])
	}
	if len(leased) == 0 {
		return recorded, nil
	}
	// What was recorded stands, whatever fails now: the new leases run out.
	if recorded.Deliveries, err = l.complete(ctx, settlements[0].delivery.partition, leased); err != nil {
		l.log.Warn("leased events could not be read, they come again", "events", len(leased), "error", err)
	}
	return recorded, nil
}

func (s *settlement) appendTo(args []any) []any {
	d := s.delivery
	version := int64(0)
	if d.Receiver != nil {
		version = d.Receiver.Version
	}
	return append(args, d.item, d.token, s.outcome, s.next, s.attempts, s.line, version, string(s.endpoint), s.pause, s.unanswered)
}
