package ledger

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

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Notice is an event that is not an order's.
type Notice struct {
	Account    delivery.AccountID
	Type       delivery.EventType
	OccurredAt time.Time
	Data       []byte // the JSON object of the envelope's data
	Day        string // makes the same notice of that day one event; empty: each is new
}

// StoreNotice is an event about a store.
func StoreNotice(s *delivery.Store, event delivery.EventType, at time.Time, data []byte) Notice {
	return Notice{Account: s.Account, Type: event, OccurredAt: at, Data: data}
}

// noticeLifetime covers the webhook's 24 hours and a replay of them.
const noticeLifetime = 72 * time.Hour

// id is the event id of a notice: of its content when it has a day.
func (n *Notice) id() string {
	if n.Day == "" {
		return newNoticeID()
	}
	content := slices.Concat(n.Account[:], []byte(string(n.Type)+n.Day), n.Data)
	return "evt_" + uuid.NewSHA1(uuid.Nil, content).String()
}

func newNoticeID() string { return "evt_" + uuid.NewString() }

func (c *codec) notice(n *Notice) {
	c.all(n.Account[:], (*string)(&n.Type), &n.OccurredAt)
	if c.writing {
		c.out = append(c.out, n.Data...)
	} else {
		n.Data = []byte(c.rest)
	}
}

func encodeNotice(n *Notice) []byte { return encode(func(c *codec) { c.notice(n) }) }

func decodeNotice(record string) (*Notice, error) {
	n := new(Notice)
	return n, decode("notice", record, func(c *codec) { c.notice(n) })
}

// store is a store's record; scripts read format, state, revision (8 bytes), fleet (16).
func (c *codec) store(s *delivery.Store) {
	c.all((*byte)(&s.State), &s.Revision, s.Fleet[:], s.Account[:], &s.ExternalID, &s.FleetName, &s.TaxNumber, &s.Name, &s.Phone,
		&s.Address, &s.Point.Latitude, &s.Point.Longitude, &s.SubRegion, &s.ClosingDate, &s.UpdatedAt)
}

func encodeStore(s *delivery.Store) []byte { return encode(func(c *codec) { c.store(s) }) }

func decodeStore(record string) (*delivery.Store, error) {
	s := new(delivery.Store)
	err := decode("store record", record, func(c *codec) { c.store(s) })
	return s, err
}

// CountAndGet counts in the stores bucket and reads the store, which may be nil, in one
// script. Errors are Consume's.
func (l *Stores) CountAndGet(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Store, Quota, error) {
	r := l.partitionOf(account)
	reply, err := l.limits.count(ctx, "read_store", account, EndpointStores, []string{
		r.windows(EndpointStores, account), r.store(delivery.OrderDigest(account, externalID))})
	if err != nil || reply.payload == "" {
		return nil, reply.quota, err
	}

	s, err := decodeStore(reply.payload)
	return s, reply.quota, err
}

// Get reads a store without counting. STORE_NOT_FOUND.
func (l *Stores) Get(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Store, error) {
	r := l.partitionOf(account)
	record, err := l.rdb.Get(ctx, r.store(delivery.OrderDigest(account, externalID))).Result()
	if errors.Is(err, redis.Nil) {
		return nil, delivery.Refuse(delivery.CodeStoreNotFound, "the account has no store %q", externalID)
	}

	if err != nil {
		return nil, failed("reading a store", err)
	}
	return decodeStore(record)
}

