package ledger

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// What an audit of a settled ledger reads besides orders, entries and history:
// everything that ought to be back to nothing. It reads every partition and
// every account; it is for tests and for looking into a damaged ledger, not for
// what is read all day.

// GroupLeft is what one group has yet to settle of one stream.
type GroupLeft struct {
	Partition int
	Stream    string // events, updates, outcomes or tries
	Role      Role
	Unread    int64 // entries behind the last one that was handed out
	Pending   int64 // handed out and not settled
}

// GroupsLeft lists the groups that have not settled everything. It counts by
// position: the server's own figure is wrong once entries in the middle were
// removed. A missing group has everything unread.
func (l Audit) GroupsLeft(ctx context.Context) ([]GroupLeft, error) {
	var left []GroupLeft
	for _, r := range l.partitions {
		for _, kind := range []byte{kindEvents, kindUpdates, kindOutcomes, kindTries} {
			groups, _, err := l.groupsOf(ctx, r.key(kind))
			if err != nil {
				return nil, err
			}
			for _, role := range requiredRoles(r.key(kind)) {
				group, _ := groupOf(groups, role)
				unread, err := l.rdb.XRangeN(ctx, r.key(kind), "("+group.LastDeliveredID, "+", mostListed).Result()
				if err != nil {
					return nil, fmt.Errorf("reading a stream: %w", failure(err))
				}
				if len(unread) > 0 || group.Pending > 0 {
					left = append(left, GroupLeft{r.number, streamNames[string(rune(kind))], role, int64(len(unread)), group.Pending})
				}
			}
		}
	}
	return left, nil
}

// WebhooksLeft is what waits for the webhooks of one account.
type WebhooksLeft struct {
	Account delivery.AccountID
	Queued  []WaitingEvent // never attempted
	Waiting []WaitingEvent // their next attempt has its time
	Leased  []WaitingEvent // handed to a worker
	// Counts is how many counts of attempts are kept for events that failed.
	Counts int
	// Scheduled: it has a place among the queues that workers look at.
	Scheduled bool
}

// WaitingEvent is an event in a queue: a version of an order, or a notice; all zero
// for a ping.
type WaitingEvent struct {
	Order    delivery.OrderID
	Sequence uint32
	Notice   string
}

// WebhooksLeft lists the accounts for whose webhooks anything is kept, the
// schedule included, whether or not a worker would find it.
func (l Audit) WebhooksLeft(ctx context.Context) ([]WebhooksLeft, error) {
	ids, err := l.accountIDs(ctx)
	if err != nil {
		return nil, err
	}
	type reading struct {
		queued, waiting, leased *redis.StringSliceCmd
		counts                  *redis.IntCmd
		scheduled               *redis.FloatCmd
	}
	reads, err := pipelined(ctx, l.rdb, "reading waiting webhooks", ids, func(pipe redis.Pipeliner, id delivery.AccountID) reading {
		r := l.partitionOf(id)
		return reading{
			queued:    pipe.LRange(ctx, r.keyOf(kindQueue, id[:]), 0, -1),
			waiting:   pipe.ZRange(ctx, r.keyOf(kindRetries, id[:]), 0, -1),
			leased:    pipe.ZRange(ctx, r.keyOf(kindLeases, id[:]), 0, -1),
			counts:    pipe.HLen(ctx, r.keyOf(kindAttempts, id[:])),
			scheduled: pipe.ZScore(ctx, r.key(kindSchedule), string(id[:])),
		}
	})
	var left []WebhooksLeft
	for i, c := range reads {
		r := l.partitionOf(ids[i])
		w := WebhooksLeft{Account: ids[i], Queued: r.waitingEvents(c.queued.Val()), Waiting: r.waitingEvents(c.waiting.Val()),
			Leased: r.waitingEvents(c.leased.Val()), Counts: int(c.counts.Val()), Scheduled: c.scheduled.Err() == nil}
		if len(w.Queued)+len(w.Waiting)+len(w.Leased)+w.Counts > 0 || w.Scheduled {
			left = append(left, w)
		}
	}
	return left, err
}

// orderItem is the length of an item that names an order's version: kind, digest,
// day, sequence.
const orderItem = 1 + delivery.OrderDigestSize + 2 + 4

func (r partition) waitingEvents(items []string) []WaitingEvent {
	events := make([]WaitingEvent, len(items))
	for i, item := range items {
		if item == "" {
			continue
		}
		switch item[0] {
		case eventOrder, eventReplay:
			if len(item) >= orderItem {
				events[i].Order = r.orderOfMember(item[1:15])
				events[i].Sequence = binary.BigEndian.Uint32([]byte(item[15:19]))
			}
		case eventNotice, eventNoticeReplay:
			if len(item) > 9 || item[0] == eventNotice {
				d := Delivery{partition: r, item: item}
				events[i].Notice = d.noticeID()
			}
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

// IndexInconsistencies compares the timers and the fleets' lists of jobs of a
// settled ledger with all its orders: an order that has not ended has one timer
// and is on the list of its status and on no other; a cancelled one is on its
// list; of all others there is nothing.
func (l Audit) IndexInconsistencies(ctx context.Context, orders []*delivery.Order) ([]IndexInconsistency, error) {
	fleets, byPartition := make(map[delivery.FleetID]bool), make([][]*delivery.Order, len(l.partitions))
	for _, o := range orders {
		fleets[o.Fleet.ID] = true
		byPartition[o.ID.Partition()] = append(byPartition[o.ID.Partition()], o)
	}
	var inconsistent []IndexInconsistency
	compare := func(index string, r partition, key string, belongs func(*delivery.Order) bool) error {
		members, err := l.rdb.ZRange(ctx, key, 0, -1).Result()
		if err != nil {
			return fmt.Errorf("reading index %s of partition %d: %w", index, r.number, failure(err))
		}
		unknown := make(map[delivery.OrderID]bool, len(members))
		for _, member := range members {
			unknown[r.orderOfMember(member)] = true
		}
		for _, o := range byPartition[r.number] {
			if listed := unknown[o.ID]; listed != belongs(o) {
				says := "lacks an order that is "
				if listed {
					says = "names an order that is "
				}
				inconsistent = append(inconsistent, IndexInconsistency{index, o.ID, says + o.Status.String()})
			}
			delete(unknown, o.ID)
		}
		for id := range unknown {
			inconsistent = append(inconsistent, IndexInconsistency{index, id, "names an order that is not there"})
		}
		return nil
	}
	for _, r := range l.partitions {
		if err := compare("timers", r, r.key(kindTimers), func(o *delivery.Order) bool { return !o.Status.Terminal() }); err != nil {
			return nil, err
		}
		for fleet := range fleets {
			for status := delivery.Searching; status <= delivery.Cancelled; status++ {
				kept := !status.Terminal() || status == delivery.Cancelled
				err := compare(status.String(), r, r.jobs(status, fleet), func(o *delivery.Order) bool {
					return kept && o.Status == status && o.Fleet.ID == fleet
				})
				if err != nil {
					return nil, err
				}
			}
		}
	}
	return inconsistent, nil
}
