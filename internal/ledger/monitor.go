package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Stats are figures for operators, summed over the partitions.
type Stats struct {
	Events, Updates int64          // entries in the streams
	Unread          map[Role]int64 // entries that a role has yet to read
	Pending         map[Role]int64 // read and not settled
	RefusedUpdates  int64          // entries kept of updates that were refused
	DeadLetters     int64
	InFlight        int64 // counts orders with a timer, which have not ended
}

// Stats reads the figures of every partition in one round trip. With ErrIncomplete the sums lack those
// of partitions that do not answer.
func (l *Monitor) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Unread: make(map[Role]int64), Pending: make(map[Role]int64)}
	groups, errs := pipelinedEach(ctx, l.rdb, "reading statistics", l.partitions, func(pipe redis.Pipeliner, r partition) func() map[string][]redis.XInfoGroup {
		events, updates := r.key(kindEvents), r.key(kindUpdates)
		entries, reports, timers := pipe.XLen(ctx, events), pipe.XLen(ctx, updates), pipe.ZCard(ctx, r.key(kindTimers))
		refused, dead := pipe.XLen(ctx, r.key(kindRefused)), pipe.XLen(ctx, r.key(kindDeadLetters))
		ofEvents, ofUpdates := pipe.XInfoGroups(ctx, events), pipe.XInfoGroups(ctx, updates)
		return func() map[string][]redis.XInfoGroup {
			s.Events += entries.Val()
			s.Updates += reports.Val()
			s.RefusedUpdates += refused.Val()
			s.DeadLetters += dead.Val()
			s.InFlight += timers.Val()

			return map[string][]redis.XInfoGroup{events: ofEvents.Val(), updates: ofUpdates.Val()}
		}
	})

	for i, streams := range groups {
		for key, groups := range streams {
			for _, g := range groups {
				unread, err := l.unread(ctx, key, &g)
				if err != nil {
					errs[i] = err
				}
				s.Unread[Role(g.Name)] += unread
				s.Pending[Role(g.Name)] += g.Pending
			}
		}
	}

	return s, partly(errs)
}

// SilentServers is the error of Servers when some servers do not answer. It wraps ErrIncomplete unless
// none does.
type SilentServers struct {
	Addrs []string // of those that do not answer, sorted

	cause error
}

func (e *SilentServers) Error() string {
	return fmt.Sprintf("asking the servers: no answer from %s: %s", strings.Join(e.Addrs, ", "), e.cause)
}

func (e *SilentServers) Unwrap() error { return e.cause }

// Servers asks every server. With ErrIncomplete it returns those that answer; the others are named
// by SilentServers.
func (l *Monitor) Servers(ctx context.Context) ([]Server, error) { return l.servers(ctx) }

// Memory asks every server for nothing but its memory, which costs less. After an error it has those
// that answered.
func (l *Monitor) Memory(ctx context.Context) ([]Server, error) { return l.servers(ctx, "memory") }

// servers asks every server for sections of its report; none: all.
func (l *Monitor) servers(ctx context.Context, sections ...string) ([]Server, error) {
	var mu sync.Mutex
	var all []Server
	var silent SilentServers
	err := l.eachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		info, err := one.Info(ctx, sections...).Result()

		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			silent.Addrs = append(silent.Addrs, one.Options().Addr)
			silent.cause = failure(err)
			return nil // the others are asked, too
		}

		all = append(all, parseServer(one.Options().Addr, info))

		return nil
	})
	if err != nil {
		return all, failed("asking the servers", err)
	}

	if silent.cause == nil {
		return all, nil
	}

	slices.Sort(silent.Addrs)
	if len(all) > 0 {
		silent.cause = fmt.Errorf("%w: %w", ErrIncomplete, silent.cause)
	}

	return all, &silent
}

// LastBackup is when the latest whole backup began; zero: none was ever made.
func (l *Monitor) LastBackup(ctx context.Context) (time.Time, error) {
	at, err := l.rdb.HGet(ctx, l.metaKey(), "backed_up").Int64()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	return time.Unix(at, 0), failed("reading the last backup", err)
}

const mostListed = 1000

func checkListed(limit int) error {
	if limit < 1 || limit > mostListed {
		return fmt.Errorf("a list of %d: want 1 to %d", limit, mostListed)
	}
	return nil
}

type historyEntry struct {
	partition partition
	id        string
	values    map[string]any
}

