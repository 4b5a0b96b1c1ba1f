package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// mostListed bounds what one list holds.
const mostListed = 1000

func checkListed(limit int) error {
	if limit < 1 || limit > mostListed {
		return fmt.Errorf("a list of %d: want 1 to %d", limit, mostListed)
	}
	return nil
}

// trace is an entry of one of the streams that keep traces.
type trace struct {
	partition partition
	at        time.Time
	values    map[string]any
	ms, n     uint64 // its id
}

// newestTraces reads the newest entries of a stream of every partition in one
// round trip, newest first.
func (l *core) newestTraces(ctx context.Context, kind byte, limit int) ([]trace, error) {
	if err := checkListed(limit); err != nil {
		return nil, err
	}
	pipe := l.rdb.Pipeline()
	reads := make([]*redis.XMessageSliceCmd, len(l.partitions))
	for i, r := range l.partitions {
		reads[i] = pipe.XRevRangeN(ctx, r.key(kind), "+", "-", int64(limit))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("reading traces: %w", failure(err))
	}
	var traces []trace
	for i, read := range reads {
		for _, m := range read.Val() {
			t := trace{partition: l.partitions[i], values: m.Values}
			t.ms, t.n = splitStreamID(m.ID)
			t.at = timeOf(int64(t.ms))
			traces = append(traces, t)
		}
	}
	slices.SortStableFunc(traces, func(a, b trace) int {
		return cmp.Or(cmp.Compare(b.ms, a.ms), cmp.Compare(b.n, a.n))
	})
	return traces[:min(limit, len(traces))], nil
}

// RefusedUpdate is a courier's update that the table of moves forbids, as far as
// its trace tells. One whose trace cannot be read has the time and the Reason
// only, which then says so.
type RefusedUpdate struct {
	At      time.Time          // when it was refused
	Account delivery.AccountID // zero once the order has been retired
	Update  delivery.Update
	Status  delivery.Status // the order's
	Reason  string
	Late    bool // finance was told of it (delivery.LateDelivery)
}

// RefusedUpdates lists the newest traces of all partitions, at most limit, 1 to
// 1000, newest first, in two round trips.
func (l Monitor) RefusedUpdates(ctx context.Context, limit int) ([]RefusedUpdate, error) {
	traces, err := l.newestTraces(ctx, kindRefused, limit)
	if err != nil {
		return nil, err
	}
	refused := make([]RefusedUpdate, len(traces))
	for i := range traces {
		refused[i] = traces[i].refusedUpdate()
	}
	return refused, l.nameAccounts(ctx, refused)
}

func (t *trace) refusedUpdate() RefusedUpdate {
	update, err := decodeUpdate(text(t.values["u"]))
	status := text(t.values["status"])
	if err == nil && len(status) == 0 {
		err = errShortRecord
	}
	if err != nil {
		return RefusedUpdate{At: t.at, Reason: "unreadable: " + err.Error()}
	}
	return RefusedUpdate{At: t.at, Update: *update, Status: storedStatus(status),
		Reason: printable(text(t.values["reason"])), Late: t.values["late"] != nil}
}

// storedStatus reads a status that was written as a number in digits.
func storedStatus(digits string) delivery.Status {
	n, _ := strconv.ParseUint(digits, 10, 8)
	return delivery.Status(n)
}

// nameAccounts reads whose the orders are; their updates do not say it.
func (l *core) nameAccounts(ctx context.Context, refused []RefusedUpdate) error {
	pipe := l.rdb.Pipeline()
	reads := make([]*redis.StringCmd, len(refused))
	for i := range refused {
		if r, ok := l.partitionOfOrder(refused[i].Update.Order); ok {
			reads[i] = pipe.GetRange(ctx, r.order(refused[i].Update.Order.Digest()), orderAccountAt, orderAccountAt+17)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("reading the accounts of orders: %w", failure(err))
	}
	for i, read := range reads {
		if read == nil {
			continue
		}
		var account delivery.AccountID
		f := fields{rest: read.Val()}
		copy(account[:], f.take(len(account)))
		if f.uint16() == refused[i].Update.Order.Day() && f.err == nil {
			refused[i].Account = account
		}
	}
	return nil
}

// DeadLetter is an entry that nobody could read or handle.
type DeadLetter struct {
	At        time.Time // when it was given up
	Partition int
	Stream    string // events, updates, outcomes or tries
	EntryID   string
	Role      string // whose entry it was
	Reason    string
	// Fields are the entry's, made printable, and "order" if it names one, for as
	// long as the stream still holds the entry; after that nil.
	Fields map[string]string
}

var streamNames = map[string]string{
	string(rune(kindEvents)): "events", string(rune(kindUpdates)): "updates", string(rune(kindOutcomes)): "outcomes",
	string(rune(kindTries)): "tries",
}

// DeadLetters lists the newest of all partitions, at most limit, 1 to 1000,
// newest first, in two round trips.
func (l Monitor) DeadLetters(ctx context.Context, limit int) ([]DeadLetter, error) {
	traces, err := l.newestTraces(ctx, kindDeadLetters, limit)
	if err != nil {
		return nil, err
	}
	letters := make([]DeadLetter, len(traces))
	pipe := l.rdb.Pipeline()
	reads := make([]*redis.XMessageSliceCmd, len(traces))
	for i, t := range traces {
		stream, entry := text(t.values["stream"]), text(t.values["entry"])
		kind := strings.TrimPrefix(stream, t.partition.prefix)
		letters[i] = DeadLetter{At: t.at, Partition: t.partition.number, Stream: cmp.Or(streamNames[kind], printable(stream)),
			EntryID: printable(entry), Role: printable(text(t.values["role"])), Reason: printable(text(t.values["reason"]))}
		if streamNames[kind] != "" && entry != "" {
			reads[i] = pipe.XRange(ctx, stream, entry, entry)
		}
	}
	_, _ = pipe.Exec(ctx) // each read carries its own error
	for i, read := range reads {
		if read == nil {
			continue
		}
		// A damaged entry id is the server's to refuse, and no reason to hide the others.
		if err := read.Err(); err != nil && errors.Is(failure(err), delivery.ErrUnavailable) {
			return nil, fmt.Errorf("reading dead letters: %w", failure(err))
		}
		if found := read.Val(); len(found) == 1 {
			letters[i].Fields = printableFields(traces[i].partition, found[0].Values)
		}
	}
	return letters, nil
}

// printableFields are an entry's fields, and the order that it names.
func printableFields(r partition, values map[string]any) map[string]string {
	shown := make(map[string]string, len(values)+1)
	for field, value := range values {
		shown[printable(field)] = printable(text(value))
	}
	var e Entry
	if e.read(r, values) != nil {
		return shown
	}
	id := e.Event.Order
	if e.Update != nil {
		id = e.Update.Order
	}
	if !id.IsZero() {
		shown["order"] = id.String()
	}
	return shown
}

// mostPrintable is how many bytes of a field are shown.
const mostPrintable = 512

// printable is text as it is when all of it can be shown, and otherwise its bytes
// in hex, behind 0x; cut where it is long.
func printable(text string) string {
	end := min(len(text), mostPrintable)
	for end < len(text) && end > mostPrintable-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end-- // no character is cut in two
	}
	shown := text[:end]
	if !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
		end = min(len(text), mostPrintable/2)
		shown = fmt.Sprintf("0x%x", text[:end])
	}
	if end < len(text) {
		shown += "…"
	}
	return shown
}
