package accounts

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

// Stores are the vendors' branches.
type Stores struct {
	core   *core.Client
	limits *limits.Limits
}

// NewStores returns the calls of stores.
func NewStores(c *core.Client, bounds *limits.Limits) *Stores {
	return &Stores{core: c, limits: bounds}
}

// store is a store's record; scripts read format, state, revision (8 bytes), fleet (16).
func codeStore(c *core.Codec, s *delivery.Store) {
	c.All((*byte)(&s.State), &s.Revision, s.Fleet[:], s.Account[:], &s.ExternalID, &s.FleetName, &s.TaxNumber, &s.Name, &s.Phone,
		&s.Address, &s.Point.Latitude, &s.Point.Longitude, &s.SubRegion, &s.ClosingDate, &s.UpdatedAt)
}

func EncodeStore(s *delivery.Store) []byte {
	return core.Encode(func(c *core.Codec) { codeStore(c, s) })
}

func DecodeStore(record string) (*delivery.Store, error) {
	s := new(delivery.Store)
	err := core.Decode("store record", record, func(c *core.Codec) { codeStore(c, s) })
	return s, err
}

// CountAndGet counts in the stores bucket and reads the store, which may be nil, in one
// script. Errors are Consume's.
func (l *Stores) CountAndGet(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Store, limits.Quota, error) {
	r := l.core.PartitionOf(account)
	reply, err := l.limits.Count(ctx, "read_store", account, limits.EndpointStores, []string{
		limits.WindowsKey(r, limits.EndpointStores, account), r.Store(delivery.OrderDigest(account, externalID))})
	if err != nil || reply.Payload == "" {
		return nil, reply.Quota, err
	}

	s, err := DecodeStore(reply.Payload)
	return s, reply.Quota, err
}

// Get reads a store without counting. STORE_NOT_FOUND.
func (l *Stores) Get(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Store, error) {
	r := l.core.PartitionOf(account)
	record, err := l.core.Redis.Get(ctx, r.Store(delivery.OrderDigest(account, externalID))).Result()
	if errors.Is(err, redis.Nil) {
		return nil, delivery.Refuse(delivery.CodeStoreNotFound, "the account has no store %q", externalID)
	}

	if err != nil {
		return nil, core.Failed("reading a store", err)
	}
	return DecodeStore(record)
}

// Write stores s, if it still has s.Revision (0: none), with the fleet's lists, the
// closing timer and the notices, all in one script. ErrConflict; TOO_MANY_STORES for a
// new store, or one more that waits for its fleet's answer, beyond the account's limits.
func (l *Stores) Write(ctx context.Context, s *delivery.Store, notices ...Notice) error {
	r := l.core.PartitionOf(s.Account)
	digest := delivery.OrderDigest(s.Account, s.ExternalID)
	written := *s
	written.Revision++
	args := []any{
		binary.BigEndian.AppendUint64(nil, s.Revision), EncodeStore(&written), digest[:],
		core.Millis(s.ClosesAt()), r.Prefix, NoticeLifetime.Milliseconds(),
	}

	for i := range notices {
		args = append(args, NewNoticeID(), EncodeNotice(&notices[i]))
	}

	reply, err := l.core.RunText(ctx, "write_store", []string{
		r.Store(digest), r.KeyOf(core.KindAccountStores, s.Account[:]), r.Key(core.KindClosings), r.Key(core.KindEvents),
		r.Account(s.Account), r.KeyOf(core.KindPendingStores, s.Account[:]),
	}, args...)
	if err != nil {
		return err
	}

	name, limit, _ := strings.Cut(reply, "\n")
	switch name {
	case "conflict":
		return fmt.Errorf("store %q: %w", s.ExternalID, core.ErrConflict)
	case "too_many_stores":
		return delivery.Refuse(delivery.CodeTooManyStores,
			"the account has %s stores, deactivated ones included, as many as its limit maxStores allows; "+
				"use one of them again, or ask the operator of this service for a higher limit", limit)
	case "too_many_pending":
		return delivery.Refuse(delivery.CodeTooManyStores,
			"%s stores of the account wait for the answer of fleet %s, as many as its limit maxPendingStores allows; "+
				"wait for the fleet, choose another, or ask the operator of this service for a higher limit", limit, s.Fleet)
	}

	s.Revision = written.Revision

	return nil
}

