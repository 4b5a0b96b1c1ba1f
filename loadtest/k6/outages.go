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

// killInTurn kills the gateway, the worker and Redis with SIGKILL, one after the other, and starts each again. It returns
// what it did in words. When ctx ends it kills no other program, and names those that were spared as an error.
func killInTurn(ctx context.Context, system *harness.System) (notes []string, err error) {
	began := time.Now()
	programs := []*stack.Program{system.Gateway, system.Worker, system.Redis.Program}
	for i, program := range programs {
		if err := harness.Sleep(ctx, betweenOutages); err != nil {
			return notes, fmt.Errorf("k6 ended before %d of %d programs were killed: let it take longer (DURATION)", len(programs)-i, len(programs))
		}

		note := fmt.Sprintf("after %.0f s %s was killed, and started again %v later", time.Since(began).Seconds(), program.Name, downFor)
		fmt.Println(" ", note)
		notes = append(notes, note)
		program.Kill()
		_ = harness.Sleep(ctx, downFor) // it is started again even when k6 has ended: the webhooks need it
		if err := program.Start(context.WithoutCancel(ctx)); err != nil {
			return notes, err
		}
	}

	return notes, nil
}

// outages is what became of the outages of a session.
type outages struct {
	notes []string
	err   error
}

// causeOutages begins to make programs fail, if the session has outages. The returned function must be called when k6 has
// ended: it waits until all programs run again.
func (s *session) causeOutages(ctx context.Context) (end func() outages) {
	if s.outages == nil {
		return func() outages { return outages{} }
	}

	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan outages, 1)
	go func() {
		notes, err := s.outages(ctx)
		ended <- outages{notes: notes, err: err}
	}()

	return func() outages {
		cancel()
		return <-ended
	}
}
