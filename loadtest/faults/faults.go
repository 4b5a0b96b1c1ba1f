package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
)

// fault is one row of the table: what is done to the system, and what a client may
// see of it. What must hold afterwards is the same for all (package validate).
type fault struct {
	name   string
	does   string
	expect string
	inject func(ctx context.Context, in *injection) error
	// spare: a second worker runs, which takes over what the first has held.
	spare bool
}

// Requests that a trap waits for. Names of functions in Redis are followed by the
// library's digest. One that is listed twice is drawn more often.
var (
	acceptCalls   = []string{"create_order_", "create_order_", "cancel_order_"}
	decideCalls   = []string{"commit_order_", "commit_order_", "index_jobs_", "report_update_"}
	dispatchCalls = []string{"queue_events_", "record_attempts_", "record_attempts_"}
	createCall    = []string{"POST /api/vendor/v1/orders"}
	exportInsert  = []string{"INSERT"}
	exportAck     = []string{"xack"}
)

// faults are all that one Redis and one machine can show, in the order of a run.
// Failovers and moving slots need a cluster, see internal/systemtest.
var faults = []fault{
	{name: "none", does: "nothing", expect: "every request is answered", inject: nothing},
	{name: "kill-gateway", does: "kill -9 of the gateway at random times", expect: "connections lost; 503 while it starts", inject: crashes(gateway)},
	{name: "kill-worker", does: "kill -9 of the worker at random times", expect: "nothing; webhooks later", inject: crashes(worker)},
	{name: "kill-reporting", does: "kill -9 of the exporter at random times", expect: "nothing", inject: crashes(reporting)},
	{name: "kill-clickhouse", does: "kill -9 of ClickHouse at random times", expect: "nothing", inject: crashes(clickHouse)},
	{name: "kill-redis", does: "kill -9 of Redis at random times", expect: "503 while it is unavailable", inject: crashes(redis)},
	{name: "crash-accept", does: "the gateway is killed before or after the script that takes an order or a cancellation", expect: "connections lost",
		inject: crashesAt(gateway, way{gatewayRedis, acceptCalls})},
	{name: "crash-decide", does: "the worker is killed before or after it commits a courier's update or acknowledges", expect: "nothing",
		inject: crashesAt(worker, way{workerRedis, decideCalls})},
	{name: "crash-dispatch", does: "the worker is killed before or after it takes a webhook or records one that was sent", expect: "nothing; webhooks twice",
		inject: crashesAt(worker, way{workerRedis, dispatchCalls})},
	{name: "crash-send", does: "the worker is killed while a receiver has its webhook and has not answered", expect: "nothing; webhooks twice",
		inject: repeat(0, time.Second, func(ctx context.Context, in *injection) error {
			return in.atWebhook(ctx, func() error { return in.crash(ctx, in.Worker) })
		})},
	{name: "crash-export", does: "the exporter is killed before or after an insert, before or after its acknowledgement", expect: "nothing",
		inject: crashesAt(reporting, way{clickHouseProxy, exportInsert}, way{reportingRedis, exportAck})},
	{name: "crash-insert", does: "ClickHouse is killed in the middle of an insert", expect: "nothing", inject: repeat(0, 0, crashInsert)},
	{name: "pause-worker", does: "the worker is stopped for longer than its leases while it has some, then goes on", expect: "nothing; webhooks twice",
		inject: pauseWorker, spare: true},
	{name: "pause-gateway", does: "the gateway is stopped and goes on", expect: "no answer for seconds", inject: pauses(gateway)},
	{name: "pause-redis", does: "Redis is stopped and goes on", expect: "no answer, 503", inject: pauses(redis)},
	{name: "pause-reporting", does: "the exporter is stopped and goes on", expect: "nothing", inject: pauses(reporting)},

	{name: "reply-lost", does: "Redis has committed and the reply is lost, for the gateway", expect: "503 or the answer after a retry", inject: repeat(0, 300*time.Millisecond, replyLost)},
	{name: "reply-lost-worker", does: "the same for the worker and the exporter", expect: "nothing",
		inject: loses(way{workerRedis, decideCalls}, way{workerRedis, dispatchCalls}, way{reportingRedis, exportAck}, way{clickHouseProxy, exportInsert})},
	{name: "answer-lost", does: "the gateway has answered and the client's connection is cut before", expect: "connections lost",
		inject: loses(way{gatewayProxy, createCall})},
	{name: "late-request", does: "a request reaches Redis seconds after its sender has given it up", expect: "503", inject: lateRequest, spare: true},
	{name: "latency", does: "every connection between two processes is slow", expect: "slow answers", inject: latency},
	{name: "partition-gateway", does: "gateway and Redis are partitioned, noticed or not", expect: "503", inject: partitions(gatewayRedis)},
	{name: "partition-worker", does: "worker and Redis are partitioned, noticed or not", expect: "nothing; webhooks later", inject: partitions(workerRedis)},
	{name: "partition-export", does: "the exporter is partitioned from ClickHouse or Redis, noticed or not", expect: "nothing",
		inject: partitions(clickHouseProxy, reportingRedis)},

	{name: "slow-fsync", does: "every fsync of Redis takes seconds; then Redis is killed in the middle of one", expect: "no answer, 503", inject: repeat(0, 0, slowFsync)},
	{name: "aof-torn", does: "Redis is killed; half of a transaction stands at the end of its file", expect: "503 while it is unavailable",
		inject: repeat(200*time.Millisecond, time.Second, aofTorn)},
	{name: "aof-cut", does: "Redis is killed; some of what it wrote and had not yet answered is gone", expect: "no answer, 503",
		inject: repeat(500*time.Millisecond, time.Second, aofCut)},
	{name: "scripts-gone", does: "every function and script of Redis is forgotten", expect: "nothing", inject: repeat(100*time.Millisecond, 500*time.Millisecond, scriptsGone)},
	{name: "groups-gone", does: "consumer groups are destroyed with all they remember", expect: "nothing; webhooks twice",
		inject: repeat(500*time.Millisecond, 1500*time.Millisecond, groupsGone)},
	{name: "memory-full", does: "Redis has reached maxmemory", expect: "503", inject: repeat(200*time.Millisecond, 800*time.Millisecond, memoryFull)},
	{name: "receivers", does: "of four receivers one is dead, one slow, one answers 500", expect: "nothing; that one's webhooks later", inject: receivers},
}

