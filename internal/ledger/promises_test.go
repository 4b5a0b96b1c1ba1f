package ledger

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(limits.RefusalHeld, time.Second, "until the moment that Redis named, and for a second at most")
	decisions.Promises(core.ClockTolerance, 500*time.Millisecond, "gateways' clocks count as equal within half a second")
	decisions.Promises(limits.ExcessMinutes, 5, "in at least 5 of the last 10 minutes")
	decisions.Promises(limits.ExcessSpan, 10, "in at least 5 of the last 10 minutes")
	decisions.Promises(core.MostEarlier, 4, "four earlier ones may work at once")
	decisions.Promises(accounts.StoresSearched, 20_000, "its search reads at most 20,000 stores")
	decisions.Promises(orders.FleetUnavailableRetry, 60*time.Second, "503 FLEET_UNAVAILABLE with Retry-After 60")
	decisions.Promises(accounts.FleetBurst, 5, "with five seconds' worth at once")
	decisions.Promises(accounts.FleetBlocks, 10, "in blocks of a tenth of a second's worth")
	decisions.Promises(core.PartitionsCounted, 256, "the size of its list, 256 in one round trip")
	decisions.Promises(orders.MaxSideReports, 100, "can be reported 100 times of an order")
	decisions.Promises(orders.MaxEstimates, 80, "from 80 of them on another estimate is answered alike and not kept")
	decisions.Promises(webhooks.ReportLifetime, 400*24*time.Hour, "for each `id` within 400 days")
	decisions.Promises(webhooks.ReplayLease, time.Minute, "for less than the minute that `Retry-After` tells the others to wait")
	decisions.Promises(webhooks.ReplayLimit, 50*time.Second, "the 429 after 50 seconds")
	decisions.Promises(webhooks.MostWaiting, 100_000, "at most 100,000 replayed ones wait")
	decisions.Promises(webhooks.UnsentLooks*webhooks.UnsentPause, 500*time.Millisecond, "PUT /webhook looks again for half a second")
	decisions.Promises(accounts.NoticeLifetime, 72*time.Hour, "of a store or a fleet says is kept for 72 h")

	specification := promises.In(t, promises.Specification)
	specification.Promises(partitions.WebhookWindow, 24*time.Hour, "Webhook retry window | 24 hours")

	security := promises.In(t, promises.Security)
	security.Promises(webhooks.ReplayPage, 1000, "each thousand counts as a request before it is read")
	security.Promises(limits.RefusalShards*limits.RefusalsKept, 65_536, "of which 65,536 refusals are kept")
	security.Promises(webhooks.SecretOverlap, 24*time.Hour, "a webhook's earlier secret signs for 24 h")
	security.Promises(orders.PositionsAtOnce, 200, "written in place, 200 in one script")
	security.Promises(limits.ThrottledKept, 16_384, "16,384 callers, 4,096 secrets; then forgotten")
	security.Promises(limits.SecretsKept, 4096, "16,384 callers, 4,096 secrets; then forgotten")
	security.Promises(limits.FailedLoginsFromAddress, redis_rate.Limit{Rate: 60, Burst: 60, Period: time.Minute}, "60 a minute per address")

	webhookList := promises.In(t, promises.Webhooks)
	webhookList.Promises(partitions.AttemptsShown, 200, "The last 200 of an account are shown")

	ops := promises.In(t, promises.Operations)
	ops.Promises(orders.RefusedKept, 10_000, "refused ones: 10,000 later ones")
	ops.Promises(core.HoldLifetime, 24*time.Hour, "ignored after 24 hours and removed by the next backup")
	ops.Promises(core.LibrariesKept, 7*24*time.Hour, "a library that no program has noted as its own for a week is deleted")

	runbook := promises.In(t, promises.Runbook)
	runbook.Promises(partitions.MaxDeliveries, 25, "After 25 tries the entry becomes a dead letter")

	panel := promises.In(t, promises.Panel)
	panel.Promises(operations.SessionLifetime, 12*time.Hour, "after 12 hours in any case")
	panel.Promises(operations.SessionIdle, 30*time.Minute, "30 minutes without a request")

	// What a release has written is kept by these constants of the scripts.
	decisions.Promises(scriptFigure(t, "idempotency", "KEY_LIFETIME"), 86_400_000, "Remembered 24 h, successes only")
	decisions.Promises(scriptFigure(t, "window", "DAY"), 86_400_000_000, "an account's admissions of the last 24 h are kept")
	decisions.Promises(scriptFigure(t, "window", "KEPT"), 16_384, "at most the last 16,384 of each endpoint")
	decisions.Promises(scriptFigure(t, "secrets", "MOST_EARLIER"), 4, "four earlier ones may work at once")
	decisions.Promises(scriptFigure(t, "report_update", "LEAST_REVISION"), 60_000, "at least 60 s from the one that the vendor was last told")
	security.Promises(partitions.AccountEventsKept, 25*time.Hour, "they are kept for 25 hours")
	security.Promises(scriptFigure(t, "names", "ACCOUNT_EVENTS_KEPT"), 90_000_000, "they are kept for 25 hours")
}

// scriptFigure returns a constant that a Lua file declares as in `local DAY, KEPT = 86400000000, 16384`.
func scriptFigure(t *testing.T, file, name string) int {
	t.Helper()
	found := get(filepath.Glob("*/" + file + ".lua"))(t)
	require(t, len(found) == 1, "%s.lua: %v", file, found)
	text := get(os.ReadFile(found[0]))(t)
	for line := range strings.Lines(string(text)) {
		declaration, _, _ := strings.Cut(strings.TrimSpace(line), " --")
		names, values, isAssignment := strings.Cut(strings.TrimPrefix(declaration, "local "), " = ")
		place := slices.Index(strings.Split(names, ", "), name)
		if !isAssignment || place < 0 {
			continue
		}

		value, err := strconv.Atoi(strings.Split(values, ", ")[place])
		must(t, err)
		return value
	}

	t.Fatalf("%s.lua has no constant %s", file, name)

	return 0
}
