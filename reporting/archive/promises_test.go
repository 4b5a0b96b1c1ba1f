package archive

import (
	"testing"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	security := promises.In(t, promises.Security)
	security.Promises(MaxLate, 100_000, "100,000 of a period; beyond that its days do not count as compared")
	security.Promises(maxDeliverySets, 100_000, "100,000; with more nothing is delivered")

	operations := promises.In(t, promises.Operations)
	operations.Promises(auditDays, 30, "Without `--from` it looks at 30 days")
}
