package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Notice is an event that is not an order's: its data is kept as given.
type Notice struct {
	Account    delivery.AccountID
	Type       delivery.EventType
	OccurredAt time.Time
	Data       []byte // the JSON object of the envelope's data
	// Day makes the same notice of the same day one event, however often it is
	// published; "": each is one of its own.
	Day string
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

// newNoticeID issues an event id for a notice. Unlike an order's event id it
// names nothing; the ledger keeps the body under it.
func newNoticeID() string { return "evt_" + uuid.NewString() }

func encodeNotice(n *Notice) []byte {
	b := append([]byte{recordFormat}, n.Account[:]...)
	b = appendText(b, string(n.Type))
	b = appendTime(b, n.OccurredAt)
	return append(b, n.Data...)
}

func decodeNotice(record string) (*Notice, error) {
	f := fields{rest: record}
	if f.byte() != recordFormat {
		return nil, fmt.Errorf("notice: %w", errShortRecord)
	}
	n := new(Notice)
	copy(n.Account[:], f.take(16))
	n.Type = delivery.EventType(f.text())
	n.OccurredAt = f.time()
	n.Data = []byte(f.rest)
	return n, f.err
}

// Offsets of a store record: format, state, revision (8), fleet (16); the rest
// is its fields. create_order.lua and write_store.lua read the front.

func appendStore(b []byte, s *delivery.Store, revision uint64) []byte {
	b = append(b, recordFormat, byte(s.State))
	b = binary.BigEndian.AppendUint64(b, revision)
	b = append(b, s.Fleet[:]...)
	b = append(b, s.Account[:]...)
	b = appendText(b, s.ExternalID)
	b = appendText(b, s.FleetName)
	b = appendText(b, s.TaxNumber)
	b = appendText(b, s.Name)
	b = appendText(b, s.Phone)
	b = appendText(b, s.Address)
	b = appendFloat(b, s.Point.Latitude)
	b = appendFloat(b, s.Point.Longitude)
	b = appendText(b, s.SubRegion)
	b = appendTime(b, s.ClosingDate)
	return appendTime(b, s.UpdatedAt)
}

func decodeStore(record string) (*delivery.Store, error) {
	f := fields{rest: record}
	if f.byte() != recordFormat {
		return nil, fmt.Errorf("store record: %w", errShortRecord)
	}
	s := &delivery.Store{State: delivery.StoreState(f.byte()), Revision: f.uint64()}
	copy(s.Fleet[:], f.take(16))
	copy(s.Account[:], f.take(16))
	s.ExternalID = f.text()
	s.FleetName = f.text()
	s.TaxNumber = f.text()
	s.Name = f.text()
	s.Phone = f.text()
	s.Address = f.text()
	s.Point = delivery.Point{Latitude: f.float(), Longitude: f.float()}
	s.SubRegion = f.text()
	s.ClosingDate = f.time()
	s.UpdatedAt = f.time()
	if f.err != nil {
		return nil, fmt.Errorf("store record: %w", f.err)
	}
	if s.State != delivery.Active {
		// A release before kept it when the store changed its fleet.
		s.ClosingDate = time.Time{}
	}
	return s, nil
}

// CountAndGet is the first half of PUT /stores/{externalStoreId}: it
// counts in the stores bucket and reads, in one script. The store is nil when
// there is none. Errors are Consume's.
func (l Stores) CountAndGet(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Store, Quota, error) {
	r := l.partitionOf(account)
	reply, err := l.count(ctx, l.scripts.readStore, account, []string{
		r.ring(EndpointStores, account), r.store(delivery.OrderDigest(account, externalID))})
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
		return nil, fmt.Errorf("reading a store: %w", failure(err))
	}
	return decodeStore(record)
}

