package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// StoreName names a store for ever.
type StoreName struct {
	Account    delivery.AccountID
	ExternalID string
}

// GetAll reads many stores in one round trip. One that does not exist is absent
// from the answer, and so is one whose record cannot be read, which unreadable
// tells. The second error is Redis's.
func (l Stores) GetAll(ctx context.Context, names []StoreName) (stores map[StoreName]*delivery.Store, unreadable []error, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	pipe := l.rdb.Pipeline()
	replies := make([]*redis.StringCmd, len(names))
	for i, n := range names {
		replies[i] = pipe.Get(ctx, l.partitionOf(n.Account).store(delivery.OrderDigest(n.Account, n.ExternalID)))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, fmt.Errorf("reading stores: %w", failure(err))
	}
	stores = make(map[StoreName]*delivery.Store, len(names))
	for i, reply := range replies {
		if errors.Is(reply.Err(), redis.Nil) {
			continue
		}
		if reply.Err() != nil {
			return nil, nil, fmt.Errorf("reading stores: %w", failure(reply.Err()))
		}
		s, err := decodeStore(reply.Val())
		if err != nil {
			unreadable = append(unreadable, fmt.Errorf("store %q of account %s: %w", names[i].ExternalID, names[i].Account, err))
			continue
		}
		stores[names[i]] = s
	}
	return stores, unreadable, nil
}

// Lag is how far a role is behind.
type Lag struct {
	Entries int64     // unread or unsettled
	Oldest  time.Time // when the oldest of them was written; zero: there is none
}

// Lag reads it over all partitions. A group that does not exist yet lags behind
// by everything there is.
func (l Streams) Lag(ctx context.Context, role Role) (Lag, error) {
	var lag Lag
	for _, r := range l.partitions {
		for _, kind := range streamKinds(role) {
			entries, oldest, err := l.lagOf(ctx, r.key(kind), role)
			if err != nil {
				return Lag{}, fmt.Errorf("reading the lag of group %s: %w", role, err)
			}
			lag.Entries += entries
			if !oldest.IsZero() && (lag.Oldest.IsZero() || oldest.Before(lag.Oldest)) {
				lag.Oldest = oldest
			}
		}
	}
	return lag, nil
}

func (l *core) lagOf(ctx context.Context, key string, role Role) (entries int64, oldest time.Time, err error) {
	groups, err := l.rdb.XInfoGroups(ctx, key).Result()
	if redis.HasErrorPrefix(err, "no such key") {
		return 0, time.Time{}, nil
	}
	if err != nil {
		return 0, time.Time{}, failure(err)
	}
	group := redis.XInfoGroup{LastDeliveredID: "0-0", Lag: -1}
	for _, g := range groups {
		if g.Name == string(role) {
			group = g
		}
	}
	needs := ""
	if group.Pending > 0 {
		pending, err := l.rdb.XPending(ctx, key, string(role)).Result()
		if err != nil {
			return 0, time.Time{}, failure(err)
		}
		needs = pending.Lower
	}
	if needs == "" {
		next, err := l.rdb.XRangeN(ctx, key, "("+group.LastDeliveredID, "+", 1).Result()
		if err != nil || len(next) == 0 {
			return 0, time.Time{}, failureOrNil(err)
		}
		needs = next[0].ID
	}
	if group.Lag < 0 { // Redis does not know it: entries in the middle were removed
		if group.Lag, err = l.rdb.XLen(ctx, key).Result(); err != nil {
			return 0, time.Time{}, failure(err)
		}
	}
	ms, _ := splitStreamID(needs)
	return group.Pending + group.Lag, time.UnixMilli(int64(ms)), nil
}

// Mark is how far the streams of a role have been written, by stream.
type Mark map[string]string

// Mark is the present end of a role's streams.
func (l Streams) Mark(ctx context.Context, role Role) (Mark, error) {
	mark := make(Mark)
	for _, r := range l.partitions {
		for _, kind := range streamKinds(role) {
			info, err := l.rdb.XInfoStream(ctx, r.key(kind)).Result()
			if redis.HasErrorPrefix(err, "no such key") {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading a stream: %w", failure(err))
			}
			if info.LastGeneratedID != "0-0" {
				mark[r.key(kind)] = info.LastGeneratedID
			}
		}
	}
	return mark, nil
}

// Passed tells whether a role has settled everything up to a mark. It goes by
// positions, so that nobody's clock matters.
func (l Streams) Passed(ctx context.Context, role Role, mark Mark) (bool, error) {
	for key, last := range mark {
		passed, err := l.passed(ctx, role, key, last)
		if err != nil {
			return false, fmt.Errorf("reading the position of group %s: %w", role, err)
		}
		if !passed {
			return false, nil
		}
	}
	return true, nil
}

func (l *core) passed(ctx context.Context, role Role, key, last string) (bool, error) {
	groups, err := l.rdb.XInfoGroups(ctx, key).Result()
	if err != nil {
		return false, failure(err)
	}
	for _, g := range groups {
		if g.Name != string(role) {
			continue
		}
		if streamIDLess(g.LastDeliveredID, last) {
			// What was never read may have been removed by somebody.
			next, err := l.rdb.XRangeN(ctx, key, "("+g.LastDeliveredID, last, 1).Result()
			if err != nil || len(next) > 0 {
				return false, failureOrNil(err)
			}
		}
		if g.Pending == 0 {
			return true, nil
		}
		pending, err := l.rdb.XPending(ctx, key, string(role)).Result()
		if err != nil {
			return false, failure(err)
		}
		return pending.Count == 0 || streamIDLess(last, pending.Lower), nil
	}
	return false, nil
}