func (t *historyEntry) at() time.Time { return timeOfEntry(t.id) }

func (l *Monitor) newestEntries(ctx context.Context, kind byte, limit int) ([]historyEntry, error) {
	if err := checkListed(limit); err != nil {
		return nil, err
	}

	newest, errs := pipelinedEach(ctx, l.rdb, "reading history", l.partitions, func(pipe redis.Pipeliner, r partition) func() []redis.XMessage {
		return pipe.XRevRangeN(ctx, r.key(kind), "+", "-", int64(limit)).Val
	})
	var entries []historyEntry
	for i, messages := range newest {
		for _, m := range messages {
			entries = append(entries, historyEntry{l.partitions[i], m.ID, m.Values})
		}
	}

	slices.SortStableFunc(entries, func(a, b historyEntry) int { return compareStreamIDs(b.id, a.id) })

	return entries[:min(limit, len(entries))], partly(errs)
}

// RefusedUpdate is a courier's update that the table of moves forbids. An
// unreadable one has the time and a Reason that says so.
type RefusedUpdate struct {
	At      time.Time          // when it was refused
	Account delivery.AccountID // zero once the order has been retired
	Update  delivery.Update
	Status  delivery.Status // the order's
	Reason  string
	Late    bool // finance was informed (delivery.LateDelivery)
}

// RefusedUpdates lists the newest, at most limit, 1 to 1000, newest first. With ErrIncomplete those of
// partitions that do not answer are left out.
func (l *Monitor) RefusedUpdates(ctx context.Context, limit int) ([]RefusedUpdate, error) {
	entries, incomplete := l.newestEntries(ctx, kindRefused, limit)
	if incomplete != nil && !errors.Is(incomplete, ErrIncomplete) {
		return nil, incomplete
	}

	refused := make([]RefusedUpdate, len(entries))
	for i := range entries {
		refused[i] = entries[i].refusedUpdate()
	}

	err := l.nameAccounts(ctx, refused)

	return refused, cmp.Or(incomplete, err)
}

func (t *historyEntry) refusedUpdate() RefusedUpdate {
	update, err := decodeUpdate(text(t.values["u"]))
	status := text(t.values["status"])
	if err == nil && len(status) == 0 {
		err = errShortRecord
	}

	if err != nil {
		return RefusedUpdate{At: t.at(), Reason: unreadableReason(err)}
	}

	return RefusedUpdate{At: t.at(), Update: *update, Status: delivery.Status(number(status)),
		Reason: printable(text(t.values["reason"])), Late: t.values["late"] != nil}
}

func (l *Monitor) nameAccounts(ctx context.Context, refused []RefusedUpdate) error {
	heads, errs := pipelinedEach(ctx, l.rdb, "reading the accounts of orders", refused, func(pipe redis.Pipeliner, u RefusedUpdate) func() string {
		r, ok := l.partitionOfOrder(u.Update.Order)
		if !ok {
			return nil
		}
		return pipe.GetRange(ctx, r.order(u.Update.Order.Digest()), orderAccountAt, orderAccountAt+17).Val
	})

	for i, head := range heads {
		var account delivery.AccountID
		f := fields{rest: head}
		copy(account[:], f.take(len(account)))
		if f.uint16() == refused[i].Update.Order.Day() && f.err == nil {
			refused[i].Account = account
		}
	}

	return partly(errs)
}

// LateReports are couriers' reports that an order was delivered after it had failed or been cancelled
// (delivery.LateDelivery). Redis keeps only the newest refused updates of each partition, about refusedKept;
// older reports are unknown.
type LateReports struct {
	times map[delivery.OrderID][]time.Time

	// keptSince maps each partition that may have dropped refused updates to the time of the oldest one it keeps.
	keptSince map[int]time.Time
}

// All yields each report with its order.
func (r *LateReports) All() iter.Seq2[delivery.OrderID, time.Time] {
	return func(yield func(delivery.OrderID, time.Time) bool) {
		for order, times := range r.times {
			for _, at := range times {
				if !yield(order, at) {
					return
				}
			}
		}
	}
}

// Has reports whether a courier said that an order was delivered at that millisecond.
func (r *LateReports) Has(order delivery.OrderID, at time.Time) bool {
	return slices.ContainsFunc(r.times[order], func(t time.Time) bool { return t.UnixMilli() == at.UnixMilli() })
}