// OfFleet lists a fleet's stores in a state (0: any), in no particular order. unreadable counts those
// that are missing because their records cannot be read. It reads no store that is in another state.
func (l *Stores) OfFleet(ctx context.Context, fleet delivery.FleetID, state delivery.StoreState) (stores []*delivery.Store, unreadable int, err error) {
	keys, err := l.storeKeys(ctx, l.storeSets(&StoreFilter{Fleet: fleet, State: state}))
	if err != nil {
		return nil, 0, err
	}
	return l.readPage(ctx, StorePage{fleet: fleet, state: state, keys: keys})
}

// CountOfFleets counts the stores of each fleet in a state, without reading them. Those whose
// records cannot be read are counted, too. With ErrIncomplete the counts lack those of partitions that
// do not answer.
func (l *Stores) CountOfFleets(ctx context.Context, fleets []delivery.FleetID, state delivery.StoreState) ([]int, error) {
	type fleetList struct {
		fleet int // its place in fleets
		key   string
	}

	var lists []fleetList
	for i, fleet := range fleets {
		for _, p := range l.core.Partitions {
			lists = append(lists, fleetList{fleet: i, key: p.FleetStores(fleet, state)})
		}
	}

	sizes, errs := core.PipelinedEach(ctx, l.core.Redis, "counting stores", lists, func(pipe redis.Pipeliner, list fleetList) func() int64 {
		return pipe.ZCard(ctx, list.key).Val
	})
	err := core.Partly(errs)
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, err
	}

	counts := make([]int, len(fleets))
	for i, size := range sizes {
		counts[lists[i].fleet] += int(size)
	}

	return counts, err
}

// StorePage is a page of a fleet's stores. Their records have not been read yet, so that
// a caller can charge for them first.
type StorePage struct {
	Next string // the cursor of the following page; empty: there is none

	fleet delivery.FleetID
	state delivery.StoreState // 0: any
	keys  []string            // of the records
}

// Len returns how many records ReadPage would read.
func (p *StorePage) Len() int { return len(p.keys) }

// PageOfFleet finds the next stores, at most limit, of a fleet in a state (0: any) after a
// cursor (empty: from the beginning), by partition and digest. A store keeps its place
// whatever happens to it, so pages have each store once, even one that changes its state
// between them. VALIDATION_FAILED for a cursor that no page had. A partition that does not answer is
// left out, and the error of the page on which its stores would have been is ErrIncomplete: the page
// is valid beside it.
func (l *Stores) PageOfFleet(ctx context.Context, fleet delivery.FleetID, state delivery.StoreState, cursor string, limit int) (StorePage, error) {
	after, err := l.parseStoreCursor(cursor)
	if err != nil {
		return StorePage{}, err
	}

	page := StorePage{fleet: fleet, state: state}
	last := after
	var missing core.MissingParts
	for partitions := range slices.Chunk(l.core.Partitions[after.partition:], core.PartitionsCounted) {
		sizes, errs := core.PipelinedEach(ctx, l.core.Redis, "counting stores", partitions, func(pipe redis.Pipeliner, p core.Partition) func() int64 {
			return pipe.ZCard(ctx, p.FleetStores(fleet, state)).Val
		})

		for len(partitions) > 0 {
			// One more than the page takes tells that there is a following page.
			wanted := limit + 1 - len(page.keys)
			n := core.SetsHolding(sizes, int64(wanted))
			missing.Note(errs[:n])
			listed := make([]storeRange, n)
			for i := range listed {
				listed[i] = storeRange{partition: partitions[i], isEmpty: sizes[i] == 0}
				if partitions[i].Number == after.partition {
					listed[i].after = after.digest
				}
			}

			members, problems := l.storesIn(ctx, listed, fleet, state, wanted)

			for i, digests := range members {
				missing.Add(problems[i])
				for _, digest := range digests {
					if len(page.keys) == limit {
						page.Next = last.String()
						return page, l.core.ErrOfRest(&missing, cursor != "")
					}
					last = storeCursor{partition: partitions[i].Number, digest: digest}
					page.keys = append(page.keys, partitions[i].Key(core.KindStore)+digest)
				}
			}

			partitions, sizes, errs = partitions[n:], sizes[n:], errs[n:]
		}
	}

	err = l.core.ErrOfRest(&missing, cursor != "")
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return StorePage{}, err
	}

	return page, err
}

