package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Candidate is a fleet that an order at this drop-off could belong to.
type Candidate struct {
	Terms      delivery.FleetTerms
	Covers     bool
	Suspended  bool
	NoCouriers bool
}

func (c *Candidate) takesOrders() bool { return c.Covers && !c.Suspended && !c.NoCouriers }

// flags is the byte that create_order.lua reads of a fleet that takes no orders.
func (c *Candidate) flags() byte {
	var b byte
	if c.Covers {
		b |= 1
	}

	if c.Suspended {
		b |= 2
	}
	return b
}

// Creation is one POST /orders, usable again once its answer has been sent.
type Creation struct {
	Account        delivery.AccountID
	IdempotencyKey string // empty: header absent
	Body           []byte // as received; its SHA-256 is the fingerprint
	Draft          *delivery.OrderDraft
	Candidates     []Candidate // every fleet that covers the drop-off, and every suspended one
	Now            time.Time   // becomes createdAt, in milliseconds; see Clock

	order delivery.Order
	call  scriptCall
}

// Created is an accepted order, or an earlier one that is answered again.
type Created struct {
	Order    *delivery.Order // a new one belongs to the Creation until its next use
	Replayed bool
}

// Create checks and stores an order in one round trip. Errors besides Consume's,
// in the order in which they are found: DUPLICATE_ORDER for another body under the same key,
// STORE_NOT_CONFIGURED, FLEET_SUSPENDED, DROPOFF_OUT_OF_COVERAGE, FLEET_UNAVAILABLE,
// DUPLICATE_ORDER with OrderID for a used external id.
//
// When a reply was lost, the connection's own retry carries the same nonce and gets the first
// result; a new request is recognised by its idempotency key or external id.
func (l *Orders) Create(ctx context.Context, c *Creation) (Created, Quota, error) {
	r := l.partitionOf(c.Account)
	l.prepareCreation(r, c)
	asked := l.now()
	answer, err := l.send(ctx, &c.call)
	reply, err := l.limits.counted(c.Account, EndpointOrders, asked, answer, err)
	if err != nil {
		return Created{}, reply.quota, err
	}

	created, err := creationResult(&reply, r, c)
	if reply.name == "duplicate" {
		l.nameStore(ctx, err)
	}

	if err == nil && !created.Replayed {
		l.limits.activity.reached(delivery.Searching)
	}

	return created, reply.quota, err
}

// nameStore names the store, if it can: vendors look in the wrong branch otherwise.
func (l *Orders) nameStore(ctx context.Context, refusal error) {
	if duplicate, ok := errors.AsType[*delivery.Error](refusal); ok {
		if o, err := l.Get(ctx, duplicate.OrderID); err == nil {
			duplicate.Message = fmt.Sprintf("externalOrderId is already used by an order of store %s, data.orderId names it; it must be unique across all stores of the account, for ever", o.ExternalStoreID)
		}
	}
}

// fleetUnavailableRetry is the Retry-After of FLEET_UNAVAILABLE (spec, "Errors").
const fleetUnavailableRetry = 60 * time.Second

func creationResult(reply *countingReply, r partition, c *Creation) (Created, error) {
	switch reply.name {
	case "created":
		for i := range c.Candidates {
			if string(c.Candidates[i].Terms.ID[:]) == reply.payload {
				c.order.Fleet = c.Candidates[i].Terms
			}
		}
		return Created{Order: &c.order}, nil
	case "recovered", "replayed":
		earlier, err := decodeOrder(reply.payload, r.number)
		return Created{Order: earlier, Replayed: reply.name == "replayed"}, err
	case "key_conflict":
		return Created{}, delivery.Refuse(delivery.CodeDuplicateOrder, "this idempotency key was used with a body that is not byte for byte the same; send the stored bytes again, or another key for another order")
	case "store":
		f := fields{rest: reply.payload} // empty without a store
		return Created{}, delivery.NotActive(c.order.ExternalStoreID, delivery.StoreState(f.byte()))
	case "fleet_suspended":
		return Created{}, delivery.Refuse(delivery.CodeFleetSuspended, "the store's fleet cannot accept orders at present")
	case "coverage":
		return Created{}, delivery.Refuse(delivery.CodeDropoffOutOfCoverage, "the drop-off is outside the coverage area of the store's fleet")
	case "no_couriers":
		return Created{}, &delivery.Error{Code: delivery.CodeFleetUnavailable, RetryAfter: fleetUnavailableRetry,
			Message: "no courier is available in the area right now"}
	case "duplicate":
		f := fields{rest: reply.payload}
		return Created{}, &delivery.Error{Code: delivery.CodeDuplicateOrder,
			Message: "externalOrderId is already used, data.orderId names the order; it must be unique across all stores of the account, for ever",
			OrderID: delivery.MakeOrderID(r.number, f.uint16(), c.order.ID.Digest())}
	}

	return Created{}, fmt.Errorf("script create_order answered %q", reply.name)
}

