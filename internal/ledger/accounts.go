package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// CreateAccount stores a new account with the SHA-256 of its client secret. A
// repeated call with the same id, which the caller chose, changes nothing.
func (l *Ledger) CreateAccount(ctx context.Context, a *delivery.Account, secretHash [32]byte) error {
	return l.writeAccount(ctx, "create", a.ID, &a.Limits, a.Suspended,
		"name", a.Name, "suspended", flag(a.Suspended), "created", a.CreatedAt.UnixMilli(), "secret", string(secretHash[:]))
}

// writeAccount runs write_account.lua. limits nil keeps limits and suspension.
// ACCOUNT_NOT_FOUND for an update.
func (l *Ledger) writeAccount(ctx context.Context, mode string, id delivery.AccountID, limits *delivery.Limits, suspended bool, fieldsAndValues ...any) error {
	r := l.roomOf(id)
	keys := []string{r.account(id), r.key(kindAccounts)}
	args := []any{mode, id[:], endpointLetters, time.Now().UnixMilli()}
	for e := range endpoints {
		keys = append(keys, r.ring(e, id))
		packed := ""
		if limits != nil {
			packed = packLimit(e, limitOf(limits, e), suspended)
		}
		args = append(args, packed)
	}
	if limits != nil {
		text, err := json.Marshal(limits)
		if err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		fieldsAndValues = append(fieldsAndValues, "limits", string(text))
	}
	reply, err := l.runText(ctx, &l.scripts.writeAccount, keys, append(args, fieldsAndValues...)...)
	if err == nil && reply == "missing" {
		err = accountNotFound()
	}
	return err
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Account reads one account. ACCOUNT_NOT_FOUND.
func (l *Ledger) Account(ctx context.Context, id delivery.AccountID) (*delivery.Account, error) {
	values, err := l.rdb.HGetAll(ctx, l.roomOf(id).account(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("reading an account: %w", failure(err))
	}
	if len(values) == 0 {
		return nil, accountNotFound()
	}
	return decodeAccount(id, values)
}

func accountNotFound() error {
	return delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
}

func decodeAccount(id delivery.AccountID, values map[string]string) (*delivery.Account, error) {
	a := &delivery.Account{ID: id, Name: values["name"], Suspended: values["suspended"] == "1"}
	if err := json.Unmarshal([]byte(values["limits"]), &a.Limits); err != nil {
		return nil, fmt.Errorf("limits of account %s: %w", id, err)
	}
	a.CreatedAt = timeOf(number(values["created"]))
	a.ExcessSince = timeOf(number(values["excess"]))
	return a, nil
}

// number reads a stored figure; an absent one is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// Accounts lists every account by name.
func (l *Ledger) Accounts(ctx context.Context) ([]*delivery.Account, error) {
	pipe := l.rdb.Pipeline()
	members := make([]*redis.StringSliceCmd, len(l.rooms))
	for i, r := range l.rooms {
		members[i] = pipe.SMembers(ctx, r.key(kindAccounts))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("listing accounts: %w", failure(err))
	}
	var accounts []*delivery.Account
	for _, ids := range members {
		for _, raw := range ids.Val() {
			if len(raw) != 16 {
				continue
			}
			a, err := l.Account(ctx, delivery.AccountID([]byte(raw)))
			if err != nil {
				return nil, err
			}
			accounts = append(accounts, a)
		}
	}
	sort.Slice(accounts, func(i, j int) bool { return accounts[i].Name < accounts[j].Name })
	return accounts, nil
}

// AccountPatch is a change to an account; nil keeps what is there.
type AccountPatch struct {
	Name      *string
	Suspended *bool
	Limits    *delivery.Limits
}

// UpdateAccount changes the account and the heads of its rings in one script:
// every gateway sees it with the next request, and no window is reset. When two
// operators change one account at once, the last one wins. ACCOUNT_NOT_FOUND.
func (l *Ledger) UpdateAccount(ctx context.Context, id delivery.AccountID, p AccountPatch) (*delivery.Account, error) {
	a, err := l.Account(ctx, id)
	if err != nil {
		return nil, err
	}
	var changes []any
	if p.Name != nil {
		a.Name = *p.Name
		changes = append(changes, "name", a.Name)
	}
	if p.Suspended != nil {
		a.Suspended = *p.Suspended
		changes = append(changes, "suspended", flag(a.Suspended))
	}
	var limits *delivery.Limits
	if p.Limits != nil {
		a.Limits = *p.Limits
	}
	if p.Limits != nil || p.Suspended != nil {
		limits = &a.Limits
	}
	if err := l.writeAccount(ctx, "update", id, limits, a.Suspended, changes...); err != nil {
		return nil, err
	}
	return a, nil
}

// RotateAccountSecret replaces the client secret; the old one works until
// oldValidUntil. A repeated call with the same hash keeps the old one old.
// ACCOUNT_NOT_FOUND.
func (l *Ledger) RotateAccountSecret(ctx context.Context, id delivery.AccountID, secretHash [32]byte, oldValidUntil time.Time) error {
	current, err := l.rdb.HGet(ctx, l.roomOf(id).account(id), "secret").Result()
	if errors.Is(err, redis.Nil) {
		return accountNotFound()
	}
	if err != nil {
		return fmt.Errorf("rotating credentials: %w", failure(err))
	}
	if current == string(secretHash[:]) {
		return nil
	}
	return l.writeAccount(ctx, "update", id, nil, false,
		"secret", string(secretHash[:]), "old_secret", current, "old_until", oldValidUntil.UnixMilli())
}
