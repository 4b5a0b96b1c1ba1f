package ledger

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
)

// newNamedWithID creates an account whose id begins with a byte.
func newNamedWithID(t *testing.T, l *Ledger, first byte, name string) *delivery.Account {
	t.Helper()
	a := &delivery.Account{ID: delivery.NewAccountID(), Name: name, Limits: plenty(), CreatedAt: time.Now()}
	a.ID[0] = first
	must(t, l.Accounts.Create(t.Context(), a, testHash))
	return a
}

// leaveName adds a name as a rename does whose second write fails.
func (l *Ledger) leaveName(t *testing.T, id delivery.AccountID, name string, revision uint64) {
	t.Helper()
	must(t, l.core.Redis.ZAdd(t.Context(), l.Accounts.NamesKey(), redis.Z{Member: accounts.NameMember(id, name, revision)}).Err())
}

func (l *Ledger) storedNames(t *testing.T) []string {
	t.Helper()
	return get(l.core.Redis.ZRange(t.Context(), l.Accounts.NamesKey(), 0, -1).Result())(t)
}

// onlyNames fails unless the stored names are exactly those of the accounts as they are.
func (l *Ledger) onlyNames(t *testing.T, what string, ids ...delivery.AccountID) {
	t.Helper()
	want := map[string]bool{}
	for _, id := range ids {
		a := get(l.Accounts.Get(t.Context(), id))(t)
		want[accounts.NameMember(id, a.Name, a.NameRevision)] = true
	}

	got := map[string]bool{}
	for _, member := range l.storedNames(t) {
		got[member] = true
	}

	equal(t, got, want, what)
	equal(t, get(l.Accounts.Counts(t.Context()))(t).All, int64(len(ids)), what+": accounts")
}

func TestAccounts_NamedFindsAnyID(t *testing.T) {
	l := openTest(t)
	for first := range 256 {
		a := newNamedWithID(t, l, byte(first), fmt.Sprint("Vendor ", first))
		equal(t, get(l.Accounts.Named(t.Context(), a.Name))(t).ID, a.ID, a.Name)
	}
}

func TestAccounts_NamedIsAmbiguousWhateverTheIDsAre(t *testing.T) {
	l := openTest(t)
	newNamedWithID(t, l, 0x01, "kahve")
	newNamedWithID(t, l, 0xff, "Kahve")
	wantCode(t, errOf(l.Accounts.Named(t.Context(), "KAHVE")), delivery.CodeAccountNotFound)
	for _, name := range []string{"kahve", "Kahve"} {
		equal(t, get(l.Accounts.Named(t.Context(), name))(t).Name, name, "written just so")
	}
}

// The second one that is written just so comes after those that one page has.
func TestAccounts_NamedIsAmbiguousWithManyOfOneName(t *testing.T) {
	l := openTest(t)
	newNamedWithID(t, l, 0, "KAHVE")
	for i := range accounts.MostOfOneName {
		newNamedWithID(t, l, byte(1+i), "kahve")
	}
	newNamedWithID(t, l, 0xfe, "KAHVE")
	wantCode(t, errOf(l.Accounts.Named(t.Context(), "KAHVE")), delivery.CodeAccountNotFound)
}

// Names that failed renames left neither hide an account nor count as one.
func TestAccounts_NamedPassesOverWhatRenamesLeft(t *testing.T) {
	l := openTest(t)
	other := newNamedWithID(t, l, 0x01, "Çay")
	for i := range 2 * accounts.MostOfOneName {
		l.leaveName(t, other.ID, "Kahve", uint64(100+i))
	}
	a := newNamedWithID(t, l, 0xff, "Kahve")
	equal(t, get(l.Accounts.Named(t.Context(), "kahve"))(t).ID, a.ID, "the only one")
}

// A name's end is a zero byte, after which the id begins: no text reaches into it.
func TestAccountPages_ABeginningDoesNotReachIntoTheID(t *testing.T) {
	l := openTest(t)
	newNamedWithID(t, l, 'a', "Kahve")
	newNamedWithID(t, l, 0xff, "Kahve")
	for _, text := range []string{"kahve\x00", "kahve\x00a", "\x00"} {
		equal(t, len(accountsOf(t, l, accounts.AccountFilter{Text: text}, 1, func() {})), 0, fmt.Sprintf("%q", text))
	}
	equal(t, len(accountsOf(t, l, accounts.AccountFilter{Text: "kahve"}, 1, func() {})), 2, "the whole name")
}

