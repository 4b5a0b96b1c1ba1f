package dispatch

import (
	"testing"
	"time"
)

// The documents promise these figures. Each stands here as it stands there, so that whoever changes
// a constant sees what was promised.
func TestPromises_Figures(t *testing.T) {
	for _, promise := range []struct {
		where     string
		has, want any
	}{
		{"WEBHOOKS: first probe, ms", firstProbe, 1000},
		{"WEBHOOKS: longest time between probes, ms", lastProbe, 30_000},
		{"WEBHOOKS: events a second while it recovers", firstRate, 10},
		{"WEBHOOKS: closed again at, a second", fullRate, 2000},
		{"WEBHOOKS: lines and counts are written", logEvery, time.Second},
		{"an endpoint for which nothing waits is probed for 3 days", pingFor, int64(3 * 24 * 60 * 60 * 1000)},
		{"decisions 7: a ClientHello", maxHello, 1460},
		{"decisions 7: a ticket with which a session is resumed", maxTicket, 600},
		{"SECURITY: attempts kept", logKept, 200},
		{"SECURITY: bytes of a log of attempts", logBytes, 256 << 10},
		{"SECURITY: URLs that it could not connect to", maxLabels, 65_536},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
