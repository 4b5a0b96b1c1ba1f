package ledger

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Listings of accounts and receivers read a page, whatever the number of accounts is. Two kinds
// of index serve them: the names of all accounts, one sorted set beside the partitions
// (namesKey), and in each partition the lists below, whose pages are merged.
//
// The lists need no repair. The script that changes what a list is about changes the list, too:
// write_endpoint.lua and the owner's steps (advance.lua) that of the receivers, count_minutes.lua
// that of the excess, write_account.lua that of the suspended, and write_store.lua that of the
// accounts with stores, which nothing leaves because no store is deleted. A silent account stays
// among those in excess after its end, which is its score, so it is not read or counted any more.
const (
	listReceivers = 'r' // the receivers with a URL, by receiverScore
	listExcess    = 'x' // accounts in sustained excess, by when it ends, ms
	listSuspended = 's' // suspended accounts, by when they were suspended, ms

	listWithStores = 't' // accounts that have a store, all with the score 0 (lua/write_store.lua)
)

// severityShift leaves the lower bits of a receiver's score for the time of its state in ms,
// enough until the year 2109. A score stays below 2^53, so a double holds it.
const severityShift = 42

// worstSeverity is that of EndpointUnreachable.
const worstSeverity = 3

// receiverScore orders receivers by severity, the worst first, and then by how long the state
// has lasted. lua/write_endpoint.lua computes that of a healthy one.
func receiverScore(state EndpointState, since int64) int64 {
	return int64(worstSeverity-max(0, state.Severity()))<<severityShift + since
}

// receiverScores returns the range of a state; of every state for an empty one.
func receiverScores(state EndpointState) scoreRange {
	if state == "" {
		return scoreRange{first: 0, last: 1<<53 - 1}
	}
	first := receiverScore(state, 0)
	return scoreRange{first: first, last: first + 1<<severityShift - 1}
}

// namesKey is a sorted set of all accounts by name, all with the score 0. A member is the folded
// name, a zero byte, the account's id, and the revision with which the account got the name.
//
// The new member is added first, then the account is written, and then the earlier member is
// removed. A crash between two of these writes leaves an outdated member. A reader leaves out a
// member unless its account has both its name and its revision, and removes it once the account has
// reached the revision without the name (isOutlived), so never one whose account is still to be
// written. The outdated member of a creation that failed is removed only by a restore (repairNames).
func (l *core) namesKey() string { return l.global.prefix + "names" }

// nameTail is the length of what follows the folded name in a member.
const nameTail = 1 + len(delivery.AccountID{}) + 8

func nameMember(id delivery.AccountID, name string, revision uint64) string {
	member := append([]byte(delivery.FoldName(name)), 0)
	member = append(member, id[:]...)
	return string(binary.BigEndian.AppendUint64(member, revision))
}

// splitName reads a member of the names. ok is false for what is none.
func splitName(member string) (folded string, id delivery.AccountID, revision uint64, ok bool) {
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
		return "", invalidCursor()
	}

	if text == "" {
		return "", nil
	}

	folded, _, _, ok := splitName(string(raw))
	isFolded := delivery.FoldName(folded) == folded && !strings.Contains(folded, "\x00")
	if !ok || !isFolded {
		return "", invalidCursor()
	}

	return string(raw), nil
}

// isOutlived reports whether a member of the names is not an account's and never will be. Only the
// write that gives an account its next revision also gives it a name of that revision, so a member
// whose revision has been reached without its name is wrong for good.
func isOutlived(a *delivery.Account, member string) bool {
	_, id, revision, ok := splitName(member)
	return ok && id == a.ID && revision <= a.Revision && !isNameOf(a, member)
}

