package partitions

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
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

	Subject string `json:"-"` // the event's reference, as it stands in the line and in schedules
}

// AttemptsShown is the length of a log; scripts let it grow a little longer.
const AttemptsShown = 200

// Kinds of a line, its first byte. Lines stand in an endpoint's log, those of final
// outcomes also in the stream of outcomes, those of other attempts, without the answer,
// in that of tries (probes at most every 30 s and endpoint, no pings). A line is: kind, a
// probe's count (4 bytes), outcome, flags, attempt, time, HTTP status, milliseconds, next
// attempt, event, type, error, answer.
const (
	LineAttempt = 4
	lineProbe   = 5
	LineChunk   = 6 // in a log only: several lines, the oldest first, each with its length
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

func codeLine(c *core.Codec, a *AttemptRecord, kind byte) {
	outcome, flags, probes, millis := byte(max(slices.Index(lineOutcomes[:], a.State), 0)), byte(0), uint32(1), int(a.Millis)
	if a.Replay {
		flags |= lineReplay
	}

	if a.Probe {
		flags |= lineOfProbe
	}

	if kind == lineProbe {
		c.All(&probes)
	}

	c.All(&outcome, &flags, &a.Attempt, &a.At, &a.HTTPStatus, &millis, &a.NextAt, &a.Subject, &a.Event, &a.Error, &a.Answer)
	if c.Writing {
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

// AppendLine appends to b the attempt as a line of the given kind of the attempt log.
func (a *AttemptRecord) AppendLine(b []byte, kind byte) []byte {
	c := core.Codec{Out: append(b, kind), Writing: true}
	codeLine(&c, a, kind)
	return c.Out
}

// DecodeLine reads a line of the attempt log of an endpoint in partition r. It fails when the line is of
// an unknown kind, ends early or names no event; the attempt beside an error is incomplete.
func DecodeLine(r core.Partition, line string) (a AttemptRecord, err error) {
	c := core.Codec{Fields: core.Fields{Rest: line}}

	kind := c.Byte()
	switch kind {
	case LineAttempt, lineProbe:
		codeLine(&c, &a, kind)
	default:
		c.Err = fmt.Errorf("line of kind %d: %w", kind, core.ErrShortRecord)
	}

	event, err := ParseEvent(r, a.Subject)
	if c.Err != nil {
		err = c.Err
	}
	if err != nil {
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

// DecodeOutcomes reads an entry's lines: its field "o" is accounts and lines, one behind the other.
func DecodeOutcomes(r core.Partition, values map[string]any) ([]AttemptRecord, error) {
	var records []AttemptRecord
	f := core.Fields{Rest: core.Text(values["o"])}
	for f.Rest != "" {
		account := f.Take(len(delivery.AccountID{}))
		line := f.Text()
		if f.Err != nil {
			return nil, fmt.Errorf("outcomes: %w", f.Err)
		}

		record, err := DecodeLine(r, line)
		if err != nil {
			return nil, err
		}

		copy(record.Account[:], account)
		records = append(records, record)
	}

	if len(records) == 0 {
		return nil, fmt.Errorf("outcomes: %w", core.ErrShortRecord)
	}

	return records, nil
}

// Lines are what is stored of an attempt at a delivery: the line of the log, and the same without
// what was answered. failedProbe: see Probes.
func (a *AttemptRecord) Lines(d *Delivery, failedProbe bool) (line, unanswered []byte) {
	kind := byte(LineAttempt)
	if failedProbe {
		kind = lineProbe
	}

	a.Subject = d.reference()
	isNotice := a.Subject[0] == core.EventNotice // an order's names its type
	if isNotice {
		a.Event = string(d.Type)
	}

	line = a.AppendLine(make([]byte, 0, 96+len(a.Error)+len(a.Answer)), kind)
	unanswered = line
	if a.Answer != "" {
		unanswered = append(slices.Clone(line[:len(line)-len(core.AppendText(nil, a.Answer))]), 0)
	}

	return line, unanswered
}