// The processes and proxies, for the table.
func gateway(s *system) process    { return s.Gateway }
func worker(s *system) process     { return s.Worker }
func reporting(s *system) process  { return s.Reporting }
func clickHouse(s *system) process { return s.ClickHouse }
func redis(s *system) process      { return s.redis }

func gatewayProxy(s *system) *failpoint.Proxy    { return s.gatewayProxy }
func gatewayRedis(s *system) *failpoint.Proxy    { return s.gatewayRedis }
func workerRedis(s *system) *failpoint.Proxy     { return s.workerRedis }
func reportingRedis(s *system) *failpoint.Proxy  { return s.reportingRedis }
func clickHouseProxy(s *system) *failpoint.Proxy { return s.clickHouseProxy }

// way is a proxy and requests on it.
type way struct {
	proxy func(*system) *failpoint.Proxy
	calls []string
}

func chooseFaults(list string) ([]fault, error) {
	return choose(list, faults, func(f fault) string { return f.name })
}

const (
	faultLength = 5 * time.Second // about how long a fault goes on in a round
	// startTimeout is how long a fault waits for a process that it starts again
	// before it goes on.
	startTimeout = 10 * time.Second
	// trapTimeout is how long a trap waits for its request. Clients send all the
	// time, and what they cause follows at once.
	trapTimeout = 8 * time.Second
)

// injection is one fault in one round.
type injection struct {
	*system
	vendors []*vendor
	random  *rand.Rand
	times   atomic.Int64 // how often it has struck
	log     func(format string, args ...any)
}

// between draws a time.
func (in *injection) between(least, most time.Duration) time.Duration {
	return least + time.Duration(in.random.Int64N(int64(most-least)+1))
}