func (l *Orders) prepareCreation(r partition, c *Creation) {
	fingerprint := c.fingerprint()
	digest := delivery.OrderDigest(c.Account, c.Draft.ExternalOrderID)
	o := &c.order
	*o = delivery.Order{
		ID:         delivery.MakeOrderID(r.number, delivery.DayOf(c.Now), digest),
		Account:    c.Account,
		OrderDraft: *c.Draft,
		CreatedAt:  c.Now.UTC().Truncate(time.Millisecond),
		Status:     delivery.Searching,
	}

	// The stored form has milliseconds; the first answer must be the replay's.
	o.Version = delivery.FirstVersion(o.CreatedAt)
	o.ReadyAt, o.OrderedAt = o.ReadyAt.Truncate(time.Millisecond), o.OrderedAt.Truncate(time.Millisecond)
	keyIsExternal := c.IdempotencyKey != "" && c.IdempotencyKey == o.ExternalOrderID

	call := &c.call
	call.begin(l.library.scripts["create_order"], r)
	windows := windowsSuffix(EndpointOrders, c.Account)
	store := delivery.OrderDigest(c.Account, o.ExternalStoreID)
	call.key(kindWindows, windows[:])
	call.key(kindOrder, digest[:])
	call.key(kindStore, store[:])
	call.key(kindRetired, nil)
	call.key(kindEvents, nil)
	if c.IdempotencyKey != "" {
		key := delivery.OrderDigest(c.Account, c.IdempotencyKey)
		call.key(kindIdempotency, key[:])
		if !keyIsExternal {
			call.key(kindOrder, key[:])
		}
	}

	call.value(appendOrderEvent(call.buf, o.ID, o.Version, delivery.StatusReached))
	nonce := rand.Uint64()
	flags := byte(0)
	if keyIsExternal {
		flags = flagKeyIsExternal
	}

	call.value(appendCreationHead(call.buf, flags, nonce, fingerprint, c.Candidates))
	for i := range c.Candidates {
		if c.Candidates[i].takesOrders() {
			call.value(appendOrderRecord(call.buf, o, &c.Candidates[i].Terms, flags, nonce, fingerprint))
		}
	}
}

// appendCreationHead is what is compared, and the fleets that take no orders.
func appendCreationHead(b []byte, flags byte, nonce uint64, fingerprint [16]byte, candidates []Candidate) []byte {
	b = append(b, flags)
	b = binary.BigEndian.AppendUint64(b, nonce)
	b = append(b, fingerprint[:]...)
	for i := range candidates {
		if !candidates[i].takesOrders() {
			b = append(b, candidates[i].flags())
			b = append(b, candidates[i].Terms.ID[:]...)
		}
	}

	return b
}

func (c *Creation) fingerprint() [16]byte {
	sum := sha256.Sum256(c.Body)
	return [16]byte(sum[:16])
}

// Replay counts a creation whose body broke a rule, and finds an earlier success under
// its key. Draft and Candidates are not used. DUPLICATE_ORDER for another body; invalid
// when there was no success; Consume's.
func (l *Orders) Replay(ctx context.Context, c *Creation, invalid error) (Created, Quota, error) {
	if c.IdempotencyKey == "" {
		quota, err := l.limits.Consume(ctx, c.Account, EndpointOrders)
		return Created{}, quota, cmp.Or(err, invalid)
	}

	r, key, fingerprint := l.partitionOf(c.Account), delivery.OrderDigest(c.Account, c.IdempotencyKey), c.fingerprint()
	reply, err := l.limits.count(ctx, "check_body", c.Account, EndpointOrders,
		[]string{r.windows(EndpointOrders, c.Account), r.keyOf(kindIdempotency, key[:]), r.order(key)},
		fingerprint[:])
	if err != nil || reply.name == "counted" {
		return Created{}, reply.quota, cmp.Or(err, invalid)
	}

	created, err := creationResult(&reply, r, c)

	return created, reply.quota, err
}

