package ledger

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// settleAll lets a role settle all there is.
func settleAll(t *testing.T, l *Ledger, role Role) (settled int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mark := get(l.Mark(t.Context(), role))(t)
	done := make(chan error, 1)
	go func() {
		done <- l.RunFeed(ctx, Feed{Role: role, Consumer: "test", Every: time.Millisecond, Turn: func(ctx context.Context, batch []Entry) error {
			settled += len(batch)
			return l.Ack(ctx, role, batch...)
		}})
	}()
	testserver.Await(t, "all is settled", func() bool { return get(l.Passed(t.Context(), role, mark))(t) })
	cancel()
	<-done
	return settled
}

func settleForAll(t *testing.T, l *Ledger) (exported int) {
	t.Helper()
	settleAll(t, l, RoleStatus)
	settleAll(t, l, RoleWebhook)
	return settleAll(t, l, RoleExport)
}

// eventsHeld is how many events the account's partition holds.
func (s *env) eventsHeld(t *testing.T) int64 {
	t.Helper()
	n := get(s.rdb.XLen(t.Context(), s.roomOf(s.account).key(kindEvents)).Result())(t)
	return n
}

// While a hold is there, nothing that was exported after it began is trimmed; a
// hold that nobody has released for a day keeps nothing.
func TestHold_KeepsWhatIsExportedAfterIt(t *testing.T) {
	s := newEnv(t)
	partition := s.roomOf(s.account).number
	trim := func(l *Ledger) {
		t.Helper()
		get(l.Trim(t.Context(), partition, -time.Hour))(t)
	}
	s.create(t, "before")
	settleForAll(t, s.Ledger)
	hold := get(s.Hold(t.Context(), "b1", time.Now()))(t)
	s.create(t, "after")
	settleForAll(t, s.Ledger)
	trim(s.Ledger)
	if n := s.eventsHeld(t); n < 1 {
		t.Errorf("%d events are left of the one that came after the hold", n)
	}
	must(t, s.Release(t.Context(), hold))
	must(t, s.Release(t.Context(), hold))
	trim(s.Ledger)
	released := s.eventsHeld(t)

	get(s.Hold(t.Context(), "b2", time.Now().Add(-HoldLifetime-time.Minute)))(t)
	s.create(t, "expired")
	settleForAll(t, s.Ledger)
	trim(s.Ledger)
	if n := s.eventsHeld(t); n > released {
		t.Errorf("%d events are left behind a hold that has expired", n)
	}
	_, err := s.Hold(t.Context(), "b3", time.Now())
	check(t, err == nil, "beside an expired hold: %v", err)
	groups := get(s.rdb.XInfoGroups(t.Context(), s.roomOf(s.account).key(kindEvents)).Result())(t)
	if len(groups) != 4 { // three roles and b3
		t.Errorf("groups: %+v", groups)
	}
}

// Resume sets the exporter back to where it stood, raises the epoch for good, ends
// sessions, and refuses a Redis that does not hold the backup.
func TestResume_GoesOnFromTheHold(t *testing.T) {
	s := newEnv(t)
	wantError(t, errOf(s.Resume(t.Context(), "b1", "backup@1", time.Now())), ErrOtherCopy)
	s.create(t, "before")
	settleForAll(t, s.Ledger)
	hold := get(s.Hold(t.Context(), "b1", time.Now()))(t)
	s.create(t, "after")
	settleForAll(t, s.Ledger)
	must(t, s.rdb.Set(t.Context(), s.global.prefix+"l"+strings.Repeat("s", 32), "x", 0).Err())

	now := time.Now()
	done := get(s.Resume(t.Context(), "b1", hold, now))(t)
	check(t, !done.Before && done.Sessions == 1 && done.Streams >= 3 && int64(done.Epoch) == now.Unix()-epochZero, "%+v", done)
	equal(t, settleAll(t, s.Ledger, RoleExport), 1, "events are exported again, 1 came after the hold")
	epoch := s.create(t, "new epoch").Version >> 32
	check(t, epoch == uint64(done.Epoch), "the version's epoch is %d, want %d", epoch, done.Epoch)
	again := get(s.Resume(t.Context(), "b1", hold, now))(t)
	check(t, again.Before && again.Epoch == done.Epoch, "a second time: %+v", again)
	must(t, s.Resumable(t.Context(), "b1"))
	wantError(t, errOf(s.Resume(t.Context(), "b0", hold, now)), ErrOtherCopy)
}

func TestIDBefore_IsTheGreatestThatIsLess(t *testing.T) {
	for id, want := range map[string]string{
		"5-3": "5-2", "5-0": "4-" + strconv.FormatUint(math.MaxUint64, 10), "0-0": "0-0", "0-1": "0-0",
	} {
		got := idBefore(id)
		check(t, got == want, "before %s: %s, want %s", id, got, want)
	}
}

func TestNextEpoch_NeverComesTwice(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, delivery.Istanbul)
	first := nextEpoch(1, at)
	second := nextEpoch(1, at.Add(time.Second))
	check(t, second > first, "the same backup restored a second time: %d after %d", second, first)
	back := nextEpoch(first, at.AddDate(-1, 0, 0))
	check(t, back == first+1, "with a clock that stands a year back: %d after %d", back, first)
}
