package ledger

import (
	"context"
	"slices"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// Names under which nobody reads any more would pile up, release after release;
// one that still holds an entry keeps it until it is taken over.
func TestFeed_ForgetsConsumersThatAreGone(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	stream := s.rooms[o.ID.Partition()].key(kindEvents)
	names := func() (names []string) {
		t.Helper()
		consumers := get(s.rdb.XInfoConsumers(t.Context(), stream, string(RoleStatus)).Result())(t)
		for _, c := range consumers {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		return names
	}
	entries := collect(t, s.Ledger, RoleStatus, "holds", 1)
	for _, name := range []string{"idle", "also-idle"} {
		must(t, s.rdb.XGroupCreateConsumer(t.Context(), stream, string(RoleStatus), name).Err())
	}
	reader := newFeedReader(s.Ledger, &Feed{Role: RoleStatus, Consumer: "c", Log: func(string, ...any) {}}, s.rooms)
	reader.forget(t.Context(), time.Hour, "")
	if got := names(); len(got) != 3 {
		t.Errorf("none was silent for an hour, left: %v", got)
	}
	reader.forget(t.Context(), 0, "also-idle")
	if got := names(); !slices.Equal(got, []string{"holds", "idle"}) {
		t.Errorf("after taking one name away: %v", got)
	}
	reader.forget(t.Context(), 0, "")
	if got := names(); !slices.Equal(got, []string{"holds"}) {
		t.Errorf("after taking away who holds nothing: %v", got)
	}
	must(t, s.Ack(t.Context(), RoleStatus, entries...))
	reader.forget(t.Context(), 0, "")
	if got := names(); len(got) != 0 {
		t.Errorf("after the last entry was settled: %v", got)
	}
}

// A reader that ends in an orderly way leaves no name behind.
func TestFeed_TakesItsNameAwayAtTheEnd(t *testing.T) {
	s := newEnv(t)
	handled := make(chan Entry, 16)
	stop := runFeed(t, s.Ledger, Feed{Role: RoleStatus, Consumer: "leaves", Handle: func(ctx context.Context, _ int, batch []Entry) error {
		for _, e := range batch {
			handled <- e
		}
		return s.Ack(ctx, RoleStatus, batch...)
	}})
	o := s.create(t, "X-1")
	<-handled
	stream := s.rooms[o.ID.Partition()].key(kindEvents)
	testserver.Await(t, "the entry is settled", func() bool {
		pending := get(s.rdb.XPending(t.Context(), stream, string(RoleStatus)).Result())(t)
		return pending.Count == 0
	})
	stop()
	consumers := get(s.rdb.XInfoConsumers(t.Context(), stream, string(RoleStatus)).Result())(t)
	check(t, len(consumers) == 0, "left behind: %+v", consumers)
}
