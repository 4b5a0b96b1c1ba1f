package ledger

import (
	"context"
	"encoding/json"
	"fmt"
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
	Gone     bool // the receiver answered 410
}

// state names the outcome in the log, and what it says of the endpoint.
func (o *Outcome) state() (outcome string, endpoint EndpointState) {
	switch {
	case o.OK:
		return "delivered", EndpointHealthy
	case o.Deferred:
		return "deferred", ""
	case o.Retry.IsZero() && o.Gone:
		return "undelivered", EndpointGone
	case o.Retry.IsZero():
		return "undelivered", EndpointUnreachable
	case o.Gone:
		return "retrying", EndpointGone
	}
	return "retrying", EndpointFailing
}

// Result is a leased event with what became of its attempt.
type Result struct {
	Delivery *Delivery
	Outcome  Outcome
}

// RecordAttempts settles leased events of one partition, those of one endpoint
// in one script. recorded[i] is false when the lease had run out and the event
// is somebody else's; nothing was recorded then. After an error nothing is known
// of any of them, and all may be recorded again.
func (l *Ledger) RecordAttempts(ctx context.Context, results []Result) (recorded []bool, err error) {
	settled := make([]settlement, len(results))
	for i := range results {
		settled[i] = results[i].settlement()
	}
	return l.settle(ctx, settled)
}

// settlement is one result as the script takes it.
type settlement struct {
	delivery *Delivery
	record   AttemptRecord
	next     int64 // next attempt, ms
	attempts int   // made so far
	endpoint EndpointState
}

func (r *Result) settlement() settlement {
	d, o := r.Delivery, &r.Outcome
	s := settlement{delivery: d, next: millis(o.Retry), attempts: d.Attempt}
	outcome, endpoint := o.state()
	s.endpoint = endpoint
	if o.Deferred {
		s.attempts--
	}
	if o.OK && d.Type == delivery.WebhookTest {
		s.endpoint = endpointProven
	}
	s.record = AttemptRecord{
		EventID: d.EventID, Event: string(d.Type), Attempt: d.Attempt, At: o.At, State: outcome,
		HTTPStatus: o.Status, Error: o.Error, Millis: o.Duration.Milliseconds(), Replay: d.Replay, NextAt: o.Retry,
	}
	if !o.OK {
		s.record.Answer = strings.ToValidUTF8(string(o.Answer), "\uFFFD")
	}
	return s
}

// unsent ends an event for which nothing can be sent any more.
func unsent(d *Delivery, reason string) settlement {
	return settlement{delivery: d, attempts: d.Attempt - 1,
		record: AttemptRecord{EventID: d.EventID, Event: string(d.Type), At: time.Now(), State: "notSent", Error: reason}}
}

// endpointProven tells the script that the endpoint is healthy and has accepted
// a test ping, which is signed with the newest secret.
const endpointProven EndpointState = "proven"

// settle runs one script for each endpoint, all in one round trip.
func (l *Ledger) settle(ctx context.Context, settlements []settlement) (recorded []bool, err error) {
	var calls []call
	indexes := make(map[delivery.AccountID]int)
	members := make([][]int, 0, len(settlements))
	now := time.Now().UnixMilli()
	for i := range settlements {
		d := settlements[i].delivery
		at, ok := indexes[d.Account]
		if !ok {
			at = len(calls)
			indexes[d.Account] = at
			calls = append(calls, call{keys: []string{d.room.keyOf(kindEndpoint, d.Account[:])}, args: []any{d.room.prefix, d.Account[:], now}})
			members = append(members, nil)
		}
		if calls[at].args, err = settlements[i].appendTo(calls[at].args); err != nil {
			return nil, err
		}
		members[at] = append(members[at], i)
	}
	replies, err := l.runAll(ctx, l.scripts.recordAttempts, calls)
	if err != nil {
		return nil, err
	}
	recorded = make([]bool, len(settlements))
	for at, reply := range replies {
		letters, _ := reply.Val().(string)
		if len(letters) != len(members[at]) {
			return nil, fmt.Errorf("script record_attempts: unreadable reply %q", letters)
		}
		for j, i := range members[at] {
			recorded[i] = letters[j] == 'r'
		}
	}
	return recorded, nil
}

func (s *settlement) appendTo(args []any) ([]any, error) {
	d := s.delivery
	if d.Order != nil {
		s.record.OrderID = d.Order.ID.String()
	}
	var line []byte
	if s.record.State != "deferred" {
		var err error
		if line, err = json.Marshal(&s.record); err != nil {
			return nil, fmt.Errorf("attempt record: %w", err)
		}
	}
	version := int64(0)
	if d.Endpoint != nil {
		version = d.Endpoint.Version
	}
	return append(args, d.item, d.token, s.record.State, s.next, s.attempts, line, version, string(s.endpoint)), nil
}
