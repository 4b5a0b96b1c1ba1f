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

	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(maxHello, 1460, "one segment of at most 1,460 bytes")
	decisions.Promises(maxTicket, 600, "a session whose ticket is longer than 600 is not resumed")

	security := promises.In(t, promises.Security)
	security.Promises(logKept, 200, "of 200 attempts")
	security.Promises(logBytes, 256<<10, "256 kB, whoever owned the partition")
	security.Promises(maxLabels, 65_536, "65,536 of them, 40 MB, then forgotten")
}
