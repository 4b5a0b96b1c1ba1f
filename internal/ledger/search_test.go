package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
)

func TestFindOrder_OfOneAccountInOneRead(t *testing.T) {
	l := openTest(t)
	vendors := envsEverywhere(t, l)
	for i, s := range vendors {
		s.create(t, fmt.Sprint("only-", i))
		s.create(t, "same id")
	}

	counts := &countCommands{counts: map[string]int{}}
	l.core.Redis.AddHook(counts)
	for _, s := range vendors {
		o := get(l.Orders.Find(t.Context(), s.account, "same id"))(t)
		require(t, o != nil, "not found")
		check(t, o.Account == s.account && o.ExternalOrderID == "same id" && o.Recipient.Name != "", "%+v", o)
	}

	equal(t, counts.all(), len(vendors), "commands")
	for _, nobodys := range []string{"", "only", "ONLY-2", "only-1", strings.Repeat("x", 1000)} {
		found, err := l.Orders.Find(t.Context(), vendors[2].account, nobodys)
		if err != nil || found != nil {
			t.Errorf("%.10q: %+v, %v", nobodys, found, err)
		}
	}

	key := l.core.PartitionOf(vendors[0].account).Order(delivery.OrderDigest(vendors[0].account, "same id"))
	must(t, l.core.Redis.Set(t.Context(), key, "damaged", 0).Err())
	check(t, errOf(l.Orders.Find(t.Context(), vendors[0].account, "same id")) != nil, "a record that cannot be read is passed over")

	var accounts []delivery.AccountID
	for _, v := range vendors {
		accounts = append(accounts, v.account)
	}

	among, unreadable := get2(l.Orders.FindAmong(t.Context(), accounts, "same id"))(t)
	check(t, len(among) == len(vendors)-1 && len(unreadable) == 1, "%d orders beside one that cannot be read, %v", len(among), unreadable)
}

// One account more than a pipeline asks about.
func TestAccounts_AllAreListedAndSearched(t *testing.T) {
	l := openTest(t)
	fleet := newFleet(t, l)
	want := make(map[delivery.AccountID]bool)
	for i := range core.ItemsAtOnce + 1 {
		a := &delivery.Account{ID: delivery.NewAccountID(), Name: fmt.Sprintf("Vendor %03d", core.ItemsAtOnce-i), Limits: plenty()}
		for range 2 { // a repeated call
			must(t, l.Accounts.Create(t.Context(), a, testHash))
		}

		newStore(t, l, a.ID, fleet)
		s := &env{Ledger: l, account: a.ID, fleet: fleet}
		if i%2 == 0 {
			s.register(t)
		}

		want[a.ID] = true
	}

	accountList := allAccounts(t, l)
	for i, a := range accountList {
		require(t, a.Name == fmt.Sprintf("Vendor %03d", i) && want[a.ID] && a.Limits == plenty(), "account %d: %+v", i, a)
	}

	endpoints := allReceivers(t, l)
	stores, more := get2(l.Stores.Find(t.Context(), accounts.StoreFilter{}, 1000))(t)
	check(t, len(accountList) == 501 && len(endpoints) == 251 && len(stores) == 501 && !more,
		"%d accounts, %d endpoints, %d stores", len(accountList), len(endpoints), len(stores))
}

func TestAccounts_OfAnEmptyLedger(t *testing.T) {
	l := openTest(t)
	accountList := allAccounts(t, l)
	endpoints := allReceivers(t, l)
	stores, more := get2(l.Stores.Find(t.Context(), accounts.StoreFilter{}, 10))(t)
	check(t, len(accountList)+len(endpoints)+len(stores) <= 0 && !more, "%v %v %v", accountList, endpoints, stores)
}

