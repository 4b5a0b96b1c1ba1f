package accounts

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// NamesKey is a sorted set of all accounts by name, all with the score 0. A member is the folded
// name, a zero byte, the account's id, and the revision with which the account got the name.
//
// The new member is added first, then the account is written, and then the earlier member is
// removed. A crash between two of these writes leaves an outdated member. A reader leaves out a
// member unless its account has both its name and its revision, and removes it once the account has
// reached the revision without the name (isOutlived), so never one whose account is still to be
// written. The outdated member of a creation that failed is removed only by a restore (repairNames).
func (l *Accounts) NamesKey() string { return l.core.Global.Prefix + "names" }

// nameTail is the length of what follows the folded name in a member.
const nameTail = 1 + len(delivery.AccountID{}) + 8

// NameMember returns what stands in the list of names for an account: the folded name, a zero byte,
// the account's id and the revision of the name. SplitName reads it.
func NameMember(id delivery.AccountID, name string, revision uint64) string {
	member := append([]byte(delivery.FoldName(name)), 0)
	member = append(member, id[:]...)
	return string(binary.BigEndian.AppendUint64(member, revision))
}

// SplitName reads a member of the list of names. ok is false if the text is not such a member.
func SplitName(member string) (folded string, id delivery.AccountID, revision uint64, ok bool) {
	end := len(member) - nameTail
	if end < 0 || member[end] != 0 {
		return "", delivery.AccountID{}, 0, false
	}
	id = delivery.AccountID([]byte(member[end+1 : end+1+len(id)]))
	return member[:end], id, binary.BigEndian.Uint64([]byte(member[end+1+len(id):])), true
}

func parseNameCursor(text string) (member string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", core.InvalidCursor()
	}

	if text == "" {
		return "", nil
	}

	folded, _, _, ok := SplitName(string(raw))
	isFolded := delivery.FoldName(folded) == folded && !strings.Contains(folded, "\x00")
	if !ok || !isFolded {
		return "", core.InvalidCursor()
	}

	return string(raw), nil
}

// isOutlived reports whether a member of the names is not an account's and never will be. Only the
// write that gives an account its next revision also gives it a name of that revision, so a member
// whose revision has been reached without its name is wrong for good.
func isOutlived(a *delivery.Account, member string) bool {
	_, id, revision, ok := SplitName(member)
	return ok && id == a.ID && revision <= a.Revision && !isNameOf(a, member)
}

// isNameOf reports whether a member of the names is that of an account as it is.
func isNameOf(a *delivery.Account, member string) bool {
	return NameMember(a.ID, a.Name, a.NameRevision) == member
}

// nameSearch chooses names by a folded text: those that begin with it, or only the text itself.
type nameSearch struct {
	text    string
	isWhole bool
}

func (s nameSearch) matches(folded string) bool {
	if s.isWhole {
		return folded == s.text
	}
	return strings.HasPrefix(folded, s.text)
}

// bounds returns the ends, as ZRANGEBYLEX takes them, of a range of members after one (empty:
// from the beginning) in which all that match are.
func (s nameSearch) bounds(after string) (first, last string) {
	first = "[" + s.text
	if after > s.text {
		first = "(" + after
	}

	switch {
	case s.isWhole:
		// A zero byte ends the name; the id that follows may begin with any byte, 0xff too.
		last = "(" + s.text + "\x01"
	case s.text == "":
		last = "+"
	default:
		// What follows is the rest of the name, which is UTF-8 and so without the byte 0xff, or
		// the zero byte.
		last = "(" + s.text + "\xff"
	}

	return first, last
}

// namePage reads accounts by name, at most limit, after a cursor. With ErrIncomplete the accounts of
// partitions that do not answer are left out, and next is valid.
func (l *Accounts) namePage(ctx context.Context, search nameSearch, cursor string, limit int) (accounts []*delivery.Account, next string, err error) {
	after, err := parseNameCursor(cursor)
	if err != nil {
		return nil, "", err
	}

	first, last := search.bounds(after)
	members, err := l.core.Redis.ZRangeByLex(ctx, l.NamesKey(), &redis.ZRangeBy{Min: first, Max: last, Count: int64(limit) + 1}).Result()
	if err != nil {
		return nil, "", core.Failed("reading the names of accounts", err)
	}

	if len(members) > limit {
		members = members[:limit]
		next = base64.RawURLEncoding.EncodeToString([]byte(members[limit-1]))
	}

	ids := make([]delivery.AccountID, len(members))
	names := make([]string, len(members))
	for i, member := range members {
		names[i], ids[i], _, _ = SplitName(member)
	}

	read, incomplete := l.readAccounts(ctx, ids)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
		return nil, "", incomplete
	}

	var outlived []any
	for i, a := range read {
		switch {
		case a == nil: // its creation may be about to write it, or its partition does not answer
		case isOutlived(a, members[i]):
			outlived = append(outlived, members[i])
		case isNameOf(a, members[i]) && search.matches(names[i]):
			accounts = append(accounts, a)
		}
	}

	if l.changesAccounts() {
		l.removeNames(ctx, outlived)
	}

	return accounts, next, incomplete
}

