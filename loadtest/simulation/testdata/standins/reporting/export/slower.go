package export

// See package owner.
const lagInterval = 300 * lagIntervalOriginal