func TestAccountPages_FindEveryCharacterAfterABeginning(t *testing.T) {
	l := openTest(t)
	for _, name := range []string{"Kahve", "Kahve\u007f", "Kahve\u0080", "Kahveş", "Kahve\uffff", "Kahve\U0010ffff", "Kahve \U0001F600"} {
		newNamed(t, l, name)
	}
	newNamed(t, l, "Kahvf")
	equal(t, len(accountsOf(t, l, accounts.AccountFilter{Text: "KAHVE"}, 2, func() {})), 7, "accounts")
}

func TestAccountNames_OfAFailedRenameNeverBecomeRight(t *testing.T) {
	l := openTest(t)
	a := newNamed(t, l, "Foo")
	l.leaveName(t, a.ID, "Foo2", 2)
	l.rename(t, a.ID, "Foo 2") // the write that gets revision 2
	equal(t, namesOf(allAccounts(t, l)), []string{"Foo 2"}, "names")
	wantCode(t, errOf(l.Accounts.Named(t.Context(), "foo2")), delivery.CodeAccountNotFound)
	equal(t, get(l.Accounts.Named(t.Context(), "foo 2"))(t).ID, a.ID, "by the name that it has")
	l.onlyNames(t, "after a listing", a.ID)
}

func TestAccountNames_AreRepairedByWhoReadsThem(t *testing.T) {
	l := openTest(t)
	a, b := newNamed(t, l, "Bir"), newNamed(t, l, "İki")
	l.rename(t, a.ID, "Üç")
	l.leaveName(t, a.ID, "Bir", 1)    // not removed after the rename
	l.leaveName(t, a.ID, "Başka", 2)  // lost to the rename
	l.leaveName(t, b.ID, "Yarım", 2)  // perhaps about to be written
	l.leaveName(t, b.ID, "Yarım2", 3) // perhaps about to be written after another change
	reader := openTest(t, sameDatabase(l), func(c *core.Config) { c.Secrets = core.SecretKeys{} })
	equal(t, namesOf(allAccounts(t, reader)), []string{"İki", "Üç"}, "names, read by who may not write")
	equal(t, len(l.storedNames(t)), 6, "names after that")

	equal(t, namesOf(accountsOf(t, l, accounts.AccountFilter{}, 1, func() {})), []string{"İki", "Üç"}, "names")
	equal(t, len(l.storedNames(t)), 4, "names that are right or may become so")
	get(l.Accounts.Update(t.Context(), b.ID, func(b *delivery.Account) error { b.Name = "Yarım"; return nil }))(t)
	get(l.Accounts.Update(t.Context(), b.ID, func(b *delivery.Account) error { b.Suspended = true; return nil }))(t)
	equal(t, namesOf(allAccounts(t, l)), []string{"Yarım", "Üç"}, "names after a rename")
	l.onlyNames(t, "after a listing", a.ID, b.ID)
}

// A listing that has read the account before a rename meets the name of that rename.
func TestAccountNames_ARepairKeepsWhatARenameHasJustAdded(t *testing.T) {
	l := openTest(t)
	renaming := openTest(t, sameDatabase(l))
	a := newNamed(t, l, "Bir")
	l.leaveName(t, a.ID, "İki", 2) // that is the first write of the rename
	l.core.Redis.AddHook(&afterPipeline{command: "hgetall", do: func() { renaming.rename(t, a.ID, "İki") }})
	allAccounts(t, l)
	equal(t, namesOf(allAccounts(t, l)), []string{"İki"}, "names")
	l.onlyNames(t, "after the rename", a.ID)
}

// afterPipeline does something once, after a pipeline of a command has been answered and
// before its caller knows.
type afterPipeline struct {
	command string
	do      func()
}

func (a *afterPipeline) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (a *afterPipeline) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (a *afterPipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		if do := a.do; do != nil && commands[0].Name() == a.command {
			a.do = nil
			do()
		}
		return err
	}
}

