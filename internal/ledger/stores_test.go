package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
)

// testStore is a store of a fleet in a state, which has not been written.
func testStore(account delivery.AccountID, externalID string, fleet delivery.FleetID, state delivery.StoreState) *delivery.Store {
	return &delivery.Store{
		Account: account, ExternalID: externalID, State: state, TaxNumber: "1234567890", Name: "Şube", Phone: "2121234567",
		Address: "İstiklal Caddesi 1", Point: taksim, Fleet: fleet, FleetName: "Kurye", UpdatedAt: time.Now(),
	}
}

// writeStores writes n stores of several accounts, so that all partitions have some.
func writeStores(t *testing.T, l *Ledger, accounts []delivery.AccountID, prefix string, n int, fleet delivery.FleetID, state delivery.StoreState) {
	t.Helper()
	for i := range n {
		store := testStore(accounts[i%len(accounts)], fmt.Sprint(prefix, i), fleet, state)
		must(t, l.Stores.Write(t.Context(), store))
	}
}

func newAccounts(t *testing.T, l *Ledger, n int) []delivery.AccountID {
	t.Helper()
	accounts := make([]delivery.AccountID, n)
	for i := range accounts {
		accounts[i] = newAccount(t, l, plenty())
	}
	return accounts
}

// allPages reads a fleet's stores page by page and returns them by external id.
func allPages(t tester, l *Ledger, fleet delivery.FleetID, state delivery.StoreState, limit int, between func()) (externalIDs []string) {
	t.Helper()
	for cursor := ""; ; {
		page := get(l.Stores.PageOfFleet(context.Background(), fleet, state, cursor, limit))(t)
		require(t, page.Len() <= limit, "a page of %d stores, want at most %d", page.Len(), limit)
		for _, s := range get(l.Stores.ReadPage(context.Background(), page))(t) {
			externalIDs = append(externalIDs, s.ExternalID)
		}

		if page.Next == "" {
			return externalIDs
		}

		cursor = page.Next
		between()
	}
}

var commandCalls = regexp.MustCompile(`cmdstat_([a-z|]+):calls=(\d+)`)

// commandsOf counts what a call makes the server do, by command.
func commandsOf(t *testing.T, l *Ledger, call func()) map[string]int {
	t.Helper()
	client := l.core.Redis.(*redis.Client)
	read := func() map[string]int {
		counts := map[string]int{}
		for _, match := range commandCalls.FindAllStringSubmatch(get(client.Info(t.Context(), "commandstats").Result())(t), -1) {
			counts[match[1]] = get(strconv.Atoi(match[2]))(t)
		}
		return counts
	}

	before := read()
	call()
	after := read()
	for name, n := range before {
		after[name] -= n
	}

	return after
}

func TestPageOfFleet_ReadsNoStoreOfAnotherState(t *testing.T) {
	_, own := ownServer(t)
	l := openTest(t, own)
	fleet, accountList := delivery.NewFleetID(), newAccounts(t, l, 20)
	writeStores(t, l, accountList, "active", 3000, fleet, delivery.Active)
	writeStores(t, l, accountList, "waiting", 3, fleet, delivery.AwaitingFleetApproval)

	calls := commandsOf(t, l, func() {
		equal(t, len(allPages(t, l, fleet, delivery.AwaitingFleetApproval, 100, func() {})), 3, "stores that wait")
	})
	check(t, calls["get"] == 3, "%d records are read for 3 stores that wait beside 3,000 others", calls["get"])
	check(t, calls["zcard"]+calls["zrange"] <= 2*len(l.core.Partitions), "%v", calls)

	calls = commandsOf(t, l, func() {
		stores := storesOfFleet(t, l, fleet, delivery.AwaitingFleetApproval)
		equal(t, len(stores), 3, "stores that wait, at once")
	})

	check(t, calls["get"] == 3, "%d records are read for 3 stores that wait, at once", calls["get"])

	calls = commandsOf(t, l, func() {
		stores, _ := get2(l.Stores.Find(t.Context(), accounts.StoreFilter{Fleet: fleet, State: delivery.AwaitingFleetApproval}, 10))(t)
		equal(t, len(stores), 3, "stores that wait, found")
	})

	check(t, calls["get"] == 3, "%d records are read to find 3 stores that wait", calls["get"])

	calls = commandsOf(t, l, func() {
		page := get(l.Stores.PageOfFleet(t.Context(), fleet, 0, "", 100))(t)
		check(t, page.Len() == 100 && page.Next != "", "a page of %d, next %q", page.Len(), page.Next)
	})

	check(t, calls["get"] == 0, "finding a page reads %d records", calls["get"])
	check(t, calls["zrange"] == 1, "finding a page that the first partition fills lists %d partitions", calls["zrange"])
}

