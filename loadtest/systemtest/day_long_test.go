//go:build long

package systemtest

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/day"
)

// A vendor's day balances, in webhooks and in the reports, wherever the partitions
// are.
//
//rule:make-run/REDIS_URL what-the-service-does/facts-that/payment-handling-the-service-stores
func TestDay_Balances(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		cluster bool
		o       stack.Options
		orders  int
	}{
		"one Redis":      {false, stack.Options{}, 100},
		"a cluster":      {true, stack.Options{}, 50},
		"Redis over TLS": {false, stack.Options{RedisTLS: true}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if c.cluster {
				cluster, err := stack.StartCluster(t.Context(), t.TempDir(), 3, 0)
				must(t, err)
				t.Cleanup(cluster.Stop)
				c.o.RedisURL = cluster.URL
			}

			url, handle := listen(t)
			c.o.WebhookURL, c.o.CourierStep, c.o.Reporting = url, 100*time.Millisecond, true
			s := startStack(t, c.o)
			if url := s.RedisURL(stack.GatewayUser); c.o.RedisTLS && !strings.HasPrefix(url, "rediss://"+stack.GatewayUser+":") {
				t.Fatalf("the gateway goes to %s", url)
			}

			playDay(t, s, handle, c.orders)
		})
	}
}

// playDay plays a day against s, whose demo webhook handle answers.
func playDay(t *testing.T, s *stackEnv, handle func(http.Handler), orders int) {
	t.Helper()
	d, err := day.New(day.Options{Demo: s.Demo, Orders: orders})
	must(t, err)
	handle(d)
	var text strings.Builder
	err = d.Run(t.Context(), &text)
	t.Log(text.String())
	must(t, err)
}

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
