package ledger

import "vendorapi/loadtest/simulation/chance"

const (
	FleetPoll         = chance.Slower * FleetPollOriginal
	FlushMinutesEvery = chance.Slower * FlushMinutesEveryOriginal
)
