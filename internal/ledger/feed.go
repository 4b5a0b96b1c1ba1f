package ledger

import (
	"context"
	"errors"
	"fmt"
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
	switch streamKey[len(streamKey)-1] {
	case kindUpdates:
		return []Role{RoleStatus}
	case kindOutcomes:
		return nil
	}
	return []Role{RoleStatus, RoleWebhook}
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
