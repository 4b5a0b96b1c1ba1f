package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

func TestGroupsLeft_CountsUnreadAndPending(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(c *Config) { c.Partitions = 1 })
	equal(t, len(get(s.Consistency.GroupsLeft(t.Context()))(t)), 0, "of nothing")
	order := s.create(t, "A-1")
	s.report(t, order.ID, delivery.Assigned)
	want := func(what string, want ...GroupLeft) {
		t.Helper()
		left := get(s.Consistency.GroupsLeft(t.Context()))(t)
		// Stores and fleets publish, too; only streams that exist count.
		check(t, slices.Equal(left, want), "%s: %+v, want %+v", what, left, want)
	}
	want("nobody has read", GroupLeft{0, "events", RoleStatus, 1, 0}, GroupLeft{0, "updates", RoleStatus, 1, 0},
		GroupLeft{0, "events", RoleWebhook, 1, 0}, GroupLeft{0, "events", RoleExport, 1, 0})
	entries := collect(t, s.Ledger, RoleStatus, "c", 2)
	want("one has read", GroupLeft{0, "events", RoleStatus, 0, 1}, GroupLeft{0, "updates", RoleStatus, 0, 1},
		GroupLeft{0, "events", RoleWebhook, 1, 0}, GroupLeft{0, "events", RoleExport, 1, 0})
	must(t, s.Streams.Ack(t.Context(), RoleStatus, entries...))
	must(t, s.Streams.Ack(t.Context(), RoleWebhook, collect(t, s.Ledger, RoleWebhook, "c", 1)...))
	must(t, s.Streams.Ack(t.Context(), RoleExport, collect(t, s.Ledger, RoleExport, "c", 1)...))
	want("all have settled")
}

func TestWebhooksLeft_NamesWhatWaits(t *testing.T) {
	t.Parallel()
	s := newWebhookEnv(t)
	s.beside(t) // nothing waits for it
	equal(t, len(get(s.Consistency.WebhooksLeft(t.Context()))(t)), 0, "accounts")
	o, versions := s.moved(t, "X-1", delivery.Assigned)
	notice := s.publish(t, 1)[0]
	s.owns(t, func(step *Step) {
		step.Schedule(s.account, false, []Scheduled{{Key: versions[0], Due: 1, Attempts: 2}, {Key: notice, Due: 2}})
	})
	want := []WebhooksLeft{{s.account, []WaitingEvent{{Order: o.ID, Sequence: 2}, {Notice: notice[1:]}}, 1}}
	equal(t, get(s.Consistency.WebhooksLeft(t.Context()))(t), want, "what waits")
	s.owns(t, func(step *Step) { step.Unschedule(s.account, []string{versions[0], notice}) })
	must(t, s.rdb.HSet(t.Context(), s.key(kindAttempts), notice, "1").Err())
	equal(t, get(s.Consistency.WebhooksLeft(t.Context()))(t), []WebhooksLeft{{s.account, []WaitingEvent{}, 1}}, "a count that is left")
}

func TestWaitingEvents_ReadsItemsOfEveryKind(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	r := l.partitions[1]
	id := delivery.MakeOrderID(1, 20_000, [12]byte{1, 2, 3})
	item := versionKey(id, delivery.ComposeVersion(time.Now(), 5, 7), delivery.EstimateRevised)
	got := r.waitingEvents([]string{item, "\x02evt_n", "\x0412345678", "", "\x01", "\x82"})
	want := []WaitingEvent{{Order: id, Sequence: 7}, {Notice: "evt_n"}, {}, {}, {}, {}}
	check(t, slices.Equal(got, want), "got %v, want %v", got, want)
}

func TestIndexInconsistencies_HoldsIndexesAgainstOrders(t *testing.T) {
	t.Parallel()
	s := newEnv(t, func(c *Config) { c.Partitions = 1 })
	searching, cancelled, delivered := s.create(t, "A-1").ID, s.create(t, "A-2").ID, s.create(t, "A-3").ID
	s.list(t, searching, cancelled, delivered)
	get2(s.Orders.Cancel(t.Context(), s.account, cancelled, delivery.CustomerRequest, "", time.Now()))(t)
	s.advance(t, delivered, delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered)
	find := func() []IndexInconsistency {
		orders := get(s.Orders.GetAll(t.Context(), []delivery.OrderID{searching, cancelled, delivered}))(t)
		return get(s.Consistency.IndexInconsistencies(t.Context(), orders))(t)
	}
	equal(t, len(find()), 0, "of a ledger that is right")
	r := s.partitions[0]
	for _, one := range []struct {
		name, key string
		member    delivery.OrderID
		remove    bool
		index     string
	}{
		{"a timer is gone", r.key(kindTimers), searching, true, "timers"},
		{"a timer of one that has ended", r.key(kindTimers), delivered, false, "timers"},
		{"a job is gone", r.jobs(delivery.Searching, s.fleet.ID), searching, true, "Searching"},
		{"a job of another state", r.jobs(delivery.Assigned, s.fleet.ID), searching, false, "Assigned"},
		{"a job of one that has ended", r.jobs(delivery.Delivered, s.fleet.ID), delivered, false, "Delivered"},
		{"a job of no order", r.jobs(delivery.Cancelled, s.fleet.ID), delivery.MakeOrderID(0, 1, [12]byte{9}), false, "Cancelled"},
	} {
		member := orderMember(one.member)
		before, err := s.rdb.ZScore(t.Context(), one.key, member).Result()
		if one.remove {
			must(t, err)
			must(t, s.rdb.ZRem(t.Context(), one.key, member).Err())
		} else {
			must(t, s.rdb.ZAdd(t.Context(), one.key, redis.Z{Member: member, Score: 1}).Err())
		}
		if inconsistent := find(); len(inconsistent) != 1 || inconsistent[0].Order != one.member || inconsistent[0].Index != one.index {
			t.Errorf("%s: %+v", one.name, inconsistent)
		}
		if one.remove {
			must(t, s.rdb.ZAdd(t.Context(), one.key, redis.Z{Member: member, Score: before}).Err())
		} else {
			must(t, s.rdb.ZRem(t.Context(), one.key, member).Err())
		}
	}
}
