package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Find finds the orders of any account that have this external id, newest
// first; an account has one at most. Orders past their retention are not found.
// It takes one round trip for the accounts' ids and one for every 500 of them. A
// record that cannot be read is an error.
func (l Orders) Find(ctx context.Context, externalID string) ([]*delivery.Order, error) {
	if externalID == "" {
		return nil, nil
	}
	ids, err := l.accountIDs(ctx)
	if err != nil {
		return nil, err
	}
	var orders []*delivery.Order
	for page := range slices.Chunk(ids, accountsAtOnce) {
		keys := make([]string, len(page))
		for i, id := range page {
			keys[i] = l.partitionOf(id).order(delivery.OrderDigest(id, externalID))
		}
		records, err := l.getAll(ctx, keys)
		if err != nil {
			return nil, fmt.Errorf("looking for orders: %w", err)
		}
		for i, record := range records {
			if record == "" {
				continue
			}
			o, err := decodeOrder(record, l.partitionOf(page[i]).number)
			if err != nil {
				return nil, fmt.Errorf("order %q of account %s: %w", externalID, page[i], err)
			}
			orders = append(orders, o)
		}
	}
	slices.SortStableFunc(orders, func(a, b *delivery.Order) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return orders, nil
}

// getAll reads strings of any partition in one round trip; one that is not there
// is empty.
func (l *core) getAll(ctx context.Context, keys []string) ([]string, error) {
	pipe := l.rdb.Pipeline()
	reads := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		reads[i] = pipe.Get(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // each read carries its own error
	records := make([]string, len(keys))
	for i, read := range reads {
		if err := read.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, failure(err)
		}
		records[i] = read.Val()
	}
	return records, nil
}

// StoreFilter says which stores are looked for. A zero field: any.
type StoreFilter struct {
	Account delivery.AccountID
	Fleet   delivery.FleetID
	State   delivery.StoreState
	Text    string // part of the external id or the name, in any case
}

// How much of a search is in memory at once: the ids of the stores of so many
// accounts, or of a fleet in so many partitions, and so many records.
const (
	setsAtOnce   = 32
	storesAtOnce = 500
)

// Find lists stores by account and external id, at most limit, 1 to 1000;
// more says that there are others. It goes through the accounts by their ids and
// ends where there is enough, or through a fleet's stores when one is asked for
// and no account.
func (l Stores) Find(ctx context.Context, f StoreFilter, limit int) (stores []*delivery.Store, more bool, err error) {
	if err := checkListed(limit); err != nil {
		return nil, false, err
	}
	search := storeSearch{StoreFilter: f, folded: delivery.FoldName(f.Text), limit: limit}
	sets, ordered, err := l.storeSets(ctx, &f)
	if err != nil {
		return nil, false, err
	}
	for page := range slices.Chunk(sets, setsAtOnce) {
		if err := l.searchStores(ctx, &search, page); err != nil {
			return nil, false, err
		}
		// Whatever comes in a later account belongs behind what is found.
		if ordered && len(search.found) > limit {
			break
		}
	}
	search.shorten()
	return search.found[:min(limit, len(search.found))], len(search.found) > limit, nil
}

// storeSet is one set of stores' digests.
type storeSet struct {
	partition partition
	key       string
}

// storeSets are the sets that hold every store that a filter can find. ordered:
// all stores of one set belong before those of the next.
func (l *core) storeSets(ctx context.Context, f *StoreFilter) (sets []storeSet, ordered bool, err error) {
	if f.Account.IsZero() && !f.Fleet.IsZero() {
		for _, r := range l.partitions {
			sets = append(sets, storeSet{r, r.fleetStores(f.Fleet)})
		}
		return sets, false, nil
	}
	ids := []delivery.AccountID{f.Account}
	if f.Account.IsZero() {
		if ids, err = l.accountIDs(ctx); err != nil {
			return nil, false, err
		}
	}
	for _, id := range ids {
		r := l.partitionOf(id)
		sets = append(sets, storeSet{r, r.keyOf(kindAccountStores, id[:])})
	}
	return sets, true, nil
}

// searchStores adds to the search what some sets hold.
func (l *core) searchStores(ctx context.Context, search *storeSearch, sets []storeSet) error {
	pipe := l.rdb.Pipeline()
	members := make([]*redis.StringSliceCmd, len(sets))
	for i, set := range sets {
		members[i] = pipe.SMembers(ctx, set.key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("listing stores: %w", failure(err))
	}
	var keys []string
	for i, set := range sets {
		for _, digest := range members[i].Val() {
			keys = append(keys, set.partition.prefix+string(rune(kindStore))+digest)
		}
	}
	for page := range slices.Chunk(keys, storesAtOnce) {
		records, err := l.getAll(ctx, page)
		if err != nil {
			return fmt.Errorf("looking for stores: %w", err)
		}
		for _, record := range records {
			if record == "" {
				continue
			}
			s, err := decodeStore(record)
			if err != nil {
				return err
			}
			search.add(s)
		}
	}
	return nil
}

// storeSearch gathers the first limit stores, and one more.
type storeSearch struct {
	StoreFilter
	folded string // Text
	limit  int
	found  []*delivery.Store
}

func (s *storeSearch) add(store *delivery.Store) {
	if !s.matches(store) {
		return
	}
	if s.found = append(s.found, store); len(s.found) >= 2*(s.limit+1) {
		s.shorten()
	}
}

func (s *storeSearch) matches(store *delivery.Store) bool {
	return (s.Account.IsZero() || store.Account == s.Account) &&
		(s.Fleet.IsZero() || store.Fleet == s.Fleet) &&
		(s.State == 0 || store.State == s.State) &&
		(s.folded == "" || strings.Contains(delivery.FoldName(store.ExternalID), s.folded) ||
			strings.Contains(delivery.FoldName(store.Name), s.folded))
}

// shorten sorts what is found and keeps what can still be answered.
func (s *storeSearch) shorten() {
	slices.SortFunc(s.found, func(a, b *delivery.Store) int {
		return cmp.Or(bytes.Compare(a.Account[:], b.Account[:]), strings.Compare(a.ExternalID, b.ExternalID))
	})
	end := min(s.limit+1, len(s.found))
	clear(s.found[end:])
	s.found = s.found[:end]
}
