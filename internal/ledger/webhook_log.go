package ledger

import (
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
	EventID    string    `json:"eventId"`
	Event      string    `json:"event"`
	OrderID    string    `json:"orderId,omitempty"`
	Attempt    int       `json:"attempt"`
	At         time.Time `json:"at"`
	State      string    `json:"status"` // delivered, retrying, undelivered, notSent
	HTTPStatus int       `json:"httpStatus,omitempty"`
	Error      string    `json:"error,omitempty"`
	Millis     int64     `json:"milliseconds"`
	Answer     string    `json:"answer,omitempty"` // of a failed attempt only
	Replay     bool      `json:"replay,omitempty"`
	// Probe: sent ahead of the schedule to see whether the receiver is back.
	// Probes that failed in a row share the line of the last; Probes counts them.
	Probe  bool      `json:"probe,omitempty"`
	Probes int       `json:"probes,omitempty"`
	NextAt time.Time `json:"nextAttemptAt,omitzero"`

	event string // reference as it stands in the line
}

// attemptsShown is how many attempts an endpoint's log has; scripts let it grow
// a little longer before they cut it.
const attemptsShown = 200

// Kinds of a line, its first byte. Lines stand in an endpoint's log, those of
// final outcomes also in the partition's stream of outcomes, and those of other
// attempts to deliver an event, without the answer, in its stream of tries; there
// each probe that failed has a line of its own, at most one in 30 s and endpoint,
// and pings, which deliver nothing, have none. A line is: kind, of a probe how
// many it stands for (4 bytes), outcome, flags, attempt, time, HTTP status,
// milliseconds, next attempt, event, its type, error, answer. Scripts write
// lineNotSent themselves: time (8 bytes), event.
const (
	lineNotSent = 3
	lineAttempt = 4
	lineProbe   = 5
)

// Outcomes of a line, by number.
var lineOutcomes = [...]string{"", outcomeDelivered, outcomeRetrying, outcomeUndelivered, outcomeNotSent}

// What can become of an event.
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

func outcomeNumber(state string) byte {
	for i, name := range lineOutcomes {
		if name == state {
			return byte(i)
		}
	}
	return 0
}

// appendLine is the inverse of decodeLine.
func (a *AttemptRecord) appendLine(b []byte, kind byte) []byte {
	b = append(b, kind)
	if kind == lineProbe {
		b = binary.BigEndian.AppendUint32(b, 1)
	}
	flags := byte(0)
	if a.Replay {
		flags |= lineReplay
	}
	if a.Probe {
		flags |= lineOfProbe
	}
	b = append(b, outcomeNumber(a.State), flags)
	b = binary.AppendUvarint(b, uint64(a.Attempt))
	b = appendTime(b, a.At)
	b = binary.AppendUvarint(b, uint64(a.HTTPStatus))
	b = binary.AppendUvarint(b, uint64(a.Millis))
	b = appendTime(b, a.NextAt)
	b = appendText(b, a.event)
	b = appendText(b, a.Event)
	b = appendText(b, a.Error)
	return appendText(b, a.Answer)
}

func (r partition) decodeLine(line string) (a AttemptRecord, err error) {
	f := fields{rest: line}
	kind := f.byte()
	switch kind {
	case lineNotSent:
		a.At, a.State, a.Error = timeOf(int64(f.uint64())), outcomeNotSent, errNoEndpoint.Error()
		a.event, a.Event = f.rest, string(delivery.StatusChanged)
		if strings.HasPrefix(a.event, string(rune(eventNotice))) {
			a.Event = ""
		}
	case lineAttempt, lineProbe:
		if kind == lineProbe {
			a.Probes = int(f.uint32())
		}
		if outcome := int(f.byte()); outcome < len(lineOutcomes) {
			a.State = lineOutcomes[outcome]
		}
		flags := f.byte()
		a.Replay, a.Probe = flags&lineReplay != 0, flags&lineOfProbe != 0
		a.Attempt, a.At = int(f.uvarint()), f.time()
		a.HTTPStatus, a.Millis, a.NextAt = int(f.uvarint()), int64(f.uvarint()), f.time()
		a.event, a.Event, a.Error, a.Answer = f.text(), f.text(), f.text(), f.text()
	default:
		return a, fmt.Errorf("attempt log: line of kind %d: %w", kind, errShortRecord)
	}
	if f.err != nil {
		return a, fmt.Errorf("attempt log: %w", f.err)
	}
	event, err := parseEvent(r, a.event)
	if err != nil {
		return a, fmt.Errorf("attempt log: %w", err)
	}
	if event.Notice != "" {
		a.EventID = event.Notice
	} else {
		a.EventID, a.OrderID = delivery.EventID(event.Order, event.Version), event.Order.String()
	}
	return a, nil
}

// decodeOutcomes reads an entry of the stream of outcomes or of tries: account,
// and lines named 1, 2 and so on.
func (r partition) decodeOutcomes(values map[string]any) ([]AttemptRecord, error) {
	records := make([]AttemptRecord, 0, len(values)-1)
	for i := 1; values[strconv.Itoa(i)] != nil; i++ {
		record, err := r.decodeLine(text(values[strconv.Itoa(i)]))
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// eventReference is how an attempt's line names the event.
func (d *Delivery) eventReference() string {
	if d.Order != nil {
		return string(appendOrderEvent(nil, d.Order.ID, d.Version))
	}
	return string(rune(eventNotice)) + d.EventID
}

// itemReference is the same for an event whose order or body may be gone; of an
// order's version the item has only the sequence, so it is taken for one of this
// epoch.
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

// Attempts is an account's log, newest first; state "" means all. The last 200
// attempts are kept, at most 256 kB.
func (l Webhooks) Attempts(ctx context.Context, account delivery.AccountID, state string) ([]AttemptRecord, error) {
	records, err := l.LastAttempts(ctx, account, attemptsShown)
	return slices.DeleteFunc(records, func(a AttemptRecord) bool { return state != "" && a.State != state }), err
}

// LastAttempts are the newest n lines of an account's log, newest first.
func (l Webhooks) LastAttempts(ctx context.Context, account delivery.AccountID, n int) ([]AttemptRecord, error) {
	r := l.partitionOf(account)
	lines, err := l.rdb.LRange(ctx, r.keyOf(kindAttemptLog, account[:]), 0, int64(n)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the attempt log: %w", failure(err))
	}
	records := make([]AttemptRecord, len(lines))
	for i, line := range lines {
		if records[i], err = r.decodeLine(line); err != nil {
			return nil, err
		}
	}
	return records, nil
}
