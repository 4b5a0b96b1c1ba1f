package ledger

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
)

func allAccounts(t testing.TB, l *Ledger) []*delivery.Account {
	t.Helper()
	return accountsOf(t, l, accounts.AccountFilter{}, 100, func() {})
}

// accountsOf lists accounts page by page, and calls between before each further page.
func accountsOf(t testing.TB, l *Ledger, f accounts.AccountFilter, limit int, between func()) []*delivery.Account {
	t.Helper()
	return pagesOf(t, limit, between, func(cursor string) ([]*delivery.Account, string, error) {
		return l.Accounts.Page(t.Context(), f, cursor, limit)
	})
}

// pagesOf reads a listing to its end and returns all of it. It calls between before each further page.
func pagesOf[T any](t testing.TB, limit int, between func(), read func(cursor string) (page []T, next string, err error)) []T {
	t.Helper()
	var all []T
	cursor := ""
	for {
		page, next, err := read(cursor)
		must(t, err)
		require(t, len(page) <= limit, "a page of %d", len(page))
		all = append(all, page...)
		if next == "" {
			return all
		}

		cursor = next
		between()
	}
}

func allReceivers(t testing.TB, l *Ledger) []*webhooks.WebhookEndpoint {
	t.Helper()
	return receiversOf(t, l, "", 100)
}

func receiversOf(t testing.TB, l *Ledger, state partitions.EndpointState, limit int) []*webhooks.WebhookEndpoint {
	t.Helper()
	return pagesOf(t, limit, func() {}, func(cursor string) ([]*webhooks.WebhookEndpoint, string, error) {
		return l.Webhooks.Page(t.Context(), state, cursor, limit)
	})
}

func namesOf(accounts []*delivery.Account) []string {
	names := make([]string, len(accounts))
	for i, a := range accounts {
		names[i] = a.Name
	}
	return names
}

func newNamed(t testing.TB, l *Ledger, name string) *delivery.Account {
	t.Helper()
	a := &delivery.Account{ID: delivery.NewAccountID(), Name: name, Limits: plenty(), CreatedAt: time.Now()}
	must(t, l.Accounts.Create(t.Context(), a, testHash))
	return a
}

func (l *Ledger) rename(t testing.TB, id delivery.AccountID, name string) {
	t.Helper()
	get(l.Accounts.Update(t.Context(), id, func(a *delivery.Account) error { a.Name = name; return nil }))(t)
}

func TestAccountPages_HaveEachOnceByName(t *testing.T) {
	l := openTest(t)
	var want []string
	for i := range 25 {
		name := fmt.Sprintf("Vendor %02d", i/2) // two of each name but the last
		newNamed(t, l, name)
		want = append(want, name)
	}

	for _, limit := range []int{1, 7, 24, 25, 26} {
		equal(t, namesOf(accountsOf(t, l, accounts.AccountFilter{}, limit, func() {})), want, fmt.Sprint("pages of ", limit))
	}

	// Accounts that come between pages move no other one.
	added := accountsOf(t, l, accounts.AccountFilter{}, 10, func() { newNamed(t, l, "A first one") })
	equal(t, namesOf(added), want, "with new ones before the page")
	equal(t, get(l.Accounts.Counts(t.Context()))(t), accounts.AccountCounts{All: 27}, "counts")
}

func TestAccountPages_FindTheBeginningOfANameInAnyCase(t *testing.T) {
	l := openTest(t)
	for _, name := range []string{"İnci Büfe", "IŞIK Market", "ince iş", "Zurna", "Ince", "ıspanak"} {
		newNamed(t, l, name)
	}

	one := newNamed(t, l, "Inci")
	for text, want := range map[string][]string{
		"inc":                            {"Ince", "ince iş", "Inci", "İnci Büfe"},
		"İNCİ":                           {"Inci", "İnci Büfe"},
		"ışık":                           {"IŞIK Market"},
		"ıS":                             {"ıspanak"},
		"zurnaa":                         nil,
		"nci":                            nil,
		"\xff":                           nil,
		one.ID.String():                  {"Inci"},
		one.ID.ClientID():                {"Inci"},
		one.ID.String()[1:]:              nil,
		delivery.NewAccountID().String(): nil,
	} {
		var got []string
		for _, a := range accountsOf(t, l, accounts.AccountFilter{Text: text}, 2, func() {}) {
			got = append(got, a.Name)
		}
		equal(t, got, want, fmt.Sprintf("%q", text))
	}
}

