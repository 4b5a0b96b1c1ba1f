package ledger

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// saved is all that Redis holds, as a replica has it that is a moment behind.
type saved map[string]string

func (s *env) save(t *testing.T) saved {
	t.Helper()
	all := make(saved)
	for _, key := range get(s.core.Redis.Keys(t.Context(), "*").Result())(t) {
		all[key] = get(s.core.Redis.Dump(t.Context(), key).Result())(t)
	}
	return all
}

// loseSince takes back all that was written since save, as a failover does to that replica.
func (s *env) loseSince(t *testing.T, all saved) {
	t.Helper()
	must(t, s.core.Redis.FlushDB(t.Context()).Err())
	for key, value := range all {
		must(t, s.core.Redis.Restore(t.Context(), key, 0, value).Err())
	}
}

// passTimeOf returns once the time of a version has passed, which may be a little ahead: a loss takes longer.
func passTimeOf(version uint64) {
	for !time.Now().After(delivery.VersionTime(version).Add(time.Millisecond)) {
		runtime.Gosched()
	}
}

// Whoever writes a change after a loss, and whoever had written the one that is lost, the event id of
// the lost one names nothing else, and ClickHouse takes the later one for the truth.
func TestVersions_AreNotGivenOutAgainAfterALoss(t *testing.T) {
	t.Parallel()

	writers := map[string]func(*testing.T, *env, delivery.OrderID){
		"owner": func(t *testing.T, s *env, id delivery.OrderID) { s.advance(t, id, delivery.Assigned) },
		"gateway": func(t *testing.T, s *env, id delivery.OrderID) {
			get2(s.Orders.Cancel(t.Context(), s.account, id, "", "", time.Now()))(t)
		},
	}

	for lostBy, writeLost := range writers {
		for keptBy, writeKept := range writers {
			t.Run(lostBy+" then "+keptBy, func(t *testing.T) {
				t.Parallel()

				_, own := ownServer(t)
				s := newEnv(t, own)
				o := s.create(t, "X-1")
				before := s.save(t)
				writeLost(t, s, o.ID)
				lost := get(s.Orders.Get(t.Context(), o.ID))(t)

				s.loseSince(t, before)
				passTimeOf(lost.Version)
				writeKept(t, s, o.ID)

				kept := get(s.Orders.Get(t.Context(), o.ID))(t)
				equal(t, delivery.Sequence(lost.Version), 2, "sequence of the change that is lost")
				equal(t, delivery.Sequence(kept.Version), 2, "sequence of the change in its place")
				check(t, kept.Version > lost.Version, "version %x in the place of %x", kept.Version, lost.Version)
				equal(t, kept.Changes[0].Version, kept.Version, "version of the change")
			})
		}
	}
}

// An order that is lost may be created again on the same day, which is the same order id.
func TestVersions_OfAnOrderThatIsCreatedAgainAreOthers(t *testing.T) {
	t.Parallel()

	_, own := ownServer(t)
	s := newEnv(t, own)
	before := s.save(t)
	lost := s.create(t, "X-1")
	s.advance(t, lost.ID, delivery.Assigned)
	lostChange := get(s.Orders.Get(t.Context(), lost.ID))(t).Version

	s.loseSince(t, before)
	passTimeOf(lostChange)
	kept := s.create(t, "X-1")
	s.advance(t, kept.ID, delivery.Assigned)

	keptChange := get(s.Orders.Get(t.Context(), kept.ID))(t).Version
	equal(t, kept.ID, lost.ID, "order id")
	check(t, kept.Version > lost.Version, "creation %x after %x", kept.Version, lost.Version)
	check(t, keptChange > lostChange, "change %x after %x", keptChange, lostChange)
}

// The script of a cancellation makes versions as package delivery does.
func TestCancel_MakesTheNextVersion(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	for i := range 50 {
		o := s.create(t, fmt.Sprint("X-", i))
		s.advance(t, o.ID, delivery.Assigned)
		assigned := get(s.Orders.Get(t.Context(), o.ID))(t)

		cancelled, _ := get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "", time.Now()))(t)

		v := cancelled.Version
		written := delivery.VersionTime(v)
		equal(t, v, delivery.NextVersion(assigned.Version, written, delivery.VersionRandom(v)), "version")
		check(t, time.Since(written).Abs() < time.Hour, "written at %s by the clock of Redis", written)
	}
}

// A cancellation goes by the version that the order has, not by the clock: what a clock that was ahead has written,
// or a backup has brought back, is followed by something later all the same.
func TestCancel_FollowsAVersionThatIsAheadOfTheClock(t *testing.T) {
	s := newWebhookEnv(t)
	s.pass(t, time.Hour)
	o, _ := s.moved(t, "X-1", delivery.Assigned)
	s.pass(t, -time.Hour)

	cancelled, _ := get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "", s.now()))(t)

	check(t, cancelled.Version > o.Version && delivery.Sequence(cancelled.Version) == delivery.Sequence(o.Version)+1, "version %x after %x", cancelled.Version, o.Version)
	check(t, delivery.VersionTime(o.Version).After(s.now()), "the order's version is not ahead of the clock")
}