// city is a few accounts' stores in every state, of two fleets or none.
func city(t *testing.T, l *Ledger, vendors []*env) []*delivery.Store {
	t.Helper()
	other := newFleet(t, l)
	var all []*delivery.Store
	for n, s := range vendors {
		for i := range 5 + 7*n {
			store := &delivery.Store{Account: s.account, ExternalID: fmt.Sprintf("İzmir-%02d", i), TaxNumber: "1234567890",
				Name: []string{"KIRIK Kaşık", "İnci", "ısırgan"}[i%3], State: delivery.StoreState(1 + i%4), UpdatedAt: time.Now()}
			if i%2 == 0 {
				store.Fleet = []delivery.FleetID{s.fleet.ID, other.ID}[i/2%2]
			}
			must(t, l.Stores.Write(t.Context(), store))
			all = append(all, store)
		}
	}

	slices.SortFunc(all, func(a, b *delivery.Store) int {
		return strings.Compare(string(a.Account[:])+a.ExternalID, string(b.Account[:])+b.ExternalID)
	})

	return all
}

func TestFindStores_AgreesWithLookingAtAll(t *testing.T) {
	l := openTest(t)
	vendors := make([]*env, 5)
	for i := range vendors {
		vendors[i] = &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: &delivery.Fleet{ID: delivery.FleetID{1}}}
	}

	all := city(t, l, vendors)
	texts := map[string]func(*delivery.Store) bool{
		"":       func(*delivery.Store) bool { return true },
		"kırık":  func(s *delivery.Store) bool { return s.Name == "KIRIK Kaşık" },
		"izm":    func(*delivery.Store) bool { return true },
		"INCİ":   func(s *delivery.Store) bool { return s.Name == "İnci" },
		"r-03":   func(s *delivery.Store) bool { return s.ExternalID == "İzmir-03" },
		"nobody": func(*delivery.Store) bool { return false },
	}

	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 1000).Draw(rt, "limit")
		if rapid.Bool().Draw(rt, "few") {
			limit = 1 + limit%20
		}

		one := rapid.SampledFrom(all).Draw(rt, "store")
		var f accounts.StoreFilter
		if rapid.Bool().Draw(rt, "account") {
			f.Account = one.Account
		}

		if rapid.Bool().Draw(rt, "fleet") {
			f.Fleet = one.Fleet
		}

		f.State = delivery.StoreState(rapid.IntRange(0, 4).Draw(rt, "state"))
		f.Text = rapid.SampledFrom([]string{"", "kırık", "izm", "INCİ", "r-03", "nobody"}).Draw(rt, "text")
		var want []string
		for _, s := range all {
			if (f.Account.IsZero() || s.Account == f.Account) && (f.Fleet.IsZero() || s.Fleet == f.Fleet) &&
				(f.State == 0 || s.State == f.State) && texts[f.Text](s) {
				want = append(want, s.Account.String()+s.ExternalID)
			}
		}

		found, more := get2(l.Stores.Find(t.Context(), f, limit))(t)
		var got []string
		for _, s := range found {
			got = append(got, s.Account.String()+s.ExternalID)
		}

		if wantMore := len(want) > limit; more != wantMore || !slices.Equal(got, want[:min(limit, len(want))]) {
			rt.Fatalf("%+v, at most %d: %d stores, more %v; want %d, %v", f, limit, len(got), more, len(want), wantMore)
		}
	})
}

func TestFindStores_KeepsLittleAndEndsEarly(t *testing.T) {
	var first []*delivery.Store
	for i := range 1000 {
		first = accounts.FirstStores(append(first, &delivery.Store{ExternalID: fmt.Sprintf("%03d", (i*7)%1000)}), 4)
		require(t, len(first) <= 4, "%d stores are kept", len(first))
	}

	check(t, first[0].ExternalID == "000" && first[3].ExternalID == "003", "%+v", first)
	l := openTest(t)
	for range accounts.SetsAtOnce + 20 {
		newStore(t, l, newAccount(t, l, plenty()), &delivery.Fleet{ID: delivery.FleetID{1}})
	}

	last := delivery.AccountID{}
	for _, a := range allAccounts(t, l) {
		if core.CompareAccounts(a.ID, last) > 0 {
			last = a.ID
		}
	}

	must(t, l.core.Redis.Set(t.Context(), l.core.PartitionOf(last).Store(delivery.OrderDigest(last, "S-1")), "damaged", 0).Err())
	if found, more, err := l.Stores.Find(t.Context(), accounts.StoreFilter{}, 10); err != nil || len(found) != 10 || !more {
		t.Errorf("%d stores, more %v, %v", len(found), more, err)
	}
	if found, more, err := l.Stores.Find(t.Context(), accounts.StoreFilter{}, 100); err != nil || len(found) != accounts.SetsAtOnce+20-1 || more {
		t.Errorf("beside a record that cannot be read: %d stores, more %v, %v", len(found), more, err)
	}
	if found, _, err := l.Stores.Find(t.Context(), accounts.StoreFilter{Account: delivery.NewAccountID()}, 10); err != nil || len(found) != 0 {
		t.Errorf("an unknown account's: %+v, %v", found, err)
	}
}

