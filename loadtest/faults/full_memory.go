package main

import (
	"context"
	_ "embed" // for the files of Lua
	"fmt"
	"slices"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
)

// fullMemory leaves Redis no memory: first none at all, until it gets more, then less than it uses, of which a part
// is past its time. The second, once while the workers run and once while they are restarted, nobody heals by hand.
func (s *ownSystem) fullMemory(ctx context.Context) {
	before := s.before(ctx)
	s.require(limitMemory(ctx, s.redis, "1"))
	refused := s.checkMaxmemory(ctx, before.orders)

	s.require(limitMemory(ctx, s.redis, stack.DefaultMaxMemory()))
	first := s.checkAccepted(ctx, s.form.timeout, "orders accepted again")
	again := s.checkResent(ctx, refused, "refused orders")
	s.checkSettled(ctx, "the worker has caught up")

	running := s.healFrom(ctx, filling{number: 0, what: "ended orders and streams"})
	restarted := s.healFrom(ctx, filling{number: 1, what: "both, and workers restarted", restarts: true})
	s.checkSettled(ctx, "the worker has caught up in the end")
	s.checkKept(ctx, before.orders, first, again, running, restarted)
}

// checkMaxmemory lets vendors order, read and log in while every write is refused, and returns the orders.
func (s *ownSystem) checkMaxmemory(ctx context.Context, earlier []placed) *tally {
	watched := watch(ctx, s.processes()...)
	orders, reads := s.phase(ctx, s.form.phase, earlier)
	v := s.wide[0]
	_, login := s.apis.Vendor.Login(ctx, "/token", v.ClientID, v.ClientSecret)
	cores := watched()["worker"].Cores

	s.check(expectation{
		what:  "orders at maxmemory",
		want:  "all 503 with Retry-After",
		got:   fmt.Sprintf("%d of %d%s", orders.busy.TotalCount(), orders.sent, orders.problems()),
		holds: len(orders.orders) == 0 && orders.served(orders.busy, s.form.share),
	})

	s.checkServed(reads, s.form.share, "reads at maxmemory")
	s.check(expectation{
		what:  "a login at maxmemory",
		want:  "200",
		got:   orError("200", login),
		holds: login == nil,
	})

	s.check(expectation{
		what:  "CPU of the worker, which waits",
		want:  "at most half a core",
		got:   fmt.Sprintf("%.2f cores", cores),
		holds: cores <= 0.5,
	})

	s.checkReady(ctx, s.Worker)

	return orders
}

// filling is a time when memory is full of ended orders and entries of streams that are past their time.
type filling struct {
	number   int // tells its orders from those of other fillings
	what     string
	restarts bool // the worker is restarted while memory is full
}

//go:embed fill_memory.lua
var fillMemoryLua string

//go:embed past_time.lua
var pastTimeLua string

// readsOnly lets a script run while memory is full.
const readsOnly = "#!lua flags=no-writes\n"

// healFrom fills Redis with what is past its time up to a limit that stays. Orders must be accepted
// again, with nothing done by hand. It returns the first that is, and the one that was refused.
func (s *ownSystem) healFrom(ctx context.Context, f filling) []placed {
	const MiB = 1 << 20
	full := "full of " + f.what + ": "
	account, err := delivery.ParseAccountID(s.ordinary[f.number].AccountID) // which is quiet
	s.require(err)
	quiet := string(account[:])

	before := s.memoryNow(ctx)
	s.fillMemory(ctx, f.number, quiet)
	filled := s.memoryNow(ctx)
	limit := (before + filled) / 2
	s.require(limitMemory(ctx, s.redis, strconv.FormatInt(limit, 10)))

	began := time.Now()
	refused := s.order(ctx, s.wide, load{connections: 1, duration: time.Second, most: 1})
	s.check(expectation{
		what:  full + "an order",
		want:  "503",
		got:   fmt.Sprintf("%d accepted%s", len(refused.orders), refused.problems()),
		holds: len(refused.orders) == 0 && refused.busy.TotalCount() == 1,
	})

	if f.restarts {
		s.Worker.Stop()
		s.require(s.Worker.Start(ctx))
	}

	first := s.checkAccepted(ctx, s.form.timeout, full+"orders accepted again by themselves")
	s.checkBecomes(ctx, condition{
		what:   full + "all that is past its time has left",
		within: s.form.timeout - time.Since(began),
		holds: func() (bool, string) {
			left, err := s.redis.Command(ctx, "EVAL", readsOnly+ownersLua+pastTimeLua, "0", quiet)
			return err == nil && left == "0", left + " left"
		},
	})

	after := s.memoryNow(ctx)
	s.check(expectation{
		what:  full + "memory used",
		want:  fmt.Sprintf("below the limit of %d MiB", limit/MiB),
		got:   fmt.Sprintf("%d MiB before, %d filled, %d after", before/MiB, filled/MiB, after/MiB),
		holds: after < limit,
	})

	s.require(limitMemory(ctx, s.redis, stack.DefaultMaxMemory()))

	return slices.Concat(first, s.checkResent(ctx, refused, full+"the order that was refused"))
}

// fillMemory writes half ended orders and half entries of streams, in pieces whose flush to the disk takes no longer
// than an answer may.
func (s *ownSystem) fillMemory(ctx context.Context, number int, quiet string) {
	const atOnce, calls = 10_000, 1000
	all := s.form.pastTime / 2
	for done := 0; done < all && ctx.Err() == nil; done += atOnce {
		piece := strconv.Itoa(min(all-done, atOnce))
		call := strconv.Itoa(number*calls + done/atOnce)
		first := "0"
		if done == 0 {
			first = "1"
		}
		_, err := s.redis.Command(ctx, "EVAL", ownersLua+fillMemoryLua, "0", piece, piece, quiet, call, first)
		s.require(err)
	}
}

// memoryNow returns what Redis uses, in bytes.
func (s *ownSystem) memoryNow(ctx context.Context) int64 {
	used, err := s.usedMemory(ctx)
	s.require(err)
	return used
}
