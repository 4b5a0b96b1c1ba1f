// Package operations is what operators and finance do with the ledger as a whole: watch it, back it up, erase a
// recipient, keep the books' head, and sign in to the panel.
package operations

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
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
)

// Monitor is what operators watch.
type Monitor struct{ core *core.Client }

// NewMonitor returns the calls of monitoring.
func NewMonitor(c *core.Client) *Monitor { return &Monitor{core: c} }

// ErrNoOwner says that some partition has had no owner for a while, who alone knows what waits there.
var ErrNoOwner = errors.New("no worker owns some of the partitions")

// QueueStats sums up what waits for webhook endpoints, by their state, as the owners of the
// partitions have told it. ErrNoOwner when one of them has told nothing for summaryLifetime. With
// ErrIncomplete the sums lack those of partitions that do not answer.
func (l *Monitor) QueueStats(ctx context.Context) (map[partitions.EndpointState]partitions.QueueStats, error) {
	summaries, errs := core.PipelinedEach(ctx, l.core.Redis, "reading webhook queues", l.core.Partitions, func(pipe redis.Pipeliner, r core.Partition) func() string {
		return pipe.Get(ctx, r.Key(core.KindSummary)).Val
	})
	incomplete := core.Partly(errs)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
		return nil, incomplete
	}

	all := make(map[partitions.EndpointState]partitions.QueueStats)
	for i, summary := range summaries {
		if errs[i] != nil {
			continue
		}
		if summary == "" {
			return nil, ErrNoOwner
		}
		if err := core.Decode("webhook queues", summary, func(c *core.Codec) { partitions.CodeSummary(c, all) }); err != nil {
			return nil, err
		}
	}

	return all, incomplete
}

// Stats are figures for operators, summed over the partitions.
type Stats struct {
	Events, Updates int64               // entries in the streams
	Unread          map[core.Role]int64 // entries that a role has yet to read
	Pending         map[core.Role]int64 // read and not settled
	RefusedUpdates  int64               // entries kept of updates that were refused
	DeadLetters     int64
	InFlight        int64 // counts orders with a timer, which have not ended
}

// Stats reads the figures of every partition in one round trip. With ErrIncomplete the sums lack those
// of partitions that do not answer.
func (l *Monitor) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Unread: make(map[core.Role]int64), Pending: make(map[core.Role]int64)}
	groups, errs := core.PipelinedEach(ctx, l.core.Redis, "reading statistics", l.core.Partitions, func(pipe redis.Pipeliner, r core.Partition) func() map[string][]redis.XInfoGroup {
		events, updates := r.Key(core.KindEvents), r.Key(core.KindUpdates)
		entries, reports, timers := pipe.XLen(ctx, events), pipe.XLen(ctx, updates), pipe.ZCard(ctx, r.Key(core.KindTimers))
		refused, dead := pipe.XLen(ctx, r.Key(core.KindRefused)), pipe.XLen(ctx, r.Key(core.KindDeadLetters))
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
				unread, err := l.core.Unread(ctx, key, &g)
				if err != nil {
					errs[i] = err
				}
				s.Unread[core.Role(g.Name)] += unread
				s.Pending[core.Role(g.Name)] += g.Pending
			}
		}
	}

	return s, core.Partly(errs)
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
func (l *Monitor) Servers(ctx context.Context) ([]core.Server, error) { return l.servers(ctx) }

// Memory asks every server for nothing but its memory, which costs less. After an error it has those
// that answered.
func (l *Monitor) Memory(ctx context.Context) ([]core.Server, error) { return l.servers(ctx, "memory") }

// servers asks every server for sections of its report; none: all.
func (l *Monitor) servers(ctx context.Context, sections ...string) ([]core.Server, error) {
	var mu sync.Mutex
	var all []core.Server
	var silent SilentServers
	err := l.core.EachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		info, err := one.Info(ctx, sections...).Result()

		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			silent.Addrs = append(silent.Addrs, one.Options().Addr)
			silent.cause = core.Failure(err)
			return nil // the others are asked, too
		}

		all = append(all, core.ParseServer(one.Options().Addr, info))

		return nil
	})
	if err != nil {
		return all, core.Failed("asking the servers", err)
	}

	if silent.cause == nil {
		return all, nil
	}

	slices.Sort(silent.Addrs)
	if len(all) > 0 {
		silent.cause = fmt.Errorf("%w: %w", core.ErrIncomplete, silent.cause)
	}

	return all, &silent
}

