package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

// Accounts are the vendors' accounts.
type Accounts struct {
	core   *core.Client
	limits *limits.Limits
}

// NewAccounts returns the calls of accounts.
func NewAccounts(c *core.Client, bounds *limits.Limits) *Accounts {
	return &Accounts{core: c, limits: bounds}
}

// Create stores an account with the SHA-256 of its client secret, once for each id.
func (l *Accounts) Create(ctx context.Context, a *delivery.Account, secretHash [32]byte) error {
	a.NameRevision = 1
	if err := l.addName(ctx, a); err != nil {
		return err
	}
	return l.WriteAccount(ctx, "create", a, "", "created", a.CreatedAt.UnixMilli(), "secret", string(secretHash[:]))
}

// addName adds an account's name to the names before it is written.
func (l *Accounts) addName(ctx context.Context, a *delivery.Account) error {
	member := redis.Z{Member: NameMember(a.ID, a.Name, a.NameRevision)}
	return core.Failed("writing an account's name", l.core.Redis.ZAdd(ctx, l.NamesKey(), member).Err())
}

// WriteAccount runs write_account.lua. An empty revision is not compared. An update fails with
// ACCOUNT_NOT_FOUND or ErrConflict. more are fields and values besides those that change.
func (l *Accounts) WriteAccount(ctx context.Context, mode string, a *delivery.Account, revision string, more ...any) error {
	bounds, err := json.Marshal(a.Limits)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}

	r := l.core.PartitionOf(a.ID)
	keys := []string{r.Account(a.ID), r.Key(core.KindAccounts), r.List(core.ListSuspended), r.Key(core.KindNotes)}
	args := []any{mode, a.ID[:], revision, int(limits.Endpoints)}
	for e := range limits.Endpoints {
		keys = append(keys, limits.WindowsKey(r, e, a.ID))
		args = append(args, limits.PackLimit(e, limits.LimitOf(&a.Limits, e), a.Suspended))
	}

	args = append(args, "name", a.Name, "named", a.NameRevision, "suspended", core.FlagText(a.Suspended), "limits", string(bounds), core.MutedField, core.EncodeMuted(a.MutedEvents))
	refused := core.Refusals{"missing": accountNotFound(), "conflict": fmt.Errorf("account %s: %w", a.ID, core.ErrConflict)}
	_, err = l.core.RunWord(ctx, "write_account", refused, keys, append(args, more...)...)

	return err
}

// Get reads one account. ACCOUNT_NOT_FOUND.
func (l *Accounts) Get(ctx context.Context, id delivery.AccountID) (*delivery.Account, error) {
	values, err := l.core.Redis.HGetAll(ctx, l.core.PartitionOf(id).Account(id)).Result()
	if err != nil {
		return nil, core.Failed("reading an account", err)
	}
	return decodeAccount(id, values, l.core.Now())
}

func accountNotFound() error {
	return delivery.Refuse(delivery.CodeAccountNotFound, "no account has this id")
}

// decodeAccount reads an account's hash as of now. ACCOUNT_NOT_FOUND when it is empty.
func decodeAccount(id delivery.AccountID, values map[string]string, now time.Time) (*delivery.Account, error) {
	if len(values) == 0 {
		return nil, accountNotFound()
	}

	a := &delivery.Account{
		ID:           id,
		Name:         values["name"],
		Suspended:    values["suspended"] == "1",
		MutedEvents:  core.DecodeMuted(values[core.MutedField]),
		CreatedAt:    core.TimeOf(core.ParseNumber(values["created"])),
		Revision:     uint64(core.ParseNumber(values["revision"])),
		NameRevision: uint64(core.ParseNumber(values["named"])),
	}
	if err := json.Unmarshal([]byte(values["limits"]), &a.Limits); err != nil {
		return nil, fmt.Errorf("limits of account %s: %w", id, err)
	}

	isInExcess := now.UnixMilli() < core.ParseNumber(values["excess_until"])
	if isInExcess {
		a.ExcessSince = core.TimeOf(core.ParseNumber(values["excess"]))
	}

	earlier, err := core.ParseEarlier(values[core.EarlierField])
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", id, err)
	}

	for _, secret := range earlier {
		a.EarlierSecrets = append(a.EarlierSecrets, secret.Until)
	}

	return a, nil
}

// Update applies change to an account and writes it with its windows' limits, which are
// not reset, in one script, again after a conflict. ACCOUNT_NOT_FOUND;
// delivery.ErrUnavailable when others change the account all the time; an error of change
// is returned as it is.
func (l *Accounts) Update(ctx context.Context, id delivery.AccountID, change func(*delivery.Account) error) (*delivery.Account, error) {
	var members []string // the account's names in the last try: the one that it found, and the one that it added
	for range core.UpdateTries {
		a, err := l.Get(ctx, id)
		if err != nil {
			return nil, err
		}

		l.removeOutlived(ctx, a, members)

		expected := strconv.FormatUint(a.Revision, 10)
		members = []string{NameMember(id, a.Name, a.NameRevision)}
		folded := delivery.FoldName(a.Name)
		if err := change(a); err != nil {
			return nil, err
		}

		renamed := delivery.FoldName(a.Name) != folded
		if renamed {
			a.NameRevision = a.Revision + 1
			if err := l.addName(ctx, a); err != nil {
				return nil, err
			}
			members = append(members, NameMember(id, a.Name, a.NameRevision))
		}

		err = l.WriteAccount(ctx, "update", a, expected)
		l.limits.Forget(id) // other processes ask Redis again within a second
		if errors.Is(err, core.ErrConflict) {
			continue
		}

		a.Revision++
		if err != nil {
			return a, err
		}

		l.removeOutlived(ctx, a, members)

		return a, nil
	}

	return nil, contended("account " + id.String())
}

// removeOutlived removes those of some members of the names that are not an account's any more. After
// a conflict that may be the one just added, but not if the account has got it all the same: somebody
// else gave it that name, or the reply to the first of two attempts was lost.
func (l *Accounts) removeOutlived(ctx context.Context, a *delivery.Account, members []string) {
	var outlived []any
	for _, member := range members {
		if isOutlived(a, member) {
			outlived = append(outlived, member)
		}
	}
	l.removeNames(ctx, outlived)
}

// RotateSecret replaces the client secret; the previous one works for overlap, until the time that is
// returned. revokeOld ends all earlier ones now, and every token issued before within a poll of the
// fleets. It may be repeated. ACCOUNT_NOT_FOUND, TOO_MANY_SECRETS.
func (l *Accounts) RotateSecret(ctx context.Context, id delivery.AccountID, secretHash [32]byte, overlap time.Duration, revokeOld bool) (oldUntil time.Time, err error) {
	reply, err := l.core.RunWord(ctx, "rotate_credentials", core.Refusals{"missing": accountNotFound(), "full": core.TooManySecrets()},
		[]string{l.core.PartitionOf(id).Account(id)}, secretHash[:], overlap.Milliseconds(), core.FlagText(revokeOld))
	if err != nil {
		return time.Time{}, err
	}

	notBefore, until, _ := strings.Cut(reply, "\n")
	oldUntil = core.TimeOf(core.ParseNumber(until))
	if !revokeOld {
		return oldUntil, nil
	}

	// The secrets have ended; if this fails the caller repeats it all.
	_, err = l.core.RunText(ctx, "revoke_tokens", []string{l.core.RevokedKey(), l.core.MetaKey()}, id[:], notBefore)

	return oldUntil, err
}