func TestAccounts_NamedFindsTheOneThatIsMeant(t *testing.T) {
	l := openTest(t)
	upper, lower, other := newNamed(t, l, "KAHVE"), newNamed(t, l, "kahve"), newNamed(t, l, "Çay")
	newNamed(t, l, "Çay bahçesi")
	for text, want := range map[string]*delivery.Account{"KAHVE": upper, "kahve": lower, "çAY": other, upper.ID.String(): upper} {
		equal(t, get(l.Accounts.Named(t.Context(), text))(t).ID, want.ID, text)
	}

	for _, text := range []string{"Kahve", "", "kah", "Çay bahçesi 2", delivery.NewAccountID().String()} {
		wantCode(t, errOf(l.Accounts.Named(t.Context(), text)), delivery.CodeAccountNotFound)
	}
}

func TestAccountPages_RefuseForeignCursors(t *testing.T) {
	l := openTest(t)
	newNamed(t, l, "Vendor")
	id := delivery.NewAccountID()
	member := base64.RawURLEncoding.EncodeToString([]byte(accounts.NameMember(id, "a", 1)))
	for _, cursor := range []string{"1", "!", "AAAA", "0.00", strings.Repeat("A", 4000)} {
		wantCode(t, errOf2(l.Accounts.Page(t.Context(), accounts.AccountFilter{}, cursor, 10)), delivery.CodeValidationFailed)
	}

	wantCode(t, errOf2(l.Accounts.Page(t.Context(), accounts.AccountFilter{Text: id.String()}, member, 10)), delivery.CodeValidationFailed)
	of := fmt.Sprintf("%x", id[:])
	for _, cursor := range []string{"1", "1.", "1.00", "-1." + of, "+1." + of, "01." + of, "1." + of + "00", "1. " + of, "99999999999999999999." + of, member} {
		wantCode(t, errOf2(l.Accounts.Page(t.Context(), accounts.AccountFilter{State: accounts.AccountSuspended}, cursor, 10)), delivery.CodeValidationFailed)
		wantCode(t, errOf2(l.Webhooks.Page(t.Context(), "", cursor, 10)), delivery.CodeValidationFailed)
	}
}

func errOf2[A, B any](_ A, _ B, err error) error { return err }

func TestAccountNames_FollowEveryRename(t *testing.T) {
	l := openTest(t)
	a, b := newNamed(t, l, "Bir"), newNamed(t, l, "İki")
	l.rename(t, a.ID, "Üç")
	l.rename(t, a.ID, "ÜÇ") // the same to whoever searches
	equal(t, namesOf(allAccounts(t, l)), []string{"İki", "ÜÇ"}, "names")
	l.rename(t, a.ID, "Bir")
	equal(t, namesOf(allAccounts(t, l)), []string{"Bir", "İki"}, "with the first name again")
	equal(t, get(l.Accounts.Counts(t.Context()))(t).All, 2, "accounts")

	// Two names that go to and fro, at the same time.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { l.rename(t, b.ID, []string{"Dört", "Beş"}[i%2]) })
	}

	all.Wait()
	stored := get(l.Accounts.Get(t.Context(), b.ID))(t)
	equal(t, namesOf(allAccounts(t, l)), slices.Sorted(slices.Values([]string{"Bir", stored.Name})), "after renames at the same time")
}

