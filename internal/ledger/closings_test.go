package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"vendorapi/internal/delivery"
)

func TestClosings_WhoIsFirstDecides(t *testing.T) {
	l := openTest(t)
	var all []string
	for n := range closingsAtOnce + 2 {
		entry := fmt.Sprintf(`{"entry":%d}`, n+1)
		all = append(all, entry)
		for _, appended := range []string{entry, "another", entry} {
			equal(t, get(l.Closings.Append(t.Context(), n+1, appended))(t), entry, "what is stored")
		}
	}
	equal(t, get(l.Closings.After(t.Context(), 0))(t), all, "all entries")
	equal(t, get(l.Closings.After(t.Context(), len(all)-1))(t), all[len(all)-1:], "the last entry")
	check(t, get(l.Closings.After(t.Context(), len(all)))(t) == nil, "entries behind the last one")
}

func TestClosings_OneProcessIsAlone(t *testing.T) {
	l := openTest(t)
	mine := errors.New("mine")
	for range 2 {
		wantError(t, l.Closings.Alone(t.Context(), func(ctx context.Context) error {
			_, limited := ctx.Deadline()
			check(t, limited, "what runs alone has no time limit")
			other := l.Closings.Alone(ctx, func(context.Context) error { t.Error("two are alone"); return nil })
			wantError(t, other, delivery.ErrUnavailable)
			return mine
		}), mine)
	}
	// One that died gives way after a time.
	equal(t, l.rdb.SetNX(t.Context(), l.global.prefix+"lock_closings", 1, alone).Err(), nil, "lock")
	wantError(t, l.Closings.Alone(t.Context(), func(context.Context) error { return nil }), delivery.ErrUnavailable)
	left := l.rdb.PTTL(t.Context(), l.global.prefix+"lock_closings").Val()
	check(t, left > 0 && left <= alone, "the lock lasts %v", left)
}