// Few round trips and no listing at all where hundreds of partitions are empty.
func TestPageOfFleet_AsksEmptyPartitionsForTheirSizeOnly(t *testing.T) {
	_, own := ownServer(t)
	l := openTest(t, own, func(c *core.Config) { c.Partitions = 256 })
	calls := commandsOf(t, l, func() {
		page := get(l.Stores.PageOfFleet(t.Context(), delivery.NewFleetID(), delivery.Active, "", 100))(t)
		check(t, page.Len() == 0 && page.Next == "", "%+v", page)
	})
	check(t, calls["zcard"] == 256 && calls["zrange"] == 0, "%v", calls)
}

// Whatever happens to stores between two pages, those that stay the fleet's are listed once.
func TestPageOfFleet_HasEachStoreOnceWhileStoresChange(t *testing.T) {
	l := openTest(t)
	accounts := newAccounts(t, l, 10)
	states := []delivery.StoreState{delivery.AwaitingFleetApproval, delivery.Active, delivery.Deactivated}
	rapid.Check(t, func(rt *rapid.T) {
		fleet := delivery.NewFleetID()
		run := fleet.String()
		var stores []*delivery.Store
		for i := range rapid.IntRange(0, 40).Draw(rt, "stores") {
			state := rapid.SampledFrom(states).Draw(rt, "state")
			s := testStore(accounts[i%len(accounts)], fmt.Sprint(run, "/", i), fleet, state)
			must(rt, l.Stores.Write(t.Context(), s))
			stores = append(stores, s)
		}

		var want []string
		for _, s := range stores {
			want = append(want, s.ExternalID)
		}

		added := 0
		limit := rapid.IntRange(1, 15).Draw(rt, "limit")
		listed := allPages(rt, l, fleet, 0, limit, func() {
			for range rapid.IntRange(0, 5).Draw(rt, "changes") {
				s := rapid.SampledFrom(stores).Draw(rt, "store")
				s.State = rapid.SampledFrom(states).Draw(rt, "new state")
				must(rt, l.Stores.Write(t.Context(), s))
			}

			if added < 10 && rapid.Bool().Draw(rt, "another") {
				added++
				another := testStore(accounts[added%len(accounts)], fmt.Sprint(run, "/new", added), fleet, delivery.Active)
				must(rt, l.Stores.Write(t.Context(), another))
			}
		})

		slices.Sort(listed)
		check(rt, len(slices.Compact(slices.Clone(listed))) == len(listed), "a store is listed twice: %v", listed)
		for _, id := range want {
			check(rt, slices.Contains(listed, id), "%s is not listed", id)
		}
	})
}

func TestPageOfFleet_RefusesCursorsThatNoPageHad(t *testing.T) {
	l := openTest(t)
	fleet, digest := delivery.NewFleetID(), strings.Repeat("a1", len(delivery.Digest{}))
	page := get(l.Stores.PageOfFleet(t.Context(), fleet, 0, "3."+digest, 10))(t)
	check(t, page.Len() == 0 && page.Next == "", "%+v", page)
	for _, cursor := range []string{
		"x", "0", "0.", "." + digest, "0.0." + digest, "-1." + digest, "+1." + digest, "01." + digest, "4." + digest,
		"9999999999999999999." + digest, "0." + digest[2:], "0." + digest + "00", "0." + digest + " ", " 0." + digest, "0.zz" + digest[2:],
	} {
		_, err := l.Stores.PageOfFleet(t.Context(), fleet, 0, cursor, 10)
		refusal := wantCode(t, err, delivery.CodeValidationFailed)
		check(t, refusal.Fields[0].Field == "cursor", "%q: %+v", cursor, refusal)
	}
}

