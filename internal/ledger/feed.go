package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Role is a consumer group. Every partition has every group from the first
// start on, so that trimming never overtakes a role that has yet to run.
type Role string

// The roles that must have consumed an entry before it may be dropped. Events
// go to both, couriers' updates to the status role only.
const (
	RoleStatus  Role = "status"
	RoleWebhook Role = "webhook"
)

// Event refers to one version of an order, or names a notice.
type Event struct {
	Order   delivery.OrderID // zero for a notice
	Version uint64
	Notice  string // event id of a notice; empty for an order's
}

// Entry is one entry of a partition's streams: an event or, for RoleStatus, a
// courier's update.
type Entry struct {
	Partition int
	ID        string
	Event     Event // when Update is nil
	Update    *delivery.Update
}

func (e *Entry) stream(r room) string {
	if e.Update != nil {
		return r.key(kindUpdates)
	}
	return r.key(kindEvents)
}

func parseEvent(r room, text string) (Event, error) {
	if text == "" {
		return Event{}, errShortRecord
	}
	if text[0] == eventNotice {
		return Event{Notice: text[1:]}, nil
	}
	if text[0] != eventOrder || len(text) != 23 {
		return Event{}, fmt.Errorf("event of kind %d and %d bytes: %w", text[0], len(text), errShortRecord)
	}
	f := fields{rest: text[15:]}
	return Event{Order: r.orderOfMember(text[1:15]), Version: f.uint64()}, nil
}

// Feed is how a role reads its entries.
//
// Handle gets entries of one partition, each stream's in its order, and is never
// called twice at once for one partition. It acknowledges what it settles; what
// it leaves, or fails on, is handed out again. A panic is its caller's business.
type Feed struct {
	Role Role
	// Consumer is unique among running processes and the same after a restart,
	// so that a process first finishes what it had begun.
	Consumer string
	Handle   func(ctx context.Context, partition int, batch []Entry) error
	// Log is told what went wrong and what was healed; nil: nobody is.
	Log func(msg string, args ...any)
	// Batch is how many entries of a stream are read at once; 0: 256.
	Batch int
	// ClaimAfter is when a dead consumer's entries are taken over; 0: 60 s.
	ClaimAfter time.Duration
}

// How long a blocking read waits, how often an entry may be handed out before it
// goes to the dead letters, and the pauses after a failure.
const (
	readBlock     = time.Second
	maxDeliveries = 25
	minPause      = 100 * time.Millisecond
	maxPause      = 5 * time.Second
)

// RunFeed reads until ctx ends: first what this consumer had begun, then what is
// new, and now and then what dead consumers left. It makes missing groups anew
// and never gives up on Redis. It returns ctx's error.
func (l *Ledger) RunFeed(ctx context.Context, f Feed) error {
	if f.Batch == 0 {
		f.Batch = 256
	}
	if f.ClaimAfter == 0 {
		f.ClaimAfter = time.Minute
	}
	if f.Log == nil {
		f.Log = func(string, ...any) {}
	}
	// On a single Redis one read waits for all partitions; in a cluster each
	// partition is a slot of its own and is read by itself.
	shares := [][]room{l.rooms}
	if l.cluster {
		shares = nil
		for _, r := range l.rooms {
			shares = append(shares, []room{r})
		}
	}
	var all sync.WaitGroup
	for _, rooms := range shares {
		all.Go(func() { newFeedReader(l, &f, rooms).run(ctx) })
	}
	all.Wait()
	return ctx.Err()
}

// streamRef is one stream of a feed.
type streamRef struct {
	room room
	key  string
}

type feedReader struct {
	*Feed
	ledger  *Ledger
	streams []streamRef
	byKey   map[string]room

	claimed   time.Time // when dead consumers' entries were last looked for; zero: not yet
	redoAt    time.Time // when to take up this consumer's unsettled entries; zero: there are none
	redoPause time.Duration
}

func newFeedReader(l *Ledger, f *Feed, rooms []room) *feedReader {
	r := &feedReader{Feed: f, ledger: l, byKey: make(map[string]room), redoAt: time.Now(), redoPause: minPause}
	for _, room := range rooms {
		for _, kind := range streamKinds(f.Role) {
			r.streams = append(r.streams, streamRef{room, room.key(kind)})
			r.byKey[room.key(kind)] = room
		}
	}
	return r
}

