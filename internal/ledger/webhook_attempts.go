package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
// attempt, event, type, error, answer.
const (
	lineAttempt = 4
	lineProbe   = 5
	lineChunk   = 6 // in a log only: several lines, the oldest first, each with its length
)

var lineOutcomes = [...]string{"", StateDelivered, StateRetrying, StateUndelivered, StateNotSent}

// ExpiredError is the recorded error of an event that was not sent by its deadline.
const ExpiredError = "deadline: the event is older than 24 h"

// NoEndpointError is the recorded error of an event that was not sent because there is no URL.
const NoEndpointError = "no webhook URL is registered"

// States of an attempt.
const (
	StateDelivered   = "delivered"
	StateRetrying    = "retrying"
	StateUndelivered = "undelivered"
	StateNotSent     = "notSent"
)

const (
	lineReplay = 1 << iota
	lineOfProbe
)

func (c *codec) line(a *AttemptRecord, kind byte) {
	outcome, flags, probes, millis := byte(max(slices.Index(lineOutcomes[:], a.State), 0)), byte(0), uint32(1), int(a.Millis)
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
		a.Event = string(event.Kind.EventType())
		a.EventID, a.OrderID = delivery.EventID(event.Order, event.Version), event.Order.String()
	}

	return a, nil
}

// decodeOutcomes reads an entry's lines: its field "o" is accounts and lines, one behind the other.
func (r partition) decodeOutcomes(values map[string]any) ([]AttemptRecord, error) {
	var records []AttemptRecord
	f := fields{rest: text(values["o"])}
	for f.rest != "" {
		account := f.take(len(delivery.AccountID{}))
		line := f.text()
		if f.err != nil {
			return nil, fmt.Errorf("outcomes: %w", f.err)
		}

		record, err := r.decodeLine(line)
		if err != nil {
			return nil, err
		}

		copy(record.Account[:], account)
		records = append(records, record)
	}

	if len(records) == 0 {
		return nil, fmt.Errorf("outcomes: %w", errShortRecord)
	}

	return records, nil
}

// Lines are what is stored of an attempt at a delivery: the line of the log, and the same without
// what was answered. failedProbe: see Probes.
func (a *AttemptRecord) Lines(d *Delivery, failedProbe bool) (line, unanswered []byte) {
	kind := byte(lineAttempt)
	if failedProbe {
		kind = lineProbe
	}

	a.event = d.reference()
	isNotice := a.event[0] == eventNotice // an order's names its type
	if isNotice {
		a.Event = string(d.Type)
	}

	line = a.appendLine(make([]byte, 0, 96+len(a.Error)+len(a.Answer)), kind)
	unanswered = line
	if a.Answer != "" {
		unanswered = append(slices.Clone(line[:len(line)-len(appendText(nil, a.Answer))]), 0)
	}

	return line, unanswered
}

// Attempts is an account's log, newest first, at most 200 and 256 kB; state "": all.
func (l *Webhooks) Attempts(ctx context.Context, account delivery.AccountID, state string) ([]AttemptRecord, error) {
	records, err := l.LastAttempts(ctx, account, attemptsShown)
	return slices.DeleteFunc(records, func(a AttemptRecord) bool { return state != "" && a.State != state }), err
}

// LastAttempts are the newest n lines of an account's log, newest first.
func (l *Webhooks) LastAttempts(ctx context.Context, account delivery.AccountID, n int) ([]AttemptRecord, error) {
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
