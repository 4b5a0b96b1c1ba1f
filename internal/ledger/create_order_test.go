package ledger

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

//rule:post-orders/synchronous
func TestCreateOrder_StoresWhatItAnswers(t *testing.T) {
	s := newEnv(t)
	c := s.creation("X-1", "")
	c.Draft.OrderedAt = time.Now().Add(-time.Minute)
	c.Draft.PackageNote = "kırılacak"
	created, quota := get2(s.CreateOrder(t.Context(), c))(t)
	check(t, quota.Limit == 100_000 && quota.Remaining == 99_999, "quota %+v", quota)
	stored := get(s.Order(t.Context(), created.Order.ID))(t)
	want := *created.Order
	for _, at := range []*time.Time{&want.CreatedAt, &want.ReadyAt, &want.OrderedAt} {
		*at = at.UTC()
	}
	check(t, reflect.DeepEqual(stored, &want), "stored\n%+v\nanswered\n%+v", stored, &want)
	check(t, !created.Replayed && stored.Status == delivery.Searching && stored.Fleet == s.fleet.Terms(), "created %+v", stored)
}

//rule:order-creation-request/externalStoreId errors/STORE_NOT_CONFIGURED errors/DUPLICATE_ORDER errors/FLEET_SUSPENDED errors/FLEET_UNAVAILABLE
//rule:decisions/several-faults-at-once
func TestCreateOrder_Refusals(t *testing.T) {
	s := newEnv(t)
	s.create(t, "used")
	pending := &delivery.Store{Account: s.account, ExternalID: "pending", State: delivery.AwaitingFleetApproval, Fleet: s.fleet.ID}
	must(t, s.WriteStore(t.Context(), pending))
	other := delivery.NewFleetID()
	for name, c := range map[string]struct {
		change func(*Creation)
		code   delivery.Code
	}{
		"unknown store":   {func(c *Creation) { c.Draft.ExternalStoreID = "nowhere" }, delivery.CodeStoreNotConfigured},
		"pending store":   {func(c *Creation) { c.Draft.ExternalStoreID = "pending" }, delivery.CodeStoreNotConfigured},
		"suspended fleet": {func(c *Creation) { c.Candidates[0].Suspended = true }, delivery.CodeFleetSuspended},
		"suspended fleet that does not cover": {func(c *Creation) {
			c.Candidates[0].Suspended, c.Candidates[0].Covers = true, false
		}, delivery.CodeFleetSuspended},
		"no candidate at all": {func(c *Creation) { c.Candidates = nil }, delivery.CodeDropoffOutOfCoverage},
		"only another fleet covers": {func(c *Creation) {
			c.Candidates = []Candidate{{Terms: delivery.FleetTerms{ID: other}, Covers: true}}
		}, delivery.CodeDropoffOutOfCoverage},
		"no couriers":             {func(c *Creation) { c.Candidates[0].NoCouriers = true }, delivery.CodeFleetUnavailable},
		"used id":                 {func(c *Creation) { c.Draft.ExternalOrderID = "used" }, delivery.CodeDuplicateOrder},
		"used id and pending":     {func(c *Creation) { c.Draft.ExternalOrderID, c.Draft.ExternalStoreID = "used", "pending" }, delivery.CodeStoreNotConfigured},
		"used id and no couriers": {func(c *Creation) { c.Draft.ExternalOrderID, c.Candidates[0].NoCouriers = "used", true }, delivery.CodeFleetUnavailable},
		"unknown account":         {func(c *Creation) { c.Account = delivery.NewAccountID() }, delivery.CodeTokenInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			creation := s.creation("new-"+name, "")
			c.change(creation)
			created, _, err := s.CreateOrder(t.Context(), creation)
			wantCode(t, err, c.code)
			check(t, created.Order == nil, "an order came with the refusal")
		})
	}
}

//rule:decisions/duplicate-order
func TestCreateOrder_DuplicateNamesTheOrder(t *testing.T) {
	s := newEnv(t)
	first := s.create(t, "X-1")
	_, _, err := s.CreateOrder(t.Context(), s.creation("X-1", ""))
	refusal := wantCode(t, err, delivery.CodeDuplicateOrder)
	check(t, refusal.OrderID == first.ID, "named %s, want %s", refusal.OrderID, first.ID)
}

