// Package receiver receives webhooks as the spec asks of a vendor ("Webhook receiver", "Delivery rules"): it verifies
// before it parses, deduplicates on eventId, orders by occurredAt, and answers 2xx as soon as an event is stored. It
// verifies with what vendors are given (package snippets), shares no code with what signs and sends, and keeps everything
// in memory: it is for demos, tests and load runs.
package receiver

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"vendorapi/loadtest/receiver/snippets"
)

// MaxBody is far above what the service sends (below 20 kB).
const MaxBody = 256 << 10

// Options of a Receiver. Secrets is required.
type Options struct {
	// Secrets are tried in turn: two during a rotation.
	Secrets []string
	// Refused is called for every request that was not taken, with the answer's status and the reason. Optional.
	Refused func(status int, reason string)
	// Seen is called with every event that was stored, duplicates included, before the answer. Optional.
	Seen func(e Event, duplicate bool)
}

// Event is one verified webhook.
type Event struct {
	EventID, Event string
	OccurredAt     time.Time
	Data           json.RawMessage
	Attempt        int   `json:"-"` // X-Service-Attempt
	Order          Order `json:"-"` // for orderEvents
}

// Order is the part of an order status object that a receiver acts on.
type Order struct {
	OrderID, ExternalOrderID, Status, FailureReason string
	Events                                          json.RawMessage // must be absent in a webhook
}

// Entry is one status of an order's timeline.
type Entry struct {
	Status                string
	OccurredAt, ArrivedAt time.Time
	EventID               string
	Attempt               int
}

// Counts are what has arrived.
type Counts struct {
	Received   int            `json:"received"`   // verified and answered 2xx
	Duplicates int            `json:"duplicates"` // an eventId that was stored already
	Changed    int            `json:"changed"`    // duplicates whose bytes differ: a defect of the sender
	Invalid    map[string]int `json:"invalid"`    // not verified or not readable, by reason
	Unknown    map[string]int `json:"unknown"`    // types this receiver does not know; answered 2xx
	Events     map[string]int `json:"events"`     // distinct events, by type
}

// orderEvents are the types whose data is an order status object.
var orderEvents = []string{"delivery.status_changed", "delivery.courier_changed", "delivery.eta_changed"}

// knownEvents are the types of the spec, and five of the service's own.
var knownEvents = []string{
	"delivery.status_changed", "delivery.courier_changed", "delivery.eta_changed",
	"store.activated", "store.migrating", "store.deactivated", "store.rejected",
	"fleet.payment_overdue", "webhook.test", "report.available",
}

// Serve answers with a handler on a free port of this machine until stop is called.
func Serve(h http.Handler) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("receiver: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()                                      // ends with stop
	return "http://" + l.Addr().String(), func() { _ = server.Close() }, nil // closes the listener, too
}

// Receiver is an http.Handler. It is safe for concurrent use.
type Receiver struct {
	options Options
	now     func() time.Time

	mu     sync.Mutex
	counts Counts
	bodies map[string][sha256.Size]byte // by eventId
	orders map[string][]Entry           // by orderId, see insert
}

// New makes a receiver that has seen nothing yet.
func New(o Options) (*Receiver, error) {
	if len(o.Secrets) == 0 || slices.Contains(o.Secrets, "") {
		return nil, errors.New("receiver: no webhook secret given")
	}
	return &Receiver{
		options: o, now: time.Now,
		counts: Counts{Invalid: map[string]int{}, Unknown: map[string]int{}, Events: map[string]int{}},
		bodies: map[string][sha256.Size]byte{},
		orders: map[string][]Entry{},
	}, nil
}

// ServeHTTP takes one webhook: 204 when it is stored (or stored already, or of a type that is not known), 401 when it
// cannot be verified, 400 when it is verified and makes no sense, 405 and 413 as usual.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
		return
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
	if err != nil {
		r.reject(w, http.StatusRequestEntityTooLarge, "body not readable")
		return
	}

	event, status, err := Read(r.options.Secrets, req.Header, body, r.now())
	if err != nil {
		r.reject(w, status, err.Error())
		return
	}

	duplicate := r.store(event, sha256.Sum256(body))
	if r.options.Seen != nil {
		r.options.Seen(event, duplicate)
	}

	w.WriteHeader(status)
}

// Read returns the event of a webhook and the status to answer with: 204, 401 with an error if the signature is not
// accepted, or 400 with an error if the body or a header is not as documented.
func Read(secrets []string, header http.Header, body []byte, now time.Time) (e Event, status int, err error) {
	if err := snippets.Verify(secrets, header, body, now); err != nil {
		return e, http.StatusUnauthorized, err
	}

	e, err = parse(header, body)
	if err != nil {
		return e, http.StatusBadRequest, err
	}

	return e, http.StatusNoContent, nil
}

