package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
)

// readGroup reads new entries (">"), or those behind an id.
func (r *feedReader) readGroup(ctx context.Context, client redis.Cmdable, from string, count int, block time.Duration, streams ...string) *redis.XStreamSliceCmd {
	for range streams {
		streams = append(streams, from)
	}
	return client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: string(r.Role), Consumer: r.Consumer, Streams: streams, Count: int64(count), Block: block})
}

func (r *feedReader) readNew(ctx context.Context) error {
	found, err := r.readGroup(ctx, r.ledger.readers, ">", r.Batch, readBlock, r.keys()...).Result()
	if err != nil {
		// The reply may have been lost after the entries were handed out.
		return readFailure(err)
	}
	byPartition := make(map[int][]Entry)
	for _, stream := range found {
		partition := r.byKey[stream.Stream]
		byPartition[partition.number] = append(byPartition[partition.number], r.parse(ctx, streamRef{partition, stream.Stream}, stream.Messages)...)
	}
	return r.handleAll(ctx, byPartition)
}

// gatheredAtOnce bounds what one read brings, however many partitions there are.
const gatheredAtOnce = 50_000

// gather is readNew with Every: one read of every stream that does not block.
func (r *feedReader) gather(ctx context.Context) error {
	sleep(ctx, time.Until(r.nextRead))
	count := min(r.Batch, max(gatheredAtOnce/len(r.streams), 1))
	pipe := r.ledger.readers.Pipeline()
	reads := make([]*redis.XStreamSliceCmd, len(r.streams))
	for i, s := range r.streams {
		reads[i] = r.readGroup(ctx, pipe, ">", count, -1, s.key)
	}
	_, _ = pipe.Exec(ctx) // each read carries its own error
	var batch []Entry
	var errs []error
	full := false
	for i, read := range reads {
		errs = append(errs, readFailure(read.Err()))
		for _, stream := range read.Val() {
			full = full || len(stream.Messages) == count
			batch = append(batch, r.parse(ctx, r.streams[i], stream.Messages)...)
		}
	}
	if !full {
		r.nextRead = time.Now().Add(r.Every)
	}
	if len(batch) > 0 {
		errs = append(errs, r.Handle(ctx, batch))
	}
	return joinCounted(errs)
}

// readFailure keeps NOGROUP recognisable. Nothing to read is none.
func readFailure(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return err
	}
	return failed("reading a stream", err)
}

const partitionsAtOnce = 8

func (r *feedReader) handleAll(ctx context.Context, byPartition map[int][]Entry) error {
	var all errgroup.Group // without a context: one failure does not stop the others
	all.SetLimit(partitionsAtOnce)
	errs := make([]error, len(r.ledger.partitions))
	for partition, batch := range byPartition {
		if len(batch) == 0 {
			continue
		}
		all.Go(func() error {
			if err := r.Handle(ctx, batch); err != nil {
				errs[partition] = fmt.Errorf("partition %d: %w", partition, err)
			}
			return nil
		})
	}
	_ = all.Wait() // no part returns an error
	return errors.Join(errs...)
}

func (r *feedReader) readOwn(ctx context.Context) error {
	errs := make([]error, len(r.streams))
	for i, s := range r.streams {
		errs[i] = r.readOwnOf(ctx, s)
	}
	return joinCounted(errs)
}

func (r *feedReader) readOwnOf(ctx context.Context, s streamRef) error {
	for after := "0"; ; {
		found, err := r.readGroup(ctx, r.ledger.rdb, after, r.Batch, -1, s.key).Result()
		if err != nil || len(found) == 0 || len(found[0].Messages) == 0 {
			return readFailure(err)
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
		if err == nil && len(messages) > 0 {
			r.Log("taking over entries that were not settled", "partition", s.partition.number, "entries", len(messages))
			if err := r.handleUnsettled(ctx, s, messages); err != nil {
				return err
			}
		}
		if err != nil || next == "0-0" || next == "" {
			return readFailure(err)
		}
		cursor = next
	}
}

// handleUnsettled handles entries again, all together first. If that fails for good, each that has
// failed too often is handled by itself and dead-lettered if it fails.
func (r *feedReader) handleUnsettled(ctx context.Context, s streamRef, messages []redis.XMessage) error {
	counts, err := r.deliveries(ctx, s, messages)
	if err != nil {
		return err
	}
	entries := r.parse(ctx, s, messages)
	if len(entries) == 0 {
		return nil
	}
	failure := r.Handle(ctx, entries)
	if failure == nil || isTransient(ctx, failure) {
		return failure
	}
	var rest []Entry
	for _, e := range entries {
		if counts[e.ID] < maxDeliveries {
			rest = append(rest, e)
			continue
		}
		err := r.Handle(ctx, []Entry{e})
		if err != nil && !isTransient(ctx, err) {
			err = r.deadLetter(ctx, s, e.ID, err.Error())
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
	return r.Handle(ctx, rest)
}

// isTransient reports a failure that no entry has caused.
func isTransient(ctx context.Context, err error) bool {
	return errors.Is(err, delivery.ErrUnavailable) || ctx.Err() != nil
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

func (r *feedReader) parse(ctx context.Context, s streamRef, messages []redis.XMessage) []Entry {
	entries := make([]Entry, 0, len(messages))
	for _, m := range messages {
		e := Entry{Partition: s.partition.number, ID: m.ID}
		if err := e.read(s.partition, m.Values); err == nil {
			entries = append(entries, e)
		} else if err := r.deadLetter(ctx, s, m.ID, "unreadable: "+err.Error()); err != nil {
			r.Log("an unreadable entry could not be moved to the dead letters", "partition", e.Partition, "entry", m.ID, "error", err)
		}
	}
	return entries
}

func (e *Entry) read(partition partition, values map[string]any) (err error) {
	if update, ok := values["u"].(string); ok {
		e.Update, err = decodeUpdate(update)
		return err
	}
	if values["a"] != nil || values["o"] != nil {
		e.Outcomes, err = partition.decodeOutcomes(values)
		return err
	}
	if batch, ok := values["m"].(string); ok {
		e.Events, err = parseEvents(partition, batch)
		return err
	}
	event, err := parseEvent(partition, text(values["e"]))
	e.Events = []Event{event}
	return err
}

func (r *feedReader) deadLetter(ctx context.Context, s streamRef, id, reason string) error {
	r.Log("entry moved to the dead letters", "partition", s.partition.number, "entry", id, "reason", reason)
	_, err := r.ledger.run(ctx, "settle_entry", []string{s.key, s.partition.key(kindDeadLetters)},
		string(r.Role), id, refusedKept, "stream", s.key, "entry", id, "role", string(r.Role), "reason", reason)
	return err
}
