package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Get reads one order without counting. ORDER_NOT_FOUND.
func (l Orders) Get(ctx context.Context, id delivery.OrderID) (*delivery.Order, error) {
	found, err := l.GetAll(ctx, []delivery.OrderID{id})
	if err == nil && found[0] == nil {
		err = orderNotFound()
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// GetAll reads many orders; one that does not exist is nil in its place. A record
// that cannot be read is an error for all.
func (l Orders) GetAll(ctx context.Context, ids []delivery.OrderID) ([]*delivery.Order, error) {
	orders, unreadable, err := l.GetReadable(ctx, ids)
	for _, e := range unreadable {
		err = errors.Join(err, e)
	}
	if err != nil {
		return nil, err
	}
	return orders, nil
}

// GetReadable is GetAll with unreadable records as nil, and why in unreadable.
func (l Orders) GetReadable(ctx context.Context, ids []delivery.OrderID) (orders []*delivery.Order, unreadable map[delivery.OrderID]error, err error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		if p, ok := l.partitionOfOrder(id); ok {
			keys[i] = p.order(id.Digest())
		}
	}
	orders, failed, err := readRecords(ctx, l.rdb, "reading orders", keys, func(i int, record string) (*delivery.Order, error) {
		o, err := decodeOrder(record, ids[i].Partition())
		if err != nil {
			return nil, fmt.Errorf("order %s: %w", ids[i], err)
		}
		if o.ID != ids[i] {
			return nil, nil
		}
		return o, nil
	})
	if len(failed) > 0 {
		unreadable = make(map[delivery.OrderID]error, len(failed))
	}
	for i, err := range failed {
		unreadable[ids[i]] = err
	}
	return orders, unreadable, err
}

// Find finds the orders of all accounts with this external id, newest first.
// Retired orders are not found. A record that cannot be read is an error.
func (l Orders) Find(ctx context.Context, externalID string) ([]*delivery.Order, error) {
	if externalID == "" {
		return nil, nil
	}
	ids, err := l.accountIDs(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = l.partitionOf(id).order(delivery.OrderDigest(id, externalID))
	}
	orders, unreadable, err := readRecords(ctx, l.rdb, "looking for orders", keys, func(i int, record string) (*delivery.Order, error) {
		return decodeOrder(record, l.partitionOf(ids[i]).number)
	})
	for i, bad := range unreadable {
		return nil, fmt.Errorf("order %q of account %s: %w", externalID, ids[i], bad)
	}
	orders = present(orders)
	slices.SortStableFunc(orders, func(a, b *delivery.Order) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return orders, err
}

// Each calls do with every order in Redis, up to 500 at a time, unordered, never twice at
// once; what is there all the time comes at least once. Unreadable records are joined to
// the error; an error of do ends it.
func (l Orders) Each(ctx context.Context, do func([]*delivery.Order) error) error {
	var mu sync.Mutex
	var unreadable []error
	err := l.scan(ctx, l.global.prefix[:2]+"*}"+string(rune(kindOrder))+"*", itemsAtOnce, func(ctx context.Context, one *redis.Client, keys []string) error {
		keys = slices.DeleteFunc(keys, func(key string) bool { return l.orderKeyPartition(key) < 0 })
		orders, bad, err := readRecords(ctx, one, "reading orders", keys, func(i int, record string) (*delivery.Order, error) {
			return decodeOrder(record, l.orderKeyPartition(keys[i]))
		})
		mu.Lock()
		defer mu.Unlock()
		unreadable = slices.AppendSeq(unreadable, maps.Values(bad))
		if orders = present(orders); err == nil && len(orders) > 0 {
			err = do(orders)
		}
		return err
	})
	return errors.Join(append(unreadable, err)...)
}

// orderKeyPartition is the partition of an order's key (prefix, kind, digest), or
// -1. Binary suffixes of other keys may look like anything.
func (l *core) orderKeyPartition(key string) int {
	end := strings.IndexByte(key, '}') + 1
	if len(key) != end+1+delivery.OrderDigestSize || key[end] != kindOrder {
		return -1
	}
	return slices.IndexFunc(l.partitions, func(p partition) bool { return p.prefix == key[:end] })
}

// retiredEntry is the length of a bucket's entry: nine bytes of digest, two of day.
const retiredEntry = 11

// Retired reports which of the orders ended and left Redis (Lifecycle.Retire).
func (l Orders) Retired(ctx context.Context, ids []delivery.OrderID) ([]bool, error) {
	buckets, err := pipelined(ctx, l.rdb, "reading retired orders", ids, func(pipe redis.Pipeliner, id delivery.OrderID) *redis.StringCmd {
		p, ok := l.partitionOfOrder(id)
		if !ok {
			return nil
		}
		suffix := retiredSuffix(id.Digest())
		return pipe.Get(ctx, p.keyOf(kindRetired, suffix[:]))
	})
	if err != nil {
		return nil, err
	}
	retired := make([]bool, len(ids))
	for i, bucket := range buckets {
		retired[i] = bucket != nil && inRetired(bucket.Val(), ids[i])
	}
	return retired, nil
}

func inRetired(bucket string, id delivery.OrderID) bool {
	member := orderMember(id)
	entry := member[:9] + member[12:14]
	for ; len(bucket) >= retiredEntry; bucket = bucket[retiredEntry:] {
		if bucket[:retiredEntry] == entry {
			return true
		}
	}
	return false
}
