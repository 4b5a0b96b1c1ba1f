package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
)

// aloneFor is how long one process may hold a lock of Alone. Others wait that long for one that died
// holding it.
const aloneFor = 5 * time.Minute

// Alone calls do while this process holds the named lock. It fails with delivery.ErrUnavailable when
// another process holds it. do must end when its context does, a minute before the lock expires, so
// that no two processes of one environment are in it at a time.
func (l *Ledger) Alone(ctx context.Context, name string, do func(context.Context) error) error {
	return l.alone(ctx, name, do)
}

func (l *core) alone(ctx context.Context, name string, do func(context.Context) error) error {
	key := l.global.prefix + "lock_" + name
	isFree, err := l.rdb.SetNX(ctx, key, 1, aloneFor).Result()
	if err != nil {
		return failed("taking the lock "+name, err)
	}
	if !isFree {
		return fmt.Errorf("%w: another process holds the lock %q, or has died holding it: then it is free after at most %s",
			delivery.ErrUnavailable, name, aloneFor)
	}

	limited, cancel := context.WithTimeout(ctx, aloneFor-time.Minute)
	defer cancel()
	err = do(limited)
	return errors.Join(err, failed("giving back the lock "+name, l.rdb.Del(context.WithoutCancel(ctx), key).Err()))
}
