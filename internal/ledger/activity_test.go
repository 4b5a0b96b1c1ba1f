package ledger

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/partitions"
)

func equalActivity(a, b limits.MinuteActivity) bool {
	return a.Created == b.Created && a.Delivered == b.Delivered && a.Failed == b.Failed && a.Cancelled == b.Cancelled &&
		maps.Equal(a.Refused, b.Refused)
}

func (l *Ledger) wantActivity(t *testing.T, want ...limits.MinuteActivity) {
	t.Helper()
	got := get(l.Limits.Activity(t.Context(), len(want)))(t)
	check(t, slices.EqualFunc(got, want, equalActivity), "activity %+v, want %+v", got, want)
}

func TestActivity_CountsWhatReallyHappened(t *testing.T) {
	clock := &testClock{at: time.Date(2026, 11, 22, 11, 3, 0, 0, time.UTC)}
	s := newEnv(t, clock.config)
	created := func(externalID, key string) *delivery.Order {
		t.Helper()
		c, _ := get2(s.Orders.Create(t.Context(), s.creation(externalID, key)))(t)
		return c.Order
	}

	o := created("X-1", "key")
	created("X-1", "key") // answered again
	wantCode(t, errOf(s.Orders.Create(t.Context(), s.creation("X-1", "other key"))), delivery.CodeDuplicateOrder)
	for range 2 { // the second finds it cancelled
		get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "", time.Now()))(t)
	}

	delivered := created("X-2", "")
	for _, want := range []error{nil, core.ErrConflict} {
		wantError(t, s.advanceBy(t.Context(), delivered.ID.Partition(), func(step *partitions.Step) {
			step.Change(delivered, []delivery.Change{{Status: delivery.Assigned, At: time.Now()}, {Status: delivery.Delivered, At: time.Now()}})
		}), want)
	}

	wantCode(t, errOf(s.Orders.Cancel(t.Context(), s.account, delivered.ID, "", "", time.Now())), delivery.CodeOrderNotCancellable)
	s.advance(t, created("X-3", "").ID, delivery.Assigned, delivery.Failed)
	s.advance(t, created("X-4", "").ID, delivery.Assigned) // not ended
	s.swap(t, created("X-5", ""), delivery.Courier{Name: "Ali Veli"})
	s.Limits.CountRefusal(delivery.CodeDuplicateOrder)
	s.Limits.CountRefusal(delivery.CodeDuplicateOrder)
	s.Limits.CountRefusal(delivery.CodeRateLimited)
	s.Limits.CountRefusal("NO_SUCH_CODE")

	s.wantActivity(t, limits.MinuteActivity{}) // nothing is written before the flush
	for range 2 {                              // the second has nothing to add
		must(t, s.Limits.Flush(t.Context(), s.core.Now()))
	}

	s.wantActivity(t, limits.MinuteActivity{Created: 5, Delivered: 1, Failed: 1, Cancelled: 1, Refused: map[delivery.Code]int64{
		delivery.CodeDuplicateOrder: 2, delivery.CodeRateLimited: 1, delivery.CodeInternal: 1}})
}

func TestActivity_EveryMinuteOldestFirst(t *testing.T) {
	start := time.Date(2026, 11, 22, 11, 3, 0, 0, time.UTC)
	clock := &testClock{start}
	l := openTest(t, clock.config)
	second := openTest(t, clock.config, sameDatabase(l))
	for minute, refusals := range []int{1, 0, 2} {
		clock.at = start.Add(time.Duration(minute)*time.Minute + 59*time.Second)
		for range refusals {
			l.Limits.CountRefusal(delivery.CodeNotFound)
			second.Limits.CountRefusal(delivery.CodeNotFound)
			second.Limits.CountRefusal(delivery.CodeTokenInvalid)
		}
		must(t, errors.Join(l.Limits.Flush(t.Context(), clock.at), second.Limits.Flush(t.Context(), clock.at)))
	}

	refused := func(n int64) limits.MinuteActivity {
		return limits.MinuteActivity{Refused: map[delivery.Code]int64{delivery.CodeNotFound: 2 * n, delivery.CodeTokenInvalid: n}}
	}
	l.wantActivity(t, limits.MinuteActivity{}, refused(1), limits.MinuteActivity{}, refused(2))
	got := get(l.Limits.Activity(t.Context(), 1440))(t)
	first, last := got[0].At, got[1439].At
	check(t, len(got) == 1440 && last.Equal(start.Add(2*time.Minute)) && last.Sub(first) == 1439*time.Minute, "%d minutes from %s to %s", len(got), first, last)
	key := limits.ActivityKey(l.core.Global, start.Unix()/60)
	ttl := l.core.Redis.TTL(t.Context(), key).Val()
	check(t, ttl > 24*time.Hour && ttl <= 25*time.Hour, "a minute is kept for %s", ttl)
}

func TestActivity_RefusesOtherSpans(t *testing.T) {
	l := openTest(t)
	for _, minutes := range []int{-1, 0, 1441} {
		check(t, errOf(l.Limits.Activity(t.Context(), minutes)) != nil, "%d minutes are answered", minutes)
	}
}

// What could not be written while Redis was unavailable stays in its minute, and is
// added once even if the first attempt arrived after all.
func TestFlushMinutes_AddsLaterWhatFailed(t *testing.T) {
	clock := &testClock{time.Date(2026, 11, 22, 11, 3, 0, 0, time.UTC)}
	own, config := ownServer(t)
	l := openTest(t, clock.config, config)
	own.Stop()
	l.Limits.CountRefusal(delivery.CodeServiceUnavailable)
	if err := l.Limits.Flush(t.Context(), clock.at); !errors.Is(err, delivery.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}

	wantError(t, errOf(l.Limits.Activity(t.Context(), 1)), delivery.ErrUnavailable)
	must(t, own.Start(t.Context()))
	waiting := slices.Clone(l.Limits.Counts.Pending)
	clock.at = clock.at.Add(time.Minute)
	l.Limits.CountRefusal(delivery.CodeNotFound)
	must(t, l.Limits.Flush(t.Context(), clock.at))
	l.Limits.Counts.Pending = waiting // as after a lost reply
	must(t, l.Limits.Flush(t.Context(), clock.at))
	l.wantActivity(t, limits.MinuteActivity{Refused: map[delivery.Code]int64{delivery.CodeServiceUnavailable: 1}},
		limits.MinuteActivity{Refused: map[delivery.Code]int64{delivery.CodeNotFound: 1}})
	check(t, len(l.Limits.Counts.Pending) == 0, "%d additions still wait", len(l.Limits.Counts.Pending))
}

func TestFlushMinutes_KeepsNoMoreThanAnHour(t *testing.T) {
	l := openTest(t, func(c *core.Config) { c.Pipelines = 0 }) // which would not look at the context
	start := time.Now()
	for i := range limits.KeptAdditions + 10 {
		l.Limits.CountRefusal(delivery.CodeNotFound)
		_ = l.Limits.Flush(overContext(t), start.Add(time.Duration(i)*limits.FlushMinutesEvery))
	}

	kept := l.Limits.Counts.Pending
	check(t, len(kept) == limits.KeptAdditions && kept[0].Number == 11, "%d additions wait, the oldest is number %d", len(kept), kept[0].Number)
}

func TestCountRefusal_TakesNoMemory(t *testing.T) {
	l := openTest(t)
	equal(t, testing.AllocsPerRun(1000, func() { l.Limits.CountRefusal(delivery.CodeRateLimited) }), 0, "allocations")
}