func streamKinds(role Role) []byte {
	if role == RoleStatus {
		return []byte{kindEvents, kindUpdates}
	}
	return []byte{kindEvents}
}

func (r *feedReader) run(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		err := r.turn(ctx)
		if err == nil || ctx.Err() != nil {
			pause = minPause
			continue
		}
		r.redoLater()
		if redis.HasErrorPrefix(err, "NOGROUP") {
			err = r.makeGroups(ctx)
			r.Log("consumer group was missing and has been made anew; it starts at the oldest entry", "role", r.Role, "error", err)
		} else {
			r.Log("reading or handling entries failed; it is tried again", "role", r.Role, "error", err, "pause", pause)
		}
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// redoLater plans another look at the entries that were left unsettled. It backs
// off, and meanwhile new entries are read: one that cannot be handled must not
// hold up the others until it is buried.
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

// turn is one round: own unfinished entries when it is time for them, dead
// consumers' entries now and then, then new ones.
func (r *feedReader) turn(ctx context.Context) error {
	if r.claimed.IsZero() {
		if err := r.makeGroups(ctx); err != nil {
			return err
		}
	}
	if !r.redoAt.IsZero() && time.Now().After(r.redoAt) {
		switch err := r.readOwn(ctx); {
		case err == nil:
			r.redoAt, r.redoPause = time.Time{}, minPause
		case errors.Is(err, delivery.ErrUnavailable) || redis.HasErrorPrefix(err, "NOGROUP"):
			return err
		default:
			r.Log("entries are still unsettled", "role", r.Role, "error", err)
			r.redoLater()
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
	return r.readNew(ctx)
}

// makeGroups creates the groups of every required role, at the oldest entry.
func (r *feedReader) makeGroups(ctx context.Context) error {
	for _, s := range r.streams {
		for _, role := range requiredRoles(s.key) {
			err := r.ledger.rdb.XGroupCreateMkStream(ctx, s.key, string(role), "0").Err()
			if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
				return fmt.Errorf("creating group %s: %w", role, failure(err))
			}
		}
	}
	return nil
}

func requiredRoles(streamKey string) []Role {
	if strings.HasSuffix(streamKey, string(rune(kindUpdates))) {
		return []Role{RoleStatus}
	}
	return []Role{RoleStatus, RoleWebhook}
}

func (r *feedReader) readNew(ctx context.Context) error {
	streams := make([]string, 0, 2*len(r.streams))
	for _, s := range r.streams {
		streams = append(streams, s.key)
	}
	for range r.streams {
		streams = append(streams, ">")
	}
	found, err := r.ledger.readers.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: string(r.Role), Consumer: r.Consumer, Streams: streams, Count: int64(r.Batch), Block: readBlock}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		// The reply may have been lost after the entries became ours.
		return readFailure(err)
	}
	byPartition := make(map[int][]Entry)
	for _, stream := range found {
		room := r.byKey[stream.Stream]
		byPartition[room.number] = append(byPartition[room.number], r.parse(ctx, room, stream.Stream, stream.Messages)...)
	}
	return r.handleAll(ctx, byPartition)
}

// readFailure keeps NOGROUP recognisable.
func readFailure(err error) error {
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return err
	}
	return fmt.Errorf("reading a stream: %w", failure(err))
}

// partitionsAtOnce bounds how many partitions' entries are handled in parallel.
const partitionsAtOnce = 8

func (r *feedReader) handleAll(ctx context.Context, byPartition map[int][]Entry) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, partitionsAtOnce)
	for partition, batch := range byPartition {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := r.Handle(ctx, partition, batch); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, fmt.Errorf("partition %d: %w", partition, err))
			}
		})
	}
	all.Wait()
	return failed
}

// readOwn hands out again what this consumer has read and not settled, in every
// stream, whatever fails in one of them.
func (r *feedReader) readOwn(ctx context.Context) error {
	var failed error
	for _, s := range r.streams {
		failed = errors.Join(failed, r.readOwnOf(ctx, s))
	}
	return failed
}

