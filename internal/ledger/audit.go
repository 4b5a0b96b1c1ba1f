package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

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

// GroupsLeft lists the groups that have not settled everything, by position: the
// server's own figure is wrong once entries in the middle were removed. A group
// that is missing has everything unread.
func (l Audit) GroupsLeft(ctx context.Context) ([]GroupLeft, error) {
	var left []GroupLeft
	for _, r := range l.partitions {
		for _, kind := range []byte{kindEvents, kindUpdates, kindOutcomes, kindTries} {
			some, err := l.groupsLeftOf(ctx, r, kind)
			if err != nil {
				return nil, fmt.Errorf("reading the groups of %s in partition %d: %w", streamNames[string(rune(kind))], r.number, failure(err))
			}
			left = append(left, some...)
		}
	}
	return left, nil
}

func (l *core) groupsLeftOf(ctx context.Context, r partition, kind byte) ([]GroupLeft, error) {
	key := r.key(kind)
	groups, err := l.rdb.XInfoGroups(ctx, key).Result()
	if redis.HasErrorPrefix(err, "no such key") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var left []GroupLeft
	for _, role := range requiredRoles(key) {
		found := GroupLeft{Partition: r.number, Stream: streamNames[string(rune(kind))], Role: role}
		from := "-"
		for _, g := range groups {
			if g.Name == string(role) {
				found.Pending, from = g.Pending, "("+g.LastDeliveredID
			}
		}
		unread, err := l.rdb.XRangeN(ctx, key, from, "+", mostListed).Result()
		if err != nil {
			return nil, err
		}
		if found.Unread = int64(len(unread)); found.Unread > 0 || found.Pending > 0 {
			left = append(left, found)
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

// WaitingEvent names an event in a queue: a version of an order by its sequence,
// or a notice; of a ping all is zero.
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
	var left []WebhooksLeft
	for page := range slices.Chunk(ids, accountsAtOnce) {
		some, err := l.webhooksLeftOf(ctx, page)
		if err != nil {
			return nil, err
		}
		left = append(left, some...)
	}
	return left, nil
}

func (l *core) webhooksLeftOf(ctx context.Context, ids []delivery.AccountID) ([]WebhooksLeft, error) {
	type reads struct {
		queued, waiting, leased *redis.StringSliceCmd
		counts                  *redis.IntCmd
		scheduled               *redis.FloatCmd
	}
	pipe := l.rdb.Pipeline()
	all := make([]reads, len(ids))
	for i, id := range ids {
		r := l.partitionOf(id)
		all[i] = reads{
			queued:    pipe.LRange(ctx, r.keyOf(kindQueue, id[:]), 0, -1),
			waiting:   pipe.ZRange(ctx, r.keyOf(kindRetries, id[:]), 0, -1),
			leased:    pipe.ZRange(ctx, r.keyOf(kindLeases, id[:]), 0, -1),
			counts:    pipe.HLen(ctx, r.keyOf(kindAttempts, id[:])),
			scheduled: pipe.ZScore(ctx, r.key(kindSchedule), string(id[:])),
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading what webhooks wait: %w", failure(err))
	}
	var left []WebhooksLeft
	for i, c := range all {
		r := l.partitionOf(ids[i])
		w := WebhooksLeft{Account: ids[i], Queued: r.waitingEvents(c.queued.Val()), Waiting: r.waitingEvents(c.waiting.Val()),
			Leased: r.waitingEvents(c.leased.Val()), Counts: int(c.counts.Val()), Scheduled: c.scheduled.Err() == nil}
		if len(w.Queued)+len(w.Waiting)+len(w.Leased)+w.Counts > 0 || w.Scheduled {
			left = append(left, w)
		}
	}
	return left, nil
}

// orderItem is how long an item is that names an order's version: kind, digest,
// day, sequence; a replay has its time behind it.
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

// IndexInconsistencies holds the timers and the fleets' lists of jobs against all orders that
// Redis holds: each order that has not ended has one timer and stands on the list
// of its status and on no other; a cancelled one stands on its list; of all others
// there is nothing. The ledger must have settled.
func (l Audit) IndexInconsistencies(ctx context.Context, orders []*delivery.Order) ([]IndexInconsistency, error) {
	byPartition := make(map[int]map[delivery.OrderID]*delivery.Order)
	fleets := make(map[delivery.FleetID]bool)
	for _, r := range l.partitions {
		byPartition[r.number] = make(map[delivery.OrderID]*delivery.Order)
	}
	for _, o := range orders {
		byPartition[o.ID.Partition()][o.ID] = o
		fleets[o.Fleet.ID] = true
	}
	var inconsistent []IndexInconsistency
	for _, r := range l.partitions {
		some, err := l.indexInconsistenciesOf(ctx, r, byPartition[r.number], fleets)
		if err != nil {
			return nil, fmt.Errorf("reading the indexes of partition %d: %w", r.number, failure(err))
		}
		inconsistent = append(inconsistent, some...)
	}
	return inconsistent, nil
}

func (l *core) indexInconsistenciesOf(ctx context.Context, r partition, orders map[delivery.OrderID]*delivery.Order, fleets map[delivery.FleetID]bool) ([]IndexInconsistency, error) {
	var inconsistent []IndexInconsistency
	compare := func(index, key string, belongs func(*delivery.Order) bool) error {
		members, err := l.rdb.ZRange(ctx, key, 0, -1).Result()
		if err != nil {
			return err
		}
		listed := make(map[delivery.OrderID]bool, len(members))
		for _, member := range members {
			id := r.orderOfMember(member)
			listed[id] = true
			if o := orders[id]; o == nil {
				inconsistent = append(inconsistent, IndexInconsistency{index, id, "names an order that is not there"})
			} else if !belongs(o) {
				inconsistent = append(inconsistent, IndexInconsistency{index, id, "names an order that is " + o.Status.String()})
			}
		}
		for id, o := range orders {
			if belongs(o) && !listed[id] {
				inconsistent = append(inconsistent, IndexInconsistency{index, id, "lacks an order that is " + o.Status.String()})
			}
		}
		return nil
	}
	if err := compare("timers", r.key(kindTimers), func(o *delivery.Order) bool { return !o.Status.Terminal() }); err != nil {
		return nil, err
	}
	for fleet := range fleets {
		for status := delivery.Searching; status <= delivery.Cancelled; status++ {
			kept := !status.Terminal() || status == delivery.Cancelled
			err := compare(status.String(), r.jobs(status, fleet), func(o *delivery.Order) bool {
				return kept && o.Status == status && o.Fleet.ID == fleet
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return inconsistent, nil
}
