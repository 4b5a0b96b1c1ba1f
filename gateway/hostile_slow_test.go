package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// drip is how often a slow client sends a byte: far more often than the read
// timeout of these tests, so that a timeout which every byte renews never ends.
const drip = 20 * time.Millisecond

// TestHostile_SlowClientsAreDropped: who sends a byte now and then is told so
// once, after the read timeout, and loses the connection; everybody else is
// served meanwhile.
func TestHostile_SlowClientsAreDropped(t *testing.T) {
	h := newHostile(t, func(s *settings) {
		s.VendorAPI.ReadTimeout, s.PrivateAPI.ReadTimeout = time.Second, time.Second
	})
	stop := h.live(t)
	head := hostileOrders + "Authorization: Bearer " + h.account.token + "\r\n"
	admin := "PATCH /api/admin/v1/accounts/" + h.account.id + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + adminKey + "\r\n"
	type slow struct{ base, at, drips string }
	t.Run("all", func(t *testing.T) {
		for name, c := range map[string]slow{
			"request line":      {h.vendor, "P", strings.Repeat("A", 10_000)},
			"target":            {h.vendor, "GET /", strings.Repeat("a", 10_000)},
			"headers":           {h.vendor, head, strings.Repeat("X: y\r\n", 2000)},
			"a header":          {h.vendor, head + "X: ", strings.Repeat("y", 10_000)},
			"short body":        {h.vendor, head + "Content-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
			"long body":         {h.vendor, head + "Content-Length: 65536\r\n\r\n" + strings.Repeat(" ", 40_000), strings.Repeat(" ", 20_000)},
			"expected body":     {h.vendor, head + "Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n", ""},
			"body of an admin":  {h.private, admin + "Content-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
			"headers, private":  {h.private, admin, strings.Repeat("X: y\r\n", 2000)},
			"second of two":     {h.vendor, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n" + head, strings.Repeat("X: y\r\n", 2000)},
			"body of a GET":     {h.vendor, "GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
			"body of a refused": {h.vendor, hostileOrders + "Content-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dropped(t, dialBase(t, c.base), c.at, c.drips)
			})
		}
	})
	if n := stop(); n == 0 {
		t.Error("the neighbour did nothing meanwhile")
	}
	h.nobodyHeard(t)
}

// dropped drips until the server has closed the connection, which it must do
// long before the bytes are used up, and reads what it said.
func dropped(t *testing.T, conn net.Conn, at, drips string) {
	t.Helper()
	defer conn.Close()
	if _, err := io.WriteString(conn, at); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range len(drips) {
			time.Sleep(drip)
			if _, err := io.WriteString(conn, drips[i:i+1]); err != nil {
				return
			}
		}
	}()
	begun := time.Now()
	r := bufio.NewReader(conn)
	answers := 0
	for {
		got, err := readAnswerFrom(r, "")
		if isTimeout(err) {
			t.Fatalf("the connection goes on after %v", time.Since(begun))
		}
		if err != nil {
			break
		}
		if answers++; got.status < 400 || got.status >= 500 {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if answers > 2 {
		t.Errorf("%d answers", answers)
	}
	conn.Close()
	<-ended
}

// TestHostile_ReaderThatNeverReads: answers that nobody takes are given up after
// the write timeout.
func TestHostile_ReaderThatNeverReads(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.PrivateAPI.WriteTimeout = time.Second })
	conn := dialBase(t, w.private)
	defer conn.Close()
	_, err := io.WriteString(conn, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 3000))
	for err == nil {
		time.Sleep(drip)
		_, err = io.WriteString(conn, "\r\n")
	}
	if isTimeout(err) {
		t.Error("the connection goes on")
	}
}

// TestHostile_IdleConnectionsEnd: a connection that was used once is closed
// without a word after the idle timeout.
func TestHostile_IdleConnectionsEnd(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.VendorAPI.IdleTimeout = 300 * time.Millisecond })
	conn := dialBase(t, w.vendor)
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if got, err := readAnswerFrom(r, ""); err != nil || got.status != 404 {
		t.Fatalf("%d, %v", got.status, err)
	}
	if rest, err := io.ReadAll(r); len(rest) > 0 || isTimeout(err) {
		t.Errorf("said %q, %v", rest, err)
	}
}

// TestHostile_HalfClosed: who has said everything and closes that half of the
// connection is answered; who has not is told, or loses the connection.
func TestHostile_HalfClosed(t *testing.T) {
	h := newHostile(t)
	head := hostileOrders + "Authorization: Bearer " + h.account.token + "\r\n"
	for name, c := range map[string]struct {
		bytes  string
		status []int // in their order
	}{
		"after nothing":        {"", nil},
		"after a request":      {head + "Content-Length: 2\r\n\r\n{}", []int{422}},
		"after two requests":   {strings.Repeat(head+"Content-Length: 2\r\n\r\n{}", 2), []int{422, 422}},
		"in a request line":    {"POST /api", []int{400}},
		"in the headers":       {head, []int{400}},
		"in a short body":      {head + "Content-Length: 5000\r\n\r\n{", []int{400}},
		"in a long body":       {head + "Content-Length: 60000\r\n\r\n" + strings.Repeat(" ", 30_000), []int{400}},
		"in the second":        {head + "Content-Length: 2\r\n\r\n{}" + head, []int{422, 400}},
		"in an oversize body":  {head + "Content-Length: 600000\r\n\r\n" + strings.Repeat(" ", 30_000), []int{413}},
		"after Expect, length": {head + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", []int{400}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dialBase(t, h.vendor)
			defer conn.Close()
			if _, err := io.WriteString(conn, c.bytes); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			for _, status := range c.status {
				if got, err := readAnswerFrom(r, ""); err != nil || got.status != status {
					t.Fatalf("got %d %s, %v, want %d", got.status, got.body, err, status)
				}
			}
			if rest, err := io.ReadAll(r); len(rest) > 0 || isTimeout(err) {
				t.Errorf("the connection went on: %q, %v", rest, err)
			}
		})
	}
}