// lateReportMargin is more than a courier's clock can be ahead. A report that was dropped can carry a time later than
// that of its refusal, by up to this much.
const lateReportMargin = 24 * time.Hour

// MayBeDropped reports whether a report of that time could have been there and been dropped, so that its absence
// proves nothing.
func (r *LateReports) MayBeDropped(order delivery.OrderID, at time.Time) bool {
	since, hasDropped := r.keptSince[order.Partition()]
	return hasDropped && at.Before(since.Add(lateReportMargin))
}

// LateReportsOf returns the late reports about these orders.
func (l *Monitor) LateReportsOf(ctx context.Context, orders []delivery.OrderID) (*LateReports, error) {
	wanted := map[delivery.OrderID]bool{}
	partitions := map[int]partition{}
	for _, id := range orders {
		p, exists := l.partitionOfOrder(id)
		if exists {
			wanted[id] = true
			partitions[p.number] = p
		}
	}

	return l.lateReports(ctx, slices.Collect(maps.Values(partitions)), func(order delivery.OrderID) bool { return wanted[order] })
}

// LateReportsOfDays returns the late reports about orders that were created from one local midnight to the end of
// the local day of another. A few of the neighbouring days can be among them, because an order's ID carries its day
// in UTC.
func (l *Monitor) LateReportsOfDays(ctx context.Context, from, to time.Time) (*LateReports, error) {
	first, last := delivery.DayOf(from), delivery.DayOf(to.AddDate(0, 0, 1))
	return l.lateReports(ctx, l.partitions, func(order delivery.OrderID) bool { return order.Day() >= first && order.Day() <= last })
}

func (l *Monitor) lateReports(ctx context.Context, partitions []partition, isWanted func(delivery.OrderID) bool) (*LateReports, error) {
	found := &LateReports{times: map[delivery.OrderID][]time.Time{}, keptSince: map[int]time.Time{}}
	for _, p := range partitions {
		kept, err := l.eachRefused(ctx, p, func(u *RefusedUpdate) {
			if u.Late && isWanted(u.Update.Order) {
				found.times[u.Update.Order] = append(found.times[u.Update.Order], u.Update.At)
			}
		})
		if err != nil {
			return nil, err
		}

		// Redis trims only what exceeds refusedKept, so with fewer nothing was dropped.
		if kept < refusedKept {
			continue
		}

		// Read last: whatever was dropped during the reading is older than this entry.
		oldest, err := l.rdb.XRangeN(ctx, p.key(kindRefused), "-", "+", 1).Result()
		if err != nil {
			return nil, failed("reading refused updates", err)
		}

		if len(oldest) > 0 {
			found.keptSince[p.number] = timeOfEntry(oldest[0].ID)
		}
	}

	return found, nil
}

// eachRefused calls take for each refused update that a partition keeps, and returns how many there were.
func (l *Monitor) eachRefused(ctx context.Context, p partition, take func(*RefusedUpdate)) (kept int, err error) {
	const atOnce = 1000
	from := "-"
	for {
		messages, err := l.rdb.XRangeN(ctx, p.key(kindRefused), from, "+", atOnce).Result()
		if err != nil {
			return kept, failed("reading refused updates", err)
		}

		for _, m := range messages {
			entry := historyEntry{p, m.ID, m.Values}
			update := entry.refusedUpdate()
			take(&update)
		}

		kept += len(messages)
		if len(messages) < atOnce {
			return kept, nil
		}

		from = "(" + messages[len(messages)-1].ID
	}
}

// DeadLetter is an entry that could not be read or handled.
type DeadLetter struct {
	At        time.Time // when it was given up
	Partition int
	Stream    string // events, updates, outcomes, tries or audit
	EntryID   string
	Role      string // whose entry it was
	Reason    string
	Fields    map[string]string // printable, with "order" if it names one; nil once the entry is dropped
}

var streamNames = map[string]string{
	string(rune(kindEvents)): "events", string(rune(kindUpdates)): "updates", string(rune(kindOutcomes)): "outcomes",
	string(rune(kindTries)): "tries", string(rune(kindAudit)): "audit",
}