func (r *feedReader) readOwnOf(ctx context.Context, s streamRef) error {
	for after := "0"; ; {
		found, err := r.ledger.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: string(r.Role), Consumer: r.Consumer, Streams: []string{s.key, after}, Count: int64(r.Batch), Block: -1}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return readFailure(err)
		}
		if len(found) == 0 || len(found[0].Messages) == 0 {
			return nil
		}
		messages := found[0].Messages
		after = messages[len(messages)-1].ID
		if err := r.handleUnsettled(ctx, s, messages); err != nil {
			return err
		}
	}
}

// claim takes over what consumers have held for longer than ClaimAfter.
func (r *feedReader) claim(ctx context.Context, s streamRef) error {
	for cursor := "0-0"; ; {
		messages, next, err := r.ledger.rdb.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: s.key, Group: string(r.Role),
			Consumer: r.Consumer, MinIdle: r.ClaimAfter, Start: cursor, Count: int64(r.Batch)}).Result()
		if err != nil {
			return readFailure(err)
		}
		if len(messages) > 0 {
			r.Log("taking over entries that were not settled", "role", r.Role, "partition", s.room.number, "entries", len(messages))
			if err := r.handleUnsettled(ctx, s, messages); err != nil {
				return err
			}
		}
		if next == "0-0" || next == "" {
			return nil
		}
		cursor = next
	}
}

// handleUnsettled handles entries that were handed out before. One that has
// failed too often is handled by itself, and if it is the one that fails, and
// Redis is not to blame, it goes to the dead letters so that the rest can go on.
func (r *feedReader) handleUnsettled(ctx context.Context, s streamRef, messages []redis.XMessage) error {
	counts, err := r.deliveries(ctx, s, messages)
	if err != nil {
		return err
	}
	var batch []Entry
	for _, e := range r.parse(ctx, s.room, s.key, messages) {
		if counts[e.ID] < maxDeliveries {
			batch = append(batch, e)
			continue
		}
		err := r.Handle(ctx, s.room.number, []Entry{e})
		if err == nil {
			continue
		}
		if errors.Is(err, delivery.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		if err := r.bury(ctx, s.key, s.room, e.ID, err.Error()); err != nil {
			return err
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return r.Handle(ctx, s.room.number, batch)
}

// deliveries is how often each of these entries was handed out.
func (r *feedReader) deliveries(ctx context.Context, s streamRef, messages []redis.XMessage) (map[string]int64, error) {
	pending, err := r.ledger.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.key, Group: string(r.Role),
		Start: messages[0].ID, End: messages[len(messages)-1].ID, Count: int64(len(messages)), Consumer: r.Consumer}).Result()
	if err != nil {
		return nil, readFailure(err)
	}
	counts := make(map[string]int64, len(pending))
	for _, p := range pending {
		counts[p.ID] = p.RetryCount
	}
	return counts, nil
}

// parse reads entries. One that nobody can read goes to the dead letters at
// once.
func (r *feedReader) parse(ctx context.Context, room room, key string, messages []redis.XMessage) []Entry {
	entries := make([]Entry, 0, len(messages))
	for _, m := range messages {
		e := Entry{Partition: room.number, ID: m.ID}
		var err error
		if update, ok := m.Values["u"].(string); ok {
			e.Update, err = decodeUpdate(update)
		} else {
			text, _ := m.Values["e"].(string)
			e.Event, err = parseEvent(room, text)
		}
		if err == nil {
			entries = append(entries, e)
			continue
		}
		if err := r.bury(ctx, key, room, m.ID, "unreadable: "+err.Error()); err != nil {
			r.Log("an unreadable entry could not be moved to the dead letters", "partition", room.number, "entry", m.ID, "error", err)
		}
	}
	return entries
}

func (r *feedReader) bury(ctx context.Context, key string, room room, id, reason string) error {
	r.Log("entry moved to the dead letters", "role", r.Role, "partition", room.number, "entry", id, "reason", reason)
	_, err := r.ledger.run(ctx, &r.ledger.scripts.settleEntry, []string{key, room.key(kindDeadLetters)},
		string(r.Role), id, refusedKept, "stream", key, "entry", id, "role", string(r.Role), "reason", reason)
	return err
}

// Ack acknowledges entries without any other effect.
func (l *Ledger) Ack(ctx context.Context, role Role, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	pipe := l.rdb.Pipeline()
	for i := range entries {
		pipe.XAck(ctx, entries[i].stream(l.rooms[entries[i].Partition]), string(role), entries[i].ID)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("acknowledging entries: %w", failure(err))
	}
	return nil
}