func TestAccountNames_AConflictLeavesNone(t *testing.T) {
	l := openTest(t)
	a := newNamed(t, l, "Bir")
	tries := 0
	get(l.Accounts.Update(t.Context(), a.ID, func(mine *delivery.Account) error {
		tries++
		if tries < 3 {
			l.rename(t, a.ID, fmt.Sprint("Theirs ", tries))
		}
		mine.Name = fmt.Sprint("Mine ", tries)
		return nil
	}))(t)

	l.onlyNames(t, "after conflicts", a.ID)
	equal(t, namesOf(allAccounts(t, l)), []string{"Mine 3"}, "names")
}

func TestAccountNames_AConflictBeforeARefusalLeavesNone(t *testing.T) {
	l := openTest(t)
	a := newNamed(t, l, "Bir")
	tries := 0
	refusal := delivery.Invalid("name", "is taken")
	err := errOf(l.Accounts.Update(t.Context(), a.ID, func(mine *delivery.Account) error {
		tries++
		if tries > 1 {
			return refusal
		}
		l.rename(t, a.ID, "Theirs")
		mine.Name = "Mine"
		return nil
	}))

	wantError(t, err, refusal)
	l.onlyNames(t, "after a refusal", a.ID)
}

// Two renames to the same name add the same member; the one that is refused must not remove it.
func TestAccountNames_AConflictKeepsTheSameNameOfAnother(t *testing.T) {
	l := openTest(t)
	a := newNamed(t, l, "Bir")
	tries := 0
	get(l.Accounts.Update(t.Context(), a.ID, func(mine *delivery.Account) error {
		tries++
		if tries == 1 {
			l.rename(t, a.ID, "Foo") // as when the reply to the first write was lost
		}
		mine.Name = "FOO"
		return nil
	}))(t)

	equal(t, tries, 2, "tries")
	l.onlyNames(t, "after both", a.ID)
	equal(t, namesOf(allAccounts(t, l)), []string{"FOO"}, "names")
}

// A count that is missing must not admit one store more than the limit.
func TestWriteStore_ACountOfWaitingStoresIsNeverNegative(t *testing.T) {
	l := openTest(t)
	limits := plenty()
	limits.MaxPendingStores = 1
	account, fleet := newAccount(t, l, limits), delivery.NewFleetID()
	first := testStore(account, "S-1", fleet, delivery.AwaitingFleetApproval)
	must(t, l.Stores.Write(t.Context(), first))
	counts := l.core.PartitionOf(account).KeyOf(core.KindPendingStores, account[:])
	must(t, l.core.Redis.Del(t.Context(), counts).Err())

	first.State = delivery.Active
	must(t, l.Stores.Write(t.Context(), first))
	equal(t, get(l.core.Redis.HGetAll(t.Context(), counts).Result())(t), map[string]string{}, "counts")
	must(t, l.Stores.Write(t.Context(), testStore(account, "S-2", fleet, delivery.AwaitingFleetApproval)))
	wantCode(t, l.Stores.Write(t.Context(), testStore(account, "S-3", fleet, delivery.AwaitingFleetApproval)), delivery.CodeTooManyStores)
	equal(t, get(l.core.Redis.HGet(t.Context(), counts, string(fleet[:])).Result())(t), "1", "stores that wait")
}

func FuzzNameMember(f *testing.F) {
	for _, name := range []string{"Kahve", "", "a\x00b", "\xff", "İIıi\u0307", "ϴK"} {
		f.Add(name, []byte("0123456789abcdef"), uint64(1))
	}

	f.Fuzz(func(t *testing.T, name string, idBytes []byte, revision uint64) {
		var id delivery.AccountID
		copy(id[:], idBytes)
		folded, gotID, gotRevision, ok := accounts.SplitName(accounts.NameMember(id, name, revision))
		check(t, ok && folded == delivery.FoldName(name) && bytes.Equal(gotID[:], id[:]) && gotRevision == revision,
			"%q is read as %q, %x, %d", name, folded, gotID, gotRevision)
		equal(t, delivery.FoldName(folded), folded, "folded twice")
	})
}
