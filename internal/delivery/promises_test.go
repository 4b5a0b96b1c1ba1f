package delivery

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	limits := DefaultLimits()

	specification := promises.In(t, promises.Specification)
	specification.Promises(limits.Orders, EndpointLimit{Sustained: Window{600, 60}, Burst: Window{120, 10}}, "POST /orders | 600 per minute | 120 per 10 seconds")
	specification.Promises(limits.OrderStatus, EndpointLimit{Sustained: Window{3000, 60}}, "GET /orders/{id} | 1 per 10 seconds | 3000 per minute")
	specification.Promises(PollInterval, 10*time.Second, "GET /orders/{id} | 1 per 10 seconds | 3000 per minute")
	specification.Promises(limits.Cancel, EndpointLimit{Sustained: Window{600, 60}}, "POST /orders/{id}/cancel | 600 per minute")
	specification.Promises(limits.Stores, EndpointLimit{Sustained: Window{60, 60}, Burst: Window{200, 10}}, "PUT /stores/{id} | 60 per minute | 200 per 10 seconds")
	specification.Promises(limits.Token, EndpointLimit{Sustained: Window{60, 3600}}, "POST /token | 60 per hour")
	specification.Promises(maxExternalID, 64, "`externalOrderId` length | max 64 characters")
	specification.Promises(maxNote, 500, "`packageNote` length | max 500 characters")
	specification.Promises(MaxReadyAtLead, 4*time.Hour, "`readyAt` maximum lead | 4 hours ahead")
	specification.Promises(minRecipientName, 2, "`recipient.name` length | min 2 characters")
	specification.Promises(minDropoffText, 10, "`dropoff.text` length | min 10 characters")
	specification.Promises(phoneDigits, 10, "10 digits; a leading 0 and a +90 prefix are stripped")

	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(DefaultFleetRequests, 200, "`requestsPerSecond` (200 unless set, 1 to 10,000)")
	decisions.Promises(MaxFleetRequests, 10_000, "`requestsPerSecond` (200 unless set, 1 to 10,000)")
	decisions.Promises(OverdueStores, 250, "events of at most 250 stores each")
	decisions.Promises(nearTurkey, 2, "more than two degrees (some 200 km) outside the rectangle around Turkey")
	decisions.Promises(SearchTimeout, 15*time.Minute, "NoCourierFound 15 min after")
	decisions.Promises(Lifetime, 55*time.Minute, "55 min after max(creation, readyAt)")
	decisions.Promises(CourierSilence, 15*time.Minute, "unless a courier update came within the last 15 min")
	decisions.Promises(LongestLife, 4*time.Hour, "4 hours after it in any case")
	decisions.Promises(minRevision, 60*time.Second, "at least 60 s from the one that the vendor was last told")
	decisions.Promises(limits.MaxStores, 10_000, "`limits.maxStores` stores (10,000 unless an operator sets another number, 1 to 1,000,000)")
	decisions.Promises(MaxStoreLimit, 1_000_000, "`limits.maxStores` stores (10,000 unless an operator sets another number, 1 to 1,000,000)")
	decisions.Promises(limits.MaxPendingStores, 500, "`limits.maxPendingStores` (500)")
	decisions.Promises(versionEra, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), "42 bits of time (ms since 2020")
	decisions.Promises(versionRandomBits, 14, "14 random bits, 8 of sequence")
	decisions.Promises(versionSequenceBits, 8, "14 random bits, 8 of sequence")
	decisions.Promises(MaxForeignAnswer, 512, "the first 512 characters of the answer")
	decisions.Promises(MaxForeignError, 300, "an error's text, which may quote what the receiver sent, has 300")
	decisions.Promises(MaxMoneyMinor, 999_999_999, "a JSON number from 0 to 9,999,999.99")
	decisions.Promises(maxCancelNote, 256, "(note up to 256)")
	decisions.Promises(maxIdempotencyKey, 255, "Key 1 to 255 visible ASCII")
	decisions.Promises(DefaultPickupMinutes, 10, "the fleet's avgPickupMinutes, default 10")
	decisions.Promises(turkeyTolerance, 1000.0, "the outline in `internal/delivery`, 1 km tolerance")
}