// Poll is GET /orders/{orderId}: it counts and reads (spec, "Limits", rule 1). Besides
// Consume's: ORDER_NOT_FOUND, also for another account's order; uncounted RATE_LIMITED,
// with the order's limit as the Quota, within delivery.PollInterval of the last read.
func (l *Orders) Poll(ctx context.Context, account delivery.AccountID, id delivery.OrderID) (*delivery.Order, Quota, error) {
	r := l.partitionOf(account)
	asked := l.now()
	reply, err := l.limits.count(ctx, "poll_order", account, EndpointOrderStatus,
		[]string{r.windows(EndpointOrderStatus, account), r.order(id.Digest())},
		account[:], dayOf(id), delivery.PollInterval.Microseconds())
	if err != nil {
		return nil, reply.quota, err
	}

	switch reply.name {
	case "found":
		if id.Partition() != r.number {
			return nil, reply.quota, orderNotFound()
		}
		o, err := decodeOrder(reply.payload, r.number)
		return o, reply.quota, err
	case "polled_too_soon":
		refusal := &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: reply.wait,
			Message: "one order may be read once per 10 seconds; status changes are delivered by webhook, register one instead of polling"}
		l.limits.refused.keep(refusedRequest{account, EndpointOrderStatus, id}, refusal, reply.quota, asked, l.now())
		return nil, reply.quota, refusal
	case "not_found":
		return nil, reply.quota, orderNotFound()
	}

	return nil, reply.quota, fmt.Errorf("script poll_order answered %q", reply.name)
}

func orderNotFound() error {
	return delivery.Refuse(delivery.CodeOrderNotFound, "no order has this orderId")
}

// Cancel is POST /orders/{orderId}/cancel: it counts and cancels, in one script. A second
// one returns the order. Besides Consume's: ORDER_NOT_FOUND; ORDER_NOT_CANCELLABLE with
// Status, the reported one if a pickup is not committed yet.
func (l *Orders) Cancel(ctx context.Context, account delivery.AccountID, id delivery.OrderID, reason delivery.CancelReason, note string, now time.Time) (*delivery.Order, Quota, error) {
	r := l.partitionOf(account)
	if id.Partition() != r.number {
		quota, err := l.limits.Consume(ctx, account, EndpointCancel)
		if err == nil {
			err = orderNotFound()
		}
		return nil, quota, err
	}

	change := delivery.Change{Status: delivery.Cancelled, At: now, Cancel: reason, Note: note}
	reply, err := l.cancel(ctx, r, account, id, &change, rand.Uint64())
	if err != nil {
		return nil, reply.quota, err
	}

	if reply.name == "not_found" {
		return nil, reply.quota, orderNotFound()
	}

	o, err := decodeOrder(reply.payload, r.number)
	if err != nil {
		return nil, reply.quota, err
	}

	if reply.name == "too_late" {
		status := o.Status
		if status.Cancellable() {
			status = o.Reported
		}
		return nil, reply.quota, &delivery.Error{Code: delivery.CodeOrderNotCancellable, Status: status,
			Message: "the order is " + status.String() + "; only an order before pickup can be cancelled"}
	}

	if reply.name == "cancelled" {
		l.limits.activity.reached(delivery.Cancelled)
	}

	return o, reply.quota, nil
}

// cancel calls the script. The nonce identifies a repetition of the call.
func (l *Orders) cancel(ctx context.Context, r partition, account delivery.AccountID, id delivery.OrderID, change *delivery.Change, nonce uint64) (countingReply, error) {
	return l.limits.count(ctx, "cancel_order", account, EndpointCancel,
		[]string{r.windows(EndpointCancel, account), r.order(id.Digest())},
		account[:], dayOf(id), orderMember(id), appendChange(nil, change),
		change.At.UnixMilli(), r.prefix, int(delivery.PickingUp), int(delivery.PickedUp),
		binary.BigEndian.AppendUint64(nil, nonce))
}

