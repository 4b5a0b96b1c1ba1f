package validate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"vendorapi/internal/delivery"
)

// Kind is what a client asked for.
type Kind string

// The kinds.
const (
	Create Kind = "create" // POST /orders
	Cancel Kind = "cancel" // POST /orders/{orderId}/cancel
	Read   Kind = "read"   // GET /orders/{orderId}
)

// Operation is one request of a client and what it saw.
type Operation struct {
	Kind     Kind   `json:"kind"`
	Client   int    `json:"client"`             // which of the clients, from 0
	Account  string `json:"account"`            // accountId
	Key      string `json:"key,omitempty"`      // idempotency key of a create
	External string `json:"external,omitempty"` // externalOrderId of a create
	Body     string `json:"body,omitempty"`     // digest of the request's body (create)
	Content  string `json:"content,omitempty"`  // Content of the request (create); "": not compared
	Invalid  bool   `json:"invalid,omitempty"`  // the body breaks a rule on purpose (create)
	Order    string `json:"order,omitempty"`    // orderId: asked for (cancel, read), answered (create)

	// From before the first byte was sent to after the last of the answer, or when the client gave up.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`

	Status   int      `json:"status,omitempty"`   // HTTP status; 0: no answer
	Code     string   `json:"code,omitempty"`     // data.errorCode of a refusal
	Replayed bool     `json:"replayed,omitempty"` // Idempotent-Replayed: true
	State    string   `json:"state,omitempty"`    // the order's status in the answer
	Steps    []string `json:"steps,omitempty"`    // the statuses of events[], in order (read)
	Answer   string   `json:"answer,omitempty"`   // digest of the raw answer (create 201)
}

// Unknown reports whether the request may have taken effect: no answer came, or a 5xx, since a 503 may follow a commit
// whose reply was lost. Only FLEET_UNAVAILABLE is decided with the order (spec, "Errors").
func (o *Operation) Unknown() bool {
	return o.Status == 0 || o.Status >= 500 && o.Code != string(delivery.CodeFleetUnavailable)
}

// OK reports a success.
func (o *Operation) OK() bool { return o.Status >= 200 && o.Status < 300 }

// Log collects operations that have ended. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	ops []Operation
}

// Add appends one operation.
func (l *Log) Add(op Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, op)
}

// Operations is a copy of everything so far.
func (l *Log) Operations() []Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ops)
}

// Digest is 16 hex digits of the SHA-256 of some bytes.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Content is a digest of what an order must hold of the request that made it.
func Content(d *delivery.OrderDraft) string {
	return Digest(fmt.Appendf(nil, "%q %q %q %q %q %q %s %s %s", d.ExternalStoreID, d.ExternalOrderID, d.Recipient.Name, d.Recipient.Phone,
		d.Dropoff.Text, d.PackageNote, d.Payment.Type, amount(d.OrderAmount), amount(d.Payment.CollectionAmount)))
}
