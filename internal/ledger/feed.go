package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Role is a consumer group. Every partition has every group from the first start,
// so that trimming never overtakes a role that has yet to run.
type Role string

// The roles that must have consumed an entry before it may be dropped (roleStreams).
const (
	RoleStatus  Role = "status"
	RoleWebhook Role = "webhook"
	RoleExport  Role = "export"
)

// Event refers to an order's version, a notice, or a delivery that came too late.
type Event struct {
	Order   delivery.OrderID // zero for a notice
	Version uint64           // zero for a late delivery
	Notice  string           // event id of a notice; empty for an order's
	LateAt  time.Time        // that of a delivery.LateDelivery; else zero
}

// Entry is one entry of a partition's streams. It has one of the last three.
type Entry struct {
	Partition int
	ID        string
	Events    []Event
	Update    *delivery.Update
	Outcomes  []AttemptRecord // final outcomes, or failed attempts ("retrying")
}

func (e *Entry) kind() byte {
	switch {
	case e.Update != nil:
		return kindUpdates
	case e.Outcomes == nil:
		return kindEvents
	case e.Outcomes[0].State == StateRetrying:
		return kindTries
	}
	return kindOutcomes
}

func parseEvent(r partition, text string) (Event, error) {
	if text == "" {
		return Event{}, errShortRecord
	}
	if text[0] == eventNotice {
		return Event{Notice: text[1:]}, nil
	}
	if text[0] != eventOrder && text[0] != eventLate || len(text) != 23 {
		return Event{}, fmt.Errorf("event of kind %d and %d bytes: %w", text[0], len(text), errShortRecord)
	}
	f := fields{rest: text[15:]}
	event := Event{Order: r.orderOfMember(text[1:15]), Version: f.uint64()}
	if text[0] == eventLate {
		event.Version, event.LateAt = 0, timeOf(int64(event.Version))
	}
	return event, nil
}

// orderEventSize is the length of an event of an order, of which a batch has many.
const orderEventSize = 23

func parseEvents(r partition, batch string) (events []Event, err error) {
	for ; batch != "" && err == nil; batch = batch[min(orderEventSize, len(batch)):] {
		var event Event
		event, err = parseEvent(r, batch[:min(orderEventSize, len(batch))])
		events = append(events, event)
	}
	return events, err
}

// Feed is how a role reads its entries.
type Feed struct {
	Role Role
	// Consumer is unique among running processes and survives a restart, so that a
	// process first finishes what it had begun.
	Consumer string
	// Handle acknowledges what it settles; the rest is handed out again. It gets one
	// partition's entries in order, one call at a time; with Every, those of all.
	Handle func(ctx context.Context, batch []Entry) error
	// Every spaces reads of all partitions, so that batches collect; a full one is
	// followed at once. After delivery.ErrUnavailable nothing new is read until the rest
	// has succeeded. 0: a partition is read as soon as it has something.
	Every time.Duration
	Log   func(msg string, args ...any) // optional
	// Batch is how many entries of a stream are read at once, 0: 256; with Every at
	// most 50,000 of all streams.
	Batch      int
	ClaimAfter time.Duration // when a dead consumer's entries are taken over; 0: 60 s
}

// Pauses, and how often an entry is handed out before it is dead-lettered.
const (
	readBlock     = time.Second
	maxDeliveries = 25
	minPause      = 100 * time.Millisecond
	maxPause      = 5 * time.Second
)

// Run reads until ctx ends: what this consumer had begun, new entries, and what dead
// consumers left. It creates missing groups, retries for ever and returns ctx's error.
func (l Streams) Run(ctx context.Context, f Feed) error {
	f.Batch, f.ClaimAfter = cmp.Or(f.Batch, 256), cmp.Or(f.ClaimAfter, time.Minute)
	if f.Log == nil {
		f.Log = func(string, ...any) {}
	}
	// On a single Redis one read waits for all partitions; in a cluster each
	// partition is a slot of its own and is read by itself.
	shares := [][]partition{l.partitions}
	if l.cluster && f.Every == 0 {
		shares = nil
		for _, r := range l.partitions {
			shares = append(shares, []partition{r})
		}
	}
	var all sync.WaitGroup
	for _, partitions := range shares {
		all.Go(func() { newFeedReader(l.core, &f, partitions).run(ctx) })
	}
	all.Wait()
	return ctx.Err()
}

type streamRef struct {
	partition partition
	key       string
}

type feedReader struct {
	*Feed
	ledger  *core
	streams []streamRef
	byKey   map[string]partition

	claimed   time.Time // when dead consumers' entries were last looked for; zero: not yet
	forgotten time.Time // when the names of those long gone were last looked for; zero: not yet
	redoAt    time.Time // when to take up this consumer's unsettled entries; zero: there are none
	redoPause time.Duration
	stalled   bool      // Handle waits for something outside; nothing new is read
	nextRead  time.Time // with Every
}

