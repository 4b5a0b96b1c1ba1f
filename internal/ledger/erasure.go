package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// What recipients, and vendors about them, have given is in two places: the order's record, until the
// order shrinks, and perhaps an answer of a vendor's receiver in the log of attempts. Optimistic
// transactions rewrite them, no function of the library: a restore erases before any program has
// loaded this release's, which the user of a backup may not.

// Find is the order with an external id, also one that has left Redis. ORDER_NOT_FOUND.
func (l Erasure) Find(ctx context.Context, account delivery.AccountID, externalID string) (delivery.OrderID, error) {
	r, digest := l.partitionOf(account), delivery.OrderDigest(account, externalID)
	suffix := retiredSuffix(digest)
	pipe := l.rdb.Pipeline()
	record, bucket := pipe.Get(ctx, r.order(digest)), pipe.Get(ctx, r.keyOf(kindRetired, suffix[:]))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return delivery.OrderID{}, failed("looking for an order", err)
	}
	if record.Val() != "" {
		o, err := decodeOrder(record.Val(), r.number)
		if err != nil {
			return delivery.OrderID{}, err
		}
		return o.ID, nil
	}
	for f := (fields{rest: bucket.Val()}); f.rest != ""; {
		if known, day := f.take(9), f.uint16(); known == string(digest[:9]) && f.err == nil {
			return delivery.MakeOrderID(r.number, day, digest), nil
		}
	}
	return delivery.OrderID{}, orderNotFound()
}

// Erase drops the data of the orders' recipients (delivery.Order.Erase), at the times given, from
// records and attempt logs. It may be repeated: the first time stays. Orders that Redis does not hold
// are passed over, and those that have not ended, too, unless unended: then no program may run.
// progress gets how many orders, and then how many logs, are done.
func (l Erasure) Erase(ctx context.Context, erasures map[delivery.OrderID]time.Time, unended bool, progress func(orders, logs int)) error {
	accounts, err := l.accountIDs(ctx)
	if err != nil {
		return err
	}
	done := 0
	for id, at := range erasures {
		if err := l.eraseOrder(ctx, id, at, unended); err != nil {
			return fmt.Errorf("erasing order %s: %w", id, err)
		}
		done++
		progress(done, 0)
	}
	for i, account := range accounts {
		if err := l.eraseAnswers(ctx, account, erasures); err != nil {
			return fmt.Errorf("erasing answers to webhooks of account %s: %w", account, err)
		}
		progress(done, i+1)
	}
	return nil
}

// rewrite has edit read a key and queue its changes, again for as long as others change it meanwhile.
func (l *core) rewrite(ctx context.Context, key string, edit func(*redis.Tx, redis.Pipeliner) error) error {
	for {
		var edited error
		err := l.rdb.Watch(ctx, func(tx *redis.Tx) error {
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				edited = edit(tx, pipe)
				return edited
			})
			return err
		}, key)
		if edited != nil || !errors.Is(err, redis.TxFailedErr) {
			return cmp.Or(edited, failure(err))
		}
	}
}

func (l Erasure) eraseOrder(ctx context.Context, id delivery.OrderID, at time.Time, unended bool) error {
	r, ok := l.partitionOfOrder(id)
	if !ok {
		return nil
	}
	key := r.order(id.Digest())
	return l.rewrite(ctx, key, func(tx *redis.Tx, pipe redis.Pipeliner) error {
		record, err := tx.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return failure(err)
		}
		o, err := decodeOrder(record, r.number)
		if err == nil && o.ID == id && o.ErasedAt.IsZero() && (unended || o.Status.Terminal()) {
			pipe.Set(ctx, key, eraseRecord(record, o, at), 0)
		}
		return err
	})
}

