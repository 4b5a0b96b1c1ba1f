// Package history is what the clients of a fault run did and saw, as they saw
// it: one Op for each request, in the order in which the requests ended.
//
// It owns the record and its form in a file, JSON lines, so that a round that
// failed can be judged again. It is append-only. It refuses to judge, and it
// refuses to guess: what a client could not see stays unknown.
package history

import (
	"slices"
	"sync"
	"time"
)

// Kind is what a client asked for.
type Kind string

// The kinds.
const (
	Create Kind = "create" // POST /orders
	Cancel Kind = "cancel" // POST /orders/{orderId}/cancel
	Read   Kind = "read"   // GET /orders/{orderId}
)

// Op is one request and what came back.
type Op struct {
	Kind     Kind   `json:"kind"`
	Client   int    `json:"client"`             // which of the clients, from 0
	Account  string `json:"account"`            // accountId
	Key      string `json:"key,omitempty"`      // idempotency key of a create; "": none was sent
	External string `json:"external,omitempty"` // externalOrderId of a create
	Body     string `json:"body,omitempty"`     // Digest of the request's body (create)
	Content  string `json:"content,omitempty"`  // Content.Digest of the request (create); "": not compared
	Invalid  bool   `json:"invalid,omitempty"`  // the body is readable JSON and breaks a rule on purpose (create)
	Order    string `json:"order,omitempty"`    // orderId: asked for (cancel, read), answered (create)

	// Start is taken before the first byte is sent, End after the last byte of
	// the answer has come, or when the client gave up. Both are exact to the
	// nanosecond and of one clock.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`

	Status     int           `json:"status,omitempty"`     // HTTP status; 0: no answer
	Code       string        `json:"code,omitempty"`       // data.errorCode of a refusal
	Replayed   bool          `json:"replayed,omitempty"`   // Idempotent-Replayed: true
	State      string        `json:"state,omitempty"`      // the order's status, where the answer shows one
	Steps      []string      `json:"steps,omitempty"`      // the statuses of events[], in order (read)
	RetryAfter time.Duration `json:"retryAfter,omitempty"` // Retry-After of a refusal
	Answer     string        `json:"answer,omitempty"`     // Digest of the raw answer (create 201)
}

// Unknown reports whether the client cannot know if the request took effect: no
// answer came, or one of 500 and above. A 503 may follow a script that was
// committed and whose reply was lost.
func (o *Op) Unknown() bool {
	return o.Status == 0 || o.Status >= 500 && o.Code != fleetUnavailable
}

// fleetUnavailable is the one 503 that is decided with the order: the fleet has
// no courier (spec, "Errors").
const fleetUnavailable = "FLEET_UNAVAILABLE"

// OK reports a success.
func (o *Op) OK() bool { return o.Status >= 200 && o.Status < 300 }

// Log collects operations. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	ops []Op
}

// New is an empty log.
func New() *Log { return &Log{} }

// Add appends one operation that has ended.
func (l *Log) Add(op Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, op)
}

// Ops is a copy of everything so far.
func (l *Log) Ops() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ops)
}

// Len is how many operations were added.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ops)
}
