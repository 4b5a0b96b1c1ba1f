package ledger

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// AttemptRecord is one line of an endpoint's attempt log.
type AttemptRecord struct {
	Account    delivery.AccountID `json:"-"`
	EventID    string             `json:"eventId"`
	Event      string             `json:"event"`
	OrderID    string             `json:"orderId,omitempty"`
	Attempt    int                `json:"attempt"`
	At         time.Time          `json:"at"`
	State      string             `json:"status"` // delivered, retrying, undelivered, notSent
	HTTPStatus int                `json:"httpStatus,omitempty"`
	Error      string             `json:"error,omitempty"`
	Millis     int64              `json:"milliseconds"`
	Answer     string             `json:"answer,omitempty"` // of a failed attempt only
	Replay     bool               `json:"replay,omitempty"`
	// Probe: sent ahead of the schedule to see whether the receiver is back. Failed
	// probes in a row share one line; Probes counts them.
	Probe  bool      `json:"probe,omitempty"`
	Probes int       `json:"probes,omitempty"`
	NextAt time.Time `json:"nextAttemptAt,omitzero"`

	event string // reference as it stands in the line
}

// attemptsShown is the length of a log; scripts let it grow a little longer.
const attemptsShown = 200

// Kinds of a line, its first byte. Lines stand in an endpoint's log, those of final
// outcomes also in the stream of outcomes, those of other attempts, without the answer,
// in that of tries (probes at most every 30 s and endpoint, no pings). A line is: kind, a
// probe's count (4 bytes), outcome, flags, attempt, time, HTTP status, milliseconds, next
// attempt, event, type, error, answer. Scripts write lineNotSent: time (8 bytes), event.
const (
	lineNotSent = 3
	lineAttempt = 4
	lineProbe   = 5
	lineChunk   = 6 // in a log only: several lines, the oldest first, each with its length
)

var lineOutcomes = [...]string{"", outcomeDelivered, outcomeRetrying, outcomeUndelivered, outcomeNotSent}

const (
	outcomeDelivered   = "delivered"
	outcomeRetrying    = "retrying"
	outcomeUndelivered = "undelivered"
	outcomeNotSent     = "notSent"
	outcomeDeferred    = "deferred" // goes later, without an attempt of its own
	outcomeDropped     = "dropped"  // a ping that failed
)

const (
	lineReplay = 1 << iota
	lineOfProbe
)

func outcomeNumber(state string) byte { return byte(max(slices.Index(lineOutcomes[:], state), 0)) }

func (c *codec) line(a *AttemptRecord, kind byte) {
	outcome, flags, probes, millis := outcomeNumber(a.State), byte(0), uint32(1), int(a.Millis)
	if a.Replay {
		flags |= lineReplay
	}
	if a.Probe {
		flags |= lineOfProbe
	}
	if kind == lineProbe {
		c.all(&probes)
	}
	c.all(&outcome, &flags, &a.Attempt, &a.At, &a.HTTPStatus, &millis, &a.NextAt, &a.event, &a.Event, &a.Error, &a.Answer)
	if c.writing {
		return
	}
	if kind == lineProbe {
		a.Probes = int(probes)
	}
	if int(outcome) < len(lineOutcomes) {
		a.State = lineOutcomes[outcome]
	}
	a.Replay, a.Probe, a.Millis = flags&lineReplay != 0, flags&lineOfProbe != 0, int64(millis)
}

func (a *AttemptRecord) appendLine(b []byte, kind byte) []byte {
	c := codec{out: append(b, kind), writing: true}
	c.line(a, kind)
	return c.out
}

func (r partition) decodeLine(line string) (a AttemptRecord, err error) {
	c := codec{fields: fields{rest: line}}
	switch kind := c.byte(); kind {
	case lineNotSent:
		a.At, a.State, a.Error = timeOf(int64(c.uint64())), outcomeNotSent, errNoEndpoint.Error()
		a.event, a.Event = c.rest, string(delivery.StatusChanged)
		if strings.HasPrefix(a.event, string(rune(eventNotice))) {
			a.Event = ""
		}
	case lineAttempt, lineProbe:
		c.line(&a, kind)
	default:
		c.err = fmt.Errorf("line of kind %d: %w", kind, errShortRecord)
	}
	event, err := parseEvent(r, a.event)
	if err = cmp.Or(c.err, err); err != nil {
		return a, fmt.Errorf("attempt log: %w", err)
	}
	if event.Notice != "" {
		a.EventID = event.Notice
	} else {
		a.Event = string(delivery.StatusChanged)
		a.EventID, a.OrderID = delivery.EventID(event.Order, event.Version), event.Order.String()
	}
	return a, nil
}