// wait waits for a drawn time, or until ctx ends: then the round is healed.
func (in *injection) wait(ctx context.Context, least, most time.Duration) {
	_ = sleep(ctx, in.between(least, most)) // callers look at ctx when it matters
}

// repeat does something again and again, after a drawn pause, until the fault has
// lasted.
func repeat(least, most time.Duration, do func(context.Context, *injection) error) func(context.Context, *injection) error {
	return func(ctx context.Context, in *injection) error {
		for began := time.Now(); ; {
			in.wait(ctx, least, most)
			err := do(ctx, in)
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil || time.Since(began) > faultLength {
				return err
			}
		}
	}
}

// retry repeats what fails, as long as another fault has taken away what it needs.
func retry(ctx context.Context, timeout time.Duration, do func() error) error {
	for over := time.Now().Add(timeout); ; {
		err := do()
		if err == nil || time.Now().After(over) {
			return err
		}
		if stopped := sleep(ctx, 100*time.Millisecond); stopped != nil {
			return errors.Join(err, stopped)
		}
	}
}

func nothing(ctx context.Context, in *injection) error { return sleep(ctx, faultLength/2) }

// crash kills a process, leaves it dead for a drawn time and starts it again.
func (in *injection) crash(ctx context.Context, p process) error {
	in.kill(p)
	in.times.Add(1)
	in.wait(ctx, 0, 800*time.Millisecond)
	return in.restart(ctx, p, startTimeout)
}

// crashes kills a process at random times.
func crashes(which func(*system) process) func(context.Context, *injection) error {
	return repeat(100*time.Millisecond, 1500*time.Millisecond, func(ctx context.Context, in *injection) error {
		return in.crash(ctx, which(in.system))
	})
}

// crashesAt kills a program before or after one of its requests.
func crashesAt(which func(*system) process, ways ...way) func(context.Context, *injection) error {
	return repeat(0, 500*time.Millisecond, func(ctx context.Context, in *injection) error {
		return in.killAt(ctx, which(in.system), ways[in.random.IntN(len(ways))], failpoint.Before, failpoint.After)
	})
}

func crashInsert(ctx context.Context, in *injection) error {
	return in.killAt(ctx, in.ClickHouse, way{clickHouseProxy, exportInsert}, failpoint.Within)
}

func (in *injection) killAt(ctx context.Context, p process, w way, moments ...failpoint.Moment) error {
	t, err := in.trap(ctx, w, moments...)
	if err != nil {
		return err
	}
	in.kill(p)
	if err := t.Release(); err != nil {
		return err
	}
	in.wait(ctx, 0, 500*time.Millisecond)
	return in.restart(ctx, p, startTimeout)
}

// trap waits for a request at a drawn moment. Unless that is Late, Release must
// follow. Another fault may need the same proxy meanwhile; then the trap is set
// again.
func (in *injection) trap(ctx context.Context, w way, moments ...failpoint.Moment) (*failpoint.Trap, error) {
	call, moment := w.calls[in.random.IntN(len(w.calls))], moments[in.random.IntN(len(moments))]
	ctx, cancel := context.WithTimeout(ctx, trapTimeout)
	defer cancel()
	for {
		t := w.proxy(in.system).Set(call, moment)
		err := t.Await(ctx)
		if err == nil {
			in.times.Add(1)
			in.log("%s %s", moment, call)
			return t, nil
		}
		if !errors.Is(err, failpoint.ErrRemoved) {
			return nil, err
		}
		in.wait(ctx, 100*time.Millisecond, 400*time.Millisecond)
	}
}

// lose loses the reply to a request of one of the ways.
func (in *injection) lose(ctx context.Context, ways []way) error {
	t, err := in.trap(ctx, ways[in.random.IntN(len(ways))], failpoint.After)
	if err != nil {
		return err
	}
	return t.Release()
}

func loses(ways ...way) func(context.Context, *injection) error {
	return repeat(0, 300*time.Millisecond, func(ctx context.Context, in *injection) error { return in.lose(ctx, ways) })
}

