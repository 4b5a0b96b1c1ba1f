package orders

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
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

// Orders creates, reads and cancels orders, and takes couriers' reports.
type Orders struct {
	core   *core.Client
	limits *limits.Limits
}

// NewOrders returns the calls of orders.
func NewOrders(c *core.Client, bounds *limits.Limits) *Orders {
	return &Orders{core: c, limits: bounds}
}

// Creation is one POST /orders, usable again once its answer has been sent.
type Creation struct {
	Account        delivery.AccountID
	IdempotencyKey string // empty: header absent
	Body           []byte // as received; its SHA-256 is the fingerprint
	Draft          *delivery.OrderDraft
	Candidates     []accounts.Candidate // every fleet that covers the drop-off, and every suspended one
	Now            time.Time            // becomes createdAt, in milliseconds; see Clock

	Order delivery.Order
	Call  core.ScriptCall
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
func (l *Orders) Create(ctx context.Context, c *Creation) (Created, limits.Quota, error) {
	r := l.core.PartitionOf(c.Account)
	l.PrepareCreation(r, c)
	asked := l.core.LocalNow()
	answer, err := l.core.Send(ctx, &c.Call)
	reply, err := l.limits.Counted(c.Account, limits.EndpointOrders, asked, answer, err)
	if err != nil {
		return Created{}, reply.Quota, err
	}

	created, err := creationResult(&reply, r, c)
	if reply.Name == "duplicate" {
		l.nameStore(ctx, err)
	}

	if err == nil && !created.Replayed {
		l.limits.Reached(delivery.Searching)
	}

	return created, reply.Quota, err
}

// nameStore names the store, if it can: vendors look in the wrong branch otherwise.
func (l *Orders) nameStore(ctx context.Context, refusal error) {
	if duplicate, ok := errors.AsType[*delivery.Error](refusal); ok {
		if o, err := l.Get(ctx, duplicate.OrderID); err == nil {
			duplicate.Message = fmt.Sprintf("externalOrderId is already used by an order of store %s, data.orderId names it; it must be unique across all stores of the account, for ever", o.ExternalStoreID)
		}
	}
}

// FleetUnavailableRetry is the Retry-After of FLEET_UNAVAILABLE (spec, "Errors").
const FleetUnavailableRetry = 60 * time.Second

func creationResult(reply *limits.CountingReply, r core.Partition, c *Creation) (Created, error) {
	switch reply.Name {
	case "created":
		for i := range c.Candidates {
			if string(c.Candidates[i].Terms.ID[:]) == reply.Payload {
				c.Order.Fleet = c.Candidates[i].Terms
			}
		}
		return Created{Order: &c.Order}, nil
	case "recovered", "replayed":
		earlier, err := core.DecodeOrder(reply.Payload, r.Number)
		return Created{Order: earlier, Replayed: reply.Name == "replayed"}, err
	case "key_conflict":
		return Created{}, delivery.Refuse(delivery.CodeDuplicateOrder, "this idempotency key was used with a body that is not byte for byte the same; send the stored bytes again, or another key for another order")
	case "store":
		f := core.Fields{Rest: reply.Payload} // empty without a store
		return Created{}, delivery.NotActive(c.Order.ExternalStoreID, delivery.StoreState(f.Byte()))
	case "fleet_suspended":
		return Created{}, delivery.Refuse(delivery.CodeFleetSuspended, "the store's fleet cannot accept orders at present")
	case "coverage":
		return Created{}, delivery.Refuse(delivery.CodeDropoffOutOfCoverage, "the drop-off is outside the coverage area of the store's fleet")
	case "no_couriers":
		return Created{}, &delivery.Error{Code: delivery.CodeFleetUnavailable, RetryAfter: FleetUnavailableRetry,
			Message: "no courier is available in the area right now"}
	case "duplicate":
		f := core.Fields{Rest: reply.Payload}
		return Created{}, &delivery.Error{Code: delivery.CodeDuplicateOrder,
			Message: "externalOrderId is already used, data.orderId names the order; it must be unique across all stores of the account, for ever",
			OrderID: delivery.MakeOrderID(r.Number, f.Uint16(), c.Order.ID.Digest())}
	}

	return Created{}, fmt.Errorf("script create_order answered %q", reply.Name)
}

func (l *Orders) PrepareCreation(r core.Partition, c *Creation) {
	fingerprint := c.fingerprint()
	digest := delivery.OrderDigest(c.Account, c.Draft.ExternalOrderID)
	o := &c.Order
	*o = delivery.Order{
		ID:         delivery.MakeOrderID(r.Number, delivery.DayOf(c.Now), digest),
		Account:    c.Account,
		OrderDraft: *c.Draft,
		CreatedAt:  c.Now.UTC().Truncate(time.Millisecond),
		Status:     delivery.Searching,
	}

	// The stored form has milliseconds; the first answer must be the replay's.
	o.Version = delivery.FirstVersion(o.CreatedAt)
	o.ReadyAt, o.OrderedAt = o.ReadyAt.Truncate(time.Millisecond), o.OrderedAt.Truncate(time.Millisecond)
	keyIsExternal := c.IdempotencyKey != "" && c.IdempotencyKey == o.ExternalOrderID

	call := &c.Call
	call.Begin(l.core.Library.Scripts["create_order"], r)
	windows := limits.WindowsSuffix(limits.EndpointOrders, c.Account)
	store := delivery.OrderDigest(c.Account, o.ExternalStoreID)
	call.Key(core.KindWindows, windows[:])
	call.Key(core.KindOrder, digest[:])
	call.Key(core.KindStore, store[:])
	call.Key(core.KindRetired, nil)
	call.Key(core.KindEvents, nil)
	if c.IdempotencyKey != "" {
		key := delivery.OrderDigest(c.Account, c.IdempotencyKey)
		call.Key(core.KindIdempotency, key[:])
		if !keyIsExternal {
			call.Key(core.KindOrder, key[:])
		}
	}

	call.Value(core.AppendOrderEvent(call.Buf, o.ID, o.Version, delivery.StatusReached))
	nonce := rand.Uint64()
	flags := byte(0)
	if keyIsExternal {
		flags = core.FlagKeyIsExternal
	}

	call.Value(appendCreationHead(call.Buf, flags, nonce, fingerprint, c.Candidates))
	for i := range c.Candidates {
		if c.Candidates[i].TakesOrders() {
			call.Value(core.AppendOrderRecord(call.Buf, o, &c.Candidates[i].Terms, flags, nonce, fingerprint))
		}
	}
}

// appendCreationHead is what is compared, and the fleets that take no orders.
func appendCreationHead(b []byte, flags byte, nonce uint64, fingerprint [16]byte, candidates []accounts.Candidate) []byte {
	b = append(b, flags)
	b = binary.BigEndian.AppendUint64(b, nonce)
	b = append(b, fingerprint[:]...)
	for i := range candidates {
		if !candidates[i].TakesOrders() {
			b = append(b, candidates[i].Flags())
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
func (l *Orders) Replay(ctx context.Context, c *Creation, invalid error) (Created, limits.Quota, error) {
	if c.IdempotencyKey == "" {
		quota, err := l.limits.Consume(ctx, c.Account, limits.EndpointOrders)
		return Created{}, quota, cmp.Or(err, invalid)
	}

	r, key, fingerprint := l.core.PartitionOf(c.Account), delivery.OrderDigest(c.Account, c.IdempotencyKey), c.fingerprint()
	reply, err := l.limits.Count(ctx, "check_body", c.Account, limits.EndpointOrders,
		[]string{limits.WindowsKey(r, limits.EndpointOrders, c.Account), r.KeyOf(core.KindIdempotency, key[:]), r.Order(key)},
		fingerprint[:])
	if err != nil || reply.Name == "counted" {
		return Created{}, reply.Quota, cmp.Or(err, invalid)
	}

	created, err := creationResult(&reply, r, c)

	return created, reply.Quota, err
}

// Poll is GET /orders/{orderId}: it counts and reads (spec, "Limits", rule 1). Besides
// Consume's: ORDER_NOT_FOUND, also for another account's order; uncounted RATE_LIMITED,
// with the order's limit as the Quota, within delivery.PollInterval of the last read.
func (l *Orders) Poll(ctx context.Context, account delivery.AccountID, id delivery.OrderID) (*delivery.Order, limits.Quota, error) {
	r := l.core.PartitionOf(account)
	asked := l.core.LocalNow()
	reply, err := l.limits.Count(ctx, "poll_order", account, limits.EndpointOrderStatus,
		[]string{limits.WindowsKey(r, limits.EndpointOrderStatus, account), r.Order(id.Digest())},
		account[:], core.DayOf(id), delivery.PollInterval.Microseconds())
	if err != nil {
		return nil, reply.Quota, err
	}

	switch reply.Name {
	case "found":
		if id.Partition() != r.Number {
			return nil, reply.Quota, orderNotFound()
		}
		o, err := core.DecodeOrder(reply.Payload, r.Number)
		return o, reply.Quota, err
	case "polled_too_soon":
		refusal := &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: reply.Wait,
			Message: "one order may be read once per 10 seconds; status changes are delivered by webhook, register one instead of polling"}
		l.limits.KeepRefusal(limits.RefusedRequest{Account: account, Endpoint: limits.EndpointOrderStatus, Order: id}, refusal, reply.Quota, asked)
		return nil, reply.Quota, refusal
	case "not_found":
		return nil, reply.Quota, orderNotFound()
	}

	return nil, reply.Quota, fmt.Errorf("script poll_order answered %q", reply.Name)
}

func orderNotFound() error {
	return delivery.Refuse(delivery.CodeOrderNotFound, "no order has this orderId")
}

// Cancel is POST /orders/{orderId}/cancel: it counts and cancels, in one script. A second
// one returns the order. Besides Consume's: ORDER_NOT_FOUND; ORDER_NOT_CANCELLABLE with
// Status, the reported one if a pickup is not committed yet.
func (l *Orders) Cancel(ctx context.Context, account delivery.AccountID, id delivery.OrderID, reason delivery.CancelReason, note string, now time.Time) (*delivery.Order, limits.Quota, error) {
	r := l.core.PartitionOf(account)
	if id.Partition() != r.Number {
		quota, err := l.limits.Consume(ctx, account, limits.EndpointCancel)
		if err == nil {
			err = orderNotFound()
		}
		return nil, quota, err
	}

	change := delivery.Change{Status: delivery.Cancelled, At: now, Cancel: reason, Note: note}
	reply, err := l.CancelWithNonce(ctx, r, account, id, &change, rand.Uint64())
	if err != nil {
		return nil, reply.Quota, err
	}

	if reply.Name == "not_found" {
		return nil, reply.Quota, orderNotFound()
	}

	o, err := core.DecodeOrder(reply.Payload, r.Number)
	if err != nil {
		return nil, reply.Quota, err
	}

	if reply.Name == "too_late" {
		status := o.Status
		if status.Cancellable() {
			status = o.Reported
		}
		return nil, reply.Quota, &delivery.Error{Code: delivery.CodeOrderNotCancellable, Status: status,
			Message: "the order is " + status.String() + "; only an order before pickup can be cancelled"}
	}

	if reply.Name == "cancelled" {
		l.limits.Reached(delivery.Cancelled)
	}

	return o, reply.Quota, nil
}

// CancelWithNonce calls the script. The nonce identifies a repetition of the call.
func (l *Orders) CancelWithNonce(ctx context.Context, r core.Partition, account delivery.AccountID, id delivery.OrderID, change *delivery.Change, nonce uint64) (limits.CountingReply, error) {
	return l.limits.Count(ctx, "cancel_order", account, limits.EndpointCancel,
		[]string{limits.WindowsKey(r, limits.EndpointCancel, account), r.Order(id.Digest())},
		account[:], core.DayOf(id), core.OrderMember(id), core.AppendChange(nil, change),
		change.At.UnixMilli(), r.Prefix, int(delivery.PickingUp), int(delivery.PickedUp),
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
		if p, ok := l.core.PartitionOfOrder(id); ok {
			keys[i] = p.Order(id.Digest())
		}
	}

	unreadable = make(map[delivery.OrderID]error)
	orders, _, err = core.ReadRecords(ctx, l.core.Redis, "reading orders", keys, func(i int, record string) (*delivery.Order, error) {
		o, err := core.DecodeOrder(record, ids[i].Partition())
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

	r := l.core.PartitionOf(account)
	record, err := l.core.Redis.Get(ctx, r.Order(delivery.OrderDigest(account, externalID))).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}

	if err != nil {
		return nil, core.Failed("looking for an order", err)
	}

	o, err := core.DecodeOrder(record, r.Number)
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
		keys[i] = l.core.PartitionOf(account).Order(delivery.OrderDigest(account, externalID))
	}

	found, unreadable, err := core.ReadRecords(ctx, l.core.Redis, "looking for orders", keys, func(i int, record string) (*delivery.Order, error) {
		o, err := core.DecodeOrder(record, l.core.PartitionOf(accounts[i]).Number)
		if err != nil {
			return nil, fmt.Errorf("order %q of account %s: %w", externalID, accounts[i], err)
		}
		return o, nil
	})

	return core.Present(found), unreadable, err
}

// Each calls do with every order in Redis, up to 500 at a time, unordered, never twice at
// once; what is there all the time comes at least once. Unreadable records are joined to
// the error; an error of do ends it.
func (l *Orders) Each(ctx context.Context, do func([]*delivery.Order) error) error {
	var mu sync.Mutex
	var unreadable []error
	err := l.core.Scan(ctx, l.core.Global.Prefix[:2]+"*}"+string(rune(core.KindOrder))+"*", core.ItemsAtOnce, func(ctx context.Context, one *redis.Client, keys []string) error {
		keys = slices.DeleteFunc(keys, func(key string) bool { return l.orderKeyPartition(key) < 0 })
		orders, bad, err := core.ReadRecords(ctx, one, "reading orders", keys, func(i int, record string) (*delivery.Order, error) {
			return core.DecodeOrder(record, l.orderKeyPartition(keys[i]))
		})
		mu.Lock()
		defer mu.Unlock()
		unreadable = append(unreadable, bad...)
		orders = core.Present(orders)
		if err == nil && len(orders) > 0 {
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
	if len(key) != end+1+delivery.OrderDigestSize || key[end] != core.KindOrder {
		return -1
	}
	return slices.IndexFunc(l.core.Partitions, func(p core.Partition) bool { return p.Prefix == key[:end] })
}
