package validate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// Kind is what a client asked for.
type Kind string

// The kinds.
const (
	Create Kind = "create" // POST /orders
	Cancel Kind = "cancel" // POST /orders/{orderId}/cancel
	Read   Kind = "read"   // GET /orders/{orderId}

	// What a fleet asks for; Account is that of the order.
	Accept   Kind = "accept"   // POST /jobs/{orderId}/accept
	Progress Kind = "progress" // POST /jobs/{orderId}/status
	Swap     Kind = "swap"     // PUT /jobs/{orderId}/courier
)

func (k Kind) isByFleet() bool { return k == Accept || k == Progress || k == Swap }

// What somebody asks for who looks after an account, the account's clerk. One clerk changes and reads a
// setting, one request at a time.
const (
	Set    Kind = "set"    // a setting is given a value
	Get    Kind = "get"    // a setting is read
	Replay Kind = "replay" // an event is sent to the account's receiver again
)

func (k Kind) isByClerk() bool { return k == Set || k == Get || k == Replay }

// Refusal is the Value of a Get that was told that the setting, a secret, does not work.
const Refusal = "refused"

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
	Order    string `json:"order,omitempty"`    // orderId: answered (create), else asked for
	Reported string `json:"reported,omitempty"` // the status that was reported (progress)
	Courier  string `json:"courier,omitempty"`  // the courier's phone (accept, swap)
	Setting  string `json:"setting,omitempty"`  // its name (set, get)
	Value    string `json:"value,omitempty"`    // the setting's (set, get); empty: not known
	Event    string `json:"event,omitempty"`    // eventId (replay)

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

// OK reports whether the answer has a status of 2xx.
func (o *Operation) OK() bool { return o.Status >= 200 && o.Status < 300 }

// Digest returns the first 16 hex digits of the SHA-256 of b.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Content returns a digest of those fields of a request that its order must hold unchanged.
func Content(d *delivery.OrderDraft) string {
	return Digest(fmt.Appendf(nil, "%q %q %q %q %q %q %s %s %s",
		d.ExternalStoreID, d.ExternalOrderID, d.Recipient.Name, d.Recipient.Phone, d.Dropoff.Text, d.PackageNote,
		d.Payment.Type, amount(d.OrderAmount), amount(d.Payment.CollectionAmount)))
}

// Account is an account whose operations are checked. Orders of other accounts are ignored.
type Account struct {
	ID     string          `json:"id"`
	Limits delivery.Limits `json:"limits"`

	// Disturbed is set if the account's receiver failed at times, so that webhooks may be late or wait.
	Disturbed bool `json:"disturbed,omitempty"`

	// Couriers is set if a courier moves the account's orders, so that each must end.
	Couriers bool `json:"couriers,omitempty"`
}

// Facts are what was read from the system once it had settled.
type Facts struct {
	At       time.Time `json:"at"`
	Accounts []Account `json:"accounts"`

	// Calm is set if nothing but receivers was disturbed, so that the delay of webhooks to the other receivers is checked.
	Calm bool `json:"calm,omitempty"`

	// UnrecordedWithin is how long after an attempt the event may be sent again because its worker was stopped before it
	// could record the attempt: a takeover and a retry. Zero stands for a minute.
	UnrecordedWithin time.Duration `json:"unrecordedWithin,omitempty"`

	Orders    []Order   `json:"orders"`    // Redis
	Published []string  `json:"published"` // Redis: the stream of events, by Subject
	Remains   []Remains `json:"remains"`   // Redis: waiting webhooks by account
	Refused   []Refused `json:"refused"`   // Redis: reports that could not move their orders

	// Found are violations that were found while the facts were read from Redis.
	Found []Violation `json:"found"`

	Archive  Archive   `json:"archive"`  // ClickHouse
	Arrivals []Arrival `json:"arrivals"` // every request that the receivers got

	// Replays are requests for all events of an account since a time.
	Replays []ReplayRequest `json:"replays"`
}

// ReplayRequest is a request to send all events of an account since a time again. It may have failed.
type ReplayRequest struct {
	Account string    `json:"account"`
	Since   time.Time `json:"since"`
	Asked   time.Time `json:"asked"`
}

