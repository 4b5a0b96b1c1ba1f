package ledger

import (
	"errors"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

//rule:limits/rules/5 versioning/limits-are-changed-per-account limits-and-idempotency/limits-are-per-account-changed
func TestAccount_LimitsChangeWithoutReset(t *testing.T) {
	l := openTest(t)
	bounds := plenty()
	bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 10, Seconds: 60}}
	id := newAccount(t, l, bounds)
	now := 4_000_000_000 * second
	l.setClock(t, now)
	for range 8 {
		get(l.Limits.Consume(t.Context(), id, limits.EndpointOrders))(t)
	}

	bounds.Orders.Sustained.Count = 5
	narrow := func(a *delivery.Account) error { a.Limits = bounds; return nil }
	get(l.Accounts.Update(t.Context(), id, narrow))(t)
	wantCode(t, errOf(l.Limits.Consume(t.Context(), id, limits.EndpointOrders)), delivery.CodeRateLimited)
	bounds.Orders.Sustained.Count = 9
	get(l.Accounts.Update(t.Context(), id, narrow))(t)
	equal(t, get(l.Limits.Consume(t.Context(), id, limits.EndpointOrders))(t), (limits.Quota{Limit: 9, Remaining: 0, Reset: now/second + 60, ResetIn: 60, Window: 60}), "quota")
	stored := get(l.Accounts.Get(t.Context(), id))(t)
	check(t, stored.Limits == bounds && stored.Name == "Vendor" && !stored.Suspended, "stored %+v", stored)
}

func TestUpdateAccount_LosesNoConcurrentChange(t *testing.T) {
	l := openTest(t)
	id := newAccount(t, l, plenty())
	changes := []func(*delivery.Account) error{
		func(a *delivery.Account) error { a.Suspended = true; return nil },
		func(a *delivery.Account) error { a.Name = "Renamed"; return nil },
		func(a *delivery.Account) error { a.Limits.Cancel.Sustained.Count = 7; return nil },
		func(a *delivery.Account) error { a.Limits.Token.Sustained.Count = 8; return nil },
	}

	var all sync.WaitGroup
	for _, change := range changes {
		all.Go(func() {
			equal(t, errOf(l.Accounts.Update(t.Context(), id, change)), nil, "update")
		})
	}

	all.Wait()
	a := get(l.Accounts.Get(t.Context(), id))(t)
	check(t, a.Suspended && a.Name == "Renamed" && a.Limits.Cancel.Sustained.Count == 7 && a.Limits.Token.Sustained.Count == 8, "account %+v", a)
	mine := errors.New("mine")
	wantError(t, errOf(l.Accounts.Update(t.Context(), id, func(*delivery.Account) error { return mine })), mine)
}

func TestAccount_NotFound(t *testing.T) {
	l := openTest(t)
	wantCode(t, errOf(l.Accounts.Get(t.Context(), delivery.NewAccountID())), delivery.CodeAccountNotFound)
	wantCode(t, errOf(l.Accounts.Update(t.Context(), delivery.NewAccountID(), func(*delivery.Account) error { return nil })), delivery.CodeAccountNotFound)
	wantCode(t, errOf(l.Accounts.RotateSecret(t.Context(), delivery.NewAccountID(), testHash, 0, false)), delivery.CodeAccountNotFound)
	wantCode(t, errOf(l.Limits.Consume(t.Context(), delivery.NewAccountID(), limits.EndpointOrders)), delivery.CodeTokenInvalid)
}

//rule:admin-api/post-accounts-id-credentials
func TestCountToken_OldSecretWorksForItsTime(t *testing.T) {
	l := openTest(t)
	bounds := plenty()
	bounds.Token = delivery.EndpointLimit{Sustained: delivery.Window{Count: 3, Seconds: 3600}}
	id := newAccount(t, l, bounds)
	now := time.Now().Add(time.Hour)
	l.setClock(t, now.UnixMicro())
	fresh := [32]byte{9}
	for range 2 { // a repeated rotation keeps the old secret old
		get(l.Accounts.RotateSecret(t.Context(), id, fresh, time.Hour, false))(t)
	}

	for _, hash := range [][32]byte{testHash, fresh} {
		_, known := get2(l.Limits.CountToken(t.Context(), id, hash))(t)
		equal(t, known, limits.Known{Replaced: hash == testHash}, "of a secret that is right")
	}

	wantCode(t, errOf(l.Limits.CountToken(t.Context(), id, [32]byte{7})), delivery.CodeInvalidCredentials)
	l.setClock(t, now.Add(time.Hour+time.Second).UnixMicro())
	wantCode(t, errOf(l.Limits.CountToken(t.Context(), id, testHash)), delivery.CodeInvalidCredentials)
	wantCode(t, errOf(l.Limits.CountToken(t.Context(), delivery.NewAccountID(), testHash)), delivery.CodeInvalidCredentials)
	// Wrong secrets have not used up the tokens.
	quota, _ := get2(l.Limits.CountToken(t.Context(), id, fresh))(t)
	check(t, quota.Limit == 3, "quota %+v", quota)
}

