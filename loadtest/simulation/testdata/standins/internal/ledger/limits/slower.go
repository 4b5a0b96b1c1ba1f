package limits

import "vendorapi/loadtest/simulation/chance"

const FlushMinutesEvery = chance.Slower * FlushMinutesEveryOriginal
