package main

import (
	"context"
	"fmt"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// Outages of a system of its own: each program is killed once, the first after betweenOutages.
const (
	betweenOutages = 6 * time.Second
	downFor        = time.Second
)

// killInTurn kills the gateway, the worker and Redis with SIGKILL, one after the other, and starts each again.
func killInTurn(ctx context.Context, system *harness.System) error {
	programs := []*stack.Program{system.Gateway, system.Worker, system.Redis.Program}
	for _, program := range programs {
		if err := harness.Sleep(ctx, betweenOutages); err != nil {
			return nil // k6 has ended
		}
		fmt.Printf("  killing %s for %v\n", program.Name, downFor)
		program.Kill()
		_ = harness.Sleep(ctx, downFor) // it is started again even when k6 has ended: the webhooks need it
		if err := program.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// causeOutages makes programs fail while k6 runs, if the session has outages. The returned function waits for their
// end, and returns why they could not be caused.
func (s *session) causeOutages(ctx context.Context) (wait func() error) {
	if s.outages == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.outages(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}
