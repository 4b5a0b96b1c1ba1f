package partitions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
)

// Streams reads the streams of events and updates by consumer group.
type Streams struct{ core *core.Client }

// NewStreams returns the calls of streams.
func NewStreams(c *core.Client) *Streams { return &Streams{core: c} }

// Event refers to an order's version, a notice, or a delivery that came too late.
type Event struct {
	Order   delivery.OrderID // zero for a notice
	Version uint64           // zero for a late delivery
	Kind    delivery.ChangeKind
	Notice  string    // event id of a notice; empty for an order's
	LateAt  time.Time // that of a delivery.LateDelivery; else zero
}

// Entry is one entry of a partition's streams. It has one of the last four.
type Entry struct {
	Partition int
	ID        string
	Events    []Event
	Update    *delivery.Update
	Outcomes  []AttemptRecord // final outcomes, or failed attempts ("retrying")
	Audit     *audit.Entry
}

func (e *Entry) Kind() byte {
	switch {
	case e.Update != nil:
		return core.KindUpdates
	case e.Audit != nil:
		return core.KindAudit
	case e.Outcomes == nil:
		return core.KindEvents
	case e.Outcomes[0].State == StateRetrying:
		return core.KindTries
	}

	return core.KindOutcomes
}

func ParseEvent(r core.Partition, text string) (Event, error) {
	if text == "" {
		return Event{}, core.ErrShortRecord
	}
	if text[0] == core.EventNotice {
		return Event{Notice: text[1:]}, nil
	}
	if text[0] != core.EventOrder && text[0] != core.EventLate || len(text) != OrderEventSize {
		return Event{}, fmt.Errorf("event of kind %d and %d bytes: %w", text[0], len(text), core.ErrShortRecord)
	}

	f := core.Fields{Rest: text[15:]}
	event := Event{Order: r.OrderOfMember(text[1:15]), Version: f.Uint64(), Kind: delivery.ChangeKind(f.Byte())}
	if text[0] == core.EventLate {
		event.Version, event.LateAt = 0, core.TimeOf(int64(event.Version))
	}

	return event, nil
}

// IsSent reports whether a webhook tells of the event: not of a creation, of a late delivery, and of
// what has no type.
func (e *Event) IsSent() bool {
	return e.Notice != "" || delivery.Sequence(e.Version) > 1 && e.Kind.EventType() != ""
}

// OrderEventSize is the length of an event of an order, of which a batch has many.
const OrderEventSize = 24

func parseEvents(r core.Partition, batch string) (events []Event, err error) {
	for ; batch != "" && err == nil; batch = batch[min(OrderEventSize, len(batch)):] {
		var event Event
		event, err = ParseEvent(r, batch[:min(OrderEventSize, len(batch))])
		events = append(events, event)
	}
	return events, err
}

// Feed is how a role reads its entries.
type Feed struct {
	Role core.Role
	// Consumer is unique among running processes and survives a restart, so that a
	// process first finishes what it had begun.
	Consumer string
	// Handle acknowledges what it settles; the rest is handed out again. It gets the entries of all
	// partitions, those of a stream in order, one call at a time.
	Handle func(ctx context.Context, batch []Entry) error
	// Every spaces reads, so that batches collect, 0: 1 s; a full one is followed at once. After
	// delivery.ErrUnavailable nothing new is read until the rest has succeeded, but for what is on a
	// server that does not answer: the streams of the others go on without it.
	Every      time.Duration
	Log        func(msg string, args ...any) // optional
	Batch      int                           // entries of a stream that are read at once, 0: 256; 50,000 of all streams
	ClaimAfter time.Duration                 // when a dead consumer's entries are taken over; 0: 60 s
}

// Pauses, and how often an entry is handed out before it is dead-lettered.
const (
	MaxDeliveries = 25
	MinPause      = 100 * time.Millisecond
	maxPause      = 5 * time.Second
)

// Run reads until ctx ends: what this consumer had begun, new entries, and what dead
// consumers left. It creates missing groups, retries for ever and returns ctx's error.
func (l *Streams) Run(ctx context.Context, f Feed) error {
	f.Batch, f.Every, f.ClaimAfter = cmp.Or(f.Batch, 256), cmp.Or(f.Every, time.Second), cmp.Or(f.ClaimAfter, time.Minute)
	if f.Log == nil {
		f.Log = func(string, ...any) {}
	}
	NewFeedReader(l.core, &f, l.core.Partitions).run(ctx)
	return ctx.Err()
}