// storeRange is what follows a digest in a partition's list of a fleet's stores.
type storeRange struct {
	partition core.Partition
	after     string // empty: the whole list
	isEmpty   bool   // nothing has to be read
}

func (l *Stores) storesIn(ctx context.Context, ranges []storeRange, fleet delivery.FleetID, state delivery.StoreState, limit int) (found [][]string, errs []error) {
	return core.PipelinedEach(ctx, l.core.Redis, "listing stores", ranges, func(pipe redis.Pipeliner, r storeRange) func() []string {
		if r.isEmpty {
			return nil
		}

		start := "-"
		if r.after != "" {
			start = "(" + r.after
		}

		return pipe.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: r.partition.FleetStores(fleet, state), Start: start, Stop: "+", ByLex: true, Count: int64(limit),
		}).Val
	})
}

// ReadPage reads the stores of a page. Stores that have left the fleet or the state since
// the page was found are left out, and so are those whose records cannot be read. With ErrIncomplete
// the stores lack those of partitions that do not answer.
func (l *Stores) ReadPage(ctx context.Context, page StorePage) ([]*delivery.Store, error) {
	stores, _, err := l.readPage(ctx, page)
	return stores, err
}

func (l *Stores) readPage(ctx context.Context, page StorePage) (stores []*delivery.Store, unreadable int, err error) {
	stores, unreadable, err = l.readStores(ctx, page.keys)
	stores = slices.DeleteFunc(stores, func(s *delivery.Store) bool {
		isInState := page.state == 0 || s.State == page.state
		return s.Fleet != page.fleet || !isInState
	})
	return stores, unreadable, err
}

// storeCursor is the last store of a page: its partition and digest.
type storeCursor struct {
	partition int
	digest    string // empty: nothing of the partition has been listed
}

func (c storeCursor) String() string { return fmt.Sprintf("%d.%x", c.partition, c.digest) }

func (l *Stores) parseStoreCursor(text string) (storeCursor, error) {
	if text == "" {
		return storeCursor{}, nil
	}

	var c storeCursor
	var digest []byte
	_, err := fmt.Sscanf(text, "%d.%x", &c.partition, &digest)
	c.digest = string(digest)
	exists := c.partition >= 0 && c.partition < len(l.core.Partitions) && len(digest) == len(delivery.Digest{})
	if err != nil || !exists || c.String() != strings.ToLower(text) {
		return storeCursor{}, core.InvalidCursor()
	}

	return c, nil
}

// readStores reads the stores under keys, without missing ones. One whose record cannot be read is
// left out, counted and logged, so that it hurts no other store. With ErrIncomplete the stores of
// partitions that do not answer are missing, too.
func (l *Stores) readStores(ctx context.Context, keys []string) (stores []*delivery.Store, unreadable int, err error) {
	found, problems, err := core.ReadRecords(ctx, l.core.Redis, "reading stores", keys, func(i int, record string) (*delivery.Store, error) {
		s, err := DecodeStore(record)
		l.core.NoteReadability(keys[i], err)
		return s, err
	})
	return core.Present(found), len(problems), err
}

