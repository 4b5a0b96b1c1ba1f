package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
)

// Closings is the log of what was decided of the books' months: one JSON document under each
// number, from 1 without a gap (reporting/closing). An entry is never changed or removed;
// reporting's user in Redis cannot.
type Closings struct{ *core }

func (l *core) closingsKey() string { return l.global.prefix + "closings" }

// Append stores an entry under its number, and returns what is stored there: this one, or the one
// of somebody who was earlier. It may be repeated when its outcome is not known.
func (l Closings) Append(ctx context.Context, number int, entry string) (stored string, err error) {
	field := strconv.Itoa(number)
	pipe := l.rdb.Pipeline()
	pipe.HSetNX(ctx, l.closingsKey(), field, entry)
	reply := pipe.HMGet(ctx, l.closingsKey(), field)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", failed("appending to the closings", err)
	}
	return text(reply.Val()[0]), nil
}

// alone is how long one process may be in Alone; so long others wait for one that died there.
const alone = 5 * time.Minute

// Alone calls do unless another process is in it, and then fails with delivery.ErrUnavailable. A slow one must end
// before the context that do gets.
func (l Closings) Alone(ctx context.Context, do func(context.Context) error) error {
	key := l.global.prefix + "lock_closings"
	free, err := l.rdb.SetNX(ctx, key, 1, alone).Result()
	if err != nil {
		return failed("locking the closings", err)
	}
	if !free {
		return fmt.Errorf("%w: another process completes the closings, or has died doing so: at most %s", delivery.ErrUnavailable, alone)
	}
	limited, cancel := context.WithTimeout(ctx, alone-time.Minute)
	defer cancel()
	err = do(limited)
	return errors.Join(err, failed("unlocking the closings", l.rdb.Del(context.WithoutCancel(ctx), key).Err()))
}

const closingsAtOnce = 50

// After lists the entries behind a number, in their order.
func (l Closings) After(ctx context.Context, number int) (entries []string, err error) {
	for {
		fields := make([]string, closingsAtOnce)
		for i := range fields {
			fields[i] = strconv.Itoa(number + len(entries) + 1 + i)
		}
		found, err := l.rdb.HMGet(ctx, l.closingsKey(), fields...).Result()
		if err != nil {
			return nil, failed("reading the closings", err)
		}
		for _, entry := range found {
			if entry == any(nil) {
				return entries, nil
			}
			entries = append(entries, text(entry))
		}
	}
}
