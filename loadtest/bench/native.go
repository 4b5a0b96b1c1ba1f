package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// native is the reference for whole orders: the writes that each of them needs, plain commands in pipelines, with no
// reads, no decisions, no scripts and no programs. Values have the sizes of the service's. The creation is that of
// BenchmarkRedisCost/native, but for a SET in place of HSET, since the later steps change the record in place, and for
// the event's size. Per order:
//
//	creation     SET, SET (36 bytes each: idempotency, external id), SET record (304), XADD event (23)
//	reports      5 XADD (104 bytes, then 70 each), 1 SETRANGE (2) for the pickup
//	record       4 SETRANGE (19) with 4 APPEND (81), then SET (749), which ends the room that APPEND reserves
//	job list     5 ZADD, 1 ZREM
//	timer        1 ZADD, 1 ZREM
//	end          1 RPUSH
//
// Creations and reports go when they are due, each by itself. All else follows in turns, in which the changes of one
// partition share a ZADD and a ZREM for each index, one RPUSH, one XADD of their events (23 bytes each), one of the
// webhooks' outcomes (64 each), and one SET (60) that says how far the turn came. Of an endpoint's log of attempts,
// 16 lines (64 bytes each) make an LPUSH.
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

// nativeRecord and nativeMember are named by 12 and 14 bytes.
func nativeRecord(order int) string { return nativeKey(order, fmt.Sprintf("o%012d", order)) }
func nativeMember(order int) string { return fmt.Sprintf("%014d", order) }

type orderStep struct{ order, step int }

// resp is a pipeline of commands.
type resp struct {
	out      []byte
	commands int
}

func (r *resp) add(args ...string) {
	r.commands++
	r.out = fmt.Appendf(r.out, "*%d\r\n", len(args))
	for _, a := range args {
		r.out = fmt.Appendf(r.out, "$%d\r\n%s\r\n", len(a), a)
	}
}

// arrive writes what a creation (step 0) or a report brings, as a gateway would.
func (n *native) arrive(r *resp, order, step int) {
	switch step {
	case 0:
		account := fmt.Sprintf("%016d:", order%vendorCount)
		r.add("SET", nativeKey(order, "idempotency:"+account+strconv.Itoa(order)), nativeFill[:36])
		r.add("SET", nativeKey(order, "external:"+account+strconv.Itoa(order)), nativeFill[:36])
		r.add("SET", nativeRecord(order), nativeFill[:304])
		r.add("XADD", nativeKey(order, "e"), "*", "e", nativeFill[:23])
	case 1:
		r.add("XADD", nativeKey(order, "u"), "*", "u", nativeFill[:104])
	default:
		r.add("XADD", nativeKey(order, "u"), "*", "u", nativeFill[:70])
		if statuses[step] == "PickedUp" {
			r.add("SETRANGE", nativeRecord(order), "2", nativeFill[:2])
		}
	}
}

// turn writes what follows from steps of orders of one partition.
func (n *native) turn(r *resp, steps []orderStep) {
	of := func(kind string) string { return nativeKey(steps[0].order, kind) }
	var jobs, timers, ended, events, outcomes []string
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	for _, s := range steps {
		member := nativeMember(s.order)
		if s.step < eventsPerOrder {
			jobs = append(jobs, now, member)
		}
		switch s.step {
		case 0:
			timers = append(timers, now, member)
			continue
		case eventsPerOrder:
			r.add("SET", nativeRecord(s.order), nativeFill[:749])
			ended = append(ended, member)
		default:
			r.add("SETRANGE", nativeRecord(s.order), "1", nativeFill[:19])
			r.add("APPEND", nativeRecord(s.order), nativeFill[:81])
		}
		events = append(events, "e", nativeFill[:23])
		outcomes = append(outcomes, "1", nativeFill[:64])
		vendor := s.order % vendorCount
		if n.attempts[vendor]++; n.attempts[vendor]%attemptLines == 0 {
			r.add("LPUSH", of(fmt.Sprintf("g%016d", vendor)), nativeFill[:64*attemptLines])
		}
	}
	shared := func(items []string, command ...string) {
		if len(items) > 0 {
			r.add(append(command, items...)...)
		}
	}
	shared(jobs, "ZADD", of("j"))
	shared(timers, "ZADD", of("t"))
	shared(ended, "ZREM", of("j"))
	shared(ended, "ZREM", of("t"))
	shared(ended, "RPUSH", of("R"))
	shared(events, "XADD", of("e"), "*")
	shared(outcomes, "XADD", of("v"), "*")
	r.add("SET", of("k"), nativeFill[:60])
}

// nativeConn is a connection to Redis.
type nativeConn struct {
	net.Conn
	replies *bufio.Reader
}

// await reads so many replies; one that is an error ends it.
func (c *nativeConn) await(replies int) error {
	for range replies {
		line, err := c.replies.ReadString('\n')
		if err != nil {
			return err
		}
		switch line[0] {
		case '-':
			return errors.New(strings.TrimSpace(line))
		case '$': // an entry's id
			if _, err := c.replies.ReadString('\n'); err != nil {
				return err
			}
		}
	}
	return nil
}

// exchange sends a pipeline, awaits its replies and empties it.
func (c *nativeConn) exchange(r *resp) error {
	_, err := c.Write(r.out)
	if err == nil {
		err = c.await(r.commands)
	}
	*r = resp{out: r.out[:0]}
	return err
}