// isNameOf reports whether a member of the names is that of an account as it is.
func isNameOf(a *delivery.Account, member string) bool {
	return nameMember(a.ID, a.Name, a.NameRevision) == member
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
	members, err := l.rdb.ZRangeByLex(ctx, l.namesKey(), &redis.ZRangeBy{Min: first, Max: last, Count: int64(limit) + 1}).Result()
	if err != nil {
		return nil, "", failed("reading the names of accounts", err)
	}

	if len(members) > limit {
		members = members[:limit]
		next = base64.RawURLEncoding.EncodeToString([]byte(members[limit-1]))
	}

	ids := make([]delivery.AccountID, len(members))
	names := make([]string, len(members))
	for i, member := range members {
		names[i], ids[i], _, _ = splitName(member)
	}

	read, incomplete := l.readAccounts(ctx, ids)
	if incomplete != nil && !errors.Is(incomplete, ErrIncomplete) {
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
func (l *Accounts) changesAccounts() bool { return l.secrets.Current != "" }

// removeNames removes members of the names. A failure is only logged: whoever lists the accounts
// leaves these names out all the same.
func (l *Accounts) removeNames(ctx context.Context, members []any) {
	if len(members) == 0 {
		return
	}
	if err := l.rdb.ZRem(ctx, l.namesKey(), members...).Err(); err != nil {
		l.log.Warn("earlier names of accounts stay among the names", "error", err)
	}
}

// readAccounts reads accounts in one round trip for each 500; nil for one that does not exist, with
// ErrIncomplete also for one whose partition does not answer.
func (l *Accounts) readAccounts(ctx context.Context, ids []delivery.AccountID) ([]*delivery.Account, error) {
	reads, errs := pipelinedEach(ctx, l.rdb, "reading accounts", ids, func(pipe redis.Pipeliner, id delivery.AccountID) func() map[string]string {
		return pipe.HGetAll(ctx, l.partitionOf(id).account(id)).Val
	})
	var missing missingParts
	missing.note(errs)
	incomplete := l.errOfRest(&missing, true)
	if incomplete != nil && !errors.Is(incomplete, ErrIncomplete) {
		return nil, incomplete
	}

	accounts := make([]*delivery.Account, len(ids))
	for i, id := range ids {
		if len(reads[i]) == 0 {
			continue
		}
		account, err := decodeAccount(id, reads[i], l.Now())
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
		return nil, "", invalidCursor()
	}

	read, err := l.readAccounts(ctx, []delivery.AccountID{id})

	return present(read), "", err
}

func (l *Accounts) statePage(ctx context.Context, f AccountFilter, cursor string, limit int) ([]*delivery.Account, string, error) {
	list, scores := l.stateList(f.State)
	ids, next, incomplete := l.listPage(ctx, list, scores, cursor, limit)
	if incomplete != nil && !errors.Is(incomplete, ErrIncomplete) {
		return nil, "", incomplete
	}

	read, err := l.readAccounts(ctx, ids)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, "", err
	}

	accounts := slices.DeleteFunc(present(read), func(a *delivery.Account) bool { return !f.matches(a) })

	return accounts, next, cmp.Or(incomplete, err)
}

// stateList is the list of a state, and the part of it that counts now.
func (l *Accounts) stateList(state AccountState) (byte, scoreRange) {
	if state == AccountInExcess {
		return listExcess, scoreRange{first: l.Now().UnixMilli() + 1, last: 1<<53 - 1}
	}
	return listSuspended, scoreRange{first: 0, last: 1<<53 - 1}
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
	counts.All, err = l.rdb.ZCard(ctx, l.namesKey()).Result()
	if err != nil {
		return AccountCounts{}, failed("counting accounts", err)
	}

	var gaps error
	for state, count := range map[AccountState]*int64{AccountInExcess: &counts.Excess, AccountSuspended: &counts.Suspended} {
		*count, err = l.countState(ctx, state)
		if err != nil && !errors.Is(err, ErrIncomplete) {
			return AccountCounts{}, err
		}
		gaps = cmp.Or(gaps, err)
	}

	return counts, gaps
}

func (l *Accounts) countState(ctx context.Context, state AccountState) (int64, error) {
	list, scores := l.stateList(state)
	counted, err := l.listCounts(ctx, list, scores)
	return counted[0], err
}

// mostOfOneName bounds the accounts among which Named looks; more of one name are ambiguous.
const mostOfOneName = 20

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
		page, next, err := l.namePage(ctx, search, cursor, mostOfOneName)
		if err != nil {
			return nil, err
		}

		found = append(found, page...)
		if len(found) > mostOfOneName {
			return nil, delivery.Refuse(delivery.CodeAccountNotFound, "more than %d accounts have this name", mostOfOneName)
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

// Page reads receivers in a state, or in any, at most limit: the worst first, and of one state
// those that have been in it for longest. A page may have fewer although others follow: next is
// empty at the end. A receiver whose state changes between two pages may be on both or on none.
// VALIDATION_FAILED for a cursor that no page had. With ErrIncomplete the receivers of partitions that
// do not answer are left out, and next is valid.
func (l *Webhooks) Page(ctx context.Context, state EndpointState, cursor string, limit int) (endpoints []*WebhookEndpoint, next string, err error) {
	endpoints, next, err = l.receivers(ctx, receiverScores(state), cursor, limit)
	endpoints = slices.DeleteFunc(endpoints, func(e *WebhookEndpoint) bool { return state != "" && e.State != state })
	return endpoints, next, err
}

// Unhealthy reads the worst receivers, as Page orders them, at most limit. With ErrIncomplete those of
// partitions that do not answer are left out.
func (l *Webhooks) Unhealthy(ctx context.Context, limit int) ([]*WebhookEndpoint, error) {
	worse := scoreRange{first: 0, last: receiverScores(EndpointHealthy).first - 1}
	endpoints, _, err := l.receivers(ctx, worse, "", limit)
	return endpoints, err
}

func (l *Webhooks) receivers(ctx context.Context, scores scoreRange, cursor string, limit int) (endpoints []*WebhookEndpoint, next string, err error) {
	ids, next, incomplete := l.listPage(ctx, listReceivers, scores, cursor, limit)
	if incomplete != nil && !errors.Is(incomplete, ErrIncomplete) {
		return nil, "", incomplete
	}

	endpoints, err = l.readEndpoints(ctx, ids)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, "", err
	}
	return endpoints, next, cmp.Or(incomplete, err)
}

// EndpointsOf reads the receivers of accounts, in their order, without those that have none. With
// ErrIncomplete those of partitions that do not answer are left out.
func (l *Webhooks) EndpointsOf(ctx context.Context, accounts []delivery.AccountID) ([]*WebhookEndpoint, error) {
	return l.readEndpoints(ctx, accounts)
}

// endpointStates are all states, the worst first.
var endpointStates = []EndpointState{EndpointUnreachable, EndpointGone, EndpointFailing, EndpointHealthy}

// Counts counts the receivers in each state without reading them. With ErrIncomplete the counts lack
// those of partitions that do not answer.
func (l *Webhooks) Counts(ctx context.Context) (map[EndpointState]int64, error) {
	ranges := make([]scoreRange, len(endpointStates))
	for i, state := range endpointStates {
		ranges[i] = receiverScores(state)
	}

	counted, err := l.listCounts(ctx, listReceivers, ranges...)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, err
	}

	counts := make(map[EndpointState]int64)
	for i, state := range endpointStates {
		counts[state] = counted[i]
	}

	return counts, err
}

