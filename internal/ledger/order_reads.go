package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Get reads one order without counting. ORDER_NOT_FOUND.
func (l Orders) Get(ctx context.Context, id delivery.OrderID) (*delivery.Order, error) {
	found, err := l.GetAll(ctx, []delivery.OrderID{id})
	if err != nil {
		return nil, err
	}
	if found[0] == nil {
		return nil, orderNotFound()
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
	keys, places := make([]string, 0, len(ids)), make([]int, 0, len(ids))
	for i, id := range ids {
		if p, ok := l.partitionOfOrder(id); ok {
			keys, places = append(keys, p.order(id.Digest())), append(places, i)
		}
	}
	records, err := getAll(ctx, l.rdb, "reading orders", keys)
	if err != nil {
		return nil, nil, err
	}
	orders = make([]*delivery.Order, len(ids))
	for n, record := range records {
		i := places[n]
		if record == "" {
			continue
		}
		o, err := decodeOrder(record, ids[i].Partition())
		if err != nil {
			if unreadable == nil {
				unreadable = make(map[delivery.OrderID]error)
			}
			unreadable[ids[i]] = fmt.Errorf("order %s: %w", ids[i], err)
		} else if o.ID == ids[i] {
			orders[i] = o
		}
	}
	return orders, unreadable, nil
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
	records, err := getAll(ctx, l.rdb, "looking for orders", keys)
	if err != nil {
		return nil, err
	}
	var orders []*delivery.Order
	for i, record := range records {
		if record == "" {
			continue
		}
		o, err := decodeOrder(record, l.partitionOf(ids[i]).number)
		if err != nil {
			return nil, fmt.Errorf("order %q of account %s: %w", externalID, ids[i], err)
		}
		orders = append(orders, o)
	}
	slices.SortStableFunc(orders, func(a, b *delivery.Order) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return orders, nil
}

// ordersAtOnce is how many orders Each reads together.
const ordersAtOnce = 500

// Each calls do with every order in Redis, up to 500 at a time, in no particular
// order, never twice at once. What exists from beginning to end comes at least
// once. Unreadable records are left out and joined to the error; an error of do
// ends it.
func (l Orders) Each(ctx context.Context, do func([]*delivery.Order) error) error {
	var mu sync.Mutex
	var unreadable []error
	err := l.eachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := one.Scan(ctx, cursor, l.global.prefix[:2]+"*}"+string(rune(kindOrder))+"*", ordersAtOnce).Result()
			if err != nil {
				return fmt.Errorf("listing orders: %w", failure(err))
			}
			orders, bad, err := l.readOrderKeys(ctx, one, keys)
			if err != nil {
				return err
			}
			mu.Lock()
			unreadable = append(unreadable, bad...)
			if len(orders) > 0 {
				err = do(orders)
			}
			mu.Unlock()
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
	return errors.Join(append(unreadable, err)...)
}

// readOrderKeys reads those of the keys that are orders and still exist.
func (l *core) readOrderKeys(ctx context.Context, one *redis.Client, keys []string) (orders []*delivery.Order, unreadable []error, err error) {
	keys = slices.DeleteFunc(keys, func(key string) bool { return l.orderKeyPartition(key) < 0 })
	records, err := getAll(ctx, one, "reading orders", keys)
	for i, record := range records {
		if record == "" {
			continue
		}
		o, err := decodeOrder(record, l.orderKeyPartition(keys[i]))
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		orders = append(orders, o)
	}
	return orders, unreadable, err
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

// retiredEntry is the length of one order's entry in a bucket of retired orders:
// nine bytes of its digest, two of its day.
const retiredEntry = 11

// Retired reports which of the orders ended and left Redis (Lifecycle.Retire).
func (l Orders) Retired(ctx context.Context, ids []delivery.OrderID) ([]bool, error) {
	buckets := make(map[string]string)
	keys := make([]string, len(ids))
	var distinct []string
	for i, id := range ids {
		if p, ok := l.partitionOfOrder(id); ok {
			suffix := retiredSuffix(id.Digest())
			keys[i] = p.keyOf(kindRetired, suffix[:])
			distinct = append(distinct, keys[i])
		}
	}
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	records, err := getAll(ctx, l.rdb, "reading retired orders", distinct)
	if err != nil {
		return nil, err
	}
	for i, key := range distinct {
		buckets[key] = records[i]
	}
	retired := make([]bool, len(ids))
	for i, id := range ids {
		retired[i] = inRetired(buckets[keys[i]], id)
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