// parse reads the event of a verified body and compares it with the headers. It fails if one of them is not as documented.
func parse(header http.Header, body []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(body, &e); err != nil {
		return e, errors.New("body is not the envelope")
	}

	attempt, err := strconv.Atoi(header.Get("X-Service-Attempt"))
	if err != nil || attempt < 1 {
		return e, errors.New("X-Service-Attempt is not a positive integer")
	}

	e.Attempt = attempt
	switch {
	case header.Get("Content-Type") != "application/json":
		return e, errors.New("Content-Type is not application/json")
	case e.EventID == "" || e.OccurredAt.IsZero() || len(e.Data) == 0:
		return e, errors.New("eventId, occurredAt or data is missing")
	case e.EventID != header.Get("webhook-id"):
		return e, errors.New("webhook-id is not the eventId")
	case e.Event != header.Get("X-Service-Event"):
		return e, errors.New("X-Service-Event is not the event")
	}

	if !slices.Contains(orderEvents, e.Event) {
		return e, nil
	}
	if err := json.Unmarshal(e.Data, &e.Order); err != nil {
		return e, errors.New("data is not an order status object")
	}

	switch {
	case e.Order.OrderID == "" || e.Order.Status == "":
		return e, errors.New("orderId or status is missing")
	case len(e.Order.Events) != 0:
		return e, errors.New("data carries events")
	case (e.Order.Status == "Failed") != (e.Order.FailureReason != ""):
		return e, errors.New("failureReason belongs to Failed")
	}

	return e, nil
}

// reject counts an invalid webhook by its reason and answers it with the status.
func (r *Receiver) reject(w http.ResponseWriter, status int, reason string) {
	r.mu.Lock()
	r.counts.Invalid[reason]++
	r.mu.Unlock()
	if r.options.Refused != nil {
		r.options.Refused(status, reason)
	}
	http.Error(w, reason, status)
}

// store counts an arrival. The first one of an eventId is also counted as an event and enters its order's timeline; for a
// later one, store reports a duplicate, and counts it as changed if its body differs from the first.
func (r *Receiver) store(e Event, body [sha256.Size]byte) (duplicate bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.counts.Received++
	first, isDuplicate := r.bodies[e.EventID]
	if isDuplicate {
		r.counts.Duplicates++
		if first != body {
			r.counts.Changed++
		}
		return true
	}

	r.bodies[e.EventID] = body
	r.counts.Events[e.Event]++
	if !slices.Contains(knownEvents, e.Event) {
		r.counts.Unknown[e.Event]++
	}

	if e.Order.OrderID != "" {
		r.insert(e)
	}

	return false
}

// insert adds an event to its order's timeline, which is sorted by the time at which things happened, whatever the order of
// arrival (spec, "Delivery rules" 4). Steps that a fleet skipped share one time; these are sorted by status. The caller
// holds r.mu.
func (r *Receiver) insert(e Event) {
	line := r.orders[e.Order.OrderID]
	line = append(line, Entry{
		Status:     e.Order.Status,
		OccurredAt: e.OccurredAt,
		ArrivedAt:  r.now(),
		EventID:    e.EventID,
		Attempt:    e.Attempt,
	})
	slices.SortStableFunc(line, func(a, b Entry) int {
		return cmp.Or(a.OccurredAt.Compare(b.OccurredAt), cmp.Compare(snippets.Rank[a.Status], snippets.Rank[b.Status]))
	})
	r.orders[e.Order.OrderID] = line
}

// Counts returns a copy of the figures.
func (r *Receiver) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	c.Invalid, c.Unknown, c.Events = maps.Clone(c.Invalid), maps.Clone(c.Unknown), maps.Clone(c.Events)
	return c
}

// Timeline returns a copy of the received events of an order, sorted by occurredAt; nil if there are none.
func (r *Receiver) Timeline(orderID string) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.orders[orderID])
}

// Orders returns the ids of the orders of which at least one event was received, in no particular order.
func (r *Receiver) Orders() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.orders))
}

// String returns the event as one line for a log.
func (e Event) String() string {
	line := fmt.Sprintf("%-24s attempt %d", e.Event, e.Attempt)
	if e.Order.OrderID != "" {
		line += fmt.Sprintf("  order %s  %s", e.Order.ExternalOrderID, e.Order.Status)
		if e.Order.FailureReason != "" {
			line += " (" + e.Order.FailureReason + ")"
		}
		return line
	}
	return line + "  " + string(e.Data)
}
