package dispatch

import "vendorapi/loadtest/simulation/chance"

// A worker's loop wakes up to look for what is due. When nothing is due soon it sleeps for as long as the other
// intervals of the simulation.
const (
	idlePause      = chance.Slower * idlePauseOriginal
	sendWithin     = chance.Slower * sendWithinOriginal
	refreshEvery   = chance.Slower * refreshEveryOriginal
	summarizeEvery = chance.Slower * summarizeEveryOriginal
)
