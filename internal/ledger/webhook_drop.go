package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// dropPage is how many events leave a queue with one call, without an attempt.
const dropPage = 500

// ExpiredError is the recorded error of an event that was not sent by its deadline.
const ExpiredError = "deadline: the event is older than 24 h"

// noGrant hands out nothing.
var noGrant = Grant{Lease: time.Minute}

// DropExpired ends the events that wait behind d for the same endpoint and whose
// deadline has passed, as undelivered: up to the first whose has not, and at most
// 20 pages. It tells how many. A worker that finds one event late calls it, so
// that a receiver which was away for more than a day costs no call for each.
func (l Queue) DropExpired(ctx context.Context, d *Delivery, now time.Time) (dropped int, err error) {
	for range 20 {
		page, err := l.expired(ctx, d, now)
		if err != nil || len(page) == 0 {
			return dropped, err
		}
		n, err := l.drop(ctx, page)
		if dropped += n; err != nil || n < dropPage {
			return dropped, err // the rest is in time, or another worker's
		}
	}
	return dropped, nil
}

// expired reads what waits first for d's endpoint, up to what is in time.
func (l *core) expired(ctx context.Context, d *Delivery, now time.Time) ([]settlement, error) {
	items, err := l.rdb.LRange(ctx, d.partition.keyOf(kindQueue, d.Account[:]), 0, dropPage-1).Result()
	if err != nil {
		return nil, fmt.Errorf("reading what waits: %w", failure(err))
	}
	if len(items) == 0 {
		return nil, nil
	}
	pipe := l.rdb.Pipeline()
	late := make([]*Delivery, len(items))
	records := make([]*redis.StringCmd, len(items))
	for i, item := range items {
		late[i] = &Delivery{partition: d.partition, Account: d.Account, Receiver: d.Receiver, Attempt: 1, item: item}
		records[i] = late[i].read(ctx, pipe)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading events that wait: %w", failure(err))
	}
	var page []settlement
	for i, d := range late {
		reason, err := d.fill(d.partition, records[i])
		switch {
		case err != nil:
			return page, err
		case reason != "":
			page = append(page, l.unsent(d, reason))
		case !now.Before(d.Deadline):
			r := Result{d, Outcome{At: now, Expired: true, Error: ExpiredError}}
			page = append(page, r.settlement())
		default:
			return page, nil
		}
	}
	return page, nil
}

// drop settles events of one endpoint and tells how many it was in time for.
func (l *core) drop(ctx context.Context, page []settlement) (n int, err error) {
	recorded, err := l.settle(ctx, page, noGrant, 0)
	for _, ok := range recorded.OK {
		if ok {
			n++
		}
	}
	return n, err
}

// dropAll records everything that waits for an endpoint as not sent, with leased
// also what is being sent, whose results are lost. It may be called by several at
// once, and after a crash by whoever comes next.
func (l *core) dropAll(ctx context.Context, account delivery.AccountID, leased bool) error {
	r := l.partitionOf(account)
	for {
		pipe := l.rdb.Pipeline()
		fresh := pipe.LRange(ctx, r.keyOf(kindQueue, account[:]), 0, dropPage-1)
		retries := pipe.ZRange(ctx, r.keyOf(kindRetries, account[:]), 0, dropPage-1)
		leases := pipe.ZRangeWithScores(ctx, r.keyOf(kindLeases, account[:]), 0, dropPage-1)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("reading what waits: %w", failure(err))
		}
		var page []settlement
		add := func(item, token string, attempt int) {
			d := &Delivery{partition: r, Account: account, Attempt: attempt, item: item, token: token}
			switch item[0] {
			case eventPing:
				d.fillPing()
			case eventOrder, eventReplay:
				d.Type = delivery.StatusChanged
			}
			d.Replay = item[0] == eventReplay || item[0] == eventNoticeReplay
			page = append(page, l.unsent(d, errNoEndpoint.Error()))
		}
		for _, item := range fresh.Val() {
			add(item, "", 1)
		}
		for _, item := range retries.Val() {
			add(item, "", 2)
		}
		for _, lease := range leases.Val() {
			if leased {
				add(lease.Member.(string), strconv.FormatFloat(lease.Score, 'f', 0, 64), 2)
			}
		}
		if len(page) == 0 {
			return nil
		}
		if _, err := l.drop(ctx, page); err != nil {
			return err
		}
	}
}