// WithDue lists those of the partitions in which the closing day of some store is over. After
// an error it has those that could be read. Replicas do not confirm the answer, after which
// Due reads the stores themselves.
func (l *Stores) WithDue(ctx context.Context, partitions []int, now time.Time) (due []int, err error) {
	members, err := l.core.Due(ctx, core.KindClosings, partitions, now, 1)
	for i, p := range partitions {
		if len(members[i]) > 0 {
			due = append(due, p)
		}
	}
	return due, core.Failed("reading closing days", err)
}

// Due lists stores of a partition whose closing day is over, about limit of them. It passes over
// those whose records cannot be read, however many there are.
func (l *Stores) Due(ctx context.Context, partition int, now time.Time, limit int) ([]*delivery.Store, error) {
	r := l.core.Partitions[partition]
	var due []*delivery.Store
	page := redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: int64(limit)}
	for len(due) < limit {
		digests, err := l.core.Redis.ZRangeByScore(ctx, r.Key(core.KindClosings), &page).Result()
		if err != nil {
			return nil, core.Failed("reading closing days", err)
		}

		keys := make([]string, len(digests))
		for i, digest := range digests {
			keys[i] = r.Key(core.KindStore) + digest
		}

		stores, _, err := l.readStores(ctx, keys)
		if err != nil {
			return nil, err
		}

		due = append(due, stores...)
		if len(digests) < limit {
			break
		}

		page.Offset += page.Count
	}

	return due, nil
}

// StoreFilter selects stores. A zero field matches any.
type StoreFilter struct {
	Account delivery.AccountID
	Fleet   delivery.FleetID
	State   delivery.StoreState
	Text    string // part of the external id or the name, in any case
}

const (
	// SetsAtOnce is how many accounts', or partitions', sets of stores are looked at together.
	SetsAtOnce = 32

	// accountsSearched is among how many accounts a store is looked for when no account and no
	// fleet is named.
	accountsSearched = 5000

	// StoresSearched is how many records a search reads.
	StoresSearched = 20_000
)

// Find lists stores by account and external id, at most limit, 1 to 1000; more: there are others, or
// may be: it reads storesSearched stores at most, and without an account or a fleet it looks at the
// stores of accountsSearched accounts only. Stores whose records cannot be read are left out. With
// ErrIncomplete it has looked only where the servers answer.
func (l *Stores) Find(ctx context.Context, f StoreFilter, limit int) (stores []*delivery.Store, more bool, err error) {
	if err := core.CheckListed(limit); err != nil {
		return nil, false, err
	}

	search := storeSearch{filter: &f, folded: delivery.FoldName(f.Text), limit: limit, unread: StoresSearched}
	if f.Account.IsZero() && f.Fleet.IsZero() {
		err = l.searchAccounts(ctx, &search)
	} else {
		err = l.search(ctx, &search, l.storeSets(&f))
	}

	err = cmp.Or(err, search.missing.Err())
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, false, err
	}

	more = search.isCut || search.isFull()

	return search.found[:min(limit, len(search.found))], more, err
}

// storeSearch collects the first stores by account and external id that match a filter.
type storeSearch struct {
	filter *StoreFilter
	folded string // the filter's text
	limit  int

	found  []*delivery.Store // one more than limit tells that there are others
	unread int               // how many more records may be read
	isCut  bool              // stores were left out

	missing core.MissingParts // partitions that do not answer; their stores are not found
}

func (s *storeSearch) isFull() bool { return len(s.found) > s.limit }