//rule:limits-and-idempotency/redis_rate
func TestCountFailedLogin_IsPerClientAndAddress(t *testing.T) {
	l := openTest(t)
	for range 10 {
		must(t, l.Limits.CountFailedLogin(t.Context(), "ven_1", "127.0.0.1"))
	}

	refusal := wantCode(t, l.Limits.CountFailedLogin(t.Context(), "ven_1", "127.0.0.1"), delivery.CodeRateLimited)
	check(t, refusal.RetryAfter > 0, "retry after %s", refusal.RetryAfter)
	must(t, l.Limits.CountFailedLogin(t.Context(), "ven_1", "127.0.0.2"))
	must(t, l.Limits.CountFailedLogin(t.Context(), "ven_2", "127.0.0.1"))
}

//rule:limits/rules/3 limits-and-idempotency/sustained-excess-in-at-least
func TestSustainedExcess_MarksAndClears(t *testing.T) {
	l := openTest(t)
	bounds := plenty()
	bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 3600}}
	id := newAccount(t, l, bounds)
	start := time.Now().Truncate(time.Minute)
	minute := func(n int, refused bool) {
		for range 5 {
			endpoint := limits.EndpointCancel
			if refused {
				endpoint = limits.EndpointOrders
			}
			_, _ = l.Limits.Consume(t.Context(), id, endpoint)
		}

		must(t, l.Limits.Flush(t.Context(), start.Add(time.Duration(n)*time.Minute)))
	}

	marked := func() bool {
		a := get(l.Accounts.Get(t.Context(), id))(t)
		return !a.ExcessSince.IsZero()
	}

	for n := range 4 {
		minute(n, true)
	}

	check(t, !marked(), "marked after 4 minutes")
	minute(4, true)
	check(t, marked(), "not marked after 5 minutes")
	for n := 5; n < 11; n++ {
		minute(n, false)
	}

	check(t, !marked(), "still marked with 4 bad minutes among the last 10")
}

// An account that falls silent loses its mark when a chatty one would: no request
// of its own is needed.
//
//rule:limits-and-idempotency/sustained-excess-in-at-least
func TestSustainedExcess_EndsForASilentAccountToo(t *testing.T) {
	start := time.Now().Truncate(time.Minute)
	now := start
	l := openTest(t, func(c *core.Config) { c.Now = func() time.Time { return now } })
	bounds := plenty()
	bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 3600}}
	id := newAccount(t, l, bounds)
	for n := range 8 {
		now = start.Add(time.Duration(n) * time.Minute)
		for range 5 {
			_, _ = l.Limits.Consume(t.Context(), id, limits.EndpointOrders)
		}
		must(t, l.Limits.Flush(t.Context(), now))
	}

	marked := func() bool {
		one, all := get(l.Accounts.Get(t.Context(), id))(t), allAccounts(t, l)
		check(t, len(all) == 1 && all[0].ExcessSince.Equal(one.ExcessSince), "%v and %v", all[0].ExcessSince, one.ExcessSince)
		return !one.ExcessSince.IsZero()
	}

	// The minutes 3 to 7 are five of the last ten until minute 12 is over.
	now = start.Add(13*time.Minute - time.Millisecond)
	check(t, marked(), "five bad minutes among the last 10, and no mark")
	now = start.Add(13 * time.Minute)
	check(t, !marked(), "four bad minutes among the last 10, and still marked")
}

