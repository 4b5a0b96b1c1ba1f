package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// fullDisk lets vendors order until the disk has no room for Redis's log. Redis cannot go on without it and ends
// itself; then the disk gets room and Redis is started.
func (s *ownSystem) fullDisk(ctx context.Context) {
	before := s.before(ctx)
	filling := s.fillDisk(ctx)
	s.figure("orders until then", "%d accepted, %d without an answer, %d refused",
		len(filling.orders), filling.unknown, len(filling.again)-filling.unknown)

	orders, reads := s.phase(ctx, s.form.phase, before.orders)
	s.check(expectation{
		what: "orders and reads without Redis",
		want: "all 503 with Retry-After",
		got: fmt.Sprintf("%d of %d%s%s", orders.busy.TotalCount()+reads.busy.TotalCount(), orders.sent+reads.sent,
			orders.problems(), reads.problems()),
		holds: orders.served(orders.busy, s.form.share) && reads.served(reads.busy, s.form.share),
	})

	s.checkP99(orders.busy, s.form.quick, "503 took")

	s.disk.FreeRoom()
	s.require(s.redis.Start(ctx))
	first := s.checkAccepted(ctx, s.form.recovery, "orders accepted after Redis's start")
	again := slices.Concat(
		s.checkResent(ctx, filling, "orders refused or not answered while it ended"),
		s.checkResent(ctx, orders, "orders refused without it"),
	)

	s.checkReady(ctx, s.Gateway, s.Worker)
	s.checkSettled(ctx, "the worker has caught up")
	s.checkKept(ctx, before.orders, filling.orders, first, again)
}

// fillDisk returns the orders until Redis has ended itself.
func (s *ownSystem) fillDisk(ctx context.Context) (filling *tally) {
	const room = 256 << 10 // what the log may still grow by, in bytes: about two hundred orders
	s.require(s.disk.LeaveRoom(room, "appendonlydir"))

	ordering, stop := context.WithCancel(ctx)
	defer stop()
	var filler sync.WaitGroup
	filler.Go(func() {
		filling = s.order(ordering, s.wide, load{connections: calmConnections, rate: 4 * calmOrders, duration: s.form.timeout})
	})
	s.checkBecomes(ctx, condition{
		what:   "Redis, when its log cannot be written, has ended itself",
		within: s.form.timeout,
		holds: func() (bool, string) {
			_, err := s.redis.Command(ctx, "PING")
			hasEnded := unix.Kill(s.redis.PID(), 0) != nil
			return err != nil && hasEnded, fmt.Sprintf("error %v", err)
		},
	})

	stop()
	filler.Wait()

	return filling
}
