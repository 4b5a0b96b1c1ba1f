package main

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// manner is how an endpoint behaves.
type manner int

const (
	answers manner = iota // as soon as an event is stored
	slow                  // takes slowAnswer, then answers
	silent                // takes connections and never answers
	refuses               // does not listen
	fails                 // answers 500 and stores nothing
)

// slowAnswer is what the slow endpoint takes.
const slowAnswer = 4 * time.Second

// ping is the event that probes an endpoint for which nothing waits.
const ping = "webhook.test"

// maxBody is far above what the service sends (below 20 kB).
const maxBody = 64 << 10

// endpoint is one vendor's receiver, with an address of its own as in life: it
// verifies X-Service-Signature before anything else, keeps a tally by eventId
// and then answers 204.
//
// It reads HTTP/1.1 by itself, because it shares the processors with what is
// measured: with net/http's server in its place a webhook took 1.7 times the CPU
// here (in turns, 52 against 31 us).
type endpoint struct {
	*tally
	addr    string
	secret  []byte
	manner  manner
	counter *counter

	mu       sync.Mutex
	listener net.Listener // nil while it does not listen
	open     map[net.Conn]struct{}
	serving  sync.WaitGroup
	closed   chan struct{}
}

// newEndpoint reserves nothing: until bind, connections are refused.
func newEndpoint(addr string, m manner, c *counter) *endpoint {
	return &endpoint{tally: &tally{}, addr: addr, manner: m, counter: c,
		open: make(map[net.Conn]struct{}), closed: make(chan struct{})}
}

func (e *endpoint) url() string { return "http://" + e.addr + "/hook" }

// bind settles the address, 127.0.0.1:0 or one of stack.FreeAddr's. Connections
// wait until accept.
func (e *endpoint) bind() error {
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	e.mu.Lock()
	e.addr, e.listener = l.Addr().String(), l
	e.mu.Unlock()
	return nil
}

// accept begins to take connections; the secret must be known by then.
func (e *endpoint) accept() {
	e.serving.Go(func() {
		for {
			conn, err := e.listener.Accept()
			if err != nil || !e.keep(conn) {
				return // closed
			}
			e.serving.Go(func() { e.serve(conn) })
		}
	})
}

// keep registers a connection for close; false when that has happened.
func (e *endpoint) keep(conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isClosed() {
		conn.Close()
		return false
	}
	e.open[conn] = struct{}{}
	return true
}

// close ends the listener and every connection, and waits.
func (e *endpoint) close() {
	e.mu.Lock()
	if !e.isClosed() {
		close(e.closed)
	}
	if e.listener != nil {
		e.listener.Close()
	}
	for conn := range e.open {
		conn.Close()
	}
	e.mu.Unlock()
	e.serving.Wait()
}

func (e *endpoint) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

var (
	stored = []byte("HTTP/1.1 204 No Content\r\n\r\n")
	failed = []byte("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
	denied = []byte("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
)

// serve answers one connection's requests until it is closed.
func (e *endpoint) serve(conn net.Conn) {
	defer func() {
		e.mu.Lock()
		delete(e.open, conn)
		e.mu.Unlock()
		conn.Close()
	}()
	in := bufio.NewReaderSize(conn, 4<<10)
	mac := hmac.New(sha256.New, e.secret)
	var r request
	for {
		if err := r.read(in); err != nil {
			if errors.Is(err, errRequest) {
				e.refuse()
			}
			return
		}
		at := time.Now()
		if !e.behave() {
			_, _ = io.Copy(io.Discard, in) // until the sender has had enough
			return
		}
		if !r.signedWith(mac) {
			e.refuse()
			_, _ = conn.Write(denied) // the connection ends either way
			return
		}
		if _, err := conn.Write(e.take(&r, at)); err != nil {
			return
		}
	}
}

// take stores a verified webhook and says what is answered.
func (e *endpoint) take(r *request, at time.Time) (answer []byte) {
	switch {
	case e.manner == fails:
		return failed
	case string(r.event) == ping:
		e.pinged()
	case e.receive(string(r.eventID), at):
		e.counter.add()
	}
	return stored
}

// behave does what is wrong with the endpoint before it answers; false when it
// ends without an answer.
func (e *endpoint) behave() bool {
	switch e.manner {
	case slow:
		select {
		case <-time.After(slowAnswer):
		case <-e.closed:
			return false
		}
	case silent:
		return false
	case answers, refuses, fails:
	}
	return true
}

// request is what the receiver needs of a webhook. It is read again and again
// into the same memory.
type request struct {
	signature, event, eventID []byte
	body                      []byte
}

// errRequest is a request that the service never sends.
var errRequest = errors.New("not a webhook")

// read takes one request with a Content-Length from the connection.
func (r *request) read(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("POST /hook HTTP/1.1")) {
		return errRequest
	}
	length := -1
	r.signature, r.event, r.eventID = r.signature[:0], r.event[:0], r.eventID[:0]
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return errRequest
			}
		case bytes.EqualFold(name, []byte("X-Service-Signature")):
			r.signature = append(r.signature, value...)
		case bytes.EqualFold(name, []byte("X-Service-Event")):
			r.event = append(r.event, value...)
		case bytes.EqualFold(name, []byte("webhook-id")):
			r.eventID = append(r.eventID, value...)
		}
	}
	if length < 0 || length > maxBody {
		return errRequest
	}
	r.body = append(r.body[:0], make([]byte, length)...)
	_, err = io.ReadFull(in, r.body)
	return err
}

// signedWith verifies the body, and that it is about the event which the header
// names: only the body is signed.
func (r *request) signedWith(mac hash.Hash) bool {
	mac.Reset()
	mac.Write(r.body)
	var sum [sha256.Size]byte
	var text [len("sha256=") + 2*sha256.Size]byte
	want := hex.AppendEncode(append(text[:0], "sha256="...), mac.Sum(sum[:0]))
	if !hmac.Equal(want, r.signature) {
		return false
	}
	rest, ok := bytes.CutPrefix(r.body, []byte(`{"eventId":"`))
	return ok && len(r.eventID) > 0 && bytes.HasPrefix(rest, r.eventID) && bytes.HasPrefix(rest[len(r.eventID):], []byte(`"`))
}
