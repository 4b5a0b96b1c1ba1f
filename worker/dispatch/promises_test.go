package dispatch

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	webhooks := promises.In(t, promises.Webhooks)
	webhooks.Promises(firstProbe, 1000, "one probe after 1 s, 2 s, 4 s … 30 s")
	webhooks.Promises(lastProbe, 30_000, "one probe after 1 s, 2 s, 4 s … 30 s")
	webhooks.Promises(firstRate, 10, "10 events a second, faster with every success")
	webhooks.Promises(fullRate, 2000, "nothing waits, or 2,000/s")
	webhooks.Promises(logEvery, time.Second, "They are written every second")
	webhooks.Promises(pingFor, int64(3*24*60*60*1000), "when nothing waits, for the first three days")

	security := promises.In(t, promises.Security)
	security.Promises(logKept, 200, "of 200 attempts")
	security.Promises(logBytes, 256<<10, "256 kB, whoever owned the partition")
}
