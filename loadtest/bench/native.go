package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// native is the reference for whole orders: the writes that each of them needs, plain commands in pipelines, with no
// reads, no decisions, no scripts and no programs. Values have the sizes of the service's. The creation is that of
// BenchmarkRedisCost/native, but for a SET in place of HSET, since the later steps change the record in place, and for
// the event's size. Per order:
//
//	creation     SET, SET (36 bytes each: idempotency, external id), SET record (304), XADD event (24)
//	reports      5 XADD (104 bytes, then 70 each), 1 SETRANGE (2) for the pickup
//	record       4 SETRANGE (19) with 4 APPEND (81), then SET (749), which ends the room that APPEND reserves
//	job list     5 ZADD, 1 ZREM
//	timer        1 ZADD, 1 ZREM
//	end          1 RPUSH
//
// Creations and reports go when they are due; those that come due while Redis answers go together. All else follows in
// turns, in which the changes of one partition share a ZADD and a ZREM for each index, one RPUSH, one XADD of their
// events (24 bytes each), one of the webhooks' outcomes (64 each), and one SET (60) that says how far the turn came. Of
// an endpoint's log of attempts, 16 lines (64 bytes each) make an LPUSH.
type native struct {
	attempts [vendorCount]int // lines of each endpoint's log
}

// nativeFill is what values are made of.
var nativeFill = strings.Repeat("0123456789abcdef", 64)

const (
	nativeTurn   = 20 * time.Millisecond // how often what has come in is worked on
	attemptLines = 16                    // of one chunk
)

func nativeKey(order int, kind string) string {
	return fmt.Sprintf("{s%02d}%s", order%partitions, kind)
}

// A record is named by 12 bytes, a member of an index by 14.
func nativeRecord(order int) string { return nativeKey(order, fmt.Sprintf("o%012d", order)) }

type orderStep struct{ order, step int }

// arrive writes what a creation (step 0) or a report brings, as a gateway would.
func (n *native) arrive(ctx context.Context, to redis.Pipeliner, s orderStep) {
	key := func(kind string) string { return nativeKey(s.order, kind) }
	switch s.step {
	case 0:
		account := fmt.Sprintf("%016d:%d", s.order%vendorCount, s.order)
		to.Do(ctx, "SET", key("idempotency:"+account), nativeFill[:36])
		to.Do(ctx, "SET", key("external:"+account), nativeFill[:36])
		to.Do(ctx, "SET", nativeRecord(s.order), nativeFill[:304])
		to.Do(ctx, "XADD", key("e"), "*", "e", nativeFill[:24])
	case 1:
		to.Do(ctx, "XADD", key("u"), "*", "u", nativeFill[:104])
	default:
		to.Do(ctx, "XADD", key("u"), "*", "u", nativeFill[:70])
		if statuses[s.step] == "PickedUp" {
			to.Do(ctx, "SETRANGE", nativeRecord(s.order), "2", nativeFill[:2])
		}
	}
}

// turn writes what follows from steps of orders of one partition.
func (n *native) turn(ctx context.Context, to redis.Pipeliner, steps []orderStep) {
	key := func(kind string) string { return nativeKey(steps[0].order, kind) }
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	var jobs, timers, ended, events, outcomes []any
	for _, s := range steps {
		member := fmt.Sprintf("%014d", s.order)
		if s.step < eventsPerOrder {
			jobs = append(jobs, now, member)
		}
		switch s.step {
		case 0:
			timers = append(timers, now, member)
			continue
		case eventsPerOrder:
			to.Do(ctx, "SET", nativeRecord(s.order), nativeFill[:749])
			ended = append(ended, member)
		default:
			to.Do(ctx, "SETRANGE", nativeRecord(s.order), "1", nativeFill[:19])
			to.Do(ctx, "APPEND", nativeRecord(s.order), nativeFill[:81])
		}
		events, outcomes = append(events, "e", nativeFill[:24]), append(outcomes, "1", nativeFill[:64])
		vendor := s.order % vendorCount
		if n.attempts[vendor]++; n.attempts[vendor]%attemptLines == 0 {
			to.Do(ctx, "LPUSH", key(fmt.Sprintf("g%016d", vendor)), nativeFill[:64*attemptLines])
		}
	}
	shared := func(items []any, command ...any) {
		if len(items) > 0 {
			to.Do(ctx, append(command, items...)...)
		}
	}
	shared(jobs, "ZADD", key("j"))
	shared(timers, "ZADD", key("t"))
	shared(ended, "ZREM", key("j"))
	shared(ended, "ZREM", key("t"))
	shared(ended, "RPUSH", key("R"))
	shared(events, "XADD", key("e"), "*")
	shared(outcomes, "XADD", key("v"), "*")
	to.Do(ctx, "SET", key("k"), nativeFill[:60])
}

// withNative has a fresh Redis written to over two connections and returns what it used per order.
func (b *bench) withNative(ctx context.Context, write func(*redis.Client) (orders int)) harness.Usage {
	dir := b.file("native")
	server := got(stack.StartRedis(ctx, stack.RedisOptions{Dir: dir, Extra: []string{"--auto-aof-rewrite-percentage", "0"}}))
	defer func() {
		server.Stop()
		_ = os.RemoveAll(dir) // it is within the run's folder
	}()
	client := connect(server, 2)
	defer func() { _ = client.Close() }() // all of its writes are answered
	before := redisUsage(ctx, server)
	orders := write(client)
	used := redisUsage(ctx, server).Since(before)
	for name := range used {
		used[name] /= float64(orders)
	}
	return used
}

