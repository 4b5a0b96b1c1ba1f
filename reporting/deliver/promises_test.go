package deliver

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	reportingSettings := promises.In(t, promises.ReportingSettings)
	reportingSettings.Promises(int64(largestPut), int64(1<<30), "for files above 1 GiB, which are sent in parts")

	operations := promises.In(t, promises.Operations)
	operations.Promises(longestPause, time.Minute, "A server that takes or sends nothing for a minute has failed")
}
