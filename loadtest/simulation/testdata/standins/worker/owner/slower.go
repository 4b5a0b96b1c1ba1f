package owner

// slower is by how much intervals are longer that pass while nothing happens: a day of them must not cost as many
// steps as a day has seconds. Their ratios stay as they are.
const slower = 300

const (
	takeoverAfter      = slower * takeoverAfterOriginal
	renewEvery         = slower * renewEveryOriginal
	lookEvery          = slower * lookEveryOriginal
	pollEvery          = slower * pollEveryOriginal
	beatEvery          = slower * beatEveryOriginal
	forgetAfter        = slower * forgetAfterOriginal
	firstKept          = slower * firstKeptOriginal
	longestKept        = slower * longestKeptOriginal
	firstPause         = slower * firstPauseOriginal
	longestPause       = slower * longestPauseOriginal
	giveUpAfter        = slower * giveUpAfterOriginal
	blockPerPartition  = slower * blockPerPartitionOriginal
	shortestBlock      = slower * shortestBlockOriginal
	longestBlock       = slower * longestBlockOriginal
	positionsIdleEvery = slower * positionsIdleEveryOriginal
)
