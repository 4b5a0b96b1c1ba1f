package ledger

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/operations"
)

func TestExclusively_OneProcessIsAtWork(t *testing.T) {
	l := openTest(t)
	mine := errors.New("mine")
	for range 2 {
		err := l.Books.Exclusively(t.Context(), "work", func(ctx context.Context) error {
			second := l.Books.Exclusively(ctx, "work", func(context.Context) error {
				t.Error("two are at work")
				return nil
			})

			wantError(t, second, operations.ErrBusy)
			wantError(t, second, delivery.ErrUnavailable)

			isFree := false
			must(t, l.Books.Exclusively(ctx, "other work", func(context.Context) error {
				isFree = true
				return nil
			}))

			check(t, isFree, "other work waits")

			left := l.core.Redis.PTTL(ctx, "books:{sg}claim:work").Val()
			check(t, left > 0 && left <= operations.ClaimLasts, "the claim lasts %v", left)

			return mine
		})

		wantError(t, err, mine)
	}
}

// A process that was paused longer than its claim lasts must not go on beside its successor.
func TestExclusively_WhoLosesTheClaimIsStopped(t *testing.T) {
	l := openTest(t)

	err := l.Books.Exclusively(t.Context(), "work", func(ctx context.Context) error {
		must(t, l.core.Redis.Set(ctx, "books:{sg}claim:work", "another's", 0).Err())
		<-ctx.Done()
		return ctx.Err()
	})

	wantError(t, err, delivery.ErrUnavailable)
	check(t, strings.Contains(err.Error(), "lost its claim"), "the error is %v", err)
	equal(t, l.core.Redis.Get(t.Context(), "books:{sg}claim:work").Val(), "another's", "the claim afterwards")
}

func TestExclusively_ACancelledCallerGivesTheClaimBack(t *testing.T) {
	l := openTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	var runs atomic.Int32

	err := l.Books.Exclusively(ctx, "work", func(ctx context.Context) error {
		runs.Add(1)
		cancel()
		return ctx.Err()
	})

	wantError(t, err, context.Canceled)
	must(t, l.Books.Exclusively(t.Context(), "work", func(context.Context) error {
		runs.Add(1)
		return nil
	}))

	equal(t, runs.Load(), 2, "runs")
}
