package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// Stats reads the figures of every partition in one round trip.
func (l Monitor) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Unread: make(map[Role]int64), Pending: make(map[Role]int64)}
	type reading struct {
		events, updates, refused, dead, timers *redis.IntCmd
		groups                                 [2]*redis.XInfoGroupsCmd
	}
	reads, err := pipelined(ctx, l.rdb, "reading statistics", l.partitions, func(pipe redis.Pipeliner, r partition) reading {
		return reading{
			events: pipe.XLen(ctx, r.key(kindEvents)), updates: pipe.XLen(ctx, r.key(kindUpdates)),
			refused: pipe.XLen(ctx, r.key(kindRefused)),
			dead:    pipe.XLen(ctx, r.key(kindDeadLetters)),
			timers:  pipe.ZCard(ctx, r.key(kindTimers)),
			groups:  [2]*redis.XInfoGroupsCmd{pipe.XInfoGroups(ctx, r.key(kindEvents)), pipe.XInfoGroups(ctx, r.key(kindUpdates))},
		}
	})
	if err != nil {
		return s, err
	}
	for _, p := range reads {
		s.Events += p.events.Val()
		s.Updates += p.updates.Val()
		s.RefusedUpdates += p.refused.Val()
		s.DeadLetters += p.dead.Val()
		s.InFlight += p.timers.Val()
		for _, groups := range p.groups {
			for _, g := range groups.Val() {
				s.Unread[Role(g.Name)] += g.Lag
				s.Pending[Role(g.Name)] += g.Pending
			}
		}
	}
	return s, nil
}

// Server is what one Redis server, in a cluster one master, reports of itself.
type Server struct {
	Addr                  string
	MemoryUsed, MemoryMax int64 // bytes; a MemoryMax of 0 means no limit
	Clients               int64 // connections
	Commands              int64 // since its start
	// AOFBroken: the last write or rewrite failed. AOFDelayed counts writes that
	// waited for the disk.
	AOF, AOFBroken bool
	AOFDelayed     int64
	Replicas       int64
}

// Servers asks every server.
func (l Monitor) Servers(ctx context.Context) ([]Server, error) {
	var mu sync.Mutex
	var all []Server
	err := l.eachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		info, err := one.Info(ctx).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, parseServer(one.Options().Addr, info))
		return nil
	})
	return all, failed("asking the servers", err)
}

func parseServer(addr, info string) Server {
	values := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			values[name] = value
		}
	}
	broken := func(name string) bool { return values[name] != "" && values[name] != "ok" }
	return Server{
		Addr:       addr,
		MemoryUsed: number(values["used_memory"]), MemoryMax: number(values["maxmemory"]),
		Clients: number(values["connected_clients"]), Commands: number(values["total_commands_processed"]),
		AOF:        values["aof_enabled"] == "1",
		AOFBroken:  broken("aof_last_write_status") || broken("aof_last_bgrewrite_status"),
		AOFDelayed: number(values["aof_delayed_fsync"]),
		Replicas:   number(values["connected_slaves"]),
	}
}

