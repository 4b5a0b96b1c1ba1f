package layout

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	security := promises.In(t, promises.Security)
	security.Promises(liveViewsNotedEvery, time.Hour, "one an hour for each user, address and order")
}
