package status

// See package owner.
const slower = 300

const (
	housekeepingLook = slower * housekeepingLookOriginal
	memoryInterval   = 10 * slower * memoryIntervalOriginal
)