// Write stores s, if it still has s.Revision (0: none), with the fleet's lists, the
// closing timer and the notices, all in one script. ErrConflict; TOO_MANY_STORES for a
// new store, or one more that waits for its fleet's answer, beyond the account's limits.
func (l *Stores) Write(ctx context.Context, s *delivery.Store, notices ...Notice) error {
	r := l.partitionOf(s.Account)
	digest := delivery.OrderDigest(s.Account, s.ExternalID)
	written := *s
	written.Revision++
	args := []any{
		binary.BigEndian.AppendUint64(nil, s.Revision), encodeStore(&written), digest[:],
		millis(s.ClosesAt()), r.prefix, noticeLifetime.Milliseconds(),
	}

	for i := range notices {
		args = append(args, newNoticeID(), encodeNotice(&notices[i]))
	}

	reply, err := l.runText(ctx, "write_store", []string{
		r.store(digest), r.keyOf(kindAccountStores, s.Account[:]), r.key(kindClosings), r.key(kindEvents),
		r.account(s.Account), r.keyOf(kindPendingStores, s.Account[:]),
	}, args...)
	if err != nil {
		return err
	}

	name, limit, _ := strings.Cut(reply, "\n")
	switch name {
	case "conflict":
		return fmt.Errorf("store %q: %w", s.ExternalID, ErrConflict)
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
		for _, p := range l.partitions {
			lists = append(lists, fleetList{fleet: i, key: p.fleetStores(fleet, state)})
		}
	}

	sizes, errs := pipelinedEach(ctx, l.rdb, "counting stores", lists, func(pipe redis.Pipeliner, list fleetList) func() int64 {
		return pipe.ZCard(ctx, list.key).Val
	})
	err := partly(errs)
	if err != nil && !errors.Is(err, ErrIncomplete) {
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
	var missing missingParts
	for partitions := range slices.Chunk(l.partitions[after.partition:], partitionsCounted) {
		sizes, errs := pipelinedEach(ctx, l.rdb, "counting stores", partitions, func(pipe redis.Pipeliner, p partition) func() int64 {
			return pipe.ZCard(ctx, p.fleetStores(fleet, state)).Val
		})

		for len(partitions) > 0 {
			// One more than the page takes tells that there is a following page.
			wanted := limit + 1 - len(page.keys)
			n := setsHolding(sizes, int64(wanted))
			missing.note(errs[:n])
			listed := make([]storeRange, n)
			for i := range listed {
				listed[i] = storeRange{partition: partitions[i], isEmpty: sizes[i] == 0}
				if partitions[i].number == after.partition {
					listed[i].after = after.digest
				}
			}

			members, problems := l.storesIn(ctx, listed, fleet, state, wanted)

			for i, digests := range members {
				missing.add(problems[i])
				for _, digest := range digests {
					if len(page.keys) == limit {
						page.Next = last.String()
						return page, l.errOfRest(&missing, cursor != "")
					}
					last = storeCursor{partition: partitions[i].number, digest: digest}
					page.keys = append(page.keys, partitions[i].key(kindStore)+digest)
				}
			}

			partitions, sizes, errs = partitions[n:], sizes[n:], errs[n:]
		}
	}

	err = l.errOfRest(&missing, cursor != "")
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return StorePage{}, err
	}

	return page, err
}

// setsHolding returns how many of the first sets, at least one, have that many entries
// together; all when there are fewer.
func setsHolding(sizes []int64, wanted int64) int {
	for i, size := range sizes {
		wanted -= size
		if wanted <= 0 {
			return i + 1
		}
	}
	return len(sizes)
}

// storeRange is what follows a digest in a partition's list of a fleet's stores.
type storeRange struct {
	partition partition
	after     string // empty: the whole list
	isEmpty   bool   // nothing has to be read
}