type StreamRef struct {
	Partition core.Partition
	Key       string
}

// feedStream is a stream, and how far a feed has got with it. One does not wait for another, because
// a server of a cluster may be away while others answer.
type feedStream struct {
	StreamRef

	HasGroups bool
	claimed   time.Time // when dead consumers' entries were last taken over; zero: not yet

	// IsUnsettled: this consumer may have got entries that it has not settled.
	IsUnsettled bool

	// Until awayUntil the stream's server is not asked again, because it did not answer; pause is for how
	// long after the next failure.
	AwayUntil time.Time
	pause     time.Duration
}

type FeedReader struct {
	*Feed
	Ledger  *core.Client
	Streams []*feedStream

	forgotten time.Time // when the names of those long gone were last looked for; zero: not yet
	redoAt    time.Time // when to take up this consumer's unsettled entries
	redoPause time.Duration
	stalled   bool // Handle waits for something outside; nothing new is read
	NextRead  time.Time
}

func NewFeedReader(l *core.Client, f *Feed, partitions []core.Partition) *FeedReader {
	r := &FeedReader{Feed: f, Ledger: l, redoPause: MinPause}
	for _, partition := range partitions {
		for _, kind := range core.RoleStreams[f.Role] {
			r.Streams = append(r.Streams, &feedStream{
				StreamRef:   StreamRef{partition, partition.Key(kind)},
				IsUnsettled: true, // by the process before this one
				pause:       MinPause,
			})
		}
	}

	return r
}

func (r *FeedReader) run(ctx context.Context) {
	pause := MinPause
	for ctx.Err() == nil {
		err := r.Turn(ctx)
		if err == nil || ctx.Err() != nil {
			pause = MinPause
			continue
		}
		r.Log("handling entries failed; it is tried again", "error", err, "pause", pause)
		core.Sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}

	// A successor may have another name, and would wait for ClaimAfter. What is unsettled stays pending.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	r.Forget(end, 0, r.Consumer)
}

// Consumers that have long been silent are forgotten: containers have new names each time.
const (
	forgetEvery = time.Hour
	forgetAfter = 24 * time.Hour

	leaveTimeout = 5 * time.Second
)

// Forget deletes silent consumers without pending entries; an empty name means all.
func (r *FeedReader) Forget(ctx context.Context, silent time.Duration, name string) {
	for _, s := range r.Answering() {
		err := r.Ledger.Evaluate(ctx, "forget_consumers", core.ForgetConsumers, []string{s.Key}, string(r.Role), silent.Milliseconds(), name)
		if err != nil {
			r.Log("names of consumers that are gone stay for now", "error", err)
			return
		}
	}
}

// redoLater backs off from unsettled entries. New ones are read meanwhile.
func (r *FeedReader) redoLater() {
	r.redoAt = time.Now().Add(r.redoPause)
	r.redoPause = min(2*r.redoPause, maxPause)
}

// Turn is one round: unsettled entries, dead consumers' entries, then new ones. It returns Handle's
// failure. A stream that cannot be read is left alone for a while.
func (r *FeedReader) Turn(ctx context.Context) error {
	if len(r.Answering()) == 0 {
		core.Sleep(ctx, time.Until(r.firstBack()))
		return nil
	}

	for _, s := range r.Answering() {
		if s.HasGroups {
			continue
		}
		if err := r.Ledger.MakeGroups(ctx, s.Key); err != nil {
			r.lose(ctx, s, err)
			continue
		}
		s.HasGroups = true
	}

	if r.stalled {
		core.Sleep(ctx, time.Until(r.redoAt))
	}

	if !time.Now().Before(r.redoAt) {
		err := r.settleOwn(ctx)
		if r.stalled {
			return err
		}
		if err != nil {
			r.Log("entries are still unsettled", "error", err)
		}
	}

	err := r.takeOver(ctx)
	if r.stalled {
		return err
	}

	if time.Since(r.forgotten) > forgetEvery {
		r.forgotten = time.Now()
		r.Forget(ctx, forgetAfter, "")
	}

	_, handling := r.ReadNew(ctx)

	return core.JoinCounted([]error{err, handling})
}

