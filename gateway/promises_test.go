package main

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(placeWait, time.Second, "further ones wait for each other up to a second, then 503")
	decisions.Promises(maxLogins, 32, "share 32 places of their own")
	decisions.Promises(mostOnPage, 100, "&cursor=&limit=` (1 to 100)")
	decisions.Promises(oldSecretLifetime, 24*time.Hour, "the one before works for 24 h")
	decisions.Promises(maxReason, 256, "`{reason?}`, up to 256")
	decisions.Promises(listedAtOnce, 100, "pages of 100")
	decisions.Promises(countedAsOne, 10, "count as one request more for every ten in it")
	decisions.Promises(availabilityCounts, 20, "a change of availability as 20 more")
	decisions.Promises(maxPositions, 5000, "too large or longer than 5,000")
	decisions.Promises(maxRejected, 100, "the first 100 as `rejected[")
	decisions.Promises(maxFleetInFlight, 64, "At most 64 requests of a fleet are in work at a gateway")
	decisions.Promises(tokenBody, 4096, "A request for a token may have 4,096 bytes")
	decisions.Promises(usualBody, 65_536, "others 65,536")
	decisions.Promises(unreservedBody, 4096, "Bodies above 4 kB count against")
	decisions.Promises(callerDivisor, 4, "one account or fleet may hold a quarter of what the others leave")
	decisions.Promises(operatorDivisor, 4, "a quarter is kept for operators")
	decisions.Promises(maxBehind, 24*time.Hour, "One more than 24 hours ago is refused")
	decisions.Promises(maxEstimateBehind, time.Hour, "lies between an hour ago and 6 hours ahead")
	decisions.Promises(maxEstimateAhead, 6*time.Hour, "lies between an hour ago and 6 hours ahead")
	decisions.Promises(maxVehicleType, 32, "any string up to 32 characters")
	decisions.Promises(phoneShownFor, 3*time.Hour, "the recipient's phone until three hours after the end")

	webhooks := promises.In(t, promises.Webhooks)
	webhooks.Promises(maxReplayed, 1000, "`{\"eventIds\": […]}` (up to 1,000)")
	webhooks.Promises(replayReach, 24*time.Hour, "`since` lies within the last 24 hours")
	webhooks.Promises(shownAttempts, 10, "the last 10 attempts")
	webhooks.Promises(maxInFlightSetting, 1024, "concurrent sends (to 1,024)")
	webhooks.Promises(maxPerSecondSetting, 10_000, "sends a second (to 10,000)")

	security := promises.In(t, promises.Security)
	security.Promises(maxInLine, 4096, "in a line of 4,096")
	security.Promises(maxAdmin, 64, "operators have 64 of their own")
	security.Promises(failedKeysKept, 64, "one for each address and minute, 64 addresses apart")
	security.Promises(maxReportFiles, 500, "one per id within 400 days, of at most 500 files")
	security.Promises(maxOverhead, 8, "the limit of a body, 8 times that on the wire")
	security.Promises(faultLogPause, time.Second, "log lines about slow requests | anybody | one a second")

	operations := promises.In(t, promises.Operations)
	operations.Promises(replacedNotedEvery, time.Hour, "tokens issued for a client secret that was replaced (once an hour")

	keys := promises.In(t, promises.Keys)
	keys.Promises(certificateEvery, 10*time.Second, "read again within 10 seconds of a handshake")
}