// nativeOpenLoop writes orders by the timetable of journeys. What arrives while Redis answers goes in one pipeline.
func (b *bench) nativeOpenLoop(ctx context.Context, rate float64, length time.Duration) harness.Usage {
	return b.withNative(ctx, func(client *redis.Client) int {
		t := timetable{start: time.Now().Add(100 * time.Millisecond), rate: rate, orders: int(rate * length.Seconds()), every: 1}
		var n native
		arriving, waiting := make(chan orderStep, len(statuses)*t.orders), make(chan orderStep, len(statuses)*t.orders)
		group, working := errgroup.WithContext(ctx)
		group.Go(func() error {
			pipe := client.Pipeline()
			for s := range arriving {
				n.arrive(working, pipe, s)
				for range len(arriving) {
					n.arrive(working, pipe, <-arriving)
				}
				if _, err := pipe.Exec(working); err != nil {
					return err
				}
			}
			return nil
		})
		group.Go(func() error {
			pipe := client.Pipeline()
			end := t.at(t.orders, eventsPerOrder).Add(2 * nativeTurn)
			for at := t.start; at.Before(end); at = at.Add(nativeTurn) {
				if !harness.SleepUntil(working, at) {
					return context.Cause(working)
				}
				taken := map[int][]orderStep{}
				for range len(waiting) {
					s := <-waiting
					taken[s.order%partitions] = append(taken[s.order%partitions], s)
				}
				for _, steps := range taken {
					n.turn(working, pipe, steps)
				}
				if _, err := pipe.Exec(working); err != nil {
					return err
				}
			}
			return nil
		})
		t.run(working, func(order, step int) {
			arriving <- orderStep{order, step}
			waiting <- orderStep{order, step}
		})
		close(arriving)
		must(group.Wait())
		return t.orders
	})
}

// batchEntries are the entries of a partition that are decided at once, on average.
const batchEntries = 16

// measureBatches is what a whole order costs Redis in batches: the worker stands still while a step of all orders is
// reported. What waiting costs is left out, since the worker waits most of the time.
func (b *bench) measureBatches(ctx context.Context) (cost harness.Usage) {
	const orders, stopped, early = batchEntries * partitions, spacing / 2, 20 * time.Millisecond
	b.withVendors(ctx, "batches", stack.Options{}, nil, func(ctx context.Context, s *system) {
		rounds, waiting := short(b, 8, 1), short(b, 3*time.Second, 100*time.Millisecond)
		idle := s.during(ctx, func() { time.Sleep(waiting) })
		began := time.Now()
		cost = s.during(ctx, func() {
			for range rounds {
				var pausing errgroup.Group
				start := time.Now().Add(carryDelay)
				pausing.Go(func() (err error) {
					for step := range statuses {
						at := start.Add(time.Duration(step) * spacing)
						harness.SleepUntil(ctx, at.Add(-early))
						err = errors.Join(err, syscall.Kill(s.Worker.PID(), syscall.SIGSTOP))
						harness.SleepUntil(ctx, at.Add(stopped))
						err = errors.Join(err, syscall.Kill(s.Worker.PID(), syscall.SIGCONT))
					}
					return err
				})
				const atOnce = 1e6
				err := caught(func() { s.carry(ctx, atOnce, 1, 0, orders*time.Second/atOnce) })
				must(errors.Join(err, pausing.Wait()))
			}
			s.settle(ctx)
		})
		for name := range cost {
			cost[name] = (cost[name] - idle[name]*time.Since(began).Seconds()/waiting.Seconds()) / float64(rounds*orders)
		}
	})
	return cost
}

// measureNative is what the writes alone cost when so many entries are in every pipeline and turn, and what the service
// costs beside them.
func (b *bench) measureNative(ctx context.Context) {
	for range min(b.rounds, 3) { // each takes half a minute
		own := b.measureBatches(ctx)
		for _, entries := range []int{1, 4, batchEntries, 64} {
			used := b.nativeBatches(ctx, entries)
			b.add(fmt.Sprintf("native_%d", entries), used["redis_us"])
			b.progress("the writes of an order, %d entries at once: %s us of Redis, %s commands, %s B of file", entries,
				harness.Number(used["redis_us"]), harness.Number(used["commands"]), harness.Number(used["aof_bytes"]))
			if entries == batchEntries {
				b.add("batched_redis", own["redis_us"], used["redis_us"])
				b.add("batched_file", own["aof_bytes"], used["aof_bytes"])
				b.progress("the service, likewise: %s us of Redis, %s B of file", harness.Number(own["redis_us"]), harness.Number(own["aof_bytes"]))
			}
		}
	}
}

// nativeBatches writes the steps of so many orders of a partition at once.
func (b *bench) nativeBatches(ctx context.Context, entries int) harness.Usage {
	return b.withNative(ctx, func(client *redis.Client) (orders int) {
		var n native
		pipe, steps := client.Pipeline(), make([]orderStep, entries)
		for end := time.Now().Add(short(b, 1500*time.Millisecond, 100*time.Millisecond)); time.Now().Before(end); orders += entries * partitions {
			for turn := range len(statuses) * partitions {
				step, partition := turn/partitions, turn%partitions
				for i := range steps {
					steps[i] = orderStep{orders + partition + i*partitions, step}
					n.arrive(ctx, pipe, steps[i])
				}
				got(pipe.Exec(ctx))
				n.turn(ctx, pipe, steps)
				got(pipe.Exec(ctx))
			}
		}
		return orders
	})
}
