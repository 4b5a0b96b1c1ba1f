package accounts

import "vendorapi/loadtest/simulation/chance"

const FleetPoll = chance.Slower * FleetPollOriginal
