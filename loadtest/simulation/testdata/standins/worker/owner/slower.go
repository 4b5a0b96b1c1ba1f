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
	shortestBlock      = chance.Slower * shortestBlockOriginal
	longestBlock       = chance.Slower * longestBlockOriginal
	positionsIdleEvery = chance.Slower * positionsIdleEveryOriginal
)