// LastBackup is when the latest whole backup began; zero: none was ever made.
func (l *Monitor) LastBackup(ctx context.Context) (time.Time, error) {
	at, err := l.core.Redis.HGet(ctx, l.core.MetaKey(), "backed_up").Int64()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	return time.Unix(at, 0), core.Failed("reading the last backup", err)
}

type historyEntry struct {
	partition core.Partition
	id        string
	values    map[string]any
}

func (t *historyEntry) at() time.Time { return core.TimeOfEntry(t.id) }

func (l *Monitor) newestEntries(ctx context.Context, kind byte, limit int) ([]historyEntry, error) {
	if err := core.CheckListed(limit); err != nil {
		return nil, err
	}

	newest, errs := core.PipelinedEach(ctx, l.core.Redis, "reading history", l.core.Partitions, func(pipe redis.Pipeliner, r core.Partition) func() []redis.XMessage {
		return pipe.XRevRangeN(ctx, r.Key(kind), "+", "-", int64(limit)).Val
	})
	var entries []historyEntry
	for i, messages := range newest {
		for _, m := range messages {
			entries = append(entries, historyEntry{l.core.Partitions[i], m.ID, m.Values})
		}
	}

	slices.SortStableFunc(entries, func(a, b historyEntry) int { return core.CompareStreamIDs(b.id, a.id) })

	return entries[:min(limit, len(entries))], core.Partly(errs)
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
	entries, incomplete := l.newestEntries(ctx, core.KindRefused, limit)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
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
	update, err := core.DecodeUpdate(core.Text(t.values["u"]))
	status := core.Text(t.values["status"])
	if err == nil && len(status) == 0 {
		err = core.ErrShortRecord
	}

	if err != nil {
		return RefusedUpdate{At: t.at(), Reason: partitions.UnreadableReason(err)}
	}

	return RefusedUpdate{At: t.at(), Update: *update, Status: delivery.Status(core.ParseNumber(status)),
		Reason: Printable(core.Text(t.values["reason"])), Late: t.values["late"] != nil}
}

func (l *Monitor) nameAccounts(ctx context.Context, refused []RefusedUpdate) error {
	heads, errs := core.PipelinedEach(ctx, l.core.Redis, "reading the accounts of orders", refused, func(pipe redis.Pipeliner, u RefusedUpdate) func() string {
		r, ok := l.core.PartitionOfOrder(u.Update.Order)
		if !ok {
			return nil
		}
		return pipe.GetRange(ctx, r.Order(u.Update.Order.Digest()), core.OrderAccountAt, core.OrderAccountAt+17).Val
	})

	for i, head := range heads {
		var account delivery.AccountID
		f := core.Fields{Rest: head}
		copy(account[:], f.Take(len(account)))
		if f.Uint16() == refused[i].Update.Order.Day() && f.Err == nil {
			refused[i].Account = account
		}
	}

	return core.Partly(errs)
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

// LateReportMargin is more than a courier's clock can be ahead. A report that was dropped can carry a time later than
// that of its refusal, by up to this much.
const LateReportMargin = 24 * time.Hour

// MayBeDropped reports whether a report of that time could have been there and been dropped, so that its absence
// proves nothing.
func (r *LateReports) MayBeDropped(order delivery.OrderID, at time.Time) bool {
	since, hasDropped := r.keptSince[order.Partition()]
	return hasDropped && at.Before(since.Add(LateReportMargin))
}

// LateReportsOf returns the late reports about these orders.
func (l *Monitor) LateReportsOf(ctx context.Context, orders []delivery.OrderID) (*LateReports, error) {
	wanted := map[delivery.OrderID]bool{}
	partitions := map[int]core.Partition{}
	for _, id := range orders {
		p, exists := l.core.PartitionOfOrder(id)
		if exists {
			wanted[id] = true
			partitions[p.Number] = p
		}
	}

	return l.lateReports(ctx, slices.Collect(maps.Values(partitions)), func(order delivery.OrderID) bool { return wanted[order] })
}

// LateReportsOfDays returns the late reports about orders that were created from one local midnight to the end of
// the local day of another. A few of the neighbouring days can be among them, because an order's ID carries its day
// in UTC.
func (l *Monitor) LateReportsOfDays(ctx context.Context, from, to time.Time) (*LateReports, error) {
	first, last := delivery.DayOf(from), delivery.DayOf(to.AddDate(0, 0, 1))
	return l.lateReports(ctx, l.core.Partitions, func(order delivery.OrderID) bool { return order.Day() >= first && order.Day() <= last })
}

func (l *Monitor) lateReports(ctx context.Context, partitions []core.Partition, isWanted func(delivery.OrderID) bool) (*LateReports, error) {
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
		if kept < orders.RefusedKept {
			continue
		}

		// Read last: whatever was dropped during the reading is older than this entry.
		oldest, err := l.core.Redis.XRangeN(ctx, p.Key(core.KindRefused), "-", "+", 1).Result()
		if err != nil {
			return nil, core.Failed("reading refused updates", err)
		}

		if len(oldest) > 0 {
			found.keptSince[p.Number] = core.TimeOfEntry(oldest[0].ID)
		}
	}

	return found, nil
}

