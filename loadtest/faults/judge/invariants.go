package judge

// Invariant is the fixed short name of a promise.
type Invariant string

// The promises, by what their breach is called.
const (
	LostOrder         Invariant = "lost-order"         // a 201 whose order is not there
	DuplicateOrder    Invariant = "duplicate-order"    // two orders for one external id
	UnknownOrder      Invariant = "unknown-order"      // an order that no request explains
	OrderDiffers      Invariant = "order-differs"      // an order that is not what its request said
	KeyTwoOutcomes    Invariant = "key-two-outcomes"   // one idempotency key, two successes
	ReplayDiffers     Invariant = "replay-differs"     // a replay's bytes are not those of the first answer
	ServerError       Invariant = "server-error"       // a 500: what went wrong was not foreseen
	OverLimit         Invariant = "over-limit"         // more admitted in a window than the limit
	IllegalMove       Invariant = "illegal-move"       // a status that cannot follow the one before it
	StateLost         Invariant = "state-lost"         // a client was shown a state that the order never had
	StateBackwards    Invariant = "state-backwards"    // a client saw a later state and then an earlier one
	VersionGap        Invariant = "version-gap"        // the versions of an order are not dense
	NotEnded          Invariant = "not-ended"          // an order that a courier should have ended
	IndexAstray       Invariant = "index-astray"       // a timer or a list of jobs disagrees with an order
	EventLost         Invariant = "event-lost"         // a version that was never delivered and does not wait
	EventWrong        Invariant = "event-wrong"        // a webhook that tells what did not happen, or cannot be verified
	EventLate         Invariant = "event-late"         // sent more than 24 h after it happened
	EventUnordered    Invariant = "event-unordered"    // the next event before the first attempt of the one before
	EventTwice        Invariant = "event-twice"        // published, or settled, more than once
	HealthySlow       Invariant = "healthy-slow"       // a healthy receiver waited because of others
	ClickHouseDiffers Invariant = "clickhouse-differs" // ClickHouse FINAL is not what Redis says
	PendingLeft       Invariant = "pending-left"       // a group has not settled everything
	ScheduleLeft      Invariant = "schedule-left"      // events wait although their receiver is well, or nobody will look
	LeaseLeft         Invariant = "lease-left"         // an event is leased and nobody sends it
	DeadLettered      Invariant = "dead-lettered"      // an entry was given up
	Unreadable        Invariant = "unreadable"         // a record that cannot be read
	NotLinearizable   Invariant = "not-linearizable"   // no order of the operations explains the answers
)

// checks are the invariants, each group in the file of its subject.
var checks = []func(*courtCase){
	(*courtCase).checkCounts,
	(*courtCase).checkAcknowledged,
	(*courtCase).checkKeys,
	(*courtCase).checkStored,
	(*courtCase).checkMoves,
	(*courtCase).checkSeen,
	(*courtCase).checkWindows,
	(*courtCase).checkArrivals,
	(*courtCase).checkDelivered,
	(*courtCase).checkSequence,
	(*courtCase).checkLatency,
	(*courtCase).checkPublished,
	(*courtCase).checkArchive,
	(*courtCase).checkAttempts,
	(*courtCase).checkRemains,
	(*courtCase).checkLinearizable,
}