// Answering lists the streams whose servers are to be asked.
func (r *FeedReader) Answering() (streams []*feedStream) {
	now := time.Now()
	for _, s := range r.Streams {
		if !now.Before(s.AwayUntil) {
			streams = append(streams, s)
		}
	}
	return streams
}

// readable lists the streams that answer and have their groups.
func (r *FeedReader) readable() []*feedStream {
	return slices.DeleteFunc(r.Answering(), func(s *feedStream) bool { return !s.HasGroups })
}

// firstBack returns when the first stream is to be asked again.
func (r *FeedReader) firstBack() time.Time {
	first := r.Streams[0].AwayUntil
	for _, s := range r.Streams {
		if s.AwayUntil.Before(first) {
			first = s.AwayUntil
		}
	}
	return first
}

// lose leaves a stream alone for a while, and with it the others of a server that does not answer: to
// ask for each of them would hold up those that can be read. What a lost reply brought is unsettled.
func (r *FeedReader) lose(ctx context.Context, s *feedStream, err error) {
	s.IsUnsettled = true
	if ctx.Err() != nil {
		return
	}

	if redis.HasErrorPrefix(err, "NOGROUP") {
		r.Log("a consumer group is missing and is created again; it starts at the oldest entry")
		s.HasGroups = false // until the next turn
		return
	}

	lost := []*feedStream{s}
	if errors.Is(err, delivery.ErrUnavailable) {
		lost = r.onServerOf(ctx, s)
	}

	pause := s.pause
	r.Log("streams cannot be read; the others go on", "streams", len(lost), "of", len(r.Streams), "error", err, "pause", pause)
	until := time.Now().Add(pause)
	for _, other := range lost {
		other.AwayUntil = until
		other.pause = min(2*pause, maxPause)
	}
}

// onServerOf lists the streams that are on the same server as one of them.
func (r *FeedReader) onServerOf(ctx context.Context, s *feedStream) (streams []*feedStream) {
	server := r.Ledger.ServerOf(ctx, s.Partition)
	for _, other := range r.Streams {
		if r.Ledger.ServerOf(ctx, other.Partition) == server {
			streams = append(streams, other)
		}
	}
	return streams
}

// handlingError is what Handle has returned. Every other error of a stream is Redis's.
type handlingError struct{ error }

func (e handlingError) Unwrap() error { return e.error }

// note takes a stream's error: of Redis, or of Handle, which it returns.
func (r *FeedReader) note(ctx context.Context, s *feedStream, err error) error {
	failed, isHandling := errors.AsType[handlingError](err)
	if err == nil || !isHandling {
		if err != nil {
			r.lose(ctx, s, err)
		}
		return nil
	}

	s.IsUnsettled = true
	r.stalled = r.stalled || isTransient(ctx, failed.error)

	return failed.error
}

// settleOwn takes up what this consumer has begun, and returns Handle's failure. It decides again
// whether the feed is stalled: a stream whose server is down does not stall it.
func (r *FeedReader) settleOwn(ctx context.Context) error {
	r.stalled = false
	var errs []error
	for _, s := range r.readable() {
		isAway := time.Now().Before(s.AwayUntil) // since another of its server was asked
		if !s.IsUnsettled || isAway {
			continue
		}

		err := r.ReadOwnOf(ctx, s.StreamRef)
		if err == nil {
			s.IsUnsettled = false
			continue
		}

		errs = append(errs, r.note(ctx, s, err))
	}

	err := core.JoinCounted(errs)
	if err != nil {
		r.redoLater()
	} else {
		r.redoAt, r.redoPause = time.Time{}, MinPause
	}

	return err
}

// takeOver claims what dead consumers have left in streams in which that was not looked for lately. It
// returns Handle's failure.
func (r *FeedReader) takeOver(ctx context.Context) error {
	var errs []error
	for _, s := range r.readable() {
		isAway := time.Now().Before(s.AwayUntil)
		isDue := time.Since(s.claimed) > r.ClaimAfter/2
		if !isDue || isAway {
			continue
		}

		err := r.claim(ctx, s.StreamRef)
		if err == nil {
			s.claimed = time.Now()
			continue
		}

		errs = append(errs, r.note(ctx, s, err))
		if r.stalled {
			break
		}
	}

	err := core.JoinCounted(errs)
	if err != nil {
		r.redoLater()
	}

	return err
}