// searchAccounts reads the stores of one account after the other until there are enough. Accounts
// without a store cost nothing.
func (l *Stores) searchAccounts(ctx context.Context, s *storeSearch) error {
	var last delivery.AccountID
	for searched := 0; searched < accountsSearched; {
		accounts, more, err := l.AccountsWithStores(ctx, last, core.ItemsAtOnce)
		if err := s.take(err); err != nil {
			return err
		}

		for some := range slices.Chunk(accounts, SetsAtOnce) {
			sets := make([]storeSet, len(some))
			for i, account := range some {
				sets[i] = l.storesOf(account)
			}

			err := l.search(ctx, s, sets)
			if err != nil {
				return err
			}

			// Whatever comes in a later account belongs behind what is found.
			if s.isFull() || s.isCut {
				return nil
			}
		}

		if !more {
			return nil
		}

		searched += len(accounts)
		last = accounts[len(accounts)-1]
	}

	s.isCut = true

	return nil
}

// AccountsWithStores lists the accounts after one that have a store, at most limit. Their entries all
// have the same score, so Redis orders them by id.
// With ErrIncomplete those of partitions that do not answer are left out.
func (l *Stores) AccountsWithStores(ctx context.Context, after delivery.AccountID, limit int) (accounts []delivery.AccountID, more bool, err error) {
	start := "-"
	if !after.IsZero() {
		start = "(" + string(after[:])
	}

	read, errs := core.PipelinedEach(ctx, l.core.Redis, "listing accounts with stores", l.core.Partitions, func(pipe redis.Pipeliner, r core.Partition) func() []string {
		return pipe.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: r.List(core.ListWithStores), Start: start, Stop: "+", ByLex: true, Count: int64(limit) + 1,
		}).Val
	})

	for _, members := range read {
		for _, member := range members {
			if len(member) == len(delivery.AccountID{}) {
				accounts = append(accounts, delivery.AccountID([]byte(member)))
			}
		}
	}

	slices.SortFunc(accounts, core.CompareAccounts)
	if len(accounts) > limit {
		return accounts[:limit], true, core.Partly(errs)
	}

	return accounts, false, core.Partly(errs)
}

// search reads the stores of the sets. It has the ids of at most storesSearched stores in memory, and
// those of one set.
func (l *Stores) search(ctx context.Context, s *storeSearch, sets []storeSet) error {
	for some := range slices.Chunk(sets, SetsAtOnce) {
		some, sizes := l.sizedSets(ctx, s, some)

		for len(some) > 0 {
			if s.unread == 0 {
				s.isCut = true
				return nil
			}

			n := core.SetsHolding(sizes, int64(s.unread))
			keys, err := l.storeKeys(ctx, some[:n])
			if err := s.take(err); err != nil {
				return err
			}

			if len(keys) > s.unread {
				keys = keys[:s.unread]
				s.isCut = true
			}

			err = l.searchRecords(ctx, s, keys)
			if err != nil {
				return err
			}

			some, sizes = some[n:], sizes[n:]
		}
	}

	return nil
}

func (l *Stores) searchRecords(ctx context.Context, s *storeSearch, keys []string) error {
	s.unread -= len(keys)
	for some := range slices.Chunk(keys, core.ItemsAtOnce) {
		stores, _, err := l.readStores(ctx, some)
		if err := s.take(err); err != nil {
			return err
		}

		for _, store := range stores {
			if s.filter.matches(store, s.folded) {
				s.found = append(s.found, store)
			}
		}

		s.found = FirstStores(s.found, s.limit+1)
	}

	return nil
}

// take returns err, but nil for ErrIncomplete, of which the search takes note.
func (s *storeSearch) take(err error) error {
	if errors.Is(err, core.ErrIncomplete) {
		s.missing.Add(err)
		return nil
	}
	return err
}

// sizedSets returns the sets that can be read, with their sizes. The search takes note of the others.
func (l *Stores) sizedSets(ctx context.Context, s *storeSearch, sets []storeSet) (readable []storeSet, sizes []int64) {
	all, errs := core.PipelinedEach(ctx, l.core.Redis, "counting stores", sets, func(pipe redis.Pipeliner, set storeSet) func() int64 {
		if set.isSorted {
			return pipe.ZCard(ctx, set.key).Val
		}
		return pipe.SCard(ctx, set.key).Val
	})

	s.missing.Note(errs)

	for i, set := range sets {
		if errs[i] == nil {
			readable = append(readable, set)
			sizes = append(sizes, all[i])
		}
	}

	return readable, sizes
}