// eachRefused calls take for each refused update that a partition keeps, and returns how many there were.
func (l *Monitor) eachRefused(ctx context.Context, p core.Partition, take func(*RefusedUpdate)) (kept int, err error) {
	const atOnce = 1000
	from := "-"
	for {
		messages, err := l.core.Redis.XRangeN(ctx, p.Key(core.KindRefused), from, "+", atOnce).Result()
		if err != nil {
			return kept, core.Failed("reading refused updates", err)
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
	string(rune(core.KindEvents)): "events", string(rune(core.KindUpdates)): "updates", string(rune(core.KindOutcomes)): "outcomes",
	string(rune(core.KindTries)): "tries", string(rune(core.KindAudit)): "audit",
}

// DeadLetters lists the newest, at most limit, 1 to 1000, newest first. With ErrIncomplete those of
// partitions that do not answer are left out.
func (l *Monitor) DeadLetters(ctx context.Context, limit int) ([]DeadLetter, error) {
	entries, incomplete := l.newestEntries(ctx, core.KindDeadLetters, limit)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
		return nil, incomplete
	}

	letters := make([]DeadLetter, len(entries))
	pipe := l.core.Redis.Pipeline()
	reads := make([]*redis.XMessageSliceCmd, len(entries))
	for i, t := range entries {
		stream, entry := core.Text(t.values["stream"]), core.Text(t.values["entry"])
		kind := strings.TrimPrefix(stream, t.partition.Prefix)
		letters[i] = DeadLetter{At: t.at(), Partition: t.partition.Number, Stream: cmp.Or(streamNames[kind], Printable(stream)),
			EntryID: Printable(entry), Role: Printable(core.Text(t.values["role"])), Reason: Printable(core.Text(t.values["reason"]))}
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
		if err := read.Err(); err != nil && errors.Is(core.Failure(err), delivery.ErrUnavailable) {
			return nil, core.Failed("reading dead letters", err)
		}

		values := make(map[string]any)
		for name, value := range entries[i].values {
			if field, ok := strings.CutPrefix(name, partitions.FieldPrefix); ok {
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
func printableFields(r core.Partition, values map[string]any) map[string]string {
	shown := make(map[string]string, len(values)+1)
	for field, value := range values {
		shown[Printable(field)] = Printable(core.Text(value))
	}

	var e partitions.Entry
	if e.Read(r, values) != nil {
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

const MostPrintable = 512

// Printable is text that can be shown, or its bytes in hex, cut if it is long.
func Printable(text string) string {
	end := min(len(text), MostPrintable)
	for end < len(text) && end > MostPrintable-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end-- // no character is cut in two
	}

	shown := text[:end]
	if !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
		end = min(len(text), MostPrintable/2)
		shown = fmt.Sprintf("0x%x", text[:end])
	}

	if end < len(text) {
		shown += "…"
	}

	return shown
}
