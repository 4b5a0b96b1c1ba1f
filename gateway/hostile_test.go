package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/testenv/testserver"
)

// Requests that no good client writes. Each row of the tables is written to a
// connection of its own, with a good request of another account right behind it:
// on a connection that goes on that one gets the own answer, on one that ends it
// has not been read.

// hostile is a gateway with a neighbour of who attacks it.
type hostile struct {
	*env
	neighbour *env
	mu        sync.Mutex
	smuggled  []string // external ids of orders that nobody may have taken for requests
	count     int      // of attacks
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	e := newStoreEnv(t, everyLimit())
	neighbour := e.newAccount(everyLimit())
	e.activeStore(neighbour, e.courier, "s1")
	return &hostile{env: e, neighbour: e.as(t, neighbour)}
}

// attack is what a stranger writes to a connection, and what must become of it.
type attack struct {
	bytes  string
	status int
	code   string // of the envelope; empty: a success, or an answer without one
	// closed: the answer ends the connection, so that nothing behind it is
	// taken for a request.
	closed bool
	// more are the statuses of further answers to the same bytes, in their order.
	more []int
}

// The answers that many rows share; understood is refused for what it says, not
// for how it came.
func malformed(bytes string) attack {
	return attack{bytes: bytes, status: 400, code: "MALFORMED_REQUEST", closed: true}
}

func tooLarge(bytes string) attack {
	return attack{bytes: bytes, status: 431, code: "REQUEST_HEADER_TOO_LARGE", closed: true}
}

func understood(bytes string) attack {
	return attack{bytes: bytes, status: 422, code: "VALIDATION_FAILED"}
}

func noRoute(bytes string) attack { return attack{bytes: bytes, status: 404, code: "NOT_FOUND"} }

func notAllowed(bytes string) attack {
	return attack{bytes: bytes, status: 405, code: "METHOD_NOT_ALLOWED"}
}

// notFound is a webhook that the account does not have: the request was read.
func notFound(bytes string) attack {
	return attack{bytes: bytes, status: 404, code: "WEBHOOK_NOT_CONFIGURED"}
}

// each is an attack for every text, between what they have in common.
func each(of func(bytes string) attack, before, behind string, texts ...string) (all []attack) {
	for _, text := range texts {
		all = append(all, of(before+text+behind))
	}
	return all
}

// attacks runs a table against a listener.
func (h *hostile) attacks(t *testing.T, base string, table []attack) {
	t.Helper()
	for i, a := range table {
		h.count++
		id := fmt.Sprintf("behind-%d", h.count)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := dialBase(t, base)
			h.attack(t, base, conn, a, id, func(bytes string) { _, _ = io.WriteString(conn, bytes) })
		})
	}
}

// attack writes from a goroutine: a server that refuses early does not read on.
func (h *hostile) attack(t *testing.T, base string, conn net.Conn, a attack, id string, write func(string)) {
	t.Helper()
	behind, good := h.goodRequest(base, id)
	defer func() {
		if t.Failed() {
			t.Logf("written: %.2000q", a.bytes)
		}
	}()

	var writing sync.WaitGroup
	writing.Go(func() { write(a.bytes + behind) })
	defer writing.Wait()
	defer conn.Close()
	r := bufio.NewReader(conn)
	method, _, _ := strings.Cut(a.bytes, " ")
	got, err := readAnswerFrom(r, method)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}

	if got.status != a.status || got.code != a.code {
		t.Errorf("got %d %s", got.status, got.body)
	}

	for _, status := range a.more {
		got, err = readAnswerFrom(r, "")
		if err != nil || got.status != status {
			t.Fatalf("then got %d %s, %v, want %d", got.status, got.body, err, status)
		}
	}

	if !a.closed {
		if next, err := readAnswerFrom(r, ""); err != nil || !good(next) {
			t.Errorf("the neighbour behind it got %d %s, %v", next.status, next.body, err)
		}
		return
	}

	if rest, err := io.ReadAll(r); len(rest) > 0 || isTimeout(err) {
		t.Errorf("the connection went on: %q, %v", rest, err)
	}
	if !got.closed {
		t.Errorf("the close is not announced: %v", got.header)
	}

	if base == h.vendor {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.smuggled = append(h.smuggled, id)
	}
}

// goodRequest is an order of the neighbour's, or on the private listener a look
// at the neighbour's account; good knows the right answer to it.
func (h *hostile) goodRequest(base, id string) (bytes string, good func(answer) bool) {
	n := h.neighbour.account
	if base == h.private {
		return "GET /api/admin/v1/accounts/" + n.id + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + adminKey + "\r\n\r\n",
			func(a answer) bool { return a.status == 200 && a.data["accountId"] == n.id }
	}
	return posted("POST", ordersPath, "Authorization: Bearer "+n.token+"\r\n", orderBody(id)),
		func(a answer) bool { return a.status == 201 && a.data["externalOrderId"] == id }
}

// nothingSmuggled creates the orders that were behind an attack: each is new.
func (h *hostile) nothingSmuggled(t *testing.T) {
	t.Helper()
	for _, id := range h.smuggled {
		want(t, h.neighbour.order(orderBody(id), ""), 201, "")
	}
	if logs := h.logs.String(); strings.Contains(logs, "panic") || strings.Contains(logs, "INTERNAL_ERROR") {
		t.Errorf("something broke:\n%s", logs)
	}
}

// bytewise runs a table over a pipe on which each byte comes by itself.
func (h *hostile) bytewise(t *testing.T, table []attack) {
	t.Helper()
	server := h.g.newServer(vendorListener, &h.g.settings.VendorAPI.ListenerSettings, func(ctx *fasthttp.RequestCtx) {
		h.g.serve(ctx, h.g.vendorRoutes, h.g.settings.VendorAPI.MaxBodyBytes, true)
	})
	for i, a := range table {
		h.count++
		id := fmt.Sprintf("behind-%d", h.count)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			own, theirs := net.Pipe()
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.ServeConn(theirs); theirs.Close() })
			h.attack(t, h.vendor, own, a, id, func(bytes string) {
				for i := range len(bytes) {
					if _, err := io.WriteString(own, bytes[i:i+1]); err != nil {
						return
					}
				}
			})

			serving.Wait()
		})
	}
}

func isTimeout(err error) bool {
	var fault net.Error
	return errors.As(err, &fault) && fault.Timeout()
}

// raw writes bytes to the vendor listener and reads one answer.
func (e *env) raw(bytes string) answer {
	e.Helper()
	c := dialBase(e, e.vendor)
	defer c.Close()
	if _, err := io.WriteString(c, bytes); err != nil {
		e.Fatal(err)
	}

	method, _, _ := strings.Cut(bytes, " ")
	a, err := readAnswerFrom(bufio.NewReader(c), method)
	if err != nil {
		e.Fatalf("%.100q: %v", bytes, err)
	}

	a.asked = fmt.Sprintf("%.100q", bytes)

	return a
}

func dialBase(t testing.TB, base string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(testserver.Timeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// readAnswerFrom reads one answer, past any 100 Continue; method is that of the
// request, because an answer to HEAD has no body.
func readAnswerFrom(r *bufio.Reader, method string) (answer, error) {
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return answer{}, err
		}
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return answer{}, err
		}

		if resp.StatusCode != 100 {
			return readAnswer(resp, bytes.TrimSpace(raw)), nil
		}
	}
}
