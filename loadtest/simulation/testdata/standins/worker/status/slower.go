package status

import "vendorapi/loadtest/simulation/chance"

const (
	housekeepingLook = chance.Slower * housekeepingLookOriginal
	memoryInterval   = 10 * chance.Slower * memoryIntervalOriginal
)
