package judge

import (
	"fmt"
	"time"

	"vendorapi/internal/delivery"
)

// Health is what a round did to an account's receiver.
type Health string

// The healths. What is promised of an event depends on it.
const (
	Absent    Health = "absent"    // no URL is registered: every event is recorded as not sent
	Healthy   Health = "healthy"   // up and reachable all the time: everything arrives, and soon
	Disturbed Health = "disturbed" // down, slow or cut off at times, well at the end: everything arrives
	Dead      Health = "dead"      // not well at the end: everything arrived or still waits for its retry
)

// Account is one account whose operations are judged. Orders of others are left
// out of account altogether.
type Account struct {
	ID       string          `json:"id"`
	Limits   delivery.Limits `json:"limits"`
	Receiver Health          `json:"receiver"`
	// Couriers: a courier moves the account's orders, so that after settling each
	// must have ended.
	Couriers bool `json:"couriers,omitempty"`
}

// Facts are everything that was read from the system once it had settled. They
// can be written to a file and judged again.
type Facts struct {
	At       time.Time `json:"at"`
	Accounts []Account `json:"accounts"`
	// Calm: nothing but receivers was in trouble, so that the time that healthy
	// ones waited says something.
	Calm bool `json:"calm,omitempty"`

	Orders      []Order      `json:"orders"`      // Redis
	Unreadable  []string     `json:"unreadable"`  // records in Redis that cannot be read
	Remains     []Remains    `json:"remains"`     // Redis: what waits, one for each account that has any
	Unsettled   []Unsettled  `json:"unsettled"`   // Redis: what groups have yet to settle
	Astray      []Astray     `json:"astray"`      // Redis: indexes that disagree with the orders
	Published   []Published  `json:"published"`   // Redis: the stream of events, as far as it is kept
	DeadLetters []DeadLetter `json:"deadLetters"` // Redis

	// Archive is what ClickHouse holds; nil when the round ran without it.
	Archive *Archive `json:"archive"`

	Arrivals []Arrival `json:"arrivals"` // what the receivers saw, each request
	// Metrics are sums over the processes' /metrics, by the name of the series
	// with its labels; for the report only.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Order is an order as one of the stores has it.
type Order struct {
	ID       string    `json:"id"`
	Account  string    `json:"account"`
	External string    `json:"external"`
	Status   string    `json:"status"`
	Version  uint64    `json:"version"`
	Created  time.Time `json:"created"`
	Failure  string    `json:"failure,omitempty"`
	// Print is what never changes or is finance's business, as text: store, fleet,
	// times, amounts. Redis and ClickHouse must agree on it.
	Print string `json:"print,omitempty"`
	// Content is what history.Content says of it (Redis).
	Content string `json:"content,omitempty"`
	// Changes are those after the creation, in order (Redis).
	Changes []Change `json:"changes,omitempty"`
}

// Change is one status that an order reached.
type Change struct {
	Status  string    `json:"status"`
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Failure string    `json:"failure,omitempty"`
}

// Archive is ClickHouse, every table read FINAL.
type Archive struct {
	Orders   []Order         `json:"orders"`
	Events   []ArchivedEvent `json:"events"`
	Attempts []Attempt       `json:"attempts"` // webhook_outcomes
}

// ArchivedEvent is one row of delivery.order_events.
type ArchivedEvent struct {
	Order    string    `json:"order"`
	Account  string    `json:"account"`
	Sequence uint32    `json:"sequence"`
	Version  uint64    `json:"version"`
	Status   string    `json:"status"`
	At       time.Time `json:"at"`
	Failure  string    `json:"failure,omitempty"`
}

// Attempt is one attempt to deliver an event, as the service recorded it.
type Attempt struct {
	Account string        `json:"account"`
	EventID string        `json:"eventId"`
	State   string        `json:"state"` // delivered, retrying, undelivered, notSent
	Attempt int           `json:"attempt"`
	At      time.Time     `json:"at"`
	Took    time.Duration `json:"took"`
	// Recorded is when Redis took it down, in milliseconds.
	Recorded time.Time `json:"recorded"`
	Probe    bool      `json:"probe,omitempty"`
	Replay   bool      `json:"replay,omitempty"` // an operator asked for it again
}

// Arrival is one request that reached a receiver.
type Arrival struct {
	Account  string    `json:"account"` // whose receiver it was
	EventID  string    `json:"eventId"`
	Event    string    `json:"event"`
	Order    string    `json:"order,omitempty"`
	External string    `json:"external,omitempty"`
	Status   string    `json:"status,omitempty"` // of the order, in the body
	Failure  string    `json:"failure,omitempty"`
	Attempt  int       `json:"attempt"`
	Occurred time.Time `json:"occurred"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	// Answered is the HTTP status; 0: the sender was gone before.
	Answered int    `json:"answered"`
	Body     string `json:"body"`              // digest
	Invalid  string `json:"invalid,omitempty"` // why it was refused as not the service's or not readable
}

// Published is one entry of the stream of events that tells of an order.
type Published struct {
	Order   string `json:"order"`
	Version uint64 `json:"version"`
}

// Astray is an index that disagrees with an order.
type Astray struct {
	Index string `json:"index"`
	Order string `json:"order"`
	Says  string `json:"says"`
}

// Remains is what waits for the webhooks of one account.
type Remains struct {
	Account string `json:"account"`
	// Events by Subject: never attempted; their next attempt has its time; handed
	// to a worker.
	Queued  []string `json:"queued,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
	Leased  []string `json:"leased,omitempty"`
	// Counts is how many counts of attempts are kept for events that failed.
	Counts int `json:"counts"`
	// Scheduled: it has a place among the queues that workers look at.
	Scheduled bool `json:"scheduled"`
}

// Subject names a version of an order in a queue; sequence 1 is the creation.
func Subject(order string, sequence uint32) string { return fmt.Sprintf("%s/%d", order, sequence) }

// Unsettled is what one group has yet to settle of one stream.
type Unsettled struct {
	Stream  string `json:"stream"`
	Group   string `json:"group"`
	Unread  int64  `json:"unread"`
	Pending int64  `json:"pending"`
}

// DeadLetter is an entry that was given up.
type DeadLetter struct {
	Stream string `json:"stream"`
	Role   string `json:"role"`
	Order  string `json:"order,omitempty"`
	Reason string `json:"reason"`
}
