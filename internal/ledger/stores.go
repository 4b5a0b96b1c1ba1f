package ledger

import (
	"bytes"
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
	if s.State != delivery.Active {
		// A release before kept it when the store changed its fleet.
		s.ClosingDate = time.Time{}
	}
	return s, err
}

// CountAndGet counts in the stores bucket and reads the store, which may be nil, in one
// script. Errors are Consume's.
func (l Stores) CountAndGet(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Store, Quota, error) {
	r := l.partitionOf(account)
	reply, err := l.count(ctx, "read_store", account, EndpointStores, []string{
		r.windows(EndpointStores, account), r.store(delivery.OrderDigest(account, externalID))})
	if err != nil || reply.payload == "" {
		return nil, reply.quota, err
	}
	s, err := decodeStore(reply.payload)
	return s, reply.quota, err
}

// Get reads a store without counting. STORE_NOT_FOUND.
func (l Stores) Get(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Store, error) {
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
// closing timer and the notices, all in one script. ErrConflict.
func (l Stores) Write(ctx context.Context, s *delivery.Store, notices ...Notice) error {
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
	_, err := l.runWord(ctx, "write_store", refusals{"conflict": fmt.Errorf("store %q: %w", s.ExternalID, ErrConflict)}, []string{
		r.store(digest), r.keyOf(kindAccountStores, s.Account[:]), r.key(kindClosings), r.key(kindEvents)}, args...)
	if err == nil {
		s.Revision = written.Revision
	}
	return err
}

// OfFleet lists a fleet's stores in a state (0: any), in no particular order.
func (l Stores) OfFleet(ctx context.Context, fleet delivery.FleetID, state delivery.StoreState) ([]*delivery.Store, error) {
	sets, _, err := l.storeSets(ctx, &StoreFilter{Fleet: fleet})
	if err != nil {
		return nil, err
	}
	keys, err := l.storeKeys(ctx, sets)
	if err != nil {
		return nil, err
	}
	stores, err := l.readStores(ctx, keys)
	return slices.DeleteFunc(stores, func(s *delivery.Store) bool { return state != 0 && s.State != state }), err
}

func (l *core) readStores(ctx context.Context, keys []string) ([]*delivery.Store, error) {
	stores, unreadable, err := readRecords(ctx, l.rdb, "reading stores", keys, func(_ int, record string) (*delivery.Store, error) {
		return decodeStore(record)
	})
	if len(unreadable) > 0 {
		return nil, unreadable[0]
	}
	return present(stores), err
}

// DueStores lists stores of a partition whose closing day is over.
func (l Lifecycle) DueStores(ctx context.Context, partition int, now time.Time, limit int) ([]*delivery.Store, error) {
	r := l.partitions[partition]
	digests, err := l.rdb.ZRangeByScore(ctx, r.key(kindClosings), &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: int64(limit)}).Result()
	if err != nil {
		return nil, failed("reading closing days", err)
	}
	keys := make([]string, len(digests))
	for i, digest := range digests {
		keys[i] = r.key(kindStore) + digest
	}
	return l.readStores(ctx, keys)
}

// Publish appends notices to the event streams of their accounts.
func (l Webhooks) Publish(ctx context.Context, notices ...Notice) error {
	for i := range notices {
		if _, err := l.publish(ctx, &notices[i], notices[i].id(), noticeLifetime); err != nil {
			return err
		}
	}
	return nil
}

func (l *core) publish(ctx context.Context, n *Notice, eventID string, lifetime time.Duration) (string, error) {
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

// setsAtOnce is how many accounts', or partitions', ids of stores are in memory at once.
const setsAtOnce = 32

// Find lists stores by account and external id, at most limit, 1 to 1000; more: there are
// others. It reads account by account until there are enough, or a fleet's stores.
func (l Stores) Find(ctx context.Context, f StoreFilter, limit int) (stores []*delivery.Store, more bool, err error) {
	if err := checkListed(limit); err != nil {
		return nil, false, err
	}
	folded := delivery.FoldName(f.Text)
	sets, ordered, err := l.storeSets(ctx, &f)
	for page := range slices.Chunk(sets, setsAtOnce) {
		keys, err := l.storeKeys(ctx, page)
		if err != nil {
			return nil, false, err
		}
		for some := range slices.Chunk(keys, itemsAtOnce) {
			read, err := l.readStores(ctx, some)
			if err != nil {
				return nil, false, err
			}
			stores = append(stores, slices.DeleteFunc(read, func(s *delivery.Store) bool { return !f.matches(s, folded) })...)
			stores = firstStores(stores, limit+1)
		}
		// Whatever comes in a later account belongs behind what is found.
		if ordered && len(stores) > limit {
			break
		}
	}
	return stores[:min(limit, len(stores))], len(stores) > limit, err
}

func firstStores(stores []*delivery.Store, most int) []*delivery.Store {
	slices.SortFunc(stores, func(a, b *delivery.Store) int {
		return cmp.Or(bytes.Compare(a.Account[:], b.Account[:]), strings.Compare(a.ExternalID, b.ExternalID))
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
}

// storeSets hold every store that can match. ordered: they follow each other.
func (l *core) storeSets(ctx context.Context, f *StoreFilter) (sets []storeSet, ordered bool, err error) {
	if f.Account.IsZero() && !f.Fleet.IsZero() {
		for _, r := range l.partitions {
			sets = append(sets, storeSet{r, r.keyOf(kindFleetStores, f.Fleet[:])})
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

func (l *core) storeKeys(ctx context.Context, sets []storeSet) ([]string, error) {
	members, err := pipelined(ctx, l.rdb, "listing stores", sets, func(pipe redis.Pipeliner, set storeSet) func() []string {
		return pipe.SMembers(ctx, set.key).Val
	})
	var keys []string
	for i, digests := range members {
		for _, digest := range digests {
			keys = append(keys, sets[i].partition.key(kindStore)+digest)
		}
	}
	return keys, err
}

// StoreName identifies a store.
type StoreName struct {
	Account    delivery.AccountID
	ExternalID string
}

// StoreOf identifies the store of an order.
func StoreOf(o *delivery.Order) StoreName { return StoreName{o.Account, o.ExternalStoreID} }

// GetAll reads stores, without missing ones, and unreadable ones, which are reported.
func (l Stores) GetAll(ctx context.Context, names []StoreName) (stores map[StoreName]*delivery.Store, unreadable []error, err error) {
	keys := make([]string, len(names))
	for i, n := range names {
		keys[i] = l.partitionOf(n.Account).store(delivery.OrderDigest(n.Account, n.ExternalID))
	}
	all, unreadable, err := readRecords(ctx, l.rdb, "reading stores", keys, func(i int, record string) (*delivery.Store, error) {
		s, err := decodeStore(record)
		if err != nil {
			err = fmt.Errorf("store %q of account %s: %w", names[i].ExternalID, names[i].Account, err)
		}
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
