package webhooks

// An earlier webhook secret signs for two hours instead of a day.
const SecretOverlap = SecretOverlapOriginal / 12