// The lists of fleets, and the numbers of stores that wait, are what a look at all records
// says, whatever moves there were.
func TestWriteStore_ListsAreWhatTheRecordsSay(t *testing.T) {
	l := openTest(t)
	account := newAccount(t, l, plenty())
	r := l.core.PartitionOf(account)
	rapid.Check(t, func(rt *rapid.T) {
		fleets := []delivery.FleetID{{}, delivery.NewFleetID(), delivery.NewFleetID()}
		stores := map[string]*delivery.Store{}
		for range rapid.IntRange(1, 40).Draw(rt, "moves") {
			id := fmt.Sprint(fleets[1], rapid.IntRange(0, 4).Draw(rt, "store"))
			fleet := rapid.SampledFrom(fleets).Draw(rt, "fleet")
			state := delivery.StoreState(rapid.IntRange(1, 4).Draw(rt, "state"))
			s := testStore(account, id, fleet, state)
			stored := stores[id]
			if stored != nil {
				s.Revision = stored.Revision
			}

			if rapid.Bool().Draw(rt, "outdated") {
				outdated := *s
				outdated.Revision += 7
				wantError(rt, l.Stores.Write(t.Context(), &outdated), core.ErrConflict)
				continue
			}

			must(rt, l.Stores.Write(t.Context(), s))
			stores[id] = s
		}

		for _, fleet := range fleets {
			waiting := ""
			for state := range delivery.Deactivated + 1 {
				var want []string
				for id, s := range stores {
					if s.Fleet == fleet && !fleet.IsZero() && (state == 0 || s.State == state) {
						digest := delivery.OrderDigest(account, id)
						want = append(want, string(digest[:]))
					}
				}

				slices.Sort(want)
				members := get(l.core.Redis.ZRangeWithScores(t.Context(), r.FleetStores(fleet, state), 0, -1).Result())(rt)
				var got []string
				for _, z := range members {
					check(rt, z.Score == 0, "the score %v", z.Score)
					got = append(got, z.Member.(string))
				}

				check(rt, slices.Equal(got, want), "state %d of fleet %s: %x, want %x", state, fleet, got, want)
				if state == delivery.AwaitingFleetApproval && len(want) > 0 {
					waiting = fmt.Sprint(len(want))
				}
			}

			count, err := l.core.Redis.HGet(t.Context(), r.KeyOf(core.KindPendingStores, account[:]), string(fleet[:])).Result()
			check(rt, count == waiting && (err == nil || errors.Is(err, redis.Nil)), "%q stores wait for fleet %s, want %q, %v", count, fleet, waiting, err)
		}
	})
}

func limitStores(t *testing.T, l *Ledger, account delivery.AccountID, stores, pending int) {
	t.Helper()
	get(l.Accounts.Update(t.Context(), account, func(a *delivery.Account) error {
		a.Limits.MaxStores, a.Limits.MaxPendingStores = stores, pending
		return nil
	}))(t)
}

func TestWriteStore_NoMoreStoresThanTheAccountMayHave(t *testing.T) {
	l := openTest(t)
	account, other, fleet := newAccount(t, l, plenty()), newAccount(t, l, plenty()), delivery.NewFleetID()
	limitStores(t, l, account, 3, 100)
	write := func(id string) error {
		return l.Stores.Write(t.Context(), testStore(account, id, fleet, delivery.Active))
	}
	var first *delivery.Store
	for i := range 3 {
		s := testStore(account, fmt.Sprint("s", i), fleet, delivery.Active)
		must(t, l.Stores.Write(t.Context(), s))
		first = s
	}

	refusal := wantCode(t, write("s3"), delivery.CodeTooManyStores)
	check(t, strings.Contains(refusal.Message, "has 3 stores") && strings.Contains(refusal.Message, "maxStores"), "%s", refusal.Message)
	wantCode(t, errOf(l.Stores.Get(t.Context(), account, "s3")), delivery.CodeStoreNotFound)
	equal(t, len(storesOfFleet(t, l, fleet, 0)), 3, "stores in the fleet's list")
	must(t, l.Stores.Write(t.Context(), testStore(other, "s1", fleet, delivery.Active))) // another's limit is another's

	// A store that exists is changed as before, also when the limit is below what there is.
	limitStores(t, l, account, 1, 100)
	for _, state := range []delivery.StoreState{delivery.Deactivated, delivery.AwaitingFleetApproval, delivery.Active} {
		first.State = state
		must(t, l.Stores.Write(t.Context(), first))
	}

	wantCode(t, write("s3"), delivery.CodeTooManyStores)
	limitStores(t, l, account, 4, 100)
	must(t, write("s3"))
	wantCode(t, write("s4"), delivery.CodeTooManyStores)
}

