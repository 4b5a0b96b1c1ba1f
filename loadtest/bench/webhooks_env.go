// This file is what the measurements of webhooks stand on: a worker, vendors with their endpoints, and traffic.

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const (
	// endpoints is how many the even traffic goes to, four in each partition.
	endpoints = 64
	// steadyRate is the traffic beside which latency is measured, in events per second.
	steadyRate = 200
)

// A webhookEnv is a system whose gateway is stopped and whose worker is yet to start, with its shipped settings; and
// vendors with their endpoints.
type webhookEnv struct {
	*harness.System
	*book
	bench    *bench
	vendors  []*vendor    // all of them
	healthy  []*vendor    // those that the even traffic goes to
	received atomic.Int64 // distinct events, of all vendors
}

// withWebhooks starts the system, adds the healthy vendors, and stops everything when
// do is done. The worker will start with the given values for some settings.
func (b *bench) withWebhooks(ctx context.Context, name string, settings map[string]string, do func(context.Context, *webhookEnv)) {
	options := stack.Options{Env: append([]string{"LOG_LEVEL=error"}, sealKeyEnv...)}
	b.withSystem(ctx, name, options, func(ctx context.Context, s *harness.System) {
		s.Gateway.Stop()
		s.Worker.Stop()
		e := &webhookEnv{System: s, bench: b, book: openBook(ctx, s.Stack)}
		defer func() {
			s.Worker.Kill()
			for _, v := range e.vendors {
				v.close()
			}
			_ = e.Close() // the ledger is dropped
		}()

		got(harness.WriteConfig(b.file(name), "worker", settings))
		s.Worker.Use(b.file("bin"), b.file(name))
		for range endpoints {
			e.healthy = append(e.healthy, e.addVendor(ctx, answers))
		}

		do(ctx, e)
	})
}

// processes are what is measured; the endpoints run in this one.
func (e *webhookEnv) processes() []harness.Process {
	return []harness.Process{{Name: "worker", PID: e.Worker.PID()}, {Name: "redis", PID: e.Redis.PID()}, harness.Self("receiver")}
}

// addVendor registers a vendor with an endpoint. Vendors are spread evenly over the partitions.
func (e *webhookEnv) addVendor(ctx context.Context, how behaviour) *vendor {
	v := &vendor{
		endpoint: newEndpoint(stack.FreeAddr(), how, &e.received),
		account:  accountIn(len(e.vendors) % partitionCount),
	}

	e.vendors = append(e.vendors, v)

	e.addAccount(ctx, v.account, time.Now())
	_, secret, err := e.Webhooks.SetURL(ctx, v.account, "http://"+v.addr+"/hook")
	must(err)
	v.secret = secret

	if how != refuses {
		must(v.listen())
	}

	return v
}

// accountIn draws an account of the given partition. How the ledger spreads accounts is part of the stored layout, and
// the ledger refuses an order that it does not fit.
func accountIn(partition int) delivery.AccountID {
	for {
		id := delivery.NewAccountID()
		if partitionOf(id) == partition {
			return id
		}
	}
}

// partitionOf returns the partition of an account.
func partitionOf(id delivery.AccountID) int {
	hash := fnv.New64a()
	hash.Write(id[:])
	return int(hash.Sum64() % partitionCount)
}

// settleRedis waits until Redis does not rewrite its file, so that a measurement pays for its own work only.
func (e *webhookEnv) settleRedis(ctx context.Context) {
	must(harness.Await(ctx, "redis rewrites its file", time.Minute, 50*time.Millisecond, func() (bool, error) {
		info, err := harness.RedisInfo(ctx, e.Redis)
		return info["aof_rewrite_in_progress"] == 0 && info["aof_rewrite_scheduled"] == 0, err
	}))
}

// awaitFor waits, and goes on when the time is over: a figure will show what has not come.
func awaitFor(ctx context.Context, what string, timeout, every time.Duration, done func() (bool, error)) {
	err := harness.Await(ctx, what, timeout, every, done)
	if !errors.Is(err, harness.ErrTimeout) {
		must(err)
	}
}

// awaitReceived waits for so many distinct events of all vendors.
func (e *webhookEnv) awaitReceived(ctx context.Context, n int64, timeout time.Duration) error {
	err := harness.Await(ctx, "events received", timeout, time.Millisecond, func() (bool, error) { return e.received.Load() >= n, nil })
	if err != nil {
		return fmt.Errorf("%d of %d: %w", e.received.Load(), n, err)
	}
	return nil
}

// awaitAll waits until the healthy vendors have received everything. When nothing is wrong, that takes less than half a
// minute: what is missing then is lost, and the figures will show it.
func (e *webhookEnv) awaitAll(ctx context.Context) {
	awaitFor(ctx, "all received", 30*time.Second, 50*time.Millisecond, func() (bool, error) {
		c := sumOf(e.healthy...)
		return c.Received == c.Expected, nil
	})
}

// ordersFor creates the orders for so many events a second, in turn for vendors.
func (e *webhookEnv) ordersFor(ctx context.Context, vendors []*vendor, rate int, length time.Duration) []*order {
	orders := e.createOrders(ctx, vendors, int(length.Seconds()*float64(rate))/eventsPerOrder, time.Now())
	e.settleRedis(ctx)
	return orders
}

// beside does something while events for the healthy vendors flow, and ends the traffic with it.
func (e *webhookEnv) beside(ctx context.Context, rate int, longest time.Duration, do func()) {
	orders := e.ordersFor(ctx, e.healthy, rate, longest)
	flowing, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return e.flow(flowing, orders, rate) })
	err := caught(do)
	stop()
	must(errors.Join(err, group.Wait()))
}

// warmUp is how long traffic runs before it is measured: connections are opened, scripts loaded, and orders of every
// step in progress.
func (b *bench) warmUp() time.Duration {
	return short(b, deliveryWarmUp, 500*time.Millisecond)
}

// measureWaits runs traffic at steadyRate and returns how long each event for the healthy vendors took after the
// warm-up. Of ten orders some go to others instead, by their places 0 to 9; to a nil vendor goes none. All events have
// been received, or are lost, when it returns.
func (e *webhookEnv) measureWaits(ctx context.Context, length time.Duration, others map[int]*vendor) turn {
	vendors := slices.Repeat(e.healthy, 10)
	for i := range vendors {
		other, isOthers := others[i%10]
		if isOthers {
			vendors[i] = other
		}
	}

	orders := e.ordersFor(ctx, vendors, steadyRate, e.bench.warmUp()+length)

	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	var busy noise
	var group errgroup.Group
	group.Go(func() (err error) {
		busy, err = watchOthers(watching, e.processes()...)
		return err
	})

	err := e.flow(ctx, orders, steadyRate)
	stop()
	must(errors.Join(err, group.Wait(), context.Cause(ctx)))

	e.awaitAll(ctx)

	return got(newTurn(receiptsOf(began.Add(e.bench.warmUp()), e.healthy...), busy))
}