func TestFindStores_Bounds(t *testing.T) {
	wantListsBounded(t, func(ctx context.Context, l *Ledger, limit int) error {
		_, _, err := l.Stores.Find(ctx, accounts.StoreFilter{}, limit)
		return err
	})
}

// A text that matches nothing must not make Redis read every store there is.
func TestFindStores_ReadsBoundedlyManyRecords(t *testing.T) {
	_, own := ownServer(t)
	l := openTest(t, own)
	accountList, fleet := newAccounts(t, l, 3), delivery.NewFleetID()
	writeStores(t, l, accountList, "s", 3, fleet, delivery.Active)
	const perAccount = 8000 // three times that is more than a search reads
	for i, account := range accountList {
		p := l.core.PartitionOf(account)
		record := get(l.core.Redis.Get(t.Context(), p.Store(delivery.OrderDigest(account, fmt.Sprint("s", i)))).Result())(t)
		pipe := l.core.Redis.Pipeline()
		for n := range perAccount {
			digest := delivery.OrderDigest(account, fmt.Sprint("more", n))
			pipe.Set(t.Context(), p.Store(digest), record, 0)
			pipe.SAdd(t.Context(), p.KeyOf(core.KindAccountStores, account[:]), digest[:])
			pipe.ZAdd(t.Context(), p.FleetStores(fleet, 0), redis.Z{Member: digest[:]})
		}

		get(pipe.Exec(t.Context()))(t)
	}

	for name, filter := range map[string]accounts.StoreFilter{"anywhere": {Text: "nowhere"}, "of a fleet": {Text: "nowhere", Fleet: fleet}} {
		calls := commandsOf(t, l, func() {
			stores, more := get2(l.Stores.Find(t.Context(), filter, 60))(t)
			check(t, len(stores) == 0 && more, "%s: %d stores, more %v", name, len(stores), more)
		})
		check(t, calls["get"] == 20_000, "%s: %d records are read", name, calls["get"])
	}

	stores, more := get2(l.Stores.Find(t.Context(), accounts.StoreFilter{Account: accountList[1], Text: "nowhere"}, 60))(t)
	check(t, len(stores) == 0 && !more, "of an account that is read whole: %d stores, more %v", len(stores), more)
}

// A later page of accounts begins behind the earlier one.
func TestAccountsWithStores_ReadsNoEntryTwice(t *testing.T) {
	_, own := ownServer(t)
	l := openTest(t, own)
	want := map[delivery.AccountID]bool{}
	for range 300 {
		account := delivery.NewAccountID()
		want[account] = true
		must(t, l.core.Redis.ZAdd(t.Context(), l.core.PartitionOf(account).List(core.ListWithStores), redis.Z{Member: account[:]}).Err())
	}

	var last delivery.AccountID
	pages := 0
	calls := commandsOf(t, l, func() {
		for more := true; more; pages++ {
			var accounts []delivery.AccountID
			var err error
			accounts, more, err = l.Stores.AccountsWithStores(t.Context(), last, 7)
			must(t, err)
			for _, account := range accounts {
				check(t, want[account] && core.CompareAccounts(account, last) > 0, "%s after %s", account, last)
				delete(want, account)
				last = account
			}
		}
	})

	equal(t, len(want), 0, "accounts that no page has")
	equal(t, calls["zrange"], pages*len(l.core.Partitions), "lists that are read")
}
