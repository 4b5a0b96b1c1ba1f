package ledger

// See package owner.
const slower = 300

const (
	FleetPoll         = slower * FleetPollOriginal
	FlushMinutesEvery = slower * FlushMinutesEveryOriginal
)
