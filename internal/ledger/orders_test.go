package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

func TestCreateOrder_StoresWhatItAnswers(t *testing.T) {
	s := newShop(t, openTest(t))
	c := s.creation("X-1", "")
	c.Draft.OrderedAt = time.Now().Add(-time.Minute)
	c.Draft.PackageNote = "kırılacak"
	created, quota, err := s.CreateOrder(t.Context(), c)
	must(t, err)
	if quota.Limit != 100_000 || quota.Remaining != 99_999 {
		t.Errorf("quota %+v", quota)
	}
	stored, err := s.Order(t.Context(), created.Order.ID)
	must(t, err)
	want := *created.Order
	for _, at := range []*time.Time{&want.CreatedAt, &want.ReadyAt, &want.OrderedAt} {
		*at = at.UTC()
	}
	if !reflect.DeepEqual(stored, &want) {
		t.Errorf("stored\n%+v\nanswered\n%+v", stored, &want)
	}
	if created.Replayed || stored.Status != delivery.Searching || stored.Fleet != s.fleet.Terms() {
		t.Errorf("created %+v", stored)
	}
}

func TestCreateOrder_Refusals(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	s.create(t, "used")
	pending := &delivery.Store{Account: s.account, ExternalID: "pending", State: delivery.AwaitingFleetApproval, Fleet: s.fleet.ID}
	must(t, l.WriteStore(t.Context(), pending))
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
			if created.Order != nil {
				t.Error("an order came with the refusal")
			}
		})
	}
}

func TestCreateOrder_DuplicateNamesTheOrder(t *testing.T) {
	s := newShop(t, openTest(t))
	first := s.create(t, "X-1")
	_, _, err := s.CreateOrder(t.Context(), s.creation("X-1", ""))
	if refusal := wantCode(t, err, delivery.CodeDuplicateOrder); refusal.OrderID != first.ID {
		t.Errorf("named %s, want %s", refusal.OrderID, first.ID)
	}
}

func TestCreateOrder_FindsItsFleetAmongMany(t *testing.T) {
	s := newShop(t, openTest(t))
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
	created, _, err := s.CreateOrder(t.Context(), c)
	must(t, err)
	if created.Order.Fleet != s.fleet.Terms() {
		t.Errorf("fleet %+v", created.Order.Fleet)
	}
}

// Both ways to remember a key: in the order, when it equals the external id, and
// in a record of its own.
func TestCreateOrder_Idempotency(t *testing.T) {
	for _, key := range []string{"X-1", "another-key"} {
		t.Run("key "+key, func(t *testing.T) {
			l := openTest(t)
			s := newShop(t, l)
			first, _, err := s.CreateOrder(t.Context(), s.creation("X-1", key))
			must(t, err)

			again, _, err := s.CreateOrder(t.Context(), s.creation("X-1", key))
			must(t, err)
			if !again.Replayed || again.Order.ID != first.Order.ID || !again.Order.CreatedAt.Equal(first.Order.CreatedAt) {
				t.Errorf("replayed %+v", again)
			}

			// Whatever became of store, fleet and coverage since.
			gone := s.creation("X-1", key)
			gone.Candidates = nil
			store, err := l.Store(t.Context(), s.account, "S-1")
			must(t, err)
			store.State = delivery.Deactivated
			must(t, l.WriteStore(t.Context(), store))
			again, _, err = s.CreateOrder(t.Context(), gone)
			must(t, err)
			if !again.Replayed {
				t.Error("not replayed after the store was deactivated")
			}

			other := s.creation("X-1", key)
			other.Body = []byte("another body")
			_, _, err = s.CreateOrder(t.Context(), other)
			if refusal := wantCode(t, err, delivery.CodeDuplicateOrder); !refusal.OrderID.IsZero() {
				t.Error("a key conflict names an order")
			}

			// The same key with another external id.
			otherID := s.creation("X-2", key)
			_, _, err = s.CreateOrder(t.Context(), otherID)
			wantCode(t, err, delivery.CodeDuplicateOrder)

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
				if created.Replayed != c.replayed || quota.Limit == 0 {
					t.Errorf("%+v: created %+v, quota %+v", c, created, quota)
				}
			}
		})
	}
}