func (l *Stores) storesIn(ctx context.Context, ranges []storeRange, fleet delivery.FleetID, state delivery.StoreState, limit int) (found [][]string, errs []error) {
	return pipelinedEach(ctx, l.rdb, "listing stores", ranges, func(pipe redis.Pipeliner, r storeRange) func() []string {
		if r.isEmpty {
			return nil
		}

		start := "-"
		if r.after != "" {
			start = "(" + r.after
		}

		return pipe.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: r.partition.fleetStores(fleet, state), Start: start, Stop: "+", ByLex: true, Count: int64(limit),
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
	exists := c.partition >= 0 && c.partition < len(l.partitions) && len(digest) == len(delivery.Digest{})
	if err != nil || !exists || c.String() != strings.ToLower(text) {
		return storeCursor{}, invalidCursor()
	}

	return c, nil
}

// readStores reads the stores under keys, without missing ones. One whose record cannot be read is
// left out, counted and logged, so that it hurts no other store. With ErrIncomplete the stores of
// partitions that do not answer are missing, too.
func (l *Stores) readStores(ctx context.Context, keys []string) (stores []*delivery.Store, unreadable int, err error) {
	found, problems, err := readRecords(ctx, l.rdb, "reading stores", keys, func(i int, record string) (*delivery.Store, error) {
		s, err := decodeStore(record)
		l.noteReadability(keys[i], err)
		return s, err
	})
	return present(found), len(problems), err
}

// WithDue lists those of the partitions in which the closing day of some store is over. After
// an error it has those that could be read. Replicas do not confirm the answer, after which
// Due reads the stores themselves.
func (l *Stores) WithDue(ctx context.Context, partitions []int, now time.Time) (due []int, err error) {
	members, err := l.due(ctx, kindClosings, partitions, now, 1)
	for i, p := range partitions {
		if len(members[i]) > 0 {
			due = append(due, p)
		}
	}
	return due, failed("reading closing days", err)
}

// Due lists stores of a partition whose closing day is over, about limit of them. It passes over
// those whose records cannot be read, however many there are.
func (l *Stores) Due(ctx context.Context, partition int, now time.Time, limit int) ([]*delivery.Store, error) {
	r := l.partitions[partition]
	var due []*delivery.Store
	page := redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: int64(limit)}
	for len(due) < limit {
		digests, err := l.rdb.ZRangeByScore(ctx, r.key(kindClosings), &page).Result()
		if err != nil {
			return nil, failed("reading closing days", err)
		}

		keys := make([]string, len(digests))
		for i, digest := range digests {
			keys[i] = r.key(kindStore) + digest
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

// Publish appends notices to the event streams of their accounts.
func (l *Webhooks) Publish(ctx context.Context, notices ...Notice) error {
	for i := range notices {
		if _, err := l.publish(ctx, &notices[i], notices[i].id(), noticeLifetime); err != nil {
			return err
		}
	}
	return nil
}

func (l *Webhooks) publish(ctx context.Context, n *Notice, eventID string, lifetime time.Duration) (string, error) {
	r := l.partitionOf(n.Account)
	_, err := l.run(ctx, "publish_notices", []string{r.key(kindEvents)},
		r.prefix, lifetime.Milliseconds(), eventID, encodeNotice(n))
	return eventID, err
}

// StoreFilter selects stores. A zero field matches any.
type StoreFilter struct {
	Account delivery.AccountID
	Fleet   delivery.FleetID
	State   delivery.StoreState
	Text    string // part of the external id or the name, in any case
}

const (
	// partitionsCounted is how many partitions are asked for the sizes of their lists in one
	// round trip.
	partitionsCounted = 256

	// setsAtOnce is how many accounts', or partitions', sets of stores are looked at together.
	setsAtOnce = 32
	// accountsSearched is among how many accounts a store is looked for when no account and no
	// fleet is named.
	accountsSearched = 5000
	// storesSearched is how many records a search reads.
	storesSearched = 20_000
)

// Find lists stores by account and external id, at most limit, 1 to 1000; more: there are others, or
// may be: it reads storesSearched stores at most, and without an account or a fleet it looks at the
// stores of accountsSearched accounts only. Stores whose records cannot be read are left out. With
// ErrIncomplete it has looked only where the servers answer.
func (l *Stores) Find(ctx context.Context, f StoreFilter, limit int) (stores []*delivery.Store, more bool, err error) {
	if err := checkListed(limit); err != nil {
		return nil, false, err
	}

	search := storeSearch{filter: &f, folded: delivery.FoldName(f.Text), limit: limit, unread: storesSearched}
	if f.Account.IsZero() && f.Fleet.IsZero() {
		err = l.searchAccounts(ctx, &search)
	} else {
		err = l.search(ctx, &search, l.storeSets(&f))
	}

	err = cmp.Or(err, search.missing.err())
	if err != nil && !errors.Is(err, ErrIncomplete) {
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

	missing missingParts // partitions that do not answer; their stores are not found
}

func (s *storeSearch) isFull() bool { return len(s.found) > s.limit }

// searchAccounts reads the stores of one account after the other until there are enough. Accounts
// without a store cost nothing.
func (l *Stores) searchAccounts(ctx context.Context, s *storeSearch) error {
	var last delivery.AccountID
	for searched := 0; searched < accountsSearched; {
		accounts, more, err := l.accountsWithStores(ctx, last, itemsAtOnce)
		if err := s.take(err); err != nil {
			return err
		}

		for some := range slices.Chunk(accounts, setsAtOnce) {
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

// accountsWithStores lists the accounts after one that have a store, at most limit. Their entries all
// have the same score, so Redis orders them by id.
// With ErrIncomplete those of partitions that do not answer are left out.
func (l *Stores) accountsWithStores(ctx context.Context, after delivery.AccountID, limit int) (accounts []delivery.AccountID, more bool, err error) {
	start := "-"
	if !after.IsZero() {
		start = "(" + string(after[:])
	}

	read, errs := pipelinedEach(ctx, l.rdb, "listing accounts with stores", l.partitions, func(pipe redis.Pipeliner, r partition) func() []string {
		return pipe.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: r.list(listWithStores), Start: start, Stop: "+", ByLex: true, Count: int64(limit) + 1,
		}).Val
	})

	for _, members := range read {
		for _, member := range members {
			if len(member) == len(delivery.AccountID{}) {
				accounts = append(accounts, delivery.AccountID([]byte(member)))
			}
		}
	}

	slices.SortFunc(accounts, compareAccounts)
	if len(accounts) > limit {
		return accounts[:limit], true, partly(errs)
	}

	return accounts, false, partly(errs)
}

// search reads the stores of the sets. It has the ids of at most storesSearched stores in memory, and
// those of one set.
func (l *Stores) search(ctx context.Context, s *storeSearch, sets []storeSet) error {
	for some := range slices.Chunk(sets, setsAtOnce) {
		some, sizes := l.sizedSets(ctx, s, some)

		for len(some) > 0 {
			if s.unread == 0 {
				s.isCut = true
				return nil
			}

			n := setsHolding(sizes, int64(s.unread))
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
	for some := range slices.Chunk(keys, itemsAtOnce) {
		stores, _, err := l.readStores(ctx, some)
		if err := s.take(err); err != nil {
			return err
		}

		for _, store := range stores {
			if s.filter.matches(store, s.folded) {
				s.found = append(s.found, store)
			}
		}

		s.found = firstStores(s.found, s.limit+1)
	}

	return nil
}

// take returns err, but nil for ErrIncomplete, of which the search takes note.
func (s *storeSearch) take(err error) error {
	if errors.Is(err, ErrIncomplete) {
		s.missing.add(err)
		return nil
	}
	return err
}

// sizedSets returns the sets that can be read, with their sizes. The search takes note of the others.
func (l *Stores) sizedSets(ctx context.Context, s *storeSearch, sets []storeSet) (readable []storeSet, sizes []int64) {
	all, errs := pipelinedEach(ctx, l.rdb, "counting stores", sets, func(pipe redis.Pipeliner, set storeSet) func() int64 {
		if set.isSorted {
			return pipe.ZCard(ctx, set.key).Val
		}
		return pipe.SCard(ctx, set.key).Val
	})

	s.missing.note(errs)

	for i, set := range sets {
		if errs[i] == nil {
			readable = append(readable, set)
			sizes = append(sizes, all[i])
		}
	}

	return readable, sizes
}

// firstStores keeps the first stores by account and external id.
func firstStores(stores []*delivery.Store, most int) []*delivery.Store {
	slices.SortFunc(stores, func(a, b *delivery.Store) int {
		return cmp.Or(compareAccounts(a.Account, b.Account), strings.Compare(a.ExternalID, b.ExternalID))
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
	partition partition
	key       string
	isSorted  bool // a zset
}

// storeSets hold every store of the filter's account or fleet.
func (l *Stores) storeSets(f *StoreFilter) (sets []storeSet) {
	if !f.Account.IsZero() {
		return []storeSet{l.storesOf(f.Account)}
	}
	for _, r := range l.partitions {
		sets = append(sets, storeSet{partition: r, key: r.fleetStores(f.Fleet, f.State), isSorted: true})
	}
	return sets
}

func (l *Stores) storesOf(account delivery.AccountID) storeSet {
	r := l.partitionOf(account)
	return storeSet{partition: r, key: r.keyOf(kindAccountStores, account[:])}
}

// storeKeys lists the keys of the stores in some sets. With ErrIncomplete it lacks those of partitions
// that do not answer.
func (l *Stores) storeKeys(ctx context.Context, sets []storeSet) ([]string, error) {
	members, errs := pipelinedEach(ctx, l.rdb, "listing stores", sets, func(pipe redis.Pipeliner, set storeSet) func() []string {
		if set.isSorted {
			return pipe.ZRange(ctx, set.key, 0, -1).Val
		}
		return pipe.SMembers(ctx, set.key).Val
	})

	var keys []string
	for i, digests := range members {
		for _, digest := range digests {
			keys = append(keys, sets[i].partition.key(kindStore)+digest)
		}
	}

	return keys, partly(errs)
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
		keys[i] = l.partitionOf(n.Account).store(delivery.OrderDigest(n.Account, n.ExternalID))
	}

	all, unreadable, err := readRecords(ctx, l.rdb, "reading stores", keys, func(i int, record string) (*delivery.Store, error) {
		s, err := decodeStore(record)
		if err != nil {
			err = fmt.Errorf("store %q of account %s: %w", names[i].ExternalID, names[i].Account, err)
		}
		l.noteReadability(keys[i], err)
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