func failureOrNil(err error) error {
	if err == nil {
		return nil
	}
	return failure(err)
}

// ordersAtOnce is how many orders EachOrder reads together.
const ordersAtOnce = 500

// Each hands do every order that Redis holds, up to 500 at a time, in no
// particular order, one call after the other. What is there from beginning to
// end comes at least once. A record that cannot be read is left out and told in
// the error at the end; an error of do ends it.
func (l Orders) Each(ctx context.Context, do func([]*delivery.Order) error) error {
	var mu sync.Mutex
	var unreadable []error
	walk := func(ctx context.Context, one *redis.Client) error {
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
			if err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	var err error
	switch client := l.rdb.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, walk)
	case *redis.Client:
		err = walk(ctx, client)
	}
	return errors.Join(append(unreadable, err)...)
}

// readOrderKeys reads those of the keys that are orders'.
func (l *core) readOrderKeys(ctx context.Context, one *redis.Client, keys []string) (orders []*delivery.Order, unreadable []error, err error) {
	pipe := one.Pipeline()
	var partitions []int
	var replies []*redis.StringCmd
	for _, key := range keys {
		if partition, ok := l.orderKeyPartition(key); ok {
			partitions = append(partitions, partition)
			replies = append(replies, pipe.Get(ctx, key))
		}
	}
	if len(replies) == 0 {
		return nil, nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, fmt.Errorf("reading orders: %w", failure(err))
	}
	for i, reply := range replies {
		if errors.Is(reply.Err(), redis.Nil) {
			continue // retired since
		}
		if reply.Err() != nil {
			return nil, nil, fmt.Errorf("reading orders: %w", failure(reply.Err()))
		}
		o, err := decodeOrder(reply.Val(), partitions[i])
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		orders = append(orders, o)
	}
	return orders, unreadable, nil
}

// orderKeyPartition judges a key by its form: prefix, kind, digest. Binary
// suffixes of other keys may look like anything.
func (l *core) orderKeyPartition(key string) (int, bool) {
	end := strings.IndexByte(key, '}') + 1
	if len(key) != end+1+delivery.OrderDigestSize || key[end] != kindOrder {
		return 0, false
	}
	for _, r := range l.partitions {
		if r.prefix == key[:end] {
			return r.number, true
		}
	}
	return 0, false
}

// EachEntry hands do what the streams of a role still hold since a time, page by
// page of one stream, whoever has consumed it. Entries that cannot be read are
// left out.
func (l Streams) EachEntry(ctx context.Context, role Role, since time.Time, do func([]Entry) error) error {
	for _, r := range l.partitions {
		for _, kind := range streamKinds(role) {
			if err := l.eachEntryOf(ctx, r, kind, since, do); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *core) eachEntryOf(ctx context.Context, r partition, kind byte, since time.Time, do func([]Entry) error) error {
	for start := strconv.FormatInt(max(since.UnixMilli(), 0), 10); ; {
		page, err := l.rdb.XRangeN(ctx, r.key(kind), start, "+", 1000).Result()
		if err != nil {
			return fmt.Errorf("reading a stream: %w", failure(err))
		}
		if len(page) == 0 {
			return nil
		}
		start = "(" + page[len(page)-1].ID
		entries := make([]Entry, 0, len(page))
		for _, message := range page {
			e := Entry{Partition: r.number, ID: message.ID}
			if e.read(r, message.Values) == nil {
				entries = append(entries, e)
			}
		}
		if len(entries) == 0 {
			continue
		}
		if err := do(entries); err != nil {
			return err
		}
	}
}

// retiredEntry is the length of one order's entry in a bucket of retired orders:
// nine bytes of its digest, two of its day.
const retiredEntry = 11

// Retired tells which of the orders ended and left Redis (Retire). Of an order
// that is there, or never was, it says false.
func (l Orders) Retired(ctx context.Context, ids []delivery.OrderID) ([]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	pipe := l.rdb.Pipeline()
	buckets := make(map[string]*redis.StringCmd)
	keys := make([]string, len(ids))
	for i, id := range ids {
		r, ok := l.partitionOfOrder(id)
		if !ok {
			continue
		}
		suffix := retiredSuffix(id.Digest())
		keys[i] = r.keyOf(kindRetired, suffix[:])
		if buckets[keys[i]] == nil {
			buckets[keys[i]] = pipe.Get(ctx, keys[i])
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading retired orders: %w", failure(err))
	}
	retired := make([]bool, len(ids))
	for i, id := range ids {
		bucket := buckets[keys[i]]
		if bucket == nil || errors.Is(bucket.Err(), redis.Nil) {
			continue
		}
		if bucket.Err() != nil {
			return nil, fmt.Errorf("reading retired orders: %w", failure(bucket.Err()))
		}
		retired[i] = inRetired(bucket.Val(), id)
	}
	return retired, nil
}

func inRetired(bucket string, id delivery.OrderID) bool {
	member := orderMember(id)
	entry := member[:9] + member[12:14]
	for len(bucket) >= retiredEntry {
		if bucket[:retiredEntry] == entry {
			return true
		}
		bucket = bucket[retiredEntry:]
	}
	return false
}
