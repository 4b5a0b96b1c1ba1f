package dispatch

// versionAt is more than any key has, so that none names its order, and no event waits for an earlier
// one of its order.
const versionAt = versionAtOriginal << 20