func TestCreateOrder_KeyIsForgottenAfterADay(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	created, _, err := s.CreateOrder(t.Context(), s.creation("X-1", "X-1"))
	must(t, err)
	l.setClock(t, created.Order.CreatedAt.Add(24*time.Hour-time.Second).UnixMicro())
	again, _, err := s.CreateOrder(t.Context(), s.creation("X-1", "X-1"))
	must(t, err)
	if !again.Replayed {
		t.Error("not replayed within the day")
	}
	l.setClock(t, created.Order.CreatedAt.Add(24*time.Hour+time.Second).UnixMicro())
	_, _, err = s.CreateOrder(t.Context(), s.creation("X-1", "X-1"))
	if refusal := wantCode(t, err, delivery.CodeDuplicateOrder); refusal.OrderID != created.Order.ID {
		t.Error("after a day the external id alone must tell")
	}
	if ttl := l.rdb.PTTL(t.Context(), l.roomOf(s.account).idempotency(delivery.OrderDigest(s.account, "X-1"))).Val(); ttl > 0 {
		t.Error("a record of its own was written for a key that equals the external id")
	}
	_, _, err = s.CreateOrder(t.Context(), s.creation("X-2", "key"))
	must(t, err)
	if ttl := l.rdb.PTTL(t.Context(), l.roomOf(s.account).idempotency(delivery.OrderDigest(s.account, "key"))).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
		t.Errorf("the key's record lives for %s", ttl)
	}
}

// The reply was lost and the connection repeats the very same call.
func TestCreateOrder_RepeatedCallAnswersTheFirstResult(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	c := s.creation("X-1", "")
	r := l.roomOf(s.account)
	_, keys, args := l.prepareCreation(r, c, [16]byte{})
	for i, want := range []string{"created", "recovered", "recovered"} {
		reply, err := l.count(t.Context(), &l.scripts.createOrder, s.account, keys, args...)
		must(t, err)
		if reply.name != want {
			t.Fatalf("call %d answered %s, want %s", i, reply.name, want)
		}
	}
	if n := l.rdb.XLen(t.Context(), r.key(kindEvents)).Val(); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	reply, err := l.count(t.Context(), &l.scripts.consume, s.account, keys[:2], "o")
	must(t, err)
	if reply.quota.Remaining != 100_000-2 {
		t.Errorf("%d remain: repeated calls were counted", reply.quota.Remaining)
	}
}

func TestCreateOrder_RepeatedCallIsAnsweredBeyondTheLimit(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	one := plenty()
	one.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 60}}
	_, err := l.UpdateAccount(t.Context(), s.account, AccountPatch{Limits: &one})
	must(t, err)
	_, keys, args := l.prepareCreation(l.roomOf(s.account), s.creation("X-1", ""), [16]byte{})
	for _, want := range []string{"created", "recovered"} {
		reply, err := l.count(t.Context(), &l.scripts.createOrder, s.account, keys, args...)
		must(t, err)
		if reply.name != want {
			t.Fatalf("answered %s, want %s", reply.name, want)
		}
	}
	_, quota, err := s.CreateOrder(t.Context(), s.creation("X-2", ""))
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	if quota.Remaining != 0 || quota.Limit != 1 || refusal.RetryAfter <= 59*time.Second || refusal.RetryAfter > time.Minute {
		t.Errorf("quota %+v, retry after %s", quota, refusal.RetryAfter)
	}
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
			s := newShop(t, openTest(t))
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
			if created != c.created || replayed != c.replayed || refused != c.refused {
				t.Errorf("created %d, replayed %d, refused %d", created, replayed, refused)
			}
		})
	}
}

func TestSuspendedAccount_IsRefusedAndCounted(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	yes := true
	_, err := l.UpdateAccount(t.Context(), s.account, AccountPatch{Suspended: &yes})
	must(t, err)
	_, quota, err := s.CreateOrder(t.Context(), s.creation("X-1", ""))
	wantCode(t, err, delivery.CodeAccountSuspended)
	if quota.Remaining != 99_999 {
		t.Errorf("quota %+v", quota)
	}
	no := false
	_, err = l.UpdateAccount(t.Context(), s.account, AccountPatch{Suspended: &no})
	must(t, err)
	s.create(t, "X-1")
}