func TestCreateOrder_FindsItsFleetAmongMany(t *testing.T) {
	s := newEnv(t)
	c := s.creation("X-1", "")
	mine := c.Candidates[0]
	c.Candidates = nil
	for range 50 {
		c.Candidates = append(c.Candidates, Candidate{Terms: delivery.FleetTerms{ID: delivery.NewFleetID(), Name: "another"}, Covers: true})
	}
	// Ids that contain the fleet's across a boundary must not be taken for it.
	var left, right delivery.FleetID
	copy(left[8:], mine.Terms.ID[:8])
	copy(right[:8], mine.Terms.ID[8:])
	c.Candidates = append(c.Candidates, Candidate{Terms: delivery.FleetTerms{ID: left}}, Candidate{Terms: delivery.FleetTerms{ID: right}}, mine)
	created, _ := get2(s.CreateOrder(t.Context(), c))(t)
	check(t, created.Order.Fleet == s.fleet.Terms(), "fleet %+v", created.Order.Fleet)
}

// Both ways to remember a key: in the order, when it equals the external id, and
// in a record of its own.
//
//rule:post-orders/idempotency-same-key-with-the errors/DUPLICATE_ORDER limits-and-idempotency/idempotency-scope-account-key
//rule:decisions/several-faults-at-once
func TestCreateOrder_Idempotency(t *testing.T) {
	for _, key := range []string{"X-1", "another-key"} {
		t.Run("key "+key, func(t *testing.T) {
			s := newEnv(t)
			first, _ := get2(s.CreateOrder(t.Context(), s.creation("X-1", key)))(t)

			again, _ := get2(s.CreateOrder(t.Context(), s.creation("X-1", key)))(t)
			check(t, again.Replayed && again.Order.ID == first.Order.ID && again.Order.CreatedAt.Equal(first.Order.CreatedAt), "replayed %+v", again)

			// Whatever became of store, fleet and coverage since.
			gone := s.creation("X-1", key)
			gone.Candidates = nil
			store := get(s.Store(t.Context(), s.account, "S-1"))(t)
			store.State = delivery.Deactivated
			must(t, s.WriteStore(t.Context(), store))
			again, _ = get2(s.CreateOrder(t.Context(), gone))(t)
			check(t, again.Replayed, "not replayed after the store was deactivated")

			other := s.creation("X-1", key)
			other.Body = []byte("another body")
			_, _, err := s.CreateOrder(t.Context(), other)
			refusal := wantCode(t, err, delivery.CodeDuplicateOrder)
			check(t, refusal.OrderID.IsZero(), "a key conflict names an order")

			// The same key with another external id.
			otherID := s.creation("X-2", key)
			wantCode(t, errOf(s.CreateOrder(t.Context(), otherID)), delivery.CodeDuplicateOrder)

			// A body that broke a rule: a conflict, a replay, or nothing.
			for _, c := range []struct {
				key, body string
				code      delivery.Code
				replayed  bool
			}{{key, "broken", delivery.CodeDuplicateOrder, false}, {key, "body of X-1", "", true}, {"fresh", "broken", "", false}, {"", "broken", "", false}} {
				created, quota, err := s.CreateOrder(t.Context(), &Creation{Account: s.account, IdempotencyKey: c.key, Body: []byte(c.body), Now: time.Now()})
				if c.code != "" {
					wantCode(t, err, c.code)
				} else {
					must(t, err)
				}
				check(t, created.Replayed == c.replayed && quota.Limit != 0, "%+v: created %+v, quota %+v", c, created, quota)
			}
		})
	}
}

// The key of one order is another order's external id: what is new is refused,
// whichever of the two came first, and each is still replayed.
func TestCreateOrder_KeyThatIsAnotherOrdersExternalID(t *testing.T) {
	for name, order := range map[string][2][2]string{ // external id and key of the first and of the second
		"the external id comes later": {{"X-1", "X-2"}, {"X-2", "X-2"}},
		"the external id comes first": {{"X-2", "X-2"}, {"X-1", "X-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			first, _ := get2(s.CreateOrder(t.Context(), s.creation(order[0][0], order[0][1])))(t)
			wantCode(t, errOf(s.CreateOrder(t.Context(), s.creation(order[1][0], order[1][1]))), delivery.CodeDuplicateOrder)
			again, _ := get2(s.CreateOrder(t.Context(), s.creation(order[0][0], order[0][1])))(t)
			check(t, again.Replayed && again.Order.ID == first.Order.ID, "replayed %+v", again)
		})
	}
}