// FirstStores keeps the first stores by account and external id.
func FirstStores(stores []*delivery.Store, most int) []*delivery.Store {
	slices.SortFunc(stores, func(a, b *delivery.Store) int {
		return cmp.Or(core.CompareAccounts(a.Account, b.Account), strings.Compare(a.ExternalID, b.ExternalID))
	})
	return slices.Delete(stores, min(most, len(stores)), len(stores))
}

func (f *StoreFilter) matches(s *delivery.Store, folded string) bool {
	return (f.Account.IsZero() || s.Account == f.Account) &&
		(f.Fleet.IsZero() || s.Fleet == f.Fleet) &&
		(f.State == 0 || s.State == f.State) &&
		(folded == "" || strings.Contains(delivery.FoldName(s.ExternalID), folded) ||
			strings.Contains(delivery.FoldName(s.Name), folded))
}

type storeSet struct {
	partition core.Partition
	key       string
	isSorted  bool // a zset
}

// storeSets hold every store of the filter's account or fleet.
func (l *Stores) storeSets(f *StoreFilter) (sets []storeSet) {
	if !f.Account.IsZero() {
		return []storeSet{l.storesOf(f.Account)}
	}
	for _, r := range l.core.Partitions {
		sets = append(sets, storeSet{partition: r, key: r.FleetStores(f.Fleet, f.State), isSorted: true})
	}
	return sets
}

func (l *Stores) storesOf(account delivery.AccountID) storeSet {
	r := l.core.PartitionOf(account)
	return storeSet{partition: r, key: r.KeyOf(core.KindAccountStores, account[:])}
}

// storeKeys lists the keys of the stores in some sets. With ErrIncomplete it lacks those of partitions
// that do not answer.
func (l *Stores) storeKeys(ctx context.Context, sets []storeSet) ([]string, error) {
	members, errs := core.PipelinedEach(ctx, l.core.Redis, "listing stores", sets, func(pipe redis.Pipeliner, set storeSet) func() []string {
		if set.isSorted {
			return pipe.ZRange(ctx, set.key, 0, -1).Val
		}
		return pipe.SMembers(ctx, set.key).Val
	})

	var keys []string
	for i, digests := range members {
		for _, digest := range digests {
			keys = append(keys, sets[i].partition.Key(core.KindStore)+digest)
		}
	}

	return keys, core.Partly(errs)
}

// StoreName identifies a store.
type StoreName struct {
	Account    delivery.AccountID
	ExternalID string
}

// StoreOf identifies the store of an order.
func StoreOf(o *delivery.Order) StoreName { return StoreName{o.Account, o.ExternalStoreID} }

// GetAll reads stores, without missing ones, and unreadable ones, which are reported. With
// ErrIncomplete those of partitions that do not answer are missing, too.
func (l *Stores) GetAll(ctx context.Context, names []StoreName) (stores map[StoreName]*delivery.Store, unreadable []error, err error) {
	keys := make([]string, len(names))
	for i, n := range names {
		keys[i] = l.core.PartitionOf(n.Account).Store(delivery.OrderDigest(n.Account, n.ExternalID))
	}

	all, unreadable, err := core.ReadRecords(ctx, l.core.Redis, "reading stores", keys, func(i int, record string) (*delivery.Store, error) {
		s, err := DecodeStore(record)
		if err != nil {
			err = fmt.Errorf("store %q of account %s: %w", names[i].ExternalID, names[i].Account, err)
		}
		l.core.NoteReadability(keys[i], err)
		return s, err
	})

	stores = make(map[StoreName]*delivery.Store, len(names))
	for i, s := range all {
		if s != nil {
			stores[names[i]] = s
		}
	}

	return stores, unreadable, err
}
