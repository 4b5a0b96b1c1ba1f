package operations

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
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// Erasure drops recipients' data on request.
type Erasure struct{ Core *core.Client }

// NewErasure returns the calls of erasure.
func NewErasure(c *core.Client) *Erasure { return &Erasure{Core: c} }

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

	return l.Core.EachAccount(ctx, func(ids []delivery.AccountID) error {
		for _, account := range ids {
			if err := l.eraseAttempts(ctx, account, erasures); err != nil {
				return core.Failed("erasing attempts", err)
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
	r, ok := l.Core.PartitionOfOrder(id)
	if !ok {
		return nil
	}

	key := r.Order(id.Digest())
	// read returns no order where nothing is to be erased.
	read := func(ctx context.Context, rdb redis.Cmdable) (record string, o *delivery.Order, err error) {
		record, err = rdb.Get(ctx, key).Result()
		if err != nil {
			return "", nil, err
		}
		o, err = core.DecodeOrder(record, r.Number)
		if err != nil || o.ID != id || !o.ErasedAt.IsZero() || !unended && !o.Status.Terminal() {
			o = nil
		}
		return record, o, err
	}

	for {
		// Only what is read with confirmation counts: the transaction may have been at a master that is replaced.
		_, o, err := read(ctx, l.Core.Redis)
		switch {
		case errors.Is(err, redis.Nil):
			return nil
		case errors.Is(err, core.ErrShortRecord):
			return err
		case err != nil || o == nil:
			return core.Failure(err)
		}

		transaction := core.Unconfirmed(ctx)
		err = l.Core.Redis.Watch(transaction, func(tx *redis.Tx) error {
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
			return core.Failure(err)
		}
	}
}

// eraseRecord is the record of an erased order. One that has ended is shrunk, too, which spares it the
// race with Orders.Shrink: that would write back what it has read before.
func eraseRecord(record string, o *delivery.Order, at time.Time) []byte {
	o.Erase(at)
	inHead := core.OrderFleetAt - core.OrderLocationAt
	if o.Status.Terminal() {
		kept := core.EncodeShrunk(o)
		return bytes.Join([][]byte{{core.ShrunkFormat}, []byte(record[1:core.OrderLocationAt]), kept[:inHead], []byte(record[core.OrderFleetAt:core.OrderHead]), kept[inHead:]}, nil)
	}

	c := core.Codec{Out: append([]byte(record[:core.OrderLocationAt]), make([]byte, inHead)...), Writing: true}
	c.Terms(&o.Fleet)
	document := len(c.Out)
	c.Document(&o.OrderDraft)
	binary.BigEndian.PutUint32(c.Out[core.OrderLengthAt:], uint32(len(c.Out)-document))
	for i := range o.Changes {
		c.Out = core.AppendChange(c.Out, &o.Changes[i])
	}

	if !o.Accepted.IsZero() {
		c.Out = core.AppendAccepted(c.Out, o.Accepted)
	}

	return core.AppendEntry(c.Out, core.EntryErased, func(entry *core.Codec) { entry.All(new(delivery.Courier), &o.ErasedAt) })
}

// eraseAttempts removes entries of the log, whose results ClickHouse has; lines that were written
// together are one.
func (l *Erasure) eraseAttempts(ctx context.Context, account delivery.AccountID, erasures map[delivery.OrderID]time.Time) error {
	r := l.Core.PartitionOf(account)
	key := r.KeyOf(core.KindAttemptLog, account[:])
	entries, err := l.Core.Redis.LRange(ctx, key, 0, -1).Result()
	for _, entry := range entries {
		for id := range erasures {
			if err == nil && id.Partition() == r.Number && strings.Contains(entry, core.OrderMember(id)) {
				err = l.Core.Redis.LRem(ctx, key, 0, entry).Err()
			}
		}
	}

	return err
}

// RewriteFiles has each master rewrite its append-only file, without what was erased, and waits
// until it has. Replicas have files of their own.
func (l *Erasure) RewriteFiles(ctx context.Context) error {
	return core.Failed("rewriting the append-only file", l.Core.EachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		for began := false; ; core.Sleep(ctx, partitions.MinPause) {
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
			began = err == nil
			if !began && !strings.Contains(err.Error(), "in progress") {
				return err
			}
		}
	}))
}
