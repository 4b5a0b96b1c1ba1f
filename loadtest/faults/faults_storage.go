package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
)

var storageFaults = []fault{
	{"slow-fsync", "every fsync of Redis takes seconds; then Redis is killed in the middle of one", "no answer, 503", false, slowFsync},
	{"aof-torn", "Redis is killed; half of a transaction stands at the end of its file", "503 while it is away", false, aofTorn},
	{"aof-cut", "Redis is killed; some of what it wrote and had not yet answered is gone", "no answer, 503", false, aofCut},
	{"scripts-gone", "every function and script of Redis is forgotten", "nothing", false, scriptsGone},
	{"groups-gone", "consumer groups are destroyed with all they remember", "nothing; webhooks twice", false, groupsGone},
	{"memory-full", "Redis has reached maxmemory", "503", false, memoryFull},
}

var receiverFaults = []fault{
	{"receivers", "of four receivers one is dead, one slow, one answers 500", "nothing; that one's webhooks later", false, receivers},
}

// slowFsync first makes the disk slow and then so slow that a kill falls into an
// fsync: what had been answered must be there nevertheless.
func slowFsync(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		for _, delay := range []time.Duration{h.between(50*time.Millisecond, 300*time.Millisecond), 3 * time.Second} {
			if err := h.disk.DelaySync(delay); err != nil {
				return err
			}
			h.struck()
			err := h.hold(ctx, 1500*time.Millisecond, 3500*time.Millisecond)
			if delay == 3*time.Second {
				h.kill(h.redis)
			}
			if err := errors.Join(err, h.disk.DelaySync(0)); err != nil {
				return err
			}
		}
		return h.revive(ctx, h.redis, startPatience)
	})
}

// aofTorn adds what a write that never ended leaves behind. Nothing that was
// acknowledged is touched.
func aofTorn(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		if err := h.hold(ctx, 200*time.Millisecond, time.Second); err != nil {
			return err
		}
		h.kill(h.redis)
		h.struck()
		if err := failpoint.TearTail(h.redisDir(), h.random.IntN(1000)); err != nil {
			return err
		}
		return h.revive(ctx, h.redis, startPatience)
	})
}

// aofCut takes bytes away that Redis had written. With appendfsync always an
// answer means that they are on the disk, so cutting bytes that were answered
// would be to lose data by hand, which nothing can survive. Therefore first no
// answer reaches anybody any more; what is written from then on nobody has been
// told of, and of that a part is cut, as a power cut takes it.
func aofCut(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		if err := h.hold(ctx, 500*time.Millisecond, time.Second); err != nil {
			return err
		}
		ways := []*failpoint.Proxy{h.links.gatewayRedis, h.links.workerRedis, h.links.reportingRedis}
		for _, p := range ways {
			p.Mute()
		}
		tail, err := failpoint.EndOf(h.redisDir())
		if err != nil {
			return err
		}
		if err := h.hold(ctx, 200*time.Millisecond, 800*time.Millisecond); err != nil {
			return err
		}
		h.kill(h.redis)
		cut, of, err := tail.CutSince(h.redisDir(), func(n int64) int64 { return 1 + h.random.Int64N(n) })
		if err != nil {
			return err
		}
		h.struck()
		h.say("cut %d of %d bytes", cut, of)
		for _, p := range ways {
			if err := p.Heal(); err != nil {
				return err
			}
		}
		return h.revive(ctx, h.redis, startPatience)
	})
}

func scriptsGone(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		if err := h.hold(ctx, 100*time.Millisecond, 500*time.Millisecond); err != nil {
			return err
		}
		h.struck()
		return h.insist(ctx, func() error { return flushScripts(ctx, h.redis) })
	})
}

// groupsGone destroys about a third of all groups, again and again. The trim
// must refuse to drop what a missing group has not read.
func groupsGone(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		if err := h.hold(ctx, 500*time.Millisecond, 1500*time.Millisecond); err != nil {
			return err
		}
		return h.insist(ctx, func() error { return h.destroyGroups(ctx) })
	})
}

func (h *harm) destroyGroups(ctx context.Context) error {
	names, err := streams(ctx, h.redis)
	if err != nil {
		return err
	}
	for _, stream := range names {
		for _, group := range []string{"status", "webhook", "export"} {
			if h.random.IntN(3) > 0 {
				continue
			}
			reply, err := h.redis.Command(ctx, "XGROUP", "DESTROY", stream, group)
			if err != nil {
				return fmt.Errorf("XGROUP DESTROY: %w", err)
			}
			if reply == "1" {
				h.struck()
			}
		}
	}
	return nil
}

func memoryFull(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		if err := h.hold(ctx, 200*time.Millisecond, 800*time.Millisecond); err != nil {
			return err
		}
		h.struck()
		if err := h.insist(ctx, func() error { return limitMemory(ctx, h.redis, "1mb") }); err != nil {
			return err
		}
		if err := h.hold(ctx, 500*time.Millisecond, 2500*time.Millisecond); err != nil {
			return err
		}
		return h.insist(ctx, func() error { return limitMemory(ctx, h.redis, "0") })
	})
}

// receivers leaves the first vendor's receiver well: it must not notice that
// others are not.
func receivers(ctx context.Context, h *harm) error {
	for i, v := range h.vendors[1:] {
		v.disturb()
		switch h.struck(); i % 3 {
		case 0:
			v.close()
		case 1:
			v.inbox.Behave(0, h.between(400*time.Millisecond, 2*time.Second))
		case 2:
			v.inbox.Behave(http.StatusInternalServerError, 0)
		}
	}
	return h.hold(ctx, harmLength, harmLength)
}

// flushScripts makes Redis forget every function and script, as a fresh server in a
// failover has none.
func flushScripts(ctx context.Context, redis *stack.Redis) error {
	for _, command := range [][]string{{"FUNCTION", "FLUSH", "SYNC"}, {"SCRIPT", "FLUSH"}} {
		if _, err := redis.Command(ctx, command...); err != nil {
			return fmt.Errorf("%s FLUSH: %w", command[0], err)
		}
	}
	return nil
}

// streams are the names of all streams.
func streams(ctx context.Context, redis *stack.Redis) (names []string, err error) {
	for cursor := "0"; ; {
		reply, err := redis.Command(ctx, "SCAN", cursor, "TYPE", "stream", "COUNT", "10000")
		if err != nil {
			return nil, fmt.Errorf("SCAN: %w", err)
		}
		cursor, reply, _ = strings.Cut(reply, "\n")
		names = append(names, strings.Fields(reply)...)
		if cursor == "0" {
			return names, nil
		}
	}
}

// limitMemory sets maxmemory: "1mb" is in use already, so that every write is
// refused; "0" is no limit.
func limitMemory(ctx context.Context, redis *stack.Redis, limit string) error {
	if _, err := redis.Command(ctx, "CONFIG", "SET", "maxmemory", limit); err != nil {
		return fmt.Errorf("CONFIG SET maxmemory: %w", err)
	}
	return nil
}
