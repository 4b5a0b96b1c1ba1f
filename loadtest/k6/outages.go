package main

import (
	"context"
	"fmt"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// Each program of a system is killed once.
const (
	betweenOutages = 6 * time.Second // before each kill, the first one included
	downFor        = time.Second     // from a kill to the start
)

// killInTurn kills the gateway, the worker and Redis with SIGKILL, one after the other, and starts each again. When ctx
// ends it kills no other program and returns nil.
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

// causeOutages begins to make programs fail, if the session has outages. The returned function must be called when k6 has
// ended: it lets the outages end, waits until all programs run again, and returns why they could not be caused.
func (s *session) causeOutages(ctx context.Context) (end func() error) {
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