//rule:fleets-and-operators/a-change-by-an-operator
func TestFleets_ChangesReachTheSnapshot(t *testing.T) {
	check(t, 2*accounts.FleetPoll <= time.Second, "a change is looked for every %s; it must hold within a second", accounts.FleetPoll)
	l := openTest(t)
	must(t, l.Fleets.Load(t.Context()))
	f := newFleet(t, l)
	got := l.Fleets.Snapshot().Fleet(f.ID)
	require(t, got != nil && got.Name == f.Name && got.Couriers == -1 && got.Available(), "snapshot has %+v", got)
	now := time.Now()
	check(t, l.Fleets.VerifySecret(f.ID, testHash, now) && !l.Fleets.VerifySecret(f.ID, [32]byte{}, now) && !l.Fleets.VerifySecret(delivery.NewFleetID(), testHash, now),
		"secrets")
	before := l.Fleets.Snapshot()
	must(t, l.Fleets.Load(t.Context()))
	check(t, l.Fleets.Snapshot() == before, "the snapshot was made again though nothing changed")
	get(l.Fleets.Update(t.Context(), f.ID, func(f *delivery.Fleet) error { f.Suspended = true; return nil }))(t)
	must(t, l.Fleets.Load(t.Context()))
	elsewhere := delivery.Point{Latitude: 39, Longitude: 32}
	if c := l.Fleets.Snapshot().AppendCandidates(nil, elsewhere); len(c) != 1 || !c[0].Suspended || c[0].Covers {
		t.Errorf("a suspended fleet is a candidate everywhere: %+v", c)
	}

	equal(t, len(l.Fleets.Snapshot().Covering(elsewhere)), 0, "covering")
	mine := errors.New("mine")
	wantError(t, errOf(l.Fleets.Update(t.Context(), f.ID, func(*delivery.Fleet) error { return mine })), mine)
	wantCode(t, errOf(l.Fleets.Update(t.Context(), delivery.NewFleetID(), func(*delivery.Fleet) error { return nil })), delivery.CodeFleetNotFound)
}

func TestWriteStore_ComparesRevisionsAndKeepsLists(t *testing.T) {
	l := openTest(t)
	id, f := newAccount(t, l, plenty()), newFleet(t, l)
	none, quota := get2(l.Stores.CountAndGet(t.Context(), id, "S-1"))(t)
	check(t, none == nil && quota.Limit != 0, "found %+v, quota %+v", none, quota)
	s := newStore(t, l, id, f)
	check(t, s.Revision == 1, "revision %d", s.Revision)
	twin := &delivery.Store{Account: id, ExternalID: "S-1", State: delivery.AwaitingFleet}
	wantError(t, l.Stores.Write(t.Context(), twin), core.ErrConflict) // a second first write
	read, _ := get2(l.Stores.CountAndGet(t.Context(), id, "S-1"))(t)
	check(t, read.Name == s.Name && read.Point == s.Point && read.Revision == 1 && read.Fleet == f.ID, "read %+v", read)
	count := func(state delivery.StoreState) int {
		return len(storesOfFleet(t, l, f.ID, state))
	}
	check(t, count(0) == 1 && count(delivery.Active) == 1 && count(delivery.AwaitingFleetApproval) == 0, "the fleet's list of stores")
	read.ClosingDate = time.Date(2026, 11, 21, 12, 0, 0, 0, delivery.Istanbul)
	must(t, l.Stores.Write(t.Context(), read, accounts.Notice{Account: id, Type: delivery.StoreMigrating, OccurredAt: time.Now(), Data: []byte(`{}`)}))
	partition := core.PartitionNumber(id, len(l.core.Partitions))
	midnight := time.Date(2026, 11, 22, 0, 0, 0, 0, delivery.Istanbul)
	for at, want := range map[time.Time]int{midnight.Add(-time.Millisecond): 0, midnight: 1} {
		due := get(l.Stores.Due(t.Context(), partition, at, 10))(t)
		check(t, len(due) == want, "%s: %d stores due, want %d", at, len(due), want)
	}

	read.Fleet, read.State = delivery.FleetID{}, delivery.Deactivated
	must(t, l.Stores.Write(t.Context(), read))
	if due, err := l.Stores.Due(t.Context(), partition, midnight, 10); err != nil || len(due) != 0 || count(0) != 0 {
		t.Errorf("a closed store is still due (%d) or listed, %v", len(due), err)
	}

	equal(t, l.core.Redis.XLen(t.Context(), l.core.Partitions[partition].Key(core.KindEvents)).Val(), 1, "events")
	wantCode(t, errOf(l.Stores.Get(t.Context(), id, "S-2")), delivery.CodeStoreNotFound)
	stores, _, err := l.Stores.Find(t.Context(), accounts.StoreFilter{Account: id}, 10)
	must(t, err)
	equal(t, len(stores), 1, "stores of the account")
}

func TestPartitionTags_AreEvenAndStable(t *testing.T) {
	for _, partitions := range []int{1, 2, 3, 7, 16, 64, 256, 1024} {
		seen := make(map[string]bool)
		share := core.ClusterSlots / partitions
		for i, tag := range core.PartitionTags('p', partitions) {
			require(t, !seen[tag], "%d partitions: tag %s twice", partitions, tag)
			seen[tag] = true
			slot := int(core.HashSlot(tag))
			check(t, slot >= i*share+share/4 && slot <= i*share+share*3/4, "%d partitions: tag %s of partition %d has slot %d", partitions, tag, i, slot)
		}
	}

	equal(t, core.HashSlot("foo"), 12182, "slot of foo is")
	// Part of the stored layout: another name would lose every key.
	equal(t, core.PartitionTags('p', 16)[3], "p03bj", "partition 3 of 16 is called")
}
