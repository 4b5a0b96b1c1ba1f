package judge

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/loadtest/faults/history"
	"vendorapi/loadtest/receiver"
)

// mostBody is far above what the service sends (below 20 kB).
const mostBody = 256 << 10

// brokeOff is what is said of a request whose sender left in the middle.
const brokeOff = "the body broke off"

// Inbox is an account's receiver of webhooks that remembers every request: when
// it came, how it was answered, and whether the sender was still there. What is
// genuine and readable it leaves to loadtest/receiver. It is an http.Handler,
// safe for concurrent use.
type Inbox struct {
	account string
	secrets []string

	mu       sync.Mutex
	status   int
	delay    time.Duration
	arrivals []Arrival
}

// NewInbox makes a receiver that is well. secrets are tried in turn: two during
// a rotation.
func NewInbox(account string, secrets ...string) (*Inbox, error) {
	if len(secrets) == 0 || slices.Contains(secrets, "") {
		return nil, errors.New("an inbox needs the account's webhook secret")
	}
	return &Inbox{account: account, secrets: secrets}, nil
}

// Behave changes what the next requests are answered, and how long after they
// came. status 0: as a receiver that is well does.
func (b *Inbox) Behave(status int, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status, b.delay = status, delay
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
	status, delay := b.status, b.delay
	b.mu.Unlock()
	arrival, status := b.judge(req, status)
	arrival.Began = began
	wait(req, delay)
	if req.Context().Err() == nil {
		arrival.Answered = status
	}
	arrival.Ended = time.Now()
	b.mu.Lock()
	b.arrivals = append(b.arrivals, arrival)
	b.mu.Unlock()
	w.WriteHeader(status)
}

func wait(req *http.Request, delay time.Duration) {
	if delay <= 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
	}
}

// judge hands the request to a receiver of its own, which says whether it is
// genuine and what it tells. answer is what a genuine one gets; 0: as usual.
func (b *Inbox) judge(req *http.Request, answer int) (a Arrival, status int) {
	a = Arrival{Account: b.account, EventID: req.Header.Get("webhook-id"), Event: req.Header.Get("X-Service-Event")}
	body, err := io.ReadAll(io.LimitReader(req.Body, mostBody))
	if err != nil {
		a.Invalid = brokeOff
		return a, http.StatusBadRequest
	}
	a.Body = history.Digest(body)
	take := func(e receiver.Event) int {
		a.EventID, a.Event, a.Attempt, a.Occurred = e.EventID, e.Event, e.Attempt, e.OccurredAt
		a.Order, a.External, a.Status, a.Failure = e.Order.OrderID, e.Order.ExternalOrderID, e.Order.Status, e.Order.FailureReason
		return answer
	}
	verifier, err := receiver.New(receiver.Options{Secrets: b.secrets, Refuse: take})
	if err != nil {
		a.Invalid = err.Error()
		return a, http.StatusInternalServerError
	}
	request := req.Clone(req.Context())
	request.Body = io.NopCloser(bytes.NewReader(body))
	verdict := verdict{header: make(http.Header)}
	verifier.ServeHTTP(&verdict, request)
	if len(verifier.Counts().Invalid) > 0 {
		a.Invalid = strings.TrimSpace(verdict.text.String())
	}
	return a, verdict.status
}

// verdict takes what the verifier answers.
type verdict struct {
	header http.Header
	status int
	text   strings.Builder
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) WriteHeader(status int)      { v.status = status }
func (v *verdict) Write(b []byte) (int, error) { return v.text.Write(b) }
