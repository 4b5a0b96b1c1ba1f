package dispatch

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) {
	testserver.Parallel(8)
	testserver.Main(m)
}

// testSettings have a timeout that no busy machine reaches.
func testSettings() Settings {
	return Settings{Concurrency: 256, PerEndpoint: 32, BreakerFailures: 5, Timeout: time.Minute, LocalReceivers: "auto", Memory: 64}
}

// newTestScheduler has as much memory as it needs.
func newTestScheduler(l limits) *scheduler {
	return newScheduler(l, &memory{budget: 1 << 40})
}
