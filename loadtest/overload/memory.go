package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/stack"
)

// The rates of the cases that are about something else than the load.
const (
	calmOrders      = 50
	calmReads       = 20
	calmConnections = 16
)

// during lets the wide vendors order, and read what was accepted before, for one
// phase.
func (r *run) during(ctx context.Context, s *system, known []placed) (orders, reads *tally) {
	orders, reads = newTally(), newTally()
	var both sync.WaitGroup
	both.Go(func() {
		v := s.ordering(upTo(0, r.form.wide), calmConnections, calmOrders, r.form.phase)
		v.fire(ctx, orders)
	})
	if len(known) > 0 {
		both.Go(func() {
			v := s.reading(known, calmConnections, calmReads, r.form.phase)
			v.fire(ctx, reads)
		})
	}
	both.Wait()
	return orders, reads
}

// resend sends what was refused or not answered once more. Every one of them has
// to become an order.
func (r *run) resend(ctx context.Context, s *system, t *tally, what string) []placed {
	past := slices.Concat(t.refusals, t.unknown)
	orders, oddity := s.insist(ctx, past)
	r.sheet.demand(len(orders) == len(past), what+", sent again and accepted", "all", "%d of %d%s", len(orders), len(past), oddity)
	return orders
}

// awaitOrders tries until an order is accepted and answers how long it took; -1:
// longer than patience.
func (r *run) awaitOrders(ctx context.Context, s *system) (time.Duration, []placed) {
	began := time.Now()
	for time.Since(began) < r.form.patience && ctx.Err() == nil {
		t := newTally()
		v := s.ordering(upTo(0, r.form.wide), 1, 0, time.Second)
		v.most = 1
		v.fire(ctx, t)
		if len(t.orders) == 1 {
			return time.Since(began), t.orders
		}
		time.Sleep(20 * time.Millisecond)
	}
	return -1, nil
}

// fullMemory is the case memory.
func (r *run) fullMemory(ctx context.Context) error {
	s, err := r.start(ctx, "memory", stack.Options{Courier: "auto", CourierStep: 200 * time.Millisecond, Receiver: true}, r.form.wide, 0)
	if err != nil {
		return err
	}
	defer s.Stop()
	before, _ := r.during(ctx, s, nil)
	r.sheet.demand(before.served(before.accepted.TotalCount(), r.form.share), "orders before", "all accepted", "%d of %d%s", len(before.orders), before.sent(), before.oddity())
	if _, err := s.redis.Command(ctx, "CONFIG", "SET", "maxmemory", "1"); err != nil {
		return fmt.Errorf("make the memory scarce: %w", err)
	}
	w := watch{pids: map[string]func() int{"gateway": s.Gateway.PID, "worker": s.Worker.PID, "redis": s.redis.PID}}
	w.begin(ctx, r.form.phase)
	full, reads := r.during(ctx, s, before.orders)
	login, err := s.admin.As(s.Demo.BaseURL+"/api/vendor/v1", "").Do(ctx, http.MethodPost, "/token",
		map[string]string{"clientId": s.vendors[0].clientID, "clientSecret": s.vendors[0].secret})
	if err != nil {
		return err
	}
	traces := w.end()
	r.sheet.demand(len(full.orders) == 0 && full.served(full.busy.TotalCount(), r.form.share), "orders at maxmemory", "all 503 with Retry-After",
		"%d of %d%s", full.busy.TotalCount(), full.sent(), full.oddity())
	r.sheet.demand(reads.served(reads.accepted.TotalCount(), r.form.share), "reads at maxmemory", "all answered", "%d of %d%s", reads.accepted.TotalCount(), reads.sent(), reads.oddity())
	r.sheet.demand(login.Status == http.StatusOK, "a login at maxmemory", "200", "%d", login.Status)
	busy := traces["worker"].cpu / traces["worker"].seconds
	r.sheet.demand(busy <= 0.5, "CPU of the worker, which waits", "at most half a core", "%.2f cores", busy)
	r.sheet.demand(s.Worker.AwaitReady(ctx) == nil, "the worker afterwards", "ready", "ready")

	if _, err := s.redis.Command(ctx, "CONFIG", "SET", "maxmemory", "0"); err != nil {
		return fmt.Errorf("give the memory back: %w", err)
	}
	back, first := r.awaitOrders(ctx, s)
	r.sheet.demand(back >= 0, "orders accepted again", "within "+r.form.patience.String(), "%s", back.Round(time.Millisecond))
	again := r.resend(ctx, s, full, "refused orders")
	settled, err := s.awaitSettled(ctx, r.form.patience)
	if err != nil {
		return err
	}
	r.sheet.demand(settled >= 0, "the worker has caught up", "within "+r.form.patience.String(), "%s", settled.Round(time.Millisecond))
	s.proveKept(ctx, append(append(before.orders, first...), again...))
	return nil
}

// awaitSettled waits until the worker's roles have nothing left to read or to
// settle and answers how long it took; -1: longer than patience.
func (s *system) awaitSettled(ctx context.Context, patience time.Duration) (time.Duration, error) {
	began := time.Now()
	for time.Since(began) < patience && ctx.Err() == nil {
		waiting, err := s.waiting(ctx)
		if err != nil {
			return 0, err
		}
		if waiting == 0 {
			return time.Since(began), nil
		}
		time.Sleep(500 * time.Millisecond)
	}
	return -1, nil
}

// waiting is the number of entries of streams that the worker has not settled.
// Its figures are up to five seconds old.
func (s *system) waiting(ctx context.Context) (float64, error) {
	text, err := fetch(ctx, "http://"+s.workerOps+"/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		var n float64
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		// The exporter is no role of the worker's, and need not run here.
		if !found || strings.Contains(name, `role="export"`) ||
			!strings.HasPrefix(name, "worker_feed_lag{") && !strings.HasPrefix(name, "worker_feed_pending{") {
			continue
		}
		if _, err := fmt.Sscan(value, &n); err != nil {
			return 0, fmt.Errorf("the worker's figure %q: %w", line, err)
		}
		sum += n
	}
	return sum, nil
}

// fetch is the body of an answer 200.
func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %d: %.200s", url, resp.StatusCode, text)
	}
	return string(text), nil
}
