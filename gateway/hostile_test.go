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
)

// hostile is a gateway under attack, and a neighbour who uses it meanwhile.
type hostile struct {
	*scene
	neighbour party
	client    *http.Client // the neighbour's own connections
	orders    sync.Mutex
	unheard   []string // external ids of orders that nobody may have taken for requests
	count     int      // of attacks
}

// everyLimit is so wide that nothing here is refused for being too much.
func everyLimit() string {
	wide := `{"sustained":{"count":100000,"seconds":1},"burst":{"count":100000,"seconds":1}}`
	return `{"orders":` + wide + `,"orderStatus":` + wide + `,"cancel":` + wide + `,"stores":` + wide + `,"token":` + wide + `}`
}

func newHostile(t *testing.T, change ...func(*settings)) *hostile {
	t.Helper()
	h := &hostile{scene: newScene(t, everyLimit(), change...)}
	h.neighbour = h.newAccount(everyLimit())
	h.activeStore(h.neighbour, h.courier, "s1")
	h.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}, Timeout: time.Minute}
	t.Cleanup(h.client.CloseIdleConnections)
	return h
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

// attacks runs a table against a listener. Each attack is written at once, and
// again in two parts, with a good request of the neighbour right behind it: on a
// connection that goes on the neighbour gets the own answer, on one that ends the
// request has not been heard.
func (h *hostile) attacks(t *testing.T, base string, table map[string]attack) {
	t.Helper()
	for name, a := range table {
		for _, parts := range []int{1, 2} {
			h.count++
			id := fmt.Sprintf("behind-%d", h.count)
			t.Run(fmt.Sprintf("%s/%d", name, parts), func(t *testing.T) {
				t.Parallel()
				h.attack(t, base, a, parts, id)
			})
		}
	}
}

func (h *hostile) attack(t *testing.T, base string, a attack, parts int, id string) {
	t.Helper()
	behind, check := h.goodRequest(base, id)
	conn := dialBase(t, base)
	defer conn.Close()
	go func() { // a server that refuses early does not read on
		half := len(a.bytes) / 2
		if parts == 2 {
			_, _ = io.WriteString(conn, a.bytes[:half])
			time.Sleep(2 * time.Millisecond)
			_, _ = io.WriteString(conn, a.bytes[half:])
			time.Sleep(2 * time.Millisecond)
			_, _ = io.WriteString(conn, behind)
			return
		}
		_, _ = io.WriteString(conn, a.bytes+behind)
	}()
	r := bufio.NewReader(conn)
	got, err := readAnswerFrom(r, methodOf(a.bytes))
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if got.status != a.status || got.code != a.code {
		t.Errorf("got %d %s", got.status, got.body)
	}
	for _, status := range a.more {
		if got, err = readAnswerFrom(r, ""); err != nil || got.status != status {
			t.Fatalf("then got %d %s, %v, want %d", got.status, got.body, err, status)
		}
	}
	if a.closed {
		h.closes(t, base, r, got, id)
		return
	}
	if got, err = readAnswerFrom(r, ""); err != nil || !check(got) {
		t.Errorf("the neighbour behind it got %d %s, %v", got.status, got.body, err)
	}
}

// closes demands that the connection ends and that nothing behind the answer was
// taken for a request.
func (h *hostile) closes(t *testing.T, base string, r *bufio.Reader, last answer, id string) {
	t.Helper()
	if rest, err := io.ReadAll(r); len(rest) > 0 || isTimeout(err) {
		t.Errorf("the connection went on: %q, %v", rest, err)
	}
	if !last.closed {
		t.Errorf("the close is not announced: %v", last.header)
	}
	if base == h.private {
		return // what stands behind an attack there changes nothing
	}
	h.orders.Lock()
	defer h.orders.Unlock()
	h.unheard = append(h.unheard, id)
}

func isTimeout(err error) bool {
	var fault net.Error
	return errors.As(err, &fault) && fault.Timeout()
}

// goodRequest is an order of the neighbour's, or on the private listener a look
// at the neighbour's account; check knows the right answer to it.
func (h *hostile) goodRequest(base, id string) (bytes string, check func(answer) bool) {
	if base == h.private {
		return "GET /api/admin/v1/accounts/" + h.neighbour.id + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + adminKey + "\r\n\r\n",
			func(a answer) bool { return a.status == 200 && a.data["accountId"] == h.neighbour.id }
	}
	body := orderBody(id)
	return fmt.Sprintf("POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			h.neighbour.token, len(body), body),
		func(a answer) bool { return a.status == 201 && a.data["externalOrderId"] == id }
}

// nobodyHeard creates the orders that stood behind an attack: each is new.
func (h *hostile) nobodyHeard(t *testing.T) {
	t.Helper()
	for _, id := range h.unheard {
		a, err := h.ask(request{method: "POST", url: h.vendor + "/api/vendor/v1/orders", body: orderBody(id)})
		if err != nil || a.status != 201 {
			t.Errorf("the order %s behind an attack: %d %s, %v", id, a.status, a.body, err)
		}
	}
	if logs := h.logs.String(); strings.Contains(logs, "panic") || strings.Contains(logs, "INTERNAL_ERROR") {
		t.Errorf("something broke:\n%s", logs)
	}
}

// ask is a request of the neighbour's on the neighbour's own connections.
func (h *hostile) ask(r request) (answer, error) {
	req, err := http.NewRequest(r.method, r.url, strings.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+h.neighbour.token)
	resp, err := h.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return readAnswer(resp, raw), err
}

// live lets the neighbour create orders and read them until stop is called,
// which tells how many there were. Every answer must be the right one.
func (h *hostile) live(t *testing.T) (stop func() int) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	created := 0
	go func() {
		defer close(ended)
		for ; ; created++ {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if err := h.createAndRead(fmt.Sprintf("own-%d", created)); err != nil {
				t.Errorf("the neighbour's order %d: %v", created, err)
				return
			}
		}
	}()
	return func() int {
		close(done)
		<-ended
		return created
	}
}

func (h *hostile) createAndRead(id string) error {
	url := h.vendor + "/api/vendor/v1/orders"
	made, err := h.ask(request{method: "POST", url: url, body: orderBody(id)})
	if err != nil || made.status != 201 || made.data["externalOrderId"] != id {
		return fmt.Errorf("create: %d %s, %w", made.status, made.body, err)
	}
	read, err := h.ask(request{method: "GET", url: url + "/" + made.data["orderId"].(string)})
	if err != nil || read.status != 200 || read.data["externalOrderId"] != id || read.data["orderId"] != made.data["orderId"] {
		return fmt.Errorf("read: %d %s, %w", read.status, read.body, err)
	}
	return nil
}

// patience is how long a test waits for what must come; a slow machine needs it.
const patience = 60 * time.Second

func dialBase(t *testing.T, base string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
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

// methodOf is HEAD or nothing that matters.
func methodOf(request string) string {
	method, _, _ := strings.Cut(request, " ")
	return method
}