// What a process left that ended between its writes is passed over, and repaired by a restore.
func TestAccountNames_OutliveAnEndBetweenTheWrites(t *testing.T) {
	l := openTest(t)
	a := newNamed(t, l, "Bir")
	never := delivery.NewAccountID()
	for _, member := range []string{accounts.NameMember(never, "Hiç", 1), accounts.NameMember(a.ID, "Yarım", 2)} {
		must(t, l.core.Redis.ZAdd(t.Context(), l.Accounts.NamesKey(), redis.Z{Member: member}).Err())
	}

	equal(t, namesOf(accountsOf(t, l, accounts.AccountFilter{}, 1, func() {})), []string{"Bir"}, "names")

	must(t, l.core.Redis.ZAdd(t.Context(), l.Accounts.NamesKey(), redis.Z{Member: "damaged"}).Err())
	b := newNamed(t, l, "İki")
	must(t, l.core.Redis.ZRem(t.Context(), l.Accounts.NamesKey(), accounts.NameMember(b.ID, b.Name, 1)).Err())
	must(t, l.Accounts.RepairNames(t.Context()))
	equal(t, namesOf(allAccounts(t, l)), []string{"Bir", "İki"}, "names after the repair")
	equal(t, get(l.Accounts.Counts(t.Context()))(t).All, 2, "accounts after the repair")
	l.rename(t, a.ID, "Yarım")
	equal(t, namesOf(allAccounts(t, l)), []string{"İki", "Yarım"}, "names after a rename")
}

func TestAccountPages_OfAState(t *testing.T) {
	l := openTest(t)
	suspend := func(id delivery.AccountID, on bool) {
		get(l.Accounts.Update(t.Context(), id, func(a *delivery.Account) error { a.Suspended = on; return nil }))(t)
	}
	var suspended []string
	for i := range 9 {
		a := newNamed(t, l, fmt.Sprint("Vendor ", i))
		l.setClock(t, int64(4_000_000_000+i)*second)
		if i%2 == 0 {
			suspend(a.ID, true)
			suspended = append(suspended, a.Name)
		}
	}

	equal(t, namesOf(accountsOf(t, l, accounts.AccountFilter{State: accounts.AccountSuspended}, 2, func() {})), suspended, "suspended, the first ones first")
	equal(t, namesOf(accountsOf(t, l, accounts.AccountFilter{State: accounts.AccountSuspended, Text: "vendor 4"}, 2, func() {})), []string{"Vendor 4"}, "one of them")
	equal(t, get(l.Accounts.Counts(t.Context()))(t), accounts.AccountCounts{All: 9, Suspended: 5}, "counts")
	for _, a := range allAccounts(t, l) {
		suspend(a.ID, false)
	}

	equal(t, get(l.Accounts.Counts(t.Context()))(t), accounts.AccountCounts{All: 9}, "counts")
	equal(t, len(accountsOf(t, l, accounts.AccountFilter{State: accounts.AccountSuspended}, 2, func() {})), 0, "suspended")
}

func TestAccountPages_InExcessUntilItEnds(t *testing.T) {
	now := time.Now().Truncate(time.Minute)
	l := openTest(t, func(c *core.Config) { c.Now = func() time.Time { return now } })
	bounds := plenty()
	bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 3600}}
	id := newAccount(t, l, bounds)
	quiet := newAccount(t, l, plenty())
	inExcess := func() (ids []delivery.AccountID) {
		for _, a := range accountsOf(t, l, accounts.AccountFilter{State: accounts.AccountInExcess}, 5, func() {}) {
			check(t, !a.ExcessSince.IsZero(), "%+v", a)
			ids = append(ids, a.ID)
		}
		equal(t, get(l.Accounts.Counts(t.Context()))(t).Excess, int64(len(ids)), "in excess")
		return ids
	}

	for range limits.ExcessMinutes {
		equal(t, len(inExcess()), 0, "accounts in excess")
		for range 5 {
			_, _ = l.Limits.Consume(t.Context(), id, limits.EndpointOrders)
			_, _ = l.Limits.Consume(t.Context(), quiet, limits.EndpointOrders)
		}
		must(t, l.Limits.Flush(t.Context(), now))
		now = now.Add(time.Minute)
	}

	equal(t, inExcess(), []delivery.AccountID{id}, "accounts in excess")
	now = now.Add(limits.ExcessSpan * time.Minute) // the account is silent
	equal(t, len(inExcess()), 0, "accounts in excess after it has ended")
	_, _ = l.Limits.Consume(t.Context(), id, limits.EndpointCancel)
	must(t, l.Limits.Flush(t.Context(), now))
	equal(t, get(l.core.Redis.Exists(t.Context(), l.core.PartitionOf(id).List(core.ListExcess)).Result())(t), 0, "lists of those in excess")
}

