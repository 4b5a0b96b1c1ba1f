// This file is a vendor's receiver of webhooks, which counts what it expects and what it gets.

package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
)

// A behaviour is what an endpoint does with webhooks.
type behaviour int

const (
	answers behaviour = iota // as soon as an event is stored
	slow                     // takes 4 s, then answers
	silent                   // takes connections and never answers
	refuses                  // does not listen
	fails                    // answers 500 and stores nothing
)

// An endpoint is one vendor's receiver, with an address of its own: it verifies
// X-Service-Signature before anything else, counts by eventId and then answers 204.
type endpoint struct {
	addr      string
	secret    string
	behaviour behaviour
	received  *atomic.Int64 // distinct events of all endpoints

	stop   func()        // of the server, once it listens
	closed chan struct{} // closed by close, so that no request waits any longer

	mu      sync.Mutex
	events  map[change]*event
	invalid int // see counts
}

// newEndpoint makes an endpoint that refuses connections until listen.
func newEndpoint(addr string, how behaviour, received *atomic.Int64) *endpoint {
	return &endpoint{
		addr:      addr,
		behaviour: how,
		received:  received,
		stop:      func() {},
		closed:    make(chan struct{}),
		events:    make(map[change]*event),
	}
}

// listen begins to take webhooks; the secret is known by then.
func (e *endpoint) listen() error {
	listener, err := net.Listen("tcp", e.addr)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	e.stop = serveHTTP(listener, e.serve)
	return nil
}

// close ends the server and every request that it has not answered.
func (e *endpoint) close() {
	close(e.closed)
	e.stop()
}

// serve takes one webhook.
func (e *endpoint) serve(ctx *fasthttp.RequestCtx) {
	at := time.Now()
	switch e.behaviour {
	case slow:
		select {
		case <-time.After(4 * time.Second):
		case <-e.closed:
			return
		}
	case silent:
		<-e.closed
		return
	case answers, refuses, fails:
	}

	header := &ctx.Request.Header
	id := header.Peek("webhook-id")
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	switch {
	case !signed(e.secret, ctx.PostBody(), id, header.Peek("X-Service-Signature")):
		e.mu.Lock()
		e.invalid++
		e.mu.Unlock()
		ctx.SetStatusCode(fasthttp.StatusUnauthorized)
	case e.behaviour == fails:
		ctx.SetStatusCode(fasthttp.StatusInternalServerError)
	case string(header.Peek("X-Service-Event")) != "webhook.test": // a probe is no event
		e.receive(string(id), at)
	}
}

// signed reports whether the body has that signature, and is about the event which the header names: only the body is signed.
func signed(secret string, body, id, signature []byte) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	want := hex.AppendEncode([]byte("sha256="), mac.Sum(nil))
	rest, ok := bytes.CutPrefix(body, []byte(`{"eventId":"`))
	return hmac.Equal(want, signature) && ok && len(id) > 0 && bytes.HasPrefix(rest, append(bytes.Clone(id), '"'))
}

// deliveryWindow is how long an event may be sent, from when it happened (spec, "Delivery rules" 2).
const deliveryWindow = 24 * time.Hour

// A change names a change of an order. The endpoint expects it before it is made, and so before its event has an id.
type change struct {
	order    delivery.OrderID
	sequence uint32
}

// An event is one change of an order that its vendor must receive. The endpoint knows it before it can arrive.
type event struct {
	deadline time.Time   // not to be sent after this
	issued   time.Time   // when the report that makes it, or its step, was handed to the ledger
	receipts []time.Time // the first is what counts
}

// expect notes an event that is about to be made.
func (e *endpoint) expect(c change, occurred, issued time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events[c] = &event{deadline: occurred.Add(deliveryWindow), issued: issued}
}

// receive notes the receipt of an event, which must have been expected.
func (e *endpoint) receive(eventID string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	order, version, err := delivery.ParseEventID(eventID)
	expected, isExpected := e.events[change{order, delivery.Sequence(version)}]
	if err != nil || !isExpected {
		e.invalid++
		return
	}

	expected.receipts = append(expected.receipts, at)
	isFirst := len(expected.receipts) == 1
	if isFirst {
		e.received.Add(1)
	}
}

// counts are of endpoints.
type counts struct {
	Expected   int // events that were made
	Received   int // of these, received at least once
	Expired    int // of these, not received, and past their deadline
	Duplicates int // receipts of an event after its first
	Late       int // receipts after the event's deadline
	Invalid    int // receipts that could not be verified, or of an event that never was
}

// sumOf returns the counts of the vendors' endpoints.
func sumOf(vendors ...*vendor) counts {
	var c counts
	for _, v := range vendors {
		v.mu.Lock()
		c.Invalid += v.invalid
		c.Expected += len(v.events)
		for _, e := range v.events {
			if len(e.receipts) > 0 {
				c.Received++
				c.Duplicates += len(e.receipts) - 1
			} else if time.Now().After(e.deadline) {
				c.Expired++
			}

			for _, at := range e.receipts {
				if at.After(e.deadline) {
					c.Late++
				}
			}
		}

		v.mu.Unlock()
	}

	return c
}

// receiptsOf returns the events that were issued from some moment on and have been received.
func receiptsOf(from time.Time, vendors ...*vendor) []event {
	var found []event
	for _, v := range vendors {
		v.mu.Lock()
		for _, e := range v.events {
			if len(e.receipts) > 0 && !e.issued.Before(from) {
				found = append(found, *e)
			}
		}
		v.mu.Unlock()
	}

	return found
}
