//go:build long

package ledger

import (
	"fmt"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// A feed with Every outlives Redis's absence while it is stalled by something
// else, and what it had taken is handed out again.
func TestFeed_TurnStalledWhileRedisGoesAway(t *testing.T) {
	server := testserver.DedicatedRedis(t, stack.RedisOptions{}) // killed, so every write counts
	l := openTest(t, func(c *core.Config) { c.URL = server.URL })
	s := newVendor(t, l)
	s.createMany(t, "X", 10)
	c := &turns{fail: fmt.Errorf("clickhouse: %w", delivery.ErrUnavailable)}
	f := exportFeed(l, c)
	noticed := make(chan struct{}, 1)
	f.Log = func(_ string, args ...any) {
		if !strings.Contains(fmt.Sprint(args...), "clickhouse") { // Redis it is
			select {
			case noticed <- struct{}{}:
			default:
			}
		}
	}

	runFeed(t, l, f)
	testserver.Await(t, "entries are pending", func() bool {
		stats, err := l.Monitor.Stats(t.Context())
		return err == nil && stats.Pending[core.RoleExport] == 10
	})

	server.Kill()
	<-noticed
	must(t, server.Start(t.Context()))
	testserver.Await(t, "Redis is back", func() bool { return l.Ping(t.Context()) == nil })
	s.createMany(t, "Y", 10)
	c.failWith(nil)
	testserver.Await(t, "all entries, acknowledged", func() bool {
		return c.seen() == 20 && get(l.Monitor.Stats(t.Context()))(t).Pending[core.RoleExport] == 0
	})
	stats := get(l.Monitor.Stats(t.Context()))(t)
	check(t, stats.DeadLetters == 0, "%+v", stats)
}