func TestReceiverPages_WorstAndLongestFirst(t *testing.T) {
	l := openTest(t)
	base := time.UnixMilli(1_795_000_000_000)
	states := []partitions.EndpointState{partitions.EndpointHealthy, partitions.EndpointFailing, partitions.EndpointGone, partitions.EndpointUnreachable}
	type receiver struct {
		account delivery.AccountID
		state   partitions.EndpointState
		since   int64
	}

	var want []receiver
	counts := map[partitions.EndpointState]int64{}
	for i := range 40 {
		s := newVendor(t, l)
		s.register(t)
		r := receiver{s.account, states[i%4], base.UnixMilli() + int64(i*7%40/3)} // many share a millisecond
		s.owns(t, func(step *partitions.Step) {
			step.Endpoint(s.account, &partitions.EndpointChange{State: r.state, StateSince: r.since})
		})
		want = append(want, r)
		counts[r.state]++
	}

	slices.SortFunc(want, func(a, b receiver) int {
		if a.state != b.state {
			return b.state.Severity() - a.state.Severity()
		}
		if a.since != b.since {
			return int(a.since - b.since)
		}
		return core.CompareAccounts(a.account, b.account)
	})

	for _, limit := range []int{1, 3, 39, 40, 100} {
		var got []receiver
		for _, e := range receiversOf(t, l, "", limit) {
			got = append(got, receiver{e.Account, e.State, e.StateSince.UnixMilli()})
		}
		equal(t, got, want, fmt.Sprint("pages of ", limit))
	}

	for _, state := range states {
		for _, e := range receiversOf(t, l, state, 3) {
			check(t, e.State == state, "among those that are %s: %+v", state, e)
		}
		equal(t, int64(len(receiversOf(t, l, state, 3))), counts[state], string(state))
	}

	equal(t, get(l.Webhooks.Counts(t.Context()))(t), counts, "counts")
}

func TestReceivers_AreCountedWhileTheyHaveAURL(t *testing.T) {
	s := newWebhookEnv(t)
	counts := func(want map[partitions.EndpointState]int64, when string) {
		t.Helper()
		got := get(s.Webhooks.Counts(t.Context()))(t)
		for state, n := range got {
			equal(t, n, want[state], when+": "+string(state))
		}
	}

	fail := func() {
		s.owns(t, func(step *partitions.Step) {
			step.Endpoint(s.account, &partitions.EndpointChange{State: partitions.EndpointUnreachable, StateSince: s.now().UnixMilli()})
		})
	}

	counts(map[partitions.EndpointState]int64{partitions.EndpointHealthy: 1}, "registered")
	fail()
	counts(map[partitions.EndpointState]int64{partitions.EndpointUnreachable: 1}, "unreachable")
	get2(s.Webhooks.SetURL(t.Context(), s.account, "https://vendor.example/hook"))(t)
	counts(map[partitions.EndpointState]int64{partitions.EndpointUnreachable: 1}, "with the same URL again")
	get2(s.Webhooks.SetURL(t.Context(), s.account, "https://vendor.example/other"))(t)
	counts(map[partitions.EndpointState]int64{partitions.EndpointHealthy: 1}, "with another URL")
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	counts(nil, "deleted")
	fail() // the owner has not heard of it yet
	counts(nil, "deleted, and written by its owner")
	equal(t, len(allReceivers(t, s.Ledger)), 0, "receivers")
	get2(s.Webhooks.SetURL(t.Context(), s.account, "https://vendor.example/hook"))(t)
	counts(map[partitions.EndpointState]int64{partitions.EndpointHealthy: 1}, "registered again")
}