func TestPollOrder(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	o := s.create(t, "X-1")
	now := time.Now().Add(1000 * time.Hour).UnixMicro()
	l.setClock(t, now)
	_, quota, err := l.PollOrder(t.Context(), s.account, o.ID)
	must(t, err)
	if quota.Limit != 100_000 || quota.Remaining != 99_999 {
		t.Errorf("quota %+v", quota)
	}
	l.setClock(t, now+9_999_000)
	_, quota, err = l.PollOrder(t.Context(), s.account, o.ID)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	if quota.Limit != 1 || quota.Remaining != 0 || refusal.RetryAfter != time.Millisecond {
		t.Errorf("quota %+v, retry after %s", quota, refusal.RetryAfter)
	}
	l.setClock(t, now+10_000_000)
	_, quota, err = l.PollOrder(t.Context(), s.account, o.ID)
	must(t, err)
	if quota.Remaining != 99_998 {
		t.Errorf("%d remain: the refused poll was counted", quota.Remaining)
	}
	// The clock jumps back: the order is not locked up for the length of the jump.
	l.setClock(t, now-1000*second)
	_, _, err = l.PollOrder(t.Context(), s.account, o.ID)
	must(t, err)

	stranger := newAccount(t, l, plenty())
	_, quota, err = l.PollOrder(t.Context(), stranger, o.ID)
	wantCode(t, err, delivery.CodeOrderNotFound)
	if quota.Remaining != 99_999 {
		t.Errorf("quota %+v: an unknown order counts too", quota)
	}
	day := delivery.MakeOrderID(o.ID.Partition(), o.ID.Day()+1, o.ID.Digest())
	_, _, err = l.PollOrder(t.Context(), s.account, day)
	wantCode(t, err, delivery.CodeOrderNotFound)
	if _, err := l.Order(t.Context(), day); delivery.CodeOf(err) != delivery.CodeOrderNotFound {
		t.Errorf("another day's id: %v", err)
	}
}

func TestCancelOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []delivery.Status
		reported delivery.Status
		code     delivery.Code
		told     delivery.Status
	}{
		{"searching", nil, 0, "", 0},
		{"assigned", []delivery.Status{delivery.Assigned}, 0, "", 0},
		{"picking up", []delivery.Status{delivery.Assigned, delivery.PickingUp}, 0, "", 0},
		{"reported assigned", nil, delivery.Assigned, "", 0},
		{"reported pickup waits in the stream", nil, delivery.PickedUp, delivery.CodeOrderNotCancellable, delivery.PickedUp},
		{"picked up", []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp}, 0, delivery.CodeOrderNotCancellable, delivery.PickedUp},
		{"delivered", []delivery.Status{delivery.Delivered}, 0, delivery.CodeOrderNotCancellable, delivery.Delivered},
		{"failed", []delivery.Status{delivery.Failed}, 0, delivery.CodeOrderNotCancellable, delivery.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShop(t, openTest(t))
			o := s.create(t, "X-1")
			s.advance(t, o.ID, c.statuses...)
			if c.reported != 0 {
				s.report(t, o.ID, c.reported)
			}
			cancelled, quota, err := s.CancelOrder(t.Context(), s.account, o.ID, delivery.CustomerRequest, "vazgeçti", time.Now())
			if quota.Remaining != 99_999 {
				t.Errorf("quota %+v", quota)
			}
			if c.code != "" {
				if refusal := wantCode(t, err, c.code); refusal.Status != c.told {
					t.Errorf("told %s, want %s", refusal.Status, c.told)
				}
				return
			}
			must(t, err)
			last := cancelled.Changes[len(cancelled.Changes)-1]
			if cancelled.Status != delivery.Cancelled || last.Status != delivery.Cancelled || last.Cancel != delivery.CustomerRequest || last.Note != "vazgeçti" {
				t.Errorf("cancelled %+v", cancelled)
			}
			again, _, err := s.CancelOrder(t.Context(), s.account, o.ID, "", "", time.Now())
			must(t, err)
			if !reflect.DeepEqual(again, cancelled) {
				t.Errorf("a second cancel answers\n%+v\nafter\n%+v", again, cancelled)
			}
		})
	}
}

