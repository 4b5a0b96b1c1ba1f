package ledger

import (
	"context"
	"encoding/binary"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// The webhook queues of earlier releases, which the first owner of a partition moves into the
// schedules.
const (
	kindOldQueue   = 'q' // <account>, list: events never attempted
	kindOldLeases  = 'k' // <account>, zset: events being sent
	kindOldWaiting = 'b' // <account>, hash: notices and replays that wait
	kindOldLooks   = 'W' // zset: accounts with anything that waits
	kindOldClock   = 'C'

	orderAttemptedAt = 24 // in an order's head: the last version whose first attempt had ended
)

// importQueues adds to the first step of an owner what consumers of an earlier release have left.
// In their queues only the first version of an order stands that was never attempted.
func (l *core) importQueues(ctx context.Context, step *Step) error {
	r := step.partition
	accounts, err := l.rdb.ZRange(ctx, r.key(kindOldLooks), 0, -1).Result()
	if err != nil {
		return failed("reading the queues of an earlier release", err)
	}
	for _, account := range accounts {
		id := []byte(account)
		pipe := l.rdb.Pipeline()
		queued, leased := pipe.LRange(ctx, r.keyOf(kindOldQueue, id), 0, -1), pipe.ZRange(ctx, r.keyOf(kindOldLeases, id), 0, -1)
		waiting, attempts := pipe.ZRangeWithScores(ctx, r.keyOf(kindRetries, id), 0, -1), pipe.HGetAll(ctx, r.keyOf(kindAttempts, id))
		if _, err := pipe.Exec(ctx); err != nil {
			return failed("reading a queue of an earlier release", err)
		}
		if err := l.importQueue(ctx, step, delivery.AccountID(id), append(leased.Val(), queued.Val()...), waiting.Val(), attempts.Val()); err != nil {
			return err
		}
		step.command("DEL", r.keyOf(kindOldQueue, id), r.keyOf(kindOldLeases, id), r.keyOf(kindOldWaiting, id))
	}
	if len(accounts) > 0 {
		step.command("DEL", r.key(kindOldLooks), r.key(kindOldClock))
	}
	return nil
}

func (l *core) importQueue(ctx context.Context, step *Step, account delivery.AccountID, fresh []string, waiting []redis.Z, attempts map[string]string) error {
	now := l.now().UnixMilli()
	var events []Scheduled
	add := func(item string, due int64) {
		e := oldItem(item)
		if e.Key == "" {
			return // a probe's test event
		}
		e.Due, e.Attempts = due, int(number(attempts[item]))
		events = append(events, e)
	}
	next := func() int64 { return now + int64(len(events)/100) }
	for _, item := range fresh {
		add(item, next())
	}
	for _, z := range waiting {
		item := z.Member.(string)
		if oldItem(item).Key != item { // a replay gets the name of its event
			add(item, int64(z.Score))
			step.command("ZREM", step.partition.keyOf(kindRetries, account[:]), item)
			step.command("HDEL", step.partition.keyOf(kindAttempts, account[:]), item)
		} else if attempts[item] == "" {
			fresh = append(fresh, item)
		}
	}
	later, err := l.laterVersions(ctx, step.partition, fresh)
	if err != nil {
		return err
	}
	for _, item := range later {
		add(item, next())
	}
	step.Schedule(account, true, events)
	return nil
}

// laterVersions are those that wait for the first attempts of these.
func (l *core) laterVersions(ctx context.Context, r partition, fresh []string) (items []string, err error) {
	heads, err := pipelined(ctx, l.rdb, "reading orders", fresh, func(pipe redis.Pipeliner, item string) func() string {
		if len(item) != orderItem || item[0] != eventOrder {
			return nil
		}
		return pipe.GetRange(ctx, r.keyOf(kindOrder, []byte(item[1:13])), orderVersionAt+4, orderAttemptedAt+3).Val
	})
	for i, read := range heads {
		head := []byte(read)
		if len(head) != orderAttemptedAt-orderVersionAt {
			continue
		}
		sequence, last, attempted := binary.BigEndian.Uint32([]byte(fresh[i][15:])), binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[len(head)-4:])
		if sequence <= attempted {
			continue // its first attempt has ended
		}
		for sequence++; sequence <= last; sequence++ {
			items = append(items, string(binary.BigEndian.AppendUint32([]byte(fresh[i][:15]), sequence)))
		}
	}
	return items, err
}

// oldItem is an event as an earlier release named it.
func oldItem(item string) (e Scheduled) {
	const replay, noticeReplay = 0x81, 0x82
	f := fields{rest: item}
	switch f.byte() {
	case eventOrder, eventNotice:
		e.Key = item
	case replay:
		e.Key = string(rune(eventOrder)) + f.take(14+4)
		e.ReplayedAt = int64(f.uint64())
	case noticeReplay:
		e.ReplayedAt = int64(f.uint64())
		e.Key = noticeKey(f.rest)
	}
	return e
}