// Get reads one order without counting. ORDER_NOT_FOUND.
func (l *Orders) Get(ctx context.Context, id delivery.OrderID) (*delivery.Order, error) {
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
func (l *Orders) GetAll(ctx context.Context, ids []delivery.OrderID) ([]*delivery.Order, error) {
	orders, unreadable, err := l.GetReadable(ctx, ids)
	for _, e := range unreadable {
		err = errors.Join(err, e)
	}
	return orders, err
}

// GetReadable is GetAll with unreadable records as nil, and why in unreadable. With ErrIncomplete an
// order is also nil when its partition does not answer, so nil then says nothing of whether it exists.
func (l *Orders) GetReadable(ctx context.Context, ids []delivery.OrderID) (orders []*delivery.Order, unreadable map[delivery.OrderID]error, err error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		if p, ok := l.partitionOfOrder(id); ok {
			keys[i] = p.order(id.Digest())
		}
	}

	unreadable = make(map[delivery.OrderID]error)
	orders, _, err = readRecords(ctx, l.rdb, "reading orders", keys, func(i int, record string) (*delivery.Order, error) {
		o, err := decodeOrder(record, ids[i].Partition())
		if err != nil {
			unreadable[ids[i]] = fmt.Errorf("order %s: %w", ids[i], err)
		}

		if err != nil || o.ID != ids[i] {
			return nil, nil
		}
		return o, nil
	})

	return orders, unreadable, err
}

// Find finds the order of an account by its external id; nil where Redis has none, or no more.
func (l *Orders) Find(ctx context.Context, account delivery.AccountID, externalID string) (*delivery.Order, error) {
	if externalID == "" {
		return nil, nil
	}

	r := l.partitionOf(account)
	record, err := l.rdb.Get(ctx, r.order(delivery.OrderDigest(account, externalID))).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}

	if err != nil {
		return nil, failed("looking for an order", err)
	}

	o, err := decodeOrder(record, r.number)
	if err != nil {
		return nil, fmt.Errorf("order %q of account %s: %w", externalID, account, err)
	}

	return o, nil
}

// FindAmong finds the orders of several accounts that have one external id. Those that cannot be
// read are left out and reported. With ErrIncomplete those of partitions that do not answer are
// missing, too.
func (l *Orders) FindAmong(ctx context.Context, accounts []delivery.AccountID, externalID string) (orders []*delivery.Order, unreadable []error, err error) {
	if externalID == "" {
		return nil, nil, nil
	}

	keys := make([]string, len(accounts))
	for i, account := range accounts {
		keys[i] = l.partitionOf(account).order(delivery.OrderDigest(account, externalID))
	}

	found, unreadable, err := readRecords(ctx, l.rdb, "looking for orders", keys, func(i int, record string) (*delivery.Order, error) {
		o, err := decodeOrder(record, l.partitionOf(accounts[i]).number)
		if err != nil {
			return nil, fmt.Errorf("order %q of account %s: %w", externalID, accounts[i], err)
		}
		return o, nil
	})

	return present(found), unreadable, err
}

// Each calls do with every order in Redis, up to 500 at a time, unordered, never twice at
// once; what is there all the time comes at least once. Unreadable records are joined to
// the error; an error of do ends it.
func (l *Orders) Each(ctx context.Context, do func([]*delivery.Order) error) error {
	var mu sync.Mutex
	var unreadable []error
	err := l.scan(ctx, l.global.prefix[:2]+"*}"+string(rune(kindOrder))+"*", itemsAtOnce, func(ctx context.Context, one *redis.Client, keys []string) error {
		keys = slices.DeleteFunc(keys, func(key string) bool { return l.orderKeyPartition(key) < 0 })
		orders, bad, err := readRecords(ctx, one, "reading orders", keys, func(i int, record string) (*delivery.Order, error) {
			return decodeOrder(record, l.orderKeyPartition(keys[i]))
		})
		mu.Lock()
		defer mu.Unlock()
		unreadable = append(unreadable, bad...)
		if orders = present(orders); err == nil && len(orders) > 0 {
			err = do(orders)
		}

		return err
	})

	return errors.Join(append(unreadable, err)...)
}

// orderKeyPartition is the partition of an order's key (prefix, kind, digest), or
// -1. Binary suffixes of other keys may look like anything.
func (l *Orders) orderKeyPartition(key string) int {
	end := strings.IndexByte(key, '}') + 1
	if len(key) != end+1+delivery.OrderDigestSize || key[end] != kindOrder {
		return -1
	}
	return slices.IndexFunc(l.partitions, func(p partition) bool { return p.prefix == key[:end] })
}
