package owner

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	runbook := promises.In(t, promises.Runbook)
	runbook.Promises(firstPause, 30*time.Second, "tries again after half a minute and up to ten")
	runbook.Promises(longestPause, 10*time.Minute, "tries again after half a minute and up to ten")
}
