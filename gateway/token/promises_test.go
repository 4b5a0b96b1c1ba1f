package token

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	specification := promises.In(t, promises.Specification)
	specification.Promises(Lifetime, 3600*time.Second, "Token lifetime | 3600 seconds")

	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(futureTolerance, 5*time.Second, "when it is dated more than 5 s ahead of both")
}