// changesAccounts reports whether this process may change accounts and their names. The panel
// lists accounts, too, but reporting's Redis user has no right to change them. Unlike a gateway,
// reporting has no keys of the webhooks' secrets.
func (l *Accounts) changesAccounts() bool { return l.core.Secrets.Current != "" }

// removeNames removes members of the names. A failure is only logged: whoever lists the accounts
// leaves these names out all the same.
func (l *Accounts) removeNames(ctx context.Context, members []any) {
	if len(members) == 0 {
		return
	}
	if err := l.core.Redis.ZRem(ctx, l.NamesKey(), members...).Err(); err != nil {
		l.core.Log.Warn("earlier names of accounts stay among the names", "error", err)
	}
}

// readAccounts reads accounts in one round trip for each 500; nil for one that does not exist, with
// ErrIncomplete also for one whose partition does not answer.
func (l *Accounts) readAccounts(ctx context.Context, ids []delivery.AccountID) ([]*delivery.Account, error) {
	reads, errs := core.PipelinedEach(ctx, l.core.Redis, "reading accounts", ids, func(pipe redis.Pipeliner, id delivery.AccountID) func() map[string]string {
		return pipe.HGetAll(ctx, l.core.PartitionOf(id).Account(id)).Val
	})
	var missing core.MissingParts
	missing.Note(errs)
	incomplete := l.core.ErrOfRest(&missing, true)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
		return nil, incomplete
	}

	accounts := make([]*delivery.Account, len(ids))
	for i, id := range ids {
		if len(reads[i]) == 0 {
			continue
		}
		account, err := decodeAccount(id, reads[i], l.core.Now())
		if err != nil {
			return nil, err
		}
		accounts[i] = account
	}

	return accounts, incomplete
}

// AccountState is a state by which accounts are listed.
type AccountState string

// The states. An account may be in both.
const (
	AccountInExcess  AccountState = "excess"    // its requests are refused for its limits (decisions, "Limits and idempotency")
	AccountSuspended AccountState = "suspended" // all of its requests are refused
)

// AccountFilter chooses accounts. The zero value chooses all.
type AccountFilter struct {
	// Text is the beginning of a name, in any case, or an account's or client's id.
	Text  string
	State AccountState
}

// Page reads the accounts that match, at most limit: by name, or with a state by the time at
// which it began (suspended) or ends (excess). A page may have fewer although others follow:
// next is empty at the end. An account whose name or time changes between two pages may be on
// both or on none. VALIDATION_FAILED for a cursor that no page had. With ErrIncomplete the accounts of
// partitions that do not answer are left out, and next is valid.
func (l *Accounts) Page(ctx context.Context, f AccountFilter, cursor string, limit int) (accounts []*delivery.Account, next string, err error) {
	if f.State != "" {
		return l.statePage(ctx, f, cursor, limit)
	}

	id, isID := accountIDIn(f.Text)
	if !isID {
		return l.namePage(ctx, nameSearch{text: delivery.FoldName(f.Text)}, cursor, limit)
	}
	if cursor != "" {
		return nil, "", core.InvalidCursor()
	}

	read, err := l.readAccounts(ctx, []delivery.AccountID{id})

	return core.Present(read), "", err
}

func (l *Accounts) statePage(ctx context.Context, f AccountFilter, cursor string, limit int) ([]*delivery.Account, string, error) {
	list, scores := l.stateList(f.State)
	ids, next, incomplete := l.core.ListPage(ctx, list, scores, cursor, limit)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
		return nil, "", incomplete
	}

	read, err := l.readAccounts(ctx, ids)
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, "", err
	}

	accounts := slices.DeleteFunc(core.Present(read), func(a *delivery.Account) bool { return !f.matches(a) })

	if incomplete != nil {
		return accounts, next, incomplete
	}
	return accounts, next, err
}

// stateList is the list of a state, and the part of it that counts now.
func (l *Accounts) stateList(state AccountState) (byte, core.ScoreRange) {
	if state == AccountInExcess {
		return core.ListExcess, core.ScoreRange{First: l.core.Now().UnixMilli() + 1, Last: 1<<53 - 1}
	}
	return core.ListSuspended, core.ScoreRange{First: 0, Last: 1<<53 - 1}
}

func (f *AccountFilter) matches(a *delivery.Account) bool {
	inState := a.Suspended
	if f.State == AccountInExcess {
		inState = !a.ExcessSince.IsZero()
	}

	id, isID := accountIDIn(f.Text)
	if isID {
		return inState && a.ID == id
	}

	return inState && strings.HasPrefix(delivery.FoldName(a.Name), delivery.FoldName(f.Text))
}