// readGroup reads new entries (">"), or those behind an id.
func (r *FeedReader) readGroup(ctx context.Context, client redis.Cmdable, from string, count int, stream string) *redis.XStreamSliceCmd {
	return client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: string(r.Role), Consumer: r.Consumer, Streams: []string{stream, from}, Count: int64(count), Block: -1})
}

// gatheredAtOnce bounds what one read brings, however many partitions there are.
const gatheredAtOnce = 50_000

// ReadNew reads what is new in every stream that answers, does not wait for more, and handles it. A
// failure of one stream does not keep what others have brought from being handled. It returns why
// streams could not be read, and Handle's failure.
func (r *FeedReader) ReadNew(ctx context.Context) (reading, handling error) {
	core.Sleep(ctx, time.Until(r.NextRead))
	streams := r.readable()
	count := min(r.Batch, max(gatheredAtOnce/len(r.Streams), 1))
	pipe := r.Ledger.Readers.Pipeline()
	reads := make([]*redis.XStreamSliceCmd, len(streams))
	for i, s := range streams {
		reads[i] = r.readGroup(ctx, pipe, ">", count, s.Key)
	}

	_, _ = pipe.Exec(ctx) // each read carries its own error

	var batch []Entry
	var brought []*feedStream
	var errs []error
	full := false
	for i, s := range streams {
		err := core.ReadFailure(reads[i].Err())
		if err != nil { // what it brought all the same is handed out again
			errs = append(errs, err)
			isAway := time.Now().Before(s.AwayUntil) // with another of its server
			s.IsUnsettled = true
			if !isAway {
				r.lose(ctx, s, err)
			}
			continue
		}

		s.AwayUntil, s.pause = time.Time{}, MinPause
		for _, stream := range reads[i].Val() {
			full = full || len(stream.Messages) == count
			batch = append(batch, r.parse(ctx, s.StreamRef, stream.Messages)...)
			brought = append(brought, s)
		}
	}

	if !full {
		r.NextRead = time.Now().Add(r.Every)
	}

	if len(batch) > 0 {
		handling = r.Handle(ctx, batch)
	}

	if handling != nil {
		for _, s := range brought {
			s.IsUnsettled = true
		}
		r.redoLater()
		r.stalled = isTransient(ctx, handling)
	}

	return core.JoinCounted(errs), handling
}

func (r *FeedReader) ReadOwnOf(ctx context.Context, s StreamRef) error {
	for after := "0"; ; {
		found, err := r.readGroup(ctx, r.Ledger.Redis, after, r.Batch, s.Key).Result()
		if err != nil || len(found) == 0 || len(found[0].Messages) == 0 {
			return core.ReadFailure(err)
		}

		messages := found[0].Messages
		after = messages[len(messages)-1].ID
		if err := r.handleUnsettled(ctx, s, messages); err != nil {
			return err
		}
	}
}

// claim takes over what consumers have held for longer than ClaimAfter.
func (r *FeedReader) claim(ctx context.Context, s StreamRef) error {
	for cursor := "0-0"; ; {
		messages, next, err := r.Ledger.Redis.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: s.Key, Group: string(r.Role),
			Consumer: r.Consumer, MinIdle: r.ClaimAfter, Start: cursor, Count: int64(r.Batch)}).Result()
		if err == nil && len(messages) > 0 {
			r.Log("taking over entries that were not settled", "partition", s.Partition.Number, "entries", len(messages))
			if err := r.handleUnsettled(ctx, s, messages); err != nil {
				return err
			}
		}

		if err != nil || next == "0-0" || next == "" {
			return core.ReadFailure(err)
		}

		cursor = next
	}
}

// handleUnsettled handles entries again, all together first. If that fails for good, each that has
// failed too often is handled by itself and dead-lettered if it fails.
func (r *FeedReader) handleUnsettled(ctx context.Context, s StreamRef, messages []redis.XMessage) error {
	counts, err := r.deliveries(ctx, s, messages)
	if err != nil {
		return err
	}

	entries := r.parse(ctx, s, messages)
	if len(entries) == 0 {
		return nil
	}

	failure := r.handle(ctx, entries)
	if failure == nil || isTransient(ctx, failure) {
		return failure
	}

	var rest []Entry
	for _, e := range entries {
		if counts[e.ID] < MaxDeliveries {
			rest = append(rest, e)
			continue
		}

		err := r.handle(ctx, []Entry{e})
		if err != nil && !isTransient(ctx, err) {
			err = r.DeadLetter(ctx, s, e.ID, err.Error())
		}

		if err != nil {
			return err
		}
	}

	switch len(rest) {
	case len(entries):
		return failure
	case 0:
		return nil
	}

	return r.handle(ctx, rest)
}