// decodeOutcomes reads an entry's lines: "o" is accounts and lines, one behind the other. Earlier
// releases wrote those of one account, "a", named 1, 2 and so on.
func (r partition) decodeOutcomes(values map[string]any) ([]AttemptRecord, error) {
	records := make([]AttemptRecord, 0, len(values))
	add := func(account, line string) error {
		record, err := r.decodeLine(line)
		if err == nil && len(account) != len(record.Account) {
			err = fmt.Errorf("outcomes: %w", errShortRecord)
		}
		copy(record.Account[:], account)
		records = append(records, record)
		return err
	}
	for f := (fields{rest: text(values["o"])}); f.rest != ""; {
		if err := cmp.Or(add(f.take(len(delivery.AccountID{})), f.text()), f.err); err != nil {
			return nil, err
		}
	}
	for i := 1; values[strconv.Itoa(i)] != nil; i++ {
		if err := add(text(values["a"]), text(values[strconv.Itoa(i)])); err != nil {
			return nil, err
		}
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("outcomes: %w", errShortRecord)
	}
	return records, nil
}

func (d *Delivery) eventReference() string {
	if d.Order != nil {
		return string(appendOrderEvent(nil, d.Order.ID, d.Version))
	}
	return string(rune(eventNotice)) + d.EventID
}

// itemReference names an event that may be gone, by its item and an assumed epoch.
func (d *Delivery) itemReference(epoch uint32) string {
	switch {
	case d.Order != nil && d.Version != 0, d.item[0] == eventPing:
		return d.eventReference()
	case d.item[0] == eventNotice || d.item[0] == eventNoticeReplay:
		return string(rune(eventNotice)) + d.noticeID()
	}
	b := binary.BigEndian.AppendUint32(append([]byte{eventOrder}, d.item[1:15]...), epoch)
	return string(b) + d.item[15:19]
}

// Attempts is an account's log, newest first, at most 200 and 256 kB; state "": all.
func (l Webhooks) Attempts(ctx context.Context, account delivery.AccountID, state string) ([]AttemptRecord, error) {
	records, err := l.LastAttempts(ctx, account, attemptsShown)
	return slices.DeleteFunc(records, func(a AttemptRecord) bool { return state != "" && a.State != state }), err
}

// LastAttempts are the newest n lines of an account's log, newest first.
func (l Webhooks) LastAttempts(ctx context.Context, account delivery.AccountID, n int) ([]AttemptRecord, error) {
	r := l.partitionOf(account)
	lines, err := l.rdb.LRange(ctx, r.keyOf(kindAttemptLog, account[:]), 0, int64(n)-1).Result()
	if err != nil {
		return nil, failed("reading the attempt log", err)
	}
	records := make([]AttemptRecord, 0, len(lines))
	for _, line := range lines {
		chunk := []string{line}
		if f := (fields{rest: line}); f.byte() == lineChunk {
			for chunk = nil; f.rest != ""; {
				chunk = append(chunk, f.text())
			}
		}
		for _, line := range slices.Backward(chunk) {
			record, err := r.decodeLine(line)
			if err != nil {
				return nil, err
			}
			records = append(records, record)
		}
	}
	return records[:min(n, len(records))], nil
}

// Outcome is what became of an attempt.
type Outcome struct {
	At       time.Time
	OK       bool
	Status   int    // HTTP status; 0: there was no answer
	Error    string // class and text, such as "timeout: …"; empty with a 2xx
	Duration time.Duration
	Answer   []byte    // what is to be kept of the answer's body, at most 2 kB
	Retry    time.Time // when to try again; zero with OK false: given up
	Deferred bool      // not sent, it goes at Retry; for the order of events an attempt has ended
	Expired  bool      // nothing was sent, the deadline has passed
	Gone     bool      // the receiver answered 410
	Busy     bool      // 429, 502, 503 or 504, for Wait; 0: the ledger decides
	Wait     time.Duration
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
	OK []bool // OK[i] is false when the lease had expired; nothing was recorded then
	Leased
}

// Record settles leased events of one partition and hands out the next, for each endpoint
// no more than its results. breaker is how many failures in a row open the circuit
// breaker. After an error all may be recorded again.
func (l Queue) Record(ctx context.Context, results []Result, g Grant, breaker int) (Recorded, error) {
	settled := make([]settlement, len(results))
	for i := range results {
		settled[i] = results[i].settlement()
	}
	return l.settle(ctx, settled, g, breaker)
}

// settlement is one result as the script takes it.
type settlement struct {
	delivery   *Delivery
	outcome    string
	next       int64 // attempt, ms
	attempts   int   // the number of this one
	line       []byte
	unanswered int // how much of the line comes before what was answered
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

// endpointProven: healthy, and a test signed with the newest secret was accepted.
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
	replies, err := l.runAll(ctx, "record_attempts", calls)
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
		recorded.More = recorded.More || integer(values[2]) == 1
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