// Write stores s if the stored revision still is s.Revision (0: there is
// none), raises s.Revision, keeps the fleet's lists and the closing timer, and
// publishes the notices, all in one script. ErrConflict when somebody else wrote
// in between.
func (l Stores) Write(ctx context.Context, s *delivery.Store, notices ...Notice) error {
	r := l.partitionOf(s.Account)
	digest := delivery.OrderDigest(s.Account, s.ExternalID)
	closing := int64(0)
	if !s.ClosingDate.IsZero() && s.State == delivery.Active {
		closing = millis(endOfLocalDay(s.ClosingDate))
	}
	args := []any{
		binary.BigEndian.AppendUint64(nil, s.Revision), appendStore(nil, s, s.Revision+1), digest[:],
		closing, r.prefix, noticeLifetime.Milliseconds(),
	}
	for i := range notices {
		args = append(args, newNoticeID(), encodeNotice(&notices[i]))
	}
	reply, err := l.runText(ctx, l.scripts.writeStore, []string{
		r.store(digest), r.keyOf(kindAccountStores, s.Account[:]), r.key(kindClosings), r.key(kindEvents)}, args...)
	if err != nil {
		return err
	}
	if reply == "conflict" {
		return fmt.Errorf("store %q: %w", s.ExternalID, ErrConflict)
	}
	s.Revision++
	return nil
}

// endOfLocalDay is the midnight that ends the day of t in +03:00.
func endOfLocalDay(t time.Time) time.Time {
	y, m, d := t.In(delivery.Istanbul).Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, delivery.Istanbul)
}

// OfFleet lists the stores attached to a fleet in a state (0: any) over all
// accounts, in no particular order.
func (l Stores) OfFleet(ctx context.Context, fleet delivery.FleetID, state delivery.StoreState) ([]*delivery.Store, error) {
	return l.storesIn(ctx, l.partitions, func(r partition) string { return r.fleetStores(fleet) }, state)
}

func (l *core) storesIn(ctx context.Context, partitions []partition, set func(partition) string, state delivery.StoreState) ([]*delivery.Store, error) {
	pipe := l.rdb.Pipeline()
	members := make([]*redis.StringSliceCmd, len(partitions))
	for i, r := range partitions {
		members[i] = pipe.SMembers(ctx, set(r))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("listing stores: %w", failure(err))
	}
	var stores []*delivery.Store
	for i, r := range partitions {
		var keys []string
		for _, digest := range members[i].Val() {
			keys = append(keys, r.prefix+string(rune(kindStore))+digest)
		}
		found, err := l.readStores(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if state == 0 || s.State == state {
				stores = append(stores, s)
			}
		}
	}
	return stores, nil
}

// readStores reads stores of one partition; those that are gone are left out.
func (l *core) readStores(ctx context.Context, keys []string) ([]*delivery.Store, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	records, err := l.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("reading stores: %w", failure(err))
	}
	var stores []*delivery.Store
	for _, record := range records {
		text, ok := record.(string)
		if !ok {
			continue
		}
		s, err := decodeStore(text)
		if err != nil {
			return nil, err
		}
		stores = append(stores, s)
	}
	return stores, nil
}

// DueStores lists stores of a partition whose closing day is over.
func (l Lifecycle) DueStores(ctx context.Context, partition int, now time.Time, limit int) ([]*delivery.Store, error) {
	r := l.partitions[partition]
	digests, err := l.dueMembers(ctx, r.key(kindClosings), now, limit)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(digests))
	for i, digest := range digests {
		keys[i] = r.prefix + string(rune(kindStore)) + digest
	}
	return l.readStores(ctx, keys)
}

// Publish appends notices to the event streams of their accounts.
func (l Webhooks) Publish(ctx context.Context, notices ...Notice) error {
	for i := range notices {
		if _, err := l.publish(ctx, &notices[i], notices[i].id()); err != nil {
			return err
		}
	}
	return nil
}

func (l *core) publish(ctx context.Context, n *Notice, eventID string) (string, error) {
	r := l.partitionOf(n.Account)
	_, err := l.run(ctx, l.scripts.publishNotices, []string{r.key(kindEvents)},
		r.prefix, noticeLifetime.Milliseconds(), eventID, encodeNotice(n))
	return eventID, err
}
