//go:build long

package systemtest

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// When one of the programs dies, the whole ends and says which and why.
func TestStack_EndsWhenAProgramDies(t *testing.T) {
	t.Parallel()
	s := startStack(t, stack.Options{})
	must(t, syscall.Kill(s.Worker.PID(), syscall.SIGKILL))
	ctx, cancel := context.WithTimeout(t.Context(), testserver.Timeout)
	defer cancel()
	err := s.Wait(ctx)
	if err == nil || !strings.Contains(err.Error(), "worker ended: signal: killed") || !strings.Contains(err.Error(), "worker.log") {
		t.Errorf("Wait says: %v", err)
	}
}