// What a page costs does not depend on how many accounts there are.
func TestListings_CostTheSameWhateverTheNumberOfAccounts(t *testing.T) {
	const (
		fewAccounts, manyAccounts = 200, 2_000
		pageLimit                 = 20

		// The figures have more digits, and with few accounts a partition may lack a page of receivers.
		additionalBytes = 300
	)

	server, config := ownServer(t)
	l := openTest(t, config)
	counted := &countCommands{counts: map[string]int{}}
	l.core.Redis.AddHook(counted)

	reads := map[string]func(ctx context.Context) error{
		"accounts": func(ctx context.Context) error {
			return errOf2(l.Accounts.Page(ctx, accounts.AccountFilter{}, "", pageLimit))
		},
		"accounts by text": func(ctx context.Context) error {
			return errOf2(l.Accounts.Page(ctx, accounts.AccountFilter{Text: "vendor 00"}, "", pageLimit))
		},
		"account by name": func(ctx context.Context) error {
			return errOf(l.Accounts.Named(ctx, "vendor 00007"))
		},
		"suspended": func(ctx context.Context) error {
			return errOf2(l.Accounts.Page(ctx, accounts.AccountFilter{State: accounts.AccountSuspended}, "", pageLimit))
		},
		"counts": func(ctx context.Context) error {
			return errOf(l.Accounts.Counts(ctx))
		},
		"receivers": func(ctx context.Context) error {
			return errOf2(l.Webhooks.Page(ctx, "", "", pageLimit))
		},
		"receiver counts": func(ctx context.Context) error {
			return errOf(l.Webhooks.Counts(ctx))
		},
		"stores": func(ctx context.Context) error {
			return errOf2(l.Stores.Find(ctx, accounts.StoreFilter{Text: "no such store"}, pageLimit))
		},
		"order": func(ctx context.Context) error {
			return errOf(l.Orders.Find(ctx, delivery.NewAccountID(), "X-1"))
		},
	}

	type cost struct{ commands, bytes int }
	measure := func() map[string]cost {
		costs := make(map[string]cost)
		for name, read := range reads {
			commandsBefore := counted.all()
			bytesBefore := serverFigure(t, server, "stats", "total_net_output_bytes")

			must(t, read(t.Context()))

			commands := counted.all() - commandsBefore
			bytes := serverFigure(t, server, "stats", "total_net_output_bytes") - bytesBefore
			costs[name] = cost{commands: commands, bytes: bytes}
		}

		return costs
	}

	newVendors(t, l, 0, fewAccounts)
	newStore(t, l, newAccount(t, l, plenty()), newFleet(t, l))
	few := measure()

	newVendors(t, l, fewAccounts, manyAccounts)
	many := measure()

	for name := range reads {
		isSame := many[name].commands == few[name].commands && many[name].bytes <= few[name].bytes+additionalBytes
		check(t, isSame, "%s: %+v with %d accounts, %+v with %d", name, few[name], fewAccounts, many[name], manyAccounts)
	}
}

// newVendors creates the accounts "Vendor 00000" and so on with the numbers from first to end-1, each
// with a receiver.
func newVendors(t testing.TB, l *Ledger, first, end int) {
	t.Helper()
	const writers = 8
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for number := first + writer; number < end; number += writers {
				a := newNamed(t, l, fmt.Sprintf("Vendor %05d", number))
				get2(l.Webhooks.SetURL(t.Context(), a.ID, "https://vendor.example/hook"))(t)
			}
		})
	}

	all.Wait()
}

func (c *countCommands) all() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.counts {
		n += one
	}
	return n
}
