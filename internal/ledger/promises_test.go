package ledger

import (
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
)

// The documents promise these figures. Each stands here as it stands there, so that whoever changes
// a constant sees what was promised.
func TestPromises_Figures(t *testing.T) {
	for _, promise := range []struct {
		where     string
		has, want any
	}{
		{"decisions 4: a refusal is repeated from memory", refusalHeld, time.Second},
		{"decisions 4: gateways' clocks count as equal within", clockTolerance, 500 * time.Millisecond},
		{"decisions 4: sustained excess, minutes", excessMinutes, 5},
		{"decisions 4: sustained excess, of the last minutes", excessSpan, 10},
		{"decisions 5: earlier secrets at once", mostEarlier, 4},
		{"decisions 5: the panel's search of stores", storesSearched, 20_000},
		{"decisions 5: FLEET_UNAVAILABLE", fleetUnavailableRetry, 60 * time.Second},
		{"decisions 5: a fleet's burst, seconds' worth", fleetBurst, 5},
		{"decisions 5: blocks of permits in a second", fleetBlocks, 10},
		{"decisions 5: sizes of lists in one round trip", partitionsCounted, 256},
		{"decisions 5: what is no step forward", maxSideReports, 100},
		{"decisions 5: from when on estimates are not kept", maxEstimates, 80},
		{"decisions 5: one report.available of an id within", reportLifetime, 400 * 24 * time.Hour},
		{"decisions 7: replayed events that wait", mostWaiting, 100_000},
		{"decisions 7: a replay's time", replayLimit, 50 * time.Second},
		{"decisions 5: what Retry-After tells the others", replayLease, time.Minute},
		{"decisions 7: PUT /webhook looks again for", unsentLooks * unsentPause, 500 * time.Millisecond},
		{"decisions 7: an event is tried for", webhookWindow, 24 * time.Hour},
		{"SECURITY: events of a replay that count as a request", replayPage, 1000},
		{"SECURITY: refusals kept", refusalShards * refusalsKept, 65_536},
		{"SECURITY: a webhook's earlier secret", secretOverlap, 24 * time.Hour},
		{"SECURITY: positions in one script", positionsAtOnce, 200},
		{"SECURITY: callers of wrong logins", throttledKept, 16_384},
		{"SECURITY: secrets that are known to be right", secretsKept, 4096},
		{"SECURITY: wrong logins of an address", failedLoginsFromAddress, redis_rate.Limit{Rate: 60, Burst: 60, Period: time.Minute}},
		{"SECURITY: attempts shown of a receiver", attemptsShown, 200},
		{"OPERATIONS, personal data: refused updates and dead letters", refusedKept, 10_000},
		{"OPERATIONS, backup: a killed one's hold", HoldLifetime, 24 * time.Hour},
		{"OPERATIONS, upgrading: a library that nobody uses", librariesKept, 7 * 24 * time.Hour},
		{"decisions 7: events of stores and fleets, for their 24 hours and replays of a day", noticeLifetime, 72 * time.Hour},
		{"RUNBOOK: deliveries until an entry is a dead letter", maxDeliveries, 25},
		{"PANEL: a session", SessionLifetime, 12 * time.Hour},
		{"PANEL: a session without a request", SessionIdle, 30 * time.Minute},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