// accountIDIn reads an account's id, or the client id that is made of it.
func accountIDIn(text string) (delivery.AccountID, bool) {
	id, err := delivery.ParseAccountID(text)
	if err == nil {
		return id, true
	}
	return delivery.AccountOfClient(text)
}

// AccountCounts are the numbers of accounts: of all, and of those in a state.
type AccountCounts struct{ All, Excess, Suspended int64 }

// Counts counts the accounts without reading them. With ErrIncomplete the counts lack those of
// partitions that do not answer; All, which has one key for all, is always whole.
func (l *Accounts) Counts(ctx context.Context) (counts AccountCounts, err error) {
	counts.All, err = l.core.Redis.ZCard(ctx, l.NamesKey()).Result()
	if err != nil {
		return AccountCounts{}, core.Failed("counting accounts", err)
	}

	var gaps error
	for state, count := range map[AccountState]*int64{AccountInExcess: &counts.Excess, AccountSuspended: &counts.Suspended} {
		*count, err = l.countState(ctx, state)
		if err != nil && !errors.Is(err, core.ErrIncomplete) {
			return AccountCounts{}, err
		}

		if gaps == nil {
			gaps = err
		}
	}

	return counts, gaps
}

func (l *Accounts) countState(ctx context.Context, state AccountState) (int64, error) {
	list, scores := l.stateList(state)
	counted, err := l.core.ListCounts(ctx, list, scores)
	return counted[0], err
}

// MostOfOneName bounds the accounts among which Named looks; more of one name are ambiguous.
const MostOfOneName = 20

// Named finds the account that a person means by a name, in any case, or by an id. With several
// of one name it is the only one that is written just so. ACCOUNT_NOT_FOUND for none or several.
func (l *Accounts) Named(ctx context.Context, text string) (*delivery.Account, error) {
	id, isID := accountIDIn(text)
	if isID {
		return l.Get(ctx, id)
	}

	search := nameSearch{text: delivery.FoldName(text), isWhole: true}
	var found []*delivery.Account
	for cursor := ""; ; {
		page, next, err := l.namePage(ctx, search, cursor, MostOfOneName)
		if err != nil {
			return nil, err
		}

		found = append(found, page...)
		if len(found) > MostOfOneName {
			return nil, delivery.Refuse(delivery.CodeAccountNotFound, "more than %d accounts have this name", MostOfOneName)
		}
		if next == "" {
			break
		}

		cursor = next
	}

	exact := slices.Clone(found)
	exact = slices.DeleteFunc(exact, func(a *delivery.Account) bool { return a.Name != text })
	if len(exact) == 1 {
		return exact[0], nil
	}
	if len(found) != 1 {
		return nil, delivery.Refuse(delivery.CodeAccountNotFound, "%d accounts have this name", len(found))
	}

	return found[0], nil
}

// RepairNames makes the names those of the accounts that there are. A restore needs it: in a
// cluster the names and the accounts are copied at slightly different moments.
func (l *Accounts) RepairNames(ctx context.Context) error {
	err := l.core.EachAccount(ctx, func(ids []delivery.AccountID) error {
		accounts, err := l.readAccounts(ctx, ids)
		if err != nil {
			return err
		}

		var members []redis.Z
		for _, a := range core.Present(accounts) {
			members = append(members, redis.Z{Member: NameMember(a.ID, a.Name, a.NameRevision)})
		}

		if len(members) == 0 {
			return nil
		}

		return core.Failed("writing the names of accounts", l.core.Redis.ZAdd(ctx, l.NamesKey(), members...).Err())
	})
	if err != nil {
		return err
	}

	for cursor := ""; ; {
		members, next, err := l.wrongNames(ctx, cursor)
		if err != nil {
			return err
		}

		if len(members) > 0 {
			err := l.core.Redis.ZRem(ctx, l.NamesKey(), members...).Err()
			if err != nil {
				return core.Failed("removing names of accounts", err)
			}
		}

		if next == "" {
			return nil
		}

		cursor = next
	}
}

// wrongNames finds, among some hundred members of the names after one, those that name no
// account or not as it is.
func (l *Accounts) wrongNames(ctx context.Context, after string) (wrong []any, next string, err error) {
	first := "-"
	if after != "" {
		first = "(" + after
	}

	members, err := l.core.Redis.ZRangeByLex(ctx, l.NamesKey(), &redis.ZRangeBy{Min: first, Max: "+", Count: core.ItemsAtOnce}).Result()
	if err != nil || len(members) == 0 {
		return nil, "", core.Failed("reading the names of accounts", err)
	}

	if len(members) == core.ItemsAtOnce {
		next = members[len(members)-1]
	}

	ids := make([]delivery.AccountID, len(members))
	for i, member := range members {
		_, ids[i], _, _ = SplitName(member)
	}

	accounts, err := l.readAccounts(ctx, ids)
	if err != nil {
		return nil, "", err
	}

	for i, a := range accounts {
		if a == nil || !isNameOf(a, members[i]) {
			wrong = append(wrong, members[i])
		}
	}

	return wrong, next, nil
}
