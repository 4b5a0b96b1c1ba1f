package ledger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Erase drops what recipients, and vendors about them, have given of orders (delivery.Order.Erase), at
// the times given: from their records, and with the lines of the attempt logs that name them, since
// receivers may answer anything. It may be repeated: the first time stays. Orders that Redis does not
// hold are passed over, and those that have not ended, too, unless unended: then no program may run.
func (l *Erasure) Erase(ctx context.Context, erasures map[delivery.OrderID]time.Time, unended bool, progress func(what string, done int)) error {
	done := 0
	for id, at := range erasures {
		if err := l.eraseOrder(ctx, id, at, unended); err != nil {
			return fmt.Errorf("erasing order %s: %w", id, err)
		}
		done++
		progress("orders erased", done)
	}

	looked := 0

	return l.eachAccount(ctx, func(ids []delivery.AccountID) error {
		for _, account := range ids {
			if err := l.eraseAttempts(ctx, account, erasures); err != nil {
				return failed("erasing attempts", err)
			}
			looked++
			progress("accounts whose webhooks' answers were looked at", looked)
		}
		return nil
	})
}

// eraseOrder is an optimistic transaction and no function of the library: a restore erases before
// any program has loaded this release's, which the user of a backup may not.
func (l *Erasure) eraseOrder(ctx context.Context, id delivery.OrderID, at time.Time, unended bool) error {
	r, ok := l.partitionOfOrder(id)
	if !ok {
		return nil
	}

	key := r.order(id.Digest())
	// read returns no order where nothing is to be erased.
	read := func(ctx context.Context, rdb redis.Cmdable) (record string, o *delivery.Order, err error) {
		if record, err = rdb.Get(ctx, key).Result(); err != nil {
			return "", nil, err
		}
		if o, err = decodeOrder(record, r.number); err != nil || o.ID != id || !o.ErasedAt.IsZero() || !unended && !o.Status.Terminal() {
			o = nil
		}
		return record, o, err
	}

	for {
		// Only what is read with confirmation counts: the transaction may have been at a master that is replaced.
		_, o, err := read(ctx, l.rdb)
		switch {
		case errors.Is(err, redis.Nil):
			return nil
		case errors.Is(err, errShortRecord):
			return err
		case err != nil || o == nil:
			return failure(err)
		}

		transaction := unconfirmed(ctx)
		err = l.rdb.Watch(transaction, func(tx *redis.Tx) error {
			record, o, err := read(transaction, tx)
			if err != nil || o == nil {
				return err
			}

			_, err = tx.TxPipelined(transaction, func(pipe redis.Pipeliner) error {
				return pipe.Set(transaction, key, eraseRecord(record, o, at), 0).Err()
			})
			return err
		}, key)
		if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, redis.TxFailedErr) { // others may have changed it meanwhile
			return failure(err)
		}
	}
}

// eraseRecord is the record of an erased order. One that has ended is shrunk, too, which spares it the
// race with Lifecycle.Shrink: that would write back what it has read before.
func eraseRecord(record string, o *delivery.Order, at time.Time) []byte {
	o.Erase(at)
	inHead := orderFleetAt - orderLocationAt
	if o.Status.Terminal() {
		kept := encodeShrunk(o)
		return bytes.Join([][]byte{{shrunkFormat}, []byte(record[1:orderLocationAt]), kept[:inHead], []byte(record[orderFleetAt:orderHead]), kept[inHead:]}, nil)
	}

	c := codec{out: append([]byte(record[:orderLocationAt]), make([]byte, inHead)...), writing: true}
	c.terms(&o.Fleet)
	document := len(c.out)
	c.document(&o.OrderDraft)
	binary.BigEndian.PutUint32(c.out[orderLengthAt:], uint32(len(c.out)-document))
	for i := range o.Changes {
		c.out = appendChange(c.out, &o.Changes[i])
	}

	if !o.Accepted.IsZero() {
		c.out = appendAccepted(c.out, o.Accepted)
	}

	return appendEntry(c.out, entryErased, func(entry *codec) { entry.all(new(delivery.Courier), &o.ErasedAt) })
}

// eraseAttempts removes entries of the log, whose results ClickHouse has; lines that were written
// together are one.
func (l *Erasure) eraseAttempts(ctx context.Context, account delivery.AccountID, erasures map[delivery.OrderID]time.Time) error {
	r := l.partitionOf(account)
	key := r.keyOf(kindAttemptLog, account[:])
	entries, err := l.rdb.LRange(ctx, key, 0, -1).Result()
	for _, entry := range entries {
		for id := range erasures {
			if err == nil && id.Partition() == r.number && strings.Contains(entry, orderMember(id)) {
				err = l.rdb.LRem(ctx, key, 0, entry).Err()
			}
		}
	}

	return err
}

// RewriteFiles has each master rewrite its append-only file, without what was erased, and waits
// until it has. Replicas have files of their own.
func (l *Erasure) RewriteFiles(ctx context.Context) error {
	return failed("rewriting the append-only file", l.eachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		for began := false; ; sleep(ctx, minPause) {
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

			err = one.BgRewriteAOF(ctx).Err()
			if began = err == nil; !began && !strings.Contains(err.Error(), "in progress") {
				return err
			}
		}
	}))
}
