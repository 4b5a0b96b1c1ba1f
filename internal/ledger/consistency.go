package ledger

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// What a check of a settled ledger reads besides orders, entries and history. It reads
// every partition and account: for tests and damaged ledgers only.

// GroupLeft is what one group has yet to settle of one stream.
type GroupLeft struct {
	Partition int
	Stream    string // events, updates, outcomes, tries or audit
	Role      Role
	Unread    int64 // entries behind the last one that was handed out
	Pending   int64 // handed out and not settled
}

// GroupsLeft lists the groups that have not settled everything. It counts by
// position: the server's own figure is wrong once entries in the middle were
// removed. A missing group has everything unread.
func (l Consistency) GroupsLeft(ctx context.Context) ([]GroupLeft, error) {
	var left []GroupLeft
	for _, role := range []Role{RoleStatus, RoleWebhook, RoleExport} {
		err := l.eachStream(role, func(r partition, key string) error {
			groups, _, err := l.groupsOf(ctx, key)
			if err != nil {
				return err
			}
			group, _ := groupOf(groups, role)
			unread, err := l.rdb.XRangeN(ctx, key, "("+group.LastDeliveredID, "+", mostListed).Result()
			if len(unread) > 0 || group.Pending > 0 {
				left = append(left, GroupLeft{r.number, streamNames[strings.TrimPrefix(key, r.prefix)], role, int64(len(unread)), group.Pending})
			}
			return failed("reading a stream", err)
		})
		if err != nil {
			return nil, err
		}
	}
	return left, nil
}

// WebhooksLeft is what waits for the webhooks of one account.
type WebhooksLeft struct {
	Account   delivery.AccountID
	Scheduled []WaitingEvent
	Counts    int // how many counts of attempts are kept for events that failed
}

// WaitingEvent is a scheduled version of an order, or a notice.
type WaitingEvent struct {
	Order    delivery.OrderID
	Sequence uint32
	Notice   string
}

// WebhooksLeft lists the accounts for whose webhooks anything is kept.
func (l Consistency) WebhooksLeft(ctx context.Context) ([]WebhooksLeft, error) {
	found := make(map[delivery.AccountID]WebhooksLeft)
	err := l.eachReceiver(ctx, func(ids []delivery.AccountID) error {
		left, err := pipelined(ctx, l.rdb, "reading waiting webhooks", ids, func(pipe redis.Pipeliner, id delivery.AccountID) func() WebhooksLeft {
			r := l.partitionOf(id)
			scheduled, counts := pipe.ZRange(ctx, r.keyOf(kindRetries, id[:]), 0, -1), pipe.HLen(ctx, r.keyOf(kindAttempts, id[:]))
			replayed := pipe.SCard(ctx, r.replayed(id))
			return func() WebhooksLeft {
				return WebhooksLeft{id, r.waitingEvents(scheduled.Val()), int(counts.Val() + replayed.Val())}
			}
		})
		for _, w := range left {
			if len(w.Scheduled)+w.Counts > 0 {
				found[w.Account] = w
			}
		}
		return err
	})
	return slices.SortedFunc(maps.Values(found), func(a, b WebhooksLeft) int { return compareAccounts(a.Account, b.Account) }), err
}

// orderItem is the length of an order's item: kind, digest, day, sequence.
const orderItem = 1 + delivery.OrderDigestSize + 2 + 4

func (r partition) waitingEvents(items []string) []WaitingEvent {
	events := make([]WaitingEvent, len(items))
	for i, item := range items {
		switch {
		case len(item) >= orderItem && item[0] == eventOrder:
			events[i].Order = r.orderOfMember(item[1:15])
			events[i].Sequence = binary.BigEndian.Uint32([]byte(item[15:19]))
		case item != "" && item[0] == eventNotice:
			events[i].Notice = item[1:]
		}
	}
	return events
}

// IndexInconsistency is an index that disagrees with an order.
type IndexInconsistency struct {
	Index string // timers, or the status whose list of jobs it is
	Order delivery.OrderID
	Says  string // what is wrong
}

// IndexInconsistencies compares the timers and lists of jobs of a settled ledger with all
// orders: one that has not ended has a timer and is on the list of its status; a
// cancelled one is on its list; nothing else is listed.
func (l Consistency) IndexInconsistencies(ctx context.Context, orders []*delivery.Order) ([]IndexInconsistency, error) {
	type index struct {
		name, key string
		partition partition
		belong    map[delivery.OrderID]bool
	}
	var indexes []*index
	byKey, status := make(map[string]*index), make(map[delivery.OrderID]delivery.Status, len(orders))
	find := func(name string, r partition, key string) *index {
		if byKey[key] == nil {
			byKey[key] = &index{name, key, r, make(map[delivery.OrderID]bool)}
			indexes = append(indexes, byKey[key])
		}
		return byKey[key]
	}
	fleets := make(map[delivery.FleetID]bool)
	for _, o := range orders {
		r := l.partitions[o.ID.Partition()]
		status[o.ID], fleets[o.Fleet.ID] = o.Status, true
		if !o.Status.Terminal() {
			find("timers", r, r.key(kindTimers)).belong[o.ID] = true
		}
		if !o.Status.Terminal() || o.Status == delivery.Cancelled {
			find(o.Status.String(), r, r.jobs(o.Status, o.Fleet.ID)).belong[o.ID] = true
		}
	}
	for _, r := range l.partitions { // those that nothing belongs to are read, too
		find("timers", r, r.key(kindTimers))
		for fleet := range fleets {
			for s := delivery.Searching; s <= delivery.Cancelled; s++ {
				find(s.String(), r, r.jobs(s, fleet))
			}
		}
	}
	listed, err := pipelined(ctx, l.rdb, "reading indexes", indexes, func(pipe redis.Pipeliner, x *index) func() []string {
		return pipe.ZRange(ctx, x.key, 0, -1).Val
	})
	var inconsistent []IndexInconsistency
	for i, members := range listed {
		x := indexes[i]
		for _, id := range x.partition.ordersOf(members) {
			says := "names an order that is not there"
			if s := status[id]; s != 0 {
				says = "names an order that is " + s.String()
			}
			if !x.belong[id] {
				inconsistent = append(inconsistent, IndexInconsistency{x.name, id, says})
			}
			delete(x.belong, id)
		}
		for id := range x.belong {
			inconsistent = append(inconsistent, IndexInconsistency{x.name, id, "lacks an order that is " + status[id].String()})
		}
	}
	return inconsistent, err
}
