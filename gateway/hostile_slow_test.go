package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestHostile_SlowClientsAreDropped: who sends a byte now and then is refused
// once, after the read timeout, and loses the connection. The bytes come far more
// often than the timeout ends, so that a timeout which every byte renews would
// never end; that they come late on a busy machine changes nothing.
func TestHostile_SlowClientsAreDropped(t *testing.T) {
	quick := newStoreEnv(t, "") // the parties come from a gateway that waits longer
	e := startGateway(t, quick.g.settings, testSecrets(), func(e *env) {
		e.g.settings.VendorAPI.ReadTimeout, e.g.settings.PrivateAPI.ReadTimeout = 300*time.Millisecond, 300*time.Millisecond
	})
	e.awaitReady()
	head := hostileOrders + "Authorization: Bearer " + quick.account.token + "\r\n"
	admin := "PATCH /api/admin/v1/accounts/" + quick.account.id + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + adminKey + "\r\n"
	for name, c := range map[string]struct{ base, at, drips string }{
		"request line":      {e.vendor, "P", strings.Repeat("A", 10_000)},
		"target":            {e.vendor, "GET /", strings.Repeat("a", 10_000)},
		"headers":           {e.vendor, head, strings.Repeat("X: y\r\n", 2000)},
		"a header":          {e.vendor, head + "X: ", strings.Repeat("y", 10_000)},
		"short body":        {e.vendor, head + "Content-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
		"long body":         {e.vendor, head + "Content-Length: 65536\r\n\r\n" + strings.Repeat(" ", 40_000), strings.Repeat(" ", 20_000)},
		"expected body":     {e.vendor, head + "Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n", ""},
		"chunks":            {e.vendor, head + "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\n \r\n", 1000)},
		"a chunk":           {e.vendor, head + "Transfer-Encoding: chunked\r\n\r\nffff\r\n", strings.Repeat(" ", 10_000)},
		"a chunk's size":    {e.vendor, head + "Transfer-Encoding: chunked\r\n\r\n2;", strings.Repeat("a", 10_000)},
		"trailers":          {e.vendor, head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", strings.Repeat("X: y\r\n", 1000)},
		"chunks, refused":   {e.vendor, hostileOrders + "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\n \r\n", 1000)},
		"expected chunks":   {e.vendor, head + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n", ""},
		"chunks of admin":   {e.private, admin + "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\n \r\n", 1000)},
		"body of an admin":  {e.private, admin + "Content-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
		"headers, private":  {e.private, admin, strings.Repeat("X: y\r\n", 2000)},
		"second of two":     {e.vendor, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n" + head, strings.Repeat("X: y\r\n", 2000)},
		"body of a GET":     {e.vendor, "GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
		"body of a refused": {e.vendor, hostileOrders + "Content-Length: 5000\r\n\r\n", strings.Repeat(" ", 4999)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			conn := dialBase(t, c.base)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				rest := c.at
				for i := range len(c.drips) {
					if _, err := io.WriteString(conn, rest); err != nil {
						return
					}
					rest = c.drips[i : i+1]
					time.Sleep(10 * time.Millisecond)
				}

				_, _ = io.WriteString(conn, rest)
			}()
			defer func() { conn.Close(); <-ended }()
			r, answers := bufio.NewReader(conn), 0
			for ; ; answers++ {
				got, err := readAnswerFrom(r, "")
				if isTimeout(err) {
					t.Fatal("the connection goes on")
				}

				if err != nil {
					break
				}

				if got.status < 400 || got.status >= 500 {
					t.Errorf("got %d %s", got.status, got.body)
				}
			}

			if answers > 2 {
				t.Errorf("%d answers", answers)
			}
		})
	}
}

// TestHostile_ReaderThatNeverReads: answers that nobody takes are given up after
// the write timeout.
func TestHostile_ReaderThatNeverReads(t *testing.T) {
	e := newEnvWithoutRedis(t, func(s *settings) { s.PrivateAPI.WriteTimeout = 300 * time.Millisecond })
	conn := dialBase(t, e.private)
	defer conn.Close()
	var err error
	for requests := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 100); err == nil; {
		_, err = io.WriteString(conn, requests) // waits, once neither side's buffers take more
	}

	if isTimeout(err) {
		t.Error("the connection goes on")
	}
}

// TestHostile_IdleConnectionsEnd: a connection that was used once is closed
// without a word after the idle timeout.
func TestHostile_IdleConnectionsEnd(t *testing.T) {
	e := newEnvWithoutRedis(t, func(s *settings) { s.VendorAPI.IdleTimeout = 200 * time.Millisecond })
	conn := dialBase(t, e.vendor)
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
// connection is answered; who has not is refused, or loses the connection.
func TestHostile_HalfClosed(t *testing.T) {
	e := newStoreEnv(t, everyLimit())
	head := hostileOrders + "Authorization: Bearer " + e.account.token + "\r\n"
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
		"between two chunks":   {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", []int{400}},
		"after a last line":    {head + "Transfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n", []int{400}},
		"in a chunk":           {head + "Transfer-Encoding: chunked\r\n\r\n3\r\n{}", []int{400}},
		"in a last chunk":      {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0", []int{400}},
		"before the trailers":  {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", []int{400}},
		"after chunks":         {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", []int{422}},
		"in an oversize body":  {head + "Content-Length: 600000\r\n\r\n" + strings.Repeat(" ", 8<<10), []int{413}}, // more would be in the way of the answer
		"after Expect, length": {head + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", []int{400}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			conn := dialBase(t, e.vendor)
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

// Who is refused before everything was read gets the answer and then the end of the connection,
// not a reset: a balancer in front would lose the answer to one.
func TestHostile_ARefusalIsNotLostToAReset(t *testing.T) {
	e := newEnv(t)
	junk := strings.Repeat("y", 100_000)
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"headers that are too large":   {"GET /docs HTTP/1.1\r\nHost: x\r\nX: " + junk + "\r\n\r\n", 431},
		"no HTTP":                      {"GET\r\n\r\n" + junk, 400},
		"two lengths":                  {"POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" + junk, 400},
		"a chunk without its length":   {"POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + junk, 400},
		"a body to no path, cut off":   {"POST /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n" + junk, 404},
		"a body that is far too large": {"POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n" + junk, 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			conn := dialBase(t, e.vendor)
			if _, err := io.WriteString(conn, c.request); err != nil {
				t.Fatal(err)
			}

			r := bufio.NewReader(conn)
			a, err := readAnswerFrom(r, "POST")
			if err != nil || a.status != c.status {
				t.Fatalf("%d %v, want %d", a.status, err, c.status)
			}
			if _, err := io.WriteString(conn, junk); err != nil {
				t.Errorf("what was on its way met a reset: %v", err)
			}
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				t.Errorf("behind the answer: %.200q %v", rest, err)
			}
		})
	}
}
