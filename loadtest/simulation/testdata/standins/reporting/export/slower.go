package export

import "vendorapi/loadtest/simulation/chance"

const lagInterval = chance.Slower * lagIntervalOriginal
