package main

import (
	"context"
	"sync"
	"time"

	"vendorapi/loadtest/faults/failpoint"
)

// Requests by which a trap knows what a program is about to do. Functions in
// Redis carry the library's digest behind their name.
var (
	acceptCalls   = []string{"create_order_", "create_order_", "cancel_order_"}
	decideCalls   = []string{"commit_order_", "commit_order_", "index_jobs_", "report_update_"}
	dispatchCalls = []string{"queue_events_", "record_attempts_", "record_attempts_"}
	exportInsert  = "INSERT"
	exportAck     = "xack"
)

var processFaults = []fault{
	{"kill-gateway", "kill -9 of the gateway at random times", "connections lost; 503 while it starts", false, crashes(gateway)},
	{"kill-worker", "kill -9 of the worker at random times", "nothing; webhooks later", false, crashes(worker)},
	{"kill-reporting", "kill -9 of the exporter at random times", "nothing", false, crashes(reporting)},
	{"kill-clickhouse", "kill -9 of ClickHouse at random times", "nothing", false, crashes(clickHouse)},
	{"kill-redis", "kill -9 of Redis at random times", "503 while it is away", false, crashes(redis)},
	{"crash-accept", "the gateway is killed before or after the script that takes an order or a cancellation", "connections lost", false, crashAccept},
	{"crash-decide", "the worker is killed before or after it commits a courier's update or acknowledges", "nothing", false, crashDecide},
	{"crash-dispatch", "the worker is killed before or after it takes a webhook or records one that was sent", "nothing; webhooks twice", false, crashDispatch},
	{"crash-send", "the worker is killed while a receiver has its webhook and has not answered", "nothing; webhooks twice", false, crashSend},
	{"crash-export", "the exporter is killed before or after an insert, before or after its acknowledgement", "nothing", false, crashExport},
	{"crash-insert", "ClickHouse is killed in the middle of an insert", "nothing", false, crashInsert},
	{"pause-worker", "the worker is stopped for longer than its leases while it has some, then goes on", "nothing; webhooks twice", true, pauseWorker},
	{"pause-gateway", "the gateway is stopped and goes on", "no answer for seconds", false, pauses(gateway)},
	{"pause-redis", "Redis is stopped and goes on", "no answer, 503", false, pauses(redis)},
	{"pause-reporting", "the exporter is stopped and goes on", "nothing", false, pauses(reporting)},
}

func crashAccept(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		return h.crashAt(ctx, h.system.Gateway, h.links.gatewayRedis, acceptCalls...)
	})
}

func crashDecide(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		return h.crashAt(ctx, h.system.Worker, h.links.workerRedis, decideCalls...)
	})
}

func crashDispatch(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		return h.crashAt(ctx, h.system.Worker, h.links.workerRedis, dispatchCalls...)
	})
}

// crashSend kills the worker between the request to a receiver and its answer.
func crashSend(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		if err := h.hold(ctx, 0, time.Second); err != nil {
			return err
		}
		return h.atWebhook(ctx, func() error { return h.crash(ctx, h.system.Worker) })
	})
}

// holdAnswers is how long receivers keep a webhook before they answer, unless its
// sender goes away: longer than any fault.
const holdAnswers = 20 * time.Second

// atWebhook does something while receivers hold webhooks that they have not
// answered.
func (h *harm) atWebhook(ctx context.Context, do func() error) error {
	arrived := make(chan struct{})
	var first sync.Once
	for _, v := range h.vendors {
		v.disturb()
		v.inbox.Behave(0, holdAnswers)
		v.onWebhook(func() { first.Do(func() { close(arrived) }) })
	}
	defer func() {
		for _, v := range h.vendors {
			v.onWebhook(nil)
			v.inbox.Behave(0, 0)
		}
	}()
	waiting, cancel := context.WithTimeout(ctx, trapPatience)
	defer cancel()
	select {
	case <-arrived:
		return do()
	case <-waiting.Done():
		return context.Cause(waiting)
	}
}

func crashExport(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		if h.random.IntN(2) == 0 {
			return h.crashAt(ctx, h.system.Reporting, h.links.clickHouse, exportInsert)
		}
		return h.crashAt(ctx, h.system.Reporting, h.links.reportingRedis, exportAck)
	})
}

func crashInsert(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		t, err := h.spring(ctx, h.links.clickHouse, []string{exportInsert}, failpoint.Within)
		if err != nil {
			return err
		}
		h.kill(h.system.ClickHouse)
		if err := t.Release(); err != nil {
			return err
		}
		if err := h.hold(ctx, 0, time.Second); err != nil {
			return err
		}
		return h.revive(ctx, h.system.ClickHouse, startPatience)
	})
}

// pauseWorker stops the worker while it waits for receivers: it holds leases, and
// entries of streams that it has read. Both run out, the second worker takes
// them, and then the first goes on as if nothing had been.
func pauseWorker(ctx context.Context, h *harm) error {
	return h.atWebhook(ctx, func() error {
		return h.freeze(ctx, h.system.Worker, leaseLength+h.between(time.Second, 3*time.Second))
	})
}

func pauses(which func(*rig) runnable) func(context.Context, *harm) error {
	return func(ctx context.Context, h *harm) error {
		return h.repeatedly(ctx, func(ctx context.Context) error {
			if err := h.hold(ctx, 200*time.Millisecond, time.Second); err != nil {
				return err
			}
			return h.freeze(ctx, which(h.rig), h.between(500*time.Millisecond, requestPatience+time.Second))
		})
	}
}
