package owner

import "vendorapi/loadtest/simulation/chance"

const (
	takeoverAfter      = chance.Slower * takeoverAfterOriginal
	renewEvery         = chance.Slower * renewEveryOriginal
	lookEvery          = chance.Slower * lookEveryOriginal
	pollEvery          = chance.Slower * pollEveryOriginal
	beatEvery          = chance.Slower * beatEveryOriginal
	forgetAfter        = chance.Slower * forgetAfterOriginal
	firstKept          = chance.Slower * firstKeptOriginal
	longestKept        = chance.Slower * longestKeptOriginal
	firstPause         = chance.Slower * firstPauseOriginal
	longestPause       = chance.Slower * longestPauseOriginal
	giveUpAfter        = chance.Slower * giveUpAfterOriginal
	blockPerPartition  = chance.Slower * blockPerPartitionOriginal
	positionsIdleEvery = chance.Slower * positionsIdleEveryOriginal
)

// A read that ends without an entry costs a step and shows nothing, so reads wait as long as those of a worker with some
// hundred partitions.
const (
	shortestBlock = 5 * chance.Slower * shortestBlockOriginal
	longestBlock  = 5 * chance.Slower * longestBlockOriginal
)
