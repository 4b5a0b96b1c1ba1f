package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/shim"
)

// roomLeft is what Redis's log may still grow by before the disk is full, in
// bytes: about two hundred orders.
const roomLeft = 256 << 10

// shimmed starts the programs over a Redis of their own whose clock and disk are
// the shim's. Both end with stop.
func (r *run) shimmed(ctx context.Context, name string, o stack.Options, wide, ordinary int) (s *system, lie *shim.Shim, stop func(), err error) {
	if lie, err = shim.New(ctx, filepath.Join(r.dir, "shim")); err != nil {
		return nil, nil, nil, err
	}
	redis, err := stack.StartRedis(ctx, stack.RedisOptions{Dir: filepath.Join(r.dir, name+"-redis"), Env: lie.Env()})
	if err != nil {
		return nil, nil, nil, errors.Join(err, lie.Close())
	}
	o.RedisURL = redis.URL
	if s, err = r.start(ctx, name, o, wide, ordinary); err != nil {
		redis.Stop()
		return nil, nil, nil, errors.Join(err, lie.Close())
	}
	s.redis = redis
	return s, lie, func() {
		s.Stop()
		redis.Stop()
		_ = lie.Close() // a temporary file
	}, nil
}

// fullDisk is the case disk. Redis cannot go on without its log and ends itself.
func (r *run) fullDisk(ctx context.Context) error {
	s, lie, stop, err := r.shimmed(ctx, "disk", stack.Options{}, r.form.wide, 0)
	if err != nil {
		return err
	}
	defer stop()
	before, _ := r.during(ctx, s, nil)
	r.sheet.demand(before.served(before.accepted.TotalCount(), r.form.share), "orders before", "all accepted", "%d of %d%s", len(before.orders), before.sent(), before.oddity())
	if err := lie.LeaveRoom(roomLeft, "appendonlydir"); err != nil {
		return err
	}
	filling, gone := r.untilDeath(ctx, s)
	r.sheet.demand(gone, "Redis, when its log cannot be written", "has ended itself", "%s; %d orders accepted until then, %d without an answer, %d refused",
		map[bool]string{true: "has ended itself", false: "goes on"}[gone], len(filling.orders), len(filling.unknown), len(filling.refusals))
	full, reads := r.during(ctx, s, before.orders)
	refused := full.busy.TotalCount() + reads.busy.TotalCount()
	r.sheet.demand(full.served(full.busy.TotalCount(), r.form.share) && reads.served(reads.busy.TotalCount(), r.form.share), "orders and reads without Redis", "all 503 with Retry-After", "%d of %d%s%s",
		refused, full.sent()+reads.sent(), full.oddity(), reads.oddity())
	r.sheet.demand(p99(full.busy) <= r.form.quick, "503 took, p99", "at most "+r.form.quick.String(), "%s", milliseconds(p99(full.busy)))

	if err := lie.FreeRoom(); err != nil {
		return err
	}
	if err := s.redis.Start(ctx); err != nil {
		return fmt.Errorf("start Redis again: %w", err)
	}
	back, first := r.awaitOrders(ctx, s)
	r.sheet.demand(back >= 0 && back <= r.form.recovery, "orders accepted after Redis's start", "within "+r.form.recovery.String(), "%s", back.Round(time.Millisecond))
	again := append(r.resend(ctx, s, filling, "orders refused or not answered while it ended"), r.resend(ctx, s, full, "orders refused without it")...)
	r.sheet.demand(s.alive(ctx), "gateway and worker", "ready", "ready")
	settled, err := s.awaitSettled(ctx, r.form.patience)
	if err != nil {
		return err
	}
	r.sheet.demand(settled >= 0, "the worker has caught up", "within "+r.form.patience.String(), "%s", settled.Round(time.Millisecond))
	orders := append(append(before.orders, filling.orders...), first...)
	s.proveKept(ctx, append(orders, again...))
	return nil
}

// untilDeath orders until Redis has ended.
func (r *run) untilDeath(ctx context.Context, s *system) (t *tally, gone bool) {
	t = newTally()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var load sync.WaitGroup
	load.Go(func() {
		v := s.ordering(upTo(0, r.form.wide), calmConnections, 4*calmOrders, r.form.patience)
		v.fire(ctx, t)
	})
	for began := time.Now(); !gone && time.Since(began) < r.form.patience; time.Sleep(10 * time.Millisecond) {
		_, err := s.redis.Command(ctx, "PING")
		gone = err != nil && unix.Kill(s.redis.PID(), 0) != nil
	}
	stop()
	load.Wait()
	return t, gone
}