func TestCancelOrder_TimeNeverRunsBack(t *testing.T) {
	s := newShop(t, openTest(t))
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	cancelled, _, err := s.CancelOrder(t.Context(), s.account, o.ID, "", "", time.Now().Add(-time.Hour))
	must(t, err)
	if cancelled.Changes[1].At.Before(cancelled.Changes[0].At) {
		t.Errorf("cancelled at %s, before %s", cancelled.Changes[1].At, cancelled.Changes[0].At)
	}
}

func TestCancelOrder_NotFound(t *testing.T) {
	l := openTest(t)
	s := newShop(t, l)
	o := s.create(t, "X-1")
	// Accounts of the same and of another partition.
	for range 8 {
		stranger := newAccount(t, l, plenty())
		_, quota, err := l.CancelOrder(t.Context(), stranger, o.ID, "", "", time.Now())
		wantCode(t, err, delivery.CodeOrderNotFound)
		if quota.Remaining != 99_999 {
			t.Errorf("quota %+v", quota)
		}
	}
}

func TestCommitAll_ComparesVersions(t *testing.T) {
	s := newShop(t, openTest(t))
	o := s.create(t, "X-1")
	at := time.Now().Truncate(time.Millisecond)
	commit := Commit{Order: o, Changes: []delivery.Change{{Status: delivery.Assigned, At: at, Courier: delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5551112233"}}}}
	for i, want := range []error{nil, ErrConflict} { // the second is a repeated call
		result, err := s.CommitAll(t.Context(), []Commit{commit})
		must(t, err)
		if !errors.Is(result[0], want) {
			t.Errorf("call %d: %v, want %v", i, result[0], want)
		}
	}
	stored, err := s.Order(t.Context(), o.ID)
	must(t, err)
	if stored.Status != delivery.Assigned || delivery.Sequence(stored.Version) != 2 || stored.Courier.Name != "Mehmet Yılmaz" || len(stored.Changes) != 1 {
		t.Errorf("stored %+v", stored)
	}
	swap := delivery.Courier{Name: "Ali Veli", Phone: "5550000000", VehicleType: "Bicycle"}
	result, err := s.CommitAll(t.Context(), []Commit{{Order: stored, Swap: &swap}, {Order: &delivery.Order{ID: delivery.MakeOrderID(1, 2, [12]byte{3})}}})
	must(t, err)
	must(t, result[0])
	wantCode(t, result[1], delivery.CodeOrderNotFound)
	swapped, err := s.Order(t.Context(), o.ID)
	must(t, err)
	if swapped.Version != stored.Version || swapped.Courier != swap || swapped.Changes[0].Courier.Name != "Mehmet Yılmaz" {
		t.Errorf("swapped %+v", swapped)
	}
}

func TestCommitAll_KeepsListsAndTimers(t *testing.T) {
	s := newShop(t, openTest(t))
	o := s.create(t, "X-1")
	r := s.rooms[o.ID.Partition()]
	entries := collect(t, s.Ledger, RoleStatus, "c", 1)
	for range 2 { // a repeated call changes nothing
		must(t, s.IndexJobs(t.Context(), o.ID.Partition(), entries))
	}
	listed := func(status delivery.Status) int {
		orders, next, err := s.Jobs(t.Context(), s.fleet.ID, status, "", 10)
		must(t, err)
		if next != "" {
			t.Errorf("a cursor %q at the end", next)
		}
		return len(orders)
	}
	if listed(delivery.Searching) != 1 {
		t.Error("the new order is not on its fleet's list")
	}
	due, err := s.DueOrders(t.Context(), o.ID.Partition(), o.CreatedAt.Add(15*time.Minute), 10)
	must(t, err)
	if len(due) != 1 || due[0] != o.ID {
		t.Errorf("due after 15 minutes: %v", due)
	}
	s.advance(t, o.ID, delivery.Assigned)
	if listed(delivery.Searching) != 0 || listed(delivery.Assigned) != 1 {
		t.Error("the assigned order is not on the right list")
	}
	// Indexing that comes late does not bring it back.
	must(t, s.IndexJobs(t.Context(), o.ID.Partition(), entries))
	if listed(delivery.Searching) != 0 {
		t.Error("a late index put the order back")
	}
	s.advance(t, o.ID, delivery.Delivered)
	if n := s.rdb.ZCard(t.Context(), r.key(kindTimers)).Val(); n != 0 {
		t.Errorf("%d timers of ended orders", n)
	}
	if listed(delivery.Assigned) != 0 {
		t.Error("the delivered order is still listed")
	}
}

func TestJobs_PagesOverEverything(t *testing.T) {
	s := newShop(t, openTest(t))
	// All in one millisecond, so that pages are cut between equal scores.
	at, want := time.Now(), 25
	for i := range want {
		c := s.creation(fmt.Sprint("X-", i), "")
		c.Now = at
		_, _, err := s.CreateOrder(t.Context(), c)
		must(t, err)
	}
	entries := collect(t, s.Ledger, RoleStatus, "c", want)
	must(t, s.IndexJobs(t.Context(), entries[0].Partition, entries))
	for _, limit := range []int{1, 4, 5, 25, 100} {
		seen := make(map[delivery.OrderID]bool)
		for cursor := ""; ; {
			orders, next, err := s.Jobs(t.Context(), s.fleet.ID, delivery.Searching, cursor, limit)
			must(t, err)
			for _, o := range orders {
				if seen[o.ID] {
					t.Fatalf("limit %d: %s is listed twice", limit, o.ID)
				}
				seen[o.ID] = true
			}
			if cursor = next; next == "" {
				break
			}
		}
		if len(seen) != want {
			t.Errorf("limit %d: %d orders listed, want %d", limit, len(seen), want)
		}
	}
	_, _, err := s.Jobs(t.Context(), s.fleet.ID, delivery.Searching, "nonsense", 10)
	wantCode(t, err, delivery.CodeValidationFailed)
}

func TestReport_ChecksTheOwner(t *testing.T) {
	s := newShop(t, openTest(t))
	o := s.create(t, "X-1")
	u := delivery.Update{Order: o.ID, Fleet: delivery.NewFleetID(), Kind: delivery.KindStatus, Status: delivery.Assigned, At: time.Now()}
	_, err := s.Report(t.Context(), u, time.Now())
	wantCode(t, err, delivery.CodeOrderNotFound)
	u.Fleet = s.fleet.ID
	before, err := s.Report(t.Context(), u, time.Now())
	must(t, err)
	if before.Status != delivery.Searching || before.Reported != 0 {
		t.Errorf("before %+v", before)
	}
	s.advance(t, o.ID, delivery.Failed)
	u.Kind = delivery.KindAccept
	_, err = s.Report(t.Context(), u, time.Now())
	if refusal := wantCode(t, err, delivery.CodeJobNotAvailable); refusal.Status != delivery.Failed {
		t.Errorf("told %s", refusal.Status)
	}
	if n := s.rdb.XLen(t.Context(), s.rooms[o.ID.Partition()].key(kindUpdates)).Val(); n != 1 {
		t.Errorf("%d updates in the stream, want 1", n)
	}
}

func TestReportLocations_KeepsTheNewest(t *testing.T) {
	s := newShop(t, openTest(t))
	o, ended := s.create(t, "X-1"), s.create(t, "X-2")
	s.advance(t, ended.ID, delivery.Delivered)
	at := time.Now().Truncate(time.Millisecond)
	here := delivery.Location{Point: taksim, At: at}
	older := delivery.Location{Point: delivery.Point{Latitude: 1, Longitude: 2}, At: at.Add(-time.Second)}
	ignored, err := s.ReportLocations(t.Context(), s.fleet.ID, []Position{{o.ID, here}, {o.ID, older}, {ended.ID, here}, {delivery.MakeOrderID(3, 4, [12]byte{}), here}, {delivery.MakeOrderID(999, 4, [12]byte{}), here}}, at)
	must(t, err)
	if ignored != 4 {
		t.Errorf("%d ignored, want 4", ignored)
	}
	stored, err := s.Order(t.Context(), o.ID)
	must(t, err)
	if stored.Location.Point != taksim || !stored.Location.At.Equal(at) || !stored.LastCourierUpdate.Equal(at) {
		t.Errorf("location %+v, last update %s", stored.Location, stored.LastCourierUpdate)
	}
	if ignored, err = s.ReportLocations(t.Context(), delivery.NewFleetID(), []Position{{o.ID, here}}, at); err != nil || ignored != 1 {
		t.Errorf("another fleet: %d ignored, %v", ignored, err)
	}
}

func TestUpdate_SurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "at")).UTC()
		u := &delivery.Update{Kind: delivery.UpdateKind(rapid.IntRange(1, 3).Draw(t, "kind")), Status: delivery.Status(rapid.IntRange(1, 8).Draw(t, "status")),
			At: at, Failure: delivery.FailureReason(rapid.String().Draw(t, "failure")),
			Courier: delivery.Courier{Name: rapid.String().Draw(t, "name"), Phone: rapid.String().Draw(t, "phone")}}
		if rapid.Bool().Draw(t, "located") {
			u.Location = delivery.Location{Point: taksim, At: at}
		}
		got, err := decodeUpdate(string(appendUpdate(nil, u)))
		if err != nil || !reflect.DeepEqual(got, u) {
			t.Fatalf("got %+v, %v, want %+v", got, err, u)
		}
	})
}

