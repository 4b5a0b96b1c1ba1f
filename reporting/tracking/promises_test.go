package tracking

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	panel := promises.In(t, promises.Panel)
	panel.Promises(linkLifetime, 24*time.Hour, "24 hours after the end the link has expired")
	panel.Promises(readTimeout, 5*time.Second, "When Redis has not answered for 5 seconds")

	operations := promises.In(t, promises.Operations)
	operations.Promises(coarse, 0.001, "the drop-off to 111 m")
}
