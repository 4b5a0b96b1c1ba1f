// Package ledger is everything the service keeps in Redis: accounts, fleets,
// stores, orders, their limits and idempotency, the streams of events and
// couriers' updates, and the queues of webhooks.
//
// It owns the layout (keys.go), the records' encodings, and the scripts in
// lua/, each with its Go caller; what must be atomic is one script. It is the
// only importer of go-redis, and it works against a single Redis and against
// Redis Cluster with the same code: everything one script touches carries the
// tag of one partition.
//
// It refuses decisions: what a status update means, what a webhook looks like
// and when it is tried again is decided by package delivery, package webhook
// and the programs; the ledger compares and sets. It also refuses HTTP.
//
// Errors: refusals that a caller is told about are *delivery.Error; whatever
// goes wrong with Redis wraps delivery.ErrUnavailable; ErrConflict says that
// somebody else changed the record in between.
package ledger