func FuzzDecodeOrder(f *testing.F) {
	o := &delivery.Order{OrderDraft: *testDraft("X-1"), CreatedAt: time.Now(), Version: 1<<32 | 1}
	record := appendOrderStart(nil, o, [8]byte{}, [16]byte{}, true)
	record = append(record, make([]byte, 16)...)
	record = appendOrderMiddle(record, o.ID)
	body := appendDocument(appendTerms(nil, o.Fleet), &o.OrderDraft)
	record = append(record, byte(len(body)>>24), byte(len(body)>>16), byte(len(body)>>8), byte(len(body)))
	record = append(record, body...)
	record = appendChange(record, &delivery.Change{Status: delivery.Assigned, At: time.Now()}, 1)
	record = appendSwap(record, delivery.Courier{Name: "Ali"})
	f.Add(string(record))
	f.Fuzz(func(t *testing.T, record string) {
		if o, err := decodeOrder(record, 3); err == nil && o.ID.Partition() != 3 {
			t.Errorf("order %s of partition 3", o.ID)
		}
	})
}

func TestOpen_RefusesOtherPartitions(t *testing.T) {
	l := openTest(t)
	options := l.rdb.(*redis.Client).Options()
	cfg := Config{URL: fmt.Sprintf("redis://%s/%d", server.Addr, options.DB), Environment: "sandbox", Partitions: 8, Secrets: testSecrets}
	if _, err := Open(t.Context(), cfg); err == nil {
		t.Error("opened with another number of partitions")
	}
	cfg.Partitions = 0
	same, err := Open(t.Context(), cfg)
	must(t, err)
	if same.Partitions() != 4 {
		t.Errorf("%d partitions, want the stored 4", same.Partitions())
	}
	must(t, same.Close())
	cfg.Environment = "production"
	other, err := Open(t.Context(), cfg)
	must(t, err)
	if other.Partitions() != DefaultPartitions {
		t.Errorf("production has %d partitions", other.Partitions())
	}
	must(t, other.Close())
}

func TestOpen_SaysThatRedisIsAway(t *testing.T) {
	_, err := Open(t.Context(), Config{URL: "redis://127.0.0.1:1", Environment: "sandbox"})
	if !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	for _, cfg := range []Config{{URL: "http://x", Environment: "sandbox"}, {URL: "redis://127.0.0.1:1", Environment: "staging"}, {URL: "redis://127.0.0.1:1", Environment: "sandbox", Partitions: 2000}} {
		if _, err := Open(t.Context(), cfg); err == nil || errors.Is(err, delivery.ErrUnavailable) {
			t.Errorf("%+v: got %v", cfg, err)
		}
	}
}