func TestWriteStore_NoMoreStoresWaitForAFleetThanTheAccountMayHave(t *testing.T) {
	l := openTest(t)
	account, other := newAccount(t, l, plenty()), newAccount(t, l, plenty())
	fleet, rival := delivery.NewFleetID(), delivery.NewFleetID()
	limitStores(t, l, account, 100, 2)
	limitStores(t, l, other, 100, 2)
	stores := make([]*delivery.Store, 4)
	for i := range stores {
		stores[i] = testStore(account, fmt.Sprint("s", i), fleet, delivery.Active)
		must(t, l.Stores.Write(t.Context(), stores[i]))
	}

	await := func(s *delivery.Store, fleet delivery.FleetID) error {
		asked := *s
		asked.Fleet, asked.State = fleet, delivery.AwaitingFleetApproval
		err := l.Stores.Write(t.Context(), &asked)
		if err == nil {
			*s = asked
		}
		return err
	}

	must(t, await(stores[0], fleet))
	must(t, await(stores[1], fleet))
	refusal := wantCode(t, await(stores[2], fleet), delivery.CodeTooManyStores)
	check(t, strings.HasPrefix(refusal.Message, "2 stores of the account wait for the answer of fleet "+fleet.String()), "%s", refusal.Message)
	wantCode(t, await(testStore(account, "new", fleet, delivery.AwaitingFleetApproval), fleet), delivery.CodeTooManyStores)
	check(t, get(l.Stores.Get(t.Context(), account, "s2"))(t).State == delivery.Active, "a refused store has changed")

	// One that waits already stays so; other fleets and accounts are counted by themselves.
	must(t, await(stores[0], fleet))
	must(t, await(stores[2], rival))
	must(t, await(testStore(other, "s0", fleet, delivery.AwaitingFleetApproval), fleet))

	// An answer makes room, and so does another choice; a lower limit sends nobody away.
	stores[0].State = delivery.Active
	must(t, l.Stores.Write(t.Context(), stores[0]))
	must(t, await(stores[3], fleet))
	wantCode(t, await(stores[0], fleet), delivery.CodeTooManyStores)
	must(t, await(stores[3], rival))
	must(t, await(stores[0], fleet))
	limitStores(t, l, account, 100, 1)
	must(t, await(stores[0], fleet))
	wantCode(t, await(stores[3], fleet), delivery.CodeTooManyStores)
	limitStores(t, l, account, 100, 3)
	must(t, await(stores[3], fleet))
	equal(t, len(storesOfFleet(t, l, fleet, delivery.AwaitingFleetApproval)), 4, "stores that wait, of both accounts")
}

// Two gateways that write at the same time pass no limit.
func TestWriteStore_ConcurrentWritesPassNoLimit(t *testing.T) {
	l := openTest(t)
	gateways := []*Ledger{l, openTest(t, sameDatabase(l))}
	for name, c := range map[string]struct{ stores, pending, want int }{
		"stores": {stores: 5, pending: 100, want: 5}, "stores that wait": {stores: 100, pending: 7, want: 7},
	} {
		account, fleet := newAccount(t, l, plenty()), delivery.NewFleetID()
		limitStores(t, l, account, c.stores, c.pending)
		errs := make([]error, 40)
		var group sync.WaitGroup
		for i := range errs {
			group.Go(func() {
				s := testStore(account, fmt.Sprint("s", i), fleet, delivery.AwaitingFleetApproval)
				errs[i] = gateways[i%2].Stores.Write(t.Context(), s)
			})
		}

		group.Wait()
		written := 0
		for _, err := range errs {
			if err == nil {
				written++
				continue
			}
			wantCode(t, err, delivery.CodeTooManyStores)
		}

		equal(t, written, c.want, name+" that are taken")
		equal(t, len(storesOfFleet(t, l, fleet, 0)), c.want, name)
	}
}

