package validate

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// brokeOff is the reason of a request whose sender left in the middle.
const brokeOff = "the body broke off"

// Inbox is an account's receiver of webhooks, checked by loadtest/receiver. It records every request, how it was
// answered and whether the sender was still there. It is safe for concurrent use.
type Inbox struct {
	*httptest.Server
	account, secret string

	mu       sync.Mutex
	status   int
	delay    time.Duration
	begun    int // requests since Behave
	arrivals []Arrival
}

// NewInbox listens on a free port of loopback, until Close. Connections wait until Serve.
func NewInbox() *Inbox {
	b := new(Inbox)
	b.Server = httptest.NewUnstartedServer(b)
	return b
}

// Serve answers requests for an account, whose webhook secret the service gave.
func (b *Inbox) Serve(account, secret string) {
	b.account, b.secret = account, secret
	b.Start()
}

// Behave changes how the next requests are answered, and how late. Status 0: as a healthy receiver does.
func (b *Inbox) Behave(status int, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status, b.delay, b.begun = status, delay, 0
}

// Begun is how many requests have come since Behave.
func (b *Inbox) Begun() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// Arrivals is a copy of everything that has come, in the order of its end.
func (b *Inbox) Arrivals() []Arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.arrivals)
}

// ServeHTTP takes one webhook.
func (b *Inbox) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	began := time.Now()
	b.mu.Lock()
	b.begun++
	status, delay := b.status, b.delay
	b.mu.Unlock()
	arrival, status := b.take(req, status)
	arrival.Began = began
	_ = harness.Sleep(req.Context(), delay) // whether the sender has left is asked next
	if req.Context().Err() == nil {
		arrival.Answered = status
	}

	arrival.Ended = time.Now()
	b.mu.Lock()
	b.arrivals = append(b.arrivals, arrival)
	b.mu.Unlock()
	w.WriteHeader(status)
}

// take reads a request and returns its arrival and the status to answer with. answer is the status for a valid request; 0
// means 204. An invalid one gets a status of its own, and the arrival says what is wrong.
func (b *Inbox) take(req *http.Request, answer int) (a Arrival, status int) {
	a = Arrival{Account: b.account, EventID: req.Header.Get("webhook-id"), Event: req.Header.Get("X-Service-Event")}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		a.Invalid = brokeOff
		return a, http.StatusBadRequest
	}

	a.Body = Digest(body)
	e, status, err := receiver.Read([]string{b.secret}, req.Header, body, time.Now())
	switch {
	case req.Method != http.MethodPost:
		status, err = http.StatusMethodNotAllowed, errors.New("no POST")
	case len(body) > receiver.MaxBody:
		status, err = http.StatusRequestEntityTooLarge, errors.New("the body is too large")
	}

	if err != nil {
		a.Invalid = err.Error()
		return a, status
	}

	a.EventID, a.Event, a.Attempt, a.Occurred = e.EventID, e.Event, e.Attempt, e.OccurredAt
	a.Order, a.External, a.Status, a.Failure = e.Order.OrderID, e.Order.ExternalOrderID, e.Order.Status, e.Order.FailureReason

	if answer != 0 {
		status = answer
	}

	return a, status
}