// eraseRecord is the record of an erased order. One that has ended is shrunk, too, which spares it the
// race with Lifecycle.Shrink: that would write back what it has read before.
func eraseRecord(record string, o *delivery.Order, at time.Time) []byte {
	o.Erase(at)
	if o.Status.Terminal() {
		kept, inHead := encodeShrunk(o), orderFleetAt-orderLocationAt
		return bytes.Join([][]byte{{shrunkFormat}, []byte(record[1:orderLocationAt]), kept[:inHead],
			[]byte(record[orderFleetAt:orderHead]), kept[inHead:]}, nil)
	}
	c := codec{out: append([]byte(record[:orderLocationAt]), make([]byte, orderFleetAt-orderLocationAt)...), writing: true}
	c.terms(&o.Fleet)
	document := len(c.out)
	c.document(&o.OrderDraft)
	binary.BigEndian.PutUint32(c.out[orderLengthAt:], uint32(len(c.out)-document))
	last := delivery.Courier{}
	for i := range o.Changes {
		c.out = appendChange(c.out, &o.Changes[i], uint32(o.Changes[i].Version>>32))
		if courier := o.Changes[i].Courier; !courier.IsZero() {
			last = courier
		}
	}
	if o.Courier != last {
		c.out = appendCourierEntry(c.out, entrySwap, o.Courier)
	}
	if !o.Accepted.IsZero() {
		c.out = appendCourierEntry(c.out, entryAccepted, o.Accepted)
	}
	return appendEntry(c.out, entryErased, func(entry *codec) { entry.all(new(delivery.Courier), &o.ErasedAt) })
}

// eraseAnswers drops what receivers answered to events of the orders: they may repeat anything.
func (l Erasure) eraseAnswers(ctx context.Context, account delivery.AccountID, of map[delivery.OrderID]time.Time) error {
	r := l.partitionOf(account)
	key := r.keyOf(kindAttemptLog, account[:])
	return l.rewrite(ctx, key, func(tx *redis.Tx, pipe redis.Pipeliner) error {
		entries, err := tx.LRange(ctx, key, 0, -1).Result()
		for i, entry := range entries {
			if erased := r.withoutAnswers(entry, of); erased != entry {
				pipe.LSet(ctx, key, int64(i), erased)
			}
		}
		return failure(err)
	})
}

// withoutAnswers is a line of the log, or a chunk of them. What cannot be read stays.
func (r partition) withoutAnswers(entry string, of map[delivery.OrderID]time.Time) string {
	f := fields{rest: entry}
	if f.byte() == lineChunk {
		chunk := []byte{lineChunk}
		for f.rest != "" {
			chunk = appendText(chunk, r.withoutAnswers(f.text(), of))
		}
		return string(chunk)
	}
	line, err := r.decodeLine(entry)
	event, ofOrder := parseEvent(r, line.event)
	if _, erased := of[event.Order]; err == nil && ofOrder == nil && erased && line.Answer != "" {
		return strings.TrimSuffix(entry, string(appendText(nil, line.Answer))) + "\x00" // the last field
	}
	return entry
}

// RewriteFiles has each master write its append-only file anew, without what was erased, and waits
// until it has. Replicas have files of their own.
func (l Erasure) RewriteFiles(ctx context.Context) error {
	return failed("rewriting the append-only file", l.eachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		for began := false; ; sleep(ctx, rewritePause) {
			info, err := one.Info(ctx, "persistence").Result()
			switch {
			case err != nil:
				return err
			case strings.Contains(info, "aof_enabled:0"):
				return nil
			case strings.Contains(info, "aof_rewrite_in_progress:1"), strings.Contains(info, "aof_rewrite_scheduled:1"):
				continue // one that had begun before may hold what was erased since
			case began && strings.Contains(info, "aof_last_bgrewrite_status:ok"):
				return nil
			case began:
				return errors.New("it has failed: see the log of Redis")
			}
			if err := one.BgRewriteAOF(ctx).Err(); err != nil && !strings.Contains(err.Error(), "in progress") {
				return err
			} else if err == nil {
				began = true
			}
		}
	}))
}

const rewritePause = 100 * time.Millisecond