// eachReceiver is eachAccount for those who may have an endpoint: finance, too.
func (l *Webhooks) eachReceiver(ctx context.Context, do func([]delivery.AccountID) error) error {
	if err := do([]delivery.AccountID{delivery.FinanceAccount}); err != nil {
		return err
	}
	return l.eachAccount(ctx, do)
}

// repairNames makes the names those of the accounts that there are. A restore needs it: in a
// cluster the names and the accounts are copied at slightly different moments.
func (l *Accounts) repairNames(ctx context.Context) error {
	err := l.eachAccount(ctx, func(ids []delivery.AccountID) error {
		accounts, err := l.readAccounts(ctx, ids)
		if err != nil {
			return err
		}

		var members []redis.Z
		for _, a := range present(accounts) {
			members = append(members, redis.Z{Member: nameMember(a.ID, a.Name, a.NameRevision)})
		}

		if len(members) == 0 {
			return nil
		}

		return failed("writing the names of accounts", l.rdb.ZAdd(ctx, l.namesKey(), members...).Err())
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
			err := l.rdb.ZRem(ctx, l.namesKey(), members...).Err()
			if err != nil {
				return failed("removing names of accounts", err)
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

	members, err := l.rdb.ZRangeByLex(ctx, l.namesKey(), &redis.ZRangeBy{Min: first, Max: "+", Count: itemsAtOnce}).Result()
	if err != nil || len(members) == 0 {
		return nil, "", failed("reading the names of accounts", err)
	}

	if len(members) == itemsAtOnce {
		next = members[len(members)-1]
	}

	ids := make([]delivery.AccountID, len(members))
	for i, member := range members {
		_, ids[i], _, _ = splitName(member)
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