// Epochs are this process's epoch and the stored one; another one was restored.
func (l Monitor) Epochs(ctx context.Context) (own, stored uint32, err error) {
	epoch, err := l.rdb.HGet(ctx, l.metaKey(), "epoch").Uint64()
	return l.epoch.Load(), uint32(epoch), failed("reading the ledger's epoch", err)
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

func (l *core) newestEntries(ctx context.Context, kind byte, limit int) ([]historyEntry, error) {
	if err := checkListed(limit); err != nil {
		return nil, err
	}
	reads, err := pipelined(ctx, l.rdb, "reading history", l.partitions, func(pipe redis.Pipeliner, r partition) *redis.XMessageSliceCmd {
		return pipe.XRevRangeN(ctx, r.key(kind), "+", "-", int64(limit))
	})
	var entries []historyEntry
	for i, read := range reads {
		for _, m := range read.Val() {
			entries = append(entries, historyEntry{l.partitions[i], m.ID, m.Values})
		}
	}
	slices.SortStableFunc(entries, func(a, b historyEntry) int { return compareStreamIDs(b.id, a.id) })
	return entries[:min(limit, len(entries))], err
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

// RefusedUpdates lists the newest, at most limit, 1 to 1000, newest first.
func (l Monitor) RefusedUpdates(ctx context.Context, limit int) ([]RefusedUpdate, error) {
	entries, err := l.newestEntries(ctx, kindRefused, limit)
	if err != nil {
		return nil, err
	}
	refused := make([]RefusedUpdate, len(entries))
	for i := range entries {
		refused[i] = entries[i].refusedUpdate()
	}
	return refused, l.nameAccounts(ctx, refused)
}

func (t *historyEntry) refusedUpdate() RefusedUpdate {
	update, err := decodeUpdate(text(t.values["u"]))
	status := text(t.values["status"])
	if err == nil && len(status) == 0 {
		err = errShortRecord
	}
	if err != nil {
		return RefusedUpdate{At: t.at(), Reason: "unreadable: " + err.Error()}
	}
	return RefusedUpdate{At: t.at(), Update: *update, Status: storedStatus(status),
		Reason: printable(text(t.values["reason"])), Late: t.values["late"] != nil}
}

func storedStatus(digits string) delivery.Status {
	n, _ := strconv.ParseUint(digits, 10, 8)
	return delivery.Status(n)
}

func (l *core) nameAccounts(ctx context.Context, refused []RefusedUpdate) error {
	reads, err := pipelined(ctx, l.rdb, "reading the accounts of orders", refused, func(pipe redis.Pipeliner, u RefusedUpdate) *redis.StringCmd {
		r, ok := l.partitionOfOrder(u.Update.Order)
		if !ok {
			return nil
		}
		return pipe.GetRange(ctx, r.order(u.Update.Order.Digest()), orderAccountAt, orderAccountAt+17)
	})
	if err != nil {
		return err
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

// DeadLetter is an entry that could not be read or handled.
type DeadLetter struct {
	At        time.Time // when it was given up
	Partition int
	Stream    string // events, updates, outcomes or tries
	EntryID   string
	Role      string // whose entry it was
	Reason    string
	Fields    map[string]string // printable, with "order" if it names one; nil once the entry is dropped
}

var streamNames = map[string]string{
	string(rune(kindEvents)): "events", string(rune(kindUpdates)): "updates", string(rune(kindOutcomes)): "outcomes",
	string(rune(kindTries)): "tries",
}

// DeadLetters lists the newest, at most limit, 1 to 1000, newest first.
func (l Monitor) DeadLetters(ctx context.Context, limit int) ([]DeadLetter, error) {
	entries, err := l.newestEntries(ctx, kindDeadLetters, limit)
	if err != nil {
		return nil, err
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
		if found := read.Val(); len(found) == 1 {
			letters[i].Fields = printableFields(entries[i].partition, found[0].Values)
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

// QueueStats sums up what waits for webhook endpoints, by their state.
func (l Monitor) QueueStats(ctx context.Context) (map[EndpointState]QueueStats, error) {
	schedules, err := pipelined(ctx, l.rdb, "listing webhook queues", l.partitions, func(pipe redis.Pipeliner, r partition) *redis.StringSliceCmd {
		return pipe.ZRange(ctx, r.key(kindSchedule), 0, -1)
	})
	if err != nil {
		return nil, err
	}
	all := make(map[EndpointState]QueueStats)
	for i, schedule := range schedules {
		if err := l.addQueues(ctx, l.partitions[i], schedule.Val(), all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (l *core) addQueues(ctx context.Context, r partition, accounts []string, all map[EndpointState]QueueStats) error {
	type reading struct {
		endpoint *redis.SliceCmd
		sizes    [3]*redis.IntCmd
		next     [3]*redis.StringSliceCmd
	}
	reads, err := pipelined(ctx, l.rdb, "reading webhook queues", accounts, func(pipe redis.Pipeliner, account string) reading {
		id := []byte(account)
		q, d, k := r.keyOf(kindQueue, id), r.keyOf(kindRetries, id), r.keyOf(kindLeases, id)
		return reading{
			endpoint: pipe.HMGet(ctx, r.keyOf(kindEndpoint, id), "state", "gate"),
			sizes:    [3]*redis.IntCmd{pipe.LLen(ctx, q), pipe.ZCard(ctx, d), pipe.ZCard(ctx, k)},
			next:     [3]*redis.StringSliceCmd{pipe.LRange(ctx, q, 0, 0), pipe.ZRange(ctx, d, 0, 0), pipe.ZRange(ctx, k, 0, 0)},
		}
	})
	if err != nil {
		return err
	}
	var next []*Delivery
	var states []EndpointState // of next
	for _, c := range reads {
		events := c.sizes[0].Val() + c.sizes[1].Val() + c.sizes[2].Val()
		if events == 0 {
			continue
		}
		values := c.endpoint.Val()
		state := EndpointState(text(values[0]))
		var e WebhookEndpoint
		e.readGate(text(values[1]))
		s := all[state]
		s.Endpoints++
		s.Events += events
		if e.BreakerOpen {
			s.BreakersOpen++
		}
		all[state] = s
		for _, part := range c.next {
			for _, item := range part.Val() {
				next, states = append(next, &Delivery{partition: r, item: item}), append(states, state)
			}
		}
	}
	records, err := pipelined(ctx, l.rdb, "reading the oldest events", next, func(pipe redis.Pipeliner, d *Delivery) *redis.StringCmd {
		return d.read(ctx, pipe)
	})
	for i, record := range records {
		d, s := next[i], all[states[i]]
		if reason, err := d.fill(r, record); err == nil && reason == "" && (s.Oldest.IsZero() || d.OccurredAt.Before(s.Oldest)) {
			s.Oldest = d.OccurredAt
		}
		all[states[i]] = s
	}
	return err
}
