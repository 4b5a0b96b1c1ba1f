package ledger

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/operations"
)

func TestBooks_TheFirstToMoveTheHeadDecides(t *testing.T) {
	l := openTest(t)
	now := get(l.ServerTime(t.Context()))(t)
	equal(t, get(l.Books.Head(t.Context()))(t), "", "the head before the first entry")

	must(t, l.Books.MoveHead(t.Context(), "", "first", now))
	wantError(t, l.Books.MoveHead(t.Context(), "", "another first", now), core.ErrConflict)
	equal(t, get(l.Books.Head(t.Context()))(t), "first", "the head")

	must(t, l.Books.MoveHead(t.Context(), "first", "second", now))
	wantError(t, l.Books.MoveHead(t.Context(), "first", "another second", now), core.ErrConflict)
	equal(t, get(l.Books.Head(t.Context()))(t), "second", "the head")
}

// A caller that has not seen the answer asks again.
func TestBooks_MovingTheHeadCanBeRepeated(t *testing.T) {
	l := openTest(t)
	now := get(l.ServerTime(t.Context()))(t)

	for range 2 {
		must(t, l.Books.MoveHead(t.Context(), "", "first", now))
	}

	must(t, l.Books.MoveHead(t.Context(), "first", "second", now))
	wantError(t, l.Books.MoveHead(t.Context(), "", "first", now), core.ErrConflict)
}

// An entry that is stored long after its time would change what was already reported as of a day.
func TestBooks_ALateDecisionIsRefused(t *testing.T) {
	l := openTest(t)
	now := get(l.ServerTime(t.Context()))(t)
	l.setClock(t, now.UnixMicro())
	for _, c := range []struct {
		after time.Duration
		want  error
	}{
		{-time.Hour, operations.ErrLate}, {-40 * time.Second, operations.ErrLate}, {40 * time.Second, operations.ErrLate}, {48 * time.Hour, operations.ErrLate},
		{-15 * time.Second, nil},
	} {
		wantError(t, l.Books.MoveHead(t.Context(), "", "first", now.Add(c.after)), c.want)
	}

	wantError(t, operations.ErrLate, delivery.ErrUnavailable)

	// What was decided before may be repeated at any time.
	must(t, l.Books.MoveHead(t.Context(), "first", "second", time.Time{}))
}

func TestBooks_ProgressIsKeptForAMonth(t *testing.T) {
	l := openTest(t)
	equal(t, get(l.Books.Progress(t.Context()))(t), "", "progress before the first task")

	must(t, l.Books.SetProgress(t.Context(), "", "half"))
	wantError(t, l.Books.SetProgress(t.Context(), "", "another task"), core.ErrConflict)

	equal(t, get(l.Books.Progress(t.Context()))(t), "half", "progress")
	left := l.core.Redis.TTL(t.Context(), "books:{sg}progress").Val()
	check(t, left > 29*24*time.Hour, "it is kept for %v", left)
}
