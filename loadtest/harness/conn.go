package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// maxAnswer bounds an answer's body, in bytes. The service's largest is below 200 kB.
const maxAnswer = 1 << 20

// Conn is one keep-alive connection that sends prepared requests, so cheaply that
// a generator on the server's own machine disturbs it little. One goroutine uses it.
type Conn struct {
	conn     countingConn
	reader   *bufio.Reader
	response fasthttp.Response
	leave    func() bool // the context that would end it
}

type countingConn struct {
	net.Conn
	read int
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read += n
	return n, err
}

// Dial connects to addr (host:port). Everything on the connection fails after deadline, and when ctx ends.
func Dial(ctx context.Context, addr string, deadline time.Time) (*Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := newConn(conn)
	c.leave = context.AfterFunc(ctx, func() { conn.Close() })
	return c, nil
}

func newConn(conn net.Conn) *Conn {
	c := &Conn{conn: countingConn{Conn: conn}, leave: func() bool { return true }}
	c.reader = bufio.NewReaderSize(&c.conn, 4<<10)
	return c
}

// Close ends the connection; an Exchange in progress fails.
func (c *Conn) Close() {
	c.leave()
	c.conn.Close()
}

// Answer is what came back.
type Answer struct {
	Status     int
	Body       []byte // valid until the next Exchange
	Size       int    // in bytes, head and body
	RetryAfter int    // the header in seconds; 0 when absent or a date
	Close      bool   // no further request is answered on this connection
}

// Exchange sends a whole request and reads its answer.
func (c *Conn) Exchange(request []byte) (Answer, error) {
	if _, err := c.conn.Write(request); err != nil {
		return Answer{}, err
	}
	before := c.conn.read - c.reader.Buffered()
	if err := c.response.ReadLimitBody(c.reader, maxAnswer); err != nil {
		return Answer{}, fmt.Errorf("read an answer: %w", err)
	}
	a := Answer{Status: c.response.StatusCode(), Body: c.response.Body(), Close: c.response.ConnectionClose(),
		Size: c.conn.read - c.reader.Buffered() - before}
	a.RetryAfter, _ = strconv.Atoi(string(c.response.Header.Peek("Retry-After")))
	return a, nil
}
