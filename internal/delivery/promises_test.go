package delivery

import (
	"testing"
	"time"
)

// The documents promise these figures. Each stands here as it stands there, so that whoever changes
// a constant sees what was promised.
func TestPromises_Figures(t *testing.T) {
	limits := DefaultLimits()
	for _, promise := range []struct {
		where     string
		has, want any
	}{
		{"specification, limits: POST /orders", limits.Orders, EndpointLimit{Sustained: Window{600, 60}, Burst: Window{120, 10}}},
		{"specification, limits: GET /orders of an account", limits.OrderStatus, EndpointLimit{Sustained: Window{3000, 60}}},
		{"specification, limits: GET /orders of an order", PollInterval, 10 * time.Second},
		{"specification, limits: cancel", limits.Cancel, EndpointLimit{Sustained: Window{600, 60}}},
		{"specification, limits: PUT /stores", limits.Stores, EndpointLimit{Sustained: Window{60, 60}, Burst: Window{200, 10}}},
		{"specification, limits: POST /token", limits.Token, EndpointLimit{Sustained: Window{60, 3600}}},
		{"specification, other constants: externalOrderId", maxExternalID, 64},
		{"specification, other constants: packageNote", maxNote, 500},
		{"specification, other constants: readyAt", MaxReadyAtLead, 4 * time.Hour},
		{"specification, other constants: recipient.name", minRecipientName, 2},
		{"specification, other constants: dropoff.text", minDropoffText, 10},
		{"specification, order: phone", phoneDigits, 10},

		{"decisions 5: requestsPerSecond unless set", DefaultFleetRequests, 200},
		{"decisions 5: requestsPerSecond at most", MaxFleetRequests, 10_000},
		{"decisions 5: stores of a payment-overdue event", OverdueStores, 250},
		{"decisions 5: places outside the rectangle around Turkey, degrees", nearTurkey, 2},
		{"decisions 6: no courier found", SearchTimeout, 15 * time.Minute},
		{"decisions 6: timed out", Lifetime, 55 * time.Minute},
		{"decisions 6: unless a courier's update came within", CourierSilence, 15 * time.Minute},
		{"decisions 6: in any case", LongestLife, 4 * time.Hour},
		{"decisions 6: another estimate", minRevision, 60 * time.Second},
		{"decisions 6: stores of an account", limits.MaxStores, 10_000},
		{"decisions 6: stores that wait for one fleet", limits.MaxPendingStores, 500},
		{"decisions 6: stores an operator can allow", MaxStoreLimit, 1_000_000},
		{"decisions 7: a version's random bits", versionRandomBits, 14},
		{"decisions 7: a version's bits of sequence", versionSequenceBits, 8},
		{"decisions 7: a version's time begins", versionEra, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"decisions 7: kept of a receiver's answer", MaxForeignAnswer, 512},
		{"decisions 7: kept of an error", MaxForeignError, 300},
		{"decisions 8: money at most 9,999,999.99, in hundredths", MaxMoneyMinor, 999_999_999},
		{"decisions 9: note of a cancellation", maxCancelNote, 256},
		{"decisions 9: idempotency key", maxIdempotencyKey, 255},
		{"decisions 9: avgPickupMinutes", DefaultPickupMinutes, 10},
		{"decisions 9: inside Turkey, metres", turkeyTolerance, 1000.0},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