// handle is Handle with its errors marked as such.
func (r *FeedReader) handle(ctx context.Context, entries []Entry) error {
	if err := r.Handle(ctx, entries); err != nil {
		return handlingError{err}
	}
	return nil
}

// isTransient reports a failure that no entry has caused.
func isTransient(ctx context.Context, err error) bool {
	return errors.Is(err, delivery.ErrUnavailable) || ctx.Err() != nil
}

// deliveries is how often each of these entries was handed out.
func (r *FeedReader) deliveries(ctx context.Context, s StreamRef, messages []redis.XMessage) (map[string]int64, error) {
	pending, err := r.Ledger.Redis.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.Key, Group: string(r.Role),
		Start: messages[0].ID, End: messages[len(messages)-1].ID, Count: int64(len(messages)), Consumer: r.Consumer}).Result()
	if err != nil {
		return nil, core.ReadFailure(err)
	}

	counts := make(map[string]int64, len(pending))
	for _, p := range pending {
		counts[p.ID] = p.RetryCount
	}

	return counts, nil
}

func (r *FeedReader) parse(ctx context.Context, s StreamRef, messages []redis.XMessage) []Entry {
	entries := make([]Entry, 0, len(messages))
	for _, m := range messages {
		e := Entry{Partition: s.Partition.Number, ID: m.ID}
		if err := e.Read(s.Partition, m.Values); err == nil {
			entries = append(entries, e)
		} else if err := r.DeadLetter(ctx, s, m.ID, UnreadableReason(err)); err != nil {
			r.Log("an unreadable entry could not be moved to the dead letters", "partition", e.Partition, "entry", m.ID, "error", err)
		}
	}

	return entries
}

func (e *Entry) Read(partition core.Partition, values map[string]any) (err error) {
	if update, ok := values["u"].(string); ok {
		e.Update, err = core.DecodeUpdate(update)
		return err
	}

	if entry, ok := values["w"].(string); ok {
		e.Audit, err = audit.Decode(entry)
		return err
	}

	if values["a"] != nil || values["o"] != nil {
		e.Outcomes, err = DecodeOutcomes(partition, values)
		return err
	}

	if batch, ok := values["m"].(string); ok {
		e.Events, err = parseEvents(partition, batch)
		return err
	}

	event, err := ParseEvent(partition, core.Text(values["e"]))
	e.Events = []Event{event}

	return err
}

// UnreadableReason says why something that was stored cannot be read, which may quote it.
func UnreadableReason(err error) string {
	return delivery.Excerpt("unreadable: "+err.Error(), delivery.MaxForeignError)
}

func (r *FeedReader) DeadLetter(ctx context.Context, s StreamRef, id, reason string) error {
	reason = delivery.Excerpt(reason, delivery.MaxForeignError) // it may quote what the entry holds
	r.Log("entry moved to the dead letters", "partition", s.Partition.Number, "entry", id, "reason", reason)
	err := r.Ledger.Evaluate(ctx, "settle_entry", core.SettleEntry, []string{s.Key, s.Partition.Key(core.KindDeadLetters)},
		string(r.Role), id, orders.RefusedKept, "stream", s.Key, "entry", id, "role", string(r.Role), "reason", reason)
	return err
}

// Ack acknowledges entries without any other effect.
func (l *Streams) Ack(ctx context.Context, role core.Role, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}

	ids := make(map[string][]string)
	for i := range entries {
		stream := l.core.Partitions[entries[i].Partition].Key(entries[i].Kind())
		ids[stream] = append(ids[stream], entries[i].ID)
	}

	pipe := l.core.Redis.Pipeline()
	for stream, ids := range ids {
		pipe.XAck(ctx, stream, string(role), ids...)
	}

	_, err := pipe.Exec(ctx)

	return core.Failed("acknowledging entries", err)
}