// DeadLetters lists the newest, at most limit, 1 to 1000, newest first. With ErrIncomplete those of
// partitions that do not answer are left out.
func (l *Monitor) DeadLetters(ctx context.Context, limit int) ([]DeadLetter, error) {
	entries, incomplete := l.newestEntries(ctx, kindDeadLetters, limit)
	if incomplete != nil && !errors.Is(incomplete, ErrIncomplete) {
		return nil, incomplete
	}

	letters := make([]DeadLetter, len(entries))
	pipe := l.rdb.Pipeline()
	reads := make([]*redis.XMessageSliceCmd, len(entries))
	for i, t := range entries {
		stream, entry := text(t.values["stream"]), text(t.values["entry"])
		kind := strings.TrimPrefix(stream, t.partition.prefix)
		letters[i] = DeadLetter{At: t.at(), Partition: t.partition.number, Stream: cmp.Or(streamNames[kind], printable(stream)),
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
			return nil, failed("reading dead letters", err)
		}

		values := make(map[string]any)
		for name, value := range entries[i].values {
			if field, ok := strings.CutPrefix(name, fieldPrefix); ok {
				values[field] = value
			}
		}

		if found := read.Val(); len(found) == 1 {
			values = found[0].Values
		}

		if len(values) > 0 {
			letters[i].Fields = printableFields(entries[i].partition, values)
		}
	}

	return letters, incomplete
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

	var id delivery.OrderID
	if e.Update != nil {
		id = e.Update.Order
	} else if len(e.Events) == 1 {
		id = e.Events[0].Order
	}

	if !id.IsZero() {
		shown["order"] = id.String()
	}

	return shown
}

const mostPrintable = 512

// printable is text that can be shown, or its bytes in hex, cut if it is long.
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

// QueueStats are the queues of all endpoints in one state.
type QueueStats struct {
	Endpoints    int64 // with something waiting or being sent
	Events       int64
	BreakersOpen int64
	Oldest       time.Time // when the oldest of the next events happened; zero: nothing waits
}

// ErrNoOwner says that some partition has had no owner for a while, who alone knows what waits there.
var ErrNoOwner = errors.New("no worker owns some of the partitions")

// QueueStats sums up what waits for webhook endpoints, by their state, as the owners of the
// partitions have told it. ErrNoOwner when one of them has told nothing for summaryLifetime. With
// ErrIncomplete the sums lack those of partitions that do not answer.
func (l *Monitor) QueueStats(ctx context.Context) (map[EndpointState]QueueStats, error) {
	summaries, errs := pipelinedEach(ctx, l.rdb, "reading webhook queues", l.partitions, func(pipe redis.Pipeliner, r partition) func() string {
		return pipe.Get(ctx, r.key(kindSummary)).Val
	})
	incomplete := partly(errs)
	if incomplete != nil && !errors.Is(incomplete, ErrIncomplete) {
		return nil, incomplete
	}

	all := make(map[EndpointState]QueueStats)
	for i, summary := range summaries {
		if errs[i] != nil {
			continue
		}
		if summary == "" {
			return nil, ErrNoOwner
		}
		if err := decode("webhook queues", summary, func(c *codec) { c.summary(all) }); err != nil {
			return nil, err
		}
	}

	return all, incomplete
}

// summaryStates are the states of a summary, in their order there.
var summaryStates = []EndpointState{EndpointHealthy, EndpointFailing, EndpointUnreachable, EndpointGone}

// summary writes figures by state, or adds them.
func (c *codec) summary(all map[EndpointState]QueueStats) {
	for _, state := range summaryStates {
		sum := all[state]
		endpoints, events, open, oldest := int(sum.Endpoints), int(sum.Events), int(sum.BreakersOpen), sum.Oldest
		c.all(&endpoints, &events, &open, &oldest)
		if c.writing {
			continue
		}

		sum.Endpoints, sum.Events, sum.BreakersOpen = sum.Endpoints+int64(endpoints), sum.Events+int64(events), sum.BreakersOpen+int64(open)
		if !oldest.IsZero() && (sum.Oldest.IsZero() || oldest.Before(sum.Oldest)) {
			sum.Oldest = oldest
		}

		all[state] = sum
	}
}

const (
	// summaryLifetime is for how long a summary counts after its owner wrote it.
	summaryLifetime = 90 * time.Second
	// SummaryEvery is how often an owner writes a summary that has not changed. It leaves
	// time for a takeover before the summary's end.
	SummaryEvery = time.Minute
)

// Summary tells operators what waits for the webhooks of the partition.
func (s *Step) Summary(all map[EndpointState]QueueStats) {
	s.command("SET", s.partition.key(kindSummary), encode(func(c *codec) { c.summary(all) }), "PX", summaryLifetime.Milliseconds())
}