// withNative has a fresh Redis written to over two connections and returns what it used per order.
func (b *bench) withNative(ctx context.Context, write func(arriving, working *nativeConn) (orders int, err error)) (u harness.Usage, err error) {
	dir := b.file("native")
	server, err := stack.StartRedis(ctx, stack.RedisOptions{Dir: dir, Extra: []string{"--auto-aof-rewrite-percentage", "0"}})
	if err != nil {
		return nil, err
	}
	defer func() {
		server.Stop()
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	var conns [2]*nativeConn
	for i := range conns {
		conn, err := net.Dial("tcp", server.Addr)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		context.AfterFunc(ctx, func() { conn.Close() })
		conns[i] = &nativeConn{conn, bufio.NewReader(conn)}
	}
	before, u := harness.Usage{}, harness.Usage{}
	if err := addRedis(ctx, before, server); err != nil {
		return nil, err
	}
	orders, err := write(conns[0], conns[1])
	if err != nil {
		return nil, fmt.Errorf("native: %w", err)
	}
	err = addRedis(ctx, u, server)
	u = u.Since(before)
	for name := range u {
		u[name] /= float64(orders)
	}
	return u, err
}

// nativeOpenLoop writes orders by the timetable of journeys.
func (b *bench) nativeOpenLoop(ctx context.Context, rate float64, length time.Duration) (harness.Usage, error) {
	return b.withNative(ctx, func(arriving, working *nativeConn) (int, error) {
		t := timetable{start: time.Now().Add(100 * time.Millisecond), rate: rate, orders: int(rate * length.Seconds()), every: 1}
		var (
			n       native
			group   errgroup.Group
			sent    = make(chan int, len(statuses)*t.orders) // commands, by arrival
			waiting = make(chan orderStep, len(statuses)*t.orders)
		)
		group.Go(func() error {
			for commands := range sent {
				if err := arriving.await(commands); err != nil {
					return err
				}
			}
			return nil
		})
		group.Go(func() error {
			var r resp
			last := t.at(t.orders, eventsPerOrder)
			for at := t.start; at.Before(last.Add(2 * nativeTurn)); at = at.Add(nativeTurn) {
				if !harness.SleepUntil(ctx, at) {
					return context.Cause(ctx)
				}
				var taken [partitions][]orderStep
				for range len(waiting) {
					s := <-waiting
					taken[s.order%partitions] = append(taken[s.order%partitions], s)
				}
				for _, steps := range taken {
					if len(steps) > 0 {
						n.turn(&r, steps)
					}
				}
				if err := working.exchange(&r); err != nil {
					return err
				}
			}
			return nil
		})
		var r resp
		var failure error
		t.run(ctx, func(order, step int) {
			r = resp{out: r.out[:0]}
			n.arrive(&r, order, step)
			_, err := arriving.Write(r.out)
			failure = cmp.Or(failure, err)
			sent <- r.commands
			waiting <- orderStep{order, step}
		})
		close(sent)
		return t.orders, errors.Join(failure, group.Wait())
	})
}

// batchEntries are the entries of a partition that are decided at once, on average.
const batchEntries = 16

// measureBatches is what a whole order costs Redis in batches: the worker stands still while a step of all orders is
// reported. What waiting costs is left out, since the worker waits most of the time.
func (b *bench) measureBatches(ctx context.Context) (cost harness.Usage, err error) {
	const orders, stopped, early = batchEntries * partitions, spacing / 2, 20 * time.Millisecond
	err = b.withSystem(ctx, "batches", stack.Options{}, nil, func(ctx context.Context, s *system) error {
		rounds, waiting := short(b, 8, 1), short(b, 3*time.Second, 100*time.Millisecond)
		idle, err := s.during(ctx, func() error { time.Sleep(waiting); return nil })
		if err != nil {
			return err
		}
		began := time.Now()
		cost, err = s.during(ctx, func() error {
			for range rounds {
				var pausing errgroup.Group
				start := time.Now().Add(carryDelay)
				pausing.Go(func() error {
					var err error
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
				_, err := s.carry(ctx, atOnce, 1, 0, orders*time.Second/atOnce)
				if err := errors.Join(err, pausing.Wait()); err != nil {
					return err
				}
			}
			return s.settle(ctx)
		})
		for name := range cost {
			cost[name] = (cost[name] - idle[name]*time.Since(began).Seconds()/waiting.Seconds()) / float64(rounds*orders)
		}
		return err
	})
	return cost, err
}

// measureNative is what the writes alone cost when so many entries are in every pipeline and turn, and what the service
// costs beside them.
func (b *bench) measureNative(ctx context.Context) error {
	for range min(b.rounds, 3) { // each takes half a minute
		own, err := b.measureBatches(ctx)
		if err != nil {
			return err
		}
		for _, entries := range []int{1, 4, batchEntries, 64} {
			used, err := b.nativeBatches(ctx, entries)
			if err != nil {
				return err
			}
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
	return nil
}

// nativeBatches writes the steps of so many orders of a partition at once.
func (b *bench) nativeBatches(ctx context.Context, entries int) (harness.Usage, error) {
	return b.withNative(ctx, func(conn, _ *nativeConn) (orders int, err error) {
		var n native
		var r resp
		steps := make([]orderStep, entries)
		for end := time.Now().Add(short(b, 1500*time.Millisecond, 100*time.Millisecond)); time.Now().Before(end); orders += entries * partitions {
			for turn := range len(statuses) * partitions {
				step, partition := turn/partitions, turn%partitions
				for i := range steps {
					steps[i] = orderStep{orders + partition + i*partitions, step}
					n.arrive(&r, steps[i].order, step)
				}
				if err := conn.exchange(&r); err != nil {
					return 0, err
				}
				n.turn(&r, steps)
				if err := conn.exchange(&r); err != nil {
					return 0, err
				}
			}
		}
		return orders, nil
	})
}
