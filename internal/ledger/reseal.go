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
func (l Webhooks) Reseal(ctx context.Context) (sealed int, err error) {
	ids, err := l.accountIDs(ctx)
	if err != nil {
		return 0, err
	}
	var left []string
	for _, id := range ids {
		for _, field := range []string{"secret", "old_secret", "previous"} {
			n, err := l.resealField(ctx, id, field)
			if failed := ctx.Err(); failed != nil {
				return sealed, failed
			}
			if err != nil {
				left = append(left, fmt.Sprintf("account %s: %v", id, err))
			}
			sealed += n
		}
	}
	if len(left) > 0 {
		return sealed, fmt.Errorf("%d webhook secrets were not sealed anew: %s", len(left), strings.Join(left[:min(len(left), 10)], "; "))
	}
	return sealed, nil
}

// resealField seals the secrets of one field again and answers how many.
func (l *core) resealField(ctx context.Context, id delivery.AccountID, field string) (int, error) {
	key := l.partitionOf(id).keyOf(kindEndpoint, id[:])
	for range updateTries {
		values, err := l.rdb.HMGet(ctx, key, field).Result()
		if err != nil {
			return 0, failure(err)
		}
		before, _ := values[0].(string)
		after, n, err := l.resealed(id, field, before)
		if err != nil || n == 0 {
			return 0, err
		}
		reply, err := l.runText(ctx, l.scripts.resealSecret, []string{key}, field, before, after)
		if err != nil {
			return 0, err
		}
		if reply == "written" {
			return n, nil
		}
	}
	return 0, ErrConflict
}

// resealed is a field's value with every secret sealed with the current key, and how
// many were sealed with another.
func (l *core) resealed(id delivery.AccountID, field, value string) (after string, n int, err error) {
	if value == "" {
		return "", 0, nil
	}
	all := []EarlierSecret{{Secret: value}}
	if field == "previous" {
		if all, err = parseEarlier(value); err != nil {
			return "", 0, err
		}
	}
	for i, one := range all {
		if strings.HasPrefix(one.Secret, l.secrets.Current+":") {
			continue
		}
		secret, err := l.secrets.open(id[:], one.Secret)
		if err != nil {
			return "", 0, err
		}
		if all[i].Secret, err = l.secrets.seal(id[:], secret); err != nil {
			return "", 0, err
		}
		n++
	}
	if field == "previous" {
		return packEarlier(all), n, nil
	}
	return all[0].Secret, n, nil
}
