package ledger

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestBooks_TheFirstToMoveTheHeadDecides(t *testing.T) {
	l := openTest(t)
	now := get(l.Lifecycle.ServerTime(t.Context()))(t)
	equal(t, get(l.Books.Head(t.Context()))(t), "", "the head before the first entry")

	must(t, l.Books.MoveHead(t.Context(), "", "first", now))
	wantError(t, l.Books.MoveHead(t.Context(), "", "another first", now), ErrConflict)
	equal(t, get(l.Books.Head(t.Context()))(t), "first", "the head")

	must(t, l.Books.MoveHead(t.Context(), "first", "second", now))
	wantError(t, l.Books.MoveHead(t.Context(), "first", "another second", now), ErrConflict)
	equal(t, get(l.Books.Head(t.Context()))(t), "second", "the head")
}

// A caller that has not seen the answer asks again.
func TestBooks_MovingTheHeadCanBeRepeated(t *testing.T) {
	l := openTest(t)
	now := get(l.Lifecycle.ServerTime(t.Context()))(t)

	for range 2 {
		must(t, l.Books.MoveHead(t.Context(), "", "first", now))
	}

	must(t, l.Books.MoveHead(t.Context(), "first", "second", now))
	wantError(t, l.Books.MoveHead(t.Context(), "", "first", now), ErrConflict)
}

// An entry that is stored long after its time would change what was already reported as of a day.
func TestBooks_ALateDecisionIsRefused(t *testing.T) {
	l := openTest(t)
	now := get(l.Lifecycle.ServerTime(t.Context()))(t)
	for _, c := range []struct {
		after time.Duration
		want  error
	}{
		{-time.Hour, ErrLate}, {-40 * time.Second, ErrLate}, {40 * time.Second, ErrLate}, {48 * time.Hour, ErrLate},
		{-15 * time.Second, nil},
	} {
		wantError(t, l.Books.MoveHead(t.Context(), "", "first", now.Add(c.after)), c.want)
	}
	wantError(t, ErrLate, delivery.ErrUnavailable)

	// What was decided before may be repeated at any time.
	must(t, l.Books.MoveHead(t.Context(), "first", "second", time.Time{}))
}

func TestBooks_ProgressIsKeptForAMonth(t *testing.T) {
	l := openTest(t)
	equal(t, get(l.Books.Progress(t.Context()))(t), "", "progress before the first task")

	must(t, l.Books.SetProgress(t.Context(), "half"))

	equal(t, get(l.Books.Progress(t.Context()))(t), "half", "progress")
	left := l.rdb.TTL(t.Context(), "books:{sg}progress").Val()
	check(t, left > 29*24*time.Hour, "it is kept for %v", left)
}

func TestBooks_OneProcessIsAtWork(t *testing.T) {
	l := openTest(t)
	mine := errors.New("mine")
	for range 2 {
		err := l.Books.Exclusively(t.Context(), "work", func(ctx context.Context) error {
			second := l.Books.Exclusively(ctx, "work", func(context.Context) error {
				t.Error("two are at work")
				return nil
			})
			wantError(t, second, ErrConflict)

			isFree := false
			must(t, l.Books.Exclusively(ctx, "other work", func(context.Context) error {
				isFree = true
				return nil
			}))
			check(t, isFree, "other work waits")

			left := l.rdb.PTTL(ctx, "books:{sg}claim:work").Val()
			check(t, left > 0 && left <= claimLasts, "the claim lasts %v", left)
			return mine
		})
		wantError(t, err, mine)
	}
}

// A process that was paused longer than its claim lasts must not go on beside its successor.
func TestBooks_WhoLosesTheClaimIsStopped(t *testing.T) {
	l := openTest(t)

	err := l.Books.Exclusively(t.Context(), "work", func(ctx context.Context) error {
		must(t, l.rdb.Set(ctx, "books:{sg}claim:work", "another's", 0).Err())
		<-ctx.Done()
		return ctx.Err()
	})

	wantError(t, err, delivery.ErrUnavailable)
	check(t, strings.Contains(err.Error(), "lost its claim"), "the error is %v", err)
	equal(t, l.rdb.Get(t.Context(), "books:{sg}claim:work").Val(), "another's", "the claim afterwards")
}

func TestBooks_ACancelledCallerGivesTheClaimBack(t *testing.T) {
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
