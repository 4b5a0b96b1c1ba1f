package reconcile

import (
	"testing"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	operations := promises.In(t, promises.Operations)
	operations.Promises(maxUnknown, 100, "more than a hundred of them")
	operations.Promises(maxUnknownShare, 0.01, "and more than 1 % of those compared")
}
