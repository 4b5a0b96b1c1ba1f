package main

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
		{"decisions 4: a request waits for a place of its account", placeWait, time.Second},
		{"decisions 4: logins whose secret is not known to be right", maxLogins, 32},
		{"decisions 5: a page of accounts or receivers", mostOnPage, 100},
		{"decisions 5: an earlier client secret", oldSecretLifetime, 24 * time.Hour},
		{"decisions 5: a fleet's reason", maxReason, 256},
		{"decisions 5: a page of jobs or stores", listedAtOnce, 100},
		{"decisions 5: positions, jobs and stores that count as a request", countedAsOne, 10},
		{"decisions 5: a change of availability counts as more", availabilityCounts, 20},
		{"decisions 5: positions of a batch", maxPositions, 5000},
		{"decisions 5: rejected positions that are named", maxRejected, 100},
		{"decisions 5: requests of a fleet in work", maxFleetInFlight, 64},
		{"decisions 5: body of a request for a token", tokenBody, 4096},
		{"decisions 5: body of others", usualBody, 65_536},
		{"decisions 5: bodies that are not counted", unreservedBody, 4096},
		{"decisions 5: one caller's part of what others leave", callerDivisor, 4},
		{"decisions 5: operators' part at the private listener", operatorDivisor, 4},
		{"decisions 5: how old a report may be", maxBehind, 24 * time.Hour},
		{"decisions 5: how old an estimate may be", maxEstimateBehind, time.Hour},
		{"decisions 5: how far ahead an estimate may be", maxEstimateAhead, 6 * time.Hour},
		{"decisions 7: how far back a replay reaches", replayReach, 24 * time.Hour},
		{"decisions 9: vehicleType", maxVehicleType, 32},
		{"decisions 9: what a fleet sees: the phone", phoneShownFor, 3 * time.Hour},
		{"SECURITY: requests in an account's line", maxInLine, 4096},
		{"SECURITY: places of operators", maxAdmin, 64},
		{"SECURITY: addresses of wrong keys apart", failedKeysKept, 64},
		{"SECURITY: files of a report.available event", maxReportFiles, 500},
		{"SECURITY: a chunked body on the wire", maxOverhead, 8},
		{"SECURITY: log lines about slow requests", faultLogPause, time.Second},
		{"OPERATIONS: tokens issued for a replaced secret", replacedNotedEvery, time.Hour},
		{"WEBHOOKS: attempts that a vendor is shown", shownAttempts, 10},
		{"WEBHOOKS: events of a replay by their ids", maxReplayed, 1000},
		{"WEBHOOKS: concurrent sends", maxInFlightSetting, 1024},
		{"WEBHOOKS: sends a second", maxPerSecondSetting, 10_000},
		{"KEYS: a renewed certificate", certificateEvery, 10 * time.Second},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
