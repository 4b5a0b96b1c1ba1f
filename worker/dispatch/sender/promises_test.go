package sender

import (
	"testing"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(maxHello, 1460, "one segment of at most 1,460 bytes")
	decisions.Promises(maxTicket, 600, "a session whose ticket is longer than 600 is not resumed")

	security := promises.In(t, promises.Security)
	security.Promises(maxLabels, 65_536, "65,536 of them, 40 MB, then forgotten")
}
