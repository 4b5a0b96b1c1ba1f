package ledger

// An earlier webhook secret signs for two hours instead of a day.
const secretOverlap = secretOverlapOriginal / 12
