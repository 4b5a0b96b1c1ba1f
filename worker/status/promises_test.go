package status

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	workerSettings := promises.In(t, promises.WorkerSettings)
	workerSettings.Promises(leastShrinkAfter, 24*time.Hour, "How long after its end an order shrinks to what is still read of it, at least 24h")
	workerSettings.Promises(leastRetention, 25*time.Hour, "How long settled entries stay in the streams, at least 25h")
}
