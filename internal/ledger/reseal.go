package ledger

import (
	"context"
	"fmt"
	"strings"

	"vendorapi/internal/delivery"
)

// Reseal seals every webhook secret that an older key has sealed with the current
// one, so that the older key can be taken out of every program. It may run beside
// everything else and may be repeated; every program must have the current key
// already. Returns how many secrets it sealed anew. One that cannot be opened
// stays as it is and is an error, after the others were sealed.
func (l *Ledger) Reseal(ctx context.Context) (sealed int, err error) {
	ids, err := l.accountIDs(ctx)
	if err != nil {
		return 0, err
	}
	var left []string
	for _, id := range ids {
		for _, field := range []string{"secret", "old_secret"} {
			done, err := l.resealField(ctx, id, field)
			if failed := ctx.Err(); failed != nil {
				return sealed, failed
			}
			if err != nil {
				left = append(left, fmt.Sprintf("account %s: %v", id, err))
			}
			if done {
				sealed++
			}
		}
	}
	if len(left) > 0 {
		return sealed, fmt.Errorf("%d webhook secrets were not sealed anew: %s", len(left), strings.Join(left[:min(len(left), 10)], "; "))
	}
	return sealed, nil
}

func (l *Ledger) resealField(ctx context.Context, id delivery.AccountID, field string) (bool, error) {
	key := l.roomOf(id).keyOf(kindEndpoint, id[:])
	for range updateTries {
		values, err := l.rdb.HMGet(ctx, key, field).Result()
		if err != nil {
			return false, failure(err)
		}
		before, _ := values[0].(string)
		if before == "" || strings.HasPrefix(before, l.secrets.Current+":") {
			return false, nil
		}
		secret, err := l.secrets.open(id[:], before)
		if err != nil {
			return false, err
		}
		after, err := l.secrets.seal(id[:], secret)
		if err != nil {
			return false, err
		}
		reply, err := l.runText(ctx, l.scripts.resealSecret, []string{key}, field, before, after)
		if err != nil || reply == "written" {
			return err == nil, err
		}
	}
	return false, ErrConflict
}
