//go:build long

package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/webhook"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// post sends one webhook to an endpoint as the worker would.
func post(t *testing.T, e *endpoint, key, event, eventID, body string) (status string) {
	t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	head := "POST /hook HTTP/1.1\r\nHost: " + e.addr + "\r\nX-Service-Event: " + event + "\r\nWebhook-Id: " + eventID +
		"\r\nX-Service-Signature: " + webhook.Sign(key, []byte(body)) + "\r\n"
	if _, err := conn.Write([]byte(head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "none"
	}
	return strings.Fields(line)[1]
}

func TestEndpoint_CountsWhatItCanVerify(t *testing.T) {
	t.Parallel()
	c := newCounter()
	e := newEndpoint("127.0.0.1:0", answers, c)
	e.secret = []byte(secret)
	if err := e.bind(); err != nil {
		t.Fatal(err)
	}
	e.accept()
	defer e.close()
	order := delivery.MakeOrderID(3, 20000, [delivery.OrderDigestSize]byte{1})
	id := func(version uint64) string { return delivery.EventID(order, version) }
	body := func(id string) string { return `{"eventId":"` + id + `","event":"delivery.status_changed"}` }
	now := time.Now()
	e.expect(eventKey{order, 2}, now, now)
	e.expect(eventKey{order, 3}, now.Add(-deliveryWindow-time.Second), now)
	e.expect(eventKey{order, 4}, now.Add(-deliveryWindow-time.Second), now)
	const changed = "delivery.status_changed"
	for _, c := range []struct{ name, key, event, id, body, want string }{
		{"first", secret, changed, id(2), body(id(2)), "204"},
		{"again", secret, changed, id(2), body(id(2)), "204"},
		{"past its deadline", secret, changed, id(3), body(id(3)), "204"},
		{"another key", secret + "x", changed, id(2), body(id(2)), "401"},
		{"about another event than the header says", secret, changed, id(2), body(id(3)), "401"},
		{"an id that only begins alike", secret, changed, id(2)[:20], body(id(2)), "401"},
		{"never happened", secret, changed, id(9), body(id(9)), "204"},
		{"ping", secret, ping, "evt_ping", body("evt_ping"), "204"},
	} {
		if got := post(t, e, c.key, c.event, c.id, c.body); got != c.want {
			t.Errorf("%s: answered %s", c.name, got)
		}
	}
	e.expire(time.Now())
	want := counts{Expected: 3, Received: 2, Expired: 1, Duplicates: 1, Late: 1, Pings: 1, Invalid: 4}
	if got := e.sum(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if c.received.Load() != 2 {
		t.Errorf("%d counted", c.received.Load())
	}
	if twin := e.twin(); twin.sum() != (counts{Expected: 3}) {
		t.Errorf("a twin begins with %+v", twin.sum())
	}
	if waits := e.waits(now, now.Add(time.Second)); len(waits) != 2 {
		t.Errorf("waits %v", waits)
	}
}

func TestEndpoint_SilentAndClosed(t *testing.T) {
	t.Parallel()
	e := newEndpoint("127.0.0.1:0", silent, newCounter())
	if err := e.bind(); err != nil {
		t.Fatal(err)
	}
	e.accept()
	ours, theirs := net.Pipe()
	e.keep(theirs)
	e.serving.Go(func() { e.serve(theirs) })
	for range 2 { // the second would never be taken if the first were answered
		if _, err := ours.Write([]byte("POST /hook HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
			t.Fatal(err)
		}
	}
	e.close() // returns although the connection is open
	if n, err := ours.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v", n, err)
	}
	if _, err := net.Dial("tcp", e.addr); err == nil {
		t.Error("a closed endpoint takes connections")
	}
	if s := e.sum(); s != (counts{}) {
		t.Errorf("%+v", s)
	}
}
