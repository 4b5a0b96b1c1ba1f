package main

import (
	"context"
	"time"

	"vendorapi/loadtest/faults/failpoint"
)

var networkFaults = []fault{
	{"reply-lost", "Redis has committed and the reply is lost, for the gateway", "503 or the answer after a retry", false, replyLost},
	{"reply-lost-worker", "the same for the worker and the exporter", "nothing", false, replyLostBehind},
	{"answer-lost", "the gateway has answered and the client's connection is cut before", "connections lost", false, answerLost},
	{"late-request", "a request reaches Redis seconds after its sender has given it up", "503", true, lateRequest},
	{"latency", "every way between two processes is slow", "slow answers", false, latency},
	{"partition-gateway", "gateway and Redis are parted, noticed or not", "503", false, partitions(func(l *links) []*failpoint.Proxy { return []*failpoint.Proxy{l.gatewayRedis} })},
	{"partition-worker", "worker and Redis are parted, noticed or not", "nothing; webhooks later", false, partitions(func(l *links) []*failpoint.Proxy { return []*failpoint.Proxy{l.workerRedis} })},
	{"partition-export", "the exporter is parted from ClickHouse or Redis, noticed or not", "nothing", false, partitions(func(l *links) []*failpoint.Proxy { return []*failpoint.Proxy{l.clickHouse, l.reportingRedis} })},
}

// replyLost loses the reply, and half of the time that of the gateway's own
// second try, too.
func replyLost(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		for range 1 + h.random.IntN(2) {
			t, err := h.spring(ctx, h.links.gatewayRedis, acceptCalls, failpoint.After)
			if err != nil {
				return err
			}
			if err := t.Release(); err != nil {
				return err
			}
		}
		return h.hold(ctx, 0, 300*time.Millisecond)
	})
}

func replyLostBehind(ctx context.Context, h *harm) error {
	ways := []struct {
		proxy *failpoint.Proxy
		calls []string
	}{
		{h.links.workerRedis, decideCalls}, {h.links.workerRedis, dispatchCalls},
		{h.links.reportingRedis, []string{exportAck}}, {h.links.clickHouse, []string{exportInsert}},
	}
	return h.repeatedly(ctx, func(ctx context.Context) error {
		w := ways[h.random.IntN(len(ways))]
		t, err := h.spring(ctx, w.proxy, w.calls, failpoint.After)
		if err != nil {
			return err
		}
		if err := t.Release(); err != nil {
			return err
		}
		return h.hold(ctx, 0, 300*time.Millisecond)
	})
}

func answerLost(ctx context.Context, h *harm) error {
	return h.repeatedly(ctx, func(ctx context.Context) error {
		t, err := h.spring(ctx, h.links.gateway, []string{"POST /api/vendor/v1/orders"}, failpoint.After)
		if err != nil {
			return err
		}
		if err := t.Release(); err != nil {
			return err
		}
		return h.hold(ctx, 0, 300*time.Millisecond)
	})
}

// lateRequest has requests arrive when their time is over: what they were
// decided on has changed, their leases are somebody else's, their clients have
// been told to try again.
func lateRequest(ctx context.Context, h *harm) error {
	began := time.Now()
	for _, w := range []struct {
		proxy *failpoint.Proxy
		calls []string
	}{
		{h.links.gatewayRedis, acceptCalls}, {h.links.workerRedis, []string{"commit_order_"}},
		{h.links.workerRedis, []string{"record_attempts_"}}, {h.links.gatewayRedis, acceptCalls},
	} {
		if _, err := h.spring(ctx, w.proxy, w.calls, failpoint.Late); err != nil {
			return err
		}
	}
	// All of them arrive before the round is over.
	return sleep(ctx, time.Until(began.Add(failpoint.Lateness+2*time.Second)))
}

func latency(ctx context.Context, h *harm) error {
	for _, p := range h.links.all() {
		by := h.between(5*time.Millisecond, 150*time.Millisecond)
		p.Delay(by, by/2)
		h.struck()
	}
	return h.hold(ctx, harmLength, harmLength)
}

// partitions parts programs from servers, one way or the other: refused at once,
// or nothing comes back at all.
func partitions(which func(*links) []*failpoint.Proxy) func(context.Context, *harm) error {
	return func(ctx context.Context, h *harm) error {
		return h.repeatedly(ctx, func(ctx context.Context) error {
			ways := which(&h.links)
			p := ways[h.random.IntN(len(ways))]
			if h.random.IntN(2) == 0 {
				p.Refuse()
			} else {
				p.Swallow()
			}
			h.struck()
			if err := h.hold(ctx, 500*time.Millisecond, 3*time.Second); err != nil {
				return err
			}
			if err := p.Heal(); err != nil {
				return err
			}
			return h.hold(ctx, 200*time.Millisecond, 600*time.Millisecond)
		})
	}
}