//rule:decisions/idempotency-header-absent
func TestCreateOrder_KeyIsForgottenAfterADay(t *testing.T) {
	s := newEnv(t)
	created, _ := get2(s.CreateOrder(t.Context(), s.creation("X-1", "X-1")))(t)
	s.setClock(t, created.Order.CreatedAt.Add(24*time.Hour-time.Second).UnixMicro())
	again, _ := get2(s.CreateOrder(t.Context(), s.creation("X-1", "X-1")))(t)
	check(t, again.Replayed, "not replayed within the day")
	s.setClock(t, created.Order.CreatedAt.Add(24*time.Hour+time.Second).UnixMicro())
	_, _, err := s.CreateOrder(t.Context(), s.creation("X-1", "X-1"))
	refusal := wantCode(t, err, delivery.CodeDuplicateOrder)
	check(t, refusal.OrderID == created.Order.ID, "after a day the external id alone must tell")
	if ttl := s.rdb.PTTL(t.Context(), s.roomOf(s.account).idempotency(delivery.OrderDigest(s.account, "X-1"))).Val(); ttl > 0 {
		t.Error("a record of its own was written for a key that equals the external id")
	}
	get2(s.CreateOrder(t.Context(), s.creation("X-2", "key")))(t)
	if ttl := s.rdb.PTTL(t.Context(), s.roomOf(s.account).idempotency(delivery.OrderDigest(s.account, "key"))).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
		t.Errorf("the key's record lives for %s", ttl)
	}
}

// The reply was lost and the connection repeats the very same call.
func TestCreateOrder_RepeatedCallAnswersTheFirstResult(t *testing.T) {
	s := newEnv(t)
	c := s.creation("X-1", "")
	r := s.roomOf(s.account)
	s.prepareCreation(r, c, [16]byte{})
	for i, want := range []string{"created", "recovered", "recovered"} {
		reply := get(s.countCall(t.Context(), &c.call, s.account))(t)
		require(t, reply.name == want, "call %d answered %s, want %s", i, reply.name, want)
	}
	equal(t, s.rdb.XLen(t.Context(), r.key(kindEvents)).Val(), 1, "events")
	reply := get(s.count(t.Context(), s.scripts.consume, s.account, []string{r.ring(EndpointOrders, s.account)}))(t)
	check(t, reply.quota.Remaining == 100_000-2, "%d remain: repeated calls were counted", reply.quota.Remaining)
}

func TestCreateOrder_RepeatedCallIsAnsweredBeyondTheLimit(t *testing.T) {
	s := newEnv(t)
	one := plenty()
	one.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 60}}
	get(s.UpdateAccount(t.Context(), s.account, func(a *delivery.Account) error { a.Limits = one; return nil }))(t)
	s.setClock(t, 4_000_000_000*second)
	c := s.creation("X-1", "")
	s.prepareCreation(s.roomOf(s.account), c, [16]byte{})
	for _, want := range []string{"created", "recovered"} {
		reply := get(s.countCall(t.Context(), &c.call, s.account))(t)
		require(t, reply.name == want, "answered %s, want %s", reply.name, want)
	}
	_, quota, err := s.CreateOrder(t.Context(), s.creation("X-2", ""))
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	check(t, quota.Remaining == 0 && quota.Limit == 1 && refusal.RetryAfter == time.Minute, "quota %+v, retry after %s", quota, refusal.RetryAfter)
}

func TestCreateOrder_ConcurrentSameKey(t *testing.T) {
	for name, c := range map[string]struct {
		key      string
		sameBody bool
		created  int
		replayed int
		refused  int
	}{
		"same key, same body":     {"k", true, 1, 49, 0},
		"same key, other bodies":  {"k", false, 1, 0, 49},
		"no key, one external id": {"", true, 1, 0, 49},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			var mu sync.Mutex
			var created, replayed, refused int
			var all sync.WaitGroup
			for i := range 50 {
				creation := s.creation("X-1", c.key)
				if !c.sameBody {
					creation = s.creation(fmt.Sprint("X-", i), c.key)
				}
				all.Go(func() {
					got, _, err := s.CreateOrder(t.Context(), creation)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case delivery.CodeOf(err) == delivery.CodeDuplicateOrder && err != nil:
						refused++
					case err != nil:
						t.Error(err)
					case got.Replayed:
						replayed++
					default:
						created++
					}
				})
			}
			all.Wait()
			check(t, created == c.created && replayed == c.replayed && refused == c.refused, "created %d, replayed %d, refused %d", created, replayed, refused)
		})
	}
}