// Order is an order in Redis.
type Order struct {
	ID       string    `json:"id"`
	Account  string    `json:"account"`
	External string    `json:"external"`
	Status   string    `json:"status"`
	Version  uint64    `json:"version"`
	Created  time.Time `json:"created"`
	Content  string    `json:"content,omitempty"`
	Row      []string  `json:"row"` // what ClickHouse must have, see orderColumns
	Changes  []Change  `json:"changes,omitempty"`
	Couriers []string  `json:"couriers,omitempty"` // the phones of those who had it as of some change
}

// Change is one version of an order after its creation: a status that it reached, unless Between.
type Change struct {
	Between bool      `json:"between,omitempty"` // another courier or another estimate
	Silent  bool      `json:"silent,omitempty"`  // no webhook tells of it: the next one does
	Status  string    `json:"status"`
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Failure string    `json:"failure,omitempty"`
}

// Refused is a report that was acknowledged to a fleet and then refused, as operators are shown it.
type Refused struct {
	Kind     Kind   `json:"kind"`
	Order    string `json:"order"`
	Reported string `json:"reported,omitempty"`
	Courier  string `json:"courier,omitempty"`
}

// path returns the statuses that the order has reached, from Searching on.
func (o *Order) path() []string {
	path := []string{delivery.Searching.String()}
	for _, change := range o.Changes {
		if !change.Between {
			path = append(path, change.Status)
		}
	}
	return path
}

// toldBefore returns the last change before the one at i of which a webhook tells; -1 if there is none.
func (o *Order) toldBefore(i int) int {
	before := i - 1
	for before >= 0 && o.Changes[before].Silent {
		before--
	}
	return before
}

// subject returns the Subject of the change at index i of o.Changes. The first change is sequence 2.
func (o *Order) subject(i int) string { return Subject(o.ID, uint32(i)+2) }

// Subject names a version of an order; sequence 1 is the creation.
func Subject(order string, sequence uint32) string { return fmt.Sprintf("%s/%d", order, sequence) }

// Archive is ClickHouse, every table read FINAL, with the columns of orderColumns and stepColumns.
type Archive struct {
	Orders   [][]string `json:"orders"`
	Steps    [][]string `json:"steps"`
	Attempts []Attempt  `json:"attempts"`
}

// Attempt is one attempt to deliver an event, as the service recorded it.
type Attempt struct {
	Account  string    `json:"account"`
	EventID  string    `json:"eventId"`
	State    string    `json:"state"`   // delivered, retrying, undelivered, notSent
	Attempt  int       `json:"attempt"` // its number; of what was given up without another one, that of the last
	Error    string    `json:"error,omitempty"`
	At       time.Time `json:"at"`
	Recorded time.Time `json:"recorded"` // in Redis, to the millisecond
	Probe    bool      `json:"probe,omitempty"`
	Replay   bool      `json:"replay,omitempty"` // an operator asked for it again
}

// wasSent reports whether the row is of a request. Otherwise the event was given up: it was too old, or there was no URL.
func (a *Attempt) wasSent() bool {
	return a.State != partitions.StateNotSent && a.Error != partitions.ExpiredError
}

// Arrival is one request that reached a receiver.
type Arrival struct {
	Account  string    `json:"account"` // whose receiver it was
	EventID  string    `json:"eventId"`
	Event    string    `json:"event"`
	Order    string    `json:"order,omitempty"`
	External string    `json:"external,omitempty"`
	Status   string    `json:"status,omitempty"` // of the order
	Failure  string    `json:"failure,omitempty"`
	Attempt  int       `json:"attempt"`
	Occurred time.Time `json:"occurred"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Answered int       `json:"answered"`          // HTTP status; 0: the sender was gone before
	Body     string    `json:"body"`              // digest
	Invalid  string    `json:"invalid,omitempty"` // why it was refused as forged or unreadable
}

func (a *Arrival) accepted() bool { return a.Answered >= 200 && a.Answered < 300 }

// Remains is what waits for the webhooks of one account. Events are named by Subject.
type Remains struct {
	Account string   `json:"account"`
	Waiting []string `json:"waiting,omitempty"`
	Counts  int      `json:"counts"` // counts of attempts of events that failed
}