func newFeedReader(l *core, f *Feed, partitions []partition) *feedReader {
	r := &feedReader{Feed: f, ledger: l, byKey: make(map[string]partition), redoAt: time.Now(), redoPause: minPause}
	for _, partition := range partitions {
		for _, kind := range roleStreams[f.Role] {
			r.streams = append(r.streams, streamRef{partition, partition.key(kind)})
			r.byKey[partition.key(kind)] = partition
		}
	}
	return r
}

var roleStreams = map[Role][]byte{RoleStatus: {kindEvents, kindUpdates}, RoleWebhook: {kindEvents}, RoleExport: {kindEvents, kindOutcomes, kindTries}}

func (r *feedReader) run(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		err := r.turn(ctx)
		if err == nil || ctx.Err() != nil {
			pause = minPause
			continue
		}
		r.redoLater()
		r.stalled = r.Every > 0 && errors.Is(err, delivery.ErrUnavailable)
		if redis.HasErrorPrefix(err, "NOGROUP") {
			r.Log("a consumer group is missing and is created again; it starts at the oldest entry")
			err = r.ledger.makeGroups(ctx, r.keys()...)
		}
		if err != nil {
			r.Log("reading or handling entries failed; it is tried again", "error", err, "pause", pause)
		}
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
	r.leave(ctx)
}

// Consumers that have long been silent are forgotten: containers have new names each time.
const (
	forgetEvery = time.Hour
	forgetAfter = 24 * time.Hour
)

const leaveTimeout = 5 * time.Second

// leave settles the last entries and removes this consumer, whose successor may have
// another name and would wait for ClaimAfter. What fails stays pending.
func (r *feedReader) leave(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if r.Every == 0 {
		if err := r.readOwn(end); err != nil {
			r.Log("entries stay unsettled at the end", "error", err)
			return
		}
	}
	r.forget(end, 0, r.Consumer)
}

// forget deletes silent consumers without pending entries; an empty name means all.
func (r *feedReader) forget(ctx context.Context, silent time.Duration, name string) {
	calls := make([]call, 0, len(r.streams))
	for _, s := range r.streams {
		calls = append(calls, call{[]string{s.key}, []any{string(r.Role), silent.Milliseconds(), name}})
	}
	if _, err := r.ledger.runAll(ctx, "forget_consumers", calls); err != nil {
		r.Log("names of consumers that are gone stay for now", "error", err)
	}
}

// redoLater backs off from unsettled entries. New ones are read meanwhile.
func (r *feedReader) redoLater() {
	r.redoAt = time.Now().Add(r.redoPause)
	r.redoPause = min(2*r.redoPause, maxPause)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// turn is one round: unsettled entries, dead consumers' entries, then new ones.
func (r *feedReader) turn(ctx context.Context) error {
	if r.claimed.IsZero() {
		if err := r.ledger.makeGroups(ctx, r.keys()...); err != nil {
			return err
		}
	}
	if r.stalled {
		sleep(ctx, time.Until(r.redoAt))
	}
	if !r.redoAt.IsZero() && !time.Now().Before(r.redoAt) {
		switch err := r.readOwn(ctx); {
		case err == nil:
			r.redoAt, r.redoPause, r.stalled = time.Time{}, minPause, false
		case errors.Is(err, delivery.ErrUnavailable) || redis.HasErrorPrefix(err, "NOGROUP"):
			return err
		default:
			r.Log("entries are still unsettled", "error", err)
			r.redoLater()
			r.stalled = false
		}
	}
	if time.Since(r.claimed) > r.ClaimAfter/2 {
		for _, s := range r.streams {
			if err := r.claim(ctx, s); err != nil {
				return err
			}
		}
		r.claimed = time.Now()
	}
	if time.Since(r.forgotten) > forgetEvery {
		r.forgotten = time.Now()
		r.forget(ctx, forgetAfter, "")
	}
	if r.Every > 0 {
		return r.gather(ctx)
	}
	return r.readNew(ctx)
}

func (r *feedReader) keys() []string {
	keys := make([]string, len(r.streams), 2*len(r.streams))
	for i, s := range r.streams {
		keys[i] = s.key
	}
	return keys
}

// makeGroups makes each group that a stream must have.
func (l *core) makeGroups(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		for _, role := range requiredRoles(key) {
			err := l.rdb.XGroupCreateMkStream(ctx, key, string(role), "0").Err()
			if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
				return fmt.Errorf("creating group %s: %w", role, failure(err))
			}
		}
	}
	return nil
}

func requiredRoles(streamKey string) (roles []Role) {
	for _, role := range []Role{RoleStatus, RoleWebhook, RoleExport} {
		if bytes.IndexByte(roleStreams[role], streamKey[len(streamKey)-1]) >= 0 {
			roles = append(roles, role)
		}
	}
	return roles
}

// Ack acknowledges entries without any other effect.
func (l Streams) Ack(ctx context.Context, role Role, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	ids := make(map[string][]string)
	for i := range entries {
		stream := l.partitions[entries[i].Partition].key(entries[i].kind())
		ids[stream] = append(ids[stream], entries[i].ID)
	}
	pipe := l.rdb.Pipeline()
	for stream, ids := range ids {
		pipe.XAck(ctx, stream, string(role), ids...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return failed("acknowledging entries", err)
	}
	return nil
}