// replyLost also loses, half of the time, the reply to the gateway's own second
// try.
func replyLost(ctx context.Context, in *injection) error {
	for range 1 + in.random.IntN(2) {
		if err := in.lose(ctx, []way{{gatewayRedis, acceptCalls}}); err != nil {
			return err
		}
	}
	return nil
}

// atWebhook does something while receivers hold webhooks that they have not
// answered.
func (in *injection) atWebhook(ctx context.Context, do func() error) error {
	arrived := make(chan struct{})
	arrive := sync.OnceFunc(func() { close(arrived) })
	for _, v := range in.vendors {
		v.disturb()
		v.inbox.Behave(0, 20*time.Second) // longer than any fault, unless the sender leaves
		v.inbox.Notify(arrive)
	}
	defer func() {
		for _, v := range in.vendors {
			v.inbox.Notify(nil)
			v.inbox.Behave(0, 0)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, trapTimeout)
	defer cancel()
	select {
	case <-arrived:
	case <-ctx.Done():
		return fmt.Errorf("no webhook: %w", context.Cause(ctx))
	}
	return do()
}

// pause stops a process and lets it go on.
func (in *injection) pause(ctx context.Context, p process, length time.Duration) error {
	if err := retry(ctx, startTimeout, func() error { return in.signal(p, syscall.SIGSTOP) }); err != nil {
		return fmt.Errorf("SIGSTOP: %w", err)
	}
	in.times.Add(1)
	err := sleep(ctx, length)
	_ = in.signal(p, syscall.SIGCONT) // another fault may have killed it
	return err
}

func pauses(which func(*system) process) func(context.Context, *injection) error {
	return repeat(200*time.Millisecond, time.Second, func(ctx context.Context, in *injection) error {
		return in.pause(ctx, which(in.system), in.between(500*time.Millisecond, requestTimeout+time.Second))
	})
}

// pauseWorker stops the worker while it waits for receivers: it holds leases, and
// entries of streams that it has read. Both run out, the second worker takes them,
// and then the first goes on.
func pauseWorker(ctx context.Context, in *injection) error {
	return in.atWebhook(ctx, func() error {
		return in.pause(ctx, in.Worker, leaseLength+in.between(time.Second, 3*time.Second))
	})
}

// lateRequest delays requests until what they were decided on has changed, their
// leases are another worker's and their clients were told to try again.
func lateRequest(ctx context.Context, in *injection) error {
	began := time.Now()
	for _, w := range []way{{gatewayRedis, acceptCalls}, {workerRedis, decideCalls[:1]}, {workerRedis, dispatchCalls[1:]}, {gatewayRedis, acceptCalls}} {
		if _, err := in.trap(ctx, w, failpoint.Late); err != nil {
			return err
		}
	}
	// All of them arrive before the round is over.
	return sleep(ctx, time.Until(began.Add(failpoint.Lateness+2*time.Second)))
}

func latency(ctx context.Context, in *injection) error {
	for _, p := range in.proxies() {
		by := in.between(5*time.Millisecond, 150*time.Millisecond)
		p.Delay(by, by/2)
		in.times.Add(1)
	}
	return sleep(ctx, faultLength)
}

// partitions separates programs from servers: connections are refused, or nothing
// comes back at all.
func partitions(proxies ...func(*system) *failpoint.Proxy) func(context.Context, *injection) error {
	return repeat(200*time.Millisecond, 600*time.Millisecond, func(ctx context.Context, in *injection) error {
		p := proxies[in.random.IntN(len(proxies))](in.system)
		if in.random.IntN(2) == 0 {
			p.Refuse()
		} else {
			p.Swallow()
		}
		in.times.Add(1)
		in.wait(ctx, 500*time.Millisecond, 3*time.Second)
		return p.Heal()
	})
}

// slowFsync makes the disk slow, and then so slow that the kill falls into an
// fsync: what had been answered must be there nevertheless.
func slowFsync(ctx context.Context, in *injection) error {
	for _, delay := range []time.Duration{in.between(50*time.Millisecond, 300*time.Millisecond), 3 * time.Second} {
		if err := in.disk.DelaySync(delay); err != nil {
			return err
		}
		in.times.Add(1)
		in.wait(ctx, 1500*time.Millisecond, 3500*time.Millisecond)
	}
	in.kill(in.redis)
	if err := in.disk.DelaySync(0); err != nil {
		return err
	}
	return in.restart(ctx, in.redis, startTimeout)
}

// aofTorn adds what a write that never ended leaves behind. Nothing that was
// acknowledged is touched.
func aofTorn(ctx context.Context, in *injection) error {
	in.kill(in.redis)
	in.times.Add(1)
	if err := failpoint.TearTail(in.redis.Dir, in.random.IntN(1000)); err != nil {
		return err
	}
	return in.restart(ctx, in.redis, startTimeout)
}

// aofCut takes bytes away that Redis had written. With appendfsync always an answer
// means that they are on the disk, so first every answer is held back; of
// what is written from then on a part is cut, as a power failure does.
func aofCut(ctx context.Context, in *injection) error {
	proxies := []*failpoint.Proxy{in.gatewayRedis, in.workerRedis, in.reportingRedis}
	for _, p := range proxies {
		p.Mute()
	}
	end, err := failpoint.EndOf(in.redis.Dir)
	if err != nil {
		return err
	}
	in.wait(ctx, 200*time.Millisecond, 800*time.Millisecond)
	in.kill(in.redis)
	cut, of, err := end.CutSince(in.redis.Dir, func(n int64) int64 { return 1 + in.random.Int64N(n) })
	if err != nil {
		return err
	}
	in.times.Add(1)
	in.log("cut %d of %d bytes", cut, of)
	for _, p := range proxies {
		if err := p.Heal(); err != nil {
			return err
		}
	}
	return in.restart(ctx, in.redis, startTimeout)
}

// scriptsGone leaves Redis without functions and scripts, as a failover may.
func scriptsGone(ctx context.Context, in *injection) error {
	in.times.Add(1)
	return retry(ctx, startTimeout, func() error {
		if _, err := in.redis.Command(ctx, "FUNCTION", "FLUSH", "SYNC"); err != nil {
			return fmt.Errorf("FUNCTION FLUSH: %w", err)
		}
		_, err := in.redis.Command(ctx, "SCRIPT", "FLUSH")
		return err
	})
}

// groupsGone destroys about a third of all groups. The trim must refuse to drop
// what a missing group has not read.
func groupsGone(ctx context.Context, in *injection) error {
	return retry(ctx, startTimeout, func() error {
		names, err := streams(ctx, in.redis)
		if err != nil {
			return err
		}
		for _, stream := range names {
			for _, group := range []string{"status", "webhook", "export"} {
				if in.random.IntN(3) > 0 {
					continue
				}
				reply, err := in.redis.Command(ctx, "XGROUP", "DESTROY", stream, group)
				if err != nil {
					return fmt.Errorf("XGROUP DESTROY: %w", err)
				}
				if reply == "1" {
					in.times.Add(1)
				}
			}
		}
		return nil
	})
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

func memoryFull(ctx context.Context, in *injection) error {
	in.times.Add(1)
	if err := retry(ctx, startTimeout, func() error { return limitMemory(ctx, in.redis, "1mb") }); err != nil {
		return err
	}
	in.wait(ctx, 500*time.Millisecond, 2500*time.Millisecond)
	return retry(ctx, startTimeout, func() error { return limitMemory(ctx, in.redis, "0") })
}

// receivers leaves the first vendor's receiver healthy: it must not notice the
// others.
func receivers(ctx context.Context, in *injection) error {
	for i, v := range in.vendors[1:] {
		v.disturb()
		in.times.Add(1)
		switch i % 3 {
		case 0:
			v.inbox.Close()
		case 1:
			v.inbox.Behave(0, in.between(400*time.Millisecond, 2*time.Second))
		case 2:
			v.inbox.Behave(http.StatusInternalServerError, 0)
		}
	}
	return sleep(ctx, faultLength)
}