// A record of one vendor that cannot be read hides no other vendor's store, on no page, and is
// logged once.
func TestStores_AnUnreadableRecordIsLeftOutAndLoggedOnce(t *testing.T) {
	var logs lockedBuffer
	l := openTest(t, func(c *core.Config) { c.Log = slog.New(slog.NewTextHandler(&logs, nil)) })
	fleet := delivery.NewFleetID()
	accountList := newAccounts(t, l, 5)
	midnight := time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)
	for i, account := range accountList {
		s := testStore(account, fmt.Sprint("S-", i), fleet, delivery.Active)
		s.ClosingDate = midnight
		must(t, l.Stores.Write(t.Context(), s))
	}

	spoilt := l.core.PartitionOf(accountList[2]).Store(delivery.OrderDigest(accountList[2], "S-2"))
	record := get(l.core.Redis.Get(t.Context(), spoilt).Result())(t)
	want := []string{"S-0", "S-1", "S-3", "S-4"}

	for _, garbage := range []string{garbage, "\x7f", record[:len(record)/2]} {
		must(t, l.core.Redis.Set(t.Context(), spoilt, garbage, 0).Err())
		for limit := 1; limit <= 5; limit++ {
			equal(t, slices.Sorted(slices.Values(allPages(t, l, fleet, delivery.Active, limit, func() {}))), want, "stores of all pages")
		}

		equal(t, len(storesOfFleet(t, l, fleet, delivery.Active)), len(want), "stores of the fleet")
		for _, f := range []accounts.StoreFilter{{}, {Fleet: fleet}, {Text: "s-"}} {
			found, more := get2(l.Stores.Find(t.Context(), f, 10))(t)
			check(t, len(found) == len(want) && !more, "%+v: %d stores, more %v", f, len(found), more)
		}

		due := 0
		for partition := range l.core.Partitions {
			due += len(get(l.Stores.Due(t.Context(), partition, midnight.Add(48*time.Hour), 10))(t))
		}

		equal(t, due, len(want), "stores whose closing day is over")
	}

	equal(t, strings.Count(logs.String(), "a record cannot be read"), 1, "lines in the log")

	must(t, l.core.Redis.Set(t.Context(), spoilt, record, 0).Err())
	equal(t, len(storesOfFleet(t, l, fleet, delivery.Active)), len(accountList), "stores after the repair")
	equal(t, strings.Count(logs.String(), "a record is read again"), 1, "lines about the repair")
}

// However many records are broken, a store behind them is closed on its day.
func TestStores_DuePassesOverUnreadableOnes(t *testing.T) {
	l := openTest(t)
	account, fleet := newAccount(t, l, plenty()), delivery.NewFleetID()
	day := time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)
	for i, id := range []string{"broken-1", "broken-2", "whole"} {
		s := testStore(account, id, fleet, delivery.Active)
		s.ClosingDate = day.AddDate(0, 0, i)
		must(t, l.Stores.Write(t.Context(), s))
	}

	inPartition := l.core.PartitionOf(account)
	for _, id := range []string{"broken-1", "broken-2"} {
		must(t, l.core.Redis.Set(t.Context(), inPartition.Store(delivery.OrderDigest(account, id)), garbage, 0).Err())
	}

	due := get(l.Stores.Due(t.Context(), inPartition.Number, day.AddDate(0, 0, 9), 1))(t)

	check(t, len(due) == 1 && due[0].ExternalID == "whole", "%d stores are due", len(due))
}

func TestCountOfFleets_ReadsNoStore(t *testing.T) {
	_, own := ownServer(t)
	l := openTest(t, own)
	fleets, accounts := []delivery.FleetID{delivery.NewFleetID(), delivery.NewFleetID(), delivery.NewFleetID()}, newAccounts(t, l, 5)
	writeStores(t, l, accounts, "active", 30, fleets[0], delivery.Active)
	writeStores(t, l, accounts, "waiting", 4, fleets[0], delivery.AwaitingFleetApproval)
	writeStores(t, l, accounts, "other", 7, fleets[2], delivery.Active)

	calls := commandsOf(t, l, func() {
		equal(t, get(l.Stores.CountOfFleets(t.Context(), fleets, delivery.Active))(t), []int{30, 0, 7}, "active stores")
		equal(t, get(l.Stores.CountOfFleets(t.Context(), fleets, delivery.AwaitingFleetApproval))(t), []int{4, 0, 0}, "stores that wait")
	})

	check(t, calls["get"] == 0 && calls["zrange"] == 0, "%v", calls)
	equal(t, calls["zcard"], 2*len(fleets)*len(l.core.Partitions), "lists whose size is asked for")
}

func storesOfFleet(t *testing.T, l *Ledger, fleet delivery.FleetID, state delivery.StoreState) []*delivery.Store {
	t.Helper()
	stores, _, err := l.Stores.OfFleet(t.Context(), fleet, state)
	must(t, err)
	return stores
}
