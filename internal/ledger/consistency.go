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

func (r partition) waitingEvents(items []string) []WaitingEvent {
	events := make([]WaitingEvent, len(items))
	for i, item := range items {
		switch {
		case len(item) >= orderEventSize && item[0] == eventOrder:
			events[i].Order = r.orderOfMember(item[1:15])
			version := binary.BigEndian.Uint64([]byte(item[15:23]))
			events[i].Sequence = delivery.Sequence(version)
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
	statuses := make(map[delivery.OrderID]delivery.Status, len(orders))
	for _, o := range orders {
		statuses[o.ID] = o.Status
	}

	indexes := l.expectedIndexes(orders)
	listed, err := pipelined(ctx, l.rdb, "reading indexes", indexes, func(pipe redis.Pipeliner, index *orderIndex) func() []string {
		return pipe.ZRange(ctx, index.key, 0, -1).Val
	})
	if err != nil {
		return nil, err
	}

	var inconsistent []IndexInconsistency
	for i, members := range listed {
		inconsistent = append(inconsistent, indexes[i].compare(members, statuses)...)
	}
	return inconsistent, nil
}

// orderIndex is a sorted set of orders, with those that it must list.
type orderIndex struct {
	name      string // see IndexInconsistency
	key       string
	partition partition
	missing   map[delivery.OrderID]bool // orders that it must list and that were not met in it yet
}

// expectedIndexes returns the indexes of every partition and of the orders' fleets, also those that
// must be empty, with the orders that belong into each.
func (l Consistency) expectedIndexes(orders []*delivery.Order) []*orderIndex {
	var indexes []*orderIndex
	byKey := make(map[string]*orderIndex)
	find := func(name string, p partition, key string) *orderIndex {
		if byKey[key] == nil {
			byKey[key] = &orderIndex{name: name, key: key, partition: p, missing: make(map[delivery.OrderID]bool)}
			indexes = append(indexes, byKey[key])
		}
		return byKey[key]
	}

	fleets := make(map[delivery.FleetID]bool)
	for _, o := range orders {
		p := l.partitions[o.ID.Partition()]
		fleets[o.Fleet.ID] = true

		inProgress := !o.Status.Terminal()
		if inProgress {
			find("timers", p, p.key(kindTimers)).missing[o.ID] = true
		}
		if inProgress || o.Status == delivery.Cancelled {
			find(o.Status.String(), p, p.jobs(o.Status, o.Fleet.ID)).missing[o.ID] = true
		}
	}

	for _, p := range l.partitions {
		find("timers", p, p.key(kindTimers))
		for fleet := range fleets {
			for status := delivery.Searching; status <= delivery.Cancelled; status++ {
				find(status.String(), p, p.jobs(status, fleet))
			}
		}
	}
	return indexes
}

// compare returns what is wrong with an index that has these members. It may be called once: it
// removes from missing what it meets.
func (x *orderIndex) compare(members []string, statuses map[delivery.OrderID]delivery.Status) []IndexInconsistency {
	var inconsistent []IndexInconsistency
	for _, id := range x.partition.ordersOf(members) {
		if x.missing[id] {
			delete(x.missing, id)
			continue
		}

		says := "names an order that is not there"
		status := statuses[id]
		if status != 0 {
			says = "names an order that is " + status.String()
		}
		inconsistent = append(inconsistent, IndexInconsistency{Index: x.name, Order: id, Says: says})
	}

	for id := range x.missing {
		inconsistent = append(inconsistent, IndexInconsistency{Index: x.name, Order: id, Says: "lacks an order that is " + statuses[id].String()})
	}
	return inconsistent
}
